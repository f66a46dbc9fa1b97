"""Exact sums are exact: states, results and bytes against Python's integers.

The reference (exact_reference.py) does not compute with floats. States are compared whole, so that
an error in a bit that rounding hides is found.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import pathlib
import pickle
import signal
import struct
import threading
import time
import warnings
import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from draws import SEED

hypothesis = pytest.importorskip("hypothesis")
pytest.importorskip("ml_dtypes")

from exact_reference import (  # noqa: E402
    CODES,
    FLOATS,
    FORMATS,
    GENERATORS,
    INF,
    INTEGERS,
    MINUS_INF,
    NAN,
    NOT_MINUS_ZERO,
    WORDS,
    assert_result,
    encode,
    exact_sum,
    expected,
    expected_bytes,
    finite_bits,
    finite_max,
    flags_of,
    from_bits,
    is_finite,
    mostly_narrow,
    name_of,
    random_bits,
    round_to,
    spread,
    unit_of,
)
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from reference import DTYPES  # noqa: E402

import gpureduce as gr  # noqa: E402

state_result = functools.partial(expected, starts_at_zero=False)


# ---------------------------------------------------------------- the reference


def test_the_reference_is_what_python_computes() -> None:
    rng = np.random.default_rng(SEED)
    for name in FLOATS:
        values = random_bits(rng, name, 300)
        values = values[is_finite(values)]
        fractions = [Fraction(float(x)) for x in values]
        assert exact_sum(values) == sum(fractions) / Fraction(2) ** unit_of(name)
    for _ in range(300):
        a, b = (int(x) for x in rng.integers(-(2**62), 2**62, 2))
        # Down to where quotients are subnormal, and 0.
        b = (abs(b) | 1) << int(rng.integers(0, 1100))
        assert round_to(Fraction(a, b), "float64") == a / b, (a, b)
        x = float(rng.normal()) * 10.0 ** float(rng.integers(-50, 45))
        with np.errstate(over="ignore"):
            assert round_to(Fraction(x), "float32") == np.float32(x), x
            assert round_to(Fraction(x), "float16") == np.float16(x), x


ELEMENTS = st.one_of(
    *(
        st.tuples(
            st.just(name),
            st.lists(st.integers(0, 2 ** (8 * DTYPES[name].itemsize) - 1), max_size=20),
        )
        for name in FLOATS
    )
)


# ---------------------------------------------------------------- states and results


@given(ELEMENTS)
def test_state_result_and_mean_of_any_floats_are_the_exact_ones(
    drawn: tuple[str, list[int]],
) -> None:
    name, bits = drawn
    values = from_bits(bits, name)
    total = gr.ExactSum(DTYPES[name]).update(values)
    assert total.to_bytes() == expected_bytes(values)
    assert total.count == len(bits)
    for result in FLOATS:
        assert_result(total.result(DTYPES[result]), state_result(values, result))
        if bits:
            assert_result(total.mean(DTYPES[result]), state_result(values, result, len(bits)))
    assert_result(total.result(), state_result(values, name))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("n", [3, 200, 5_000, 30_000])
def test_state_is_exact_for_arrays_that_are_hard_to_sum(
    name: str, n: int, isa: str, rng: np.random.Generator
) -> None:
    for generate in GENERATORS:
        with np.errstate(all="ignore"):
            values = generate(rng, name, n)
        total = gr.ExactSum(values.dtype).update(values)
        assert total.to_bytes() == expected_bytes(values), (generate, isa, SEED)
        assert_result(total.result(), state_result(values, name), (generate, isa, SEED))


@pytest.mark.parametrize("name", FLOATS)
def test_bins_at_every_exponent_are_exact(name: str, isa: str, rng: np.random.Generator) -> None:
    fraction, exponent = FORMATS[name]
    step = 1 if exponent < 9 else 37
    for field in range(0, 2**exponent - 1, step):
        bits = rng.integers(0, 2**fraction, 300, dtype=np.uint64) | np.uint64(field << fraction)
        bits |= rng.integers(0, 2, 300, dtype=np.uint64) << np.uint64(fraction + exponent)
        values = from_bits(bits, name)
        assert gr.ExactSum(values.dtype).update(values).to_bytes() == expected_bytes(values), (
            field,
            isa,
            SEED,
        )


@pytest.mark.parametrize("name", FLOATS)
def test_every_grouping_and_order_gives_the_same_bytes(name: str, rng: np.random.Generator) -> None:
    for generate in GENERATORS:
        with np.errstate(all="ignore"):
            values = generate(rng, name, 6_000)
        wanted = expected_bytes(values)
        for _ in range(3):
            shuffled = rng.permutation(values)
            cuts = np.sort(rng.integers(0, len(values), rng.integers(0, 40)))
            states = [gr.ExactSum(values.dtype).update(part) for part in np.split(shuffled, cuts)]
            while len(states) > 1:
                taken = states.pop(rng.integers(len(states)))
                target = states[rng.integers(len(states))]
                if rng.random() < 0.3:
                    taken = gr.ExactSum.from_bytes(taken.to_bytes())
                assert target.merge(taken) is target
            assert states[0].to_bytes() == wanted, (generate, SEED)
        one = gr.ExactSum(values.dtype)
        for part in np.split(shuffled, cuts):
            assert one.update(part) is one
        assert one.to_bytes() == wanted, (generate, SEED)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int64", "uint8"])
def test_number_of_threads_does_not_change_the_bytes(name: str, rng: np.random.Generator) -> None:
    n = 1_500_017
    if name in FLOATS:
        with np.errstate(all="ignore"):
            values = mostly_narrow(rng, name, n)
    else:
        info = np.iinfo(name)
        values = rng.integers(info.min, info.max, n, dtype=name, endpoint=True)
    wanted = expected_bytes(values)
    before = gr.limits().cpu_threads
    try:
        for threads in (1, 2, 5):
            gr.set_limits(cpu_threads=threads)
            assert gr.ExactSum(name).update(values).to_bytes() == wanted, (threads, SEED)
            assert (
                gr.ExactSum(name).update(values[::-2]).update(values[-2::-2]).to_bytes() == wanted
            ), (threads, SEED)
    finally:
        gr.set_limits(cpu_threads=before)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sum_and_mean_of_every_16_bit_float_alone_are_itself(name: str) -> None:
    for value in from_bits(np.arange(2**16), name):
        total = gr.ExactSum(value.dtype).update(value)
        wanted = value if value == value else value.dtype.type(math.nan)
        assert_result(total.result(), wanted)
        assert_result(total.mean(), wanted)


def test_sums_of_pairs_of_float16_at_the_edges_of_its_ranges_are_rounded_once() -> None:
    edges = [0, 1, 2, 0x1FF, 0x200, 0x3FF, 0x400, 0x401, 0x3BFF, 0x3C00, 0x3C01, 0x5FFF, 0x6400,
             0x7800, 0x7BFE, 0x7BFF, 0x7C00, 0x7E01]  # fmt: skip
    values = from_bits([*edges, *(bits | 0x8000 for bits in edges)], "float16")
    for pair in itertools.product(values, repeat=2):
        array = np.array(pair)
        total = gr.ExactSum(np.float16).update(array)
        assert_result(total.result(), state_result(array, "float16"), pair)
        assert_result(total.mean(), state_result(array, "float16", 2), pair)


# ---------------------------------------------------------------- rounding


def neighbours(rng: np.random.Generator, name: str) -> list[tuple[Any, Any]]:
    """Numbers and their successors: random, subnormal, powers of two, the last before infinity."""
    fraction, exponent = FORMATS[name]
    first, last = 2**fraction, (2**exponent - 1) << fraction
    bits = [0, 1, first - 2, first - 1, first, last - 2]
    bits += rng.integers(0, last - 1, 60).tolist() + rng.integers(0, first, 10).tolist()
    bits += [(int(e) << fraction) - 1 for e in rng.integers(1, 2**exponent - 1, 10)]
    return [(from_bits(b, name), from_bits(b + 1, name)) for b in bits]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("sign", [1, -1])
def test_midpoints_go_to_even_and_the_smallest_number_decides(
    name: str, sign: int, rng: np.random.Generator
) -> None:
    smallest = 2.0**-1074
    for low, high in neighbours(rng, name):
        half = (float(high) - float(low)) / 2
        if half == 0:
            continue  # half a smallest float64 is no float64
        even, odd = (high, low) if bits_is_odd(low) else (low, high)
        for tail, wanted in ((0.0, even), (smallest, high), (-smallest, low)):
            if half == smallest and tail < 0:
                continue  # the midpoint less its own distance is `low` itself
            values = np.array([float(low), half, tail]) * sign
            total = gr.ExactSum().update(values)
            got = total.result(DTYPES[name])
            assert abs(float(got)) == float(wanted), (low, high, tail, SEED)
            assert_result(got, state_result(values, name), (low, high, tail, SEED))
        assert even != odd


def bits_is_odd(value: Any) -> bool:
    return bool(np.asarray(value).tobytes()[0] & 1)


@pytest.mark.parametrize("name", FLOATS)
def test_overflow_begins_half_a_unit_above_the_largest_number(name: str) -> None:
    fraction, exponent = FORMATS[name]
    largest = float(finite_max(name))
    half = 2.0 ** (2 ** (exponent - 1) - 2 - fraction)
    smallest = 2.0**-1074
    for sign in (1.0, -1.0):
        for tail, wanted in (
            ([half], math.inf),
            ([half, smallest], math.inf),
            ([half, -smallest], largest),
        ):
            total = gr.ExactSum().update(np.array([largest, *tail]) * sign)
            assert float(total.result(DTYPES[name])) == sign * wanted
    assert float(gr.ExactSum().update([1e308] * 1000).result(DTYPES[name])) == math.inf


def test_intermediate_overflow_does_not_happen() -> None:
    assert gr.ExactSum().update([1e308, 1e308, -1e308]).result() == 1e308
    largest = np.finfo(np.float64).max
    values = np.concatenate([np.full(10_000, largest), np.full(9_999, -largest)])
    assert gr.ExactSum().update(values).result() == largest
    half = np.full(70_000, 65504, np.float16)
    assert gr.ExactSum("float16").update(half).mean() == 65504


def test_result_is_not_rounded_through_another_float_type() -> None:
    # Each is just above the middle of two numbers of the narrow type, by less than the wide type
    # holds.
    for name, wide_ulp in (("float16", 2.0**-53), ("bfloat16", 2.0**-53), ("float32", 2.0**-53)):
        middle = 2.0 ** -(FORMATS[name][0] + 1)
        total = gr.ExactSum().update([1.0, middle, wide_ulp / 4])
        assert total.result() == 1.0 + middle
        assert float(total.result(DTYPES[name])) == 1.0 + 2 * middle


# ---------------------------------------------------------------- zeros, infinities, NaN


@pytest.mark.parametrize("name", FLOATS)
def test_only_sums_of_nothing_but_minus_zero_are_minus_zero(name: str) -> None:
    dtype = DTYPES[name]
    cases: list[tuple[list[float], float]] = [
        ([], 0.0), ([-0.0], -0.0), ([-0.0] * 1000, -0.0), ([0.0], 0.0), ([-0.0, 0.0], 0.0),
        ([1.0, -1.0], 0.0), ([-0.0, -1.0, 1.0, -0.0], 0.0), ([-0.0] * 1000 + [0.0], 0.0),
    ]  # fmt: skip
    for values, wanted in cases:
        got = gr.ExactSum(dtype).update(np.array(values, dtype)).result()
        assert got == 0
        assert math.copysign(1, float(got)) == math.copysign(1, wanted), values


@pytest.mark.parametrize("name", FLOATS)
def test_infinities_and_nan_count_as_in_ieee_additions(name: str) -> None:
    dtype = DTYPES[name]
    inf, nan = math.inf, math.nan
    for values in itertools.product([inf, -inf, nan, -nan, 1.0, -0.0], repeat=3):
        with np.errstate(invalid="ignore"):
            wanted = sum(values, -0.0)
        array = np.array(values, dtype)
        for total in (
            gr.ExactSum(dtype).update(array),
            gr.ExactSum(dtype).update(array[:1]).merge(gr.ExactSum(dtype).update(array[1:])),
        ):
            assert_result(total.result(), dtype.type(wanted), values)
            assert_result(total.mean(), dtype.type(wanted / 3), values) if wanted != 1 else None


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("n", [0, 1, 1000, 40_000])
def test_integers_sum_exactly_beyond_64_bits(
    name: str, n: int, isa: str, rng: np.random.Generator
) -> None:
    dtype = DTYPES[name]
    low, high = (0, 1) if name == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for values in (
        rng.integers(
            low, high, n, dtype=np.uint64 if name == "uint64" else np.int64, endpoint=True
        ).astype(dtype),
        np.full(n, high, dtype),
        np.full(n, low, dtype),
    ):
        total = gr.ExactSum(dtype).update(values)
        wanted = sum(values.tolist())
        assert total.to_bytes() == expected_bytes(values), (isa, SEED)
        assert total.as_integer_ratio() == (wanted, 1)
        default = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
        for result in (np.dtype(np.int64), np.dtype(np.uint64)):
            info = np.iinfo(result)
            if info.min <= wanted <= info.max:
                got = total.result(result)
                assert got == wanted
                assert got.dtype == result
            else:
                with pytest.raises(ValueError, match=f"does not fit in {result}"):
                    total.result(result)
        if np.iinfo(default).min <= wanted <= np.iinfo(default).max:
            assert total.result().dtype == default
        for result_name in FLOATS:
            assert_result(
                total.result(DTYPES[result_name]), round_to(Fraction(wanted), result_name)
            )
            if n:
                assert_result(
                    total.mean(DTYPES[result_name]), round_to(Fraction(wanted, n), result_name)
                )
        if n:
            assert total.mean().dtype == np.float64


# ---------------------------------------------------------------- mean


@given(ELEMENTS, st.integers(1, 2**64 - 1), st.sampled_from(FLOATS))
def test_mean_divides_by_any_count_and_rounds_once(
    drawn: tuple[str, list[int]], count: int, result: str
) -> None:
    name, bits = drawn
    values = from_bits(bits, name)
    hypothesis.assume(count >= len(bits))
    # Zeros in the sum, in any number, without adding them one by one.
    flags = flags_of(values) | NOT_MINUS_ZERO
    total = gr.ExactSum.from_bytes(encode(name, exact_sum(values), count, flags))
    padded = np.concatenate([values, np.zeros(1, DTYPES[name])])
    assert_result(total.mean(DTYPES[result]), state_result(padded, result, count))


def test_mean_that_only_the_last_remainder_tells_from_a_tie_is_rounded_up() -> None:
    # 1 / n = 2^-64 (1 + 2^-53 + 2^-106 + ...): the tie of a float64, and a little more a long way
    # down.
    n = 2**64 - 2**11
    for name in ("int64", "float16", "float32"):
        wanted = math.ldexp(1 + 2**-52, unit_of(name) - 64)
        total = gr.ExactSum.from_bytes(encode(name, 1, n, NOT_MINUS_ZERO))
        assert total.mean("float64") == wanted
        total = gr.ExactSum.from_bytes(encode(name, -1, n, NOT_MINUS_ZERO))
        assert total.mean("float64") == -wanted


def test_mean_of_nothing_is_nan_with_numpys_warning() -> None:
    with pytest.warns(RuntimeWarning, match="Mean of empty slice") as caught:
        assert math.isnan(gr.ExactSum().mean())
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gr.ExactSum("int8").mean().dtype == np.float64


# ---------------------------------------------------------------- arrays


def test_any_layout_is_summed_in_place(rng: np.random.Generator, tmp_path: Any) -> None:
    for name, dtype in DTYPES.items():
        n = 24 * 1000
        values = (spread(rng, name, n, 3) if name in FLOATS else rng.integers(0, 100, n)).astype(
            dtype
        )
        cube = values.reshape(24, 10, 100)
        raw = bytearray(values.tobytes() + b"\0")
        raw[1:] = values.tobytes()
        misaligned = np.frombuffer(raw, dtype, offset=1)
        frozen = values.copy()
        frozen.flags.writeable = False
        mapped = np.memmap(tmp_path / name, dtype=np.uint8, mode="w+", shape=values.nbytes).view(
            dtype
        )
        mapped[:] = values
        layouts = {
            "Fortran": np.asfortranarray(cube), "transposed": cube.transpose(1, 2, 0),
            "reversed": cube[::-1, :, ::-1], "strided": cube[::3, ::2, 7::5],
            "0-d": values[3].reshape(()), "scalar": values[3], "empty": cube[:, :0],
            "broadcast": np.broadcast_to(values[:5, None], (5, 2000)), "misaligned": misaligned,
            "read-only": frozen, "memory-mapped": mapped, "one": values[:1],
        }  # fmt: skip
        if name not in ("bool", "bfloat16", "int8", "uint8"):
            swapped = cube.astype(dtype.newbyteorder())
            layouts |= {"byte-swapped": swapped, "byte-swapped strided": swapped[1::2, ::-3]}
        for layout, array in layouts.items():
            native = np.array(array).astype(dtype)
            total = gr.ExactSum(dtype).update(array)
            assert total.to_bytes() == expected_bytes(np.asarray(native)), (name, layout, SEED)


def test_other_dtypes_are_added_as_the_numbers_they_are(rng: np.random.Generator) -> None:
    def numbers(dtype: np.dtype[Any]) -> np.ndarray:
        if name_of(dtype) in FLOATS:
            return finite_bits(rng, name_of(dtype), 300)
        if dtype == np.bool_:
            return rng.random(300) < 0.5
        return rng.integers(
            np.iinfo(dtype).min, np.iinfo(dtype).max, 300, dtype=dtype, endpoint=True
        )

    for mine, theirs in itertools.product(DTYPES.values(), repeat=2):
        total = gr.ExactSum(mine)
        values = numbers(theirs)
        if np.can_cast(theirs, mine, "safe"):
            wanted = Fraction(exact_sum(values)) * Fraction(2) ** unit_of(name_of(theirs))
            assert Fraction(*total.update(values).as_integer_ratio()) == wanted, (
                mine,
                theirs,
                SEED,
            )
            assert total.update(values[::-3]).count == 400
        else:
            with pytest.raises(
                TypeError, match=f"exact sum of {mine} does not take elements of dtype {theirs}"
            ):
                total.update(values)
            assert total.to_bytes() == gr.ExactSum(mine).to_bytes()


@pytest.mark.parametrize("dtype", ["S4", object, "datetime64[s]", np.longdouble, [("a", "f4")]])
def test_other_dtypes_are_refused_by_name(dtype: Any) -> None:
    with pytest.raises(TypeError, match="is not supported"):
        gr.ExactSum(dtype)
    with pytest.raises(TypeError, match=r"not supported|does not take"):
        gr.ExactSum().update(np.zeros(3, dtype))
    with pytest.raises(TypeError, match=r"not supported|no result"):
        gr.ExactSum().update([1.0]).result(dtype)


def test_masked_arrays_are_refused_with_what_to_pass_instead() -> None:
    with pytest.raises(TypeError, match=r"masked arrays are not supported: pass a\.compressed\(\)"):
        gr.ExactSum().update(np.ma.masked_array([1.0, 2.0], [True, False]))


def test_result_types_a_sum_does_not_have_are_refused() -> None:
    floats, integers = gr.ExactSum().update([1.0]), gr.ExactSum("int32").update(np.ones(1, "i4"))
    for dtype in ("int64", "uint64", "int32", "bool"):
        with pytest.raises(TypeError, match=f"no result of type {dtype}"):
            floats.result(dtype)
        with pytest.raises(TypeError, match=f"no result of type {dtype}"):
            integers.mean(dtype)
    with pytest.raises(TypeError, match="no result of type int32"):
        integers.result("int32")


def test_merging_other_things_is_refused_and_changes_nothing() -> None:
    total = gr.ExactSum("float32").update(np.ones(3, "f4"))
    before = total.to_bytes()
    with pytest.raises(TypeError, match="float32 does not merge with one of float64"):
        total.merge(gr.ExactSum())
    with pytest.raises(TypeError, match="not with ndarray"):
        total.merge(np.ones(3))  # type: ignore[arg-type]
    assert total.to_bytes() == before


# ---------------------------------------------------------------- capacity


@pytest.mark.parametrize("name", [*FLOATS, "int8", "int64", "uint64"])
def test_states_have_room_for_2_to_the_64_minus_1_of_the_largest_element(name: str) -> None:
    largest = finite_max(name) if name in FLOATS else np.iinfo(name).max
    for sign in (1, -1) if name != "uint64" else (1,):
        element = np.array([largest], DTYPES[name]) * np.array(sign, DTYPES[name])
        total, power = gr.ExactSum(DTYPES[name]), gr.ExactSum(DTYPES[name]).update(element)
        for _ in range(63):
            total.merge(power)
            power.merge(power)
        total.merge(power)
        assert total.count == 2**64 - 1
        number = exact_sum(element) * (2**64 - 1)
        assert total.to_bytes() == encode(name, number, 2**64 - 1, NOT_MINUS_ZERO)
        if name in FLOATS:
            assert_result(total.mean(), element[0])
        before = total.to_bytes()
        with pytest.raises(ValueError, match=r"2\^64 - 1 elements"):
            total.update(element)
        with pytest.raises(ValueError, match=r"2\^64 - 1 elements"):
            total.merge(total)
        assert total.to_bytes() == before


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("name", DTYPES)
def test_every_damaged_byte_and_every_other_length_is_refused(
    name: str, rng: np.random.Generator
) -> None:
    values = finite_bits(rng, name, 100) if name in FLOATS else np.ones(100, DTYPES[name])
    data = gr.ExactSum(DTYPES[name]).update(values).to_bytes()
    for i, flip in itertools.product(range(len(data)), (1, 0x80, int(rng.integers(1, 256)))):
        damaged = bytearray(data)
        damaged[i] ^= flip
        with pytest.raises(ValueError, match="not the bytes of an exact sum: "):
            gr.ExactSum.from_bytes(damaged)
    for length in range(len(data)):
        with pytest.raises(
            ValueError,
            match=r"not the bytes of an exact sum: \d+ bytes are fewer|there are \d+, a sum",
        ):
            gr.ExactSum.from_bytes(data[:length])
    with pytest.raises(ValueError, match=f"there are {len(data) + 1}"):
        gr.ExactSum.from_bytes(data + b"\0")
    assert gr.ExactSum.from_bytes(memoryview(data)).to_bytes() == data


def test_complex_numbers_are_refused_and_their_parts_are_the_way() -> None:
    values = np.array([1 + 2j, 3 - 4j])
    for dtype in (np.complex64, np.complex128):
        with pytest.raises(TypeError, match=f"sum the parts of {np.dtype(dtype)} each"):
            gr.ExactSum(dtype)
    assert gr.ExactSum(np.float64).update(values.imag).result() == -2


def test_bytes_no_elements_could_have_given_are_refused_by_reason() -> None:
    good = encode("float64", 5, 2, NOT_MINUS_ZERO)
    assert gr.ExactSum.from_bytes(good).to_bytes() == good

    def patched(at: int, patch: bytes, data: bytes = good) -> bytes:
        body = data[:at] + patch + data[at + len(patch) : -4]
        return body + struct.pack("<I", zlib.crc32(body))

    for data, reason in [
        (b"", "0 bytes are fewer"),
        (patched(0, b"\x94"), "do not begin"),
        (patched(8, b"\2"), "version is 2, this library reads version 1"),
        (patched(10, b"\x0d"), "no sum of dtype 13"),
        (patched(24, b"\x43"), "does not have 67 words"),
        (good[:-1] + bytes([good[-1] ^ 1]), "checksum"),
        (encode("float64", 5, 2, NOT_MINUS_ZERO | 16), "no flags 0x18 of float64"),
        (encode("int32", 5, 2, NOT_MINUS_ZERO | NAN), "no flags 0xc of int32"),
        (encode("float64", 2**2100, 1, NOT_MINUS_ZERO), "too large for 1 elements"),
        (encode("float64", -(2**2099), 1, NOT_MINUS_ZERO), "too large for 1 elements"),
        (encode("uint8", -1, 1, NOT_MINUS_ZERO), "too large for 1 elements"),
        (encode("float64", 1, 0, NOT_MINUS_ZERO), "no 0 elements have the flags 0x8"),
        (encode("float64", 0, 0, NOT_MINUS_ZERO), "no 0 elements have the flags 0x8"),
        (encode("float64", 1, 1, 0), "no 1 elements have the flags 0"),
        (encode("float64", 0, 1, INF), "no 1 elements have the flags 0x1"),
        (
            encode("float64", 0, 2, INF | NAN | MINUS_INF | NOT_MINUS_ZERO),
            "no 2 elements have the flags 0xf",
        ),
        (encode("int8", 0, 3, 0), "no 3 elements have the flags 0"),
    ]:
        with pytest.raises(ValueError, match=f"not the bytes of an exact sum: .*{reason}"):
            gr.ExactSum.from_bytes(data)
    with pytest.raises(TypeError):
        gr.ExactSum.from_bytes("text")  # type: ignore[arg-type]


def test_bytes_of_a_state_are_these() -> None:
    # A constant of the format: a release that changes these bytes must change the version in them.
    total = gr.ExactSum("float16").update(np.array([1.5, -(2.0**-24), math.inf], np.float16))
    assert (
        total.to_bytes().hex()
        == (
            "93475052 53554d0a 0100 0900 09000000 0300000000000000 04000000ffff7f01 00000000 "
            "00000000 00000000 "
        ).replace(" ", "")
        + struct.pack("<I", zlib.crc32(total.to_bytes()[:-4])).hex()
    )


def test_the_documented_table_of_dtypes_is_the_one_in_use() -> None:
    text = (pathlib.Path(__file__).parents[2] / "docs" / "exact-format.md").read_text()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    found = {}
    for names, codes, unit, below, words, size in (
        row for row in rows if len(row) == 6 and row[1][0].isdigit()
    ):
        bounds = below.split(", ") * (len(names.split(", ")) if "," not in below else 1)
        for name, code, bound in zip(names.split(", "), codes.split(", "), bounds, strict=True):
            found[name] = (int(code), unit, bound, int(words), int(size))
    assert found.keys() == DTYPES.keys()
    for name, (code, unit, bound, words, size) in found.items():
        highest = 2 ** (FORMATS[name][1] - 1) if name in FORMATS else 8 * DTYPES[name].itemsize
        assert (code, words) == (CODES[name], WORDS.get(name, 4))
        assert unit == (f"2^{unit_of(name)}" if name in FORMATS else "1")
        assert bound == f"2^{highest}"
        assert size == len(gr.ExactSum(DTYPES[name]).to_bytes())
        assert highest - unit_of(name) + 64 + 1 < 32 * words


# ---------------------------------------------------------------- states as values


@pytest.mark.parametrize("name", DTYPES)
def test_copies_pickles_and_bytes_are_equal_and_independent(name: str) -> None:
    total = gr.ExactSum(DTYPES[name]).update(np.ones(5, DTYPES[name]))
    copies = [copy.copy(total), copy.deepcopy(total), gr.ExactSum.from_bytes(total.to_bytes())]
    copies += [
        pickle.loads(pickle.dumps(total, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for other in copies:
        assert type(other) is gr.ExactSum
        assert other.dtype == DTYPES[name]
        assert other == total
        other.update(np.ones(1, DTYPES[name]))
        assert other != total
        assert (total.count, other.count) == (5, 6)
    assert total != "something else"
    assert repr(total) == f"<ExactSum of 5 {name} elements: 5.0>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(total)


def test_subclasses_stay_what_they_are() -> None:
    class Mine(gr.ExactSum):
        pass

    assert type(Mine.from_bytes(Mine().update([1.0]).to_bytes())) is Mine
    assert type(copy.copy(Mine())) is Mine


def test_a_state_for_another_byte_order_is_the_same_state() -> None:
    assert gr.ExactSum(">f4").dtype == np.dtype("=f4")
    assert gr.ExactSum(">f4") == gr.ExactSum("<f4")
    assert gr.ExactSum().update([1.5]).result("float32").dtype == np.float32


def test_as_integer_ratio_is_the_sum_itself() -> None:
    assert gr.ExactSum().as_integer_ratio() == (0, 1)
    assert gr.ExactSum().update([1e300, 2.0**-1074, -1e300]).as_integer_ratio() == (1, 2**1074)
    assert gr.ExactSum().update([-6.0, 0.5]).as_integer_ratio() == (-11, 2)
    assert gr.ExactSum("float16").update(np.full(3, -2.0, np.float16)).as_integer_ratio() == (-6, 1)
    for value in (math.inf, -math.inf):
        with pytest.raises(OverflowError, match="Infinity"):
            gr.ExactSum().update([value]).as_integer_ratio()
    for values in ([math.nan], [math.inf, -math.inf], [math.inf, math.nan]):
        with pytest.raises(ValueError, match="NaN"):
            gr.ExactSum().update(values).as_integer_ratio()


# ---------------------------------------------------------------- threads and interrupts


def test_threads_may_share_a_state(rng: np.random.Generator) -> None:
    parts = [spread(rng, "float64", int(n), 100) for n in rng.integers(1, 20_000, 40)]
    shared, other = gr.ExactSum(), gr.ExactSum()

    def work(mine: list[np.ndarray]) -> None:
        for part in mine:
            shared.update(part)
            other.merge(gr.ExactSum().update(part))
            shared.merge(gr.ExactSum())
            assert shared.result() is not None

    threads = [threading.Thread(target=work, args=(parts[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = expected_bytes(np.concatenate(parts))
    assert shared.to_bytes() == wanted, SEED
    assert other.to_bytes() == wanted, SEED


def test_update_leaves_the_gil_to_other_threads() -> None:
    values = np.full(4096, 1.5)  # windows that overlap
    many = np.lib.stride_tricks.as_strided(values, (2**9, 2**9, 2**10), (8, 8, 8))
    total = gr.ExactSum()
    turns, has_begun, is_done = 0, threading.Event(), threading.Event()

    def turn() -> None:
        nonlocal turns
        while not is_done.is_set():
            turns += 1
            has_begun.set()
            time.sleep(0.001)

    # The other thread begins first: without a GIL, Thread.start returns late while one is busy.
    thread = threading.Thread(target=turn)
    thread.start()
    has_begun.wait()
    before = turns
    total.update(many)
    during = turns - before
    is_done.set()
    thread.join()
    assert total.as_integer_ratio() == (3 * 2**27, 1)
    assert during > 5


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_an_interrupted_update_adds_nothing() -> None:
    class InterruptionError(Exception):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise InterruptionError

    total = gr.ExactSum().update([1.0])
    windows = np.lib.stride_tricks.as_strided(np.ones(4096), (2**10,) * 4, (8,) * 4)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptionError):
            total.update(windows)  # an hour of work
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert total == gr.ExactSum().update([1.0])
