"""Saved comparisons, and changes from one run to the next."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outputs import assert_balanced
from test_compare import PAIR, made, row, spread

import gpureduce as gr
from gpureduce._bench.contenders import BreakEven
from gpureduce._bench.sampling import Spread

NOISY = Spread((1e-3, 2e-3, 3e-3, 4e-3))
EVEN = BreakEven("auto", "cuda:0", 5, 20, (4, 6), True, (1, 9), (0.5, 2.0), ((0.4, 0.6), (1.9, 2)))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def timed(name: str, seconds: float, **more: Any) -> Any:
    fields = {"host": spread(seconds), "right": True, "ulps": 0.0, "dtype": "float32"}
    return row(name, **fields | more)


def test_a_saved_comparison_is_read_back_whole() -> None:
    counted = timed("auto", 1e-3, on_device=NOISY, counters=({"duration": 1.5},), block_size=256)
    wrong = row("reduce0", right=False, ulps=math.inf, dtype="float32")
    absent = row("cub", absent="no nvcc", dtype="float32")
    run = made(counted, wrong, absent, break_even=EVEN, axis=(0, 1),
               shape=(10, 100), warnings=("hot",))  # fmt: skip
    for name, file in (("before", ".gpureduce/before.json"), ("some.json", "some.json")):
        assert run.save(name) == Path(file)
        assert gr.Comparison.load(name) == run
        assert gr.Comparison.load(name).environment == run.environment
    assert list(Path().rglob(".*before*")) == []  # nothing but the file is left


def test_a_run_is_saved_under_a_name_or_in_a_json_file() -> None:
    for name in ("", "a/b", ".hidden", ".json", "../before"):
        with pytest.raises(ValueError, match="a run is saved under a name like 'before'"):
            made().save(name)
    with pytest.raises(FileNotFoundError, match="save one by compare --save NAME"):
        made().against("before")
    made().save("before")
    with pytest.raises(FileNotFoundError, match="no saved run 'befor'; did you mean 'before'"):
        made().against("befor")
    with pytest.raises(FileNotFoundError, match="gpureduce has before"):
        made().against("xyz")
    for text in ("[]", "{}", '{"op": 1}', "{", "\udcff"):
        Path("other.json").write_text(text, errors="surrogateescape")
        with pytest.raises(ValueError, match=r"other\.json: not a saved comparison"):
            gr.Comparison.load("other.json")


def test_changes_are_told_from_noise() -> None:
    before = made(timed("auto", 4e-3), timed("fast", 1e-3), timed("numpy", 1e-3, host=NOISY))
    after = made(timed("auto", 2e-3), timed("fast", 1.5e-3), timed("numpy", 2e-3))
    changes = after.against(before)
    assert [(each.label, each.outcome) for each in changes] == [
        ("auto", "faster"), ("fast", "slower"), ("numpy", "level"),
    ]  # fmt: skip
    assert changes[0].speedup == pytest.approx(2)
    assert [each.is_slower_by(40) for each in changes] == [False, True, False]
    assert not changes[1].is_slower_by(60)
    assert repr(changes) == "<Changes: 1 faster, 1 slower, 1 level>"
    for text in (str(changes), changes.to_markdown(), changes._repr_html_()):
        assert all(word in text for word in ("2.000 ms", "4.000 ms", "faster", "against"))
    assert_balanced(changes._repr_html_())
    rows = list(csv.DictReader(io.StringIO(changes.to_csv())))
    assert [each["outcome"] for each in rows] == ["faster", "slower", "level"]
    assert json.loads(changes.to_json()) == changes.to_dict()


def test_a_wide_spread_is_not_called_level() -> None:
    """The quartiles of 0.32 times as fast reach from far slower to far faster."""
    wide = Spread((1e-3, 2e-3, 9e-3, 10e-3))
    before = made(timed("auto", 4e-3), timed("fast", 1e-3), timed("numpy", 1e-3, host=wide))
    after = made(timed("auto", 2e-3), timed("fast", 1.05e-3, host=Spread((0.9e-3, 1.1e-3) * 6)),
                 timed("numpy", 4e-3))  # fmt: skip
    changes = after.against(before)
    assert [each.is_too_noisy for each in changes] == [False, False, True]
    lines = str(changes).splitlines()
    assert [line.split()[-1] for line in lines[4:6]] == ["faster", "level"]
    assert lines[6].endswith("too noisy")
    text = " ".join(lines)
    assert "1 faster, 0 slower, 1 level, 1 too noisy to tell" in text
    for advice in ("--seconds", "a larger array", "a machine without other load"):
        assert advice in text
    calm = str(made(timed("auto", 2e-3)).against(made(timed("auto", 4e-3))))
    assert "noisy" not in calm


def test_contenders_are_matched_by_what_they_did() -> None:
    before = made(
        timed("auto", 1e-3, block_size=256), timed("cub", 1e-3), timed("sequential", 1e-3),
        timed("fast", 1e-3, block_size=128), timed("fast", 3e-3, block_size=256),
        timed("auto", 1e-3, elements=10, block_size=256),
    )  # fmt: skip
    after = made(
        timed("auto", 1e-3, block_size=512),  # another choice of the same kernel
        timed("fast", 3e-3, block_size=256), timed("numpy", 1e-3),
        timed("auto", 1e-3, elements=10, dtype="float64"), row("cub", absent="no nvcc"),
    )  # fmt: skip
    changes = after.against(before)
    assert [(each.label, each.outcome) for each in changes] == [
        ("auto (512)", "level"), ("fast (256)", "level"),
    ]  # fmt: skip
    assert changes.unmatched[0] == "only in this run: numpy, auto"
    assert "cub, sequential, fast (128)" in changes.unmatched[1]
    with pytest.raises(ValueError, match="nothing in common") as caught:
        after.against(made(timed("auto", 1e-3, elements=7)))
    assert "auto: 7 float32" in str(caught.value)
    with pytest.raises(ValueError, match="earlier run computed sum and this one computes max"):
        made(timed("auto", 1e-3), op="max").against(before)


def test_what_else_differs_is_a_warning() -> None:
    setting = {"date": "then", "cpu": "A", "versions": {"numpy": "2.0"}, "device": None}
    before = made(timed("auto", 1e-3), environment=setting)
    later = setting | {"date": "now", "versions": {"numpy": "2.1"}}
    changes = made(timed("auto", 1e-3), environment=later, cache="cold").against(before)
    assert changes.differences == ("cache: hot before, cold now", "versions.numpy: 2.0 before, "
                                   "2.1 now")  # fmt: skip
    assert "warning: the runs differ in cache: hot before, cold now" in str(changes)
    assert changes.date == "then"


# ---------------------------------------------------------------- dtypes


def test_dtypes_are_compared_each() -> None:
    a = np.arange(300.0)
    found = gr.compare(a, device="cpu", dtypes=["float32", np.int16], sizes=[10, 300], **PAIR)
    assert found.dtypes == ("float32", "int16")
    assert found.dtype == "float32, int16"
    assert [(each.name, each.dtype, each.elements, each.bytes) for each in found][::2] == [
        ("auto", "float32", 10, 44), ("auto", "float32", 300, 1204),
        ("auto", "int16", 10, 28), ("auto", "int16", 300, 608),
    ]  # fmt: skip
    assert found["auto (CPU backend), int16"].bytes == 608
    text = str(found)
    assert all(f"{dtype}, {n} elements" in text for dtype in found.dtypes for n in (10, 300))
    assert [each["dtype"] for each in found.to_dict()["rows"]] == ["float32"] * 4 + ["int16"] * 4
    assert len(found.against(found)) == 8
    for row_ in found:  # NumPy's time of the same dtype and size
        assert found.speedup(row_, "numpy", "host") == pytest.approx(
            next(each.host.median for each in found if each.name == "numpy" and
                 (each.dtype, each.elements) == (row_.dtype, row_.elements)) / row_.host.median
        )  # fmt: skip
    assert gr.compare([1, 2], device="cpu", dtypes=["int8"], **PAIR).dtype == "int8"
    with pytest.raises(ValueError, match="dtypes must name one dtype"):
        gr.compare(a, device="cpu", dtypes=[], **PAIR)


def test_pictures_tell_dtypes_apart() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [
        timed(name, 1e-3, dtype=dtype, elements=n, bytes=size * n)
        for dtype, size in (("float32", 4), ("float64", 8))
        for n in (10, 100)
        for name in ("auto", "numpy")
    ]
    run = made(*rows, dtype="float32, float64")
    bars = [label.get_text() for label in run.plot("bars").get_yticklabels()]
    assert bars == ["auto, float32", "numpy, float32", "auto, float64", "numpy, float64"]
    lines = [text.get_text() for text in run.plot("sizes").get_legend().get_texts()]
    assert set(bars) <= set(lines)
    points = [line for line in run.plot("roofline").lines if len(line.get_xdata()) == 1]
    assert {line.get_xdata()[0] for line in points} == {1 / 4, 1 / 8}
    pyplot.close("all")
