"""Positions in short rows of bool, read by words, and extremes of rows that a start is left of.

``GPR_TEST_SEED`` repeats a run.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from draws import SEED

import gpureduce as gr
from gpureduce._dtypes import native_dtype


@pytest.mark.parametrize("density", [0.02, 0.5, 0.98])
def test_positions_in_short_rows_of_bool_are_numpys(density: float) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, int(100 * density)])
    for n in [*range(1, 75), 511, 512, 513, 575, 576, 577, 2623, 2624, 2625, 5000]:
        base = rng.random((int(rng.integers(1, 90)), n + int(rng.integers(0, 3)))) < density
        raw = base.view(np.uint8) * rng.integers(1, 256, base.shape, np.uint8)
        for a in (base[:, :n], raw.view(bool)[:, :n], base[::-1, :n], base[:, :n][:, ::-1]):
            for name in ("argmax", "argmin", "nanargmax"):
                got = getattr(gr, name)(a, axis=1, device="cpu")
                wanted = getattr(np, name)(a.view(np.uint8) != 0, axis=1)
                assert np.array_equal(got, wanted), (name, n, SEED)


@pytest.mark.parametrize(
    "name", ["int8", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
def test_positions_in_short_rows_of_numbers_are_numpys(name: str) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, len(name)])
    for n in [*range(1, 140), *rng.integers(140, 1500, 30)]:
        shape = (int(rng.integers(1, 20)), int(n) + int(rng.integers(0, 3)))
        a = rng.integers(0, rng.choice([2, 5, 120]), shape).astype(name)[:, :n]
        if a.dtype.kind == "f":
            a = np.where(rng.random(a.shape) < rng.choice([0, 0.01]), np.nan, -a)
        elif a.dtype.kind == "i" and rng.random() < 0.5:
            a = -a
        for function in ("argmax", "argmin"):
            got = getattr(gr, function)(a, axis=1, device="cpu")
            assert np.array_equal(got, getattr(np, function)(a, axis=1)), (function, n, SEED)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["nanmin", "nanmax"])
def test_rows_of_nan_alone_have_the_start(dtype: type, name: str) -> None:
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    a = np.where(rng.random((40, 6)) < 0.5, np.nan, 10 * rng.standard_normal((40, 6))).astype(dtype)
    a[3] = np.nan
    a[5, 1:3] = np.inf, -np.inf
    mask = rng.random(a.shape) < 0.6
    mask[7] = False
    for given in ({}, {"where": mask}):
        for start in (3, -2.5, 0):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                got = getattr(gr, name)(a, axis=1, initial=start, device="cpu", **given)
                wanted = getattr(np, name)(a, axis=1, initial=start, **given)
            assert got.dtype == wanted.dtype
            assert np.array_equal(got, wanted), (start, given, SEED)


@pytest.mark.parametrize("kernel", ["exact", "fast"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_sums_of_one_element_are_sums_of_it_and_nothing(name: str, kernel: str) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, len(name)])
    dtype = native_dtype(name)
    for shape in ((1, 1), (7, 1), (5000, 1), (60, 1, 90)):
        a = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
        a = np.where(rng.random(shape) < 0.1, -np.zeros((), dtype), a)
        zero = np.zeros_like(a)
        for function in ("sum", "mean"):
            for given in (a, a.T.copy().T, a[::-1]):
                got = getattr(gr, function)(given, axis=1, kernel=kernel, device="cpu")
                # the second element is 0, whichever place it has
                both = np.concatenate([given, zero], axis=1)
                wanted = gr.sum(both, axis=1, kernel=kernel, device="cpu")
                assert got.dtype == dtype
                if kernel == "fast":  # whose NaN may have other bits
                    got, wanted = (np.where(x != x, zero[0, 0], x) for x in (got, wanted))
                assert got.tobytes() == wanted.tobytes(), (function, shape, SEED)


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "uint16", "float32", "complex64", "complex128"]
)
def test_extremes_of_one_element_are_it(name: str) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, len(name)])
    dtype = native_dtype(name)
    a = np.where(rng.random((6, 1, 70, 9)) < 0.1, np.nan, rng.standard_normal((6, 1, 70, 9)) * 9)
    a = np.nan_to_num(np.abs(a)) if dtype.kind == "u" else a
    a = a.astype(dtype)
    for given in (
        a,
        a[::2],
        a[..., ::2],
        a[..., ::-1],
        a.transpose(3, 1, 0, 2),
        a.byteswap().view(dtype.newbyteorder()) if name != "bfloat16" else a[:, :, ::3],
    ):
        for function in ("max", "min"):
            got = getattr(gr, function)(given, axis=1, device="cpu")
            assert got.dtype == dtype
            assert got.tobytes() == given[:, 0].astype(dtype).tobytes(), (function, SEED)


@pytest.mark.parametrize("name", ["float16", "bfloat16", ">f4", "<f8", "complex64", "bool"])
def test_rows_that_are_packed_end_at_a_nan_or_the_first_truth(name: str) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, len(name)])
    dtype = native_dtype("bfloat16") if name == "bfloat16" else np.dtype(name)
    for n in [511, 512, 513, 1023, 1024, 1025, 4097, *rng.integers(512, 40000, 4)]:
        step = int(rng.integers(1, 3)) if name in ("float16", "bfloat16", ">f4") else 2
        rows = int(rng.integers(1, 200_000 // int(n) + 2))
        if name == "bool":
            a = rng.random((rows, int(n) * step)) < rng.choice([0, 1e-4, 1e-2])
        else:
            a = rng.standard_normal((rows, int(n) * step))
            a[rng.random(a.shape) < rng.choice([0, 1e-4, 1e-2])] = np.nan
        # Rows that end at once, among others: at the elements that are looked at first, or behind.
        a[rng.random(rows) < rng.choice([0.5, 0.9, 1]), int(rng.choice([0, 63, 64, 130]))] = np.nan
        a = a.astype(dtype)[:, ::step][:: rng.choice([-1, 1])]
        for function in ("argmax", "argmin"):
            got = getattr(gr, function)(a, axis=1, device="cpu")
            wide = a.astype(np.float32) if name == "bfloat16" else a
            assert np.array_equal(got, getattr(np, function)(wide, axis=1)), (function, n, SEED)
