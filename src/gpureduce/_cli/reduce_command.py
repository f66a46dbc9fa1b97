"""``gpureduce sum FILE.npy`` and all other reductions: functions called with a file's array; and
``gpureduce reduce FILE.npy``, by several operators or one of the user's own.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import _core, _functions
from .._yours.kernel_form import OPERATORS
from .check_command import add_kernel_options, kernel_or_name
from .npy_files import load, named_dtype
from .operator_options import add_operators, operators_of
from .options import STANDARD_OUTPUT, add_bar, add_json, add_where, axes, print_json

__all__ = [
    "add_axis",
    "add_reduce",
    "add_reduction",
    "as_json",
    "opened",
    "print_whole",
    "reductions",
    "run_reduce",
    "run_reduction",
]


LEAST_BYTES_WITH_BAR = 1 << 28
"""Shorter files are read before a progress bar is drawn."""


def reductions() -> list[str]:
    """Names of the package's reductions, which are subcommands."""
    return [name for name in _functions.__all__ if name not in ("reduce", "amin", "amax")]


def _number(text: str) -> int | float | complex:
    """Read a number, as an integer if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return complex(text)


# Arguments of single functions: a subcommand has those that its function takes.
_OWN: dict[str, dict[str, Any]] = {
    "ddof": {"type": float, "metavar": "N", "help": "degrees of freedom that are subtracted"},
    "initial": {"type": _number, "metavar": "X", "help": "number that the reduction begins with"},
    "keepdims": {"action": "store_true", "default": None, "help": "keep reduced axes, of length 1"},
}


def _own_arguments(name: str) -> list[str]:
    return [
        each for each in _OWN if each in inspect.signature(getattr(_functions, name)).parameters
    ]


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.npy", help="memory-mapped; - for standard input")
    add_axis(parser)


def add_axis(parser: argparse.ArgumentParser) -> None:
    """Add ``--axis``."""
    parser.add_argument(
        "--axis",
        type=axes,
        help="axis, or several as 0,1; 0: a result per column, 1: per row (default: all)",
    )


def _add_launch(parser: argparse.ArgumentParser, own: str) -> None:
    parser.add_argument(
        "--kernel", default="auto", help=f"name or alias{own} (default: %(default)s)"
    )
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row")
    add_where(parser)


def add_reduction(name: str, parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--dtype", help="dtype of the accumulator and the result")
    for own in _own_arguments(name):
        parser.add_argument(f"--{own}", **_OWN[own])
    _add_launch(parser, ", or a CUDA file with a kernel of your own" if name in OPERATORS else "")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.npy",
        help="write the result to a file; - for standard output",
    )
    add_bar(parser)
    add_json(parser)
    if name in OPERATORS:
        add_kernel_options(parser)


def as_json(value: Any) -> Any:
    """A result as JSON: lists and numbers.

    Numbers that JSON lacks become strings, as NumPy prints them.
    """
    import numpy as np

    if isinstance(value, tuple):
        return [as_json(each) for each in value]
    array = np.asarray(value)
    if array.ndim:
        return [as_json(each) for each in array]
    if array.dtype.kind == "c":
        return [as_json(array.real[()]), as_json(array.imag[()])]
    if array.dtype.kind in "mM":
        return str(array[()])
    plain = array[()].item() if array.dtype.kind in "biuf" else float(array[()])
    return plain if not isinstance(plain, float) or math.isfinite(plain) else str(plain)


@contextlib.contextmanager
def showing_progress(progress: Callable[[float], object]) -> Iterator[None]:
    """Let reductions of this thread call `progress` with the share that has begun, from 0 to 1."""
    _core.watch_progress(progress)
    try:
        yield
    finally:
        _core.watch_progress(None)


def add_reduce(parser: argparse.ArgumentParser) -> None:
    """Options of ``reduce``, which has several operators, or one of the user's own."""
    _add_file(parser)
    add_operators(parser, None)
    for own in ("ddof", "keepdims"):
        parser.add_argument(f"--{own}", **_OWN[own])
    _add_launch(parser, "")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write the result to a .npy file, several results to a .npz file; - for standard "
        "output",
    )
    add_json(parser)


def _dtype_of(value: Any) -> str:
    """Name of a result's dtype; a structure's as NumPy writes it."""
    import numpy as np

    dtype = np.asarray(value[0] if isinstance(value, tuple) else value).dtype
    return str(dtype) if dtype.names is not None else dtype.name


def _plain(value: Any) -> Any:
    """A result for JSON; a structure's fields by their names."""
    import numpy as np

    array = np.asarray(value) if not isinstance(value, tuple) else None
    if array is None or array.dtype.names is None:
        return as_json(value)
    return {name: as_json(array[name]) for name in array.dtype.names}


class _Stream(io.RawIOBase):
    """Standard output without a position: NumPy looks for one in files, and a pipe has none."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return sys.stdout.buffer.write(data)


@contextlib.contextmanager
def opened(output: Path) -> Iterator[Any]:
    """The file to write results to: standard output, or one that is made."""
    if output == STANDARD_OUTPUT:
        yield _Stream()
    else:
        with output.open("wb") as file:
            yield file


def print_whole(*values: Any) -> None:
    """Print results, into a pipe without leaving elements out."""
    import numpy as np

    with np.printoptions(threshold=sys.maxsize if not sys.stdout.isatty() else 1000):
        print(*values)


def run_reduce(options: argparse.Namespace) -> int:
    """Reduce a file's array by the operators of the options, and print or write the results."""
    import numpy as np

    if options.output == STANDARD_OUTPUT and options.json:
        raise ValueError("only one of --output, --json can be printed")
    op = operators_of(options, None)
    array, _ = load(options.file)
    names = ("axis", "ddof", "keepdims", "block_size", "grid_size", "device")
    asked = {name: getattr(options, name) for name in names}
    asked = {name: value for name, value in asked.items() if value is not None}
    result = _functions.reduce(array, op, kernel=options.kernel, **asked)
    several = isinstance(op, tuple)
    found: dict[str, Any] = result._asdict() if several else {getattr(op, "name", op): result}
    if options.output is not None:
        stored: dict[str, Any] = {name: np.asarray(value) for name, value in found.items()}
        with opened(options.output) as file:
            if several:
                np.savez(file, **stored)
            else:
                np.save(file, next(iter(stored.values())))
    if options.json:
        listed = {
            name: {"result": _plain(value), "dtype": _dtype_of(value)}
            for name, value in found.items()
        }
        print_json(
            {"results": listed, "kernel": options.kernel, "elements": array.size}
            | {"bytes": array.nbytes}
        )
    elif options.output is None:
        for name, value in found.items():
            shown = value if isinstance(value, tuple) else (value,)
            print_whole(*((f"{name}:",) if several else ()), *shown)
    return 0


def run_reduction(options: argparse.Namespace) -> int:
    """Reduce a file's array as the options say, and print or write the result."""
    import numpy as np

    from .._bench.sampling import progress_bar
    from .._records import last_run

    if options.output == STANDARD_OUTPUT and options.json:
        raise ValueError("only one of --output, --json can be printed")
    function = getattr(_functions, options.subcommand)
    array, path = load(options.file)
    kernel = options.kernel
    if options.subcommand in OPERATORS:
        kernel = kernel_or_name(kernel, options)
    asked = {"kernel": kernel, "device": options.device}
    asked |= {
        "block_size": options.block_size,
        "grid_size": options.grid_size,
        "axis": options.axis,
    }
    for own in _own_arguments(options.subcommand):
        if (given := getattr(options, own)) is not None:
            asked[own] = given
    if options.dtype is not None:
        if "dtype" not in inspect.signature(function).parameters:
            raise ValueError(
                f"{options.subcommand} takes no --dtype: it computes in the elements' own type"
            )
        asked["dtype"] = named_dtype(options.dtype)
    is_long = path is not None and array.nbytes >= LEAST_BYTES_WITH_BAR
    with contextlib.ExitStack() as open_:
        if path is not None and (options.progress or (is_long and options.progress is None)):
            bar = open_.enter_context(
                progress_bar(f"{options.subcommand} {path.name}", options.progress)
            )
            open_.enter_context(showing_progress(bar))
        result = function(array, **asked)
    run = last_run()
    if options.output is not None:
        with opened(options.output) as file:
            np.save(file, np.asarray(result))
    if options.json:
        dtype = result[0].dtype if isinstance(result, tuple) else np.asarray(result).dtype
        found = {
            "result": as_json(result),
            "dtype": dtype.name,
            "op": options.subcommand,
            "kernel": options.kernel,
        }
        found |= {"elements": array.size, "bytes": array.nbytes}
        if run is not None:
            found |= {"device": run.device, "variant": run.variant, "seconds": run.seconds}
        print_json(found)
    elif options.output is None:
        print_whole(*result if isinstance(result, tuple) else (result,))
    return 0
