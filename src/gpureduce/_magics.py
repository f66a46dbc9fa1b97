"""Magics for IPython: the commands ``bench``, ``compare`` and ``explain``, over arrays of the notebook.

    %load_ext gpureduce
    %gr_bench a shfl_atomic --cache cold
    %gr_compare a[:10**6] reduce0 auto --op max
    %gr_explain interleaved_strided sequential --block-size 128

The array is an expression; what follows are the command's own words. A magic returns what the function returns, so that
a notebook shows it: ``t = %gr_bench a``.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from . import _cli

__all__ = ["register"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"%{self.prog}: {message}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ValueError(message or f"%{self.prog} takes the words of the command: gpureduce --help")


def _parser(name: str, add_arguments: Callable[[argparse.ArgumentParser], None]) -> _Parser:
    parser = _Parser(prog=name, add_help=False)
    add_arguments(parser)
    return parser


def _over_array(
    shell: Any,
    name: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[Any, argparse.Namespace], Any],
) -> Callable[[str], Any]:
    def magic(line: str) -> Any:
        expression, *words = shlex.split(line) or [""]
        if not expression:
            raise ValueError(f"%{name} takes an array first")
        options = _parser(name, add_arguments).parse_args(words)
        if options.file is not None or options.n is not None or options.dtype is not None:
            raise ValueError(f"%{name} takes an array, not --file, -n or --dtype")
        return measure(shell.ev(expression), options)

    return magic


def register(shell: Any) -> None:
    """Register the magics with a shell."""
    commands = _cli.SUBCOMMANDS

    def explain(line: str) -> Any:
        found = _cli.explained(_parser("gr_explain", commands["explain"].add_arguments).parse_args(shlex.split(line)))
        return found if len(found) > 1 else found[0]

    bench = _over_array(shell, "gr_bench", commands["bench"].add_arguments, _cli.bench)
    compare = _over_array(shell, "gr_compare", commands["compare"].add_arguments, _cli.contest)
    for name, magic in (("gr_bench", bench), ("gr_compare", compare), ("gr_explain", explain)):
        shell.register_magic_function(magic, "line", name)
