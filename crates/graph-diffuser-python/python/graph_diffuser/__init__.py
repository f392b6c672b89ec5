"""Graph Transformers with learned graph diffusion.

>>> import graph_diffuser as gd
>>> model = gd.load("pretrained:zinc")
>>> model.predict(["CC(=O)Nc1ccc(O)cc1"]).shape
(1, 1)
"""

from __future__ import annotations

import importlib as _importlib
import os as _os
from typing import Any as _Any

from . import _native
from ._errors import Error, InvalidInputError
from ._native import __version__, num_threads, set_num_threads
from .convert import write_example_data
from .graph import Graph
from .model import Explanation, Model, load
from .training import resume, train

__all__ = [
    "Error",
    "Explanation",
    "Graph",
    "InvalidInputError",
    "Model",
    "__version__",
    "load",
    "num_threads",
    "resume",
    "set_num_threads",
    "train",
    "write_example_data",
]

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_native.after_fork)


def __getattr__(name: str) -> _Any:
    # Imported on first use: scikit-learn is optional and takes a second to import.
    if name == "sklearn":
        return _importlib.import_module(".sklearn", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
