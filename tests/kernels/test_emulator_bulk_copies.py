"""Mistakes with mbarriers and bulk copies are found and named, as a teacher would name them.

Each is the kernel bulk_copy with one place changed, which stands in for the kernel's own file (the
emulator's `overlay`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import emu
import pytest
from draws import EVERYTHING, SEED, some

from gpureduce import _core

SCHEDULES = ["forward", "reverse", "random"]  # one, drawn, of each mistake; GPR_TEST_ALL=1: all
FILE = "bulk_copy.cuh"
BLOCK = 64
ELEMENTS = 4 * BLOCK  # int32 of a tile
SEVERAL_ROUNDS = 13 * ELEMENTS + 37  # by one block: each stage is used again, and again


@dataclass(frozen=True)
class Mistake:
    old: str
    new: str
    finds: tuple[str, ...]
    """Parts of the finding, whatever the schedule."""
    at: str = ""
    """Text of the line of the kernel that it names, if it is the same under every schedule."""
    is_aligned: bool = True


BEGIN = "begin_bulk_copy(tile[stage]"
READ = "= {tile[stage]"
WAIT = "wait_for_phase(&full[stage], parity_of(round))"
MISTAKES = {
    "read_before_the_phase_completes": Mistake(
        WAIT + ";",
        "",
        ("access to shared tile[", "to which a bulk copy is under way: it reads"),
        READ,
    ),
    "phase_waited_for_twice": Mistake(
        WAIT,
        "wait_for_phase(&full[stage], 0)",
        (
            "it arrives with phase 1, parity 1, of mbarrier full["
            "|it begins a bulk copy to it|wait for parity 0 of mbarrier full[",
        ),
    ),
    "wrong_parity_from_the_beginning": Mistake(
        WAIT,
        "wait_for_phase(&full[stage], 1 - parity_of(round))",
        ("to which a bulk copy is under way", "it arrives with phase 0, parity 0, of mbarrier"),
        READ,
    ),
    "other_parity_of_empty": Mistake(
        "parity_of(round - stages)",
        "parity_of(round)",
        ("wait for parity 1 of mbarrier empty[0] that does not end|it begins a bulk copy to it",),
    ),
    "fewer_bytes_announced_than_copied": Mistake(
        "arrive_expecting(&full[stage], bytes)",
        "arrive_expecting(&full[stage], bytes / 2)",
        ("copies of 1024 bytes for phase 0 of mbarrier full[0]", "have announced 512"),
        BEGIN,
    ),
    "more_bytes_announced_than_copied": Mistake(
        "arrive_expecting(&full[stage], bytes)",
        "arrive_expecting(&full[stage], 2 * bytes)",
        ("wait for parity 0 of mbarrier full[", "2048 bytes are announced, and copies of 1024"),
        WAIT,
    ),
    "nothing_announced": Mistake(
        "arrive_expecting(&full[stage], bytes)",
        "arrive(&full[stage])",
        (
            "to which a bulk copy is under way",
            "it arrives with phase 1, parity 1, of mbarrier full",
        ),
        READ,
    ),
    "stage_overwritten_while_threads_read_it": Mistake(
        "if (round >= stages) wait_for_phase(&empty[stage], parity_of(round - stages));",
        "",
        ("shared tile[", "began the copy|begins a bulk copy to it", "mbarrier"),
    ),
    "warp_that_has_not_met": Mistake(
        "__syncwarp(); // the warp has read its part",
        "",
        ("shared tile[", "began the copy|begins a bulk copy to it"),
    ),
    "mbarriers_used_before_their_initialization": Mistake(
        "__syncthreads(); // all threads may use the mbarriers",
        "",
        (
            "at mbarrier full[0], which no thread has initialized"
            "|at mbarrier full[0], whose initialization the thread may not see",
        ),
        WAIT,
    ),
    "mbarriers_not_published": Mistake(
        "publish_mbarriers();",
        "",
        ("bulk copy to mbarrier full[0], which no fence", "visible to copies"),
        BEGIN,
    ),
    "mbarriers_initialized_by_all_threads": Mistake(
        "if (threadIdx.x == 0) {\n        for (unsigned stage = 0;",
        "if (threadIdx.x < 2) {\n        for (unsigned stage = 0;",
        ("mbarrier full[0] is initialized a second time",),
        "init_mbarrier(&full[stage], 1)",
    ),
    "no_arrivals": Mistake(
        "init_mbarrier(&full[stage], 1)",
        "init_mbarrier(&full[stage], 0)",
        ("mbarrier full[0] whose phases take 0 arrivals",),
        "init_mbarrier(&full[stage]",
    ),
    "arrivals_of_threads_where_warps_arrive": Mistake(
        "init_mbarrier(&empty[stage], BLOCK / warp_lanes)",
        "init_mbarrier(&empty[stage], BLOCK)",
        ("wait for parity 0 of mbarrier empty[0]", "does not end", "phase 0 lacks 62 of 64"),
        "wait_for_phase(&empty[stage]",
    ),
    "arrivals_of_all_lanes_but_one": Mistake(
        "if (threadIdx.x % warp_lanes == 0) arrive(&empty[stage]);",
        "if (threadIdx.x % warp_lanes != 0) arrive(&empty[stage]);",
        (
            "mbarrier empty[0] whose phase 1 completes before any thread has waited for phase 0"
            "|it begins a bulk copy to it|began the copy",
        ),
    ),
    "two_arrivals_of_the_thread_that_copies": Mistake(
        "arrive_expecting(&full[stage], bytes);",
        "arrive_expecting(&full[stage], bytes);\n        arrive(&full[stage]);",
        ("arrival at mbarrier full[0], whose phase 0 has all its arrivals",),
        "arrive(&full[stage]);",
    ),
    "misaligned_source": Mistake(
        "const unsigned to_aligned = elements_to_aligned(row_in);",
        "const unsigned to_aligned = 0;",
        ("misaligned bulk copy: its source is ", " past a multiple of 16 bytes"),
        BEGIN,
        is_aligned=False,
    ),
    "misaligned_destination": Mistake(
        "begin_bulk_copy(tile[stage], vectors",
        "begin_bulk_copy(reinterpret_cast<Vector *>(&tile[stage][0].word[1]), vectors",
        ("misaligned bulk copy: its destination is 4 past a multiple of 16 bytes",),
        "begin_bulk_copy(reinterpret",
    ),
    "size_that_is_no_multiple": Mistake(
        "vectors + first, bytes, &full[stage]",
        "vectors + first, bytes - 4, &full[stage]",
        ("bulk copy of 1020 bytes, which is no multiple of 16",),
        BEGIN,
    ),
    "copy_past_the_end_of_its_stage": Mistake(
        "vectors + first, bytes, &full[stage]",
        "vectors + first, 5 * bytes, &full[stage]",
        ("out-of-bounds access", "it writes 16 bytes"),
        BEGIN,
    ),
    "copy_past_the_end_of_the_array": Mistake(
        "(count - first < BLOCK ? count - first : BLOCK)",
        "BLOCK",
        ("out-of-bounds access to global memory: it reads 16 bytes",),
        BEGIN,
    ),
    "copies_that_nobody_waits_for": Mistake(
        "for (unsigned round = 0; first_of(round) < count; round++)",
        "for (unsigned round = 0; first_of(round + 1) < count; round++)",
        ("bulk copy that no thread waits for: the block ends", "begins"),
        BEGIN,
    ),
    "parity_that_is_none": Mistake(
        "return round / stages % 2;",
        "return 2 + round / stages % 2;",
        ("wait for parity 2 of mbarrier full[0], which is neither 0 nor 1",),
        WAIT,
    ),
    "stage_written_by_a_thread_meanwhile": Mistake(
        WAIT + ";",
        "if (threadIdx.x == 40) tile[stage][40] = {};\n        " + WAIT + ";",
        ("shared tile[40]", "it writes", "a bulk copy"),
        "= {};",
    ),
}
# No mistake: the emulator must not find any here.
RIGHT = {
    "barriers_of_the_block_for_empty": (
        (
            "if (round >= stages) wait_for_phase(&empty[stage], parity_of(round - stages));",
            "",
        ),
        (
            "__syncwarp(); // the warp has read its part\n"
            "        if (threadIdx.x % warp_lanes == 0) arrive(&empty[stage]);",
            "__syncthreads();",
        ),
    ),
    "one_lane_waits_for_its_warp": (
        (WAIT + ";", "if (threadIdx.x % warp_lanes == 0) " + WAIT + ";\n        __syncwarp();"),
    ),
    "one_thread_waits_for_its_block": (
        (WAIT + ";", "if (threadIdx.x == 0) " + WAIT + ";\n        __syncthreads();"),
    ),
    "every_thread_arrives": (
        ("init_mbarrier(&empty[stage], BLOCK / warp_lanes)", "init_mbarrier(&empty[stage], BLOCK)"),
        (
            "__syncwarp(); // the warp has read its part\n"
            "        if (threadIdx.x % warp_lanes == 0) arrive(&empty[stage]);",
            "arrive(&empty[stage]);",
        ),
    ),
    "copy_begins_before_its_bytes_are_announced": (
        (
            "arrive_expecting(&full[stage], bytes);\n"
            "        begin_bulk_copy(tile[stage], vectors + first, bytes, &full[stage]);",
            "begin_bulk_copy(tile[stage], vectors + first, bytes, &full[stage]);\n"
            "        arrive_expecting(&full[stage], bytes);",
        ),
    ),
}


def changed(*changes: tuple[str, str]) -> str:
    text = _core.sources()[FILE]
    for old, new in changes:
        assert text.count(old) == 1, f"{text.count(old)} times in the kernel: {old}"
        text = text.replace(old, new)
    return text


def task(
    tmp_path: Path, text: str, schedule: str = "", is_aligned: bool = True
) -> dict[str, object]:
    (tmp_path / FILE).write_text(text)
    return {
        "do": "cases.check_case",
        "kernel": "bulk_copy",
        "dtype": "int32",
        "ops": ["sum"],
        "block": BLOCK,
        "grid": 1,
        "sizes": [SEVERAL_ROUNDS],
        "rows": [] if is_aligned else [(129, 2)],
        "starts": "device",
        "schedules": [schedule] if schedule else SCHEDULES,
        "seed": SEED,
        "emulator": {"overlay": str(tmp_path)},
    }


def schedules_of(name: str) -> list[str]:
    return SCHEDULES if EVERYTHING else [random.Random(f"{SEED} {name}").choice(SCHEDULES)]


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        (name, each)
        for name in some(MISTAKES, 0.6, "mistakes of copies")
        for each in schedules_of(name)
    ],
)
def test_mistake_is_named_under_every_schedule(name: str, schedule: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]
    text = changed((mistake.old, mistake.new))
    answer = emu.do(task(tmp_path, text, schedule, mistake.is_aligned))
    assert "kernel gpr::bulk_copy<" in answer, answer
    for part in mistake.finds:
        assert any(each in answer for each in part.split("|")), f"no {part!r} in: {answer}"
    if mistake.at:
        (line,) = [i for i, each in enumerate(text.splitlines(), 1) if mistake.at in each]
        assert f"{FILE}:{line}" in answer, f"not {FILE}:{line} in: {answer}"


@pytest.mark.parametrize("name", RIGHT)
def test_other_right_ways_are_not_found_fault_with(name: str, tmp_path: Path) -> None:
    answer = emu.do(task(tmp_path, changed(*RIGHT[name])))
    assert answer == "", answer
