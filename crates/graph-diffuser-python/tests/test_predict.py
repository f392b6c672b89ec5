"""Predictions, embeddings and evaluation."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graph_diffuser as gd

SMILES = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "CCN(CC)CC"]


def test_predictions_do_not_depend_on_order_or_batch(zinc: gd.Model) -> None:
    together = zinc.predict(SMILES)
    assert together.shape == (4, 1)
    assert together.dtype == np.float32
    assert np.array_equal(zinc.predict(SMILES[::-1])[::-1], together)
    alone = np.concatenate([zinc.predict([smiles]) for smiles in SMILES])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)


def test_all_forms_of_smiles_are_equal(zinc: gd.Model, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    expected = zinc.predict(SMILES)
    frame = pandas.DataFrame({"id": range(4), "Smiles": SMILES})
    path = tmp_path / "new.csv"
    frame.to_csv(path, index=False)
    for data in (
        np.array(SMILES),
        np.array(SMILES, dtype=object).reshape(-1, 1),
        tuple(SMILES),
        pandas.Series(SMILES),
        frame,
        frame[["Smiles"]],
        path,
        str(path),
    ):
        assert np.array_equal(zinc.predict(data), expected)


def test_graph_and_smiles_agree(zinc: gd.Model, trained: gd.Model) -> None:
    for model, featurizer in ((zinc, "zinc"), (trained, "ogb")):
        graphs = [gd.Graph.from_smiles(smiles, featurizer=featurizer) for smiles in SMILES[:2]]
        assert np.array_equal(model.predict(graphs), model.predict(SMILES[:2]))
        assert np.array_equal(model.predict(graphs[0]), model.predict(SMILES[:1]))


def test_pyg_data_and_smiles_agree(trained: gd.Model) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed")
    rows = []
    for smiles in SMILES:
        graph = gd.Graph.from_smiles(smiles)
        rows.append(
            pyg.Data(
                x=torch.from_numpy(graph.node_features),
                edge_index=torch.from_numpy(graph.edge_index),
                edge_attr=torch.from_numpy(graph.edge_features),
            )
        )
    assert np.array_equal(trained.predict(rows), trained.predict(SMILES))


def test_invalid_rows_raise_or_become_nan_or_are_skipped(zinc: gd.Model) -> None:
    rows = ["CCO", "C(", None, "CC"]
    with pytest.raises(gd.InvalidInputError, match="row 1") as caught:
        zinc.predict(rows)
    assert caught.value.row == 1
    assert isinstance(caught.value, ValueError)
    kept = zinc.predict(rows, on_invalid="nan")
    assert np.isnan(kept[:, 0]).tolist() == [False, True, True, False]
    assert np.array_equal(zinc.predict(rows, on_invalid="skip"), kept[[0, 3]])
    with pytest.raises(gd.Error) as caught:
        zinc.predict(rows, on_invalid="drop")  # type: ignore[arg-type]
    assert "'skip'" in (caught.value.hint or "")


def test_errors_of_graphs_name_the_row(zinc: gd.Model) -> None:
    good = gd.Graph.from_smiles("CCO", featurizer="zinc")
    bad = gd.Graph.from_edges([[0, 1]], node_features=[900, 901])
    with pytest.raises(gd.InvalidInputError) as caught:
        zinc.predict([good, bad])
    assert caught.value.row == 1
    with pytest.raises(gd.Error, match="no such file"):
        zinc.predict("CCO")
    with pytest.raises(gd.Error, match="not a graph"):
        zinc.predict([object()])


def test_no_rows_give_no_predictions(zinc: gd.Model) -> None:
    assert zinc.predict([]).shape == (0, 1)
    assert zinc.embed([]).shape == (0, 64)


def test_many_rows_keep_their_order(trained: gd.Model) -> None:
    smiles = ["C" * (1 + row % 9) for row in range(5000)]
    values = trained.predict(smiles)
    assert np.array_equal(values, values[:9][np.arange(5000) % 9])


def test_embeddings_of_graphs_and_nodes(zinc: gd.Model) -> None:
    graphs = zinc.embed(SMILES)
    nodes = zinc.embed(SMILES, nodes=True)
    assert graphs.shape == (4, 64)
    assert [rows.shape for rows in nodes] == [(3, 64), (7, 64), (11, 64), (7, 64)]
    assert zinc.embed(["C("], nodes=True, on_invalid="nan") == [None]


def test_model_can_be_pickled(trained: gd.Model) -> None:
    copy = pickle.loads(pickle.dumps(trained))
    assert copy.fingerprint == trained.fingerprint
    assert np.array_equal(copy.predict(SMILES), trained.predict(SMILES))
    assert np.array_equal(copy.similarity(SMILES), trained.similarity(SMILES))


def test_threads_share_a_model(zinc: gd.Model) -> None:
    expected = zinc.predict(SMILES * 20)
    results: list[Any] = [None] * 4

    def work(index: int) -> None:
        results[index] = zinc.predict(SMILES * 20)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, expected) for result in results)


def test_number_of_threads_does_not_change_results(zinc: gd.Model) -> None:
    before = gd.num_threads()
    expected = zinc.predict(SMILES * 10)
    try:
        for count in (1, 3):
            gd.set_num_threads(count)
            assert gd.num_threads() == count
            assert np.array_equal(zinc.predict(SMILES * 10), expected)
    finally:
        gd.set_num_threads(before)
    with pytest.raises((ValueError, OverflowError)):
        gd.set_num_threads(0)


def test_schema_describes_targets(trained: gd.Model, zinc: gd.Model) -> None:
    assert trained.task == "regression"
    assert trained.target_names == ["target"]
    assert trained.classes == [[]]
    assert trained.schema["input"] == "ogb"
    assert repr(trained) == "Model(task='regression', targets=['target'])"
    with pytest.raises(gd.Error, match="no probabilities"):
        zinc.predict_proba(["C"])


def test_missing_models_have_hints() -> None:
    with pytest.raises(gd.Error) as caught:
        gd.load("pretrained:nothing")
    assert "`pretrained:zinc`" in (caught.value.hint or "")
    assert "hint: " in str(caught.value)


def test_devices_that_are_not_available_are_errors(zinc: gd.Model) -> None:
    on_cpu = gd.load("pretrained:zinc", device="cpu")
    assert np.array_equal(on_cpu.predict(SMILES), zinc.predict(SMILES))
    with pytest.raises(gd.InvalidInputError, match="unknown device `tpu`"):
        gd.load("pretrained:zinc", device="tpu")
    for name in ("gpu:1", "cuda"):
        feature = name.partition(":")[0]
        with pytest.raises(gd.InvalidInputError, match=f"needs a build with the feature `{feature}`"):
            gd.load("pretrained:zinc", device=name)


def test_evaluation_of_the_run_and_of_other_data(trained: gd.Model, molecules: Any) -> None:
    pandas = pytest.importorskip("pandas")
    scores = trained.evaluate()
    result = trained.result
    assert result is not None
    assert scores["value"] == pytest.approx(result["test"]["metric"], rel=1e-6)
    assert len(trained.history) == 3
    smiles, y = molecules
    mae = trained.evaluate(smiles, y)["metrics"]["mae"]
    assert mae == pytest.approx(np.abs(trained.predict(smiles)[:, 0] - y).mean(), rel=1e-5)
    frame = pandas.DataFrame({"smiles": smiles, "target": y})
    assert trained.evaluate(frame)["metrics"]["mae"] == mae
    with pytest.raises(gd.Error, match="rows"):
        trained.evaluate(smiles, y[:3])
    with pytest.raises(gd.Error, match="unknown split"):
        trained.evaluate(split="holdout")  # type: ignore[arg-type]


def test_evaluation_of_a_file_equals_that_of_its_rows(
    trained: gd.Model, molecules: Any, tmp_path: Path
) -> None:
    smiles, y = molecules
    expected = trained.evaluate(smiles, y)
    rows = [f"{row},{text},{value!r}" for row, (text, value) in enumerate(zip(smiles, y.tolist()))]
    text = "\n".join(["id,smiles,target", *rows, ""])
    (tmp_path / "new.csv").write_text(text)
    assert trained.evaluate(tmp_path / "new.csv") == expected
    (tmp_path / "new.tsv").write_text("\ufeff" + text.replace(",", "\t"), encoding="utf-8")
    assert trained.evaluate(tmp_path / "new.tsv") == expected
    with gzip.open(tmp_path / "new.csv.gz", "wt") as file:
        file.write(text)
    assert trained.evaluate(str(tmp_path / "new.csv.gz")) == expected
    (tmp_path / "other.csv").write_text(text.replace("target", "other", 1))
    with pytest.raises(gd.Error, match="no column 'target'") as caught:
        trained.evaluate(tmp_path / "other.csv")
    assert "smiles, other" in (caught.value.hint or "")
    (tmp_path / "text.csv").write_text("smiles,target\nCCO,high\n")
    with pytest.raises(gd.Error, match="'high' is not a number"):
        trained.evaluate(tmp_path / "text.csv")
    (tmp_path / "new.sdf").write_text("")
    with pytest.raises(gd.Error, match="cannot be read") as caught:
        trained.evaluate(tmp_path / "new.sdf")
    assert "CSV" in (caught.value.hint or "")
    with pytest.raises(gd.Error, match="y belongs to data in memory"):
        trained.evaluate(tmp_path / "new.csv", y)


def write_foreign_schema(trained: gd.Model, path: Path, change: Any) -> Path:
    """Copies a run and changes its schema."""
    assert trained.directory is not None
    shutil.copytree(trained.directory, path)
    schema = json.loads((path / "schema.json").read_text())
    change(schema["schema"])
    (path / "schema.json").write_text(json.dumps(schema))
    return path


def test_schema_of_a_foreign_run_is_checked_before_memory_is_allocated(
    trained: gd.Model, tmp_path: Path
) -> None:
    def enlarge(schema: dict[str, Any]) -> None:
        schema["node_features"]["categorical"][0] = 2**31

    run = write_foreign_schema(trained, tmp_path / "run", enlarge)
    start = time.monotonic()
    with pytest.raises(gd.Error, match="shape mismatch for tensor"):
        gd.load(run)
    recipe, schema, *rest = trained._native.state()
    huge = json.loads(schema)
    enlarge(huge["schema"])
    with pytest.raises(gd.Error, match="shape mismatch for tensor"):
        type(trained._native).from_state(recipe, json.dumps(huge), *rest)
    assert time.monotonic() - start < 10


def test_weights_of_another_schema_are_an_error(trained: gd.Model, tmp_path: Path) -> None:
    def shift(schema: dict[str, Any]) -> None:
        schema["targets"]["graph"][0]["regression"]["mean"] += 1

    run = write_foreign_schema(trained, tmp_path / "run", shift)
    with pytest.raises(gd.Error, match="belong to another schema") as caught:
        gd.load(run)
    assert caught.value.hint is not None
    # Formatting does not matter.
    run = write_foreign_schema(trained, tmp_path / "compact", lambda schema: None)
    assert gd.load(run).fingerprint == trained.fingerprint


def test_explanation_has_arrays_and_figures(zinc: gd.Model, tmp_path: Path) -> None:
    trace = zinc.explain("CCO", node=2)
    layers, heads, rows, nodes = trace.attention.shape
    assert (rows, nodes, trace.node) == (3, 3, 2)
    np.testing.assert_allclose(trace.attention.sum(axis=-1), 1, rtol=1e-4)
    assert trace.position is not None and trace.position.shape == trace.attention.shape
    assert trace.edge_weights is not None and len(trace.edge_weights) == len(trace.edges) == 4
    assert trace.labels == ["C", "C", "O"]
    assert trace._repr_svg_().startswith("<svg")
    assert trace.svg(node=0, layer=0, head=heads - 1) != trace.svg()
    assert repr(trace).startswith("Explanation(")
    for name in ("a.svg", "a.png", "a.json", "a.npz"):
        trace.save(tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "a.json").read_text())["rows"] == [0, 1, 2]
    for arguments in ({"layer": layers}, {"head": heads}, {"node": 7}):
        with pytest.raises(gd.Error):
            trace.svg(**arguments)
    with pytest.raises(gd.Error, match="node 9 is out of range"):
        zinc.explain("CCO", node=9)
    with pytest.raises(gd.Error, match="unknown format"):
        trace.save(tmp_path / "a.pdf")


def test_grid_model_predicts_classes_of_nodes() -> None:
    model = gd.load("pretrained:grid")
    pairs = [[row * 4 + column, row * 4 + column + 1] for row in range(4) for column in range(3)]
    pairs += [[node, node + 4] for node in range(12)]
    grid = gd.Graph.from_edges(pairs, node_features=[node % 3 for node in range(16)])
    assert model.task == "node_multiclass"
    probabilities = model.predict_proba([grid])[0]
    labels = model.predict([grid])[0]
    assert probabilities.shape[0] == len(labels) == 16
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert model.explain(grid, node=5).attention.shape[2:] == (16, 16)


def test_batch_of_pyg_is_a_list_of_graphs() -> None:
    class Batch:
        """Batch of PyTorch Geometric, as far as the package uses it."""

        def to_data_list(self) -> list[str]:
            return ["CCO", "CC"]

    model = gd.load("pretrained:zinc")
    assert np.array_equal(model.predict(Batch()), model.predict(["CCO", "CC"]))


def test_targets_of_a_table_are_those_that_training_reads(tmp_path: Path) -> None:
    from graph_diffuser.files import read_targets

    path = tmp_path / "mine.csv"
    path.write_text("\n\nsmiles|y\nCCO|1.5\n|\nCC|\n", encoding="utf-8")
    assert read_targets(str(path), ["y"]) == [["1.5"], [None]]
