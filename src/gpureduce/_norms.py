"""Norms and weighted means: NumPy's arguments, on sums of products that are rounded once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _core, _functions
from ._calls import Array, NoValue, Options, map_once, placement
from ._dot import MAGNITUDES, SQUARES, along_device, along_host
from ._dtypes import is_below_float32, name_of, native_dtype
from ._interop.device_reduction import EXACT, NUMBERS, Work, same_memory
from ._interop.inputs import as_array, check_plain
from ._interop.libraries import Library, device_library

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ._core import DeviceArray

__all__ = ["average", "norm"]

_FLOAT64 = np.dtype(np.float64)
_PARTS = {"complex64": "float32", "complex128": "float64"}


# ---------------------------------------------------------------- norms


def norm(
    a: ArrayLike,
    ord: float | Literal["fro", "f"] | None = None,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Norm of vectors, or of matrices by their elements, as ``numpy.linalg.norm``.

    Parameters
    ----------
    a : array_like
        Numbers of dtype bool, any integer, float16, bfloat16 (of ``ml_dtypes``), float32, float64,
        complex64 or complex128, of any shape, in any layout and byte order. Never changed. It may
        be in GPU memory, of any library (see :func:`sum`).
    ord : float or 'fro', optional
        Of vectors: 2 (also None), 1, ``inf``, ``-inf``, 0 (elements that are not zero), or any
        other number p, of which the norm is ``sum(abs(a)**p)**(1/p)``. Of matrices: ``'fro'`` (also
        None), 1, -1, ``inf``, ``-inf``.
    axis : None or int or tuple of two ints, optional
        An axis of vectors, or the two of matrices. By default `a` is one vector or matrix; with
        `ord` None too, the norm of all elements, whatever the shape.
    keepdims : bool, optional
        Whether reduced axes stay, with length one.
    device : str, optional
        Where host arrays are reduced. Orders other than ``inf`` and 0 are computed on the CPU for
        them, so ``"cuda"`` is refused.
    block_size, grid_size : int, optional
        Of kernels on a GPU: threads per block, blocks per row.
    stream : int or object, optional
        CUDA stream to work on, see :func:`sum`.

    Returns
    -------
    scalar or array
        Of float64 for bool and integers, else of the dtype of the elements' real parts. For arrays
        in GPU memory an array there, of the same library.

    Raises
    ------
    ValueError
        An `ord` that vectors or matrices do not have; matrix norms of singular values (2, -2,
        ``'nuc'``), which ``numpy.linalg.norm`` computes; no axis for more than two dimensions; no
        elements to take ``-inf`` of.
    TypeError
        A dtype that has no norm (object, strings, times, ...); for arrays in GPU memory, an `ord`
        whose map of elements is not computed there: other numbers than 2, 1, 0 and ``inf``, and 1
        and ``inf`` of complex elements.
    numpy.exceptions.AxisError
        `axis` is out of bounds.
    DeviceUnavailableError
        A GPU was asked for and there is none.

    See Also
    --------
    vdot : Products of two arrays.

    Notes
    -----
    The 2-norm and ``'fro'`` are rounded once: the root of the real number that the sum of the
    squares is. No square overflows or underflows: the norm of ``[3e200, 4e200]`` is about
    ``5e200``, where NumPy's is infinite. The 1-norm of real elements is rounded once too. One pass
    over memory computes each of 2, 1 (of real elements), ``inf`` (of real elements) and 0. Other
    orders, and those of complex elements, make an array of magnitudes first, as NumPy does; their
    sums are rounded once. Powers of the orders 3 and 4 are products, rounded twice; those of
    other orders are NumPy's.

    Determinism: 2, ``'fro'``, 1, ``inf``, ``-inf`` and 0 have the same bits on every device, in any
    layout.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.norm([3 * 2.0**600, 4 * 2.0**600]) / 2.0**600
    np.float64(5.0)
    >>> gr.norm(np.arange(6.0).reshape(2, 3), axis=1)
    array([2.23606798, 7.07106781])
    >>> gr.norm(np.array([1, -2, 3]), 1)
    np.float64(6.0)
    """
    if type(a) is np.ndarray:
        plain = _core.norm(
            a, ord, axis, keepdims, "auto", device, block_size, grid_size, stream
        )  # fmt: skip
        if plain is not NotImplemented:
            return plain
    options: Options = ("auto", device, block_size, grid_size, stream)
    library = device_library(a)
    if library is None:
        x: Any = as_array(a, "a.filled(0)")
        made = _HostNorm(x, options).run(ord, axis, keepdims)
        return made[()] if isinstance(made, np.ndarray) else made
    check_plain(a, "a")
    return _DeviceNorm(library, a, options).run(ord, axis, keepdims)


class _Norm:
    """NumPy's rules of orders and axes; what the two kinds of arrays do differs."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def result(self) -> str:
        """Name of the result's dtype."""
        if self.dtype.startswith(EXACT):
            return "float64"
        return _PARTS.get(self.dtype, self.dtype)

    def run(self, ord: Any, axis: Any, keepdims: bool) -> Any:
        keepdims = bool(keepdims)
        ndim = len(self.shape)
        if axis is None and (
            ord is None or (ord in ("f", "fro") and ndim == 2) or (ord == 2 and ndim == 1)
        ):
            return self.two(tuple(range(ndim)), keepdims)
        if axis is None:
            axis = tuple(range(ndim))
        elif not isinstance(axis, tuple):
            try:
                axis = int(axis)
            except Exception as error:
                message = "'axis' must be None, an integer or a tuple of integers"
                raise TypeError(message) from error
            axis = (axis,)
        if len(axis) == 1:
            if isinstance(ord, str):
                raise ValueError(f"Invalid norm order '{ord}' for vectors")
            is_normal = type(axis[0]) is int and 0 <= axis[0] < ndim
            axis = axis if is_normal else normalize_axis_tuple(axis, ndim)
            return self.vector(ord, axis, keepdims)
        if len(axis) == 2:
            rows, columns = (normalize_axis_tuple(one, ndim)[0] for one in axis)
            if rows == columns:
                raise ValueError("Duplicate axes given.")
            return self.matrix(ord, rows, columns, keepdims)
        raise ValueError("Improper number of dimensions to norm.")

    def vector(self, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        if ord is None or ord == 2:
            return self.two(axis, keepdims)
        if ord == math.inf:
            return self.largest(axis, keepdims)
        if ord == -math.inf:
            return self.smallest(axis, keepdims)
        if ord == 0:
            return self.number(axis, keepdims)
        if ord == 1:
            return self.one(axis, keepdims)
        return self.power(ord, axis, keepdims)

    def matrix(self, ord: Any, rows: int, columns: int, keepdims: bool) -> Any:
        if ord in (None, "fro", "f"):
            return self.two((rows, columns), keepdims)
        if ord in (2, -2, "nuc"):
            raise ValueError(
                f"the matrix norm of order {ord!r} is made of singular values, which "
                "numpy.linalg.norm computes; 'fro' is the 2-norm of the elements"
            )
        if ord not in (1, -1, math.inf, -math.inf):
            raise ValueError("Invalid norm order for matrices.")
        summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = self.one((summed,), True)
        made = self.extreme(sums, other, ord > 0)
        return made if keepdims else self.without(made, (rows, columns))

    def two(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise NotImplementedError

    def one(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise NotImplementedError

    def largest(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise NotImplementedError

    def smallest(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise NotImplementedError

    def number(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise NotImplementedError

    def power(self, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise NotImplementedError

    def extreme(self, sums: Any, axis: int, is_largest: bool) -> Any:
        """The largest or smallest of sums along an axis, which stays."""
        raise NotImplementedError

    def without(self, norms: Any, axis: tuple[int, ...]) -> Any:
        """Norms without axes of length 1."""
        raise NotImplementedError


class _HostNorm(_Norm):
    def __init__(self, array: Array, options: Options) -> None:
        self.array, self.options = array, options
        self.shape, self.dtype = array.shape, name_of(array.dtype)
        if self.dtype not in _core.DTYPES:
            raise TypeError(f"norm is not defined for dtype {array.dtype}: it takes numbers")
        self.factor = native_dtype(array.dtype)

    def native_result(self) -> np.dtype[Any]:
        return self.factor if self.factor.kind in "fV" else native_dtype(self.result)

    def two(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        factor = self.native_result() if self.factor.kind == "c" else self.factor
        return along_host(
            self.array, None, factor, self.native_result(), axis, keepdims, self.options,
            products=SQUARES, root=True,
        )  # fmt: skip

    def one(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        if self.array.dtype.kind == "c":
            return _functions.sum(
                map_once(np.abs, self.array), axis=axis, keepdims=keepdims, device="cpu"
            )
        return along_host(
            self.array, None, self.factor, self.native_result(), axis, keepdims, self.options,
            products=MAGNITUDES,
        )  # fmt: skip

    def largest(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        result = self.native_result()
        if 0 in self.shape and math.prod(self.shape[i] for i in axis) == 0:
            return _functions.sum(
                np.empty(self.shape, result), axis=axis, keepdims=keepdims, device="cpu"
            )
        if self.array.dtype.kind == "c":
            return _functions.max(
                map_once(np.abs, self.array), axis=axis, keepdims=keepdims, device="cpu"
            )
        given = placement(self.options)
        low, high = _functions.minmax(self.array, axis, keepdims=keepdims, **given)
        if low.dtype is not result:
            low, high = low.astype(result), high.astype(result)
        return np.maximum(np.abs(low), np.abs(high))

    def smallest(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        magnitudes = map_once(_magnitudes, self.array)
        return _functions.min(magnitudes, axis=axis, keepdims=keepdims, device="cpu")

    def number(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        given = placement(self.options)
        found = _functions.count_nonzero(self.array, axis, keepdims=keepdims, **given)
        return found.astype(self.native_result())

    def power(self, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        result = native_dtype(self.result)

        def raised(a: Array) -> Array:
            if is_below_float32(self.result):
                a = a.astype(np.float32)
            elif a.dtype.kind != "c":
                a = a.astype(result, copy=False)
            return _core.powers_of(a, ord)

        powers = map_once(raised, self.array)
        total = np.asarray(_functions.sum(powers, axis=axis, keepdims=keepdims, device="cpu"))
        return (total ** np.reciprocal(ord, dtype=total.dtype)).astype(result)

    def extreme(self, sums: Any, axis: int, is_largest: bool) -> Any:
        if is_largest:
            return _functions.max(sums, axis=axis, keepdims=True, initial=0.0, device="cpu")
        return _functions.min(sums, axis=axis, keepdims=True, device="cpu")

    def without(self, norms: Any, axis: tuple[int, ...]) -> Any:
        return np.squeeze(norms, axis)


def _magnitudes(array: Array) -> Array:
    # The magnitude of the least integer is none of its type.
    made: Array = np.abs(array if array.dtype.kind in "fcV" else array.astype(np.float64))
    return made


class _DeviceNorm(_Norm):
    def __init__(self, library: Library, a: Any, options: Options) -> None:
        self.a, self.options = a, options
        self.begin = functools.partial(Work, library, a)
        self.finish = functools.partial(library.finish, a)
        self.source = library.read(a)
        self.shape, self.dtype = self.source.shape, self.source.dtype

    def along(self, source: DeviceArray, axis: Any, keepdims: bool, **kind: Any) -> Any:
        def sum_up(work: Work) -> Any:
            return along_device(
                work, source, None, source.dtype, self.result, axis, keepdims, **kind
            )

        return self.queue(source, sum_up)

    def queue(self, source: DeviceArray, steps: Callable[[Work], Any]) -> Any:
        """The library's array that `steps` made."""
        with self.begin(source, self.options) as work:
            made = steps(work)
        return self.finish(made)

    def two(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        source = self.source
        if self.dtype not in _PARTS:
            return self.along(source, axis, keepdims, products=SQUARES, root=True)
        part = _core.DTYPES[self.dtype][0] // 2
        parts = same_memory(source, (2, *source.shape), (part, *source.strides), _PARTS[self.dtype])
        # The squares of both parts, along an axis more.
        kind: dict[str, Any] = {"products": SQUARES, "root": True}
        made = self.along(parts, (0, *(i + 1 for i in axis)), keepdims, **kind)
        return self.without(made, (0,)) if keepdims else made

    def one(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        self.refuse_complex(1)
        return self.along(self.source, axis, keepdims, products=MAGNITUDES)

    def largest(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        self.refuse_complex(math.inf)
        if math.prod(self.shape[i] for i in axis) == 0:
            return self.one(axis, keepdims)

        def steps(work: Work) -> Any:
            ends = _core.reduce_on_device(
                NUMBERS["minmax"], self.source, axis, None, keepdims, None, *work.options, False,
                0.0, work.scratch,
            )  # fmt: skip
            magnitudes = along_device(
                work, ends, None, self.dtype, self.result, (), False, products=MAGNITUDES,
                room=work.scratch,
            )  # fmt: skip
            return _core.reduce_on_device(
                NUMBERS["max"], magnitudes, 0, None, False, None, *work.options, False, 0.0,
                work.empty,
            )  # fmt: skip

        return self.queue(self.source, steps)

    def smallest(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise self.refusal(-math.inf)

    def number(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        given = placement(self.options)
        found = _functions.count_nonzero(self.a, axis, keepdims=keepdims, **given)
        return _functions.sum(found, axis=(), dtype=self.result, **given)

    def power(self, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        raise self.refusal(ord)

    def refuse_complex(self, ord: float) -> None:
        if self.dtype in _PARTS:
            raise self.refusal(ord)

    def refusal(self, ord: Any) -> TypeError:
        return TypeError(
            f"norm of order {ord!r} of {self.dtype} in GPU memory needs an array of magnitudes: "
            "make it there, and reduce it by sum, min or max; orders 2 and 0, and 1 and inf of "
            "real elements, need none"
        )

    def extreme(self, sums: Any, axis: int, is_largest: bool) -> Any:
        given = placement(self.options)
        if is_largest:
            return _functions.max(sums, axis=axis, keepdims=True, initial=0.0, **given)
        return _functions.min(sums, axis=axis, keepdims=True, **given)

    def without(self, norms: Any, axis: tuple[int, ...]) -> Any:
        # A sum along axes of length 1 changes nothing.
        return _functions.max(norms, axis=axis, **placement(self.options))


# ---------------------------------------------------------------- weighted means


def average(
    a: ArrayLike,
    axis: int | tuple[int, ...] | None = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = NoValue,
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Weighted mean over given axes, as ``numpy.average``.

    Parameters
    ----------
    a : array_like
        Numbers, as :func:`mean` takes them. It may be in GPU memory, of any library.
    axis : None or int or tuple of ints, optional
        Axes to average over; all of them by default.
    weights : array_like, optional
        Of the shape of `a`, or of its extents along `axis`. Never repeated in memory. For an array
        in GPU memory they are of the same library, on the same device. By default all are one.
    returned : bool, optional
        Whether the sum of the weights is returned too.
    keepdims : bool, optional
        Whether reduced axes stay, with length one.
    device : str, optional
        Where host arrays are reduced. With weights they are on the CPU, so ``"cuda"`` is refused.
    block_size, grid_size : int, optional
        Of kernels on a GPU: threads per block, blocks per row.
    stream : int or object, optional
        CUDA stream to work on, see :func:`sum`.

    Returns
    -------
    average : scalar or array
        Without weights what :func:`mean` returns. With weights of the dtype that NumPy finds for
        products of both arrays, float64 at least for bool and integers.
    sum_of_weights : scalar or array
        With `returned`, of the same dtype and shape.

    Raises
    ------
    ZeroDivisionError
        The weights of a host array sum to zero. In GPU memory they make NaN or infinities, as the
        host does not wait for them.
    TypeError
        Weights of another shape than `a` without `axis`; a dtype that has no mean; one array in GPU
        memory and one that is not.
    ValueError
        Weights whose shape is not that of `a` along `axis`.
    numpy.exceptions.AxisError
        `axis` is out of bounds.
    DeviceUnavailableError
        A GPU was asked for and there is none.

    See Also
    --------
    mean : Without weights.

    Notes
    -----
    One pass reads both arrays. The sum of the products and that of the weights are exact and
    rounded once, to float64 for host arrays; the quotient is rounded, then, for narrower types, to
    the result's type.

    Determinism: the bits do not depend on layout, number of threads or grid.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.average([1.0, 2.0, 4.0], weights=[3, 0, 1])
    np.float64(1.75)
    >>> gr.average(np.arange(6).reshape(3, 2), axis=0, weights=[1, 0, 3])
    array([3., 4.])
    """
    options: Options = ("auto", device, block_size, grid_size, stream)
    library = device_library(a)
    other = None if weights is None else device_library(weights)
    if weights is not None and (library is None) != (other is None):
        raise TypeError(
            "one of average's arrays is in GPU memory and the other is not: copy one of them"
        )
    keeps = keepdims is not NoValue and bool(keepdims)
    if library is None:
        return _average_host(a, axis, weights, returned, keeps, options)
    check_plain(a, "a")
    if weights is not None:
        check_plain(weights, "weights")
    return _average_device(library, other, a, axis, weights, returned, keeps, options)


def _check_weights(
    shape: tuple[int, ...], weights: tuple[int, ...], axis: tuple[int, ...] | None
) -> None:
    if shape == weights:
        return
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if weights != tuple(shape[i] for i in axis):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )


def _spread(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    strides: tuple[int, ...],
    axis: tuple[int, ...] | None,
) -> tuple[int, ...]:
    """Steps of weights along all axes of an array: 0 along those that they do not have."""
    if weights == shape:
        return strides
    assert axis is not None
    steps = dict(zip(axis, strides, strict=True))
    return tuple(steps.get(i, 0) for i in range(len(shape)))


def _result_of(a: np.dtype[Any], weights: np.dtype[Any]) -> np.dtype[Any]:
    if a.kind in "biu":
        return np.result_type(a, weights, np.float64)
    return np.promote_types(a, weights)


@functools.lru_cache(maxsize=256)
def _types_of_average(
    a: np.dtype[Any], weights: np.dtype[Any]
) -> tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]:
    """Dtypes of a host array's average, of its sums, and of factors."""
    result = _result_of(a, weights)
    if name_of(result) not in _core.DTYPES:
        raise TypeError(f"average is not defined for dtype {result}: it takes numbers")
    wide = np.dtype(np.complex128 if result.kind == "c" else np.float64)
    return result, wide, np.promote_types(a, weights)


def _average_host(
    a: Any,
    axis: Any,
    weights: Any,
    returned: bool,
    keepdims: bool,
    options: Options,
) -> Any:
    array = as_array(a, "a.filled(0)")
    axes: tuple[int, ...] | None = None
    if type(axis) is int and 0 <= axis < array.ndim:
        axes = (axis,)
    elif axis is not None:
        axes = normalize_axis_tuple(axis, array.ndim, argname="axis")
    if weights is None:
        mean = _functions.mean(array, axes, keepdims=keepdims, **placement(options))
        if not returned:
            return mean
        count = np.asarray(mean).dtype.type(array.size / np.size(mean))
        return mean, count if np.ndim(mean) == 0 else np.full_like(mean, count)
    w = as_array(weights, "weights.filled(0)", "weights")
    _check_weights(array.shape, w.shape, axes)
    result, wide, factor = _types_of_average(array.dtype, w.dtype)
    # Weights that all results share have one sum.
    own = axes if w.shape == array.shape else None
    is_real = w.dtype.kind != "c"
    # `auto` rounds sums of complex numbers more than once.
    total = _functions.sum(
        w, own, _FLOAT64 if is_real else wide, keepdims=keepdims and own is axes, device="cpu",
        kernel="auto" if is_real else "exact",
    )  # fmt: skip
    has_zero = not _functions.all(total, device="cpu") if type(total) is np.ndarray else total == 0
    if has_zero:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    if is_real:
        average = _core.average_along(array, w, factor, result, axes, keepdims, total, *options)
    else:
        average = _average_by_complex(array, w, factor, result, axes, keepdims, total, options)
    if not returned:
        return average
    with np.errstate(over="ignore", invalid="ignore"):
        return average, np.broadcast_to(total, np.shape(average)).astype(result)[()]


def _average_by_complex(
    array: Array,
    w: Array,
    factor: np.dtype[Any],
    result: np.dtype[Any],
    axes: tuple[int, ...] | None,
    keepdims: bool,
    total: Any,
    options: Options,
) -> Any:
    everywhere = np.lib.stride_tricks.as_strided(
        w, array.shape, _spread(array.shape, w.shape, w.strides, axes), writeable=False
    )
    wide = np.dtype(np.complex128)
    products = along_host(array, everywhere, factor, wide, axes, keepdims, options)
    with np.errstate(over="ignore", invalid="ignore"):
        average = products / total
        return average if result == wide else average.astype(result)


def _average_device(
    library: Library,
    other: Library | None,
    a: Any,
    axis: Any,
    weights: Any,
    returned: bool,
    keepdims: bool,
    options: Options,
) -> Any:
    source = library.read(a)
    axes = None if axis is None else normalize_axis_tuple(axis, len(source.shape), argname="axis")
    if weights is None:
        mean = _functions.mean(a, axes, keepdims=keepdims, **placement(options))
        if not returned:
            return mean
        raise TypeError(
            "returned= of an array in GPU memory needs weights: without them it is the number of "
            "elements"
        )
    assert other is not None
    w = other.read(weights)
    if other is not library:
        raise TypeError(
            f"the array is of {library.name} and weights= of {other.name}: they must be of one "
            "library"
        )
    if w.device != source.device:
        raise ValueError(
            f'the array is on device "cuda:{source.device}" and weights= on "cuda:{w.device}"'
        )
    _check_weights(source.shape, w.shape, axes)
    result = _result_of(native_dtype(source.dtype), native_dtype(w.dtype)).name
    wide = "float32" if is_below_float32(result) else result
    factor = np.promote_types(native_dtype(source.dtype), native_dtype(w.dtype)).name
    reduced = tuple(range(len(source.shape))) if axes is None else axes
    everywhere = same_memory(w, source.shape, _spread(source.shape, w.shape, w.strides, axes))
    with Work(library, a, source, options) as work:
        work.use(w)
        made = along_device(work, source, everywhere, factor, wide, reduced, keepdims)
        # Weights that rows share are added once, unless each row's sum is asked for.
        alike = returned or w.shape == source.shape
        added, along = (everywhere, reduced) if alike else (w, tuple(range(len(w.shape))))
        kernel, device, block, grid, stream = work.options
        total = _core.reduce_on_device(
            NUMBERS["sum"], added, along, wide, keepdims and alike, None,
            "exact" if w.dtype.startswith("complex") else kernel, device, block, grid, stream,
            False, 0.0, work.empty,
        )  # fmt: skip
    products, total = library.finish(a, made), library.finish(a, total)
    try:
        average = products / total
    except TypeError as error:
        raise TypeError(
            f"arrays of {library.name} do not divide: sum the products by vdot, and the weights by "
            "sum, and divide them where they are needed"
        ) from error
    if wide != result:
        average = _functions.sum(average, (), result, **placement(options))
    return (average, total) if returned else average
