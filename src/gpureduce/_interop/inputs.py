"""Arguments made arrays of the host: NumPy's, and what other libraries lend of host memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._calls import Array
from .libraries import from_host, is_on_device

__all__ = ["as_array"]


def as_array(a: Any, instead_of_masked: str) -> Array:
    """Make what NumPy takes an array; else a ``TypeError`` says what to pass instead."""
    if isinstance(a, np.ndarray):
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(a, masked.MaskedArray):
            raise TypeError(f"masked arrays are not supported: pass {instead_of_masked}")
        return a
    if is_on_device(a):
        raise TypeError(
            f"device arrays are not supported here: {type(a).__name__} is in GPU memory. Copy it "
            "to the host first, as with cupy.asnumpy(a) or a.cpu().numpy()"
        )
    return from_host(a)
