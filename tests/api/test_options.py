"""Everything after ``*``, looking inside, threads and signals."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import gpureduce as gr
from gpureduce import _core

DEVICES = ["cpu", None, pytest.param("cuda", marks=pytest.mark.gpu)]
on_devices = pytest.mark.parametrize("device", DEVICES)
A = np.arange(6.0).reshape(2, 3)


# ---------------------------------------------------------------- options


def test_kernel_names_and_aliases_are_checked_on_the_cpu_too() -> None:
    a = np.arange(100, dtype=np.int32)
    for kernel in gr.kernels():
        for name in (kernel.name, *kernel.aliases):
            assert gr.sum(a, kernel=name, device="cpu") == a.sum()
    with pytest.raises(TypeError, match="not understood; did you mean 'float64'"):
        gr.ExactSum("flot64")
    with pytest.raises(TypeError, match=r"'decimal' not understood$"):
        gr.ExactSum("decimal")
    with pytest.raises(ValueError, match="did you mean 'sequential'"):
        gr.sum(a, kernel="sequentail", device="cpu")
    with pytest.raises(ValueError, match="unknown kernel"):
        gr.sum([1, 2], kernel="", device="cpu")
    with pytest.raises(TypeError, match="kernel must be a string"):
        gr.sum(a, kernel=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null character"):
        gr.sum(a, kernel="auto\0", device="cpu")


def test_block_and_grid_sizes_are_checked_on_the_cpu_too() -> None:
    a = np.arange(100, dtype=np.int32)
    assert gr.sum(a, kernel="sequential", block_size=64, device="cpu") == a.sum()
    assert gr.sum(a, kernel="multi_add", grid_size=7, device="cpu") == a.sum()
    for size in (0, -1, 2**40, 33, 100, 2048):
        with pytest.raises(ValueError, match="block"):
            gr.sum(a, kernel="sequential", block_size=size, device="cpu")
    with pytest.raises(ValueError, match="grid_size"):
        gr.sum(a, kernel="sequential", grid_size=4, device="cpu")
    with pytest.raises(TypeError):
        gr.sum(a, block_size=64.0, device="cpu")  # type: ignore[arg-type]


def test_device_names_are_checked() -> None:
    for name in ("gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999", "CPU", ""):
        with pytest.raises(ValueError, match="unknown device"):
            gr.sum(A, device=name)
    with pytest.raises(TypeError, match="device must be a string"):
        gr.sum(A, device=0)  # type: ignore[arg-type]
    assert gr.sum(A, device="auto") == A.sum()


def test_cuda_without_a_gpu_says_why() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    for device in ("cuda", "cuda:0", "cuda:1"):
        with pytest.raises(gr.DeviceUnavailableError) as caught:
            gr.sum(A, device=device)
        assert str(caught.value).startswith(("no NVIDIA GPU on", "no NVIDIA driver"))


def test_streams_are_handles_or_objects_that_have_one() -> None:
    class Cupy:
        ptr = 0

    class Torch:
        cuda_stream = 0

    for stream in (0, Cupy(), Torch()):
        assert gr.sum(A, stream=stream, device="cpu") == A.sum()
    for stream in (-1, 2**64):
        with pytest.raises(ValueError, match="stream"):
            gr.sum(A, stream=stream, device="cpu")
    with pytest.raises(TypeError, match="stream"):
        gr.sum(A, stream="0", device="cpu")


def test_operators_of_reduce_are_checked() -> None:
    with pytest.raises(ValueError, match=r"unknown operator .*; gpureduce\.operator makes one"):
        gr.reduce(A, lambda x, y: x + y)
    with pytest.raises(ValueError, match="unknown operator 'median'"):
        gr.reduce(A, "median")
    with pytest.raises(TypeError, match="mean takes no initial"):
        gr.reduce(A, "mean", initial=0)
    with pytest.raises(TypeError, match="max computes in"):
        gr.reduce(A, "max", dtype=np.float32)


def run_fresh(code: str) -> str:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_named_kernel_without_a_gpu_warns_once_at_the_callers_line() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    code = (
        "import warnings, numpy as np, gpureduce as gr\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    gr.sum(np.ones(3)); [gr.sum(np.ones(3), kernel=name) for name in ('auto', 'exact', "
        "'fast')]\n"
        "    gr.sum(np.ones(3), kernel='sequential', device='cpu')\n"
        "    print(len(caught))\n"
        "    gr.{call}\n"
        "    gr.sum(np.ones(3), kernel='naive_atomic'); gr.empty_pinned(3)\n"
        "    print(len(caught), caught[0].category is gr.NoDeviceWarning, caught[0].filename)\n"
    )
    calls = (
        "sum(np.ones(3), kernel='sequential')",
        "sum([1, 2], kernel='sequential')",
        "empty_pinned(3)",
    )
    for call in calls:
        assert run_fresh(code.format(call=call)).split() == ["0", "1", "True", "<string>"]


def test_the_warning_is_an_exception_of_every_call_where_filters_make_it_one() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    code = (
        "import warnings, numpy as np, gpureduce as gr\n"
        "warnings.simplefilter('error', gr.NoDeviceWarning)\n"
        "for _ in range(3):\n"
        "    try: print(gr.sum(np.ones(3), kernel='sequential'))\n"
        "    except gr.NoDeviceWarning: print('raised')\n"
        "try: gr.empty_pinned(3)\n"
        "except gr.NoDeviceWarning: print('raised')\n"
        "print(gr.sum(np.ones(3)))\n"
    )
    assert run_fresh(code).split() == ["raised"] * 4 + ["3.0"]


# ---------------------------------------------------------------- looking inside


def test_last_run_says_what_happened_in_this_thread() -> None:
    a = np.ones((10, 100), np.float32)
    gr.sum(a, axis=1, kernel="sequential", device="cpu")
    run = gr.last_run()
    assert run is not None
    assert (run.device, run.kernel, run.elements, run.bytes) == ("cpu", "fast", 1000, 4000)
    assert (run.block_size, run.grid_size, run.launches) == (0, 0, 0)
    assert run.threads >= 1
    assert run.tasks >= 1
    for name in ("auto", "exact", "fast"):
        gr.sum(a, kernel=name, device="cpu")
        assert gr.last_run().kernel == name
    assert run.seconds > 0
    assert run.chunks == 1
    seen = []
    other = threading.Thread(target=lambda: seen.append(gr.last_run()))
    other.start()
    other.join()
    assert seen == [None]


def test_kernels_are_complete_records() -> None:
    kernels = gr.kernels()
    names = [kernel.name for kernel in kernels]
    assert len(set(names)) == len(names)
    assert names[-1] == "auto"
    for kernel in kernels:
        assert kernel.summary
        assert kernel.removes
        assert kernel.pays
        assert kernel.source
        assert kernel.block_size % 32 == 0
        assert kernel.available == (kernel.reason == "")
    with pytest.raises(AttributeError):
        kernels[0].name = "other"  # type: ignore[misc]


def test_kernel_source_is_what_is_in_the_tree() -> None:
    import pathlib

    folder = pathlib.Path(__file__).parents[2] / "csrc" / "kernels"
    for kernel in gr.kernels():
        text = gr.kernel_source(kernel.name)
        if folder.exists():
            assert text in {file.read_text() for file in folder.glob("*/*.cuh")}
        whole = gr.kernel_source(kernel.name, helpers=True)
        assert whole.endswith(text)
        assert len(whole) > len(text)
    assert gr.kernel_source("reduce2") == gr.kernel_source("sequential")
    with pytest.raises(ValueError, match="unknown kernel"):
        gr.kernel_source("reduce99")


def test_the_helpers_that_a_kernel_calls_are_shown_with_it() -> None:
    """The statements that a lesson teaches: the shuffles of shfl_atomic, the steps of unrolled."""
    for name, functions in (
        ("shfl_atomic", ("shuffle_down", "warp_reduce", "fold_elements")),
        ("shfl_atomic_vec", ("warp_reduce", "fold_vectors", "load_vector")),
        ("unrolled", ("halve", "last_warp_tree")),
        ("redux_last_warp", ("redux",)),
    ):
        text = gr.kernel_source(name, helpers="used")
        for function in functions:
            assert re.search(rf"GPR_DEVICE[^;{{}}]*\b{function}\(", text), (name, function)
        assert text.endswith(gr.kernel_source(name))
        assert len(text) < len(gr.kernel_source(name, helpers=True)) / 4
    assert "__shfl_down_sync" in gr.kernel_source("shfl_atomic", helpers="used")
    assert "load_vector" not in gr.kernel_source("shfl_atomic", helpers="used")
    with pytest.raises(ValueError, match="helpers must be True, False or 'used'"):
        gr.kernel_source("sequential", helpers="all")  # type: ignore[arg-type]


def test_no_function_that_a_kernel_calls_is_left_out() -> None:
    """Each name that is called and defined in a shared file is among the helpers."""
    sources = _core.sources()
    defined = {
        name
        for file, text in sources.items()
        if file not in _core.KERNEL_FILES.values()
        for name in re.findall(r"^GPR_DEVICE [\w: ]+?\b(\w+)\(", text, re.MULTILINE)
    }
    assert {"load_vector", "row_of"} <= defined
    for kernel in gr.kernels():
        text = re.sub(r"//.*", "", gr.kernel_source(kernel.name, helpers="used"))
        called = set(re.findall(r"(?<![\w.:>])(\w+)\(", text)) & defined
        shown = set(re.findall(r"GPR_DEVICE [\w: ]+?\b(\w+)\(", text))
        others = {  # of kernels that are in the same file
            name for name in called - shown if name not in _calls_of(kernel.name, text)
        }
        assert called - shown == others


def _calls_of(name: str, text: str) -> set[str]:
    """Names that are called in a kernel's own function."""
    body = re.search(rf"^{name}\(.*?^\}}", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"(?<![\w.:>])(\w+)\(", body[0])) if body is not None else set()


def test_limits_can_be_set_and_bad_ones_change_nothing() -> None:
    before = gr.limits()
    try:
        gr.set_limits(cpu_threads=1)
        assert gr.limits().cpu_threads == 1
        assert gr.limits().device_bytes == before.device_bytes
        gr.set_limits(device_bytes=2**21, pinned_bytes=2**22)
        assert (gr.limits().device_bytes, gr.limits().pinned_bytes) == (2**21, 2**22)
        now = gr.limits()
        for bad in (
            {"cpu_threads": 0},
            {"cpu_threads": -1},
            {"cpu_threads": 2**40},
            {"device_bytes": 1},
        ):
            with pytest.raises(ValueError, match=r"limit|thread|MiB|bytes"):
                gr.set_limits(**bad)
            assert gr.limits() == now
        with pytest.raises(TypeError):
            gr.set_limits(cpu_threads="2")  # type: ignore[arg-type]
    finally:
        gr.set_limits(
            device_bytes=before.device_bytes,
            pinned_bytes=before.pinned_bytes,
            cpu_threads=before.cpu_threads,
        )


def test_cache_can_be_looked_at_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUREDUCE_CACHE_DIR", str(tmp_path))  # tests share the other one
    (tmp_path / f"{0:064x}.gpr").write_bytes(b"a program?")
    (tmp_path / "other.txt").write_bytes(b"")
    info = gr.cache_info()
    assert (info.entries, info.bytes) == (1, 10)
    assert info.directory == str(tmp_path)
    gr.clear_cache(loaded=True)
    info = gr.cache_info()
    assert (info.entries, info.bytes) == (0, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["other.txt"]


@pytest.mark.filterwarnings("ignore::gpureduce.NoDeviceWarning")
def test_pinned_arrays_are_ordinary_arrays_to_numpy() -> None:
    a = gr.empty_pinned((3, 4), np.float32)
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert (a.shape, a.dtype) == ((3, 4), np.dtype(np.float32))
    a[...] = 2
    view = a[1:]
    del a
    assert gr.sum(view) == 16
    source = np.asfortranarray(np.arange(6).reshape(2, 3))
    copy = gr.pinned_copy(source)
    np.testing.assert_array_equal(copy, source)
    assert not np.shares_memory(copy, source)
    assert gr.empty_pinned(0).size == 0
    assert gr.empty_pinned((), "i4").shape == ()
    with pytest.raises(TypeError, match="Python objects"):
        gr.empty_pinned(3, object)
    with pytest.raises(ValueError, match="negative"):
        gr.empty_pinned((2, -1))


# ---------------------------------------------------------------- threads and signals


@on_devices
def test_many_threads_at_once_get_their_own_results(device: str | None) -> None:
    arrays = [np.full(50_000 + i, i, np.int64) for i in range(8)]
    wrong = []

    def work(i: int) -> None:
        for _ in range(50):
            if gr.sum(arrays[i], device=device) != i * len(arrays[i]):
                wrong.append(i)
            if gr.last_run().elements != len(arrays[i]):  # type: ignore[union-attr]
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_while_a_reduction_does() -> None:
    values = np.ones(4096, np.float32)  # windows that overlap: two thousand million elements
    a = np.lib.stride_tricks.as_strided(values, (2, 1000, 1000, 1000), (4, 4, 4, 4))
    ticks = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(0)

    def ticks_of_a_reduction() -> int:
        before = len(ticks)
        gr.sum(a, device="cpu")
        return len(ticks) - before

    ticker = threading.Thread(target=tick)
    ticker.start()
    # Where the reduction held the GIL there would be one at most; a busy machine has few.
    most = next((found for _ in range(10) if (found := ticks_of_a_reduction()) > 5), 0)
    done.set()
    ticker.join()
    assert most > 5


def test_ctrl_c_stops_a_long_reduction_and_the_next_call_works() -> None:
    code = (
        "import signal, time, numpy as np, gpureduce as gr\n"
        "values = np.ones(4096, np.float32)\n"
        "a = np.lib.stride_tricks.as_strided(values, (1024,) * 4, (4,) * 4)\n"
        "def stop(*_): raise KeyboardInterrupt('stop')\n"
        "signal.signal(signal.SIGALRM, stop)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "start = time.perf_counter()\n"
        "try: gr.sum(a, device='cpu')\n"
        "except KeyboardInterrupt as error: print(error, time.perf_counter() - start < 30)\n"
        "print(gr.sum(np.ones(10), device='cpu'))\n"
    )
    assert run_fresh(code).split() == ["stop", "True", "10.0"]


def test_no_reference_is_leaked_on_any_path() -> None:
    import gc
    import tracemalloc

    a, small = np.ones((50, 40), np.float32), np.zeros((), np.float64)

    def every_path() -> None:
        gr.sum(a, device="cpu")
        gr.sum(a, axis=0, keepdims=True, dtype=np.float64, device="cpu")
        gr.mean(a, out=small, where=a > 0, device="cpu")
        gr.kernels(), gr.last_run(), gr.limits(), gr.cache_info(), gr.kernel_source("auto")
        for bad in (
            {"axis": 9},
            {"kernel": "?"},
            {"dtype": "O"},
            {"device": "cuda:77"},
            {"block_size": 3},
        ):
            with pytest.raises((ValueError, TypeError, RuntimeError)):
                gr.sum(a, **bad)

    for _ in range(20):
        every_path()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    counts = [sys.getrefcount(x) for x in (a, a.dtype, np.dtype(np.float64), None)]
    for _ in range(200):
        every_path()
    gc.collect()
    after = [sys.getrefcount(x) for x in (a, a.dtype, np.dtype(np.float64), None)]
    # Other threads allocate too.
    ours = [tracemalloc.Filter(True, pattern) for pattern in ("*gpureduce*", __file__)]
    now, before = (
        snapshot.filter_traces(ours) for snapshot in (tracemalloc.take_snapshot(), before)
    )
    # A single block is a table of Python's that grew in between; what leaks does so in each call.
    grown = sum(stat.size_diff for stat in now.compare_to(before, "lineno") if stat.count_diff > 1)
    tracemalloc.stop()
    assert grown < 50_000
    assert all(abs(x - y) < 100 for x, y in zip(counts, after, strict=True))


def test_auto_is_exact_for_sums_and_means_of_floats_and_fast_for_all_else() -> None:
    for op in _core.OPERATORS:
        for dtype in _core.DTYPES:
            is_exact = op in ("sum", "mean") and dtype in (
                "float16",
                "bfloat16",
                "float32",
                "float64",
            )
            assert _core.choose_kernel("auto", op, dtype) == ("exact" if is_exact else "fast"), (
                op,
                dtype,
            )
    assert _core.choose_kernel("reduce0", "sum", "float32") == "interleaved_modulo"
    with pytest.raises(ValueError, match="unknown kernel"):
        _core.choose_kernel("none", "sum", "float32")
    with pytest.raises(ValueError, match="there is no dtype"):
        _core.choose_kernel("auto", "sum", "float128")


def test_sums_that_overflow_on_the_way_are_right_unless_fast_is_asked_for() -> None:
    a = np.array([1e308, 1e308, -1e308, 2.5])
    assert gr.sum(a, device="cpu") == 1e308
    assert gr.mean(a, device="cpu") == 2.5e307
    assert gr.sum(a, kernel="fast", device="cpu") == np.inf
    assert gr.nansum(np.append(a, np.nan), device="cpu") == 1e308
    # An integer result is that of truncated elements, as NumPy has it.
    assert gr.sum([0.75, 0.75], dtype=np.int64, device="cpu") == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gr.sum([0.5], kernel="fast") == gr.sum([0.5], kernel="exact") == 0.5


def test_kernels_of_the_list_are_found_by_their_names_and_aliases() -> None:
    found = gr.kernels()
    assert found["reduce0"] is found["interleaved_modulo"]
    assert found["reduce0"].name == "interleaved_modulo"
    with pytest.raises(ValueError, match="did you mean 'reduce0'"):
        found["reduc0"]
    with pytest.raises(ValueError, match="kernel 'auto' is not in this list"):
        found[:3]["auto"]


def test_the_list_of_kernels_prints_as_a_table() -> None:
    found = gr.kernels()
    assert isinstance(found, list)
    lines = str(found).splitlines()
    assert lines[0].split() == ["kernel", "block", "same", "bits", "what", "it", "does"]
    assert [line.split()[0] for line in lines[2:]] == [each.name for each in found]
    assert len(repr(found)) < 120
    assert repr(found).startswith(f"<{len(found)} kernels: {found[0].name}, ")
    assert repr(found[:2]) == f"<2 kernels: {found[0].name}, {found[1].name}>"
    assert (found[1:3][0], found[-1].name) == (found[1], "auto")
    page = found._repr_html_()
    assert page.count("<tr>") == len(found) + 1
    assert "<script" not in page
