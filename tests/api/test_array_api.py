"""The namespace for array API code, by the standard's rules for reductions."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import gpureduce as gr
import gpureduce.array_api as xp

STATISTICAL = ("max", "mean", "min", "prod", "std", "sum", "var")
SEARCHING = ("argmax", "argmin", "count_nonzero")
UTILITY = ("all", "any")
DTYPES = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)


def test_reductions_are_ours_and_the_rest_is_numpys() -> None:
    assert set(xp.REDUCTIONS) == {*STATISTICAL, *SEARCHING, *UTILITY}
    for name in xp.REDUCTIONS:
        assert getattr(xp, name) is getattr(gr, name)
    for name in ("asarray", "matmul", "linspace", "float32", "take", "__array_namespace_info__"):
        assert getattr(xp, name) is getattr(np, name)
    assert "asarray" in dir(xp)
    with pytest.raises(AttributeError):
        xp.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", xp.REDUCTIONS)
def test_the_standards_arguments_are_taken(name: str) -> None:
    parameters = list(inspect.signature(getattr(xp, name)).parameters)
    wanted = {"axis", "keepdims"}
    if name in ("sum", "prod"):
        wanted.add("dtype")
    if name in ("var", "std"):
        wanted.add("correction")
    assert wanted <= set(parameters)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_have_the_default_types_of_their_kind(dtype: str) -> None:
    x = xp.ones((2, 3), dtype=dtype)
    kind = x.dtype.kind
    expected = x.dtype if kind == "f" else xp.dtype("int64" if kind == "i" else "uint64")
    for name in ("sum", "prod"):
        assert getattr(xp, name)(x).dtype == expected
        assert getattr(xp, name)(x, dtype=xp.float64).dtype == xp.float64
    for name in ("min", "max"):
        assert getattr(xp, name)(x).dtype == x.dtype
    for name in UTILITY:
        assert getattr(xp, name)(x).dtype == xp.bool
    for name in SEARCHING:
        assert getattr(xp, name)(x).dtype == xp.int64


def shape_after(shape: tuple[int, ...], axis: Any, keepdims: bool) -> tuple[int, ...]:
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    reduced = {i % len(shape) for i in axes}
    return tuple(
        1 if i in reduced else n for i, n in enumerate(shape) if keepdims or i not in reduced
    )


@pytest.mark.parametrize("name", xp.REDUCTIONS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_shapes_follow_axis_and_keepdims(name: str, keepdims: bool) -> None:
    x = xp.reshape(xp.arange(24.0), (2, 3, 4))
    axes: tuple[Any, ...] = (
        (None, 0, -1) if name.startswith("arg") else (None, 0, -1, (0, 2), (1, -3), ())
    )
    for axis in axes:
        assert getattr(xp, name)(x, axis=axis, keepdims=keepdims).shape == shape_after(
            x.shape, axis, keepdims
        )


def test_nothing_has_the_standards_values() -> None:
    empty = xp.zeros((0, 3))
    assert xp.sum(empty) == 0
    assert xp.prod(empty) == 1
    assert xp.all(empty)
    assert not xp.any(empty)
    assert xp.count_nonzero(empty) == 0


def test_nan_propagates() -> None:
    x = xp.asarray([1.0, float("nan"), 3.0])
    for name in STATISTICAL:
        assert xp.isnan(getattr(xp, name)(x)), name


def test_correction_changes_the_divisor() -> None:
    x = xp.asarray([1.0, 2.0, 4.0, 5.0])
    assert xp.var(x) == 2.5
    assert xp.var(x, correction=1) == 10 / 3
    assert xp.var(x, correction=0.5) == 10 / 3.5
    assert xp.std(x, correction=1.5) == 2.0


def test_code_written_to_the_standard_runs() -> None:
    def standardize(x: Any, namespace: Any) -> Any:
        return (x - namespace.mean(x, axis=0)) / namespace.std(x, axis=0, correction=1)

    x = xp.reshape(xp.linspace(0, 5, 12) ** 2, (4, 3))
    np.testing.assert_allclose(standardize(x, xp), standardize(x, np), rtol=1e-14)
