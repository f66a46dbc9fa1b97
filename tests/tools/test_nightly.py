"""The figures that the nightly run writes into the page of coverage."""

from __future__ import annotations

import nightly
import pytest


def test_figures_are_those_of_the_outputs() -> None:
    output = "== a\n1200 passed, 0 failed\n== b\n34 passed, 1 failed\n5 passed, 2 skipped in 3.1s\n"
    summary = {
        "files": [
            {"filename": "csrc/lib/a.c", "line_total": 300, "line_covered": 299},
            {"filename": "csrc/cpu/b.c", "line_total": 100, "line_covered": 100},
        ]
    }
    runs = [nightly.Run("asan", False, output, 90.0), nightly.Run("tsan", True, "", 0.0)]
    text = nightly.table(runs, summary, "abc", "2026-01-02")
    assert "| `make asan` | **failed** | 1,234 | 5 | 2 |" in text
    assert "| `make tsan` | passed | 0 | 0 | 0 |" in text
    assert "| `csrc/lib` | 300 | 299 | 99.67 |" in text
    assert "| all | 400 | 399 | 99.75 |" in text


def test_the_page_has_the_marks_and_keeps_all_else() -> None:
    page = nightly.PAGE.read_text()
    once = nightly.written(page, "first figures\n")
    twice = nightly.written(once, "second figures\n")
    assert "first figures" in once
    assert "first figures" not in twice
    assert "second figures" in twice
    assert nightly.written(twice, "first figures\n") == once
    with pytest.raises(ValueError, match="no marks"):
        nightly.written("no page", "")


def test_a_target_runs_on_all_cores_and_keeps_what_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAKEFLAGS", "-j2 --jobserver-auth=3,4 --no-builtin-rules -- CC=gcc-12")
    assert nightly.environment()["MAKEFLAGS"] == "-j2 --no-builtin-rules -- CC=gcc-12"
