"""One case of the matrix: kernel, type and operator, over sizes, starts, rows and schedules.

The expectation is exact. Integers have their full range and wrap as NumPy's do; floats are drawn so
that every partial result is a number of their accumulator, whatever the order.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
from reference import (
    ALL_DTYPES,
    TRUTHS,
    WITHOUT_IDENTITY,
    assert_reduction,
    is_float,
    numpy_of,
    random_array,
    takes,
)

import gpureduce as gr
from gpureduce import _core

SCHEDULES = ("forward", "reverse", "random")
FULL = (1, 8192)  # n, count of rows whose accumulators of eight bytes end where their memory does


def set_option(key: str, value: Any) -> None:
    """Set one of the emulator's options while nothing runs."""
    ctypes.CDLL(os.environ["GPUREDUCE_LIBCUDA"]).fake_set(key.encode(), str(value).encode())


def exact_values(rng: np.random.Generator, dtype: np.dtype[Any], n: int, op: str) -> np.ndarray:
    """Elements for which the reduction has one right answer, whatever the order."""
    if (
        op in ("sum", "mean", "prod") and dtype.kind == "c"
    ):  # products of units and small powers of two
        turns = np.array([1, 1j, -1, -1j])[rng.integers(0, 4, n)]
        real = exact_values(rng, np.dtype(np.float32), n, op)
        values = (
            real * turns
            if op == "prod"
            else real + 1j * exact_values(rng, np.dtype(np.float32), n, op)
        )
        return values.astype(dtype)
    if op == "mean" and dtype.kind in "iu" and dtype.itemsize == 8:  # a double holds their sum
        least, most = (0, 2**32) if dtype.kind == "u" else (-(2**31), 2**31)
        return rng.integers(least, most, n).astype(dtype) << dtype.type(rng.integers(0, 33))
    if not is_float(dtype) or op in TRUTHS or op in ("argmin", "argmax", "var", "std"):
        return random_array(rng, dtype, n, op)
    if op in ("min", "max", "ptp", "minmax"):
        values = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)
        for special in (np.nan, np.inf, -np.inf):
            if n > 0 and rng.random() < 0.3:
                values[rng.integers(n)] = special
    elif op == "prod":  # signs, and powers of two whose product is not far from one
        values = rng.choice([-1.0, 1.0], n)
        picked = rng.permutation(n)[: min(n, 8) // 2 * 2]
        values[picked] *= np.resize([2.0, 0.5], len(picked))
    else:  # their sum has few enough digits for eight bits
        values = np.zeros(n)
        picked = rng.integers(0, max(n, 1), min(n, 60))
        values[picked] = rng.integers(-2, 3, len(picked))
        values[: n // 2 * 2] += np.resize([64.0, -64.0], n // 2 * 2)
    return values.astype(np.float32).astype(dtype)


def check(result: Any, values: np.ndarray, op: str, where: str) -> None:
    """Compare one result with the reference; floats too are exact."""
    if len(values) == 0:
        expected = numpy_of(op)(np.zeros(0, bool if op.startswith("bitwise") else np.float64))
        assert result == expected or op.startswith("bitwise"), f"{where}: {result} for no elements"
        return
    assert_reduction(result, values, op, 0, where)
    if (is_float(values.dtype) or values.dtype.kind == "c") and op in ("sum", "prod"):
        wide = np.complex128 if values.dtype.kind == "c" else np.float64
        exact = getattr(np, op)(values.astype(wide)).astype(values.dtype)
        assert result == exact, f"{where}: {result} is not {exact}"


def on_device(
    values: np.ndarray,
    shape: tuple[int, ...],
    offset: int,
    op: str,
    kernel: str,
    block: int,
    grid: int = 0,
) -> Any:
    """Reduce a device array's last axis; it starts at `offset` and ends where its memory does.

    Results of rows stay on the device meanwhile, in memory that ends where they do; those of two
    outputs do not.
    """
    memory = np.concatenate([np.zeros(offset, values.dtype), values])
    result = None
    if len(shape) > 1 and op != "minmax":
        result = np.empty(shape[0], gr.reduce(np.ones(1, values.dtype), op, device="cpu").dtype)
    pointer, out = (
        _core.alloc_device(0, memory.nbytes),
        _core.alloc_device(0, 1 if result is None else result.nbytes),
    )
    try:
        _core.upload(0, pointer, memory)
        arguments = (
            op,
            pointer + offset * values.itemsize,
            shape,
            values.dtype,
            1,
            kernel,
            0,
            block,
            grid,
        )
        if result is None:
            return _core.reduce_device(*arguments)
        _core.reduce_device(*arguments, result=out)
        _core.download(0, out, result)
        return result
    finally:
        _core.free_device(0, pointer)
        _core.free_device(0, out)


def sizes_around(block: int) -> list[int]:
    """On both sides of a warp, a block, and several; and enough for a third pass at 64 threads."""
    edges = (32, block, 2 * block, 8 * block)
    return sorted({0, 1, 5001, *(edge + d for edge in edges for d in (-1, 0, 1))})


def can(kernel: str, op: str, dtype: np.dtype[Any]) -> bool:
    """Whether a kernel folds the operator's accumulators; it raises if it does not."""
    try:
        gr.reduce(np.ones(1, dtype), op, kernel=kernel, device="cpu")
    except ValueError as error:
        message = str(error)
        if kernel == "exact":
            assert "sums numbers" in message, error  # noqa: PT017
            assert op not in ("sum", "mean", "var", "std"), error  # noqa: PT017
        else:
            assert "folds by atomics" in message, error  # noqa: PT017
            assert kernel.startswith(("naive", "shared", "shfl_atomic", "block_atomic", "cluster"))
        return False
    return True


def check_case(task: dict[str, Any]) -> None:
    """Run a case: ``kernel``, ``dtype``, ``ops``, ``block``, ``seed``.

    ``sizes`` and ``rows`` (n, count) if they are not the usual; ``starts`` "device" for device
    memory alone, at starts that are not aligned to vectors; ``grid``, a number of blocks, which
    have several rounds then; ``schedules`` if not all. With ``spread`` each size runs under one
    schedule, another one in the next run.
    """
    for op in task["ops"]:
        if not takes(op, ALL_DTYPES[task["dtype"]]) or not can(
            task["kernel"], op, ALL_DTYPES[task["dtype"]]
        ):
            continue
        for schedule in task.get("schedules", SCHEDULES):
            check_schedule(task, op, schedule)


def check_schedule(task: dict[str, Any], op: str, schedule: str) -> None:
    kernel, dtype, block = (task[name] for name in ("kernel", "dtype", "block"))
    grid = task.get("grid", 0)
    rng = np.random.default_rng(
        [task["seed"], *f"{kernel} {dtype} {op} {schedule}".encode(), block]
    )
    schedule_seed = int(rng.integers(1, 2**31))
    set_option("schedule", schedule)
    set_option("seed", schedule_seed)
    label = (
        f"{kernel} {dtype} {op} block={block} schedule={schedule},seed={schedule_seed} "
        f"GPR_TEST_SEED={task['seed']}"
    )

    def compare(n: int, count: int, offset: int | None) -> None:
        """Reduce `count` rows (0: no axis) of n elements: on the device; no offset: of the host."""
        values = exact_values(rng, ALL_DTYPES[dtype], n * max(count, 1), op)
        where = f"{label} n={n} rows={count} offset={offset}"
        try:
            if offset is None:
                options = {"kernel": kernel, "block_size": block, "grid_size": grid or None}
                result = gr.reduce(values, op, **options, device="cuda")
            else:
                shape = (count, n) if count else (n,)
                result = on_device(values, shape, offset, op, kernel, block, grid)
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        if count == 0:
            check(result, values, op, where)
        for row in range(count):
            one = tuple(output[row] for output in result) if op == "minmax" else result[row]
            check(one, values[row * n : (row + 1) * n], op, f"{where} row={row}")

    from_host, least = schedule == "forward", 0
    if task.get("starts") == "device":
        from_host, least = False, 1
    turn = SCHEDULES.index(schedule) + task["seed"]
    for place, n in enumerate(task.get("sizes") or sizes_around(block)):
        if task.get("spread") and (turn + place) % len(SCHEDULES) != 0:
            continue
        if n > 0 or op not in (*WITHOUT_IDENTITY, "mean", "var", "std"):
            compare(n, 0, None if from_host or n == 0 else int(rng.integers(least, 8)))
    for n, count in task.get("rows", [(1, 3), (33, 5), (2 * block + 1, 3)]):
        compare(n, count, int(rng.integers(8)))


def check_zeros(task: dict[str, Any]) -> None:
    """Sums and means of nothing but -0.0 by ``kernel``: 0.0, as they start there; ``dtype``,
    ``block``, ``seed``.
    """
    kernel, block, dtype = task["kernel"], task["block"], ALL_DTYPES[task["dtype"]]
    for op in ("sum", "mean"):
        for n, count in ((1, 0), (block, 0), (2 * block, 0), (5001, 0), (2 * block, 3), (32, 70)):
            zeros = -np.zeros(n * max(count, 1), dtype)
            shape = (count, n) if count else (n,)
            found = [on_device(zeros, shape, 0, op, kernel, block)]
            options = {"kernel": kernel, "block_size": block, "device": "cuda"}
            found.append(gr.reduce(zeros.reshape(shape), op, axis=-1, **options))
            for result in found:
                parts = np.ascontiguousarray(result).view(f"u{part_bytes(dtype)}")
                assert not parts.any(), f"{op} {task} {shape}: {result}"


def part_bytes(dtype: np.dtype[Any]) -> int:
    """Bytes of an element, or of a part of a complex one."""
    return dtype.itemsize // (2 if dtype.kind == "c" else 1)


def compose(functions: np.ndarray) -> int:
    """Composition, in order, of x -> a * x + b modulo 2**32, packed as a * 2**32 + b."""
    a, b = 1, 0
    for function in map(int, functions):
        c, d = divmod(function, 2**32)
        a, b = a * c % 2**32, (a * d + b) % 2**32
    return a * 2**32 + b


def check_order(task: dict[str, Any]) -> None:
    """Run ``kernel`` as a sum whose fold, by an overlay, composes functions in order."""
    kernel, (block,) = (
        task["kernel"],
        [info.block_size for info in gr.kernels() if info.name == task["kernel"]],
    )
    rng = np.random.default_rng([task["seed"], *kernel.encode()])
    block = min(block, 64)
    for schedule in SCHEDULES:
        set_option("schedule", schedule)
        set_option("seed", int(rng.integers(1, 2**31)))
        for n in (1, 2, 31, 33, block, block + 1, 3 * block - 1, 1501):
            # The factor a is odd: nothing is forgotten.
            values = rng.integers(0, 2**64, n, dtype=np.uint64) | np.uint64(2**32)
            result = int(on_device(values, (n,), 0, "sum", kernel, block))
            expected = compose(values)
            assert result == expected, (
                f"{kernel} {schedule} n={n}: the order was not kept: {result:#x} is not "
                f"{expected:#x}"
            )
        rows = rng.integers(0, 2**64, (3, 77), dtype=np.uint64) | np.uint64(2**32)
        for row, result in zip(
            rows, on_device(rows.reshape(-1), (3, 77), 0, "sum", kernel, block), strict=True
        ):
            assert int(result) == compose(row), f"{kernel} {schedule} rows: the order was not kept"


def check_seeds(task: dict[str, Any]) -> None:
    """A random schedule is its seed's: float atomics repeat bit for bit, and vary with it."""
    values = np.random.default_rng(task["seed"]).normal(size=700).astype(np.float32)

    def sums() -> list[float]:
        results = []
        for seed in range(1, 9):
            set_option("seed", seed)
            results.append(
                float(gr.sum(values, kernel="naive_atomic", device="cuda", block_size=64))
            )
        return results

    set_option("schedule", "random")
    first, again = sums(), sums()
    assert first == again, f"{first} and then {again}"
    assert len(set(first)) > 1, f"eight seeds, one order: {first}"


def check_compile_error(task: dict[str, Any]) -> None:
    """A program that does not compile: the exception's log holds each of ``log``."""
    if task.get("hide_compilers"):
        os.environ.update(PATH="/nonexistent", CXX="/nonexistent/c++")
        os.environ["GPUREDUCE_CACHE_BYTES"] = "0"  # others may have stored the program
    log = ""
    try:
        gr.sum(np.ones(3, np.float32), kernel="sequential", device="cuda")
    except gr.CudaError as error:
        log = error.log or ""
    missing = [part for part in task["log"] if part not in log]
    assert not missing, f"no {missing} in the log: {log}"
