"""The Markdown pages' examples, and how to run them: python tests/pages.py PAGE [--gpu].

What a reader sees is what runs, in order, with the names that earlier examples of the page made,
``np`` and ``gr``. An expression with a number for a comment has that value.
Comments right above a block, which readers do not see, say what it needs:

    <!-- example: before it
    CODE to run first -->
    <!-- example: with TEXT for TEXT -->     runs it on less
    <!-- example: needs NAME, NAME -->       modules, "a GPU", "a C++ compiler": else only compiled
    <!-- example: signature of NAME -->      no code but a function's parameters
    <!-- example: run -->                    a shell runs it

Of a shell's other commands ``gpureduce`` runs, in this process, and the rest is looked at: whether
make has the target, pip the extra, Python the file.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs" / "site"))

from markdown_pages import Block, blocks  # noqa: E402

PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
)
GPU, COMPILER = "a GPU", "a C++ compiler"
SECONDS = 0.02
"""For each time that an example measures, instead of a reader's default."""
_VALUE = re.compile(r"^(\S.*?) +# ([-+\d.e]+)$", re.MULTILINE)
_SAME_LINE = r"(?:[^\\\n]|\\\n)+"


def examples(page: str) -> list[Block]:
    """All blocks of a page."""
    return list(blocks((ROOT / page).read_text(encoding="utf-8")))


def is_python(block: Block) -> bool:
    return block.language == "python" or is_magic(block)


def is_magic(block: Block) -> bool:
    """Whether it is lines for IPython."""
    return not block.language and block.text.startswith("%")


def needs(block: Block) -> list[str]:
    """What a block needs besides this package and NumPy."""
    found = [note.removeprefix("needs ") for note in block.notes if note.startswith("needs ")]
    return [name.strip() for each in found for name in each.split(",")]


def _note(block: Block, start: str) -> list[str]:
    return [note.removeprefix(start) for note in block.notes if note.startswith(start)]


def check_notes(block: Block) -> None:
    """A comment that nobody understands would be one that nobody obeys."""
    known = ("before it\n", "with ", "needs ", "signature of ")
    for note in block.notes:
        if note != "run" and not note.startswith(known):
            raise ValueError(f"line {block.line}: what is the note {note!r}?")


# ---------------------------------------------------------------- Python


def on_less(block: Block) -> str:
    """The block's text with what its notes put in place of something."""
    text = block.text
    for note in _note(block, "with "):
        new, _, old = note.partition(" for ")
        if old not in text:
            raise ValueError(f"line {block.line}: the example has no {old!r}")
        text = text.replace(old, new)
    return text


def code(block: Block) -> str:
    """What runs: the block, with what its notes change."""
    text = on_less(block)
    if is_magic(block):
        lines = [line[1:].partition(" ") for line in text.splitlines() if line.strip()]
        quick = {"gr_bench", "gr_compare"}
        calls = [
            (name, f"{rest} --seconds {SECONDS}" if name in quick else rest)
            for name, _, rest in lines
        ]
        text = "".join(f"magic[{name!r}]({rest!r})\n" for name, rest in calls)
    return _VALUE.sub(r"assert (\1) == \2", text)


def check_signature(block: Block, name: str) -> None:
    """A block shows a function's parameters, or dots for a default of no interest to readers."""
    import gpureduce

    shown = re.fullmatch(rf"(?:gr\.)?{name}\((.*)\)\s*", block.text, re.DOTALL)
    if not shown:
        raise AssertionError(f"line {block.line}: no call of {name}")
    described = {}
    exec(f"def described({shown[1]}): pass", described)
    ours = inspect.signature(getattr(gpureduce, name)).parameters
    theirs = inspect.signature(described["described"]).parameters  # type: ignore[arg-type]
    assert [(p.name, p.kind) for p in theirs.values()] == [(p.name, p.kind) for p in ours.values()]
    for each in theirs.values():
        assert each.default in (..., ours[each.name].default), each.name


def absent(block: Block, with_gpu: bool) -> list[str]:
    """What the block needs and this machine lacks."""
    there = {GPU: with_gpu, COMPILER: any(map(shutil.which, ("g++", "c++", "clang++")))}
    return [
        name
        for name in needs(block)
        if not there.get(name, name in there or importlib.util.find_spec(name))
    ]


def runs(block: Block) -> bool:
    """Whether :func:`run` has something to do with it."""
    in_shell = block.language == "sh" and "run" not in block.notes
    return is_python(block) or (
        in_shell and any(words[0] == "gpureduce" for words in commands(block))
    )


def run(page: str, with_gpu: bool) -> int:
    """Run a page's Python and its ``gpureduce`` commands, in this process; how many blocks ran."""
    import numpy as np

    import gpureduce as gr
    from gpureduce._bench import roofline
    from gpureduce._cli import command

    # Reads a gigabyte many times, and no example is about it.
    roofline.host_read_ceiling = lambda threads: 1e10
    for measuring in (gr.benchmark, gr.compare):
        measuring.__kwdefaults__["seconds"] = SECONDS
    warnings.simplefilter("ignore", gr.NoDeviceWarning)
    names: dict[str, Any] = {"np": np, "gr": gr}
    magic: dict[str, Any] = {}
    shell = SimpleNamespace(
        ev=lambda text: eval(text, names),
        user_ns=names,
        register_magic_function=lambda function, kind, name: magic.update({name: function}),
    )
    gr.load_ipython_extension(shell)
    names["magic"] = magic
    ran = 0
    for block in examples(page):
        if not runs(block):
            continue
        if signature := _note(block, "signature of "):
            check_signature(block, signature[0])
            ran += 1
            continue
        compiled = (
            compile("\n" * block.line + code(block), page, "exec") if is_python(block) else None
        )
        before = [
            compile(note, f"{page}, before line {block.line}", "exec")
            for note in _note(block, "before it\n")
        ]
        if absent(block, with_gpu):
            continue
        names |= {
            name: importlib.import_module(name)
            for name in needs(block)
            if name not in (GPU, COMPILER)
        }
        for part in before:
            exec(part, names)
        if compiled is not None:
            exec(compiled, names)
        else:
            for words in commands(block):
                if words[0] == "gpureduce":
                    assert command.main(words[1:]) == 0, f"{page}:{block.line}: {shlex.join(words)}"
        ran += 1
    return ran


# ---------------------------------------------------------------- shells


def commands(block: Block) -> list[list[str]]:
    """The words of each command."""
    found = []
    for line in re.findall(_SAME_LINE, on_less(block)):
        inner = re.fullmatch(r"source <\((.*?)\)(.*)", line)
        words = shlex.split(inner[1] if inner else line.replace("\\\n", " "), comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            found.append(words)
    return found


def check_commands(block: Block) -> int:
    """See that a shell reads a block and that what it calls is there; how many commands."""
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, capture_output=True)
    found = commands(block)
    for words in found:
        _check_command(words)
    return len(found)


def _check_command(words: list[str]) -> None:
    program, *rest = words
    operands = [word for word in rest if not word.startswith("-") and "=" not in word]
    if program == "gpureduce":
        return
    if program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert set(operands) <= targets, words
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
        assert rest[0] == "install", words
        parts = {re.match(r"[\w-]*", part)[0] for needed in extras.values() for part in needed}
        if rest[-1] not in parts - {"gpureduce"}:
            named = re.fullmatch(r"(?:\.|gpureduce)(?:\[(.*)\])?", rest[-1])
            assert named, words
            assert set(filter(None, (named[1] or "").split(","))) <= set(extras), words
    elif program == "source":
        assert rest == [".venv/bin/activate"], words
    elif program in ("pytest", "python"):
        assert operands, words
        assert (ROOT / operands[0]).exists(), words
    else:
        raise AssertionError(f"nobody knows how to check {shlex.join(words)}")


def run_commands(block: Block, folder: Path) -> None:
    """Run a block as a shell would, with this Python's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder, env=os.environ | {"PATH": path, "MPLBACKEND": "Agg"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("--gpu", action="store_true", help="run examples that need one, too")
    options = parser.parse_args()
    if not options.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = (
            ""  # the same examples, in the same time, on every machine
        )
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(f"{run(options.page, options.gpu)} ran")


if __name__ == "__main__":
    main()
