"""Check a kernel of the course with an operator of the user's own: what the operator promises, and
what the kernel computes with it on the emulator, beside a fold from left to right.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._dtypes import native_dtype
from .._emulator_process import as_exception, emulator_environment, run_worker
from .._exceptions import CompileError
from .._temporary import temporary_folder
from .check_report import SCHEDULES, CheckReport, Finding, Limit
from .findings import Place, Trouble
from .operator_device_program import MOST_BLOCK
from .operator_laws import Laws
from .operator_named import PLANNED, facts_of_kernel
from .own_operator import Operator

__all__ = ["check_operator"]

_DTYPES = ("int32", "float32")
"""Elements of an operator that takes all that it compiles for."""
_WARP = 32
_SEED = 1
_SECONDS_PER_CASE = 10.0


def check_operator(
    kernel: object,
    operator: Operator,
    block_sizes: Iterable[int] | None,
    sizes: Iterable[int] | None,
    dtypes: Iterable[Any] | None,
    time_limit: float,
) -> CheckReport:
    """The report of :func:`gpureduce.check` with ``op``."""
    if not isinstance(operator, Operator):
        raise TypeError(f"op is an Operator of your own, not {type(operator).__name__}")
    blocks = (None,) if block_sizes is None else tuple(int(block) for block in block_sizes)
    if not blocks:
        raise ValueError("block_sizes must name one size at least")
    name = operator.kernel_for(kernel, blocks[0])
    for block in blocks[1:]:
        operator.kernel_for(kernel, block)
    row = facts_of_kernel(name)
    if name in PLANNED:
        row = {**row, "block_size": MOST_BLOCK}
    found: list[Finding] = []
    limits: list[Limit] = []
    taken: list[np.dtype[Any]] = []
    runs, facts = 0, {"state_bytes": 0, "has_identity": 0}
    tried: set[int] = set()
    for dtype in _dtypes(operator, dtypes):
        try:
            laws = Laws(operator.text, dtype)
        except CompileError as error:
            if dtypes is not None or operator.dtypes is not None:
                raise
            limits.append(Limit(f"it does not compile for {dtype}: {error}"))
            last_error = error
            continue
        taken.append(dtype)
        facts = laws.facts
        for broken in laws.broken(_SEED):
            if broken.kind in {each.kind for each in found}:  # of another dtype
                continue
            place = Place(*operator.text.place_of(broken.role))
            case = _case(broken.n, 0, "", dtype) | {"grid": 0}
            found.append(Finding.of(Trouble(broken.kind, broken.what, place), case))
        cases = _cases(row, blocks, sizes)
        tried.update(case["n"] for case in cases)
        if not found:
            answer = _run(operator, name, dtype, cases, time_limit)
            runs += answer["runs"]
            found += _wrong(operator, cases, answer, dtype)
    if not taken:
        raise last_error
    identity = "with" if facts["has_identity"] else "without"
    order = "commutative" if operator.commutative else "not commutative"
    return CheckReport(
        kernel=name,
        file=operator.file,
        op=operator.name,
        description=(
            f"operator {operator.name}: {order}, {identity} an identity, a state of "
            f"{facts['state_bytes']} bytes"
        ),
        right=not found,
        findings=tuple(found),
        limits=tuple(limits),
        remarks=(),
        blocks=tuple(block or row["block_size"] for block in blocks),
        sizes=tuple(sorted(tried)),
        dtypes=tuple(str(each) for each in taken),
        runs=runs,
    )


def _dtypes(operator: Operator, given: Iterable[Any] | None) -> list[np.dtype[Any]]:
    if given is not None:
        found = [native_dtype(each) for each in given]
        if not found:
            raise ValueError("dtypes must name one dtype at least")
        return found
    return list(operator.dtypes or map(np.dtype, _DTYPES))


def _case(n: int, block: int, schedule: str, dtype: np.dtype[Any]) -> dict[str, Any]:
    return {"n": n, "block": block, "grid": 1, "schedule": schedule, "in": str(dtype)}


def _cases(
    row: dict[str, Any], blocks: Iterable[int | None], sizes: Iterable[int] | None
) -> list[dict[str, Any]]:
    """Launches around the sizes of a warp, a block and what a block loads; smallest first."""
    given = None if sizes is None else sorted({int(n) for n in sizes})
    if given is not None and (not given or given[0] < 1 or given[-1] > 1 << 20):
        raise ValueError("sizes are from 1 to 1,048,576 elements on the emulator")
    cases = []
    for block in blocks:
        threads = block or row["block_size"]
        tile = threads * row["elements_per_thread"]
        around = {1, 2, _WARP - 1, _WARP + 1, threads - 1, threads, threads + 1, 2 * tile + 17}
        for n in given or sorted(around):
            cases += [{"n": n, "block": block, "schedule": each} for each in SCHEDULES]
    return sorted(cases, key=lambda case: int(case["n"]))


def _run(
    operator: Operator, kernel: str, dtype: np.dtype[Any], cases: list[dict[str, Any]],
    time_limit: float,
) -> dict[str, Any]:  # fmt: skip
    """The answer of a child process."""
    state = base64.b64encode(pickle.dumps((operator, operator.text, dtype))).decode()
    request = {"operator": state, "kernel": kernel, "cases": cases, "seed": _SEED}
    seconds = max(time_limit, _SECONDS_PER_CASE) * len(cases)
    with temporary_folder("gpureduce-check-") as directory:
        environment = emulator_environment(directory, "limit=10000000")
        try:
            reply = run_worker("gpureduce._yours.operator_worker", request, environment, seconds)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(
                f"operator '{operator.name}' had not ended after {seconds:g} seconds: does a loop "
                "of it end?"
            ) from error
    answer: dict[str, Any] = json.loads(reply)
    if "error" in answer:
        raise as_exception(answer["error"])
    return answer


def _wrong(
    operator: Operator, cases: list[dict[str, Any]], answer: dict[str, Any], dtype: np.dtype[Any]
) -> list[Finding]:
    """The finding of the case that was the last one, if it was wrong."""
    if "finding" not in answer and "got" not in answer:
        return []
    last = cases[answer["runs"] - 1]
    what = answer.get("finding") or (
        f"the kernel computes {answer['got']}, and {answer['want']} is the result from left to "
        "right"
    )
    case = _case(last["n"], last["block"] or 0, last["schedule"], dtype)
    return [Finding.of(Trouble("result", what, Place(0)), case)]
