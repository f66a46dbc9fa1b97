"""Every kernel emulated: right in types, operators, sizes, starts and schedules, and clean.

The emulator runs the kernels' own text and fails a launch that reads past an end, what nobody
wrote, or what another thread may be writing (docs/emulator.md). Data is fresh in each run; a
failure names the command that repeats its case.
"""

from __future__ import annotations

import os
import random

import emu
import pytest
from draws import EVERYTHING, SEED, some
from emu.cases import FULL
from mutant_trials import COPYING, rounds_to_try
from reference import ALL_DTYPES, OPERATORS, covering, takes

import gpureduce as gr
from gpureduce import _core

OLD_GPU = 75
"""Compute capability, times ten."""
# cub is not ours, and not for g++; auto is one of the others.
KERNELS = {info.name: info for info in gr.kernels() if info.name not in ("cub", "auto")}
# Of a kernel's cases a run takes so many, drawn anew, with every type and every operator among
# them; or all.
CASES = 20
# Of the cases of each test every so-manyth runs, and of few one: where each takes long, under a
# sanitizer.
EVERY = int(os.environ.get("GPR_EMU_EVERY", "1" if EVERYTHING else "40"))
SOME_CASES = [("int8", "max"), ("int64", "sum"), ("float32", "min"), ("bool", "all")]


def cases_of(kernel: str) -> list[tuple[str, str]]:
    """Types and operators that a run takes of a kernel."""
    cases = [
        (dtype, op) for dtype in ALL_DTYPES for op in OPERATORS if takes(op, ALL_DTYPES[dtype])
    ]
    if EVERYTHING:
        return cases
    rng = random.Random(f"{SEED} {kernel}")
    rng.shuffle(cases)
    chosen = covering(cases, rng)
    return chosen + [case for case in cases if case not in chosen][: CASES - len(chosen)]


def small_block(kernel: str) -> int:
    """A block size that makes several blocks cheap."""
    return 32 if KERNELS[kernel].block_rule == "32" else 64


def case(kernel: str, dtype: str, ops: list[str], block: int, **more: object) -> dict[str, object]:
    what = {"do": "cases.check_case", "kernel": kernel, "dtype": dtype, "ops": ops, "block": block}
    return {**what, "seed": SEED, **more}


def demand(tasks: list[dict[str, object]]) -> None:
    tasks = tasks[SEED % EVERY :: EVERY] or [tasks[SEED % len(tasks)]]
    wrong = emu.failures(tasks)
    assert not wrong, f"{len(wrong)} of {len(tasks)} cases:\n" + "\n".join(wrong)


def test_sums_of_nothing_but_minus_zero_are_zero_by_every_kernel() -> None:
    floats = [name for name, dtype in ALL_DTYPES.items() if dtype.kind in "fcV"]
    demand(
        [
            {**case(kernel, dtype, [], small_block(kernel)), "do": "cases.check_zeros"}
            for kernel in KERNELS
            for dtype in floats
        ]
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_is_right_and_breaks_no_rule_for_every_type_and_operator(kernel: str) -> None:
    # Rows of each length are another program of fast's; a test of their own is below.
    rows = {"rows": [(33, 5)]} if kernel == "fast" else {}
    demand(
        [
            case(
                kernel,
                dtype,
                [op],
                small_block(kernel),
                **rows,
                spread=not EVERYTHING and dtype != "int32",
            )
            for dtype, op in cases_of(kernel)
        ]
    )


def test_kernels_whose_blocks_have_many_rounds_are_right_and_break_no_rule() -> None:
    """A place in shared memory that a kernel copies to is used again after a few rounds."""
    tasks = [
        {**case(kernel, dtype, [op], block), **what, "ops": [op]}
        for kernel, dtype, block, what in (
            trial for kernel in COPYING for trial in rounds_to_try(kernel)
        )
        for op in ("sum", "max")
    ]
    tasks = some(tasks, 1 / 2, "many rounds")
    wrong = emu.failures(tasks)
    assert not wrong, "\n".join(wrong)


def test_accumulators_are_filled_to_the_end_of_their_memory_and_no_further() -> None:
    wrong = emu.failures([case("naive_atomic", "int32", ["sum"], 32, sizes=[1], rows=[FULL])])
    assert not wrong, wrong


def other_blocks(kernel: str) -> list[int]:
    """Block sizes where code differs: one warp, several steps, the default, no power of two."""
    info = KERNELS[kernel]
    if info.block_rule == "32":
        return []
    return sorted(
        {32, 256, 1024, info.block_size, *([96] if info.block_rule == "multiple of 32" else [])}
    )


@pytest.mark.long
def test_kernels_are_right_and_break_no_rule_at_other_block_sizes() -> None:
    demand(
        [
            case(kernel, dtype, [op], block, sizes=[block - 1, 4 * block + 3], rows=[(33, 2)])
            for kernel in KERNELS
            for block in other_blocks(kernel)
            for dtype, op in SOME_CASES[1:3]
        ]
    )


def test_short_rows_of_fast_are_right_and_break_no_rule_for_any_number_of_lanes() -> None:
    rows = [(n, count) for n in (1, 3, 7, 16, 17, 40, 100, 129, 250) for count in (1, 70)]
    demand([case("fast", dtype, [op], 64, sizes=[1], rows=rows) for dtype, op in SOME_CASES])


def test_kernels_are_right_and_break_no_rule_on_old_gpus() -> None:
    """Before compute capability 8.0 nothing reduces a warp, before 9.0 nothing compares halves."""
    text = _core.sources()
    differ = [
        kernel
        for kernel, info in KERNELS.items()
        if uses_newer_gpus(text, _core.KERNEL_FILES[kernel])
        and (info.min_compute_capability or (0, 0)) <= divmod(OLD_GPU, 10)
    ]
    assert "redux_last_warp" in differ
    demand(
        [
            case(kernel, dtype, [op], 64, emulator={"cc": OLD_GPU})
            for kernel in differ
            for dtype in ("int8", "int32", "int64", "uint64", "float32", "float64")
            for op in ("sum", "min", "max", "any")
            if kernel == "redux_last_warp"
            or (dtype, op) in (("int8", "min"), ("int8", "max"), ("int64", "sum"))
        ]
    )


def uses_newer_gpus(text: dict[str, str], file: str) -> bool:
    """Whether a kernel's file calls what looks at the GPU's compute capability."""
    return any(word in text[file] for word in ("warp_redux", "fold_vectors"))
