"""Run checks that take too long for every change, and write their figures to docs/coverage.md.

    make nightly
    make nightly NIGHTLY="tsan coverage"

The targets run one after the other, also after one that fails; the exit status is 1 if one did.
Where some are named, these alone run, and the page keeps the rows of the others: each row has the
day and the revision of its run.
"""

from __future__ import annotations

import argparse
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
TARGETS = ("asan", "tsan", "coverage", "gpu-check")
GPU = Path("/dev/nvidiactl")
CHECKS = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
TESTS = re.compile(r"(\d+) passed(?:,[^\n]*)? in ")
ROWS = re.compile(r"^\| `make ([a-z-]+)` \|.*\n", re.MULTILINE)
LINES = re.compile(r"^\| lines of \|(?:.*\n)+?(?=\n|\Z)", re.MULTILINE)
FILES = re.compile(r"^\| file \|(?:.*\n)+?(?=\n|\Z)", re.MULTILINE)
MISSED = re.compile(r"^csrc/(\S+) +\d+ +\d+ +\d+% +(\d[\d,-]*)$", re.MULTILINE)
"""A line of gcovr's table: a file, and the lines that were not reached."""
ROOMS = ("csrc/lib/", "csrc/cpu/", "csrc/dispatch/", "csrc/python/")


@dataclass(frozen=True, slots=True)
class Run:
    """A target's end: whether it succeeded, its output, its duration, and what was run when."""

    target: str
    good: bool
    output: str
    seconds: float
    revision: str
    day: str


def environment() -> dict[str, str]:
    """This one, without the jobs of the make that runs this script, which are not passed on."""
    flags = os.environ.get("MAKEFLAGS", "").split()
    kept = [flag for flag in flags if not flag.startswith("--jobserver")]
    return os.environ | {"MAKEFLAGS": " ".join(kept)}


def find_revision() -> str:
    """The commit that is checked out, with a mark if files but the page differ from it."""

    def ask_git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    commit = ask_git("rev-parse", "--short", "HEAD")
    page = PAGE.relative_to(ROOT).as_posix()
    return f"{commit}-dirty" if ask_git("status", "-s", "-uno", "--", ".", f":!{page}") else commit


def run(target: str) -> Run:
    """Run a target of the Makefile; its output is shown and kept."""
    revision, day = find_revision(), datetime.now(UTC).date().isoformat()
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
    seconds = time.monotonic() - start
    return Run(target, made.returncode == 0, "".join(lines), seconds, revision, day)


def row(done: Run) -> str:
    """A row of the table: the checks of the C tests, and the Python tests, that passed."""
    checks = sum(int(passed) for passed, _ in CHECKS.findall(done.output))
    tests = sum(int(passed) for passed in TESTS.findall(done.output))
    end = "passed" if done.good else "**failed**"
    return (
        f"| `make {done.target}` | {end} | {checks:,} | {tests:,} | {done.seconds / 60:.0f} "
        f"| {done.day} | {done.revision} |\n"
    )


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


def missed(output: str) -> list[str]:
    """Rows of the lines that were not reached, per file."""
    return [
        f"| `{name}` | {', '.join(lines.split(','))} |" for name, lines in MISSED.findall(output)
    ]


def figures(page: str) -> str:
    """The text between the marks of the page."""
    return page.partition(BEGIN)[2].partition(END)[0]


def table(runs: list[Run], summary: dict[str, Any] | None, before: str) -> str:
    """The text between the marks: the rows of the runs, and of ``before`` what they leave."""
    rows = {match[1]: match[0] for match in ROWS.finditer(before)}
    rows |= {done.target: row(done) for done in runs}
    lines = [
        "| target | end | checks in C | tests in Python | minutes | day | revision |\n",
        "| --- | --- | ---: | ---: | ---: | --- | --- |\n",
        *(rows[target] for target in TARGETS if target in rows),
    ]
    if summary is not None:
        head = ("| lines of | in all | reached | % |", "| --- | ---: | ---: | ---: |")
        lines += ["\n", *(f"{line}\n" for line in (*head, *covered(summary)))]
        head = ("| file | lines that no test reaches |", "| --- | --- |")
        output = next((done.output for done in runs if done.target == "coverage"), "")
        lines += ["\n", *(f"{line}\n" for line in (*head, *missed(output)))]
    else:
        for kept in filter(None, (LINES.search(before), FILES.search(before))):
            lines += ["\n", kept[0]]
    return "".join(lines)


def written(page: str, text: str) -> str:
    """The page with a text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no marks {BEGIN.strip()} and {END.strip()}")
    return before + begin + text + end + after


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run long checks; write docs/coverage.md.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    targets = parser.parse_args(words).targets
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    summary = None
    runs = []
    for target in targets or [each for each in TARGETS if each != "gpu-check" or GPU.exists()]:
        if target == "coverage":
            SUMMARY.unlink(missing_ok=True)  # of an earlier run
        runs.append(run(target))
        if target == "coverage" and SUMMARY.exists():
            summary = json.loads(SUMMARY.read_text())
        page = PAGE.read_text()  # written after every run: a later one may be interrupted
        PAGE.write_text(written(page, table(runs, summary, figures(page))))
    return int(not all(each.good for each in runs))


if __name__ == "__main__":
    sys.exit(main())
