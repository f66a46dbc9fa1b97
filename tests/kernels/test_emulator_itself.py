"""What the emulator is used by: seeds that repeat a run, and errors that say what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import emu
from draws import SEED

from gpureduce import _core


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another_one() -> None:
    assert not emu.failures([{"do": "cases.check_seeds", "seed": SEED}])


def test_a_kernel_that_does_not_compile_leaves_the_compilers_words_in_the_log(
    tmp_path: Path,
) -> None:
    text = _core.sources()["sequential.cuh"]
    (tmp_path / "sequential.cuh").write_text(text.replace("__syncthreads();", "__syncthreads(", 1))
    task = {
        "do": "cases.check_compile_error",
        "log": ["sequential.cuh", "error:"],
        "emulator": {"overlay": str(tmp_path)},
    }
    assert not emu.failures([task])


def test_additions_are_rounded_up_and_down_as_a_gpu_does() -> None:
    assert not emu.failures([{"do": "operators.check_rounded_additions", "seed": SEED}])


def test_without_a_compiler_the_log_says_what_to_install() -> None:
    task = {
        "do": "cases.check_compile_error",
        "log": ["needs a C++ compiler", "install g++"],
        "hide_compilers": True,
    }
    assert not emu.failures([task])


def endless(tmp_path: Path) -> dict[str, Any]:
    """A task over a kernel whose threads never come to their first barrier."""
    text = _core.sources()["sequential.cuh"]
    for_ever = "for (volatile int i = 0; i == 0;) {}"
    (tmp_path / "sequential.cuh").write_text(text.replace("__syncthreads();", for_ever, 1))
    return {**a_case(), "emulator": {"overlay": str(tmp_path)}}


def a_case() -> dict[str, Any]:
    case = {
        "do": "cases.check_case",
        "kernel": "sequential",
        "dtype": "int32",
        "ops": ["sum"],
        "block": 64,
    }
    return {**case, "sizes": [65], "rows": [(65, 2)], "seed": SEED}


def test_a_kernel_that_never_ends_is_killed_and_tasks_after_it_run(tmp_path: Path) -> None:
    assert emu.do({**endless(tmp_path), "limit": 2.0}) == "it did not end within 2.0 seconds"
    assert emu.do(a_case()) == ""


def test_a_broken_kernel_may_take_some_times_what_it_takes_as_it_is(tmp_path: Path) -> None:
    soon = 0.05  # seconds: it is compared with the kernel as it is at once
    answer = emu.do({**endless(tmp_path), "over_broken": soon})
    assert re.fullmatch(
        r"it did not end within \d+ seconds of CPU time; the kernel as it is takes \d+\.\d", answer
    )
    (tmp_path / "sequential.cuh").write_text(_core.sources()["sequential.cuh"])
    as_it_is = {**a_case(), "emulator": {"overlay": str(tmp_path)}}
    assert emu.do({**as_it_is, "over_broken": soon}) == ""


def test_a_worker_that_died_is_replaced() -> None:
    assert emu.do(a_case()) == ""
    for worker in emu.idle:
        worker.process.kill()
        worker.process.wait()
    dead = len(emu.idle)
    assert [emu.do(a_case()) for _ in range(dead)] == ["the worker has died"] * dead
    assert emu.do(a_case()) == ""
