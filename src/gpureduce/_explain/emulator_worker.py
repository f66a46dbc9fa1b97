"""The process in which a kernel runs on the emulator: reads a request and writes a reply, both
JSON.

Environment variables name the emulator as libcuda and NVRTC, and the file of its report. If the
reduction fails, or its result differs from NumPy's, the reply is an error.
:mod:`gpureduce._explain.explain` starts the process.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any

import numpy as np

from .. import _core
from .._calls import NoValue, OwnCall
from .._dtypes import native_dtype
from .._emulator_process import reply

SEED = 1
BLOCKS = 4
"""Full blocks that make the default length: enough for several of every kind of launch."""
AUTO_BYTES_PER_THREAD = 64
"""Bytes that the planner's kernels give each thread before they use another block
(lib/rules/plan.c)."""


def default_length(kernel: str, block_size: int | None, dtype: np.dtype[Any]) -> int:
    """Elements of :data:`BLOCKS` full blocks."""
    row = next(row for row in _core.kernels() if row["name"] == kernel)
    per_thread = row["elements_per_thread"]
    if row["family"] == "planner":
        per_thread = AUTO_BYTES_PER_THREAD // dtype.itemsize
    return BLOCKS * (block_size or row["block_size"]) * int(per_thread)


def elements(
    rng: np.random.Generator, op: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Random elements whose every result is exact, or rounded once.

    They are small whole numbers; for products signs and a few twos.
    """
    signed = dtype.kind not in "ub"
    if op == "prod":
        values = rng.choice([-1, 1] if signed else [1], shape)
        values.flat[rng.integers(0, values.size, 6)] *= 2
    elif op in ("any", "all"):
        values = np.full(shape, op == "all").astype(np.int64)
        if rng.random() < 0.5:
            values.flat[rng.integers(values.size)] ^= 1
    else:
        values = rng.integers(-4 if signed else 0, 5, shape)
    return values.astype(np.float32).astype(dtype) if dtype.kind == "V" else values.astype(dtype)


def expected(
    op: str, array: np.ndarray[Any, Any], axis: int | None, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """NumPy's result, rounded once to its dtype."""
    if array.dtype.kind in "biu" and op != "mean":
        return np.asarray(getattr(np, op)(array, axis=axis))
    return np.asarray(getattr(np, op)(array.astype(np.float64), axis=axis)).astype(dtype)


def reduce_there(
    array: np.ndarray[Any, Any], op: str, kernel: str, block_size: int, grid_size: int
) -> Any:
    """Reduce the last axis of a device array: a long one of the host is cut into chunks."""
    pointer = _core.alloc_device(0, array.nbytes)
    try:
        _core.upload(0, pointer, array)
        number = _core.OPERATORS[op]
        return _core.reduce_device(
            number, pointer, array.shape, array.dtype, 1, kernel, 0, block_size, grid_size
        )
    finally:
        _core.free_device(0, pointer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the requested reduction and check its result."""
    dtype = native_dtype(request["dtype"])
    kernel, op, block_size = request["kernel"], request["op"], request["block_size"]
    n = request["n"] or default_length(kernel, block_size, dtype)
    rows = request["rows"]
    array = elements(np.random.default_rng(SEED), op, dtype, (n,) if rows == 1 else (rows, n))
    axis = None if rows == 1 else 1
    result = np.asarray(reduce_there(array, op, kernel, block_size or 0, request["grid_size"] or 0))
    right = expected(op, array, axis, result.dtype)
    wide = (result.astype(np.float64), right.astype(np.float64))
    # A mean is divided in its accumulator's type, which may be narrower than NumPy's.
    tolerance = 2.0**-7 if op == "mean" else 0.0
    if not np.allclose(*wide, rtol=tolerance, atol=0):
        wrong = int(np.argmax(np.abs(wide[0] - wide[1]))) if rows > 1 else 0
        found, wanted = wide[0].flat[wrong], wide[1].flat[wrong]
        raise RuntimeError(
            f"kernel '{kernel}' computed {found:g} where NumPy has {wanted:g}, in row {wrong}"
        )
    run = _core.last_run()
    assert run is not None
    return {"n": n, "block_size": run["block_size"]}


def answer_operator(request: dict[str, Any]) -> dict[str, Any]:
    """Run the requested reduction by an operator of the user's own, and check its result."""
    # Not for the package's own: what operators import is a third of such a process's start.
    from .._yours.operator_laws import agree, some_elements

    operator, dtype = pickle.loads(base64.b64decode(request["operator"]))
    kernel, block_size, rows = request["kernel"], request["block_size"], request["rows"]
    n = request["n"] or default_length(kernel, block_size, dtype)
    array = some_elements(np.random.default_rng(SEED), dtype, (rows, n))

    def reduce_on(device: str, *options: Any) -> np.ndarray[Any, Any]:
        call = OwnCall(array, 1, None, None, False, NoValue, True, *options)
        return np.asarray(operator.reduce_array(call._replace(device=device)))

    result = reduce_on("cuda", kernel, None, block_size, request["grid_size"], None)
    if not agree(result, reduce_on("cpu", "auto", None, None, None, None)):
        raise RuntimeError(
            f"kernel '{kernel}' and the CPU backend compute different results of operator "
            f"'{operator.name}': is its combine associative, and commutative if it says so?"
        )
    return {"n": n}


def main() -> None:
    """Reply to one request."""
    reply(lambda request: (answer_operator if "operator" in request else answer)(request))


if __name__ == "__main__":
    main()
