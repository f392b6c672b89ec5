from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "Explanation",
    "Model",
    "__version__",
    "after_fork",
    "example_data",
    "graphs_to_jsonl",
    "num_threads",
    "resume",
    "set_num_threads",
    "smiles_to_arrays",
    "train",
]

__version__: str

class _PredictionArrays(TypedDict):
    rows: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32] | None
    std: npt.NDArray[np.float32] | None
    similarity: npt.NDArray[np.float64] | None
    items: list[Any] | None

@final
class Explanation:
    @property
    def node(self) -> int: ...
    def svg(
        self, node: int | None = None, layer: int | None = None, head: int | None = None
    ) -> str: ...
    def png(
        self, node: int | None = None, layer: int | None = None, head: int | None = None
    ) -> bytes: ...
    def json(self) -> str: ...
    def npz(self) -> bytes: ...
    def headline(self) -> str: ...
    def labels(self) -> list[str]: ...

@final
class Model:
    @staticmethod
    def open(directory: str | PathLike[str], device: str) -> Model: ...
    @staticmethod
    def pretrained(name: str, device: str) -> Model: ...
    @staticmethod
    def from_state(
        recipe: str,
        schema: str,
        weights: Sequence[bytes],
        fingerprints: bytes | None,
        forest: tuple[float, bytes] | None,
        directory: str | PathLike[str] | None,
    ) -> Model: ...
    def state(
        self,
    ) -> tuple[str, str, list[bytes], bytes | None, tuple[float, bytes] | None, Path | None]: ...
    @property
    def directory(self) -> Path | None: ...
    @property
    def recipe(self) -> str: ...
    @property
    def schema(self) -> str: ...
    @property
    def num_members(self) -> int: ...
    @property
    def accepts_smiles(self) -> bool: ...
    @property
    def fingerprint(self) -> str: ...
    def predict(
        self, kind: str, data: Any, on_invalid: str, similarity: bool
    ) -> _PredictionArrays: ...
    def embed(
        self, kind: str, data: Any, on_invalid: str
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]: ...
    def embed_nodes(
        self, kind: str, data: Any, on_invalid: str
    ) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.float32] | None]]: ...
    def explain(self, kind: str, data: Any, node: int | None, member: int) -> Explanation: ...
    def evaluate_run(self, split: str, allow_changed_data: bool) -> str: ...
    def evaluate(self, kind: str, data: Any, targets: Sequence[Sequence[float]]) -> str: ...

def example_data(graphs: bool) -> str: ...
def graphs_to_jsonl(
    path: str | PathLike[str], header: str, graphs: Sequence[Any], extras: Sequence[str]
) -> None: ...
def smiles_to_arrays(
    smiles: str, featurizer: str
) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
def set_num_threads(count: int, /) -> None: ...
def num_threads() -> int: ...
def after_fork() -> None: ...
def train(
    recipe: str,
    overrides: Sequence[str],
    directory: str | PathLike[str] | None,
    data: str | PathLike[str] | None,
    init_model: str | PathLike[str] | None,
    device: str,
    command: Sequence[str],
    progress: Callable[[str], None] | None,
    /,
) -> Path: ...
def resume(
    directory: str | PathLike[str],
    allow_changed_data: bool,
    device: str,
    progress: Callable[[str], None] | None,
    /,
) -> None: ...
