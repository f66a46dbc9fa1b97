"""Run checks that take too long for every change, and write their figures to docs/coverage.md.

    make nightly

The targets run one after the other, also after one that fails; the exit status is 1 if one did.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coverage.md"
SUMMARY = ROOT / "build" / "coverage" / "summary.json"
BEGIN, END = "<!-- nightly -->\n", "<!-- end -->\n"
TARGETS = ("asan", "tsan", "coverage")
GPU = Path("/dev/nvidiactl")
CHECKS = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
TESTS = re.compile(r"(\d+) passed(?:,[^\n]*)? in ")
ROOMS = ("csrc/lib/", "csrc/cpu/", "csrc/dispatch/", "csrc/python/")


@dataclass(frozen=True, slots=True)
class Run:
    """A target's end: whether it succeeded, its output, and its duration."""

    target: str
    good: bool
    output: str
    seconds: float


def environment() -> dict[str, str]:
    """This one, without the jobs of the make that runs this script, which are not passed on."""
    flags = os.environ.get("MAKEFLAGS", "").split()
    kept = [flag for flag in flags if not flag.startswith("--jobserver")]
    return os.environ | {"MAKEFLAGS": " ".join(kept)}


def run(target: str) -> Run:
    """Run a target of the Makefile; its output is shown and kept."""
    start = time.monotonic()
    lines = []
    with subprocess.Popen(
        ["make", target],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as made:
        assert made.stdout is not None
        for line in made.stdout:
            sys.stdout.write(line)
            lines.append(line)
    return Run(target, made.returncode == 0, "".join(lines), time.monotonic() - start)


def row(done: Run) -> str:
    """A row of the table: the checks of the C tests, and the Python tests, that passed."""
    checks = sum(int(passed) for passed, _ in CHECKS.findall(done.output))
    tests = sum(int(passed) for passed in TESTS.findall(done.output))
    end = "passed" if done.good else "**failed**"
    return f"| `make {done.target}` | {end} | {checks:,} | {tests:,} | {done.seconds / 60:.0f} |"


def covered(summary: dict[str, Any]) -> list[str]:
    """Rows of the lines that were reached, per room and in all."""
    rows = []
    for room in (*ROOMS, ""):
        files = [each for each in summary["files"] if each["filename"].startswith(room)]
        total = sum(each["line_total"] for each in files)
        reached = sum(each["line_covered"] for each in files)
        if total:
            share = 100 * reached / total
            name = f"`{room.rstrip('/')}`" if room else "all"
            rows.append(f"| {name} | {total:,} | {reached:,} | {share:.2f} |")
    return rows


def table(runs: list[Run], summary: dict[str, Any] | None, revision: str, day: str) -> str:
    """The text between the marks of the page."""
    lines = [
        "| target | end | checks in C | tests in Python | minutes |",
        "| --- | --- | ---: | ---: | ---: |",
        *map(row, runs),
    ]
    if summary is not None:
        lines += ["", "| lines of | in all | reached | % |", "| --- | ---: | ---: | ---: |"]
        lines += covered(summary)
    lines += ["", f"*{day}, revision {revision}.*"]
    return "\n".join(lines) + "\n"


def written(page: str, text: str) -> str:
    """The page with a text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no marks {BEGIN.strip()} and {END.strip()}")
    return before + begin + text + end + after


def main() -> int:
    SUMMARY.unlink(missing_ok=True)  # of an earlier run
    runs = [run(target) for target in (*TARGETS, *(["gpu-check"] if GPU.exists() else []))]
    summary = json.loads(SUMMARY.read_text()) if SUMMARY.exists() else None
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    day = datetime.now(UTC).date().isoformat()
    PAGE.write_text(written(PAGE.read_text(), table(runs, summary, revision, day)))
    return int(not all(each.good for each in runs))


if __name__ == "__main__":
    sys.exit(main())
