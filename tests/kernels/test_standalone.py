"""A kernel that is exported is one file: complete, with nothing that it does not use, and right.

nvcc compiles a few random exports where it is installed, and g++ the kernels of others; with
``GPR_ALL_CASES=1`` every kernel with every operator and dtype that it takes.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from draws import EVERYTHING, SEED, some
from reference import ALL_DTYPES

import gpureduce as gr
from gpureduce import _core

ALL_CASES = os.environ.get("GPR_ALL_CASES", "0") != "0"
COMPILED_BY_NVCC = 2  # exports in an ordinary run, seconds each
COMPILED_BY_GPP = 2
READ = 40 if EVERYTHING else 20  # exports whose text alone is looked at
NOT_ONE_FILE = ("cub", "exact", "fast", "auto")
KERNELS = [kernel.name for kernel in gr.kernels() if kernel.name not in NOT_ONE_FILE]

Case = tuple[str, str, str]
"""Kernel, operator, dtype."""


def export(case: Case) -> str:
    kernel, op, dtype = case
    return gr.kernel_source(kernel, standalone=True, op=op, dtype=dtype)


def is_taken(case: Case) -> bool:
    """Whether the kernel folds the operator of this dtype: where not, its own message says so."""
    try:
        _core.write_program(case[0], _core.OPERATORS[case[1]], case[2], 0)
    except (TypeError, ValueError):
        return False
    return True


def cases(count: int) -> list[Case]:
    """Random cases, no kernel twice as long as there are others; or all."""
    everything = [
        case
        for case in itertools.product(KERNELS, _core.OPERATORS, map(str, ALL_DTYPES))
        if is_taken(case)
    ]
    if ALL_CASES:
        return everything
    rng = random.Random(SEED)
    rng.shuffle(everything)
    left: dict[str, list[Case]] = {}
    for case in everything:
        left.setdefault(case[0], []).append(case)
    found = [case for turn in itertools.zip_longest(*left.values()) for case in turn if case]
    return found[:count]


def code_of(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("case", cases(READ), ids="-".join)
def test_export_has_what_the_program_uses_and_nothing_else(case: Case) -> None:
    text = export(case)
    kernel, _, main = text.partition("#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)")
    code = code_of(kernel)
    assert "#include" not in code
    assert "int main(" in main
    launched = set(re.findall(r"gpr::(\w+)<\w+(?:, block_size)?>\s*<<<", main))
    launched |= set(
        re.findall(r"cudaLaunchKernelEx\(\s*&launch, gpr::(\w+)<First, block_size>,", main)
    )
    assert set(re.findall(r"__global__[^;{]*?\b(\w+)\s*\((?!BLOCK)", code)) == launched
    defined = re.findall(
        r"^(?:#define|struct|using|template <.*> struct|typedef struct) (?:alignas\(\d+\) )?(\w+)",
        code,
        re.MULTILINE,
    ) + re.findall(r"^(?:template <.*>\s)?GPR_DEVICE [^;{}()]*?(\w+)\(", code, re.MULTILINE)
    assert {"Row", "row_of"} <= set(defined)
    words = re.findall(r"\w+", code_of(text))
    assert not [name for name in defined if words.count(name) < 2]
    assert not [line for line in text.splitlines() if len(line) > 100 or line != line.rstrip()]


@pytest.mark.parametrize("kernel", KERNELS if ALL_CASES else some(KERNELS, 0.4, "change here"))
def test_an_export_says_where_to_change_the_kernel(kernel: str) -> None:
    text = gr.kernel_source(kernel, standalone=True)
    (mark,) = re.finditer(r"^// ==== change here: the kernel; .*\n\n", text, re.MULTILINE)
    after = text[mark.end() :]
    assert re.match(rf"template <.*>\n__global__[^;{{]*?\b{kernel}\(", after)
    assert "change here" in text[: text.index("constexpr unsigned block_size")]
    assert f"gpureduce explain mine.cu {kernel}" in text.replace("\n// ", " ")


@pytest.mark.parametrize("case", cases(READ)[:10], ids="-".join)
def test_export_is_made_of_the_files_that_run(case: Case) -> None:
    """Comments and code are lines of the sources, but for shortened conditions and lists."""
    text = export(case)
    sources = "\n".join(_core.sources().values())
    body = text[text.index("\n// ==== ") : text.index("\nusing First = ")]
    made = re.compile(
        r"constexpr|^return (true|false);|\bsame<|static_assert|identity_of_|struct Format|"
        r"^#|^\};?$|^// ==== "
    )
    unknown = [line for line in body.splitlines() if line.strip() not in sources]
    assert not [line for line in unknown if line.strip() and not made.search(line.strip())]
    kernel = _core.sources()[_core.KERNEL_FILES[case[0]]]
    assert kernel.split("#pragma once")[0].rstrip() in text


def drawn_and_newest() -> list[Case]:
    """Random cases, and kernels that need a newer GPU: they have instructions of their own."""
    newest = [
        (kernel.name, "sum", "float32")
        for kernel in gr.kernels()
        if kernel.name in KERNELS and kernel.min_compute_capability is not None
    ]
    drawn = newest if ALL_CASES else some(newest, 1 / 2, "newest GPUs")
    return list(dict.fromkeys([*drawn, *cases(COMPILED_BY_NVCC)]))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("case", drawn_and_newest(), ids="-".join)
def test_nvcc_compiles_an_export_as_it_is(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "mine.cu"
    file.write_text(export(case))
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cuda", "-Werror", "all-warnings"]
    done = subprocess.run(
        [*command, str(file), "-o", str(tmp_path / "mine.ii")], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), f"seed {SEED}: {done.stdout}"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("case", cases(COMPILED_BY_GPP), ids="-".join)
def test_a_compiler_of_kernels_alone_reads_no_main(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "mine.cc"
    text = export(case)
    assert case[0] in gr.kernel_source(case[0])
    file.write_text(f"{text}\nGPR_EMU_ENTRIES(GPR_EMU_ENTRY((gpr::{case[0]}<First, block_size>)))")
    emulator = Path(__file__).parents[2] / "csrc" / "emu" / "cuda_on_cpu.h"
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", "-DGPR_ARCH=900", "-include"]
    done = subprocess.run([*command, str(emulator), str(file)], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {SEED}: {done.stderr}"


@pytest.mark.parametrize("name", NOT_ONE_FILE)
def test_a_kernel_that_is_no_single_file_says_why(name: str) -> None:
    with pytest.raises(gr.KernelUnavailableError, match=f"kernel '{name}' cannot be exported") as e:
        gr.kernel_source(name, standalone=True)
    assert "shfl_atomic" in str(e.value)
    if name != "cub":
        with pytest.raises(ValueError, match="has several programs"):
            _core.write_program(name, "sum", "float32", 0)


def test_export_refuses_what_a_reduction_refuses() -> None:
    with pytest.raises(ValueError, match="unknown operator 'median'"):
        gr.kernel_source("sequential", standalone=True, op="median")
    with pytest.raises(TypeError):
        gr.kernel_source("sequential", standalone=True, dtype="U3")
    with pytest.raises(ValueError, match="takes a block size that is a power of two"):
        gr.kernel_source("sequential", standalone=True, block_size=96)
    with pytest.raises(ValueError, match="give standalone or helpers"):
        gr.kernel_source("sequential", helpers=True, standalone=True)
    text = gr.kernel_source("reduce2", standalone=True, block_size=64)
    assert "constexpr unsigned block_size = 64;" in text
