"""Rows that are runs of memory in several layers, between those of other rows: arrays beyond the
caches are read layer by layer. Results are those of a copy whose rows are contiguous.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpureduce as gr

DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float32", "float64", "complex64")
BYTES = 17 << 20  # more than caches are taken to hold
CASES = 3


def draw(rng: np.random.Generator, dtype: str) -> tuple[Any, tuple[int, ...]]:
    """An array and the axes to reduce: some before and some behind those that are kept."""
    size = np.dtype(dtype).itemsize
    run = int(np.exp(rng.uniform(np.log(64), np.log(200_000 / size))))
    rows = [int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 3)))]
    layers = 1 + BYTES // (size * run * math.prod(rows))
    shape = (layers, *rows, run)
    if rng.random() < 0.3:  # the runs of a layer are many
        shape = (int(rng.integers(2, 6)), *rows[1:], 1 + layers * rows[0] // 2, run)
    whole = (*shape[:-1], run + int(rng.choice([0, 0, 3])))
    a = rng.integers(0, 120, whole, dtype=np.uint8)[..., :run]
    if dtype == "bool":
        return a > rng.choice([0, 60, 118]), (0, len(shape) - 1)
    x: Any = np.empty(whole, dtype)[..., :run]
    x[...] = a
    if x.dtype.kind in "ifc":
        x -= 60
    if x.dtype.kind in "fc":
        x *= np.exp(rng.normal(0, rng.choice([0, 1, 9]), run)).astype(x.real.dtype)
        if rng.random() < 0.5:
            x[int(rng.integers(layers)) % shape[0], ..., int(rng.integers(run))] = np.nan
    if len(shape) > 3 and rng.random() < 0.5:
        x = np.swapaxes(x, 1, 2)
    return x, (0, len(shape) - 1)


def in_rows(x: Any, axes: tuple[int, ...]) -> Any:
    """A copy in which each row is one run."""
    last = np.moveaxis(x, axes, (-2, -1))
    return np.ascontiguousarray(last).reshape(*last.shape[:-2], -1)


FUNCTIONS = ("sum", "mean", "max", "min", "any", "all", "count_nonzero", "ptp", "nanmax", "nansum")


@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_are_rows(dtype: str, rng: np.random.Generator) -> None:
    for _ in range(CASES):
        x, axes = draw(rng, dtype)
        rows = in_rows(x, axes)
        for function in FUNCTIONS:
            if function == "ptp" and dtype == "bool":
                continue
            call = getattr(gr, function)
            found = call(x, axis=axes, device="cpu")
            wanted = call(rows, axis=-1, device="cpu")
            where = (function, x.shape, x.strides)
            assert np.array_equal(found, wanted, equal_nan=x.dtype.kind in "fc"), where
            if function in ("max", "any", "all"):
                numpys = getattr(np, function)(rows, axis=-1)
                assert np.array_equal(found, numpys, equal_nan=x.dtype.kind in "fc"), where


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("function", ["sum", "mean", "nansum", "prod"])
def test_layers_of_rounded_sums(function: str, dtype: str, rng: np.random.Generator) -> None:
    x, axes = draw(rng, dtype)
    x = np.where(np.isnan(x), 1, x)
    if function == "prod":
        x = 1 + x / (1e4 * np.abs(x).max())
    options = {} if function == "prod" else {"kernel": "fast"}
    found = getattr(gr, function)(x, axis=axes, device="cpu", **options)
    wanted = getattr(gr, function)(in_rows(x, axes), axis=-1, device="cpu")
    error = 1e-5 if x.real.dtype == np.float32 else 1e-10
    assert np.allclose(found, wanted, rtol=error, atol=0), (x.shape, x.strides)
