"""The figures that the nightly run writes into the page of coverage."""

from __future__ import annotations

from pathlib import Path

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
    runs = [
        nightly.Run("asan", False, output, 90.0, "abc", "2026-01-02"),
        nightly.Run("tsan", True, "", 0.0, "abc-dirty", "2026-01-02"),
    ]
    text = nightly.table(runs, summary, "")
    assert "| `make asan` | **failed** | 1,234 | 5 | 2 | 2026-01-02 | abc |" in text
    assert "| `make tsan` | passed | 0 | 0 | 0 | 2026-01-02 | abc-dirty |" in text
    assert "| `csrc/lib` | 300 | 299 | 99.67 |" in text
    assert "| all | 400 | 399 | 99.75 |" in text


def test_rows_of_targets_that_did_not_run_are_kept() -> None:
    summary = {"files": [{"filename": "csrc/lib/a.c", "line_total": 4, "line_covered": 3}]}
    output = (
        "File                   Lines    Exec  Cover   Missing\n"
        "csrc/lib/a.c               4       3    75%   2,10-12\n"
        "csrc/lib/b.c               4       4   100%\n"
    )
    both = [
        nightly.Run(name, False, output, 60.0, "old", "2026-01-01") for name in ("tsan", "coverage")
    ]
    before = nightly.table(both, summary, "")
    after = nightly.table([nightly.Run("tsan", True, "", 0.0, "new", "2026-01-02")], None, before)
    assert after == before.replace(
        "| `make tsan` | **failed** | 0 | 0 | 1 | 2026-01-01 | old |",
        "| `make tsan` | passed | 0 | 0 | 0 | 2026-01-02 | new |",
    )
    assert "| `csrc/lib` | 4 | 3 | 75.00 |" in after
    assert after.endswith(
        "\n| file | lines that no test reaches |\n| --- | --- |\n| `lib/a.c` | 2, 10-12 |\n"
    )


def test_targets_that_are_named_run_alone_and_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "coverage.md"
    page.write_text(f"Before.\n{nightly.BEGIN}*No run yet.*\n{nightly.END}After.\n")
    monkeypatch.setattr(nightly, "PAGE", page)
    monkeypatch.setattr(nightly, "SUMMARY", tmp_path / "summary.json")
    ran = []

    def run(target: str) -> nightly.Run:
        ran.append(target)
        return nightly.Run(target, target != "asan", "7 passed, 0 failed\n", 0.0, "abc", "day")

    monkeypatch.setattr(nightly, "run", run)
    assert nightly.main(["tsan"]) == 0
    assert nightly.main(["tsan", "asan"]) == 1
    assert ran == ["tsan", "tsan", "asan"]
    text = page.read_text()
    assert text.index("`make asan` | **failed** | 7") < text.index("`make tsan` | passed | 7")
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    with pytest.raises(SystemExit):
        nightly.main(["no-target"])


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
