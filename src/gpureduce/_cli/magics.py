"""Magics for IPython: the commands ``bench``, ``compare`` and ``explain``, over arrays of the
notebook.

    %load_ext gpureduce
    %gr_bench shfl_atomic a --cache cold
    %gr_compare a[:10**6] reduce0 auto --op max
    %gr_explain interleaved_strided sequential --block-size 128

The array is an expression, in quotes if a part of it from the beginning is an expression, too. A
kernel's name may come before it or after it; the command's options follow, and ``--help`` prints
them. A magic returns the function's result, which a notebook shows, and prints
nothing: ``t = %gr_bench a``, and then ``t.plot()``, ``t.to_csv("t.csv")``.
"""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from .. import _core
from .command import SUBCOMMANDS
from .explain_command import explained
from .measure_commands import bench, contest
from .options import Parser

__all__ = ["register"]


_OF_COMMANDS = (
    *("csv", "html", "plot", "kind", "json", "markdown", "source"),
    *("save", "against", "fail_if_slower"),
)
"""Options of commands for which the object that a magic returns has methods."""


class _HelpPrinted(Exception):  # noqa: N818  no error
    """``--help`` was given: there is nothing to run."""


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        name = self.prog.split()[0]
        raise ValueError(f"{name}: {message} (see {name} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _HelpPrinted


def _parser(name: str, before: str) -> _Parser:
    """The parser of the command that a magic is named after; `before` its words come others."""
    command = SUBCOMMANDS[name.removeprefix("gr_")]
    parser = _Parser(prog=f"%{name}{before}", description=command.summary)
    command.add_arguments(parser)
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
    for word in _OF_COMMANDS:
        given = getattr(options, word, None)
        if given is not None and given is not False:
            raise ValueError(
                f"%{name} has no --{word.replace('_', '-')}: it returns an object whose methods do "
                "what the command's option does"
            )


def _is_kernel(word: str) -> bool:
    try:
        _core.find_kernel(word)
    except ValueError:
        return False
    return True


def _over_array(
    shell: Any, name: str, measure: Callable[[Any, argparse.Namespace], Any]
) -> Callable[[str], Any]:
    parser = _parser(name, " ARRAY")

    def magic(line: str) -> Any:
        if line.strip() in ("-h", "--help"):
            parser.print_help()
            return None
        expression, words = _split(line)
        second, rest = _split(words)
        if _is_kernel(expression) and second and second[0] != "-" and not _is_kernel(second):
            expression, words = second, f"{expression} {rest}"
        if not expression:
            raise ValueError(f"%{name} takes an array: see %{name} --help")
        try:
            options = parser.parse_args(shlex.split(words))
        except _HelpPrinted:
            return None
        if options.file is not None or options.n is not None:
            raise ValueError(f"%{name} takes an array, not --file or -n")
        if isinstance(options.dtype, str):
            raise ValueError(f"%{name} takes an array, not --dtype: convert it by astype")
        _refuse_files(name, options)
        return measure(shell.ev(expression), options)

    magic.__doc__ = parser.format_help()
    return magic


def register(shell: Any) -> None:
    """Register the magics with a shell."""
    parser = _parser("gr_explain", "")

    def on_explain(line: str) -> Any:
        try:
            options = parser.parse_args(shlex.split(line))
        except _HelpPrinted:
            return None
        _refuse_files("gr_explain", options)
        found = explained(options)
        return found if len(found) > 1 else found[0]

    on_explain.__doc__ = parser.format_help()
    on_bench = _over_array(shell, "gr_bench", bench)
    on_compare = _over_array(shell, "gr_compare", contest)
    for name, magic in (
        ("gr_bench", on_bench),
        ("gr_compare", on_compare),
        ("gr_explain", on_explain),
    ):
        shell.register_magic_function(magic, "line", name)
