"""``gpureduce bench`` and ``gpureduce compare``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .npy_files import load, named_dtype
from .options import WRONG_ANSWER, add_bar, add_json, add_where, axes, count, expect_to_write

if TYPE_CHECKING:
    import numpy as np

    from .._bench.comparison import Comparison
    from .._bench.timing import Timing

__all__ = ["add_bench", "add_compare", "bench", "contest", "run_bench", "run_compare"]


DEFAULT_ELEMENTS = 10_000_000
"""Elements of the random array that is measured if no file is named."""


def _add_measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", metavar="FILE.npy", help="array to reduce (default: random elements)"
    )
    parser.add_argument(
        "-n", type=count, help=f"random elements without a file (default: {DEFAULT_ELEMENTS:,})"
    )
    parser.add_argument("--dtype", help="of the random elements (default: float32)")
    parser.add_argument("--op", default="sum", help="the operator (default: %(default)s)")
    parser.add_argument("--axis", type=axes, help="axis, or several as 0,1 (default: all)")
    parser.add_argument(
        "--cache", default="hot", help="hot, cold or rotated (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, help="time for samples of each kind")
    add_where(parser)
    parser.add_argument(
        "--profile", action="store_true", help="add the hardware's counters, by Nsight Compute"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the tables")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write a picture (png, svg, pdf), by matplotlib"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    add_bar(parser)
    add_json(parser)


def _measured(options: argparse.Namespace) -> np.ndarray[Any, Any]:
    """The array to measure."""
    from .._bench.benchmark_array import random_values

    if options.file is not None:
        if options.n is not None or options.dtype is not None:
            raise ValueError("-n and --dtype are of random elements, without --file")
        return load(options.file)[0]
    n = DEFAULT_ELEMENTS if options.n is None else options.n
    if n < 1:
        raise ValueError(f"-n must be 1 or more, not {n}")
    return random_values(named_dtype(options.dtype or "float32"), n)


def _shared(options: argparse.Namespace) -> dict[str, Any]:
    names = ("op", "axis", "cache", "device", "profile", "progress")
    given = {name: getattr(options, name) for name in names}
    return given if options.seconds is None else given | {"seconds": options.seconds}


def _show(found: Any, options: argparse.Namespace, **plot: Any) -> None:
    """Write and print a measurement in the requested formats."""
    if options.csv is not None:
        found.to_csv(options.csv)
    if options.html is not None:
        from .._display.html_page import whole_page

        options.html.write_text(whole_page(found.title, found._repr_html_()), encoding="utf-8")
    if options.plot is not None:
        from .._display.figures import save_figure

        save_figure(options.plot, lambda figure: found.plot(ax=figure, **plot))
    if options.json:
        print(found.to_json(indent=1))
    else:
        print(found.to_markdown() if options.markdown else str(found), end="")


def add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kernel", nargs="?", default="auto", help="name or alias (default: %(default)s)"
    )
    _add_measured(parser)
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row")


def bench(array: Any, options: argparse.Namespace) -> Timing:
    """Time a reduction of the array as the options say."""
    from .._bench.benchmark import benchmark

    sizes = {"block_size": options.block_size, "grid_size": options.grid_size}
    return benchmark(options.kernel, array, **sizes, **_shared(options))


def run_bench(options: argparse.Namespace) -> int:
    expect_to_write(options)
    _show(bench(_measured(options), options), options)
    return 0


def add_compare(parser: argparse.ArgumentParser) -> None:
    from .._bench.baselines import BASELINES

    parser.add_argument(
        "kernel", nargs="*", help="names or aliases (default: all, or auto where there is no GPU)"
    )
    _add_measured(parser)
    parser.add_argument(
        "--block-size",
        type=int,
        nargs="+",
        metavar="B",
        help="threads per block, or several to try",
    )
    parser.add_argument(
        "--sizes",
        type=count,
        nargs="+",
        metavar="N",
        help="compare on the first N elements, for each",
    )
    parser.add_argument(
        "--baselines",
        nargs="*",
        default=list(BASELINES),
        metavar="LIBRARY",
        help="numpy, cub, cupy, torch",
    )
    parser.add_argument(
        "--no-break-even", action="store_true", help="do not look for the size that is worth a GPU"
    )
    parser.add_argument("--kind", help="of the picture: bars, sizes or roofline")


def contest(array: Any, options: argparse.Namespace) -> Comparison:
    """Compare on the array as the options say."""
    from .._bench.compare import compare

    return compare(
        array,
        options.kernel or None,
        block_size=options.block_size,
        baselines=options.baselines,
        sizes=options.sizes,
        break_even=not options.no_break_even,
        **_shared(options),
    )


def run_compare(options: argparse.Namespace) -> int:
    expect_to_write(options)
    found = contest(_measured(options), options)
    _show(found, options, kind=options.kind)
    return WRONG_ANSWER if any(row.is_kernel and row.right is False for row in found) else 0
