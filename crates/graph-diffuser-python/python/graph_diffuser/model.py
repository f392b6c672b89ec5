"""Trained models: predictions, embeddings, explanations and scores."""

from __future__ import annotations

import io
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _native
from ._errors import InvalidInputError
from .convert import Targets, is_data_frame, is_missing, to_rows, to_single_row
from .files import read_targets

OnInvalid: TypeAlias = Literal["raise", "nan", "skip"]


def load(run: str | os.PathLike[str], *, device: str = "cpu") -> Model:
    """Loads a trained model.

    Args:
        run: Run directory, or ``"pretrained:NAME"`` with the name of a pretrained model, ``zinc``
            or ``grid``.
        device: Device of predictions and evaluations: ``cpu``, ``gpu``, ``gpu:N``, ``cuda`` or
            ``cuda:N``; GPUs need a package that was built with the feature ``gpu`` or ``cuda``.

    >>> import graph_diffuser as gd
    >>> model = gd.load("pretrained:zinc")
    >>> model.predict(["CCO", "c1ccccc1O"]).shape
    (2, 1)
    """
    name = os.fspath(run)
    if name.startswith("pretrained:"):
        return Model(_native.Model.pretrained(name.removeprefix("pretrained:"), device))
    return Model(_native.Model.open(name, device))


class Model:
    """A trained model, or an ensemble of models. It can be pickled, and is loaded on the CPU then.

    Inputs are a list, array or column of SMILES, a data frame with a SMILES column, graphs
    (:class:`Graph`, PyTorch Geometric, NetworkX, or edge lists ``[m, 2]``), or the path of a file.
    """

    def __init__(self, native: _native.Model) -> None:
        self._native = native

    def __repr__(self) -> str:
        members = f", members={self.num_members}" if self.num_members > 1 else ""
        return f"Model(task={self.task!r}, targets={self.target_names}{members})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_state, self._native.state()

    @property
    def directory(self) -> Path | None:
        """Run directory from which the model was loaded."""
        directory = self._native.directory
        return None if directory is None else Path(directory)

    @property
    def recipe(self) -> str:
        """Recipe of the run, as TOML."""
        return self._native.recipe

    @property
    def num_members(self) -> int:
        """Number of models whose predictions are averaged."""
        return self._native.num_members

    @property
    def fingerprint(self) -> str:
        """Hash of weights and schema; equal for equal models."""
        return self._native.fingerprint

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Features and targets of the model.

        >>> import graph_diffuser as gd
        >>> gd.load("pretrained:zinc").schema["input"]
        'zinc'
        """
        schema: dict[str, Any] = json.loads(self._native.schema)
        return schema

    @cached_property
    def _kinds(self) -> list[tuple[str, int]]:
        """Kind and number of outputs of each graph-level target."""
        targets = self.schema["schema"]["targets"]
        if "graph" not in targets:
            return []
        kinds: list[tuple[str, int]] = []
        for kind in targets["graph"]:
            name = kind if isinstance(kind, str) else next(iter(kind))
            kinds.append((name, kind["multiclass"] if name == "multiclass" else 1))
        return kinds

    @property
    def task(self) -> str:
        """``regression``, ``binary``, ``multiclass``, ``mixed``, ``node_multiclass``,
        ``sub_tokens`` or ``link_prediction``."""
        names = {name for name, _ in self._kinds}
        if not names:
            targets = self.schema["schema"]["targets"]
            return targets if isinstance(targets, str) else str(next(iter(targets)))
        return names.pop() if len(names) == 1 else "mixed"

    @property
    def target_names(self) -> list[str]:
        """Names of the graph-level targets."""
        names: list[str] = self.schema["schema"]["names"]["targets"]
        count = len(self._kinds)
        if names or not count:
            return names
        return ["target"] if count == 1 else [f"target_{index}" for index in range(count)]

    @property
    def classes(self) -> list[list[Any]]:
        """Classes of each graph-level target, or of the nodes; empty for regression targets."""
        names: list[list[str]] = self.schema["schema"]["names"]["classes"]
        if not self._kinds:
            return names
        classes: list[list[Any]] = []
        for target, (kind, outputs) in enumerate(self._kinds):
            named = names[target] if target < len(names) else []
            count = {"regression": 0, "binary": 2}.get(kind, outputs)
            classes.append(list(named) if named else list(range(count)))
        return classes

    @property
    def result(self) -> dict[str, Any] | None:
        """Scores of the run at its best epoch, None while it is not finished."""
        path = self._file("result.json")
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))

    @property
    def history(self) -> list[dict[str, Any]]:
        """Record of each epoch of the run."""
        path = self._file("metrics.jsonl")
        lines = [] if path is None else path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _file(self, name: str) -> Path | None:
        path = None if self.directory is None else self.directory / name
        return path if path is not None and path.is_file() else None

    def _rows(self, data: Any) -> tuple[str, Any]:
        column = None
        if is_data_frame(data):
            found = [line for line in self.recipe.splitlines() if line.startswith("smiles_column")]
            column = json.loads(found[0].split("=", 1)[1]) if found else None
        return to_rows(data, smiles=column)

    def predict(
        self, data: Any, *, on_invalid: OnInvalid = "raise", return_std: bool = False
    ) -> Any:
        """Predicts the targets of molecules or graphs.

        Args:
            data: See the class.
            on_invalid: ``"raise"`` an exception for an invalid row, return ``"nan"`` (None for
                classes) for it, or ``"skip"`` it.
            return_std: Also returns the standard deviation over the members of an ensemble.

        Returns:
            Values of regression targets and labels of classes, ``[rows, targets]``. A list with one
            array per graph for classes of nodes, a list of words for sub-tokens, and a list of
            ``(node, node, probability)`` for links.

        >>> import graph_diffuser as gd
        >>> model = gd.load("pretrained:zinc")
        >>> model.predict(["CCO", "invalid"], on_invalid="nan").tolist()[1]
        [nan]
        """
        found = self._native.predict(*self._rows(data), on_invalid, False)
        values: Any
        if found["values"] is not None:
            values = self._labels(found["values"])
        else:
            items = found["items"] or []
            values = [self._node_labels(item) for item in items] if self._is_of_nodes else items
        if not return_std:
            return values
        if found["std"] is None:
            raise InvalidInputError(
                "the model is not an ensemble of graph-level targets, so it has no deviation",
                "train with ensemble=5",
            )
        return values, found["std"]

    def predict_proba(self, data: Any, *, on_invalid: OnInvalid = "raise") -> Any:
        """Predicts class probabilities, ``[rows, classes]``.

        Returns a list of such arrays if there are several targets, and one array per graph for
        classes of nodes. The order of classes is that of :attr:`classes`.
        """
        if self._is_of_nodes:
            return self._native.predict(*self._rows(data), on_invalid, False)["items"]
        kinds = {kind for kind, _ in self._kinds}
        if not kinds or "regression" in kinds:
            raise InvalidInputError(f"a model of task {self.task!r} predicts no probabilities")
        values = self._native.predict(*self._rows(data), on_invalid, False)["values"]
        assert values is not None
        parts = [
            np.column_stack([1 - part[:, 0], part[:, 0]]) if kind == "binary" else part
            for (kind, _), part in zip(self._kinds, self._split(values))
        ]
        return parts[0] if len(parts) == 1 else parts

    def similarity(
        self, data: Any, *, on_invalid: OnInvalid = "raise"
    ) -> npt.NDArray[np.float64]:
        """Returns the similarity of molecules to the nearest training molecule, from 0 to 1."""
        found = self._native.predict(*self._rows(data), on_invalid, True)["similarity"]
        assert found is not None
        return found

    def embed(
        self, data: Any, *, nodes: bool = False, on_invalid: OnInvalid = "raise"
    ) -> Any:
        """Computes embeddings: the inputs of the prediction head.

        Returns an array ``[rows, dim]``, or with ``nodes`` a list of one array ``[nodes, dim]`` per
        graph.

        >>> import graph_diffuser as gd
        >>> model = gd.load("pretrained:zinc")
        >>> [rows.shape for rows in model.embed(["CCO", "C"], nodes=True)]
        [(3, 64), (1, 64)]
        """
        if nodes:
            return self._native.embed_nodes(*self._rows(data), on_invalid)[1]
        return self._native.embed(*self._rows(data), on_invalid)[1]

    def explain(self, data: Any, *, node: int | None = None, member: int = 0) -> Explanation:
        """Records the attention of one molecule or graph.

        Args:
            data: A SMILES string or one graph.
            node: Query node of figures; default: the one with the most concentrated attention.
            member: Member of an ensemble.

        >>> import graph_diffuser as gd
        >>> trace = gd.load("pretrained:zinc").explain("CCO", node=2)
        >>> trace.attention.shape[2:]
        (3, 3)
        """
        return Explanation(self._native.explain(*to_single_row(data), node, member))

    def evaluate(
        self,
        data: Any = None,
        y: Any = None,
        *,
        split: Literal["train", "valid", "test"] = "test",
        allow_changed_data: bool = False,
    ) -> dict[str, Any]:
        """Computes scores on a split of the dataset of the run, or on other data.

        Args:
            data: Inputs; default: the dataset of the run.
            y: Targets; default: the target columns of a data frame or CSV file, or the targets of
                graphs in memory or in a JSON Lines file.
            split: Split of the dataset of the run; all rows of other data are used.
            allow_changed_data: Uses the dataset of the run although it has changed since training
                was started; by default, this is an error.

        Returns:
            ``metric``, its ``value``, all ``metrics``, ``loss``, ``samples`` and the scores of each
            of the ``targets``.
        """
        if data is None:
            return dict(json.loads(self._native.evaluate_run(split, allow_changed_data)))
        kind, rows = self._rows(data)
        if kind == "path" and y is None:
            names = None if self._is_of_nodes else self.target_names
            targets = read_targets(rows, names)
            encoded = [self._encode(values) for values in targets]
            return dict(json.loads(self._native.evaluate(kind, rows, encoded)))
        if kind == "path":
            raise InvalidInputError("y belongs to data in memory", "omit it for a file")
        if y is None and is_data_frame(data):
            y = data[self.target_names]
        if y is None and kind == "graphs":
            targets = [[*_list(row.node_y if self._is_of_nodes else row.y)] for row in rows]
        elif y is None:
            raise InvalidInputError("targets are missing", "pass y")
        else:
            targets = Targets.of(y, len(rows)).rows
        encoded = [self._encode(values) for values in targets]
        return dict(json.loads(self._native.evaluate(kind, rows, encoded)))

    @property
    def _is_of_nodes(self) -> bool:
        return self.task == "node_multiclass"

    def _split(self, values: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """Splits outputs by target."""
        ends = np.cumsum([outputs for _, outputs in self._kinds])
        return np.split(values, ends[:-1], axis=1)

    def _labels(self, values: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """Converts outputs to values and labels."""
        if all(kind == "regression" for kind, _ in self._kinds):
            return values
        columns: list[npt.NDArray[Any]] = []
        for (kind, _), classes, part in zip(self._kinds, self.classes, self._split(values)):
            if kind == "regression":
                columns.append(part[:, 0].astype(object))
                continue
            index = (part[:, 0] > 0.5).astype(int) if kind == "binary" else part.argmax(axis=1)
            labels = np.asarray(classes, dtype=object)[index]
            labels[np.isnan(part).any(axis=1)] = None
            columns.append(labels)
        labels = np.column_stack(columns) if columns else np.empty((len(values), 0), dtype=object)
        if all(isinstance(label, int) for label in labels.flat):
            return labels.astype(np.int64)
        return labels

    def _node_labels(self, item: Any) -> Any:
        if item is None:
            return None
        classes = self.classes[0] if self.classes else list(range(item.shape[1]))
        return np.asarray(classes)[item.argmax(axis=1)]

    def _encode(self, values: list[Any]) -> list[float]:
        """Converts the targets of a row to numbers, classes to their indices."""
        if self._is_of_nodes:
            names = self.classes[0] if self.classes else []
            return [_index(value, names) for value in values]
        if len(values) != len(self._kinds):
            raise InvalidInputError(f"{len(values)} targets, but the model has {len(self._kinds)}")
        encoded = []
        for (kind, _), classes, value in zip(self._kinds, self.classes, values):
            if kind == "regression":
                encoded.append(_number(value))
            else:
                encoded.append(_index(value, classes))
        return encoded


def _from_state(*state: Any) -> Model:
    return Model(_native.Model.from_state(*state))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _index(value: Any, classes: list[Any]) -> float:
    if is_missing(value):
        return float("nan")
    for index, name in enumerate(classes):
        if value == name or str(value) == str(name) or _is_equal_number(value, name):
            return float(index)
    known = ", ".join(map(repr, classes))
    raise InvalidInputError(f"{value!r} is not a class of the model", f"its classes are {known}")


def _number(value: Any) -> float:
    if is_missing(value):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{value!r} is not a number, but the target is real-valued") from None


def _is_equal_number(value: Any, name: Any) -> bool:
    """Returns whether a value is a number as a class, such as ``"1.0"`` and ``1``."""
    try:
        return isinstance(name, int) and float(value) == name
    except (TypeError, ValueError):
        return False


class Explanation:
    """Attention of a model on one molecule or graph; a figure in notebooks.

    Arrays have one row per query node of :attr:`rows`; of graphs with up to 256 nodes, all nodes
    are query nodes.
    """

    def __init__(self, native: _native.Explanation) -> None:
        self._native = native

    @cached_property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name, as in an npz file of the program."""
        with np.load(io.BytesIO(self._native.npz())) as archive:
            return dict(archive)

    @property
    def node(self) -> int:
        """Query node of figures."""
        return self._native.node

    @property
    def rows(self) -> npt.NDArray[Any]:
        """Query nodes; the number of nodes denotes the CLS node."""
        return self.arrays["rows"]

    @property
    def attention(self) -> npt.NDArray[np.float32]:
        """Attention weights ``[layers, heads, rows, nodes]``; rows sum to one (Eq. 8)."""
        return self.arrays["attention"]

    @property
    def position(self) -> npt.NDArray[np.float32] | None:
        """Position weights ``[layers, heads, rows, nodes]`` (Eq. 6); None if there are none."""
        return self.arrays.get("position")

    @property
    def content(self) -> npt.NDArray[np.float32] | None:
        """Content weights ``[layers, heads, rows, nodes]`` (Eq. 7); None if there are none."""
        return self.arrays.get("content")

    @property
    def edge_weights(self) -> npt.NDArray[np.float32] | None:
        """Learned weight of each edge of :attr:`edges` (Eq. 4–5); None without virtual edges."""
        return self.arrays.get("edge_weights")

    @property
    def edges(self) -> npt.NDArray[Any]:
        """Edges ``[m, 2]``."""
        return self.arrays["edges"]

    @property
    def labels(self) -> list[str]:
        """Label of each node in figures, such as its element."""
        return self._native.labels()

    @property
    def headline(self) -> str:
        """Prediction in one line."""
        return self._native.headline()

    def svg(
        self, *, node: int | None = None, layer: int | None = None, head: int | None = None
    ) -> str:
        """Draws the attention of a node; by default in the last layer, averaged over heads.

        >>> import graph_diffuser as gd
        >>> gd.load("pretrained:zinc").explain("CCO").svg(layer=0)[:4]
        '<svg'
        """
        return self._native.svg(node, layer, head)

    def png(
        self, *, node: int | None = None, layer: int | None = None, head: int | None = None
    ) -> bytes:
        """Draws the attention of a node like :meth:`svg`, as PNG."""
        return self._native.png(node, layer, head)

    def save(self, path: str | os.PathLike[str], **view: int | None) -> None:
        """Writes a figure (``.svg``, ``.png``) or the attention weights (``.json``, ``.npz``)."""
        file = Path(path)
        match file.suffix:
            case ".svg":
                file.write_text(self.svg(**view), encoding="utf-8")
            case ".png":
                file.write_bytes(self.png(**view))
            case ".json":
                file.write_text(self._native.json(), encoding="utf-8")
            case ".npz":
                file.write_bytes(self._native.npz())
            case suffix:
                raise InvalidInputError(
                    f"unknown format {suffix!r}", "use .svg, .png, .json or .npz"
                )

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        layers, heads, rows, nodes = self.attention.shape
        return (
            f"Explanation({self.headline!r}, layers={layers}, heads={heads}, rows={rows}, "
            f"nodes={nodes})"
        )
