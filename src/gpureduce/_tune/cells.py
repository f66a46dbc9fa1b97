"""Arrays whose ways of being read tell a GPU's costs apart.

Random functions, dtypes and shapes, the same on every machine: arrays that caches hold and arrays
that they do not, reduced whole, along their rows and along their columns. Costs of starting,
waiting and merging decide the times of small ones, bandwidth and instructions those of large
ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Cell", "draw_cells"]

SEED = 20120
OPERATORS = ("max", "max", "sum", "argmax", "var")
DTYPES = ("float32", "float32", "float16", "int32", "float64")
LEAST_BYTES = 4096
SMALL_SHARE = 0.6
"""Of the arrays, those of which ``SMALL_BYTES`` is the largest."""
SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class Cell:
    """An array in device memory, and its reduction.

    Attributes
    ----------
    op, dtype : str
    shape, strides : tuple of int
        In the order that the core reduces: reduced axes last; strides in bytes.
    reduced : int
        How many axes are reduced.
    """

    op: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reduced: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def _cell(op: str, dtype: str, shape: tuple[int, ...], axis: int | None) -> Cell:
    """Reduction along an axis of an array in C order; ``None``: of all of it."""
    strides = [np.dtype(dtype).itemsize]
    for extent in shape[:0:-1]:
        strides.insert(0, strides[0] * extent)
    if axis is None:
        return Cell(op, dtype, shape, tuple(strides), len(shape))
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    return Cell(op, dtype, tuple(shape[i] for i in order), tuple(strides[i] for i in order), 1)


def draw_cells(count: int, largest_bytes: int, seed: int = SEED) -> list[Cell]:
    """Draw arrays.

    Parameters
    ----------
    count : int
    largest_bytes : int
        No array is larger; some are nearly as large.
    seed : int, optional
        Of the random numbers.
    """
    if count < 1:
        raise ValueError(f"at least one array must be measured, not {count}")
    if largest_bytes < LEAST_BYTES:
        raise ValueError(f"the largest array has {LEAST_BYTES} bytes or more, not {largest_bytes}")
    rng = np.random.default_rng(seed)
    cells: list[Cell] = []
    while len(cells) < count:
        op, dtype = str(rng.choice(OPERATORS)), str(rng.choice(DTYPES))
        is_small = len(cells) < SMALL_SHARE * count
        most = min(SMALL_BYTES, largest_bytes) if is_small else largest_bytes
        least = LEAST_BYTES if is_small else min(SMALL_BYTES, most)
        nbytes = math.exp(rng.uniform(math.log(least), math.log(most + 1)))
        elements = max(1, int(min(nbytes, most)) // np.dtype(dtype).itemsize)
        kind = int(rng.integers(5))
        if kind == 0:
            cells.append(_cell(op, dtype, (elements,), None))
            continue
        inner = max(1, int(math.exp(rng.uniform(0, math.log(elements)))))
        outer = max(1, elements // inner)
        if kind == 1:  # in planes
            planes = int(rng.integers(2, 9))
            shape = (planes, max(1, outer // planes), inner)
            if math.prod(shape) <= elements:
                cells.append(_cell(op, dtype, shape, 1))
            continue
        cells.append(_cell(op, dtype, (outer, inner), int(kind % 2)))
    return cells
