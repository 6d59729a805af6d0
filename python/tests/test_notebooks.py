"""python/notebooks/: what is committed was executed, and is small. ``make notebooks`` executes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "python/notebooks").glob("*.ipynb"))
LARGEST = 100_000  # bytes


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"quick_start", "ablations", "serving"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_executed_and_is_small(path: Path) -> None:
    assert path.stat().st_size < LARGEST
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = [output["output_type"] for cell in cells for output in cell["outputs"]]
    assert "error" not in kinds
    assert kinds
