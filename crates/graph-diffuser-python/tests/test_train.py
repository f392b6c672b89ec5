"""Training: data in memory and in files, progress, interruption and resume."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graph_diffuser as gd


def weights(run: Path) -> bytes:
    return (run / "checkpoints/best/weights.safetensors").read_bytes()


def write_csv(path: Path, molecules: Any) -> Path:
    rows = [f"{smiles},{value!r}" for smiles, value in zip(molecules[0], molecules[1].tolist())]
    path.write_text("\n".join(["smiles,target", *rows, ""]))
    return path


def options(small: dict[str, Any]) -> list[str]:
    return [argument for key, value in small.items() for argument in ("--set", f"{key}={value}")]


def test_file_list_and_frame_give_the_same_weights(
    tmp_path: Path, molecules: Any, small: dict[str, Any], trained: gd.Model
) -> None:
    pandas = pytest.importorskip("pandas")
    path = write_csv(tmp_path / "mine.csv", molecules)
    frame = pandas.DataFrame({"smiles": molecules[0], "target": molecules[1]})
    common: dict[str, Any] = {"epochs": 3, "settings": small}
    runs = [
        gd.train(path, out=tmp_path / "a", **common),
        gd.train("molecules", path, out=tmp_path / "b", **common),
        gd.train(data=frame, out=tmp_path / "c", **common),
        gd.train(data=frame[["smiles"]], y=frame["target"], out=tmp_path / "d", **common),
    ]
    assert trained.directory is not None
    for model in runs:
        assert model.directory is not None
        assert weights(model.directory) == weights(trained.directory)
        assert np.array_equal(model.predict(["CCO"]), trained.predict(["CCO"]))
    assert (tmp_path / "c/data.csv").is_file()
    assert not (tmp_path / "a/data.csv").exists()
    for name in ("report.md", "README.md", "result.json", "environment.json"):
        assert (tmp_path / "a" / name).is_file()


def test_weights_and_predictions_equal_those_of_the_program(
    tmp_path: Path, molecules: Any, small: dict[str, Any], program: Callable[..., str]
) -> None:
    path = write_csv(tmp_path / "mine.csv", molecules)
    arguments = ["--epochs", 2, "--seed", 5, "--threads", 1, *options(small)]
    program("train", path, *arguments, "-o", tmp_path / "program")
    model = gd.train(path, out=tmp_path / "python", epochs=2, seed=5, settings=small)
    assert weights(tmp_path / "python") == weights(tmp_path / "program")
    program("predict", tmp_path / "python", "--input", path, "-o", tmp_path / "predictions.csv")
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    column = lines[0].split(",").index("target_pred")
    expected = np.array([line.split(",")[column] for line in lines[1:]], dtype=np.float32)
    assert np.array_equal(model.predict(path)[:, 0], expected)
    assert np.array_equal(gd.load(tmp_path / "program").predict(path)[:, 0], expected)
    scores = json.loads(program("eval", tmp_path / "python", "--json"))
    assert model.evaluate()["value"] == scores["value"]


class Stopped(Exception):
    pass


def stop_after(steps: int) -> Callable[[dict[str, Any]], None]:
    epochs = 0

    def progress(event: dict[str, Any]) -> None:
        nonlocal epochs
        epochs += event["event"] == "epoch"
        if epochs == steps:
            raise Stopped

    return progress


def test_interrupted_run_ends_with_the_same_bits(
    tmp_path: Path, molecules: Any, small: dict[str, Any], trained: gd.Model
) -> None:
    smiles, y = molecules
    common: dict[str, Any] = {"out": tmp_path / "run", "epochs": 3, "settings": small}
    with pytest.raises(Stopped):
        gd.train(data=smiles, y=y, progress=stop_after(1), **common)
    events: list[dict[str, Any]] = []
    model = gd.train(data=smiles, y=y, resume=True, progress=events.append, **common)
    assert trained.directory is not None
    assert weights(tmp_path / "run") == weights(trained.directory)
    resumed = {"event": "resumed", "epoch": 1, "batch": 0, "skipped": [], "lost_best": None}
    assert resumed in events
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [2, 3]
    assert events[0]["event"] == "data" and "Targets" in events[0]["report"]
    # A finished run is returned at once.
    assert gd.resume(tmp_path / "run").fingerprint == model.fingerprint


def test_program_and_package_resume_each_other(
    tmp_path: Path,
    molecules: Any,
    small: dict[str, Any],
    trained: gd.Model,
    program: Callable[..., str],
) -> None:
    smiles, y = molecules
    with pytest.raises(Stopped):
        gd.train(
            data=smiles, y=y, out=tmp_path / "a", epochs=3, settings=small, progress=stop_after(1)
        )
    # The run is moved: its data file is found in the directory.
    (tmp_path / "a").rename(tmp_path / "b")
    program("train", "--resume", tmp_path / "b")
    assert trained.directory is not None
    assert weights(tmp_path / "b") == weights(trained.directory)
    # A run of the program of which only the recipe was written.
    path = write_csv(tmp_path / "mine.csv", molecules)
    program("train", path, "--epochs", 3, *options(small), "-o", tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/recipe.toml").write_text((tmp_path / "c/recipe.toml").read_text())
    gd.resume(tmp_path / "d")
    assert weights(tmp_path / "d") == weights(trained.directory)


def test_ctrl_c_saves_the_run_and_raises(
    tmp_path: Path, molecules: Any, small: dict[str, Any], trained: gd.Model
) -> None:
    smiles, y = molecules

    def progress(event: dict[str, Any]) -> None:
        if event["event"] == "epoch" and event["epoch"] == 1:
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match="resume it with"):
        gd.train(data=smiles, y=y, out=out, epochs=3, settings=small, progress=progress)
    assert (out / "checkpoints/last").is_dir()
    gd.resume(out)
    assert trained.directory is not None
    assert weights(out) == weights(trained.directory)


def test_ctrl_c_during_validation_does_not_wait_for_its_end(
    tmp_path: Path, small: dict[str, Any]
) -> None:
    # Batches of one molecule, most of them for validation.
    smiles = ["C" * (1 + row % 25) + "OCCCCCCCCC" for row in range(600)]
    split = ["train"] * 19 + ["test"] + ["valid"] * 580
    settings = {**small, "train.batch_size": 1, "train.bn_recalibration_batches": 1}
    y = [float(len(text)) for text in smiles]
    events: list[dict[str, Any]] = []
    sent: list[float] = []

    def progress(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "evaluated_batch" and event["batches"] == 580 and not sent:
            sent.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "run"
    common: dict[str, Any] = {"out": out, "epochs": 1, "settings": settings}
    with pytest.raises(KeyboardInterrupt, match="resume it with"):
        gd.train(data=smiles, y=y, split=split, progress=progress, **common)
    seconds = time.monotonic() - sent[0]
    assert seconds < 1.5, seconds
    assert events[-1]["event"] == "evaluated_batch" and events[-1]["batch"] < 580
    assert len(gd.resume(out).history) == 1


def test_ctrl_c_while_data_is_read_leaves_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    rows = (f"{'C' * (1 + row % 30)}OCCNCCO,{row % 7}.5\n" for row in range(200_000))
    file.write_text("smiles,target\n" + "".join(rows))
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        gd.train(file, out=tmp_path / "run", epochs=1)
    assert time.monotonic() - start < 5
    assert not (tmp_path / "run").exists()


def test_model_that_does_not_fit_leaves_no_directory(tmp_path: Path) -> None:
    huge = {"data.colors": 16777216, "model.hidden_dim": 16384, "train.epochs": 1}
    with pytest.raises(gd.Error, match="a training step needs about"):
        gd.train("grid-quick", out=tmp_path / "run", settings=huge)
    assert not list(tmp_path.iterdir())


def test_missing_device_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(gd.InvalidInputError, match="needs a build with the feature `gpu`"):
        gd.train("grid-quick", out=tmp_path / "run", device="gpu")
    assert not list(tmp_path.iterdir())


def test_changed_data_is_an_error_unless_allowed(
    tmp_path: Path, molecules: Any, small: dict[str, Any]
) -> None:
    file, run = write_csv(tmp_path / "mine.csv", molecules), tmp_path / "run"
    model = gd.train(file, out=run, epochs=1, settings=small)
    model.evaluate()
    lines = file.read_text().splitlines()
    lines[1] = lines[1].split(",")[0] + ",99.5"
    file.write_text("\n".join([*lines, ""]))
    with pytest.raises(gd.Error, match="the dataset has changed since") as caught:
        model.evaluate(split="train")
    assert "`allow_changed_data=True`" in (caught.value.hint or "")
    assert model.evaluate(split="train", allow_changed_data=True)["samples"] > 0
    (run / "result.json").unlink()
    with pytest.raises(gd.Error, match="the dataset has changed since"):
        gd.resume(run)
    gd.resume(run, allow_changed_data=True).evaluate()


def test_existing_directories_are_not_overwritten(trained: gd.Model, molecules: Any) -> None:
    smiles, y = molecules
    assert trained.directory is not None
    with pytest.raises(gd.Error, match="already exists") as caught:
        gd.train(data=smiles, y=y, out=trained.directory)
    assert "resume" in (caught.value.hint or "")


def test_invalid_data_leaves_no_directory(tmp_path: Path, small: dict[str, Any]) -> None:
    out = tmp_path / "run"
    with pytest.raises(gd.Error, match="SMILES"):
        gd.train(data=["C("] * 20, y=range(20), out=out)
    with pytest.raises(gd.Error, match="needs targets"):
        gd.train(data=["C"] * 20, out=out)
    with pytest.raises(gd.Error, match="20 rows"):
        gd.train(data=["C"] * 20, y=range(3), out=out)
    with pytest.raises(gd.Error, match="optim.weight_decy") as caught:
        gd.train(data=["C"] * 20, y=range(20), out=out, settings={"optim.weight_decy": 1})
    assert caught.value.hint is not None
    with pytest.raises(gd.Error, match="recipe or data"):
        gd.train()
    assert not out.exists()


def test_invalid_smiles_can_be_skipped(
    tmp_path: Path, molecules: Any, small: dict[str, Any]
) -> None:
    smiles, y = [*molecules[0], "C("], [*molecules[1], 0.0]
    model = gd.train(
        data=smiles, y=y, out=tmp_path / "run", epochs=1, settings=small, on_invalid="skip"
    )
    assert model.task == "regression"


def test_several_targets_with_missing_values(
    tmp_path: Path, molecules: Any, small: dict[str, Any]
) -> None:
    smiles, y = molecules
    both = np.column_stack([y, -y])
    both[::3, 1] = np.nan
    model = gd.train(data=smiles, y=both, out=tmp_path / "run", epochs=1, settings=small)
    assert model.target_names == ["target_0", "target_1"]
    assert model.predict(smiles).shape == (48, 2)


def test_classes_and_probabilities(tmp_path: Path, molecules: Any, small: dict[str, Any]) -> None:
    smiles, _ = molecules
    kinds = ["alkane", "alcohol", "amine", "chloride"] * 12
    split = ["train", "train", "valid", "test"] * 12
    model = gd.train(
        data=smiles, y=kinds, out=tmp_path / "run", epochs=1, settings=small, split=split[::-1]
    )
    assert model.classes == [sorted(set(kinds))]
    probabilities = model.predict_proba(smiles)
    assert probabilities.shape == (48, 4)
    labels = model.predict(smiles)
    assert labels.shape == (48, 1)
    assert (np.array(model.classes[0])[probabilities.argmax(axis=1)] == labels[:, 0]).all()
    assert model.evaluate(smiles, kinds)["samples"] == 48
    assert model.evaluate(tmp_path / "run/data.csv") == model.evaluate(smiles, kinds)
    with pytest.raises(gd.Error, match="not a class") as caught:
        model.evaluate(smiles, ["ester"] * 48)
    assert "'amine'" in (caught.value.hint or "")


def test_graphs_with_mixed_features(
    tmp_path: Path, rings: list[gd.Graph], small: dict[str, Any]
) -> None:
    model = gd.train(data=rings, out=tmp_path / "run", epochs=2, settings=small)
    assert model.task == "multiclass"
    assert model.classes == [["path", "ring"]]
    assert model.predict_proba(rings).shape == (30, 2)
    assert model.evaluate(rings)["samples"] == 30
    assert model.evaluate(tmp_path / "run/data.jsonl") == model.evaluate(rings)
    file = gd.train(tmp_path / "run/data.jsonl", out=tmp_path / "file", epochs=2, settings=small)
    assert weights(tmp_path / "run") == weights(tmp_path / "file")
    assert np.array_equal(file.predict_proba(tmp_path / "run/data.jsonl"), model.predict_proba(rings))


def test_edge_lists_and_networkx_graphs_agree(tmp_path: Path, small: dict[str, Any]) -> None:
    nx = pytest.importorskip("networkx")
    graphs = [nx.path_graph(size) if size % 2 else nx.cycle_graph(size) for size in range(3, 33)]
    y = [float(graph.number_of_nodes()) for graph in graphs]
    pairs = [np.array(graph.edges()) for graph in graphs]
    common: dict[str, Any] = {"epochs": 1, "settings": small}
    gd.train(data=graphs, y=y, out=tmp_path / "a", **common)
    gd.train(data=pairs, y=y, out=tmp_path / "b", **common)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_classes_of_nodes(tmp_path: Path, small: dict[str, Any]) -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.karate_club_graph()
    for node, attributes in graph.nodes(data=True):
        attributes["label"] = attributes.pop("club")
        attributes["degree"] = graph.degree[node]
    model = gd.train(data=graph, out=tmp_path / "run", epochs=1, settings=small)
    assert model.task == "node_multiclass"
    assert set(model.predict(graph)[0]) <= {"Mr. Hi", "Officer"}


def test_pyg_dataset(tmp_path: Path, small: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed")
    dataset = pytest.importorskip("torch_geometric.datasets").FakeDataset(
        num_graphs=30, avg_num_nodes=8, avg_degree=3, num_channels=4, edge_dim=2, num_classes=3
    )
    model = gd.train(data=dataset, out=tmp_path / "run", epochs=1, settings=small)
    assert model.task in ("multiclass", "binary")
    assert len(model.predict(dataset)) == 30
    single = pyg.Data(
        x=torch.rand(12, 3),
        edge_index=torch.randint(12, (2, 30)),
        y=torch.arange(12) % 2,
        train_mask=torch.arange(12) < 6,
        val_mask=(torch.arange(12) >= 6) & (torch.arange(12) < 9),
        test_mask=torch.arange(12) >= 9,
    )
    nodes = gd.train(data=single, out=tmp_path / "nodes", epochs=1, settings=small)
    assert len(nodes.predict(single)[0]) == 12


def test_ensemble_has_a_deviation(tmp_path: Path, molecules: Any, small: dict[str, Any]) -> None:
    smiles, y = molecules
    model = gd.train(
        data=smiles, y=y, out=tmp_path / "run", epochs=1, settings=small, ensemble=2
    )
    assert model.num_members == 2
    mean, std = model.predict(smiles[:5], return_std=True)
    assert mean.shape == std.shape == (5, 1)
    assert (std > 0).all()
    assert model.explain("CCO", member=1).attention.shape != model.embed(["CCO"]).shape
    with pytest.raises(gd.Error, match="member 5"):
        model.explain("CCO", member=5)
    with pytest.raises(gd.Error, match="not an ensemble"):
        gd.load(tmp_path / "run/members/0").predict(smiles, return_std=True)


def test_progress_is_printed(
    tmp_path: Path, molecules: Any, small: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    smiles, y = molecules
    gd.train(data=smiles, y=y, out=tmp_path / "run", epochs=1, settings=small, progress=True)
    printed = capsys.readouterr().err
    assert "Targets" in printed and "epoch 1  loss" in printed


def test_init_model_gives_the_weights_of_the_option_from(
    tmp_path: Path, molecules: Any, trained: gd.Model, program: Callable[..., str]
) -> None:
    path = write_csv(tmp_path / "mine.csv", molecules)
    assert trained.directory is not None
    model = gd.train(path, out=tmp_path / "a", init_model=trained.directory, epochs=2)
    source = str(trained.directory)
    program("train", str(path), "--from", source, "--epochs", "2", "-o", str(tmp_path / "b"))
    assert model.directory is not None
    assert weights(model.directory) == weights(tmp_path / "b")
    assert (tmp_path / "a/initial.safetensors").is_file()
    with pytest.raises(gd.InvalidInputError, match=r"`model\.layers=3` changes the model"):
        gd.train(path, out=tmp_path / "d", init_model=source, settings={"model.layers": 3})
    with pytest.raises(gd.InvalidInputError, match="there is no pretrained model `nothing`"):
        gd.train(path, out=tmp_path / "d", init_model="pretrained:nothing")
