"""Random cases of benchmarks/sweep.py are as described, and its tables list every loss."""

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
def test_cases_lie_within_their_memory_and_repeat_by_seed(size: str) -> None:
    cases = sweep.draw_cases(SEED, size, COUNT)
    assert cases == sweep.draw_cases(SEED, size, COUNT)
    assert cases != sweep.draw_cases(SEED + 1, size, COUNT)
    for case in cases:
        last = sum((e - 1) * s for e, s in zip(case.shape, case.strides, strict=True))
        assert 0 <= last < case.span, f"seed {SEED}: {case}"
        read = case.bytes - (case.elements if case.masked else 0)
        assert 0 < read <= case.span * sweep.ITEMSIZE[case.dtype], f"seed {SEED}: {case}"
        assert case.elements * sweep.ITEMSIZE[case.dtype] <= sweep.MOST_BYTES


def test_cases_have_every_layout_and_number_of_axes() -> None:
    cases = [case for size in sweep.SIZES for case in sweep.draw_cases(SEED, size, 10 * COUNT)]
    layouts = {case.layout.split()[0] for case in cases}
    wanted = {"C", "transposed", "step", "padded", "zero", "overlapping"}
    assert layouts == wanted, f"seed {SEED}"
    assert {len(case.shape) for case in cases} == {1, 2, 3, 5}, f"seed {SEED}"
    assert {case.dtype for case in cases} == set(sweep.DTYPES), f"seed {SEED}"
    assert {True, False} == {case.masked for case in cases} == {case.keepdims for case in cases}
    kept_few = [
        case
        for case in cases
        if isinstance(case.axis, tuple) and len(case.axis) == len(case.shape) - 1
    ]
    assert any(1 <= case.elements // math.prod(case.shape[i] for i in case.axis) <= 64
               for case in kept_few), f"seed {SEED}"  # fmt: skip


def row(ours: float, peer: float, nbytes: int, **others: object) -> dict[str, object]:
    return {
        "function": "sum", "dtype": "float32", "shape": [nbytes // 4], "axis": None, "layout": "C",
        "strides": [1], "offset": 0, "masked": False, "bytes": nbytes, "right": True,
        "variant": "fast_stream", "grid": 1,
        "microseconds": {"auto": [ours] * 3, "torch": [peer] * 3},
        **others,
    }  # fmt: skip


def test_every_case_in_which_a_peer_is_faster_is_listed_with_a_reason() -> None:
    rows = [
        row(100.0, 200.0, 1 << 20),
        row(6.0, 4.0, 1 << 10),
        row(100.0, 90.0, 300_000_000, right=False),
        row(100.0, 80.0, 1 << 20, microseconds={"auto": [100.0], "fast": [80.0], "cupy": [80.0]}),
        row(100.0, 50.0, 1 << 20),
        row(100.0, 40.0, 1 << 20, function="max", masked=True),
        row(100.0, 30.0, 1 << 20, layout="overlapping"),
        row(100.0, 20.0, 1 << 20, shape=[9, 7], strides=[7, 1], variant="fast_columns"),
        row(100.0, 10.0, 1 << 20, shape=[9, 8], strides=[8, 1], variant="fast_columns"),
    ]
    setting = {
        "device": {"name": "GPU"}, "date": "2026-01-01", "cuda_driver": 13000, "nvrtc": 13000,
        "versions": {"torch": "2.0"}, "gpureduce": "0.2.0",
    }  # fmt: skip
    result = {"size": "small", "seed": 1, "environment": setting, "ceiling": 3e12, "rows": rows}
    summary, listed = report.sweep_table([result]).split("\n\n")[:2]
    assert "| 9 / 9 | 1 | 11.1 % | 11.1 % | 0.47 | 1 of 1 |" in summary
    lines = listed.splitlines()[2:]
    ratios = ["0.10", "0.20", "0.30", "0.40", "0.50", "0.67", "0.80", "0.90"]
    assert [line.split(" | ")[1] for line in lines] == ratios
    reasons = [line.split(" | ")[-1].removesuffix(" |") for line in lines]
    assert reasons == [
        "0 % of the ceiling",
        "0 % of the ceiling, 4-byte loads",
        "elements that are read several times come from caches",
        "two launches, of elements and with `initial`",
        "0 % of the ceiling",
        "steps of one launch",
        "exactness: `fast` has 1.00",
        "at memory bandwidth, 100 % of the ceiling",
    ]
