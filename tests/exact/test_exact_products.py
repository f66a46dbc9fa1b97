"""Products and squares are summed exactly, in `dot`, `var` and `std`, beside Python's integers.

The reference (exact_reference.py) multiplies integers and divides fractions; nothing of it computes
with floats. What rounding hides of a dot product is found too: what is known of the sum is taken
away, and the rest summed again.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")

import emu
import emu.exact_layouts
import emu.exact_products
import emu.exact_variances
import emu.layouts
from draws import EVERYTHING, SEED, some
from emu.exact_products import DDOFS, check_all_bits, dot_there, pairs_of, vary_there
from emu.exact_sums import draw
from exact_reference import (
    FLOATS,
    FORMATS,
    GENERATORS,
    INTEGERS,
    assert_result,
    dot_total,
    expected_dot,
    expected_variance,
    finite_bits,
    finite_max,
    from_bits,
    root_to,
    round_to,
    spread,
)
from reference import DTYPES, random_array

import gpureduce as gr
from gpureduce import _core

SMALLEST = 2.0**-1074
COMPLEX = ("complex64", "complex128")


def dot_here(x: Any, y: Any) -> Any:
    return gr.dot(x, y, device="cpu")


def vary(values: Any, ddof: float = 0, root: bool = False, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (gr.std if root else gr.var)(
            values, ddof=ddof, kernel="exact", device="cpu", **options
        )


def complex_of(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    return np.stack([real, imaginary], axis=-1).view(f"c{2 * real.itemsize}")[..., 0]


# ---------------------------------------------------------------- the reference


def test_the_reference_is_what_python_computes(rng: np.random.Generator) -> None:
    for name in FLOATS:
        x, y = finite_bits(rng, name, 40), finite_bits(rng, name, 40)
        wanted = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True))
        assert dot_total(x, y) == wanted
        mean = sum(Fraction(float(a)) for a in x) / 40
        variance = sum((Fraction(float(a)) - mean) ** 2 for a in x) / 37
        assert_result(expected_variance([x], name, 3), round_to(variance, name))
    for _ in range(300):
        a, b = (int(x) for x in rng.integers(1, 2**62, 2))
        square = Fraction(a, b) * Fraction(2) ** int(rng.integers(-2200, 2000))
        for name in FLOATS:
            root = root_to(square, name)
            if not 0 < root < math.inf or Fraction(float(root)) == Fraction(
                float(finite_max(name))
            ):
                continue
            number = Fraction(float(root))
            low, high = (
                (number + Fraction(float(np.nextafter(root, DTYPES[name].type(to))))) / 2
                if name != "bfloat16"
                else (number + Fraction(float(from_bits(int(root.view(np.uint16)) + step, name))))
                / 2
                for to, step in ((-math.inf, -1), (math.inf, 1))
            )
            assert low**2 <= square <= high**2, (square, name)


# ---------------------------------------------------------------- dot


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("n", [3, 200, 3_000])
def test_sums_of_products_of_hard_arrays_are_rounded_once(
    name: str, n: int, isa: str, rng: np.random.Generator
) -> None:
    pairs = list(enumerate(pairs_of(rng, name, n)))
    for number, (x, y) in some(pairs, 1 / 2, f"products {name} {n} {isa}"):
        context = f"pair {number} n={n} {isa} GPR_TEST_SEED={SEED}"
        check_all_bits(dot_here, x, y, context)


@pytest.mark.parametrize("name", FLOATS)
def test_products_at_every_exponent_are_exact(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    """Products that under- and overflow the type, and doubles, and all bins between."""
    fraction, exponent = FORMATS[name]
    fields = np.arange(2**exponent - 1, dtype=np.uint64)
    pairs = [rng.choice(fields, 2) for _ in range(60 if exponent < 9 else 25)]
    if name == "float64":  # around where the rest of a product, a product, and their sums end
        for product in (-1074, -1022, -967, 1023):
            for _ in range(8):
                total = product + 2 * 1023 + int(rng.integers(-60, 61))
                one = int(rng.integers(max(total - 2046, 0), min(total, 2046) + 1))
                pairs.append(np.array([one, total - one], np.uint64))
    for picked in pairs:
        x, y = (
            from_bits(
                rng.integers(0, 2**fraction, 300, dtype=np.uint64)
                | field << np.uint64(fraction)
                | rng.integers(0, 2, 300, dtype=np.uint64) << np.uint64(fraction + exponent),
                name,
            )
            for field in picked
        )
        check_all_bits(dot_here, x, y, f"fields {picked} {isa} {SEED}")


@pytest.mark.parametrize("name", FLOATS)
def test_midpoints_of_products_go_to_even_and_the_smallest_product_decides(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    fraction, _ = FORMATS[name]
    kind = DTYPES[name].type
    smallest = from_bits([1], name)[0]
    for _ in range(40 if EVERYTHING else 20):
        number = kind(abs(float(spread(rng, name, 1, 1)[0])) + 0.5)
        half = kind(2.0 ** (math.frexp(float(number))[1] - 1 - fraction - 1))
        for tail in (-1, 0, 1):
            for sign in (1, -1):
                filler = spread(rng, name, 200, 2)
                x = np.concatenate([[number, half, smallest], filler, filler]).astype(DTYPES[name])
                y = np.concatenate(
                    [[sign, sign, tail * sign * smallest], filler[::-1], -filler[::-1]]
                )
                y = y.astype(DTYPES[name])
                got = gr.dot(x, y)
                assert_result(
                    got, expected_dot([(x, y)], name), f"{number} {tail} {sign} {isa} {SEED}"
                )
                odd = int(np.asarray(number).tobytes()[0]) & 1
                assert (abs(got) > number) == (tail > 0 or (tail == 0 and odd == 1)), (
                    number,
                    tail,
                    SEED,
                )


def test_products_neither_overflow_nor_underflow_on_the_way() -> None:
    largest = float(np.finfo(np.float64).max)
    assert gr.dot([1e300, 1e300, 1.0], [1e300, -1e300, 2.0]) == 2
    assert gr.dot([largest, largest], [largest, -largest]) == 0
    assert gr.dot([SMALLEST, 2.0**1000], [2.0**500, SMALLEST]) == 2.0**-574 + 2.0**-74
    assert gr.dot([2.0**-600] * 4, [2.0**-600] * 4) == 0  # 2^-1198
    assert gr.dot([2.0**-538] * 4, [2.0**-538] * 4) == 2.0**-1074
    assert gr.dot([2.0**-538] * 2, [2.0**-538] * 2) == 0  # a tie, to even
    assert gr.dot([2.0**-538, 2.0**-538, SMALLEST], [2.0**-538, 2.0**-538, SMALLEST]) == SMALLEST
    assert gr.dot([largest, 2.0**969], [1.0, 1.0]) == largest
    assert gr.dot([largest, 2.0**970], [1.0, 1.0]) == math.inf
    assert gr.dot([largest, 2.0**970, SMALLEST], [1.0, 1.0, -SMALLEST]) == largest
    assert gr.dot(np.float32([3e38, 3e38]), np.float32([3e38, -3e38])) == 0


def test_infinities_nan_and_zeros_of_products_count_as_in_ieee_arithmetic() -> None:
    numbers = [math.inf, -math.inf, math.nan, 2.0, -3.0, 0.0, -0.0]
    for name in FLOATS:
        kind = DTYPES[name]
        for a in numbers:
            for b in numbers:
                for c, d in ((1.0, 1.0), (math.inf, 1.0), (-0.0, 1.0), (-0.0, math.inf)):
                    x, y = np.array([a, c], kind), np.array([b, d], kind)
                    with np.errstate(invalid="ignore"):
                        wanted = a * b + c * d
                    got = gr.dot(x, y)
                    assert_result(got, expected_dot([(x, y)], name), (a, b, c, d))
                    assert str(float(got)) == str(wanted), (a, b, c, d, name)
    long = np.full(1000, -0.0)
    assert str(gr.dot(long, np.ones(1000))) == "-0.0"
    assert str(gr.dot(long, -np.ones(1000))) == "0.0"
    assert str(gr.dot(np.append(long, 0.0), np.ones(1001))) == "0.0"
    assert str(gr.dot([-SMALLEST], [SMALLEST])) == "-0.0"  # a sum below zero, rounded
    assert str(gr.dot([-SMALLEST, 0.0], [SMALLEST, 1.0])) == "-0.0"


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_parts_of_complex_products_are_exact_each(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    real = {"complex64": "float32", "complex128": "float64"}[name]
    for n in (1, 5, 700, 3_000):
        a, b, c, d = (draw(rng, real, n) for _ in range(4))
        got = gr.dot(complex_of(a, b), complex_of(c, d))
        assert got.dtype == name
        assert_result(got.real, expected_dot([(a, c), (-b, d)], real), f"{n} {isa} {SEED}")
        assert_result(got.imag, expected_dot([(a, d), (b, c)], real), f"{n} {isa} {SEED}")
    x, y = np.array([1 + 2j, 3 - 1j], name), np.array([2 - 1j, 1j], name)
    assert gr.dot(x, y) == np.dot(x, y)
    assert np.array_equal(x, np.array([1 + 2j, 3 - 1j], name))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_and_bool_is_logical_as_numpys(name: str, rng: np.random.Generator) -> None:
    for n in (0, 1, 1000, 30_000):
        x, y = (random_array(rng, DTYPES[name], n, "sum") for _ in range(2))
        got, wanted = gr.dot(x, y), np.dot(x, y)
        assert (type(got), got) == (type(wanted), wanted), (n, SEED)
        assert_result(gr.dot(x, y, dtype=np.float32), expected_dot([(x, y)], "float32"))
        assert gr.dot(x, y, dtype=np.int64) == np.dot(x.astype(np.int64), y.astype(np.int64))
    if name != "bool":
        info = np.iinfo(name)
        for low, high in ((info.min, info.max), (info.min, info.min), (info.max, info.max)):
            x, y = np.full(5000, low, name), np.full(5000, high, name)
            assert_result(
                gr.dot(x, y, dtype=float), round_to(Fraction(5000 * low * high), "float64")
            )
            n = 70_001  # more than 32 bits hold products of bytes
            x, y = (rng.choice(np.array([low, high], name), n) for _ in range(2))
            for swapped in (x, x.astype(x.dtype.newbyteorder("S"))):
                assert gr.dot(swapped, y) == np.dot(x, y), (low, high, SEED)
    assert gr.dot([True, False], [False, True]) is np.False_ or not gr.dot(
        [True, False], [False, True]
    )
    assert gr.dot(np.ones(256, bool), np.ones(256, bool)) == np.True_


@pytest.mark.parametrize("result", [*FLOATS, "complex64", "complex128"])
@pytest.mark.parametrize("name", FLOATS)
def test_a_dot_of_another_type_is_rounded_once(
    name: str, result: str, rng: np.random.Generator
) -> None:
    x, y = draw(rng, name, 400), draw(rng, name, 400)
    dtype = np.dtype(result) if result.startswith("c") else DTYPES[result]
    real = {"complex64": "float32", "complex128": "float64"}.get(result, result)
    got = gr.dot(x, y, dtype=dtype)
    assert got.dtype == dtype
    assert_result(got.real if result.startswith("c") else got, expected_dot([(x, y)], real))
    assert np.imag(got) == 0 or not result.startswith("c")


def test_factors_of_two_types_are_converted_to_their_common_one_as_numpy_does(
    rng: np.random.Generator,
) -> None:
    names = [name for name in DTYPES if name != "bfloat16"]
    for one in [*names, "complex64"]:
        for other in [*names, "complex128"]:
            x = (10 * rng.random(600)).astype(one)
            y = (10 * rng.random(600)).astype(other)
            common = np.promote_types(x.dtype, y.dtype)
            got = gr.dot(x, y)
            assert got.dtype == common == np.dot(x, y).dtype
            assert got == gr.dot(x.astype(common), y.astype(common)), (one, other)
    assert (
        gr.dot(
            np.array([1, 2, 3], np.float32),
            DTYPES["bfloat16"].type(2) * np.ones(3, DTYPES["bfloat16"]),
        )
        == 12
    )


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex128", "int16", "int64"])
def test_factors_of_any_layout_are_read_in_their_order(name: str, rng: np.random.Generator) -> None:
    n = 5_003
    x, y = ((rng.integers(-2, 3, 3 * n)).astype(name) for _ in range(2))  # float16 holds their sums
    wanted = {step: np.dot(x[::step][:n], y[:n]) for step in (1, 2, 3, -1, -3)}
    for step, value in wanted.items():
        assert gr.dot(x[::step][:n], y[:n]) == value, (step, SEED)
        assert gr.dot(y[:n], x[::step][:n]) == value
    assert gr.dot(x[::-1], y[::-1]) == gr.dot(x, y) == np.dot(x, y)
    assert gr.dot(np.broadcast_to(x[:1], n), y[:n]) == np.dot(np.broadcast_to(x[:1], n), y[:n])
    swapped = x.astype(x.dtype.newbyteorder())
    assert (
        gr.dot(swapped, y)
        == gr.dot(y, swapped)
        == gr.dot(swapped, swapped.copy() * 0 + y)
        == np.dot(x, y)
    )
    assert gr.dot(swapped, swapped).dtype == x.dtype
    raw = bytearray(x.nbytes + 1)
    unaligned = np.frombuffer(raw, x.dtype, x.size, 1)
    unaligned[:] = x
    assert gr.dot(unaligned, y) == np.dot(x, y)
    matrix = x[: 50 * 60].reshape(50, 60)
    assert gr.dot(matrix[:, 7], y[:50]) == np.dot(matrix[:, 7], y[:50])
    read_only = x.copy()
    read_only.flags.writeable = False
    assert gr.dot(read_only, list(y)) == np.dot(x, y)


@pytest.mark.parametrize(
    "name", some(["float32", "float64", "int64", "complex64"], 1 / 2, "threads of products")
)
def test_the_number_of_threads_changes_no_bit_of_dot_and_variances(
    name: str, rng: np.random.Generator
) -> None:
    n = 700_017
    if name == "int64":
        x, y = (rng.integers(-(2**62), 2**62, n) for _ in range(2))
    elif name == "complex64":
        x, y = (
            complex_of(draw(rng, "float32", n), finite_bits(rng, "float32", n)) for _ in range(2)
        )
    else:
        x, y = finite_bits(rng, name, n), draw(rng, name, n)
    before = gr.limits().cpu_threads
    found = set()
    try:
        for threads in (1, 2, 5):
            gr.set_limits(cpu_threads=threads)
            found.add(
                (gr.dot(x, y).tobytes(), vary(x).tobytes(), vary(x, root=True, axis=0).tobytes())
            )
    finally:
        gr.set_limits(cpu_threads=before)
    assert len(found) == 1
    if name in FLOATS:
        assert found.pop()[0] == expected_dot([(x, y)], name).tobytes()


def test_mistakes_raise_what_numpy_raises() -> None:
    for x, y in (((3,), (4,)), ((0,), (1,))):
        with pytest.raises(ValueError, match="aligned") as theirs:
            np.dot(np.ones(x), np.ones(y))
        with pytest.raises(ValueError, match="aligned") as ours:
            gr.dot(np.ones(x), np.ones(y))
        assert str(ours.value) == str(theirs.value)
    for x, y in (([1, 2], 3), (3, [1, 2])):
        with pytest.raises(ValueError, match=r"numpy\.multiply"):
            gr.dot(x, y)
    for x, y in (([[1]], [1]), ([1], [[1]]), (np.ones((2, 2)), np.ones((2, 2)))):
        with pytest.raises(ValueError, match=r"not of \d and \d: numpy\.matmul"):
            gr.dot(x, y)
    for x, y in (([1, "a"], [1, 2]), ([None], [1]), (np.ones(1, "m8[s]"), np.ones(1, "m8[s]")),
                 (np.ones(1, np.longdouble), np.ones(1))):  # fmt: skip
        with pytest.raises(TypeError):
            gr.dot(x, y)
    halves = [np.ones(1, DTYPES["bfloat16"]), np.ones(1, np.float16)]
    try:
        common = np.result_type(*halves)
    except TypeError:  # ml_dtypes before 0.7
        with pytest.raises(TypeError):
            gr.dot(*halves)
    else:
        assert gr.dot(*halves).dtype == common
    with pytest.raises(TypeError, match=r"masked arrays are not supported: pass a\.filled\(0\)"):
        gr.dot(np.ma.masked_array([1.0]), [1.0])
    for dtype, values in ((float, [1j]), (int, [1.0]), (bool, [1]), (np.int8, [1.5])):
        with pytest.raises(TypeError, match=r"dot does not make a sum of products of .* one of"):
            gr.dot(values, values, dtype=dtype)
    with pytest.raises(TypeError):
        gr.dot([1.0], [1.0], dtype="m8[s]")
    with pytest.raises(TypeError, match="byte order"):
        gr.dot([1.0], [1.0], dtype=np.dtype(np.float32).newbyteorder())
    with pytest.raises(TypeError):
        gr.dot([1.0], [1.0], np.empty(()))  # no out


def test_kernels_that_have_no_dot_are_refused_by_name() -> None:
    for kernel in ("auto", "exact"):
        for device in ("cpu", "auto"):
            assert gr.dot([1.5], [2.0], kernel=kernel, device=device) == 3
    with pytest.raises(ValueError, match="kernel 'shfl_atomic' has no dot: 'exact' does"):
        gr.dot([1.0], [1.0], kernel="warp_atomic")
    with pytest.raises(ValueError, match="unknown kernel 'exakt'"):
        gr.dot([1.0], [1.0], kernel="exakt")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        gr.dot([1.0], [1.0], device="gpu")
    with pytest.raises(ValueError, match="multiple of 32"):
        gr.dot([1.0], [1.0], device="cpu", block_size=33)
    with pytest.raises(ValueError, match="grid_size"):
        gr.dot([1.0], [1.0], device="cpu", grid_size=-1)
    with pytest.raises(TypeError, match="stream must be"):
        gr.dot([1.0], [1.0], device="cpu", stream="s")
    assert gr.dot([1.5], [2.0], device="cpu", block_size=64, grid_size=3) == 3


def test_without_a_gpu_the_cpu_answers_for_exact_and_has_no_warning() -> None:
    """In a process of its own, whose driver is not there."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(NO_DEVICE)],
        env={**os.environ, "GPUREDUCE_LIBCUDA": "/nonexistent/libcuda.so"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not done.stderr


NO_DEVICE = """
import gpureduce as gr

assert gr.dot([1.5], [2.0]) == 3
assert gr.dot([1.5], [2.0], kernel="exact") == gr.dot([1.5], [2.0], kernel="exact") == 3
assert gr.var([1.0, 3.0], kernel="exact") == 1
for call in (lambda: gr.dot([1.0], [1.0], device="cuda"),
             lambda: gr.var([1.0], kernel="exact", device="cuda:1")):
    try:
        call()
        raise SystemExit("there is a device")
    except gr.DeviceUnavailableError:
        pass
print("done")
"""


def test_no_reference_is_leaked_by_a_dot() -> None:
    x, dtype = np.ones(100, np.float32), np.dtype(np.float64)
    options = ("auto", "cpu", None, None, None)

    def every_path() -> None:
        gr.dot(x, x, dtype=dtype, device="cpu")
        gr.dot(x, x.astype(">f8"), device="cpu")
        for bad in ({"dtype": "O"}, {"dtype": int}, {"dtype": ">f4"}, {"kernel": "?"},
                    {"kernel": "cub"}, {"device": "?"}, {"device": 3}, {"block_size": 1},
                    {"grid_size": "1"}, {"stream": -1}):  # fmt: skip
            with pytest.raises((ValueError, TypeError)):
                gr.dot(x, x, **{"device": "cpu", **bad})  # type: ignore[call-overload]
        for wrong in ((x, x[:3]), (x.reshape(10, 10), x)):
            with pytest.raises((ValueError, TypeError)):
                _core.dot(*wrong, dtype, None, *options)
        with pytest.raises(TypeError, match="common dtype"):
            _core.dot(x, x, None, None, *options)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            _core.dot(x.astype("O"), x, dtype, None, *options)
        with pytest.raises(TypeError):
            _core.dot(x, x, np.dtype("O"), None, *options)

    every_path()
    counts = [sys.getrefcount(one) for one in (x, dtype, x.dtype)]
    for _ in range(200):
        every_path()
    after = [sys.getrefcount(one) for one in (x, dtype, x.dtype)]
    assert all(abs(a - b) < 100 for a, b in zip(counts, after, strict=True)), (counts, after)


def test_scalars_and_empty_arrays_and_the_last_run() -> None:
    assert gr.dot(3, 4.5) == 13.5
    assert gr.dot(np.float32(3), np.array(4, np.int8)).dtype == np.float32
    for name in (*DTYPES, "complex64"):
        empty = np.zeros(0, DTYPES.get(name, np.dtype(name) if name == "complex64" else None))
        got = gr.dot(empty, empty)
        assert got == 0
        assert got.dtype == empty.dtype
        assert not np.signbit(np.real(got)) if empty.dtype.kind in "fc" else True
    x = np.ones(1000, np.float32)
    gr.dot(x, x.astype(float), device="cpu")
    run = gr.last_run()
    assert run is not None
    assert (run.kernel, run.device, run.elements, run.bytes) == ("exact", "cpu", 1000, 12_000)


# ---------------------------------------------------------------- variances


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("n", [1, 2, 3, 200, 3_000])
def test_variances_of_hard_arrays_are_rounded_once(
    name: str, n: int, isa: str, rng: np.random.Generator
) -> None:
    for make in some(GENERATORS, 1 / 2, f"variances {name} {n} {isa}"):
        with np.errstate(all="ignore"):
            values = np.ascontiguousarray(make(rng, name, max(n, 3))[:n])
        for ddof in (0, 1, float(rng.choice(DDOFS)), float(rng.normal())):
            for root in (False, True):
                wanted = expected_variance([values], name, ddof, root)
                context = f"{make} n={n} ddof={ddof} root={root} {isa} GPR_TEST_SEED={SEED}"
                assert_result(vary(values, ddof, root), wanted, context)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("name", FLOATS)
def test_variances_at_every_exponent_are_exact(
    name: str, root: bool, isa: str, rng: np.random.Generator
) -> None:
    fraction, exponent = FORMATS[name]
    for field in range(0, 2**exponent - 1, 1 if exponent < 9 else 29):
        bits = rng.integers(0, 2**fraction, 200, dtype=np.uint64) | np.uint64(field << fraction)
        values = from_bits(bits, name)
        assert_result(
            vary(values, 1, root),
            expected_variance([values], name, 1, root),
            f"{field} {isa} {SEED}",
        )


@pytest.mark.parametrize("name", FLOATS)
def test_variances_on_midpoints_and_beside_them(name: str, rng: np.random.Generator) -> None:
    fraction, _ = FORMATS[name]
    for _ in range(300):
        whole = int(rng.integers(2**fraction, 2 ** (fraction + 1))) | 1
        scale = 2.0 ** int(rng.integers(-3, 3))
        if (
            name != "float64"
        ):  # the root of the variance of [x, -x] is x: one bit more than the type has, or near that
            x = (2 * whole + 1) * scale
            values = np.array([x, int(rng.integers(-1, 2)) * np.spacing(x) - x])
            for root in (False, True):
                wanted = expected_variance([values], name, 0, root)
                assert_result(vary(values, root=root, dtype=DTYPES[name]), wanted, (values, SEED))
        # Quotients of 16, 8 and 4: the numerator's own bits are rounded.
        values = np.array([0, 0, 0, whole * scale / 2 ** (fraction // 2)], DTYPES[name])
        for ddof in (0, 2, 3):
            for root in (False, True):
                assert_result(
                    vary(values, ddof, root),
                    expected_variance([values], name, ddof, root),
                    (values, SEED),
                )
    for _ in range(100):
        x, y = (int(rng.integers(1, 2**30)) for _ in range(2))
        values = np.array([x, -x, y, -y])
        assert_result(vary(values, 2), expected_variance([values], "float64", 2), (values, SEED))


def test_ties_of_variances_go_to_even_and_roots_are_told_from_ties() -> None:
    # [x, -x] has the variance x^2: (2^27 + 1)^2 = 2^54 + 2^28 + 1 lies halfway between two float64
    # numbers.
    for x in (2**27 + 1, 2**27 + 3, 2**28 - 1):
        for ddof, divisor in ((0, 1), (1, Fraction(1, 2))):
            values = np.array([x, -x])
            assert_result(vary(values, ddof), round_to(Fraction(x * x) / divisor, "float64"))
        assert vary(values, root=True) == x
    # 2^53 + 1 is a tie; only the last bits of squares distinguish it from its neighbours.
    x = 2**53 + 1
    values = np.array([x, -x])
    assert vary(values, root=True) == 2**53
    for last, wanted in ((-1, 2**53), (0, 2**53), (1, 2**53 + 2)):
        beside = np.array([x, -x, 0, 0]) + np.array([0, 0, last, -last])
        scaled = np.concatenate([beside[:2], [0, 0]])
        assert_result(vary(beside, 2, True), expected_variance([beside], "float64", 2, True))
        assert_result(vary(scaled, 2, True), expected_variance([scaled], "float64", 2, True))
        if last >= 0:
            assert vary(beside, 2, True) == wanted
    half = np.array([2.0**-24 + 1, -1 - 2.0**-24])  # a tie of float32
    assert vary(half, root=True, dtype=np.float32) == np.float32(1)
    assert vary(
        np.append(half, [2.0**-500, -(2.0**-500)]), 2, True, dtype=np.float32
    ) == np.float32(1 + 2.0**-23)


def test_variances_neither_overflow_nor_underflow_on_the_way() -> None:
    largest = float(np.finfo(np.float64).max)
    assert vary([1e300, -1e300]) == math.inf
    assert vary([1e300, -1e300], root=True) == 1e300
    assert vary([largest, -largest], root=True) == largest
    assert vary([largest, largest]) == 0
    assert vary([1e154, -1e154], dtype=np.float64) == 1e154**2
    # Half of the smallest number: to even.
    assert vary([0.0, SMALLEST, SMALLEST, 0.0], root=True) == 0
    assert vary([SMALLEST, -SMALLEST], root=True) == SMALLEST
    assert vary([SMALLEST, -SMALLEST]) == 0
    assert vary([2.0**-537, -(2.0**-537)]) == SMALLEST
    assert vary(np.float16([65504, -65504]), root=True) == 65504
    assert vary(np.float16([300, -300])) == math.inf
    assert vary(np.array([2.0**52 + 1, 2.0**52, 2.0**52 - 1])) == 2 / 3


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_variances_are_real_and_rounded_once(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    real = {"complex64": "float32", "complex128": "float64"}[name]
    for n in (1, 3, 700, 3_000):
        a, b = draw(rng, real, n), draw(rng, real, n)
        for root in (False, True):
            wanted = expected_variance([a, b], real, 1, root)
            assert_result(vary(complex_of(a, b), 1, root), wanted, f"{n} {isa} {SEED}")
    a, b = spread(rng, real, 500, 1), spread(rng, real, 500, 1)
    values = complex_of(a, b)
    values[7] = complex(np.nan, 1)
    values[9] = complex(1, np.nan)
    kept = ~np.isnan(values)
    got = gr.nanvar(values, kernel="exact", device="cpu")
    assert_result(got, expected_variance([a[kept], b[kept]], real))
    assert vary(values[kept], dtype=np.complex64).dtype == np.complex64


@pytest.mark.parametrize("name", INTEGERS)
def test_variances_of_integers_are_rounded_once(name: str, rng: np.random.Generator) -> None:
    for n in (1, 2, 1000, 30_000):
        values = random_array(rng, DTYPES[name], n, "sum")
        for result in ("float64", "float32"):
            for ddof, root in ((0, False), (1, False), (0.5, True)):
                got = vary(values, ddof, root, dtype=DTYPES[result])
                assert_result(
                    got, expected_variance([values], result, ddof, root), (n, result, ddof, SEED)
                )
    if name not in ("bool", "uint64"):
        info = np.iinfo(name)
        values = np.array([info.min, info.max] * 400, name)
        assert_result(vary(values), expected_variance([values], "float64"))


@pytest.mark.parametrize("name", [*FLOATS, "int32"])
def test_variances_of_rows_of_any_layout(name: str, rng: np.random.Generator) -> None:
    for shape, axis in (
        ((6, 700), 1),
        ((700, 6), 0),
        ((5, 40, 3), (0, 2)),
        ((3, 20_000), 1),
        ((40, 30), None),
    ):
        size = int(np.prod(shape))
        values = (
            draw(rng, name, size)
            if name in FLOATS
            else rng.integers(-(2**31), 2**31, size).astype(np.int32)
        )
        values = values.reshape(shape)
        axes = range(values.ndim) if axis is None else np.atleast_1d(axis)
        rows = np.moveaxis(values, tuple(axes), tuple(range(-len(axes), 0)))
        rows = rows.reshape(-1, int(np.prod(rows.shape[values.ndim - len(axes) :])))
        result = name if name in FLOATS else "float64"
        wanted = np.array(
            [expected_variance([np.ascontiguousarray(row)], result, 1) for row in rows]
        )
        kept = vary(values, 1, axis=axis, keepdims=True)
        assert kept.shape == np.sum(np.ones(shape), axis, keepdims=True).shape
        out = np.empty(kept.shape, DTYPES[result])
        assert vary(values, 1, axis=axis, keepdims=True, out=out) is out
        reverse = tuple([slice(None, None, -1)] * values.ndim)
        swapped = values.astype(values.dtype.newbyteorder())
        columns = np.asfortranarray(values)
        for got in (vary(values, 1, axis=axis), kept, out, vary(columns, 1, axis=axis),
                    np.flip(vary(values[reverse], 1, axis=axis)),
                    *([] if name == "bfloat16" else [vary(swapped, 1, axis=axis)])):  # fmt: skip
            for one, other in zip(np.ravel(got), wanted, strict=True):
                assert_result(one, other, (shape, axis, SEED))


@pytest.mark.parametrize("name", FLOATS)
def test_masks_and_nan_leave_elements_out_of_variances(name: str, rng: np.random.Generator) -> None:
    for n in (40, 5_000):
        values = spread(rng, name, n, 20)
        kept = rng.random(n) < 0.5
        kept[:2] = True
        for root in (False, True):
            assert_result(
                vary(values, 1, root, where=kept), expected_variance([values[kept]], name, 1, root)
            )
        values[rng.integers(2, n, 3)] = DTYPES[name].type(np.nan)
        numbers = values == values
        for function, root in ((gr.nanvar, False), (gr.nanstd, True)):
            got = function(values, kernel="exact", device="cpu", ddof=0.5)
            assert_result(got, expected_variance([values[numbers]], name, 0.5, root))
            got = function(values, kernel="exact", device="cpu", where=kept)
            assert_result(got, expected_variance([values[numbers & kept]], name, 0, root))


A = np.arange(12.0).reshape(3, 4) ** 2
NAN = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan], [5.0, 6.0, np.inf]])
CALLS: dict[str, Any] = {
    "plain": lambda f: f("var", A),
    "axis": lambda f: f("std", A, axis=0),
    "negative axis": lambda f: f("var", A, axis=(-1,)),
    "no axes": lambda f: f("var", A, axis=()),
    "keepdims": lambda f: f("std", A, axis=1, keepdims=True),
    "correction": lambda f: f("var", A, axis=1, correction=1),
    "both": lambda f: f("var", A, ddof=1, correction=1),
    "ddof that leaves nothing": lambda f: f("var", A, axis=1, ddof=4),
    "ddof beyond": lambda f: f("std", A, axis=0, ddof=5),
    "ddof of equal elements": lambda f: f("var", np.ones(3), ddof=3),
    "text as ddof": lambda f: f("var", A, ddof="1"),
    "empty": lambda f: f("var", []),
    "empty rows": lambda f: f("std", np.ones((3, 0)), axis=1),
    "no rows": lambda f: f("var", np.ones((0, 3)), axis=1),
    "nothing kept": lambda f: f("var", A, where=False),
    "some rows kept": lambda f: f("std", A, axis=1, where=[[True], [False], [True]]),
    "negative ddof of nothing": lambda f: f("var", A, where=False, ddof=-1),
    "infinite": lambda f: f("var", [1.0, np.inf]),
    "nan": lambda f: f("std", NAN, axis=1),
    "nanvar": lambda f: f("nanvar", NAN, axis=1),
    "nanstd": lambda f: f("nanstd", NAN, axis=0, ddof=1),
    "nanvar of nothing": lambda f: f("nanvar", NAN[1]),
    "nanvar of nothing, where": lambda f: f("nanvar", NAN, axis=1, where=[[True], [True], [False]]),
    "nanstd keepdims": lambda f: f("nanstd", NAN, keepdims=True),
    "integers": lambda f: f("var", np.arange(5, dtype=np.int8)),
    "bool": lambda f: f("std", [True, False, True, True]),
    "out": lambda f: f("var", A, axis=1, out=np.empty(3, np.float32)),
    "out of std": lambda f: f("std", A, axis=1, out=np.empty(3)),
    "out of the wrong shape": lambda f: f("var", A, axis=1, out=np.empty(4)),
    "read-only out": lambda f: f("var", A, out=np.broadcast_to(np.empty(()), ())),
    "integer out of std": lambda f: f("std", A, axis=1, out=np.empty(3, int)),
    "dtype": lambda f: f("var", A, dtype=np.float32),
    "complex dtype": lambda f: f("std", A, dtype=np.complex64),
    "axis past the end": lambda f: f("var", A, axis=2),
    "twice an axis": lambda f: f("var", A, axis=(0, 0)),
    "scalar": lambda f: f("var", 2.5),
    "list": lambda f: f("std", [[1, 2], [3, 5]], axis=0),
    "matrix": lambda f: f("var", np.matrix(A), axis=0),
    "strings": lambda f: f("var", ["a"]),
    "mask that does not fit": lambda f: f("var", A, where=[True, False]),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_results_warnings_and_errors_are_those_of_numpy(what: str) -> None:
    def outcome(call: Any) -> tuple[Any, list[tuple[type, str]]]:
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
            warnings.simplefilter("always")
            try:
                result = CALLS[what](call)
            except (ValueError, TypeError) as error:
                result = error
        return result, [(one.category, str(one.message)) for one in caught]

    ours, our_warnings = outcome(
        lambda name, *a, **k: getattr(gr, name)(*a, **k, kernel="exact", device="cpu")
    )
    theirs, their_warnings = outcome(lambda name, *a, **k: getattr(np, name)(*a, **k))
    plain, _ = outcome(lambda name, *a, **k: getattr(gr, name)(*a, **k, device="cpu"))
    assert our_warnings == their_warnings
    if isinstance(theirs, Exception):
        assert (type(ours), str(ours)) == (type(plain), str(plain))
        assert isinstance(ours, type(theirs)) or isinstance(theirs, type(ours))
        return
    assert type(ours) is type(theirs)
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_out_of_a_standard_deviation_is_rounded_once() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.5], np.float32) / 7
    out = np.empty((), np.float32)
    assert_result(
        vary(values, root=True, out=out)[()], expected_variance([values], "float32", 0, True)
    )
    assert_result(out[()], expected_variance([values], "float32", 0, True))


def test_what_exact_variances_do_not_do_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mean= is not taken with kernel='exact'"):
        vary(A, mean=1.0)
    with pytest.raises(ValueError, match="ddof must be a number"):
        vary(A, math.nan)
    with pytest.raises(TypeError, match="float or complex type"):
        vary(A, dtype=int)
    with pytest.raises(TypeError, match="complex"):
        vary(A + 1j, dtype=float)


# ---------------------------------------------------------------- the emulator


@pytest.mark.long
def test_the_kernels_sources_give_every_bit_on_the_emulator() -> None:
    """Half of what there is for few dtypes in an ordinary run, drawn anew: kinds compile several
    programs each.
    """
    rng = np.random.default_rng(SEED)
    kinds = [*FLOATS, *COMPLEX, *INTEGERS]
    drawn = kinds if EVERYTHING else [str(rng.choice(kinds))]
    floats = FLOATS if EVERYTHING else (FLOATS[SEED % 4],)
    blocks = (32, 64, 256)
    tasks: list[dict[str, Any]] = [
        {
            "do": f"exact_products.{do}",
            "dtype": name,
            "block": int(block),
            "count": 40 if EVERYTHING else 4,
        }
        for do in ("check_dot", "check_variances")
        for name in floats
        for block in (blocks if EVERYTHING else rng.choice(blocks, 1))
    ]
    tasks += [
        {"do": "exact_products.check_edges", "dtype": name, "stride": 1 if EVERYTHING else 32}
        for name in floats
    ]
    tasks += [
        {
            "do": "exact_products.check_exponents",
            "dtype": name,
            "stride": 1 if EVERYTHING else FORMATS[name][1] ** 2,
        }
        for name in floats
    ]
    tasks += [
        {"do": f"exact_products.{do}", "dtype": name, "share": 1 if EVERYTHING else 5}
        for do in ("check_kinds", "check_variance_kinds")
        for name in drawn
    ]
    tasks = some(tasks, 1 / 2, "every bit of products")
    wrong = emu.failures([{**task, "seed": SEED, "limit": 600.0} for task in tasks])
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_the_kernels_sources_make_variances_of_every_layout_on_the_emulator() -> None:
    """Random axes, steps backwards and of 0, masks, gaps; rows whose last digits are seen. An
    ordinary run draws half of what there is for few dtypes.
    """
    kinds = [*FLOATS, *COMPLEX, *INTEGERS]
    floats = FLOATS if EVERYTHING else (FLOATS[SEED // 2 % 4],)
    drawn = [*floats, COMPLEX[SEED % 2], INTEGERS[SEED % len(INTEGERS)]]
    names = kinds if EVERYTHING else drawn
    tasks: list[dict[str, Any]] = [
        {
            "do": "exact_variances.check_layouts",
            "dtype": name,
            "block": (0, 64, 96, 32)[(SEED + i) % 4],
        }
        | {"count": 40 if EVERYTHING else 2}
        for i, name in enumerate(names)
    ]
    tasks += [{"do": "exact_variances.check_kinds", "dtype": name, "block": 64} for name in floats]
    tasks += [
        {"do": "exact_variances.check_limbs", "dtype": name, "stride": 1 if EVERYTHING else 32}
        for name in floats
    ]
    if EVERYTHING:  # half a minute
        tasks.append({"do": "exact_variances.check_slots"})
    tasks = some(tasks, 1 / 2, "every layout of variances")
    wrong = emu.failures([{**task, "seed": SEED, "limit": 900.0} for task in tasks])
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_leading_bits_determine_ordinary_variances_and_all_limbs_any(tmp_path: Path) -> None:
    """Each of the two ways is broken in turn: the other one gives what it should."""
    sources = _core.sources()
    intervals, digits = "exact_interval.cuh", "exact_variance.cuh"
    ways = {
        "neither": (intervals, "if (n == 0 ||", "if (n == 0 ||"),
        "first bits": (intervals, "if (n == 0 ||", "if (true ||"),  # that are never enough
        "all digits": (digits, "(squares.flags & saw_special) != 0) return nan", "true) return 1"),
    }
    for way, (file, old, new) in ways.items():
        (tmp_path / way).mkdir()
        assert sources[file].count(old) == 1
        (tmp_path / way / file).write_text(sources[file].replace(old, new))
    kinds = [*FLOATS, *COMPLEX, *INTEGERS]
    ordinary = (
        kinds if EVERYTHING else [FLOATS[SEED % 4], str(np.random.default_rng(SEED).choice(kinds))]
    )
    hard = [*FLOATS, *COMPLEX] if EVERYTHING else [[*FLOATS, *COMPLEX][SEED // 2 % 6]]
    tasks = [("check_ordinary", name, "all digits") for name in ordinary]
    tasks += [("check_intervals", name, way) for name in hard for way in ("neither", "first bits")]
    tasks = some(tasks, 1 / 2, "ways to a variance")
    wrong = emu.failures(
        {"do": f"exact_variances.{do}", "dtype": name, "seed": SEED, "limit": 600.0}
        | {"share": 1 if EVERYTHING else 2}
        | {"emulator": {"overlay": str(tmp_path / way)}}
        for do, name, way in tasks
    )
    assert not wrong, "\n".join(wrong)
    needed = {
        "do": "exact_variances.check_intervals",
        "dtype": "float32",
        "seed": SEED,
        "limit": 600.0,
    }
    assert "on the CPU" in emu.do({**needed, "emulator": {"overlay": str(tmp_path / "all digits")}})


@pytest.mark.long
def test_host_arrays_go_to_the_gpu_if_there_is_one_and_device_arrays_stay() -> None:
    task = {"do": "exact_products.check_devices", "seed": SEED, "limit": 300.0}
    wrong = emu.failures([task | {"share": 1 if EVERYTHING else 2}])
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- GPUs


@pytest.mark.gpu
@pytest.mark.parametrize("block", [32, 96, 256, 1024])
@pytest.mark.parametrize("name", FLOATS)
def test_a_gpu_gives_every_bit_of_dots_and_variances(
    name: str, block: int, rng: np.random.Generator
) -> None:
    for n in (1, 33, 2_047, 100_003, 2_000_017):
        pairs = pairs_of(rng, name, max(n, 3))
        for x, y in pairs if n < 10**5 else pairs[:: len(pairs) // 3]:
            x, y = x[:n], y[:n]
            offsets, grid = (int(rng.integers(3)), int(rng.integers(3))), int(rng.choice([0, 1, 7]))
            ddof, op = float(rng.choice(DDOFS)), str(rng.choice(["var", "std"]))
            context = f"n={n} block={block} grid={grid} {offsets} {op} {ddof} GPR_TEST_SEED={SEED}"
            check_all_bits(
                lambda a, b, o=offsets, g=grid: dot_there(a, b, o, block, g), x, y, context
            )
            got = vary_there(x, op, offsets[0], block, grid, ddof)
            assert_result(got, expected_variance([x], name, ddof, op == "std"), context)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FLOATS, *COMPLEX, *INTEGERS])
def test_a_gpu_and_the_cpu_agree_to_the_bit_on_products(
    name: str, rng: np.random.Generator
) -> None:
    """Every kind of array; and host arrays that are streamed in chunks."""
    del rng
    task = {"dtype": name, "seed": SEED, "long": 3_000_001}
    emu.exact_products.check_kinds(task, emulated=False)
    emu.exact_products.check_variance_kinds(task, emulated=False)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FLOATS, *COMPLEX, *INTEGERS])
def test_a_gpu_gives_every_bit_of_variances_of_every_layout(name: str) -> None:
    for number in range(60 if EVERYTHING else 20):
        rng = np.random.default_rng([SEED, number, *name.encode()])
        block = (0, 32, 96, 512, 1024)[number % 5]
        emu.exact_variances.check_random(
            rng, name, block, f"{name} case {number} GPR_TEST_SEED={SEED}"
        )


@pytest.mark.gpu
@pytest.mark.parametrize("name", FLOATS)
def test_a_gpu_gives_the_last_digits_of_variances(name: str) -> None:
    task = {"dtype": name, "seed": SEED, "stride": 1, "block": 256}
    emu.exact_variances.check_limbs(task, emulated=False)
    emu.exact_variances.check_kinds(task, emulated=False)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*FLOATS, *COMPLEX])
def test_a_gpu_reads_all_limbs_of_variances_where_leading_bits_do_not_determine_them(
    name: str,
) -> None:
    emu.exact_variances.check_intervals({"dtype": name, "seed": SEED}, emulated=False)
    emu.exact_variances.check_ordinary({"dtype": name, "seed": SEED}, emulated=False)


@pytest.mark.gpu
def test_variances_of_more_rows_than_scratch_has_room_for() -> None:
    emu.exact_variances.check_slots({"seed": SEED})


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "complex128", "int16"])
def test_a_gpu_makes_variances_of_large_arrays_of_any_layout(
    name: str, rng: np.random.Generator
) -> None:
    """As many elements as fill all bins of all blocks, of which the CPU gives the same bits."""
    cases = (
        ((1, 1_500_000), (0, 2)),
        ((3, 700_000), (1, 3)),
        ((3000, 501), (1, 3000)),
        ((200_000, 7), (-8, -1)),
    )
    for shape, strides in cases:
        array = emu.exact_layouts.place(rng, emu.exact_layouts.draw_elements, name, shape, strides)
        case = emu.layouts.Case(array, None, 1, 0, "exact", False, 1.0)
        emu.exact_variances.check_case(
            rng, name, case, "std", 0, f"large {name} GPR_TEST_SEED={SEED}"
        )


# ---------------------------------------------------------------- interrupts


INTERRUPTED = """
import os, signal, threading, time
import numpy as np
import gpureduce as gr

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
shape = (2**10,) * 4
x = np.lib.stride_tricks.as_strided(np.full(4096, 1e-300), shape, (8,) * 4)  # 2**40 elements
for call in (lambda: gr.vdot(x, x, device="cpu"), lambda: gr.var(x, kernel="exact", device="cpu")):
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    start = time.perf_counter()
    try:
        call()
        raise SystemExit("not interrupted")
    except KeyboardInterrupt:
        assert time.perf_counter() - start < 20
    timer.join()
assert gr.dot([1.0, 2.0], [3.0, 4.0]) == 11
assert gr.var([1.0, 3.0], kernel="exact", device="cpu") == 1
print("done")
"""


def test_ctrl_c_stops_a_dot_and_an_exact_variance() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_other_python_threads_run_meanwhile() -> None:
    x = np.ones(3_000_000)
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    deadline = time.monotonic() + 20
    try:
        while ticks < 5 and time.monotonic() < deadline:
            assert gr.dot(x, x) == x.size
    finally:
        stop.set()
        thread.join()
    assert ticks >= 5
