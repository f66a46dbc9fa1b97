"""A kernel that hangs or breaks on a GPU does so in a process of its own; what is lost is said.

Over the emulator, whose context an error ends as a GPU's.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from test_own_kernel_calls import SUM, emulated, needs_compiler

import gpureduce as gr

BROKEN = SUM.replace("in[i]", "in[i + (1 << 28)]")
HANGING = """
__device__ volatile int gate;
__global__ void waits(const int *in, int *out, int n)
{
    while (gate == 0) { }
    if (threadIdx.x == 0) out[blockIdx.x] = in[0];
}
"""
# the emulator's own limit of steps is far away
DIVIDING = SUM.replace("in[i])", "in[i] / (n - n))")
KERNELS = f"BROKEN = {BROKEN!r}; HANGING = {HANGING!r}; DIVIDING = {DIVIDING!r}\n"


@needs_compiler
def test_the_first_launch_breaks_another_process(tmp_path: Path) -> None:
    code = (
        KERNELS
        + """
a = np.arange(600, dtype='i4')
errors = [refused(lambda: gr.sum(a, kernel=gr.Kernel(text))) for text in (BROKEN, DIVIDING)]
errors.append(refused(lambda: gr.sum(a, kernel=gr.Kernel(HANGING, trial=2))))
broken = gr.Kernel(BROKEN)
errors += [refused(lambda: gr.sum(a, kernel=broken)) for _ in range(2)]
print(json.dumps([errors, broken.programs == {}, int(gr.sum(a, kernel=gr.Kernel(SUM))),
                  int(gr.sum(a, kernel='sequential')), gr.last_run().device]))
"""
    )
    errors, is_forgotten, mine, course, device = emulated(code, tmp_path)  # type: ignore[misc]
    start = "CudaError: kernel 'mine', in a first launch by a process of its own,"
    for error in (errors[0], *errors[3:]):
        assert error.startswith(f"{start} failed: ")
        assert "mine.cu:5" in error
        assert "This process can go on; gpureduce.check says why" in error
    assert errors[1].startswith(f"{start} ended it: the child process ended by signal ")
    assert errors[2].startswith("CudaError: kernel 'waits', in a first launch by a process of its")
    assert "had not ended after 2 seconds. That process was ended" in errors[2]
    assert (is_forgotten, mine, course, device) == (True, 179700, 179700, "cuda:0")


@needs_compiler
def test_there_is_one_trial_per_program_and_none_if_none_is_wanted(tmp_path: Path) -> None:
    code = """
from gpureduce._yours import launching
tried = []
launching.try_in_child = lambda form, image, case, seconds: tried.append([case['n'], seconds])
a = np.arange(6000, dtype='i4')
mine, without = gr.Kernel(SUM), gr.Kernel(SUM, trial=0)
slide = gr.Kernel(SUM.replace(', int n', '').replace('if (i < n) ', ''), trial=3)
launching._MOST_TRIED = 700
for _ in range(2):
    gr.sum(a, kernel=mine)
    gr.sum(a[:300], kernel=mine, block_size=64)
    gr.sum(a, kernel=without)
gr.sum(a[:2560], kernel=slide)
print(json.dumps(tried))
"""
    assert emulated(code, tmp_path) == [[700, 20.0], [512, 3]]


@needs_compiler
def test_a_trial_that_cannot_be_is_no_error(tmp_path: Path) -> None:
    code = """
from gpureduce._yours import launching
a = np.arange(600, dtype='i4')
found = []
def worker(*_):
    raise RuntimeError('the child process ended with status 1: no memory')
launching.run_worker = worker
found.append(int(gr.sum(a, kernel=gr.Kernel(SUM))))
reply = '{"error": {"name": "MemoryError", "message": "", "details": [null, null, null, null]}}'
launching.run_worker = lambda *_: reply
found.append(int(gr.sum(a, kernel=gr.Kernel(SUM))))
print(json.dumps(found))
"""
    assert emulated(code, tmp_path) == [179700, 179700]


@needs_compiler
def test_the_time_until_a_launch_is_not_the_kernels(tmp_path: Path) -> None:
    """On a machine with much to do, Python and the driver may take longer than a launch may."""
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text("import time; time.sleep(2)")
    code = f"""
import time
sys.path.insert(0, {str(slow)!r})
a = np.arange(600, dtype='i4')
start = time.monotonic()
print(json.dumps([int(gr.sum(a, kernel=gr.Kernel(SUM, trial=1))), time.monotonic() - start > 2]))
"""
    assert emulated(code, tmp_path) == [179700, True]


@needs_compiler
def test_a_context_that_is_lost_is_said_to_be(tmp_path: Path) -> None:
    """By a launch without a trial, or after it: no one can save that."""
    code = (
        KERNELS
        + """
a = np.arange(600, dtype='i4')
gated = gr.Kernel(SUM.replace('in[i]', 'in[n > 300 ? i + (1 << 28) : i]'))
right = int(gr.sum(a[:100], kernel=gated))
print(json.dumps([right, refused(lambda: gr.sum(a, kernel=gated))]))
"""
    )
    right, error = emulated(code, tmp_path)  # type: ignore[misc]
    assert right == 4950
    assert error.startswith("CudaError: kernel 'mine' failed: ")
    assert "The device's context is lost with all arrays there" in error


def test_a_trial_takes_no_negative_time() -> None:
    with pytest.raises(ValueError, match="trial must be 0 or more seconds, not -1"):
        gr.Kernel(SUM, trial=-1)


# ---------------------------------------------------------------- on a GPU -----------------------


@pytest.mark.gpu
def test_on_a_gpu_a_broken_kernel_leaves_this_process_as_it_was() -> None:
    a = np.arange(600, dtype=np.int32)
    far = SUM.replace("in[i]", "in[i + (1ll << 40)]")
    with pytest.raises(gr.CudaError, match="in a first launch by a process of its own, failed"):
        gr.sum(a, kernel=gr.Kernel(far))
    assert gr.sum(a, kernel=gr.Kernel(SUM)) == 179700
    assert gr.sum(a, kernel="sequential", device="cuda") == 179700


@pytest.mark.gpu
def test_on_a_gpu_a_hanging_kernel_is_ended_with_its_process() -> None:
    a = np.arange(600, dtype=np.int32)
    start = time.monotonic()
    with pytest.raises(gr.CudaError, match="had not ended after 5 seconds"):
        gr.sum(a, kernel=gr.Kernel(HANGING, trial=5))
    assert time.monotonic() - start >= 5
    assert gr.sum(a, kernel=gr.Kernel(SUM)) == 179700
