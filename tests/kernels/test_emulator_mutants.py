"""The emulator catches what it is for: kernels that are broken in one place, wherever that is.

A mutant is a kernel file with one place changed; the emulator compiles it instead of the real one
(its `overlay`). It is caught if, for some kernel that comes to the place, a rule is broken or a
result is wrong. Rules find the places by reading the files (mutations.py), so that a new barrier is
broken too. A run takes some of them, drawn anew each time, and has half a minute for each
(GPR_TEST_ALL=1: all, as long as it takes). What no kernel would miss does not belong there: see
EQUIVALENT.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import emu
import mutations
import pytest
from draws import EVERYTHING, SEED
from kernel_text import definitions_of, tokens_of
from mutant_trials import FIRST, SLOW_FLOAT64, SOURCES, kernels_of, trials
from mutations import Body, Change, Mutant

MARKS = ("GPR_DEVICE", "GPR_CALLED", "__global__")  # of which each function has one in its head
DRAWN = 1  # mutants that a run tries of each list
PATIENCE = math.inf if EVERYTHING else 25.0  # seconds for a mutant, which is left undecided then
ENDS_SOON = (
    5.0  # seconds, after which a trial's time is compared with that of the kernels as they are
)
# Mutants that are right all the same, by file, function, rule and place among those that the rule
# has in the function.
EQUIVALENT: dict[tuple[str, str, str, int], str] = {
    ("single_warp.cuh", "single_warp", "warp_barrier_of_halves", 2): (
        "after the first step only the lower half works; a barrier of the whole warp is the plain "
        "thing to write"
    ),
    **{
        ("single_warp_ordered.cuh", function, "warp_barrier_of_halves", 1): (
            "the first steps stay within the halves, and the whole warp meets after each of them"
        )
        for function in ("single_warp_ordered", "single_warp_ordered_padded")
    },
    (
        "fast_narrow.cuh",
        "fold_items",
        "bound",
        1,
    ): "one more round has nothing to load or to add: both have bounds too",
    (
        "fast_narrow.cuh",
        "fast_narrow",
        "bound",
        1,
    ): "one more thread folds into a slot behind those that are read",
    **{
        (
            file,
            function,
            rule,
            number,
        ): "the warp votes next, which orders what the emulator sees, and on a GPU no memory"
        for file, function, number in (
            ("exact_any_row.cuh", "add_any_row", 2),
            ("exact_block.cuh", "store_words", 1),
        )
        for rule in ("warp_barrier", "warp_barrier_of_halves")
    },
    ("grid_barrier.cuh", "wait_until", "fence", 1): (
        "grid_barrier counts the block a second time, by atomics with fences on both sides"
    ),
    **{
        ("custom_kernels.cuh", "custom_fold_tile", rule, 2): (
            "the warp shuffles next, which orders what the emulator sees, and on a GPU no memory"
        )
        for rule in ("warp_barrier", "warp_barrier_of_halves")
    },
    ("custom_traits.cuh", "custom_clear", "bound", 1): (
        "one more counter is set, in scratch of the call behind those that are read"
    ),
    ("custom_kernels.cuh", "custom_merge_group", "block_barrier", 2): (
        "a block merges twice only where there is work for more than 2^31 - 1 blocks"
    ),
    ("exact_limb_partial.cuh", "load_outlier", "warp_barrier_of_halves", 1): (
        "the lanes of the first half write it, and read it"
    ),
    **{
        ("exact_limb_partial.cuh", "publish_superaccumulator", rule, 1): (
            "the caller has passed a barrier since anything was added; this is where it is needed"
        )
        for rule in ("warp_barrier", "warp_barrier_of_halves")
    },
    ("exact_strided_tiles.cuh", "for_each_tile", "mask_of_halves", 1): (
        "halves of a warp that wait for their own are as right, and read memory in smaller pieces"
    ),
    ("exact_rows.cuh", "store_pair_of_row", "bound", 1): (
        "a lane without a result proves its addition, too; rows that fail are added to bins"
    ),
    ("exact_rows.cuh", "accumulate", "mask_of_halves", 1): (
        "only where there are thousands of rows do several of a warp have more than one tile"
    ),
}


def tasks(mutant: Mutant, overlay: Path) -> Iterator[dict[str, object]]:
    """Runs that may catch a mutant, the likeliest first."""
    for kernel, dtype, block, what in trials(mutant):
        yield {
            **what,
            "kernel": kernel,
            "dtype": dtype,
            "block": block,
            "seed": SEED,
            "emulator": {"overlay": str(overlay)},
            "over_broken": ENDS_SOON,
        }


def is_caught(mutant: Mutant, overlay: Path) -> bool:
    """Whether some trial goes wrong, or is too slow for patience; none is made after it.

    What does not compile is no mutant, and is printed like what is left undecided.
    """
    began = time.monotonic()
    for number, task in enumerate(tasks(mutant, overlay), 1):
        if time.monotonic() - began > PATIENCE:
            print(f"{mutant}: not caught by {number - 1} trials, and others are left")
            return True
        answer = emu.do(task)
        if "cannot compile" in answer:
            print(f"{mutant}: does not compile, {task['kernel']}: {answer}")
            return True
        if answer:
            print(f"{mutant}: caught by trial {number}, after {time.monotonic() - began:.1f} s")
            return True
    return False


Rules = list[Callable[[Body], Iterator[Change]]]


def demand_all_caught(tmp_path: Path, rules: Rules, least: int) -> None:
    """Of a run's share of some rules' mutants none escapes; and each rule still finds some."""
    found = list(mutations.mutants(SOURCES, rules))
    assert len(found) >= least, f"only {len(found)} places were found"
    idle = {rule.__name__ for rule in rules} - {mutant.rule for mutant in found}
    assert not idle, f"these find nothing: {idle}"
    some = [mutant for mutant in found if mutant.key not in EQUIVALENT]
    unreached = [str(mutant) for mutant in some if not kernels_of(mutant)]
    assert not unreached, "no kernel is known to come there:\n" + "\n".join(unreached)
    drawn = some if EVERYTHING else random.Random(SEED).sample(some, DRAWN)
    overlays = []
    for number, mutant in enumerate(drawn):
        overlays.append(tmp_path / str(number))
        file = overlays[-1] / mutant.file
        file.parent.mkdir(parents=True)
        file.write_text(mutant.text)
    with ThreadPoolExecutor(emu.CORES) as pool:
        caught = list(pool.map(is_caught, drawn, overlays))
    escaped = [str(mutant) for mutant, is_so in zip(drawn, caught, strict=True) if not is_so]
    assert not escaped, f"{len(escaped)} of {len(drawn)} mutants are not caught:\n" + "\n".join(
        escaped
    )


def test_no_function_of_the_kernels_is_overlooked() -> None:
    for file, text in SOURCES.items():
        heads = [
            (each.tokens[0].start, each.tokens[each.body - 1 if each.body else -1].end)
            for each in definitions_of(file, text)
        ]
        marks = [each for each in tokens_of(text) if each.text in MARKS]
        for mark in marks:
            of_one = sum(first <= mark.start < end for first, end in heads)
            assert of_one == 1, f"{file}, line {text.count(chr(10), 0, mark.start) + 1}"


def test_equivalent_mutants_are_still_there() -> None:
    there = {
        mutant.key for mutant in mutations.mutants(SOURCES, mutations.TOGETHER + mutations.SLIPS)
    }
    assert not EQUIVALENT.keys() - there


def test_files_whose_mutants_have_trials_of_their_own_are_still_there() -> None:
    assert not {*FIRST, *SLOW_FLOAT64} - {Path(file).name for file in SOURCES}


@pytest.mark.long
def test_no_barrier_fence_or_mask_can_be_taken_away_unnoticed(tmp_path: Path) -> None:
    demand_all_caught(tmp_path, mutations.TOGETHER, 150)


@pytest.mark.long
def test_no_bound_or_offset_can_be_off_by_one_unnoticed(tmp_path: Path) -> None:
    demand_all_caught(tmp_path, mutations.SLIPS, 300)
