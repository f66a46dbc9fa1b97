"""Products whose partial products leave the range of doubles, and come back: exact, since all
factors are powers of two, in rows and columns, large and small, whichever way they are multiplied.

``GPR_TEST_SEED`` repeats a run.
"""

from __future__ import annotations

import numpy as np
import pytest
from draws import SEED

import gpureduce as gr

REACH = {"float32": 120, "float64": 900, "complex64": 120, "complex128": 900}


def _factors(rng: np.random.Generator, dtype: str, rows: int, n: int) -> tuple[np.ndarray, ...]:
    """Rows of powers of two, times units, that leave the range at first, and their products."""
    exponents = rng.integers(-REACH[dtype], REACH[dtype] + 1, (rows, n))
    exponents[:, : n // 3] = np.abs(exponents[:, : n // 3])
    wanted = rng.integers(-20, 21, rows)
    for row in range(rows):  # one step after the other: a factor has a reach of its own
        excess = int(exponents[row].sum() - wanted[row])
        for i in range(n - 1, -1, -1):
            step = min(max(int(exponents[row, i]) - excess, -REACH[dtype]), REACH[dtype])
            excess -= int(exponents[row, i]) - step
            exponents[row, i] = step
        assert excess == 0
    turns = rng.integers(0, 4, (rows, n)) if dtype.startswith("complex") else None
    units = np.array([1, 1j, -1, -1j])
    factors = np.ldexp(1.0, exponents)
    products = np.ldexp(1.0, wanted)
    if turns is None:
        signs = rng.choice([-1, 1], (rows, n))
        return (factors * signs).astype(dtype), (products * signs.prod(axis=1)).astype(dtype)
    turned = factors * units[turns]
    return turned.astype(dtype), (products * units[turns.sum(axis=1) % 4]).astype(dtype)


@pytest.mark.parametrize("dtype", REACH)
@pytest.mark.parametrize(("rows", "n"), [(1, 70), (1, 40_000), (3, 20_000), (150, 300), (700, 60)])
def test_products_return_from_beyond_the_range(dtype: str, rows: int, n: int) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, rows, n, len(dtype)])
    a, wanted = _factors(rng, dtype, rows, n)
    columns = np.ascontiguousarray(a.T)
    apart = np.ones((rows, 2 * n), dtype)
    apart[:, ::2] = a
    masked = rng.random((rows, 2 * n)) < 0.5
    masked[:, ::2] = True
    assert np.array_equal(gr.prod(a, axis=1, device="cpu"), wanted)
    assert np.array_equal(gr.prod(columns, axis=0, device="cpu"), wanted)
    assert np.array_equal(gr.prod(apart[:, ::2], axis=1, device="cpu"), wanted)
    assert np.array_equal(gr.prod(apart, axis=1, where=masked, device="cpu"), wanted)
    apart[:, 1::2] = np.nan
    assert np.array_equal(gr.nanprod(apart, axis=1, device="cpu"), wanted)
    a[-1, n // 2] = 0  # and a row that ends there
    got = gr.prod(a, axis=1, device="cpu")
    assert got[-1] == 0
    assert np.array_equal(got[:-1], wanted[:-1])


def test_products_of_one_side_of_one_stay_infinite_or_zero() -> None:
    rng = np.random.default_rng(SEED)
    large = rng.uniform(2, 50, (50, 1000))
    assert np.all(np.isinf(gr.prod(large, axis=1, device="cpu")))
    assert np.all(gr.prod(1 / large, axis=0, device="cpu") > 0)
    assert np.all(gr.prod(1 / large, axis=1, device="cpu") == 0)
    large[3, 5] = np.nan
    assert np.isnan(gr.prod(large, axis=1, device="cpu")).sum() == 1
    assert np.all(np.isinf(gr.nanprod(large, axis=1, device="cpu")))
