"""Count lines of code and tokens per duty, without comments and docstrings, at revisions.

python tools/count_code.py                      # the working tree
python tools/count_code.py 7d84fe8 HEAD         # two revisions side by side
python tools/count_code.py --files csrc/python  # the files of a folder
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
_HOST = ("lib", "dispatch", "shared", "registry", "include")
DUTIES = {
    "kernels": ("csrc/kernels/",),
    "host library": tuple(f"csrc/{room}/" for room in _HOST),
    "CPU backend": ("csrc/cpu/",),
    "glue": ("csrc/python/",),
    "emulator": ("csrc/emu/",),
    "Python": ("src/gpureduce/",),
}
"""Folders of each duty, in the tree of every revision; csrc/vendor is not this project's code."""
SUFFIXES = (".c", ".h", ".cuh", ".def", ".py")
_C_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+|[^\w\s]')


def read_tree(revision: str | None) -> Iterator[tuple[str, str]]:
    """Paths and texts of the files that count; None: those of the working tree."""
    listing = ["git", "ls-files"] if revision is None else ["git", "ls-tree", "-r", "--name-only"]
    names = subprocess.run(
        [*listing, *filter(None, [revision])], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in names:
        if not name.endswith(SUFFIXES) or duty_of(name) is None:
            continue
        if revision is None:
            if (ROOT / name).exists():
                yield name, (ROOT / name).read_text()
        else:
            show = ["git", "show", f"{revision}:{name}"]
            done = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True)
            yield name, done.stdout


def duty_of(name: str) -> str | None:
    """The duty that a file belongs to; None: it does not count."""
    found = (duty for duty, folders in DUTIES.items() if name.startswith(folders))
    return next(found, None)


def count(name: str, text: str) -> tuple[int, int]:
    """Lines of code and tokens of a file."""
    return count_python(text) if name.endswith(".py") else count_c(text)


def count_c(text: str) -> tuple[int, int]:
    """Lines and tokens of C or CUDA C++ without comments."""
    code = re.sub(
        r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*',
        lambda part: part[0] if part[0][0] == '"' else " ",
        text,
        flags=re.DOTALL,
    )
    lines = sum(1 for line in code.splitlines() if line.strip(" \t\\"))
    return lines, len(_C_TOKEN.findall(code))


def count_python(text: str) -> tuple[int, int]:
    """Lines and tokens of Python without comments and docstrings."""
    dropped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                dropped |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    left_out = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENCODING, tokenize.ENDMARKER,
    }  # fmt: skip
    lines: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in left_out and token.start[0] not in dropped:
            lines |= set(range(token.start[0], token.end[0] + 1))
            tokens += 1
    return len(lines), tokens


def add_up(revision: str | None, folder: str | None) -> dict[str, tuple[int, int]]:
    """Lines and tokens of each duty, or of each file of a folder."""
    sums: dict[str, tuple[int, int]] = {}
    for name, text in read_tree(revision):
        row = duty_of(name) if folder is None else name
        if row is None or (folder is not None and not name.startswith(folder)):
            continue
        lines, tokens = count(name, text)
        before = sums.get(row, (0, 0))
        sums[row] = (before[0] + lines, before[1] + tokens)
    return sums


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revisions", nargs="*", help="revisions; by default the working tree")
    parser.add_argument("--files", metavar="FOLDER", help="count the files of a folder instead")
    options = parser.parse_args(arguments)
    revisions: list[str | None] = [*options.revisions] or [None]
    found = [add_up(revision, options.files) for revision in revisions]
    rows = list(DUTIES) if options.files is None else sorted(set().union(*found))
    head = "".join(f"{revision or 'working tree':>20}" for revision in revisions)
    print(f"{'lines, tokens':<44}{head}")
    for row in rows:
        cells = (each.get(row, (0, 0)) for each in found)
        print(f"{row:<44}" + "".join(f"{lines:>11,}{tokens:>9,}" for lines, tokens in cells))
    totals = ([sum(cell[i] for cell in each.values()) for i in range(2)] for each in found)
    print(f"{'all':<44}" + "".join(f"{lines:>11,}{tokens:>9,}" for lines, tokens in totals))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
