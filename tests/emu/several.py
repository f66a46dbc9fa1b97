"""Several reductions in one pass, beside calls of their own: the same bits, but for the kind of a
variance's NaN, which depends on order.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from device_buffers import device, host

import gpureduce as gr
from emu.cases import SCHEDULES, set_option
from gpureduce import _core, _one_pass

OPERATORS = (
    "sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "var", "std", "ptp",
    "count_nonzero", "minmax", "nansum", "nanmin", "nanmax", "nanmean", "nanstd", "nanargmax",
)  # fmt: skip
VARIANCES = ("var", "std", "nanstd")


def values_of(rng: np.random.Generator, shape: Any, dtype: str) -> Any:
    """Random elements, with some that are not ordinary."""
    if dtype[0] != "f":
        values = rng.integers(0, 200, shape)
        return values.astype(dtype) if dtype != "bool" else values < rng.integers(0, 202)
    is_wide = rng.random() < 0.3  # so that two doubles do not hold a sum
    scales = rng.integers(-30, 31, shape) if is_wide else rng.integers(-3, 4)
    with np.errstate(all="ignore"):
        values = (rng.normal(size=shape) * 10.0**scales).astype(dtype)
    if rng.random() < 0.5:
        others = rng.choice(np.array([np.inf, -np.inf, 6e4, 6e-8], dtype))
        odd = np.nan if rng.random() < 0.6 else others
        values[rng.random(shape) < rng.choice([1e-3, 0.3])] = odd
    return values


def draw(rng: np.random.Generator, dtype: str, most: int) -> tuple[Any, int | None]:
    """An array whose rows are runs of memory of 2 KiB and up to `most` elements more; an axis."""
    begin = int(rng.integers(0, 8))
    length = 2048 // _core.DTYPES[dtype][0] + begin + int(rng.integers(0, most))
    if rng.random() < 0.6:
        return values_of(rng, length, dtype)[begin:], None
    return values_of(rng, (int(rng.integers(2, 5)), length), dtype)[:, begin:], 1


def outcome(call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return error


def copied(result: Any) -> Any:
    """Copies of results, in host memory."""
    if isinstance(result, tuple):
        return [copied(one) for one in result]
    return np.asarray(result) if isinstance(result, np.ndarray | np.generic) else host(result)


def is_same(got: Any, wanted: Any, op: str) -> bool:
    if isinstance(wanted, list):
        return all(is_same(x, y, op) for x, y in zip(got, wanted, strict=True))
    if op in VARIANCES:  # NaN of an element, or of infinities subtracted
        got, wanted = (np.where(x == x, x, x.dtype.type(np.nan)) for x in (got, wanted))
    return (got.shape, got.dtype) == (wanted.shape, wanted.dtype) and (
        got.tobytes() == wanted.tobytes()
    )


def compare(a: Any, ops: tuple[str, ...], options: dict[str, Any], context: str) -> None:
    """Compare a tuple's results with those of calls of their own."""
    own = [{k: v for k, v in options.items() if k != "ddof" or op in VARIANCES} for op in ops]
    wanted = outcome(
        lambda: [copied(gr.reduce(a, op, **each)) for op, each in zip(ops, own, strict=True)]
    )
    got = outcome(lambda: gr.reduce(a, ops, **options))
    if isinstance(wanted, Exception):
        assert (type(got), str(got)) == (type(wanted), str(wanted)), context
        return
    assert not isinstance(got, Exception), f"{context}: {got!r}"
    for op, one, other in zip(ops, got, wanted, strict=True):
        assert is_same(copied(one), other, op), f"{op} of {context}: {copied(one)} {other}"


def draw_operators(rng: np.random.Generator, given: Any = OPERATORS) -> tuple[str, ...]:
    """Two to five operators in any order."""
    return tuple(str(op) for op in rng.permutation(given)[: int(rng.integers(2, 6))])


def options_of(rng: np.random.Generator, ops: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {"keepdims": bool(rng.random() < 0.2)}
    if set(ops) & set(VARIANCES) and rng.random() < 0.5:
        options["ddof"] = 1
    return options


def check_device_arrays(task: dict[str, Any]) -> None:
    """``count`` random tuples by each schedule; of ``block`` threads, if that is not 0."""
    rng = np.random.default_rng(task["seed"])
    _one_pass.LEAST_BYTES = 0
    passes = 0
    for schedule in SCHEDULES:
        set_option("schedule", schedule)
        for number in range(task["count"]):
            a, axis = draw(rng, task["dtype"], 4000)
            ops = draw_operators(rng, task.get("ops", OPERATORS))
            if number == 0 and "ops" not in task:
                ops = tuple(dict.fromkeys([*ops[:2], "argmin", "any"]))  # which share a pass
            options = options_of(rng, ops) | {"axis": axis}
            if task["block"]:
                options |= {"block_size": task["block"], "grid_size": int(rng.integers(1, 4))}
            memory = device(a)
            compare(
                memory, ops, options,
                f"{schedule} {number}, {a.dtype} {a.shape} {ops} {options} "
                f"GPR_TEST_SEED={task['seed']}",
            )  # fmt: skip
            source = _core.find_library(memory).read(memory)
            blocks = {key: options.get(key) for key in ("block_size", "grid_size")}
            passes += _one_pass.find_pass(source, axis, ops, **blocks) is not None
    assert passes > 0 or "ops" in task, "no tuple was reduced in one pass"


def check_long_rows(task: dict[str, Any]) -> None:
    """Folds whose bits depend on the order, of rows of some rounds and elements at either end."""
    rng = np.random.default_rng(task["seed"])
    _one_pass.LEAST_BYTES = 0
    itemsize = _core.DTYPES[task["dtype"]][0]
    options = {"axis": None, "block_size": task["block"], "grid_size": 1}
    round_ = 4 * 16 // itemsize * task["block"]
    for number in range(24):
        begin = int(rng.integers(0, 8))
        length = int(rng.integers(1, 4)) * round_ + int(rng.integers(0, round_))
        values = values_of(rng, begin + length, task["dtype"])[begin:]
        context = f"{number}, {values.dtype} {values.shape} GPR_TEST_SEED={task['seed']}"
        memory, ops = device(values), ("std", "argmin", "mean")
        compare(memory, ops, options, context)
        source = _core.find_library(memory).read(memory)
        blocks = {key: options[key] for key in ("block_size", "grid_size")}
        found = _one_pass.find_pass(source, None, ops, **blocks)
        assert found is not None, context
        assert found.positions == (0, 1, 2), context


def check_host_arrays(task: dict[str, Any]) -> None:
    """``count`` random tuples of arrays that cross the bus in pieces, or some rows at a time."""
    rng = np.random.default_rng(task["seed"])
    _one_pass.LEAST_BYTES = 0
    _one_pass.CHUNK_BYTES = 8192
    _one_pass.LEAST_HOST_OPERATORS = 2
    for number in range(task["count"]):
        a, axis = draw(rng, task["dtype"], 9000)
        a = np.ascontiguousarray(a)
        ops = draw_operators(rng)
        options = options_of(rng, ops) | {"axis": axis, "device": "cuda"}
        context = f"{number}, {a.dtype} {a.shape} {ops} {options} GPR_TEST_SEED={task['seed']}"
        compare(a, ops, options, context)


def check_nans_beside_each_other(task: dict[str, Any]) -> None:
    """Members that leave NaN out beside those that do not, of tiles with NaN, infinities and
    neither.
    """
    rng = np.random.default_rng(task["seed"])
    _one_pass.LEAST_BYTES = 0
    itemsize = _core.DTYPES[task["dtype"]][0]
    for number in range(task["count"]):
        shape = int(rng.integers(2, 4)), 4096 // itemsize + int(rng.integers(0, 3000))
        values = rng.normal(size=shape).astype(task["dtype"])
        for odd in (np.nan, np.inf):
            if rng.random() < 0.7:
                values[rng.random(shape) < 10.0 ** -rng.integers(1, 4)] = odd
        one_block, blocks = {"axis": 1}, {"axis": None, "block_size": 32, "grid_size": 2}
        for sum_, options in zip(
            ("mean", "nanmean"), rng.permutation([one_block, blocks]), strict=True
        ):
            ops = tuple(rng.permutation(["std", "nanstd", sum_, "nanmax"]).tolist())
            context = f"{number}, {values.dtype} {shape} {ops} {options} {task['seed']}"
            compare(device(values), ops, options, context)


def check_shared_sums(task: dict[str, Any]) -> None:
    """Sums and means of the same accumulator, of rows of either sign that no bins hold."""
    rng = np.random.default_rng(task["seed"])
    _one_pass.LEAST_BYTES = 0
    format_ = np.finfo(task["dtype"])
    shape = 4, 8192 // format_.dtype.itemsize + int(rng.integers(0, 99))
    exponents = rng.integers(format_.minexp, format_.maxexp - 14, shape)
    values = np.ldexp(rng.random(shape), exponents).astype(format_.dtype)
    values[1::2] *= -1
    with_nans = values.copy()
    with_nans[rng.random(shape) < 0.1] = np.nan
    for options in ({"axis": 1}, {"axis": 1, "block_size": 64, "grid_size": 3}):
        context = f"{values.dtype} {shape} {options} GPR_TEST_SEED={task['seed']}"
        ops = ("mean", "sum", "max") if rng.random() < 0.5 else ("sum", "min", "mean")
        compare(device(values), ops, options, context)
        compare(device(with_nans), ("nanmean", "nansum", "nanmax"), options, context)
