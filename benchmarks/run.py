"""Measure gpureduce and write benchmarks/results/*.json.

    python benchmarks/run.py                  # everything this machine can do
    python benchmarks/run.py kernels auto     # some of it
    python benchmarks/run.py --quick          # smaller and shorter, for trying it out

Parts
-----
kernels     400 million int32 on the device through every kernel: the tutorials' table
rows        2048 * 1024 rows of 256 float32, 128 to 1024 threads a block
auto        kernel "auto" on 1 GiB on the device beside CUB, CuPy and PyTorch
functions   the other functions on 512 MiB on the device, beside the libraries that have them
axes        axes and pairs of axes of large arrays, tall, wide and of three axes, beside the peers
exact       kernel "exact" beside "fast" on data easy and hard to sum, over sizes and over axes
accuracy    how far sums of floats are from the real one, ours and the others', over sizes
sizes       the same as auto over sizes from 4 KiB up
copies      kernels that copy to shared memory beside those that load, over sizes from 4 KiB up
finishes    ways in which blocks become one, as a grid barrier and clusters, over the same sizes
several     tuples of operators and describe, 1 GiB on the device, beside calls of their own
host        1 GiB of NumPy array, pinned and ordinary, beside the copy itself, CuPy and PyTorch
first_call  a kernel never compiled, one in the disk cache, one loaded
cpu         the CPU backend beside numpy.sum, and the overhead of a small call
exact_cpu   kernel "exact" beside "fast" on all cores, and on one beside math.fsum

Each result file has the environment, the raw samples in milliseconds and their medians. Peers are
measured in the same process, in turns with us, so that a drift of the machine's clocks meets all.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

import gpureduce as gr
from gpureduce import _core
from gpureduce._bench.baselines import DeviceView, available, numpy_function
from gpureduce._bench.benchmark_array import on_device, random_values, repeat
from gpureduce._bench.environment import environment
from gpureduce._bench.sampling import summary
from gpureduce._dtypes import native_dtype

RESULTS = pathlib.Path(__file__).parent / "results"
GIB = 2**30
SLOW = 200.0  # milliseconds after which two samples are enough
FLUSH = 256 << 20  # bytes written between samples of arrays that would fit in L2


def measure(
    op: str, pointer: int, shape: tuple[int, ...], dtype: str, kernel: str, repeats: int,
    *, reduced: int = 1, block: int = 0, flush: int = 0,
) -> list[float]:  # fmt: skip
    """Device times in milliseconds of one of our kernels; few samples of one that takes long."""

    def sample(warmup: int, count: int) -> list[float]:
        return list(
            _core.measure(
                op, pointer, shape, np.dtype(dtype), reduced, kernel, 0, block, 0,
                warmup, count, flush,
            )
        )  # fmt: skip

    first = sample(0, 1)
    if first[0] > SLOW:
        return first + sample(0, 1)
    return sample(2, repeats)


def bandwidth(nbytes: int, milliseconds: list[float]) -> float:
    """Bytes per second at the median."""
    return nbytes / (float(np.median(milliseconds)) * 1e-3)


# ------------------------------------------------------------------ parts that need a GPU


def part_kernels(quick: bool) -> dict[str, Any]:
    n = 4_000_000 if quick else 400_000_000
    repeats = 5 if quick else 20
    values = random_values("int32", n)
    expected = values.sum(dtype=np.int64)
    rows = []
    with on_device(values) as pointer:
        for info in gr.kernels():
            if not info.available:
                rows.append({"kernel": info.name, "absent": info.reason})
                continue
            result = _core.reduce_device("sum", pointer, (n,), values.dtype, 1, info.name, 0)
            times = measure("sum", pointer, (n,), "int32", info.name, repeats)
            rows.append(
                {
                    "kernel": info.name,
                    "block_size": gr.last_run().block_size,
                    "right": bool(result == expected),
                    "milliseconds": summary(times),
                    "bytes_per_second": bandwidth(values.nbytes, times),
                }
            )
    return {"n": n, "dtype": "int32", "op": "sum", "bytes": values.nbytes, "rows": rows}


def part_rows(quick: bool) -> dict[str, Any]:
    count, n = (2048 if quick else 2048 * 1024), 256
    repeats = 3 if quick else 10
    values = random_values("float32", count * n)
    rows = []
    with on_device(values) as pointer:
        for info in gr.kernels():
            if not info.available:
                rows.append({"kernel": info.name, "absent": info.reason})
                continue
            blocks = [128, 256, 512, 1024] if info.block_rule != "32" else [32]
            for block in blocks:
                times = measure(
                    "sum", pointer, (count, n), "float32", info.name, repeats, block=block
                )
                rows.append(
                    {
                        "kernel": info.name,
                        "block_size": block,
                        "milliseconds": summary(times),
                        "bytes_per_second": bandwidth(values.nbytes, times),
                    }
                )
    return {"rows_reduced": count, "n": n, "dtype": "float32", "bytes": values.nbytes, "rows": rows}


AUTO_CELLS = [
    *((op, dtype) for dtype in ("float32", "float64", "int32", "int64")
      for op in ("sum", "min", "max")),
    *(("sum", dtype) for dtype in ("uint8", "int8", "int16", "float16")),
    *((op, dtype) for op in ("min", "max") for dtype in ("uint8", "int16", "float16")),
    ("prod", "float32"), ("mean", "float32"), ("any", "bool"), ("all", "bool"),
]  # fmt: skip


def peers_on(
    peers: dict[str, Any], op: str, dtype: str, pointer: int, shape: tuple[int, ...],
    axis: int | tuple[int, ...] | None, repeats: int, flush: int, owner: Any,
) -> dict[str, Any]:  # fmt: skip
    """Each peer's times on the same device memory, or the reason why it has none."""
    rows: dict[str, Any] = {}
    view = DeviceView(pointer, shape, np.dtype(dtype), 0, owner)
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    for name, peer in peers.items():
        try:
            work = peer.device_work(op, view, axis, flush)
            first = [1e3 * each for each in work.take(1)]
            times = first if first[0] > SLOW else [1e3 * each for each in work.take(repeats)]
        except Exception as error:  # peers raise various exceptions for cases that they lack
            rows[name] = {"absent": f"{type(error).__name__}: {str(error)[:120]}"}
            continue
        rows[name] = {
            "milliseconds": summary(times),
            "bytes_per_second": bandwidth(nbytes, times),
        }
    return rows


def in_turns(
    peers: dict[str, Any], op: str, values: np.ndarray, pointer: int,
    axis: int | tuple[int, ...] | None, repeats: int, turns: int = 3,
) -> dict[str, Any]:  # fmt: skip
    """Times of ours and of the peers on the same memory, by turns; bytes are the elements'."""
    dtype, nbytes = values.dtype.name, values.nbytes
    ours: dict[str, list[float]] = {kernel: [] for kernel in ours_of(op, dtype)}
    theirs: dict[str, Any] = {}
    for _ in range(turns):
        for kernel, times in ours.items():
            times += measure_axes(op, pointer, values, axis, repeats, kernel)
        quick_ones = {name: peer for name, peer in peers.items() if not is_slow(theirs.get(name))}
        turn = peers_on(quick_ones, op, dtype, pointer, values.shape, axis, repeats, 0, values)
        for name, row in turn.items():
            if "absent" in row or name not in theirs:
                theirs[name] = row
            else:
                times = theirs[name]["milliseconds"]["samples"] + row["milliseconds"]["samples"]
                theirs[name] = {
                    "milliseconds": summary(times),
                    "bytes_per_second": bandwidth(nbytes, times),
                }
    return {
        "op": op,
        "dtype": dtype,
        **{
            kernel: {"milliseconds": summary(times), "bytes_per_second": bandwidth(nbytes, times)}
            for kernel, times in ours.items()
        },
        "peers": theirs,
    }


def ours_of(op: str, dtype: str) -> tuple[str, ...]:
    """Our kernels to measure: "auto", and "fast" where that is another one."""
    is_fast = _core.choose_kernel("auto", op.removeprefix("nan"), dtype) == "fast"
    return ("auto",) if is_fast else ("auto", "fast")


def is_slow(row: dict[str, Any] | None) -> bool:
    """Whether a peer has shown that it takes long, or that it cannot."""
    return row is not None and ("absent" in row or row["milliseconds"]["median"] > SLOW / 10)


def measure_axes(
    op: str,
    pointer: int,
    values: np.ndarray,
    axis: int | tuple[int, ...] | None,
    repeats: int,
    kernel: str,
) -> list[float]:
    """Device times in milliseconds of a kernel over some axes of a C-ordered array at `pointer`."""
    skips = op.startswith("nan")
    axes = normalize_axis_tuple(range(values.ndim) if axis is None else axis, values.ndim)
    view = values.transpose(*(i for i in range(values.ndim) if i not in axes), *axes)
    return list(
        _core.measure(
            op.removeprefix("nan"), pointer, view.shape, values.dtype, len(axes), kernel,
            0, 0, 0, 2, repeats, 0, strides=view.strides, skip_nan=skips,
        )
    )  # fmt: skip


def part_auto(quick: bool) -> dict[str, Any]:
    nbytes = (64 << 20) if quick else GIB
    peers, absent = available()
    rows = []
    for op, dtype in AUTO_CELLS:
        values = random_values(dtype, nbytes // np.dtype(dtype).itemsize)
        if dtype == "bool":
            values[:] = op == "all"  # an answer that needs every element
        with on_device(values) as pointer:
            rows.append(in_turns(peers, op, values, pointer, None, 5 if quick else 15))
    return {"bytes": nbytes, "absent": absent, "rows": rows}


FUNCTION_CELLS = {
    "float32": "argmin argmax var std count_nonzero ptp minmax logical_xor nansum nanprod nanmin "
    "nanmax nanmean nanvar nanargmax",
    "float64": "argmax var count_nonzero minmax nansum nanmax nanmean nanvar nanargmax",
    "float16": "argmax var minmax nansum nanmax",
    "int32": "argmax var ptp minmax bitwise_and bitwise_or bitwise_xor count_nonzero",
    "int64": "argmin bitwise_xor",
    "uint8": "argmax var count_nonzero minmax bitwise_or",
    "bool": "count_nonzero argmax logical_xor",
    "complex64": "sum prod mean max var",
    "complex128": "sum mean argmax var",
}


def part_functions(quick: bool) -> dict[str, Any]:
    nbytes = (
        64 if quick else 512
    ) << 20  # some of the libraries' functions take a hundred times as long as ours
    peers, absent = available()
    rows = []
    for dtype, ops in FUNCTION_CELLS.items():
        values = random_values(dtype, nbytes // np.dtype(dtype).itemsize)
        with on_device(values) as pointer:
            rows += [
                in_turns(peers, op, values, pointer, None, 5 if quick else 10, 2)
                for op in ops.split()
            ]
    return {"bytes": nbytes, "absent": absent, "rows": rows}


AXES_CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((16384, 16384), (0,)), ((16384, 16384), (1,)),
    ((10**8, 3), (0,)), ((10**8, 3), (1,)),
    ((3, 10**8), (0,)), ((3, 10**8), (1,)),
    ((10**6, 256), (0,)), ((10**6, 256), (1,)),
    ((512, 512, 1024), (0,)), ((512, 512, 1024), (1,)),
    ((512, 512, 1024), (2,)), ((512, 512, 1024), (0, 2)),
]  # fmt: skip
AXES_CELLS = [
    ("sum", "float32"),
    ("max", "float16"),
    ("sum", "float64"),
    ("argmax", "float32"),
    ("var", "float32"),
]


def part_axes(quick: bool) -> dict[str, Any]:
    peers, absent = available(["cupy", "torch"])
    rows = []
    for whole, axes in AXES_CASES:
        shape = tuple(max(extent // 8, 3) if quick else extent for extent in whole)
        for op, dtype in AXES_CELLS:
            if op == "argmax" and len(axes) > 1:
                continue
            values = random_values(dtype, math.prod(shape)).reshape(shape)
            with on_device(values) as pointer:
                row = in_turns(
                    peers,
                    op,
                    values,
                    pointer,
                    axes[0] if len(axes) == 1 else axes,
                    5 if quick else 10,
                    2,
                )
            kept = math.prod(extent for i, extent in enumerate(shape) if i not in axes)
            result_bytes = kept * np.asarray(numpy_function(op)(np.ones(1, dtype))).dtype.itemsize
            rows.append(
                {"shape": shape, "axis": axes, "bytes": values.nbytes + result_bytes, **row}
            )
    return {"absent": absent, "rows": rows}


EXACT_PATTERN = 1 << 22  # elements after which hard data repeats
# Rows of which the CPU makes variances, to compare bits: each is a long division.
MOST_DIVIDED = 10**6
EXACT_AXES_CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((16384, 16384), (0,)), ((10**6, 256), (0,)), ((10**6, 256), (1,)),
    ((10**8, 3), (0,)), ((10**8, 3), (1,)), ((3, 10**8), (0,)),
    ((512, 512, 1024), (1,)), ((512, 512, 1024), (0, 2)),
]  # fmt: skip


def hard_values(kind: str, dtype: str, n: int) -> np.ndarray:
    """Floats of one kind: how far their exponents lie apart decides what an exact sum has to do."""
    rng = np.random.default_rng(20240501)
    element = native_dtype(dtype)
    period = min(n, EXACT_PATTERN)
    # Decades.
    largest = {"float16": 4.0, "bfloat16": 37.0, "float32": 37.0, "float64": 300.0}[dtype]
    pattern: np.ndarray
    if kind == "uniform":
        pattern = rng.random(period)
    elif kind == "lognormal":
        pattern = rng.lognormal(0, 2, period)
    elif kind == "wide":  # sigma 50, as far as the type goes
        pattern = np.exp(
            np.clip(50 * rng.normal(size=period), -largest * np.log(10), largest * np.log(10))
        )
    elif kind == "any bits":
        bits = rng.integers(0, 2 ** (8 * element.itemsize), period, dtype=np.uint64)
        pattern = bits.astype(f"u{element.itemsize}").view(element)
        pattern = np.where(np.isfinite(pattern), pattern, element.type(1))
    else:
        pattern = rng.normal(size=period)
    if kind == "cancelling":
        pattern[period // 2 : period // 2 * 2] = -pattern[: period // 2]
        rng.shuffle(pattern)
    if kind == "outliers":  # one in a pattern
        pattern[rng.integers(period)] = 10.0**largest
    return repeat(pattern.astype(element), n)


def exact_beside_fast(
    values: np.ndarray,
    repeats: int,
    turns: int,
    axes: tuple[int, ...] | None = None,
    op: str = "sum",
) -> dict[str, Any]:
    """Times of both in turns, and whether the GPU's results have the bits of the CPU's."""
    reduced = tuple(range(values.ndim)) if axes is None else axes
    view = values.transpose(*(axis for axis in range(values.ndim) if axis not in reduced), *reduced)
    samples: dict[str, list[float]] = {"exact": [], "fast": []}
    flush = FLUSH if values.nbytes <= FLUSH else 0
    with on_device(values) as pointer:
        for _ in range(turns):
            for kernel, times in samples.items():
                times += list(
                    _core.measure(
                        op, pointer, view.shape, view.dtype, len(reduced), kernel,
                        0, 0, 0, 2, repeats, flush, strides=view.strides,
                    )
                )  # fmt: skip
        got = np.asarray(
            _core.reduce_device(
                op, pointer, view.shape, view.dtype, len(reduced), "exact", 0, strides=view.strides
            )
        )
    wanted = gr.reduce(values, op, axis=reduced, kernel="exact", device="cpu")
    return {
        "bytes": values.nbytes,
        "cold": bool(flush),
        "same_bits": got.tobytes() == np.asarray(wanted).tobytes(),
        **{kernel: summary(times) for kernel, times in samples.items()},
    }


def part_exact(quick: bool) -> dict[str, Any]:
    kinds = ["uniform", "normal", "lognormal", "cancelling", "outliers", "wide", "any bits"]
    peers, absent = available()
    rows = []
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        itemsize = native_dtype(dtype).itemsize
        for kind in kinds:
            values = hard_values(kind, dtype, ((64 << 20) if quick else GIB) // itemsize)
            rows.append(
                {"dtype": dtype, "data": kind, **exact_beside_fast(values, 5 if quick else 8, 3)}
            )
        for exponent in range(12, 27, 2):
            values = hard_values("normal", dtype, 2**exponent // itemsize)
            row = {"dtype": dtype, "data": "normal", **exact_beside_fast(values, 40, 3)}
            if dtype in ("float32", "float64"):
                with on_device(values) as pointer:
                    row["peers"] = peers_on(
                        peers, "sum", dtype, pointer, values.shape, None, 30, FLUSH, values
                    )
            rows.append(row)
    products = {
        "variances": exact_variances(peers, quick),
        "variance_axes": exact_axes(quick, "var", MOST_DIVIDED),
        "dots": exact_dots(peers, quick),
    }
    return {"op": "sum", "absent": absent, "rows": rows, "axes": exact_axes(quick), **products}


def exact_variances(peers: dict[str, Any], quick: bool) -> list[dict[str, Any]]:
    """Variances of exact, fast and the peers; of float16 only PyTorch makes them in one pass."""
    rows = []
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        itemsize = native_dtype(dtype).itemsize
        for kind in ("normal", "lognormal", "wide"):
            for nbytes in ((64 << 20) if quick else GIB, 1 << 20, 1 << 14):
                values = hard_values(kind, dtype, nbytes // itemsize)
                row = {
                    "dtype": dtype,
                    "data": kind,
                    **exact_beside_fast(values, 5 if quick else 8, 3, op="var"),
                }
                if kind == "normal" and dtype in ("float32", "float64"):
                    with on_device(values) as pointer:
                        row["peers"] = peers_on(
                            peers, "var", dtype, pointer, values.shape, None, 10, FLUSH, values
                        )
                rows.append(row)
    return rows


def exact_dots(peers: dict[str, Any], quick: bool) -> list[dict[str, Any]]:
    """Dot products of a library's arrays, by us and by it, in turns; bytes are those of both."""
    rows = []
    for name in [name for name in ("torch", "cupy") if name in peers]:
        library = importlib.import_module(name)
        take = library.as_tensor if name == "torch" else library.asarray
        for dtype in ("float64", "float32", "float16"):
            for kind in ("normal", "lognormal", "wide"):
                n = ((64 << 20) if quick else GIB) // native_dtype(dtype).itemsize // 2
                x = hard_values(kind, dtype, n)
                y = np.roll(x, n // 3)
                with on_device(x) as first, on_device(y) as second:
                    options = {"device": "cuda"} if name == "torch" else {}
                    a, b = (
                        take(DeviceView(p, (n,), x.dtype, 0, x), **options) for p in (first, second)
                    )
                    calls = {
                        "exact": functools.partial(gr.dot, a, b),
                        name: functools.partial(library.dot, a, b),
                    }
                    samples: dict[str, list[float]] = {each: [] for each in calls}
                    for _ in range(3):
                        for each, call in calls.items():
                            samples[each] += [
                                1e3 * time for time in peers[name].times_of(call, 5 if quick else 8)
                            ]
                    got = np.asarray(gr.dot(a, b).cpu() if name == "torch" else gr.dot(a, b).get())
                same = got.tobytes() == np.asarray(gr.dot(x, y, device="cpu")).tobytes()
                row = {each: summary(times) for each, times in samples.items()}
                rows.append(
                    {"dtype": dtype, "data": kind, "bytes": 2 * x.nbytes, "same_bits": same, **row}
                )
    return rows


def exact_axes(quick: bool, op: str = "sum", most_rows: int | None = None) -> list[dict[str, Any]]:
    """Axes of device arrays; of one also numbers that differ so much that threads sum alone."""
    rows = []
    for whole, axes in EXACT_AXES_CASES:
        kept = math.prod(extent for axis, extent in enumerate(whole) if axis not in axes)
        if most_rows is not None and kept > most_rows:
            continue
        shape = tuple(max(extent // 8, 3) if quick else extent for extent in whole)
        for dtype in ("float64", "float32"):
            for kind in ("normal", "wide") if whole == (16384, 16384) else ("normal",):
                values = hard_values(kind, dtype, math.prod(shape)).reshape(shape)
                row = exact_beside_fast(values, 3 if quick else 5, 2, axes, op)
                rows.append({"dtype": dtype, "data": kind, "shape": shape, "axis": axes, **row})
    return rows


def ulps_apart(got: Any, wanted: np.floating[Any]) -> float:
    """How far a sum is from the right one, in units of the right one's last place."""
    return abs(float(got) - float(wanted)) / float(np.spacing(np.abs(wanted)))


def part_accuracy(quick: bool) -> dict[str, Any]:
    peers, absent = available()
    rows = []
    for dtype in ("float32", "float64"):
        for kind in ("uniform", "cancelling"):
            for exponent in range(10, 20 if quick else 26, 3):
                values = hard_values(kind, dtype, 2**exponent)
                if kind == "cancelling":
                    values[-1] = 1  # so that the remainder is a number
                wanted = gr.sum(values, kernel="exact", device="cpu")
                sums: dict[str, Any] = {"numpy.sum": np.sum(values)}
                if values.size <= 2**22:  # it takes its time
                    sums["math.fsum"] = values.dtype.type(math.fsum(values))
                with on_device(values) as pointer:
                    for kernel in ("fast", "exact"):
                        sums[kernel] = _core.reduce_device(
                            "sum", pointer, values.shape, values.dtype, 1, kernel, 0
                        )
                    view = DeviceView(pointer, values.shape, values.dtype, 0, values)
                    for name, peer in peers.items():
                        sums[name] = peer.device_work("sum", view, None, 0).result()
                errors = {name: ulps_apart(value, wanted) for name, value in sums.items()}
                rows.append({"dtype": dtype, "data": kind, "elements": values.size, "ulps": errors})
    return {"op": "sum", "absent": absent, "rows": rows}


def part_sizes(quick: bool) -> dict[str, Any]:
    repeats = 10 if quick else 40
    largest = 26 if quick else 32
    peers, absent = available()
    rows = []
    for exponent in range(12, largest + 1, 2):
        n = 2**exponent // 4
        values = random_values("float32", n)
        flush = FLUSH if values.nbytes <= FLUSH else 0
        with on_device(values) as pointer:
            ours = {
                kernel: summary(
                    measure("sum", pointer, (n,), "float32", kernel, repeats, flush=flush)
                )
                for kernel in ours_of("sum", "float32")
            }
            theirs = peers_on(peers, "sum", "float32", pointer, (n,), None, repeats, flush, values)
        rows.append({"bytes": values.nbytes, "cold": bool(flush), **ours, "peers": theirs})
    return {"op": "sum", "dtype": "float32", "absent": absent, "rows": rows}


COPIES = ("multi_add", "shfl_two_pass_vec", "async_copy", "bulk_copy", "fast")
FINISHES = (
    "two_kernel",
    "last_block",
    "shfl_two_pass_vec",
    "cooperative",
    "block_atomic_vec",
    "cluster",
    "fast",
)


def over_sizes(kernels: tuple[str, ...], quick: bool) -> dict[str, Any]:
    """Sums of float32 by several kernels, from 4 KiB up, in turns."""
    repeats = 10 if quick else 40
    rows = []
    for exponent in range(12, (26 if quick else 30) + 1, 2):
        n = 2**exponent // 4
        values = random_values("float32", n)
        expected = float(values.sum(dtype=np.float64))
        flush = FLUSH if values.nbytes <= FLUSH else 0
        found: dict[str, list[float]] = {kernel: [] for kernel in kernels}
        right = {}
        with on_device(values) as pointer:
            for kernel in kernels:
                got = _core.reduce_device("sum", pointer, (n,), values.dtype, 1, kernel, 0)
                right[kernel] = bool(abs(float(got) - expected) <= 1e-4 * max(1.0, abs(expected)))
            for _ in range(4):  # in turns
                for kernel in kernels:
                    found[kernel] += measure(
                        "sum", pointer, (n,), "float32", kernel, repeats // 4 + 1, flush=flush
                    )
        rows.append(
            {
                "bytes": values.nbytes,
                "cold": bool(flush),
                "right": right,
                **{kernel: summary(times) for kernel, times in found.items()},
            }
        )
    return {"op": "sum", "dtype": "float32", "kernels": list(kernels), "rows": rows}


def part_copies(quick: bool) -> dict[str, Any]:
    n, repeats = ((64 << 20) if quick else GIB) // 4, 5 if quick else 20
    kernels = [kernel for kernel in COPIES if kernel not in ("multi_add", "fast")]
    with on_device(random_values("float32", n)) as pointer:
        blocks = [
            {
                "block_size": block,
                **{
                    kernel: summary(
                        measure("sum", pointer, (n,), "float32", kernel, repeats, block=block)
                    )
                    for kernel in kernels
                },
            }
            for block in (32, 64, 128, 256, 512, 1024)
        ]
    by_block = {"bytes": 4 * n, "kernels": kernels, "rows": blocks}
    return {**over_sizes(COPIES, quick), "by_block": by_block}


def part_finishes(quick: bool) -> dict[str, Any]:
    return over_sizes(FINISHES, quick)


SEVERAL_CELLS: dict[str, tuple[str, ...]] = {
    "float32": ("float32", "float64", "float16"),
    "int32": ("int32",),
}
SEVERAL = {
    "sum mean": "float32 int32",
    "any all count_nonzero": "float32 int32",
    "min max argmin argmax": "float32 int32",
    "nanmin nanmax": "float32",
    "mean min max": "float32 int32",
    "nanmean nanmin nanmax": "float32",
    "sum min max argmax": "float32 int32",
    "sum min max var": "float32 int32",
    "describe": "float32",
}
SEVERAL_ROWS = ((60_000, 1_100), (16_384, 16_384), (300, 600_000))
SEVERAL_OF_ROWS = ("mean min max", "sum min max argmax", "sum min max var", "describe")
SEVERAL_OF_WIDE = ("mean min max", "describe")
WIDE_DECADES = 30  # of either sign: sums of such numbers need more than two doubles
OF_DESCRIBE = ("nanmean", "nanstd", "nanmin", "nanmax")
NAN_APART = 1009  # elements from NaN to NaN where functions leave them out


def time_by_events(call: Callable[[], Any], repeats: int) -> list[float]:
    """Milliseconds between two events around a call that is queued behind a busy device."""
    import torch

    busy_cycles = 400_000
    times = []
    for _ in range(repeats + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(busy_cycles)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times[1:]  # the first one compiles


def several_cells(nbytes: int) -> Iterator[tuple[str, str, str, tuple[int, ...]]]:
    """Operators, dtype, kind of data and shape of each row of the table."""
    for names, kinds in SEVERAL.items():
        for dtype in (name for kind in kinds.split() for name in SEVERAL_CELLS[kind]):
            yield names, dtype, "normal", (nbytes // np.dtype(dtype).itemsize,)
    for shape in SEVERAL_ROWS:
        for names in SEVERAL_OF_ROWS:
            yield names, "float32", "normal", shape
    for names in SEVERAL_OF_WIDE:
        yield names, "float32", "wide", (nbytes // 4,)


def part_several(quick: bool) -> dict[str, Any]:
    """One pass beside the calls whose results it makes; PyTorch lends the arrays."""
    try:
        import torch
    except ImportError as error:
        return {"absent": str(error), "rows": []}
    nbytes, repeats = (64 << 20) if quick else GIB, 5 if quick else 12
    rng = np.random.default_rng(0)
    rows = []
    for names, dtype, data, shape in several_cells(nbytes):
        own = OF_DESCRIBE if names == "describe" else tuple(names.split())
        axis = None if len(shape) == 1 else 1
        values = random_values(dtype, math.prod(shape))
        if data == "wide":
            values *= np.float32(10.0) ** rng.integers(-WIDE_DECADES, WIDE_DECADES, values.size)
        if own[0].startswith("nan"):
            values[::NAN_APART] = np.nan
        array = torch.from_numpy(values.reshape(shape)).cuda()

        def in_a_pass(
            array: Any = array, names: str = names, own: Any = own, axis: Any = axis
        ) -> Any:
            if names == "describe":
                return gr.describe(array, axis=axis)
            return gr.reduce(array, own, axis=axis)

        rows.append({
            "operators": names,
            "dtype": dtype,
            "data": data,
            "shape": list(shape),
            "pass": summary(time_by_events(in_a_pass, repeats)),
            "calls": {
                op: summary(
                    time_by_events(functools.partial(getattr(gr, op), array, axis=axis), repeats)
                )
                for op in own
            },
        })  # fmt: skip
    return {"bytes": nbytes, "nan_apart": NAN_APART, "rows": rows}


def wall(call: Callable[[], Any], repeats: int) -> list[float]:
    """Wall times of a whole synchronous call, in milliseconds, after one that warms up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def part_host(quick: bool) -> dict[str, Any]:
    nbytes = (64 << 20) if quick else GIB
    repeats = 5 if quick else 15
    n = nbytes // 4
    values = random_values("float32", n)
    pinned = gr.pinned_copy(values)
    contenders: dict[str, Callable[[], Any]] = {
        "gpureduce pinned": lambda: gr.sum(pinned, device="cuda"),
        "gpureduce ordinary": lambda: gr.sum(values, device="cuda"),
        "gpureduce cpu": lambda: gr.sum(values, device="cpu"),
        "numpy": lambda: np.sum(values),
    }
    # A peer that is not installed is left out of the table.
    with contextlib.suppress(ImportError):
        import cupy

        contenders["cupy ordinary"] = lambda: float(cupy.asarray(values).sum())
    with contextlib.suppress(ImportError):
        import torch

        tensor, pinned_tensor = torch.from_numpy(values), torch.from_numpy(pinned)
        target = torch.empty(n, dtype=torch.float32, device="cuda")
        contenders["torch ordinary"] = lambda: tensor.to("cuda").sum().item()
        contenders["torch pinned"] = lambda: (
            pinned_tensor.to("cuda", non_blocking=True).sum().item()
        )

        def copy_only() -> None:
            target.copy_(pinned_tensor, non_blocking=True)
            torch.cuda.synchronize()

        contenders["pinned copy alone"] = copy_only
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(3):
        for name, call in contenders.items():
            samples[name] += wall(call, repeats)
    rows = [
        {"what": name, "milliseconds": summary(times), "bytes_per_second": bandwidth(nbytes, times)}
        for name, times in samples.items()
    ]
    small = random_values("float32", 1000)
    latency = [x * 1e3 for x in wall(lambda: gr.sum(small, device="cuda"), 300)]
    return {"bytes": nbytes, "rows": rows, "microseconds_for_1000_elements": summary(latency)}


FIRST_CALL = """
import json, os, sys, time
import numpy as np
import gpureduce as gr
values = np.arange(1000, dtype=np.float32)
gr.sum(values, kernel="sequential", device="cuda")   # driver, context and NVRTC are up after this
kernel = sys.argv[1]
times = []
for _ in range(3):
    start = time.perf_counter()
    gr.sum(values, kernel=kernel, device="cuda")
    times.append((time.perf_counter() - start) * 1e3)
run = gr.last_run()
print(json.dumps(times))
"""


def part_first_call(quick: bool) -> dict[str, Any]:
    names = [info.name for info in gr.kernels() if info.available and info.name != "sequential"]
    if quick:
        names = names[:3]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            # A cache of its own: kernels may have programs in common.
            env = {**os.environ, "GPUREDUCE_CACHE_DIR": os.path.join(folder, name)}
            runs = []
            for _ in ("never compiled", "in the disk cache"):
                done = subprocess.run(
                    [sys.executable, "-c", FIRST_CALL, name],
                    env=env, check=True, capture_output=True, text=True,
                )  # fmt: skip
                runs.append(json.loads(done.stdout))
            rows.append(
                {
                    "kernel": name,
                    "never_compiled_ms": runs[0][0],
                    "disk_cache_ms": runs[1][0],
                    "loaded_ms": runs[1][-1],
                }
            )
    return {"rows": rows}


# ------------------------------------------------------------------ the CPU backend


def part_cpu(quick: bool) -> dict[str, Any]:
    sizes = [1000, 10**4, 10**5, 10**6, 10**7] + ([] if quick else [10**8])
    rows = []
    for dtype in ("float32", "float64", "int32", "uint8"):
        for op in ("sum", "max"):
            for n in sizes:
                values = random_values(dtype, n)
                ours, theirs = getattr(gr, op), getattr(np, op)
                number = max(1, min(2000, 4 * 10**6 // n))
                pair: tuple[list[float], list[float]] = ([], [])
                for _ in range(9 if quick else 15):  # in turns
                    a = timeit.timeit(lambda f=ours, v=values: f(v, device="cpu"), number=number)
                    b = timeit.timeit(lambda f=theirs, v=values: f(v), number=number)
                    pair[0].append(a / number * 1e3)
                    pair[1].append(b / number * 1e3)
                ratio = float(np.median(np.array(pair[1]) / np.array(pair[0])))
                rows.append(
                    {
                        "op": op, "dtype": dtype, "n": n,
                        "gpureduce": summary(pair[0]), "numpy": summary(pair[1]),
                        "times_numpy": ratio,
                    }
                )  # fmt: skip
    return {"threads": gr.limits().cpu_threads, "isa": _core.cpu_isa(), "rows": rows}


def call_times(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Wall times of synchronous calls in turns, in milliseconds, after a round that warms up."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            samples[name].append((time.perf_counter() - start) * 1e3)
    return samples


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """The CPU backend on the calling thread alone."""
    before = gr.limits().cpu_threads
    gr.set_limits(cpu_threads=1)
    try:
        yield
    finally:
        gr.set_limits(cpu_threads=before)


def part_exact_cpu(quick: bool) -> dict[str, Any]:
    nbytes = (64 << 20) if quick else GIB
    rows, beside_fsum = [], []
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        for kind in ("normal", "lognormal"):
            values = hard_values(kind, dtype, nbytes // native_dtype(dtype).itemsize)
            calls = {
                kernel: functools.partial(gr.sum, values, kernel=kernel, device="cpu")
                for kernel in ("exact", "fast")
            }
            samples = call_times(calls, 7 if quick else 25)
            with one_thread():
                alone = call_times(calls, 3 if quick else 5)
                same = np.asarray(calls["exact"]())
            rows.append(
                {
                    "dtype": dtype, "data": kind, "bytes": values.nbytes,
                    "same_bits": same.tobytes() == np.asarray(calls["exact"]()).tobytes(),
                    **{kernel: summary(times) for kernel, times in samples.items()},
                    "one_thread": {kernel: summary(times) for kernel, times in alone.items()},
                }
            )  # fmt: skip
    for kind in ("normal", "lognormal"):
        values = hard_values(kind, "float64", 2**20 if quick else EXACT_PATTERN)
        as_list = values.tolist()
        exact = functools.partial(gr.sum, values, kernel="exact", device="cpu")
        with one_thread():
            samples = call_times(
                {
                    "exact": exact,
                    "math.fsum(array)": functools.partial(math.fsum, values),
                    "math.fsum(list)": functools.partial(math.fsum, as_list),
                },
                3 if quick else 7,
            )
        beside_fsum.append(
            {
                "dtype": "float64", "data": kind, "elements": values.size,
                "same_value": float(exact()) == math.fsum(as_list),
                **{name: summary(times) for name, times in samples.items()},
            }
        )  # fmt: skip
    return {
        "op": "sum",
        "threads": gr.limits().cpu_threads,
        "isa": _core.cpu_isa(),
        "rows": rows,
        "fsum": beside_fsum,
    }


CPU_PARTS = ("cpu", "exact_cpu")

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "kernels": part_kernels,
    "rows": part_rows,
    "auto": part_auto,
    "functions": part_functions,
    "axes": part_axes,
    "exact": part_exact,
    "accuracy": part_accuracy,
    "sizes": part_sizes,
    "copies": part_copies,
    "finishes": part_finishes,
    "several": part_several,
    "host": part_host,
    "first_call": part_first_call,
    "cpu": part_cpu,
    "exact_cpu": part_exact_cpu,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter")
    parser.add_argument(
        "--output", type=pathlib.Path, default=RESULTS, help="folder for the JSON files"
    )
    options = parser.parse_args()
    has_gpu = bool(gr.devices())
    label = gr.devices()[0].name.lower().replace(" ", "-") if has_gpu else "cpu-only"
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.parts or PARTS:
        if name not in CPU_PARTS and not has_gpu:
            print(f"{name}: left out, there is no CUDA device")
            continue
        start = time.perf_counter()
        result = {
            "part": name,
            "quick": options.quick,
            "environment": environment(),
            **PARTS[name](options.quick),
        }
        path = options.output / f"{name}-{label}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {path} ({time.perf_counter() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
