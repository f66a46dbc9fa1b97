"""Reduce large arrays and compare with ``numpy.sum``, with a GPU or without.

    python examples/demo.py [--n 100000000]

With a GPU, several named kernels run there. Without one, the CPU backend computes the same sums,
and the emulator shows what the kernels would do. Times are of the whole call, from a NumPy array to
a NumPy scalar, a copy to the GPU included; best of three.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
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
ON_CPU = ("auto", "fast")
REPEATS = 3
EMULATED, EMULATED_ELEMENTS = KERNELS[:5], 20_000
"""Kernels that the emulator runs, and elements of their array: enough for several blocks."""
RECORDED = Path(__file__).parents[1] / "benchmarks" / "results" / "kernels-nvidia-h200.json"


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


def show_table(values: np.ndarray[Any, Any], exact: float, kernels: Iterable[str]) -> bool:
    """Print one table; whether every kernel came as near to the exact sum as floats allow."""
    expected, numpy_ms = best_of(lambda: np.sum(values))
    integers = values.dtype.kind == "i"
    print(f"\n{values.size:,} x {values.dtype}, {values.nbytes / 1e6:,.0f} MB")
    print(
        f"{'':<20} {'ran on':<10} {'ms':>9} {'times as fast as numpy':>24} {'relative error':>15}"
    )
    error = relative_error(expected, exact)
    print(f"{'numpy.sum':<20} {'cpu':<10} {numpy_ms:>9.2f} {1:>24.2f} {error:>15.1e}")
    right = True
    for name in kernels:
        result, ms = best_of(lambda name=name: gr.sum(values, kernel=name))
        run = gr.last_run()
        assert run is not None
        error = relative_error(result, exact)
        right &= error == 0 if integers else error < 1e-4
        speedup = numpy_ms / ms
        print(f"{name:<20} {run.device:<10} {ms:>9.2f} {speedup:>24.2f} {error:>15.1e}")
    return right


def show_emulated() -> None:
    """Print what some kernels do, by the emulator."""
    print(f"\nWhat some kernels do, on an emulated GPU, with {EMULATED_ELEMENTS:,} float32:\n")
    try:
        print(gr.explain(EMULATED, EMULATED_ELEMENTS))
        print("docs/explain.md explains these counts.\n")
    except (gr.KernelUnavailableError, RuntimeError) as error:
        print(f"not here: {error}")


def show_what_a_gpu_adds() -> None:
    """Print one line on the times that were recorded on a GPU."""
    recorded = json.loads(RECORDED.read_text())
    times = {
        row["kernel"]: row["milliseconds"]["median"]
        for row in recorded["rows"]
        if row["kernel"] in KERNELS
    }
    slow, quick = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
    print(
        f"With a GPU, this demo runs {len(KERNELS)} kernels on it. Recorded on an "
        f"{recorded['environment']['device']['name']}, {recorded['n']:,} {recorded['dtype']}: "
        f"{slow} {times[slow]:,.1f} ms, {quick} {times[quick]:.2f} ms."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000_000, help="elements in each array")
    n = parser.parse_args().n

    devices = gr.devices()
    if devices:
        print(f"Running on the GPU: {devices[0].name}")
    else:
        print(f"No GPU was found: the CPU backend runs, on {gr.limits().cpu_threads} threads")

    rng = np.random.default_rng()
    whole = rng.integers(-1000, 2000, n, dtype=np.int32)
    kernels = KERNELS if devices else ON_CPU
    # On the CPU `auto` and `fast` add integers in the same way, and floats in two.
    of_integers = KERNELS if devices else ON_CPU[:1]
    right = show_table(whole, float(np.sum(whole, dtype=np.int64)), of_integers)
    del whole
    real = rng.random(n, dtype=np.float32)
    right &= show_table(real, float(np.sum(real, dtype=np.float64)), kernels)
    nearest = np.finfo(np.float32).eps / 2
    print(f"\nThe float32 nearest to a sum may be {nearest:.1e} of it away: it has seven digits.")
    print("auto finds the nearest one; other kernels may be further off, in less time on a CPU.")
    if not devices:
        print("Large arrays come from memory. Where one core already reads at memory bandwidth, or")
        print("other programs use the cores, even fast may take longer than numpy.sum.")
    print("All sums agree." if right else "Some sums are wrong.")
    if not devices:
        show_emulated()
        show_what_a_gpu_adds()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
