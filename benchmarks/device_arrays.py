"""Arrays in device memory for measuring: uploaded once, freed at the end of the block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from gpureduce import _core


@contextlib.contextmanager
def on_device(values: np.ndarray) -> Iterator[int]:
    """Address of a copy of a contiguous array on the first CUDA device."""
    pointer = _core.alloc_device(0, values.nbytes)
    try:
        _core.upload(0, pointer, values)
        yield pointer
    finally:
        _core.free_device(0, pointer)


def random_values(dtype: str, n: int, seed: int = 20240501) -> np.ndarray:
    """Random data: full-range integers, uniform floats. A 64 Mi element pattern is repeated."""
    rng = np.random.default_rng(seed)
    period = min(n, 2**26)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        pattern = rng.random(period, dtype=np.float32).astype(kind)
    elif kind.kind == "b":
        pattern = rng.random(period) < 0.5
    else:
        info = np.iinfo(kind)
        pattern = rng.integers(info.min, info.max, period, dtype=kind, endpoint=True)
    return pattern if period == n else np.resize(pattern, n)
