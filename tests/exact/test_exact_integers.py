"""Exact sums and means of integers on the CPU: Python's integers, over any axes and layout."""

from __future__ import annotations

import ctypes
import math
import platform
from typing import Any

import numpy as np
import pytest
from draws import SEED

import gpureduce as gr

NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DOWNWARD = 0x400  # of fesetround, on x86-64


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Integers of any size, all of them, or the largest ones alone: near half or all of 64 bits."""
    if name == "bool":
        return rng.random(shape) < rng.random()
    ends = np.iinfo(name)
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(max(ends.min, -99), 99, shape).astype(name)
    if kind == 1:
        bits = int(rng.integers(1, ends.bits))
        return rng.integers(-(2**bits) if ends.min < 0 else 0, 2**bits - 1, shape).astype(name)
    if kind == 2:
        return np.full(shape, ends.max if rng.random() < 0.5 else ends.min, name)
    return rng.integers(ends.min, ends.max, shape, name, endpoint=True)


def wrapped(total: int, name: str) -> Any:
    if name == "bool":
        return total != 0
    bits = np.iinfo(name).bits
    return np.array(total % (1 << bits), f"uint{bits}").astype(name)


def rounded(numerator: int, divisor: int) -> float:
    """A quotient as a float, rounded once, as Python's division of integers is."""
    return numerator / divisor if divisor else math.nan


def check(rng: np.random.Generator) -> None:
    name = str(rng.choice(NAMES))
    axes = int(rng.integers(1, 4))
    shape = tuple(int(extent) for extent in rng.choice([1, 2, 3, 5, 16, 70, 600], axes))
    while math.prod(shape) > 50_000:
        shape = shape[1:]
    a = draw(rng, name, shape).transpose(rng.permutation(len(shape)))
    a = a[tuple(slice(None, None, int(step)) for step in rng.choice([1, 1, 2, -1], a.ndim))]
    if rng.random() < 0.2:
        a = a.astype(a.dtype.newbyteorder())
    if rng.random() < 0.2:
        a = np.broadcast_to(a, (int(rng.integers(1, 9)), *a.shape))
    axis = int(rng.integers(a.ndim)) if rng.random() < 0.8 else None
    where = rng.random(a.shape) < rng.choice([0.1, 0.7]) if rng.random() < 0.4 else True
    requested = rng.choice(["", "float64", "int64", "uint8"])
    given = {"dtype": requested} if requested else {}
    numbers = np.where(where, a.astype(object), 0)
    totals = np.asarray(numbers.sum(axis), object)
    counts = np.broadcast_to(where, a.shape).sum(axis)
    context = f"{name} {a.shape} {a.strides} {axis} {given} seed {SEED}"
    options = {"kernel": "exact", "device": "cpu", "where": where, **given}
    total = gr.sum(a, axis, **options)
    name = total.dtype.name
    wanted = [float(t) if name == "float64" else wrapped(int(t), name) for t in totals.ravel()]
    assert np.array_equal(np.ravel(total), np.array(wanted, name)), f"sum {context}"
    if requested in ("", "float64"):
        mean = np.ravel(gr.mean(a, axis, **options))
        each = zip(totals.ravel(), counts.ravel(), strict=True)
        wanted = [rounded(int(t), int(c)) for t, c in each]
        assert np.array_equal(mean, wanted, equal_nan=True), f"mean {context}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mean of nothing
def test_sums_and_means_are_those_of_pythons_integers() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(150):
        check(rng)


def test_rounding_of_the_caller_does_not_matter() -> None:
    libm = ctypes.CDLL(None)
    if not hasattr(libm, "fesetround") or platform.machine() != "x86_64":
        pytest.skip("needs fesetround, with the numbers that x86-64 has for its roundings")
    rows = np.array([[1, 0, 1], [1, 1, 0], [-1, 0, 0], [2**40, 1, 0]], "int64")
    wanted = [2 / 3, 2 / 3, -1 / 3, (2**40 + 1) / 3]
    libm.fesetround(DOWNWARD)
    try:
        found = gr.mean(rows, 1, kernel="exact", device="cpu")
        narrow = gr.mean(rows[:3].astype("int8"), 1, kernel="exact", device="cpu")
    finally:
        libm.fesetround(0)
    assert found.tolist() == wanted
    assert narrow.tolist() == wanted[:3]


def test_many_short_rows_are_rounded_by_several_tasks() -> None:
    rng = np.random.default_rng(SEED)
    a = rng.integers(-(2**31), 2**31, (3, 40_001))
    for name in ("int64", "int32", "uint32"):
        x = a.astype(name)
        wanted = [int(t) / 3 for t in x.astype(object).sum(0)]
        assert gr.mean(x, 0, kernel="exact", device="cpu").tolist() == wanted
    a[:, 17] = 2**62  # sums of which are too large for 64 bits
    wanted = [int(t) / 3 for t in a.astype(object).sum(0)]
    assert gr.mean(a, 0, kernel="exact", device="cpu").tolist() == wanted
    a[:, 17] = 2**60  # and of which 64 bits hold one that no double does
    wanted = [int(t) / 3 for t in a.astype(object).sum(0)]
    assert gr.mean(a, 0, kernel="exact", device="cpu").tolist() == wanted
