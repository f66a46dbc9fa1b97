"""One reduction by a kernel of the user's own on the emulator, for its report."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from .._emulator_process import emulator_environment, run_worker
from .._exceptions import CudaError
from .._temporary import temporary_folder
from .check import judge, launch_case, most_steps, worker_exception
from .check_report import Finding
from .findings import is_finding
from .kernel import Kernel
from .launching import DEFAULT_BLOCK
from .program_text import Program, blocks_for, dtypes_of, further_launches, write

__all__ = ["LaunchReport", "broken_rule", "launch_emulated"]

_BLOCKS = 4
"""Full blocks that make the default length."""
_MOST_LOOPING_BLOCKS = 4

LaunchReport = tuple[dict[str, Any], str]
"""The launch, and the emulator's report of it."""


def launch_emulated(
    kernel: Kernel, n: int | None, block_size: int | None, grid_size: int | None, dtype: str
) -> LaunchReport:
    """Reduce an array by a kernel, check its result, and return the emulator's report.

    The kernel reduces its partials again, as on a GPU.

    Parameters
    ----------
    kernel : Kernel
    n : int or None
        Elements; by default four full blocks of them, or one of a kernel that has one block.
    block_size, grid_size : int or None
        Threads per block, and blocks of a kernel that loops.
    dtype : str
        Of the elements, where the kernel is templated on it.

    Returns
    -------
    tuple
        The launch, and the report.

    Raises
    ------
    ValueError
        A block size that the kernel does not take; a grid size, and it does not loop.
    CudaError
        The kernel does not compile, or breaks a rule.
    RuntimeError
        Its result is wrong.
    """
    form = kernel.form
    block = block_size or form.block_size or DEFAULT_BLOCK
    if not form.takes_block(block):
        raise ValueError(
            f"kernel '{form.name}' ({form.file}:{form.line}) takes blocks of {form.block_words}, "
            f"not of {block}: leave out the block size, or change the number in its text"
        )
    if grid_size is not None and form.cover != "stride":
        raise ValueError(f"kernel '{form.name}' does not loop over blocks: it takes no grid size")
    tile = block * form.elements_per_thread
    blocks = _BLOCKS if form.loops or form.cover not in ("one", "thread") else 1
    count = n if n is not None else blocks * tile
    element, result = dtypes_of(form, dtype)
    grid = grid_size or blocks_for(form, count, block, _MOST_LOOPING_BLOCKS)
    case = launch_case(form, element, result, block, count, grid)
    case["further"] = further_launches(form, element == result, grid, block, grid)
    program = write(form, dtype, block, emulated=True)
    request = {
        "programs": [asdict(program)],
        "cases": [case],
        "in_process": True,
    }
    with temporary_folder("gpureduce-explain-") as directory:
        report = directory / "report"
        environment = emulator_environment(directory, f"report={report},limit={most_steps(count)}")
        answer = json.loads(run_worker("gpureduce._yours.check_worker", request, environment))
        if "error" in answer:
            raise broken_rule(kernel, program, case, answer["error"])
        if answer.get("relied", 0) and (finding := judge(kernel, program, case)) is not None:
            raise CudaError(_message(kernel, finding))
        if "got" in answer:
            raise RuntimeError(
                f"kernel '{form.name}' computed {answer['got']:g} where NumPy has "
                f"{answer['want']:g}; gpureduce.check, or the command gpureduce check, looks "
                "for the reason. A wrong run is not explained: its counts and its picture would "
                "pass for the kernel's"
            )
        return case, report.read_text(encoding="utf-8")


def broken_rule(
    kernel: Kernel, program: Program, case: dict[str, Any], error: dict[str, Any]
) -> Exception:
    """The worker's exception; of a broken rule, in the words of :func:`gpureduce.check`.

    One launch shows one kind of a mistake: a missing block barrier may look like a missing warp
    barrier, or like memory that nobody wrote. The check's schedules tell which it is.
    """
    if error["name"] != "CudaError" or not is_finding(error["message"]):
        return worker_exception(kernel.form, error)
    finding = judge(kernel, program, case, error["message"])
    assert finding is not None
    return CudaError(_message(kernel, finding), *error["details"])


def _message(kernel: Kernel, finding: Finding) -> str:
    return (
        f"kernel '{kernel.name}': {finding.title}: {finding.summary}; run `gpureduce check "
        f"{kernel.file}`"
    )
