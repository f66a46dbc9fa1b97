"""The functions that one call of the package calls: nothing is decided twice, in Python or C."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import pickle
import re
import warnings
import weakref
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from core_trace import core_calls, package_frames
from exact_reference import round_to

import gpureduce as gr
from gpureduce import _core
from gpureduce._dtypes import native_dtype

PLAIN = (
    "sum", "prod", "mean", "min", "max", "ptp", "any", "all", "argmin", "argmax", "var", "std",
    "count_nonzero", "nansum", "nanprod", "nanmean", "nanmin", "nanmax", "nanargmin", "nanargmax",
    "nanvar", "nanstd",
)  # fmt: skip
"""Functions whose plain calls are the core's."""


def calls_nothing(call: Callable[[], Any]) -> bool:
    """Whether a call runs in the core as a whole."""
    return not core_calls(call) and not package_frames(call)


def test_a_plain_call_runs_no_python() -> None:
    a = np.ones((10, 100), np.float32)
    for axis in (None, 0, 1, -1, (0, 1), ()):
        for keepdims in (False, True):
            assert calls_nothing(lambda at=axis, keep=keepdims: gr.sum(a, axis=at, keepdims=keep))
    for name in PLAIN:
        for array in (a, a.astype(np.int16), a.astype(np.complex128), a.astype(bool)):
            function = getattr(gr, name)
            if name == "ptp" and array.dtype == bool:
                continue  # is a TypeError
            assert calls_nothing(lambda f=function, x=array: f(x, 0, kernel="auto", device="cpu"))
    assert core_calls(lambda: gr.minmax(a, axis=(0, 1))) == []
    assert package_frames(lambda: gr.minmax(a, axis=(0, 1))) == ["_finish_pair"]
    assert core_calls(lambda: gr.dot(a[0], a[1])) == ["dot_plain"]
    assert core_calls(lambda: gr.vdot(a[0], a[1])) == ["dot_plain"]


def test_a_masked_call_runs_no_python() -> None:
    a = np.ones((10, 100), np.float32)
    mask = a.astype(bool)
    for function in (gr.sum, gr.any, gr.mean, gr.var, gr.nansum, gr.nanmean, gr.nanstd):
        assert calls_nothing(lambda f=function: f(a, axis=1, keepdims=True, where=mask))
    for extreme in (gr.max, gr.nanmin):
        for dtype in "?bIefdFD":
            array = a.astype(dtype)
            assert calls_nothing(
                lambda f=extreme, x=array: f(x, axis=1, initial=3, where=mask, device="cpu")
            )
    integers = a.astype(np.int16)
    for bits in (gr.bitwise_and, gr.bitwise_or, gr.bitwise_xor, gr.logical_xor):
        assert calls_nothing(lambda f=bits: f(integers, axis=1, where=mask))


def test_a_mask_that_is_broadcast_runs_no_python(rng: np.random.Generator) -> None:
    a = rng.standard_normal((10, 100)).astype(np.float32)
    for shape in ((100,), (10, 1), (1, 100), (1,), ()):
        mask = np.asarray(rng.random(shape) < 0.7)
        for name in ("sum", "any", "prod", "nansum"):
            function = getattr(gr, name)
            assert calls_nothing(lambda f=function, m=mask: f(a, axis=1, where=m, device="cpu"))
            got = function(a, axis=0, where=mask, kernel="fast", device="cpu")
            wanted = getattr(np, name)(a, axis=0, where=mask)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="broadcast"):
        gr.sum(a, axis=1, where=np.ones(99, bool))


def test_lists_and_numbers_run_no_python() -> None:
    for given in ([1.5, 2.0, -3.0], (1, 2, 3), [[True, False]], [], 3, 2.5, True, 2j, np.int8(-7),
                  np.float32(0.1), np.bool_(True), np.complex64(1j)):  # fmt: skip
        for name in ("sum", "prod", "mean", "max", "any", "all", "argmin", "std", "count_nonzero"):
            function, numpys = getattr(gr, name), getattr(np, name)
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    wanted = numpys(given)
            except ValueError:
                with pytest.raises(ValueError):  # noqa: PT011 - the contract's tests compare them
                    function(given)
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                got = function(given)
            assert type(got) is type(wanted), (name, given)
            np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=f"{name} {given}")
            if np.size(given) > 0:
                assert calls_nothing(lambda f=function, x=given: f(x)), (name, given)


def test_an_interrupt_while_a_list_is_converted_ends_the_call() -> None:
    class Interrupting:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gr.sum([Interrupting()])


def test_an_out_that_takes_the_result_as_it_is_runs_no_python(rng: np.random.Generator) -> None:
    a = rng.standard_normal((6, 5, 7))
    for name in ("sum", "prod", "mean", "max", "any", "argmin", "var", "ptp", "nansum"):
        function, numpys = getattr(gr, name), getattr(np, name)
        if name in ("sum", "mean", "any"):
            wanted, number = numpys(a * 1j), np.zeros((), bool if name == "any" else complex)
            assert calls_nothing(lambda f=function, to=number: f(a * 1j, out=to))
            np.testing.assert_allclose(number, wanted, rtol=1e-12)
        for axis in (None, 0, 1, -1):
            wanted = np.asarray(numpys(a, axis=axis))
            room = np.zeros([2 * extent for extent in wanted.shape], wanted.dtype)
            outs = [np.zeros(wanted.shape, wanted.dtype, order) for order in "CF"]
            outs.append(room[(slice(None, None, -2),) * wanted.ndim + (...,)])
            for out in outs:
                assert calls_nothing(lambda f=function, at=axis, to=out: f(a, at, out=to))
                assert function(a, axis=axis, out=out) is out
                np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)
    for name in ("nanmin", "nanmax", "nanmean", "nanvar", "nanstd"):
        function, out = getattr(gr, name), np.zeros((6, 7))
        assert calls_nothing(lambda f=function, to=out: f(a, 1, out=to))
        order = np.zeros((7, 6)).T
        assert calls_nothing(lambda f=function, to=order: f(a, 1, out=to))
        np.testing.assert_array_equal(order, out)
        apart = np.full((12, 14), np.inf)  # which is looked at by the rules in Python
        function(a, axis=1, out=apart[::2, ::-2])
        np.testing.assert_array_equal(apart[::2, ::-2], out)
        with_nan = np.where(rng.random(a.shape) < 0.3, np.nan, a)
        with_nan[2, :, 3] = np.nan
        with pytest.warns(RuntimeWarning) as mine:
            assert function(with_nan, axis=1, out=out) is out
        with pytest.warns(RuntimeWarning) as numpys:
            wanted = getattr(np, name)(with_nan, axis=1)
        np.testing.assert_allclose(out, wanted, rtol=1e-12)
        assert [str(each.message) for each in mine] == [str(each.message) for each in numpys]
        number = np.zeros(())
        with pytest.warns(RuntimeWarning):
            assert function(with_nan[2, :, 3], out=number) is number
        assert np.isnan(number)
    mask, most = rng.random(a.shape) < 0.4, np.zeros((6, 7))
    assert calls_nothing(lambda: gr.max(a, axis=1, initial=0.5, where=mask, out=most))
    np.testing.assert_array_equal(most, np.max(a, axis=1, initial=0.5, where=mask))
    kept = np.full((6, 7), 5)
    with pytest.raises(ValueError, match="All-NaN"):
        gr.nanargmax(with_nan, axis=1, out=kept)
    assert (kept == 5).all()
    out = np.zeros((6, 1, 7))
    assert calls_nothing(lambda: gr.max(a, axis=1, keepdims=True, out=out))
    np.testing.assert_array_equal(out, a.max(1, keepdims=True))


def test_an_out_among_the_elements_is_written_when_all_are_read() -> None:
    """As NumPy does, which copies first; the same where it lies in the mask."""
    for take in (lambda x: x[0], lambda x: x[-1, ::-1], lambda x: x[:, 3][:5]):
        mine, numpys = np.arange(35.0).reshape(7, 5), np.arange(35.0).reshape(7, 5)
        gr.sum(mine, axis=0, out=take(mine), device="cpu")
        np.sum(numpys, axis=0, out=take(numpys))
        np.testing.assert_array_equal(mine, numpys)
    mask = np.ones((7, 5), bool)
    mask[2:4] = False
    values, before = np.arange(35).reshape(7, 5) % 3 == 0, mask.copy()
    out = gr.any(values, axis=0, where=mask, out=mask[1], device="cpu")
    np.testing.assert_array_equal(out, np.any(values, axis=0, where=before))


def test_results_of_every_size_are_looked_at_as_a_whole_and_no_further() -> None:
    for dtype in "?bBhHiIqQefdFD":
        for count in (1, 5, 1 << 20):
            a = np.ones((2, count), dtype)
            for name in ("nanmin", "nanmax", "nanmean", "nanvar", "nanargmin", "nanargmax"):
                result = getattr(gr, name)(a, 0)
                assert np.array_equal(
                    result, np.full(count, name in ("nanmin", "nanmax", "nanmean"))
                )
    last = np.ones((2, 1000))
    last[:, -1] = np.nan
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(gr.nanmean(last, 0)[-1])


def test_extremes_with_a_start_are_numpys(rng: np.random.Generator) -> None:
    taken = 0
    for dtype in (*np.typecodes["AllInteger"], *"efdFD?"):
        a = (rng.standard_normal((6, 5)) * 40).astype(dtype)
        if dtype in "efdFD":
            a[2, 1] = a[3] = np.nan
        mask = rng.random(a.shape) < 0.6
        mask[4] = False
        for initial in (0, 3, -3, 2.5, -0.5, 127, 128, -129, 255, 300, 2**40, 2**63, 1e39, math.inf,
                        -math.inf, math.nan, True, None, "3", 2j):  # fmt: skip
            for name in ("min", "max", "nanmin", "nanmax"):
                for where in (True, mask):
                    for axis in (None, 1):
                        results = []
                        for module in (np, gr):
                            with warnings.catch_warnings():
                                warnings.simplefilter("ignore")
                                try:
                                    result = getattr(module, name)(
                                        a, axis, initial=initial, where=where
                                    )
                                except Exception as error:
                                    result = type(error)
                            results.append(result)
                        expected, result = results
                        if isinstance(expected, type):
                            assert result is expected, (name, dtype, initial)
                            continue
                        assert result.dtype == expected.dtype
                        assert type(result) is type(expected)
                        np.testing.assert_array_equal(result, expected, f"{name} {dtype} {initial}")
                        taken += 1
    assert taken > 0


def test_sums_products_and_bits_with_a_start_run_no_python(rng: np.random.Generator) -> None:
    """And begin with it as NumPy's do: floats are rounded once it is in them."""
    for dtype in (*"bHiLqQfdFD?", ">i4", ">f8"):
        a = (1 + 3 * rng.random((3, 4, 5))).astype(dtype)
        mask = rng.random(a.shape) < 0.7
        for name in (
            "sum",
            "prod",
            "nansum",
            "nanprod",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
        ):
            if name.startswith("bitwise") and a.dtype.kind in "fcb":
                continue
            function = getattr(gr, name)
            numpys = getattr(np, name).reduce if name.startswith("bitwise") else getattr(np, name)
            is_inexact = a.dtype.kind in "fc"
            for initial in (0, 5, 100, *((2.5, -1e3) if is_inexact else ())):
                for axis in (None, 0, (0, 2)):
                    for array in (a, a.T, a[::-1, ::2]):
                        given = {"axis": axis, "initial": initial, "where": mask[: len(array)]}
                        if is_inexact and rng.random() < 0.3:
                            ours = functools.partial(function, kernel="fast", device="cpu")
                        else:
                            ours = function
                        if array is not a:
                            given["where"] = True
                        assert calls_nothing(lambda f=ours, x=array, k=given: f(x, **k))
                        result = ours(array, **given)
                        with np.errstate(over="ignore"):
                            expected = numpys(array, **given)
                        assert result.dtype == expected.dtype
                        assert type(result) is type(expected)
                        assert result.strides == expected.strides
                        np.testing.assert_allclose(
                            result, expected, rtol=1e-5 if dtype in "fF" else 1e-12
                        )
    thirds = np.full((7, 9), 1 / 3, np.float32)
    exact = sum(map(Fraction, thirds[0].tolist())) + Fraction(float(np.float32(0.1)))
    assert gr.sum(thirds, axis=1, initial=0.1)[0] == np.float32(float(exact))
    wide, theirs = np.zeros(3), np.zeros(3)  # the type of an out is the one that is computed in
    gr.sum(thirds[:, :3], axis=0, initial=0.1, out=wide)
    np.sum(thirds[:, :3], axis=0, initial=0.1, out=theirs)
    np.testing.assert_allclose(wide, theirs, rtol=1e-15)
    small = np.array([1e-200, 1e-200, 3.0])  # which leave the doubles before the start is in
    assert gr.prod(small, initial=1e300) == pytest.approx(3e-100)
    large = np.array([1e308, 1e308, -1e307])
    assert gr.sum(large, initial=-1e308) == pytest.approx(9e307)
    assert math.copysign(1, gr.sum(np.array([-0.0]), initial=-0.0)) == -1
    assert math.isnan(gr.sum(np.array([np.inf, 1]), initial=-math.inf))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sums_of_halves_with_a_start_run_no_python(name: str, rng: np.random.Generator) -> None:
    """An exact one is rounded once, when the start is in it; others are rounded before, too."""
    dtype = native_dtype(name)
    a = (rng.normal(size=(5, 30)) * 10.0 ** rng.integers(-2, 3, (5, 30))).astype(dtype)
    start = float(np.asarray(rng.integers(-60, 60) / 8, dtype))
    exact = [sum(map(Fraction, row), Fraction(start)) for row in a.astype(float).tolist()]
    of_rows = functools.partial(gr.sum, a, axis=1, initial=start, device="cpu")
    for kernel in ("auto", "exact", "fast"):
        result = of_rows(kernel=kernel)
        assert result.dtype == dtype
        assert calls_nothing(functools.partial(of_rows, kernel=kernel))
        if kernel == "fast":
            before = gr.sum(a, axis=1, kernel="fast", device="cpu")
            assert (result == before + np.asarray(start, dtype)).all()
        else:
            assert result.tolist() == [round_to(one, name) for one in exact]
    for one in (gr.sum(a, initial=start), gr.prod(a[0, :3], initial=start)):
        assert type(one) is dtype.type
    for row in a:  # four numbers of 11 bits or fewer: doubles hold the product
        product = math.prod(map(Fraction, row[:3].astype(float).tolist())) * Fraction(start)
        assert gr.prod(row[:3], initial=start) == round_to(product, name)
    a[0, 0], a[1, 0], a[2, 0] = np.nan, np.inf, -np.inf
    assert calls_nothing(lambda: gr.sum(a[0], initial=start))
    assert str(of_rows().tolist()[:3]) == "[nan, inf, -inf]"


@pytest.mark.parametrize("dtype", ["float32", "float64", ">f8"])
def test_variances_about_given_means_run_no_python(dtype: str, rng: np.random.Generator) -> None:
    a = rng.normal(3, 2, (4, 5, 6)).astype(dtype)
    native = a.dtype.newbyteorder("=")
    for array in (a, a[::-1, 1:, ::2], a[0]):
        for axis in (None, 1, (0, 1)):
            means = np.mean(array, axis=axis, keepdims=True).astype(native)
            for mean in (2.5, means, means + native.type(1)):
                for function, numpys in ((gr.var, np.var), (gr.std, np.std)):
                    given = {"axis": axis, "mean": mean, "ddof": float(rng.integers(0, 3))}
                    call = functools.partial(function, array, **given)
                    result, expected = call(), numpys(array, **given)
                    assert np.asarray(result).dtype == np.asarray(expected).dtype
                    assert np.shape(result) == np.shape(expected)
                    np.testing.assert_allclose(result, expected, rtol=1e-5)
                    assert calls_nothing(call), given
    # Rules in Python: a mean that broadcasts, another type, no freedom, NaN and infinities.
    for mean in (np.ones((1, 1, 6)), np.float32(1), 2):
        assert np.allclose(gr.var(a, axis=0, mean=mean), np.var(a, axis=0, mean=mean), rtol=1e-5)
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        assert gr.var(a[0, 0, :1], mean=1.5, ddof=1) in (np.inf, 0)
    a[0, 0, 0] = np.inf
    assert gr.var(a, mean=1.0) == np.inf
    assert math.isnan(gr.std(a, mean=np.nan))


OF_DATES = (
    "min", "max", "ptp", "argmin", "argmax", "any", "all", "count_nonzero", "nanmin", "nanmax",
    "nanargmin", "nanargmax", "sum", "nansum", "mean", "nanmean",
)  # fmt: skip
OF_TIMES = ("sum", "nansum", "mean", "nanmean")
"""Those of them that points in time do not have."""


def with_nat(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, share: float) -> Any:
    """Dates or times about the first one, a share of them NaT."""
    numbers = rng.integers(-50, 50, shape)
    numbers[rng.random(shape) < share] = np.iinfo(np.int64).min
    return numbers.astype(np.dtype(np.int64).newbyteorder(np.dtype(dtype).byteorder)).view(dtype)


def without_nat_warnings(function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(*args, **given)


def check_dates(name: str, array: Any, given: dict[str, Any]) -> bool:
    """Whether a result that is NumPy's was made without Python."""
    function = functools.partial(getattr(gr, name), array, **given)
    result = without_nat_warnings(function)
    expected = without_nat_warnings(getattr(np, name), array, **given)
    assert np.asarray(result).dtype == np.asarray(expected).dtype
    assert type(result) is type(expected)
    np.testing.assert_array_equal(result, expected)
    if name not in ("ptp", "count_nonzero"):
        room = np.empty_like(np.asarray(expected))
        assert without_nat_warnings(function, out=room) is room
        np.testing.assert_array_equal(room, expected)
    warns_of_nat = name in ("nanmin", "nanmax") and np.isnat(expected).any()
    return type(array) is not np.ndarray or bool(warns_of_nat) or calls_nothing(function)


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[ns]", ">M8[s]", ">m8[ms]"])
@pytest.mark.parametrize("share", [0, 0.2, 0.7])
def test_dates_run_no_python(dtype: str, share: float, rng: np.random.Generator) -> None:
    a = with_nat(rng, (4, 5, 6), dtype, share)
    for array in (a, a.T, a[::-1, 1:, ::2], a[0, 0], a[0, 0, 0], np.asarray(a[1, 2, 3])):
        for name in OF_DATES:
            if name in OF_TIMES and "M" in dtype:
                with pytest.raises(TypeError):
                    getattr(gr, name)(array)
                continue
            for axis in (None, *range(array.ndim)):
                given = {"axis": axis, "keepdims": bool(rng.random() < 0.5)}
                assert check_dates(name, array, given), (name, given)


@pytest.mark.parametrize("dtype", ["M8[D]", ">m8[ms]"])
def test_masks_and_starts_of_dates_run_no_python(dtype: str, rng: np.random.Generator) -> None:
    a = with_nat(rng, (4, 5, 6), dtype, 0.2)
    start = with_nat(rng, (1,), dtype, 0).astype(a.dtype.newbyteorder("="))[0]
    for array in (a, a.T, a[::-1, 1:, ::2]):
        mask = rng.random(array.shape) < 0.6
        for axis in (None, 0, 2):
            for name in ("min", "max", "nanmin", "nanmax"):
                for given in ({"initial": start}, {"initial": start, "where": mask}):
                    assert check_dates(name, array, {"axis": axis, **given}), (name, given)
            for name in ("any", "all", *(["sum", "nansum"] if "m" in dtype else [])):
                assert check_dates(name, array, {"axis": axis, "where": mask}), name
            if "m" in dtype:
                room = np.empty(np.min(array, axis=axis).shape, start.dtype)
                assert calls_nothing(functools.partial(gr.sum, array, axis=axis, out=room))
    nat = np.array("NaT", start.dtype)[()]
    for module in (np, gr):  # results that an out does not take are refused, however they are found
        for room in (np.empty(()), np.empty(4, np.intp)):
            with pytest.raises((TypeError, ValueError)):
                module.argmax(np.full(3, nat), out=room)
    for wrong in (
        {"axis": 5},
        {"axis": 2**70},
        {"kernel": "none"},
        {"device": "tpu"},
        {"block_size": "x"},
    ):
        with pytest.raises((OverflowError, TypeError, ValueError)):
            gr.argmax(np.full(3, nat), **wrong)
    for other in (nat, start.astype(start.dtype.str[:3] + "[h]")):
        for name in ("min", "max", "nanmin", "nanmax"):
            check_dates(name, a, {"axis": 1, "initial": other})
    assert np.isnat(gr.min(a, initial=nat))
    for name, numpys in (("nanmin", np.nanmin), ("nanmax", np.nanmax)):
        with pytest.warns(RuntimeWarning, match="All-NaN") as found:
            getattr(gr, name)(np.full(3, nat))
        with pytest.warns(RuntimeWarning, match="All-NaN") as expected:
            numpys(np.full(3, nat))
        assert [str(one.message) for one in found] == [str(one.message) for one in expected]


def test_sums_of_times_are_numpys_up_to_64_bits(rng: np.random.Generator) -> None:
    """Partial sums that may be NaT, or beyond, are added by NumPy."""
    for bits in (20, 55, 60, 63):
        for shape in ((3,), (40,), (6, 7)):
            a = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), shape).view("m8[us]")
            results = []
            for module in (np, gr):
                try:
                    results.append(module.sum(a, axis=-1))
                except OverflowError as error:
                    results.append(type(error))
            expected, result = results
            assert np.array_equal(result, expected), (bits, shape)
            if bits == 20:
                assert calls_nothing(lambda x=a: gr.sum(x, axis=-1))


def test_lists_as_masks_and_wider_outs_run_no_python(rng: np.random.Generator) -> None:
    for dtype in "?bHiQefd":
        a = (3 * rng.random((4, 5))).astype(dtype)
        for where in ([True, False, True, True, False], [[1], [0], [2], [0]], (0, 1, 0, 0, 1)):
            assert calls_nothing(lambda x=a, mask=where: gr.sum(x, axis=0, where=mask))
            expected = np.sum(a, axis=0, where=where)
            np.testing.assert_allclose(gr.sum(a, axis=0, where=where), expected, rtol=1e-2)
        for name in ("sum", "prod", "nansum"):
            function, out, theirs = getattr(gr, name), np.zeros(4), np.zeros(4)
            assert calls_nothing(lambda f=function, x=a, to=out: f(x, axis=1, out=to))
            getattr(np, name)(a, axis=1, out=theirs)
            np.testing.assert_allclose(out, theirs, rtol=1e-6)
    with pytest.raises(ValueError, match="broadcast"):
        gr.sum(a, axis=0, where=[True, False])


def test_arrays_of_no_elements_run_no_python() -> None:
    for dtype in "?bQefdF":
        for shape in ((0,), (0, 3), (2, 0, 3)):
            a = np.zeros(shape, dtype)
            for name in ("sum", "prod", "any", "all", "count_nonzero", "nansum", "nanprod"):
                function, numpys = getattr(gr, name), getattr(np, name)
                for axis in (None, 0, -1):
                    assert calls_nothing(lambda f=function, x=a, at=axis: f(x, axis=at))
                    result, expected = function(a, axis=axis), numpys(a, axis=axis)
                    assert np.asarray(result).dtype == np.asarray(expected).dtype
                    np.testing.assert_array_equal(result, expected)


def test_infinite_extremes_without_nan_are_found_by_every_kernel() -> None:
    """The rows of NaN among infinities are looked for by positions, which few kernels take."""
    a = np.array([[1, np.inf, np.nan], [np.nan, np.nan, np.nan]], np.float32)
    for kernel in gr.kernels():
        if kernel.name == "exact":
            continue  # of sums
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gr.NoDeviceWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            found = gr.nanmax(a, axis=1, kernel=kernel.name)
            np.testing.assert_array_equal(found, [np.inf, np.nan])
            assert gr.nanmin(-a, kernel=kernel.name) == -np.inf


def test_the_other_name_of_ddof_runs_no_python() -> None:
    a = np.arange(12.0).reshape(3, 4)
    for function, numpys in ((gr.var, np.var), (gr.nanstd, np.nanstd)):
        assert calls_nothing(lambda f=function: f(a, axis=1, correction=1))
        np.testing.assert_allclose(function(a, axis=1, correction=1), numpys(a, axis=1, ddof=1))
        for given in ({"ddof": 1, "correction": 1}, {"ddof": 2, "correction": 0}):
            with pytest.raises(ValueError, match="can't be provided simultaneously"):
                function(a, **given)


def test_a_masked_mean_of_other_masks_reads_its_mask_again_only_where_it_is_nan() -> None:
    a = np.ones((10, 100), np.float32)
    for value, passes in ((True, 1), (False, 2)):
        mask = np.full(100, value).view(np.recarray)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of means of nothing
            calls = core_calls(lambda mask=mask: gr.mean(a, axis=1, keepdims=True, where=mask))
        assert calls.count("reduce") == passes
        assert len(calls) == len(set(calls)) + passes - 1


def test_results_of_device_arrays_have_numpys_shapes(tmp_path: Path) -> None:
    fakes.run(
        """
    from core_trace import core_calls, package_frames
    from fakes.array_libraries import Shown, memory_of, value
    from gpureduce import _core
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    array = Shown(cube)
    memory = memory_of(array)
    for axis in (None, 0, -1, (0, 2), (2, 0), (0, 1, 2), ()):
        for keepdims in (False, True):
            expected = cube.sum(axis=axis, keepdims=keepdims)
            shape, count = _core.result_axes("sum", memory, axis, keepdims, False, False)
            assert shape == expected.shape
            assert count == cube.size / expected.size
            assert value(gr.sum(array, axis=axis, keepdims=keepdims)).shape == shape
            low, high = gr.minmax(array, axis=axis, keepdims=keepdims)
            assert value(low).shape == value(high).shape == shape
            host = gr.minmax(cube, axis=axis, keepdims=keepdims, device="cuda")
            assert host[0].shape == host[1].shape == shape
    for name in ("sum", "mean", "max", "any", "argmin", "var", "ptp", "count_nonzero", "nanmin"):
        function = getattr(gr, name)
        for options in ({}, {"axis": 1}, {"keepdims": True}, {"kernel": "fast", "device": "cuda"}):
            call = lambda f=function, given=options: f(array, **given)
            assert core_calls(call) == [], name
            frames = [one for one in package_frames(call) if one != "__cuda_array_interface__"]
            assert frames == [], (name, frames)
    assert package_frames(lambda: gr.minmax(array, axis=1)) == ["_finish_pair"]
    for bad, kind in (((0, 0), ValueError), (3, np.exceptions.AxisError), (1.5, TypeError)):
        with raises(kind):
            _core.result_axes("sum", memory, bad, False, False, False)
    for arguments in ((), ("sum", cube, None, False, False)):
        with raises(TypeError, "result_axes takes"):
            _core.result_axes(*arguments)
    with raises(ValueError, "no operator"):
        _core.result_axes("none", memory, None, False, False, False)
    """,
        tmp_path,
        PYTHONPATH=fakes.module_path(),
    )


def test_the_cores_functions_are_used_as_functions_are() -> None:
    for name in PLAIN:
        function = getattr(gr, name)
        assert type(function) is _core.Function
        assert (function.__name__, function.__module__) == (name, "gpureduce._functions")
        assert "Parameters" in function.__doc__
        assert inspect.isroutine(function)
        assert list(inspect.signature(function).parameters)[:2] == ["a", "axis"]
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.copy(function) is copy.deepcopy(function) is function
        assert weakref.ref(function)() is function
        assert re.fullmatch(rf"<function {name} at 0x[0-9a-f]+>", repr(function))
    a = np.arange(6.0).reshape(2, 3)

    class Numbers(list):
        largest = gr.max

    assert Numbers(a).largest() == 5
    assert functools.partial(gr.sum, axis=0)(a).tolist() == [3, 5, 7]
    keywords = {"".join(["ax", "is"]): 1}  # a string of its own, equal to the parameter's name
    assert gr.sum(a, **keywords).tolist() == [3, 12]


def test_arguments_that_do_not_fit_are_refused_as_those_of_functions() -> None:
    a = np.arange(6.0)
    for arguments, keywords, said in (
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((a, None), {"axis": 0}, "got multiple values for argument 'axis'"),
        ((a,), {"axes": 0}, "got an unexpected keyword argument 'axes'"),
        ((a, *[None] * 9), {}, "takes from 1 to 7 positional arguments but 10"),
    ):
        with pytest.raises(TypeError, match=said) as refused:
            gr.sum(*arguments, **keywords)
        assert str(refused.value).startswith("sum() ")


def test_the_cores_functions_are_made_of_parameters_that_they_know() -> None:
    def function(a: Any) -> Any: ...

    for arguments, kind, said in (
        ((function, ("a", "b"), 1, 0, False), ValueError, "no function has a parameter 'b'"),
        ((function, ("a", 3), 1, 0, False), ValueError, "no function has a parameter 3"),
        ((function, ("a",) * 99, 1, 0, False), ValueError, "at most 15 parameters"),
        ((function, ("a",), 1, 99, False), ValueError, "there is no operator 99"),
        ((function, ("a",), 2, 0, False), ValueError, "2 of 1 parameters cannot have positions"),
        ((function, ["a"], 1, 0, False), TypeError, "tuple"),
        ((function,), TypeError, "5 arguments"),
    ):
        with pytest.raises(kind, match=said):
            _core.Function(*arguments)
    with pytest.raises(TypeError, match="no keyword arguments"):
        _core.Function(function, ("a",), 1, 0, skip_nan=False)


def test_what_numpy_warns_of_is_left_to_python() -> None:
    empty = np.full((2, 3), np.nan)
    some = np.array([[1.0, np.nan], [np.nan, np.nan]])
    for name, array in (
        ("nanmean", empty), ("nanvar", some), ("nanstd", empty.astype(np.complex64)),
        ("nanmax", some.astype(np.float16)), ("nanmin", some),
    ):  # fmt: skip
        for axis in (None, 1):
            with warnings.catch_warnings(record=True) as theirs:
                warnings.simplefilter("always")
                expected = getattr(np, name)(array, axis)
            with warnings.catch_warnings(record=True) as ours:
                warnings.simplefilter("always")
                result = getattr(gr, name)(array, axis)
            np.testing.assert_array_equal(result, expected)
            assert [str(one.message) for one in ours] == [str(one.message) for one in theirs]
            assert all(one.filename == __file__ for one in ours)
    for name in ("nanargmin", "nanargmax"):
        with pytest.raises(ValueError, match="All-NaN slice encountered"):
            getattr(gr, name)(some, 1)


def test_nan_among_many_extremes_are_warned_of_wherever_they_are(rng: np.random.Generator) -> None:
    for count in (511, 512, 513, 1300):
        for dtype in ("float16", "float32", "float64"):
            x = rng.normal(size=(2, count)).astype(dtype)
            for axes in (x, x.reshape(2, 1, count)[:1]):
                for at in (0, count - 1, int(rng.integers(count))):
                    some = axes.copy()
                    some[..., at] = np.nan
                    with pytest.warns(RuntimeWarning, match="All-NaN slice encountered"):
                        wanted = np.nanmax(some, axis=0)
                    with pytest.warns(RuntimeWarning, match="All-NaN slice encountered"):
                        got = gr.nanmax(some, axis=0, device="cpu")
                    np.testing.assert_array_equal(got, wanted)
