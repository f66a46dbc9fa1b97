"""Arrays in pinned memory, which are uploaded to a GPU without a staging copy."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["empty_pinned", "pinned_copy"]


def empty_pinned(shape: int | tuple[int, ...], dtype: DTypeLike = float) -> np.ndarray[Any, Any]:
    """Make an uninitialised array in pinned memory.

    Parameters
    ----------
    shape : int or tuple of ints
    dtype : dtype, optional
        Any dtype without Python objects; float64 by default.

    Returns
    -------
    ndarray
        C-contiguous. Its memory is unpinned and freed with the last array that views it. Without a
        usable GPU the memory is pageable, and the first call in the process issues a
        ``NoDeviceWarning``.

    Raises
    ------
    TypeError
        `dtype` holds Python objects.
    MemoryError
        The memory cannot be pinned.

    Examples
    --------
    >>> import warnings
    >>> import gpureduce as gr
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", gr.NoDeviceWarning)
    ...     a = gr.empty_pinned((2, 3), "float32")
    >>> a.shape, a.dtype
    ((2, 3), dtype('float32'))
    """
    descr = np.dtype(dtype)
    if descr.hasobject:
        raise TypeError(f"pinned memory cannot hold Python objects: dtype {descr} has some")
    extents = shape if isinstance(shape, tuple) else (operator.index(shape),)
    if any(extent < 0 for extent in extents):
        raise ValueError("negative dimensions are not allowed")
    memory = _core.pinned_bytes(math.prod(extents) * descr.itemsize)
    return np.empty(extents, descr) if memory is None else np.ndarray(extents, descr, memory)


def pinned_copy(a: ArrayLike) -> np.ndarray[Any, Any]:
    """Copy an array into pinned memory.

    Parameters
    ----------
    a : array_like
        Of any dtype without Python objects.

    Returns
    -------
    ndarray
        C-contiguous; see :func:`empty_pinned`.

    Raises
    ------
    TypeError
        The dtype holds Python objects.
    MemoryError
        The memory cannot be pinned.
    """
    source = np.asarray(a)
    copy = empty_pinned(source.shape, source.dtype)
    np.copyto(copy, source)
    return copy
