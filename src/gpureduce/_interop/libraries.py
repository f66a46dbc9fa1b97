"""Arrays of other libraries in GPU memory.

The core finds the library of an array, reads the array and makes others beside it: the table of
libraries is in ``csrc/python/libraries.c``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core
from .._core import DeviceBuffer, Library

__all__ = [
    "LEGACY_STREAM",
    "DeviceBuffer",
    "Library",
    "device_library",
    "from_host",
    "is_on_device",
]

LEGACY_STREAM = _core.LEGACY_STREAM
"""CUDA's handle of the legacy default stream; libraries that say 0 mean it."""

device_library = _core.find_library
"""Find the library of an array in the memory of a CUDA device; None for everything else."""


def is_on_device(a: Any) -> bool:
    """Whether an object is an array in the memory of a CUDA device."""
    return device_library(a) is not None


def from_host(a: Any) -> np.ndarray[Any, Any]:
    """``numpy.asarray``, also of arrays with only ``__dlpack__``, as some in pinned memory."""
    if (
        hasattr(a, "__dlpack__")
        and not hasattr(a, "__array__")
        and not hasattr(a, "__array_interface__")
    ):
        return np.from_dlpack(a)
    return np.asarray(a)
