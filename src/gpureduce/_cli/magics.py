"""Magics for IPython: the commands ``bench``, ``compare`` and ``explain``, over arrays of the
notebook, and cells that are kernels of your own.

    %load_ext gpureduce
    %gr_bench shfl_atomic a --cache cold
    %gr_compare a[:10**6] reduce0 auto --op max
    %gr_explain interleaved_strided sequential --block-size 128
    %gr_compare a mine auto

The array is an expression, in quotes if a part of it from the beginning is an expression, too. A
kernel's name may come before it or after it: one of the catalogue, or of a ``Kernel`` of the
notebook, here ``mine``. The command's options follow, and ``--help`` prints them. A magic returns
the function's result, which a notebook shows, and prints nothing: ``t = %gr_bench a``, and then
``t.plot()``, ``t.to_csv("t.csv")``.

A cell in CUDA C++ becomes a ``Kernel`` of the notebook, under the kernel's name or another one:

    %%gr_kernel
    __global__ void mine(const float *in, float *out, unsigned n)
    ...

``%%gr_kernel --help`` prints the options, which are those of ``gpureduce.Kernel``.
"""

from __future__ import annotations

import argparse
import ast
import keyword
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .. import _core
from .._exceptions import CompileError
from .._yours.check import check
from .._yours.kernel import Kernel
from .check_command import add_kernel_options, kernel_of
from .command import SUBCOMMANDS
from .explain_command import explained
from .measure_commands import bench, contest
from .options import Parser, examples

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


class _WrongWordsError(ValueError):
    """An error of a magic's words, which IPython shows in one line."""

    def _render_traceback_(self) -> list[str]:  # IPython's protocol
        return [f"UsageError: {self}"]


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Show wrong words as those of IPython's own magics are shown, without a traceback."""
    try:
        yield
    except CompileError:  # has the compiler's log
        raise
    except (ValueError, TypeError) as error:
        raise _WrongWordsError(str(error)) from None


def _parser(name: str, before: str, hidden: tuple[str, ...] = ()) -> _Parser:
    """The parser of the command that a magic is named after; `before` its words come others.

    Its help leaves out options that the magic refuses, and those of `hidden`.
    """
    command = SUBCOMMANDS[name.removeprefix("gr_")]
    parser = _Parser(prog=f"%{name}{before}", description=command.summary)
    command.add_arguments(parser)
    for action in parser._actions:
        if action.dest in {*_OF_COMMANDS, *hidden}:
            action.help = argparse.SUPPRESS
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


def _is_kernel(shell: Any, word: str) -> bool:
    if word.endswith((".cu", ".cuh")) or isinstance(shell.user_ns.get(word), Kernel):
        return True
    try:
        _core.find_kernel(word)
    except ValueError:
        return False
    return True


def _find_kernels(shell: Any, options: argparse.Namespace) -> None:
    """Put kernels of the notebook in place of their names."""

    def found(word: str) -> Any:
        value = shell.user_ns.get(word)
        return value if isinstance(value, Kernel) else word

    several = isinstance(options.kernel, list)
    options.kernel = [*map(found, options.kernel)] if several else found(options.kernel)


def _over_array(
    shell: Any, name: str, measure: Callable[[Any, argparse.Namespace], Any]
) -> Callable[[str], Any]:
    # dtypes of a comparison are those that the array is converted to
    parser = _parser(name, " ARRAY", ("file", "n") + ("dtype",) * (name == "gr_bench"))

    def words_of(line: str) -> tuple[str, argparse.Namespace] | None:
        if line.strip() in ("-h", "--help"):
            parser.print_help()
            return None
        expression, words = _split(line)
        second, rest = _split(words)
        if (
            _is_kernel(shell, expression)
            and second
            and second[0] != "-"
            and not _is_kernel(shell, second)
        ):
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
        _find_kernels(shell, options)
        return expression, options

    def magic(line: str) -> Any:
        with _in_one_line():
            found = words_of(line)
        if found is None:
            return None
        array = shell.ev(found[0])  # an error in it has its traceback
        with _in_one_line():
            return measure(array, found[1])

    magic.__doc__ = parser.format_help()
    return magic


def _kernel_parser() -> _Parser:
    parser = _Parser(
        prog="%%gr_kernel",
        description="make a kernel of your own of this cell, in CUDA C++",
        epilog=examples(
            "%%gr_kernel", "%%gr_kernel first --check", "%%gr_kernel --template ITEMS=4"
        ),
    )
    parser.add_argument(
        "variable", nargs="?", help="what the notebook calls it (default: the kernel's name)"
    )
    parser.add_argument(
        "--block-size", type=int, metavar="B", help="the only block size that it takes"
    )
    parser.add_argument(
        "--elements-per-thread", type=int, metavar="N", help="elements that each thread loads"
    )
    parser.add_argument(
        "--check", action="store_true", help="check it on an emulated GPU, and show the report"
    )
    add_kernel_options(parser)
    return parser


def _make_kernel_magic(shell: Any) -> Callable[[str, str | None], Any]:
    parser = _kernel_parser()

    def on_kernel(line: str, cell: str | None = None) -> Any:
        try:
            with _in_one_line():
                options = parser.parse_args(shlex.split(line))
        except _HelpPrinted:
            return None
        if cell is None or not cell.strip():
            raise ValueError(
                "%%gr_kernel is the first line of a cell in CUDA C++: see %gr_kernel --help"
            )
        # The file's lines are the cell's: the first one is the magic.
        with _in_one_line():
            kernel = kernel_of(
                "\n" + cell,
                options,
                block_size=options.block_size,
                elements_per_thread=options.elements_per_thread,
            )
        name = options.variable or kernel.name
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"%%gr_kernel: {name!r} is no name of a variable")
        shell.user_ns[name] = kernel
        return check(kernel) if options.check else kernel

    on_kernel.__doc__ = parser.format_help()
    return on_kernel


def register(shell: Any) -> None:
    """Register the magics with a shell."""
    parser = _parser("gr_explain", "")

    def on_explain(line: str) -> Any:
        try:
            with _in_one_line():
                options = parser.parse_args(shlex.split(line))
                _refuse_files("gr_explain", options)
                _find_kernels(shell, options)
                found = explained(options)
        except _HelpPrinted:
            return None
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
    shell.register_magic_function(_make_kernel_magic(shell), "line_cell", "gr_kernel")
