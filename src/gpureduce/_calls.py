"""A call of one of the package's functions, and running it by the core."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple

import numpy as np

from . import _core

NoValue: Any = np._NoValue

Array = np.ndarray[Any, Any]

Options = tuple[Any, "str | None", "int | None", "int | None", Any]
"""kernel (a name, or a kernel of the user's own), device, block_size, grid_size, stream"""

ON_CPU: Options = ("auto", "cpu", None, None, None)


def placement(options: Options) -> dict[str, Any]:
    """The options but the kernel, as keyword arguments of another call."""
    return dict(zip(("device", "block_size", "grid_size", "stream"), options[1:], strict=True))


class Call(NamedTuple):
    """The arguments, as the caller gave them or as rules changed them."""

    op: str
    """Name of the core's operator."""
    array: Any
    options: Options
    axis: Any = None
    dtype: Any = None
    out: Any = None
    keepdims: Any = False
    initial: Any = NoValue
    where: Any = True
    skip_nan: bool = False
    ddof: Any = 0
    center: Any = NoValue
    """The argument ``mean=``."""
    is_exact: bool = True
    """Whether the array was given as an ndarray and not as a subclass, a list, ..."""

    @property
    def name(self) -> str:
        """Name of the called function."""
        return "nan" + self.op if self.skip_nan else self.op

    @property
    def rounds_once(self) -> bool:
        """Whether the kernel rounds the reduction once, so that no rule may round after it."""
        return bool(self.options[0] == "exact")


class OwnCall(NamedTuple):
    """The arguments of ``reduce`` with an operator of the user's own."""

    array: Any
    axis: Any
    dtype: Any
    out: Any
    keepdims: Any
    initial: Any
    where: Any
    kernel: Any
    device: Any
    block_size: Any
    grid_size: Any
    stream: Any


def run_core(call: Call, op: str, mask: Array | None = None) -> Any:
    """Run a call on an array of numbers by the core, with this operator."""
    number = _core.OPERATORS[op]
    return _core.reduce(
        number,
        call.array,
        call.axis,
        call.dtype,
        call.keepdims,
        mask,
        *call.options,
        call.skip_nan,
        call.ddof,
    )


def bools_like(array: Array) -> Array:
    """An uninitialised bool per element, in the array's order of axes."""
    return np.empty_like(array, np.bool_, subok=False)


def map_once(function: Any, array: Array, *others: Any) -> Array:
    """Elements made of those of `array`, and of arrays that broadcast to its shape.

    Along axes of stride 0 they are computed, and need memory, once.
    """
    if 0 not in array.strides:
        made: Array = function(array, *others)
        return made
    distinct = []
    for one in (array, *others):
        spread = np.broadcast_to(one, array.shape)
        distinct.append(spread[tuple(slice(None) if step else slice(1) for step in spread.strides)])
    return np.broadcast_to(function(*distinct), array.shape)


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line that called the package."""
    level, frame = 2, sys._getframe(1)
    package = __name__.partition(".")[0]
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] == package
    ):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
