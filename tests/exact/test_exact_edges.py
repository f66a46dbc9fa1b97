"""Exact sums at their edges: every midpoint of the narrow types, counts about powers of two, states
that travel through processes, bytes of which each one is changed.

The reference is that of exact_reference.py, or, for two float16, float64, which holds their sum.
"""

from __future__ import annotations

import copy
import itertools
import json
import multiprocessing
import pathlib
import pickle
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")

import emu
import emu.exact_edges
from draws import EVERYTHING, SEED, some
from exact_reference import (
    FLOATS,
    FORMATS,
    GENERATORS,
    INF,
    INTEGERS,
    NOT_MINUS_ZERO,
    assert_result,
    at_the_top,
    encode,
    expected_bytes,
    finite_bits,
    from_bits,
    mostly_narrow,
    one_sided,
    spread,
)
from reference import DTYPES

import gpureduce as gr

NARROW = ("float16", "bfloat16")
SMALLEST = 2.0**-1074
ROOT = pathlib.Path(__file__).parents[2]
TILE = 4096  # elements, of the CPU


def exact_rows(rows: np.ndarray, op: str = "sum", **options: Any) -> np.ndarray:
    result: np.ndarray = getattr(gr, op)(rows, axis=1, kernel="exact", device="cpu", **options)
    return result


def bits_of(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"u{values.itemsize}")


# ---------------------------------------------------------------- every number of a type


def every_midpoint(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every number from 0 up to the largest, and halfway to the next one (to infinity, as if that
    were one more); each exactly, a little less, a little more. Parts whose sum is that, the bits
    nearest to it, and which sums are negative.
    """
    fraction, exponent = FORMATS[name]
    infinity = (2**exponent - 1) << fraction
    low = np.arange(infinity, dtype=np.int64)
    numbers = from_bits(low, name).astype(np.float64)
    halves = np.append(np.diff(numbers), numbers[-1] - numbers[-2]) / 2
    parts, wanted = [], []
    for half, tail in itertools.product((0, 1), (-1, 0, 1)):
        parts.append(np.stack([numbers, half * halves, np.full(low.size, tail * SMALLEST)], axis=1))
        up = half == 1 and tail == 1
        wanted.append(low + low % 2 if half == 1 and tail == 0 else low + up)
    rows = np.concatenate(parts)
    return rows, np.concatenate(wanted), rows.sum(1) < 0


@pytest.mark.parametrize("name", NARROW)
def test_every_midpoint_of_a_narrow_type_is_rounded_to_even(name: str) -> None:
    rows, wanted, negative = every_midpoint(name)
    minus = 1 << (8 * DTYPES[name].itemsize - 1)
    for sign in (1, -1):
        got = bits_of(exact_rows(sign * rows, dtype=DTYPES[name])).astype(np.int64)
        signs = (negative ^ (sign < 0)) & (rows != 0).any(1)  # a sum of zeros starts at 0
        wrong = np.flatnonzero(got != wanted + minus * signs)
        assert wrong.size == 0, (name, sign, rows[wrong[0]], hex(got[wrong[0]]))


@pytest.mark.parametrize("name", NARROW)
def test_every_mean_on_a_midpoint_of_a_narrow_type_is_rounded_to_even(name: str) -> None:
    """The sum is n times the midpoint, with or without the smallest number there is."""
    rows, wanted, negative = every_midpoint(name)
    # n times a midpoint is a float64.
    n = int(np.random.default_rng(SEED).choice([3, 5, 6, 7, 8, 13]))
    sums = np.concatenate([rows[:, :2] * n, rows[:, 2:], np.zeros((len(rows), n - 3))], axis=1)
    got = bits_of(exact_rows(sums, "mean", dtype=DTYPES[name])).astype(np.int64)
    wrong = np.flatnonzero(got != wanted + (negative << (8 * DTYPES[name].itemsize - 1)))
    assert wrong.size == 0, (name, n, SEED, rows[wrong[0]], hex(got[wrong[0]]))


@pytest.mark.parametrize("is_about_a_power", [False, True])
@pytest.mark.parametrize("beside", [0, 0.125, -0.125])
@pytest.mark.parametrize("n", [3, 5, 6, 49, 93])
def test_means_of_columns_on_a_midpoint_of_doubles_are_rounded_to_even(
    n: int, beside: float, is_about_a_power: bool, isa: str, rng: np.random.Generator
) -> None:
    """Sums are n times a midpoint, or beside it by an element's last bits; midpoints are anywhere,
    or next to powers of two, where the bits of numbers below are half as large. 1 / 49 and 1 / 93
    are rounded to doubles that make no quotient of such a sum exact."""
    lowest = 2**52 + (rng.integers(-2, 2, 64) if is_about_a_power else rng.integers(0, 2**52, 64))
    columns = np.empty((n, lowest.size))
    for column, low in zip(columns.T, lowest.tolist(), strict=True):
        rest = n * Fraction(2 * low + 1, 2)
        for i in range(n - 1):  # what is left for the last one has as few bits as it can have
            column[i] = 1.5 * float(rest / (n - i))
            rest -= Fraction(column[i])
        column[-1] = float(rest) + beside
    columns *= 2.0 ** rng.integers(-800, 800)
    wanted = np.array([float(sum(map(Fraction, column.tolist())) / n) for column in columns.T])
    for sign, axis in ((1, 0), (-1, 0), (1, 1)):
        elements = sign * (columns if axis == 0 else columns.T.copy())
        means = gr.mean(elements, axis=axis, device="cpu")
        np.testing.assert_array_equal(means, sign * wanted)


def test_sums_and_means_of_pairs_of_float16_are_rounded_once() -> None:
    """Some numbers with all, or all unordered pairs; float64 holds the sums and their halves."""
    rng = np.random.default_rng(SEED)
    numbers = from_bits(np.arange(2**16), "float16")
    chosen = np.arange(2**16) if EVERYTHING else rng.integers(0, 2**16, 12)
    for at in chosen.reshape(-1, 4):
        others = numbers[at[0] :] if EVERYTHING else numbers
        pairs = np.stack([np.repeat(numbers[at], others.size), np.tile(others, at.size)], axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            wide = 0.0 + pairs[:, 0].astype(np.float64) + pairs[:, 1].astype(np.float64)
            for op, wanted in (
                ("sum", wide.astype(np.float16)),
                ("mean", (wide / 2).astype(np.float16)),
            ):
                bits = np.where(np.isnan(wide), 0x7E00, bits_of(wanted))
                wrong = np.flatnonzero(bits_of(exact_rows(pairs, op)) != bits)
                assert wrong.size == 0, (op, pairs[wrong[0]], SEED)


# ---------------------------------------------------------------- counts about powers of two


COUNTS = sorted(
    {2**k + d for k in range(2, 15) for d in (-1, 0, 1)} | {3 * TILE + d for d in (-1, 0, 1)}
)


@pytest.mark.parametrize("name", INTEGERS)
def test_counts_of_integers_about_powers_of_two_are_exact(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    low, high = (0, 1) if name == "bool" else (np.iinfo(name).min, np.iinfo(name).max)
    for n in COUNTS:
        values = rng.choice(np.array([low, high], DTYPES[name]), n)
        values[-1] = low
        assert gr.ExactSum(values.dtype).update(values).to_bytes() == expected_bytes(values), (
            n,
            isa,
            SEED,
        )


@pytest.mark.parametrize("name", FLOATS)
def test_counts_about_powers_of_two_are_exact(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    """Lengths at which loops take a step more, accumulators are emptied, tiles and pieces end."""
    for n in COUNTS:
        for make in (at_the_top, one_sided, mostly_narrow):
            values = make(rng, name, n)
            assert gr.ExactSum(values.dtype).update(values).to_bytes() == expected_bytes(values), (
                n,
                make,
                isa,
                SEED,
            )


@pytest.mark.parametrize("name", FLOATS)
def test_one_flagged_element_decides_wherever_it_is(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    """In pieces of several threads too; among numbers that bins hold, or nothing but -0."""
    n = 140_001 if name == "float64" else 3 * TILE + 1  # float64 in pieces
    ordinary, minus_zeros = spread(rng, name, n, 1), -np.zeros(n, DTYPES[name])
    for special in (np.inf, -np.inf, np.nan, 0.0, float(from_bits(1, name))):
        for place in (
            0,
            1,
            n - 1,
            *rng.integers(0, n, 3).tolist(),
            *(n // TILE * TILE + d for d in (-1, 0)),
        ):
            for others in (ordinary, minus_zeros):
                values = others.copy()
                values[place] = special
                where = (special, place, isa, SEED)
                assert gr.ExactSum(values.dtype).update(values).to_bytes() == expected_bytes(
                    values
                ), where
                if others is minus_zeros:
                    got = gr.sum(values, kernel="exact", device="cpu")
                    assert_result(got, DTYPES[name].type(special), where)


@pytest.mark.parametrize("name", ["int64", "uint64"])
def test_sums_fit_in_an_integer_type_or_are_refused(name: str) -> None:
    powers = (2**31, 2**32, 2**62, 2**63, 2**64, 2**65, 2**66)
    numbers = [
        sign * power + d
        for sign in (1, -1)
        for power in powers
        for d in (-(2**40) - 5, -1, 0, 1, 5)
    ]
    for number in numbers if name == "int64" else filter(lambda number: number >= 0, numbers):
        total = gr.ExactSum.from_bytes(encode(name, number, 2**10, NOT_MINUS_ZERO))
        for result in ("int64", "uint64"):
            if np.iinfo(result).min <= number <= np.iinfo(result).max:
                assert int(total.result(result)) == number
            else:
                with pytest.raises(ValueError, match=f"does not fit in {result}"):
                    total.result(result)
        assert total.as_integer_ratio() == (number, 1)


# ---------------------------------------------------------------- processes


def add_parts(state: bytes, parts: list[np.ndarray]) -> gr.ExactSum:
    """In a worker: updates of a state that came as bytes; it goes back as a pickle."""
    total = pickle.loads(state)
    for part in parts:
        total.update(part)
    return total


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_states_that_went_through_processes_have_the_same_bytes(
    method: str, rng: np.random.Generator
) -> None:
    before = gr.limits().cpu_threads
    gr.set_limits(cpu_threads=2)
    try:
        gr.ExactSum().update(np.ones(300_000))  # the threads that a fork loses have been at work
        name = str(rng.choice(FLOATS))
        arrays = []
        for make in GENERATORS:
            with np.errstate(all="ignore"):
                arrays.append(make(rng, name, 400))
        arrays.append(mostly_narrow(rng, name, 700_000))  # several threads' work
        values = np.concatenate(arrays)
        parts = np.split(rng.permutation(values), np.sort(rng.integers(0, values.size, 12)))
        context = multiprocessing.get_context(method)
        with warnings.catch_warnings(), ProcessPoolExecutor(2, mp_context=context) as pool:
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            empty = pickle.dumps(gr.ExactSum(values.dtype))
            states = list(pool.map(add_parts, [empty] * 4, [parts[i::4] for i in range(4)]))
        total = gr.ExactSum(values.dtype)
        for index in rng.permutation(4):
            total.merge(states[index])
        assert total.to_bytes() == expected_bytes(values), (name, SEED)
    finally:
        gr.set_limits(cpu_threads=before)


# ---------------------------------------------------------------- bytes


def sealed(data: bytearray) -> bytes:
    return bytes(data[:-4]) + struct.pack("<I", zlib.crc32(data[:-4]))


@pytest.mark.parametrize("name", DTYPES)
def test_bytes_with_a_right_checksum_are_refused_or_all_mean_something(
    name: str, rng: np.random.Generator
) -> None:
    """No byte is passed over: what is loaded is stored as the same bytes."""
    values = finite_bits(rng, name, 100) if name in FLOATS else np.ones(100, DTYPES[name])
    data = gr.ExactSum(DTYPES[name]).update(values).to_bytes()
    kept = {0: 0, 8: 0, 12: 0, 16: 0, 24: 0, 28: 0}
    for at in range(len(data) - 4):
        for flip in range(1, 256) if at < 28 else (1, 0x80, int(rng.integers(1, 256))):
            changed = bytearray(data)
            changed[at] ^= flip
            try:
                loaded = gr.ExactSum.from_bytes(sealed(changed))
            except ValueError:
                continue
            assert loaded.to_bytes() == sealed(changed), (at, flip, SEED)
            kept[max(start for start in kept if start <= at)] += 1
    # Magic, version, number of words; of dtypes others of the same size are taken.
    assert (kept[0], kept[24]) == (0, 0)
    assert kept[8] <= len(DTYPES) - 1
    assert kept[16] > 0
    assert kept[28] > 0


@pytest.mark.parametrize("name", [*FLOATS, "int8", "int64", "uint64"])
def test_numbers_have_as_many_bits_as_elements_and_their_count(name: str) -> None:
    """The bound of docs/exact-format.md, at both of its sides."""
    bits = {"float16": 40, "bfloat16": 261, "float32": 277, "float64": 2098}.get(
        name, DTYPES[name].itemsize * 8
    )
    for count in (1, 2, 3, 255, 256, 2**63, 2**64 - 1):
        end = 2 ** (bits + count.bit_length())
        for sign in (1, -1) if name != "uint64" else (1,):
            inside = encode(name, sign * (end - 1), count, NOT_MINUS_ZERO)
            assert gr.ExactSum.from_bytes(inside).to_bytes() == inside, (count, sign)
            with pytest.raises(ValueError, match=f"too large for {count} elements"):
                gr.ExactSum.from_bytes(encode(name, sign * end, count, NOT_MINUS_ZERO))
    if name == "uint64":
        with pytest.raises(ValueError, match="too large for 9 elements"):
            gr.ExactSum.from_bytes(encode(name, -1, 9, NOT_MINUS_ZERO))


def test_the_largest_numbers_that_are_loaded_merge_without_overflow() -> None:
    """2^64 - 1 elements in all, of states as large as bytes can make them."""
    for name, sign in itertools.product(FLOATS, (1, -1)):
        bits = {"float16": 40, "bfloat16": 261, "float32": 277, "float64": 2098}[name]
        total, number = gr.ExactSum(DTYPES[name]), 0
        for power in range(64):
            one = sign * (2 ** (bits + power + 1) - 1)
            total.merge(gr.ExactSum.from_bytes(encode(name, one, 2**power, NOT_MINUS_ZERO)))
            number += one
        assert total.to_bytes() == encode(name, number, 2**64 - 1, NOT_MINUS_ZERO)


def test_infinities_leave_no_room_for_a_number_of_their_own() -> None:
    """A number needs an element beside the infinities and NaN that were added."""
    good = encode("float64", 5, 2, INF | NOT_MINUS_ZERO)
    assert gr.ExactSum.from_bytes(good).result() == np.inf
    with pytest.raises(ValueError, match="too large for 1 elements"):
        gr.ExactSum.from_bytes(encode("float64", 5, 1, INF | NOT_MINUS_ZERO))


# ---------------------------------------------------------------- states as values


class Labelled(gr.ExactSum):
    """A subclass with arguments and attributes of its own."""

    def __init__(self, label: list[str]) -> None:
        super().__init__("float32")
        self.label = label


def test_copies_and_pickles_of_a_subclass_keep_its_attributes() -> None:
    total = Labelled(["a"])
    total.update(np.ones(3, np.float32))
    for other in (copy.copy(total), copy.deepcopy(total), pickle.loads(pickle.dumps(total))):
        assert type(other) is Labelled
        assert (other, other.label) == (total, ["a"])
        other.update(np.ones(1, np.float32))
        assert other.count == total.count + 1
    assert copy.copy(total).label is total.label
    assert copy.deepcopy(total).label is not total.label


def test_what_is_no_array_is_refused_and_changes_nothing() -> None:
    total = gr.ExactSum().update([1.0])
    for wrong in (
        None,
        "abc",
        [None],
        [2**70],
        object(),
        [1j],
        np.zeros(2, "M8[s]"),
        (x for x in [1.0]),
    ):
        words = "does not take elements|not an array of numbers|holds None|dtype object"
        with pytest.raises(TypeError, match=words):
            total.update(wrong)
    with pytest.raises(ValueError, match="inhomogeneous"):
        total.update([[1.0], [1.0, 2.0]])
    for wrong in (None, [1, 2], 3):
        with pytest.raises(TypeError):
            gr.ExactSum.from_bytes(wrong)  # type: ignore[arg-type]
    assert total == gr.ExactSum().update([1.0])


# ---------------------------------------------------------------- compilers' flags


OUR_FLAGS = """
import json, setuptools
from distutils.core import run_setup
print(json.dumps(run_setup("setup.py", stop_after="init").ext_modules[0].extra_compile_args))
"""


@pytest.mark.parametrize(
    "flags", ["-Ofast", "-ffast-math", "-fassociative-math -fno-signed-zeros -fno-trapping-math"]
)
def test_flags_under_which_additions_are_reordered_are_undone_or_refused(flags: str) -> None:
    """Undone as CFLAGS, which stand before our own; refused without ours behind them."""
    pytest.importorskip("setuptools")
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", OUR_FLAGS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ours = json.loads(done.stdout)
    source = str(ROOT / "csrc" / "cpu" / "loops_baseline.c")
    includes = [f"-I{ROOT / 'csrc' / folder}" for folder in (".", "include", "registry")]
    without = [flag for flag in ours if flag != "-fno-fast-math"]
    assert len(without) == len(ours) - 1
    for order, works in ((flags.split() + ours, True), (without + flags.split(), False)):
        done = subprocess.run(
            [*compiler, *order, *includes, "-E", source],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == works, done.stderr
        assert works or "-fno-fast-math" in done.stderr


# ---------------------------------------------------------------- a GPU and the CPU, in one run


def test_a_gpu_and_the_cpu_round_to_every_type_alike_on_the_emulator() -> None:
    """Midpoints, overflows and near misses of each result type; one flagged element anywhere.

    An ordinary run draws a type of each: each type of result is a program of its own.
    """
    rng = np.random.default_rng(SEED)
    tasks: list[dict[str, Any]] = [
        {
            "do": "exact_edges.check_results",
            "dtype": name,
            "results": results,
            "seed": SEED,
            "limit": 300.0,
        }
        for name, results in (
            itertools.product(FLOATS, ([result] for result in FLOATS))
            if EVERYTHING
            else [
                (str(rng.choice(FLOATS)), [str(rng.choice(FLOATS))]),
                ("float64", [str(rng.choice(FLOATS[:3]))]),
            ]
        )
    ]
    tasks += [
        {"do": "exact_edges.check_flagged", "dtype": name, "seed": SEED, "limit": 300.0}
        | {"stride": 1 if EVERYTHING else 32, "slow_float64": bool(rng.random() < 0.5)}
        for name in (FLOATS if EVERYTHING else [str(rng.choice(FLOATS))])
    ]
    wrong = emu.failures(some(tasks, 2 / 3, "results alike"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FLOATS)
def test_a_gpu_and_the_cpu_round_to_every_type_alike(name: str) -> None:
    emu.exact_edges.check_results({"dtype": name, "results": FLOATS, "seed": SEED}, emulated=False)
    emu.exact_edges.check_flagged({"dtype": name, "seed": SEED, "stride": 1}, emulated=False)
