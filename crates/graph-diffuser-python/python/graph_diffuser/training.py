"""Training of models."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from ._errors import InvalidInputError
from .convert import TrainingData, is_path
from .model import Model, load

#: Receives the progress of training as dictionaries with the key ``event``: ``data``, ``member``,
#: ``resumed``, ``step``, ``epoch``, ``evaluating`` or ``evaluated_batch``.
ProgressCallback = Callable[[dict[str, Any]], object]

_FORMATS = {".json": "jsonl", ".jsonl": "jsonl"}


def train(
    recipe: str | os.PathLike[str] | None = None,
    data: Any = None,
    y: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    init_model: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    ensemble: int | None = None,
    smiles_column: str | None = None,
    targets: str | Sequence[str] | None = None,
    task: str | None = None,
    split: str | Sequence[str] | None = None,
    on_invalid: str | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str = "cpu",
    progress: bool | ProgressCallback = False,
) -> Model:
    """Trains a model as ``graph-diffuser train`` does: with the same data, recipe and seed, the
    weights are the same bits.

    Args:
        recipe: Name of a built-in recipe, path of a recipe, or path of a data file or directory;
            default: ``molecules`` for SMILES and ``graphs`` for graphs.
        data: Training data: SMILES, a data frame, graphs, or a path. Data in memory is saved in the
            run directory.
        y: Targets of data in memory, one per row or ``[rows, targets]``; NaN if missing. By
            default, the other columns of a data frame or the targets of the graphs.
        out: Run directory; default ``runs/NAME-sSEED``.
        init_model: Run directory, or ``"pretrained:NAME"``, whose weights training starts with, as
            the option ``--from`` of the program. The model is that of the run, with the dropout of
            the recipe and a new prediction head if names or kinds of the targets differ.
        resume: Continues the run in ``out`` if it exists.
        seed: Random seed.
        epochs: Number of epochs.
        lr: Learning rate.
        batch_size: Number of graphs per batch.
        ensemble: Number of models with different seeds, whose predictions are averaged.
        smiles_column: SMILES column of a table.
        targets: Target columns of a table.
        task: Task of the targets, such as ``regression``, ``binary`` or ``multiclass``.
        split: ``random``, ``scaffold``, a JSON file, or the split of every row: ``train``,
            ``valid`` or ``test``.
        on_invalid: ``fail`` or ``skip`` rows with an invalid SMILES.
        settings: Settings of the recipe, such as ``{"optim.lr": 4e-4}``.
        device: ``cpu``, ``gpu``, ``gpu:N``, ``cuda`` or ``cuda:N``; GPUs need a package that was
            built with the feature ``gpu`` or ``cuda``. The returned model is on this device.
        progress: True to print every epoch, or a function that receives events.

    Ctrl-C saves a checkpoint and raises ``KeyboardInterrupt``; :func:`resume` continues with the
    same bits.

    >>> import graph_diffuser as gd
    >>> smiles = ["C" * size for size in range(1, 21)]
    >>> model = gd.train(data=smiles, y=range(20), out=folder / "chains", epochs=1)
    >>> model.predict(["CCC"]).shape
    (1, 1)
    """
    directory = None if out is None else Path(out)
    if resume:
        if directory is None:
            raise InvalidInputError("the run to resume is missing", "pass out")
        if (directory / "recipe.toml").is_file():
            return _resume(directory, False, device, progress)
    options: list[str] = []
    labels: Sequence[str] | None = None
    if split is not None:
        if isinstance(split, str):
            kind = {"kind": "file", "path": split} if split.endswith(".json") else split
            options.append(f"data.split={_toml(kind)}")
        else:
            labels = [str(label) for label in split]
    named = {
        "data.smiles_column": smiles_column,
        "data.target_columns": [targets] if isinstance(targets, str) else targets,
        "data.task": task,
        "data.on_invalid": on_invalid,
        "train.epochs": epochs,
        "optim.lr": lr,
        "train.batch_size": batch_size,
        "train.ensemble": ensemble,
        "seed": seed,
    }
    options += [f"{key}={_toml(value)}" for key, value in named.items() if value is not None]
    options += [f"{key}={_toml(value)}" for key, value in (settings or {}).items()]
    source = None if recipe is None else os.fspath(recipe)
    memory: TrainingData | None = None
    if data is not None and is_path(data):
        path = os.fspath(data)
        if source is None:
            source = path
        else:
            options.insert(0, f"data={_toml({'kind': _format(path), 'path': path})}")
    elif data is not None:
        memory = TrainingData.of(data, y, smiles=smiles_column, split=labels)
        default = "molecules" if memory.is_molecules else "graphs"
        source = source or default
        options.insert(0, f"data={_toml({'kind': memory.kind, 'path': memory.file_name})}")
        if memory.is_molecules and memory.smiles.lower() not in ("smiles", "smi"):
            options.insert(1, f"data.smiles_column={_toml(memory.smiles)}")
        if memory.is_molecules and memory.targets is not None:
            options.insert(1, f"data.target_columns={_toml(memory.targets.names)}")
    elif source is None:
        raise InvalidInputError("a recipe or data is missing", "pass recipe, data or both")
    if memory is None and (y is not None or labels is not None):
        raise InvalidInputError("y and the split of every row belong to data in memory")
    initial = None if init_model is None else os.fspath(init_model)
    command = ["python", "graph_diffuser.train", source, *options]
    if initial is not None:
        command.append(f"init_model={initial}")
    report = _callback(progress)
    with tempfile.TemporaryDirectory(prefix="graph-diffuser-") as temporary:
        file = None if memory is None else memory.write(Path(temporary))
        run = _native.train(source, options, directory, file, initial, device, command, report)
    return load(run, device=device)


def resume(
    run: str | os.PathLike[str],
    *,
    allow_changed_data: bool = False,
    device: str = "cpu",
    progress: bool | ProgressCallback = False,
) -> Model:
    """Continues an interrupted run, also one of the program, and returns its model.

    Args:
        run: Run directory.
        allow_changed_data: Continues although the dataset has changed since training was started;
            by default, this is an error.
        device: As for :func:`train`; a run can be resumed on any device.
        progress: As for :func:`train`.

    >>> import graph_diffuser as gd
    >>> try:
    ...     gd.resume("runs/missing")
    ... except gd.Error as error:
    ...     print(str(error).splitlines()[0])
    `runs/missing` is not a run directory: no such directory
    """
    return _resume(Path(run), allow_changed_data, device, progress)


def _resume(
    directory: Path, allow_changed_data: bool, device: str, progress: bool | ProgressCallback
) -> Model:
    _native.resume(directory, allow_changed_data, device, _callback(progress))
    return load(directory, device=device)


def _format(path: str) -> str:
    """Returns the kind of the data section for a file or directory."""
    if os.path.isdir(path):
        return "ogb_csv" if os.path.isdir(os.path.join(path, "raw")) else "tu"
    return _FORMATS.get(Path(path.removesuffix(".gz")).suffix, "smiles_csv")


def _toml(value: Any) -> str:
    """Returns a value as inline TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(key)}={_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(_toml, value)) + "]"
    return repr(value.item() if hasattr(value, "item") else value)


def _callback(progress: bool | ProgressCallback) -> Callable[[str], None] | None:
    if progress is False:
        return None
    report = _print_event if progress is True else progress

    def call(event: str) -> None:
        report(json.loads(event))

    return call


def _print_event(event: dict[str, Any]) -> None:
    """Prints the data and one line per epoch to standard error."""
    match event["event"]:
        case "data" if event["report"]:
            print(event["report"], *event["warnings"], sep="\n", file=sys.stderr)
        case "member":
            number = f"{event['index'] + 1} of {event['members']}"
            print(f"member {number}, seed {event['seed']}", file=sys.stderr)
        case "epoch":
            valid = event["valid"]
            score = "" if valid is None else f"  valid {valid['metric']:.4f}"
            best = "  best" if event["best"] else ""
            line = f"epoch {event['epoch']}  loss {event['train_loss']:.4f}{score}{best}"
            print(line, file=sys.stderr)
