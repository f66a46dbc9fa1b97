"""The hardware's counters of a kernel, by Nsight Compute: ``profile=True``.

``ncu`` runs ``python -m gpureduce._bench.profile``, a process of its own that launches the kernel
once over random elements. Clocks are not locked, as for the times beside the counters.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._dtypes import native_dtype
from .._exceptions import DeviceUnavailableError
from .._temporary import temporary_folder
from .._yours.kernel import Kernel
from .benchmark_array import BenchmarkArray, on_device, random_values

__all__ = ["COLUMNS", "Column", "check_possible", "counter_table", "profile_kernel", "run_ncu"]

PROGRAM = "ncu"
_FORBIDDEN = "ERR_NVGPUCTRPERM"
_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its heading, the metrics that are added up, a factor, and a format."""

    words: str
    metrics: tuple[str, ...]
    scale: float
    shown: str


COLUMNS: dict[str, Column] = {
    "microseconds": Column("duration µs", ("gpu__time_duration.sum",), 1e-3, ",.2f"),
    "compute_percent": Column(
        "compute %", ("sm__throughput.avg.pct_of_peak_sustained_elapsed",), 1, ".1f"
    ),
    "memory_percent": Column(
        "memory %", ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",), 1, ".1f"
    ),
    "dram_percent": Column(
        "DRAM %", ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",), 1, ".1f"
    ),
    "bank_conflicts": Column(
        "bank conflicts",
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        ),
        1,
        ",.0f",
    ),
    "threads_per_instruction": Column(
        "threads per instruction",
        ("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",),
        1,
        ".1f",
    ),
}


def find_ncu() -> str:
    """Path of Nsight Compute's program.

    Raises
    ------
    DeviceUnavailableError
        It is not on PATH.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise DeviceUnavailableError(
            "profiling needs Nsight Compute, and ncu is not on PATH: install it, or add the "
            "toolkit's bin folder there"
        )
    return program


def check_possible(why_no_device: str) -> None:
    """Raise before the measurement if it cannot be profiled.

    Raises
    ------
    DeviceUnavailableError
        There are no kernels on a device to profile, for the reason given, or no Nsight Compute.
    """
    if why_no_device:
        raise DeviceUnavailableError(f"there is nothing to profile: {why_no_device}")
    find_ncu()


def run_ncu(
    metrics: Sequence[str], command: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[str, list[dict[str, str]]]:
    """Run a command under Nsight Compute.

    Parameters
    ----------
    metrics : sequence of str
        The hardware's names.
    command : sequence of str
    environment : mapping, optional
        Of the command; this process's own by default.

    Returns
    -------
    str
        What the command printed.
    list of dict
        For each launch the columns of ``ncu``, in base units.

    Raises
    ------
    DeviceUnavailableError
        Nsight Compute is not installed, is not permitted to read the counters, or failed; the
        message says what to do.
    """
    program = find_ncu()
    with temporary_folder("gpureduce-ncu-") as folder:
        log = folder / "log.csv"
        options = ["--clock-control", "none", "--print-units", "base", "--csv", "--page", "raw"]
        options += ["--log-file", str(log), "--metrics", ",".join(dict.fromkeys(metrics))]
        done = subprocess.run(
            [program, *options, *command],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        text = log.read_text(encoding="utf-8") if log.exists() else ""
    words = f"{done.stdout}\n{done.stderr}\n{text}"
    if _FORBIDDEN in words:
        raise DeviceUnavailableError(
            f"Nsight Compute may not read the counters here ({_FORBIDDEN}): run as root, in a "
            "container with --cap-add=SYS_ADMIN, or have the administrator load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    if done.returncode != 0:
        raise DeviceUnavailableError(
            f"ncu failed with status {done.returncode}: {words.strip()[-_LAST_WORDS:]}"
        )
    table = csv.DictReader(line for line in text.splitlines() if line.startswith('"'))
    return done.stdout, [row for row in table if row["ID"]]  # the first row has the units


def number(row: Mapping[str, str], names: Sequence[str]) -> float:
    """Sum of some metrics of a launch."""
    return sum(float(row[name].replace(",", "")) for name in names)


def profile_kernel(
    op: str, options: dict[str, Any], it: BenchmarkArray, reduced: int
) -> tuple[dict[str, Any], ...]:
    """Counters of each launch of a reduction of random elements.

    Parameters
    ----------
    op : str
    options : dict
        ``kernel`` (a name, or one of the user's own), ``block_size``, ``grid_size``, ``dtype``.
    it : BenchmarkArray
        Its shape, dtype and device count.
    reduced : int
        Trailing axes that are reduced.

    Returns
    -------
    tuple of dict
        For each launch its number and entry, and the figures of :data:`COLUMNS`.
    """
    dtype, kernel = options["dtype"], options["kernel"]
    request = {
        "op": op,
        "kernel": kernel if isinstance(kernel, str) else "",
        "block_size": options["block_size"] or 0,
        "grid_size": options["grid_size"] or 0,
        "compute": None if dtype is None else dtype.name,
        "shape": list(it.shape),
        "dtype": it.dtype.name,
        "reduced": reduced,
        "device": it.device or 0,
    }
    # The child finds the modules that this process does, wherever it was started.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    }
    metrics = [name for column in COLUMNS.values() for name in column.metrics]
    with temporary_folder("gpureduce-profile-") as folder:
        if isinstance(kernel, Kernel):
            request["own"] = str(folder / "kernel")
            (folder / "kernel").write_bytes(pickle.dumps(kernel))
        command = [sys.executable, "-P", "-m", "gpureduce._bench.profile", json.dumps(request)]
        _, rows = run_ncu(metrics, command, environment)
    return tuple(
        {"launch": i, "entry": row.get("Kernel Name", "")}
        | {name: column.scale * number(row, column.metrics) for name, column in COLUMNS.items()}
        for i, row in enumerate(rows, 1)
    )


def counter_table(counters: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of text of the result of :func:`profile_kernel`."""
    is_named = any("kernel" in each for each in counters)
    headings = [
        *(["kernel"] if is_named else []),
        "launch",
        *(column.words for column in COLUMNS.values()),
    ]
    rows = []
    for each in counters:
        cells = [format(each[name], column.shown) for name, column in COLUMNS.items()]
        rows.append([*([str(each["kernel"])] if is_named else []), str(each["launch"]), *cells])
    return headings, rows


def main() -> None:
    """Launch the reduction that the argument names once, in the process that ``ncu`` profiles."""
    request = json.loads(sys.argv[1])
    dtype = native_dtype(request["dtype"])
    compute = None if request["compute"] is None else native_dtype(request["compute"])
    shape = tuple(request["shape"])
    device, n = request["device"], int(np.prod(shape))
    with on_device(random_values(dtype, n), device) as pointer:
        sizes = request["block_size"], request["grid_size"]
        if "own" in request:
            kernel: Kernel = pickle.loads(Path(request["own"]).read_bytes())
            kernel.trial = 0  # it ran before
            own_sizes = [size or None for size in sizes]
            kernel.load(device, dtype.name, n, *own_sizes).reduce(pointer)
            return
        arguments = (
            request["op"],
            pointer,
            shape,
            dtype,
            request["reduced"],
            request["kernel"],
            device,
        )
        _core.reduce_device(*arguments, *sizes, compute)


if __name__ == "__main__":
    main()
