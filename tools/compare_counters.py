"""Compare the emulator's counts with the hardware's: needs a GPU and Nsight Compute.

    python tools/compare_counters.py benchmarks/results/counters-nvidia-h200.json

Runs the same launches twice, under ``ncu`` and over the emulator, and writes both counts for each
launch, with the environment. ``benchmarks/report.py`` makes the table of docs/counters.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ELEMENTS = 20_011
GRID = 8  # blocks of kernels that loop: the emulated GPU is smaller than a real one
CASES = [(dtype, op) for dtype in ("float32", "int32", "uint8") for op in ("sum", "max")]

# A count's name here, and the hardware's counters of which it is the sum.
METRICS = {
    "shared_load.requests": ("smsp__inst_executed_op_shared_ld_pred_on_any.sum",),
    "shared_store.requests": ("smsp__inst_executed_op_shared_st_pred_on_any.sum",),
    "shared_load.wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared_load.conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",),
    "shared_store.wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
    "shared_store.conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",),
    "shared_atomic.requests": ("smsp__inst_executed_op_shared_atom_pred_on_any.sum",),
    "global_load.requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "global_load.sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global_store.requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "global_store.sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "global_atomic.requests": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    ),
    "load_store.threads": ("smsp__thread_inst_executed_pipe_lsu_pred_on.sum",),
    "threads_per_instruction": ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",),
}


def workload() -> None:
    """Launch every case once."""
    import gpureduce as gr
    from gpureduce import _core

    rng = np.random.default_rng(1)
    for dtype, op in CASES:
        values = rng.integers(0, 100, ELEMENTS).astype(dtype)
        pointer = _core.alloc_device(0, values.nbytes)
        _core.upload(0, pointer, values)
        for info in gr.kernels():
            if info.name == "cub":
                continue
            grid = GRID if info.takes_grid_size else 0
            result = _core.reduce_device(
                op, pointer, values.shape, values.dtype, 1, info.name, 0, 0, grid
            )
            run = gr.last_run()
            assert run is not None
            assert result == getattr(np, op)(values), (info.name, dtype, op, result)
            print(
                json.dumps(
                    {"kernel": info.name, "dtype": dtype, "op": op, "launches": run.launches}
                ),
                flush=True,
            )
        _core.free_device(0, pointer)


def labels(output: str) -> list[dict[str, Any]]:
    """The case of each launch, from the workload's output."""
    cases = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [{**case, "launch": i} for case in cases for i in range(case["launches"])]


def hardware() -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    """Counters of every launch, by Nsight Compute."""
    from gpureduce._bench.profile import number, run_ncu

    names = [name for theirs in METRICS.values() for name in theirs]
    try:
        output, rows = run_ncu(names, [sys.executable, __file__, "--workload"])
    except RuntimeError as error:
        sys.exit(str(error))
    counts = [{ours: number(row, theirs) for ours, theirs in METRICS.items()} for row in rows]
    return labels(output), counts


def emulated() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Reports of every launch, by the emulator."""
    from gpureduce import _locate

    library = str(_locate.emulator())
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        env = {
            **os.environ,
            "GPUREDUCE_LIBCUDA": library,
            "GPUREDUCE_LIBNVRTC": library,
            "GPUREDUCE_CACHE_DIR": folder,
            "GPUREDUCE_EMULATOR": f"report={report}",
        }
        command = [sys.executable, __file__, "--workload"]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"the emulator failed:\n{done.stderr[-4000:]}")
        return labels(done.stdout), [json.loads(line) for line in report.read_text().splitlines()]


def counted(report: dict[str, Any]) -> dict[str, float]:
    """A report's totals under the names of METRICS."""
    total: dict[str, float] = {}
    requests = threads = through_memory = 0
    for column in report["columns"]:
        for op, tally in column["ops"].items():
            for what, value in tally.items():
                total[f"{op}.{what}"] = total.get(f"{op}.{what}", 0) + value
            requests += tally["requests"]
            threads += tally["threads"]
            if op.startswith(("shared_", "global_")) or op == "shuffle":
                through_memory += tally["threads"]
    for op in ("shared_load", "shared_store"):
        total[f"{op}.conflicts"] = total.get(f"{op}.wavefronts", 0) - total.get(f"{op}.ideal", 0)
    total["load_store.threads"] = through_memory
    total["threads_per_instruction"] = threads / requests
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", type=Path)
    parser.add_argument("--workload", action="store_true", help="only launch the kernels")
    arguments = parser.parse_args()
    if arguments.workload:
        return workload()
    from gpureduce._bench.environment import environment

    real_labels, real = hardware()
    our_labels, reports = emulated()
    assert real_labels == our_labels, "the two did not launch the same"
    assert len(real) == len(reports) == len(our_labels), (len(real), len(reports), len(our_labels))
    launches = []
    for label, hardware_counts, report in zip(real_labels, real, reports, strict=True):
        ours = counted(report)
        launches.append(
            {
                **label,
                "entry": report["entry"],
                "grid": report["grid"],
                "block": report["block"],
                "emulator": {name: ours.get(name, 0) for name in METRICS},
                "atomics": report["atomics"],
                "hardware": hardware_counts,
            }
        )
    result = {
        "environment": environment(),
        "elements": ELEMENTS,
        "metrics": METRICS,
        "launches": launches,
    }
    assert arguments.output is not None, "say where to write"
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(launches)} launches compared")
    return None


if __name__ == "__main__":
    main()
