"""Operators of users' own on a GPU: the kernels that keep order, chunks, device arrays.

Calls run on the emulator, in a child process, by all of its schedules; on a machine with a GPU
there too. Programs are compiled by NVRTC where there is one.
"""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import emu
import numpy as np
import pytest
from draws import SEED, one, some
from operator_cases import CASES, DTYPES
from test_own_kernel_calls import emulated

import gpureduce as gr
from gpureduce import _core
from gpureduce._yours.operator_device_program import OPTIONS
from gpureduce._yours.operator_gpu import Chunk, chunks, gpu_text
from gpureduce._yours.operator_text import OperatorTypes

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
BEGIN = f"""
import os
sys.path[:0] = {[str(Path(__file__).parents[1])]!r}
from operator_cases import CASES, check, reference
rng = np.random.default_rng({SEED})
ADD = gr.Operator("add", "struct add {{ static T identity() {{ return 0; }}"
                  " static T combine(T a, T b) {{ return a + b; }} }};", commutative=True)
"""
END = "\nprint(json.dumps('done'))\n"


# ---------------------------------------------------------------- order --------------------------


@needs_compiler
@pytest.mark.long
def test_any_layout_is_folded_in_order_by_any_schedule() -> None:
    task = {"do": "operators.check_random", "count": 3, "seed": SEED, "limit": 300.0}
    wrong = emu.failures([{**task, "op": op} for op in some(CASES, 1 / 2, "any schedule")])
    assert not wrong, "\n".join(wrong)


@needs_compiler
def test_tiles_of_rows_that_begin_anywhere() -> None:
    task = {"do": "operators.check_tiles", "seed": SEED, "limit": 300.0}
    ops = some(("hash", "run", "gcd"), 2 / 3, "tiles")
    wrong = emu.failures([{**task, "op": op} for op in ops])
    assert not wrong, "\n".join(wrong)


@needs_compiler
def test_chunks_of_a_host_array_are_merged_in_order() -> None:
    task = {"do": "operators.check_chunks", "seed": SEED, "limit": 300.0}
    ops = some(("affine", "run", "largest"), 2 / 3, "chunks")
    wrong = emu.failures([{**task, "op": op} for op in ops])
    assert not wrong, "\n".join(wrong)


def by_rows(a: np.ndarray, kept: list[int], reduced: tuple[int, ...]) -> np.ndarray:
    rows = math.prod(a.shape[i] for i in kept)
    return a.transpose([*kept, *reduced]).reshape(rows, math.prod(a.shape[i] for i in reduced))


@needs_compiler
def test_structures_are_reduced_as_on_the_cpu(tmp_path: Path) -> None:
    code = """
from operator_cases import check_structures
check_structures(rng, "cuda")
"""
    assert emulated(BEGIN + code + END, tmp_path) == "done"


def test_chunks_cover_an_array_once_and_in_order() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(200):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 5)))
        reduced = tuple(i for i in range(len(shape)) if rng.random() < 0.5)
        most = int(rng.integers(1, 40))
        kept = [i for i in range(len(shape)) if i not in reduced]
        seen: dict[int, list[int]] = {}
        every = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
        order = by_rows(every, kept, reduced)
        made = [each for each in chunks(shape, reduced, most) if isinstance(each, Chunk)]
        for chunk in made:
            part = every[chunk.where]
            assert part.size <= most
            rows = by_rows(part, kept, reduced)
            for i, row in enumerate(rows):
                before = seen.setdefault(chunk.row + i, [])
                assert chunk.begins == (not before)
                assert chunk.first == len(before)
                before += row.tolist()
        assert [seen[i] for i in range(len(order))] == order.tolist()
    for empty in ((5, 3, 0), (0, 3, 2), (0,)):
        assert len(list(chunks(empty, (0,), 7))) == 1


# ---------------------------------------------------------------- arguments ----------------------


@needs_compiler
def test_arguments_of_numpy_and_device_arrays(tmp_path: Path) -> None:
    code = """
from gpureduce import _core
from device_buffers import device, host
a = rng.integers(-9, 9, (4, 5, 6))
for axis in (None, 0, (0, 2), -1, ()):
    for keepdims in (False, True):
        want = np.sum(a, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(
            gr.reduce(a, ADD, axis, keepdims=keepdims, device="cuda"), want)
        got = gr.reduce(device(a), ADD, axis, keepdims=keepdims)
        assert type(got) is _core.DeviceBuffer
        np.testing.assert_array_equal(host(got), want)
mask = a > 0
got = gr.reduce(device(a), ADD, 1, where=device(mask), initial=7)
np.testing.assert_array_equal(host(got), np.sum(a, 1, where=mask, initial=7))
got = gr.reduce(device(a), ADD, 1, dtype="float64")
assert got.dtype == "float64"
out = np.zeros((4, 6), "int64")
assert gr.reduce(device(a), ADD, 1, out=out) is out
np.testing.assert_array_equal(out, a.sum(1))
room = device(np.zeros((4, 6), "int64"))
assert gr.reduce(device(a), ADD, 1, out=room) is room
np.testing.assert_array_equal(host(room), a.sum(1))
assert host(gr.reduce(device(np.zeros((3, 0), "f4")), ADD, 1)).tolist() == [0, 0, 0]
assert gr.reduce(np.zeros((0, 3)), ADD, 1, device="cuda").shape == (0,)
for axis in (None, 0):
    assert not np.any(gr.reduce(np.zeros((0, 3)), ADD, axis, device="cuda"))
assert gr.reduce([], ADD, device="cuda") == 0
half = np.arange(100, dtype="float16")
assert gr.reduce(half, ADD, device="cuda") == np.float16(4950)
print(json.dumps([
    refused(lambda: gr.reduce(device(a), ADD, device="cpu")),
    refused(lambda: gr.reduce(a, ADD, device="cuda", block_size=48)),
    refused(lambda: gr.reduce(a, ADD, device="cuda", kernel="exact")),
    refused(lambda: gr.reduce(a, ADD, device="cuda:9")),
    refused(lambda: gr.reduce(a, ADD, device="gpu")),
    refused(lambda: gr.reduce(a, ADD, device="auto:1")),
    refused(lambda: gr.reduce(a, ADD, device=1)),
    refused(lambda: gr.reduce(device(a), gr.Operator("bad",
        "struct bad {\\n static T combine(T a, T b)\\n { return a + c; } };"))),
    refused(lambda: gr.reduce(device(a[:0]), gr.Operator("no",
        "struct no { static T combine(T a, T b) { return a; } };"))),
]))
"""
    found = emulated(BEGIN + code, tmp_path)
    assert isinstance(found, list)
    for text, part in zip(
        found,
        [
            "ValueError: the array is in the memory of device",
            "ValueError: operator 'add' takes blocks of 32, 64, 128 or 256 threads, not 48",
            "KernelUnavailableError: kernel 'exact' sums numbers: it takes no operators of you",
            "ValueError: there is no device cuda:9",
            "ValueError: unknown device 'gpu'",
            'ValueError: unknown device \'auto:1\': None, "cpu", "cuda", "cuda:N" or',
            "TypeError: device must be a string, not int",
            "CompileError: operator 'bad' does not compile: bad.cu, line 3",
            "ValueError: zero-size array to reduction operation no which has no identity",
        ],
        strict=True,
    ):
        assert text.startswith(part), text


@needs_compiler
def test_a_call_is_captured_into_a_graph(tmp_path: Path) -> None:
    """With partials of its own: each replay reads the array anew."""
    code = """
from gpureduce import _core
stream = _core.device_stream(0)
class Shown:
    def __init__(self, values):
        self.held = _core.DeviceBuffer(values.shape, values.dtype.name, 0, stream)
        self.store(values)
    def store(self, values):
        _core.upload(0, self.held.memory.pointer, values)
    @property
    def __cuda_array_interface__(self):
        memory = self.held.memory
        return {"shape": memory.shape, "typestr": np.dtype(memory.dtype).str, "version": 3,
                "data": (memory.pointer, False), "strides": memory.strides, "stream": stream}
case = CASES["affine"]
operator = case.operator()
a = rng.integers(-3, 4, 20_000)
given, out = Shown(a), Shown(np.zeros((), "int64"))
def call():
    gr.reduce(given, operator, out=out, grid_size=3)
def result():
    host = np.empty((), "int64")
    _core.download(0, out.held.memory.pointer, host, stream)
    return host
call()
check(result(), reference(case, a), "before the capture")
import ctypes
settings = ctypes.CDLL(os.environ["GPUREDUCE_LIBCUDA"])
handle = ctypes.c_void_p(stream)
settings.fake_end_capture.restype = ctypes.c_void_p
settings.fake_begin_capture(handle)
call()
graph = ctypes.c_void_p(settings.fake_end_capture(handle))
for turn in range(2):
    given.store(b := np.roll(a, turn + 1))
    assert settings.fake_launch_graph(graph, handle) == 0
    check(result(), reference(case, b), f"replay {turn}")
settings.fake_destroy_graph(graph)
"""
    assert emulated(BEGIN + code + END, tmp_path) == "done"


@needs_compiler
def test_programs_are_loaded_once_and_cached_on_disk(tmp_path: Path) -> None:
    code = """
before = gr.cache_info()
for _ in range(3):
    gr.reduce(np.arange(10), gr.Operator("add", ADD.source, commutative=True), device="cuda")
after = gr.cache_info()
print(json.dumps([after.writes - before.writes, after.hits - before.hits]))
"""
    os.environ["GPUREDUCE_CACHE_DIR"], before = (
        str(tmp_path / "c"),
        os.environ["GPUREDUCE_CACHE_DIR"],
    )
    try:
        assert emulated(BEGIN + code, tmp_path) == [1, 0]
        assert emulated(BEGIN + code, tmp_path) == [0, 1]
    finally:
        os.environ["GPUREDUCE_CACHE_DIR"] = before


@needs_compiler
def test_functions_of_the_mathematical_library(tmp_path: Path) -> None:
    """Operators call them as CUDA's, of double and of float; the emulator has those of C."""
    kinds = one((("double", ""), ("float", ""), ("float", "f")), "mathematical library")
    code = (
        f"KINDS = {kinds}"
        + """
CALLS = "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh cbrt floor ceil trunc rint round"
for kind, suffix in KINDS:
    calls = " + ".join(f"{name}{suffix}(x)" for name in CALLS.split())
    power = f"pow{suffix}(x, x)" if kind == "double" or suffix else "x"
    operator = gr.Operator("add", "struct add { static T identity() { return 0; }"
        " static T combine(T a, T b) { return a + b; } using State = T;"
        f" static T lift(T x) {{ return {calls} + {power} + T(ldexp(double(x), 3)); }} }};",
        commutative=True)
    x = rng.random(50).astype(kind if kind == "double" else "float32") + 1
    got = gr.reduce(x, operator, device="cuda")
    np.testing.assert_allclose(got, gr.reduce(x, operator, device="cpu"), rtol=1e-5)
"""
    )
    assert emulated(BEGIN + code + END, tmp_path) == "done"


# ---------------------------------------------------------------- NVRTC --------------------------


@pytest.mark.parametrize("name", some(CASES, 0.4, "programs for a GPU"))
def test_programs_compile_for_a_gpu(name: str) -> None:
    rng = np.random.default_rng([SEED, len(name)])
    dtype = np.dtype(str(rng.choice(DTYPES[:2] if name == "gcd" else DTYPES)))
    types = OperatorTypes(dtype, dtype, bool(rng.integers(2)))
    text, entries = gpu_text(CASES[name].operator()._text, types, 256, emulated=False)
    try:
        image, symbols = _core.compile_text("operator", text, entries, OPTIONS, 90)
    except gr.DeviceUnavailableError as error:
        pytest.skip(str(error))
    assert len(image) > 1000
    assert len(symbols) == len(entries)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_large_arrays_on_a_gpu_are_folded_as_on_the_cpu(name: str) -> None:
    rng = np.random.default_rng([SEED, len(name)])
    operator = CASES[name].operator()
    for shape, axis in (((10_000_019,), None), ((3001, 3001), 0), ((3001, 3001), 1),
                        ((200_001, 33), 1), ((5, 700, 3000), (0, 2))):  # fmt: skip
        a = (6 * rng.integers(0, 3, shape)).astype("int32")
        got = gr.reduce(a, operator, axis, device="cuda")
        np.testing.assert_array_equal(got, gr.reduce(a, operator, axis, device="cpu"))
