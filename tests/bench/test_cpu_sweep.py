"""The sweep of random calls: a short one runs, its answers are right, and its tables name it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import report  # noqa: E402

SEED = int(os.environ.get("GPR_TEST_SEED", secrets.randbits(32)))


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
    all_cases, _, slower = report.cpu_sweep_table(result).partition("Slower than NumPy:")
    assert f"| all cases | {len(cases)} |" in all_cases
    listed = [line for line in slower.splitlines() if line.startswith("| ")]
    # two lines of them are the table's head
    assert max(0, len(listed) - 2) == sum(case["times_numpy"] < 1 for case in cases)


def test_a_sweep_without_time_says_so() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "cpu_sweep.py"), "--seconds", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert "no case was measured" in run.stderr
