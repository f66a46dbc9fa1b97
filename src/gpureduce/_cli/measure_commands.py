"""``gpureduce bench`` and ``gpureduce compare``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check_command import add_kernel_options, kernel_of, kernel_or_name
from .npy_files import load, named_dtype
from .operator_options import add_operators, operators_of
from .options import (
    SLOWER,
    WRONG_ANSWER,
    add_bar,
    add_json,
    add_where,
    axes,
    count,
    expect_to_write,
    print_json,
    prints_file,
    tell_written,
    write_text,
)

if TYPE_CHECKING:
    import numpy as np

    from .._bench.comparison import Comparison
    from .._bench.timing import Timing

__all__ = ["add_bench", "add_compare", "bench", "contest", "run_bench", "run_compare"]


DEFAULT_ELEMENTS, DEFAULT_DTYPE = 10_000_000, "float32"
"""Random elements that are measured if no file is named."""


def _add_measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", metavar="FILE.npy", help="array to reduce (default: random elements)"
    )
    parser.add_argument(
        "-n", type=count, help=f"random elements without a file (default: {DEFAULT_ELEMENTS:,})"
    )
    add_operators(parser, "sum")
    parser.add_argument(
        "--axis",
        type=axes,
        help="axis, or several as 0,1; 0: a result per column, 1: per row (default: all)",
    )
    parser.add_argument(
        "--cache", default="hot", help="hot, cold or rotated (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, help="seconds of sampling per contender and kind of time"
    )
    add_where(parser)
    parser.add_argument(
        "--profile", action="store_true", help="add hardware counters, by Nsight Compute"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures as a table")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the tables as a page")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="write a picture, by matplotlib, in a format such as png, svg or pdf",
    )
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    add_bar(parser)
    add_json(parser)


def _measured(options: argparse.Namespace) -> np.ndarray[Any, Any]:
    """The array to measure."""
    from .._bench.benchmark_array import random_values

    if options.file is not None:
        if options.n is not None or options.dtype is not None:
            raise ValueError("-n and --dtype describe random elements and exclude --file")
        return load(options.file)[0]
    return random_values(named_dtype(options.dtype or DEFAULT_DTYPE), _elements(options))


def _elements(options: argparse.Namespace) -> int:
    n: int = DEFAULT_ELEMENTS if options.n is None else options.n
    if n < 1:
        raise ValueError(f"-n must be 1 or more, not {n}")
    return n


def _shared(options: argparse.Namespace) -> dict[str, Any]:
    names = ("axis", "cache", "device", "profile", "progress")
    given = {name: getattr(options, name) for name in names}
    given["op"] = operators_of(options, "sum")
    return given if options.seconds is None else given | {"seconds": options.seconds}


def _show(found: Any, options: argparse.Namespace, changes: Any = None, **plot: Any) -> None:
    """Write and print a measurement, and its changes, in the requested formats."""
    if options.csv is not None:
        write_text(options.csv, found.to_csv())
    if options.html is not None:
        from .._display.html_page import whole_page

        body = found._repr_html_() + ("" if changes is None else changes._repr_html_())
        write_text(options.html, whole_page(found.title, body))
    if options.plot is not None:
        from .._display.figures import save_figure

        save_figure(options.plot, lambda figure: found.plot(ax=figure, **plot))
        tell_written(options.plot)
    shown = [found] if changes is None else [found, changes]
    if options.json:
        more = {} if changes is None else {"against": changes.to_dict()}
        print_json(found.to_dict() | more)
    elif options.markdown:
        print("\n".join(each.to_markdown() for each in shown), end="")
    elif not prints_file(options):
        print("\n".join(map(str, shown)), end="")


def add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kernel",
        nargs="?",
        default="auto",
        help="name or alias, or a CUDA file with a kernel of your own (default: %(default)s)",
    )
    _add_measured(parser)
    parser.add_argument("--dtype", help=f"dtype of the random elements (default: {DEFAULT_DTYPE})")
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row")
    add_kernel_options(parser)


def bench(array: Any, options: argparse.Namespace) -> Timing:
    """Time a reduction of the array as the options say."""
    from .._bench.benchmark import benchmark

    sizes = {"block_size": options.block_size, "grid_size": options.grid_size}
    return benchmark(kernel_or_name(options.kernel, options), array, **sizes, **_shared(options))


def run_bench(options: argparse.Namespace) -> int:
    expect_to_write(options)
    _show(bench(_measured(options), options), options)
    return 0


def add_compare(parser: argparse.ArgumentParser) -> None:
    from .._bench.baselines import BASELINES

    parser.add_argument(
        "kernel",
        nargs="*",
        help="names or aliases, or CUDA files with kernels of your own (default: all, or auto "
        "where there is no GPU)",
    )
    parser.add_argument(
        "--kernel-file",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE.cu",
        help="kernels of your own, beside those that are named or auto",
    )
    _add_measured(parser)
    axes_of_values = parser.add_argument_group("axes of values: each value is compared")
    axes_of_values.add_argument(
        "--dtype",
        nargs="+",
        metavar="DTYPE",
        help=f"dtypes of the elements (default: {DEFAULT_DTYPE}, or the file's)",
    )
    axes_of_values.add_argument(
        "--sizes",
        type=count,
        nargs="+",
        metavar="N",
        help="numbers of elements: the first N of the array",
    )
    axes_of_values.add_argument(
        "--block-size", type=int, nargs="+", metavar="B", help="threads per block"
    )
    parser.add_argument(
        "--baselines",
        nargs="*",
        default=list(BASELINES),
        metavar="LIBRARY",
        help="numpy, cub, cupy, torch",
    )
    parser.add_argument(
        "--no-break-even",
        action="store_true",
        help="do not search for the size at which kernel and NumPy are equally fast",
    )
    parser.add_argument("--kind", help="kind of picture: bars, sizes or roofline")
    add_kernel_options(parser)
    runs = parser.add_argument_group("runs")
    runs.add_argument(
        "--save",
        metavar="NAME",
        help="save the figures as .gpureduce/NAME.json, or in a FILE.json",
    )
    runs.add_argument(
        "--against", metavar="NAME", help="print what changed since the run saved as NAME"
    )
    runs.add_argument(
        "--fail-if-slower",
        type=float,
        metavar="PERCENT",
        help="exit with status 4 if a kernel is slower than in that run, by more than PERCENT "
        "and beyond the spread",
    )


def contest(array: Any, options: argparse.Namespace) -> Comparison:
    """Compare on the array as the options say."""
    from .._bench.compare import compare

    files = [kernel_of(path, options) for path in options.kernel_file]
    named = [kernel_or_name(word, options) for word in options.kernel]
    return compare(
        array,
        [*files, *(named or ["auto"] if files else named)] or None,
        block_size=options.block_size,
        baselines=options.baselines,
        sizes=options.sizes,
        dtypes=options.dtype,
        break_even=not options.no_break_even,
        **_shared(options),
    )


def _competed(options: argparse.Namespace) -> Any:
    """The array to compare on."""
    from .._bench.benchmark_array import RandomArray

    if options.file is None:
        options.dtype = options.dtype or [DEFAULT_DTYPE]
        return RandomArray(_elements(options))
    if options.n is not None:
        raise ValueError("-n is the number of random elements and excludes --file")
    return load(options.file)[0]


def run_compare(options: argparse.Namespace) -> int:
    from .._bench.changes import expect_same_operator, find_changes
    from .._bench.comparison import Comparison
    from .._bench.runs import check_to_save

    expect_to_write(options)
    if options.save is not None:
        check_to_save(options.save)
    if options.fail_if_slower is not None and options.against is None:
        raise ValueError("--fail-if-slower needs the run to compare with: --against NAME")
    earlier = None if options.against is None else Comparison.load(options.against)
    if earlier is not None:  # before anything is measured
        op = operators_of(options, "sum")
        expect_same_operator(earlier, getattr(op, "name", op))
    found = contest(_competed(options), options)
    if options.save is not None:
        print(f"saved in {found.save(options.save)}", file=sys.stderr)
    changes = None if earlier is None else find_changes(earlier, found, options.against)
    _show(found, options, changes, kind=options.kind)
    if any(row.is_kernel and row.right is False for row in found):
        return WRONG_ANSWER
    limit = options.fail_if_slower
    is_slower = (
        changes is not None
        and limit is not None
        and any(change.is_kernel and change.is_slower_by(limit) for change in changes)
    )
    return SLOWER if is_slower else 0
