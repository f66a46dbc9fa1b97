"""Several reductions by a GPU in one pass over memory, over the fakes: from Python to the launch.

Their results, what the core's functions refuse, and what is left when a call of the driver fails.
``tests/kernels/test_emulator_several.py`` runs the kernel itself.
"""

from __future__ import annotations

import os
from pathlib import Path

import fakes
import pytest
from draws import EVERYTHING

SETUP = (
    f"""
SEED = {os.environ["GPR_TEST_SEED"]}
"""
    + """
import gc
from device_buffers import device, host
from gpureduce import _core, _one_pass

_one_pass.LEAST_BYTES = 0
_one_pass.CHUNK_BYTES = 8192
_one_pass.LEAST_HOST_OPERATORS = 2
OPS = ("sum", "mean", "min", "minmax", "argmax", "nanmax", "any", "count_nonzero")
rng = np.random.default_rng(SEED)
a = rng.integers(-99, 99, (3, 5000)).astype(np.float32)

def read(one):
    if isinstance(one, tuple):
        return [part for each in one for part in read(each)]
    return [np.asarray(one) if isinstance(one, np.ndarray | np.generic) else host(one)]

def check(x, axis, data, **options):
    got = read(gr.reduce(x, OPS, axis=axis, **options))
    wanted = read(tuple(gr.reduce(data, op, axis=axis, device="cpu") for op in OPS))
    assert len(got) == len(wanted) == len(OPS) + 1
    for one, other in zip(got, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.tobytes() == other.tobytes(), (SEED, one, other)

def a_row_in_pieces():
    check(a[0], None, a[0], device="cuda")

def some_rows_at_a_time():
    rows = a.reshape(12, 1250)
    check(rows, 1, rows, device="cuda")

def an_array_on_the_device():
    check(device(a), 1, a, grid_size=2, block_size=64)

def timed():
    memory = device(a)
    source = _core.find_library(memory).read(memory)
    found = _one_pass.find_pass(source, 1, OPS)
    times = _one_pass.measure_pass(found, OPS, source, 2, 1000, _core.device_stream(0))
    assert len(times) == 2 and all(each >= 0 for each in times)

WORKS = (a_row_in_pieces, some_rows_at_a_time, an_array_on_the_device, timed)
"""
)


def run(script: str, tmp_path: Path, **more: float) -> None:
    fakes.run(SETUP + script, tmp_path, PYTHONPATH=fakes.module_path(), **more)


def test_results_are_those_of_calls_of_their_own(tmp_path: Path) -> None:
    run(
        """
before = cuda.fake_launches()
launches = []
for work in WORKS:
    work()
    launches.append(cuda.fake_launches() - sum(launches) - before)
# 3 pieces of a row; 12 rows by one at a time; all rows at once; and twice
assert launches == [3, 12, 1, 2], launches
""",
        tmp_path,
    )


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    run(
        """
memory = device(a)
source = _core.find_library(memory).read(memory)
facts = _core.device_facts(0)
total, count = _core.OPERATORS["sum"], _core.OPERATORS["count_nonzero"]
members = ((total, False, False), (count, False, False))
plan, made = _core.plan_several(source, 1, members, facts)
assert made["in_pass"] == 3 and made["rows"] == 3
image, symbols, compiled = _core.compile_several(plan, facts[0])
loaded = _core.load_image(0, image, symbols)
stream = _core.device_stream(0)

with raises(ValueError, "up to 12 reductions"):
    _core.plan_several(source, 1, members * 7, facts)
for bad in ((source, 1, ((99, False, False),), facts), (source, 1, (), facts),
            (source, 1, members, (0, 0, 0, 0, 0.0, None))):
    with raises(ValueError):
        _core.plan_several(*bad)
with raises(np.exceptions.AxisError):
    _core.plan_several(source, 7, members, facts)
for bad in ((a, 1, members, facts), (source, 1, ((total,),), facts), (source, 1, members, 5),
            (source, 1, members, (1, 2)), (source, "x", members, facts), ()):
    with raises(TypeError):
        _core.plan_several(*bad)

for call in (lambda p: _core.compile_several(p, 90), lambda p: _core.several_scratch(p, 2),
             lambda p: _core.queue_several(loaded, p, 0, (), 0.0, 0, stream),
             lambda p: _core.measure_several(loaded, p, 0, (), 0.0, 0, stream, 1, 0)):
    with raises(ValueError, "no plan of several"):
        call(b"12")
    with raises(TypeError):
        call(5)
assert _core.several_scratch(plan, 2) > 0

def queue(places=(0, 0), plan=plan, stream=stream, piece=None, loaded=loaded):
    _core.queue_several(loaded, plan, source.pointer, places, 0.0, 3, stream, piece)

def measure(places=(0, 0), repeats=1, loaded=loaded, stream=stream):
    return _core.measure_several(loaded, plan, source.pointer, places, 0.0, 3, stream, repeats, 0)

for call in (queue, measure):
    with raises(ValueError, "more results than reductions"):
        call((0,) * 13)
    with raises(OverflowError):
        call((1 << 64, 0))
    with raises(TypeError):
        call(("x", 0))
    with raises(ValueError):
        call(loaded=object())
    with raises(ValueError):
        call(stream=-5)
with raises(TypeError):
    queue(piece=(1, 2))
with raises(ValueError, "of one row"):
    queue(piece=(1, 0, 5000, 0, 1, 0))
with raises(ValueError, "up to 256 runs"):
    measure(repeats=257)
with raises(ValueError, "numbers of runs are positive"):
    measure(repeats=0)
""",
        tmp_path,
    )


# Each call of the driver or NVRTC fails in a child of its own, which has not opened them.
EVERY_FAILURE = """
from gpureduce import _locate
_locate.locate()
OPENING = ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount")

def fail_once(work, nth):
    cuda.fake_fail(b"*", nth, 999)
    error = None
    try:
        work()
    except Exception as caught:
        error = caught
    name = cuda.fake_failed().decode()
    cuda.fake_fail(b"", 0, 0)
    if error is None:
        assert not name or name in SURVIVED, name
    elif type(error) is gr.DeviceUnavailableError:
        assert name in OPENING and name in str(error), error
        return True
    else:
        assert type(error) is gr.CudaError and name in str(error), repr(error)
        assert (error.call, error.number) == (name, 999)
        error.__traceback__ = None
    gc.collect()
    assert cuda.fake_violation() == b"" and cuda.fake_live(b"depth") == 0
    work()
    gc.collect()
    held = cuda.fake_live(b"device"), cuda.fake_live(b"pinned"), cuda.fake_live(b"modules")
    work()
    gc.collect()
    now = cuda.fake_live(b"device"), cuda.fake_live(b"pinned"), cuda.fake_live(b"modules")
    assert held == now, f"{held} objects, then {now}"
    assert cuda.fake_violation() == b""
    return bool(name)

def count_calls(work):
    reads, writes = os.pipe()
    if os.fork() == 0:
        before = cuda.fake_calls()
        work()
        os.write(writes, str(cuda.fake_calls() - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reads, 20))

for work in WORKS:
    calls = count_calls(work)
    assert calls > 20, f"{work} makes {calls} calls"
    drawn = range(calls) if EVERYTHING else rng.choice(calls, 3, replace=False)
    for nth in drawn:
        in_child(fail_once, work, int(nth) + 1)
"""
SURVIVED = (
    "cuDeviceGetCount",  # where it is asked whether NVRTC is looked for
    "cuCtxPushCurrent",  # to free memory that nobody holds any more
    "cuThreadExchangeStreamCaptureMode", "cuPointerGetAttributes", "cuCtxPopCurrent",
    "cuCtxSynchronize", "cuEventDestroy", "cuMemFree", "cuMemFreeHost", "cuModuleUnload",
    "cuStreamSynchronize",
)  # fmt: skip


@pytest.mark.long
def test_every_failure_of_the_driver_has_its_exception(tmp_path: Path) -> None:
    """An ordinary run draws a few calls: tests/c/dispatch/test_faults.c has all."""
    head = f"SURVIVED = {SURVIVED}\nEVERYTHING = {EVERYTHING}\n"
    run(head + EVERY_FAILURE, tmp_path, timeout=600)
