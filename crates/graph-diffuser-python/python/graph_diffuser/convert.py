"""Conversion of inputs: SMILES, data frames, graphs of other libraries, and files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import _native
from ._errors import InvalidInputError
from .graph import Graph, _plain, to_numpy

#: Names of SMILES columns that are found by default, in any case.
SMILES_COLUMNS = ("smiles", "smi")

_SPLIT_KEYS = ("split", "node_split")


def is_data_frame(data: Any) -> bool:
    """Returns whether ``data`` is a data frame of pandas; pandas is not imported."""
    return hasattr(data, "columns") and hasattr(data, "iloc")


def is_pyg(data: Any) -> bool:
    """Returns whether ``data`` is a graph of PyTorch Geometric."""
    return hasattr(data, "num_nodes") and hasattr(data, "edge_index") and hasattr(data, "keys")


def is_networkx(data: Any) -> bool:
    """Returns whether ``data`` is a graph of NetworkX."""
    return hasattr(data, "adj") and hasattr(data, "is_directed") and hasattr(data, "nodes")


def is_path(data: Any) -> bool:
    """Returns whether ``data`` is a path, or a string that can only be one."""
    if isinstance(data, os.PathLike):
        return True
    return isinstance(data, str) and (os.path.exists(data) or Path(data).suffix in _SUFFIXES)


_SUFFIXES = (
    ".csv", ".tsv", ".txt", ".smi", ".sdf", ".parquet", ".json", ".jsonl", ".gz", ".toml",
)


def to_graph(value: Any) -> Graph:
    """Converts one graph of any supported library."""
    if isinstance(value, Graph):
        return value
    if is_networkx(value):
        return Graph.from_networkx(value)
    if is_pyg(value):
        return Graph.from_pyg(value)
    if isinstance(value, np.ndarray):
        return Graph.from_edges(value)
    raise InvalidInputError(
        f"{type(value).__name__} is not a graph",
        "pass graph_diffuser.Graph, torch_geometric Data, networkx graphs or edge lists [m, 2]",
    )


def is_missing(value: Any) -> bool:
    """Returns whether a cell is None, NaN or pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def smiles_column(frame: Any, name: str | None = None) -> str:
    """Returns the name of the SMILES column of a data frame."""
    columns = [str(column) for column in frame.columns]
    if name is not None and name in columns:
        return name
    found = [column for column in columns if column.lower() in SMILES_COLUMNS]
    if name is None and found:
        return found[0]
    if len(columns) == 1 and name is None:
        return columns[0]
    raise InvalidInputError(
        f"the data frame has no column {name or 'smiles'!r}",
        f"its columns are {', '.join(columns)}",
    )


def to_list(data: Any) -> list[Any]:
    """Converts a sequence, a column or a dataset to a list of rows."""
    if isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == 1:
        return list(data[:, 0])
    if hasattr(data, "to_data_list"):  # a batch of PyTorch Geometric
        return list(data.to_data_list())
    if isinstance(data, (Graph, str)) or is_pyg(data) or is_networkx(data):
        return [data]
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "iloc"):
        return [data[index] for index in range(len(data))]
    return list(data)


def to_rows(data: Any, *, smiles: str | None = None) -> tuple[str, Any]:
    """Returns the kind of an input and its rows, for the native module.

    >>> to_rows(["CCO", None])
    ('smiles', ['CCO', None])
    """
    if is_path(data):
        return "path", os.fspath(data)
    if is_data_frame(data):
        data = data[smiles_column(data, smiles)]
    if isinstance(data, str):
        raise InvalidInputError(
            f"no such file: {data!r}", "pass a list for a single SMILES, such as ['CCO']"
        )
    rows = to_list(data)
    if all(is_missing(row) or isinstance(row, str) for row in rows):
        return "smiles", [None if is_missing(row) else str(row) for row in rows]
    return "graphs", [to_graph(row) for row in rows]


def to_single_row(data: Any) -> tuple[str, Any]:
    """Returns the kind of an input of one molecule or graph, and its row."""
    if isinstance(data, str):
        return "smiles", [data]
    return to_rows([data])


@dataclass
class Targets:
    """Target columns: names, and the values of each row, with None for missing ones."""

    names: list[str]
    rows: list[list[Any]]

    @classmethod
    def of(cls, y: Any, count: int) -> Targets:
        """Converts an array, list, series or data frame of ``count`` rows."""
        names: list[str] = []
        if is_data_frame(y):
            names = [str(column) for column in y.columns]
            values = y.to_numpy()
        else:
            name = getattr(y, "name", None)
            values = y if isinstance(y, list) else to_numpy(y)
            values = np.asarray(values, dtype=object) if isinstance(y, list) else values
            names = [str(name)] if name is not None else []
        if values.ndim == 1:
            values = values.reshape(-1, 1)
        if values.ndim != 2 or values.shape[0] != count:
            raise InvalidInputError(
                f"y has shape {list(values.shape)} for {count} rows",
                "pass one target per row, or an array [rows, targets]",
            )
        width = values.shape[1]
        if not names:
            names = ["target"] if width == 1 else [f"target_{item}" for item in range(width)]
        rows = [[None if is_missing(cell) else _plain(cell) for cell in row] for row in values]
        return cls(names, rows)


@dataclass
class TrainingData:
    """Data in memory, to be written as the data file of a run."""

    rows: list[Any]
    is_molecules: bool
    targets: Targets | None = None
    frame: Any = None
    split: list[str] | None = None
    task: str | None = None
    smiles: str = "smiles"
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        data: Any,
        y: Any = None,
        *,
        smiles: str | None = None,
        split: Sequence[str] | None = None,
        task: str | None = None,
    ) -> TrainingData:
        """Converts any supported input that is not a path."""
        labels = None if split is None else [str(label) for label in split]
        if is_data_frame(data):
            column = smiles_column(data, smiles)
            rows = data[column].tolist()
            targets = None if y is None else Targets.of(y, len(rows))
            frame = None if y is not None else data
            return cls(rows, True, targets, frame, labels, task, column)
        kind, rows = to_rows(data)
        if kind == "path":
            raise InvalidInputError(f"{data!r} is a file, expected data in memory")
        targets = None if y is None else Targets.of(y, len(rows))
        if kind == "smiles" and targets is None:
            raise InvalidInputError("training on SMILES needs targets", "pass y")
        return cls(rows, kind == "smiles", targets, None, labels, task)

    @property
    def file_name(self) -> str:
        """Name of the data file in the run directory."""
        return "data.csv" if self.is_molecules else "data.jsonl"

    @property
    def kind(self) -> str:
        """Kind of the data section of the recipe."""
        return "smiles_csv" if self.is_molecules else "jsonl"

    def write(self, directory: Path) -> Path:
        """Writes the data file to a directory."""
        path = directory / self.file_name
        if self.split is not None and len(self.split) != len(self.rows):
            raise InvalidInputError(f"{len(self.split)} split labels for {len(self.rows)} rows")
        if self.is_molecules:
            self._write_csv(path)
        else:
            self._write_jsonl(path)
        return path

    def _write_csv(self, path: Path) -> None:
        if self.frame is not None:
            frame = self.frame if self.split is None else self.frame.assign(split=self.split)
            frame.to_csv(path, index=False, encoding="utf-8")
            return
        targets = self.targets or Targets([], [[] for _ in self.rows])
        splits = [] if self.split is None else ["split"]
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([self.smiles, *targets.names, *splits])
            for row, (smiles, values) in enumerate(zip(self.rows, targets.rows)):
                cells = ["" if value is None else _cell(value) for value in values]
                label = [] if self.split is None else [self.split[row]]
                writer.writerow(["" if smiles is None else smiles, *cells, *label])

    def _write_jsonl(self, path: Path) -> None:
        graphs: list[Graph] = self.rows
        header: dict[str, Any] = {}
        nodes, edges = graphs[0]._kinds() if graphs else ([], [])
        if nodes:
            header["node_features"] = nodes
        # A graph without edges does not show the features of the others.
        edges = next((kinds for kinds in (graph._kinds()[1] for graph in graphs) if kinds), edges)
        if edges:
            header["edge_features"] = edges
        keys = [graph._targets() for graph in graphs]
        if self.targets is not None:
            keys = self._given_targets(keys)
            if len(self.targets.names) > 1:
                header["target_names"] = self.targets.names
        if self.split is not None:
            for key, label in zip(keys, self.split):
                key["split"] = label
        task = self.task or _task(keys)
        if task is not None:
            header["task"] = task
        extras = [f", {json.dumps(key)[1:-1]}" if key else "" for key in keys]
        _native.graphs_to_jsonl(path, json.dumps({"schema": header}), graphs, extras)

    def _given_targets(self, keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert self.targets is not None
        replaced = []
        for key, values in zip(keys, self.targets.rows):
            kept: dict[str, Any] = {name: key[name] for name in _SPLIT_KEYS if name in key}
            kept["target"] = values[0] if len(values) == 1 else values
            replaced.append(kept)
        return replaced


def _cell(value: Any) -> Any:
    """Returns the cell of a CSV file; a float is written so that it is read with the same bits."""
    if isinstance(value, float):
        return repr(value)
    return int(value) if isinstance(value, bool) else value


def _task(keys: list[dict[str, Any]]) -> str | None:
    """Returns the task of graph-level targets by their types; None if the reader infers it."""
    if any("target" not in key for key in keys):
        return None
    cells = [cell for key in keys for cell in _cells(key["target"]) if cell is not None]
    if any(isinstance(cell, str) for cell in cells):
        return "multiclass"
    if all(isinstance(cell, (bool, int)) for cell in cells) and cells:
        if set(map(int, cells)) <= {0, 1}:
            return "multilabel"
        if not any(isinstance(key["target"], list) for key in keys):
            return "multiclass"
    return "regression" if cells else None


def _cells(target: Any) -> Iterable[Any]:
    return target if isinstance(target, list) else [target]


def write_example_data(path: str | os.PathLike[str]) -> Path:
    """Writes the example data of ``graph-diffuser data example`` and returns the path.

    A CSV file has the boiling points of 234 compounds, a file with the suffix ``.jsonl`` paths and
    rings to be classified.

    >>> import graph_diffuser as gd
    >>> gd.write_example_data(folder / "mine.csv").read_text().splitlines()[0]
    'name,smiles,boiling_point'
    """
    file = Path(path)
    file.write_text(_native.example_data(file.suffix == ".jsonl"), encoding="utf-8")
    return file
