"""Notebooks run from top to bottom, wherever this is: their cells' code, in order, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[str]:
    """Texts of the cells of a kind."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="explain needs a C++ compiler")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(cells(path, "code")))
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", script],
        cwd=FOLDER, env=os.environ | {"MPLBACKEND": "Agg"}, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_it_needs_and_kept_no_error(path: Path) -> None:
    assert any("recorded on an NVIDIA H200" in text for text in cells(path, "markdown"))
    outputs = [each for cell in json.loads(path.read_text())["cells"] for each in cell.get("outputs", ())]
    assert outputs
    assert not [each for each in outputs if each["output_type"] == "error" or each.get("name") == "stderr"]
