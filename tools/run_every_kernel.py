"""Run every kernel on the first GPU and check what it returns: work for compute-sanitizer.

Sizes straddle warps and blocks and make several blocks; results are checked, so that a tool that
changes timing still finds a wrong one. What else `fast` and `exact` have ways for is tried too:
rows of several layouts in GPU memory (those of the host are packed on their way), pairs of arrays,
and states; so are several results of one pass, and operators from source. By default a few types
and operators; ``--all`` takes every case, and ``--shard I/N`` every N-th of them, so that several
processes can share the work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import gpureduce as gr
from gpureduce import _core, _one_pass
from gpureduce._dtypes import native_dtype
from gpureduce._interop.libraries import DeviceBuffer

DTYPES = ("uint8", "float16", "int32", "float32", "float64")
OPERATORS = ("sum", "max")
LAYOUT_OPERATORS = (*OPERATORS, "argmax")
EXACT_OPERATORS = ("sum", "nansum", "var")
SIZES = (1, 31, 1000, 20_011)
ALL_EXACT_OPERATORS = ("sum", "mean", "var", "std", "nansum", "nanmean", "nanvar", "nanstd")
ALL_SIZES = (1, 33, 5003)
# Rows and elements of a row, steps between either in elements, and blocks a row or None.
LAYOUTS = (
    ((3, 20_011), (20_012, 1), 3),  # runs that several blocks share
    ((2, 70_011), (70_012, 1), 1),  # runs of which a block reads many tiles
    ((5, 1900), (1903, 1), None),  # runs that a block reads in one round
    ((9, 2048), (2048, 1), None),  # of whole vectors
    ((70, 40), (41, 1), None),  # short runs
    ((600, 16), (16, 1), None),  # of whole vectors, several rows per lane
    ((70, 5), (1, 70), None),  # short rows across memory
    ((40, 700), (1, 40), 3),  # long ones
    ((2, 5003), (20_000, -3), 2),  # gaps, backwards
)
# Rows that lie side by side across memory, as many as items of 16 bytes and more hold, and groups
# of them that share a block.
COLUMNS = (
    ((304, 3001), (1, 304), None),
    ((304, 301), (1, 304), 5),
    ((2048, 33), (1, 2048), None),
    ((300, 16, 9), (144, 1, 16), None),
    ((41, 8, 90), (720, 1, 8), 3),
)
# Bytes of rows of which every other one is the same: so many that two are reduced, and the others
# get copies of their results.
SAME_ROWS_BYTES = 17 << 20
# Rows that a warp alone can add again, of each kernel of `fast` that sums in pairs of doubles: a
# block's, short ones, side by side in whole items, a few beside each other, and across memory.
OF_PAIRS = (
    ((3, 8001), (8002, 1), None),
    ((5, 1900), (1903, 1), None),
    ((700, 40), (41, 1), None),
    ((304, 301), (1, 304), None),
    ((5, 3001), (1, 5), None),
    ((70, 700), (3, 211), None),
)
# Reductions that share a pass over memory, with every accumulator between them.
PASSES = (
    ("sum", "mean", "min", "argmax", "any", "minmax"),
    ("nansum", "nanmean", "nanmax", "nanargmin"),
    ("prod", "var", "std", "ptp", "count_nonzero"),
)
# Rows, and blocks and threads of a row or None.
OF_PASSES = (((70_011,), None, None), ((3, 20_012), 3, 64), ((50, 1031), 1, 256))

# Operators from source: one that shows any change of order, and one that no order changes.
ORDERED = """
struct affine {
    struct State { uint64 a, b; };
    static State identity() { return {1, 0}; }
    static State lift(T x, uint64 index) { return {2 * (index % 7) + 3, (uint64)x}; }
    static State combine(State l, State r) { return {l.a * r.a, l.b * r.a + r.b}; }
    static uint64 finish(State s) { return s.b; }
};"""
COMMUTATIVE = """
struct total {
    struct State { uint64 sum; };
    static State identity() { return {0}; }
    static State lift(T x) { return {(uint64)x}; }
    static State combine(State a, State b) { return {a.sum + b.sum}; }
    static uint64 finish(State s) { return s.sum; }
};"""


class Trial(NamedTuple):
    """A call, and whether what it returns is right."""

    where: str
    call: Callable[[], Any]
    is_right: Callable[[Any], bool]


class OnDevice:
    """A copy of a view's memory in GPU memory, which lends the view by DLPack."""

    def __init__(self, view: np.ndarray[Any, Any]) -> None:
        memory, name = view.base, view.dtype.name
        assert isinstance(memory, np.ndarray)
        room = DeviceBuffer(memory.shape, name, 0, _core.device_stream(0))
        _core.upload(0, room.memory.pointer, memory)
        start = room.memory.pointer + view.ctypes.data - memory.ctypes.data
        self.memory = _core.device_array(
            start, view.shape, view.strides, name, 0, room.stream, room
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int]) -> Any:
        return _core.export_dlpack(self.memory, True)


def fetch(result: Any) -> np.ndarray[Any, Any]:
    """A result in GPU memory, once it is there."""
    found = np.empty(result.shape, native_dtype(result.dtype))
    _core.download(0, result.memory.pointer, found, result.stream)
    return found


# ---------------------------------------------------------------- every kernel


def small_values(
    rng: np.random.Generator, op: str, n: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Two rows of small integers whose reductions every accumulator holds exactly."""
    values = rng.integers(0, 3, (2, n))
    if op == "prod":  # mostly ones: at most 2**10
        values[:] = 1
        values[rng.integers(0, 2, 5), rng.integers(0, n, 5)] = 2
    return values.astype(dtype)


def is_right(values: np.ndarray[Any, Any], op: str, axis: int | None, result: Any) -> bool:
    """Whether a result is the exact one, rounded once (or near it, where it was divided)."""
    if op == "minmax":
        return is_right(values, "min", axis, result[0]) and is_right(values, "max", axis, result[1])
    if op.startswith(("bitwise", "logical")):
        exact = getattr(np, op).reduce(
            values.astype(bool) if op.startswith("logical") else values, axis=axis
        )
    else:
        exact = getattr(np, op)(values.real.astype(np.float64), axis=axis)
    if op in ("mean", "var", "std"):
        return bool(np.allclose(np.asarray(result).real.astype(np.float64), exact, rtol=2**-7))
    return bool(np.all(result == np.asarray(exact).astype(np.asarray(result).dtype)))


def reductions(
    kernel: str, op: str, name: str, rng: np.random.Generator, sizes: tuple[int, ...]
) -> Iterator[Trial]:
    """Both rows at once, and each of them."""
    for n in sizes:
        values = small_values(rng, op, n, native_dtype(name))
        for axis in (None, 1):
            call = partial(gr.reduce, values, op, axis=axis, kernel=kernel, device="cuda")
            yield Trial(f"n={n} axis={axis}", call, partial(is_right, values, op, axis))


# ---------------------------------------------------------------- layouts


def lay_out(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], steps: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Rows of small integers at these steps, in memory that ends about where they do."""
    span = sum(abs(step) * (n - 1) for n, step in zip(shape, steps, strict=True)) + 1
    first = sum(-step * (n - 1) for n, step in zip(shape, steps, strict=True) if step < 0)
    memory = rng.integers(0, 3, span).astype(dtype)
    return np.ndarray(
        shape, dtype, memory, first * dtype.itemsize, [step * dtype.itemsize for step in steps]
    )


def fast_rows(op: str, name: str, rng: np.random.Generator, _: tuple[int, ...]) -> Iterator[Trial]:
    """Rows of each layout."""
    dtype = native_dtype(name)
    same = (SAME_ROWS_BYTES // (2 * 1000 * dtype.itemsize), 2, 1000)
    for shape, steps, grid in (*LAYOUTS, *COLUMNS, (same, (0, 1000, 1), None)):
        rows = lay_out(rng, dtype, shape, steps)
        if op == "prod":  # at most 2**5, of types that hold no more
            rows[:] = 1
            rows[..., rng.integers(0, shape[-1], 5)] = 2
        call = partial(gr.reduce, OnDevice(rows), op, axis=-1, kernel="fast", grid_size=grid)

        def is_right_there(result: Any, rows: np.ndarray[Any, Any] = rows) -> bool:
            is_copied = rows.shape[:-1] == same[:-1]
            if is_copied and _core.last_run()["launches"] != 2:
                return False
            found = tuple(map(fetch, result)) if op == "minmax" else fetch(result)
            return is_right(rows, op, -1, found)

        yield Trial(f"shape={shape} steps={steps}", call, is_right_there)
        if op in ("min", "max"):
            start = rows.flat[rng.integers(rows.size)]
            with_start = np.concatenate([rows, np.full((*shape[:-1], 1), start)], axis=-1)
            yield Trial(
                f"shape={shape} steps={steps} start={start}",
                partial(call, initial=start),
                lambda result, values=with_start: is_right(values, op, -1, fetch(result)),
            )


# ---------------------------------------------------------------- exact sums


def is_nearest(number: Any, exact: Fraction, is_root: bool) -> bool:
    """Whether a float is within half of its last place of a fraction, or of its root."""
    if np.isinf(number):  # the sums here are positive
        largest = np.nextafter(number, number.dtype.type(0))
        last = float(largest) - float(np.nextafter(largest, number.dtype.type(0)))
        least = Fraction(float(largest)) + Fraction(last) / 2
        return bool(number > 0) and exact >= (least**2 if is_root else least)
    half = Fraction(float(np.spacing(np.abs(number)))) / 2
    low, high = Fraction(float(number)) - half, Fraction(float(number)) + half
    return max(low, 0) ** 2 <= exact <= high**2 if is_root else low <= exact <= high


def is_rounded(
    op: str, rows: np.ndarray[Any, Any], keep: np.ndarray[Any, Any], result: Any
) -> bool:
    """Whether each row's sum, mean, variance or deviation is Python's, rounded once."""
    found, op = np.asarray(fetch(result)), op.removeprefix("nan")
    for number, row, kept in zip(found, rows.real, keep, strict=True):
        numbers = [int(float(x)) for x in row[kept] if x == x]  # int of a bfloat16 overflows
        n, total = len(numbers), sum(numbers)
        if op == "sum" and found.dtype.kind in "fV":  # floats, bfloat16 too
            right = is_nearest(number, Fraction(total), False)
        elif op == "sum":
            right = number == np.asarray(total).astype(found.dtype)
        elif op == "mean":
            right = is_nearest(number.real, Fraction(total, n), False)
        else:
            square = Fraction(n * sum(x * x for x in numbers) - total**2, n * n)
            right = is_nearest(number, square, op == "std")
        if not right or number.imag != 0:
            return False
    return True


def rows_of_layouts(
    op: str, name: str, rng: np.random.Generator, _: tuple[int, ...]
) -> Iterator[Trial]:
    """Rows of each layout, without a mask and with one of the same layout."""
    for shape, steps, grid in LAYOUTS:
        rows = lay_out(rng, native_dtype(name), shape, steps)
        if op.startswith("nan"):
            rows[:, ::7] = np.nan
        mask = lay_out(rng, np.dtype(bool), shape, steps)
        mask[:, -1] = True  # of each row something is left
        call = partial(gr.reduce, OnDevice(rows), op, axis=1, kernel="exact", grid_size=grid)
        where = f"shape={shape} steps={steps}"
        yield Trial(where, call, partial(is_rounded, op, rows, np.full(shape, True)))
        yield Trial(
            f"{where} masked",
            partial(call, where=OnDevice(mask)),
            partial(is_rounded, op, rows, mask),
        )


def wide_rows(name: str, rng: np.random.Generator, _: tuple[int, ...]) -> Iterator[Trial]:
    """Rows that pairs of doubles hold, that they do not, and both in turn."""
    widest = {"float16": 2, "float64": 900}.get(name, 100)
    for shape, steps, _grid in OF_PAIRS:
        for share in (0, 0.5, 1):
            rows = lay_out(rng, native_dtype(name), shape, steps)
            power = rng.integers(0, widest, shape) * (rng.random((shape[0], 1)) < share)
            rows[...] = (rows.astype(np.float64) * 2.0**power).astype(rows.dtype)
            for op in ("sum", "mean"):
                call = partial(gr.reduce, OnDevice(rows), op, axis=1, kernel="exact")
                where = f"{op} shape={shape} steps={steps} wide={share}"
                yield Trial(where, call, partial(is_rounded, op, rows, np.full(shape, True)))


def is_product(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], result: Any) -> bool:
    """Whether a sum of products is that of integers, as its type holds it."""
    found = np.asarray(fetch(result) if isinstance(result, DeviceBuffer) else result)
    total = int(x.real.astype(np.int64) @ y.real.astype(np.int64))
    return bool(found == np.asarray(total).astype(found.dtype))


def products(
    name: str, second: str, rng: np.random.Generator, sizes: tuple[int, ...]
) -> Iterator[Trial]:
    """Pairs of each size: on the host; on the device, at other starts, by several blocks."""
    for n in sizes:
        x, y = (lay_out(rng, native_dtype(each), (1, n), (n, 1))[0] for each in (name, second))
        yield Trial(f"n={n}", partial(gr.dot, x, y, device="cuda"), partial(is_product, x, y))
        x, y = x[n // 3 :], y[n // 3 :][::-1]
        there = partial(gr.dot, OnDevice(x), OnDevice(y), grid_size=3)
        yield Trial(f"n={x.size} on the device", there, partial(is_product, x, y))


def states(name: str, rng: np.random.Generator, _: tuple[int, ...]) -> Iterator[Trial]:
    """States that arrays of each layout are added to, beside the host's."""
    for shape, steps, _grid in LAYOUTS:
        rows = lay_out(rng, native_dtype(name), shape, steps)
        update = partial(gr.ExactSum(rows.dtype).update, OnDevice(rows))
        yield Trial(
            f"shape={shape} steps={steps}", update, gr.ExactSum(rows.dtype).update(rows).__eq__
        )


# ---------------------------------------------------------------- several results


def flat(result: Any) -> list[Any]:
    """The arrays of a result: of several operators, of minmax, or of one."""
    return [part for one in result for part in flat(one)] if isinstance(result, tuple) else [result]


def are_alike(wanted: Callable[[], Any], result: Any) -> bool:
    """Whether results in GPU memory have the bits of those of another call."""
    there, here = flat(result), flat(wanted())
    return len(there) == len(here) and all(
        fetch(one).tobytes() == fetch(other).tobytes()
        for one, other in zip(there, here, strict=True)
    )


def passes(name: str, rng: np.random.Generator, _: tuple[int, ...]) -> Iterator[Trial]:
    """Several results in one pass, beside calls of their own; of wide floats of both signs, too."""
    dtype = native_dtype(name)
    for shape, grid, block in OF_PASSES:
        for is_wide in (False, True) if dtype.kind == "f" else (False,):
            memory = small_values(rng, "sum", int(np.prod(shape)), dtype).ravel()
            if is_wide:
                power = rng.integers(np.finfo(dtype).minexp, np.finfo(dtype).maxexp - 8)
                memory = np.ldexp(-memory, power * (rng.random(memory.size) < 0.5)).astype(dtype)
            rows = OnDevice(memory[: memory.size // 2].reshape(shape))
            for ops in PASSES:
                options = {"axis": len(shape) - 1, "grid_size": grid, "block_size": block}
                alone = [partial(gr.reduce, rows, op, **options) for op in ops]
                yield Trial(
                    f"shape={shape} {ops} wide={is_wide}",
                    partial(gr.reduce, rows, ops, **options),
                    partial(are_alike, lambda calls=alone: tuple(call() for call in calls)),
                )


# ---------------------------------------------------------------- operators from source


def own_operators(
    text: str, commutative: bool, name: str, rng: np.random.Generator, _: tuple[int, ...]
) -> Iterator[Trial]:
    """An operator's results of rows of each layout, beside those of the CPU."""
    operator = gr.Operator(text.split()[1], text, commutative=commutative)
    for shape, steps, grid in (*LAYOUTS, *COLUMNS):
        rows = lay_out(rng, native_dtype(name), shape, steps)
        wanted = partial(gr.reduce, rows, operator, axis=-1, device="cpu")
        yield Trial(
            f"shape={shape} steps={steps}",
            partial(gr.reduce, OnDevice(rows), operator, axis=-1, grid_size=grid),
            lambda result, wanted=wanted: bool(np.array_equal(fetch(result), wanted())),
        )
    for kernel in gr.kernels():
        values = rng.integers(0, 99, 5003).astype(native_dtype(name))
        call = partial(gr.reduce, values, operator, kernel=kernel.name)
        try:
            call(device="cpu")
        except (ValueError, gr.KernelUnavailableError):  # it changes the order, or takes none
            continue
        wanted = partial(gr.reduce, values, operator, device="cpu")
        yield Trial(
            kernel.name,
            partial(call, device="cuda"),
            lambda result, wanted=wanted: bool(result == wanted()),
        )


# ---------------------------------------------------------------- cases


class Case(NamedTuple):
    """Trials of one set of types, and a call that raises where there is nothing to try."""

    text: str
    probe: Callable[[], Any]
    trials: Callable[[np.random.Generator, tuple[int, ...]], Iterator[Trial]]


def cases_of_kernel(
    kernel: str, dtypes: tuple[str, ...], operators: tuple[str, ...]
) -> Iterator[Case]:
    for name in dtypes:
        for op in operators:
            probe = partial(
                gr.reduce, np.ones(1, native_dtype(name)), op, kernel=kernel, device="cuda"
            )
            yield Case(f"{kernel} {op} {name}", probe, partial(reductions, kernel, op, name))


def fast_cases(dtypes: tuple[str, ...], operators: tuple[str, ...]) -> Iterator[Case]:
    """Kernels for layouts that `fast` has beside those for runs."""
    for name in dtypes:
        for op in operators:
            probe = partial(
                gr.reduce, np.ones(1, native_dtype(name)), op, kernel="fast", device="cuda"
            )
            yield Case(f"fast {op} {name} of layouts", probe, partial(fast_rows, op, name))


def exact_cases(dtypes: tuple[str, ...], operators: tuple[str, ...]) -> Iterator[Case]:
    """What else `exact` has ways for."""
    for name in dtypes:
        alone = np.ones(1, native_dtype(name))
        for op in operators:
            if not op.startswith("nan") or not name.startswith(
                ("bool", "int", "uint")
            ):  # they have no NaN
                probe = partial(gr.reduce, alone, op, kernel="exact", device="cuda")
                yield Case(
                    f"exact {op} {name} of layouts", probe, partial(rows_of_layouts, op, name)
                )
        if native_dtype(name).kind == "f" or name == "bfloat16":
            probe = partial(gr.sum, alone, kernel="exact", device="cuda")
            yield Case(f"exact {name} of wide rows", probe, partial(wide_rows, name))
        for second in dtypes:
            probe = partial(gr.dot, alone, np.ones(1, native_dtype(second)), device="cpu")
            yield Case(f"dot {name} {second}", probe, partial(products, name, second))
        yield Case(f"ExactSum {name}", partial(gr.ExactSum, alone.dtype), partial(states, name))


def several_cases(dtypes: tuple[str, ...]) -> Iterator[Case]:
    """Several results of one pass: programs of their own."""
    for name in dtypes:
        if not name.startswith("complex"):
            probe = partial(gr.reduce, np.ones(1, native_dtype(name)), ("min", "max"))
            yield Case(f"several {name}", probe, partial(passes, name))


def operator_cases(dtypes: tuple[str, ...]) -> Iterator[Case]:
    """Operators from source, of which each dtype has a program."""
    for name in dtypes:
        if native_dtype(name).kind in "iu" or name in ("float32", "float64"):
            for text, commutative in ((ORDERED, False), (COMMUTATIVE, True)):
                probe = partial(gr.reduce, np.ones(1, native_dtype(name)), "min")
                yield Case(
                    f"operator {name} commutative={commutative}",
                    probe,
                    partial(own_operators, text, commutative, name),
                )


def refuses(case: Case, kernel: str) -> bool:
    """Whether the operator lacks the types, or the kernel cannot fold them and says so."""
    try:
        case.probe()
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
    parser.add_argument("--shard", default="0/1", help="which part of the cases, as 2/8")
    parser.add_argument(
        "--kernel", action="append", help="only this kernel; may be given several times"
    )
    options = parser.parse_args()
    shard, shards = map(int, options.shard.split("/"))
    dtypes = _core.DTYPES if options.all else DTYPES
    operators = tuple(_core.OPERATORS) if options.all else OPERATORS
    exact_operators = ALL_EXACT_OPERATORS if options.all else EXACT_OPERATORS
    sizes = ALL_SIZES if options.all else SIZES
    rng = np.random.default_rng()
    wrong = run = refused = 0
    kernels = [kernel.name for kernel in gr.kernels() if kernel.available]
    if options.kernel:
        kernels = [kernel for kernel in kernels if kernel in options.kernel]
    cases = [
        (kernel, case) for kernel in kernels for case in cases_of_kernel(kernel, dtypes, operators)
    ]
    if "fast" in kernels:
        of_layouts = operators if options.all else LAYOUT_OPERATORS
        cases += [("fast", case) for case in fast_cases(dtypes, of_layouts)]
    if "exact" in kernels:
        cases += [("exact", case) for case in exact_cases(dtypes, exact_operators)]
        _one_pass.LEAST_BYTES = 0  # small arrays share passes, too
        cases += [("auto", case) for case in several_cases(dtypes)]
    if not options.kernel:
        cases += [("auto", case) for case in operator_cases(dtypes)]
    for kernel, case in cases[shard::shards]:
        if refuses(case, kernel):
            refused += 1
            continue
        for trial in case.trials(rng, sizes):
            try:
                result = trial.call()
                right = trial.is_right(result)
            except gr.CudaError as error:  # after which the context is of no more use
                print(f"{case.text} {trial.where}: {error}\n{error.log or ''}")
                return 1
            run += 1
            if not right:
                print(f"{case.text} {trial.where}: {result} is wrong")
                wrong += 1
    print(
        f"{len(cases[shard::shards]) - refused} cases, {refused} refused, {run} reductions, "
        f"{wrong} wrong"
    )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
