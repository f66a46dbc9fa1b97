"""The random cells of benchmarks/sweep.py are what they promise, and its tables list every loss."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import report
import sweep

SEED = random.SystemRandom().randrange(1 << 32)
COUNT = 400


@pytest.mark.parametrize("size", sweep.SIZES)
def test_cells_lie_within_their_memory_and_repeat_by_seed(size: str) -> None:
    cells = sweep.draw_cells(SEED, size, COUNT)
    assert cells == sweep.draw_cells(SEED, size, COUNT)
    assert cells != sweep.draw_cells(SEED + 1, size, COUNT)
    for cell in cells:
        last = sum((e - 1) * s for e, s in zip(cell.shape, cell.strides, strict=True))
        assert 0 <= last < cell.span, f"seed {SEED}: {cell}"
        read = cell.bytes - (cell.elements if cell.masked else 0)
        assert 0 < read <= cell.span * sweep.ITEMSIZE[cell.dtype], f"seed {SEED}: {cell}"
        assert cell.elements * sweep.ITEMSIZE[cell.dtype] <= sweep.MOST_BYTES


def test_cells_have_every_layout_and_number_of_axes() -> None:
    cells = [cell for size in sweep.SIZES for cell in sweep.draw_cells(SEED, size, 10 * COUNT)]
    layouts = {cell.layout.split()[0] for cell in cells}
    wanted = {"C", "transposed", "step", "padded", "zero", "overlapping"}
    assert layouts == wanted, f"seed {SEED}"
    assert {len(cell.shape) for cell in cells} == {1, 2, 3, 5}, f"seed {SEED}"
    assert {cell.dtype for cell in cells} == set(sweep.DTYPES), f"seed {SEED}"
    assert {True, False} == {cell.masked for cell in cells} == {cell.keepdims for cell in cells}
    kept_few = [
        cell
        for cell in cells
        if isinstance(cell.axis, tuple) and len(cell.axis) == len(cell.shape) - 1
    ]
    assert any(1 <= cell.elements // math.prod(cell.shape[i] for i in cell.axis) <= 64
               for cell in kept_few), f"seed {SEED}"  # fmt: skip


def row(ours: float, peer: float, nbytes: int, **others: object) -> dict[str, object]:
    return {
        "function": "sum", "dtype": "float32", "shape": [nbytes // 4], "axis": None, "layout": "C",
        "masked": False, "bytes": nbytes, "right": True, "variant": "fast_stream", "grid": 1,
        "microseconds": {"auto": [ours] * 3, "torch": [peer] * 3},
        **others,
    }  # fmt: skip


def test_every_cell_in_which_a_peer_is_faster_is_listed_with_a_reason() -> None:
    rows = [
        row(100.0, 200.0, 1 << 20),
        row(6.0, 4.0, 1 << 10),
        row(100.0, 90.0, 300_000_000, right=False),
        row(100.0, 80.0, 1 << 20, microseconds={"auto": [100.0], "fast": [80.0], "cupy": [80.0]}),
        row(100.0, 50.0, 1 << 20),
    ]
    setting = {
        "device": {"name": "GPU"}, "date": "2026-01-01", "cuda_driver": 13000, "nvrtc": 13000,
    }  # fmt: skip
    result = {"size": "small", "seed": 1, "environment": setting, "ceiling": 3e12, "rows": rows}
    summary, listed = report.sweep_table([result]).split("\n\n")[:2]
    assert "| 5 / 5 | 1 | 20.0 % | 20.0 % | 0.86 | 1 of 1 |" in summary
    lines = listed.splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["0.50", "0.67", "0.80", "0.90"]
    reasons = [line.split(" | ")[-1].removesuffix(" |") for line in lines]
    assert reasons == [
        "0 % of the ceiling",
        "steps of one launch",
        "exactness: `fast` has 1.00",
        "at memory bandwidth, 100 % of the ceiling",
    ]
