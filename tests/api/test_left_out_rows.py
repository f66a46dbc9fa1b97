"""Rows of which a mask or NaN leave nothing, beside NumPy: values, dtypes and warnings."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

import gpureduce as gr

DTYPES = (
    "float16", "float32", "float64", "complex64", "complex128", "int8", "uint16", "int32", "uint64",
    "bool",
)  # fmt: skip
STARTS = (3, -2.5, 0.0, -0.0, np.inf, -np.inf, np.nan)
MOMENTS = ("mean", "nanmean", "var", "std", "nanvar", "nanstd")


def draw(rng: np.random.Generator, name: str) -> tuple[Any, Any]:
    shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
    x: Any = rng.normal(size=shape) * 9
    if name.startswith("complex"):
        x = x + 1j * rng.normal(size=shape) * 9
    x = (np.abs(x) if name.startswith("u") else x).astype(name)
    if x.dtype.kind in "fc":
        x[rng.random(shape) < rng.choice([0, 0.3, 0.9])] = np.nan
    return x, rng.random(shape) < rng.choice([0.1, 0.5, 0.9])


def outcome(call: Any) -> tuple[Any, list[str]]:
    with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, sorted(str(one.message).rstrip(".") for one in caught)


def assert_numpys(name: str, x: Any, options: dict[str, Any]) -> None:
    context = f"{name} {x.dtype} {x.shape} {options}"
    got, warned = outcome(lambda: getattr(gr, name)(x, device="cpu", **options))
    wanted, warned_there = outcome(lambda: getattr(np, name)(x, **options))
    assert type(got) is type(wanted), context
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), context
    close = 2e-2 if x.dtype == "float16" else 2e-4
    assert np.allclose(got, wanted, rtol=close, atol=1e-2, equal_nan=True), (context, got, wanted)
    assert warned == warned_there, (context, warned, warned_there)


@pytest.mark.parametrize("name", DTYPES)
def test_moments_of_nothing_are_numpys(name: str, rng: np.random.Generator) -> None:
    for _ in range(60):
        for function in MOMENTS:
            x, mask = draw(rng, name)
            options: dict[str, Any] = {
                "axis": None if rng.random() < 0.3 else int(rng.integers(x.ndim)),
                "keepdims": bool(rng.random() < 0.3),
                "where": mask,
            }
            if not function.endswith("mean"):
                options["ddof"] = float(rng.choice([0, 1, 2.5]))
            assert_numpys(function, x, options)


def leave_in_out(module: Any, function: str, x: Any, out: Any, options: dict[str, Any]) -> Any:
    """Whether the result is `out`, or the class of what was raised: warnings are, too."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return getattr(module, function)(x, out=out, **options) is out
        except Exception as error:
            return type(error)


@pytest.mark.parametrize("name", DTYPES)
def test_an_out_has_what_numpy_leaves_in_it(name: str, rng: np.random.Generator) -> None:
    """An `out` of the result's dtype or another, with gaps or without, also where rows that nothing
    is left of are a warning that is raised, or an error.
    """
    for _ in range(40):
        for function in (*MOMENTS, "nanargmin", "nanargmax", "nanmax"):
            x, mask = draw(rng, name)
            axis = None if rng.random() < 0.3 else int(rng.integers(x.ndim))
            options: dict[str, Any] = {"axis": axis}
            if "arg" not in function and function != "nanmax" and rng.random() < 0.8:
                options["where"] = mask
            kept = tuple(
                n for i, n in enumerate(x.shape) if axis is not None and i != axis % x.ndim
            )
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    dtype = np.asarray(getattr(np, function)(x, **options)).dtype
                except ValueError:  # of rows of NaN
                    dtype = np.dtype(np.intp)
            if "arg" not in function and rng.random() < 0.2:
                dtype = np.dtype(np.complex128)
            room = np.full((*kept, int(rng.integers(1, 3))), 7, dtype)
            outs = room[..., 0], room.copy()[..., 0]
            got, wanted = (
                leave_in_out(module, function, x, out, options | more)
                for module, out, more in (
                    (gr, outs[0], {"device": "cpu"}),
                    (np, outs[1], {}),
                )
            )
            context = f"{function} of {x.dtype} {x.shape} into {dtype} {options}"
            assert got == wanted, (context, got, wanted)
            if wanted is not True:  # NumPy may have written some, what it warns of among it
                continue
            close = 2e-2 if name == "float16" else 2e-4
            assert np.allclose(*outs, rtol=close, atol=1e-2, equal_nan=True), (context, outs)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
def test_extremes_of_nothing_are_their_start(name: str, rng: np.random.Generator) -> None:
    for _ in range(60):
        for function in ("nanmin", "nanmax"):
            x, mask = draw(rng, name)
            start = STARTS[rng.integers(len(STARTS))] if x.dtype.kind in "fc" else 3
            options: dict[str, Any] = {"axis": int(rng.integers(x.ndim)), "initial": start}
            if rng.random() < 0.7:
                options["where"] = mask
            assert_numpys(function, x, options)


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128", "int16"])
@pytest.mark.parametrize("shape", [(3, 5000), (5000, 70), (2, 900, 33)])
def test_variances_of_long_rows_and_columns_leave_out_what_numpys_do(
    name: str, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Rows longer than a segment, and columns of which a tile holds a few positions."""
    x: Any = rng.normal(3, 9, shape)
    if name.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    x = x.astype(name)
    where = rng.random(shape) < 0.7
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    holes = np.where(where, x, x.dtype.type(np.nan)) if x.dtype.kind in "fc" else None
    for axis in (*range(x.ndim), None):
        options = {"axis": axis, "where": where}
        wanted, _ = outcome(functools.partial(np.var, wide, **options))
        got, _ = outcome(functools.partial(gr.var, x, device="cpu", **options))
        assert np.allclose(got, wanted, 1e-3, equal_nan=True), axis
        if holes is None:
            continue
        got, _ = outcome(functools.partial(gr.nanvar, holes, axis=axis, device="cpu"))
        assert np.allclose(got, wanted, 1e-3, equal_nan=True), axis


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_either_part_that_is_nan_leaves_a_complex_number_out(
    name: str, isa: str, rng: np.random.Generator
) -> None:
    for _ in range(40):
        # fewer than 1024 elements, which are replaced at once: products have one order
        shape = (int(rng.integers(1, 9)), int(rng.integers(1, 125)))
        x: Any = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(name)
        parts = x.view(x.real.dtype)
        parts[rng.random(parts.shape) < rng.choice([0.01, 0.2])] = np.nan
        parts[0, :2] = 1, 2  # some row and some column have an element
        left = ~np.isnan(x)
        for axis in (0, 1, None):
            context = (name, isa, shape, axis)
            options: dict[str, Any] = {"axis": axis, "device": "cpu"}
            product = gr.nanprod(x, **options)
            replaced = gr.prod(np.where(left, x, 1).astype(name), **options)
            assert np.asarray(product).tobytes() == np.asarray(replaced).tobytes(), context
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                varied = np.asarray(gr.nanvar(x, **options))
                masked = np.asarray(gr.var(x, where=left, **options))
                wanted = np.nanvar(x.astype(np.complex128), axis=axis)
            assert np.array_equal(varied, masked, equal_nan=True), context
            assert np.allclose(varied, wanted, rtol=1e-5, atol=1e-6, equal_nan=True), context
