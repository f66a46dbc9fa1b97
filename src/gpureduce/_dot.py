"""Sums of products of two arrays' elements, rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from . import _core
from ._arguments import as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["dot"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


@overload
def dot(
    a: NDArray[_Scalar],
    b: NDArray[_Scalar],
    *,
    dtype: None = None,
    kernel: str = "auto",
    device: str | None = None,
) -> _Scalar: ...
@overload
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: type[_Scalar] | np.dtype[_Scalar],
    kernel: str = "auto",
    device: str | None = None,
) -> _Scalar: ...
@overload
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    kernel: str = "auto",
    device: str | None = None,
) -> Any: ...


def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    kernel: str = "auto",
    device: str | None = None,
) -> Any:
    """Sum of the products of two arrays' elements, rounded once: ``numpy.dot`` of two 1-D arrays.

    Parameters
    ----------
    a, b : array_like
        Of one axis and equal lengths, or both of none: numbers of dtype bool, any integer, float16,
        bfloat16 (of ``ml_dtypes``), float32, float64, complex64 or complex128, with any stride and
        byte order. They are converted to their common dtype, ``numpy.result_type``, as NumPy does,
        without a copy of either. Never changed.
    dtype : dtype, optional
        Of the result; by default the common dtype. The exact sum is rounded straight to it.
    kernel : str, optional
        ``"exact"``, the only one there is yet; ``"auto"`` is the same.
    device : str, optional
        ``None``, ``"cpu"`` or ``"auto"``: the CPU, on machines with a GPU too. There is no program
        for GPUs yet: ``"cuda"`` is an error.

    Returns
    -------
    scalar
        Of `dtype`. The sum of nothing is 0. Integers wrap, as NumPy's do; of bool it is whether any
        pair is true. Nothing is conjugated.

    Raises
    ------
    ValueError
        The lengths differ, an array has more than one axis, another kernel or a GPU is named.
    TypeError
        A dtype that does not reduce so (object, strings, times, extended precision, ...), a `dtype`
        that does not hold the common one (a real one of complex numbers, one of integers of floats),
        a masked array, an array in GPU memory.
    MemoryError
        Host memory ran out.
    KeyboardInterrupt
        Ctrl-C.

    See Also
    --------
    sum : With ``kernel="exact"``, sums rounded once.
    var : With ``kernel="exact"``, variances rounded once.

    Notes
    -----
    The result is the real number that the sum is, rounded once to nearest, ties to even: no product
    overflows or underflows, and nothing that cancels is lost. Parts of complex results are such sums
    each. ``numpy.dot`` rounds every product and addition.

    Infinity times 0 is NaN, and so is the sum of infinities of both signs; there is one NaN. A sum of
    nothing but products that are -0.0 is -0.0, any other zero, and the sum of nothing, is 0.0.

    Determinism: the bits depend on the pairs of elements alone, not on their order, the machine or the
    number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.dot([1e200, 1.0, 1e200], [1e200, 1.0, -1e200])
    np.float64(1.0)
    >>> gr.dot(np.arange(5), np.arange(5))
    np.int64(30)
    >>> gr.dot(np.float32([0.1, 0.2]), np.float32([3, 4]), dtype="float64")
    np.float64(1.1000000163912773)
    """
    x, y = as_array(a, "a.filled(0)"), as_array(b, "b.filled(0)")
    if x.ndim == y.ndim == 0:
        x, y = x.reshape(1), y.reshape(1)
    _check_axes(x, y)
    if x.shape != y.shape:
        raise ValueError(f"shapes {x.shape} and {y.shape} not aligned: {x.shape[0]} (dim 0) != {y.shape[0]} (dim 0)")
    return _core.dot(x, y, np.promote_types(x.dtype, y.dtype), dtype, kernel, device)


def _check_axes(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    if x.ndim == y.ndim == 1:
        return
    if 0 in (x.ndim, y.ndim):
        raise ValueError("dot of a number and an array is no sum of products: use numpy.multiply")
    raise ValueError(
        f"dot takes two arrays of one axis, not of {x.ndim} and {y.ndim}: numpy.matmul multiplies matrices; for all "
        "elements in order, pass a.ravel() and b.ravel()"
    )
