"""The array that is measured, in host or device memory, and its copies on a device.

An array is uploaded once and freed at the end of a ``with`` block; all device times in the block
read that memory.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from .. import _core
from .._interop.inputs import as_array

__all__ = [
    "BenchmarkArray",
    "RandomArray",
    "as_benchmark_array",
    "on_device",
    "on_host",
    "random_values",
    "repeat",
]

PATTERN_ELEMENTS = 1 << 26
"""Elements after which random data repeats."""


@dataclass(frozen=True, slots=True)
class BenchmarkArray:
    """An array to reduce, on the host or on a device.

    Attributes
    ----------
    array
        The array as it was given.
    shape, dtype
        Of it.
    pointer, device
        Address of a device array, and the ordinal of its device; ``None`` for a host array.
    """

    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pointer: int | None = None
    device: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.elements * self.dtype.itemsize

    def trailing(self, axis: Any) -> int | None:
        """Number of trailing axes that `axis` is.

        ``None`` for other axes, whose layout no named kernel reads.
        """
        ndim = len(self.shape)
        if axis is None:
            return ndim
        axes = sorted(normalize_axis_tuple(axis, ndim))
        return len(axes) if axes == list(range(ndim - len(axes), ndim)) else None


def as_benchmark_array(a: Any) -> BenchmarkArray:
    """Describe an array for measuring; a device array must be contiguous.

    Raises
    ------
    TypeError
        Neither an array nor something that NumPy makes one of, or a device array that only DLPack
        can read.
    ValueError
        An array without elements, or a device array with gaps.
    """
    if isinstance(a, str):
        raise TypeError(
            f"the array to measure is missing: {a!r} stands in its place. Write "
            "compare(array, kernels), benchmark(kernel, array)"
        )
    interface = None if isinstance(a, np.ndarray) else getattr(a, "__cuda_array_interface__", None)
    if interface is None:
        array = as_array(a, "a.data")
        found = BenchmarkArray(array, array.shape, array.dtype)
    else:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(interface["shape"])
        if interface.get("strides") not in (None, _packed(shape, dtype.itemsize)):
            raise ValueError("a device array that is measured must be C-contiguous")
        found = BenchmarkArray(a, shape, dtype, int(interface["data"][0]), _ordinal(a))
    if found.elements == 0:
        raise ValueError("there is nothing to measure in an empty array")
    return found


def _packed(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def _ordinal(a: Any) -> int:
    """Ordinal of an array's device by ``__dlpack_device__``; 0 for arrays without it."""
    where = getattr(a, "__dlpack_device__", None)
    return 0 if where is None else int(where()[1])


def on_host(it: BenchmarkArray) -> np.ndarray[Any, Any]:
    """The elements in host memory, to compute the reference result: a device array is copied by its
    own library.

    Raises
    ------
    TypeError
        The library has none that is known here.
    """
    if it.pointer is None:
        array: np.ndarray[Any, Any] = it.array
        return array
    if hasattr(it.array, "get"):
        return np.asarray(it.array.get())
    if hasattr(it.array, "cpu"):
        return np.asarray(it.array.cpu())
    raise TypeError(
        f"there is no way known to copy a {type(it.array).__name__} to the host, for a right answer"
    )


@contextlib.contextmanager
def on_device(values: np.ndarray[Any, Any], device: int = 0) -> Iterator[int]:
    """Address of a copy of an array, C-contiguous and in native byte order, on a CUDA device."""
    packed = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    pointer = _core.alloc_device(device, packed.nbytes)
    try:
        # As bytes, since NumPy exports no buffer of bfloat16.
        _core.upload(device, pointer, packed.reshape(-1).view(np.uint8))
        yield pointer
    finally:
        _core.free_device(device, pointer)


def random_values(dtype: Any, n: int, seed: int = 20240501) -> np.ndarray[Any, Any]:
    """Random data: full-range integers, uniform floats. A pattern of 64 Mi elements is repeated."""
    rng = np.random.default_rng(seed)
    period = min(n, PATTERN_ELEMENTS)
    kind = np.dtype(dtype)
    pattern: np.ndarray[Any, Any]
    if kind.kind == "c":
        pattern = (rng.random(period) + 1j * rng.random(period)).astype(kind)
    elif kind.kind in "fV":  # V: bfloat16
        pattern = rng.random(period, dtype=np.float32).astype(kind)
    elif kind.kind == "b":
        pattern = rng.random(period) < 0.5
    else:
        info = np.iinfo(kind)
        pattern = rng.integers(info.min, info.max, period, dtype=kind, endpoint=True)
    return repeat(pattern, n)


@dataclass(frozen=True, slots=True)
class RandomArray:
    """:func:`random_values` of a length, in whatever dtype they are converted to."""

    elements: int

    def astype(self, dtype: Any) -> np.ndarray[Any, Any]:
        """The values in a dtype."""
        return random_values(dtype, self.elements)


def repeat(pattern: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    """``np.resize`` along one axis, in a tenth of its time."""
    period = len(pattern)
    if period == n:
        return pattern
    values = np.empty(n, pattern.dtype)
    whole = n // period * period
    values[:whole].reshape(-1, period)[:] = pattern
    values[whole:] = pattern[: n - whole]
    return values
