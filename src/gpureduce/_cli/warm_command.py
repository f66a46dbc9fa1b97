"""``gpureduce warm``: compile kernels before the calls that need them."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .operator_options import add_own, operator_of, read_names
from .options import add_json, axes, count, print_json

__all__ = ["add_warm", "run_warm"]

SIZES = ((1_000,), (1_000_000,), (100_000_000,))
"""Shapes by default: kernels of small, middling and large arrays."""


def shape(text: str) -> tuple[int, ...]:
    """Read a shape: ``1e6``, or extents with commas."""
    return tuple(count(part) for part in text.split(",") if part.strip())


def add_warm(parser: argparse.ArgumentParser) -> None:
    from .._warm import MEMORIES

    parser.add_argument(
        "functions",
        nargs="*",
        metavar="FUNCTION",
        help="functions, such as sum or nanmean; sum,min,max for a call of reduce with all three",
    )
    parser.add_argument(
        "--dtype", nargs="+", default=["float32"], help="dtypes of the arrays (default: float32)"
    )
    parser.add_argument(
        "--shape",
        type=shape,
        nargs="+",
        default=list(SIZES),
        metavar="N[,N...]",
        help="shapes of the arrays (default: 1e3 1e6 1e8)",
    )
    parser.add_argument(
        "--axis",
        type=axes,
        help="axis, or several as 0,1; 0: a result per column, 1: per row (default: all)",
    )
    parser.add_argument("--where", action="store_true", help="calls have a mask")
    parser.add_argument("--kernel", default="auto", help="default: %(default)s")
    parser.add_argument("--block-size", type=count, help="threads per block")
    parser.add_argument(
        "--memory",
        nargs="+",
        choices=MEMORIES,
        default=list(MEMORIES),
        help="where the arrays are (default: both)",
    )
    parser.add_argument(
        "--device",
        default="cuda",
        help="cuda, cuda:N, or an architecture such as sm_90, which need not be present",
    )
    add_own(parser)
    add_json(parser)


def run_warm(options: argparse.Namespace) -> int:
    from .._warm import warm

    if not options.functions and not options.operator:
        raise ValueError("no function is named: gpureduce warm sum, or --operator FILE")
    if options.commutative and not options.operator:
        raise ValueError("--commutative is about an operator of your own: --operator FILE")
    own = [operator_of(text, options) for text in options.operator]
    found = warm(
        [*map(read_names, options.functions), *own],
        options.dtype,
        options.shape,
        options.axis,
        where=options.where,
        kernel=options.kernel,
        block_size=options.block_size,
        memory=options.memory,
        device=options.device,
    )
    if options.json:
        print_json(asdict(found))
    else:
        print(found)
    return 0
