"""``gpureduce norm FILE.npy``, ``describe``, ``dot`` and the like: functions of one array or two
that are no reductions by one operator.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .npy_files import load, named_dtype
from .options import STANDARD_OUTPUT, add_json, add_where, print_json
from .reduce_command import add_axis, as_json, opened, print_whole

__all__ = ["ARRAY_FUNCTIONS", "add_array_command", "run_array_command"]

ARRAY_FUNCTIONS = {
    "describe": "_describe",
    "norm": "_norms",
    "average": "_norms",
    "logsumexp": "_yours.exponentials",
    "dot": "_dot",
    "vdot": "_dot",
}
"""Names of the functions, and the modules that have them."""
_SECOND, _WEIGHTS = "b", "weights"


def _order(text: str) -> float | str:
    """Read the order of a norm: a number, ``inf``, or the name of a matrix norm."""
    try:
        return float(text)
    except ValueError:
        return text


_OWN: dict[str, dict[str, Any]] = {
    "ord": {
        "type": _order,
        "metavar": "P",
        "help": "order of the norm: a number, inf, -inf or fro (default: 2)",
    },
    "ddof": {"type": float, "metavar": "N", "help": "degrees of freedom that are subtracted"},
    "weights": {"metavar": "FILE.npy", "help": "a weight per element (default: all alike)"},
    "dtype": {"help": "dtype of the accumulator and the result"},
    "keepdims": {"action": "store_true", "default": None, "help": "keep reduced axes, of length 1"},
}
"""Options, which a command has where its function has an argument of this name."""


def _function(name: str) -> Callable[..., Any]:
    package = __name__.partition(".")[0]
    found: Callable[..., Any] = getattr(import_module(f"{package}.{ARRAY_FUNCTIONS[name]}"), name)
    return found


def add_array_command(name: str, parser: argparse.ArgumentParser) -> None:
    """Options of one of the functions."""
    takes = inspect.signature(_function(name)).parameters
    parser.add_argument("file", metavar="FILE.npy", help="memory-mapped; - for standard input")
    if _SECOND in takes:
        parser.add_argument("second", metavar="FILE.npy", help="the second array")
    if "axis" in takes:
        add_axis(parser)
    for own in (each for each in _OWN if each in takes):
        parser.add_argument(f"--{own}", **_OWN[own])
    add_where(parser)
    several = "; describe writes a .npz file" if name == "describe" else ""
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"write the result to a .npy file{several}; - for standard output",
    )
    add_json(parser)


def run_array_command(options: argparse.Namespace) -> int:
    """Call the function with the arrays of the files, and print or write its result."""
    import numpy as np

    if options.output == STANDARD_OUTPUT and options.json:
        raise ValueError("only one of --output, --json can be printed")
    array, _ = load(options.file)
    given: list[Any] = [array]
    if hasattr(options, "second"):
        given.append(load(options.second)[0])
    asked: dict[str, Any] = {"device": options.device}
    for own in ("axis", *_OWN):
        if (value := getattr(options, own, None)) is not None:
            asked[own] = value
    if _WEIGHTS in asked:
        asked[_WEIGHTS] = load(asked[_WEIGHTS])[0]
    if "dtype" in asked:
        asked["dtype"] = named_dtype(asked["dtype"])
    result = _function(options.subcommand)(*given, **asked)
    is_description = isinstance(result, tuple)
    if options.output is not None:
        with opened(options.output) as file:
            if is_description:
                np.savez(file, **result._asdict())
            else:
                np.save(file, np.asarray(result))
    if options.json:
        fields = result._asdict() if is_description else {"result": result}
        found = {name: as_json(value) for name, value in fields.items()}
        if not is_description:
            found["dtype"] = np.asarray(result).dtype.name
        sizes = {"elements": array.size, "bytes": sum(each.nbytes for each in given)}
        print_json({"function": options.subcommand} | found | sizes)
    elif options.output is None and is_description:
        print(result)
    elif options.output is None:
        print_whole(result)
    return 0
