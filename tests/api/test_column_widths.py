"""Columns of any width beside NumPy: they are folded in tiles, in vectors and one by one, by each
instruction set that the processor has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpureduce as gr

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
MOST_COLUMNS = 140  # more than a vector of bytes and less than a tile
WIDTHS = 60  # of them in each run
STEP = 8  # rows that are folded before the tile beside


def draw(rng: np.random.Generator, function: str, dtype: str, width: int) -> Any:
    """Rows of which few elements decide: a column that is left out, or counted twice, shows."""
    rows = int(rng.choice([1, 2, STEP, STEP + 1, 2 * STEP + 1, 3 * STEP + 5, 7 * STEP]))
    is_rare = rng.random((rows, width)) < 0.5 / rows
    match function:
        case "any":
            return is_rare.astype(dtype)
        case "all":
            return (~is_rare).astype(dtype)
        case "prod":
            return (1 + is_rare).astype(dtype)
    return (rng.integers(0, 3, (rows, width)) + 50 * is_rare).astype(dtype)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("function", ["all", "any", "max", "min", "sum", "prod", "count_nonzero"])
def test_columns_of_any_width(function: str, rng: np.random.Generator) -> None:
    for width in rng.permutation(MOST_COLUMNS)[:WIDTHS] + 1:
        for dtype in DTYPES:
            a = draw(rng, function, dtype, int(width))
            found = getattr(gr, function)(a, axis=0, device="cpu")
            wanted = getattr(np, function)(a, axis=0)
            assert np.array_equal(found, wanted), (dtype, a.shape)
