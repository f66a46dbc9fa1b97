"""Run every kernel on the first GPU and check what it returns: work for compute-sanitizer.

Sizes straddle warps and blocks and make several blocks; results are checked, so that a tool that changes timing still
finds a wrong one. By default a few types and operators; ``--all`` takes every cell, and ``--shard I/N`` every N-th of
them, so that several processes can share the work.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import gpureduce as gr

DTYPES = ("uint8", "float16", "int32", "float32", "float64")
OPERATORS = ("sum", "max")
SIZES = (1, 31, 1000, 20_011)
ALL_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
ALL_OPERATORS = (
    *("sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "var", "std", "count_nonzero", "ptp"),
    *("minmax", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor"),
)
ALL_SIZES = (1, 33, 5003)


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def small_values(rng: np.random.Generator, op: str, n: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Two rows of small integers whose reductions every accumulator holds exactly."""
    values = rng.integers(0, 3, (2, n))
    if op == "prod":  # mostly ones: at most 2**10
        values[:] = 1
        values[rng.integers(0, 2, 5), rng.integers(0, n, 5)] = 2
    return values.astype(dtype)


def is_right(result: Any, values: np.ndarray[Any, Any], op: str, axis: int | None) -> bool:
    """Whether a result is the exact one, rounded once to its type (or near it, where something was divided)."""
    if op == "minmax":
        return is_right(result[0], values, "min", axis) and is_right(result[1], values, "max", axis)
    if op.startswith("bitwise") or op == "logical_xor":
        exact = getattr(np, op).reduce(values.astype(bool) if op == "logical_xor" else values, axis=axis)
    else:
        exact = getattr(np, op)(values.real.astype(np.float64), axis=axis)
    if op in ("mean", "var", "std"):
        return bool(np.allclose(np.asarray(result).real.astype(np.float64), exact, rtol=2**-7))
    return bool(np.all(result == np.asarray(exact).astype(np.asarray(result).dtype)))


def refuses(kernel: str, op: str, dtype: np.dtype[Any]) -> bool:
    """Whether the operator does not exist for the dtype, or the kernel cannot fold what it accumulates, and says so."""
    try:
        gr.reduce(np.ones(1, dtype), op, kernel=kernel, device="cuda")
    except TypeError:
        return True
    except ValueError as error:
        if str(error).startswith(f"kernel '{kernel}' "):
            return True
        raise
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every dtype and operator")
    parser.add_argument("--shard", default="0/1", help="which part of the cells, as 2/8")
    parser.add_argument("--kernel", action="append", help="only this kernel; may be given several times")
    options = parser.parse_args()
    shard, shards = map(int, options.shard.split("/"))
    dtypes = ALL_DTYPES if options.all else DTYPES
    operators = ALL_OPERATORS if options.all else OPERATORS
    sizes = ALL_SIZES if options.all else SIZES
    rng = np.random.default_rng()
    wrong = run = refused = 0
    kernels = [kernel for kernel in gr.kernels() if kernel.available]
    if options.kernel:
        kernels = [kernel for kernel in kernels if kernel.name in options.kernel]
    cells = [(kernel.name, name, op) for kernel in kernels for name in dtypes for op in operators]
    for kernel, name, op in cells[shard::shards]:
        if refuses(kernel, op, dtype_of(name)):
            refused += 1
            continue
        for n in sizes:
            values = small_values(rng, op, n, dtype_of(name))
            for axis in (None, 1):
                try:
                    result = gr.reduce(values, op, axis=axis, kernel=kernel, device="cuda")
                except gr.CudaError as error:  # after which the context is of no more use
                    print(f"{kernel} {op} {name} n={n} axis={axis}: {error}\n{error.log or ''}")
                    return 1
                run += 1
                if not is_right(result, values, op, axis):
                    print(f"{kernel} {op} {name} n={n} axis={axis}: {result} is wrong")
                    wrong += 1
    print(f"{len(cells[shard::shards]) - refused} cells, {refused} refused, {run} reductions, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
