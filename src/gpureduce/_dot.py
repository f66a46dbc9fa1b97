"""Sums of products of arrays' elements, rounded once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np

from . import _core
from ._calls import Array, Options
from ._dtypes import native_dtype
from ._interop.device_reduction import Room, Work, same_memory
from ._interop.inputs import as_array, check_plain
from ._interop.libraries import Library, device_library

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._core import DeviceArray

__all__ = ["dot", "vdot"]

PRODUCTS, SQUARES, MAGNITUDES = range(3)
"""What is summed: gpr_products of gpureduce.h."""
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
    plain = _core.dot_plain(a, b, False, dtype, kernel, device, block_size, grid_size, stream)
    if plain is not NotImplemented:
        return plain
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
    return _core.dot(x, y, _common(x, y), dtype, *options)


def _common(a: Array, b: Array) -> np.dtype[Any]:
    """The dtype of products, of native byte order."""
    is_common = a.dtype is b.dtype and a.dtype.isnative
    return a.dtype if is_common else np.promote_types(a.dtype, b.dtype)


def _dot_on_device(
    library: Library, other: Library, a: Any, b: Any, dtype: Any, options: Options
) -> Any:
    x, y = library.read(a), other.read(b)
    if x.ndim == y.ndim == 0:
        x, y = same_memory(x, (1,), None), same_memory(y, (1,), None)
    _check_shapes(x.shape, y.shape)
    _check_devices("dot", x, y)
    # NumPy may lack the dtype: two equal ones need no ``result_type``.
    common = (x.dtype, y.dtype) if x.dtype != y.dtype else ()
    factor = np.promote_types(*map(native_dtype, common)).name if common else x.dtype
    with Work(library, a, x, options) as work:
        work.use(y, other)
        made = _core.dot_on_device(x, y, factor, library.dtype(dtype), *work.options, work.empty)
    return library.finish(a, made)


def _check_devices(name: str, x: DeviceArray, y: DeviceArray) -> None:
    if x.device != y.device:
        raise ValueError(
            f'the first array of {name} is on device "cuda:{x.device}" and the second on '
            f'"cuda:{y.device}"'
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


# ---------------------------------------------------------------- sums along axes


def along_host(
    a: Array,
    b: Array | None,
    factor: Any,
    dtype: Any,
    axis: Any,
    keepdims: bool,
    options: Options,
    *,
    products: int = PRODUCTS,
    conjugate: bool = False,
    root: bool = False,
) -> Any:
    """Sum products of host arrays of one shape along axes."""
    return _core.dot_along(a, b, factor, dtype, axis, keepdims, products, conjugate, root, *options)


def along_device(
    work: Work,
    a: DeviceArray,
    b: DeviceArray | None,
    factor: str,
    dtype: str | None,
    axis: Any,
    keepdims: bool,
    *,
    products: int = PRODUCTS,
    conjugate: bool = False,
    root: bool = False,
    room: Room | None = None,
) -> Any:
    """Sum products of device arrays of one shape along axes; what `room`, or the library, made."""
    return _core.dot_along_on_device(
        a, b, factor, dtype, axis, keepdims, products, conjugate, root, *work.options,
        work.empty if room is None else room,
    )  # fmt: skip


# ---------------------------------------------------------------- vdot


def vdot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Sum of the products of all elements of two arrays, the first conjugated: ``numpy.vdot``.

    Parameters
    ----------
    a, b : array_like
        Of equal sizes and any shapes, of the dtypes that :func:`dot` takes; their elements meet in
        C order. Never changed. Both may be in GPU memory, on one device, of any library: arrays of
        different shapes there must be contiguous.
    dtype : dtype, optional
        Of the result; by default the common dtype. The exact sum is rounded straight to it.
    device : str, optional
        Where host arrays are multiplied, see :func:`dot`. Complex arrays are on the CPU, and real
        ones of more than one axis that are not contiguous; ``"cuda"`` is refused for these.
    block_size, grid_size : int, optional
        Of the kernel on a GPU: threads per block, blocks.
    stream : int or object, optional
        CUDA stream to work on, see :func:`sum`.

    Returns
    -------
    scalar or array
        Of `dtype`. For arrays in GPU memory, a 0-d array there, of the first array's library.

    Raises
    ------
    ValueError
        The sizes differ; arrays on different devices.
    TypeError
        As for :func:`dot`; arrays of different shapes in GPU memory that are not contiguous.
    DeviceUnavailableError
        A GPU was asked for and there is none.

    See Also
    --------
    dot : Of arrays of one axis, without a conjugate.
    norm : Squares of one array.

    Notes
    -----
    The result is the real number, rounded once; of complex arrays each part is. No array is copied,
    unless host arrays of different shapes have to be.

    Determinism: the bits depend on the pairs of elements alone.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.vdot(np.array([1 + 2j, 3]), np.array([1j, 2]))
    np.complex128(8+1j)
    >>> gr.vdot(np.ones((2, 3)), np.arange(6.0).reshape(2, 3))
    np.float64(15.0)
    """
    plain = _core.dot_plain(a, b, True, dtype, "auto", device, block_size, grid_size, stream)
    if plain is not NotImplemented:
        return plain
    options: Options = ("auto", device, block_size, grid_size, stream)
    library, other = device_library(a), device_library(b)
    if (library is None) != (other is None):
        raise TypeError(
            "one of vdot's arrays is in GPU memory and the other is not: copy one of them"
        )
    if library is None or other is None:
        return _vdot_host(
            as_array(a, "a.filled(0)"), as_array(b, "b.filled(0)", "b"), dtype, options
        )
    check_plain(a, "a")
    check_plain(b, "b")
    first, second = library.read(a), other.read(b)
    return _vdot_on_device(library, other, a, first, second, dtype, options)


def _vdot_on_device(
    library: Library,
    other: Library,
    a: Any,
    x: DeviceArray,
    y: DeviceArray,
    dtype: Any,
    options: Options,
) -> Any:
    _check_sizes(x.shape, y.shape)
    _check_devices("vdot", x, y)
    if x.shape != y.shape:
        x, y = _flat(x), _flat(y)
    factor = np.promote_types(native_dtype(x.dtype), native_dtype(y.dtype)).name
    with Work(library, a, x, options) as work:
        work.use(y, other)
        made = along_device(work, x, y, factor, library.dtype(dtype), None, False, conjugate=True)
    return library.finish(a, made)


def _vdot_host(x: Array, y: Array, dtype: Any, options: Options) -> Any:
    factor = _common(x, y)
    if x.shape != y.shape:
        _check_sizes(x.shape, y.shape)
    elif x.ndim == 1 and factor.kind != "c":
        return _core.dot(x, y, factor, dtype, *options)
    is_flat = all(one.ndim <= 1 or one.flags.c_contiguous for one in (x, y))
    if factor.kind != "c" and is_flat:
        return _core.dot(x.reshape(-1), y.reshape(-1), factor, dtype, *options)
    if x.shape != y.shape:
        x, y = x.reshape(-1), y.reshape(-1)
    return along_host(x, y, factor, dtype, None, False, options, conjugate=True)


def _check_sizes(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    if math.prod(x) != math.prod(y):
        raise ValueError(
            f"vdot of {math.prod(x)} elements and {math.prod(y)}: the arrays must have equal sizes"
        )


def _flat(array: DeviceArray) -> DeviceArray:
    """A contiguous array as one of one axis."""
    step = _core.DTYPES[array.dtype][0]
    for extent, stride in zip(array.shape[::-1], array.strides[::-1], strict=True):
        if extent > 1 and stride != step:
            raise TypeError(
                "arrays of different shapes in GPU memory must be contiguous for vdot: ravel them"
            )
        step *= extent
    return same_memory(array, (math.prod(array.shape),), None)
