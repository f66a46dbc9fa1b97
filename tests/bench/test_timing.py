"""Timing: figures from known samples, turns that end, clocks, places, every form it is shown in.

No test depends on how long anything takes. The GPU's part runs over the fake driver, whose times
mean nothing.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakes
import numpy as np
import pytest
from draws import SEED
from outputs import assert_balanced

import gpureduce as gr
from gpureduce import _core
from gpureduce._bench import (
    benchmark_array,
    clocks,
    environment,
    roofline,
    sampling,
    session,
    timing,
)
from gpureduce._bench.sampling import Spread, Turn, take_turns
from gpureduce._display import tables

SHORT = {"seconds": 0.01, "ceiling": False}


@pytest.fixture(scope="module")
def timed() -> gr.Timing:
    return gr.benchmark("auto", np.arange(50_000, dtype=np.int32), device="cpu", **SHORT)


def made(**changes: Any) -> gr.Timing:
    """A Timing with known figures."""
    fields: dict[str, Any] = {
        "function": "sum", "op": "sum", "dtype": "float32", "shape": (250_000_000,), "axis": None,
        "device": "cuda:0", "kernel": "auto", "variant": "vec", "block_size": 512, "grid_size": 264,
        "cache": "cold", "bytes": 10**9, "host": Spread((0.02, 0.021, 0.019)),
        "on_device": Spread((0.00025,) * 12), "why_no_device": "", "first_call": 0.3,
        "peak": 5e12, "ceiling": 4.5e12, "environment": {"date": "today", "device": {"name": "X"}},
        "stages": {
            "compile": 0.05, "stage": 0.016, "upload": 0.018, "kernel": 0.00025, "return": 1e-5,
        },
        "warnings": ("it was windy",),
    }  # fmt: skip
    return gr.Timing(**fields | changes)


# ---------------------------------------------------------------- samples


def test_figures_are_those_of_the_statistics_module() -> None:
    rng = np.random.default_rng(SEED)
    for n in (2, 3, 10, 101):
        samples = tuple(rng.lognormal(size=n).tolist())
        spread = Spread(samples)
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        assert spread.median == pytest.approx(statistics.median(samples))
        assert spread.quartiles == pytest.approx((low, high))
        assert (spread.minimum, spread.maximum) == (min(samples), max(samples))
        assert spread.noise == pytest.approx((high - low) / statistics.median(samples))


def test_the_median_is_within_its_uncertainty_at_the_stated_rate() -> None:
    rng = np.random.default_rng(SEED)
    true_median, trials, n = 1.0, 2000, 25
    hits = 0
    for _ in range(trials):
        spread = Spread(tuple(rng.lognormal(0.0, 0.5, n).tolist()))
        ordered = sorted(spread.samples)
        reach = 1.96 * math.sqrt(n) / 2
        low, high = ordered[math.floor(n / 2 - reach) - 1], ordered[math.ceil(n / 2 + reach) - 1]
        assert spread.uncertainty == pytest.approx((high - low) / 2 / spread.median)
        hits += low <= true_median <= high
    # 95 % at least, less four standard deviations of a binomial.
    assert hits / trials > 0.95 - 4 * math.sqrt(0.95 * 0.05 / trials)


def test_few_samples_know_no_uncertainty() -> None:
    assert Spread((1.0, 2.0, 3.0)).uncertainty == math.inf
    assert Spread((1.0, 2.0, 3.0)).to_dict()["uncertainty"] is None
    assert json.loads(json.dumps(Spread((1.0,)).to_dict()))["samples"] == [1.0]


def test_equal_samples_have_no_noise_and_no_troubles() -> None:
    spread = Spread((0.5,) * 20)
    assert (spread.noise, spread.uncertainty, spread.drift) == (0, 0, 0)
    assert spread.troubles("it", 0.01) == []


def test_noise_drift_and_few_samples_are_named() -> None:
    rising = Spread(
        tuple(1 + 0.001 * i for i in range(10)) + tuple(1.3 + 0.001 * i for i in range(10))
    )
    words = " ".join(rising.troubles("the call", 0.01))
    assert "the call is noisy" in words
    assert rising.drift == pytest.approx(1.3045 / 1.0045 - 1)
    step = Spread((1.0,) * 20 + (1.06,) * 21)
    assert any(
        "drifted: the second half of the samples was 6% slower" in each
        for each in step.troubles("it", 1)
    )
    assert any(
        "2 samples in the time given are too few" in each
        for each in Spread((1.0, 1.0)).troubles("it", 0.01)
    )


# ---------------------------------------------------------------- turns


def test_turns_end_when_the_median_is_known() -> None:
    turn = Turn(lambda count: [1.0] * count)
    take_turns([turn], seconds=1e9, precision=0.01)
    assert len(turn.samples) == sampling.LEAST_SAMPLES


def test_turns_end_when_time_is_spent_and_two_samples_are_there() -> None:
    rng = np.random.default_rng(SEED)
    turn = Turn(lambda count: rng.random(count).tolist())
    take_turns([turn], seconds=1e-12, precision=0.0)
    assert len(turn.samples) == sampling.LEAST_AFTER_BUDGET


def test_turns_end_at_the_most_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_SAMPLES", 40)
    rng = np.random.default_rng(SEED)
    turn = Turn(lambda count: rng.random(count).tolist(), batch=4)
    take_turns([turn], seconds=1e9, precision=0.0)
    assert len(turn.samples) == 40


def test_contenders_alternate_and_their_order_changes() -> None:
    taken: list[str] = []

    def contender(name: str) -> Turn:
        def take(count: int) -> list[float]:
            taken.append(name)
            return [float(len(taken) % 3 + 1)] * count

        return Turn(take)

    turns = [contender(name) for name in "abc"]
    left: list[float] = []
    take_turns(turns, seconds=1e9, precision=10.0, progress=left.append)
    rounds = [taken[i : i + 3] for i in range(0, len(taken), 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert left[-1] == 0.0
    assert min(left[:-1]) > 0.0


def test_short_calls_are_timed_several_at_once() -> None:
    assert sampling.calls_for(2.0**-20) == math.ceil(sampling.SHORTEST_SAMPLE * 2**20)
    assert sampling.calls_for(1.0) == 1
    assert sampling.calls_for(0.0) == 1
    counted: list[int] = []
    flushed: list[int] = []
    take = sampling.host_samples(lambda: counted.append(1), 7, lambda: flushed.append(1))
    assert len(take(3)) == 3
    assert (len(counted), len(flushed)) == (21, 3)


def test_a_pipe_gets_no_bar_and_a_terminal_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="needs tqdm")
    with sampling.progress_bar("x") as bar:
        bar(0.5)
        assert bar._bar is None
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with sampling.progress_bar("measuring") as bar:
        bar(0.75)
        assert bar._bar.n == 0.75
    assert "measuring" in stream.getvalue()
    with sampling.progress_bar("x", False) as bar:
        assert bar._bar is None


def test_a_bar_moves_with_time_whatever_the_phases_were_thought_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Phases whose times are ten times off from what was expected, by a clock of the test's own."""
    clock = [0.0]
    monkeypatch.setattr(sampling.time, "perf_counter", lambda: clock[0])
    drawn: list[tuple[float, float]] = []
    phases = sampling.Phases(
        lambda share: drawn.append((clock[0], share)), {"a": (3, 1.0), "b": (1, 1.0)}
    )
    for kind, steps in (("a", 100), ("a", 100), ("a", 100), ("b", 10)):
        with phases.phase(kind) as moving:
            for i in range(1, steps + 1):
                clock[0] += 0.1
                moving((steps - i) / 10)
    whole = clock[0]
    assert drawn[-1] == (whole, 1.0)
    for at, share in drawn[100:]:  # from when the first phase was seen
        assert share == pytest.approx(at / whole, abs=0.02)


def test_the_time_left_of_a_turn_follows_from_its_uncertainty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(SEED)
    turn = sampling.Turn(lambda count: list(rng.normal(1.0, 0.1, count)), batch=5)
    assert turn.seconds_left(9.0, 0.01) == 9.0
    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.5
        return clock[0]

    monkeypatch.setattr(sampling.time, "perf_counter", tick)
    for _ in range(8):
        turn.run()
    per_sample = turn.spent / len(turn.samples)
    wanted = len(turn.samples) * (turn.spread.uncertainty / 0.01) ** 2
    assert turn.seconds_left(1e9, 0.01) == pytest.approx((wanted - 40) * per_sample)
    assert turn.seconds_left(turn.spent + 0.25, 0.01) == pytest.approx(0.25)
    assert turn.seconds_left(1e9, 0.9) == 0.0


def test_a_bar_is_drawn_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="needs tqdm")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sampling, "REDRAW_SECONDS", 3600.0)
    with sampling.progress_bar("measuring") as bar:
        for i in range(1000):
            bar(i / 1000)
        bar(2.0)
        bar(0.5)
        assert bar._bar.n == pytest.approx(1.0)
        assert stream.getvalue().count("measuring") <= 2


def test_without_tqdm_there_is_no_bar_unless_one_is_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sampling, "_is_interactive", lambda: True)
    with sampling.progress_bar("x") as bar:
        bar(1.0)
    with pytest.raises(ImportError, match=re.escape("gpureduce[progress]")):
        sampling.progress_bar("x", True)


# ---------------------------------------------------------------- the CPU


def test_a_timing_records_what_was_done(timed: gr.Timing) -> None:
    assert (timed.op, timed.kernel, timed.device, timed.dtype) == ("sum", "auto", "cpu", "int32")
    assert timed.bytes == 50_000 * 4 + 8
    assert timed.on_device is None
    assert timed.why_no_device
    assert (timed.peak, timed.of_peak, timed.of_ceiling) == (None, None, None)
    assert timed.bandwidth == timed.bytes / timed.host.median
    assert timed.host.minimum > 0
    assert timed.first_call > 0
    assert timed.environment["cpu"]


@pytest.mark.parametrize("cache", ["hot", "cold", "rotated"])
def test_the_cache_may_be_hot_cold_or_rotated(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "last_level_cache_bytes", lambda: 1 << 20)
    found = gr.benchmark("auto", np.ones(30_000), cache=cache, device="cpu", **SHORT)
    assert found.cache == cache
    assert any("fits in" in each for each in found.warnings) == (cache == "hot")


def test_rotated_copies_are_enough_to_overflow_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "last_level_cache_bytes", lambda: 1 << 20)
    values = np.arange(10_000.0)
    with session.BenchmarkSession(
        benchmark_array.as_benchmark_array(values), None, "cpu", "rotated"
    ) as running:
        assert len(running._arrays) * values.nbytes >= 2 << 20
        seen: list[int] = []
        running.host_turn(lambda array: seen.append(id(array))).take(1)
        assert len(set(seen)) == len(running._arrays)
        assert all(np.array_equal(array, values) for array in running._arrays)
    with session.BenchmarkSession(
        benchmark_array.as_benchmark_array(values), None, "cpu", "cold"
    ) as running:
        assert running._scratch is not None
        assert running._scratch.nbytes == 2 << 20


@pytest.mark.parametrize("function", [gr.max, gr.any, gr.mean])
def test_the_packages_functions_are_timed_by_their_operator(function: Any) -> None:
    found = gr.benchmark(
        function, np.ones(1000, np.float32), kernel="reduce2", device="cpu", **SHORT
    )
    assert found.op == function.__name__
    assert found.kernel == "sequential"
    assert any("its time is not that kernel's" in each for each in found.warnings)


def test_any_callable_is_timed_as_it_is() -> None:
    calls: list[int] = []

    def work(array: np.ndarray[Any, Any]) -> np.float64:
        calls.append(array.size)
        return np.float64(0)

    found = gr.benchmark(work, np.ones(10), **SHORT)
    assert found.function.endswith("work")
    assert (found.op, found.kernel, found.device, found.on_device) == ("", "", "", None)
    assert found.bytes == 88
    assert set(calls) == {10}
    partial = gr.benchmark(functools.partial(np.sum, axis=0), np.ones((3, 3)), **SHORT)
    assert "sum" in partial.function


def test_axes_options_and_reduce_are_passed_on() -> None:
    a = np.ones((20, 30), np.uint8)
    found = gr.benchmark("auto", a, op="max", axis=0, device="cpu", **SHORT)
    assert found.bytes == 600 + 30
    assert (
        gr.benchmark(gr.reduce, a, op="prod", axis=(0, 1), device="cpu", **SHORT).bytes == 600 + 8
    )
    assert gr.benchmark("auto", a, dtype="float32", device="cpu", **SHORT).bytes == 600 + 4


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"func_or_kernel": "sequentia"}, ValueError, "did you mean 'sequential'?"),
        ({"func_or_kernel": 3}, TypeError, "a kernel's name or a callable is timed, not int"),
        ({"arr": np.zeros(0)}, ValueError, "nothing to measure in an empty array"),
        ({"arr": "sequential"}, TypeError, "the array to measure is missing: 'sequential' stands"),
        ({"op": "median"}, ValueError, "unknown operator 'median'"),
        (
            {"cache": "warm"},
            ValueError,
            "cache must be one of 'hot', 'cold', 'rotated', not 'warm'",
        ),
        ({"seconds": 0}, ValueError, "seconds must be above 0"),
        ({"precision": -1}, ValueError, "precision not below"),
        ({"kernel": "auto"}, ValueError, "the kernel is named twice"),
        ({"func_or_kernel": np.sum, "kernel": "auto"}, ValueError, "for gpureduce's own functions"),
        ({"device": "gpu"}, ValueError, "gpu"),
        ({"block_size": 100, "func_or_kernel": "sequential"}, ValueError, "power of two"),
        ({"arr": np.array(["a"])}, TypeError, "not supported"),
        ({"axis": 3}, np.exceptions.AxisError, "axis 3 is out of bounds"),
        ({"arr": np.ma.masked_array([1.0], [True])}, TypeError, "masked arrays"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    given = {"func_or_kernel": "auto", "arr": np.ones(4), "device": "cpu", **SHORT} | arguments
    with pytest.raises(kind, match=re.escape(message)):
        gr.benchmark(given.pop("func_or_kernel"), given.pop("arr"), **given)


def test_a_gpu_that_is_not_there_is_an_error_and_so_is_its_profile(tmp_path: Path) -> None:
    fakes.run(
        """
        a = np.ones(10)
        with raises(gr.DeviceUnavailableError, "libcuda"):
            gr.benchmark("auto", a, device="cuda")
        with raises(gr.DeviceUnavailableError, "nothing to profile", "libcuda"):
            gr.benchmark("auto", a, profile=True)
        timings = {name: gr.benchmark(name, a, seconds=0.01, ceiling=False)
                   for name in ("reduce0", "exact", "fast")}
        assert all(timing.device == "cpu" for timing in timings.values())   # and no NoDeviceWarning
        told = [name for name, t in timings.items()
                if any("its time is not that kernel's" in each for each in t.warnings)]
        assert told == ["reduce0"]
        """,
        tmp_path,
        GPUREDUCE_LIBCUDA="/nonexistent/libcuda.so",
    )


def test_the_read_ceiling_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "HOST_BYTES", 1 << 20)
    monkeypatch.setattr(roofline, "last_level_cache_bytes", lambda: 0)
    roofline.host_read_ceiling.cache_clear()
    made_arrays: list[str] = []
    random_values = roofline.random_values
    monkeypatch.setattr(
        roofline, "random_values", lambda *a: (made_arrays.append(a[0]), random_values(*a))[1]
    )
    found = [gr.benchmark("auto", np.ones(1000), device="cpu", seconds=0.01) for _ in range(2)]
    roofline.host_read_ceiling.cache_clear()
    assert made_arrays == ["int32", "float32"]
    assert found[0].ceiling == found[1].ceiling
    assert found[0].of_ceiling == found[0].bandwidth / found[0].ceiling


def test_a_ceiling_that_cannot_be_measured_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(threads: int) -> float:
        raise MemoryError("there is no room")

    monkeypatch.setattr(roofline, "host_read_ceiling", fail)
    found = gr.benchmark("auto", np.ones(1000), device="cpu", seconds=0.01)
    assert found.ceiling is None
    assert any("could not be measured: there is no room" in each for each in found.warnings)


# ---------------------------------------------------------------- the GPU, over the fake driver

SMALL_CEILING = """
from gpureduce import _core
from gpureduce._bench import roofline
roofline.PIECE_BYTES, roofline.MOST_BYTES = 1 << 16, 1 << 18
"""


def over_fakes(script: str, tmp_path: Path, **settings: Any) -> str:
    import textwrap

    return fakes.run(SMALL_CEILING + textwrap.dedent(script), tmp_path, **settings)


def test_on_a_device_kernels_call_and_stages_are_timed(tmp_path: Path) -> None:
    out = over_fakes(
        """
        a = np.random.default_rng(1).random(200_000, np.float32)
        info = gr.devices()[0]
        for cache in ("hot", "cold", "rotated"):
            t = gr.benchmark("shfl_atomic", a, cache=cache, block_size=128, seconds=0.02)
            assert (t.device, t.kernel, t.block_size) == ("cuda:0", "shfl_atomic", 128)
            assert t.bytes == a.nbytes + 4
            assert len(t.on_device.samples) >= 2 and len(t.host.samples) >= 2
            assert {"compile", "stage", "upload", "kernel"} <= set(t.stages) or cache != "hot"
            assert t.stages["kernel"] == t.on_device.median
            assert t.peak == 2e3 * info.memory_clock_khz * info.memory_bus_bits / 8
            assert t.of_peak == t.device_bandwidth / t.peak
            assert t.of_ceiling == t.device_bandwidth / t.ceiling
            assert t.environment["device"]["name"] == info.name
            fits = any("fits in the L2 cache" in each for each in t.warnings)
            assert fits == (cache == "hot"), t.warnings
        print(t)
        """,
        tmp_path,
    )
    assert "kernels on the device" in out
    assert "the theoretical peak" in out


def test_device_memory_is_given_back(tmp_path: Path) -> None:
    over_fakes(
        """
        a = np.ones(100_000, np.float32)
        gr.sum(a)
        gr.benchmark("auto", a, seconds=0.01)
        before = cuda.fake_bytes(0)
        for _ in range(3):
            gr.benchmark("auto", a, seconds=0.01, cache="rotated")
            with raises(ValueError):
                gr.benchmark("sequential", a, seconds=0.01, block_size=100)
        assert cuda.fake_bytes(0) == before, (before, cuda.fake_bytes(0))
        """,
        tmp_path,
    )


def test_where_there_is_no_device_time_the_reason_is_given(tmp_path: Path) -> None:
    over_fakes(
        """
        a = np.ones((300, 40), np.float32)
        t = gr.benchmark("auto", a, axis=0, seconds=0.01, ceiling=False)
        assert t.on_device is None and "not the last ones" in t.why_no_device
        assert "kernel" not in t.stages
        t = gr.benchmark("auto", a, axis=1, seconds=0.01, ceiling=False)
        assert t.on_device is not None
        # packed before it is put there
        t = gr.benchmark("auto", a[:, ::2], axis=1, seconds=0.01, ceiling=False)
        assert t.on_device is not None and t.bytes == 300 * 20 * 4 + 300 * 4
        t = gr.benchmark("auto", a, device="cpu", seconds=0.01, ceiling=False)
        assert t.device == "cpu" and t.on_device is None
        assert t.why_no_device == "the CPU was asked for"
        """,
        tmp_path,
    )


def test_an_array_that_does_not_fit_on_the_device_is_timed_from_the_host_alone(
    tmp_path: Path,
) -> None:
    over_fakes(
        """
        a = np.ones(3_000_000, np.float32)
        gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
        cuda.fake_set_memory(8 << 20, 1 << 30)
        t = gr.benchmark("auto", a, seconds=0.01, ceiling=False)
        assert t.device == "cuda:0" and t.on_device is None
        assert "cannot be put on the device whole" in t.why_no_device, t.why_no_device
        """,
        tmp_path,
    )


def test_a_contiguous_device_array_is_measured_in_place(tmp_path: Path) -> None:
    over_fakes(
        """
        values = np.arange(10_000, dtype=np.int32)
        pointer = _core.alloc_device(0, values.nbytes)
        _core.upload(0, pointer, values)

        class Array:
            def __init__(self, **more):
                self.__cuda_array_interface__ = {
                    "shape": (100, 100), "typestr": "<i4", "data": (pointer, False),
                    "version": 3, **more
                }
            def get(self):
                return values.reshape(100, 100)

        t = gr.benchmark("auto", Array(), seconds=0.01, ceiling=False)
        assert t.device == "cuda:0" and t.on_device is not None and "upload" not in t.stages
        t = gr.benchmark("auto", Array(strides=(400, 4)), seconds=0.01, ceiling=False)
        assert t.bytes == 40_008
        with raises(ValueError, "C-contiguous"):
            gr.benchmark("auto", Array(strides=(4, 400)), seconds=0.01)
        with raises(ValueError, "the array is on cuda:0"):
            gr.benchmark("auto", Array(), device="cpu", seconds=0.01)
        with raises(ValueError, "takes a host array"):
            gr.benchmark("auto", Array(), cache="rotated", seconds=0.01)
        c = gr.compare(Array(), ["auto", "reduce0"], seconds=0.01, baselines=["numpy"],
                       ceiling=False)
        assert [row.right for row in c] == [True, True, None] and c["numpy"].absent
        _core.free_device(0, pointer)
        """,
        tmp_path,
    )


def test_a_stream_is_passed_on_as_its_handle() -> None:
    assert _core.stream_handle(None) == 0
    assert _core.stream_handle(77) == 77
    assert _core.stream_handle(SimpleNamespace(ptr=5)) == 5
    assert _core.stream_handle(SimpleNamespace(cuda_stream=6)) == 6


def test_another_callable_is_not_uploaded_for(tmp_path: Path) -> None:
    over_fakes(
        """
        a = np.ones(1000)
        gr.sum(a)
        cuda.fake_reset_peaks()
        before = cuda.fake_bytes(0)
        t = gr.benchmark(np.sum, a, seconds=0.01)
        assert cuda.fake_peak(0) == before and t.on_device is None
        assert any("last-level cache" in each for each in t.warnings), t.warnings
        """,
        tmp_path,
    )


@pytest.mark.gpu
def test_on_a_gpu_the_kernels_stay_below_the_ceiling_of_physics() -> None:
    a = np.random.default_rng(SEED).random(1 << 26, np.float32)
    found = gr.benchmark("auto", a, cache="cold", seconds=0.2)
    assert found.on_device is not None
    assert found.peak is not None
    assert 0 < found.device_bandwidth <= found.peak
    assert found.on_device.median < found.host.median
    assert set(found.stages) >= {"stage", "upload", "kernel"}


# ---------------------------------------------------------------- clocks


def reading(sm: int, memory: int = 2000, *slowed: str) -> clocks.Clocks:
    return clocks.Clocks(sm, memory, slowed)


def test_clocks_that_moved_are_named() -> None:
    assert clocks.moved([]) == []
    assert clocks.moved([reading(1000), reading(1010)]) == []
    assert clocks.moved([reading(1000), reading(1980)]) == [
        "the clock of the multiprocessors moved between 1,000 and 1,980 MHz"
    ]
    assert (
        "the clock of the memory moved"
        in clocks.moved([reading(1000, 2000), reading(1000, 1000)])[0]
    )
    assert clocks.moved([reading(1000, 2000, "its power limit")] * 2) == [
        "the GPU was slowed by its power limit"
    ]


class NVMLError(Exception):
    """The exception of ``pynvml``."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A stand-in for ``pynvml``, of one GPU, slowed by its power limit and by idling."""

    def handle_by_uuid(uuid: str) -> str:
        if uuid != "GPU-abc":
            raise NVMLError("not found")
        return uuid

    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlClocksThrottleReasonSwPowerCap=0x4,
        nvmlClocksThrottleReasonHwSlowdown=0x8,
        nvmlClocksThrottleReasonSwThermalSlowdown=0x20,
        nvmlClocksThrottleReasonHwThermalSlowdown=0x40,
        nvmlClocksThrottleReasonHwPowerBrakeSlowdown=0x80,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=handle_by_uuid,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1980, 2: 2619}[kind],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x4 | 0x1,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    clocks._handle.cache_clear()
    yield library
    clocks._handle.cache_clear()


def refuse(*_: object) -> None:
    raise NVMLError("not supported")


def test_clocks_are_read_from_the_management_library(nvml: SimpleNamespace) -> None:
    assert clocks.read_clocks("abc") == clocks.Clocks(1980, 2619, ("its power limit",))
    assert clocks.read_clocks("GPU-abc") == clocks.read_clocks("abc")
    assert clocks.read_clocks("GPU-other") is None
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = refuse
    assert clocks.read_clocks("abc") == clocks.Clocks(1980, 2619, ())
    nvml.nvmlDeviceGetClockInfo = refuse
    assert clocks.read_clocks("abc") is None


def test_without_the_management_library_there_are_no_clocks(
    nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.nvmlInit = refuse
    assert clocks.read_clocks("abc") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    clocks._handle.cache_clear()
    assert clocks.read_clocks("abc") is None


def test_the_management_library_has_the_names_that_are_read() -> None:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    names = {f"nvmlClocksThrottleReason{name}" for name in clocks._SLOWED}
    names |= {
        "NVMLError",
        "NVML_CLOCK_SM",
        "NVML_CLOCK_MEM",
        "nvmlInit",
        "nvmlDeviceGetHandleByUUID",
    }
    names |= {"nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksThrottleReasons"}
    assert names <= set(dir(pynvml))
    assert clocks.read_clocks("GPU-of-no-device") is None


# ---------------------------------------------------------------- forms


def test_rates_are_bytes_over_medians() -> None:
    each = made()
    assert each.bandwidth == 10**9 / 0.02
    assert each.device_bandwidth == 10**9 / 0.00025
    assert each.of_peak == pytest.approx(0.8)
    assert each.of_ceiling == pytest.approx(4 / 4.5)


def test_text_markdown_and_html_have_the_same_content() -> None:
    each = made()
    for text in (str(each), each.to_markdown(), each._repr_html_()):
        for word in (
            "20.00 ms",
            "250.0 µs",
            "4,000",
            "80.0%",
            "88.9%",
            "it was windy",
            "upload",
            "300.0 ms",
            "cold",
        ):
            assert word in text, word
    assert_balanced(each._repr_html_())
    assert "no device time: because" in str(
        made(on_device=None, why_no_device="because", stages={})
    )


def test_html_escapes_its_texts() -> None:
    parsed = assert_balanced(
        made(warnings=("a < b",), function="<lambda>", kernel="")._repr_html_()
    )
    assert any("a < b" in text for text in parsed.data)
    assert any("<lambda>" in text for text in parsed.data)


def test_json_holds_everything_and_is_json(timed: gr.Timing) -> None:
    for each in (timed, made()):
        again = json.loads(each.to_json(indent=1))
        assert again == each.to_dict()
        assert again["host"]["samples"] == list(each.host.samples)
        assert again["environment"] == each.environment
        assert again["shape"] == list(each.shape)
    assert made().to_dict()["on_device"]["calls_per_sample"] == 1


def test_csv_has_a_row_a_sample_with_the_environment(tmp_path: Path) -> None:
    each = made()
    path = tmp_path / "samples.csv"
    text = each.to_csv(path)
    assert path.read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(each.host.samples) + len(each.on_device.samples)
    assert [float(row["seconds"]) for row in rows if row["time"] == "host"] == list(
        each.host.samples
    )
    assert {row["device.name"] for row in rows} == {"X"}


def test_stages_are_drawn_with_their_times(timed: gr.Timing) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    ax = made().plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "stage",
        "upload",
        "kernel",
        "return",
        "whole call",
    ]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([16, 18, 0.25, 0.01, 20])
    assert "ms" in ax.get_xlabel()
    (spread,) = ax.lines
    label = next(text for text in ax.texts if text.get_text().strip() == "20.00 ms")
    assert label.get_position()[0] >= max(spread.get_xdata()), (
        "the time stands on the line of its quartiles"
    )
    own = matplotlib.figure.Figure().subplots()
    assert timed.plot(own) is own


def test_drawing_without_matplotlib_raises_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'gpureduce[plot]'")):
        made().plot()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (1.5, "1.500 s"),
        (0.0123456, "12.35 ms"),
        (2e-6, "2.000 µs"),
        (3e-9, "3.000 ns"),
        (1234, "1,234 s"),
    ],
)
def test_times_have_the_unit_that_suits_them(seconds: float, words: str) -> None:
    assert tables.show_time(seconds) == words


def test_sizes_and_rates_are_never_shown_as_none_unless_they_are() -> None:
    assert tables.show_bytes(1 << 30) == "1 GiB"
    assert tables.show_bytes(1000) == "1,000 B"
    assert tables.show_bytes(1536) == "1.5 KiB"
    assert tables.show_bandwidth(4.5e12) == "4,500"
    assert tables.show_bandwidth(2.5e6) == "0.0025"
    assert [tables.show_ratio(ratio) for ratio in (1234.5, 0.5, 0.00123, 6e-5)] == [
        *("1,234.50", "0.50", "0.0012", "0.00006"),
    ]
    assert tables.time_unit([0.2, 3e-5]) == (1e-6, "µs")
    assert tables.time_unit([]) == (1.0, "s")


def test_the_environment_describes_the_machine() -> None:
    found = environment.environment()
    assert json.loads(json.dumps(found)) == found
    assert found["gpureduce"] == gr.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert environment.show_cuda_version(12080) == "12.8"
    assert environment.last_level_cache_bytes() >= 0


def test_the_documentation_names_every_stage() -> None:
    text = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    for name in timing.STAGES:
        assert f"**{name}**" in text, name
    for name in session.CACHES:
        assert f'"{name}"' in text, name


def test_random_values_fill_the_range_of_their_dtype() -> None:
    for dtype in ("int8", "uint16", "float32", "bool", "complex64"):
        values = benchmark_array.random_values(dtype, 1000)
        assert (values.dtype, values.size) == (np.dtype(dtype), 1000)
        assert np.unique(values).size > 1


def test_importing_the_package_brings_none_of_this_along() -> None:
    names = ("_bench", "_cli", "_display", "_explain", "_tune", "_yours")
    late = tuple(f"gpureduce.{name}" for name in names)
    assert sorted(late) == sorted(
        f"gpureduce.{path.parent.name}"
        for path in Path(gr.__file__).parent.glob("*/__init__.py")
        if path.parent.name != "_interop"  # part of every reduction
    )
    code = (
        f"import gpureduce, sys\nprint([name for name in sys.modules if name.startswith({late!r})])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {"benchmark", "compare", "Timing", "Comparison"} <= set(dir(gr))


def test_a_call_is_no_share_of_itself() -> None:
    """Where the call itself is the fastest read, there is no percentage to print."""
    timing = gr.benchmark("auto", np.ones(1000, np.float32), device="cpu", seconds=0.01)
    alone = dataclasses.replace(timing, ceiling=timing.bandwidth)
    assert "no higher bandwidth was measured here" in str(alone)
    assert "%" not in "".join(alone._facts())
    twice = dataclasses.replace(timing, ceiling=2 * timing.bandwidth)
    assert "50.0% of" in str(twice)
    assert (alone.of_ceiling, twice.of_ceiling) == (1, 0.5)
