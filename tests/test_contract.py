"""Everything before ``*`` means what it means in NumPy.

Random calls are made twice, with NumPy and with us: dtype, shape, type and the identity of ``out``
must be NumPy's. Values of integers, bools, minima and maxima must be NumPy's bit for bit. Floats
are held to the exact result, which NumPy's own object arithmetic over fractions gives, within

    (n + 2) * eps(accumulator) * sum(|x|) + 2 * eps(result) * (|exact| + |initial|)

where n is the number of elements folded into one result and the accumulator is float32 or wider.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from reference import BFLOAT16, DTYPES, OPERATORS, is_float  # noqa: E402

import gpureduce as gr  # noqa: E402

DEVICES = ["cpu", None, pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)

TAKES_DTYPE = ("sum", "prod", "mean")
TAKES_INITIAL = ("sum", "prod", "min", "max")
UFUNCS = {"sum": np.add, "prod": np.multiply, "mean": np.add}
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
ACCUMULATOR_EPS = {name: min(eps, 2.0**-23) for name, eps in EPS.items()}
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.39e38,
    "float32": 3.4028235e38,
    "float64": sys.float_info.max,
}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}


def name_of(dtype: np.dtype[Any]) -> str:
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


# ---------------------------------------------------------------- random calls


def random_values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], op: str) -> Any:
    """Elements that make ``op`` worth testing and keep its exact result in every dtype's range."""
    if dtype == np.bool_:
        return rng.random(shape) < rng.random()
    if is_float(dtype):
        if op == "prod":  # powers of two: intermediate results are exact
            values = rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.choice([-1, 0, 0, 0, 1], shape)
        elif op in ("any", "all"):
            values = rng.choice([0.0, -0.0, 1.5, np.nan], shape, p=[0.4, 0.2, 0.3, 0.1])
        else:
            values = rng.uniform(-8, 8, shape)
            if rng.random() < 0.2:
                special = rng.choice([np.nan, np.inf, -np.inf])
                values = np.where(rng.random(shape) < 0.1, special, values)
        return values.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if op in ("any", "all") or rng.random() < 0.3:
        low, high = max(low, -2), 2
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


LAYOUTS = (
    "c",
    "fortran",
    "strided",
    "negative",
    "zero stride",
    "byteswapped",
    "misaligned",
    "readonly",
)


def lay_out(values: Any, layout: str) -> Any:
    """The same values (for a zero stride: some of them) in another place or order."""
    if layout == "fortran":
        return np.asfortranarray(values)
    if layout == "strided":
        wide = np.zeros([2 * extent for extent in values.shape], values.dtype)
        view = wide[(..., *(slice(None, None, 2) for _ in values.shape))]
        view[...] = values
        return view
    if layout == "negative":
        reverse = (..., *(slice(None, None, -1) for _ in values.shape))
        return values[reverse].copy()[reverse]
    if layout == "zero stride" and values.ndim > 0 and values.shape[0] > 0:
        return np.broadcast_to(values[:1], values.shape)
    if layout == "byteswapped" and values.dtype != BFLOAT16:
        return values.astype(values.dtype.newbyteorder())
    if layout == "misaligned":
        memory = np.zeros(values.nbytes + 1, np.uint8)
        view = np.ndarray(values.shape, values.dtype, memory, 1)
        view[...] = values
        return view
    if layout == "readonly":
        values = values.copy()
        values.flags.writeable = False
    return values


@st.composite
def calls(draw: Any) -> tuple[str, Any, dict[str, Any]]:
    """An operator, an array and NumPy's keyword arguments."""
    op = draw(st.sampled_from(OPERATORS))
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    shape = draw(
        st.one_of(
            st.lists(st.integers(0, 6), max_size=4).map(tuple),
            st.integers(0, 100 if op == "prod" else 3000).map(lambda n: (n,)),
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keywords: dict[str, Any] = {}
    computed = dtype
    if op in TAKES_DTYPE and draw(st.booleans()):
        computed = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
        keywords["dtype"] = computed
    values = np.asarray(random_values(rng, dtype, shape, op))
    if is_float(dtype) and not is_float(computed):  # C leaves other conversions undefined
        values = np.abs(np.nan_to_num(values.astype(np.float64), posinf=1, neginf=1))
        values = np.asarray(values.astype(dtype))
    if op == "prod" and is_float(computed) and not is_float(dtype):
        values = np.asarray(values % np.asarray(3).astype(dtype)) if dtype != np.bool_ else values
    if op == "mean" and not is_float(computed) and computed.itemsize == 8:
        values = np.asarray(values % values.dtype.type(5))  # else the quotient may not fit: undefined
    array = lay_out(values, draw(st.sampled_from(LAYOUTS)))
    if shape and draw(st.booleans()):
        axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
        axes = [i - len(shape) if draw(st.booleans()) else i for i in axes]
        keywords["axis"] = axes[0] if len(axes) == 1 and draw(st.booleans()) else tuple(axes)
    if draw(st.booleans()):
        keywords["keepdims"] = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        keywords["where"] = rng.random(shape[draw(st.integers(0, len(shape))) :]) < rng.random()
    needs_initial = op in ("min", "max") and "where" in keywords
    if op in TAKES_INITIAL and (needs_initial or draw(st.integers(0, 3)) == 0):
        keywords["initial"] = draw(st.sampled_from([0, 1, 2, True] if op != "prod" else [1, 2, True]))
    return op, array, keywords


def outcome(call: Callable[[], Any]) -> tuple[Any, type[BaseException] | None]:
    """A call's result, or the class of what it raised."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return call(), None
        except (ValueError, TypeError, OverflowError) as error:
            return None, type(error)


# ---------------------------------------------------------------- comparing


def exact_result(op: str, array: Any, computed: np.dtype[Any], keywords: dict[str, Any]) -> Any:
    """Exact results, sums of magnitudes, what infinities and NaN make of it, and counts."""
    with np.errstate(all="ignore"):
        elements = np.asarray(array.astype(computed).astype(np.float64))
    options = {k: v for k, v in keywords.items() if k in ("axis", "keepdims", "where")}
    finite = np.asarray(np.isfinite(elements))
    fractions = np.empty(elements.shape, object)
    fractions[...] = Fraction(0 if op != "prod" else 1)
    for index in np.ndindex(elements.shape):
        if finite[index]:
            fractions[index] = Fraction(float(elements[index]))
    start = Fraction(keywords["initial"]) if "initial" in keywords else Fraction(int(op == "prod"))
    exact = np.asarray(UFUNCS[op].reduce(fractions, initial=start, **{"axis": None} | options))
    scale = np.asarray(UFUNCS[op].reduce(np.abs(fractions), initial=abs(start), **{"axis": None} | options))
    with np.errstate(all="ignore"):
        special = np.asarray(UFUNCS[op].reduce(np.where(finite, op == "prod", elements), **{"axis": None} | options))
        mask = np.broadcast_to(keywords.get("where", True), elements.shape)
        count = np.asarray(
            np.add.reduce(
                mask,
                dtype=np.int64,
                **{"axis": None} | {k: v for k, v in options.items() if k != "where"},
            )
        )
    return exact, scale, special, count


def to_float(fraction: Fraction) -> float:
    try:
        return float(fraction)
    except OverflowError:
        return math.copysign(math.inf, fraction)


def assert_near(result: Any, op: str, array: Any, computed: np.dtype[Any], keywords: dict[str, Any]) -> None:
    """Hold each element of a float result to the exact one."""
    name = name_of(result.dtype)
    accumulated = name_of(computed) if is_float(computed) else "float64"
    exact, scale, special, count = exact_result(op, array, computed, keywords)
    for index in np.ndindex(exact.shape):
        got, n = float(np.asarray(result)[index]), int(count[index])
        if op == "mean" and n == 0:
            assert math.isnan(got)
            continue
        if not math.isfinite(special[index]):
            assert got == special[index] or (math.isnan(got) and math.isnan(special[index]))
            continue
        divisor = n if op == "mean" else 1
        expected = to_float(exact[index] / divisor)
        magnitude = to_float(scale[index] / divisor)
        bound = (n + 2) * ACCUMULATOR_EPS[accumulated] * magnitude + 3 * EPS[name] * abs(expected)
        bound += EPS[name] * abs(float(keywords.get("initial", 0))) + SMALLEST[name]
        if abs(expected) + bound > LARGEST[name]:
            assert math.isinf(got) or abs(got - expected) <= bound
            continue
        assert abs(got - expected) <= bound, f"{got} is not {expected} +- {bound}"


def assert_same(result: Any, expected: Any) -> None:
    """Bit for bit, any NaN being like any other."""
    result, expected = np.asarray(result), np.asarray(expected)
    if is_float(expected.dtype):
        result, expected = result.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(result, expected)


def assert_contract(op: str, array: Any, keywords: dict[str, Any], device: str | None) -> None:
    expected, numpy_error = outcome(lambda: getattr(np, op)(array, **keywords))
    result, our_error = outcome(lambda: getattr(gr, op)(array, **keywords, device=device))
    if numpy_error is not None or our_error is not None:
        assert numpy_error is not None, f"NumPy gives {expected!r}, gpureduce raises {our_error}"
        assert our_error is not None, f"NumPy raises {numpy_error}, gpureduce gives {result!r}"
        assert issubclass(our_error, builtin_class(numpy_error))
        return
    assert type(result) is type(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    computed = np.dtype(keywords.get("dtype", expected.dtype))
    if op in TAKES_DTYPE and is_float(computed):
        assert_near(result, op, array, computed, keywords)
    else:
        assert_same(result, expected)


def builtin_class(error: type[BaseException]) -> type[BaseException]:
    """The class a caller would catch: NumPy's own subclasses of TypeError are not public."""
    for public in (np.exceptions.AxisError, OverflowError, TypeError, ValueError):
        if issubclass(error, public):
            return public
    return error


# ---------------------------------------------------------------- the tests


@on_devices
@given(call=calls())
def test_random_calls_agree_with_numpy(device: str | None, call: Any) -> None:
    op, array, keywords = call
    assert_contract(op, array, keywords, device)


@on_devices
@given(call=calls(), where_to=st.sampled_from(sorted(DTYPES)), swapped=st.booleans())
def test_out_receives_what_numpy_would_put_there(device: str | None, call: Any, where_to: str, swapped: bool) -> None:
    op, array, keywords = call
    keywords.pop("initial", None) if op not in ("min", "max") else None
    # Small whole numbers are exact in every type, so that conversions round nothing on the way.
    with np.errstate(all="ignore"):
        array = np.nan_to_num(array.astype(np.float64)).astype(np.int64) % 2
    array = array.astype(np.uint8)
    keywords.pop("dtype", None)
    expected, error = outcome(lambda: getattr(np, op)(array, **keywords))
    if error is not None or np.size(expected) == 0 or np.any(np.isnan(np.asarray(expected, float))):
        return
    target = DTYPES[where_to]
    if op == "prod" or (op == "mean" and not is_float(target)):
        target = np.dtype(np.float64)
    if swapped and target != BFLOAT16:
        target = target.newbyteorder()
    theirs = np.zeros(np.shape(expected), target)
    ours = theirs.copy()
    _, numpy_error = outcome(lambda: getattr(np, op)(array, out=theirs, **keywords))
    assert numpy_error is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert getattr(gr, op)(array, out=ours, device=device, **keywords) is ours
    if op == "sum" and is_float(target):  # NumPy rounds at every step in narrow types
        theirs[...] = np.asarray(expected).astype(target)
    if op == "mean":
        np.testing.assert_allclose(
            ours.astype(float),
            theirs.astype(float),
            rtol=4 * EPS[name_of(target.newbyteorder("="))],
        )
    else:
        assert_same(ours, theirs)


@on_devices
@pytest.mark.parametrize("op", OPERATORS)
def test_reduce_is_the_named_function(op: str, device: str | None) -> None:
    a = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for keywords in ({}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}):
        named = getattr(gr, op)(a, device=device, **keywords)
        by_name = gr.reduce(a, op, device=device, **keywords)
        assert type(named) is type(by_name)
        np.testing.assert_array_equal(named, by_name)
        assert named.dtype == by_name.dtype


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "axis past the end": lambda m: m.sum(A, axis=2),
    "axis before the start": lambda m: m.max(A, axis=-3),
    "axis past the end in a tuple": lambda m: m.sum(A, axis=(0, 5)),
    "axis of a scalar": lambda m: m.sum(5, axis=1),
    "axis tuple of a scalar": lambda m: m.sum(5, axis=(0,)),
    "axis 0 of a scalar's mean": lambda m: m.mean(5, axis=0),
    "same axis twice": lambda m: m.sum(A, axis=(0, -2)),
    "axis list": lambda m: m.sum(A, axis=[0]),
    "axis float": lambda m: m.sum(A, axis=0.0),
    "axis bool": lambda m: m.sum(A, axis=True),
    "axis string": lambda m: m.sum(A, axis="x"),
    "axis huge": lambda m: m.sum(A, axis=2**70),
    "mean axis past the end": lambda m: m.mean(A, axis=7, where=[True, False, True]),
    "mean axis list": lambda m: m.mean(A[:0], axis=[0]),
    "keepdims string": lambda m: m.sum(A, keepdims="x"),
    "keepdims None": lambda m: m.sum(A, keepdims=None),
    "dtype unknown": lambda m: m.sum(A, dtype="foo"),
    "dtype in another byte order": lambda m: m.sum(A, dtype=np.dtype("f4").newbyteorder()),
    "dtype of dates": lambda m: m.sum(A, dtype="M8[s]"),
    "dtype of strings": lambda m: m.sum(A, dtype="S"),
    "out not an array": lambda m: m.sum(A, axis=0, out=[1]),
    "out tuple": lambda m: m.sum(A, axis=0, out=(np.zeros(3),)),
    "out read-only": lambda m: m.sum(A, axis=0, out=READ_ONLY),
    "out with more axes": lambda m: m.sum(A, out=np.zeros(1)),
    "out with fewer axes": lambda m: m.sum(A, axis=0, out=np.zeros(())),
    "out too short": lambda m: m.sum(A, axis=0, out=np.zeros(2)),
    "out to broadcast": lambda m: m.sum(A, axis=0, out=np.zeros(1)),
    "out of dates": lambda m: m.max(A, out=np.zeros((), "M8[s]")),
    "out of strings": lambda m: m.sum(A, out=np.zeros((), "S8")),
    "where with more axes": lambda m: m.sum(A, where=np.ones((2, 2, 3), bool)),
    "where of another shape": lambda m: m.sum(A, where=np.ones(4, bool)),
    "where broader than the array": lambda m: m.sum(A[:1], where=np.ones((2, 3), bool)),
    "where of integers": lambda m: m.sum(A, where=np.array([1, 0, 1])),
    "min with where": lambda m: m.min(A, where=[True, False, True]),
    "min with where that is always true": lambda m: m.min(A, where=np.True_),
    "max with where and no initial": lambda m: m.max(A, where=[True, False, True], initial=None),
    "sum with where and no initial": lambda m: m.sum(A, where=[True, False, True], initial=None),
    "min of nothing": lambda m: m.min(A[:0]),
    "max of nothing along an axis": lambda m: m.max(A[:0], axis=0),
    "max of nothing, no times": lambda m: m.max(np.zeros((0, 0)), axis=1),
    "min of nothing with where": lambda m: m.min(A[:0], where=np.ones((0, 3), bool)),
    "sum of nothing without initial": lambda m: m.sum(A[:0], initial=None),
    "initial out of range": lambda m: m.min(A.astype(np.int8), initial=300),
    "initial negative for unsigned": lambda m: m.sum(A.astype(np.uint8), initial=-1),
    "initial NaN for integers": lambda m: m.sum(A.astype(int), initial=float("nan")),
    "initial string": lambda m: m.sum(A, initial="x"),
    "initial list": lambda m: m.sum(A, axis=0, initial=[1, 2, 3]),
    "initial complex": lambda m: m.sum(A, initial=1j),
    "ragged lists": lambda m: m.sum([[1], [1, 2]]),
    "dates": lambda m: m.sum(np.zeros(3, "M8[s]")),
    "strings": lambda m: m.sum(np.array(["a"])),
    "records": lambda m: m.sum(np.zeros(2, [("a", "f4")])),
    "an unknown argument": lambda m: m.sum(A, bogus=1),
    "min has no dtype": lambda m: m.min(A, dtype=np.float32),
    "any has no initial": lambda m: m.any(A, initial=True),
}
A = np.arange(6.0).reshape(2, 3)
READ_ONLY = np.zeros(3)
READ_ONLY.flags.writeable = False


@on_devices
@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_arguments_raise_what_numpy_raises(case: str, device: str | None) -> None:
    class Ours:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **keywords: getattr(gr, name)(*args, **keywords, device=device)

    with pytest.raises((ValueError, TypeError, OverflowError)) as theirs:
        ARGUMENTS[case](np)
    with pytest.raises((ValueError, TypeError, OverflowError)) as ours:
        ARGUMENTS[case](Ours())
    assert issubclass(ours.type, builtin_class(theirs.type))
    assert str(ours.value)


GOOD: dict[str, Callable[[Any], Any]] = {
    "list": lambda m: m.sum([[1, 2], [3, 4]], axis=0),
    "list of bools": lambda m: m.mean([True, False]),
    "Python int": lambda m: m.sum(5),
    "Python float": lambda m: m.max(2.5),
    "Python bool": lambda m: m.prod(True),
    "NumPy scalar": lambda m: m.sum(np.float32(5), axis=-1),
    "0-d array": lambda m: m.sum(np.array(5), axis=0, keepdims=True),
    "0-d array, no axes": lambda m: m.mean(np.array(5), axis=()),
    "nested range": lambda m: m.min([range(3), range(1, 4)], axis=1),
    "object with __array__": lambda m: m.sum(WithArray()),
    "axis from an array": lambda m: m.sum(A, axis=np.array(1)),
    "no axes": lambda m: m.sum(A.astype(np.int8), axis=()),
    "no axes, max": lambda m: m.max(A.astype(">i4"), axis=()),
    "where list of integers": lambda m: m.sum(A, where=[1, 0, 1]),
    "where None": lambda m: m.sum(A, where=None),
    "where False": lambda m: m.prod(A, where=False),
    "mean where": lambda m: m.mean(A, axis=0, where=[True, False, True]),
    "mean where, half": lambda m: m.mean(A.astype(np.float16), where=[True, True, False]),
    "initial None": lambda m: m.min(A, initial=None),
    "initial truncated": lambda m: m.min(A.astype(np.int8) + 3, initial=2.5),
    "initial 0-d": lambda m: m.sum(A, axis=0, initial=np.array(3)),
    "initial of nothing": lambda m: m.min(np.zeros((0, 3), np.float32), axis=0, initial=4),
    "initial of nothing, kept": lambda m: m.max(np.zeros((0, 3), ">i2"), initial=4, keepdims=True),
    "nothing, many times": lambda m: m.min(np.zeros((0, 3)), axis=1),
    "mean of nothing": lambda m: m.mean([]),
    "mean of nothing, rows": lambda m: m.mean(np.zeros((0, 3)), axis=0),
    "mean of nothing, no rows": lambda m: m.mean(np.zeros((0, 3)), axis=1),
    "mean in integers": lambda m: m.mean(np.array([-1, -2]), dtype=int),
    "mean in int8": lambda m: m.mean(np.full(10, 100), dtype=np.int8),
    "mean in bool": lambda m: m.mean(np.array([1, 0, 2]), dtype=bool),
    "sum in bool": lambda m: m.sum(np.array([1, 0, 2]), dtype=bool),
    "prod in bool": lambda m: m.prod(np.array([1, 0, 2]), dtype=bool),
    "sum wraps": lambda m: m.sum(np.full(4, 2**62)),
    "uint64": lambda m: m.max(np.array([2**64 - 1, 0], np.uint64)),
    "long long": lambda m: m.sum(np.zeros(3, "q")).dtype.char,
    "long long, min": lambda m: m.min(np.zeros(3, "q")).dtype.char,
    "unsigned long long, dtype": lambda m: m.sum(A, dtype="Q").dtype.char,
    "64 axes": lambda m: m.sum(np.ones((1,) * 64)),
    "matrix": lambda m: m.sum(np.matrix(A)),
    "matrix, axis": lambda m: m.sum(np.matrix(A), axis=1),
    "subclass": lambda m: m.mean(A.view(Sub), axis=0),
    "subclass, scalar": lambda m: m.sum(A.view(Sub)),
    "out int": lambda m: m.sum(A, out=np.zeros((), np.int32)),
    "out bool": lambda m: m.sum(A, out=np.zeros((), bool)),
    "out narrow": lambda m: m.sum(np.full(10, 100), out=np.zeros((), np.int8)),
    "out wide": lambda m: m.sum(np.full(10, 100, np.int8), out=np.zeros((), np.float32)),
    "out and dtype": lambda m: m.sum(A, dtype=np.int32, out=np.zeros(())),
    "out of mean": lambda m: m.mean(A, out=np.zeros((), np.int32)),
    "out of mean, half": lambda m: m.mean(A.astype("e"), out=np.zeros((), "e")),
    "out of any": lambda m: m.any(A, axis=1, out=np.zeros(2)),
    "out overlaps": lambda m: (lambda a: m.sum(a, axis=0, out=a[0]))(A.copy()),
}  # fmt: skip


class WithArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(4.0)


class Sub(np.ndarray):
    pass


@on_devices
@pytest.mark.parametrize("case", GOOD)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::RuntimeWarning")
def test_unusual_arguments_give_what_numpy_gives(case: str, device: str | None) -> None:
    class Ours:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **keywords: getattr(gr, name)(*args, **keywords, device=device)

    expected, result = GOOD[case](np), GOOD[case](Ours())
    assert type(result) is type(expected)
    if isinstance(expected, str):
        assert result == expected
        return
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


@on_devices
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_mean_of_nothing_warns_as_numpy_does(device: str | None) -> None:
    for array, keywords in (
        (np.zeros(0), {}),
        (np.zeros((0, 2)), {"axis": 0}),
        (A, {"where": False}),
    ):
        with pytest.warns(RuntimeWarning, match="Mean of empty slice") as caught:
            assert np.all(np.isnan(gr.mean(array, **keywords, device=device)))
        ours = [str(one.message) for one in caught if "Mean of" in str(one.message)]
        assert len(ours) == 1
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, object),
        np.zeros(3, np.longdouble),
        np.zeros(3, "m8[s]"),
        np.zeros(3, "M8[s]"),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        np.zeros(2, [("x", np.float32)]),
    ],
    ids=lambda array: array.dtype.kind + str(array.dtype.itemsize),
)
@pytest.mark.parametrize("op", OPERATORS)
def test_other_dtypes_are_refused_by_name(op: str, array: Any) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(gr, op)(array)
    assert str(array.dtype) in str(caught.value)
    assert "float32" in str(caught.value)


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="masked arrays are not supported"):
        gr.sum(np.ma.masked_array([1, 2], [True, False]))


class OnDevice:
    """What CuPy's and Numba's arrays look like."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012


class OnDeviceByDlpack:
    """What JAX's arrays look like; the host's are fine."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.kind != 1:
            raise AssertionError("a hidden copy")
        return np.ones(3)


@pytest.mark.parametrize("array", [OnDevice(), OnDeviceByDlpack(2), OnDeviceByDlpack(13)])
def test_device_arrays_are_refused_without_a_hidden_copy(array: Any) -> None:
    with pytest.raises(TypeError, match="device arrays are not supported yet") as caught:
        gr.sum(array)
    assert "host" in str(caught.value)
    assert gr.sum(OnDeviceByDlpack(1)) == 3


@on_devices
def test_memory_mapped_arrays_are_arrays(device: str | None, tmp_path: Any) -> None:
    values = np.arange(10_000, dtype=np.int32)
    values.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.int32, "r", shape=(100, 100))
    assert gr.sum(mapped, device=device) == values.sum()
    assert type(gr.sum(mapped, device=device)) is type(np.sum(mapped))
    by_rows = gr.max(mapped, axis=1, device=device)
    np.testing.assert_array_equal(by_rows, np.max(mapped, axis=1))


@on_devices
def test_input_is_never_changed(device: str | None) -> None:
    for op, layout in itertools.product(OPERATORS, LAYOUTS):
        array = lay_out(np.arange(1, 25, dtype=np.float32).reshape(4, 6), layout)
        before = array.copy()
        getattr(gr, op)(array, axis=0, device=device)
        np.testing.assert_array_equal(array, before)


# ---------------------------------------------------------------- options


def test_kernel_names_and_aliases_are_checked_on_the_cpu_too() -> None:
    a = np.arange(100, dtype=np.int32)
    for kernel in gr.kernels():
        for name in (kernel.name, *kernel.aliases):
            assert gr.sum(a, kernel=name, device="cpu") == a.sum()
    with pytest.raises(ValueError, match="did you mean 'sequential'"):
        gr.sum(a, kernel="sequentail", device="cpu")
    with pytest.raises(ValueError, match="unknown kernel"):
        gr.sum([1, 2], kernel="", device="cpu")
    with pytest.raises(TypeError, match="kernel must be a string"):
        gr.sum(a, kernel=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null character"):
        gr.sum(a, kernel="auto\0", device="cpu")


def test_block_and_grid_sizes_are_checked_on_the_cpu_too() -> None:
    a = np.arange(100, dtype=np.int32)
    assert gr.sum(a, kernel="sequential", block_size=64, device="cpu") == a.sum()
    assert gr.sum(a, kernel="multi_add", grid_size=7, device="cpu") == a.sum()
    for size in (0, -1, 2**40, 33, 100, 2048):
        with pytest.raises(ValueError, match="block"):
            gr.sum(a, kernel="sequential", block_size=size, device="cpu")
    with pytest.raises(ValueError, match="grid_size"):
        gr.sum(a, kernel="sequential", grid_size=4, device="cpu")
    with pytest.raises(TypeError):
        gr.sum(a, block_size=64.0, device="cpu")  # type: ignore[arg-type]


def test_device_names_are_checked() -> None:
    for name in ("gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "CPU", ""):
        with pytest.raises(ValueError, match="unknown device"):
            gr.sum(A, device=name)
    with pytest.raises(TypeError, match="device must be a string"):
        gr.sum(A, device=0)  # type: ignore[arg-type]
    assert gr.sum(A, device="auto") == A.sum()


def test_cuda_without_a_gpu_says_why() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    for device in ("cuda", "cuda:0", "cuda:1"):
        with pytest.raises(gr.DeviceUnavailableError) as caught:
            gr.sum(A, device=device)
        assert "driver" in str(caught.value)


def test_streams_are_handles_or_objects_that_have_one() -> None:
    class Cupy:
        ptr = 0

    class Torch:
        cuda_stream = 0

    for stream in (0, Cupy(), Torch()):
        assert gr.sum(A, stream=stream, device="cpu") == A.sum()
    for stream in (-1, 2**64):
        with pytest.raises(ValueError, match="stream"):
            gr.sum(A, stream=stream, device="cpu")
    with pytest.raises(TypeError, match="stream"):
        gr.sum(A, stream="0", device="cpu")


def test_operators_of_reduce_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown operator 'median'"):
        gr.reduce(A, "median")
    with pytest.raises(TypeError, match="mean takes no initial"):
        gr.reduce(A, "mean", initial=0)
    with pytest.raises(TypeError, match="max computes in"):
        gr.reduce(A, "max", dtype=np.float32)


def run_fresh(code: str) -> str:
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_named_kernel_without_a_gpu_warns_once_at_the_callers_line() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    code = (
        "import warnings, numpy as np, gpureduce as gr\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    gr.sum(np.ones(3)); gr.sum(np.ones(3), kernel='auto')\n"
        "    gr.sum(np.ones(3), kernel='sequential', device='cpu')\n"
        "    print(len(caught))\n"
        "    gr.{call}\n"
        "    gr.sum(np.ones(3), kernel='naive_atomic'); gr.empty_pinned(3)\n"
        "    print(len(caught), caught[0].category is gr.NoDeviceWarning, caught[0].filename)\n"
    )
    calls = (
        "sum(np.ones(3), kernel='sequential')",
        "sum([1, 2], kernel='sequential')",
        "empty_pinned(3)",
    )
    for call in calls:
        assert run_fresh(code.format(call=call)).split() == ["0", "1", "True", "<string>"]


# ---------------------------------------------------------------- looking inside


def test_last_run_says_what_happened_in_this_thread() -> None:
    a = np.ones((10, 100), np.float32)
    gr.sum(a, axis=1, kernel="sequential", device="cpu")
    run = gr.last_run()
    assert run is not None
    assert (run.device, run.kernel, run.elements, run.bytes) == ("cpu", "sequential", 1000, 4000)
    assert run.seconds > 0
    assert run.chunks == 1
    seen = []
    other = threading.Thread(target=lambda: seen.append(gr.last_run()))
    other.start()
    other.join()
    assert seen == [None]


def test_kernels_are_complete_records() -> None:
    kernels = gr.kernels()
    names = [kernel.name for kernel in kernels]
    assert len(set(names)) == len(names)
    assert names[-1] == "auto"
    for kernel in kernels:
        assert kernel.summary
        assert kernel.removes
        assert kernel.pays
        assert kernel.source
        assert kernel.block_size % 32 == 0
        assert kernel.available == (kernel.reason == "")
    with pytest.raises(AttributeError):
        kernels[0].name = "other"  # type: ignore[misc]


def test_kernel_source_is_what_is_in_the_tree() -> None:
    import pathlib

    folder = pathlib.Path(__file__).parents[1] / "csrc" / "kernels"
    for kernel in gr.kernels():
        text = gr.kernel_source(kernel.name)
        if folder.exists():
            assert text in {file.read_text() for file in folder.glob("*.cuh")}
        whole = gr.kernel_source(kernel.name, helpers=True)
        assert whole.endswith(text)
        assert len(whole) > len(text)
    assert gr.kernel_source("reduce2") == gr.kernel_source("sequential")
    with pytest.raises(ValueError, match="unknown kernel"):
        gr.kernel_source("reduce99")


def test_limits_can_be_set_and_bad_ones_change_nothing() -> None:
    before = gr.limits()
    try:
        gr.set_limits(cpu_threads=1)
        assert gr.limits().cpu_threads == 1
        assert gr.limits().device_bytes == before.device_bytes
        gr.set_limits(device_bytes=2**21, pinned_bytes=2**22)
        assert (gr.limits().device_bytes, gr.limits().pinned_bytes) == (2**21, 2**22)
        now = gr.limits()
        for bad in (
            {"cpu_threads": 0},
            {"cpu_threads": -1},
            {"cpu_threads": 2**40},
            {"device_bytes": 1},
        ):
            with pytest.raises(ValueError, match=r"limit|thread|MiB|bytes"):
                gr.set_limits(**bad)
            assert gr.limits() == now
        with pytest.raises(TypeError):
            gr.set_limits(cpu_threads="2")  # type: ignore[arg-type]
    finally:
        gr.set_limits(
            device_bytes=before.device_bytes,
            pinned_bytes=before.pinned_bytes,
            cpu_threads=before.cpu_threads,
        )


def test_cache_can_be_looked_at_and_cleared() -> None:
    gr.clear_cache(loaded=True)
    info = gr.cache_info()
    assert info.entries == 0
    assert info.bytes == 0
    assert info.directory or info.reason


@pytest.mark.filterwarnings("ignore::gpureduce.NoDeviceWarning")
def test_pinned_arrays_are_ordinary_arrays_to_numpy() -> None:
    a = gr.empty_pinned((3, 4), np.float32)
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert (a.shape, a.dtype) == ((3, 4), np.dtype(np.float32))
    a[...] = 2
    view = a[1:]
    del a
    assert gr.sum(view) == 16
    source = np.asfortranarray(np.arange(6).reshape(2, 3))
    copy = gr.pinned_copy(source)
    np.testing.assert_array_equal(copy, source)
    assert not np.shares_memory(copy, source)
    assert gr.empty_pinned(0).size == 0
    assert gr.empty_pinned((), "i4").shape == ()
    with pytest.raises(TypeError, match="Python objects"):
        gr.empty_pinned(3, object)
    with pytest.raises(ValueError, match="negative"):
        gr.empty_pinned((2, -1))


# ---------------------------------------------------------------- threads and signals


@on_devices
def test_many_threads_at_once_get_their_own_results(device: str | None) -> None:
    arrays = [np.full(50_000 + i, i, np.int64) for i in range(8)]
    wrong = []

    def work(i: int) -> None:
        for _ in range(50):
            if gr.sum(arrays[i], device=device) != i * len(arrays[i]):
                wrong.append(i)
            if gr.last_run().elements != len(arrays[i]):  # type: ignore[union-attr]
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_while_a_reduction_does() -> None:
    a = np.broadcast_to(np.float32(1), (2_000_000_000,))[::1]
    ticks = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(0)

    ticker = threading.Thread(target=tick)
    ticker.start()
    gr.sum(a, device="cpu")
    done.set()
    ticker.join()
    assert len(ticks) > 5


def test_ctrl_c_stops_a_long_reduction_and_the_next_call_works() -> None:
    code = (
        "import signal, time, numpy as np, gpureduce as gr\n"
        "a = np.broadcast_to(np.float32(1), (2**40,))\n"
        "def stop(*_): raise KeyboardInterrupt('stop')\n"
        "signal.signal(signal.SIGALRM, stop)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "start = time.perf_counter()\n"
        "try: gr.sum(a, device='cpu')\n"
        "except KeyboardInterrupt as error: print(error, time.perf_counter() - start < 5)\n"
        "print(gr.sum(np.ones(10), device='cpu'))\n"
    )
    assert run_fresh(code).split() == ["stop", "True", "10.0"]


def test_no_reference_is_leaked_on_any_path() -> None:
    import gc
    import tracemalloc

    a, small = np.ones((50, 40), np.float32), np.zeros((), np.float64)

    def every_path() -> None:
        gr.sum(a, device="cpu")
        gr.sum(a, axis=0, keepdims=True, dtype=np.float64, device="cpu")
        gr.mean(a, out=small, where=a > 0, device="cpu")
        gr.kernels(), gr.last_run(), gr.limits(), gr.cache_info(), gr.kernel_source("auto")
        for bad in (
            {"axis": 9},
            {"kernel": "?"},
            {"dtype": "O"},
            {"device": "cuda:77"},
            {"block_size": 3},
        ):
            with pytest.raises((ValueError, TypeError, RuntimeError)):
                gr.sum(a, **bad)

    for _ in range(20):
        every_path()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    counts = [sys.getrefcount(x) for x in (a, a.dtype, np.dtype(np.float64), None)]
    for _ in range(200):
        every_path()
    gc.collect()
    after = [sys.getrefcount(x) for x in (a, a.dtype, np.dtype(np.float64), None)]
    grown = sum(stat.size_diff for stat in tracemalloc.take_snapshot().compare_to(before, "filename"))
    tracemalloc.stop()
    assert grown < 200_000
    assert all(abs(x - y) < 100 for x, y in zip(counts, after, strict=True))
