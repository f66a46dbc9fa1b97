"""``gpureduce tune``: measure what the plans of a GPU go by."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .options import add_json, count, print_json

__all__ = ["add_tune", "run_tune"]


def add_tune(parser: argparse.ArgumentParser) -> None:
    from .._tune.tune import ARRAYS, LARGEST_BYTES

    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default: %(default)s)")
    parser.add_argument(
        "--arrays",
        type=count,
        default=ARRAYS,
        help="number of arrays to measure (default: %(default)s)",
    )
    parser.add_argument(
        "--largest-bytes",
        type=count,
        default=LARGEST_BYTES,
        metavar="N",
        help="size of the largest array (default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the measured costs without storing them"
    )
    parser.add_argument(
        "--forget", action="store_true", help="remove stored costs instead of measuring"
    )
    add_json(parser)


def run_tune(options: argparse.Namespace) -> int:
    from .. import _core
    from .._one_pass import forget_plans
    from .._tune.tune import ordinal_of, tune

    if options.forget:
        ordinal = ordinal_of(options.device)
        path = _core.plan_costs(ordinal)["path"]
        _core.store_costs(ordinal, None)
        forget_plans()
        if options.json:
            print_json({"forgotten": path})
        else:
            print(f"plans go by estimates: {path} is not there any more")
        return 0
    found = tune(
        options.device,
        arrays=options.arrays,
        largest_bytes=options.largest_bytes,
        keep=not options.dry_run,
    )
    if options.json:
        print_json(asdict(found))
    else:
        print(found)
    return 0
