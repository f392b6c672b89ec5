"""Targets of data files, for evaluation."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._errors import InvalidInputError

_TABLES = (".csv", ".tsv", ".txt")
_GRAPHS = (".json", ".jsonl")
#: Cells that training reads as missing values.
_MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "null", "none", "-")
_DELIMITERS = (",", ";", "\t", "|")


def read_targets(path: str, names: list[str] | None) -> list[list[Any]]:
    """Reads the targets of every row of a CSV or JSON Lines file, None if missing.

    ``names`` are the targets of a graph, or None for targets of nodes. The rows are those that
    ``predict`` reads from the file.

    >>> file = folder / "new.csv"
    >>> _ = file.write_text("smiles,logS\\nCCO,1.5\\nCC,\\n")
    >>> read_targets(str(file), ["logS"])
    [['1.5'], [None]]
    """
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    if suffix in _TABLES and names is not None:
        return _table_targets(path, names)
    if suffix in _GRAPHS:
        return _graph_targets(path, names)
    raise InvalidInputError(
        f"targets of {path!r} cannot be read for this model",
        "pass a CSV or JSON Lines file, or data in memory with y",
    )


def _open(path: str) -> Any:
    # With a byte order mark, as spreadsheets write it.
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _table_targets(path: str, names: list[str]) -> list[list[Any]]:
    try:
        with _open(path) as file:
            header = next(line for line in file if line.strip("\r\n"))
            delimiter = max(_DELIMITERS, key=header.count)
            columns = [column.strip() for column in next(csv.reader([header], delimiter=delimiter))]
            missing = [name for name in names if name not in columns]
            if missing:
                raise InvalidInputError(
                    f"{path!r} has no column {missing[0]!r}, which is a target of the model",
                    f"its columns are {', '.join(columns)}",
                )
            indices = [columns.index(name) for name in names]
            records = csv.reader(file, delimiter=delimiter)
            rows = (row for row in records if any(cell.strip() for cell in row))
            return [[_cell(row, index) for index in indices] for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error, StopIteration) as error:
        raise InvalidInputError(f"cannot read {path!r}: {error}") from error


def _cell(row: list[str], index: int) -> str | None:
    """Returns a cell, None if it is missing."""
    cell = row[index].strip() if index < len(row) else ""
    return None if cell.lower() in _MISSING else cell


def _graph_targets(path: str, names: list[str] | None) -> list[list[Any]]:
    keys = ("node_targets", "y") if names is None else ("target", "y")
    targets = []
    try:
        with _open(path) as file:
            for record in _records(file.read()):
                if "schema" in record:
                    continue
                value = next((record[key] for key in keys if key in record), None)
                count = 0 if names is None else len(names)
                values = value if isinstance(value, list) else [value]
                targets.append([None] * count if value is None else values)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"cannot read {path!r}: {error}") from error
    return targets


def _records(text: str) -> Iterator[dict[str, Any]]:
    """Yields the objects of JSON Lines, or of a single JSON list."""
    records = (
        json.loads(text)
        if text.lstrip().startswith("[")
        else (json.loads(line) for line in text.splitlines() if line.strip())
    )
    for record in records:
        if not isinstance(record, dict):
            raise InvalidInputError("a line of the file is not a JSON object")
        yield record
