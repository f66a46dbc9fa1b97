"""Exact sums of rows of one tile per warp, beside Python's integers, emulated or on a GPU.

A tile's bins are placed by its largest number. So rows are made tile by tile: with last bits at
the last bin's last place and beside it, with as many of the largest numbers as there is room for,
with warps that lie apart, that have zeros only, or what no such bin holds. What rounding hides of a
sum is found by taking the sum away, as in exact_sums.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from exact_reference import FORMATS, assert_result, expected, expected_bytes, from_bits
from reference import DTYPES

import gpureduce as gr
from emu import layouts
from emu.exact_products import choose, vary_there
from emu.exact_states import OnDevice

LANES, VECTORS = 32, 4  # vectors of a thread's tile
# Bits above the largest number that a tile's first bin has at least, what it lies at multiples of,
# and places from its exponent to the last bin's last one. One bin holds all of float16.
PLACING = {
    "float64": (5, 16, 94),
    "float32": (6, 4, 52),
    "bfloat16": (18, 4, 52),
    "float16": (18, 4, 52),
}
FARTHEST = 60  # orders of magnitude between warps, some of which are shifted to one place
SHIFTS = (16, 40, 44, 48)  # the most of one bin, and of several; too many
LEAST_ROWS = 8
SPARE = 2  # elements of a row that its sums go to, to be taken away


class Tiles:
    """Numbers of tiles of one type, by the exponent fields that they have."""

    def __init__(self, rng: np.random.Generator, name: str) -> None:
        self.rng, self.name = rng, name
        self.fraction, exponent = FORMATS[name]
        self.highest = 2**exponent - 2
        self.per_vector = 16 // DTYPES[name].itemsize

    def numbers(self, field: Any, low: Any, negative: Any) -> np.ndarray:
        """Floats of these exponent fields (none is below the lowest), fractions and signs."""
        field, low, negative = np.broadcast_arrays(np.clip(field, 0, self.highest), low, negative)
        sign = negative.astype(np.uint64) << np.uint64(self.fraction + FORMATS[self.name][1])
        return from_bits(
            sign | field.astype(np.uint64) << np.uint64(self.fraction) | low.astype(np.uint64),
            self.name,
        )

    def signs(self, size: int) -> Any:
        """Of numbers: one for all, or each its own."""
        return self.rng.random(1 if self.rng.random() < 0.3 else size) < 0.5

    def last_place(self, field: int) -> int:
        """The last place of a tile's bins whose largest number has this exponent field. The place
        of a number's first digit is its field.
        """
        headroom, step, places = PLACING[self.name]
        return max(-(-(field + headroom) // step) * step - places, 1 - self.fraction)

    def ending_at(self, place: int) -> Any:
        """A number whose last digit is at this place, of all digits or of the few from there."""
        digit = 0 if self.rng.random() < 0.5 else int(self.rng.integers(self.fraction + 1))
        place = max(place, 1 - self.fraction)
        field = max(place + self.fraction - digit, 0)
        digit = digit if field > 0 else place + self.fraction - 1
        ones = (
            2**self.fraction - 1
            if self.rng.random() < 0.5
            else int(self.rng.integers(2**self.fraction))
        )
        low = (ones >> digit | 1) << digit if digit < self.fraction else 0
        return self.numbers(field, low % 2**self.fraction, self.rng.random() < 0.5)[()]

    def ordinary(self, field: int, size: int, orders: int) -> np.ndarray:
        """The largest number with this field, and others below; all but two may cancel."""
        rng = self.rng
        values = self.numbers(
            field - rng.integers(0, orders + 1, size),
            rng.integers(0, 2**self.fraction, size),
            self.signs(size),
        )
        values[int(rng.integers(size))] = self.numbers(
            field, 2**self.fraction - 1, rng.random() < 0.5
        )[()]
        if rng.random() < 0.7:
            values[1::2] = -values[: size - 1 : 2]
            values[int(rng.integers(size))] = self.numbers(
                field - orders, rng.integers(2**self.fraction), False
            )[()]
        return values

    def tile(self, kind: str, field: int, size: int) -> np.ndarray:
        """A tile whose largest number has this exponent field."""
        rng = self.rng
        if kind == "zeros":
            return self.numbers(0, np.zeros(size, int), rng.random(size) < rng.choice([0, 0.5, 1]))
        ones = self.numbers(field, np.full(size, 2**self.fraction - 1), rng.random() < 0.5)
        if kind == "ones":  # as much as there is room for
            return ones
        if kind == "apart":
            return self.ordinary(field - self.orders_apart(), size, int(rng.integers(4)))
        if kind == "below":  # only a number that bins do not hold remains
            values = self.ordinary(field, size, int(rng.integers(12)))
            values[1::2] = -values[::2]
            values[:2] = self.ending_at(self.last_place(field) - 1), 0
            return values
        if kind == "wide":
            return self.ordinary(field, size, int(rng.integers(20, 80)))
        values = ones if rng.random() < 0.2 else self.ordinary(field, size, int(rng.integers(12)))
        if kind == "edge":
            place = self.last_place(field) + int(rng.integers(-1, 2))
            values[int(rng.integers(min(size, LANES)))] = self.ending_at(place)
        if kind == "tiny":  # digits that only a double's lower half has
            bits = int(rng.integers(1, 2 ** min(self.fraction, 32)))
            values[int(rng.integers(size))] = from_bits(bits, self.name)[()]
        return values

    def orders_apart(self) -> int:
        return int(self.rng.choice([self.rng.integers(FARTHEST), *SHIFTS]))

    def field(self) -> int:
        """An exponent field anywhere or near an end; often one that leaves no bit to spare."""
        rng, (headroom, step, places) = self.rng, PLACING[self.name]
        end = min(140, self.highest)
        # The lowest field whose bins lie as deep as the smallest number.
        lowest = places - self.fraction - headroom
        anywhere = (
            rng.integers(end),
            rng.integers(self.highest),
            self.highest - rng.integers(min(40, end)),
        )
        field = int(rng.choice([*anywhere, lowest + rng.integers(2 * step)]))
        return field + (-headroom - field) % step if rng.random() < 0.5 else field

    def shifted_row(self, warps: int, shift: int) -> list[tuple[str, int]]:
        """As much as there is room for, and one warp so far below: kinds, and exponent fields."""
        headroom, step, places = PLACING[self.name]
        field = max(self.field(), places - self.fraction - headroom + shift)
        field += (-headroom - field) % step
        row = [("ones", field)] * warps
        # The last of the blocks, which lanes take after others.
        last = int(self.rng.choice([warps, min(warps, 8)]))
        row[-1 - int(self.rng.integers(last))] = ("ordinary", field - shift)
        return row

    def parted_row(self, warps: int) -> list[tuple[str, int]]:
        """The first half too far above the other to be summed with it, and far from the top."""
        field = int(np.clip(self.field(), self.highest // 2, self.highest * 3 // 4))
        return [("ordinary", field - i * 2 // warps * FARTHEST) for i in range(warps)]

    def row(self, warps: int) -> list[tuple[str, int]]:
        """The tiles of a row's warps."""
        rng, field = self.rng, self.field()
        kinds = ("edge", "ones", "apart", "wide", "ordinary", "tiny", "zeros")
        one = str(rng.choice(kinds))
        row = [(one, field)] * warps
        chosen = rng.random()
        if chosen < 0.4:  # mixed
            row = [
                (str(rng.choice(kinds)), field - self.orders_apart() * rng.integers(2))
                for _ in range(warps)
            ]
        elif chosen < 0.7:  # one of them is unlike the others
            row[int(rng.integers(warps))] = (str(rng.choice(kinds)), field - self.orders_apart())
        return row

    def vectors(self, row: list[tuple[str, int]], block: int, blocks: int) -> np.ndarray:
        """Elements of whole tiles: VECTORS vectors a thread, warps' next to each other."""
        values = np.empty(
            (blocks, VECTORS, block // LANES, LANES * self.per_vector), DTYPES[self.name]
        )
        same_sign = self.rng.random() < 0.7
        for i, (kind, field) in enumerate(row):
            tile = self.tile(kind, field, VECTORS * LANES * self.per_vector)
            if kind == "ones" and same_sign:
                tile = np.abs(tile)
            values[i // (block // LANES), :, i % (block // LANES)] = tile.reshape(VECTORS, -1)
        return values.ravel()

    def edge(self, field: int) -> np.ndarray:
        """Elements of a vector's edge."""
        kind = str(self.rng.choice(["edge", "ones", "ordinary", "zeros", "apart"]))
        return self.tile(kind, field, LANES)[: self.per_vector - 1]


def count_vectors(rng: np.random.Generator, block: int, blocks: int) -> int:
    """Vectors of a row: as many as its threads take in one tile, or as fewer threads take."""
    most = blocks * VECTORS * block
    # Some warps lack a tile's last vector.
    fewer = most - block + LANES * int(rng.integers(1, block // LANES + 1))
    some = (int(rng.integers(5)) * block, int(rng.integers(most + 1)), LANES, 0)
    whole = rng.random()
    if whole < 0.4:
        return most + int(rng.integers(-1, 2))
    if whole < 0.6:
        return fewer + int(rng.integers(-1, 2))
    return max(int(rng.choice(some)) + int(rng.choice([0, -1, 1, -LANES])), 0)


def make_rows(
    rng: np.random.Generator, name: str, count: int, block: int, blocks: int, offset: int
) -> np.ndarray:
    """Rows of one length, one after another `offset` elements behind a multiple of 16 bytes."""
    tiles = Tiles(rng, name)
    vectors = count_vectors(rng, block, blocks)
    per_vector = tiles.per_vector
    n = max(vectors * per_vector + int(rng.choice([0, rng.integers(2 * per_vector)])), 1)
    if vectors == 0 or rng.random() < 0.05:
        n = int(rng.integers(1, 2 * per_vector))
    rows = np.empty((count, n), DTYPES[name])
    for i, row in enumerate(rows):
        warps = blocks * block // LANES
        made = tiles.shifted_row(warps, SHIFTS[i]) if i < len(SHIFTS) else tiles.row(warps)
        is_parted = i == len(SHIFTS) + 1
        if i == len(SHIFTS):
            made = [("below", tiles.field())] * warps
        elif is_parted:
            made = tiles.parted_row(warps)
        head = min(-(offset + i * n) % per_vector, n)
        whole = np.resize(tiles.vectors(made, block, blocks), n - head)
        tail = (n - head) % per_vector
        row[:head] = tiles.edge(made[0][1])[:head]
        row[head:] = whole
        row[n - tail :] = tiles.edge(made[0][1])[:tail]
        if (
            is_parted
        ):  # one of the other half's is far from all: mostly larger, so that the first sum shows it
            field = tiles.highest - int(rng.integers(8)) if rng.random() < 0.8 else tiles.field()
            row[int(rng.integers(n // 2, n))] = tiles.numbers(
                field, rng.integers(2**tiles.fraction), False
            )[()]
        chosen = rng.random() if i > len(SHIFTS) + 1 else 1
        if chosen < 0.1:
            row[int(rng.integers(n))] = rng.choice([np.inf, -np.inf, np.nan])
        elif chosen < 0.15:
            row[:] = -np.zeros(n)
            row[int(rng.integers(n))] = rng.choice([-0.0, 0.0, 1.0])
        elif chosen < 0.3:  # the remainder is 0
            row[n // 2 : n // 2 * 2] = -row[: n // 2]
            row[n // 2 * 2 :] = 0
        if n > 2 * SPARE:
            row[n - SPARE :] = -0.0
    return rows


def check_tiles(task: dict[str, Any], emulated: bool = True) -> None:
    """Sum ``count`` sets of rows of ``dtype``, by blocks of ``block`` threads; the last one in
    other ways that results leave a kernel too, but for ``only_sums``. ``blocks``: how many a row,
    each set another; ``warps``: how many a set has, about; ``seed``.
    """
    name, block = task["dtype"], task["block"]
    for number in range(task["count"]):
        rng = choose(task, number, block, emulated=emulated)
        blocks = int(task["blocks"][number % len(task["blocks"])])
        count = max(task.get("warps", 96) * LANES // (blocks * block), LEAST_ROWS)
        offset = int(rng.integers(16 // DTYPES[name].itemsize)) if rng.random() < 0.5 else 0
        rows = make_rows(rng, name, count, block, blocks, offset)
        is_last = number == task["count"] - 1 and not task.get("only_sums")
        other = str(rng.choice(["mean", "nansum"])) if is_last else None
        where = (
            f"{name} tiles, case {number}, rows of {rows.shape[1]} at {offset}, block {block}, "
            f"{blocks} blocks a row, {other}, GPR_TEST_SEED={task['seed']}"
        )
        for step in range(1 + SPARE):
            sums = vary_there(rows, "sum", offset, block, blocks)
            for i, (row, got) in enumerate(zip(rows, sums, strict=True)):
                assert_result(
                    got, expected(row, name), f"{where}: row {i}, after {step} sums were taken away"
                )
            if step == 0 and other == "mean":
                for i, (row, got) in enumerate(
                    zip(rows, vary_there(rows, "mean", offset, block, blocks), strict=True)
                ):
                    assert_result(got, expected(row, name, row.size), f"{where}: mean of row {i}")
            if step == 0 and other == "nansum":
                kept = vary_there(rows, "sum", offset, block, blocks, skip_nan=True)
                for i, (row, got) in enumerate(zip(rows, kept, strict=True)):
                    assert_result(
                        got, expected(row[row == row], name), f"{where}: sum of numbers of row {i}"
                    )
            if rows.shape[1] > 2 * SPARE and step < SPARE:
                rows[:, -1 - step] = -np.where(np.isfinite(sums), sums, sums.dtype.type(0))
        if other is not None:
            for i, row in enumerate(rows[:5]):
                state = gr.ExactSum(row.dtype).update(OnDevice(layouts.Strided(row, row)))
                assert state.to_bytes() == expected_bytes(row), f"{where}: the state of row {i}"
