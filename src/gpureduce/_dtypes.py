"""Dtypes by name, bfloat16 among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["native_dtype"]


def native_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """A dtype in the machine's byte order; ``"bfloat16"`` is the one of ``ml_dtypes``."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                "bfloat16 is a dtype of ml_dtypes: pip install 'gpureduce[bf16]'"
            ) from None
        dtype = ml_dtypes.bfloat16
    descr: np.dtype[Any] = np.dtype(dtype)
    return descr if descr.isnative else descr.newbyteorder("=")
