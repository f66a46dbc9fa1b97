"""Random calls made twice, with NumPy and with us, and the comparison of their results.

Dtype, shape and type of results, the identity of ``out``, warnings and the class of exceptions are
NumPy's. So are the values of integers, truths, positions, extremes and dates, bit for bit. Sums,
products and means of floats are held to what extended precision gives, within

    (n + 2) * eps(accumulator) * sum(|x|) + 3 * eps(result) * |exact|,

where n is the number of elements folded into one result and the accumulator is float32 or wider;
variances alike, over squared distances in float64. All else that may differ has a row in
docs/differences.md, and ``test_differential.py`` an excuse for it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from reference import BFLOAT16, DTYPES, is_float

import gpureduce as gr

FAMILIES: dict[str, tuple[str, ...]] = {
    "sum": ("dtype", "out", "initial", "where"),
    "min": ("out", "initial", "where"),
    "bits": ("out", "initial", "where"),
    "truth": ("out", "where"),
    "mean": ("dtype", "out", "where"),
    "var": ("dtype", "out", "where", "ddof", "mean"),
    "position": ("out",),
    "span": ("out",),
    "count": (),
    "pair": ("out", "initial", "where"),
}
FAMILY_OF = {
    "sum": "sum", "prod": "sum", "nansum": "sum", "nanprod": "sum",
    "min": "min", "max": "min", "nanmin": "min", "nanmax": "min",
    "bitwise_and": "bits", "bitwise_or": "bits", "bitwise_xor": "bits", "logical_xor": "bits",
    "any": "truth", "all": "truth",
    "mean": "mean", "nanmean": "mean",
    "var": "var", "std": "var", "nanvar": "var", "nanstd": "var",
    "argmin": "position", "argmax": "position", "nanargmin": "position", "nanargmax": "position",
    "ptp": "span", "count_nonzero": "count", "minmax": "pair",
}  # fmt: skip
NAMES = tuple(FAMILY_OF)
ROUNDED = ("sum", "mean", "var")
"""Families whose floats are held to a bound."""

TIMES = {name: np.dtype(name) for name in ("M8[s]", "M8[D]", "m8[ms]")}
COMPLEX = {name: np.dtype(name) for name in ("complex64", "complex128")}
ELEMENTS: dict[str, np.dtype[Any]] = DTYPES | COMPLEX | TIMES

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 5e-324}
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.389e38,
    "float32": 3.4028235e38,
    "float64": 1.7976931348623157e308,
}

LAYOUTS = (
    "c", "fortran", "permuted", "strided", "negative", "zero stride", "broadcast", "overlapping",
    "byteswapped", "misaligned", "readonly",
)  # fmt: skip


MOST_EXACT = 100
"""Sums of so many whole numbers up to two are exact in bfloat16 too."""


def settle_numpy() -> None:
    """Reduce all types as bfloat16: until then NumPy refuses that into an ``out`` of bfloat16."""
    for ufunc in (np.add, np.multiply):
        for dtype in (DTYPES | COMPLEX).values():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of imaginary parts
                ufunc.reduce(np.ones(1, dtype), dtype=BFLOAT16)


def warns_of_imaginary_parts() -> bool:
    """Whether a conversion of complex numbers to bfloat16 warns: from ml_dtypes 0.7 on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        np.ones(1, np.complex64).astype(BFLOAT16)
    return bool(caught)


if BFLOAT16 is not None:
    settle_numpy()

BFLOAT16_WARNS = BFLOAT16 is not None and warns_of_imaginary_parts()


IS_BEFORE_2_2, IS_BEFORE_2_3, IS_BEFORE_2_4 = (
    np.lib.NumpyVersion(np.__version__) < version for version in ("2.2.0", "2.3.0", "2.4.0")
)


def as_newest(result: Any) -> Any:
    """A result as newer versions of NumPy return it: counts are NumPy's integers."""
    return np.intp(result) if IS_BEFORE_2_3 and type(result) is int else result


def text_of_newest(message: str) -> str:
    """The message of newer versions of NumPy."""
    if IS_BEFORE_2_4 and message == "Mean of empty slice.":
        return message.rstrip(".")
    return message


class Sub(np.ndarray):
    """A subclass that changes nothing."""


class Wrapped(np.ndarray):
    """A subclass that wraps results by the rules of NumPy 1."""

    def __array_wrap__(self, array: Any, context: Any = None) -> Any:  # type: ignore[override]
        return np.asarray(array).view(Wrapped)


def _returns_nothing(*_: Any, **__: Any) -> Any:
    return NotImplemented


class WithUfunc(np.ndarray):
    """A subclass with rules of its own for ufuncs."""

    __array_ufunc__ = _returns_nothing  # type: ignore[assignment]


class WithoutUfuncs(np.ndarray):
    """A subclass that no ufunc takes."""

    __array_ufunc__ = None  # type: ignore[assignment]


class WithFunction:
    """An array-like with rules of its own for functions."""

    __array_function__ = _returns_nothing

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class TakesPart(WithUfunc):
    """A subclass with rules of its own that makes its own of our results, which are left as they
    are here."""

    def __gpureduce_wrap__(self, result: Any, name: str) -> Any:
        return result


RULES = {
    WithUfunc: "__array_ufunc__",
    WithoutUfuncs: "__array_ufunc__",
    WithFunction: "__array_function__",
}
"""Types with rules of their own, and the name of the rule."""

SUBCLASSES = {"subclass": Sub, "wrap": Wrapped, "memmap": np.memmap, "records": np.recarray}
if IS_BEFORE_2_3:  # NumPy has other rules for the NaN of memmaps
    del SUBCLASSES["memmap"]


@dataclass
class Case:
    """A function, its arguments, and its elements."""

    name: str
    array: Any
    given: Any
    keywords: dict[str, Any] = field(default_factory=dict)
    mistake: str = ""

    @property
    def family(self) -> str:
        return FAMILY_OF[self.name]

    @property
    def skips_nan(self) -> bool:
        return self.name.startswith("nan")


def name_of(dtype: np.dtype[Any]) -> str:
    """Name of the real type of a dtype's parts."""
    if dtype == BFLOAT16:
        return "bfloat16"
    return {"complex64": "float32", "complex128": "float64"}.get(
        dtype.name, dtype.newbyteorder("=").name
    )


def is_inexact(dtype: np.dtype[Any]) -> bool:
    return is_float(dtype.newbyteorder("=")) or dtype.kind == "c"


def has_nan(array: Any) -> bool:
    array = np.asarray(array)
    return is_inexact(array.dtype) and bool(np.any(array != array))


# ---------------------------------------------------------------- drawing


def random_values(
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    case: str,
    whole: bool,
    far: bool = False,
) -> Any:
    """Elements that make a function worth testing and keep its exact result in every dtype's range.

    `whole` asks for small whole numbers, of which every order of sums is exact in every dtype,
    `far` for factors that leave the range of doubles on the way to a product.
    """
    if dtype.kind in "mM":
        numbers = rng.integers(-50, 50, shape)
        if rng.random() < 0.3:
            numbers = np.where(rng.random(shape) < 0.2, np.iinfo(np.int64).min, numbers)
        return (
            numbers.astype(np.int64).view(dtype)
            if shape
            else np.array(numbers, np.int64).view(dtype)
        )
    if dtype == np.bool_:
        return rng.random(shape) < rng.random()
    if whole:
        return rng.integers(0, 3, shape).astype(dtype)
    if is_inexact(dtype):
        real = random_floats(rng, shape, case)
        if far and "prod" in case:
            most = {"float16": 12, "float64": 200}.get(name_of(dtype), 100)
            real = real * 2.0 ** rng.integers(-most, most + 1, shape)
        if dtype.kind == "c":
            parts = np.empty(shape, dtype)
            parts.real, parts.imag = real, random_floats(rng, shape, case)
            return parts
        return real.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if FAMILY_OF[case] in ("truth", "count") or rng.random() < 0.3:
        low, high = max(low, -2), 2
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


def random_floats(rng: np.random.Generator, shape: tuple[int, ...], case: str) -> Any:
    if case in ("prod", "nanprod"):  # powers of two: intermediate results are exact
        values = rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.choice([-1, 0, 0, 0, 1], shape)
    elif FAMILY_OF[case] in ("truth", "count") or case == "logical_xor":
        values = rng.choice([0.0, -0.0, 1.5], shape, p=[0.5, 0.2, 0.3])
    elif rng.random() < 0.1:
        values = np.full(shape, rng.choice([-0.0, 0.0, 2.5]))
    elif rng.random() < 0.3:
        values = rng.integers(-3, 4, shape).astype(float)  # ties
    else:
        values = rng.uniform(-8, 8, shape) + rng.choice([0, 0, 100])
    kind = rng.random()
    if kind < 0.25:
        values = np.where(rng.random(shape) < rng.choice([0.1, 0.7, 1]), np.nan, values)
    if 0.2 < kind < 0.35:
        values = np.where(rng.random(shape) < 0.1, rng.choice([np.inf, -np.inf], shape), values)
    return values


def lay_out(values: Any, layout: str) -> Any:
    """The same values (for shared memory: some of them) in another place or order."""
    if layout == "fortran":
        return np.asfortranarray(values)
    if layout == "permuted" and values.ndim > 1:
        axes = np.roll(np.arange(values.ndim), 1)
        return np.ascontiguousarray(values.transpose(axes)).transpose(np.argsort(axes))
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
    if layout == "broadcast" and values.ndim > 0 and values.shape[-1] > 0:
        return np.broadcast_to(values[..., :1], values.shape)
    if layout == "overlapping" and values.ndim == 2 and values.size > 0:
        memory = np.ascontiguousarray(values).reshape(-1)
        return np.lib.stride_tricks.as_strided(
            memory, values.shape, (values.itemsize, values.itemsize)
        )
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


def draw_axis(draw: Any, ndim: int, single: bool) -> Any:
    if single:
        return draw(st.integers(-ndim, ndim - 1))
    axes = draw(st.lists(st.integers(0, ndim - 1), unique=True))
    axes = [i - ndim if draw(st.booleans()) else i for i in axes]
    return axes[0] if len(axes) == 1 and draw(st.booleans()) else tuple(axes)


MISTAKES: dict[str, Callable[[Case], Any]] = {
    "axis past the end": lambda case: case.keywords.update(axis=np.ndim(case.array) + 1),
    "axis of a float": lambda case: case.keywords.update(axis=0.5),
    "axis of bools": lambda case: case.keywords.update(
        axis=True if np.ndim(case.array) > 1 else "x"
    ),
    "axis list": lambda case: case.keywords.update(axis=[0]),
    "axis twice": lambda case: case.keywords.update(axis=(0, 0)),
    "keepdims of a string": lambda case: case.keywords.update(keepdims="x"),
    "an unknown keyword": lambda case: case.keywords.update(bogus=1),
    "dtype unknown": lambda case: case.keywords.update(dtype="no such type"),
    "dtype of strings": lambda case: case.keywords.update(dtype="S4"),
    "out a list": lambda case: case.keywords.update(out=[1]),
    "out with more axes": lambda case: case.keywords.update(
        out=np.zeros((1,) * (np.ndim(case.array) + 1), np.int64)
    ),
    "out of strings": lambda case: case.keywords.update(
        axis=None, keepdims=False, out=np.zeros((), "S8")
    ),
    "where of integers": lambda case: case.keywords.update(where=np.array(1)),
    "where that does not broadcast": lambda case: case.keywords.update(where=np.ones(7919, bool)),
    "initial of a string": lambda case: case.keywords.update(initial="x"),
    "ddof of a string": lambda case: case.keywords.update(ddof="x"),
    "ddof and correction": lambda case: case.keywords.update(ddof=1, correction=1),
}


@st.composite
def cases(draw: Any, name: str, scales_products: bool = False) -> Case:
    """A call of function `name`, on a backend that may keep products in range on their way."""
    family, takes = FAMILY_OF[name], FAMILIES[FAMILY_OF[name]]
    dtype = ELEMENTS[draw(st.sampled_from(sorted(ELEMENTS)))]
    most = 60 if "prod" in name else 2000
    shape = draw(
        st.one_of(
            st.lists(st.integers(0, 6), max_size=4).map(tuple),
            st.tuples(st.integers(1, 40), st.integers(1, 30)),
            st.integers(0, most).map(lambda n: (n,)),
        )
    )
    if "prod" in name and math.prod(shape) > 500:
        shape = (7, 9)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    with_out = "out" in takes and draw(st.integers(0, 5)) == 0
    if with_out and math.prod(shape) > MOST_EXACT:
        shape = (8, 12)
    keywords: dict[str, Any] = {}
    computed = dtype
    if "dtype" in takes and dtype.kind not in "mM" and draw(st.integers(0, 2)) == 0:
        choices = sorted(DTYPES | COMPLEX)
        computed = (DTYPES | COMPLEX)[draw(st.sampled_from(choices))]
        keywords["dtype"] = computed
    far = scales_products and is_inexact(computed) and draw(st.integers(0, 2)) == 0
    values = np.asarray(random_values(rng, dtype, shape, name, with_out, far))
    values = np.asarray(tame(values, name, computed))
    array = lay_out(values, draw(st.sampled_from(LAYOUTS)))
    if shape and draw(st.booleans()):
        keywords["axis"] = draw_axis(draw, len(shape), family == "position")
    if draw(st.booleans()):
        others = [np.True_, "x", [], 2.5] if family == "position" else [0, 7]
        if family not in ("bits", "count"):
            others.append(np._NoValue)
        keywords["keepdims"] = draw(st.one_of(st.booleans(), st.sampled_from(others)))
    if "where" in takes and draw(st.integers(0, 3)) == 0:
        keywords["where"] = rng.random(shape[draw(st.integers(0, len(shape))) :]) < rng.choice(
            [0, 0.3, 0.9]
        )
        if draw(st.booleans()):
            keywords["where"] = np.asfortranarray(keywords["where"])
    if "initial" in takes and (
        ("where" in keywords and family in ("min", "pair") and draw(st.integers(0, 9)) > 0)
        or draw(st.integers(0, 4)) == 0
    ):
        scalars = [np.float64(2), np.float32(-1), np.float16(3), np.int8(2), np.uint64(1)]
        plain = [1, 2, 0, True, None] if "prod" in name else [0, -0.0, 2, True, None]
        if family in ("min", "pair"):
            plain += [-math.inf, math.inf]
        keywords["initial"] = draw(st.sampled_from(plain + scalars))
        if with_out and family in ("min", "pair", "bits") and draw(st.booleans()):
            keywords["initial"] = draw(st.sampled_from([-2, 2.5, 1000]))
    if "ddof" in takes:
        key = draw(st.sampled_from(["", "ddof", "correction"]))
        if key:
            keywords[key] = draw(st.sampled_from([0, 1, 0.5, 2, 30]))
        if draw(st.integers(0, 4)) == 0 and not with_out and dtype.kind not in "mM":
            keywords["mean"] = draw_mean(draw, values, keywords)
    case = Case(name, array, array, keywords)
    if with_out:
        add_out(draw, case)
    case.given = draw_container(draw, array, keywords, dtype, family)
    if draw(st.integers(0, 7)) == 0:
        case.mistake = draw(st.sampled_from(sorted(MISTAKES)))
        MISTAKES[case.mistake](case)
    return case


def tame(values: Any, name: str, computed: np.dtype[Any]) -> Any:
    """Keep conversions defined and results in range: C leaves others undefined."""
    dtype = values.dtype
    if dtype.kind in "mM":
        return values
    if is_inexact(dtype) and not is_inexact(computed):
        values = np.abs(np.nan_to_num(values.real.astype(np.float64), posinf=1, neginf=1)).astype(
            dtype
        )
    if "prod" in name and is_inexact(computed) and not is_inexact(dtype) and dtype != np.bool_:
        values = values % np.asarray(3).astype(dtype)
    if (
        not is_inexact(dtype)
        and dtype != np.bool_
        and name_of(computed) in ("float16", "bfloat16", "float32")
    ):
        values = values % np.asarray(5).astype(dtype)
    if FAMILY_OF[name] in ("mean", "var") and not is_inexact(dtype) and dtype.itemsize == 8:
        values = values % values.dtype.type(5)  # else the quotient may not fit
    if "prod" in name and dtype.kind == "c":
        values = np.where(np.isfinite(values), values, 1)
    return values


def draw_mean(draw: Any, values: Any, keywords: dict[str, Any]) -> Any:
    kind = draw(st.sampled_from(["number", "own"]))
    if kind == "number" or values.size == 0:
        return draw(st.sampled_from([0, 1.5, np.float32(2)]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
        return np.asarray(np.mean(wide, axis=keywords.get("axis"), keepdims=True))


def is_for_matrix(array: Any, keywords: dict[str, Any], family: str) -> bool:
    """Whether the matrix' own method takes the arguments."""
    known = array.ndim == 2 and family in ("sum", "min", "truth", "mean", "var", "position")
    return known and "keepdims" not in keywords and not isinstance(keywords.get("axis"), tuple)


def draw_container(
    draw: Any, array: Any, keywords: dict[str, Any], dtype: np.dtype[Any], family: str
) -> Any:
    """Mostly the array itself, else an object that NumPy converts to it."""
    kinds = ["array"] * 7 + ["list", "matrix", "object", "rules", "takes part", *SUBCLASSES]
    kind = draw(st.sampled_from(kinds))
    if kind == "rules":
        ruled = draw(st.sampled_from(sorted(RULES, key=lambda one: one.__name__)))
        return array.view(ruled) if issubclass(ruled, np.ndarray) else ruled(array)
    if kind == "takes part":
        return array.view(TakesPart)
    if kind in SUBCLASSES:
        return array.view(SUBCLASSES[kind])
    if kind == "matrix" and is_for_matrix(array, keywords, family):
        return array.view(np.matrix)
    if kind == "object":
        return WithArray(array)
    if kind == "list" and dtype.kind in "bfc" and dtype.itemsize in (1, 8, 16) and array.size:
        return array.tolist()
    return array


class WithArray:
    """An object with ``__array__``."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


def add_out(draw: Any, case: Case) -> None:
    """An ``out`` of the result's shape, of any dtype, sometimes a view into the input."""
    shape_of = {key: case.keywords[key] for key in ("axis", "keepdims") if key in case.keywords}
    if "keepdims" in shape_of:
        keepdims = shape_of["keepdims"]
        shape_of["keepdims"] = keepdims is not np._NoValue and bool(keepdims)
    shape = np.shape(np.any(np.ones(case.array.shape, bool), **shape_of))
    names = sorted(DTYPES | COMPLEX) + ["own"]
    chosen = draw(st.sampled_from(names))
    target = case.array.dtype if chosen == "own" else (DTYPES | COMPLEX)[chosen]
    if draw(st.booleans()) and target != BFLOAT16:
        target = target.newbyteorder()
    outs = tuple(np.zeros(shape, target) for _ in range(2))
    case.keywords["out"] = outs if case.family == "pair" else outs[0]
    kind = draw(st.sampled_from(["array", "array", "tuple", "..."]))
    if case.family != "pair" and kind != "array":
        case.keywords["out"] = outs[:1] if kind == "tuple" else ...


# ---------------------------------------------------------------- calling


@dataclass
class Outcome:
    """Outcome of a call."""

    result: Any = None
    error: BaseException | None = None
    warned: list[tuple[type[Warning], str]] = field(default_factory=list)
    float_warned: list[str] = field(default_factory=list)


def observe(call: Callable[[], Any]) -> Outcome:
    outcome = Outcome()
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            outcome.result = call()
        except (ValueError, TypeError, OverflowError, AttributeError, RuntimeError) as error:
            outcome.error = error
    for one in caught:
        text = str(one.message)
        if " encountered in " in text:
            outcome.float_warned.append(text)
        elif "__array_wrap__" in text:  # NumPy wraps what it computes in between, too
            continue
        elif one.category is not PendingDeprecationWarning:
            outcome.warned.append((one.category, text_of_newest(text)))
    return outcome


def fresh(keywords: dict[str, Any]) -> dict[str, Any]:
    """The same keywords with an ``out`` of their own."""
    out = keywords.get("out")
    if isinstance(out, tuple):
        return keywords | {"out": tuple(one.copy() for one in out)}
    return keywords | {"out": out.copy()} if isinstance(out, np.ndarray) else dict(keywords)


def call_numpy(case: Case, keywords: dict[str, Any]) -> Any:
    """NumPy's function of that name, or NumPy's equivalent of ours.

    Types with rules of their own are not asked for them.
    """
    if type(case.given) in (*RULES, TakesPart):
        case = replace(case, given=case.array)
    if case.family == "bits":
        return getattr(np, case.name).reduce(case.given, **{"axis": None} | keywords)
    if case.name == "minmax":
        outs = keywords.get("out", (None, None))
        if not isinstance(outs, tuple):
            raise TypeError("out is not a pair")
        one, other = (
            {k: v for k, v in keywords.items() if k != "out"} | {"out": out} for out in outs
        )
        return np.min(case.given, **one), np.max(case.given, **other)
    return as_newest(getattr(np, case.name)(case.given, **keywords))


def call_ours(case: Case, keywords: dict[str, Any], device: str | None) -> Any:
    return getattr(gr, case.name)(case.given, **keywords, device=device)


def builtin_class(error: type[BaseException]) -> type[BaseException]:
    """The public class of an exception: NumPy's own subclasses of TypeError are not public."""
    for public in (np.exceptions.AxisError, OverflowError, TypeError, ValueError):
        if issubclass(error, public):
            return public
    # NumPy reads a list's attribute dtype.
    return TypeError if issubclass(error, AttributeError) else error


# ---------------------------------------------------------------- comparing


def assert_same(result: Any, expected: Any) -> None:
    """Bit for bit, any NaN being like any other and zeros like each other."""
    result, expected = np.asarray(result), np.asarray(expected)
    if expected.dtype == BFLOAT16:
        result, expected = result.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(result, expected)


def assert_alike(result: Any, expected: Any) -> None:
    assert type(result) is type(expected), f"{type(result)} is not {type(expected)}"
    assert result.dtype == expected.dtype, f"{result.dtype} is not {expected.dtype}"
    assert result.shape == expected.shape, f"{result.shape} is not {expected.shape}"


def order_of(array: Any) -> Any:
    """Steps along the axes that have any."""
    if not isinstance(array, np.ndarray) or array.size == 0:
        return ()
    return [step for step, extent in zip(array.strides, array.shape, strict=True) if extent > 1]


def assert_same_order(case: Case, result: Any, expected: Any) -> None:
    """Results lie in memory as NumPy's do."""
    copies = case.skips_nan and (
        case.array.dtype == BFLOAT16
        or (case.family == "min" and type(case.given) not in (np.ndarray, np.memmap))
    )
    # Distances from a given mean are not stored: those of what is broadcast have an order in NumPy.
    copies |= "mean" in case.keywords and 0 in case.array.strides
    if "out" not in case.keywords and not copies:  # NumPy's copies of what is broadcast differ
        assert order_of(result) == order_of(expected), f"{result.strides}, {expected.strides}"


def assert_near(case: Case, result: Any, computed: np.dtype[Any]) -> None:
    """Compare each float with the result in extended precision."""
    keywords = case.keywords
    where = {key: keywords[key] for key in ("axis", "keepdims") if key in keywords}
    wide = np.clongdouble if computed.kind == "c" else np.longdouble
    accumulated = (
        min(EPS[name_of(computed)], EPS["float32"]) if is_inexact(computed) else EPS["float64"]
    )
    # Of out, or of a dtype that was given and is narrower.
    names = [name_of(one) for one in (result.dtype, np.dtype(keywords.get("dtype", result.dtype)))]
    eps, smallest = (max(of[name] for name in names) for of in (EPS, SMALLEST))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)  # the call has been heard
        given = (
            case.array.real if case.array.dtype.kind == "c" and computed.kind != "c" else case.array
        )
        dtype = given.dtype.newbyteorder("=")
        sums_floats = case.family in ("sum", "mean") and "prod" not in case.name and is_float(dtype)
        # Sums and means of floats are exact: those of the elements as they are.
        # A given mean is subtracted from the elements as they are, too.
        is_kept = (sums_floats and computed.kind != "c") or (
            case.family == "var" and is_inexact(dtype) and keywords.get("mean") is not None
        )
        elements = given.astype(dtype if is_kept else computed.newbyteorder("="))
        elements = elements.astype(np.complex128 if wide is np.clongdouble else np.float64).astype(
            wide
        )
        mask = np.broadcast_to(keywords.get("where", True), elements.shape)
        if case.skips_nan:
            mask = mask & (case.array == case.array)
        count = np.asarray(np.sum(mask, **where))
        got = np.asarray(result)
        got = got.astype(np.complex128 if got.dtype.kind == "c" else np.float64).astype(wide)
        if case.family == "var":
            exact, scale = exact_variance(case, elements, mask, count, where)
            bound = (count + 2) * EPS["float64"] * scale + 3 * eps * np.abs(exact) + smallest
            if case.name in ("std", "nanstd"):
                got = got.real * got.real
                bound = bound + 4 * eps * np.abs(exact) + smallest
            assert_within(got.real, exact, bound, name_of(result.dtype), case)
            return
        begin = {} if keywords.get("initial") is None else {"initial": keywords["initial"]}
        fold = np.prod if "prod" in case.name else np.sum
        kept = np.where(mask, elements, fold is np.prod)
        exact = np.asarray(fold(kept, **begin, **where))
        got = np.reshape(got, exact.shape)  # a matrix keeps its axes
        divisor = count if case.family == "mean" else 1
        parts = (np.real, np.imag) if np.iscomplexobj(exact) else (np.real,)
        for part in parts:
            sizes = np.abs(kept) if fold is np.prod else np.abs(part(kept))
            scale = (
                np.asarray(
                    fold(sizes, **{key: abs(value) for key, value in begin.items()}, **where)
                )
                / divisor
            )
            one = part(exact) / divisor
            bound = (count + 2) * accumulated * scale + 3 * eps * np.abs(one) + smallest
            if begin:
                bound = bound + 2 * eps * scale
            if (
                case.family == "mean" and len(parts) > 1
            ):  # a quotient with NaN in one part may have it in both
                one = np.where(np.isnan(part(got)) & ~np.isfinite(exact), np.nan, one)
            if fold is np.prod and len(parts) > 1:
                one = np.where(undecided_products(kept, exact, got), part(got), one)
            assert_within(part(got), one, bound, name_of(result.dtype), case, len(parts) > 1)


def undecided_products(kept: Any, exact: Any, got: Any) -> Any:
    """Complex products whose parts depend on the order of multiplications: those with NaN, if
    infinities are multiplied, and those beyond the range of extended precision."""
    if not np.isfinite(kept).all():
        return np.isnan(exact)
    beyond = ~np.isfinite(exact)
    assert not np.any(beyond & np.isfinite(got)), f"{got} is finite, {exact} is not"
    return beyond


def exact_variance(case: Case, elements: Any, mask: Any, count: Any, where: Any) -> tuple[Any, Any]:
    keywords = case.keywords
    kept = {**where, "keepdims": True}
    center = keywords.get("mean")
    if center is None:
        center = np.sum(np.where(mask, elements, 0), **kept) / np.sum(mask, **kept)
    apart = np.where(mask, elements - center, 0)
    squares = (apart * np.conjugate(apart)).real
    divisor = np.maximum(count - keywords.get("ddof", keywords.get("correction", 0)), 0)
    exact = np.sum(squares, **where) / divisor
    scale = np.sum(np.where(mask, np.abs(elements) ** 2, 0), **where) / divisor
    return np.asarray(exact), np.asarray(
        scale + np.max(np.abs(np.nan_to_num(center, posinf=0, neginf=0)), initial=0) ** 2
    )


def assert_within(
    got: Any, exact: Any, bound: Any, name: str, case: Case, is_part: bool = False
) -> None:
    # A matrix keeps its axes.
    exact, bound = (np.reshape(exact, got.shape), np.reshape(bound, got.shape))
    special = ~np.isfinite(exact)
    over = np.abs(exact) + bound > LARGEST[name]
    fine = np.abs(got - exact) <= bound
    fine |= (got == exact) | special & ((got == exact) | (np.isnan(got) & np.isnan(exact)))
    fine |= ~special & over & (np.isnan(got) & is_part | np.isinf(got))
    if case.family == "var":  # what is divided by zero may be zero or a rounding
        fine |= (got == exact) | special & ~np.isfinite(got)
    assert np.all(fine), f"{got[~fine][:3]} is not {exact[~fine][:3]} +- {bound[~fine][:3]}"
    if "prod" in case.name and not is_part:  # the sign of a zero that no rounding made
        zero = (got == 0) & (exact == 0)
        assert np.array_equal(np.signbit(got[zero]), np.signbit(exact[zero])), (
            "a zero of the other sign"
        )


def computed_in(case: Case, result: Any) -> np.dtype[Any]:
    """Type that the elements were converted to."""
    if case.keywords.get("dtype") is not None:
        return np.dtype(case.keywords["dtype"])
    if case.family == "var" or not is_inexact(result.dtype):
        return np.dtype(np.float64) if case.array.dtype.kind in "biu" else case.array.dtype
    return case.array.dtype if is_inexact(case.array.dtype) else np.dtype(np.float64)


def assert_signs_of_zeros(case: Case, result: Any, expected: Any) -> None:
    """Sums of nothing but zeros have the sign that NumPy gives them, with any start. Those of
    bfloat16 have it in some versions of ml_dtypes."""
    array, keywords = np.asarray(case.array), case.keywords
    if BFLOAT16 is not None and BFLOAT16 in (array.dtype, result.dtype, keywords.get("dtype")):
        return
    axes = {key: keywords[key] for key in ("axis", "keepdims") if key in keywords}
    are_zeros = (array == 0) | (array != array) | ~np.asarray(keywords.get("where", True))
    checked = np.all(np.broadcast_to(are_zeros, array.shape), **axes)
    for part in (np.real, np.imag):
        got, wanted = (part(as_complex(one)) for one in (result, expected))
        zeros = np.reshape(checked, got.shape) & (got == 0) & (wanted == 0)
        assert np.array_equal(np.signbit(got[zeros]), np.signbit(wanted[zeros])), (
            f"a zero of the other sign: {got} is not {wanted}"
        )


def compare(case: Case, result: Any, expected: Any) -> None:
    """One result with NumPy's."""
    if case.family in ("sum", "mean") and "prod" not in case.name and is_inexact(expected.dtype):
        assert_signs_of_zeros(case, result, expected)
    if "out" in case.keywords:
        if case.family == "var" and is_inexact(expected.dtype):
            assert_near(case, result, computed_in(case, result))
        elif case.family == "mean" and is_inexact(expected.dtype):
            between = computed_in(case, expected)
            tolerance = 8 * max(
                EPS[name_of(dtype)]
                for dtype in (expected.dtype, between, case.array.dtype)
                if is_inexact(dtype)
            )
            np.testing.assert_allclose(
                as_complex(result), as_complex(expected), rtol=tolerance, atol=tolerance
            )
        else:
            assert_same(result, expected)
        return
    if case.family in ROUNDED and is_inexact(expected.dtype) and case.array.dtype.kind not in "mM":
        assert_near(case, result, computed_in(case, result))
    else:
        assert_same(result, expected)


def as_complex(array: Any) -> Any:
    return np.asarray(array).astype(np.complex128)
