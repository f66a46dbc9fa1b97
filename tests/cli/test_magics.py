"""Magics: the commands' words over a notebook's arrays. The shell is made up, but for one test."""

from __future__ import annotations

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
    shell = SimpleNamespace(
        ev=lambda text: eval(text, dict(names)),
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
