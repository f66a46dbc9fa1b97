"""Loops of the CPU read no byte beyond an array: the pages before and behind it cannot be read.

Vectors that are loaded whole, and rows that are read ahead, may end beyond an array's last element.
A sanitizer sees it only where its own allocator made the array; a page without access always.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import gpureduce as gr

SEED = int(os.environ["GPR_TEST_SEED"])
PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE
CASES = 1200
FUNCTIONS = (
    "sum", "mean", "prod", "min", "max", "argmin", "argmax", "any", "all", "count_nonzero", "var",
    "ptp", "nansum", "nanmax", "nanargmin",
)  # fmt: skip
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "float32", "float64", "complex64",
)  # fmt: skip
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 200, 257, 1000)
MOST = 60_000  # elements
_libc = ctypes.CDLL(None, use_errno=True)


class Walled:
    """Bytes between two pages without access: they end at the latter, or begin at the former."""

    def __init__(self, nbytes: int, ends: bool) -> None:
        inside = -(-nbytes // PAGE) * PAGE
        self._map = mmap.mmap(-1, inside + 2 * PAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for wall in (begin, begin + PAGE + inside):
            if _libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(PAGE), NO_ACCESS) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        first = PAGE + (inside - nbytes if ends else 0)
        self.memory = np.frombuffer(self._map, np.uint8, nbytes, first)


def draw_strides(rng: np.random.Generator, shape: tuple[int, ...]) -> list[int]:
    """Steps in elements: of C order, of axes in another one, and some with gaps."""
    order = list(range(len(shape)))
    if rng.random() < 0.3:
        order = [int(axis) for axis in rng.permutation(order)]
    steps, step = [0] * len(shape), 1 if rng.random() < 0.7 else int(rng.integers(2, 4))
    for axis in reversed(order):
        steps[axis] = step
        step *= shape[axis]
        if rng.random() < 0.25:
            step += int(rng.integers(1, 9)) * steps[axis]
    return steps


def draw_array(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """A random array that begins at a wall or ends at one."""
    dtype = np.dtype(str(rng.choice(DTYPES)))
    while True:
        shape = tuple(int(e) for e in rng.choice(EXTENTS, int(rng.integers(1, 4))))
        if np.prod(shape) <= MOST:
            break
    steps = draw_strides(rng, shape)
    span = 1 + sum(step * (e - 1) for step, e in zip(steps, shape, strict=True))
    memory = Walled(span * dtype.itemsize, bool(rng.random() < 0.7)).memory.view(dtype)
    view: np.ndarray[Any, Any] = as_strided(memory, shape, [s * dtype.itemsize for s in steps])
    view[...] = rng.integers(0, 3 if dtype.kind == "b" else 50, shape).astype(dtype)
    if dtype.kind == "f" and rng.random() < 0.3:
        view[rng.random(shape) < 0.1] = np.nan
    return view[tuple(slice(None, None, -1 if rng.random() < 0.1 else 1) for _ in shape)]


def check(rng: np.random.Generator) -> None:
    """Reduce an array by some functions, beside NumPy."""
    x = draw_array(rng)
    axis: Any = None if rng.random() < 0.2 else int(rng.integers(x.ndim))
    for function in rng.choice(FUNCTIONS, 4, replace=False):
        if function == "ptp" and x.dtype.kind == "b":
            continue
        print(function, x.dtype, x.shape, x.strides, axis, flush=True)
        ours: Callable[..., Any] = getattr(gr, function)
        theirs: Callable[..., Any] = getattr(np, function)
        is_added = function in ("sum", "mean", "var", "prod", "nansum") and x.dtype.kind in "fc"
        given = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) if is_added else x
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = theirs(given, axis=axis)
            except ValueError:  # nothing but NaN
                continue
            got = ours(x, axis=axis, device="cpu")
            want = np.asarray(want).astype(np.asarray(got).dtype)
        if function == "prod" and x.dtype.kind in "fc":
            continue  # the order decides whether it is 0 or NaN once it is infinite
        np.testing.assert_allclose(got, want, rtol=2e-3 if x.dtype == np.float16 else 1e-5)


@pytest.mark.skipif(not hasattr(_libc, "mprotect"), reason="needs mprotect")
def test_nothing_beyond_an_array_is_read() -> None:
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=False, timeout=300
    )
    last = done.stdout.strip().splitlines()[-1:]
    assert done.returncode == 0, f"{done.returncode} after {last}: {done.stderr[-2000:]}"


def main() -> None:
    for number in range(CASES):
        check(np.random.default_rng([SEED, number]))


if __name__ == "__main__":
    main()
