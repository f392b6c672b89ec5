"""Fixtures of all tests: small data, and the directories that they write to."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graph_diffuser as gd

#: Makes the model of a test small and fast.
SMALL = {
    "model.hidden_dim": 16,
    "model.layers": 2,
    "train.batch_size": 16,
    "train.bn_recalibration_batches": 2,
}


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.setdefault("GRAPH_DIFFUSER_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _folder(doctest_namespace: dict[str, Any], tmp_path: Path) -> None:
    doctest_namespace["folder"] = tmp_path


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """Settings of a small model."""
    return dict(SMALL)


@pytest.fixture(scope="session")
def molecules() -> tuple[list[str], np.ndarray]:
    """Alkanes, alcohols and amines, and their number of heavy atoms plus a constant per kind."""
    smiles = [f"{'C' * size}{end}" for size in range(1, 13) for end in ("", "O", "N", "Cl")]
    y = np.array([len(text.replace("Cl", "X")) + text.count("O") for text in smiles], float)
    return smiles, y


@pytest.fixture(scope="session")
def zinc() -> gd.Model:
    """The pretrained model of molecules."""
    return gd.load("pretrained:zinc")


@pytest.fixture(scope="session")
def trained(
    tmp_path_factory: pytest.TempPathFactory, molecules: Any, small: dict[str, Any]
) -> gd.Model:
    """A small model trained on molecules in memory."""
    smiles, y = molecules
    out = tmp_path_factory.mktemp("runs") / "molecules"
    return gd.train(data=smiles, y=y, out=out, epochs=3, settings=small)


@pytest.fixture(scope="session")
def rings() -> list[gd.Graph]:
    """Rings and paths with float and string features, labeled by name."""
    random = np.random.default_rng(0)
    graphs = []
    for index in range(30):
        size = 3 + index % 6
        pairs = [[node, node + 1] for node in range(size - 1)]
        pairs += [[size - 1, 0]] if index % 2 else []
        features = {"size": random.random(size), "kind": ["a", "b"] * 4}
        features["kind"] = features["kind"][:size]
        graphs.append(
            gd.Graph.from_edges(pairs, node_features=features, y="ring" if index % 2 else "path")
        )
    return graphs


@pytest.fixture(scope="session")
def program() -> Callable[..., str]:
    """Runs the command-line program and returns its standard output."""
    name = os.environ.get("GRAPH_DIFFUSER_PROGRAM") or shutil.which("graph-diffuser")
    if name is None:
        pytest.skip("the program graph-diffuser is not installed; set GRAPH_DIFFUSER_PROGRAM")

    def run(*arguments: object) -> str:
        command = [str(name), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
