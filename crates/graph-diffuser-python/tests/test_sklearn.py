"""Estimators: the conventions of scikit-learn, with molecules and graphs as samples."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import graph_diffuser as gd

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.base import clone, is_classifier, is_regressor  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

from graph_diffuser.sklearn import (  # noqa: E402
    GraphDiffuserClassifier,
    GraphDiffuserRegressor,
)

ESTIMATORS = [GraphDiffuserRegressor, GraphDiffuserClassifier]

#: Checks of scikit-learn that pass no table of numbers to `fit`.
INPUT_FREE_CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimators_unfitted",
]


@pytest.fixture(scope="module")
def options(small: dict[str, Any]) -> dict[str, Any]:
    return {"epochs": 2, "settings": small}


@pytest.fixture(scope="module")
def data(molecules: Any) -> tuple[list[str], np.ndarray]:
    return molecules


@pytest.fixture(scope="module")
def kinds() -> np.ndarray:
    return np.array(["none", "oxygen", "none", "none"] * 12)


@pytest.fixture(scope="module")
def regressor(options: dict[str, Any], data: Any) -> GraphDiffuserRegressor:
    return GraphDiffuserRegressor(**options).fit(*data)


@pytest.fixture(scope="module")
def classifier(
    options: dict[str, Any], data: Any, kinds: np.ndarray
) -> GraphDiffuserClassifier:
    return GraphDiffuserClassifier(**options).fit(data[0], kinds)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", INPUT_FREE_CHECKS)
def test_checks_without_input(estimator: type, name: str) -> None:
    check = getattr(estimator_checks, name, None)
    if check is None:
        pytest.skip(f"this version of scikit-learn has no {name}")
    check(estimator.__name__, estimator())


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes_with_honest_tags(estimator: type) -> None:
    results = estimator_checks.check_estimator(estimator(), on_fail=None)
    assert [result for result in results if result["status"] == "failed"] == []


def test_tags_say_what_the_estimators_accept() -> None:
    for estimator in (GraphDiffuserRegressor(), GraphDiffuserClassifier()):
        tags = estimator.__sklearn_tags__()
        assert not tags.input_tags.two_d_array
        assert tags.input_tags.string
        assert tags.target_tags.required and tags.requires_fit
    assert is_regressor(GraphDiffuserRegressor())
    assert is_classifier(GraphDiffuserClassifier())
    assert GraphDiffuserRegressor().__sklearn_tags__().target_tags.multi_output


def test_fit_returns_self_and_keeps_parameters(options: dict[str, Any], data: Any) -> None:
    estimator = GraphDiffuserRegressor(**options)
    before = estimator.get_params()
    assert estimator.fit(*data) is estimator
    assert estimator.get_params() == before
    public = {name for name in vars(estimator) if not name.startswith("_")}
    assert {name for name in public - set(before) if not name.endswith("_")} == set()


def test_predict_does_not_change_the_estimator(regressor: Any, data: Any) -> None:
    before = dict(vars(regressor))
    regressor.predict(data[0])
    regressor.transform(data[0])
    assert vars(regressor) == before


def test_fit_is_idempotent_to_the_bit(
    regressor: GraphDiffuserRegressor, data: Any
) -> None:
    again = clone(regressor).fit(*data)
    assert again.model_.fingerprint == regressor.model_.fingerprint
    fingerprint = again.model_.fingerprint
    assert again.fit(*data).model_.fingerprint == fingerprint
    other = clone(regressor).set_params(random_state=1).fit(*data)
    assert other.model_.fingerprint != fingerprint
    generator = clone(regressor).set_params(random_state=np.random.RandomState(3)).fit(*data)
    assert generator.model_.fingerprint != fingerprint


def test_predictions_do_not_depend_on_order_or_subset(regressor: Any, data: Any) -> None:
    values = regressor.predict(data[0])
    assert np.array_equal(regressor.predict(data[0][::-1])[::-1], values)
    np.testing.assert_allclose(regressor.predict(data[0][5:9]), values[5:9], rtol=1e-5, atol=1e-6)


def test_estimator_can_be_pickled(regressor: Any, classifier: Any, data: Any) -> None:
    for estimator in (regressor, classifier):
        copy = pickle.loads(pickle.dumps(estimator))
        assert np.array_equal(copy.predict(data[0]), estimator.predict(data[0]))
        assert copy.get_params() == estimator.get_params()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_unfitted_estimators_raise(estimator: type) -> None:
    for method in ("predict", "predict_proba", "transform"):
        if hasattr(estimator, method):
            with pytest.raises(NotFittedError):
                getattr(estimator(), method)(["C"])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sample_weight_is_refused(estimator: type, data: Any) -> None:
    with pytest.raises(TypeError, match="does not support sample_weight"):
        estimator().fit(data[0], data[1], sample_weight=np.ones(48))
    with pytest.raises(TypeError, match="unexpected keyword"):
        estimator().fit(data[0], data[1], groups=None)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (["C", "CC", "CCC"], [1.0, np.nan, 2.0], "NaN"),
        (["C", "CC", "CCC"], [1.0, np.inf, 2.0], "infinity"),
        (["C", "CC", "CCC"], [1.0, 2.0], "inconsistent"),
        (["C"], [1.0], "n_samples=1"),
        ([], [], "0 sample"),
        (["C", None, "CC"], [1.0, 2.0, 3.0], "sample 1 is missing"),
        (np.ones((4, 3)), np.ones(4), "numbers"),
        ([1.0, 2.0], [1.0, 2.0], "numbers"),
        ("CCO", [1.0], "sequence"),
        (["C", "CC"], None, "y is None"),
    ],
)
def test_invalid_arguments_of_fit(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphDiffuserRegressor().fit(X, y)


def test_invalid_molecules_name_the_row(regressor: Any) -> None:
    with pytest.raises(gd.InvalidInputError) as caught:
        regressor.predict(["C", "C("])
    assert caught.value.row == 1


def test_a_run_directory_is_for_a_single_fit(options: dict[str, Any], tmp_path: Any) -> None:
    estimator = GraphDiffuserRegressor(**options, run_directory=str(tmp_path / "run"))
    estimator.fit(["CCO", "CCCN", "CC"], [1.0, 2.0, 3.0])
    with pytest.raises(gd.InvalidInputError, match="already exists") as caught:
        estimator.fit(["CCO", "CCCN", "CC"], [1.0, 2.0, 3.0])
    assert "omit run_directory for cross-validation" in (caught.value.hint or "")


def test_two_samples_are_enough(options: dict[str, Any]) -> None:
    model = GraphDiffuserRegressor(**options).fit(["CCO", "CCCN"], [1.0, 2.0])
    assert model.predict(["C"]).shape == (1,)


@pytest.mark.parametrize("smiles", ["C", "c1ccccc1"])
def test_training_molecules_with_identical_atoms_only_are_rejected(
    smiles: str, tmp_path: Any, small: dict[str, Any]
) -> None:
    # PyTorch rejects batches of one row, too: "Expected more than 1 value per channel".
    data = [smiles, "CCO", "CCN"]
    split = ["train", "valid", "test"]
    with pytest.raises(gd.Error, match="no variance") as caught:
        gd.train(data=data, y=[1, 2, 3], split=split, out=tmp_path / "run", settings=small)
    assert "add training graphs" in (caught.value.hint or "")
    # Together with other molecules, a single atom is a valid sample.
    data, split = [smiles, "CCN", "CCO", "CCCO"], ["train", "train", "valid", "test"]
    settings = {**small, "train.batch_size": 1}
    y = [1.0, 2.0, 3.0, 4.0]
    model = gd.train(
        data=data, y=y, split=split, out=tmp_path / "more", epochs=2, settings=settings
    )
    assert np.isfinite(model.predict(["C", "CCO", "c1ccccc1"])).all()


def test_shape_of_predictions_is_that_of_y(options: dict[str, Any], data: Any) -> None:
    smiles, y = data
    both = np.column_stack([y, -y])
    both[::4, 1] = np.nan
    assert GraphDiffuserRegressor(**options).fit(smiles, both).predict(smiles).shape == (48, 2)
    column = GraphDiffuserRegressor(**options).fit(smiles, y.reshape(-1, 1))
    assert column.predict(smiles).shape == (48, 1)


def test_classes_keep_their_type(
    options: dict[str, Any], data: Any, classifier: Any, kinds: np.ndarray
) -> None:
    smiles, _ = data
    assert classifier.classes_.tolist() == ["none", "oxygen"]
    probabilities = classifier.predict_proba(smiles)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert set(classifier.predict(smiles)) <= set(kinds)
    assert 0 <= classifier.score(smiles, kinds) <= 1
    numbers = np.array([12, 3, 7, 3] * 12)
    several = GraphDiffuserClassifier(**options).fit(smiles, numbers)
    assert several.classes_.tolist() == [3, 7, 12]
    assert several.predict_proba(smiles).shape == (48, 3)
    assert several.predict(smiles).dtype == numbers.dtype
    eleven = np.arange(48) % 11
    many = GraphDiffuserClassifier(**options).fit(smiles, eleven)
    assert many.predict_proba(smiles).shape == (48, 11)


def test_invalid_classes(data: Any) -> None:
    smiles, y = data
    for labels, message in (
        (np.zeros(48), "at least 2 classes"),
        (y + 0.5, "continuous"),
        (np.array([None, *["a"] * 47], dtype=object), "NaN"),
        (np.zeros((48, 2)), "bad input shape"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphDiffuserClassifier().fit(smiles, labels)


def test_graphs_are_samples(options: dict[str, Any], rings: list[gd.Graph]) -> None:
    labels = [graph.y for graph in rings]
    estimator = GraphDiffuserClassifier(**options).fit(rings, labels)
    assert estimator.predict_proba(rings).shape == (30, 2)
    array = np.empty(30, dtype=object)
    array[:] = rings
    assert np.array_equal(estimator.predict(array), estimator.predict(rings))
    sizes = [float(graph.num_nodes) for graph in rings]
    assert GraphDiffuserRegressor(**options).fit(array, sizes).predict(rings).shape == (30,)


def test_cross_validation_and_grid_search(options: dict[str, Any], data: Any) -> None:
    smiles, y = data
    options = {**options, "epochs": 1}
    scores = cross_val_score(GraphDiffuserRegressor(**options), smiles, y, cv=3)
    assert scores.shape == (3,) and np.isfinite(scores).all()
    search = GridSearchCV(
        GraphDiffuserRegressor(**options), {"lr": [1e-3, 1e-2]}, cv=2, n_jobs=2,
        scoring="neg_mean_absolute_error",
    )
    search.fit(np.array(smiles, dtype=object), y)
    assert search.best_params_["lr"] in (1e-3, 1e-2)
    assert search.predict(smiles).shape == (48,)


def test_pipeline_after_a_column_selector(options: dict[str, Any], data: Any) -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import FunctionTransformer

    smiles, y = data
    frame = pandas.DataFrame({"id": range(48), "smiles": smiles})
    direct = GraphDiffuserRegressor(**options).fit(smiles, y).predict(smiles)
    for selector in (
        make_column_transformer(("passthrough", ["smiles"])),
        FunctionTransformer(lambda table: table["smiles"]),
        FunctionTransformer(lambda table: table[["smiles"]]),
    ):
        pipeline = make_pipeline(selector, GraphDiffuserRegressor(**options)).fit(frame, y)
        assert np.array_equal(pipeline.predict(frame), direct)


def test_embeddings_feed_other_estimators(regressor: Any, data: Any) -> None:
    from sklearn.linear_model import Ridge

    embeddings = regressor.transform(data[0])
    assert embeddings.shape == (48, 16)
    assert Ridge().fit(embeddings, data[1]).predict(embeddings).shape == (48,)


def test_run_directory_is_kept(options: dict[str, Any], data: Any, tmp_path: Any) -> None:
    estimator = GraphDiffuserRegressor(**options, run_directory=str(tmp_path / "run")).fit(*data)
    assert (tmp_path / "run/result.json").is_file()
    assert np.array_equal(gd.load(tmp_path / "run").predict(["C"])[:, 0], estimator.predict(["C"]))
    assert estimator.n_iter_ == len(estimator.history_) == 2
    for name in ["README.md", "report.md"]:
        text = (tmp_path / "run" / name).read_text(encoding="utf-8")
        assert "There are no test samples" in text
    assert "split: test" not in (tmp_path / "run/README.md").read_text(encoding="utf-8")


def test_ensemble_counts_the_epochs_of_all_members(options: dict[str, Any], data: Any) -> None:
    estimator = GraphDiffuserRegressor(**{**options, "ensemble": 2}).fit(*data)
    assert estimator.n_iter_ == 4
