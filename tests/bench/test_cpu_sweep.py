"""The sweep of random calls: a short one runs, its results are right, and its tables name it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from draws import SEED

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import cpu_sweep  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import report  # noqa: E402

import gpureduce as gr  # noqa: E402


def test_a_short_sweep_has_right_answers_and_makes_tables(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    few = ["--seconds", "1", "--cases", "40", "--largest", "1e4"]
    script = str(ROOT / "benchmarks" / "cpu_sweep.py")
    command = [sys.executable, script, "--seed", str(SEED), *few, "--output", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, f"seed {SEED}: {run.stdout}{run.stderr}"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["seed"] == SEED
    assert result["wrong"] == 0
    cases = result["cases"]
    assert all(bandwidth > 0 for bandwidth in result["read_gigabytes_per_second"])
    summary = report.cpu_sweep_summary([result])
    assert f"| {result['isa']} | {result['threads']} | {len(cases)} |" in summary
    all_cases, _, slower = report.cpu_sweep_table(result).partition("Slower than NumPy:")
    assert f"| all cases | {len(cases)} |" in all_cases
    listed = [line for line in slower.splitlines() if line.startswith("| ")]
    # two lines of them are the table's head
    assert max(0, len(listed) - 2) == sum(case["times_numpy"] < 1 for case in cases)


def test_norms_and_averages_are_drawn_where_they_are_named(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    few = ["--seconds", "1", "--cases", "30", "--largest", "1e4", "--functions", "norm,average"]
    script = str(ROOT / "benchmarks" / "cpu_sweep.py")
    command = [sys.executable, script, "--seed", str(SEED), *few, "--output", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, f"seed {SEED}: {run.stdout}{run.stderr}"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["wrong"] == 0, f"seed {SEED}: {result['worst']}"
    assert {case["function"] for case in result["cases"]} == {"norm", "average"}


def test_processes_draw_cases_of_their_own_for_one_table(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    few = ["--seconds", "30", "--cases", "4", "--largest", "100", "--threads", "1"]
    script = str(ROOT / "benchmarks" / "cpu_sweep.py")
    several = ["--processes", "2", "--seed", str(SEED), "--output", str(path)]
    command = [sys.executable, script, *few, *several]
    if len(os.sched_getaffinity(0)) < 2:
        command[-5] = "1"
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, f"seed {SEED}: {run.stdout}{run.stderr}"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["clock"] == "thread_time"
    assert result["least"] == min(case["times_numpy"] for case in result["cases"])
    if result["processes"] == 2:
        drawn = [(case["function"], case["dtype"], case["shape"]) for case in result["cases"]]
        assert len(drawn) == 8
        assert drawn[:4] != drawn[4:]
        assert f"seed {SEED} and the 1 after it" in report.cpu_sweep_table(result)


def product_case(dtype: str, masked: bool = False) -> cpu_sweep.Case:
    return cpu_sweep.Case("prod", dtype, (4000,), None, "C", "normal", masked, "fast")


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid", "ignore:underflow")
def test_a_product_beyond_the_range_of_numpys_is_judged_by_the_product() -> None:
    case = product_case("complex128")
    too_large = np.full(4000, 1.25 + 0.5j)
    assert np.isnan(np.prod(too_large))
    back_again = np.array([1e200, 1e200 + 1e200j, 1e-200, 1e-200] * 3 + [2 - 1j])
    for values in too_large, back_again:
        ours, theirs = gr.prod(values, device="cpu"), np.prod(values)
        assert cpu_sweep.is_right(case, values, None, ours, theirs)
    for wrong in np.inf, np.nan, (1 + 1j) ** 3 * (2 - 1j) * 1.01:
        assert not cpu_sweep.is_right(case, back_again, None, np.complex128(wrong), theirs)
    reals = product_case("float64")
    assert not cpu_sweep.is_right(reals, np.array([1e39]), None, np.float64(np.inf), 1e39)


def test_masks_of_cases_do_not_depend_on_their_elements() -> None:
    array, mask = cpu_sweep.make_array(product_case("float64", True), random.Random(SEED))
    assert mask is not None
    larger = array > 1
    # each of four kinds is a quarter of 4000: 700 is ten standard deviations below that
    for one in larger & mask, larger & ~mask, ~larger & mask, ~(larger | mask):
        assert one.sum() > 700, f"seed {SEED}"


def slower_case(**facts: object) -> dict[str, object]:
    """A case that takes twice NumPy's time."""
    drawn = {
        "function": "sum", "kernel": "exact", "dtype": "float32", "shape": [4, 30, 5], "axis": 1,
        "layout": "C", "data": "normal", "masked": False, "quartiles": [0.4, 0.6],
        "times_numpy": 0.5, "reduced": "middle axis", "threads": 2,
        "isa": "avx2",
    }  # fmt: skip
    return {**drawn, **facts}


def test_a_slower_case_has_its_class_or_is_unexplained() -> None:
    classes = [
        {"class": "masks", "reason": "of masks", "cases": {"masked": True}},
        {"class": "few", "reason": "few", "cases": {"dtype": ["float32"], "per_result": [2, 30]}},
        {"class": "rows", "reason": "rows", "cases": {"results": [1, 1], "elements": [600, 601]}},
    ]

    def name_of(**facts: object) -> str:
        return report.cpu_sweep_reason(slower_case(**facts), classes)[0]

    assert name_of() == "few"
    assert name_of(masked=True) == "masks"
    assert name_of(dtype="float64") == "unexplained"
    assert name_of(dtype="float64", axis=None) == "rows"
    assert name_of(axis=[0, 1]) == "unexplained"
    assert name_of(quartiles=[0.9, 1.1]) == "noise"


def test_classes_of_slower_cases_choose_by_facts_that_cases_have() -> None:
    classes = json.loads(report.SWEEP_REASONS.read_text(encoding="utf-8"))
    facts = report.cpu_sweep_facts(slower_case())
    assert len({one["class"] for one in classes}) == len(classes)
    for one in classes:
        assert one["reason"], one
        assert set(one["cases"]) <= set(facts), one


def test_shares_of_the_bandwidth_are_of_large_cases_that_read_all() -> None:
    times = {"microseconds": {"gpureduce": [1000.0, 2000.0, 4000.0]}}
    facts = {**times, "bytes": 40_000_000, "reads_all": True, "kernel": "fast"}
    cases = [
        slower_case(**facts),
        slower_case(**{**facts, "reads_all": False}),
        slower_case(**{**facts, "bytes": 999}),
    ]
    result = {"cases": cases, "threads": 2, "beyond_caches": 1 << 20}
    table = report.cpu_sweep_shares({**result, "read_gigabytes_per_second": [30.0, 40.0]})
    assert "40 GB/s by 2 threads" in table
    assert "| all | 1 | 50 | 50 | 50 |" in table


def test_a_sweep_without_time_says_so() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "cpu_sweep.py"), "--seconds", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert "no case was measured" in run.stderr
