"""Reduce large arrays by several named kernels and compare each with ``numpy.sum``.

    python examples/demo.py [--n 100000000]

On a machine with a GPU every kernel of the table runs there; on one without, the CPU backend
answers for all of them, and the table says so. Times are of the whole call, from a NumPy array to a
NumPy scalar, the copy to the GPU included; best of three.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import gpureduce as gr

KERNELS = (
    "naive_atomic",
    "interleaved_modulo",
    "sequential",
    "multi_add",
    "shfl_two_pass",
    "shfl_atomic_vec",
    "last_block",
    "auto",
)
REPEATS = 3


def best_of(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result and shortest time in milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return result, min(times) * 1e3


def relative_error(result: Any, exact: float) -> float:
    return abs(float(result) - exact) / abs(exact)


def show_table(values: np.ndarray[Any, Any], exact: float) -> bool:
    """Print one table; whether every kernel came as near to the exact sum as floats allow."""
    expected, numpy_ms = best_of(lambda: np.sum(values))
    integers = values.dtype.kind == "i"
    print(f"\n{values.size:,} x {values.dtype}, {values.nbytes / 1e6:,.0f} MB")
    print(f"{'':<20} {'ran as':<22} {'ms':>9} {'x numpy':>8} {'relative error':>15}")
    error = relative_error(expected, exact)
    print(f"{'numpy.sum':<20} {'':<22} {numpy_ms:>9.2f} {1:>8.2f} {error:>15.1e}")
    right = True
    for name in KERNELS:
        result, ms = best_of(lambda name=name: gr.sum(values, kernel=name))
        run = gr.last_run()
        assert run is not None
        error = relative_error(result, exact)
        right &= error == 0 if integers else error < 1e-4
        where = f"{run.device} {run.variant}"
        print(f"{name:<20} {where:<22} {ms:>9.2f} {numpy_ms / ms:>8.2f} {error:>15.1e}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000_000, help="elements in each array")
    n = parser.parse_args().n

    devices = gr.devices()
    if devices:
        print(f"Running on the GPU: {devices[0].name}")
    else:
        print(f"Running on the CPU backend, {gr.limits().cpu_threads} threads: no GPU was found")
        warnings.simplefilter("ignore", gr.NoDeviceWarning)  # said above, and in the table

    rng = np.random.default_rng()
    whole = rng.integers(-1000, 2000, n, dtype=np.int32)
    right = show_table(whole, float(np.sum(whole, dtype=np.int64)))
    del whole
    real = rng.random(n, dtype=np.float32)
    right &= show_table(real, float(np.sum(real, dtype=np.float64)))
    print("\nAll sums agree." if right else "\nSome sums are wrong.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
