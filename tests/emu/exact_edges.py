"""Exact device sums at each result type's edges, and with one flagged element at each place.

Beside Python's integers and the CPU, whose bits are the same, in one run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from exact_reference import FORMATS, assert_result, expected, from_bits, spread
from reference import DTYPES

import gpureduce as gr
from emu.exact_products import choose, vary_there

LENGTHS = (3, 40, 1100)  # rows of a few, short runs, runs
LONG = 70_000  # on a GPU: several blocks a row


def edges(rng: np.random.Generator, name: str, result: str) -> list[np.ndarray]:
    """Numbers of ``result``, the largest too, midpoints to the next, and what is beside both.

    As elements of ``name`` that sum to them, where it has such.
    """
    dtype, (fraction, exponent) = DTYPES[name], FORMATS[result]
    infinity = (2**exponent - 1) << fraction
    picked = [
        0,
        2**fraction - 1,
        2**fraction,
        infinity - 2,
        infinity - 1,
        *rng.integers(0, infinity - 1, 6).tolist(),
    ]
    smallest = float(from_bits(1, name))
    rows = []
    for bits in picked:
        low = float(from_bits(bits, result))
        below = float(from_bits(bits - 1, result)) if bits == infinity - 1 else low
        half = (float(from_bits(bits + (bits != infinity - 1), result)) - below) / 2
        with np.errstate(over="ignore"):
            rows += [
                np.array([low, part, tail], dtype)
                for part in (half, 0)
                for tail in (-smallest, 0, smallest)
            ]
    return [row for row in rows if np.isfinite(row.astype(np.float64)).all()][
        int(rng.integers(2)) :: 2
    ]


def check_results(task: dict[str, Any], emulated: bool = True) -> None:
    """Sums and means of ``dtype`` as all ``results``, of device and host arrays; ``seed``."""
    name = task["dtype"]
    dtype, rng = DTYPES[name], choose(task, emulated=emulated)
    for result in task["results"]:
        few = edges(rng, name, result)
        for length in LENGTHS if emulated else (*LENGTHS, LONG):
            rows = np.zeros((len(few), length), dtype)
            for row, ends in zip(rows, few, strict=True):
                noise = spread(rng, name, (length - 3) // 2, 2)  # cancels
                row[: 3 + 2 * noise.size] = rng.permutation(
                    np.concatenate([ends, noise, -noise]).astype(dtype)
                )
                if rng.random() < 0.5:
                    row *= dtype.type(-1)
            block = 32 * int(rng.integers(1, 5))
            for op in (str(rng.choice(["sum", "mean"])),) if emulated else ("sum", "mean"):
                on_cpu = getattr(gr, op)(
                    rows, axis=1, dtype=DTYPES[result], kernel="exact", device="cpu"
                )
                on_host = getattr(gr, op)(
                    rows, axis=1, dtype=DTYPES[result], kernel="exact", device="cuda"
                )
                there = vary_there(rows, op, 0, 0 if emulated else block, 0, dtype=result)
                where = (
                    f"{op} of {name} as {result}, rows of {length}, block {block}, "
                    f"GPR_TEST_SEED={task['seed']}"
                )
                assert on_host.tobytes() == on_cpu.tobytes() == there.tobytes(), where
                for row, got in zip(rows, on_cpu, strict=True):
                    assert_result(got, expected(row, result, length if op == "mean" else 1), where)


def check_flagged(task: dict[str, Any], emulated: bool = True) -> None:
    """Rows of ``dtype`` of ordinary elements but one: an infinity, NaN, or the only one that is not
    -0. At every ``stride``-th place of two of a warp's tiles, from a random one on; ``seed``.
    """
    name, stride = task["dtype"], task["stride"]
    dtype, rng = DTYPES[name], choose(task, emulated=emulated)
    length = 2 * 2048 // dtype.itemsize + int(rng.integers(1, 40))
    places = np.arange(int(rng.integers(min(stride, length))), length, stride)
    kinds = [(np.inf, 1), (-np.inf, 1), (np.nan, 1), (0.0, -0.0), (float(from_bits(1, name)), -0.0)]
    first = int(rng.integers(len(kinds)))
    rows = np.empty((places.size, length), dtype)
    wanted = []
    for i, place in enumerate(places):
        special, plain = kinds[(i + first) % len(kinds)]
        rows[i] = plain
        rows[i, place] = special
        wanted.append(expected(rows[i], name))
    grid = int(rng.choice([0, 1, 2]))
    where = (
        f"{name} with one flagged element of {length}, grid {grid}, GPR_TEST_SEED={task['seed']}"
    )
    there = vary_there(rows, "sum", 0, 32, grid)
    on_cpu = gr.sum(rows, axis=1, kernel="exact", device="cpu")
    for place, one, other, right in zip(places, there, on_cpu, wanted, strict=True):
        assert_result(one, right, f"{where}, at {place}")
        assert_result(other, right, f"{where}, at {place}, on the CPU")
