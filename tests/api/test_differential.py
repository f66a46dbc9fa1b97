"""Random calls agree with NumPy but for docs/differences.md, whose rows can all be shown."""

from __future__ import annotations

import itertools
import pathlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")

import differential as d  # noqa: E402
from conftest import EXAMPLES, SEED  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from reference import BFLOAT16  # noqa: E402

import gpureduce as gr  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)

TABLE = pathlib.Path(__file__).parents[2] / "docs" / "differences.md"

# ---------------------------------------------------------------- what may differ

Excuse = Callable[[d.Case, d.Outcome, d.Outcome], bool]


def _dtype_of(case: d.Case) -> np.dtype[Any]:
    return np.asarray(case.array).dtype


def _asked(case: d.Case) -> list[np.dtype[Any]]:
    """Types of ``dtype`` and ``out``."""
    out = case.keywords.get("out")
    out = out[0] if isinstance(out, tuple) else out
    given = (case.keywords.get("dtype"), getattr(out, "dtype", None))
    return [np.dtype(one) for one in given if one is not None and not isinstance(one, str)]


def integer_variance(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    return case.family == "var" and any(one.kind in "biu" for one in _asked(case))


def real_variance(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    dtype = case.keywords.get("dtype")
    is_real = dtype is not None and not isinstance(dtype, str) and np.dtype(dtype).kind != "c"
    return case.family == "var" and _dtype_of(case).kind == "c" and is_real


def bfloat16(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    asked = BFLOAT16 in _asked(case)
    if not asked and _dtype_of(case) != BFLOAT16:
        return False
    if (theirs.error is not None and ours.error is None) or "mean" in case.keywords:
        return True
    others = {one for one in ours.warned if one[0] is not np.exceptions.ComplexWarning}
    if not d.BFLOAT16_WARNS and set(theirs.warned) == others != set(ours.warned):
        return True
    if d.IS_BEFORE_2_2 and case.family in ("min", "pair"):  # of 1 and 2 the larger is 1 there
        return True
    return case.skips_nan and (asked or d.has_nan(case.array) or theirs.warned != ours.warned)


def several_mistakes(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    if theirs.error is None or ours.error is None:
        return False
    if case.family == "position" and isinstance(case.keywords.get("axis"), tuple):
        return True
    if case.family == "position" and not all(np.can_cast(one, np.int64) for one in _outs(case)):
        return True  # whatever else is wrong with out: NumPy looks at its shape first
    fewer = [{k: v for k, v in case.keywords.items() if k != key} for key in case.keywords]
    return all(
        d.observe(lambda some=some: d.call_numpy(case, d.fresh(some))).error is not None
        for some in fewer
    )


def dtypes(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    return case.mistake == "out of strings" and isinstance(ours.error, TypeError)


def _outs(case: d.Case) -> list[np.dtype[Any]]:
    """Types of the arrays that are written."""
    out = case.keywords.get("out")
    outs = out if isinstance(out, tuple) else (out,)
    return [each.dtype for each in outs if hasattr(each, "dtype")]


def _is_kept(array: Any, dtype: np.dtype[Any]) -> bool:
    """Whether every element is still there after a conversion to integers or truths."""
    numbers = array.astype(np.int64) if array.dtype.kind in "mM" else array
    with np.errstate(all="ignore"):
        return bool(np.all(numbers.astype(dtype).astype(numbers.dtype) == numbers))


def first_into_out(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    if case.family in ("min", "pair", "span"):
        return any(one.kind in "biu" and not _is_kept(case.array, one) for one in _outs(case))
    has_none = {"initial", "out"} <= set(case.keywords) and case.keywords["initial"] is None
    return has_none and (case.name == "logical_xor" or case.family == "bits")


def dates_into_times(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    is_extreme = case.family in ("min", "pair", "span")
    kinds = {case.array.dtype.kind, *(one.kind for one in _outs(case))}
    return is_extreme and {"m", "M"} <= kinds


def matrix(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    takes_other_arguments = not set(case.keywords) <= {"axis", "dtype"} or theirs.error is not None
    return isinstance(case.given, np.matrix) and takes_other_arguments


def position_class(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    return case.family == "position" and isinstance(case.given, np.memmap)


def nan_position(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    if case.name not in ("nanargmin", "nanargmax") or not d.has_nan(case.array):
        return False
    return bool(np.any(np.isinf(case.array)))


def undefined_conversion(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    start = np.asarray(case.keywords.get("initial", 0))
    starts = case.family in ("min", "pair") and start.dtype.kind in "iuf"
    if starts and any(one.kind in "iu" and not _is_kept(start, one) for one in _outs(case)):
        return True
    makes_nan = {"mean": "empty slice", "min": "All-NaN"}.get(case.family)
    return (
        makes_nan is not None
        and any(makes_nan in message for _, message in theirs.warned)
        and any(one.kind in "biu" for one in _asked(case))
    )


def older_numpy(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> bool:
    """Before 2.2, what starts with the first element takes the last of an axis in reverse."""
    begins = case.family in ("min", "pair", "span") or case.keywords.get("initial", 0) is None
    has_reverse = any(step < 0 for step in getattr(case.given, "strides", ()))
    return d.IS_BEFORE_2_2 and begins and has_reverse and bool(_outs(case))


EXCUSES: dict[str, Excuse] = {
    "older-numpy": older_numpy,
    "integer-variance": integer_variance,
    "real-variance": real_variance,
    "undefined-conversion": undefined_conversion,
    "bfloat16": bfloat16,
    "several-mistakes": several_mistakes,
    "dtypes": dtypes,
    "matrix": matrix,
    "first-into-out": first_into_out,
    "dates-into-times": dates_into_times,
    "nan-position": nan_position,
    "position-class": position_class,
}
"""Rows that the comparison passes over, and when; it has the others, or random calls miss them."""


def excuse_for(case: d.Case, theirs: d.Outcome, ours: d.Outcome) -> str | None:
    return next((name for name, excuse in EXCUSES.items() if excuse(case, theirs, ours)), None)


# ---------------------------------------------------------------- random calls


def crashes_numpy(case: d.Case) -> bool:
    """NumPy 2.0 multiplies strings by integers into memory that is not its own."""
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0" or case.name not in ("prod", "nanprod"):
        return False
    told = {name: case.keywords.get(name) for name in ("initial", "out", "dtype")}
    return any("S" in repr(part) or "U" in repr(part) or "str" in repr(part)
               for part in (case.given, *told.values()))  # fmt: skip


def assert_contract(case: d.Case, device: str | None) -> None:
    if crashes_numpy(case):
        return
    our_keywords, their_keywords = d.fresh(case.keywords), d.fresh(case.keywords)
    theirs = d.observe(lambda: d.call_numpy(case, their_keywords))
    ours = d.observe(lambda: d.call_ours(case, our_keywords, device))
    rule = d.RULES.get(type(case.given))
    if rule is not None:
        assert_refused(case, ours, rule)
        return
    try:
        assert ours.float_warned == []
        assert_outcome(case, ours, theirs)
        if ours.error is None and "out" in case.keywords:
            got, out = ours.result, our_keywords["out"]
            assert (
                all(x is y for x, y in zip(got, out, strict=True))
                if case.family == "pair"
                else out is ... or got is (out[0] if isinstance(out, tuple) else out)
            )
    except AssertionError:
        if excuse_for(case, theirs, ours) is None:
            raise


def assert_refused(case: d.Case, ours: d.Outcome, rule: str) -> None:
    """An array of a type with rules of its own is a TypeError that names the rule and the way."""
    assert ours.error is not None, f"{type(case.given)} was taken"
    if not case.mistake:
        assert isinstance(ours.error, TypeError), repr(ours.error)
        assert rule in str(ours.error), str(ours.error)
        assert "numpy.asarray" in str(ours.error), str(ours.error)


def assert_outcome(case: d.Case, ours: d.Outcome, theirs: d.Outcome) -> None:
    if theirs.error is not None or ours.error is not None:
        assert theirs.error is not None, (
            f"NumPy gives {theirs.result!r}, gpureduce raises {ours.error!r}"
        )
        assert ours.error is not None, (
            f"NumPy raises {theirs.error!r}, gpureduce gives {ours.result!r}"
        )
        assert issubclass(type(ours.error), d.builtin_class(type(theirs.error))), (
            f"{ours.error!r}, {theirs.error!r}"
        )
        assert str(ours.error)
        return
    assert set(ours.warned) == set(theirs.warned), f"{ours.warned} is not {theirs.warned}"
    results = (
        zip(ours.result, theirs.result, strict=True)
        if case.family == "pair"
        else [(ours.result, theirs.result)]
    )
    for result, expected in results:
        d.assert_alike(result, expected)
        d.assert_same_order(case, result, expected)
        d.compare(case, result, expected)


@on_devices
@pytest.mark.parametrize("name", d.NAMES)
@given(data=st.data())
@settings(max_examples=max(EXAMPLES // 2, 1), suppress_health_check=[HealthCheck.too_slow])
def test_random_calls_agree_with_numpy(name: str, device: str | None, data: Any) -> None:
    assert_contract(data.draw(d.cases(name, device == "cpu")), device)


@pytest.mark.skipif(BFLOAT16 is None, reason="needs ml_dtypes")
@pytest.mark.parametrize("name", ["sum", "prod", "mean"])
def test_results_of_bfloat16_are_taken_by_the_first_call_of_a_process_too(name: str) -> None:
    code = f"""
import ml_dtypes, numpy as np, gpureduce as gr
for dtype in ("int32", "float32", "complex64"):
    out = np.zeros((), ml_dtypes.bfloat16)
    assert gr.{name}(np.ones(4, dtype), dtype=out.dtype, out=out, device="cpu") is out
    print(float(out))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(map(float, done.stdout.split())) == {{"sum": 4.0}.get(name, 1.0)}


def test_every_function_is_drawn() -> None:
    others = {"reduce", "amin", "amax"}
    public = {
        name
        for name in gr.__all__
        if getattr(getattr(gr, name), "__module__", "") == "gpureduce._functions"
    }
    assert set(d.NAMES) == public - others
    assert gr.amin is gr.min
    assert gr.amax is gr.max


# ---------------------------------------------------------------- the table


class Total(np.ndarray):
    """A subclass with a sum of its own."""

    def sum(self, *args: Any, **keywords: Any) -> Any:
        return "mine"


class Summed(d.WithArray):
    """An array-like with a sum of its own."""

    sum = Total.sum


def both(name: str, *args: Any, **keywords: Any) -> tuple[Any, Any]:
    """NumPy's and our result of a call, or the class of the exception."""
    outcomes = []
    for module in (np, gr):
        try:
            with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
                warnings.simplefilter("always")
                result = getattr(module, name)(*args, **keywords)
            outcomes.append((np.asarray(result).tolist(), np.asarray(result).dtype, len(caught)))
        except (TypeError, ValueError) as error:
            outcomes.append(type(error))  # type: ignore[arg-type]
    return outcomes[0], outcomes[1]


def overlapping_ptp(module: Any) -> Any:
    a = np.arange(12.0).reshape(3, 4)
    return module.ptp(a, axis=1, out=a[:, 0]).tolist()


def truth_of_a_half() -> tuple[Any, Any]:
    half, keywords = np.array([0.5, 0.0]), {"initial": None, "out": np.zeros((), np.int64)}
    return np.logical_xor.reduce(half, **keywords).tolist(), gr.logical_xor(
        half, **keywords
    ).tolist()


A = np.array([1.5, 2.0, 4.0])
NAN = float("nan")

SHOWN: dict[str, Callable[[], tuple[Any, Any]]] = {
    "rounding": lambda: both("var", np.array([1.0, 2.0, 2.5, 300.0], np.float16)),
    "intermediate-overflow": lambda: both("mean", np.array([1e308, 1e308])),
    "products": lambda: both("prod", np.array([1e300, 1e300, 0.0])),
    "large-variances": lambda: both("std", np.array([1e200, -1e200])),
    "float-warnings": lambda: both("sum", np.array([np.inf, -np.inf])),
    "nan-kind": lambda: both("mean", np.array([complex(1, NAN), 2])),
    "dtypes": lambda: both("max", A.astype(np.longdouble)),
    "own-rules": lambda: both("sum", A.view(Total)),
    "array-likes": lambda: both("sum", Summed(A)),
    "matrix": lambda: both("sum", A.view(np.matrix), keepdims=True),
    "all-axes": lambda: (
        np.bitwise_or.reduce([[1, 2], [4, 8]]).tolist(),
        gr.bitwise_or([[1, 2], [4, 8]]).tolist(),
    ),
    "bfloat16": lambda: both(
        "nansum", np.array([1, NAN], BFLOAT16 if BFLOAT16 is not None else np.longdouble)
    ),
    "position-class": lambda: tuple(
        type(m.argmin(A.view(np.memmap), keepdims=True)) for m in (np, gr)
    ),
    "nan-position": lambda: both("nanargmin", np.array([NAN, np.inf])),
    "integer-variance": lambda: both("var", A, dtype=int),
    "real-variance": lambda: both("var", A + 1j, dtype=np.float64),
    "several-mistakes": lambda: both("mean", np.array(5), axis=True),
    "structures": lambda: both("sum", np.ones(2, [("a", "f4")])),
    "first-into-out": truth_of_a_half,
    "mean-shape": lambda: both("var", A, mean=A),
    "ddof": lambda: both("nanvar", A, ddof=1j),
    "dates-into-times": lambda: both(
        "max", np.array([1, 4000], "M8[s]"), out=np.zeros((), "m8[ms]")
    ),
    "overlapping-ptp": lambda: (overlapping_ptp(np), overlapping_ptp(gr)),
    "dot": lambda: both("dot", np.array([1e300, 1e300, 1.0]), np.array([1e300, -1e300, 1.0])),
}
"""For each row of the table: NumPy's result and ours."""


UNSHOWN = {
    "zero-sign",
    "undefined-conversion",
    "older-numpy",
    "products-on-gpus",
    "large-variances-on-gpus",
    "device-ptp",
}
"""Rows that depend on the machine, on a GPU, or on NumPy: there may be no difference on this
one.
"""

ON_DEVICES = {
    "device-order",
    "device-warnings",
    "device-where",
}
"""Rows that test_interop.py shows."""


def rows() -> list[str]:
    return re.findall(r"^\| `([a-z0-9-]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.skipif(not TABLE.exists(), reason="needs the source tree")
def test_the_table_has_what_is_excused_and_nothing_else() -> None:
    assert len(rows()) == len(set(rows()))
    assert set(rows()) == set(SHOWN) | UNSHOWN | ON_DEVICES
    assert set(EXCUSES) <= set(rows())


@pytest.mark.parametrize("row", SHOWN)
@pytest.mark.filterwarnings("ignore:Mean:RuntimeWarning")
def test_every_difference_can_be_shown(row: str) -> None:
    theirs, ours = SHOWN[row]()
    assert theirs != ours


@pytest.mark.parametrize("name", ["min", "max", "nanmin", "nanmax", "ptp", "sum", "bitwise_xor"])
def test_reductions_of_reversed_axes_into_out_use_every_element(name: str) -> None:
    keywords = {} if name == "ptp" else {"initial": None}
    theirs = np.bitwise_xor.reduce if name == "bitwise_xor" else getattr(np, name)
    values = np.random.default_rng(SEED).integers(0, 99, (3, 5))
    for reverse in (np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-1]):
        into = np.zeros(3, np.int64)
        getattr(gr, name)(values[reverse], axis=1, out=into, device="cpu", **keywords)
        np.testing.assert_array_equal(into, theirs(values[reverse].copy(order="C"), axis=1))


INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", [*INTEGERS[1:], "m8[s]"])
@pytest.mark.parametrize("name", ["min", "max", "nanmin", "nanmax", "minmax"])
def test_extremes_into_other_integers_are_those_of_the_elements(name: str, dtype: str) -> None:
    rng = np.random.default_rng(SEED)
    elements = [
        rng.integers(-(2**63), 2**63 - 1, (5, 7)).astype(dtype),
        rng.integers(-3, 4, (5, 7)).astype(dtype),
    ]
    if dtype == "m8[s]":
        elements[1][rng.random((5, 7)) < 0.3] = "NaT"
    taken = INTEGERS[:-1] if dtype == "m8[s]" else INTEGERS  # NumPy has no loop for uint64
    for a, into, axis in itertools.product(elements, taken, (None, 0, 1)):
        shape = np.min(a, axis=axis).shape
        outs = np.zeros(shape, into), np.zeros(shape, into)
        got = getattr(gr, name)(
            a, axis=axis, device="cpu", out=outs if name == "minmax" else outs[0]
        )
        wanted = np.min(a, axis=axis), np.max(a, axis=axis)
        if name != "minmax":
            got, wanted = (got,), (getattr(np, name)(a, axis=axis),)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, np.asarray(other).astype(into), f"{a}, {into}")


def test_a_time_that_is_none_is_the_extreme_wherever_it_is() -> None:
    for times in (["NaT", 41, 3], [3, "NaT", 41], [3, 41, "NaT"]):
        a = np.array(times, "m8[s]")
        for name, into in itertools.product(("min", "max"), ("int16", "uint32", "int64")):
            out = getattr(gr, name)(a, out=np.ones((), into), device="cpu")
            assert out == np.array("NaT", "m8[s]").astype(np.int64).astype(into)
