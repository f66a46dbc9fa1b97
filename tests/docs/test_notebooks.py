"""Notebooks run from top to bottom anywhere, and their stored output can be published."""

from __future__ import annotations

import os
import platform
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import emu
import fakes
import nbformat
import numpy as np
import pytest
import run_notebooks
from conftest import environment_without_pytest
from draws import EVERYTHING, SEED, some

import gpureduce as gr

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FOLDERS = re.compile(r"(?<![\w.])/(home|root|tmp|var|usr|opt|mnt|work|Users)/")

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))),
    reason="the emulator needs a C++ compiler",
)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def some_notebooks(which: int) -> pytest.MarkDecorator:
    """Those that an ordinary run runs without a GPU, or with one: two each, none of them both."""
    drawn = random.Random(f"{SEED} notebooks").sample(NOTEBOOKS, 4)[which::2]
    chosen = [path for path in NOTEBOOKS if EVERYTHING or path in drawn]
    return pytest.mark.parametrize("path", chosen, ids=lambda path: path.stem)


def run(
    *arguments: str | os.PathLike[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    own = environment_without_pytest()
    if environment is not None:
        own = {
            name: value
            for name, value in environment.items()
            if name in own or not name.startswith("PYTEST_")
        }
    return subprocess.run(
        [sys.executable, run_notebooks.__file__, *arguments],
        capture_output=True,
        text=True,
        env=own,
        timeout=500,
        check=False,
    )


def notebook_of(*sources: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@each_notebook
def test_a_notebook_says_what_it_does_without_a_gpu(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert any(
        "without a gpu" in cell.source.lower() for cell in cells if cell.cell_type == "markdown"
    )


@each_notebook
def test_a_notebook_begins_with_its_subject_and_asks(path: Path) -> None:
    """Plumbing is in lessons.py; questions have folded solutions."""
    cells = nbformat.read(path, as_version=4).cells
    setup = next(cell.source for cell in cells if cell.cell_type == "code")
    assert len(setup.splitlines()) <= 20
    assert not re.search(r"^(def|class|for) |subprocess|json\.load", setup, re.MULTILINE)
    asked = [cell.source for cell in cells if "**Question.**" in cell.source]
    assert len(asked) >= 3
    for text in [*asked, cells[-1].source]:
        assert re.search(
            r"<details><summary>Solutions?</summary>\n\n.+?\n\n</details>", text, re.DOTALL
        ), text


def test_the_lessons_sum_floats_exactly() -> None:
    """As the package does, whatever the notebooks say of it."""
    a = np.array([1e8, 1, -1e8, 2**-30], np.float32)
    assert gr.sum(a) == np.float32(1 + 2**-30)
    texts = [cell.source for path in NOTEBOOKS for cell in nbformat.read(path, 4).cells]
    assert not [text for text in texts if re.search(r"gr\.sum. adds in float64", text)]


@each_notebook
def test_stored_outputs_are_of_one_run_and_name_no_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert run_notebooks.complaints(notebook) == []
    shown = [text for cell in code for text in run_notebooks.texts(cell.outputs)]
    assert not [text for text in shown if FOLDERS.search(text)]
    assert any(re.search("H200|GPU", text) for text in shown), "no output says what it ran on"


def test_what_cannot_be_published_is_not_stored(tmp_path: Path) -> None:
    """Each cell of the one notebook is a reason, and the error of the other one."""
    told = notebook_of(
        "import sys; print('a warning', file=sys.stderr)",
        "import tempfile; print(tempfile.gettempdir() + '/project')",
        "from pathlib import Path; Path.cwd()",
    )
    nbformat.write(told, tmp_path / "told.ipynb")
    nbformat.write(notebook_of("1 / 0"), tmp_path / "fails.ipynb")
    done = run("--to", tmp_path / "out", tmp_path / "told.ipynb", tmp_path / "fails.ipynb")
    assert done.returncode == 1
    for complaint in (
        "told.ipynb: cell 0 writes to stderr: a warning",
        "told.ipynb: cell 1 shows the folder for temporary files",
        "told.ipynb: cell 2 shows this tree's folder",
        "fails.ipynb: ",
        "ZeroDivisionError",
    ):
        assert complaint in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["text", "html"])
def test_the_hosts_name_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "machine-17")
    notebook = notebook_of("")
    words = "measured on machine-17, at night"
    notebook.cells[0].outputs = [
        nbformat.v4.new_output("stream", text=words)
        if kind == "text"
        else nbformat.v4.new_output("display_data", {"text/html": f"<p>{words}</p>"})
    ]
    assert run_notebooks.complaints(notebook) == ["cell 0 shows the host's name, 'machine-17'"]


# ---------------------------------------------------------------- run

# Gigabytes are not read many times in each.
CHEAP = (
    "import gpureduce._bench.roofline as c; c.read_ceiling = c.host_read_ceiling = lambda of: 1e12"
)
# On less than a GPU is for, and for a shorter time: sources, and what stands in their place.
ON_LESS = {
    "1-staircase": {"100_000_000": "100_000", "seconds=0.2": "seconds=0.01"},
    "2-numpy": {
        "80_000_000": "200_000",
        "range(3, 8)": "range(3, 6)",
        "seconds=0.5": "seconds=0.1",
    },
    "3-accuracy": {
        "1_000_000": "2_000",
        "RUNS = 8": "RUNS = 2",
        "np.resize(a, 64 * a.size)": "a[:3000]",
        "benchmark(kernel, large": "benchmark(kernel, large, seconds=0.01",
        "range(2, 12)": "range(2, 6)",
        "SHUFFLES = 250": "SHUFFLES = 20",
    },
    "4-benchmark": {
        "10**5, 10**7": "10**4, 10**5",
        "2**26": "2**16",
        "2_000_000": "500_000",
        "max-time=0.2": "max-time=0.02",
        "max-time=0.3": "max-time=0.03",
        "seconds=0.5": "seconds=0.05",
        "assert status == 1": "",
    },
    "5-write-your-own": {},
}


def on_less(path: Path) -> Any:
    """A notebook over smaller arrays, whose first cell says how fast memory is."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in ON_LESS[path.stem].items():
        assert any(old in cell.source for cell in code), old
        for cell in code:
            cell.source = cell.source.replace(old, new)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(CHEAP))
    return notebook


STEP = re.compile(r'stairs\.step\("(\w+)"\)')
EXERCISE = re.compile(r"(?:picture|attempt)\((\d)\b.*")


def on_fewer(notebook: Any, steps: tuple[str, ...], exercises: list[int]) -> Any:
    """The notebook with these steps of the staircase, and a look at these exercises: each is drawn
    by the emulator.
    """
    kept = []
    for cell in notebook.cells:
        step, exercise = STEP.fullmatch(cell.source), EXERCISE.fullmatch(cell.source)
        cell.source = cell.source.replace("Staircase(", f"Staircase(steps={steps}, ")
        if (step is None or step[1] in steps) and (
            exercise is None or int(exercise[1]) in exercises
        ):
            kept.append(cell)
    notebook.cells = kept
    return notebook


# ---------------------------------------------------------------- write your own


EXERCISES = range(1, 9)


def exercise_cells(kind: str) -> list[str]:
    """Beginnings or solutions of the eight exercises, with the magic's line."""
    cells = nbformat.read(ROOT / "notebooks" / "5-write-your-own.ipynb", as_version=4).cells
    if kind == "beginning":
        return [each.source for each in cells if each.source.startswith("%%gr_kernel")]
    found = [re.search(r"```cuda\n(.*?)```", each.source, re.DOTALL) for each in cells]
    return [each[1] for each in found if each is not None]


def test_each_exercise_has_a_picture_a_hint_a_check_and_a_solution() -> None:
    cells = nbformat.read(ROOT / "notebooks" / "5-write-your-own.ipynb", as_version=4).cells
    code = [each.source for each in cells if each.cell_type == "code"]
    for number in EXERCISES:
        (text,) = [each.source for each in cells if each.source.startswith(f"## {number}. ")]
        assert "<details><summary>Hint</summary>" in text
        assert f"picture({number})" in code
        assert [each for each in code if each.startswith(f"attempt({number}, ")]
    assert len(exercise_cells("beginning")) == len(exercise_cells("solution")) == 8


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("number", some(EXERCISES, 1 / 2, "solutions"))
def test_a_solution_solves_its_exercise_and_the_beginning_does_not(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.syspath_prepend(str(ROOT / "notebooks"))
    import exercises

    block = {1: 32, 8: 32}.get(number)
    solution = gr.Kernel(exercise_cells("solution")[number - 1], block_size=block)
    assert exercises.attempt(number, solution), capsys.readouterr().out
    assert f"Exercise {number}: solved." in capsys.readouterr().out
    line, _, text = exercise_cells("beginning")[number - 1].partition("\n")
    given = 32 if line.endswith("--block-size 32") else None
    assert not exercises.attempt(number, gr.Kernel(text, block_size=given))
    assert f"Exercise {number}: not yet." in capsys.readouterr().out


# ---------------------------------------------------------------- from top to bottom


@pytest.mark.long
@needs_compiler
@some_notebooks(0)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    notebook = on_less(path)
    steps = some(STEP.findall("\n".join(cell.source for cell in notebook.cells)), 1 / 3, "steps")
    nbformat.write(
        on_fewer(notebook, tuple(steps), some(EXERCISES, 1 / 2, "exercises")), tmp_path / path.name
    )
    done = run("--to", tmp_path / "out", tmp_path / path.name)
    assert done.returncode == 0, done.stderr
    cells = nbformat.read(tmp_path / "out" / path.name, as_version=4).cells
    assert [cell.execution_count for cell in cells if cell.cell_type == "code"] == list(
        range(1, 1 + sum(cell.cell_type == "code" for cell in cells))
    )
    assert any(
        "image/png" in output.get("data", {})
        for cell in cells
        for output in cell.get("outputs", ())
    )


# Over a stand-in for the driver, whose times mean nothing.
STEPS = ("naive_atomic", "sequential", "auto")


@pytest.mark.long
@needs_compiler
@some_notebooks(1)
def test_a_notebook_runs_where_there_is_a_gpu(path: Path, tmp_path: Path) -> None:
    # The emulator draws the steps without a GPU, too: a few are enough.
    exercises = some(EXERCISES, 1 / 2, "exercises on a GPU")
    nbformat.write(on_fewer(on_less(path), STEPS, exercises), tmp_path / path.name)
    # The fakes add in an order of their own, and have no kernels but the library's.
    runs_kernels = path.stem in ("3-accuracy", "5-write-your-own")
    stand_in = emu.environment() if runs_kernels else fakes.environment(tmp_path)
    done = run("--to", tmp_path / "out", tmp_path / path.name, environment=stand_in)
    assert done.returncode == 0, done.stderr
    cells = nbformat.read(tmp_path / "out" / path.name, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown = "\n".join(output.get("text", "") for output in outputs)
    says = (
        r"Kernels run on (?!an emulated)|What is measured here runs on (?!the CPU)|Times "
        r"are measured"
    )
    assert re.search(says, shown)
    assert "no GPU" not in shown
