"""Sums of products of two arrays' elements, rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np

from . import _core
from ._calls import Options
from ._dtypes import native_dtype
from ._interop.device_reduction import Work
from ._interop.inputs import as_array, check_plain
from ._interop.libraries import Library, device_library

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._core import DeviceArray

__all__ = ["dot"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


@overload
def dot(
    a: NDArray[_Scalar],
    b: NDArray[_Scalar],
    *,
    dtype: None = None,
    kernel: Literal["auto", "exact"] = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> _Scalar: ...
@overload
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: type[_Scalar] | np.dtype[_Scalar],
    kernel: Literal["auto", "exact"] = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> _Scalar: ...
@overload
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    kernel: Literal["auto", "exact"] = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any: ...


def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    kernel: Literal["auto", "exact"] = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Dot product of two one-dimensional arrays, as ``numpy.dot``, rounded once.

    Parameters
    ----------
    a, b : array_like
        One-dimensional arrays of equal lengths, or two scalars, of dtype bool, any integer,
        float16, bfloat16 (of ``ml_dtypes``), float32, float64, complex64 or complex128, with any
        stride and byte order. They are converted to their common dtype, ``numpy.result_type``, as
        in NumPy, but without copies. Both may be in the memory of one GPU, of any library (see
        :func:`sum`).
    dtype : dtype, optional
        Dtype of the result, to which the exact sum is rounded; by default the common dtype.
    kernel : str, optional
        ``"exact"``, or ``"auto"``, which is ``"exact"``.
    device : str, optional
        ``None``: the first GPU if there is one, else the CPU. ``"cpu"``, ``"cuda"``, ``"cuda:N"``.
        ``"auto"``: the device for which a measured cost model predicts the shorter time; for one
        pass over host memory that is often the CPU.
    block_size : int, optional
        Threads per block, a multiple of 32 from 32 to 1024; by default the kernel's own.
    grid_size : int, optional
        Blocks; by default enough to fill the GPU.
    stream : int or object, optional
        CUDA stream to work on: a ``CUstream`` handle, or an object with ``.ptr`` or
        ``.cuda_stream``.

    Returns
    -------
    scalar or array
        Of `dtype`. The sum of no products is 0. Integers wrap, as in NumPy. For bool the result is
        whether any pair is true. Complex numbers are not conjugated. For arrays in GPU memory, the
        result is a 0-d array there, of the first array's library, and the call does not wait for
        it.

    Raises
    ------
    ValueError
        The lengths differ, an array has more than one axis, `kernel` is another one, an array is
        not on `device`, or the block size is not possible.
    TypeError
        A dtype that is not supported (object, strings, times, extended precision, ...), a `dtype`
        that cannot hold the common one (a real dtype for complex numbers, integers for floats), a
        masked array or one of a type that overrides NumPy's functions, or only one of the arrays in
        GPU memory.
    DeviceUnavailableError
        A GPU was requested and there is none.
    CudaError
        The driver or NVRTC reported an error.
    MemoryError
        Memory ran out.
    KeyboardInterrupt
        Ctrl-C.

    See Also
    --------
    sum : With ``kernel="exact"``, sums rounded once.
    var : With ``kernel="exact"``, variances rounded once.

    Notes
    -----
    The result is the exact value, rounded once to nearest, ties to even: no product overflows or
    underflows, and cancellation loses no bits. Real and imaginary parts are rounded once each.
    ``numpy.dot`` rounds after every product and every addition.

    Infinity times 0 is NaN, and so is the sum of infinities of both signs. A sum
    of products that are all -0.0 is -0.0; every other zero, and the sum of no products, is 0.0.

    Determinism: the bits depend only on the pairs of elements, not on their order, the device, the
    grid or the number of threads.

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
    options = (kernel, device, block_size, grid_size, stream)
    library, other = device_library(a), device_library(b)
    if library is not None and other is not None:
        check_plain(a, "a")
        check_plain(b, "b")
        return _dot_on_device(library, other, a, b, dtype, options)
    if library is not None or other is not None:
        first, second = ("first", "second") if library is not None else ("second", "first")
        name = type(b if library is not None else a).__name__
        raise TypeError(
            f"the {first} array of dot is in GPU memory and the {second}, {name}, is not: copy one "
            "of them"
        )
    x, y = as_array(a, "a.filled(0)"), as_array(b, "b.filled(0)", "b")
    if x.ndim == y.ndim == 0:
        x, y = x.reshape(1), y.reshape(1)
    _check_shapes(x.shape, y.shape)
    return _core.dot(x, y, np.promote_types(x.dtype, y.dtype), dtype, *options)


def _dot_on_device(
    library: Library, other: Library, a: Any, b: Any, dtype: Any, options: Options
) -> Any:
    x, y = library.read(a), other.read(b)
    if x.ndim == y.ndim == 0:
        x, y = _as_row(x), _as_row(y)
    _check_shapes(x.shape, y.shape)
    if x.device != y.device:
        raise ValueError(
            f'the first array of dot is on device "cuda:{x.device}" and the second on '
            f'"cuda:{y.device}"'
        )
    # NumPy may lack the dtype: two equal ones need no ``result_type``.
    common = (x.dtype, y.dtype) if x.dtype != y.dtype else ()
    factor = np.promote_types(*map(native_dtype, common)).name if common else x.dtype
    with Work(library, a, x, options) as work:
        if y.stream is not None:
            work.join(y.stream)
        if other.lends:
            work.lent.append(y)
        made = _core.dot_on_device(x, y, factor, library.dtype(dtype), *work.options, work.empty)
    return library.finish(a, made)


def _as_row(number: DeviceArray) -> DeviceArray:
    return _core.device_array(
        number.pointer, (1,), None, number.dtype, number.device, number.stream, number
    )


def _check_shapes(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    if len(x) == len(y) == 1:
        if x != y:
            raise ValueError(f"shapes {x} and {y} not aligned: {x[0]} (dim 0) != {y[0]} (dim 0)")
        return
    if () in (x, y):
        raise ValueError("dot of a number and an array is no sum of products: use numpy.multiply")
    raise ValueError(
        f"dot takes two arrays of one axis, not of {len(x)} and {len(y)}: numpy.matmul multiplies "
        "matrices; for all elements in order, pass a.ravel() and b.ravel()"
    )
