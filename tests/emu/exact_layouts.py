"""Exact sums of device arrays of any layout beside Python's integers, on the emulator or a GPU.

Arrays are those of layouts.py: any axes, gaps, steps backwards, repeats, masks that are laid out
otherwise. Where no element is in two places, the sums are taken away from their rows and the rest
is summed again, as in exact_sums.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from device_buffers import device, host
from exact_reference import (
    FLOATS,
    GENERATORS,
    assert_result,
    exact_sum,
    expected,
    is_finite,
    one_sided,
)
from numpy.lib.stride_tricks import as_strided
from reference import DTYPES, random_array

import gpureduce as gr
from emu import layouts
from emu.exact_sums import MOST_ADDS, MOST_SPILLS, draw, edge_rows, sum_on_device
from gpureduce import _core

FILLING = 2300  # elements of a thread that fill its bins, twice
MANY_ROWS = 60_000  # of complex128: their numbers and tickets take more than 64 MiB
MOST_DRAWN = 250_000  # elements of an array of long rows
SPARE = 2  # elements of a row that its sums go to, to be taken away
PARTS = {"complex64": "float32", "complex128": "float64"}
COMPLEX = {"complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128)}

# Shapes and strides in elements of which each is for one of the kernel's ways, all axes but the
# first reduced; and blocks a row.
SHAPES = [
    ((70, 5), (5, 1), 0),  # rows of a few, one after another
    ((70, 40), (41, 1), 0),  # short runs
    ((70, 3), (1, 70), 0),  # a few rows of memory to one
    ((3, 900), (1, 3), 0),  # few columns without gaps, blocks as the GPU has room
    ((40, 700), (1, 40), 3),  # a strip of columns that is not full
    ((300, 130), (1, 300), 2),  # several strips
    ((270, 60), (1, 270), 1),
    ((2, 1300), (3000, -2), 3),  # backwards, along
    ((5, 300), (1, 0), 0),  # one element all the time
    ((7, 40, 64), (64, 448, 1), 0),  # several runs, of whole vectors where they are aligned
    ((2, 3, 520), (520, 1040, 1), 2),
    ((4, 6, 260), (-300, 1200, 1), 3),
    ((1, 2500), (2500, 1), 0),  # by pairs of doubles, and by a whole block where they fail
    ((1, 1900), (1900, 3), 0),
    ((3, 1700), (1710, 1), 0),
    ((4, 1300), (1, 4), 0),
    ((9, 1100), (1, 11), 0),
    ((600, 7), (1, 600), 0),
]

# Shapes, strides in elements, and threads of a block, of rows that pairs of doubles add: mostly by
# several blocks.
SHARES = [
    ((8, 15_000), (15_003, 1), 64),
    ((1, 3001), (1, 1), 64),
    ((70, 600), (601, 1), 64),
    ((64, 900), (1, 64), 64),
    ((5, 2000), (1, 7), 64),
    ((3, 9000), (27_001, 3), 64),
    ((3, 40_000), (1, 3), 64),
    ((6, 20_000), (1, 6), 0),
    ((40, 6, 40), (240, 1, 6), 64),  # groups of columns that share a block
    ((7, 8, 900), (7200, 1, 8), 64),
]
# Those that take an emulator longest.
LARGE_SHARES = [
    ((300, 2000), (1, 300), 64),
    ((1100, 300), (1, 1101), 64),
    ((4099, 12), (1, 4099), 64),
]
READ_SHARES = {"fast_stream", "fast_rows", "fast_columns", "fast_strided"}


def number_type(name: str) -> np.dtype[Any]:
    return COMPLEX[name] if name in COMPLEX else DTYPES[name]


def draw_elements(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    if name in PARTS:
        return draw(rng, PARTS[name], 2 * n).view(COMPLEX[name])
    return draw(rng, name, n) if name in FLOATS else random_array(rng, DTYPES[name], n, "sum")


def part_views(values: np.ndarray) -> list[np.ndarray]:
    return [values.real, values.imag] if values.dtype.kind == "c" else [values]


def wanted_part(row: np.ndarray, name: str, mean: bool) -> Any:
    """The sum, or the mean, of a part of a row."""
    row = np.ascontiguousarray(row)
    if not mean:
        return expected(row, name)
    return expected(row, name, row.size) if row.size else DTYPES[name].type(np.nan)


def check_case(
    rng: np.random.Generator, name: str, case: layouts.Case, block: int, spare: bool, where: str
) -> None:
    """Reduce, compare, and if ``spare`` take the sums away, until nothing is left."""
    view, mask = case.array.view, case.mask
    kept = view.shape[: view.ndim - case.reduced]
    mean = bool(rng.random() < 0.3)
    where += (
        f" shape={view.shape} reduced={case.reduced} strides={view.strides} "
        f"offset={case.array.offset} block={block} grid={case.grid} "
        f"mask={mask and mask.view.strides} skip_nan={case.skip_nan} spare={spare}"
    )
    integer = name not in FLOATS and name not in PARTS
    for step in range(1 + SPARE * spare):
        op = "mean" if mean and step == 0 else "sum"
        sample = layouts._core_result_dtype(op, number_type(name)) if integer else number_type(name)
        result = layouts.strided(
            rng, kept, lambda n, sample=sample: layouts.unwritten(n, sample), step > 0
        )
        if 0 in result.view.strides:
            result = layouts.strided(
                rng, kept, lambda n, sample=sample: layouts.unwritten(n, sample), True
            )
        try:
            layouts.run(op, case, result, block)
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        rows = view.reshape(*kept, -1).reshape(-1, int(np.prod(view.shape[len(kept) :])))
        keep = None if mask is None else mask.view.reshape(*kept, -1).reshape(rows.shape)
        done = True
        for i, (row, got) in enumerate(zip(rows, result.view.reshape(-1), strict=True)):
            counted = row if keep is None else row[keep[i]]
            if case.skip_nan:
                with np.errstate(invalid="ignore"):  # of signalling NaN
                    counted = counted[counted == counted]
            context = f"{where}: {op} of row {i}, after {step} sums were taken away"
            if integer:
                total = exact_sum(np.ascontiguousarray(counted))
                if op == "mean":
                    same = np.isnan(got) if counted.size == 0 else got == total / counted.size
                else:
                    same = int(got) % 2**64 == total % 2**64
                assert same, f"{context}: {got} is not {total}"
                continue
            for part, one in zip(part_views(counted), part_views(np.asarray(got)), strict=True):
                wanted = wanted_part(part, PARTS.get(name, name), op == "mean")
                assert_result(one[()], wanted, context)
                if op == "sum" and wanted != 0 and is_finite(np.asarray([wanted])).all():
                    done = False
        if op == "sum" and done:
            return
        if op == "sum" and step < SPARE:
            place = (..., *[0] * (case.reduced - 1), -1 - step)
            finite = np.where(np.isfinite(result.view), result.view, number_type(name).type(0))
            view[place] = -finite
            if mask is not None:
                mask.view[place] = True


def prepare(
    rng: np.random.Generator,
    name: str,
    array: layouts.Strided,
    mask: layouts.Strided | None,
    reduced: int,
) -> bool:
    """Make room for sums in rows, where that is possible: where no element is in two places."""
    view = array.view
    if name not in FLOATS and name not in PARTS:
        return False
    if (
        view.shape[-1] <= SPARE
        or 0 in view.strides
        or (mask is not None and 0 in mask.view.strides)
    ):
        return False
    if rng.random() < 0.5:  # else neighbours are of one sort, whatever row they are of
        for index in np.ndindex(view.shape[: view.ndim - reduced]):
            view[index] = draw_elements(rng, name, view[index].size).reshape(view[index].shape)
    view[(..., *[0] * (reduced - 1), slice(-SPARE, None))] = -number_type(name).type(0)
    return True


def draw_case(rng: np.random.Generator, name: str, masked_share: float) -> layouts.Case:
    """A random array of a random layout, in so many of all cases with a mask."""
    if rng.random() < 0.5:
        shape, strides, grid = SHAPES[int(rng.integers(len(SHAPES)))]
        array, reduced = place(rng, draw_elements, name, shape, strides), len(shape) - 1
    else:
        shape, grid = layouts.draw_shape(rng), int(rng.choice([0, 0, 1, 3]))
        array = layouts.strided(
            rng, shape, lambda n: draw_elements(rng, name, n), bool(rng.random() < 0.2)
        )
        reduced = int(rng.integers(1, len(shape) + 1))
    masked = rng.random() < masked_share
    mask = (
        layouts.strided(rng, shape, lambda n: rng.random(n) < 0.7, bool(rng.random() < 0.5))
        if masked
        else None
    )
    skip_nan = name in (*FLOATS, *PARTS) and bool(rng.random() < 0.25)
    return layouts.Case(array, mask, reduced, grid, "exact", skip_nan)


def check_random(rng: np.random.Generator, name: str, block: int, where: str) -> None:
    """Sum a random array of a random layout."""
    case = draw_case(rng, name, 0.3)
    spare = prepare(rng, name, case.array, case.mask, case.reduced)
    check_case(rng, name, case, block, spare, where)


def check_layouts(task: dict[str, Any]) -> None:
    """Sum ``count`` random arrays of ``dtype``, each under one schedule; ``block``, ``seed``."""
    for number in range(task["count"]):
        rng, where = layouts.under_a_schedule(task, number, "exact")
        check_random(
            rng, task["dtype"], int(task["block"]), f"{where} GPR_TEST_SEED={task['seed']}"
        )


def check_kinds(task: dict[str, Any]) -> None:
    """Sum all kinds of rows of ``dtype``, short and across memory too; ``block``, ``seed``. Each
    kind has every layout, or every ``share``-th of them, which another kind does not have.
    """
    name, share = task["dtype"], task.get("share", 1)
    for number, make in enumerate(GENERATORS):
        rng, where = layouts.under_a_schedule(task, number, "kinds")
        cases = (
            ((40, 6), (6, 1), 0, False),
            ((9, 40), (40, 1), 0, False),
            ((12, 150), (1, 12), 2, False),
            ((300, 4), (1, 300), 0, True),
            ((2, 1200), (1200, 1), 0, False),
            ((3, 1200), (1, 3), 0, True),
            *(((517, 9), (1, 517), 0, False) for _ in range(DTYPES[name].itemsize == 2)),
            *(((70, 13), (1, 70), 0, False) for _ in range(name == "float32")),
        )
        for shape, strides, grid, skip_nan in cases[(task["seed"] + number) % share :: share]:
            array = place(rng, lambda rng, name, n: np.zeros(n, DTYPES[name]), name, shape, strides)
            for row in array.view:
                row[:] = make(rng, name, row.size)[: row.size]
            array.view[:, -SPARE:] = -DTYPES[name].type(0)
            check_case(
                rng,
                name,
                layouts.Case(array, None, 1, grid, "exact", skip_nan),
                int(task["block"]),
                True,
                where,
            )


def check_strided(task: dict[str, Any]) -> None:
    """Sum rows of ``dtype`` across memory, a thread each: at the edges of bins, every ``stride``-th
    of them from a random one on, and rows that fill bins.
    """
    name = task["dtype"]
    rng, where = layouts.under_a_schedule(task, 0, "across")
    rows = list(edge_rows(rng, name))[int(rng.integers(task["stride"])) :: task["stride"]]
    rows += [one_sided(rng, name, FILLING) for _ in range(3)]
    array = place(
        rng,
        lambda rng, name, n: np.zeros(n, DTYPES[name]),
        name,
        (len(rows), max(map(len, rows)) + SPARE),
        (1, len(rows)),
    )
    array.view[...] = -DTYPES[name].type(0)
    for row, values in zip(array.view, rows, strict=True):
        row[: values.size] = values
    check_case(rng, name, layouts.Case(array, None, 1, 1, "exact"), 32, True, where)


def draw_column(rng: np.random.Generator, name: str, n: int, shares: int) -> np.ndarray:
    """A row of real numbers; every ``shares``-th are one thread's, of one size or another.

    Mostly bins hold them, at one place or at several; some rows have what bins do not hold, or only
    zeros.
    """
    kind = int(rng.integers(10))
    numbers = rng.uniform(1, 2, n) if rng.random() < 0.5 else rng.standard_normal(n)
    sizes = np.zeros(shares, int)
    if kind < 3:  # apart by less than shifts bridge, and by more
        sizes = rng.integers(0, (6, 40, 90)[kind], shares)
    if name == "float16":
        sizes = sizes % 16
    numbers = np.ldexp(numbers, sizes[np.arange(n) % shares] - int(rng.integers(8)))
    if kind == 3:
        numbers = -np.zeros(n)
    if kind == 4:
        numbers[:] = -0.0
        numbers[int(rng.integers(n))] = rng.choice([0.0, 2.0**-10])
    places = rng.integers(n, size=int(rng.integers(1, 4)))
    if kind == 5:
        numbers[places] = rng.choice([math.inf, -math.inf, math.nan])
    if kind == 6:
        numbers[places] *= rng.choice(
            [2.0**-14, 2.0**14] if name == "float16" else [2.0**-90, 2.0**90]
        )
    if kind == 7:
        return draw(rng, name, n)
    if kind == 8:
        return one_sided(rng, name, n)
    return numbers.astype(DTYPES[name])


def check_columns(task: dict[str, Any]) -> None:
    """Sum ``count`` arrays of ``dtype`` of rows across memory, some so long that threads' bins are
    full several times, by one block or several, as that type and as others, on the device and of
    the host; ``block``, ``seed``.
    """
    name, block = task["dtype"], int(task["block"])
    part = PARTS.get(name, name)
    gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
    for number in range(task["count"]):
        rng, where = layouts.under_a_schedule(task, number, "columns")
        rows, blocks = int(rng.choice([2, 3, 7, 20, 31, 70])), int(rng.choice([1, 1, 2, 3, 5]))
        shares = max(1, block // rows) * blocks
        each = (
            FILLING
            if rows * shares * FILLING < MOST_DRAWN and rng.random() < 0.7
            else int(rng.integers(1, 90))
        )
        n = shares * each + int(rng.integers(shares)) + SPARE + 1
        apart = rng.random() < 0.3  # and nearer to each other than rows are
        strides = (2 * n + 1, 2) if apart else (1, rows)
        array = place(
            rng, lambda rng, name, n: np.zeros(n, number_type(name)), name, (rows, n), strides
        )
        for row in array.view:
            for numbers in part_views(row):
                numbers[:] = draw_column(rng, part, n, shares)
        array.view[:, -SPARE:] = -number_type(name).type(0)
        masked = rng.random() < 0.3
        mask = (
            layouts.strided(rng, (rows, n), lambda n: rng.random(n) < 0.7, False)  # noqa: B023
            if masked
            else None
        )
        case = layouts.Case(array, mask, 1, blocks, "exact", bool(rng.random() < 0.3))
        where += f" {each} elements each GPR_TEST_SEED={task['seed']}"
        check_others(
            rng,
            name,
            np.ascontiguousarray(array.view[:, : MOST_DRAWN // rows]),
            block,
            blocks,
            where,
        )
        check_case(rng, name, case, block, True, where)


def check_columns_to_the_end(task: dict[str, Any]) -> None:
    """Sum rows across memory, a thread each, too long to keep all that full bins held."""
    name, rows = task["dtype"], 17
    rng, where = layouts.under_a_schedule(task, 0, "to the end")
    n = (MOST_SPILLS + 2) * MOST_ADDS + int(rng.integers(500)) + SPARE
    make = lambda rng, name, n: rng.uniform(1, 2, n).astype(DTYPES[name])  # noqa: E731
    array = place(rng, make, name, (rows, n), (1, rows))
    array.view[:, -SPARE:] = -DTYPES[name].type(0)
    check_case(rng, name, layouts.Case(array, None, 1, 1, "exact"), 32, True, where)


def check_others(
    rng: np.random.Generator, name: str, rows: np.ndarray, block: int, blocks: int, where: str
) -> None:
    """Sum rows across memory as another type; and of the host, whose chunks are joined."""
    part = PARTS.get(name, name)
    columns = np.ascontiguousarray(rows.T)
    if name not in PARTS:
        result = str(rng.choice(FLOATS))
        memory = _core.alloc_device(0, columns.nbytes)
        _core.upload(0, memory, columns)
        got = _core.reduce_device(
            *("sum", memory, rows.shape, rows.dtype, 1, "exact", 0, block, blocks, DTYPES[result]),
            strides=columns.T.strides,
        )
        assert _core.last_run()["variant"] == "exact_strided", where
        _core.free_device(0, memory)
        for row, one in zip(rows, np.asarray(got), strict=True):
            assert_result(one, expected(row, result), f"{where}, as {result}")
    got = gr.sum(columns, axis=0, kernel="exact", device="cuda", block_size=block)
    for row, one in zip(rows, np.asarray(got), strict=True):
        for numbers, of_part in zip(part_views(row), part_views(np.asarray(one)), strict=True):
            assert_result(
                of_part[()], expected(np.ascontiguousarray(numbers), part), f"{where}, of the host"
            )


def draw_apart(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """Numbers that two doubles do not hold, or that do only some of a row's shares."""
    most = {"float64": 480, "float32": 60, "bfloat16": 60, "float16": 7}[name]
    kind = int(rng.integers(9))
    numbers = rng.standard_normal(n)
    if kind < 3:  # all over the row
        numbers = np.ldexp(numbers, rng.integers(-most, most, n))
    if kind == 1:  # nothing is left, but for one
        numbers[n // 2 : 2 * (n // 2)] = -numbers[: n // 2]
        rng.shuffle(numbers)
    if kind == 3:  # a few, which are in few shares
        few = rng.integers(n, size=3)
        numbers[few] = np.ldexp(rng.choice([-1.0, 1.0], 3), [-most, most, most])
    if kind == 4:  # one share beside others
        begin = int(rng.integers(n))
        numbers[begin : begin + 9] = np.ldexp(numbers[begin : begin + 9], most)
    if kind == 5:
        return draw(rng, name, n)
    numbers = numbers.astype(DTYPES[name])
    if kind > 6:
        numbers[rng.integers(n, size=2)] = rng.choice([math.inf, -math.inf, math.nan], 2)
        numbers[int(rng.integers(n))] = np.ldexp(1.0, most)
    return numbers


def check_shares(task: dict[str, Any]) -> None:
    """Sum rows that are no pairs of doubles, or whose shares are not; some are pairs. ``seed``. If
    there is a ``turn``, of the largest layouts only that one, and of the others every third one.
    """
    name, seen, layouts_of_rows = task["dtype"], set(), [*SHARES, *LARGE_SHARES]
    if "turn" in task:
        turn = task["turn"]
        layouts_of_rows = [*SHARES[turn % 3 :: 3], LARGE_SHARES[turn // 3 % len(LARGE_SHARES)]]
    for number, (shape, strides, block) in enumerate(layouts_of_rows):
        rng, where = layouts.under_a_schedule(task, number, "shares")
        array = place(rng, lambda rng, name, n: np.zeros(n, DTYPES[name]), name, shape, strides)
        for row in np.ndindex(shape[:-1]):
            array.view[row] = draw_apart(rng, name, shape[-1])
        array.view[..., -SPARE:] = -DTYPES[name].type(0)
        mask = None
        if strides[-1] == 7:
            mask = layouts.strided(rng, shape, lambda n: rng.random(n) < 0.7, False)  # noqa: B023
        skips = strides[-1] == 7 or bool(rng.random() < 0.3)
        case = layouts.Case(array, mask, 1, 0, "exact", skips)
        check_case(rng, name, case, block, True, f"{where} GPR_TEST_SEED={task['seed']}")
        run = _core.last_run()
        assert run is not None
        seen.add(run["variant"])
    missed = READ_SHARES - seen
    assert not missed or ("turn" in task and missed != READ_SHARES), (
        f"{name}: {missed} read none of the arrays"
    )


def check_specials(task: dict[str, Any]) -> None:
    """Sums and means of float64 with infinities and NaN, which alone settle a row, and of rows that
    overflow on the way; NaN are left out or not, by one block or several. As on the CPU.
    """
    rng = np.random.default_rng(task["seed"])
    for shape, axis in (((70, 600), 1), ((1100, 300), 1), ((600, 64), 0), ((3, 40_000), 1)):
        values = rng.standard_normal(shape)
        values[rng.random(shape) < rng.choice([0.001, 0.3])] = np.nan
        rows = values if axis == 1 else values.T
        for i, row in enumerate(rows):
            odd = ([], [np.inf], [-np.inf], [np.inf, -np.inf], [1.7e308, 1.6e308, -1.7e308])[i % 5]
            row[rng.permutation(row.size)[: len(odd)]] = odd
            if i % 3 == 0:
                row[np.isnan(row)] = 0.5
        blocks = {"grid_size": 3, "block_size": 64} if rng.random() < 0.3 else {}
        for op in ("sum", "mean", "nansum", "nanmean"):
            with np.errstate(invalid="ignore"):
                got = host(getattr(gr, op)(device(values), axis=axis, **blocks))
                wanted = getattr(gr, op)(values, axis=axis, device="cpu")
            same = np.array_equal(got, wanted, equal_nan=True)
            assert same, f"{op} {shape} {axis} {blocks} GPR_TEST_SEED={task['seed']}"


def check_slots(task: dict[str, Any]) -> None:
    """Sum more rows, by two blocks each, than there is scratch for at a time."""
    values = (
        np.random.default_rng(task["seed"])
        .integers(-1000, 1000, (MANY_ROWS, 2, 2))
        .astype(float)
        .view(complex)[..., 0]
    )
    assert np.array_equal(sum_on_device(values, "sum", 0, 32, 2, True), values.sum(1))
    assert gr.last_run().launches > 1


def place(
    rng: np.random.Generator, make: Any, name: str, shape: tuple[int, ...], strides: tuple[int, ...]
) -> layouts.Strided:
    """An array of these strides in memory that ends where it does."""
    lowest = sum(-step * (n - 1) for n, step in zip(shape, strides, strict=True) if step < 0)
    span = 1 + sum(abs(step) * (n - 1) for n, step in zip(shape, strides, strict=True))
    offset = int(rng.integers(4))
    memory = make(rng, name, offset + span)
    view = as_strided(
        memory[offset + lowest :], shape, [step * memory.itemsize for step in strides]
    )
    return layouts.Strided(memory, view)
