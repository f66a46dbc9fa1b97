"""`reduce` with a tuple of operators, and `describe`: the bits of calls of their own."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import gpureduce as gr
from gpureduce import _several

OPERATORS = (
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "var", "std", "ptp",
    "count_nonzero", "minmax", "nansum", "nanmin", "nanmax", "nanmean", "nanstd", "nanargmax",
)  # fmt: skip
TILE = 1 << 13
"""Bytes: tests' arrays are cut as large ones are."""


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_several, "TILE_BYTES", TILE)


def outcome(call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return error


def is_same(got: Any, wanted: Any) -> bool:
    if type(got) is not type(wanted):
        return False
    if isinstance(wanted, tuple):
        return all(is_same(x, y) for x, y in zip(got, wanted, strict=True))
    x, y = np.asarray(got), np.asarray(wanted)
    return (x.shape, x.dtype) == (y.shape, y.dtype) and x.tobytes() == y.tobytes()


def draw(rng: np.random.Generator) -> Any:
    shape = [
        (int(rng.integers(1, 20000)),),
        tuple(rng.integers(1, 120, 2)),
        (int(rng.integers(1, 4)), int(rng.integers(1, 9000))),
        (int(rng.integers(1, 5000)), int(rng.integers(1, 6))),
        tuple(rng.integers(1, 24, 3)),
    ][rng.integers(5)]
    dtype = np.dtype(str(rng.choice(list("?bBhHiIlLefdFD"))))
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)
    if rng.random() < 0.3:
        values = np.round(values)
    with np.errstate(all="ignore"):
        values = values.astype(dtype)
    if dtype.kind in "fc" and rng.random() < 0.3:
        values[rng.random(shape) < 0.01] = np.nan
    values = values.transpose(rng.permutation(values.ndim))
    if rng.random() < 0.2:
        values = values[::-1]
    if rng.random() < 0.2:
        values = values[..., ::2]
    if rng.random() < 0.1:
        values = values.astype(values.dtype.newbyteorder())
    return values


def test_several_results_have_the_bits_of_calls_of_their_own(rng: np.random.Generator) -> None:
    for _ in range(60):
        x = draw(rng)
        axis = [None, *range(x.ndim)][rng.integers(x.ndim + 1)]
        ops = tuple(str(op) for op in rng.permutation(OPERATORS)[: rng.integers(1, 6)])
        options: dict[str, Any] = {"axis": axis, "keepdims": bool(rng.random() < 0.4)}
        options["device"] = "cpu"
        wanted = outcome(lambda x=x, n=ops, o=options: [gr.reduce(x, op, **o) for op in n])
        got = outcome(lambda x=x, n=ops, o=options: gr.reduce(x, n, **o))
        context = f"{x.shape} {x.strides} {x.dtype} {ops} {options}"
        if isinstance(wanted, Exception):
            assert (type(got), str(got)) == (type(wanted), str(wanted)), context
            continue
        assert got._fields == ops, context
        for op, one, own in zip(ops, got, wanted, strict=True):
            assert is_same(one, own), f"{op} of {context}: {one} {own}"


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_memory_is_read_by_tiles(axis: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator reads a tile, of two rows at least, before the next tile is read."""
    seen: list[tuple[int, str]] = []
    reduce = gr.reduce

    def note(array: Any, op: str, **more: Any) -> Any:
        seen.append((array.__array_interface__["data"][0], op))
        assert array.nbytes <= 3 * TILE
        return reduce(array, op, **more)

    monkeypatch.setattr(_several, "STRIP_BYTES", 64)
    x = np.arange(60 * 1000.0).reshape(60, 1000) if axis == 1 else np.ones((100, 1000))
    ops = ("max", "argmin", "min") if axis != 1 else ("max", "std", "min")
    given: dict[str, Any] = {"device": "cpu"}
    _several.reduce_several(x, ops, ops, note, axis, False, given)
    assert [op for _, op in seen] == list(ops) * (len(seen) // 3)
    starts = [start for start, _ in seen]
    assert starts[::3] == starts[1::3] == starts[2::3] == sorted(starts[::3])


def test_zeros_of_both_signs_and_nan_are_those_of_calls_of_their_own() -> None:
    for at in (10, 5000, 9000):
        x = np.zeros(10000)
        x[at] = -0.0
        for values in (x, np.where(np.arange(10000) == at, np.nan, 1.0)):
            got = gr.reduce(values, ("min", "max", "argmin", "sum"), device="cpu")
            for op in got._fields:
                assert is_same(getattr(got, op), gr.reduce(values, op, device="cpu")), op


def test_fields_are_the_names_that_were_given() -> None:
    found = gr.reduce([1.0, 2.0], ("amax", np.add, np.minimum), device="cpu")
    assert found._fields == ("amax", "sum", "min")
    assert found == (2.0, 3.0, 1.0)
    assert gr.reduce([1.0, 3.0], ("sum", "std"), ddof=1, device="cpu").std == 2**0.5
    masked = gr.reduce([1, 2, 4], ("sum", "any"), where=[True, False, True], device="cpu")
    assert masked == (5, True)


@pytest.mark.parametrize(
    ("kind", "words", "call"),
    [
        (ValueError, "named twice", lambda: gr.reduce([1], ("sum", "sum"))),
        (ValueError, "unknown operator", lambda: gr.reduce([1], ("sum", "total"))),
        (ValueError, "pass several operators as a tuple", lambda: gr.reduce([1], ["sum", "min"])),
        (ValueError, "did you mean 'sum'", lambda: gr.reduce([1], "summ")),
        (ValueError, "the operators are sum", lambda: gr.reduce([1], "wurzel")),
        (ValueError, "no elements to describe", lambda: gr.describe([])),
        (ValueError, "no elements to describe", lambda: gr.describe(np.zeros((3, 0)), 1)),
        (ValueError, "no operator is named", lambda: gr.reduce([1], ())),
        (TypeError, "take no out", lambda: gr.reduce([1], ("sum", "min"), out=np.zeros(()))),
        (TypeError, "take no dtype", lambda: gr.reduce([1], ("sum", "min"), dtype="f4")),
        (TypeError, "takes a ddof", lambda: gr.reduce([1], ("sum", "min"), ddof=1)),
        (TypeError, "argmax takes no where", lambda: gr.reduce([1], ("argmax",), where=[True])),
    ],
)
def test_mistakes_are_named(kind: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_no_rows_have_no_descriptions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gr.describe(np.zeros((0, 3)), 1, device="cpu")
        with pytest.raises(ValueError, match="no elements"):
            gr.describe(np.zeros((0, 3)), 0, device="cpu")
    assert [one.shape for one in found] == [(0,)] * 6


def test_descriptions_are_what_the_nan_functions_return(rng: np.random.Generator) -> None:
    for shape, axis in (((30, 400), 1), ((400, 30), 0), ((12000,), None), ((5,), None)):
        x = rng.normal(size=shape)
        x[rng.random(shape) < 0.02] = np.nan
        x.reshape(-1)[0] = 1
        got = gr.describe(x, axis, ddof=1, device="cpu")
        assert is_same(got.nan_count, gr.count_nonzero(np.isnan(x), axis, device="cpu"))
        assert np.array_equal(got.count, gr.count_nonzero(~np.isnan(x), axis, device="cpu"))
        assert is_same(got.mean, gr.nanmean(x, axis, device="cpu"))
        assert is_same(got.std, gr.nanstd(x, axis, ddof=1, device="cpu"))
        assert is_same(got.min, gr.nanmin(x, axis, device="cpu"))
        assert is_same(got.max, gr.nanmax(x, axis, device="cpu"))
    found = gr.describe(np.arange(6, dtype=np.int8), device="cpu")
    assert found == (6, 0, 2.5, np.arange(6).std(), 0, 5)


def test_descriptions_print_as_tables(rng: np.random.Generator) -> None:
    whole = gr.describe(np.array([1, 2.5, np.nan], np.float32), device="cpu")
    assert str(whole).splitlines() == [
        "count      2", "nan_count  1", "mean       1.75", "std        0.75", "min        1.0",
        "max        2.5",
    ]  # fmt: skip
    x = rng.normal(size=(3, 50))
    lines = str(found := gr.describe(x, 1, device="cpu")).splitlines()
    assert lines[0].split() == list(found._fields)
    for i, line in enumerate(lines[1:]):
        assert line.split() == [str(i), "50", "0", *(f"{each[i]:.6g}" for each in found[2:])]
    assert len({len(line) for line in lines}) == 1
    kept = str(gr.describe(x, 1, keepdims=True, device="cpu")).splitlines()
    assert kept[0] == "count      [[50]"
    assert kept[1] == "            [50]"
    many = gr.describe(rng.normal(size=(1000, 3)), 1, device="cpu")
    assert len(str(many).splitlines()) < 1000  # as NumPy prints long arrays


def test_a_description_of_some_elements_is_one_of_an_array_with_nan(
    rng: np.random.Generator,
) -> None:
    """What the documentation gives in place of `where`."""
    x, mask = rng.normal(size=(20, 30)), rng.random((20, 30)) < 0.5
    found = gr.describe(np.where(mask, x, np.nan), 1, device="cpu")
    assert np.array_equal(found.count, mask.sum(1))
    for i in range(20):
        one = gr.describe(x[i][mask[i]], device="cpu")
        assert [one.mean, one.min, one.max] == [found.mean[i], found.min[i], found.max[i]]
    with pytest.raises(TypeError, match="where"):
        gr.describe(x, where=mask)  # type: ignore[call-arg]
