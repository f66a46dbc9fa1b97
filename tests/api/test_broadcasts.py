"""Arrays that NumPy broadcast: axes along which all elements are the same are read once, and the
results are those of a copy."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from reference import DTYPES, random_array

import gpureduce as gr

MANY = 2**46
"""Repeats of an element: as many bytes are more than any machine has."""

FUNCTIONS = (
    "sum", "mean", "var", "std", "prod", "min", "argmin", "argmax", "ptp", "any", "count_nonzero",
    "logical_xor", "bitwise_xor", "nansum", "nanmean", "nanvar", "nanprod", "nanargmax",
    "logsumexp", "norm", "average",
)  # fmt: skip


def outcome(call: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(call())
        except (TypeError, ValueError) as error:
            return error


def assert_alike(got: Any, wanted: Any, exactly: bool, size: float, context: str) -> None:
    if isinstance(wanted, Exception):
        assert (type(got), str(got)) == (type(wanted), str(wanted)), context
        return
    assert not isinstance(got, Exception), f"{context}: {got!r}"
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), context
    if exactly or got.dtype.kind in "biu":
        assert np.array_equal(got, wanted, equal_nan=got.dtype.kind in "fc"), context
        return
    if got.dtype.kind == "V":
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    pairs = [(got, wanted)] if got.dtype.kind == "f" else [
        (got.real, wanted.real), (got.imag, wanted.imag)
    ]  # fmt: skip
    close = {2: 2e-2, 4: 1e-5, 8: 1e-9}[pairs[0][0].dtype.itemsize]
    for one, other in pairs:
        assert np.allclose(one, other, rtol=close, atol=close * size, equal_nan=True), (
            f"{context}: {one} {other}"
        )


def draw_shapes(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """A shape, and that of what is broadcast to it."""
    shape: list[int] = []
    for _ in range(int(rng.integers(1, 5))):
        extent = int(rng.choice((1, 2, 3, 7, 40, 300, 5000, 40000)))
        shape.append(max(1, min(extent, 200_000 // math.prod(shape))))
    return shape, [1 if rng.random() < 0.5 else extent for extent in shape]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_a_copy(name: str, rng: np.random.Generator) -> None:
    for _ in range(30):
        check_copy(name, rng)


def check_copy(name: str, rng: np.random.Generator) -> None:
    dtype = str(rng.choice(list(DTYPES)))
    shape, distinct = draw_shapes(rng)
    values = random_array(rng, DTYPES[dtype], math.prod(distinct), "sum").reshape(distinct)
    order = rng.permutation(len(shape))
    array = np.broadcast_to(values, shape).transpose(order)
    given: dict[str, Any] = {"device": "cpu"}
    axes = tuple(sorted(rng.choice(len(shape), rng.integers(1, len(shape) + 1), False).tolist()))
    given["axis"] = axes[0] if "arg" in name else axes
    if name in ("sum", "mean", "var", "std"):
        given["kernel"] = str(rng.choice(("auto", "fast", "exact")))
    if name in ("var", "std", "nanvar"):
        given["ddof"] = int(rng.integers(0, 3))
    masked, copied = {}, {}
    if name in ("sum", "mean", "var", "prod") and rng.random() < 0.3:
        masked["where"] = np.broadcast_to(rng.random(distinct) < 0.7, shape).transpose(order)
        copied["where"] = masked["where"].copy()
    got = outcome(lambda: getattr(gr, name)(array, **given, **masked))
    wanted = outcome(lambda: getattr(gr, name)(array.copy(), **given, **copied))
    size = 1.0
    if name in ("sum", "nansum", "mean", "nanmean", "average"):
        size = 1 + 4 * array.size * float(np.abs(values.astype(np.complex128)).max(initial=0))
        size = size if math.isfinite(size) else 1.0
    exactly = name == "sum" and given["kernel"] == "exact"
    context = f"{name} {dtype} {distinct} to {shape} as {order.tolist()} {given}"
    assert_alike(got, wanted, exactly, size, context)


def squared(values: list[Fraction]) -> Fraction:
    mean = sum(values) / len(values)
    return sum(((x - mean) ** 2 for x in values), Fraction(0)) / len(values)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "float32", "float64"])
@pytest.mark.parametrize("axis", [None, 1])
def test_no_memory_is_taken_for_what_repeats(
    dtype: str, axis: int | None, rng: np.random.Generator
) -> None:
    rows = rng.integers(0, 2 if dtype == "bool" else 100, (3, 1)).astype(dtype)
    array = np.broadcast_to(rows, (3, MANY))
    numbers = [Fraction(int(x)) for x in rows[:, 0]]
    groups = [numbers] if axis is None else [[x] for x in numbers]
    integers = np.uint64 if dtype == "uint32" else np.int64

    def check(name: str, wanted: list[Any], **given: Any) -> None:
        got = np.atleast_1d(getattr(gr, name)(array, axis=axis, device="cpu", **given))
        made = np.array([float(x) if isinstance(x, Fraction) else x for x in wanted])
        if got.dtype.kind in "biu":
            assert got.tolist() == made.astype(got.dtype).tolist(), name
        else:
            assert np.allclose(got, made, rtol=1e-6 if dtype == "float32" else 1e-13), name

    if dtype in ("float32", "float64"):
        for kernel in ("auto", "fast", "exact"):
            check("sum", [sum(g) * MANY for g in groups], kernel=kernel)
    else:
        check("sum", [integers(int(sum(g)) * MANY % 2**63) for g in groups])
        products = [pow(math.prod(map(int, g)), MANY, 2**64) for g in groups]
        check("prod", [np.uint64(x).astype(integers) for x in products])
        check("bitwise_xor", [0 for _ in groups])
    for kernel in ("auto", "exact"):
        check("var", [squared(g) for g in groups], kernel=kernel)
    check("mean", [sum(g) / len(g) for g in groups])
    check("nanstd", [float(squared(g)) ** 0.5 for g in groups])
    check("count_nonzero", [sum(x != 0 for x in g) * MANY for g in groups])
    check("logical_xor", [False for _ in groups])
    check("argmin", [g.index(min(g)) * MANY for g in groups])
    check("argmax", [g.index(max(g)) * MANY for g in groups])
    check("logsumexp", [
        math.log(sum(math.exp(x - max(g)) for x in g)) + float(max(g)) + math.log(MANY)
        for g in groups
    ])  # fmt: skip
    check("norm", [float(sum(x * x for x in g) * MANY) ** 0.5 for g in groups])


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint8"])
@pytest.mark.parametrize("compute", ["int8", "int32", "uint8", "int64"])
def test_means_in_integers_wrap_as_often_as_elements_come_again(
    dtype: str, compute: str, rng: np.random.Generator
) -> None:
    column = rng.integers(50, 120, (3, 1)).astype(dtype)
    array = np.broadcast_to(column, (3, int(rng.integers(4, 40))))
    got = gr.mean(array, axis=1, dtype=compute, device="cpu")
    assert_alike(got, gr.mean(array.copy(), axis=1, dtype=compute, device="cpu"), True, 1, dtype)
    assert_alike(got, np.mean(array, axis=1, dtype=compute), True, 1, dtype)


def test_helpers_take_no_memory_either(rng: np.random.Generator) -> None:
    array = np.broadcast_to(np.array([[1.0], [np.nan], [3.0]]), (3, MANY))
    found = gr.describe(array, device="cpu")
    assert (found.count, found.nan_count, found.mean, found.std) == (2 * MANY, MANY, 2.0, 1.0)
    infinite = np.broadcast_to(np.array([[1.0], [np.inf]]), (2, MANY))
    assert gr.var(infinite, mean=0.5, device="cpu") == np.inf
    assert gr.nanvar(array, mean=0.0, device="cpu") == 5.0
    numbers = np.broadcast_to(rng.normal(), MANY)
    assert gr.dot(numbers, np.broadcast_to(2.0, MANY), device="cpu") == 2 * MANY * numbers[0]
    assert gr.norm(numbers, ord=-np.inf, device="cpu") == abs(numbers[0])
    total = gr.ExactSum("float64")
    total.update(numbers)
    assert (total.result(), total.count) == (MANY * numbers[0], MANY)
    assert gr.reduce(array, ("nansum", "nanargmax"), device="cpu") == (4.0 * MANY, 2 * MANY)


@pytest.mark.parametrize("function", [gr.sum, gr.nanmean])
def test_pieces_are_folded_in_turns(function: Any, rng: np.random.Generator) -> None:
    """Of 16,384 pieces the partial results are folded before the next pieces are read."""
    window = 2**15
    values = rng.integers(-100, 100, 2 * window).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(values, window)
    steps = np.arange(1, 2 * window + 1)
    comes = np.minimum(np.minimum(steps, steps[::-1]), window)
    assert comes.sum() == windows.size
    total = int((values * comes).sum())
    if function is gr.sum:
        assert function(windows, device="cpu") == total
    else:
        floats = np.lib.stride_tricks.sliding_window_view(values.astype(np.float64), window)
        got = function(floats, device="cpu", kernel="fast")
        assert got == pytest.approx(total / windows.size, rel=1e-9, abs=1e-6)


def test_windows_that_overlap_are_read_as_arrays_that_no_cache_holds(
    rng: np.random.Generator,
) -> None:
    x = rng.integers(-128, 128, (1 << 19) + 128 * 64, dtype=np.int8)
    windows = np.lib.stride_tricks.as_strided(x, (120, 1 << 19), (64, 1))
    for function in ("max", "bitwise_xor"):
        got = getattr(gr, function)(windows, axis=0, device="cpu")
        ufunc = np.maximum if function == "max" else np.bitwise_xor
        assert np.array_equal(got, ufunc.reduce(windows, axis=0)), function


def test_rows_that_are_the_same_are_reduced_once(rng: np.random.Generator) -> None:
    """Of kept axes that are broadcast, anywhere among others, with masks that are and are not."""
    for _ in range(150):
        shape = [int(extent) for extent in rng.choice([1, 2, 3, 5, 8, 30], rng.integers(2, 5))]
        small = [1 if rng.random() < 0.5 else extent for extent in shape]
        dtype = rng.choice(["float32", "float64", "complex64", "int8", "int64", "bool"])
        x = np.rint(rng.standard_normal(small) * 50).astype(dtype)
        a = np.broadcast_to(x, shape).transpose(rng.permutation(len(shape)))
        axis = int(rng.integers(a.ndim))
        of_mask = [1 if rng.random() < 0.5 else extent for extent in a.shape]
        mask = np.broadcast_to(rng.random(of_mask) < 0.6, a.shape)
        context = f"{dtype} {small} {a.shape} {a.strides} {axis} {of_mask}"
        for name in ("sum", "max", "argmin", "mean", "count_nonzero"):
            options = {"where": mask} if name == "sum" and rng.random() < 0.6 else {}
            got = getattr(gr, name)(a, axis=axis, device="cpu", **options)
            wanted = getattr(np, name)(a, axis=axis, **options)
            assert_alike(got, wanted, name != "mean", 1e3, f"{name} {context}")
        for one, other in zip(gr.minmax(a, axis=axis, device="cpu"), (np.min, np.max), strict=True):
            assert_alike(one, other(a, axis=axis), True, 1, f"minmax {context}")
