"""Kernels of users' own in benchmark, compare, profiles and the command, over the emulator."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import SEED
from test_own_kernel_calls import GALLERY, SUM, emulated, needs_compiler

import gpureduce as gr
from gpureduce._cli import command

SHORT = "seconds=0.02, ceiling=False, progress=False"


# ---------------------------------------------------------------- benchmark ----------------------


@needs_compiler
def test_benchmark_times_the_call_the_launches_and_the_stages(tmp_path: Path) -> None:
    code = f"""
mine = gr.Kernel(SUM)
a = np.arange(4000, dtype='i4')
found = []
for cache in ('hot', 'cold', 'rotated'):
    t = gr.benchmark(mine, a, block_size=128, cache=cache, {SHORT})
    found.append([t.function, t.op, t.kernel, t.device, t.block_size, t.grid_size, t.bytes,
                  len(t.host.samples) > 1, len(t.on_device.samples) > 1,
                  t.stages['kernel'] == t.on_device.median, 'upload' in t.stages, t.title])
t = gr.benchmark(gr.sum, a, kernel=mine, {SHORT})
found.append([t.function, t.kernel, 'mine' in str(t)])
print(json.dumps(found))
"""
    *found, by_function = emulated(code, tmp_path)  # type: ignore[misc]
    for cache, each in zip(("hot", "cold", "rotated"), found, strict=True):
        assert each[:7] == ["sum", "sum", "mine", "cuda:0", 128, 32, 16004]
        assert each[7:11] == [True] * 4
        title = "mine: sum of 4,000 int32 on cuda:0, blocks of 128"
        assert each[11] == title + ("" if cache == "hot" else f", {cache} cache")
    assert by_function == ["sum", "mine", True]


@needs_compiler
def test_benchmark_takes_arrays_of_devices_and_refuses_what_the_kernel_does(tmp_path: Path) -> None:
    code = f"""
from gpureduce import _core
mine = gr.Kernel(SUM)
a = np.arange(4000, dtype='i4')
pointer = _core.alloc_device(0, a.nbytes)
_core.upload(0, pointer, a)
class Array:
    __cuda_array_interface__ = {{'shape': a.shape, 'typestr': '<i4', 'data': (pointer, False),
                                 'version': 3}}
    def get(self):
        return a
t = gr.benchmark(mine, Array(), {SHORT})
c = gr.compare(Array(), [mine, 'auto'], baselines=[], {SHORT})
errors = [refused(call) for call in (
    lambda: gr.benchmark(mine, a, op='max', {SHORT}),
    lambda: gr.benchmark(mine, a, kernel='auto', {SHORT}),
    lambda: gr.benchmark(mine, a.astype('f4'), {SHORT}),
    lambda: gr.benchmark(mine, a.reshape(2, -1), axis=1, {SHORT}),
    lambda: gr.benchmark(mine, a, device='cpu', {SHORT}),
    lambda: gr.benchmark(mine, a, grid_size=4, {SHORT}),
)]
print(json.dumps([t.device, t.on_device is not None, [row.right for row in c], errors]))
"""
    device, timed, right, errors = emulated(code, tmp_path)  # type: ignore[misc]
    assert (device, timed, right) == ("cuda:0", True, [True, True])
    parts = [
        "ValueError: kernel 'mine' computes sum, not max",
        "ValueError: the kernel is named twice",
        "TypeError: kernel 'mine' takes int32, and the array is float32",
        "ValueError: kernel 'mine' reduces whole arrays",
        "KernelUnavailableError: kernel 'mine' runs on GPUs only",
        "ValueError: kernel 'mine' does not loop over blocks",
    ]
    for got, part in zip(errors, parts, strict=True):
        assert part in got


# ---------------------------------------------------------------- compare ------------------------


@needs_compiler
def test_compare_puts_your_kernels_beside_the_courses(tmp_path: Path) -> None:
    code = f"""
mine = gr.Kernel(SUM)
wrong = gr.Kernel(SUM.replace('in[i]', '2 * in[i]').replace('mine', 'twice'))
other = gr.Kernel(SUM)
named = gr.Kernel(SUM.replace('mine', 'sequential'))
most = gr.Kernel(SUM.replace('Add', 'Max'), name='mine')
a = np.arange(4000, dtype='i4')
kernels = [mine, 'reduce3', wrong, other, named, most, 'auto']
c = gr.compare(a, kernels, baselines=['numpy'], {SHORT})
rows = [[row.name, row.is_kernel, row.right, row.on_device is not None, row.absent] for row in c]
swept = gr.compare(a, mine, sizes=[100, 4000], block_size=[64, 256], baselines=[],
                   break_even=False, {SHORT})
even = c.break_even
print(json.dumps([rows, [[row.elements, row.block_size, row.right] for row in swept],
                  [even.kernel, even.sizes], 'mine' in str(c), len(c.to_csv())]))
"""
    rows, swept, even, shown, _ = emulated(code, tmp_path)  # type: ignore[misc]
    assert [row[:4] for row in rows] == [
        ["mine", True, True, True],
        ["first_add", True, True, True],
        ["twice", True, False, False],
        ["mine in mine.cu", True, True, True],
        ["sequential in mine.cu", True, True, True],
        ["mine 2", True, None, False],
        ["auto", True, True, True],
        ["numpy", False, True, False],
    ]
    assert "computes max, not sum" in rows[5][4]
    assert swept == [[n, block, True] for n in (100, 4000) for block in (64, 256)]
    assert even[0] in {row[0] for row in rows if row[2]}
    assert shown


def test_without_a_gpu_your_kernels_are_listed_with_the_reason() -> None:
    if gr.devices():
        pytest.skip("there is a GPU")
    a = np.ones(100, np.int32)
    found = gr.compare(
        a, [gr.Kernel(SUM), "auto"], baselines=[], seconds=0.01, break_even=False, ceiling=False
    )
    assert [(row.name, row.right) for row in found] == [("auto", True), ("mine", None)]
    assert "runs on GPUs only" in found["mine"].absent
    with pytest.raises(gr.KernelUnavailableError, match="kernel 'mine' runs on GPUs only"):
        gr.benchmark(gr.Kernel(SUM), a, seconds=0.01)


# ---------------------------------------------------------------- profile ------------------------


def test_a_kernel_goes_to_another_process_without_what_is_loaded() -> None:
    mine = gr.Kernel(SUM, block_size=64)
    mine.programs[0, "int32", 64] = object()
    there = pickle.loads(pickle.dumps(mine))
    assert (there.form, there.source, there.programs) == (mine.form, mine.source, {})
    assert mine.programs


NCU = """#!/usr/bin/env python3
# Stands in for Nsight Compute: runs the command and writes a launch per metric it was asked for.
import subprocess, sys
words = sys.argv[1:]
metrics = words[words.index("--metrics") + 1].split(",")
log = words[words.index("--log-file") + 1]
status = subprocess.run(words[words.index("--metrics") + 2:]).returncode
with open(log, "w") as out:
    print(",".join(f'"{word}"' for word in ["ID", "Kernel Name", *metrics]), file=out)
    print(",".join(['""', '""', *('"unit"' for _ in metrics)]), file=out)
    print(",".join(['"0"', '"mine"', *('"7"' for _ in metrics)]), file=out)
sys.exit(status)
"""


@needs_compiler
def test_a_profile_launches_your_kernel_in_the_profiled_process(tmp_path: Path) -> None:
    (tmp_path / "ncu").write_text(NCU)
    (tmp_path / "ncu").chmod(0o755)
    code = f"""
import os
os.environ['PATH'] = {str(tmp_path)!r} + os.pathsep + os.environ['PATH']
a = np.arange(4000, dtype='i4')
t = gr.benchmark(gr.Kernel(SUM), a, profile=True, {SHORT})
c = gr.compare(a, [gr.Kernel(SUM)], baselines=[], profile=True, break_even=False, {SHORT})
broken = gr.Kernel(SUM.replace('int i =', 'int j ='))
from gpureduce._bench.benchmark_array import as_benchmark_array
from gpureduce._bench.profile import profile_kernel
options = dict(kernel=broken, block_size=None, grid_size=None, dtype=None)
print(json.dumps([t.counters, c[0].counters,
                  refused(lambda: profile_kernel('sum', options, as_benchmark_array(a), 1))]))
"""
    timed, compared, error = emulated(code, tmp_path)  # type: ignore[misc]
    assert timed == compared
    assert (timed[0]["launch"], timed[0]["entry"], timed[0]["dram_percent"]) == (1, "mine", 7.0)
    assert error.startswith("DeviceUnavailableError: ncu failed")
    assert "CudaError" in error  # the child's own words


# ---------------------------------------------------------------- the command --------------------


def run_command(words: list[Any], tmp_path: Path) -> Any:
    code = f"""
from gpureduce._bench import roofline
from gpureduce._cli import command
import contextlib, io
roofline.read_ceiling = lambda of: 1e12  # a gigabyte is not read here
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    status = command.main({[str(word) for word in words]!r})
print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
    return emulated(code, tmp_path)


@needs_compiler
def test_the_command_takes_files_where_it_takes_kernels(tmp_path: Path) -> None:
    import json

    file = tmp_path / "mine.cu"
    file.write_text(SUM)
    two = tmp_path / "two.cu"
    two.write_text(SUM + SUM.replace("mine", "other").replace("Add", "Max"))
    a = np.arange(1000, dtype=np.int32)
    np.save(tmp_path / "a.npy", a)
    short = ["--file", tmp_path / "a.npy", "--seconds", "0.01", "--json", "--no-progress"]

    status, out, err = run_command(
        ["sum", tmp_path / "a.npy", "--kernel", file, "--block-size", "64"], tmp_path
    )
    assert (status, out) == (0, "499500\n"), err
    status, out, err = run_command(
        ["max", tmp_path / "a.npy", "--kernel", two, "--name", "other", "--json"], tmp_path
    )
    assert (status, json.loads(out)["result"], json.loads(out)["variant"]) == (0, 999, "other"), err
    status, out, err = run_command(["bench", file, *short], tmp_path)
    assert (status, json.loads(out)["kernel"]) == (0, "mine"), err
    status, out, err = run_command(
        ["compare", "reduce3", "--kernel-file", file, two, "--name", "mine",
         "--baselines", "--no-break-even", *short],
        tmp_path,
    )  # fmt: skip
    assert status == 0, err
    names = [row["name"] for row in json.loads(out)["rows"]]
    assert names == ["mine", "mine in two.cu", "first_add"]
    status, out, err = run_command(
        ["compare", file, "--baselines", "--no-break-even", *short], tmp_path
    )
    assert [row["name"] for row in json.loads(out)["rows"]] == ["mine"], err
    status, _, err = run_command(["sum", tmp_path / "a.npy", "--kernel", two], tmp_path)
    assert (status, "several kernels, say which" in err) == (2, True)


@needs_compiler
def test_explain_takes_the_options_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = tmp_path / "two.cu"
    two.write_text(SUM + SUM.replace("mine", "other").replace("Add", "Max"))
    assert command.main(["explain", str(two), "--name", "other", "-n", "100"]) == 0
    assert "other: max of 100 int32" in capsys.readouterr().out


# ---------------------------------------------------------------- on a GPU -----------------------


@pytest.mark.gpu
def test_your_kernels_are_measured_on_a_gpu() -> None:
    mine = gr.Kernel(GALLERY / "tree_with_host_code.cu")
    a = np.random.default_rng(SEED).random(1 << 22, np.float32)
    timing = gr.benchmark(mine, a, cache="cold", seconds=0.1, ceiling=False)
    assert timing.on_device is not None
    assert timing.peak is not None
    assert 0 < timing.device_bandwidth <= timing.peak
    found = gr.compare(
        a, [mine, "sequential", "auto"], baselines=["numpy"], seconds=0.05, break_even=False,
        ceiling=False,
    )  # fmt: skip
    assert [row.right for row in found] == [True] * 4
    assert all(row.on_device is not None for row in found if row.is_kernel)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_arrays_of_libraries_are_reduced_by_your_kernels_on_a_gpu(library: str) -> None:
    module = pytest.importorskip(library)
    rng = np.random.default_rng(SEED)
    values = rng.integers(0, 9, 100_000).astype(np.float32)
    a = module.asarray(values) if library == "cupy" else module.tensor(values, device="cuda")
    for path in ("tree_with_host_code.cu", "one_atomic_per_warp.cu"):
        mine = gr.Kernel(GALLERY / path)
        result = gr.sum(a, kernel=mine)
        assert type(result) is type(a)
        assert float(result) == values.sum(dtype=np.float64), f"seed {SEED}"
        assert float(gr.sum(a, kernel=mine, initial=3)) == values.sum(dtype=np.float64) + 3
