"""Magics for IPython: the commands ``bench``, ``compare`` and ``explain``, over arrays of the
notebook.

    %load_ext gpureduce
    %gr_bench a shfl_atomic --cache cold
    %gr_compare a[:10**6] reduce0 auto --op max
    %gr_explain interleaved_strided sequential --block-size 128

The array is an expression, in quotes if a part of it from the beginning is an expression, too; the
command's options follow. A magic returns the function's result, which a notebook shows, and prints
nothing: ``t = %gr_bench a``, and then ``t.plot()``, ``t.to_csv("t.csv")``.
"""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from .command import SUBCOMMANDS
from .explain_command import explained
from .measure_commands import bench, contest

__all__ = ["register"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"%{self.prog}: {message}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ValueError(
            message or f"%{self.prog} takes the words of the command: gpureduce --help"
        )


def _parser(name: str, add_arguments: Callable[[argparse.ArgumentParser], None]) -> _Parser:
    parser = _Parser(prog=name, add_help=False)
    add_arguments(parser)
    return parser


def _split(line: str) -> tuple[str, str]:
    """The shortest expression at the beginning of a line, and the words after it."""
    parts = line.split(" ")
    for count in range(1, len(parts) + 1):
        expression = " ".join(parts[:count]).strip()
        try:
            tree = ast.parse(expression, mode="eval").body
        except SyntaxError:
            continue
        quoted = (
            tree.value
            if isinstance(tree, ast.Constant) and isinstance(tree.value, str)
            else expression
        )
        return quoted, " ".join(parts[count:])
    return line.strip(), ""  # its evaluation raises the error


def _refuse_files(name: str, options: argparse.Namespace) -> None:
    """Raise a ``ValueError`` for options of a command's output: a magic returns an object."""
    for word in ("csv", "html", "plot", "kind", "json", "markdown", "source"):
        if getattr(options, word, None):
            raise ValueError(
                f"%{name} has no --{word}: it returns what the command would write; see what that "
                "can do"
            )


def _over_array(
    shell: Any,
    name: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[Any, argparse.Namespace], Any],
) -> Callable[[str], Any]:
    def magic(line: str) -> Any:
        expression, words = _split(line)
        if not expression:
            raise ValueError(f"%{name} takes an array first")
        options = _parser(name, add_arguments).parse_args(shlex.split(words))
        if options.file is not None or options.n is not None or options.dtype is not None:
            raise ValueError(f"%{name} takes an array, not --file, -n or --dtype")
        _refuse_files(name, options)
        return measure(shell.ev(expression), options)

    return magic


def register(shell: Any) -> None:
    """Register the magics with a shell."""

    def on_explain(line: str) -> Any:
        options = _parser("gr_explain", SUBCOMMANDS["explain"].add_arguments).parse_args(
            shlex.split(line)
        )
        _refuse_files("gr_explain", options)
        found = explained(options)
        return found if len(found) > 1 else found[0]

    on_bench = _over_array(shell, "gr_bench", SUBCOMMANDS["bench"].add_arguments, bench)
    on_compare = _over_array(shell, "gr_compare", SUBCOMMANDS["compare"].add_arguments, contest)
    for name, magic in (
        ("gr_bench", on_bench),
        ("gr_compare", on_compare),
        ("gr_explain", on_explain),
    ):
        shell.register_magic_function(magic, "line", name)
