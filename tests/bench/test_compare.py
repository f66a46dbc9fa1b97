"""Comparisons: right and wrong results, columns, break-even, libraries, every output format.

No test depends on how long anything takes: where times matter they are made up.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import shutil
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import environment_without_pytest
from draws import SEED
from outputs import assert_balanced
from pages import blocks
from test_timing import over_fakes

import gpureduce as gr
from gpureduce import _core
from gpureduce._bench import baselines, charts, correctness, profile, session
from gpureduce._bench.contenders import BreakEven, Contender, find_break_even
from gpureduce._bench.correctness import check, reference
from gpureduce._bench.sampling import Spread, ratio_interval
from gpureduce._display.figures import save_figure
from gpureduce._display.tables import lay_out, show_speedup

SHORT = {"seconds": 0.01, "ceiling": False}
PAIR = {"baselines": ["numpy"], "break_even": False, **SHORT}


def spread(seconds: float) -> Spread:
    return Spread((seconds,) * 12)


def row(name: str, **more: Any) -> Contender:
    return Contender(
        name, name not in baselines.BASELINES, **{"elements": 1000, "bytes": 4000, **more}
    )


def made(*rows: Contender, **more: Any) -> gr.Comparison:
    fields: dict[str, Any] = {
        "op": "sum", "dtype": "float32", "shape": (1000,), "axis": None, "cache": "hot",
        "rows": rows, "break_even": None, "peak": 5e9, "ceiling": 4e9, "device_name": "GPU X",
        "environment": {"date": "today", "device": {"name": "GPU X"}},
    }  # fmt: skip
    return gr.Comparison(**fields | more)


@pytest.fixture
def comparison() -> gr.Comparison:
    """Made-up times: a slow and a fast kernel, a wrong one, one that is absent, and libraries."""
    right = {"right": True, "ulps": 0.5, "ran_on": "cuda:0"}
    return made(
        row("naive", block_size=256, host=spread(9e-3), on_device=spread(4e-3), **right),
        row("auto", block_size=512, host=spread(6e-3), on_device=spread(1e-3), **right),
        row("broken", block_size=64, right=False, ulps=12345.0, ran_on="cuda:0"),
        row("missing", absent="it needs another GPU"),
        row("numpy", host=spread(3e-3), right=True, ulps=1.0, ran_on="cpu"),
        row(
            "cupy",
            host=spread(12e-3),
            on_device=spread(2e-3),
            right=True,
            ulps=0.0,
            ran_on="cuda:0",
        ),
    )


# ---------------------------------------------------------------- right and wrong


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int32", "uint8", "bool", "complex64"]
)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "mean", "any", "all"])
def test_numpys_own_result_is_right(op: str, dtype: str) -> None:
    rng = np.random.default_rng(SEED)
    values = rng.integers(0 if np.dtype(dtype).kind in "bu" else -3, 4, (40, 30)).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        noise = rng.random(values.shape)
        # Products neither overflow nor vanish on the way, in whatever order.
        values = (1 + noise / 256 if op == "prod" else values + noise).astype(dtype)
    for axis in (None, 0, 1):
        result = getattr(np, op)(values, axis=axis)
        right = correctness.loosened(reference(op, values, axis), values.dtype)
        verdict = check(result, right, np.asarray(result).dtype)
        assert verdict.right, (op, dtype, axis, verdict)


def test_the_error_is_counted_in_ulps_of_the_exact_result() -> None:
    values = np.random.default_rng(SEED).random(1000, np.float32)
    exact = float(sum(map(Fraction, values.tolist())))
    right = reference("sum", values, None)
    nearest = np.float32(exact)
    for steps in (0, 1, -3, 40):
        result = nearest
        for _ in range(abs(steps)):
            result = np.nextafter(result, np.float32(math.copysign(np.inf, steps)))
        ulp = float(np.spacing(nearest))
        verdict = check(result, right, np.dtype(np.float32))
        expected = 0 if steps == 0 else abs(float(result) - exact) / ulp
        assert verdict.ulps == pytest.approx(expected, rel=1e-6)


def test_a_lost_block_is_wrong_and_another_order_is_not() -> None:
    rng = np.random.default_rng(SEED)
    values = rng.random(100_000, np.float32)
    right = reference("sum", values, None)
    like = np.dtype(np.float32)
    for _ in range(20):
        order = rng.permutation(values)
        one_by_one = np.add.accumulate(order, dtype=np.float32)[-1]
        assert check(one_by_one, right, like).right
    lost = check(np.sum(values[256:]), right, like)
    assert not lost.right
    assert lost.ulps > 100
    twice = check(np.sum(values) + values.mean(), right, like)
    assert (twice.ulps > 0) == (np.sum(values) + values.mean() != np.float32(right[0]))


def test_a_sum_that_stops_growing_is_wrong() -> None:
    ones = np.ones(1 << 25, np.float32)
    stuck = np.float32(1 << 24)  # where adding 1 to a float32 changes nothing
    verdict = check(stuck, reference("sum", ones, None), np.dtype(np.float32))
    assert not verdict.right


@pytest.mark.parametrize(("op", "off"), [("sum", 1), ("max", 1), ("min", -2)])
def test_integers_are_right_or_wrong(op: str, off: int) -> None:
    values = np.random.default_rng(SEED).integers(-1000, 1000, 500)
    exact = getattr(np, op)(values)
    right = reference(op, values, None)
    assert check(exact, right, exact.dtype) == correctness.Verdict(True, 0.0)
    assert check(exact + off, right, exact.dtype) == correctness.Verdict(False, float(abs(off)))


def test_nan_and_infinities_match_only_themselves() -> None:
    values = np.array([1.0, np.nan, np.inf], np.float32)
    like = np.dtype(np.float32)
    assert check(np.float32(np.nan), reference("sum", values, None), like).right
    assert not check(np.float32(1), reference("sum", values, None), like).right
    assert not check(np.float32(np.nan), reference("sum", values[:1], None), like).right
    assert check(np.float32(np.inf), reference("max", values[2:], None), like).right
    assert not check(np.float32(-np.inf), reference("max", values[2:], None), like).right
    assert not check(np.zeros(2, np.float32), reference("sum", values, None), like).right


def test_bfloat16_is_checked_in_its_own_ulps() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes")
    values = np.arange(1, 100).astype(ml_dtypes.bfloat16)
    found = gr.compare(values, device="cpu", **PAIR)
    assert found["auto"].right
    assert found["auto"].ulps <= 1
    off = gr.sum(values, device="cpu").astype(np.float32) * 1.05
    assert not check(off, reference("sum", values, None), values.dtype).right


def test_a_wrong_result_is_shown_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    reduction = session.BenchmarkSession.reduction

    def broken(self: session.BenchmarkSession, op: str, options: dict[str, Any]) -> Any:
        call = reduction(self, op, options)
        return call if options["kernel"] != "fast" else lambda array: call(array) + np.float64(1)

    monkeypatch.setattr(session.BenchmarkSession, "reduction", broken)
    found = gr.compare(np.ones(1000), ["auto", "fast"], device="cpu", **PAIR)
    assert (found["auto"].right, found["fast"].right) == (True, False)
    assert found["fast"].host is None
    ulp = float(np.spacing(np.float64(1000)))
    assert found["fast"].ulps == 1 / ulp
    for text in (str(found), found.to_markdown(), found._repr_html_()):
        assert "WRONG" in text
    assert "it was not timed" in str(found)


# ---------------------------------------------------------------- speedups


def test_speedups_are_within_a_column(comparison: gr.Comparison) -> None:
    auto = comparison["auto"]
    assert comparison.speedup(auto, "first", "on_device") == pytest.approx(4)
    assert comparison.speedup(auto, "first", "host") == pytest.approx(1.5)
    assert comparison.speedup(auto, "numpy", "host") == pytest.approx(0.5)
    assert comparison.speedup(auto, "numpy", "on_device") is None
    assert comparison.speedup(auto, "best peer", "on_device") == pytest.approx(2)
    assert comparison.speedup(auto, "best peer", "host") == pytest.approx(2)
    assert comparison.speedup(comparison["broken"], "first", "host") is None
    for bad in (("fastest", "host"), ("first", "both")):
        with pytest.raises(ValueError, match="must be"):
            comparison.speedup(auto, *bad)


def test_speedups_are_over_the_same_size() -> None:
    both = made(
        row("auto", host=spread(1.0)), row("numpy", host=spread(2.0)),
        row("auto", host=spread(3.0), elements=9), row("numpy", host=spread(30.0), elements=9),
    )  # fmt: skip
    assert [both.speedup(each, "numpy", "host") for each in both] == pytest.approx([2, 1, 10, 1])


def test_the_table_keeps_the_columns_apart(comparison: gr.Comparison) -> None:
    headings, rows = comparison.table()
    assert headings == [
        *("", "threads per block", "kernels alone (ms)", "GB/s", "% of peak", "% of ceiling"),
        *("times as fast as naive", "times as fast as cupy", "whole call (ms)", "GB/s"),
        *("times as fast as naive", "times as fast as numpy", "times as fast as cupy"),
        "error (ulps)",
    ]
    cells = {line[0]: line for line in rows}
    assert cells["auto"][2:8] == ["1.000", "0.004", "0.1", "0.1", "4.00", "2.00"]
    assert cells["auto"][8:] == ["6.000", "0.00067", "1.50", "0.50", "2.00", "0.5"]
    assert cells["numpy"][2:8] == [""] * 6
    assert cells["broken"][2:] == [""] * 11 + ["WRONG 1.2e+04"]
    assert "missing" not in cells
    assert "not measured: missing: it needs another GPU" in comparison.notes()


def test_a_loss_by_the_copy_is_noted(comparison: gr.Comparison) -> None:
    said = "\n".join(comparison.notes())
    assert said.startswith("For 1,000 float32 numbers, the fastest kernel, auto, took")
    assert (
        "took 6.000 ms on the GPU, with the copy from host memory, and numpy.sum 3.000 ms: NumPy "
        "is 2.00 times as fast. Its kernels alone took 1.000 ms: the copy over PCIe takes the rest."
    ) in said
    assert "missing: it needs another GPU" in said
    assert "broken (64): WRONG, off by 12,345 ulps" in said


def test_where_the_kernels_lose_the_copy_is_not_blamed() -> None:
    right = {"right": True, "ran_on": "cuda:0"}
    slow = made(
        row("naive", host=spread(9.0), on_device=spread(8.0), **right),
        row("numpy", host=spread(1.0)),
    )
    assert "Its kernels alone took 8.000 s" in "\n".join(slow.notes())
    assert "PCIe" not in "\n".join(slow.notes())
    fast = made(
        row("auto", host=spread(0.5), on_device=spread(0.1), **right),
        row("numpy", host=spread(1.0)),
    )
    assert "gpureduce is 2.00 times as fast." in fast.notes()[0]
    assert "kernels alone took" not in fast.notes()[0]
    on_cpu = made(
        row("auto", host=spread(2.0), right=True, ran_on="cpu"), row("numpy", host=spread(1.0))
    )
    assert on_cpu.notes()[0] == (
        "For 1,000 float32 numbers, gpureduce's auto took 2.000 s on this CPU and numpy.sum 1.000 "
        "s: NumPy is 2.00 times as fast."
    )


def test_a_difference_within_the_spread_is_no_loss() -> None:
    right = {"right": True, "ran_on": "cuda:0"}
    noisy = Spread(tuple(np.linspace(1.0, 3.0, 12)))  # a median of 2, quartiles of 1.5 and 2.5
    level = made(row("auto", host=noisy, **right), row("numpy", host=spread(1.8)))
    assert level.notes()[0].endswith(
        "too close to call, because times vary by 50% from call to call."
    )
    assert "kernels alone" not in level.notes()[0]
    near = Spread(tuple(np.linspace(0.95, 1.05, 12)))
    equal = made(row("auto", host=near, **right), row("numpy", host=near)).notes()[0]
    assert equal.endswith(
        "too close to call, as they differ by less than they vary (0.95 to 1.05)."
    )
    fast = Spread(tuple(np.linspace(0.5, 1.5, 12)))  # quartiles of 0.75 and 1.25
    ahead = made(row("auto", host=fast, **right), row("numpy", host=spread(1.8))).notes()[0]
    assert ahead.endswith(
        "gpureduce is 1.80 (1.44 to 2.40) times as fast in this run, where times vary by 50% from "
        "call to call: measure again."
    ), ahead
    assert level.speedup_interval(level["auto"], "numpy", "host") == pytest.approx(
        (1.8 / 2.5, 1.8 / 1.5)
    )
    assert level.show_speedup(level["auto"], "numpy", "host") == "0.90 (0.72 to 1.20)"
    assert "0.90 (0.72 to 1.20)" in str(level)
    slower = made(row("auto", host=noisy, **right), row("numpy", host=spread(1.2)))
    assert "NumPy is 1.67 (1.25 to 2.08) times as fast" in "\n".join(slower.notes())


@pytest.mark.parametrize(
    ("value", "interval", "shown"),
    [
        (1.4683, (1.05, 1.89), "1.47 (1.05 to 1.89)"),
        (4.0, (4.0, 4.0), "4.00"),
        (1.00213, (1.0018, 1.0024), "1.0021 (1.0018 to 1.0024)"),
        (1.0, (0.9999999, 1.0), "1.00"),
        (805.4, (700.0, 900.0), "805 (700 to 900)"),
        (0.19, (0.13, 2.24), "0.19 (0.13 to 2.24)"),
        (0.00123, (0.0011, 0.0014), "0.0012 (0.0011 to 0.0014)"),
        (12345.6, (12000.0, 13000.0), "12,346 (12,000 to 13,000)"),
    ],
)
def test_a_speedup_is_shown_as_precisely_as_its_spread_lets(
    value: float, interval: tuple[float, float], shown: str
) -> None:
    assert show_speedup(value, interval) == shown


def test_the_ceiling_is_not_below_a_figure_that_is_shown() -> None:
    a = np.arange(100.0)
    for found in (
        gr.compare(a, device="cpu", baselines=["numpy"], break_even=False, seconds=0.01),
    ):
        rates = [each.host_bandwidth for each in found if each.host_bandwidth]
        assert found.ceiling >= max(rates)
    timing = gr.benchmark("auto", a, device="cpu", seconds=0.01)
    assert timing.of_ceiling <= 1


# ---------------------------------------------------------------- break-even


def sharp(ratios: list[float]) -> list[tuple[float, float]]:
    """Intervals of times that do not spread."""
    return [(ratio, ratio) for ratio in ratios]


def test_the_break_even_is_where_the_lines_cross() -> None:
    sizes = [10**k for k in range(2, 9)]
    ours = [1e-5 + 1e-10 * n for n in sizes]
    theirs = [1e-6 + 1e-9 * n for n in sizes]
    for first, second, wins in ((ours, theirs, True), (theirs, ours, False)):
        ratios = [b / a for a, b in zip(first, second, strict=True)]
        meeting, between, first_wins = find_break_even(sizes, ratios, sharp(ratios))
        assert first_wins == wins
        assert meeting == pytest.approx(1e4, rel=0.5)  # interpolated over a decade
        assert between == (meeting, meeting)


def test_exactly_equal_at_a_measured_size_is_that_size() -> None:
    for sizes, ratios in (([100, 1000, 10000], [0.5, 1.0, 2.0]), ([100, 10000], [0.1, 10.0])):
        meeting, _, wins = find_break_even(sizes, ratios, sharp(ratios))
        assert (meeting, wins) == (pytest.approx(1000), True)


def test_of_several_crossings_the_last_one_counts() -> None:
    ratios = [2.0, 0.5, 0.5, 2.0]
    meeting, _, wins = find_break_even([10, 100, 1000, 10000], ratios, sharp(ratios))
    assert 1000 < meeting < 10000
    assert wins


def test_without_a_crossing_there_is_none() -> None:
    for ratios in ([2.0, 3.0], [0.2, 0.3], [0.2]):
        assert find_break_even([10, 100][: len(ratios)], ratios, sharp(ratios)) is None


def test_the_break_even_is_known_as_well_as_the_times_on_both_sides() -> None:
    sizes, ratios = [10, 100, 1000, 10_000], [0.5, 0.7, 1.4, 2.0]
    wide = [(ratio / 1.2, ratio * 1.2) for ratio in ratios]
    meeting, (least, most), _ = find_break_even(sizes, ratios, wide)
    assert 100 < least < meeting < most < 1000
    wider = [(ratio / 1.5, ratio * 1.5) for ratio in ratios]  # 0.7 and 1.4 are level with NumPy
    meeting, (least, most), _ = find_break_even(sizes, ratios, wider)
    assert 10 < least < meeting < most < 10_000
    assert most / least > 10


def test_noise_makes_no_break_even() -> None:
    sizes = (312, 2500, 20_000, 160_000, 9_800_000, 78_000_000)
    ratios = (1.82, 1.73, 1.64, 1.47, 0.80, 1.00)
    noise = (0.05, 0.05, 0.06, 0.1, 0.3, 0.4)
    intervals = tuple((r - d, r + d) for r, d in zip(ratios, noise, strict=True))
    assert find_break_even(sizes, ratios, intervals) is None
    said = str(BreakEven("auto", "cpu", None, None, None, None, sizes, ratios, intervals))
    assert said == (
        "auto on the CPU is faster than numpy from 312 to 160,000 numbers, and too close to call "
        "from 9,800,000 to 78,000,000 numbers. Where that changes between 160,000 and 9,800,000 "
        "was not measured."
    )


def test_random_noise_around_level_times_makes_hardly_ever_a_break_even() -> None:
    rng = np.random.default_rng(SEED)
    found = 0
    for _ in range(200):
        pairs = [tuple(Spread(tuple(rng.normal(1.0, 0.1, 20))) for _ in range(2)) for _ in range(6)]
        ratios = [a.median / b.median for a, b in pairs]
        intervals = [ratio_interval(a, b) for a, b in pairs]
        found += find_break_even([10**k for k in range(1, 7)], ratios, intervals) is not None
    assert found < 10


def test_noise_is_said_where_it_hides_who_is_faster() -> None:
    wide = Spread(tuple(np.linspace(0.5, 6.0, 12)))
    narrow = Spread(tuple(np.linspace(1.9, 2.1, 12)))
    right = {"right": True, "ran_on": "cpu"}
    compared = made(row("auto", host=wide, **right), row("numpy", host=spread(2.0)))
    shown = compared.speedup_interval(compared["auto"], "numpy", "host")
    answer, *_, advice = compared.notes()
    noise = wide.noise
    assert answer.endswith(
        f"too close to call, because times vary by {noise:.0%} from call to call."
    )
    assert advice.startswith(f"too close to call: auto (CPU backend) and numpy ({shown[0]:.2f} to ")
    assert "take more samples (seconds=, --seconds), reduce a larger array" in advice
    calm = made(row("auto", host=narrow, **right), row("numpy", host=spread(2.0)))
    assert not [note for note in calm.notes() if "too close to call:" in note]
    intervals = ((0.1, 2.5), (0.2, 3.0))
    curve = BreakEven("auto", "cpu", None, None, None, None, (10, 100), (0.5, 1.0), intervals)
    assert str(curve) == "auto on the CPU is too close to call from 10 to 100 numbers."
    times = ((256, 2048, 9000), (2.0, 0.5, 0.3), ((2.0, 2.0), (0.5, 0.5), (0.08, 1.2)))
    ends = str(BreakEven("auto", "cpu", 500, 2000, (400, 600), False, *times))
    assert ends == (
        "auto on the CPU is faster than numpy from 256 to 400 numbers, slower than numpy from 600 "
        "to 2,048 numbers, and too close to call for 9,000 numbers. The two are equally fast at "
        "about 500 numbers (1.953 KiB), somewhere between 400 and 600. Where that changes between "
        "2,048 and 9,000 was not measured."
    )


def test_a_comparison_reads_from_the_answer_to_other_sizes() -> None:
    """Nothing on the screen is there before what it is about, and no column is empty."""
    right = {"right": True, "ran_on": "cpu", "ulps": 0.5}
    sizes = ((2, 16, 128, 1000), (3.0, 2.0, 0.9, 0.5))
    even = BreakEven(
        "auto",
        "cpu",
        None,
        None,
        None,
        None,
        *sizes,
        ((2.9, 3.1), (1.9, 2.1), (0.8, 1.1), (0.4, 1.2)),
    )
    why = "there is no GPU (no NVIDIA GPU on this machine)"
    found = made(
        row("auto", host=spread(2e-3), why_no_device="no NVIDIA GPU on this machine; go", **right),
        row("numpy", host=spread(1e-3), right=True, ulps=2.0, ran_on="cpu"),
        *(row(name, absent=why) for name in ("cub", "cupy", "torch")),
        peak=None, break_even=even,
    )  # fmt: skip
    title, answer, table, notes, others, sweep, sentence = str(found).rstrip("\n").split("\n\n")
    assert title == "sum of 1,000 float32, GPU X"  # of the cache only if it is not as usual
    assert answer.startswith(
        "For 1,000 float32 numbers, gpureduce's auto took 2.000 ms on this CPU"
    )
    lines = table.splitlines()
    assert lines[-2].split()[-4:] == ["2.000", "0.002", "0.50", "0.5"]
    assert len(lines) == 5  # two of headings, a rule, and no row of a library that needs a GPU
    assert "times as fast" in lines[0]
    assert f"not measured: times on a GPU, cub, cupy and torch: {why}" in notes.splitlines()
    assert others == (
        "Other sizes, measured briefly: the first 2 to 128 numbers of the array, each size 8 times "
        "the one before:"
    )
    assert [line.split()[0] for line in sweep.splitlines()[3:]] == ["2", "16", "128", "1,000"]
    assert sentence == (
        "auto on the CPU is faster than numpy from 2 to 16 numbers, and too close to call from 128 "
        "to 1,000 numbers. Where that changes between 16 and 128 was not measured."
    )
    for word in ("x numpy", "x first", "absent", "%", "hot cache", "±"):
        assert word not in str(found), word
    cold = str(made(*found.rows, cache="cold", break_even=even))
    assert "GPU X" in cold.split("\n\n")[0]
    assert cold.startswith("sum of 1,000 float32, cold cache")
    assert "the array is in the cache where it fits:" in cold


def test_columns_are_explained_where_they_are() -> None:
    right = {"right": True, "ran_on": "cpu"}
    alone = made(row("auto", host=spread(1.0), **right), dtype="bool")
    assert "times as fast" not in str(alone)
    assert alone.notes()[0].startswith("For 1,000 bool elements, gpureduce's auto took 1.000 s on")
    assert "ulps" not in str(alone)
    one = made(row("auto", host=spread(1.0), **right | {"ulps": 1.0}), shape=(1,))
    assert "in ulps, units of the last digit" in str(one)
    sweep = made(*(row("auto", elements=n, host=spread(1.0), **right) for n in (1, 9)))
    assert "times as fast" not in str(sweep)
    assert sweep.notes()[0].startswith("For 1 float32 number, gpureduce's auto took")
    both = made(*(row(name, host=spread(1.0), **right) for name in ("auto", "fast")))
    assert "times as fast as auto" in both.to_markdown()
    assert "times as fast: 2 is twice as fast" in str(both)


def test_headings_wrap_where_they_are_wide_enough() -> None:
    lines = lay_out(["", "times as fast as numpy"], [["auto", "1"]], left=1, heading_width=14)
    assert lines.splitlines()[:2] == ["      times as fast", "           as numpy"]
    assert lay_out(["", "a b"], [["c", "1"]], left=1).splitlines()[:2] == ["   a", "   b"]


def test_reasons_are_said_once_and_advice_is_left_to_errors() -> None:
    why = "no NVIDIA GPU on this machine; do this and that"
    absent = "there is no GPU (no NVIDIA GPU on this machine)"
    found = made(
        row("auto", host=spread(1.0), right=True, ran_on="cpu", why_no_device=why),
        row("numpy", host=spread(2.0)), row("cub", absent=absent), row("cupy", absent=absent),
    )  # fmt: skip
    assert f"not measured: times on a GPU, cub and cupy: {absent}" in found.notes()
    alone = made(row("auto", host=spread(1.0), right=True, ran_on="cpu", why_no_device=why))
    assert "not measured: times on a GPU: no NVIDIA GPU on this machine" in alone.notes()
    assert "do this" not in str(found)
    assert "do this" not in found._repr_html_()


def test_the_break_even_prints_as_a_sentence() -> None:
    shared = ((25_600, 204_800), (0.5, 2.0), ((0.5, 0.5), (2.0, 2.0)))
    between = (98_765, 151_234)
    assert str(BreakEven("auto", "cuda:0", 123_456, 493_824, between, True, *shared)) == (
        "From host memory to a result, auto on cuda:0 is slower than numpy from 25,600 to 99,000 "
        "numbers, and faster than numpy from 150,000 to 204,800 numbers. The two are equally fast "
        "at about 120,000 numbers (482.2 KiB), somewhere between 99,000 and 150,000."
    )
    falling = ((256, 2048, 9000), (2.0, 0.5, 1.1), ((2.0, 2.0), (0.5, 0.5), (0.9, 1.3)))
    assert str(BreakEven("auto", "cuda:0", 500, 2000, (400, 600), False, *falling)) == (
        "From host memory to a result, auto on cuda:0 is faster than numpy from 256 to 400 "
        "numbers, slower than numpy from 600 to 2,048 numbers, and too close to call for 9,000 "
        "numbers. The two are equally fast at about 500 numbers (1.953 KiB), somewhere between 400 "
        "and 600. Where that changes between 2,048 and 9,000 was not measured."
    )
    never = str(
        BreakEven(
            "auto",
            "cuda:0",
            None,
            None,
            None,
            None,
            (256, 2048),
            (0.5, 0.6),
            ((0.5, 0.5), (0.6, 0.6)),
        )
    )
    assert never.endswith("auto on cuda:0 is slower than numpy from 256 to 2,048 numbers.")


def test_the_break_even_is_looked_for_up_to_the_arrays_size() -> None:
    found = gr.compare(np.ones(20_000), device="cpu", baselines=["numpy"], **SHORT).break_even
    assert found is not None
    assert found.sizes == (312, 2500, 20_000)
    assert len(found.ratios) == 3
    assert (found.kernel, found.device) == ("auto", "cpu")
    without = gr.compare(np.ones(20_000), device="cpu", baselines=[], **SHORT)
    assert without.break_even is None


def test_the_break_even_takes_the_times_of_the_table() -> None:
    sizes = [2500, 20_000]
    c = gr.compare(np.ones(20_000), device="cpu", baselines=["numpy"], sizes=sizes, **SHORT)
    assert c.break_even.sizes == (312, *sizes)
    kernels = [row for row in c if row.name == "auto"]
    assert c.break_even.ratios[1:] == tuple(c.speedup(row, "numpy", "host") for row in kernels)
    cold = gr.compare(np.ones(20_000), device="cpu", baselines=["numpy"], cache="cold", **SHORT)
    assert cold.break_even.ratios[-1] != cold.speedup(cold["auto"], "numpy", "host")


# ---------------------------------------------------------------- what is compared


def test_without_a_gpu_the_cpu_backend_is_compared(tmp_path: Path) -> None:
    over_fakes(
        """
        c = gr.compare(np.ones(1000), seconds=0.01, ceiling=False, break_even=False)
        assert [row.name for row in c] == ["auto", "numpy", "cub", "cupy", "torch"]
        assert c["auto"].ran_on == "cpu" and c["auto"].on_device is None and c.peak is None
        assert all("no GPU" in c[name].absent for name in ("cub", "cupy", "torch"))
        for kernels, timed in ((["reduce0", "auto"], "auto"), (["reduce0"], "fast"),
                               (["reduce0", "exact", "reduce1"], "exact")):
            c = gr.compare(np.ones(1000), kernels, block_size=[64, 128], sizes=[10, 1000],
                           baselines=["numpy"], seconds=0.01, ceiling=False, break_even=False)
            rows = [(row.label, row.elements) for row in c if not row.absent]
            label = f"{timed} (CPU backend)"
            assert rows == [(label, 10), ("numpy", 10), (label, 1000), ("numpy", 1000)], rows
            absent = {row.name: row.absent for row in c if row.absent}
            named = ["interleaved_modulo", "interleaved_strided"]
            assert list(absent) == named[: sum("reduce" in each for each in kernels)]
            assert all("it runs on GPUs only" in why for why in absent.values())
            assert "not measured: interleaved_modulo: it runs on GPUs only" in str(c)
            replaced = "and fast of the CPU backend is timed in its place" in str(c)
            assert replaced == (kernels == ["reduce0"])  # as gr.sum computes by fast there
        """,
        tmp_path,
        GPUREDUCE_LIBCUDA="/nonexistent/libcuda.so",
    )


def test_without_a_gpu_the_reason_is_short_in_the_rows_of_libraries() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    reason = _core.why_no_cuda()
    assert reason is not None
    _, absent = baselines.available()
    for why in absent.values():
        assert reason.startswith(why.removeprefix("there is no GPU (").removesuffix(")"))
        assert len(why) < 80


def test_on_a_device_kernels_and_block_sizes_are_compared(tmp_path: Path) -> None:
    over_fakes(
        """
        a = np.random.default_rng(3).random(20_000, np.float32)
        c = gr.compare(a, ["reduce0", "single_warp", "auto"], block_size=[64, None], seconds=0.01,
                       baselines=["numpy"])
        assert [(row.name, row.block_size) for row in c] == [
            ("interleaved_modulo", 64), ("interleaved_modulo", 256),
            ("single_warp", 64), ("single_warp", 32),
            ("auto", 64), ("auto", c[5].block_size), ("numpy", 0),
        ], [row.label for row in c]
        assert "takes block size 32, not 64" in c[2].absent
        for row in c:
            if row.absent: continue
            assert row.right and row.host is not None
            assert (row.on_device is not None) == row.is_kernel
        assert c.peak and c.ceiling and c.device_name == gr.devices()[0].name
        assert c.break_even.device == "cuda:0"
        print(c)
        """,
        tmp_path,
    )


def test_on_a_device_the_whole_catalogue_is_the_default(tmp_path: Path) -> None:
    over_fakes(
        """
        a = np.arange(3000, dtype=np.int32)
        c = gr.compare(a, op="max", seconds=0.001, baselines=[], ceiling=False)
        names = [info.name for info in gr.kernels()]
        assert [row.name for row in c] == names
        wrong = [row.name for row in c if not row.absent and not row.right]
        assert not wrong, wrong
        assert sum(row.on_device is not None for row in c) > 30
        """,
        tmp_path,
    )


def test_sizes_are_swept_over_the_first_elements() -> None:
    a = np.arange(10_000.0).reshape(100, 100)
    found = gr.compare(a, device="cpu", sizes=[5000, 100, 100], **PAIR)
    assert found.sizes == (100, 5000)
    assert [(each.name, each.elements) for each in found] == [
        *(("auto", 100), ("numpy", 100), ("auto", 5000), ("numpy", 5000)),
    ]
    assert found["auto"].elements == 5000
    assert found["auto"].bytes == 40_008
    assert "100 elements" in str(found)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"kernels": ["sequentia"]}, ValueError, "did you mean 'sequential'?"),
        ({"op": "median"}, ValueError, "unknown operator 'median'"),
        (
            {"baselines": ["jax"]},
            ValueError,
            "unknown baseline 'jax': the baselines are numpy, cub, cupy, torch",
        ),
        ({"cache": "warm"}, ValueError, "cache must be one of"),
        ({"sizes": [0, 2]}, ValueError, "sizes must be from 1 to the array's 4 elements"),
        ({"sizes": [5]}, ValueError, "sizes must be from 1 to"),
        ({"sizes": []}, ValueError, "sizes must be from 1 to"),
        ({"sizes": [2], "axis": 0}, ValueError, "takes no axis"),
        ({"seconds": -1}, ValueError, "seconds must be above 0"),
        ({"arr": np.zeros(0)}, ValueError, "empty array"),
        ({"device": "gpu"}, ValueError, "gpu"),
        (
            {"profile": True},
            gr.DeviceUnavailableError,
            "there is nothing to profile: the CPU was asked for",
        ),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    if message.startswith("there is nothing") and _core.why_no_cuda() is not None:
        message = "there is nothing to profile"
    given = {"arr": np.ones(4), "device": "cpu", **PAIR} | arguments
    with pytest.raises(kind, match=re.escape(message)):
        gr.compare(given.pop("arr"), given.pop("kernels", None), **given)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "op"), [("int32", "sum"), ("float32", "sum"), ("float32", "max")]
)
def test_on_a_gpu_every_contender_is_right_and_below_the_peak(dtype: str, op: str) -> None:
    values = (np.random.default_rng(SEED).random(1 << 22) * 1000).astype(dtype)
    found = gr.compare(values, op=op, cache="cold", seconds=0.02)
    assert found.peak is not None
    for each in found:
        if each.absent:
            continue
        assert each.right, (each.label, each.ulps)
        assert each.device_bandwidth is None or each.device_bandwidth < found.peak
        assert not each.is_kernel or each.on_device is not None
    assert found.break_even is not None


@pytest.mark.gpu
def test_on_a_gpu_a_profile_has_the_hardwares_counters() -> None:
    values = np.ones(100_000, np.float32)
    try:
        found = gr.benchmark("interleaved_strided", values, profile=True, seconds=0.02)
    except gr.DeviceUnavailableError as error:
        pytest.skip(str(error))
    assert found.counters[0]["bank_conflicts"] > 0
    assert 0 < found.counters[0]["threads_per_instruction"] <= 32


# ---------------------------------------------------------------- libraries


class FakeEvent:
    """An event of a library that is made up: times are 2 ms apart."""

    clock = 0.0

    def __init__(self, **_: Any) -> None:
        self.at = -1.0

    def record(self) -> None:
        FakeEvent.clock += 2.0
        self.at = FakeEvent.clock

    def synchronize(self) -> None:
        assert self.at >= 0

    def elapsed_time(self, stop: FakeEvent) -> float:
        return stop.at - self.at


class OnDevice:
    """A made-up device array over host memory."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.fills = 0

    def get(self) -> Any:
        return self.values

    def fill(self, value: int) -> None:
        self.fills += 1

    fill_ = fill

    def cpu(self) -> OnDevice:
        return self

    def numpy(self) -> Any:
        return self.values

    def to(self, device: str) -> OnDevice:
        assert device.startswith("cuda")
        return self


class View:
    """The interface of :class:`baselines.DeviceView`, for a made-up device in host memory."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        self.pointer, self.shape, self.dtype, self.device, self.owner = (
            0,
            values.shape,
            values.dtype,
            0,
            None,
        )
        self.elements = values.size


def fake_cupy(values: np.ndarray[Any, Any]) -> SimpleNamespace:
    cuda = SimpleNamespace(
        Event=FakeEvent,
        get_elapsed_time=lambda start, stop: stop.at - start.at,
        Device=lambda ordinal: contextlib.nullcontext(),
        UnownedMemory=lambda *_: None,
        MemoryPointer=lambda *_: None,
    )
    return SimpleNamespace(
        cuda=cuda,
        asarray=OnDevice,
        empty=lambda n, dtype: OnDevice(np.empty(0)),
        ndarray=lambda *_: OnDevice(values),
        sum=lambda array, axis=None: OnDevice(np.sum(array.values, axis=axis)),
    )


def fake_torch(values: np.ndarray[Any, Any]) -> SimpleNamespace:
    cuda = SimpleNamespace(
        Event=FakeEvent, device=lambda _: contextlib.nullcontext(), is_available=lambda: True
    )
    return SimpleNamespace(
        cuda=cuda,
        uint8="uint8",
        from_numpy=OnDevice,
        as_tensor=lambda view, device: OnDevice(values),
        empty=lambda n, dtype, device: OnDevice(np.empty(0)),
        sum=lambda tensor, **dim: OnDevice(np.sum(tensor.values, axis=dim.get("dim"))),
        amax=lambda tensor, **dim: OnDevice(np.max(tensor.values, axis=dim.get("dim"))),
    )


@pytest.mark.parametrize(("name", "module"), [("cupy", fake_cupy), ("torch", fake_torch)])
def test_a_library_is_timed_by_its_own_events(
    name: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.arange(12.0).reshape(3, 4)
    monkeypatch.setitem(sys.modules, name, module(values))
    library = baselines.BASELINES[name]()
    for axis in (None, 0):
        assert np.array_equal(library.host_call("sum", values, axis)(), values.sum(axis=axis))
        work = library.device_work("sum", View(values), axis, 1024)
        assert np.array_equal(work.result(), values.sum(axis=axis))
        assert work.take(4) == pytest.approx([2e-3] * 4)


def test_torch_reduces_to_the_extreme_without_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(6.0).reshape(2, 3)
    monkeypatch.setitem(sys.modules, "torch", fake_torch(values))
    assert np.array_equal(baselines.Torch().host_call("max", values, 1)(), [2, 5])
    module = fake_torch(values)
    module.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "torch", module)
    with pytest.raises(RuntimeError, match="no CUDA device"):
        baselines.Torch()


def test_a_library_is_flushed_before_each_run_when_it_is_cold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.arange(12.0)
    module = fake_cupy(values)
    scratch = OnDevice(np.empty(0))
    module.empty = lambda n, dtype: scratch
    monkeypatch.setitem(sys.modules, "cupy", module)
    baselines.CuPy().device_work("sum", View(values), None, 1024).take(4)
    assert scratch.fills == baselines.WARMUP + 4


def test_absent_libraries_are_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "why_no_cuda", lambda: None)
    monkeypatch.setattr(baselines, "_made", {})
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    present, absent = baselines.available(["numpy", "cupy", "cub"])
    assert list(present) == ["numpy"]
    assert absent["cupy"] == "cupy is not installed"
    assert "nvcc, which compiles cub::DeviceReduce, is not on PATH" in absent["cub"]


def test_a_library_that_refuses_has_the_reason_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        name = "cupy"

        def host_call(self, *_: Any) -> Any:
            raise TypeError("not this dtype")

        device_work = host_call

    monkeypatch.setattr(_core, "why_no_cuda", lambda: "there is no GPU")
    monkeypatch.setattr(baselines, "_made", {"cupy": Refusing()})
    found = gr.compare(
        np.ones(100), device="cpu", baselines=["numpy", "cupy"], break_even=False, **SHORT
    )
    assert "not this dtype" in found["cupy"].absent


def test_a_library_that_is_wrong_is_shown_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        name = "cupy"

        def host_call(self, op: str, array: np.ndarray[Any, Any], axis: Any) -> Any:
            return lambda: np.float64(3)

        def device_work(self, *_: Any) -> Any:
            raise NotImplementedError("none")

    monkeypatch.setattr(baselines, "_made", {"cupy": Wrong()})
    found = gr.compare(np.ones(100), device="cpu", baselines=["cupy"], break_even=False, **SHORT)
    assert (found["cupy"].right, found["cupy"].host) == (False, None)


def test_numpy_has_a_function_for_ufuncs_too() -> None:
    values = np.array([6, 12], np.uint8)
    assert baselines.numpy_function("bitwise_and")(values) == 4
    with pytest.raises(NotImplementedError, match="numpy has no minmax"):
        baselines.numpy_function("minmax")


# ---------------------------------------------------------------- forms


def test_text_markdown_and_html_have_the_same_content(comparison: gr.Comparison) -> None:
    for text in (str(comparison), comparison.to_markdown(), comparison._repr_html_()):
        for word in (
            "auto",
            "6.000",
            "1.000",
            "WRONG",
            "not measured: missing",
            "the copy over PCIe",
            "0.50",
            "GPU X",
            "float32",
        ):
            assert word in text, word
    assert_balanced(comparison._repr_html_())
    parts = comparison.to_markdown().split("\n\n")
    tables = [part.splitlines() for part in parts if part.startswith("|")]
    assert len(tables) == 2  # whole calls, and kernels alone
    for table, timed in zip(tables, (4, 3), strict=True):  # and the one that is wrong
        assert len({line.count("|") for line in table}) == 1
        assert len(table) == 2 + timed + 1


def test_json_holds_samples_speedups_and_environment(comparison: gr.Comparison) -> None:
    again = json.loads(comparison.to_json(indent=1))
    assert again == comparison.to_dict()
    auto = next(each for each in again["rows"] if each["name"] == "auto")
    assert auto["host"]["samples"] == [6e-3] * 12
    assert auto["on_device_speedups"] == pytest.approx({"first": 4, "numpy": None, "best peer": 2})
    assert again["environment"] == comparison.environment
    infinite = made(row("auto", right=False, ulps=math.inf))
    assert json.loads(infinite.to_json())["rows"][0]["ulps"] == "inf"
    assert auto["host_speedup_intervals"]["numpy"] == pytest.approx([0.5, 0.5])
    even = BreakEven(
        "auto", "cuda:0", 5, 20, (4, 6), True, (1, 9), (0.5, 2.0), ((0.4, 0.6), (1.9, 2.1))
    )
    exported = json.loads(made(break_even=even).to_json())["break_even"]
    assert exported["sizes"] == [1, 9]
    assert exported["outcomes"] == ["slower", "faster"]


def test_csv_has_a_row_a_contender_with_the_environment(
    comparison: gr.Comparison, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    text = comparison.to_csv(path)
    assert path.read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [each["name"] for each in rows] == [each.name for each in comparison]
    assert rows[1]["on_device_median"] == "0.001"
    assert rows[1]["host_times_numpy"] == "0.5"
    assert {each["device.name"] for each in rows} == {"GPU X"}


def test_a_dataframe_has_the_columns_of_the_csv(comparison: gr.Comparison) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    frame = comparison.to_dataframe()
    assert list(frame["name"]) == [each.name for each in comparison]
    assert frame.attrs["environment"] == comparison.environment
    header = comparison.to_csv().splitlines()[0].split(",")
    assert list(frame.columns) == header[: len(frame.columns)]


def test_a_dataframe_without_pandas_raises_with_what_to_install(
    comparison: gr.Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        comparison.to_dataframe()


def test_a_result_shows_itself_in_one_line_and_prints_as_tables(comparison: gr.Comparison) -> None:
    """Output of an interpreter, and of IPython in a terminal."""
    timing = gr.benchmark("auto", np.ones(1000), device="cpu", seconds=0.01, ceiling=False)
    for result in (comparison, timing):
        assert repr(result).startswith(f"<{type(result).__name__}: ")
        assert len(repr(result)) < 150
        assert "\n" not in repr(result)
        shown: list[str] = []
        result._repr_pretty_(SimpleNamespace(text=shown.append), False)
        assert shown == [str(result)]


def test_a_wide_table_is_continued_below_its_first_column() -> None:
    headings = ["", "device ms", "x first", "from host ms", "x numpy"]
    rows = [["interleaved_modulo", "1.00", "2.00", "3.00", "4.00"], ["auto", "5", "6", "7", "8"]]
    whole = lay_out(headings, rows, left=1)
    assert lay_out(headings, rows, left=1, width=200) == whole
    parts = lay_out(headings, rows, left=1, width=40).split("\n\n")
    assert len(parts) == 2
    for part in parts:
        lines = part.splitlines()
        assert all(len(line) <= 40 for line in lines)
        assert [line.split()[0] for line in lines[-2:]] == ["interleaved_modulo", "auto"]
    assert " ".join(parts).split().count("7") == 1
    narrow = lay_out(headings, rows, left=1, width=5)  # a column is never cut
    assert sorted(set(narrow.split()) - set(whole.split())) == []


def test_a_result_is_no_wider_than_the_terminal(
    comparison: gr.Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = gr.benchmark("auto", np.ones(1000), device="cpu", seconds=0.01, ceiling=False)
    results = (comparison, timing, comparison.against(comparison))
    whole = [str(result).split() for result in results]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    for result, words in zip(results, whole, strict=True):
        text = str(result)
        assert max(map(len, text.splitlines()[2:])) <= 60, text
        assert set(text.split()) == set(words)  # the first column is there again


def test_text_in_the_last_column_wraps() -> None:
    rows = [["auto", "the fastest way to reduce an array on this GPU"], ["exact", "rounded once"]]
    lines = lay_out(["kernel", "what it is"], rows, left=2, width=40).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert " ".join(" ".join(lines[2:]).split()) == (
        "auto the fastest way to reduce an array on this GPU exact rounded once"
    )


def test_rows_are_found_by_number_name_and_label(comparison: gr.Comparison) -> None:
    assert comparison[0] is comparison["naive"] is comparison["naive (256)"]
    assert len(comparison) == 6
    with pytest.raises(KeyError):
        comparison["none"]


# ---------------------------------------------------------------- pictures


@pytest.fixture
def pictures() -> Any:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield matplotlib
    pyplot.close("all")


def test_bars_are_as_long_as_the_bandwidth(comparison: gr.Comparison, pictures: Any) -> None:
    ax = comparison.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "naive (256)",
        "auto (512)",
        "cupy",
    ]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.001, 0.004, 0.002])
    roofs = [line for line in ax.lines if line.get_marker() == "None"]  # caps have one
    assert sorted(line.get_xdata()[0] for line in roofs) == pytest.approx([4, 5])
    assert (ax.get_xscale(), ax.get_xlim()[0]) == ("linear", 0)  # so that lengths are speeds
    assert [text.get_text() for text in ax.texts][:4] == ["GB/s", "0.001", "0.004", "0.002"]
    ax.figure.canvas.draw()
    right = ax.transAxes.transform((1, 0))[0]
    figures = [text.get_window_extent() for text in ax.texts[1:4]]
    assert all(box.x0 > right for box in figures)  # where no line crosses them
    assert ax.patches[2].get_hatch()
    assert not ax.patches[0].get_hatch()
    words = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert words == [
        "gpureduce",
        "library",
        "quartiles",
        "highest measured: 4 GB/s",
        "theoretical peak: 5 GB/s",
    ]
    assert "GB/s" in ax.get_xlabel()


def test_lines_over_bars_reach_from_quartile_to_quartile(pictures: Any) -> None:
    wide = Spread(tuple(np.linspace(1.0, 3.0, 13)))  # quartiles of 1.5 and 2.5
    right = {"right": True, "ran_on": "cpu", "bytes": 3 * 10**9}
    ax = made(row("auto", host=wide, **right), row("numpy", host=spread(2.0), **right)).plot()
    drawn = [segment[:, 0].tolist() for segment in ax.collections[0].get_segments()]
    assert drawn == [pytest.approx([1.2, 2.0]), pytest.approx([1.5, 1.5])]


def test_a_picture_shows_one_kind_of_time(comparison: gr.Comparison, pictures: Any) -> None:
    ax = comparison.plot("bars", column="host")
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "naive (256)",
        "auto (512)",
        "numpy",
        "cupy",
    ]
    assert not [
        line for line in ax.lines if line.get_marker() == "None"
    ]  # the GPU's memory does not bound a call from the host
    for kind, column in (("pie", None), ("bars", "both")):
        with pytest.raises(ValueError, match="must be"):
            comparison.plot(kind, column=column)
    with pytest.raises(ValueError, match="nothing was timed"):
        made(row("auto", absent="it is")).plot()
    with pytest.raises(ValueError, match="nothing was timed on the device"):
        made(row("auto", host=spread(1.0))).plot(column="on_device")


def sweep(kernels: int) -> gr.Comparison:
    rows = [
        row(name, elements=n, bytes=4 * n, on_device=spread((k + 1) * 1e-9 * n), right=True)
        for n in (10, 1000, 100_000)
        for k, name in enumerate([*(f"kernel{i}" for i in range(kernels)), "cupy"])
    ]
    return made(*rows)


def test_sizes_are_drawn_on_logarithmic_axes(pictures: Any) -> None:
    ax = sweep(2).plot()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:3] == ["kernel0", "kernel1", "cupy"]
    lines = {line.get_label(): line for line in ax.lines}
    assert list(lines["kernel1"].get_xdata()) == [40, 4000, 400_000]
    assert list(lines["kernel1"].get_ydata()) == pytest.approx([2, 2, 2])
    assert len({lines[name].get_marker() for name in labels[:3]}) == 3  # not by colour alone


def test_of_many_kernels_the_slower_ones_are_pale(pictures: Any) -> None:
    ax = sweep(30).plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert "kernel0" in labels
    assert "cupy" in labels
    assert "kernel29" not in labels
    assert "other kernels" in labels


def test_the_roofline_has_each_at_its_speed_under_the_roof(
    comparison: gr.Comparison, pictures: Any
) -> None:
    ax = comparison.plot("roofline")
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert sorted(line.get_ydata()[0] for line in points) == pytest.approx([0.00025, 0.0005, 0.001])
    assert {line.get_xdata()[0] for line in points} == {0.25}
    roof = next(line for line in ax.lines if "highest measured" in str(line.get_label()))
    (x, _), (y, _) = roof.get_xdata(), roof.get_ydata()
    assert y == pytest.approx(4 * x)


def test_labels_are_spread_out_and_stay_inside() -> None:
    rng = np.random.default_rng(SEED)
    for n in (1, 5, 40):
        places = sorted(rng.random(n).tolist())
        moved = charts.spread_out(places, 0.02)
        assert all(b - a >= 0.02 - 1e-12 for a, b in itertools.pairwise(moved))
        assert max(moved) <= 1
        assert min(moved) >= -1e-12
    assert charts.spread_out([0.1, 0.5, 0.8], 0.1) == [0.1, 0.5, 0.8]


def test_the_name_of_a_file_is_no_axes(
    comparison: gr.Comparison, pictures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    timing = gr.benchmark("auto", np.ones(1000), device="cpu", seconds=0.01, ceiling=False)
    for result in (comparison, timing):
        for place in ("x.png", Path("x.png")):
            if isinstance(place, Path) and result is comparison:
                continue  # its first argument is the kind
            with pytest.raises(TypeError, match="is the name of a file") as caught:
                result.plot(place)
            advice = str(caught.value).partition(": ")[2].partition(" saves")[0]
            eval(f"result.{advice}", {"result": result})
            assert Path("x.png").stat().st_size > 1000
            Path("x.png").unlink()


def test_pictures_are_saved_without_a_display(
    comparison: gr.Comparison, pictures: Any, tmp_path: Path
) -> None:
    for kind in charts.KINDS:
        save_figure(
            tmp_path / f"{kind}.png", lambda figure, kind=kind: comparison.plot(kind, figure)
        )
        assert (tmp_path / f"{kind}.png").stat().st_size > 10_000


# ---------------------------------------------------------------- profiles

NCU = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
assert arguments[:2] == ["--clock-control", "none"], arguments
log = arguments[arguments.index("--log-file") + 1]
metrics = arguments[arguments.index("--metrics") + 1].split(",")
command = arguments[arguments.index("--metrics") + 2:]
done = subprocess.run(command)
with open(log, "w") as file:
    print("==PROF== words", file=file)
    print(",".join(f'"{{name}}"' for name in ["ID", "Kernel Name", *metrics]), file=file)
    print(",".join(f'"{{name}}"' for name in ["", "", *("unit" for _ in metrics)]), file=file)
    for i in range(2):
        values = [f"{{1000 * (i + 1) + k:,}}" for k in range(len(metrics))]
        print(",".join(f'"{{name}}"' for name in [str(i), f"kernel{{i}}", *values]), file=file)
sys.exit(done.returncode)
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up Nsight Compute: runs the command, counts 1000, 1001, ... and 2000, 2001, ..."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(NCU.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def test_counters_are_read_from_nsight_compute(ncu: Path) -> None:
    output, rows = profile.run_ncu(["a", "b", "a"], [sys.executable, "-c", "print('it ran')"])
    assert output == "it ran\n"
    assert [row["Kernel Name"] for row in rows] == ["kernel0", "kernel1"]
    assert profile.number(rows[1], ["a", "b"]) == 2000 + 2001


def test_missing_counters_are_an_error_with_the_reason(
    ncu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission' >&2\nexit 1\n")
    with pytest.raises(gr.DeviceUnavailableError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        profile.run_ncu(["a"], ["true"])
    ncu.write_text("#!/bin/sh\necho 'something else' >&2\nexit 9\n")
    with pytest.raises(gr.DeviceUnavailableError, match="status 9: something else"):
        profile.run_ncu(["a"], ["true"])
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(gr.DeviceUnavailableError, match="ncu is not on PATH"):
        profile.run_ncu(["a"], ["true"])


def test_a_profile_adds_the_tutorials_columns(ncu: Path, tmp_path: Path) -> None:
    out = over_fakes(
        """
        a = np.arange(5000, dtype=np.float32)
        t = gr.benchmark("reduce0", a, profile=True, seconds=0.01, ceiling=False)
        assert [each["launch"] for each in t.counters] == [1, 2]
        first = t.counters[0]
        assert first["microseconds"] == 1.0 and first["compute_percent"] == 1001.0
        assert first["bank_conflicts"] == 1004 + 1005 and first["threads_per_instruction"] == 1006
        print(t)
        c = gr.compare(a, ["reduce0", "auto"], profile=True, seconds=0.01, ceiling=False,
                       baselines=["numpy"])
        assert len(c[0].counters) == 2 and not c["numpy"].counters
        print(c)
        print(c._repr_html_(), t._repr_html_())
        """,
        tmp_path,
    )
    for word in ("duration", "compute", "memory", "DRAM", "conflicts", "threads"):
        assert word in out


def test_the_process_that_is_profiled_launches_the_kernel(tmp_path: Path) -> None:
    request = {
        "op": "max",
        "kernel": "sequential",
        "block_size": 64,
        "grid_size": 0,
        "compute": None,
    }
    request |= {"shape": [10, 20], "dtype": "float32", "reduced": 1, "device": 0}
    over_fakes(
        f"""
        from gpureduce._bench import profile
        sys.argv = ["profile", {json.dumps(json.dumps(request))}]
        profile.main()
        run = gr.last_run()
        assert (run.kernel, run.block_size, run.elements) == ("sequential", 64, 200)
        """,
        tmp_path,
    )


# ---------------------------------------------------------------- pytest-benchmark

USERS_TEST = """
import numpy as np, gpureduce, pytest

@pytest.mark.parametrize("kernel", ["auto", "shfl_atomic"])
@pytest.mark.filterwarnings("ignore::gpureduce.NoDeviceWarning")
def test_sum(benchmark, kernel):
    arr = np.arange(1000, dtype=np.int32)
    assert benchmark(gpureduce.sum, arr, kernel=kernel) == 499500
"""


def run_pytest(*arguments: str, cwd: Path) -> dict[str, Any]:
    import subprocess

    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--benchmark-json=out.json",
    ]
    quick = ["--benchmark-min-rounds=1", "--benchmark-max-time=0.001"]
    done = subprocess.run(
        [*command, *quick, *arguments],
        capture_output=True, text=True, cwd=cwd, env=environment_without_pytest(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((cwd / "out.json").read_text())
    return found


def test_a_users_own_benchmark_works(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark")
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    (example,) = (each.text for each in blocks(page) if "def test_sum(benchmark" in each.text)
    (tmp_path / "test_speed.py").write_text(example)
    found = run_pytest("test_mine.py", "test_speed.py", cwd=tmp_path)
    kernels = [each["params"]["kernel"] for each in found["benchmarks"]]
    assert kernels == ["auto", "shfl_atomic", "auto", "fast"]
    assert all(each["extra_info"]["device"] for each in found["benchmarks"][2:])


def test_the_suite_is_grouped_and_records_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark")
    monkeypatch.setenv("GPR_BENCH_SIZES", "100")
    suite = Path(__file__).parents[2] / "benchmarks"
    found = run_pytest(str(suite), "-c", os.devnull, f"--rootdir={suite}", cwd=tmp_path)
    groups = {each["group"] for each in found["benchmarks"]}
    assert groups == {
        f"{op} {dtype} 100" for op in ("sum", "max") for dtype in ("float32", "float64", "int32")
    }
    ours = [each for each in found["benchmarks"] if each["name"].startswith("test_kernel")]
    assert all(each["extra_info"]["ran_on"] for each in ours)
    assert found["machine_info"]["gpureduce"]["cpu"]
