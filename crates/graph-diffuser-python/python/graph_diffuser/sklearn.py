"""Estimators with the interface of scikit-learn, whose samples are molecules or graphs."""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from ._errors import InvalidInputError
from .convert import is_data_frame, is_missing, smiles_column, to_list
from .graph import to_numpy
from .model import Model
from .training import train

__all__ = ["GraphDiffuserClassifier", "GraphDiffuserRegressor"]


class _GraphDiffuserEstimator(BaseEstimator):  # type: ignore[misc]
    """Parameters, fitting and inference of both estimators."""

    #: Task of the recipe; set by the subclasses.
    _task: str

    def __init__(
        self,
        recipe: str | None = None,
        *,
        epochs: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        ensemble: int | None = None,
        init_model: str | PathLike[str] | None = None,
        settings: dict[str, Any] | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = 0,
        run_directory: str | None = None,
        progress: Any = False,
    ) -> None:
        self.recipe = recipe
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.ensemble = ensemble
        self.init_model = init_model
        self.settings = settings
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.run_directory = run_directory
        self.progress = progress

    def _samples(self, X: Any) -> list[Any]:
        if is_data_frame(X):
            X = X[smiles_column(X)]
        if isinstance(X, str) or not (hasattr(X, "__len__") or hasattr(X, "__iter__")):
            raise ValueError(f"X is {type(X).__name__}, expected a sequence of SMILES or graphs")
        shape = getattr(X, "shape", None)
        if shape is not None and len(shape) == 0:
            raise ValueError("X is a scalar array, expected a sequence of SMILES or graphs")
        samples = to_list(X)
        if not samples:
            raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
        numbers = (int, float, complex, np.number)
        if any(isinstance(sample, numbers) and not is_missing(sample) for sample in samples) or (
            shape is not None and len(shape) > 1 and tuple(shape[1:]) != (1,)
        ):
            raise ValueError(
                "X has numbers, expected a sequence of SMILES or graphs; "
                "this estimator does not read tables of features"
            )
        missing = [row for row, sample in enumerate(samples) if is_missing(sample)]
        if missing:
            raise ValueError(f"Input X contains NaN: sample {missing[0]} is missing")
        return samples

    def _check_fit_params(self, fit_params: dict[str, Any]) -> None:
        if fit_params.get("sample_weight") is not None:
            raise TypeError(
                f"{type(self).__name__} does not support sample_weight: the loss weights all "
                "samples equally"
            )
        unknown = set(fit_params) - {"sample_weight"}
        if unknown:
            raise TypeError(f"fit() got an unexpected keyword argument {sorted(unknown)[0]!r}")

    def _fit(self, samples: list[Any], y: npt.NDArray[Any], strata: Any) -> None:
        """Trains on ``samples`` and keeps the model in memory."""
        count = len(samples)
        if len(y) != count:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: [{count}, {len(y)}]"
            )
        if count < 2:
            raise ValueError(
                f"n_samples={count}, but at least 2 samples are required: one for training and "
                "one for validation"
            )
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction}, expected a number "
                "between 0 and 1"
            )
        random = check_random_state(self.random_state)
        seed = (
            int(self.random_state)
            if isinstance(self.random_state, (int, np.integer))
            else int(random.randint(2**31))
        )
        rows, valid = self._split(count, strata, seed)
        # The library scores a test split. Without one, it scores the validation samples again.
        order = [*rows, *valid, *valid]
        split = ["train"] * len(rows) + ["valid"] * len(valid) + ["test"] * len(valid)
        settings = dict(self.settings or {})
        if strata is not None and len({strata[row] for row in valid}) < len(set(strata)):
            # Ranking metrics are undefined for a single class.
            settings.setdefault("train.select_by", "loss")
        is_molecules = isinstance(samples[0], str)
        # Tables of molecules have binary targets, files of graphs a list of binary labels.
        names = {"binary": "binary" if is_molecules else "multilabel"}
        options: dict[str, Any] = {
            "epochs": self.epochs,
            "lr": self.lr,
            "batch_size": self.batch_size,
            "ensemble": self.ensemble,
            "init_model": self.init_model,
            "settings": settings,
            "seed": seed,
            "split": split,
            "task": names.get(self._task, self._task),
            "progress": self.progress,
        }
        data, targets = [samples[row] for row in order], y[order]
        if self.run_directory is not None:
            if Path(self.run_directory).exists():
                raise InvalidInputError(
                    f"run_directory {str(self.run_directory)!r} already exists",
                    "every fit needs a new directory; omit run_directory for cross-validation "
                    "and searches, which fit several models",
                )
            self.model_ = train(self.recipe, data, targets, out=self.run_directory, **options)
        else:
            with tempfile.TemporaryDirectory(prefix="graph-diffuser-") as folder:
                trained = train(self.recipe, data, targets, out=Path(folder) / "run", **options)
                self.history_, result = trained.history, trained.result
                self.model_ = _without_directory(trained)
        if self.run_directory is not None:
            self.history_, result = self.model_.history, self.model_.result
            _label_validation_scores(Path(self.run_directory))
        # An ensemble has no history of its own.
        self.n_iter_ = len(self.history_) or int((result or {}).get("epochs", 0))

    def _split(self, count: int, strata: Any, seed: int) -> tuple[list[int], list[int]]:
        """Returns the training and the validation samples."""
        indices = np.arange(count)
        size = min(max(1, round(self.validation_fraction * count)), count - 1)
        if strata is not None:
            classes, counts = np.unique(strata, return_counts=True)
            if counts.min() < 2 or size < len(classes) or count - size < len(classes):
                strata = None
        rows, valid = train_test_split(indices, test_size=size, random_state=seed, stratify=strata)
        return [int(row) for row in rows], [int(row) for row in valid]

    def _fitted(self) -> Model:
        model = getattr(self, "model_", None)
        if model is None:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        assert isinstance(model, Model)
        return model

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Returns the embeddings of samples, ``[samples, dim]``."""
        model = self._fitted()
        embeddings: npt.NDArray[np.float32] = model.embed(self._samples(X))
        return embeddings

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        tags.requires_fit = True
        # The same seed gives the same bits, unless it is drawn from a generator.
        tags.non_deterministic = False
        return tags


def _label_validation_scores(directory: Path) -> None:
    """States in the report and the model card of a run that it has no test samples."""
    note = (
        "> There are no test samples: test scores are those of the validation samples, which "
        "selected the best epoch.\n\n"
    )
    report, card = directory / "report.md", directory / "README.md"
    report.write_text(note + report.read_text(encoding="utf-8"), encoding="utf-8")
    text = card.read_text(encoding="utf-8").replace("split: test", "split: validation")
    text = text.replace("## Evaluation\n\n", f"## Evaluation\n\n{note}")
    card.write_text(text, encoding="utf-8")


class GraphDiffuserRegressor(RegressorMixin, _GraphDiffuserEstimator):  # type: ignore[misc]
    """Regression of molecules or graphs.

    Samples are SMILES, or graphs of this package, PyTorch Geometric or NetworkX: a list, an array
    of objects, a column, or a data frame with a SMILES column.

    Args:
        recipe: Name or path of a recipe; default: ``molecules`` or ``graphs``.
        epochs: Number of epochs; default: from the recipe, as are the next three.
        lr: Learning rate.
        batch_size: Number of graphs per batch.
        ensemble: Number of models whose predictions are averaged.
        init_model: Run directory, or ``"pretrained:NAME"``, whose weights training starts with.
        settings: Settings of the recipe, such as ``{"model.layers": 4}``.
        validation_fraction: Fraction of the samples that select the best epoch.
        random_state: Seed of weights, shuffling and the validation split.
        run_directory: Keeps the run there, for a single fit; default: the model is kept in memory.
            Its test scores are those of the validation samples.
        progress: True to print every epoch, or a function that receives events.

    Attributes:
        model_: The trained :class:`graph_diffuser.Model`.
        history_: Record of each epoch; empty for an ensemble.
        n_iter_: Number of trained epochs, of an ensemble in total.

    >>> from graph_diffuser.sklearn import GraphDiffuserRegressor
    >>> smiles = ["C" * size for size in range(1, 21)]
    >>> regressor = GraphDiffuserRegressor(epochs=1).fit(smiles, range(20))
    >>> regressor.predict(["CCC", "CCO"]).shape
    (2,)
    """

    _task = "regression"

    def fit(self, X: Any, y: Any, **fit_params: Any) -> GraphDiffuserRegressor:
        """Trains the model; ``y`` has one value per sample, or ``[samples, targets]``.

        Missing values of several targets are NaN. ``sample_weight`` is not supported.
        """
        self._check_fit_params(fit_params)
        samples = self._samples(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        values = np.asarray(to_numpy(y))
        if values.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        values = values.astype(np.float64)
        if values.ndim not in (1, 2):
            raise ValueError(f"y has {values.ndim} dimensions, expected 1 or 2")
        is_column = values.ndim == 1 or values.shape[1] == 1
        if np.isinf(values).any() or (is_column and np.isnan(values).any()):
            raise ValueError("Input y contains NaN or infinity.")
        self._fit(samples, values, None)
        self._is_flat = values.ndim == 1
        return self

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Predicts the targets, in the shape of ``y``."""
        model = self._fitted()
        values = model.predict(self._samples(X)).astype(np.float64)
        flat: npt.NDArray[np.float64] = values[:, 0] if self._is_flat else values
        return flat

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class GraphDiffuserClassifier(ClassifierMixin, _GraphDiffuserEstimator):  # type: ignore[misc]
    """Classification of molecules or graphs; parameters as for :class:`GraphDiffuserRegressor`.

    Attributes:
        classes_: Classes in sorted order.
        model_: The trained :class:`graph_diffuser.Model`; its classes are indices of ``classes_``.
        history_: Record of each epoch; empty for an ensemble.
        n_iter_: Number of trained epochs, of an ensemble in total.

    >>> from graph_diffuser.sklearn import GraphDiffuserClassifier
    >>> smiles = ["C" * size for size in range(1, 11)] + ["O" + "C" * size for size in range(1, 11)]
    >>> classifier = GraphDiffuserClassifier(epochs=1).fit(smiles, ["alkane"] * 10 + ["ether"] * 10)
    >>> classifier.predict_proba(["CCC"]).shape
    (1, 2)
    """

    _task = "binary"

    def fit(self, X: Any, y: Any, **fit_params: Any) -> GraphDiffuserClassifier:
        """Trains the model; ``y`` has one class per sample. ``sample_weight`` is not supported."""
        self._check_fit_params(fit_params)
        samples = self._samples(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        values = np.asarray(to_numpy(y))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"bad input shape {values.shape}: expected one class per sample")
        if any(is_missing(value) for value in values.tolist()):
            raise ValueError("Input y contains NaN.")
        if values.dtype.kind == "f" and not np.array_equal(values, np.floor(values)):
            raise ValueError("Unknown label type: continuous. Use a regressor for numbers.")
        self.classes_, codes = np.unique(values, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("This classifier needs samples of at least 2 classes, found 1 class")
        self._task = "binary" if len(self.classes_) == 2 else "multiclass"
        targets = codes if self._task == "binary" else np.char.mod("%d", codes)
        self._fit(samples, targets, codes.tolist())
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Predicts the probability of each class, ``[samples, classes]``."""
        model = self._fitted()
        found = model.predict_proba(self._samples(X)).astype(np.float64)
        # Classes of the model are sorted as text, and a class without samples is missing.
        probabilities = np.zeros((len(found), len(self.classes_)))
        probabilities[:, [int(name) for name in model.classes[0]]] = found
        normalized: npt.NDArray[np.float64] = probabilities / probabilities.sum(axis=1)[:, None]
        return normalized

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predicts the class of each sample."""
        self._fitted()
        classes: npt.NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


def _without_directory(model: Model) -> Model:
    """Returns a copy of a model whose run directory is removed."""
    state = model._native.state()
    return Model(type(model._native).from_state(*state[:-1], None))
