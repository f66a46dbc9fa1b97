"""Messages where something is missing, wrong or breaks; the next call works."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest

import gpureduce as gr

# ---------------------------------------------------------------- no device

NO_DEVICE = """
    with raises(gr.DeviceUnavailableError, *{parts}):
        gr.sum(np.ones(10), device="cuda")
    for device in ("cuda", "cuda:0"):
        with raises(gr.DeviceUnavailableError, *{parts}):
            gr.sum(np.ones(100_000), device=device, kernel="shfl_atomic")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert gr.sum(np.ones(10)) == 10
        assert gr.sum(np.ones(10), device="auto") == 10
        assert gr.last_run().device == "cpu"
        assert caught == []
        for _ in range(3):
            assert gr.sum(np.ones(10), kernel="shfl_atomic") == 10
            assert gr.last_run().device == "cpu"
    assert [w.category for w in caught] == [gr.NoDeviceWarning], caught
    assert caught[0].filename == "<string>"  # the user's line
    for part in {parts}:
        assert part in str(caught[0].message), caught[0].message
    assert gr.devices() == [] or {has_driver}
    assert all(not k.available and k.reason for k in gr.kernels())
    assert gr.sum(np.ones(10), device="cpu") == 10
"""


@pytest.mark.parametrize(
    ("parts", "settings", "has_driver"),
    [
        (
            ("no NVIDIA driver", 'device="cpu"'),
            {"GPUREDUCE_LIBCUDA": "/nowhere/libcuda.so.1"},
            False,
        ),
        (("no CUDA device", "CUDA_VISIBLE_DEVICES"), {"cuda": "init=100"}, False),
        (("no CUDA device", "CUDA_VISIBLE_DEVICES"), {"cuda": "devices=0"}, False),
        (
            ("cuInit failed with CUDA_ERROR_UNKNOWN (999)", "nvidia-smi"),
            {"cuda": "init=999"},
            False,
        ),
        (("supports CUDA 11.8", "525"), {"cuda": "version=11080"}, False),
        (("NVRTC", "/nowhere/libnvrtc.so"), {"GPUREDUCE_LIBNVRTC": "/nowhere/libnvrtc.so"}, True),
        (("NVRTC 11.8 is too old", "gpureduce[cu13]"), {"nvrtc": "version=11080"}, True),
    ],
    ids=["no driver", "init 100", "no devices", "init 999", "old driver", "no NVRTC", "old NVRTC"],
)
def test_no_device_is_explained_and_the_cpu_answers_with_one_warning(
    parts: tuple[str, ...], settings: dict[str, str], has_driver: bool, tmp_path: Path
) -> None:
    fakes.run(NO_DEVICE.format(parts=parts, has_driver=has_driver), tmp_path, **settings)


def test_a_driver_that_lacks_a_function_is_too_old(tmp_path: Path) -> None:
    library = str(fakes.directory() / "libincomplete.so")
    parts = ("too old", "cuDeviceGetUuid_v2", "525")
    fakes.run(NO_DEVICE.format(parts=parts, has_driver=False), tmp_path, GPUREDUCE_LIBCUDA=library)


def test_nvrtc_that_is_not_installed_is_named_with_what_to_install(tmp_path: Path) -> None:
    fakes.run(
        """
        sys.modules["cuda"] = None  # no cuda-pathfinder
        if gr.cuda_versions()[1] == (0, 0) or gr.cuda_versions()[1] == 0:
            with raises(gr.DeviceUnavailableError, "NVRTC", "pip install 'gpureduce[cu13]'"):
                gr.sum(np.ones(10), device="cuda")
        assert gr.sum(np.ones(10), device="cpu") == 10
        """,
        tmp_path,
        GPUREDUCE_LIBNVRTC=None,
        CUDA_HOME=None,
        CUDA_PATH=None,
    )


def test_importing_touches_no_driver(tmp_path: Path) -> None:
    fakes.run(
        """
        gr.kernels and gr.sum
        assert cuda.fake_calls() == 0
        assert gr.sum(np.ones(10), device="cpu") == 10
        assert gr.kernel_source("sequential")
        assert cuda.fake_calls() == 0
        """,
        tmp_path,
    )


# ---------------------------------------------------------------- arguments


def test_bad_arguments_name_what_is_wrong(tmp_path: Path) -> None:
    fakes.run(
        """
        a = np.ones(1000, np.float32)
        for device in ("cuda", "cpu"):
            with raises(ValueError, "unknown kernel 'shfl_atomc'", "'shfl_atomic'"):
                gr.sum(a, kernel="shfl_atomc", device=device)
            with raises(ValueError, "unknown kernel 'xyzzy'", "kernels()"):
                gr.sum(a, kernel="xyzzy", device=device)
            with raises(ValueError, "power of two", "48"):
                gr.sum(a, kernel="sequential", block_size=48, device=device)
            with raises(ValueError, "multiple of 32", "100"):
                gr.sum(a, kernel="shfl_atomic", block_size=100, device=device)
            with raises(ValueError, "one warp", "64"):
                gr.sum(a, kernel="warp_registers", block_size=64, device=device)
            with raises(ValueError, "takes no grid_size", "the length decides"):
                gr.sum(a, kernel="sequential", grid_size=10, device=device)
            with raises(ValueError, "takes no grid_size", "one block"):
                gr.sum(a, kernel="single_block", grid_size=10, device=device)
        with raises(ValueError, "cuda:7", "1 CUDA device"):
            gr.sum(a, device="cuda:7")
        with raises(ValueError, "cuda:7", "1 CUDA device"):
            gr.sum(np.ones(100_000), device="cuda:7")
        for name in ("cuda:x", "gpu", "", "cuda:-1", "cuda:99999999999999"):
            with raises(ValueError):
                gr.sum(a, device=name)
        for name in ("é" * 63, "x" + "é" * 63, "日本" * 50, "x" * 100_000, "a\\nb"):
            with raises(ValueError, "unknown kernel"):
                gr.sum(a, kernel=name)
        works()
        """,
        tmp_path,
    )


def test_every_device_of_several_is_reached(tmp_path: Path) -> None:
    fakes.run(
        """
        assert [d.ordinal for d in gr.devices()] == [0, 1, 2]
        for i in (2, 0, 1):
            assert gr.sum(np.ones(100_000), device=f"cuda:{i}") == 100_000
            assert gr.last_run().device == f"cuda:{i}"
        with raises(ValueError, "cuda:3", "3 CUDA devices"):
            gr.sum(np.ones(10), device="cuda:3")
        """,
        tmp_path,
        cuda="devices=3",
    )


# ---------------------------------------------------------------- failures


def test_driver_failures_carry_call_name_and_number(tmp_path: Path) -> None:
    fakes.run(
        """
        works()
        for call, code, name in [("cuLaunchKernel", 1, "CUDA_ERROR_INVALID_VALUE"),
                                 ("cuMemcpyHtoDAsync", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
                                 ("cuEventSynchronize", 999, "CUDA_ERROR_UNKNOWN"),
                                 ("cuCtxPushCurrent", 201, "CUDA_ERROR_INVALID_CONTEXT"),
                                 ("cuEventRecord", 12345, "unknown CUDA error")]:
            cuda.fake_fail(call.encode(), 1, code)
            with raises(gr.CudaError, call, name, str(code)) as caught:
                gr.sum(np.ones(200_000, np.float32), device="cuda")
            error = caught[0]
            assert (error.call, error.name, error.number, error.log) == (call, name, code, None)
            assert isinstance(error, RuntimeError)
            works()
        """,
        tmp_path,
    )


def test_memory_that_runs_out_is_a_memory_error(tmp_path: Path) -> None:
    fakes.run(
        """
        works()
        gr.set_limits(device_bytes=64 << 20, pinned_bytes=64 << 20)
        cuda.fake_set_memory(1 << 17, 1 << 30)
        with raises(MemoryError, "cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY"):
            gr.sum(np.ones(1_000_000), device="cuda")
        with raises(MemoryError, "cuMemHostAlloc"):
            cuda.fake_set_memory(1 << 30, 1 << 17)
            gr.sum(np.ones(1_000_000), device="cuda")
        with raises(MemoryError):
            gr.empty_pinned(1 << 20)
        with raises(MemoryError):
            gr.empty_pinned(1 << 60)
        cuda.fake_set_memory(1 << 30, 1 << 30)
        works()
        cuda.fake_set_memory(cuda.fake_bytes(0) + (1 << 20), cuda.fake_bytes(1) + (1 << 20))
        assert gr.sum(np.ones(4_000_000), device="cuda") == 4_000_000  # in smaller chunks
        """,
        tmp_path,
    )


def test_a_program_that_does_not_compile_shows_the_compilers_log(tmp_path: Path) -> None:
    fakes.run(
        """
        with raises(gr.CudaError, "sequential", "sm_90") as caught:
            gr.sum(np.ones(1000), kernel="sequential", device="cuda")
        error = caught[0]
        assert error.call == "nvrtcCompileProgram" and error.number == 6
        assert error.name == "NVRTC_ERROR_COMPILATION"
        assert "error: refused: gpr::sequential<First, 256u>" in error.log
        works()
        with raises(gr.CudaError):
            gr.sum(np.ones(1000), kernel="sequential", device="cuda")
        nvrtc.fake_nvrtc_refuse(b"")
        assert gr.sum(np.ones(1000), kernel="sequential", device="cuda") == 1000
        """,
        tmp_path,
        nvrtc="refuse=sequential",
    )


def test_gpus_and_compilers_that_do_not_fit_are_explained(tmp_path: Path) -> None:
    fakes.run(
        """
        with raises(gr.DeviceUnavailableError, "capability 8.0", "has 7.5", "gpureduce[cu12]"):
            gr.sum(np.ones(1000), device="cuda")
        """,
        tmp_path,
        cuda="cc=75",
        nvrtc="archs=80:90",
    )
    # A GPU newer than NVRTC knows gets PTX, which the driver finishes.
    fakes.run("works()", tmp_path / "ptx", cuda="cc=121", nvrtc="archs=80:90:120")
    for code in (209, 222):
        fakes.run(
            """
            with raises(gr.DeviceUnavailableError, "capability 9.0", "Update the driver"):
                gr.sum(np.ones(1000), device="cuda")
            works()
            """,
            tmp_path / str(code),
            cuda=f"fail=cuModuleLoadData:1:{code}",
        )


@pytest.mark.parametrize(
    ("kernel", "needs", "has"),
    [("async_copy", (8, 0), "7.5"), ("bulk_copy", (9, 0), "8.0"), ("cluster", (9, 0), "8.9")],
)
def test_a_kernel_that_needs_a_newer_gpu_says_so(
    kernel: str, needs: tuple[int, int], has: str, tmp_path: Path
) -> None:
    words = f"needs compute capability {needs[0]}.{needs[1]}"
    fakes.run(
        f"""
        (info,) = (info for info in gr.kernels() if info.name == "{kernel}")
        assert not info.available and info.min_compute_capability == {needs}, info
        assert "{words}" in info.reason and "{has}" in info.reason, info.reason
        with raises(gr.KernelUnavailableError, "{kernel}", "{words}", "{has}"):
            gr.sum(np.ones(1000), kernel="{kernel}", device="cuda")
        works()
        """,
        tmp_path,
        cuda=f"cc={has.replace('.', '')}",
    )


# ---------------------------------------------------------------- interrupts

LONG = """
    cuda.fake_set_delays(1, 300_000)
    gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
    def windows(a, shape):  # that overlap: many elements of few
        return np.lib.stride_tricks.as_strided(a, shape, a.strides * len(shape))
    # A job that a shell put in the background was started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with raises(KeyboardInterrupt):
        gr.sum({array}, device="{device}")
    # Under a sanitizer, giving back gigabytes of results takes longer than all the rest.
    most = max(20, 3 * float(os.environ.get("GPR_TEST_PATIENCE", "1")))  # all of it takes a minute
    assert time.monotonic() - start < most, time.monotonic() - start
    cuda.fake_set_delays(1, 0)
    works("{device}")
"""


@pytest.mark.parametrize(
    ("device", "array"),
    [
        # Single calls of a minute and more: a million million elements; a GPU that dawdles.
        ("cpu", "windows(np.ones(4096, np.uint8), (1000, 1000, 1000, 1000))"),
        ("cpu", "np.broadcast_to(np.ones(1000, np.uint8), (10**9, 1000)), axis=1"),
        ("cpu", "windows(np.ones(8192, np.float32)[::2], (1000, 1000, 1000, 500)), axis=(0, 1, 2)"),
        ("cuda", "np.ones(40_000_000, np.uint8)"),
        ("cuda", "np.ones((10_000, 4_000), np.uint8), axis=0"),
    ],
)
def test_ctrl_c_ends_a_long_reduction_soon(device: str, array: str, tmp_path: Path) -> None:
    fakes.run(LONG.format(device=device, array=array), tmp_path)


def test_a_signal_handler_that_returns_lets_the_reduction_finish(tmp_path: Path) -> None:
    fakes.run(
        """
        handled = []
        signal.signal(signal.SIGALRM, lambda *_: handled.append(gr.sum(np.ones(10), device="cpu")))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
        cuda.fake_set_delays(1, 10_000)
        for _ in range(5):
            assert gr.sum(np.ones(4_000_000, np.uint8), device="cuda") == 4_000_000
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert handled and set(handled) == {10}
        """,
        tmp_path,
    )


def test_an_exception_from_a_signal_handler_is_the_one_raised(tmp_path: Path) -> None:
    fakes.run(
        """
        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop("enough")

        signal.signal(signal.SIGALRM, stop)
        gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
        cuda.fake_set_delays(1, 100_000)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with raises(Stop, "enough"):
            gr.sum(np.ones(40_000_000, np.uint8), device="cuda")
        cuda.fake_set_delays(1, 0)
        works()
        """,
        tmp_path,
    )


def test_a_handler_that_reduces_on_the_busy_device_is_told_so(tmp_path: Path) -> None:
    fakes.run(
        """
        def nested(*_):
            gr.sum(np.ones(10), device="cuda")

        signal.signal(signal.SIGALRM, nested)
        gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
        values = np.ones(40_000_000, np.uint8)  # before the timer: it takes long on a busy machine
        works()
        cuda.fake_set_delays(1, 100_000)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with raises(gr.DeviceUnavailableError, "already"):
            gr.sum(values, device="cuda")
        cuda.fake_set_delays(1, 0)
        works()
        """,
        tmp_path,
    )


# ---------------------------------------------------------------- threads and processes


def test_many_threads_get_their_own_results_and_errors(tmp_path: Path) -> None:
    fakes.run(
        """
        cuda.fake_set_delays(3, 200)
        wrong = []

        def work(i):
            rng = np.random.default_rng(i)
            for k in range(12):
                a = rng.integers(-1000, 1000, rng.integers(1, 60_000))
                device = ("cuda", "cpu")[k % 2]
                if gr.sum(a, device=device) != a.sum() or gr.last_run().elements != a.size:
                    wrong.append((i, k))
                name = f"kernel_{i}_{k}"
                try:
                    gr.sum(a, kernel=name)
                except ValueError as error:
                    if name not in str(error):
                        wrong.append(str(error))
                pinned = gr.pinned_copy(a)
                if gr.max(pinned, device="cuda") != a.max():
                    wrong.append((i, k))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert wrong == []
        """,
        tmp_path,
    )


def test_pinned_arrays_are_freed_while_other_threads_reduce(tmp_path: Path) -> None:
    fakes.run(
        """
        gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
        works()
        cuda.fake_set_delays(1, 2000)
        stop = threading.Event()

        def make_garbage():
            while not stop.is_set():
                gr.pinned_copy(np.ones(1000))

        threads = [threading.Thread(target=make_garbage) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(5):
            assert gr.sum(np.ones(2_000_000, np.uint8), device="cuda") == 2_000_000
        stop.set()
        for t in threads:
            t.join()
        cuda.fake_set_delays(1, 0)
        works()
        assert cuda.fake_live(b"pinned") == 2  # the small page and the ring
        """,
        tmp_path,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_a_forked_child_is_told_so_and_its_cpu_works(tmp_path: Path) -> None:
    fakes.run(
        """
        works()
        pinned = gr.pinned_copy(np.arange(5))
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(30)
                with raises(gr.DeviceUnavailableError, "forked", "spawn", 'device="cpu"'):
                    gr.sum(np.ones(10), device="cuda")
                assert gr.sum(np.ones(1_000_000), device="cpu") == 1_000_000
                assert gr.sum(np.ones(1_000_000)) == 1_000_000
                assert gr.last_run().device == "cpu"
                assert gr.sum(pinned) == 10
                del pinned
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        works()
        """,
        tmp_path,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_forking_while_threads_work_leaves_children_usable(tmp_path: Path) -> None:
    fakes.run(
        """
        warnings.simplefilter("ignore")
        stop = threading.Event()

        def work():
            while not stop.is_set():
                gr.sum(np.ones(500_000), device="cuda")
                gr.sum(np.ones(500_000), device="cpu")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(30):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that hangs dies
                sums = [gr.sum(np.ones(500_000), device=device) for device in ("cpu", None)]
                os._exit(sums != [500_000, 500_000])
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for t in threads:
            t.join()
        works()
        """,
        tmp_path,
    )


# ---------------------------------------------------------------- slips


def test_numbers_without_brackets_are_an_axis_error_with_a_note() -> None:
    for call in (lambda: gr.sum(1, 2, 3), lambda: gr.max(1, 2), lambda: np.sum(1, 2)):
        with pytest.raises(np.exceptions.AxisError) as caught:
            call()
        assert str(caught.value) == "axis 2 is out of bounds for array of dimension 0"
        notes = getattr(caught.value, "__notes__", [])
        assert (call.__code__.co_names[0] == "np") or "as in sum([1, 2, 3])" in notes[0]
    with pytest.raises(np.exceptions.AxisError) as caught:
        gr.sum([1, 2], 1)
    assert not hasattr(caught.value, "__notes__")


def test_a_misspelt_function_is_named() -> None:
    for wrong, right in (("summ", "'sum'"), ("describ", "'describe'"), ("kernel", "'kernels'")):
        with pytest.raises(AttributeError, match=f"no attribute '{wrong}'; did you mean .*{right}"):
            getattr(gr, wrong)
    for unlike in ("quaternion", "__wrapped__", "_su"):
        with pytest.raises(AttributeError) as caught:
            getattr(gr, unlike)
        assert "did you mean" not in str(caught.value)


def test_a_block_size_is_refused_for_its_own_reason() -> None:
    for kernel, size, said in (
        ("auto", 100, "block_size must be a multiple of 32 from 32 to 1024, not 100"),
        ("fast", 4096, "block_size must be a multiple of 32 from 32 to 1024, not 4096"),
        ("exact", 16, "block_size must be a multiple of 32 from 32 to 1024, not 16"),
        ("reduce0", 4096, "a power of two from 32 to 1024, not 4096"),
        ("reduce0", 16, "a power of two from 32 to 1024, not 16"),
        ("reduce0", 96, "not 96: its tree halves the block at every step"),
        ("shfl_atomic", 100, "'shfl_atomic' takes a block size that is a multiple of 32"),
    ):
        for a in ([1.5], [1]) if kernel != "exact" else ([1.5],):
            with pytest.raises(ValueError, match=re.escape(said)) as caught:
                gr.sum(a, kernel=kernel, block_size=size, device="cpu")
            assert str(caught.value).endswith(said) or kernel == "shfl_atomic"


def test_arguments_in_each_others_place_are_told_apart() -> None:
    a = np.ones(100)
    for call, said in (
        (lambda: gr.benchmark(a), "the kernel or function to measure is missing"),
        (lambda: gr.benchmark("auto"), "the array to measure is missing"),
        (lambda: gr.benchmark(gr.sum), "the array to measure is missing"),
        (lambda: gr.explain("sequential", "fast"), "several kernels are written as a list"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
    for call in (lambda: gr.compare(a, ["auto", "numpy"]), lambda: gr.benchmark("torch", a)):
        with pytest.raises(ValueError, match="is a library, not a kernel"):
            call()


# ---------------------------------------------------------------- no numbers

NO_NUMBERS: tuple[tuple[Callable[[], Any], str, str, float | None], ...] = (
    (lambda: None, "a is None, not an array", "", None),
    (lambda: ["1", "2.5"], "a holds strings (dtype <U3)", "numpy.array(a, dtype=float)", 3.5),
    (lambda: ["1", "x"], "such as 'x'", "", None),
    (lambda: [1, None, 2], "a holds None", "numpy.array(a, dtype=float)", 3.0),
    (lambda: [2**70, 1], "a holds Python numbers", "numpy.array(a, dtype=float)", 2.0**70),
    (lambda: [object()], "a holds objects of type object", "", None),
    (lambda: (i for i in range(4)), "a is a generator", "numpy.fromiter(a, dtype=float)", 6.0),
    (lambda: map(int, "123"), "a is a map", "numpy.fromiter(a, dtype=float)", 6.0),
    (lambda: {1, 2}, "a is a set", "list(a)", 3.0),
    (lambda: {"x": 1, "y": 2}, "a is a mapping", "list(a.values())", 3.0),
    (lambda: {"x": 1}.values(), "a is a dict_values", "list(a)", 1.0),
    (lambda: io.StringIO("1 2\n3 4\n"), "a is an open file", "numpy.loadtxt(a)", 10.0),
    (lambda: "1 2 3.5", "a is the string", "numpy.array(a.split(), dtype=float)", 6.5),
    (lambda: "n.txt", "a is the string 'n.txt'", "numpy.loadtxt('n.txt')", 10.0),
    (lambda: "n.csv", "the string 'n.csv'", "numpy.loadtxt('n.csv', delimiter=\",\")", 10.0),
    (lambda: "n.npy", "the string 'n.npy'", "numpy.load('n.npy')", 10.0),
    (lambda: bytes(3), "a is bytes", "numpy.frombuffer(a, dtype)", None),
    (lambda: np.sum, "a is a function", "", None),
)


@pytest.mark.parametrize(("make", "what", "advice", "total"), NO_NUMBERS)
def test_what_is_no_array_of_numbers_is_named_with_advice_that_works(
    make: Callable[[], Any],
    what: str,
    advice: str,
    total: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n.txt").write_text("1 2\n3 4\n")
    Path("n.csv").write_text("1,2\n3,4\n")
    np.save("n.npy", np.array([[1, 2], [3, 4]]))
    functions = (gr.sum, gr.max, gr.nanmean, gr.argmin, gr.count_nonzero, gr.norm, gr.average)
    functions += (gr.logsumexp, gr.describe, lambda a: gr.dot(a, a), gr.ExactSum().update)
    for function in functions:
        with pytest.raises(TypeError, match=re.escape(what)) as caught:
            function(make())
        assert advice in str(caught.value)
    if total is not None:
        a = make()
        array = eval(advice, {"numpy": np, "a": a})  # what the error says to write
        assert gr.nansum(array) == total
