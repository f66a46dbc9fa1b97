"""``tune`` and its command, on the fake driver: measures, keeps costs, and plans by them."""

from __future__ import annotations

import json
from pathlib import Path

import fakes
import pytest

import gpureduce as gr

SMALL = "arrays=3, largest_bytes=1 << 16"


def test_tune_measures_and_keeps_costs_that_later_processes_use(tmp_path: Path) -> None:
    printed = fakes.run(
        f"""
        found = gr.tune({SMALL})
        assert found.arrays == 3 and found.ways > 6 and found.after <= 1.01 * found.before
        assert "chosen over fastest way" in str(found)
        works()
        print(found.costs["load_ns"], found.path)
        """,
        tmp_path,
    )
    load, path = printed.split()
    assert Path(path).parent == tmp_path / "cache"
    fakes.run(
        f"""
        from gpureduce import _core
        found = _core.plan_costs(0)
        assert found["is_measured"] and abs(found["costs"][3] - {load}) < 0.001
        works()
        """,
        tmp_path,
    )


def test_tune_can_keep_nothing(tmp_path: Path) -> None:
    fakes.run(f"assert gr.tune({SMALL}, keep=False).path == ''; works()", tmp_path)
    assert list((tmp_path / "cache").glob("*.costs")) == []


def test_the_command_measures_shows_and_forgets(tmp_path: Path) -> None:
    lines = fakes.run(
        """
        from gpureduce._cli.command import main
        small = ["--arrays", "3", "--largest-bytes", "65536", "--json"]
        assert main(["tune", *small]) == 0
        print("---")
        assert main(["info"]) == 0
        print("---")
        assert main(["info", "--json"]) == 0
        print("---")
        assert main(["tune", "--forget"]) == 0
        assert main(["info"]) == 0
        """,
        tmp_path,
    ).split("---\n")
    found = json.loads(lines[0])
    assert found["arrays"] == 3
    assert "measured by gpureduce tune" in " ".join(lines[1].split())
    shown = json.loads(lines[2])["plan_costs"][0]
    assert shown["is_measured"]
    assert shown["device"] == "cuda:0"
    assert shown["costs"]["load_ns"] == pytest.approx(found["costs"]["load_ns"], abs=0.001)
    assert "is not there any more" in lines[3]
    assert "estimated, as nothing was measured" in " ".join(lines[3].split())


def test_what_cannot_be_tuned_is_refused(tmp_path: Path) -> None:
    fakes.run(
        """
        with raises(ValueError, "not on 'cpu'"):
            gr.tune("cpu")
        with raises(ValueError, "not on 'cuda:x'"):
            gr.tune("cuda:x")
        with raises(ValueError, "no device \\"cuda:77\\""):
            gr.tune("cuda:77")
        with raises(ValueError, "at least one array"):
            gr.tune(arrays=0)
        works()
        """,
        tmp_path,
    )
    fakes.run(
        """
        with raises(OSError, "GPUREDUCE_CACHE_BYTES is 0"):
            gr.tune()
        works()
        """,
        tmp_path,
        GPUREDUCE_CACHE_BYTES="0",
    )


def test_without_a_gpu_tune_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpureduce import _core

    monkeypatch.setattr(_core, "why_no_cuda", lambda: "there is no driver")
    with pytest.raises(gr.DeviceUnavailableError, match="there is no driver"):
        gr.tune()
