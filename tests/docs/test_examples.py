"""Examples work: docstrings, pages, the demonstration, the C program with an installed library."""

from __future__ import annotations

import doctest
import importlib
import os
import pathlib
import pkgutil
import shutil
import subprocess
import sys

import numpy as np
import pages
import pytest
from draws import some

import gpureduce as gr

ROOT = pathlib.Path(__file__).parents[2]
# Public classes are found in the package itself, once they have been imported.
for each in gr.__all__:
    getattr(gr, each)
# Those in C have no source in Python, and __main__ runs when it is imported.
MODULES = (
    gr.__name__,
    *(
        found.name
        for found in pkgutil.walk_packages(gr.__path__, f"{gr.__name__}.")
        if found.name.rpartition(".")[2] not in ("_core", "_emulator", "__main__")
    ),
)

needs_tools = pytest.mark.skipif(
    shutil.which("make") is None or shutil.which("cc") is None, reason="needs make and cc"
)
# Whoever tests the library builds it, which takes half a minute: one process.
builds_library = pytest.mark.xdist_group("library")


def run(*command: str | os.PathLike[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, **options
    )  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_give_what_they_say(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_no_example_of_a_public_docstring_is_left_out() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    run = {
        test.docstring
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples
    }
    things = [getattr(gr, name) for name in gr.__all__ if name != "__version__"]
    things += [
        member for thing in things if isinstance(thing, type) for member in vars(thing).values()
    ]
    texts = [getattr(thing, "__func__", thing).__doc__ or "" for thing in things]
    shown = [text for text in texts if ">>> " in text]
    assert shown
    assert set(shown) <= run


@pytest.mark.parametrize("page", pages.PAGES)
def test_page_has_no_example_that_nobody_runs(page: str) -> None:
    for block in pages.examples(page):
        pages.check_notes(block)
        outputs = not block.language and not pages.is_magic(block)
        assert (
            pages.is_python(block)
            or block.language in ("sh", "text")
            or outputs
            or block.language.startswith("{")
        )


def pages_that_run() -> list[str]:
    """Of the pages whose examples are compiled for the emulator, which takes long, some."""
    there = [page for page in pages.PAGES if any(map(pages.runs, pages.examples(page)))]
    compiled = [
        page
        for page in there
        if any(pages.COMPILER in pages.needs(block) for block in pages.examples(page))
    ]
    drawn = some(compiled, 1 / 2, "pages that run")
    return [page for page in there if page not in compiled or page in drawn]


@pytest.mark.long
@pytest.mark.parametrize("page", pages_that_run())
def test_page_examples_run(page: str) -> None:
    expected = [
        block
        for block in pages.examples(page)
        if pages.runs(block) and not pages.absent(block, False)
    ]
    done = run(
        sys.executable, ROOT / "tests" / "pages.py", page, env=os.environ | {"MPLBACKEND": "Agg"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(expected)} ran"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in pages.PAGES
        if any(pages.GPU in pages.needs(block) for block in pages.examples(page))
    ],
)
def test_page_examples_that_need_a_gpu_run(page: str) -> None:
    for block in pages.examples(page):
        for name in pages.needs(block):
            if name not in (pages.GPU, pages.COMPILER):
                pytest.importorskip(name)
    done = run(
        sys.executable,
        ROOT / "tests" / "pages.py",
        page,
        "--gpu",
        env=os.environ | {"MPLBACKEND": "Agg"},
    )
    assert done.returncode == 0, done.stderr


def shell_blocks() -> list[tuple[str, int]]:
    """Of those that a shell runs, some."""
    there = {
        (page, number): block
        for page in pages.PAGES
        for number, block in enumerate(pages.examples(page))
        if block.language == "sh"
    }
    run = [place for place, block in there.items() if "run" in block.notes]
    drawn = some(run, 0.4, "commands that run")
    return [place for place in there if place not in run or place in drawn]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("page", "number"), shell_blocks())
def test_page_commands_exist_and_those_marked_run(
    page: str, number: int, tmp_path: pathlib.Path
) -> None:
    block = pages.examples(page)[number]
    if "run" not in block.notes:
        assert pages.check_commands(block) > 0
    elif missing := pages.absent(block, False):
        pytest.skip(f"needs {', '.join(missing)}")
    else:
        pages.run_commands(block, tmp_path)


def test_every_reduction_has_a_docstring_with_example_and_determinism_note() -> None:
    names = [
        name
        for name in gr.__all__
        if getattr(getattr(gr, name), "__module__", "") == "gpureduce._functions"
    ]
    assert len(names) > len(["sum", "prod", "min", "max", "mean", "any", "all", "reduce"])
    for name in names:
        text = getattr(gr, name).__doc__
        parts = ("Parameters", "Returns", "Raises", "Notes", "Determinism", "Examples", ">>> gr.")
        for part in parts:
            assert part in text, (name, part)


def test_demo_says_where_it_runs_and_agrees_with_numpy() -> None:
    done = run(sys.executable, ROOT / "examples" / "demo.py", "--n", "100000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All sums agree." in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert sum(row[:1] == ["numpy.sum"] for row in rows) == 2
    timed = [(row[0], row[1]) for row in rows if row[1:2] and row[1].startswith(("cpu", "cuda"))]
    if gr.devices():
        assert "Running on the GPU" in done.stdout
        assert {place for _, place in timed} == {"cpu", "cuda:0"}
        return
    # One loop computes every sum there: it has one row, and kernels of GPUs have none.
    assert "No GPU was found: the CPU backend runs" in done.stdout
    assert timed == [(name, "cpu") for name in ("numpy.sum", "auto", "numpy.sum", "auto", "fast")]
    assert "on an emulated GPU" in done.stdout
    assert "With a GPU, this demo runs 8 kernels on it. Recorded on an NVIDIA" in done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The library installed under a prefix of its own."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = run("make", "-C", ROOT, "install", f"PREFIX={prefix}")
    assert done.returncode == 0, done.stderr
    return prefix


@pytest.fixture(scope="module")
def sum_file(installed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """examples/sum_file.c built as its comment says, against the installed library."""
    program = tmp_path_factory.mktemp("sum_file") / "sum_file"
    library = installed / "lib"
    flags = [f"-I{installed / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}", "-lgpureduce"]
    if shutil.which("pkg-config") is not None:
        environment = os.environ | {"PKG_CONFIG_PATH": str(library / "pkgconfig")}
        asked = run("pkg-config", "--cflags", "--libs", "gpureduce", env=environment)
        assert asked.returncode == 0, asked.stderr
        flags = asked.stdout.split()
    source = ROOT / "examples" / "sum_file.c"
    strict = ("-Wall", "-Wextra", "-Werror")
    done = run("cc", *strict, source, *flags, "-o", program)
    assert done.returncode == 0, done.stderr
    return program


@builds_library
@needs_tools
@pytest.mark.parametrize("n", [0, 1, 1000, 1_000_003])
def test_c_program_sums_a_file_of_floats(
    n: int, sum_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    values = np.random.default_rng().integers(-100, 100, n).astype(np.float32)
    values.tofile(tmp_path / "floats")
    done = run(sum_file, tmp_path / "floats")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == values.sum(dtype=np.float64)


@builds_library
@needs_tools
def test_c_program_says_what_is_wrong(sum_file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "odd").write_bytes(b"12345")
    assert run(sum_file).returncode == 2
    missing = run(sum_file, tmp_path / "missing")
    assert missing.returncode == 1
    assert "No such file" in missing.stderr
    odd = run(sum_file, tmp_path / "odd")
    assert odd.returncode == 1
    assert "whole number" in odd.stderr


@builds_library
@needs_tools
def test_library_exports_the_public_header_and_nothing_else(installed: pathlib.Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    listed = run("nm", "-D", "--defined-only", installed / "lib" / "libgpureduce.so")
    symbols = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}
    header = (ROOT / "csrc" / "include" / "gpureduce.h").read_text()
    assert symbols
    assert all(f"{symbol}(" in header for symbol in symbols), symbols
