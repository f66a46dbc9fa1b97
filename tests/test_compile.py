"""Every cell of the table compiles: kernel x dtype x operator x architecture.

Needs NVRTC, no GPU.

There are fifty thousand cells, and NVRTC compiles one at a time in a process. So a run takes, of one
architecture drawn anew each time, every kernel with every dtype and with every operator, each pair of
these two with some kernel, and of ``auto`` each of its programs with every dtype and operator; and a sample
of the rest with random block sizes. ``GPR_ALL_CELLS=1`` takes everything, and ``GPR_TEST_SEED`` repeats a run.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
from concurrent.futures import ProcessPoolExecutor

import pytest
from reference import BITS

import gpureduce as gr
from gpureduce import _core

SEED = int(os.environ.get("GPR_TEST_SEED", secrets.randbits(32)))
ALL_CELLS = os.environ.get("GPR_ALL_CELLS", "0") != "0"

ARCHITECTURES = (75, 80, 90, 120)
OPERATORS = list(_core.OPERATORS)  # mean too: its sums have compute types of their own
OTHERS = 200  # cells of the other architectures in an ordinary run
LIBRARY_CELLS = 6  # cells of kernels that compile CUB, which take seconds each
SHOWN = 5  # failures that are printed

Cell = tuple[str, str, str, int, int]
"""kernel, operator, dtype, block size, compute capability"""


def block_sizes(kernel: gr.KernelInfo) -> list[int]:
    if kernel.block_rule == "32":
        return [32]
    if kernel.block_rule == "power of two":
        return [32, 64, 128, 256, 512, 1024]
    return list(range(32, 1025, 32))


def cells_of(kernel: gr.KernelInfo, cc: int, rng: random.Random | None = None) -> list[Cell]:
    """Cells of a kernel at its own block size, or at random ones."""
    least = kernel.min_compute_capability
    if least is not None and 10 * least[0] + least[1] > cc:
        return []
    return [
        (kernel.name, op, dtype, rng.choice(block_sizes(kernel)) if rng else kernel.block_size, cc)
        for op in OPERATORS
        for dtype in _core.DTYPES
    ]


def compile_cells(cells: list[Cell]) -> list[tuple[Cell, str]]:
    """Compile cells and return those that failed, with the compiler's messages."""
    failures = []
    for cell in cells:
        kernel, op, dtype, block_size, cc = cell
        try:
            assert _core.compile_cell(kernel, op, dtype, None, block_size, cc) > 0
        except gr.CudaError as error:
            failures.append((cell, error.log or str(error)))
        except TypeError:
            assert op in ("ptp", *BITS), cell  # NumPy does not have these either
        except ValueError as error:
            assert "folds by atomics" in str(error) or "does not tell where" in str(error), cell  # noqa: PT017
    return failures


def expect_to_compile(cells: list[Cell], rng: random.Random) -> None:
    rng.shuffle(cells)
    workers = os.cpu_count() or 1
    parts = [cells[i :: 4 * workers] for i in range(4 * workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        failures = [failure for part in pool.map(compile_cells, parts) for failure in part]
    text = "\n\n".join(f"{cell}:\n{log}" for cell, log in failures[:SHOWN])
    assert failures == [], f"seed {SEED}: {len(failures)} of {len(cells)} cells do not compile\n{text}"


@pytest.fixture(scope="module", autouse=True)
def needs_nvrtc() -> None:
    try:
        _core.compile_cell("sequential", "sum", "int32", None, 0, 90)
    except gr.DeviceUnavailableError as error:
        pytest.skip(str(error))


def is_library(kernel: gr.KernelInfo) -> bool:
    return kernel.family == "library"


@pytest.mark.timeout(3600)
def test_every_cell_compiles() -> None:
    rng = random.Random(SEED)
    own = [kernel for kernel in gr.kernels() if not is_library(kernel)]
    whole = rng.choice(ARCHITECTURES)
    print(f"seed {SEED}, sm_{whole}")
    cells = [cell for kernel in own for cell in cells_of(kernel, whole)]
    others = [
        cell
        for cc in ARCHITECTURES
        if cc != whole
        for kernel in own
        for cell in cells_of(kernel, cc, None if ALL_CELLS else rng)
    ]
    cells += others if ALL_CELLS else rng.sample(others, OTHERS)
    expect_to_compile(cells, rng)


@pytest.mark.timeout(3600)
def test_cells_of_library_kernels_compile() -> None:
    rng = random.Random(SEED)
    cells = []
    for kernel in filter(is_library, gr.kernels()):
        try:
            _core.compile_cell(kernel.name, "sum", "int32", None, 0, 90)
        except gr.KernelUnavailableError as error:
            pytest.skip(str(error))
        cells += [cell for cc in ARCHITECTURES for cell in cells_of(kernel, cc)]
    expect_to_compile(cells if ALL_CELLS else rng.sample(cells, LIBRARY_CELLS), rng)


def test_a_cell_that_cannot_compile_says_so() -> None:
    for cc in (10, 35):
        with pytest.raises(gr.DeviceUnavailableError, match="compute capability"):
            _core.compile_cell("sequential", "sum", "int32", None, 0, cc)
    with pytest.raises(ValueError, match="power of two"):
        _core.compile_cell("sequential", "sum", "int32", None, 48, 90)
