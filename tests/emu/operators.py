"""Operators of users' own by the kernels that keep order, beside left-to-right folds in Python."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from operator_cases import CASES, check, random_call, reference

import gpureduce as gr
from gpureduce import _core
from gpureduce._interop.libraries import DeviceBuffer
from gpureduce._yours import operator_device, operator_device_program

SCHEDULES = ("forward", "reverse", "random")


def use_overlay(task: dict[str, Any]) -> None:
    """Take files of the overlay for those of the package, which go into the program's text."""
    overlay = task.get("emulator", {}).get("overlay")
    if overlay:
        changed = {
            file.name: file.read_text() for file in Path(overlay).rglob("*") if file.is_file()
        }
        operator_device_program.headers = lambda: {**_core.sources(), **changed}


def schedules(rng: np.random.Generator) -> Iterator[str]:
    """Each of the emulator's orders of threads and blocks, set."""
    settings = ctypes.CDLL(os.environ["GPUREDUCE_LIBCUDA"])
    for schedule in SCHEDULES:
        settings.fake_set(b"schedule", schedule.encode())
        settings.fake_set(b"seed", str(int(rng.integers(1, 2**31))).encode())
        yield schedule


def check_random(task: dict[str, Any]) -> None:
    """``count`` random calls of ``op`` by each schedule, by any block and grid."""
    use_overlay(task)
    case, rng = CASES[task["op"]], np.random.default_rng(task["seed"])
    operator = case.operator()
    for schedule in schedules(rng):
        for number in range(task["count"]):
            a, arguments = random_call(case, rng, int(rng.choice([60, 2500])))
            options: dict[str, Any] = {"block_size": int(rng.choice([32, 64, 128, 256]))}
            if rng.random() < 0.6:
                options["grid_size"] = int(rng.integers(1, 6))
            got = gr.reduce(a, operator, **arguments, **options, device="cuda")
            check(
                got,
                reference(case, a, **arguments),
                f"{schedule} {number}, {a.dtype} {a.shape} {a.strides} {arguments} {options} "
                f"GPR_TEST_SEED={task['seed']}",
            )


def check_masks(task: dict[str, Any]) -> None:
    """Rows that are kept along two axes, some elements of which count."""
    use_overlay(task)
    case, rng = CASES[task["op"]], np.random.default_rng(task["seed"])
    a = rng.integers(-2, 3, (3, 5, 40))
    mask = rng.random(a.shape) < 0.7
    got = gr.reduce(a, case.operator(), 2, where=mask, initial=1, device="cuda")
    check(got, reference(case, a, 2, mask, 1), f"GPR_TEST_SEED={task['seed']}")


def check_chunks(task: dict[str, Any]) -> None:
    """Host arrays in chunks of a few hundred elements."""
    use_overlay(task)
    case, rng = CASES[task["op"]], np.random.default_rng(task["seed"])
    operator = case.operator()
    gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
    operator_device._MOST_CHUNK = 4096
    for axis in (None, 0, 1, (0, 2), 2):
        shape = tuple(int(n) for n in rng.permutation([3, 17, 40]))
        a = rng.integers(-2, 3, shape)
        mask = {}
        if rng.random() < 0.5:
            mask = {"where": rng.random(shape) < 0.7, "initial": 1}
        got = gr.reduce(a, operator, axis, device="cuda", **mask)
        what = f"{task['op']} {shape} {axis} GPR_TEST_SEED={task['seed']}"
        check(got, reference(case, a, axis, **mask), what)


class Part:
    """A part of device memory, lent by the CUDA array interface."""

    def __init__(self, part: Any) -> None:
        self.part = part

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        part = self.part
        return {
            "shape": part.shape,
            "typestr": np.dtype(part.dtype).str,
            "data": (part.pointer, False),
            "version": 3,
            "strides": part.strides,
        }


def check_tiles(task: dict[str, Any]) -> None:
    """Device arrays: rows of several tiles per warp, at no multiple of 16 bytes."""
    use_overlay(task)
    case, rng = CASES[task["op"]], np.random.default_rng(task["seed"])
    operator = case.operator()
    for dtype in ("int8", "int64"):
        size = np.dtype(dtype).itemsize
        for rows, n in ((1, 30_000), (3, 5_000), (40, 700)):
            shift = int(rng.integers(0, 16 // size))
            values = (6 * rng.integers(0, 3, rows * n + shift)).astype(dtype)
            buffer = DeviceBuffer(values.shape, dtype, 0, _core.device_stream(0))
            _core.upload(0, buffer.memory.pointer, values)
            pointer = buffer.memory.pointer + shift * size
            part = _core.device_array(pointer, (rows, n), None, dtype, 0, None, buffer)
            block = int(rng.choice([64, 256]))
            got = gr.reduce(Part(part), operator, axis=1, block_size=block)
            host = np.empty(got.shape, got.dtype)
            _core.download(0, got.memory.pointer, host, got.stream)
            a = values[shift:].reshape(rows, n)
            what = f"{dtype} {rows} {n} {shift} {block} GPR_TEST_SEED={task['seed']}"
            check(host, reference(case, a, 1), what)


def takes(kernel: str, case: Any) -> bool:
    """Whether a kernel of the course takes an operator."""
    row = next(row for row in _core.kernels() if row["name"] == kernel)
    if row["family"] in ("planner", "library") or row["name"] == "exact":
        return False
    if not row["deterministic"] and case.name not in ("total", "gcd"):  # atomics
        return False
    return case.commutative or not row["commutative_only"]


def check_named(task: dict[str, Any]) -> None:
    """``count`` calls of kernel ``kernel`` with ``op`` by each schedule: any n, grid and block of
    those that ``blocks`` has, rows of hosts' arrays in any layout, masks, chunks, device arrays.
    """
    use_overlay(task)
    case, kernel = CASES[task["op"]], task["kernel"]
    assert takes(kernel, case), (kernel, case.name)
    rng = np.random.default_rng(task["seed"])
    operator = case.operator()
    loops = next(row for row in _core.kernels() if row["name"] == kernel)["takes_grid_size"]
    blocks: list[int | None] = task.get("blocks") or [None]
    gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
    for schedule in schedules(rng):
        for number in range(task["count"]):
            options: dict[str, Any] = {"block_size": blocks[int(rng.integers(len(blocks)))]}
            if loops and rng.random() < 0.7:
                options["grid_size"] = int(rng.integers(1, 6))
            operator_device._MOST_CHUNK = int(rng.choice([4096, 1 << 20]))
            what = f"{kernel} {case.name} {schedule} {number} {options}"
            if number % 3 == 0:  # one row, whose ends are anywhere
                dtype = np.dtype(rng.choice(["int8", "int64"]))
                a = (6 * rng.integers(0, 3, int(rng.integers(1, task["most"])))).astype(dtype)
                arguments: dict[str, Any] = {}
            elif number % 3 == 1:
                a, arguments = random_call(case, rng, task["most"])
            else:
                check_on_device(case, operator, rng, kernel, options, what, task)
                continue
            got = gr.reduce(a, operator, kernel=kernel, **arguments, **options, device="cuda")
            what += f" {a.dtype} {a.shape} {arguments} GPR_TEST_SEED={task['seed']}"
            check(got, reference(case, a, **arguments), what)


def check_on_device(
    case: Any, operator: Any, rng: Any, kernel: str, options: dict[str, Any], what: str, task: Any
) -> None:
    """Rows of a device array, which begin at multiples of an element."""
    rows, shift = int(rng.integers(1, 4)), int(rng.integers(0, 4))
    n = int(rng.integers(1, task["most"] // rows + 1))
    values = (6 * rng.integers(0, 3, rows * n + shift)).astype("int32")
    buffer = DeviceBuffer(values.shape, "int32", 0, _core.device_stream(0))
    _core.upload(0, buffer.memory.pointer, values)
    pointer = buffer.memory.pointer + shift * values.itemsize
    part = _core.device_array(pointer, (rows, n), None, "int32", 0, None, buffer)
    got = gr.reduce(Part(part), operator, axis=1, kernel=kernel, **options)
    host = np.empty(got.shape, got.dtype)
    _core.download(0, got.memory.pointer, host, got.stream)
    want = reference(case, values[shift:].reshape(rows, n), 1)
    check(host, want, f"{what} device {rows} {n} {shift} GPR_TEST_SEED={task['seed']}")


def _logsumexp(x: Any) -> np.longdouble:
    """In extended precision."""
    wide = x.astype(np.longdouble)
    at = int(np.argmax(wide))
    if not np.isfinite(wide[at]):
        return wide[at]
    return wide[at] + np.log1p(np.exp(np.delete(wide, at) - wide[at]).sum())


def check_exponentials(task: dict[str, Any]) -> None:
    """Rows whose elements `logsumexp` folds many at once: in any order, and such as it does not."""
    use_overlay(task)
    rng, dtype = np.random.default_rng(task["seed"]), task["dtype"]
    kinds = ["normal", "wide", "ascending", "descending", "infinite", "alike", "far", "small"]
    for kind in rng.permutation(kinds)[: task["count"]]:
        n = int(rng.integers(3000, 12000))
        x = rng.normal(size=n) * {"wide": 100, "far": 2e4, "small": 1e-3}.get(str(kind), 3)
        if kind in ("ascending", "descending"):
            x = np.sort(x)[:: 1 if kind == "ascending" else -1]
        if kind == "infinite":
            x[rng.random(n) < 0.5] = -np.inf
        if kind == "alike":
            x[:] = x[0]
        if kind == "small":
            x[1:] -= 400
        values = (x if dtype[0] == "f" else np.maximum(x, -100)).astype(dtype)
        got = gr.logsumexp(values, device="cuda")
        wanted = _logsumexp(values.astype(np.float64))
        where = f"{kind} {n} {dtype} {got} {wanted} GPR_TEST_SEED={task['seed']}"
        if dtype in ("float32", "float16"):
            assert got == gr.logsumexp(values, device="cpu"), where
        else:
            bound = 2.0**-53 * (8 + 2 * np.log(n) + 2 * abs(wanted))
            assert abs(np.longdouble(got) - wanted) <= bound, where


EDGES = (0.0, 1.0, 1.5, 3.0, 2.0**-26, 2.0**-60, float("inf"), float("nan"))


@np.errstate(over="ignore", invalid="ignore")
def rounded_towards(a: np.floating[Any], b: np.floating[Any], limit: float) -> np.floating[Any]:
    """a + b rounded towards plus or minus infinity, from the exact sum."""
    kind, largest = type(a), np.finfo(type(a)).max
    nearest = a + b
    if np.isfinite(a) and np.isfinite(b):
        exact = Fraction(float(a)) + Fraction(float(b))
        if exact == 0:  # numbers of one sign keep it
            is_negative = np.signbit(a) if np.signbit(a) == np.signbit(b) else limit < 0
            return kind(-0.0 if is_negative else 0.0)
        if np.isinf(nearest):
            return nearest if nearest == limit else np.copysign(largest, nearest)
        off = exact - Fraction(float(nearest))
        if (off > 0) == (limit > 0) and off != 0:
            return np.nextafter(nearest, kind(limit))
    return nearest


def check_rounded_additions(task: dict[str, Any]) -> None:
    """Additions rounded up and down, by which exact sums prove that they lose nothing."""
    rng = np.random.default_rng(task["seed"])
    for kind, letter in ((np.float64, "d"), (np.float32, "f")):
        info = np.finfo(kind)
        edges = np.array([*EDGES, info.max, info.tiny, info.smallest_subnormal, info.eps], kind)
        edges = np.concatenate([edges, -edges])
        pairs = np.array(np.meshgrid(edges, edges)).reshape(2, -1).T
        powers = np.ldexp(1.0, rng.integers(-40, 40, (600, 2))) * rng.standard_normal((600, 2))
        pairs = np.ascontiguousarray(np.concatenate([pairs, powers.astype(kind)]), kind)
        for suffix, limit in (("ru", np.inf), ("rd", -np.inf)):
            function = f"__{letter}add_{suffix}"
            text = f"struct add {{ static T combine(T a, T b) {{ return {function}(a, b); }} }};"
            got = gr.reduce(pairs, gr.Operator("add", text), axis=1, device="cuda")
            for (a, b), result in zip(pairs, got, strict=True):
                wanted = rounded_towards(a, b, limit)
                same = result == wanted and np.signbit(result) == np.signbit(wanted)
                where = f"{function}({a!r}, {b!r}) is {result!r}, not {wanted!r}"
                assert same or (np.isnan(result) and np.isnan(wanted)), (
                    f"{where} (GPR_TEST_SEED={task['seed']})"
                )
