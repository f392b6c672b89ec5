"""Runs the Python blocks of the guide and the README, in order, in an empty directory per page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = [
    REPOSITORY / "docs/guide/python.md",
    REPOSITORY / "docs/guide/weights.md",
    REPOSITORY / "README.md",
    Path(__file__).parents[1] / "README.md",
]


def blocks(page: Path) -> list[tuple[int, str]]:
    """Returns the line and the text of each block that does not follow `<!-- not run -->`."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"(<!-- not run[^\n]*-->\n)?```python\n(.*?)```", text, re.DOTALL)
    return [
        (text[: match.start(2)].count("\n"), match[2]) for match in found if match[1] is None
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("safetensors")
    if not page.is_file():
        pytest.skip("the repository is not there")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    found = blocks(page)
    assert found
    for line, block in found:
        # Lines are those of the page in tracebacks.
        exec(compile("\n" * line + block, str(page), "exec"), names)
