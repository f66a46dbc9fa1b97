"""The first bits of sums, and variances made of those, beside Python's integers and fractions.

The kernels' own text (exact_interval.cuh) is compiled for the CPU and given limbs that rows of
elements seldom bring: any that a block may hold, those whose first ones cancel, and numerators on
midpoints or a unit beside, at any depth.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import EVERYTHING, SEED

pytest.importorskip("ml_dtypes")

from exact_reference import FLOATS, FORMATS, root_to, round_to

EXAMPLES = 100_000 if EVERYTHING else 4_000
TESTS = Path(__file__).parents[1]
CSRC = TESTS.parent / "csrc"
COUNT = 40  # limbs of a number
RADIX, WORD_RADIX = 20, 32  # bits of them
TOO_WIDE = 2**60


class Found(ctypes.Structure):
    _fields_ = [
        ("high", ctypes.c_uint64),
        ("low", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("exponent", ctypes.c_longlong),
    ]

    def holds(self, number: Fraction | int) -> bool:
        least, unit = self.high << 64 | self.low, Fraction(2) ** self.exponent
        return self.width < TOO_WIDE and least * unit <= number <= (least + self.width) * unit


@pytest.fixture(scope="module")
def intervals(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = next(
        filter(None, map(shutil.which, (os.environ.get("CXX") or "g++", "g++", "c++", "clang++"))),
        None,
    )
    if compiler is None:
        pytest.skip("no C++ compiler is installed")
    library = tmp_path_factory.mktemp("intervals") / "intervals.so"
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-shared",
        "-DGPR_ARCH=900",
        *(
            f"-I{folder}"
            for folder in (
                CSRC / "emu",
                CSRC / "shared",
                CSRC / "registry",
                *sorted((CSRC / "kernels").iterdir()),
            )
        ),
        "-o",
        library,
    ]
    done = subprocess.run(
        [*command, TESTS / "emu" / "interval.cpp"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def value_of(limbs: list[int], radix: int) -> int:
    return sum(limb << radix * i for i, limb in enumerate(limbs))


def any_limbs(rng: random.Random, radix: int, limit: int) -> list[int]:
    """Digits below `limit` in magnitude, of which the highest may cancel."""
    limbs, top = [0] * COUNT, rng.randrange(1, COUNT)
    small = 2 ** rng.randrange(1, radix + 2)
    draw = rng.choice(
        [
            lambda: rng.randrange(1 - limit, limit),
            lambda: rng.choice([0, limit - 1, 1 - limit]),
            lambda: rng.randrange(2**radix),
            lambda: rng.choice([0, 0, 0, 1, -1, rng.randrange(1 - limit, limit)]),
            lambda: rng.randrange(-small, small),
        ]
    )
    for i in range(rng.randrange(top), top + 1):
        limbs[i] = draw()
    if rng.random() < 0.3:
        sign, length = rng.choice([1, -1]), rng.randrange(1, min(top, 9) + 1)
        limbs[top] = sign
        for k in range(1, length):
            limbs[top - k] = -sign * (2**radix - 1)
        limbs[top - length] = -sign * (
            2**radix + rng.choice([0, 0, -1, 1, rng.randrange(-256, 256)])
        )
    return limbs


@pytest.mark.parametrize("form", ["limbs", "words"])
def test_numbers_lie_in_the_intervals_of_their_leading_bits(
    intervals: ctypes.CDLL, form: str
) -> None:
    rng = random.Random(f"{SEED} {form}")
    radix, limit, kind = (
        (RADIX, 2**31, ctypes.c_int) if form == "limbs" else (WORD_RADIX, 2**62, ctypes.c_longlong)
    )
    taken = 0
    for _ in range(EXAMPLES):
        limbs, found = any_limbs(rng, radix, limit), Found()
        if not getattr(intervals, f"leading_bits_of_{form}")(
            (kind * COUNT)(*limbs), COUNT, ctypes.byref(found)
        ):
            continue
        taken += 1
        number = abs(value_of(limbs, radix))
        context = f"{form} {limbs} GPR_TEST_SEED={SEED}"
        assert found.holds(number), context
        assert found.high >> 62 != 0 if number else found.high == found.low == found.width == 0, (
            context
        )
    assert taken > EXAMPLES // 2


def limbs_of(rng: random.Random, number: int) -> Any:
    """Limbs of a number, some with carries that are not propagated."""
    sign, magnitude = (-1 if number < 0 else 1), abs(number)
    limbs = [sign * (magnitude >> RADIX * i & (2**RADIX - 1)) for i in range(COUNT)]
    for i in range(max(magnitude.bit_length() - 1, 0) // RADIX):
        moved = rng.randrange(-200, 200) if rng.random() < 0.3 else 0
        limbs[i] += moved << RADIX
        limbs[i + 1] -= moved
    assert value_of(limbs, RADIX) == number
    return (ctypes.c_int * COUNT)(*limbs)


def pointers_to(arrays: list[Any]) -> Any:
    return (ctypes.POINTER(ctypes.c_int) * len(arrays))(
        *(ctypes.cast(each, ctypes.POINTER(ctypes.c_int)) for each in arrays)
    )


def draw_counts(rng: random.Random) -> tuple[int, int]:
    """A count of elements, and the divisor after ddof."""
    n = rng.choice([rng.randrange(1, 2 ** rng.randrange(1, 33)), 2 ** rng.randrange(32)])
    free = n - rng.choice([0, 0, 1, rng.randrange(-5, 6), n - 1, n - 2, n // 2])
    return n, free if 0 < free < 2**32 and abs(n - free) < 2**31 else n


def draw_sums(
    rng: random.Random, significant: int, root: bool, n: int, free: int
) -> tuple[int, int, int, int] | None:
    """Both parts of a sum and the squares' sum, of which the variance, or its root, is nearly a
    midpoint of numbers with so many significant bits, or such a number; and its exponent. Nothing
    where there are none such."""
    number, exponent = rng.randrange(2**significant, 2 ** (significant + 1)), rng.randrange(150)
    near = (number | (rng.random() < 0.8)) << exponent
    numerator = (near * near if root else near) * n * free
    bits = rng.randrange(1, max(2, numerator.bit_length() // 2 + rng.randrange(-40, 60)))
    real = (rng.getrandbits(bits) | 1) << rng.choice([0, rng.randrange(64)])
    imaginary = (
        0 if rng.random() < 0.7 else rng.getrandbits(rng.randrange(1, real.bit_length() + 1))
    )
    squared = real * real + imaginary * imaginary
    # As near as the squares' sum can come.
    numerator += (-squared - numerator) % n if rng.random() < 0.8 else 0
    numerator += n * rng.choice([0, 0, 0, 1, -1, rng.getrandbits(rng.randrange(1, 100))])
    squares = (numerator + squared) // n
    if numerator < 0 or (numerator + squared) % n != 0 or squares.bit_length() > RADIX * COUNT - 20:
        return None
    return (
        rng.choice([real, -real]),
        imaginary,
        squares,
        near.bit_length() if not root else 2 * near.bit_length(),
    )


@pytest.mark.parametrize("op", ["var", "std"])
@pytest.mark.parametrize("name", FLOATS)
def test_variances_that_leading_bits_determine_are_rounded_once(
    intervals: ctypes.CDLL, name: str, op: str
) -> None:
    rng = random.Random(f"{SEED} {name} {op}")
    fraction, exponent = FORMATS[name]
    sure = unsure = 0
    for _ in range(EXAMPLES):
        n, free = draw_counts(rng)
        sums = draw_sums(rng, fraction + 1, op == "std", n, free)
        if sums is None:
            continue
        real, imaginary, squares, length = sums
        room = 2 ** (exponent - 1) + fraction + 4  # to numbers that are 0, and infinite
        unit = (rng.randrange(-room, room) * (2 if op == "std" else 1) - length) // 2
        limbs = pointers_to([limbs_of(rng, each) for each in (real, imaginary, squares)])
        above = (n * squares - real**2 - imaginary**2) * Fraction(4) ** unit
        context = f"{op} {name} n={n} free={free} {sums} unit={unit} GPR_TEST_SEED={SEED}"
        found, bits, n_there = Found(), ctypes.c_uint64(), ctypes.c_uint64(n)
        if intervals.numerator(limbs, COUNT, unit, n_there, ctypes.byref(found)):
            assert found.holds(above), context
        ddof = ctypes.c_double(n - free)
        if not getattr(intervals, f"{op}_{name}")(
            limbs, COUNT, unit, n_there, ddof, ctypes.byref(bits)
        ):
            unsure += 1
            continue
        sure += 1
        variance = above / (n * free)
        with np.errstate(over="ignore"):
            wanted = (root_to if op == "std" and variance else round_to)(variance, name)
        expected = np.asarray(wanted).tobytes()
        assert bits.value.to_bytes(8, "little") == expected.ljust(8, b"\0"), context
    assert min(sure, unsure) > EXAMPLES // 20, (sure, unsure)


def test_what_does_not_suit_is_left_to_all_limbs(intervals: ctypes.CDLL) -> None:
    numbers = [(ctypes.c_int * COUNT)(first) for first in (1, 0, 1)]
    limbs = pointers_to(numbers)
    bits = ctypes.c_uint64()

    def is_sure(n: int, ddof: float) -> bool:
        return bool(
            intervals.var_float64(
                limbs, COUNT, 0, ctypes.c_uint64(n), ctypes.c_double(ddof), ctypes.byref(bits)
            )
        )

    assert is_sure(3, 1)
    assert bits.value == np.float64(1 / 3).view(np.uint64)
    assert is_sure(2**32 - 1, 0)
    assert is_sure(3, -(2.0**31) + 1)
    for n, ddof in ((0, 0), (0, -1), (2**32, 1), (2**32 - 1, -1), (2**40, 0)):
        assert not is_sure(n, ddof), (n, ddof)
    for ddof in (0.5, 3, 4, 2.0**31, -(2.0**31), 1e300, -1e300, np.inf, -np.inf, np.nan, 5e-324):
        assert not is_sure(3, ddof), ddof
