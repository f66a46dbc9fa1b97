"""pytest-benchmark's view of kernels: the whole synchronous call, from NumPy array to result.

    pytest benchmarks --benchmark-group-by=group            # the short form
    pytest benchmarks --benchmark-autosave                  # and later:
    pytest benchmarks --benchmark-compare

Groups are operator, dtype and size, so that a table holds what competes. Device times of the
kernels alone are not pytest-benchmark's: they stand in ``extra_info``. Without a GPU only ``auto``
on the CPU and NumPy are measured. ``GPR_BENCH_SIZES`` and ``GPR_BENCH_KERNELS`` (separated by
commas) ask for others than the short form's.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import gpureduce as gr
from gpureduce._bench.benchmark_array import as_benchmark_array, random_values
from gpureduce._bench.correctness import check, reference
from gpureduce._bench.session import REFUSED, BenchmarkSession

pytest.importorskip(
    "pytest_benchmark", reason="needs pytest-benchmark: pip install 'gpureduce[bench]'"
)

SIZES = [int(float(n)) for n in os.environ.get("GPR_BENCH_SIZES", "1e3,1e6").split(",")]
DTYPES = ("float32", "float64", "int32")
OPERATORS = ("sum", "max")
STAIRCASE = (
    "interleaved_modulo",
    "sequential",
    "multi_add",
    "shfl_atomic",
    "shfl_atomic_vec",
    "last_block",
    "auto",
)
DEVICE_SAMPLES = 20
HAS_GPU = bool(gr.devices())
KERNELS = os.environ.get("GPR_BENCH_KERNELS", ",".join(STAIRCASE) if HAS_GPU else "auto").split(",")


def device_figures(values: np.ndarray[Any, Any], op: str, kernel: str) -> dict[str, Any]:
    """Times of the kernels alone, or why there are none."""
    options = {
        "kernel": kernel,
        "block_size": None,
        "grid_size": None,
        "stream": None,
        "dtype": None,
    }
    it = as_benchmark_array(values)
    with BenchmarkSession(it, None, None, "cold") as session:
        try:
            turn = session.device_turn(op, options)
        except REFUSED as error:
            return {"why_no_device": str(error)}
        if turn is None:
            return {"why_no_device": session.why_no_device}
        turn.samples += turn.take(DEVICE_SAMPLES)
        spread = turn.spread
    figures = {name: each for name, each in spread.to_dict().items() if name != "samples"}
    return {
        "device_seconds": figures,
        "device_bytes_per_second": it.nbytes / spread.median,
        "cache": "cold",
    }


@pytest.fixture(
    scope="module",
    params=[(dtype, n) for n in SIZES for dtype in DTYPES],
    ids=lambda it: f"{it[0]}-{it[1]}",
)
def values(request: pytest.FixtureRequest) -> np.ndarray[Any, Any]:
    dtype, n = request.param
    return random_values(dtype, n)


def describe(benchmark: Any, values: np.ndarray[Any, Any], op: str) -> None:
    benchmark.group = f"{op} {values.dtype} {values.size:,}"
    benchmark.extra_info |= {
        "op": op,
        "dtype": values.dtype.name,
        "elements": values.size,
        "bytes": values.nbytes,
    }


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel(benchmark: Any, values: np.ndarray[Any, Any], op: str, kernel: str) -> None:
    describe(benchmark, values, op)
    result = benchmark(getattr(gr, op), values, kernel=kernel, device="cuda" if HAS_GPU else "cpu")
    assert check(result, reference(op, values, None), getattr(np, op)(values[:1]).dtype).right
    run = gr.last_run()
    assert run is not None
    ran = {
        "ran_on": run.device,
        "variant": run.variant,
        "block_size": run.block_size,
        "grid_size": run.grid_size,
    }
    benchmark.extra_info |= {**ran, **(device_figures(values, op, kernel) if HAS_GPU else {})}


@pytest.mark.parametrize("op", OPERATORS)
def test_numpy(benchmark: Any, values: np.ndarray[Any, Any], op: str) -> None:
    describe(benchmark, values, op)
    benchmark(getattr(np, op), values)
