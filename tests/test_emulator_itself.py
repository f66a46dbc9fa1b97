"""What the emulator is used by: seeds that repeat a run, and errors that say what to do."""

from __future__ import annotations

import os
from pathlib import Path

import emu

from gpureduce import _core

SEED = int(os.environ["GPR_TEST_SEED"])


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another_one() -> None:
    assert not emu.failures([{"do": "cells.check_seeds", "seed": SEED}])


def test_a_kernel_that_does_not_compile_leaves_the_compilers_words_in_the_log(tmp_path: Path) -> None:
    text = _core.sources()["sequential.cuh"]
    (tmp_path / "sequential.cuh").write_text(text.replace("__syncthreads();", "__syncthreads(", 1))
    task = {
        "do": "cells.check_compile_error",
        "log": ["sequential.cuh", "error:"],
        "emulator": {"overlay": str(tmp_path)},
    }
    assert not emu.failures([task])


def test_without_a_compiler_the_log_says_what_to_install() -> None:
    task = {"do": "cells.check_compile_error", "log": ["needs a C++ compiler", "install g++"], "hide_compilers": True}
    assert not emu.failures([task])
