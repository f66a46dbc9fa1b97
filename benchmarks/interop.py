"""Measure a call's cost on a small device array, beside the same call of the array's library.

    python benchmarks/interop.py             # 1000 float32 in CuPy and PyTorch, where installed
    python benchmarks/interop.py --n 100000 --calls 5000

Three kinds of calls: to an array on the device, which is queued and not waited for; to a number on
the host by ``out=`` a NumPy array; and to a Python number by the result's ``item()``. Calls of ours
and of the library take turns, in rounds, so that a drift of the machine meets both; a round ends
when the device is idle, and its time is divided by its calls. Writes
benchmarks/results/interop-*.json, as run.py writes the others.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gpureduce as gr
from gpureduce._bench.environment import environment
from gpureduce._bench.sampling import summary

RESULTS = pathlib.Path(__file__).parent / "results"
ROUNDS = 15
WARMUP = 200  # calls


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Run without Python's garbage collector, which would add its time to some samples."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def per_call(call: Callable[[], Any], calls: int, wait: Callable[[], None]) -> float:
    """Milliseconds that one of `calls` calls takes."""
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - start) / calls * 1e3


def in_turns(
    cases: dict[str, Callable[[], Any]], calls: int, wait: Callable[[], None]
) -> dict[str, list[float]]:
    """Milliseconds per call of each case, a sample a round."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for call in cases.values():
        for _ in range(WARMUP):
            call()
    with without_collector():
        for _ in range(ROUNDS):
            for name, call in cases.items():
                samples[name].append(per_call(call, calls, wait))
    return samples


def cupy_cases(n: int, op: str) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    import cupy

    array = cupy.ones(n, cupy.float32)
    host, device = np.zeros((), np.float32), cupy.zeros((), cupy.float32)
    ours, theirs = getattr(gr, op), getattr(cupy, op)
    cases = {
        "gpureduce, to the device": lambda: ours(array),
        "cupy, to the device": lambda: theirs(array),
        "gpureduce, to the device by out=": lambda: ours(array, out=device),
        "cupy, to the device by out=": lambda: theirs(array, out=device),
        "gpureduce, to a number by out=": lambda: ours(array, out=host),
        "gpureduce, to a number by item()": lambda: ours(array).item(),
        "cupy, to a number by item()": lambda: theirs(array).item(),
    }
    return cases, cupy.cuda.get_current_stream().synchronize


def torch_cases(n: int, op: str) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    import torch

    array = torch.ones(n, device="cuda")
    host, device = np.zeros((), np.float32), torch.zeros((), device="cuda")
    ours, theirs = getattr(gr, op), getattr(torch, op)
    cases = {
        "gpureduce, to the device": lambda: ours(array),
        "torch, to the device": lambda: theirs(array),
        "gpureduce, to the device by out=": lambda: ours(array, out=device),
        "gpureduce, to a number by out=": lambda: ours(array, out=host),
        "gpureduce, to a number by item()": lambda: ours(array).item(),
        "torch, to a number by item()": lambda: theirs(array).item(),
    }
    return cases, torch.cuda.current_stream().synchronize


LIBRARIES = {"cupy": cupy_cases, "torch": torch_cases}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1000, help="elements (default: %(default)s)")
    parser.add_argument(
        "--calls", type=int, default=2000, help="calls a round (default: %(default)s)"
    )
    parser.add_argument(
        "--op", nargs="+", default=["sum", "max"], help="reductions (default: sum max)"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=RESULTS, help="folder for the JSON file"
    )
    options = parser.parse_args()
    if not gr.devices():
        parser.exit(1, "interop: there is no CUDA device\n")
    rows: list[dict[str, Any]] = []
    for library, make in LIBRARIES.items():
        for op in options.op:
            try:
                cases, wait = make(options.n, op)
            except ImportError as error:
                rows.append({"library": library, "absent": str(error)})
                print(f"{library}: {error}")
                break
            for name, samples in in_turns(cases, options.calls, wait).items():
                rows.append(
                    {"library": library, "op": op, "case": name, "milliseconds": summary(samples)}
                )
                print(f"{op:4} {library:6} {name:34} {np.median(samples) * 1e3:8.2f} us a call")
    result = {
        "part": "interop",
        "environment": environment(),
        "n": options.n,
        "dtype": "float32",
        "calls": options.calls,
        "rows": rows,
    }
    label = gr.devices()[0].name.lower().replace(" ", "-")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"interop-{label}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"interop: {path}")


if __name__ == "__main__":
    main()
