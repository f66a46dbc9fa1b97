"""Everything before ``*`` means what it means in NumPy: single calls, one for each rule.

Random calls are in ``test_differential.py``.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")

import ml_dtypes
from differential import (
    LAYOUTS,
    NAMES,
    Sub,
    as_newest,
    builtin_class,
    lay_out,
    order_of,
    text_of_newest,
)

import gpureduce as gr

DEVICES = ["cpu", None, pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)


class Ours:
    """The package as a namespace like NumPy's, with one device for all calls."""

    def __init__(self, device: str | None) -> None:
        self.device = device

    def __getattr__(self, name: str) -> Any:
        function = getattr(gr, name)
        return lambda *args, **keywords: function(*args, **keywords, device=self.device)


class Theirs:
    """NumPy, with its ufuncs' ``reduce`` where we have functions of that name."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if not isinstance(function, np.ufunc):
            return function
        return lambda a, axis=None, **keywords: function.reduce(a, axis, **keywords)


@on_devices
@pytest.mark.parametrize("op", NAMES)
def test_reduce_is_the_named_function(op: str, device: str | None) -> None:
    a = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    axis = {"axis": -1, "keepdims": True} if "arg" in op else {"axis": (0, -1), "keepdims": True}
    for keywords in ({}, {"axis": 1}, axis):
        named = getattr(gr, op)(a, device=device, **keywords)
        by_name = gr.reduce(a, op, device=device, **keywords)
        assert type(named) is type(by_name)
        np.testing.assert_array_equal(named, by_name)
        assert np.asarray(named).dtype == np.asarray(by_name).dtype


def test_reduce_takes_ufuncs_and_operators() -> None:
    import operator

    a = np.array([[5, 3, 6], [7, 1, 2]], np.uint8)
    same = {
        "sum": ("add", np.add, operator.add),
        "prod": ("multiply", np.multiply, operator.mul),
        "min": ("minimum", np.minimum, "amin"),
        "max": ("maximum", np.maximum, "amax"),
        "nanmin": ("fmin", np.fmin),
        "nanmax": ("fmax", np.fmax),
        "any": ("logical_or", np.logical_or),
        "all": ("logical_and", np.logical_and),
        "logical_xor": (np.logical_xor,),
        "bitwise_and": (np.bitwise_and, operator.and_),
        "bitwise_or": (np.bitwise_or, operator.or_),
        "bitwise_xor": (np.bitwise_xor, operator.xor),
    }
    for name, others in same.items():
        for other in others:
            result, expected = gr.reduce(a, other, axis=0), getattr(gr, name)(a, axis=0)
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == expected.dtype
    assert gr.reduce(A, "var", ddof=1) == gr.var(A, ddof=1)
    assert gr.reduce(A, "std", correction=1, mean=2.0) == gr.std(A, ddof=1, mean=2.0)
    for op in (np.subtract, "subtract", operator.sub, 3, None, [], "sum "):
        with pytest.raises(ValueError, match="unknown operator"):
            gr.reduce(A, op)  # type: ignore[arg-type]


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
    "records of strings": lambda m: m.sum(np.zeros(2, [("a", "S4")])),
    "an unknown argument": lambda m: m.sum(A, bogus=1),
    "min has no dtype": lambda m: m.min(A, dtype=np.float32),
    "any has no initial": lambda m: m.any(A, initial=True),
    "argmin of nothing": lambda m: m.argmin(A[:0]),
    "argmax of nothing, no times": lambda m: m.argmax(np.zeros((0, 0)), axis=1),
    "argmin of two axes": lambda m: m.argmin(A, axis=(0, 1)),
    "argmin axis bool": lambda m: m.argmin(A, axis=True),
    "argmin axis past the end": lambda m: m.argmin(A, axis=2),
    "argmax out of floats": lambda m: m.argmax(A, out=np.zeros(())),
    "argmax out of unsigned": lambda m: m.argmax(A, out=np.zeros((), np.uint64)),
    "argmax out of another shape": lambda m: m.argmax(A, out=np.zeros(1, int)),
    "argmax out not an array": lambda m: m.argmax(A, out=[0]),
    "argmax out read-only": lambda m: m.argmax(A, axis=0, out=READ_ONLY.astype(int).view(Frozen)),
    "argmin has no where": lambda m: m.argmin(A, where=True),
    "nanargmin of NaN": lambda m: m.nanargmin(A * np.nan, axis=1),
    "nanargmax of nothing": lambda m: m.nanargmax([]),
    "nanmin of nothing": lambda m: m.nanmin([]),
    "nanmean in integers": lambda m: m.nanmean(A, dtype=int),
    "nanmean into integers": lambda m: m.nanmean(A, out=np.zeros((), int)),
    "nanvar in integers": lambda m: m.nanvar(A, dtype=int),
    "nanvar axis past the end": lambda m: m.nanvar(A, axis=3),
    "var where None": lambda m: m.var(A, where=None),
    "mean where of a string": lambda m: m.mean(A, where="x"),
    "nanmean into times": lambda m: m.nanmean(A, out=np.zeros((), "m8[s]")),
    "nanvar as float32 into dates": lambda m: m.nanvar(A, dtype="f4", out=np.zeros((), "M8[D]")),
    "mean of integers into dates": lambda m: m.mean([1, 2, 4], out=np.zeros((), "M8[D]")),
    "mean of swapped float16 into dates": lambda m: m.mean(
        np.ones(3, ">f2"), out=np.zeros((), "M8[D]")
    ),
    "var of integers into dates": lambda m: m.var([1, 2, 4], out=np.zeros((), "M8[D]")),
    "std into times": lambda m: m.std(np.arange(3), out=np.zeros((), "m8[s]")),
    "nanmean axis past a scalar's": lambda m: m.nanmean(2.5, axis=1),
    "nanmean axis of an integer": lambda m: m.nanmean(2, axis=0),
    "var ddof of a string": lambda m: m.var(A, ddof="1"),
    "var ddof None": lambda m: m.var(A, ddof=None),
    "var ddof and correction": lambda m: m.var(A, ddof=1, correction=1),
    "nanstd ddof and correction": lambda m: m.nanstd(A, ddof=1, correction=0),
    "var axis of a scalar": lambda m: m.var(5, axis=0),
    "var mean that does not broadcast": lambda m: m.var(A, axis=1, mean=np.zeros(2)),
    "std into integers": lambda m: m.std(A, out=np.zeros((), int)),
    "ptp of bool": lambda m: m.ptp(A > 2),
    "ptp of nothing": lambda m: m.ptp([]),
    "ptp into integers": lambda m: m.ptp(A, out=np.zeros((), int)),
    "ptp of dates into times": lambda m: m.ptp(DATES, out=np.zeros((), "m8[s]")),
    "mean of times into complex": lambda m: m.mean(TIMES[:2], out=np.zeros((), complex)),
    "nanmean of times as float32 into complex": lambda m: m.nanmean(
        TIMES[:2], dtype="f4", out=np.zeros((), complex)
    ),
    "sum of times as complex into float": lambda m: m.sum(
        TIMES[:2], dtype=complex, out=np.zeros(())
    ),
    "ptp has no initial": lambda m: m.ptp(A, initial=0),
    "count_nonzero has no out": lambda m: m.count_nonzero(A, out=np.zeros((), int)),
    "bitwise_and of floats": lambda m: m.bitwise_and(A),
    "bitwise_or of complex numbers": lambda m: m.bitwise_or(A * 1j),
    "bitwise_xor of times": lambda m: m.bitwise_xor(TIMES),
    "bitwise_xor initial out of range": lambda m: m.bitwise_xor(A.astype(np.int8), initial=300),
    "bitwise_or initial out of range, bool out": lambda m: m.bitwise_or(
        A.astype(np.uint16), initial=-2, out=np.zeros((), bool)
    ),
    "sum of dates": lambda m: m.sum(DATES),
    "mean of dates": lambda m: m.mean(DATES),
    "prod of times": lambda m: m.prod(TIMES),
    "var of times": lambda m: m.var(TIMES),
    "nanstd of dates": lambda m: m.nanstd(DATES),
    "sum out in a tuple": lambda m: m.sum(A, out=(np.zeros(()),)),
    "nanmin of a list, out in a tuple": lambda m: m.nanmin(A.tolist(), out=(np.zeros(()),)),
    "nanmax out None in a tuple": lambda m: m.nanmax(A, out=(None,)),
    "nanmin out ... in a tuple": lambda m: m.nanmin(A, out=(...,)),
    "bitwise_or out of two": lambda m: m.bitwise_or(A > 1, out=(np.zeros(()), np.zeros(()))),
    "max out=...": lambda m: m.max(A, out=...),
    "argmax out=...": lambda m: m.argmax(A, out=...),
    "argmin keepdims of several": lambda m: m.argmin(A, keepdims=np.ones(2)),
    "max keepdims of a float": lambda m: m.max(A, keepdims=0.5),
    "count_nonzero keepdims None, axis": lambda m: m.count_nonzero(A, axis=0, keepdims=None),
    "mean of a scalar, where True": lambda m: m.mean(np.array(2.5), axis=0, where=True),
    "var of a scalar, where, axis past": lambda m: m.var(2.5, axis=1, where=np.array(True)),
    "sum of times to strings": lambda m: m.sum(TIMES, dtype="S4"),
}
A = np.arange(6.0).reshape(2, 3)
NAN = np.array([[np.nan, 2, 1, np.nan], [np.nan] * 4, [3, 2, 2, 5]])
TIMES = np.array([3, -7, "NaT", 5], "m8[s]")
DATES = TIMES + np.datetime64("2020-02-29")


class Frozen(np.ndarray):
    """An array that is read-only."""

    def __array_finalize__(self, other: Any) -> None:
        self.flags.writeable = False


READ_ONLY = np.zeros(3)
READ_ONLY.flags.writeable = False


@on_devices
@pytest.mark.parametrize("case", ARGUMENTS)
def test_bad_arguments_raise_what_numpy_raises(case: str, device: str | None) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)) as theirs:
        ARGUMENTS[case](Theirs())
    with pytest.raises((ValueError, TypeError, OverflowError)) as ours:
        ARGUMENTS[case](Ours(device))
    assert issubclass(ours.type, builtin_class(theirs.type))
    assert str(ours.value)


@on_devices
@pytest.mark.parametrize("name", [name for name in NAMES if name != "minmax"])
def test_errors_of_axes_name_the_axes_that_numpy_names(name: str, device: str | None) -> None:
    for a in (np.array(2.5), np.array(2), np.ones((2, 3), np.int8)):
        if "bitwise" in name and a.dtype.kind == "f":
            continue
        for axis in (2, -3, *([0] if name in ("mean", "var") else [])):
            messages = []
            for module in (Theirs(), Ours(device)):
                try:
                    getattr(module, name)(a, axis=axis)
                except np.exceptions.AxisError as error:
                    messages.append(str(error))
            assert messages[:1] == messages[1:]


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
    "out of mean, half in bytes": lambda m: m.mean(
        np.array([254.875, 0.06, 0.06], "e"), out=np.zeros((), np.uint8)
    ),
    "out of any": lambda m: m.any(A, axis=1, out=np.zeros(2)),
    "amin": lambda m: m.amin(A, axis=0),
    "amax": lambda m: m.amax(A, axis=0),
    "argmin list": lambda m: m.argmin([[3, 1], [0, 2]], axis=1),
    "argmin of a scalar": lambda m: m.argmin(5, axis=0),
    "argmin of no rows": lambda m: m.argmin(np.zeros((0, 3)), axis=1),
    "argmax keepdims": lambda m: m.argmax(A, keepdims=True),
    "argmin keepdims of NumPy": lambda m: m.argmin(A, axis=1, keepdims=np.True_),
    "nanargmax keepdims of a float": lambda m: m.nanargmax(A, keepdims=0.5),
    "argmax keepdims of nothing": lambda m: m.argmax(A, axis=0, keepdims=[]),
    "count_nonzero keepdims None": lambda m: np.intp(m.count_nonzero(A, keepdims=None)),
    "mean of a scalar, where": lambda m: m.mean(np.array(2.5), axis=0, where=np.array(True)),
    "std of a scalar, where": lambda m: m.std(np.array(2), axis=-1, where=np.array(True)),
    "nanvar of a scalar, where": lambda m: m.nanvar(np.array(3), axis=0, where=np.array(True)),
    "nanmin out in a tuple": lambda m: m.nanmin(A, axis=0, out=(np.zeros(3),)),
    "logical_xor out in a tuple": lambda m: m.logical_xor(A, axis=1, out=(np.zeros(2, bool),)),
    "nanmin out=...": lambda m: m.nanmin(A, out=...),
    "bitwise_or out=...": lambda m: m.bitwise_or(A.astype(int), axis=0, out=...),
    "argmax of equals": lambda m: m.argmax(np.array([0.0, -0.0, 0.0])),
    "argmax of NaN": lambda m: m.argmax(NAN, axis=0),
    "argmax of complex NaN": lambda m: m.argmax(np.array([1, complex(0, np.nan), np.nan])),
    "argmax out narrow": lambda m: m.argmax(A, axis=0, out=np.zeros(3, np.int8)),
    "argmax out swapped": lambda m: m.argmax(A, out=np.zeros((), ">i8")),
    "argmin matrix": lambda m: m.argmin(np.matrix(A), axis=1),
    "argmin subclass": lambda m: m.argmin(A.view(Sub), axis=0),
    "argmin subclass, scalar": lambda m: m.argmin(A.view(Sub)),
    "nanargmin": lambda m: m.nanargmin(NAN[::2], axis=1, keepdims=True),
    "count_nonzero": lambda m: m.count_nonzero(A),
    "count_nonzero of a scalar": lambda m: m.count_nonzero(5),
    "count_nonzero, axis": lambda m: m.count_nonzero(NAN, axis=0),
    "count_nonzero, kept": lambda m: m.count_nonzero(A, keepdims=True),
    "count_nonzero subclass": lambda m: m.count_nonzero(A.view(Sub)),
    "ptp": lambda m: m.ptp(A, axis=1),
    "ptp wraps": lambda m: m.ptp(np.array([-100, 100], np.int8)),
    "ptp of NaN": lambda m: m.ptp(NAN, axis=1),
    "ptp out": lambda m: m.ptp(np.array([-100, 100], np.int8), out=np.zeros((), np.int32)),
    "bitwise_and of nothing": lambda m: m.bitwise_and(np.zeros((2, 0), np.uint8), axis=1),
    "bitwise_and of no bools": lambda m: m.bitwise_and(np.zeros(0, bool)),
    "bitwise_or initial": lambda m: m.bitwise_or(A.astype(int), axis=0, initial=8),
    "bitwise_xor where": lambda m: m.bitwise_xor(
        A.astype(np.int8), axis=0, where=[True, False, True]
    ),
    "logical_xor of NaN": lambda m: m.logical_xor(NAN, axis=1),
    "logical_xor initial": lambda m: m.logical_xor(A, initial=7),
    "nanprod from NaN": lambda m: m.nanprod(np.array([-1e300, 1e300]), initial=np.nan),
    "nansum": lambda m: m.nansum(NAN, axis=1),
    "nansum in integers": lambda m: m.nansum(NAN, dtype=int),
    "nanprod of lists": lambda m: m.nanprod([[1, np.nan], [2, 3]], axis=0),
    "nanmin initial": lambda m: m.nanmin(NAN, axis=1, initial=1.5),
    "nanmin initial, list": lambda m: m.nanmin(NAN.tolist(), axis=1, initial=1.5),
    "nanmax where": lambda m: m.nanmax(NAN, axis=0, initial=-1, where=[[True], [True], [False]]),
    "nanmax of integers": lambda m: m.nanmax([[3, 1]], axis=0),
    "nanmean": lambda m: m.nanmean(NAN, axis=0),
    "nanmean half": lambda m: m.nanmean(NAN.astype(np.float16), axis=1),
    "nanmean of infinities": lambda m: m.nanmean(np.array([np.inf, -np.inf, np.nan])),
    "var of integers": lambda m: m.var([[1, 2], [5, 6]], axis=0),
    "var of bools": lambda m: m.var(np.array([True, False])),
    "var ddof, float": lambda m: m.var(A, ddof=0.5, axis=1),
    "var correction": lambda m: m.var(A, correction=1, keepdims=True),
    "var of one, ddof": lambda m: m.var(A[:1], axis=0, ddof=1),
    "var where": lambda m: m.var(A, where=[True, False, True], axis=1),
    "var of complex numbers": lambda m: m.var(A * (1 + 2j), axis=1),
    "var in complex numbers": lambda m: m.var(A, dtype=complex),
    "var mean": lambda m: m.var(A, axis=1, mean=np.mean(A, axis=1, keepdims=True)),
    "var mean, scalar": lambda m: m.var(A.astype(np.float32), mean=2.0),
    "var mean, wider": lambda m: m.var(A.astype(np.float32), mean=np.float64(2)),
    "var mean None": lambda m: m.var(A, mean=None),
    "std mean, ddof": lambda m: m.std(A, axis=0, mean=[1.0, 2.0, 3.0], ddof=1),
    "std matrix": lambda m: m.std(np.matrix(A), axis=0),
    "std subclass": lambda m: m.std(A.view(Sub), axis=0),
    "std out": lambda m: m.std(A, axis=0, out=np.zeros(3, np.float32)),
    "mean of swapped float16 out": lambda m: m.mean(
        np.arange(3, dtype=">f2"), out=np.zeros((), "m8[s]")
    ),
    "std out, wider": lambda m: m.std(np.arange(4, dtype=np.float16), out=np.zeros(())),
    "std out, complex": lambda m: m.std(A, axis=1, out=np.zeros(2, complex)),
    "std out, narrower, mean": lambda m: m.std(A, axis=1, mean=1.0, out=np.zeros(2, np.float16)),
    "nanmean axis of a scalar": lambda m: m.nanmean(np.float32(2.5), axis=-1),
    "nanvar axis of a scalar": lambda m: m.nanvar(np.array(2.5), axis=0, mean=1.5),
    "nanstd axis of a scalar": lambda m: m.nanstd(np.array(1j), axis=0),
    "nanmin of nothing, infinite start": lambda m: m.nanmin(np.zeros(0), initial=np.inf),
    "sum of times into dates": lambda m: m.sum(
        np.array([3, -7], "m8[25s]"), out=np.zeros((), "M8[ms]")
    ),
    "nansum of times into dates": lambda m: m.nansum(
        np.array([[1, 2]], ">m8[h]"), axis=1, out=np.zeros(1, "M8[s]")
    ),
    "max of times into dates": lambda m: m.max(
        np.array([3, -7], "m8[25s]"), out=np.zeros((), "M8[ms]")
    ),
    "nanvar": lambda m: m.nanvar(NAN, axis=1, ddof=1),
    "nanvar mean": lambda m: m.nanvar(NAN, axis=1, mean=np.array([[1.0], [2.0], [3.0]])),
    "nanstd where": lambda m: m.nanstd(NAN, axis=0, where=[[True], [True], [False]]),
    "no value": lambda m: m.sum(A, keepdims=np._NoValue, initial=np._NoValue, where=np._NoValue),
    "no value, var": lambda m: m.var(A, keepdims=np._NoValue, where=np._NoValue, mean=np._NoValue),
    "complex order": lambda m: m.max(np.array([1 + 1j, 1 + 2j, 0 + 9j])),
    "complex NaN": lambda m: m.min(np.array([1 + 1j, complex(np.nan, 2), 0 + 9j])),
    "complex sum": lambda m: m.sum(np.array([[1 + 1j, 2], [3, 4j]], ">c8"), axis=0),
    "complex sum in floats": lambda m: m.sum(np.array([1 + 1j, 2]), dtype=np.float32),
    "complex truth": lambda m: m.all(np.array([1j, 0])),
    "times, min": lambda m: m.min(TIMES),
    "times, max": lambda m: m.max(TIMES[[0, 1, 3]]),
    "times, max, NaT": lambda m: m.max(TIMES),
    "dates, nanmin": lambda m: m.nanmin(DATES),
    "dates, nanmax": lambda m: m.nanmax(DATES, axis=0, keepdims=True),
    "dates, NaT alone": lambda m: m.nanmin(DATES[2:3]),
    "dates, argmin": lambda m: m.argmin(DATES),
    "dates, argmax": lambda m: m.argmax(DATES.reshape(2, 2), axis=1),
    "dates, initial": lambda m: m.max(DATES[:2], initial=np.datetime64("2021")),
    "dates, where": lambda m: m.max(
        DATES, where=[True, True, False, False], initial=np.datetime64("2000")
    ),
    "dates, where nothing": lambda m: m.max(DATES, where=False, initial=np.datetime64("2000")),
    "dates, out": lambda m: m.min(DATES[:2], out=np.zeros((), "M8[ms]")),
    "dates, ptp": lambda m: m.ptp(DATES[:2]),
    "dates, swapped": lambda m: m.min(DATES.astype(">M8[s]")),
    "dates, list": lambda m: m.max([np.datetime64("2001"), np.datetime64("2003")]),
    "times, sum": lambda m: m.sum(TIMES[:2]),
    "times, sum, NaT": lambda m: m.sum(TIMES.reshape(2, 2), axis=1),
    "times, sum, initial": lambda m: m.sum(TIMES[:2], initial=np.timedelta64(1, "m")),
    "times, mean": lambda m: m.mean(TIMES[:2]),
    "times, mean of nothing": lambda m: m.mean(TIMES[:0]),
    "times, any": lambda m: m.any(TIMES.reshape(2, 2) * 0, axis=1),
    "times, count": lambda m: m.count_nonzero(TIMES),
    "out overlaps": lambda m: (lambda a: m.sum(a, axis=0, out=a[0]))(A.copy()),
}  # fmt: skip


class WithArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(4.0)


@on_devices
@pytest.mark.parametrize("case", GOOD)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::RuntimeWarning")
def test_unusual_arguments_give_what_numpy_gives(case: str, device: str | None) -> None:
    try:
        expected = as_newest(GOOD[case](Theirs()))
    except TypeError:
        assert case in SOMETIMES
        with pytest.raises(TypeError):
            GOOD[case](Ours(device))
        return
    result = GOOD[case](Ours(device))
    assert type(result) is type(expected)
    if isinstance(expected, str):
        assert result == expected
        return
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "minmax"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_lie_in_memory_as_numpys_do(
    name: str, layout: str, rng: np.random.Generator
) -> None:
    dtype = np.int16 if "bitwise" in name else rng.choice(["f4", "f8", "i2", "c8"])
    a = lay_out(rng.integers(1, 3, (2, 4, 3)).astype(dtype), layout)
    axes = [0, 1, 2] if "arg" in name else [0, 1, 2, (), (0,), (2, 0), (1, 2)]
    for axis in axes:
        for keywords in ({}, {"keepdims": True}):
            result = getattr(gr, name)(a, axis=axis, device="cpu", **keywords)
            expected = getattr(Theirs(), name)(a, axis=axis, **keywords)
            assert order_of(result) == order_of(expected), (a.strides, a.dtype, axis, keywords)
    if "arg" not in name and name not in ("ptp", "count_nonzero"):
        begin = {"initial": 0} if name in ("min", "max", "nanmin", "nanmax") else {}
        for where in (np.ones(a.shape, bool), np.ones(a.shape, bool, order="F")):
            result = getattr(gr, name)(a, axis=1, where=where, device="cpu", **begin)
            expected = getattr(Theirs(), name)(a, axis=1, where=where, **begin)
            assert order_of(result) == order_of(expected), (a.strides, a.dtype, where.strides)


@pytest.mark.parametrize("name", ["min", "max", "nanmin", "nanmax"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dates_lie_in_memory_as_numpys_do(name: str, layout: str, rng: np.random.Generator) -> None:
    """Also where NaT takes a second pass with a mask, and in arrays that are broadcast."""
    dates = rng.integers(1, 9, (2, 4, 3)).astype("M8[D]")
    dates[rng.random(dates.shape) < 0.3] = "NaT"
    dates[0, 0, 0] = "NaT"
    row = np.broadcast_to(dates[0, :1], (4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for a, axes in ((lay_out(dates, layout), (0, 1, 2, (), (0,))), (row, ((),))):
            for axis in axes:
                result = getattr(gr, name)(a, axis=axis, device="cpu")
                expected = getattr(np, name)(a, axis=axis)
                np.testing.assert_array_equal(result, expected)
                assert order_of(result) == order_of(expected), (a.strides, axis)


TAKE_WHERE = [
    name for name in NAMES if "arg" not in name and name not in ("minmax", "ptp", "count_nonzero")
]


@pytest.mark.parametrize("name", TAKE_WHERE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_of_no_elements_lie_in_memory_as_numpys_do(name: str) -> None:
    begin = {"initial": 0} if name in ("min", "max", "nanmin", "nanmax") else {}
    for dtype in ("i2",) if "bitwise" in name else ("i2", "f4", "c16"):
        for array in permuted(np.ones((0, 2, 3), dtype)):
            for mask in (*permuted(np.ones((1, 2, 3), bool)), *permuted(np.ones((2, 3), bool))):
                keywords = {"axis": 0, "where": mask, **begin}
                result = getattr(gr, name)(array, device="cpu", **keywords)
                expected = getattr(Theirs(), name)(array, **keywords)
                assert order_of(result) == order_of(expected), (array.strides, mask.strides)


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variances_about_a_mean_in_another_order_lie_in_memory_as_numpys_do(
    name: str, rng: np.random.Generator
) -> None:
    for dtype in ("f4", "c16"):
        for array in permuted(rng.normal(size=(2, 3, 4)).astype(dtype)):
            for shape, axis in (((2, 3, 4), ()), ((2, 1, 4), 1), ((1, 3, 4), ()), ((2, 3, 1), 2)):
                for mean in permuted(rng.normal(size=shape).astype(dtype)):
                    keywords: dict[str, Any] = {"axis": axis, "mean": mean}
                    result = getattr(gr, name)(array, device="cpu", **keywords)
                    expected = getattr(np, name)(array, **keywords)
                    where = (array.strides, mean.strides, axis)
                    assert order_of(result) == order_of(expected), where


def permuted(array: Any) -> list[Any]:
    """The array with its axes in every order in memory."""
    orders = list(itertools.permutations(range(array.ndim)))
    return [array.transpose(order).copy().transpose(np.argsort(order)) for order in orders]


SOMETIMES = ("mean of swapped float16 out", "nanmin out=...", "bitwise_or out=...")
"""Calls that NumPy refuses in some versions, or until it has made other calls."""


WARNED: dict[str, Callable[[Any], Any]] = {
    "mean of nothing": lambda m: m.mean(np.zeros(0)),
    "mean of nothing, rows": lambda m: m.mean(np.zeros((0, 2)), axis=0),
    "mean of nothing, masked": lambda m: m.mean(A, where=False),
    "mean of half into complex": lambda m: m.mean(A.astype("e"), out=np.zeros((), complex)),
    "mean of nothing, one row": lambda m: m.mean(A, axis=1, where=[[True], [False]]),
    "mean of no times": lambda m: m.mean(TIMES[:0]),
    "nanmean of NaN": lambda m: m.nanmean(NAN, axis=1),
    "nanmean of nothing": lambda m: m.nanmean([]),
    "nanmean of NaN, masked": lambda m: m.nanmean(NAN, where=NAN != NAN),
    "nanmin of NaN": lambda m: m.nanmin(NAN, axis=1),
    "nanmin of NaN, list": lambda m: m.nanmin([np.nan]),
    "nanmax of NaN, initial": lambda m: m.nanmax(NAN.tolist(), axis=1, initial=0),
    "nanmax of NaT": lambda m: m.nanmax(TIMES[2:3]),
    "var of one": lambda m: m.var(np.ones(1), ddof=1),
    "var of rows": lambda m: m.var(A, axis=0, ddof=2),
    "var of nothing": lambda m: m.var([]),
    "std masked": lambda m: m.std(A, axis=0, where=[[True], [False]], ddof=1.5),
    "std about a mean": lambda m: m.std(A, axis=0, mean=0, ddof=2),
    "nanvar of NaN": lambda m: m.nanvar(NAN, axis=1),
    "nanvar, ddof": lambda m: m.nanvar(NAN[::2], axis=1, ddof=2),
    "nanvar of integers, ddof": lambda m: m.nanvar([1, 2], ddof=2),
    "nanstd of nothing": lambda m: m.nanstd(np.zeros((3, 0)), axis=1),
    "complex to real": lambda m: m.sum(A * 1j, dtype=np.float64),
    "complex out to real": lambda m: m.prod(A * 1j, out=np.zeros(())),
}


@on_devices
@pytest.mark.parametrize("initial", [0.5, 1.5, -0.5, 4, True])
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_into_a_bool_begin_with_the_start_as_an_element(
    name: str, initial: float, device: str | None
) -> None:
    for elements in (np.array([1, 3], np.uint16), np.zeros(2, np.int8), np.zeros(0, int)):
        ours, theirs = np.array(False), np.array(False)
        getattr(gr, name)(elements, initial=initial, out=ours, device=device)
        getattr(np, name).reduce(elements, initial=initial, out=theirs)
        assert ours == theirs, elements


@on_devices
def test_nan_that_out_has_no_place_for_is_no_reason_to_warn(device: str | None) -> None:
    times = np.array(["NaT"], "m8[s]")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in (Theirs(), Ours(device)):
            assert module.nanmin(times, out=np.array(False)) == True  # noqa: E712


@on_devices
@pytest.mark.parametrize("case", WARNED)
def test_warnings_are_numpys_and_point_to_the_callers_line(case: str, device: str | None) -> None:
    def observe_here(module: Any) -> tuple[Any, list[warnings.WarningMessage]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = WARNED[case](module)
        return result, [one for one in caught if " encountered in " not in str(one.message)]

    expected, theirs = observe_here(Theirs())
    result, ours = observe_here(Ours(device))
    assert theirs
    assert {(one.category, str(one.message)) for one in ours} == {
        (one.category, text_of_newest(str(one.message))) for one in theirs
    }
    assert {one.filename for one in ours} == {__file__}
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))
    assert np.asarray(result).dtype == np.asarray(expected).dtype


@on_devices
@pytest.mark.parametrize("name", ["mean", "nanmean"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_means_are_as_precise_as_a_wider_out(
    dtype: str, name: str, device: str | None, rng: np.random.Generator
) -> None:
    array = rng.normal(size=(50, 3)).astype(np.dtype(dtype))
    for wider in ["complex128"] if dtype == "complex64" else ["float64", "complex128"]:
        out = np.zeros(50, wider)
        with warnings.catch_warnings():
            # NumPy sums float16 in float32.
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            assert getattr(gr, name)(array, axis=1, out=out, device=device) is out
        np.testing.assert_allclose(out, array.astype(wider).mean(1), rtol=0, atol=2e-15)


def squares_about(row: Any, center: Fraction | None) -> Fraction:
    """The mean squared distance of a row from a number, or from its own mean."""
    numbers = [Fraction(float(x)) for x in row]
    center = sum(numbers) / len(numbers) if center is None else center
    return sum((x - center) ** 2 for x in numbers) / len(numbers)


@on_devices
@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_variances_are_as_precise_as_a_wider_out(
    dtype: str, name: str, device: str | None, rng: np.random.Generator
) -> None:
    array = rng.normal(size=(20, 5)).astype(np.dtype(dtype))
    for given, wider, kernel in itertools.product(
        [{}, {"mean": 0.25}], ["float64", "complex128"], ["auto", "exact", "shfl_two_pass"]
    ):
        if given and kernel == "exact":
            continue
        center = Fraction(1, 4) if given else None
        exact = np.array([float(squares_about(row, center)) for row in array])
        out = np.zeros(20, wider)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            warnings.simplefilter("ignore", gr.NoDeviceWarning)
            options = {"kernel": kernel, "device": device}
            assert getattr(gr, name)(array, axis=1, out=out, **given, **options) is out
        exact = np.sqrt(exact) if "std" in name else exact
        np.testing.assert_allclose(out, exact, rtol=2e-15, atol=0)


def test_variances_of_complex_numbers_are_as_precise_as_a_wider_out(
    rng: np.random.Generator,
) -> None:
    array = (rng.normal(size=30) + 1j * rng.normal(size=30)).astype(np.complex64)
    exact = squares_about(array.real, None) + squares_about(array.imag, None)
    np.testing.assert_allclose(gr.var(array, out=np.zeros(())), float(exact), rtol=2e-15)
    np.testing.assert_allclose(gr.std(array, out=np.zeros(())) ** 2, float(exact), rtol=4e-15)


@on_devices
def test_infinities_are_infinitely_far_from_a_given_mean(device: str | None) -> None:
    inf, nan = np.inf, np.nan
    rows = np.array([[inf, 1], [inf, -inf], [inf, nan], [-inf, -inf], [1, 2], [nan, 1]])
    for array in (rows, rows.astype(np.float16), rows + 2j, rows.T.copy().T):
        for name in ("var", "std", "nanvar", "nanstd"):
            for mean in (0.0, 3, inf, -inf, nan, rows[:, 1:]):
                for more in ({}, {"ddof": 2}, {"where": rows != 1, "keepdims": True}):
                    keywords = {"axis": 1, "mean": mean, **more}
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        expected = getattr(np, name)(array, **keywords)
                        got = getattr(gr, name)(array, **keywords, device=device)
                    np.testing.assert_array_equal(got, expected, f"{name} of {array}, {keywords}")


@on_devices
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_products_begin_at_initial(dtype: str, device: str | None) -> None:
    inf, big = np.inf, float(np.finfo(dtype).max)
    starts = [0.0] if dtype == "complex128" else [0.0, -0.0, inf, -inf]
    tiny = 1 / big
    rows = [[big, big, -3], [tiny, -tiny, tiny], [big, big, big], [2, 1, 5], [-1, 0, 2]]
    rows += [] if dtype == "complex128" else [[inf, 2, big], [np.nan, 1, 1]]
    array = np.array(rows).astype(dtype)
    for name, start in itertools.product(("prod", "nanprod"), starts):
        for more in ({}, {"where": np.array([True, True, False])}):
            with np.errstate(all="ignore"):
                expected = getattr(np, name)(array, axis=1, initial=start, **more)
            got = getattr(gr, name)(array, axis=1, initial=start, **more, device=device)
            np.testing.assert_array_equal(got, expected)
            if dtype != "complex128":
                np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kernel", ["fast", "exact", "sequential"])
def test_zeros_have_the_signs_of_numpys(kernel: str, device: str, rng: np.random.Generator) -> None:
    """A sum starts at 0.0, unless its start is -0.0 or None; one of bfloat16, too, where that of
    ``ml_dtypes`` 0.7 starts at -0.0."""
    minus = complex(-0.0, -0.0)
    shapes = [(0,), (1,), (64,), (700,), (3, 0), (2, 40), (40, 2)]
    for dtype, shape in itertools.product(
        ["f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16, "i4"],
        [shapes[i] for i in rng.choice(len(shapes), 3, replace=False)],
    ):
        array = np.full(shape, minus if np.dtype(dtype).kind == "c" else -0.0).astype(dtype)
        one_plus, holed = array.copy(), array.copy()
        one_plus[..., -1:] = 0
        if array.dtype.kind != "i":
            holed[..., :1] = np.nan
        starts = [np._NoValue, None, -0.0, 0.0, 3.0] + ([minus] if array.dtype.kind == "c" else [])
        for one, name, start, where, axis in itertools.product(
            (array, one_plus, holed),
            ("sum", "nansum", "mean", "nanmean"),
            starts,
            (True, np.zeros(shape, bool), np.arange(shape[-1]) % 2 == 0),
            (None, -1),
        ):
            keywords = {"axis": axis} | ({} if where is True else {"where": where})
            if "mean" not in name:
                keywords["initial"] = start
            elif start is not np._NoValue:
                continue
            if start is None and (where is not True or not one.size):
                continue
            # Of means with a mask, GPUs count and sum in one pass, which `fast` and `exact` have.
            if kernel == "sequential" and device == "cuda" and "mean" in name and where is not True:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                numpys = one.astype("f4") if one.dtype.kind == "V" else one
                theirs = getattr(np, name)(numpys, **keywords)
                ours = getattr(gr, name)(one, **keywords, kernel=kernel, device=device)
            for part in (np.real, np.imag):
                got, wanted = (np.asarray(part(x)).astype("f8") for x in (ours, theirs))
                same = np.isnan(wanted) | (np.signbit(got) == np.signbit(wanted))
                context = f"{name} of {one.dtype} {shape}, {keywords}: {ours} is not {theirs}"
                assert np.all(same & ((got == wanted) | np.isnan(wanted))), context


@on_devices
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_sums_and_products_with_a_start_are_rounded_together(
    dtype: str, device: str | None
) -> None:
    kind = np.dtype(dtype)
    real = np.empty(0, kind).real.dtype if kind.kind == "c" else kind
    big, odd = float(ml_dtypes.finfo(real).max), int(2 / float(ml_dtypes.finfo(real).eps)) + 1
    assert gr.sum(np.array([big, big], kind), initial=-big, device=device) == kind.type(big)
    assert (
        gr.sum(np.array([[1, 2], [big, big]], kind), axis=1, initial=-big, device=device)[1] == big
    )
    if dtype == "complex64":
        return
    if dtype != "float64":
        sum_of_odd = gr.sum(np.array([odd - 1, 1], kind), initial=1, device=device)
        assert float(sum_of_odd) == odd + 1
        product = gr.prod(np.array([big, big], kind), initial=1 / big, device=device)
        wanted = float(kind.type(1 / big)) * big * big
        assert float(product) == pytest.approx(wanted, rel=float(ml_dtypes.finfo(real).eps))
    far = gr.sum(np.array([np.inf, big], kind), initial=-big, device=device)
    assert far == np.inf
    assert np.isnan(gr.sum(np.array([np.inf, 1], kind), initial=-np.inf, device=device))


def outcome_of(function: Callable[..., Any], *args: Any, **keywords: Any) -> tuple[Any, ...]:
    try:
        result = np.asarray(function(*args, **keywords))
    except OverflowError as error:
        return (OverflowError, str(error))
    return result.dtype, result.view(np.int64).tolist()


def test_times_overflow_as_those_of_the_numpy_that_is_installed(rng: np.random.Generator) -> None:
    big, nat = 2**62, np.iinfo(np.int64).min
    numbers = [big, -big, 2**63 - 1, 1 - 2**63, 1, -1, nat]
    for _ in range(60):
        array = rng.choice(numbers, (3, 4), p=[0.2, 0.2, 0.05, 0.05, 0.2, 0.2, 0.1]).view("m8[s]")
        start = np.timedelta64(int(rng.choice(numbers)), "s")
        for keywords in (
            {},
            {"axis": 0},
            {"axis": -1, "keepdims": True},
            {"initial": start},
            {"where": rng.random(4) < 0.7},
            {"out": np.zeros((), "m8[s]")},
            {"axis": 0, "initial": start, "where": rng.random((3, 4)) < 0.7},
        ):
            for name in ("sum", "mean", "nansum"):
                if name == "mean" and "initial" in keywords:
                    continue
                for kept in (array, array.T, array[:, :0]):
                    if "where" in keywords and kept is not array:
                        continue
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        theirs = outcome_of(getattr(np, name), kept, **keywords)
                        ours = outcome_of(getattr(gr, name), kept, **keywords)
                    assert ours == theirs, f"{name} of {kept.view(np.int64)}, {keywords}"


@on_devices
def test_a_start_passes_through_out_as_in_numpy(device: str | None) -> None:
    for dtype, out in itertools.product(["i2", "u1", "f4", "f8", "?"], ["i8", "f8", "f2", "i4"]):
        array = np.array([5, 7.5, 1.25]).astype(dtype)
        for start, where in itertools.product([2.5, 3, 1000, -7], [True, False]):
            for name in ("min", "max", "nanmax", "sum", "prod", "minmax"):
                keywords = {"initial": start, "where": np.full(3, where)}
                ours, theirs = (np.zeros(2, out) for _ in range(2))
                if name == "minmax":
                    np.min(array, out=theirs[:1].reshape(()), **keywords)
                    np.max(array, out=theirs[1:].reshape(()), **keywords)
                    gr.minmax(array, out=(ours[:1].reshape(()), ours[1:].reshape(())), **keywords)
                else:
                    getattr(np, name)(array, out=theirs[:1].reshape(()), **keywords)
                    given = {"out": ours[:1].reshape(()), "device": device}
                    getattr(gr, name)(array, **given, **keywords)
                np.testing.assert_array_equal(ours, theirs, f"{name} {dtype} {out} {keywords}")


def test_bits_of_no_elements_have_the_identity_of_out() -> None:
    for name, dtype, out in itertools.product(
        ["bitwise_and", "bitwise_or", "bitwise_xor"], ["i1", "u1", "i4", "?"], ["i8", "u2", "i2"]
    ):
        array = np.array([5, 7, 4]).astype(dtype)
        for keywords in ({}, {"initial": 100}, {"initial": 1}, {"where": np.zeros(3, bool)}):
            theirs = getattr(np, name).reduce(array, out=np.zeros((), out), **keywords)
            assert getattr(gr, name)(array, out=np.zeros((), out), **keywords) == theirs


def test_what_bits_begin_with_passes_through_an_out_of_bools() -> None:
    some = np.array([True, True, False])
    for name, dtype in itertools.product(
        ["bitwise_and", "bitwise_or", "bitwise_xor"], ["i2", "u8"]
    ):
        array = np.array([6, 2, 7]).astype(dtype)
        for keywords in ({}, {"where": some}, {"initial": 4}, {"initial": 0, "where": ~some}):
            theirs = getattr(np, name).reduce(array, out=np.zeros((), bool), **keywords)
            assert getattr(gr, name)(array, out=np.zeros((), bool), **keywords) == theirs


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variances_of_large_numbers_overflow_only_if_they_are_too_large(name: str) -> None:
    """Sums of distances, and of the elements themselves, may overflow where the variance does not;
    NaN and infinities among the elements count as ever."""
    rng = np.random.default_rng()
    some = set()
    for top, n, axis in itertools.product((1e150, 1e160, 1e300, 1e308), (3, 40, 700), (0, 1)):
        shape = (n, 3) if axis == 0 else (3, n)
        for values in (
            np.full(shape, top),
            top * rng.choice([-1.0, 1.0, 1 / 3, 0.0], shape),
            top * rng.normal(1, 1e-9, shape),
        ):
            exact = getattr(gr, name)(values, axis=axis, device="cpu", kernel="exact")
            found = getattr(gr, name)(values, axis=axis, device="cpu")
            is_number = np.isfinite(found)
            some |= {*is_number.tolist()}
            assert np.array_equal(is_number, np.isfinite(exact))
            assert np.array_equal(found[~is_number], exact[~is_number])
            # The means are right to some 1e-16 of themselves.
            np.testing.assert_allclose(
                found[is_number] / top,
                exact[is_number] / top,
                1e-6,
                1e-15 if name.endswith("std") else top * 1e-30,
            )
            # Far from where anything overflows, in more digits.
            power = 600 if name.endswith("std") else 1200
            wide = np.ldexp(values.astype(np.longdouble), -600)
            scaled = getattr(np, name)(wide, axis=axis)
            close = np.isclose(np.ldexp(exact.astype(np.longdouble), -power), scaled, 1e-9, 0)
            is_too_large = np.ldexp(scaled, power) > np.finfo(float).max
            assert np.all(close | (np.isinf(exact) & is_too_large))
    assert some == ({True} if name.endswith("std") else {False, True})


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", ["var", "nanstd"])
def test_large_numbers_among_others_are_found_in_every_layout(
    name: str, dtype: str, rng: np.random.Generator
) -> None:
    function = getattr(gr, name)
    for _ in range(40):
        shape = tuple(rng.choice((1, 3, 40, 2000, 70000), 2).tolist())
        while shape[0] * shape[1] > 300_000:
            shape = (shape[0] // 10 + 1, shape[1])
        values = rng.normal(size=shape).astype(dtype)
        values[rng.random(shape) < 0.3] *= 1e300
        for special, share in ((np.nan, 0.3), (np.inf, 0.2)):
            if rng.random() < share:
                values[rng.integers(shape[0]), rng.integers(shape[1])] = special
        array = values if rng.random() < 0.5 else np.asfortranarray(values)
        array = array[:, ::-1] if rng.random() < 0.3 else array
        array = array.astype(array.dtype.newbyteorder()) if rng.random() < 0.2 else array
        axis = [None, 0, 1][int(rng.integers(3))]
        keywords = {} if rng.random() < 0.6 else {"where": rng.random(shape) < 0.8}
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = function(array, axis=axis, device="cpu", **keywords)
            exact = function(array, axis=axis, device="cpu", kernel="exact", **keywords)
        assert np.array_equal(np.isfinite(found), np.isfinite(exact)), (shape, axis)
        assert np.array_equal(np.isnan(found), np.isnan(exact)), (shape, axis)
        np.testing.assert_allclose(found, exact, 1e-6)


def test_means_into_another_sixteen_bit_float_are_rounded_there() -> None:
    halves = np.array([-1.6201171875, -0.131103515625, -0.27099609375], np.float16)
    short, half = ml_dtypes.bfloat16, np.float16
    assert gr.mean(halves, out=np.zeros((), short)) == short(-0.67578125)
    assert gr.mean(np.array([1, 1, 2], short), out=np.zeros((), half)) == half(4 / 3)


def test_minmax_writes_neither_out_unless_it_can_write_both() -> None:
    low = np.full((), 9.0)
    with pytest.raises(ValueError, match="wrong number of dimensions"):
        gr.minmax(A, out=(low, np.zeros(3)))
    assert low == 9


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, object),
        np.zeros(3, np.longdouble),
        np.zeros(3, np.clongdouble),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        np.zeros(2, "V4"),
        *(
            np.ones(3).astype(getattr(ml_dtypes, name))
            for name in ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4")
        ),
    ],
    ids=lambda array: array.dtype.name.replace(" ", ""),
)
@pytest.mark.parametrize("op", NAMES)
def test_other_dtypes_are_refused_by_name(op: str, array: Any) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(gr, op)(array)
    assert str(array.dtype) in str(caught.value)
    assert "float32" in str(caught.value)


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
@pytest.mark.parametrize("source", [np.int64, np.float64])
@pytest.mark.parametrize("op", [name for name in NAMES if name != "count_nonzero"])
def test_extended_precision_takes_elements_and_truths_and_nothing_rounded(
    op: str, source: Any, dtype: Any
) -> None:
    values = np.random.default_rng().integers(-(2**63), 2**63 - 1, (4, 3)).astype(source)
    first, second, wanted = (np.zeros(3, dtype) for _ in range(3))
    if op == "minmax":
        gr.minmax(values, axis=0, out=(first, second), device="cpu")
        np.testing.assert_array_equal(first, values.min(axis=0).astype(dtype))
        np.testing.assert_array_equal(second, values.max(axis=0).astype(dtype))
    elif op in ("min", "max", "nanmin", "nanmax", "ptp", "any", "all", "logical_xor"):
        assert getattr(gr, op)(values, axis=0, out=first, device="cpu") is first
        getattr(Theirs(), op)(values, axis=0, out=wanted)
        np.testing.assert_array_equal(first, wanted)
    else:
        with pytest.raises(TypeError):
            getattr(gr, op)(values, axis=0, out=first, device="cpu")
        assert not first.any()


@on_devices
@pytest.mark.parametrize(
    "name", ["min", "max", "sum", "argmin", "mean", "ptp", "any", "bitwise_or"]
)
def test_out_may_overlap_the_input(name: str, device: str | None) -> None:
    values = np.random.default_rng(0).integers(-50, 50, (5, 6))
    kept = values.copy()
    out = values[2]
    assert getattr(Ours(device), name)(values, axis=0, out=out) is out
    np.testing.assert_array_equal(
        out, np.asarray(getattr(Theirs(), name)(kept, axis=0)).astype(out.dtype)
    )
    np.testing.assert_array_equal(np.delete(values, 2, 0), np.delete(kept, 2, 0))


@on_devices
def test_minmax_is_a_pair_with_names(device: str | None) -> None:
    pair = gr.minmax(A, axis=1, device=device)
    assert isinstance(pair, gr.MinMax)
    np.testing.assert_array_equal(pair.min, A.min(axis=1))
    np.testing.assert_array_equal(pair.max, A.max(axis=1))
    outs = (np.zeros(2), np.zeros(2, np.float32))
    low, high = gr.minmax(A, axis=1, out=outs, device=device)
    assert (low is outs[0], high is outs[1]) == (True, True)
    for bad in (np.zeros((2, 2)), (np.zeros(2),), [np.zeros(2), np.zeros(2)], 3):
        with pytest.raises(TypeError, match="pair"):
            gr.minmax(A, axis=1, out=bad, device=device)
    assert type(gr.minmax(A.view(Sub), axis=0, device=device).max) is Sub


# ---------------------------------------------------------------- accuracy


def exact_variance(values: Any, ddof: float = 0) -> Fraction:
    fractions = [Fraction(float(x)) for x in values]
    mean = sum(fractions) / len(fractions)
    return sum((x - mean) ** 2 for x in fractions) / (len(fractions) - Fraction(ddof))


HARD = {
    "spread": lambda rng, n: rng.normal(0, 1, n),
    "far from zero": lambda rng, n: rng.normal(1e4, 1, n),
    "very far from zero": lambda rng, n: rng.normal(1e8, 1, n),
    "of many sizes": lambda rng, n: rng.normal(0, 1, n) * 10.0 ** rng.integers(-12, 12, n),
    "nearly equal": lambda rng, n: 1 + rng.integers(0, 3, n) * 2.0**-23,
    "one that is not": lambda rng, n: np.where(np.arange(n) == n // 2, 1e6, 1e-3),
}


ACCURACY = list(itertools.product(HARD, (np.float64, np.float32)))


@on_devices
@pytest.mark.parametrize(("case", "dtype"), ACCURACY)
@pytest.mark.parametrize("n", [3, 100, 4099])
def test_variances_are_as_accurate_as_numpys_or_exact_to_a_few_bits(
    case: str, dtype: Any, n: int, device: str | None
) -> None:
    few = 4
    values = HARD[case](np.random.default_rng(n), n).astype(dtype)
    exact = exact_variance(values, 1)
    ours, theirs = gr.var(values, ddof=1, device=device), np.var(values, ddof=1)
    ulp = Fraction(float(np.spacing(dtype(float(exact)))))
    ours_off, theirs_off = abs(Fraction(float(ours)) - exact), abs(Fraction(float(theirs)) - exact)
    assert ours_off <= max(theirs_off, few * ulp), (
        f"{float(ours_off / ulp)} ulp, NumPy {float(theirs_off / ulp)}"
    )
    root = gr.std(values, ddof=1, device=device)
    assert abs(Fraction(float(root)) ** 2 - exact) <= 2 * max(theirs_off, few * ulp)
    center = dtype(values.mean())
    about = (
        exact * (n - 1) / n
        + (sum(Fraction(float(x)) for x in values) / n - Fraction(float(center))) ** 2
    )
    given = Fraction(float(gr.var(values, mean=center, device=device)))
    theirs_given = Fraction(float(np.var(values, mean=center)))
    assert abs(given - about) <= max(abs(theirs_given - about), few * ulp)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "max", "any", "ptp", "nanmean"])
def test_an_ellipsis_as_out_is_refused_with_the_functions_that_take_it(name: str) -> None:
    taken = "bitwise_and, bitwise_or, bitwise_xor, logical_xor, nanmin and nanmax"
    with pytest.raises(TypeError, match=f"{re.escape('out=...')} is for {taken}"):
        getattr(gr, name)(A, out=...)


def test_a_variance_too_large_for_its_type_is_infinite_and_its_root_is_not() -> None:
    for values in ([1e308, -1e308, 1e308], [1e200, -1e200], [1e308, -1e308] * 2):
        assert gr.var(np.array(values), device="cpu") == np.inf
        deviation = 2.0**1000 * float(np.std(np.array(values) * 2.0**-1000))
        assert gr.std(np.array(values), device="cpu") == pytest.approx(deviation, rel=1e-15)
    assert np.isnan(gr.var(np.array([np.inf, 1.0]), device="cpu"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variances_of_columns_are_those_of_their_copies(dtype: Any) -> None:
    values = np.random.default_rng(7).normal(1e3, 1, (611, 700)).astype(dtype)
    for a in (values, values[::-1], values[:, :40], values[3::5, 1:], values.reshape(13, 47, 700)):
        axis = tuple(range(a.ndim - 1))
        ours = gr.var(a, axis=axis, ddof=1, device="cpu")
        copies = gr.var(
            np.ascontiguousarray(a.reshape(-1, a.shape[-1]).T), axis=1, ddof=1, device="cpu"
        )
        assert ours.dtype == copies.dtype
        np.testing.assert_array_max_ulp(ours, copies, maxulp=4)


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="masked arrays are not supported"):
        gr.sum(np.ma.masked_array([1, 2], [True, False]))


class OnDevice:
    """An array with the attributes of CuPy's and Numba's arrays."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012


class OnDeviceByDlpack:
    """An array with the attributes of JAX's arrays; those in host memory are accepted."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.kind != 1:
            raise AssertionError("a hidden copy")
        return np.ones(3)


@pytest.mark.parametrize("array", [OnDevice(), OnDeviceByDlpack(2), OnDeviceByDlpack(13)])
def test_device_arrays_are_never_copied_behind_the_callers_back(array: Any) -> None:
    # These show no memory, and there may be no GPU: an error, whichever comes first.
    with pytest.raises((ValueError, AttributeError, gr.DeviceUnavailableError)):
        gr.sum(array)
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
    for op, layout in itertools.product(NAMES, LAYOUTS):
        dtype = np.int32 if "bit" in op else np.float32
        array = lay_out(np.arange(1, 25, dtype=dtype).reshape(4, 6), layout)
        before = array.copy()
        getattr(gr, op)(array, axis=0, device=device)
        np.testing.assert_array_equal(array, before)


def test_a_masked_mean_as_bool_counts_what_is_true() -> None:
    a, mask = np.array([[-1, 1, 0], [0, 0, 3]], np.int16), np.array([True, True, False])
    got = gr.mean(a, axis=1, dtype=bool, where=mask, device="cpu")
    assert got.tolist() == np.mean(a, axis=1, dtype=bool, where=mask).tolist() == [True, False]


def test_nanmean_of_nothing_warns_only_of_results() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gr.nanmean(np.zeros((0, 0)), axis=0, device="cpu").shape == (0,)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(gr.nanmean(np.zeros((0, 2)), axis=0, device="cpu")).all()


@pytest.mark.parametrize("name", ["mean", "nanmean", "var", "nanvar"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool", "complex64"])
def test_moments_of_nothing_warn_as_numpys_where_there_are_no_results_either(
    name: str, dtype: str
) -> None:
    def heard(module: Any, **keywords: Any) -> set[str]:
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
            warnings.simplefilter("always")
            getattr(module, name)(np.zeros(shape, dtype), **keywords)
        return {text_of_newest(str(one.message)) for one in caught}

    shapes = [((0, 0), 0), ((0, 3), 0), ((3, 0), 0), ((0, 0), None), ((0, 0, 2), (0, 2))]
    for shape, axis in shapes:
        for keywords in ({}, {"where": False}, {"where": np.ones(shape, bool)}, {"keepdims": True}):
            ours = heard(gr, axis=axis, device="cpu", **keywords)
            assert ours == heard(np, axis=axis, **keywords), f"{shape}, {axis}, {keywords}"


def test_any_and_all_of_columns_in_many_short_runs_come_to_an_end(rng: Any) -> None:
    """Runs of two rows, more of them than a number of rows can double."""
    whole = np.zeros((300, 3, 200), bool)
    whole[rng.integers(300), 0, rng.integers(200)] = True
    for array in (whole[:, ::2], ~whole[:, ::2], np.zeros((300, 2, 200), np.int16)[:, ::-1]):
        for name in ("any", "all", "logical_xor"):
            want = (
                np.logical_xor.reduce(array != 0, axis=(0, 1))
                if name == "logical_xor"
                else (getattr(np, name)(array, axis=(0, 1)))
            )
            got = gr.reduce(array, name, axis=(0, 1), device="cpu")
            np.testing.assert_array_equal(got, want, name)


@pytest.mark.parametrize("name", ["datetime64[s]", "timedelta64[us]", "int64", "uint64", ">i8"])
def test_positions_of_numbers_that_nothing_beats_are_the_first(
    name: str, rng: np.random.Generator
) -> None:
    """Of NaT, and of the least and the largest integer, which end the search of a long row."""
    for _ in range(20):
        rows, length = int(rng.integers(1, 6)), int(rng.integers(500, 60000))
        x = rng.integers(1, 1000, (rows, length)).astype(name)
        integers = x.dtype.kind in "iu"
        for number in (np.iinfo(name).min, np.iinfo(name).max) if integers else ("NaT",):
            x[rng.random(x.shape) < rng.choice([0, 1e-4, 1e-2])] = number
        every = np.repeat(x, 2, axis=1)[:, ::2]
        for array in (x, every, x[:, ::-1]):
            for function in ("argmin", "argmax"):
                made = getattr(gr, function)(array, axis=1, device="cpu")
                wanted = getattr(np, function)(array, axis=1)
                assert np.array_equal(made, wanted), (function, rows, length)


@pytest.mark.parametrize("length", [2000, 4096, 4847, 20000, 70000])
def test_positions_in_rows_of_every_length_are_found(length: int) -> None:
    for dtype in ("int8", "int64", "float32", "float64"):
        rows = (np.arange(3 * length).reshape(3, length) * 37 % 101).astype(dtype)
        assert gr.argmax(rows, axis=1, device="cpu").tolist() == rows.argmax(axis=1).tolist()
        assert gr.argmin(rows, axis=1, device="cpu").tolist() == rows.argmin(axis=1).tolist()
