"""Reductions, and explanations, by a kernel of the user's own.

Where there is no GPU, calls run in a child process whose driver and NVRTC are the emulator.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from draws import SEED

import gpureduce as gr
from gpureduce import _emulator_process
from gpureduce._cli import command

GALLERY = Path(__file__).parent / "gallery"
RIGHT = sorted(
    path
    for path in GALLERY.glob("*.cu")
    if "// verdict: right" in path.read_text() and path.stem != "slides_without_n"
)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
SUM = """
__global__ void mine(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}
"""


def elements(kernel: gr.Kernel, rng: np.random.Generator, n: int) -> np.ndarray:
    dtype = (kernel.dtypes or ("float32", ""))[0]
    values = np.array([1, 2]) if kernel.op != "prod" else np.array([-1, 1])
    return rng.choice(values, n).astype(dtype)


def emulated(code: str, tmp_path: Path) -> object:
    """What a child process prints as JSON, with ``gr``, ``np``, ``SUM`` and ``refused(call)``."""
    before = (
        "import json, sys, numpy as np, gpureduce as gr\n"
        f"SUM = {SUM!r}\n"
        "def refused(call):\n"
        "    try: call()\n"
        "    except Exception as error: return f'{type(error).__name__}: {error}'\n"
        "    return ''\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", before + code],
        env=_emulator_process.emulator_environment(tmp_path, ""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- reductions ---------------------


@needs_compiler
@pytest.mark.long
def test_right_kernels_of_the_gallery_reduce_as_numpy(tmp_path: Path) -> None:
    """Through the whole call: several passes over partials, atomics, one block."""
    code = f"""
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
import os
os.environ['GPR_TEST_SEED'] = '{SEED}'
from test_own_kernel_calls import RIGHT, elements
rng = np.random.default_rng({SEED})
found = []
for path in RIGHT:
    kernel = gr.Kernel(path, trial=0)
    a = elements(kernel, rng, int(rng.integers(1, 5000)))
    got, want = getattr(gr, kernel.op)(a, kernel=kernel), getattr(np, kernel.op)(a)
    found.append([path.stem, len(a), float(got), float(want), str(got.dtype)])
print(json.dumps(found))
"""
    found = emulated(code, tmp_path)
    assert isinstance(found, list)
    assert len(found) == len(RIGHT)
    for name, n, got, want, dtype in found:
        assert got == want, f"seed {SEED}: {name} of {n} elements"
        kernel = gr.Kernel(GALLERY / f"{name}.cu")
        assert dtype == (kernel.dtypes or ("", "float32"))[1]


@needs_compiler
def test_arguments_of_numpy_that_a_whole_array_has(tmp_path: Path) -> None:
    code = """
mine = gr.Kernel(SUM)
a = np.arange(12, dtype='i4').reshape(3, 4)
out = np.zeros((), 'i8')
print(json.dumps([
    int(gr.sum(a, kernel=mine)),
    int(gr.sum(a.T[::2], kernel=mine, block_size=32)),
    int(gr.sum(a, kernel=mine, initial=100)),
    gr.sum(a, kernel=mine, keepdims=True).tolist(),
    int(gr.sum(a, axis=(0, 1), kernel=mine, dtype='int32')),
    int(gr.sum(a, kernel=mine, out=out)) + int(out),
    int(gr.sum(np.zeros(0, 'i4'), kernel=mine)),
    len(mine.programs),
]))
"""
    assert emulated(code, tmp_path) == [66, 30, 166, [[66]], 66, 132, 0, 1]


@needs_compiler
def test_what_a_kernel_does_not_take_is_refused(tmp_path: Path) -> None:
    code = """
mine = gr.Kernel(SUM)
one = gr.Kernel(SUM.replace('blockIdx.x * blockDim.x + ', ''))
slide = gr.Kernel(SUM.replace(', int n', '').replace('if (i < n) ', ''))
fixed = gr.Kernel(SUM, block_size=64)
a = np.arange(600, dtype='i4')
long = np.lib.stride_tricks.as_strided(np.zeros(1, 'i4'), (2**31,), (0,))
print(json.dumps([refused(call) for call in (
    lambda: gr.max(a, kernel=mine),
    lambda: gr.mean(a, kernel=mine),
    lambda: gr.sum(a.astype('f4'), kernel=mine),
    lambda: gr.sum(a.reshape(2, -1), axis=0, kernel=mine),
    lambda: gr.sum(a, kernel=mine, where=a > 3),
    lambda: gr.sum(a, kernel=mine, dtype='f8'),
    lambda: gr.sum(a, kernel=mine, stream=1),
    lambda: gr.sum(a, kernel=mine, device='cpu'),
    lambda: gr.sum(a, kernel=mine, device='tpu'),
    lambda: gr.sum(a, kernel=mine, device='cuda:7'),
    lambda: gr.sum(a, kernel=mine, grid_size=3),
    lambda: gr.sum(a, kernel=fixed, block_size=128),
    lambda: gr.sum(a, kernel=one),
    lambda: gr.sum(a, kernel=slide),
    lambda: gr.sum(long, kernel=mine),
    lambda: gr.sum(a, axis=3, kernel=mine),
    lambda: gr.sum(a, kernel=gr.Kernel(SUM.replace('int i =', 'int j ='))),
)]))
"""
    parts = [
        "ValueError: kernel 'mine' computes sum, not max",
        "ValueError: kernel 'mine' computes sum, not mean",
        "TypeError: kernel 'mine' takes int32, and the array is float32",
        "ValueError: kernel 'mine' reduces whole arrays",
        "ValueError: kernel 'mine' takes no where",
        "TypeError: kernel 'mine' computes int32: dtype must be that",
        "ValueError: kernel 'mine' takes a stream with arrays of devices alone",
        "KernelUnavailableError: kernel 'mine' runs on GPUs only",
        "ValueError: unknown device 'tpu'",
        "ValueError: there is no device cuda:7",
        "ValueError: kernel 'mine' does not loop over blocks",
        "ValueError: kernel 'mine' takes blocks of 64 threads, not 128: leave out the block",
        "ValueError: kernel 'mine' is one block without a loop",
        "ValueError: kernel 'mine' has no n: it takes whole blocks of 256 elements",
        "ValueError: kernel 'mine' takes up to 2,147,483,647 elements, since i is an int (line 4)",
        "AxisError: axis 3 is out of bounds",
        "CudaError: ",
    ]
    found = emulated(code, tmp_path)
    assert isinstance(found, list)
    for got, part in zip(found, parts, strict=True):
        assert part in got


@needs_compiler
def test_a_call_is_the_last_run(tmp_path: Path) -> None:
    code = """
mine = gr.Kernel(SUM)
a = np.arange(5000, dtype='i4')
runs = []
for kernel in (mine, mine, 'shfl_atomic'):
    gr.sum(a, kernel=kernel, block_size=128)
    run = gr.last_run()
    runs.append([run.device, run.kernel, run.block_size, run.grid_size, run.launches, run.elements,
                 run.bytes, run.compiled, sorted(run.stages), run.seconds > 0])
print(json.dumps(runs))
"""
    first, second, other = emulated(code, tmp_path)  # type: ignore[misc]
    stages = ["download", "kernel", "stage", "upload"]
    assert first == ["cuda:0", "mine", 128, 40, 2, 5000, 20000, 1, ["compile", *stages], True]
    assert second == [*first[:7], 0, stages, True]
    assert other[1] == "shfl_atomic"


IN_DEVICE_MEMORY = f"""
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from fakes.array_libraries import Producer, Shown, make_stream, value
LONG = SUM.replace('int *out', 'long long *out').replace(
    'if (i < n) atomicAdd(out, in[i])', 'if (threadIdx.x == 0) out[blockIdx.x] = 0; '
    '__syncthreads(); if (i < n) atomicAdd((unsigned long long *)out + blockIdx.x, '
    '(unsigned long long)in[i])')
"""


@needs_compiler
def test_arrays_of_devices_are_reduced_where_they_are(tmp_path: Path) -> None:
    """Results are the library's own; partials that the kernel cannot take are folded there."""
    code = (
        IN_DEVICE_MEMORY
        + """
tree = gr.Kernel(open(GALLERY + '/tree_with_host_code.cu').read())
found = []
for kernel, dtype in ((gr.Kernel(SUM), 'i4'), (gr.Kernel(LONG), 'i4'), (tree, 'f4')):
    a = np.arange(3000).astype(dtype).reshape(30, 100) % 7
    p = Producer(a)
    result = gr.sum(p, kernel=kernel)
    more = [value(gr.sum(p, kernel=kernel, **given)) for given in (
        {'initial': 5}, {'keepdims': True}, {'stream': make_stream()}, {'axis': (0, 1)},
        {'device': 'cuda:0'}, {'block_size': 64 if kernel is not tree else None})]
    out = np.zeros((), 'f8')
    gr.sum(p, kernel=kernel, out=out)
    here = Shown(np.zeros((), value(result).dtype))
    there = gr.sum(Shown(a), kernel=kernel, out=here)
    found.append([type(result).__name__, str(value(result).dtype), int(a.sum()),
                  *(int(np.ravel(each)[0]) for each in (value(result), *more, out, value(here)))])
    flipped = Producer(np.asfortranarray(a))
    assert value(gr.sum(flipped, kernel=kernel)) == a.sum()
empty = Producer(np.zeros((0, 3), 'i4'))
found.append(int(value(gr.sum(empty, kernel=gr.Kernel(SUM)))))
largest = gr.Kernel(SUM.replace('Add', 'Max'), op='max')
some = Producer(np.arange(12, dtype='i4'))
found.append([int(value(gr.max(some, kernel=largest, initial=start))) for start in (-1, 100)])
print(json.dumps(found))
""".replace("GALLERY", repr(str(GALLERY)))
    )
    found = emulated(code, tmp_path)
    assert isinstance(found, list)
    for (kind, dtype, want, *got), expected in zip(
        found[:3], ("int32", "int64", "float32"), strict=True
    ):
        assert (kind, dtype) == ("DeviceBuffer", expected)
        assert got == [want, want + 5, want, want, want, want, want, want, want]
    assert found[3:] == [0, [11, 100]]


@needs_compiler
def test_what_a_kernel_does_not_take_of_a_device_is_refused(tmp_path: Path) -> None:
    code = (
        IN_DEVICE_MEMORY
        + """
mine = gr.Kernel(SUM)
wide = gr.Kernel(SUM.replace('in[i]', 'reinterpret_cast<const int *>(in)[i]'))
most = gr.Kernel(SUM.replace('Add', 'Max'))
a = np.arange(600, dtype='i4').reshape(20, 30)
print(json.dumps([refused(call) for call in (
    lambda: gr.sum(Producer(a.astype('f4')), kernel=mine),
    lambda: gr.sum(Producer(a), axis=0, kernel=mine),
    lambda: gr.sum(Producer(a[:, ::2]), kernel=mine),
    lambda: gr.sum(Producer(a), kernel=mine, dtype='f8'),
    lambda: gr.sum(Producer(a), kernel=mine, device='cpu'),
    lambda: gr.sum(Producer(a), kernel=mine, where=Producer(a > 3)),
    lambda: gr.sum(Producer(a.ravel()[1:]), kernel=wide),
    lambda: gr.max(Producer(a[:0]), kernel=most),
    lambda: gr.sum(Producer(a), kernel=mine, out=np.zeros(3)),
)] + [int(value(gr.sum(Producer(a.ravel()[1:]), kernel=mine))) ]))
"""
    )
    parts = [
        "TypeError: kernel 'mine' takes int32, and the array is float32",
        "ValueError: kernel 'mine' reduces whole arrays",
        "ValueError: kernel 'mine' reads elements that follow each other: copy the array, whose",
        "TypeError: kernel 'mine' computes int32: dtype must be that",
        'ValueError: the array is on device "cuda:0", which device="cpu" is not',
        "ValueError: kernel 'mine' takes no where",
        "ValueError: kernel 'mine' reads several elements at once",
        "ValueError: zero-size array to reduction operation maximum which has no identity",
        "ValueError: output parameter for reduction operation",
    ]
    found = emulated(code, tmp_path)
    assert isinstance(found, list)
    for got, part in zip(found[:-1], parts, strict=True):
        assert part in got
    assert found[-1] == 600 * 599 // 2


@needs_compiler
def test_a_queued_kernel_outlives_its_object(tmp_path: Path) -> None:
    """The image and the partials stay until the stream has passed them."""
    code = (
        IN_DEVICE_MEMORY
        + """
import ctypes, gc, os
from fakes.array_libraries import dawdle, settle
driver = ctypes.CDLL(os.environ['GPUREDUCE_LIBCUDA'])
dawdle(3000, SEED)
a = np.arange(4000, dtype='i4')
p = Producer(a)
value(gr.sum(p, kernel=gr.Kernel(SUM)))
before = driver.fake_live(b'modules')
results = [gr.sum(p, kernel=gr.Kernel(LONG)) for _ in range(3)]
gc.collect()
right = [int(value(each)) for each in results]
settle()
gr.sum(p)
gc.collect()
print(json.dumps([right, driver.fake_live(b'modules') - before]))
""".replace("SEED", str(SEED % 1000))
    )
    right, left = emulated(code, tmp_path)  # type: ignore[misc]
    assert right == [4000 * 3999 // 2] * 3
    assert left <= 1  # the loan of the last call may end with the next


@needs_compiler
@pytest.mark.parametrize(
    "function", ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuEventRecord"]
)
def test_a_failing_driver_is_the_callers_error_and_leaves_nothing(
    function: str, tmp_path: Path
) -> None:
    code = f"""
import ctypes, gc, os
mine = gr.Kernel(SUM)
a = np.arange(600, dtype='i4')
gr.sum(a, kernel='sequential', device='cuda')
driver = ctypes.CDLL(os.environ['GPUREDUCE_LIBCUDA'])
before = [driver.fake_live(what) for what in (b'device', b'modules')]
driver.fake_fail({function.encode()!r}, 1, 719)
error = refused(lambda: gr.sum(a, kernel=mine))
failed = ctypes.CFUNCTYPE(ctypes.c_char_p)(('fake_failed', driver))().decode()
mine.programs.clear()
gc.collect()
after = [driver.fake_live(what) for what in (b'device', b'modules')]
right = int(gr.sum(a, kernel=mine))
print(json.dumps([error, failed, before == after, right]))
"""
    error, failed, is_clean, right = emulated(code, tmp_path)  # type: ignore[misc]
    assert error.startswith(f"CudaError: {function} failed")
    assert (failed, is_clean, right) == (function, True, 179700)


def test_without_a_gpu_a_call_says_what_runs_the_kernel() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    with pytest.raises(gr.KernelUnavailableError, match=r"runs on GPUs only; gpureduce.check and"):
        gr.sum(np.ones(3, np.int32), kernel=gr.Kernel(SUM))


@pytest.mark.gpu
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_right_kernels_reduce_as_numpy_on_a_gpu(path: Path) -> None:
    kernel = gr.Kernel(path)
    rng = np.random.default_rng(SEED)
    for n in (1, 33, int(rng.integers(1000, 100_000))):
        a = elements(kernel, rng, n)
        got, want = getattr(gr, kernel.op)(a, kernel=kernel), getattr(np, kernel.op)(a)
        assert got == want, f"seed {SEED}, {n} elements"


# ---------------------------------------------------------------- explain ------------------------


@needs_compiler
def test_a_kernel_is_explained_by_lines_of_its_file() -> None:
    mine = gr.Kernel(GALLERY / "tree_with_host_code.cu")
    told = gr.explain(mine, block_size=128)
    assert (told.kernel, told.op, told.n, told.block_size) == ("block_sums", "sum", 512, 128)
    assert told.file == "tree_with_host_code.cu"
    assert told.source() == mine.source
    (line,) = [
        i for i, text in enumerate(mine.source.splitlines(), 1) if "cache[t] += cache" in text
    ]
    requests, lanes, conflicts, _ = told.line_counts()[line]
    assert requests > 0
    assert lanes > requests
    assert conflicts == 0
    assert "block_sums: sum of 512 float32" in str(told)
    assert "cache[t] += cache" in told.annotated_source()
    assert "block_sums" in told._repr_html_()


@needs_compiler
def test_a_kernel_of_one_step_is_drawn() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    told = gr.explain(gr.Kernel(SUM), 64, block_size=32)
    assert len(told.main.columns) == 1
    told.plot()
    pyplot.close("all")


@needs_compiler
def test_a_kernel_is_explained_beside_one_of_the_course() -> None:
    told = gr.explain([gr.Kernel(GALLERY / "one_atomic_per_warp.cu"), "shfl_atomic"], 2048)
    assert [each.kernel for each in told] == ["sum", "shfl_atomic"]
    assert told[0].launches[0].stage == "fill"
    assert told[0].main.stage == "first"
    for each in told:
        assert each.figures.shuffles == 5 * each.main.grid * each.main.block // 32


def test_an_explanation_refuses_what_the_kernel_does_not_take() -> None:
    mine = gr.Kernel(SUM, block_size=64)
    for options, message in (
        ({"op": "max"}, "computes sum, not max"),
        ({"dtype": "int8"}, "takes int32, not int8"),
        ({"rows": 2}, "reduces one row"),
        ({"block_size": 32}, "takes blocks of 64 threads"),
        ({"grid_size": 2}, "does not loop"),
        ({"n": 0}, "n must be 1 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            gr.explain(mine, **options)  # type: ignore[arg-type]


@needs_compiler
def test_a_broken_kernel_is_not_explained() -> None:
    with pytest.raises(gr.CudaError, match="out-of-bounds access"):
        gr.explain(gr.Kernel(GALLERY / "off_by_one.cu"), 100)
    with pytest.raises(
        RuntimeError, match=r"gpureduce\.check, or the command gpureduce check, looks"
    ):
        gr.explain(gr.Kernel(GALLERY / "block_of_192.cu"))


@needs_compiler
def test_a_broken_rule_of_an_explanation_is_told_as_check_does() -> None:
    racy = """__global__ void mine(const float *in, float *out, unsigned n)
{
    extern __shared__ float cells[];
    cells[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x == 1) out[0] = cells[0];
}"""
    with pytest.raises(gr.CudaError) as caught:
        gr.explain(gr.Kernel(racy), 64, block_size=64)
    text = str(caught.value)
    assert "reads shared cells[0] (line 5)" in text
    assert "wrote shared cells[0] before (line 4)" in text
    assert text.endswith("run `gpureduce check mine.cu`")
    for word in ("cuEventSynchronize", "dynamic shared memory", "ILLEGAL_ADDRESS", "schedule"):
        assert word not in text
    assert caught.value.name == "CUDA_ERROR_ILLEGAL_ADDRESS"


@needs_compiler
def test_an_explained_kernel_reduces_its_partials_as_on_a_gpu() -> None:
    told, course = gr.explain(
        [gr.Kernel(GALLERY / "tree_with_host_code.cu"), "sequential"], 4 * 256, block_size=256
    )
    stages = [launch.stage for launch in course.launches if launch.stage != "finish"]
    assert [launch.stage for launch in told.launches] == stages == ["first", "next"]
    assert [launch.grid for launch in told.launches] == [4, 1]
    to_long = gr.Kernel("""__global__ void mine(const int *in, long long *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ long long sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (i < n) atomicAdd((unsigned long long *)&sum, (unsigned long long)in[i]);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}""")
    # It cannot read its partials: the library adds them.
    assert len(gr.explain(to_long, 256, block_size=64).launches) == 1


@needs_compiler
def test_the_command_explains_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(GALLERY / "cooperative_tiles.cu")
    assert command.main(["explain", path, "--source"]) == 0
    out = capsys.readouterr().out
    assert "tiles: sum of 1,024 int32" in out
    assert "cg::reduce" in out
