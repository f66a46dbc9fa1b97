"""Dtypes of the registry as NumPy's, by name; ml_dtypes has those that NumPy lacks."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._exceptions import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "dtype_of_saved",
    "finest_unit",
    "is_below_float32",
    "is_float",
    "is_narrow_float",
    "is_numpys",
    "item_bytes",
    "name_of",
    "native_dtype",
]


def is_numpys(name: str) -> bool:
    """Whether NumPy itself has a dtype, as all but some of ours."""
    return name not in _core.DTYPES or _core.DTYPES[name][3]


def is_float(name: str) -> bool:
    """Whether a dtype is a real float."""
    return _core.DTYPES[name][2] > 0


def is_narrow_float(name: str) -> bool:
    """Whether a dtype is a real float narrower than float64."""
    return is_float(name) and item_bytes(name) < item_bytes("float64")


def is_below_float32(name: str) -> bool:
    """Whether a dtype is a real float narrower than float32, in which C computes its elements."""
    return is_float(name) and item_bytes(name) < item_bytes("float32")


def item_bytes(name: str) -> int:
    """Bytes of an element, by its dtype's name."""
    return _core.DTYPES[name][0]


def finest_unit(name: str) -> int:
    """Exponent of the smallest positive number of a float; 0 for other dtypes."""
    _, fraction, exponent, _ = _core.DTYPES[name]
    return 2 - 2 ** (exponent - 1) - fraction if exponent > 0 else 0


def name_of(dtype: DTypeLike) -> str:
    """Name of a dtype, of which those that NumPy lacks may be given as names."""
    if isinstance(dtype, str) and dtype in _core.DTYPES:
        return dtype
    return _name_of(np.dtype(dtype))


@functools.lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    """What NumPy takes microseconds to compose."""
    return dtype.name


REAL_KINDS = "iufV"
"""Kinds of real numbers, V being bfloat16, to which complex ones are converted with a warning."""


def native_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """A dtype in the machine's byte order; ``"bfloat16"`` is the one of ``ml_dtypes``.

    Raises
    ------
    TypeError
        NumPy's, with the nearest names of dtypes.
    """
    if isinstance(dtype, str) and dtype in _core.DTYPES:
        return _core.numpy_dtype(dtype)
    try:
        descr: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        hint = did_you_mean(dtype, _core.DTYPES) if isinstance(dtype, str) else ""
        if not hint:
            raise
        raise TypeError(f"{error}{hint}") from None
    return descr if descr.isnative else descr.newbyteorder("=")


def dtype_of_saved(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of a file's elements; NumPy saves those of dtypes that it lacks as untyped bytes.

    Such bytes are of the dtype that NumPy lacks and that has this size, if there is just one.
    """
    if dtype.kind != "V" or dtype.names is not None or dtype.subdtype is not None:
        return dtype
    names = [
        name for name in _core.DTYPES if not is_numpys(name) and item_bytes(name) == dtype.itemsize
    ]
    return native_dtype(names[0]) if len(names) == 1 else dtype
