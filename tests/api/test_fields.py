"""Structured arrays: each field has the value and dtype that the function gives for it alone."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import gpureduce as gr

FUNCTIONS = (
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "var", "std", "ptp",
    "count_nonzero", "nansum", "nanprod", "nanmin", "nanmax", "nanmean", "nanvar", "nanstd",
)  # fmt: skip
POSITIONS = ("argmin", "argmax")
KINDS: list[Any] = ["f4", "f8", ">f4", "i4", "u1", "f2", "c16", (">i8", (2,)), ("f4", (2, 1))]


def draw_dtype(rng: np.random.Generator, depth: int = 0) -> np.dtype[Any]:
    """Fields of one dtype or of several, with gaps or without."""
    if rng.random() < 0.4:
        kind = str(rng.choice(["f4", "i2", ">f8"]))
        return np.dtype([(name, kind) for name in "xyz"])
    fields: list[Any] = []
    for i in range(int(rng.integers(1, 4))):
        if depth < 2 and rng.random() < 0.2:
            fields.append((f"n{i}", draw_dtype(rng, depth + 1)))
        else:
            kind = KINDS[rng.integers(len(KINDS))]
            fields.append((f"f{i}", *kind) if isinstance(kind, tuple) else (f"f{i}", kind))
    return np.dtype(fields, align=bool(rng.random() < 0.5))


def fill(rng: np.random.Generator, array: Any) -> None:
    if array.dtype.names is not None:
        for name in array.dtype.names:
            fill(rng, array[name])
        return
    values = np.asarray(np.abs(rng.normal(size=array.shape)) * 5)
    if array.dtype.kind in "fc" and rng.random() < 0.3:
        values[rng.random(array.shape) < 0.1] = np.nan
    array[...] = values.astype(array.dtype)


def draw(rng: np.random.Generator) -> Any:
    shape = [(), (int(rng.integers(1, 300)),), (4, 7), (3, 5, 2), (0, 3)][rng.integers(5)]
    array = np.zeros(shape, draw_dtype(rng))
    fill(rng, array)
    array = array.transpose(rng.permutation(array.ndim))
    return array[::2] if array.ndim > 0 and rng.random() < 0.3 else array


def reference(function: Any, array: Any, axis: Any, keepdims: bool, **more: Any) -> Any:
    """Field by field, where each element of a subarray is an array of its own."""
    if array.dtype.names is None:
        return function(array, axis=axis, keepdims=keepdims, **more)
    fields = []
    for name in array.dtype.names:
        field = array[name]
        if field.ndim == array.ndim:
            fields.append((name, reference(function, field, axis, keepdims, **more)))
            continue
        sub = field.shape[array.ndim :]
        parts = [
            np.asarray(function(field[(..., *index)], axis=axis, keepdims=keepdims, **more))
            for index in np.ndindex(*sub)
        ]
        fields.append((name, np.stack(parts, -1).reshape(parts[0].shape + sub)))
    shape = np.shape(function(np.zeros(array.shape), axis=axis, keepdims=keepdims, **more))
    arrays = {name: np.asarray(value) for name, value in fields}
    made = np.zeros(shape, [(n, v.dtype, v.shape[len(shape) :]) for n, v in arrays.items()])
    for name, value in arrays.items():
        made[name] = value
    return made[()]


def outcome(call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except (TypeError, ValueError) as error:
            return type(error)


def assert_same(got: Any, wanted: Any, tolerance: float, context: str) -> None:
    assert type(got) is type(wanted), (context, got, wanted)
    if isinstance(wanted, type):
        return
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), (context, got, wanted)
    for x, y in zip(leaves(got), leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, err_msg=context)


def leaves(value: Any) -> list[Any]:
    if value.dtype.names is None:
        return [value]
    return [leaf for name in value.dtype.names for leaf in leaves(value[name])]


def check_one(rng: np.random.Generator) -> None:
    a = draw(rng)
    name = str(rng.choice(FUNCTIONS))
    axes = [None, *range(-a.ndim, a.ndim)]
    axis: Any = axes[rng.integers(len(axes))]
    if a.ndim > 1 and name not in POSITIONS and rng.random() < 0.3:
        axis = tuple(int(i) for i in rng.permutation(a.ndim)[: rng.integers(0, a.ndim + 1)])
    keepdims = bool(rng.random() < 0.4)
    more: dict[str, Any] = {"device": "cpu"}
    if name in ("sum", "prod", "mean", "any", "nansum") and rng.random() < 0.4:
        more["where"] = rng.random(a.shape) < 0.7
    function = getattr(gr, name)
    wanted = outcome(lambda: reference(function, a, axis, keepdims, **more))
    got = outcome(lambda: function(a, axis=axis, keepdims=keepdims, **more))
    # The last bits of these depend on how the elements are in memory.
    tolerance = 1e-3 if name.endswith(("prod", "var", "std")) else 0
    assert_same(got, wanted, tolerance, f"{name} {a.dtype} {a.shape} {axis} {keepdims} {more}")


def test_fields_are_reduced_as_arrays_of_their_own(rng: np.random.Generator) -> None:
    for _ in range(150):
        check_one(rng)


XYZ = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])


def points(rng: np.random.Generator, shape: Any) -> Any:
    a = np.zeros(shape, XYZ)
    fill(rng, a)
    return a


def test_arguments_may_have_the_fields(rng: np.random.Generator) -> None:
    a = points(rng, (6, 4))
    start = np.array((1, 2, 3), XYZ)[()]
    got = gr.sum(a, axis=0, initial=start, dtype=[("x", "f8"), ("y", "f4"), ("z", "f8")],
                 device="cpu")  # fmt: skip
    for name, value, dtype in (("x", 1, "f8"), ("y", 2, "f4"), ("z", 3, "f8")):
        wanted = gr.sum(a[name], axis=0, initial=np.float32(value), dtype=dtype, device="cpu")
        np.testing.assert_array_equal(got[name], wanted)
        assert got[name].dtype == dtype
    out = np.zeros(4, [("x", "f8"), ("y", "f4"), ("z", "f2")])
    assert gr.nanmax(a, axis=0, out=out, device="cpu") is out
    for name in "xyz":
        np.testing.assert_array_equal(out[name], gr.nanmax(a[name], axis=0).astype(out[name].dtype))
    low, high = np.zeros(6, XYZ), np.zeros(6, XYZ)
    assert gr.minmax(a, axis=1, out=(low, high), device="cpu").min is low
    np.testing.assert_array_equal(high["y"], gr.max(a["y"], axis=1))
    about = gr.mean(a, axis=0, keepdims=True, device="cpu")
    got = gr.var(a, axis=0, mean=about, device="cpu")
    np.testing.assert_allclose(got["z"], gr.var(a["z"], axis=0), rtol=1e-5)


def test_pairs_and_tuples_of_operators_have_the_fields(rng: np.random.Generator) -> None:
    a = points(rng, 50)
    found = gr.reduce(a, ("sum", "nanmin", "argmax"), device="cpu")
    for name in "xyz":
        np.testing.assert_array_equal(found.sum[name], gr.sum(a[name]))
        np.testing.assert_array_equal(found.nanmin[name], gr.nanmin(a[name]))
        assert found.argmax[name] == gr.argmax(a[name])
    pair = gr.minmax(a, device="cpu")
    np.testing.assert_array_equal(pair.max["y"], gr.max(a["y"]))
    assert isinstance(gr.sum(a.view(np.recarray), device="cpu"), np.void)


def test_what_has_no_fields_is_refused(rng: np.random.Generator) -> None:
    a = points(rng, 5)
    mixed = np.zeros(3, [("name", "S3"), ("x", "f4")])
    refused: list[tuple[Any, str]] = [
        (lambda: gr.sum(mixed), "field 'name': .*S3"),
        (lambda: gr.bitwise_and(a), "field 'x"),
        (lambda: gr.sum(np.zeros(3, [])), "without fields"),
        (lambda: gr.sum(a, out=np.zeros(())), "out= of a structured array has its fields, x, y, z"),
        (lambda: gr.sum(a, dtype=[("x", "f8")]), "dtype= has fields x, and the array has x, y, z"),
        (lambda: gr.sum(a, initial=np.zeros((), [("u", "f4")])[()]), "initial= has fields u"),
        (lambda: gr.argmin(a, axis=(0,)), "argmin takes one axis"),
        (lambda: gr.describe(a), "describe takes no structured arrays"),
        (lambda: gr.norm(a), "norm is not defined for dtype"),
        (lambda: gr.dot(a, a), "dot of an array of dtype"),
        (lambda: gr.average(a, weights=np.ones(5)), "common DType"),
    ]
    for call, message in refused:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(np.exceptions.AxisError):
        gr.sum(a, axis=1)
