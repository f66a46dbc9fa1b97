"""Logarithms of sums of exponentials: by the core on the CPU, by an operator on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, _functions
from .._arguments import as_mask, check_host_out, check_shape
from .._calls import NoValue, Options, OwnCall, placement
from .._dtypes import is_float, name_of, native_dtype
from .._interop.inputs import as_array, check_plain, rewrap, wrapper_of
from .._interop.libraries import Library, device_library, from_host
from .operator_call import place_of
from .own_operator import Operator

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["logsumexp"]

_SOURCE = """
struct logsumexp {
    using State = gpr_exp_state;

    static State identity() { return gpr_exp_state_of(-INFINITY); }
    static State lift(T x) { return gpr_exp_state_of(static_cast<double>(x)); }
    static State combine(State a, State b) { return gpr_exp_merge(a, b); }

    template <class A> static double float_of(A);
    static float float_of(float);
    static auto finish(State s) { return static_cast<decltype(float_of(T()))>(gpr_exp_result(s)); }

    // ---- many elements at once, as the CPU's blocks: the largest of them first, then a sum in one
    // unit, of terms that do not wait for each other

    // A result of 24 bits has a polynomial and a sum that suffice for it.
    static constexpr bool is_short = sizeof(decltype(float_of(T()))) == 4;

    // The bits of a double.
    static long long bits_of(double x)
    {
        long long bits;
        memcpy(&bits, &x, sizeof bits);
        return bits;
    }
    static double of_bits(long long bits)
    {
        double x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    // exp(x) / 2^unit, where x / log(2) is at most unit + 1/2; 0 if that is no normal number.
    static double in_units(double x, int unit)
    {
        constexpr double q9[] = {GPR_EXP_QUOTIENTS_9}, q6[] = {GPR_EXP_QUOTIENTS_6};
        const double rounded = fma(x, GPR_LOG2_E, GPR_EXP_ROUNDER), k = rounded - GPR_EXP_ROUNDER;
        const double r = fma(-k, GPR_LOG2_LOW, fma(-k, GPR_LOG2_HIGH, x)), square = r * r;
        double even, odd;
        if (is_short) {
            even = fma(fma(fma(q6[6], square, q6[4]), square, q6[2]), square, q6[0]);
            odd = fma(fma(q6[5], square, q6[3]), square, q6[1]);
        } else {
            even = fma(fma(fma(fma(q9[8], square, q9[6]), square, q9[4]), square, q9[2]), square,
                       q9[0]);
            odd = fma(fma(fma(fma(q9[9], square, q9[7]), square, q9[5]), square, q9[3]), square,
                      q9[1]);
        }
        const double power = 1 + fma(square, fma(r, odd, even), r);
        const int exponent = static_cast<int>(bits_of(rounded)) - unit;
        // power has the exponent -1 or 0
        const long long moved = bits_of(power) + (static_cast<long long>(exponent) << 52);
        return exponent < -1021 ? 0 : of_bits(moved);
    }
    template <unsigned N> static State one_by_one(State s, const T (&x)[N])
    {
        _Pragma("unroll 1")
        for (unsigned i = 0; i < N; i++) s = gpr_exp_merge(s, lift(x[i]));
        return s;
    }
    static constexpr bool has_infinity = T(0.5) != T(0) && T(0.5) != T(1);

    // Takes the largest of the elements in, and leaves in its place the one that was it before.
    template <unsigned N> static void take_largest(State &s, T (&x)[N], T largest)
    {
        const T before = static_cast<T>(s.largest);
        bool is_met = false;
        _Pragma("unroll")
        for (unsigned i = 0; i < N; i++) {
            const bool is_it = !is_met && x[i] == largest;
            x[i] = is_it ? before : x[i];
            is_met = is_met || is_it;
        }
        s.largest = static_cast<double>(largest);
    }
    template <unsigned N> static State fold(State s, T (&x)[N])
    {
        T largest = x[0];
        bool is_usual = !(x[0] != x[0]);
        _Pragma("unroll")
        for (unsigned i = 1; i < N; i++) {
            largest = x[i] > largest ? x[i] : largest;
            is_usual = is_usual && !(x[i] != x[i]);
        }
        const double most = static_cast<double>(largest);
        // Not NaN, infinities, elements that are too far apart, and first ones of integers, which
        // have no smaller one to leave in the largest one's place.
        is_usual = is_usual && fabs(most) <= GPR_EXP_MOST &&
                   (fabs(s.largest) <= GPR_EXP_MOST ||
                    (has_infinity && gpr_exp_is_empty(s.largest)));
        if (!is_usual) return one_by_one(s, x);
        if (most > s.largest) take_largest(s, x, largest);
        const double unit = gpr_exp_exponent(s.largest), floor = s.largest - GPR_EXP_REACH;
        gpr_exp_raise_unit(&s, unit);
        double high = 0, low = 0;
        _Pragma("unroll")
        for (unsigned i = 0; i < N; i++) {
            const double each = static_cast<double>(x[i]);
            const double term = in_units(each < floor ? floor : each, static_cast<int>(unit));
            const double head = is_short ? term : (term + GPR_EXP_SPLITTER) - GPR_EXP_SPLITTER;
            high += head;
            if (!is_short) low += term - head;
        }
        gpr_exp_add(&s, high);
        if (!is_short) gpr_exp_add(&s, low);
        return s;
    }
};
"""
LOGSUMEXP = Operator("logsumexp", _core.sources()["exp_states.h"] + _SOURCE, commutative=True)
"""On a GPU."""


def logsumexp(
    a: ArrayLike,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    out: Any = None,
    where: ArrayLike = True,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Logarithm of the sum of exponentials, ``log(sum(exp(a)))``, as ``scipy.special.logsumexp``.

    Parameters
    ----------
    a : array_like
        Real numbers of dtype bool, any integer, float16, bfloat16 (of ``ml_dtypes``), float32 or
        float64, of any shape, in any layout and byte order. Never changed. It may be in GPU memory,
        of any library (see :func:`sum`).
    axis : None or int or tuple of ints, optional
        Axes to reduce; all of them by default, none for ``()``.
    keepdims : bool, optional
        Whether reduced axes are kept, with length one.
    out : ndarray, optional
        Of the result's shape. Receives the result, converted to its dtype, and is returned.
    where : array_like of bool, optional
        Elements to include; broadcast against `a`.
    dtype : dtype, optional
        Float dtype of the result; by default float64 for bool and integers, else that of `a`.
    device : str, optional
        Where host arrays are reduced, see :func:`sum`.
    block_size, grid_size : int, optional
        Of kernels on a GPU: threads per block, of 32, 64, 128 or 256; blocks per row.
    stream : int or object, optional
        CUDA stream to work on, see :func:`sum`.

    Returns
    -------
    scalar or array
        Of `dtype`. For arrays in GPU memory an array there, of the same library. No elements, and
        none but -infinity, have -infinity; infinity has infinity, and NaN has NaN.

    Raises
    ------
    TypeError
        Complex elements, or another dtype that is not real; a `dtype` that is no float.
    ValueError
        `out` or `where` of another shape.
    numpy.exceptions.AxisError
        `axis` is out of bounds.
    DeviceUnavailableError
        A GPU was asked for and there is none.

    See Also
    --------
    sum : Sums, rounded once.

    Notes
    -----
    One pass over memory. The exponentials are computed in float64, of float32 elements too, and
    summed in two doubles, without the largest element, as ``largest + log1p(others)``. So neither
    many elements nor their order make the error larger, and a result near 0 keeps its digits. In
    units of 2**-53 the error of a float64 result r of n elements is below
    ``8 + 2 * log(n) + 2 * abs(r)``; a float32 result is rounded to nearest, but for sums that are
    within 2**-36 of the middle of two floats.

    SciPy's `b` and `return_sign` are not taken: of positive weights,
    ``logsumexp(a + numpy.log(b))``. Complex elements are refused.

    Determinism: the same bits for any number of threads, and in each call on one GPU with the same
    arguments. The CPU's instruction sets and GPUs may differ in the last bits, within the error
    above.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.logsumexp([1000.0, 1000.0], device="cpu")
    np.float64(1000.6931471805599)
    >>> gr.logsumexp(np.array([[0.0, -500.0], [1.0, 1.0]]), axis=1, device="cpu")
    array([7.12457641e-218, 1.69314718e+000])
    """
    for name, value in (("where", where), ("out", out)):
        if value is not True:
            check_plain(value, name)
    options: Options = ("auto", device, block_size, grid_size, stream)
    library, wrapper = device_library(a), wrapper_of(a)
    if library is not None:
        if wrapper is None:
            check_plain(a, "a")
        return _on_device(library, a, axis, keepdims, out, where, dtype, options)
    array = as_array(from_host(a) if wrapper is not None else a, "a.data")
    result = _on_host(array, axis, bool(keepdims), out, where, dtype, options)
    if wrapper is None or out is not None:
        return result
    return rewrap(a, wrapper, result, "logsumexp")


def _result_dtype(element: str, dtype: Any) -> str:
    """Name of the dtype of results."""
    if element not in _core.DTYPES or element.startswith("complex"):
        raise TypeError(f"logsumexp is not defined for dtype {element}: it takes real numbers")
    if dtype is None:
        return element if is_float(element) else "float64"
    name = name_of(dtype)
    if name not in _core.DTYPES or not is_float(name):
        raise TypeError(f"logsumexp is computed in floats: dtype={dtype!r} is none")
    return name


def _on_host(
    array: Any, axis: Any, keepdims: bool, out: Any, where: Any, dtype: Any, options: Options
) -> Any:
    element = str(array.dtype) if array.dtype.names is not None else array.dtype.name
    result = _result_dtype(element, dtype)
    array = np.asarray(array)
    if out is not None:
        check_host_out(out)
    call = OwnCall(array, axis, None, None, keepdims, NoValue, where, *options)
    if place_of(call) is None:
        mask = as_mask(where, array.shape)
        made = _core.logsumexp(array, native_dtype(result), axis, keepdims, mask)
    else:
        made = np.asarray(LOGSUMEXP.reduce_array(_widened(call, element, result)))
        made = made.astype(native_dtype(result), copy=False)[()]
    if out is None:
        return made
    check_shape(out.shape, np.shape(made), "logsumexp")
    np.copyto(out, made, casting="same_kind")
    return out


def _widened(call: OwnCall, element: str, result: str) -> OwnCall:
    """The call with elements converted first, if that keeps their values."""
    widens = is_float(element) and _core.DTYPES[result][0] > _core.DTYPES[element][0]
    return call._replace(dtype=result) if widens else call


def _on_device(
    library: Library, a: Any, axis: Any, keepdims: bool, out: Any, where: Any, dtype: Any,
    options: Options,
) -> Any:  # fmt: skip
    element = library.read(a).dtype
    given = None if dtype is None else library.dtype(dtype)
    result = _result_dtype(element, given)
    call = OwnCall(a, axis, None, out, keepdims, NoValue, where, *options)
    call = _widened(call, element, result)
    if call.dtype is not None or result == (element if is_float(element) else "float64"):
        return LOGSUMEXP.reduce_array(call)
    made = LOGSUMEXP.reduce_array(call._replace(out=None))
    return _functions.sum(made, (), dtype, out, **placement(options))
