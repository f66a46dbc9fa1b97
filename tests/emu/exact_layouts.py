"""Exact sums of device arrays of any layout beside Python's integers, on the emulator or a card.

Arrays are those of layouts.py: any axes, gaps, steps backwards, repeats, masks that are laid out otherwise. Where no
element is in two places, the sums are taken away from their rows and the rest is summed again, as in exact_sums.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from exact_reference import FLOATS, GENERATORS, assert_result, exact_sum, expected, is_finite, one_sided
from numpy.lib.stride_tricks import as_strided
from reference import DTYPES, random_array

import gpureduce as gr
from emu import layouts
from emu.exact_sums import draw, edge_rows, sum_on_device

FILLING = 2300  # elements of a thread that fill its windows, twice
MANY_ROWS = 60_000  # of complex128: their numbers and tickets take more than 64 MiB
SPARE = 2  # elements of a row that its sums go to, to be taken away
PARTS = {"complex64": "float32", "complex128": "float64"}
COMPLEX = {"complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128)}

# Shapes and strides in elements of which each is for one of the kernel's ways, all axes but the first reduced; and
# blocks a row.
SHAPES = [
    ((70, 5), (5, 1), 0),  # rows of a few, one after another
    ((70, 40), (41, 1), 0),  # short runs
    ((70, 3), (1, 70), 0),  # a few rows of memory to one
    ((3, 900), (1, 3), 0),  # few columns without gaps, blocks as the card has room
    ((40, 700), (1, 40), 3),  # a strip of columns that is not full
    ((300, 130), (1, 300), 2),  # several strips
    ((270, 60), (1, 270), 1),
    ((2, 1300), (3000, -2), 3),  # backwards, along
    ((5, 300), (1, 0), 0),  # one element all the time
    ((7, 40, 64), (64, 448, 1), 0),  # several runs, of whole vectors where they are aligned
    ((2, 3, 520), (520, 1040, 1), 2),
    ((4, 6, 260), (-300, 1200, 1), 3),
]


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


def check_case(rng: np.random.Generator, name: str, case: layouts.Case, block: int, spare: bool, where: str) -> None:
    """Reduce, compare, and if ``spare`` take the sums away, until nothing is left."""
    view, mask = case.array.view, case.mask
    kept = view.shape[: view.ndim - case.reduced]
    mean = bool(rng.random() < 0.3)
    where += (
        f" shape={view.shape} reduced={case.reduced} strides={view.strides} offset={case.array.offset} block={block}"
        f" grid={case.grid} mask={mask and mask.view.strides} skip_nan={case.skip_nan} spare={spare}"
    )
    integer = name not in FLOATS and name not in PARTS
    for step in range(1 + SPARE * spare):
        op = "mean" if mean and step == 0 else "sum"
        sample = layouts._core_result_dtype(op, number_type(name)) if integer else number_type(name)
        result = layouts.strided(rng, kept, lambda n, sample=sample: layouts.unwritten(n, sample), step > 0)
        if 0 in result.view.strides:
            result = layouts.strided(rng, kept, lambda n, sample=sample: layouts.unwritten(n, sample), True)
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
    rng: np.random.Generator, name: str, array: layouts.Strided, mask: layouts.Strided | None, reduced: int
) -> bool:
    """Make room for sums in rows, where that is possible: where no element is in two places."""
    view = array.view
    if name not in FLOATS and name not in PARTS:
        return False
    if view.shape[-1] <= SPARE or 0 in view.strides or (mask is not None and 0 in mask.view.strides):
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
        array = layouts.strided(rng, shape, lambda n: draw_elements(rng, name, n), bool(rng.random() < 0.2))
        reduced = int(rng.integers(1, len(shape) + 1))
    masked = rng.random() < masked_share
    mask = layouts.strided(rng, shape, lambda n: rng.random(n) < 0.7, bool(rng.random() < 0.5)) if masked else None
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
        check_random(rng, task["dtype"], int(task["block"]), f"{where} GPR_TEST_SEED={task['seed']}")


def check_kinds(task: dict[str, Any]) -> None:
    """Sum rows of every kind of floats ``dtype``, short ones and ones across memory; ``block``, ``seed``."""
    name = task["dtype"]
    for number, make in enumerate(GENERATORS):
        rng, where = layouts.under_a_schedule(task, number, "kinds")
        for shape, strides, grid in ((40, 6), (6, 1), 0), ((9, 40), (40, 1), 0), ((12, 150), (1, 12), 2):
            array = place(rng, lambda rng, name, n: np.zeros(n, DTYPES[name]), name, shape, strides)
            for row in array.view:
                row[:] = make(rng, name, row.size)[: row.size]
            array.view[:, -SPARE:] = -DTYPES[name].type(0)
            check_case(rng, name, layouts.Case(array, None, 1, grid, "exact"), int(task["block"]), True, where)


def check_across(task: dict[str, Any]) -> None:
    """Sum rows of ``dtype`` across memory, a thread each: at the edges of windows, every ``stride``-th of them from a
    random one on, and rows that fill windows.
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


def check_slots(task: dict[str, Any]) -> None:
    """Sum more rows, by two blocks each, than there is scratch for at a time."""
    values = (
        np.random.default_rng(task["seed"]).integers(-1000, 1000, (MANY_ROWS, 2, 2)).astype(float).view(complex)[..., 0]
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
    view = as_strided(memory[offset + lowest :], shape, [step * memory.itemsize for step in strides])
    return layouts.Strided(memory, view)
