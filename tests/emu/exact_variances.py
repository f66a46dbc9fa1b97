"""Exact variances of device arrays of any layout beside Python's integers and the CPU.

Arrays are those of layouts.py and exact_layouts.py: any axes, gaps, steps backwards, repeats, masks
that are laid out otherwise. Rounding hides most bits of a variance. They are seen where it lies
on a midpoint, from which an element that is smaller by so many binary orders moves it, and where
elements are so nearly equal that nearly all cancels.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from exact_reference import (
    FLOATS,
    FORMATS,
    GENERATORS,
    assert_result,
    expected_variance,
    finite_max,
    from_bits,
    one_sided,
)
from reference import DTYPES

import gpureduce as gr
from emu import layouts
from emu.exact_layouts import (
    FILLING,
    PARTS,
    draw_case,
    draw_elements,
    number_type,
    part_views,
    place,
)
from emu.exact_products import DDOFS

CHECKED_ROWS = 12  # of an array, by Python's integers; the CPU checks all
MANY_ROWS = 31_000  # of complex128: their numbers and tickets take more than 64 MiB


def result_name(name: str) -> str:
    return PARTS.get(name, name if name in FLOATS else "float64")


def cpu_variance(case: layouts.Case, op: str) -> np.ndarray:
    """Divisors of rows: with no more than ddof elements nanvar is NaN, unlike the core."""
    view = case.array.view
    axes = tuple(range(view.ndim - case.reduced, view.ndim))
    keep = True if case.mask is None else case.mask.view
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):  # of signalling NaN
        warnings.simplefilter("ignore")  # of no more than ddof elements
        if case.skip_nan:
            keep = keep & (view == view)
        function = getattr(gr, op)
        return np.asarray(
            function(view, axis=axes, ddof=case.ddof, kernel="exact", device="cpu", where=keep)
        )


def check_case(
    rng: np.random.Generator, name: str, case: layouts.Case, op: str, block: int, where: str
) -> None:
    """Reduce, and compare bits: all rows with the CPU's, some with Python's integers."""
    view, mask = case.array.view, case.mask
    kept = view.shape[: view.ndim - case.reduced]
    where += (
        f" {op} shape={view.shape} reduced={case.reduced} strides={view.strides} "
        f"offset={case.array.offset} block={block} grid={case.grid} "
        f"mask={mask and mask.view.strides} skip_nan={case.skip_nan} ddof={case.ddof}"
    )
    dtype = DTYPES[result_name(name)]
    result = layouts.strided(
        rng, kept, lambda n: layouts.unwritten(n, dtype), bool(rng.random() < 0.5)
    )
    if 0 in result.view.strides:  # results that overlap in memory have no expected value
        result = layouts.strided(rng, kept, lambda n: layouts.unwritten(n, dtype), True)
    try:
        layouts.run(op, case, result, block)
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    rows = view.reshape(-1, int(np.prod(view.shape[len(kept) :])))
    keep = None if mask is None else mask.view.reshape(rows.shape)
    got, wanted = result.view.reshape(-1), cpu_variance(case, op).reshape(-1)
    for i in range(len(rows)):
        assert got[i].tobytes() == wanted[i].tobytes(), (
            f"{where}: row {i} is {got[i]}, on the CPU {wanted[i]}"
        )
    for i in rng.choice(len(rows), min(len(rows), CHECKED_ROWS), replace=False):
        counted = rows[i] if keep is None else rows[i][keep[i]]
        if case.skip_nan:
            with np.errstate(invalid="ignore"):  # of signalling NaN
                counted = counted[counted == counted]
        parts = [np.ascontiguousarray(part) for part in part_views(counted)]
        oracle = expected_variance(parts, result_name(name), case.ddof, op == "std")
        assert_result(got[i], oracle, f"{where}: row {i}")


def draw_way(rng: np.random.Generator) -> tuple[str, float]:
    """An operator and a ddof."""
    return str(rng.choice(["var", "std"])), float(rng.choice([0, 0, 1, *DDOFS, rng.normal()]))


def check_random(rng: np.random.Generator, name: str, block: int, where: str) -> None:
    """The variances of a random array of a random layout."""
    case = draw_case(rng, name, 0.4)
    op, case.ddof = draw_way(rng)
    view = case.array.view
    if (
        0 not in view.strides and rng.random() < 0.5
    ):  # else neighbours are of one sort, whatever row they are of
        for index in np.ndindex(view.shape[: view.ndim - case.reduced]):
            view[index] = draw_elements(rng, name, view[index].size).reshape(view[index].shape)
    check_case(rng, name, case, op, block, where)


def check_layouts(task: dict[str, Any]) -> None:
    """Variances of ``count`` random arrays, each under one schedule; ``block``, ``seed``."""
    for number in range(task["count"]):
        rng, where = layouts.under_a_schedule(task, number, "variances")
        check_random(
            rng, task["dtype"], int(task["block"]), f"{where} GPR_TEST_SEED={task['seed']}"
        )


def check_kinds(task: dict[str, Any], emulated: bool = True) -> None:
    """Variances of all kinds of rows of ``dtype``, of any length; ``block``, ``seed``."""
    name = task["dtype"]
    for number, (shape, strides, grid) in enumerate(
        (
            ((40, 6), (7, 1), 0),
            ((36, 40), (1, 36), 0),
            ((36, 150), (-1, 36), 2),
            ((20, 90), (181, -2), 1),
        )
    ):
        rng, where = layouts.under_a_schedule(task, number, "kinds of variances", emulated)
        array = place(rng, lambda _, name, n: np.zeros(n, DTYPES[name]), name, shape, strides)
        with np.errstate(all="ignore"):
            for i, row in enumerate(array.view):
                row[:] = np.resize(
                    GENERATORS[i % len(GENERATORS)](rng, name, max(row.size, 3)), row.size
                )
        op, ddof = draw_way(rng)
        case = layouts.Case(array, None, 1, grid, "exact", bool(rng.random() < 0.3), ddof)
        check_case(rng, name, case, op, int(task["block"]), f"{where} GPR_TEST_SEED={task['seed']}")


# ---------------------------------------------------------------- the last digits

STEP = 4  # elements from one of a row's to the next, so that one thread has all of them


def odd_between(rng: np.random.Generator, low: float, high: float) -> int:
    """An odd number from `low` up to `high`."""
    first = math.ceil(low) | 1
    return first + 2 * int(rng.integers(max(1, (math.ceil(high) - first + 1) // 2)))


def midpoint_of_squares(
    rng: np.random.Generator, name: str, n: int, below: int | None
) -> np.ndarray | None:
    """[x, -x, t, -t, 0, ...]: less n - 2, the variance is x^2 + t^2, x^2 between two numbers.

    t is `below` orders below x, or 0. Nothing where the type has no such number.
    """
    digits = FORMATS[name][0] + 1
    x = odd_between(rng, 2 ** (digits / 2), 2 ** ((digits + 1) / 2))
    t = 0.0 if below is None else 2.0 ** (math.frexp(x)[1] - 1 - below)
    return row_of(rng, name, n, [x, -x, t, -t])


def midpoint_of_sums(rng: np.random.Generator, name: str, n: int, below: int) -> np.ndarray | None:
    """[a, t, 0, ...]: the variance is -2 a t / n^2 beside (n - 1) a^2 / n^2, a midpoint."""
    digits = FORMATS[name][0] + 1
    a = odd_between(rng, math.sqrt(2**digits / (n - 1)), math.sqrt(2 ** (digits + 1) / (n - 1)))
    t = 2.0 ** (math.frexp(a)[1] - 1 - below)
    return row_of(rng, name, n, [a, rng.choice([-t, t])])


def row_of(rng: np.random.Generator, name: str, n: int, numbers: list[float]) -> np.ndarray | None:
    """A row of these numbers, scaled by a power of two, and zeros; None if the type lacks them."""
    fraction, exponent = FORMATS[name]
    # The variance is no subnormal number, nor infinite.
    room = min(2 ** (exponent - 3), 400) - fraction
    scale = 2.0 ** int(rng.integers(-max(room, 1), max(room, 1)))
    scaled = np.array(numbers) * scale
    row = np.zeros(n, DTYPES[name])
    with np.errstate(over="ignore", under="ignore"):
        row[: STEP * len(scaled) : STEP] = scaled.astype(row.dtype)
    return row if np.array_equal(row[: STEP * len(scaled) : STEP].astype(float), scaled) else None


def nearly_equal(rng: np.random.Generator, name: str, n: int) -> np.ndarray:
    """Equal numbers, and some whose last digit is another one: all others cancel."""
    fraction, exponent = FORMATS[name]
    field = int(rng.integers(0, 2**exponent - 1))
    word = np.dtype(f"u{DTYPES[name].itemsize}")
    bits = np.full(n, field << fraction | int(rng.integers(1, 2**fraction)) | 1, word)
    bits[rng.random(n) < rng.choice([0, 0.1])] ^= word.type(2)
    return bits.view(DTYPES[name])


def check_rows(
    rng: np.random.Generator,
    name: str,
    rows: list[np.ndarray],
    op: str,
    ddof: float,
    block: int,
    where: str,
) -> None:
    """Variances of rows of one size across memory, each of few threads, or of runs."""
    same = np.stack(rows)
    for strides in ((1, len(same)), (same.shape[1], 1)):
        array = place(
            rng, lambda _, name, n: np.zeros(n, number_type(name)), name, same.shape, strides
        )
        array.view[...] = same
        check_case(
            rng, name, layouts.Case(array, None, 1, 1, "exact", False, ddof), op, block, where
        )


def check_limbs(task: dict[str, Any], emulated: bool = True) -> None:
    """Variances that depend on their sums' last digits, every ``stride``-th of them."""
    name, stride = task["dtype"], task["stride"]
    rng, where = layouts.under_a_schedule(task, 0, "digits of variances", emulated)
    fraction, exponent = FORMATS[name]
    orders = list(range(1, min(2**exponent, 2 * fraction + 330)))[
        int(rng.integers(stride)) :: stride
    ]
    n = 64
    of_squares = [midpoint_of_squares(rng, name, n, below) for below in orders]
    of_sums = [midpoint_of_sums(rng, name, n, below) for below in orders]
    equal = [
        nearly_equal(rng, name, FILLING if i % 8 == 0 else n) for i in range(max(48 // stride, 8))
    ]
    full = [one_sided(rng, name, FILLING) for _ in range(2)] + [
        np.full(FILLING, finite_max(name), DTYPES[name])
    ]
    for rows, ddof in ((of_squares, n - 2), (of_sums, 0), (equal, 1), (full, 0)):
        there = [row for row in rows if row is not None]
        for size in {row.size for row in there}:
            same = [row for row in there if row.size == size]
            op = "var" if ddof != 1 else str(rng.choice(["var", "std"]))
            check_rows(rng, name, same, op, ddof, 32, f"{where} GPR_TEST_SEED={task['seed']}")


# ---------------------------------------------------------------- the first bits

INTERVAL_BITS = 126  # of a numerator, of which the first bits alone are taken
TAKEN_BITS = 160  # of a sum


def orders_of_intervals() -> list[int]:
    """Orders below an element at which another's square, or their product, ends intervals."""
    ends = [
        end // part + i
        for end in (INTERVAL_BITS, TAKEN_BITS)
        for part in (1, 2)
        for i in range(-6, 7)
    ]
    return sorted(set(ends))


def constant_beside(rng: np.random.Generator, name: str, n: int, below: int) -> np.ndarray:
    """Complex numbers whose real parts cancel, their imaginary parts `below` orders below."""
    part = PARTS[name]
    values = np.empty(n, number_type(name))
    fraction = FORMATS[part][0]
    scale = 2.0 ** int(rng.integers(20, 40))
    values.real = odd_between(rng, 2**fraction, 2 ** (fraction + 1)) / 2**fraction * scale
    values.imag = (rng.normal(size=n) * 2.0**-below * scale).astype(DTYPES[part])
    return values


PAIRS = 63  # an odd number, so that the numerator's last bits are none of a midpoint's


def beside_a_constant(rng: np.random.Generator, n: int) -> np.ndarray:
    """c + [x, -x, ..., 0, ...]: less n - 2 PAIRS, the variance is x^2, a midpoint; S^2 is long."""
    x = odd_between(rng, 2**26.5, 2**27)
    values = np.full(n, float(odd_between(rng, 1.5 * 2**52, 1.99 * 2**52)))
    values[: 2 * PAIRS] += np.repeat([x, -x], PAIRS)
    return values


def check_intervals(task: dict[str, Any], emulated: bool = True) -> None:
    """Variances of ``dtype`` that the first bits of their sums tell, just tell, or do not tell."""
    name = task["dtype"]
    rng, where = layouts.under_a_schedule(task, 0, "first bits of variances", emulated)
    where = f"{where} GPR_TEST_SEED={task['seed']}"
    if name in PARTS:
        # The latter of these leave a lower end of 0, and an upper one that is not.
        orders = [*range(0, 81, 2), *4 * list(range(57, 65))]
        for op, ddof in (("var", 1), ("std", 0)):
            rows = [constant_beside(rng, name, 60, below) for below in orders]
            check_rows(rng, name, rows, op, ddof, 32, where)
        return
    fraction, exponents = FORMATS[name][0], 2 ** FORMATS[name][1]
    n = 64
    orders = [below for below in orders_of_intervals() if below < exponents]
    of_squares = [midpoint_of_squares(rng, name, n, below) for below in (*orders, None)]
    of_sums = [midpoint_of_sums(rng, name, n, below) for below in orders]
    # Results that are subnormal, or nearly, and those that are infinite, or nearly.
    ends = (exponents // 4 - fraction // 2, exponents // 4, 3 * exponents // 4 - 1)
    fields = [field for end in ends for field in range(max(end - 8, 0), end + 4)]
    scaled = [
        from_bits(rng.integers(0, 2**fraction, n) + (field << fraction), name) for field in fields
    ]
    cases = [
        (of_squares, "var", n - 2),
        (of_sums, "var", 0),
        (scaled, "var", 1),
        (scaled, "var", 0),
        (scaled, "std", 1),
    ]
    if name == "float64":
        long = int(rng.integers(5000, 6000)) | 1
        constants = [beside_a_constant(rng, long) for _ in range(8)]
        cases.append((constants, "var", long - 2 * PAIRS))
    for rows, op, ddof in cases:
        there = [row for row in rows if row is not None]
        if there:  # float16 has few of them
            check_rows(rng, name, there, op, ddof, 32, where)


def check_ordinary(task: dict[str, Any], emulated: bool = True) -> None:
    """Variances decided by the first bits of their sums: no kernel need divide all digits. Each
    shape along memory and across it, or if there is a ``share`` of 2, in one of these ways.
    """
    name, share = task["dtype"], task.get("share", 1)
    rng, where = layouts.under_a_schedule(task, 0, "ordinary variances", emulated)
    kind = number_type(name)
    shapes = (((37, 60), 0), ((3, 300), 3), ((1, 2500), 1), ((1, 2500), 2))
    for turn, (shape, grid) in enumerate(shapes, task["seed"]):
        values = rng.normal(3, 2, (*shape, 2)) * (1 if name in FORMATS or name in PARTS else 20)
        values = (
            values[..., 0] + 1j * values[..., 1] if name in PARTS else np.abs(values[..., 0])
        ).astype(kind)
        values[0] = values[0, 0] if len(values) > 1 else values[0]  # all equal
        values[-1] = 0 if len(values) > 1 else values[-1]
        for strides in ((shape[1], 1), (1, shape[0]))[turn % share :: share]:
            array = place(
                rng, lambda _, name, n: np.zeros(n, number_type(name)), name, shape, strides
            )
            array.view[...] = values
            for op, ddof in (("var", 0), ("var", 1), ("std", 0), ("std", -3), ("std", 1)):
                case = layouts.Case(array, None, 1, grid, "exact", False, ddof)
                check_case(rng, name, case, op, 64, f"{where} GPR_TEST_SEED={task['seed']}")


# ---------------------------------------------------------------- scratch


def check_slots(task: dict[str, Any]) -> None:
    """Variances of more rows, of two blocks each, than scratch holds; most are NaN, for speed."""
    rng = np.random.default_rng(task["seed"])
    values = np.full((3, MANY_ROWS), np.nan + 0j)
    some = rng.random(MANY_ROWS) < 0.02
    values[:, some] = rng.normal(size=(3, 2 * some.sum())).view(complex)
    array = layouts.Strided(values, values.T)
    case = layouts.Case(array, None, 1, 2, "exact", ddof=1)
    result = layouts.strided(
        rng, (MANY_ROWS,), lambda n: layouts.unwritten(n, np.dtype(float)), True
    )
    layouts.run("var", case, result, 32)
    run = gr.last_run()
    assert run is not None
    assert run.launches > 1
    assert result.view.tobytes() == cpu_variance(case, "var").tobytes(), (
        f"GPR_TEST_SEED={task['seed']}"
    )
