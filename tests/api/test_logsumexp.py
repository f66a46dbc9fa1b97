"""`logsumexp`: the real number to the error that its docstring states, on every path of the CPU.

The reference is Python's decimal arithmetic, with 50 digits.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpureduce as gr
from gpureduce import _core

EXACT = decimal.Context(prec=50, Emin=-999999, Emax=999999)
LEAST_TERM = -1000
"""exp of less is no digit of a double."""


def reference(elements: Any) -> Decimal | float:
    """The real number, or infinity or NaN."""
    x = [float(each) for each in np.asarray(elements, np.float64).ravel()]
    largest = math.nan if any(each != each for each in x) else max(x, default=-math.inf)
    if not math.isfinite(largest):
        return largest
    with decimal.localcontext(EXACT):
        top = Decimal(largest)
        others = [Decimal(each) - top for each in x]
        others.remove(0)
        rest = sum((each.exp() for each in others if each > LEAST_TERM), Decimal(0))
        # log1p by a series where 1 + rest would lose digits.
        small = rest - rest * rest / 2 + rest * rest * rest / 3
        return top + (small if rest < Decimal("1e-20") else (1 + rest).ln())


def check(found: Any, elements: Any, context: str) -> None:
    wanted, found = reference(elements), float(found)
    if isinstance(wanted, float):
        assert found == wanted or (found != found and wanted != wanted), (context, found, wanted)
        return
    n = max(1, np.size(elements))
    with decimal.localcontext(EXACT):
        error = abs(Decimal(found) - wanted) * 2**53
    assert error < 8 + 2 * math.log(n) + 2 * abs(float(wanted)), (context, found, wanted)


def draw(rng: np.random.Generator, n: int) -> Any:
    x = rng.normal(size=n) * 10.0 ** rng.integers(-3, 8) + rng.normal() * 10.0 ** rng.integers(
        -3, 7
    )
    way = rng.integers(8)
    if way == 0:
        x = np.sort(x)
    elif way == 1:
        x = np.round(x)
    elif way == 2:
        x = -np.abs(x) - math.log(n)
    elif way == 3:
        x *= 10.0 ** rng.integers(0, 290)
    elif way == 4:
        x[rng.random(n) < 0.2] = -np.inf
    elif way == 5 and rng.random() < 0.3:
        x[rng.integers(n)] = [np.inf, np.nan][rng.integers(2)]
    elif way == 6:
        x[:] = x[0]
    return x


def test_the_error_is_below_the_bound(isa: str, rng: np.random.Generator) -> None:
    for _ in range(60):
        x = draw(rng, int(rng.integers(1, 1500)))
        check(gr.logsumexp(x, device="cpu"), x, f"{isa} {x.size}")


def test_float32_is_rounded_once(isa: str, rng: np.random.Generator) -> None:
    for _ in range(40):
        x = draw(rng, int(rng.integers(1, 700))).clip(-1e30, 1e30).astype(np.float32)
        found, wanted = gr.logsumexp(x, device="cpu"), reference(x)
        assert found.dtype == np.float32
        if isinstance(wanted, float):
            np.testing.assert_equal(float(found), wanted)
            continue
        around = [np.nextafter(found, np.float32(side)) for side in (-np.inf, np.inf)]
        with decimal.localcontext(EXACT):
            error = abs(Decimal(float(found)) - wanted)
            step = max(abs(Decimal(float(each)) - Decimal(float(found))) for each in around)
            assert error <= step / 2 + Decimal(2) ** -34 * (1 + abs(wanted)), (isa, found, wanted)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=64), max_size=12))
def test_any_floats(x: list[float]) -> None:
    check(gr.logsumexp(np.array(x), device="cpu"), x, repr(x))


def test_special_values() -> None:
    inf, nan = math.inf, math.nan
    for x, wanted in (
        ([], -inf), ([-inf], -inf), ([-inf, -inf], -inf), ([inf, -inf], inf), ([inf, inf], inf),
        ([nan, inf], nan), ([inf, nan], nan), ([nan, -inf], nan), ([5.0], 5.0), ([0.0, -inf], 0.0),
    ):  # fmt: skip
        np.testing.assert_equal(float(gr.logsumexp(x, device="cpu")), wanted)
    assert gr.logsumexp([0.0, -500.0], device="cpu") == pytest.approx(math.exp(-500), rel=1e-15)
    assert gr.logsumexp([-1e-20, -500.0], device="cpu") == -1e-20
    assert gr.logsumexp(np.zeros((0, 3)), axis=0, device="cpu").tolist() == [-inf] * 3
    assert gr.logsumexp(np.zeros((3, 0)), axis=0, device="cpu").shape == (0,)


def test_order_and_length_make_no_error_larger(rng: np.random.Generator) -> None:
    """A million terms that are one more largest each: the sum is a geometric series."""
    n, step = 1_000_000, 2.0**-20
    x = np.arange(n) * step
    with decimal.localcontext(EXACT):
        d = Decimal(step)
        wanted = ((d * n).exp() - 1).ln() - (d.exp() - 1).ln()
        for order in (x, x[::-1], rng.permutation(x)):
            found = gr.logsumexp(order, device="cpu")
            assert abs(Decimal(float(found)) - wanted) * 2**53 < 8 + 2 * math.log(n) + 2 * found


def test_blocks_on_both_sides_of_the_most_exponent(rng: np.random.Generator) -> None:
    """Blocks relative to their largest element meet one element, or a block, in powers of two."""
    for sign in (-1, 1):
        for more in (1, 2, 40):
            x = sign * 2.0**20 + rng.uniform(-3, 3, 512 + more)
            for first in (np.sort(x), np.sort(x)[::-1]):
                check(gr.logsumexp(first, device="cpu"), first, f"{sign} {more}")


def slices(a: Any, axis: tuple[int, ...]) -> list[Any]:
    kept = [i for i in range(a.ndim) if i not in axis]
    count = math.prod(a.shape[i] for i in kept)
    return list(a.transpose([*kept, *axis]).reshape(count, -1))


def test_any_layout_dtype_axis_and_mask(isa: str, rng: np.random.Generator) -> None:
    dtypes = ["f8", "f4", "f2", "?", "i1", "u2", "i4", "u8", ">f8", ">i4", ml_dtypes.bfloat16]
    shapes = [(600, 3), (3, 600), (40, 7, 5), (2, 3, 4, 5), (1200,), (70, 1, 11), (1, 90)]
    for _ in range(30):
        dtype = np.dtype(dtypes[rng.integers(len(dtypes))])
        shape = shapes[rng.integers(len(shapes))]
        a = (rng.normal(size=shape) * 4).clip(0 if dtype.kind in "u?" else -100).astype(dtype)
        a = a.transpose(rng.permutation(a.ndim))
        if rng.random() < 0.3:
            a = a[::-1]
        if rng.random() < 0.3:
            a = a[..., ::2]
        axis = tuple(int(i) for i in rng.permutation(a.ndim)[: rng.integers(1, a.ndim + 1)])
        mask = rng.random(a.shape) < 0.6 if rng.random() < 0.4 else None
        keepdims = bool(rng.random() < 0.3)
        found = gr.logsumexp(
            a, axis, keepdims=keepdims, dtype="f8", device="cpu",
            where=True if mask is None else mask,
        )  # fmt: skip
        shape = tuple(1 if i in axis else n for i, n in enumerate(a.shape))
        kept = tuple(n for i, n in enumerate(a.shape) if i not in axis)
        assert np.shape(found) == (shape if keepdims else kept)
        context = f"{isa} {dtype} {a.shape} {a.strides} {axis} {mask is not None}"
        rows = slices(a, axis)
        marks = [...] * len(rows) if mask is None else slices(mask, axis)
        for one, row, mark in zip(np.ravel(found), rows, marks, strict=True):
            check_loosely(one, row[mark], dtype, context)


def check_loosely(found: Any, elements: Any, dtype: np.dtype[Any], context: str) -> None:
    """Of 16-bit floats and float32 the exponentials are accurate to 2**-36."""
    if dtype.kind in "fV" and dtype.itemsize < 8:
        np.testing.assert_allclose(float(found), float(reference(elements)), 1e-9, 1e-9, True,
                                   context)  # fmt: skip
    else:
        check(found, elements, context)


def test_threads_do_not_change_bits(rng: np.random.Generator) -> None:
    before = gr.limits().cpu_threads
    try:
        for shape, axis in (
            ((400_000,), None),
            ((300, 900), 0),
            ((70_000, 5), 0),
            ((5, 70_000), 1),
        ):
            x = rng.normal(size=shape) * 30
            found = []
            for threads in (1, 2, 3):
                gr.set_limits(cpu_threads=threads)
                found.append(np.asarray(gr.logsumexp(x, axis=axis, device="cpu")).tobytes())
            assert len(set(found)) == 1, (shape, axis)
    finally:
        gr.set_limits(cpu_threads=before)


def test_arguments(rng: np.random.Generator) -> None:
    a = rng.normal(size=(4, 6))
    out = np.zeros(4, np.float32)
    assert gr.logsumexp(a, 1, out=out, device="cpu") is out
    np.testing.assert_array_equal(out, gr.logsumexp(a, 1, device="cpu").astype(np.float32))
    assert gr.logsumexp(a, dtype=np.float16, device="cpu").dtype == np.float16
    assert gr.logsumexp([1, 2], device="cpu").dtype == np.float64
    np.testing.assert_allclose(gr.logsumexp(a, (), device="cpu"), a, rtol=0)
    assert gr.logsumexp(2.5, device="cpu") == 2.5
    assert gr.last_run().device == "cpu"
    for call, error, message in (
        (lambda: gr.logsumexp(a + 1j), TypeError, "complex128: it takes real numbers"),
        (lambda: gr.logsumexp(np.zeros(2, [("x", "f4")])), TypeError, "takes real numbers"),
        (lambda: gr.logsumexp(np.array(["x"])), TypeError, "holds strings"),
        (lambda: gr.logsumexp(np.ma.array(a)), TypeError, "masked arrays"),
        (lambda: gr.logsumexp(a, dtype=int), TypeError, "computed in floats"),
        (lambda: gr.logsumexp(a, dtype="c16"), TypeError, "computed in floats"),
        (lambda: gr.logsumexp(a, out=np.zeros(2)), ValueError, "out"),
        (lambda: gr.logsumexp(a, out=[0.0]), TypeError, "out= of an array of the host"),
        (lambda: gr.logsumexp(a, out=np.zeros((), int)), TypeError, "same_kind"),
        (lambda: gr.logsumexp(a, where=np.ones(5, bool)), ValueError, "broadcast"),
        (lambda: gr.logsumexp(a, 2), np.exceptions.AxisError, "axis 2"),
        (lambda: gr.logsumexp(a, device="cpu", stream=3), ValueError, "a stream is a GPU's"),
        (lambda: gr.logsumexp(a, device="tpu"), (ValueError, gr.DeviceUnavailableError), "tpu"),
        (lambda: _core.logsumexp(a, np.dtype("i4"), None, False, None), TypeError, "float dtype"),
        (lambda: _core.logsumexp(a, np.dtype("f8"), None, False, a), TypeError, "mask"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()
