"""Runs the examples with few epochs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ARGUMENTS = {
    "cross_validation.py": ["--epochs", "1", "--folds", "2"],
    "ensemble_uncertainty.py": ["--epochs", "1", "--members", "2"],
    "pyg_dataset.py": ["--epochs", "1"],
}


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_runs(example: str, tmp_path: Path) -> None:
    for package in ("pandas", "sklearn"):
        pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / example), *ARGUMENTS.get(example, [])]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.strip())


def test_there_are_five_examples() -> None:
    assert len(list(EXAMPLES.glob("*.py"))) == 5
