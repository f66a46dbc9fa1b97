"""Programs of several reductions in one pass: what shares it, and that all of them compile.

Needs NVRTC for the programs, no GPU.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from draws import EVERYTHING, SEED

from gpureduce import _core

REAL = [name for name in _core.DTYPES if not name.startswith("complex")]
ARCHITECTURES = (75, 80, 90, 120)
# Tuples that have every accumulator between them.
TUPLES = (
    ("sum", "mean", "min", "max", "argmin", "argmax", "any", "all", "count_nonzero", "minmax"),
    ("nansum", "nanmean", "nanmin", "nanmax", "nanargmin", "nanargmax", "nanvar", "nanstd"),
    ("prod", "var", "std", "ptp", "mean", "_count_nan", "bitwise_and", "logical_xor", "sum"),
)
GIB = 1 << 30


def member(op: str) -> tuple[int, bool, bool]:
    if op == "_count_nan":
        return _core.OPERATORS["sum"], False, True
    return _core.OPERATORS[op.removeprefix("nan")], op.startswith("nan"), False


def plan(
    ops: tuple[str, ...], dtype: str, cc: int = 90, shape: tuple[int, ...] | None = None,
    axis: Any = None, strides: tuple[int, ...] | None = None, **more: Any,
) -> tuple[bytes, dict[str, Any]]:  # fmt: skip
    shape = shape or (GIB // _core.DTYPES[dtype][0],)
    source = _core.device_array(1 << 20, shape, strides, dtype, 0, None, None)
    members = tuple(member(op) for op in ops)
    options = {"block": 0, "grid": 0, "pieces": False, "resident": 0} | more
    return _core.plan_several(source, axis, members, _core.typical_facts(cc), *options.values())


def names(ops: tuple[str, ...], made: dict[str, Any]) -> set[str]:
    return {op for i, op in enumerate(ops) if made["in_pass"] >> i & 1}


@pytest.mark.long
def test_every_program_compiles() -> None:
    cases = [(ops, dtype, cc) for ops in TUPLES for dtype in REAL for cc in ARCHITECTURES]
    if not EVERYTHING:
        rng = random.Random(SEED)
        cases = [(ops, dtype, rng.choice(ARCHITECTURES)) for ops in TUPLES for dtype in REAL]
        cases = rng.sample(cases, 2)
    for ops, dtype, cc in cases:
        has_bits = dtype.startswith(("int", "uint", "bool"))
        mine = tuple(op for op in ops if op != "bitwise_and" or has_bits)
        if dtype == "bool":
            mine = tuple(op for op in mine if op != "ptp")
        made, facts = plan(mine, dtype, cc)
        assert facts["in_pass"] != 0, f"{mine} of {dtype} for {cc}"
        image, symbols, _ = _core.compile_several(made, cc)
        assert len(image) > 0
        assert len(symbols) == 1


def test_exact_sums_and_what_has_no_order_share_a_pass() -> None:
    ops = ("sum", "mean", "min", "max", "argmax", "any", "count_nonzero")
    for dtype in ("float32", "float16", "bfloat16"):
        assert names(ops, plan(ops, dtype)[1]) == set(ops)


def test_what_depends_on_the_order_shares_a_pass_that_has_its_blocks() -> None:
    """Others take calls of their own, in which threads fold other elements."""
    ops = ("sum", "min", "max", "var", "std", "prod")
    made = plan(ops, "float64")[1]
    assert {"sum"} < names(ops, made)
    for block in (64, 256, 1024):
        given = plan(ops, "float64", block=block, grid=7)[1]
        assert names(ops, given) == set(ops)
        assert (given["block"], given["blocks"]) == (block, 7)


def test_sums_that_leave_out_other_elements_have_accumulators_of_their_own() -> None:
    ops = ("nansum", "sum", "nanmean", "max")
    assert names(ops, plan(ops, "float32")[1]) == {"nansum", "nanmean", "max"}


def test_pieces_leave_zeros_and_nan_to_the_caller() -> None:
    ops = ("nanmin", "nanmax", "sum")
    assert names(ops, plan(ops, "float64", pieces=True)[1]) == set(ops)
    ops = ("var", "sum", "argmin", "prod")
    for grid in (0, 1):
        assert names(ops, plan(ops, "float64", pieces=True, grid=grid)[1]) == {"sum", "argmin"}


@pytest.mark.parametrize(
    ("ops", "dtype", "more"),
    [
        (("sum", "min"), "complex64", {}),
        (("sum", "min"), "float32", {"shape": (500,)}),
        (("sum", "min"), "float32", {"shape": (4096, 4096), "axis": 0}),
        (("sum", "min"), "float32", {"shape": (1 << 20,), "strides": (8,)}),
        (("sum", "bitwise_and"), "float32", {}),
        (("sum",), "float32", {}),
        (("nansum", "sum"), "float32", {}),
        (("sum", "min"), "float32", {"shape": (0,)}),
    ],
)
def test_calls_of_their_own(ops: tuple[str, ...], dtype: str, more: dict[str, Any]) -> None:
    assert plan(ops, dtype, **more)[1]["in_pass"] == 0


def test_rows_are_reduced_beside_each_other() -> None:
    made = plan(("sum", "min"), "float32", shape=(70000, 4096), axis=1)[1]
    assert (made["rows"], made["n"], made["blocks"], made["in_pass"]) == (70000, 4096, 1, 3)
    few = plan(("sum", "min"), "float32", shape=(3, 1 << 24), axis=-1)[1]
    assert few["blocks"] > 1


def test_many_rows_have_small_blocks() -> None:
    def block(rows: int, n: int) -> int:
        return int(plan(("sum", "min"), "float32", shape=(rows, n), axis=1)[1]["block"])

    assert [block(*shape) for shape in ((70000, 1100), (5000, 20000), (1200, 100000))] == [
        32,
        64,
        256,
    ]
    assert block(100, 1 << 20) >= 256


def test_bad_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="share a pass"):
        plan(("sum",) * 13, "float32")
    with pytest.raises(ValueError, match="share a pass"):
        plan((), "float32")
    made, _ = plan(("sum",), "float32")
    with pytest.raises(ValueError, match="no pass in common"):
        _core.compile_several(made, 90)
    with pytest.raises(ValueError, match="no plan"):
        _core.compile_several(b"12", 90)
