"""``gpureduce explain``: prints what kernels do, and writes CSV, HTML and pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .check_command import add_kernel_options, kernel_or_name
from .options import count, expect_to_write, prints_file, tell_written, write_text

if TYPE_CHECKING:
    from .._explain.explanation import Explanation, Explanations

__all__ = ["add_explain", "explained", "run_explain"]


def add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kernel",
        nargs="+",
        metavar="KERNEL",
        help="name or alias, or a CUDA file with a kernel of your own; several are compared",
    )
    parser.add_argument("-n", type=count, help="elements per row (default: they fill four blocks)")
    parser.add_argument(
        "--block-size", type=int, metavar="B", help="threads per block (default: the kernel's own)"
    )
    parser.add_argument(
        "--grid-size", type=int, metavar="G", help="blocks per row, for kernels that loop"
    )
    parser.add_argument(
        "--dtype", default="float32", help="dtype of the elements (default: %(default)s)"
    )
    parser.add_argument("--op", default="sum", help="the operator (default: %(default)s)")
    parser.add_argument(
        "--rows",
        type=int,
        default=1,
        help="number of rows, each reduced to one result (default: %(default)s)",
    )
    parser.add_argument(
        "--source", action="store_true", help="also print the source, with counts in the margin"
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON, and nothing else"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures of each step")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with tables, picture and source"
    )
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="write the picture, by matplotlib, in a format such as png, svg or pdf",
    )
    add_kernel_options(parser)


def explained(options: argparse.Namespace) -> Explanations:
    """Explain kernels as the options say."""
    from .._explain.explain import explain

    found: Explanations = explain(
        [kernel_or_name(word, options) for word in options.kernel],
        options.n,
        block_size=options.block_size,
        dtype=options.dtype,
        op=options.op,
        grid_size=options.grid_size,
        rows=options.rows,
    )
    return found


def _word_of(explanation: Explanation, options: argparse.Namespace) -> str:
    """How the command names the first kernel: by its name, or by the file of a user's own."""
    word: str = options.kernel[0]
    return explanation.kernel if explanation.own_source is None else word


def run_explain(options: argparse.Namespace) -> int:
    expect_to_write(options)
    found = explained(options)
    if options.csv is not None:
        write_text(options.csv, found.to_csv())
    if options.html is not None:
        from .._explain.page import page

        write_text(options.html, page(found))
    if options.plot is not None:
        from .._explain.picture import save

        save(found, options.plot)
        tell_written(options.plot)
    if options.json:
        print(found.to_json() if len(found) > 1 else found[0].to_json())
        return 0
    if prints_file(options):
        return 0
    is_one = len(found) == 1
    parts = [str(each) for each in found if is_one]
    parts += [each.annotated_source() for each in found if options.source]
    if not is_one:
        parts.append(str(found))
        parts.append(
            f"gpureduce explain {_word_of(found[0], options)} shows each step of one kernel, and "
            "docs/explain.md what the counts mean"
        )
    print("\n\n".join(part.rstrip("\n") for part in parts))
    return 0
