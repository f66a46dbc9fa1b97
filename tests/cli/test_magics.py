"""Magics: the commands' words over a notebook's arrays. The shell is made up, but for one test."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import gpureduce as gr

QUICK = "--device cpu --seconds 0.01"


@pytest.fixture
def magics(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr("gpureduce._bench.roofline.host_read_ceiling", lambda threads: 1e10)
    found: dict[str, Any] = {}
    names = {"a": np.arange(1000), "np": np}
    found["names"] = names
    shell = SimpleNamespace(
        ev=lambda text: eval(text, dict(names)),
        user_ns=names,
        register_magic_function=lambda magic, kind, name: found.update({name: magic}),
    )
    gr.load_ipython_extension(shell)
    return found


def test_bench_times_an_expression(magics: dict[str, Any]) -> None:
    timing = magics["gr_bench"](f"a[:100] reduce0 --op max {QUICK}")
    assert isinstance(timing, gr.Timing)
    assert (timing.shape, timing.op, timing.kernel) == ((100,), "max", "interleaved_modulo")
    for expression in (
        "'a.reshape(10, 100)'",
        "a.reshape(10, 100)",
        "np.broadcast_to(a[None, :100], (10, 100))",
    ):
        assert magics["gr_bench"](f"{expression} --axis 0 {QUICK}").shape == (10, 100)
    assert magics["gr_bench"](f"{{'x': a}}['x'] reduce0 {QUICK}").kernel == "interleaved_modulo"


def test_a_kernel_comes_before_the_array_or_after_it(magics: dict[str, Any]) -> None:
    for line in ("reduce2 a", "a reduce2", "sequential a[:100]", "reduce2 'a[: 100]' --op max"):
        timing = magics["gr_bench"](f"{line} {QUICK}")
        assert timing.kernel == "sequential"
        assert timing.shape in ((1000,), (100,))


@pytest.mark.parametrize(("name", "word"), [("gr_bench", "--grid-size"), ("gr_compare", "--sizes"),
                                            ("gr_explain", "--rows")])  # fmt: skip
def test_a_magic_prints_its_help(
    name: str, word: str, magics: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert word in magics[name].__doc__
    for line in ("--help", "-h", *(["a --help"] if name != "gr_explain" else [])):
        assert magics[name](line) is None
        assert word in capsys.readouterr().out


def test_compare_compares_on_an_expression(magics: dict[str, Any]) -> None:
    found = magics["gr_compare"](f"a auto --baselines numpy --no-break-even {QUICK}")
    assert isinstance(found, gr.Comparison)
    assert [row.name for row in found] == ["auto", "numpy"]
    several = f"a auto --dtype int8 int16 --baselines --no-break-even {QUICK}"
    assert magics["gr_compare"](several).dtypes == ("int8", "int16")


@pytest.mark.skipif(
    not any(shutil.which(name) for name in ("g++", "c++", "clang++")), reason="needs a C++ compiler"
)
def test_explain_explains(magics: dict[str, Any]) -> None:
    assert isinstance(magics["gr_explain"]("sequential --block-size 64"), gr.Explanation)
    assert len(magics["gr_explain"]("sequential first_add --block-size 64")) == 2


CELL = """__global__ void mine(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}
"""


def test_a_cell_becomes_a_kernel_of_the_notebook(magics: dict[str, Any]) -> None:
    made = magics["gr_kernel"]("", CELL)
    assert isinstance(made, gr.Kernel)
    assert magics["names"]["mine"] is made
    assert made.form.line == 2  # of the cell, whose first line is the magic
    told = magics["gr_kernel"]("first --computes max --finish atomic --block-size 64", CELL)
    assert magics["names"]["first"] is told
    assert (told.op, told.form.block_size) == ("max", 64)
    two = CELL + CELL.replace("mine", "other")
    assert magics["gr_kernel"]("--name other", two).name == "other"
    assert magics["names"]["other"].form.line == 7
    several = "template <int ITEMS>\n" + CELL.replace("blockIdx.x *", "ITEMS * blockIdx.x *")
    assert magics["gr_kernel"]("--template ITEMS=4", several).form.elements_per_thread == 4


@pytest.mark.parametrize(
    ("line", "cell", "message"),
    [
        ("", None, "first line of a cell in CUDA"),
        ("", "  \n", "first line of a cell in CUDA"),
        ("class", CELL, "'class' is no name of a variable"),
        ("--nonsense", CELL, "unknown option --nonsense"),
        ("", "int x;", "there is no __global__ function"),
        ("", CELL.replace("int n", "float n"), "mine.cu:2: parameter 'float n' has no place"),
    ],
)
def test_a_cell_that_is_no_kernel_is_refused(
    line: str, cell: str | None, message: str, magics: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=message):
        magics["gr_kernel"](line, cell)
    assert set(magics["names"]) == {"a", "np"}


def test_the_cells_help_is_printed(
    magics: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--elements-per-thread" in magics["gr_kernel"].__doc__
    for cell in (None, CELL):
        assert magics["gr_kernel"]("--help", cell) is None
        assert "--elements-per-thread" in capsys.readouterr().out


@pytest.mark.skipif(
    not any(shutil.which(name) for name in ("g++", "c++", "clang++")), reason="needs a C++ compiler"
)
def test_kernels_of_the_notebook_are_named_in_magics(magics: dict[str, Any]) -> None:
    report = magics["gr_kernel"]("mine --check", CELL.replace("i < n", "i <= n"))
    assert isinstance(report, gr.CheckReport)
    assert [each.line for each in report.findings] == [5]
    magics["gr_kernel"]("mine", CELL)
    assert magics["gr_explain"]("mine --block-size 64").kernel == "mine"
    for line in ("a mine auto", "mine a auto"):
        found = magics["gr_compare"](f"{line} --baselines --no-break-even {QUICK}")
        assert sorted(row.name for row in found) == ["auto", "mine"]
        assert "runs on GPUs only" in found["mine"].absent


@pytest.mark.parametrize("name", ["gr_bench", "gr_compare", "gr_explain"])
def test_help_of_a_magic_lists_no_option_that_it_refuses(name: str, magics: dict[str, Any]) -> None:
    before = "sequential" if name == "gr_explain" else "a"
    listed = set(re.findall(r"--[a-z-]+", magics[name].__doc__)) - {"--help"}
    assert "--block-size" in listed
    for option in listed:
        for value in ("", " 8"):
            with pytest.raises((ValueError, OSError)) as caught:
                magics[name](f"{before} {option}{value} --op nothing")
            assert f"has no {option}" not in str(caught.value)
            assert "takes an array, not" not in str(caught.value)


def test_wrong_words_are_shown_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell()
    shell.extension_manager.load_extension("gpureduce")
    shell.user_ns["a"] = np.arange(10)
    for line, message in (
        ("%gr_explain reduc0", "unknown kernel 'reduc0'; did you mean 'reduce0'"),
        ("%gr_bench a auto --op summ", "did you mean 'sum'"),
        ("%gr_compare a auto --baselines nmupy", "did you mean 'numpy'"),
    ):
        assert not shell.run_cell(line).success
        shown = "".join(capsys.readouterr())
        assert message in shown
        assert "Traceback" not in shown
    shell.run_cell("%gr_bench int('x')")
    assert "Traceback" in "".join(capsys.readouterr())  # the user's own expression


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("gr_bench", "", "%gr_bench takes an array: see %gr_bench --help"),
        ("gr_bench", "a -n 3", "takes an array, not --file or -n"),
        ("gr_bench", "a --dtype int8", "takes an array, not --dtype: convert it by astype"),
        ("gr_compare", "a --save x", "%gr_compare has no --save"),
        ("gr_compare", "a --fail-if-slower 0", "%gr_compare has no --fail-if-slower"),
        ("gr_bench", "a --csv t.csv", "%gr_bench has no --csv"),
        ("gr_bench", "a --json", "%gr_bench has no --json"),
        ("gr_compare", "a --kind bars", "%gr_compare has no --kind"),
        ("gr_explain", "sequential --plot x.png", "%gr_explain has no --plot"),
        ("gr_compare", "a --nonsense", "%gr_compare: unknown option --nonsense"),
        ("gr_explain", "", "KERNEL"),
    ],
)
def test_bad_words_are_errors_and_not_exits(
    name: str, line: str, message: str, magics: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=message):
        magics[name](line)


def test_ipython_loads_the_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setattr("gpureduce._bench.roofline.host_read_ceiling", lambda threads: 1e10)
    shell = InteractiveShell()
    shell.extension_manager.load_extension("gpureduce")
    shell.user_ns["a"] = np.arange(10)
    assert isinstance(shell.run_line_magic("gr_bench", f"a {QUICK}"), gr.Timing)
