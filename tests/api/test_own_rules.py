"""Arrays with rules of their own are refused, or convert our results to their type.

The types here are other libraries' in miniature: those of astropy and pint (units), pandas
(missing values), dask (laziness) and quantities (methods).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from differential import NAMES

import gpureduce as gr

A = np.array([[1.0, 2.0, 4.0], [3.0, 0.0, 5.0]])
INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor")


def never(*args: Any, **keywords: Any) -> Any:
    raise AssertionError("a rule of the array was called")


class Units(np.ndarray):
    __array_ufunc__ = never


class Closed(np.ndarray):
    __array_ufunc__ = None  # type: ignore[assignment]


class Lazy(np.ndarray):
    __array_function__ = never


class Methods(np.ndarray):
    var = never


class ClosedMatrix(np.matrix):
    __array_ufunc__ = None  # type: ignore[assignment]


class Like:
    """An array-like."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class Series(Like):
    __array_ufunc__ = never


class ClosedLike(Like):
    __array_ufunc__ = None


class LazyLike(Like):
    __array_function__ = never


RULES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "units": (lambda a: a.view(Units), "__array_ufunc__"),
    "no ufuncs": (lambda a: a.view(Closed), "__array_ufunc__"),
    "laziness": (lambda a: a.view(Lazy), "__array_function__"),
    "methods": (lambda a: a.view(Methods), "var"),
    "a matrix without ufuncs": (lambda a: a.view(ClosedMatrix), "__array_ufunc__"),
    "an array-like with rules": (Series, "__array_ufunc__"),
    "an array-like without ufuncs": (ClosedLike, "__array_ufunc__"),
    "a lazy array-like": (LazyLike, "__array_function__"),
}
every_rule = pytest.mark.parametrize("kind", RULES)


def elements(name: str) -> Any:
    return A.astype(np.int32) if name in INTEGERS else A


@every_rule
@pytest.mark.parametrize("name", NAMES)
def test_arrays_with_rules_of_their_own_are_refused_by_every_function(name: str, kind: str) -> None:
    make, rule = RULES[kind]
    given = make(elements(name))
    for keywords in ({}, {"axis": 0}, {"keepdims": True}):
        with pytest.raises(TypeError, match=rf"{rule}.*pass numpy\.asarray\(a\)"):
            getattr(gr, name)(given, device="cpu", **keywords)
    plain = getattr(gr, name)(np.asarray(given), device="cpu")
    assert np.array_equal(plain, getattr(gr, name)(elements(name), device="cpu"))


@pytest.mark.parametrize("name", ["sum", "bitwise_or", "logical_xor", "nanmax"])
def test_rules_of_an_array_come_before_an_ellipsis_as_out(name: str) -> None:
    a = A.astype(int).view(Lazy)
    with pytest.raises(TypeError, match=r"__array_function__.*numpy\.asarray"):
        getattr(gr, name)(a, out=...)


@every_rule
def test_arguments_with_rules_of_their_own_are_refused(kind: str) -> None:
    make, rule = RULES[kind]
    calls: dict[str, Callable[[], Any]] = {
        "where": lambda: gr.sum(A, where=make(A > 1)),
        "initial": lambda: gr.sum(A, initial=make(A[:1, :1])),
        "mean": lambda: gr.var(A, axis=0, mean=make(A[:1])),
        "out": lambda: gr.sum(A, axis=0, out=make(np.zeros((1, 3)))),
        "b": lambda: gr.dot(A[0], make(A[0].reshape(1, 3))),
        "a": lambda: gr.ExactSum().update(make(A)),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"^{name} is a .*{rule}.*numpy\.asarray\({name}\)"):
            call()
    with pytest.raises(TypeError, match=r"^out is a"):
        gr.minmax(A, axis=0, out=(np.zeros(3), make(np.zeros((1, 3)))))


def test_masked_arguments_are_refused() -> None:
    masked = np.ma.masked_array(A > 1, A > 2)
    for keywords in ({"where": masked}, {"initial": masked}, {"out": masked}):
        with pytest.raises(TypeError, match="masked array, whose mask would be lost"):
            gr.sum(A, **keywords)
    with pytest.raises(TypeError, match="masked array, whose mask would be lost"):
        gr.var(A, mean=masked[:1, :1])


class Metres(Units):
    """Takes results by the name of the function that made them."""

    unit = "m"
    UNITS = {"sum": "m", "min": "m", "max": "m", "var": "m2", "argmax": None}  # noqa: RUF012

    def __gpureduce_wrap__(self, result: Any, function: str) -> Any:
        if function not in self.UNITS:
            return NotImplemented
        assert type(result) is np.ndarray or isinstance(result, np.generic)
        return self.UNITS[function], result


class Tagged(Like):
    def __gpureduce_wrap__(self, result: Any, function: str) -> Any:
        return function, result


def test_a_type_that_declares_it_makes_its_own_of_every_result() -> None:
    metres = A.view(Metres)
    assert gr.sum(metres) == ("m", 15.0)
    assert gr.var(metres) == ("m2", np.var(A))
    assert gr.argmax(metres) == (None, 5)
    unit, rows = gr.var(metres, axis=1, keepdims=True)
    assert unit == "m2"
    np.testing.assert_allclose(rows, np.var(A, axis=1, keepdims=True))
    assert gr.reduce(metres, np.add) == ("m", 15.0)
    assert gr.minmax(metres) == (("m", 0.0), ("m", 5.0))
    with pytest.raises(TypeError, match="takes no result of prod: pass numpy"):
        gr.prod(metres)
    out = np.zeros(())
    assert gr.sum(metres, out=out) is out
    for name in NAMES:
        given = elements(name)
        if name != "minmax":
            tag, result = getattr(gr, name)(Tagged(given))
            assert tag == name
            assert np.array_equal(result, getattr(gr, name)(given))


@pytest.mark.parametrize("name", ["nanmin", "nanmax", "logical_xor"])
def test_an_ellipsis_as_out_hands_an_array_to_a_type_that_takes_part(name: str) -> None:
    if np.lib.NumpyVersion(np.__version__) < "2.3.0":
        with pytest.raises(TypeError, match="must be"):
            getattr(gr, name)(Tagged(A), out=...)
        return
    tag, result = getattr(gr, name)(Tagged(A), out=...)
    assert tag == name
    assert type(result) is np.ndarray
    assert result == getattr(gr, name)(A)


class Foreign(Like):
    """An array-like whose ``__array_wrap__`` and methods would make more of a result."""

    __array_wrap__ = sum = mean = argmax = never


def test_results_of_array_likes_are_numpys() -> None:
    for name in NAMES:
        given = elements(name)
        result, plain = getattr(gr, name)(Foreign(given)), getattr(gr, name)(given)
        assert type(result) is type(plain)
        assert np.array_equal(result, plain)


class Old(np.ndarray):
    """A subclass from before NumPy 2."""

    def __array_wrap__(self, array: Any, context: Any = None) -> Any:  # type: ignore[override]
        return np.asarray(array).view(Old)


class Older(np.ndarray):
    def __array_wrap__(self, array: Any) -> Any:  # type: ignore[override]
        return np.asarray(array).view(Older)


class Broken(np.ndarray):
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        raise TypeError("of the wrap itself")


@pytest.mark.parametrize("kind", [Old, Older])
def test_wraps_of_other_signatures_are_called_as_numpy_calls_them(kind: type[Any]) -> None:
    outcomes = []
    for module in (np, gr):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = module.sum(A.view(kind), axis=0)
        outcomes.append((type(result), result.tolist(), [str(one.message) for one in caught]))
    assert outcomes[0] == outcomes[1]


def test_an_error_of_a_wrap_is_its_own() -> None:
    with pytest.raises(TypeError, match="of the wrap itself"):
        gr.sum(A.view(Broken), axis=0)


def test_matrices_stay_matrices() -> None:
    matrix = A.view(np.matrix)
    for name in NAMES:
        given = elements(name).view(np.matrix)
        for axis in (None, 0, -1):
            result = getattr(gr, name)(given, axis=axis, keepdims=True)
            for one in result if name == "minmax" else (result,):
                assert type(one) is np.matrix, (name, axis)
                assert one.ndim == 2
    assert type(gr.sum(matrix)) is np.float64
