"""Measure two builds of gpureduce beside each other, and write every sample to a result file.

    python benchmarks/compare_revisions.py BEFORE AFTER OUT.json [--seconds 300] [--seed N]
    python benchmarks/compare_revisions.py BEFORE AFTER OUT.json --again OLD.json [--above 1.05]
    python benchmarks/compare_revisions.py BEFORE AFTER OUT.json --only sum,mean,nansum --floats

BEFORE and AFTER are folders that hold an importable ``gpureduce`` (for example the ``src`` of two
checkouts, each built in place). One process per build; they take turns on the same case, a few
samples each, so that a drift of the clocks meets both. The cases are every named kernel, then
random functions, dtypes, shapes and axes of the production kernels, then whole calls by the clock
of the host; or, ``--again``, the cases of a result file whose ratio is above a bound, the slowest
first; or, ``--only``, random cases of some functions. Needs PyTorch, which lends the device arrays
and the events.

A ratio is the time of AFTER over that of BEFORE: below 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

ROUNDS = 4  # turns of each build at a case
FUNCTIONS = (
    *("sum", "mean", "max", "argmax", "var", "prod", "any", "count_nonzero"),
    *("nansum", "nanmax", "ptp"),
)
DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int16", "bool"),
)  # fmt: skip
FLOATS = ("float32", "float64", "float16", "bfloat16")


class Case(NamedTuple):
    """A call to measure; ``where`` is device (events) or the host array's kind (wall clock)."""

    function: str
    dtype: str
    shape: tuple[int, ...]
    axis: Any
    kernel: str
    where: str


# ------------------------------------------------------------------ the process of one build


def time_on_device(call: Any, flush: Any, count: int) -> list[float]:
    """Milliseconds between two events around a call, queued behind a device that is busy."""
    import torch

    samples = []
    for _ in range(count):
        if flush is not None:
            flush.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(400_000)  # the calls are queued before the first one runs
        start.record()
        call()
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop))
    return samples


def time_on_host(call: Any, count: int) -> list[float]:
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        samples.append(1e3 * (time.perf_counter() - start))
    return samples


def array_for(case: Case, seed: int) -> Any:
    import numpy as np
    import torch

    kind = getattr(torch, case.dtype)
    torch.manual_seed(seed)
    if case.where == "device":
        if kind.is_floating_point:
            return torch.randn(case.shape, device="cuda", dtype=torch.float32).to(kind)
        top = 2 if case.dtype == "bool" else 100
        return torch.randint(0, top, case.shape, device="cuda", dtype=torch.int32).to(kind)
    import gpureduce as gr

    values = np.random.default_rng(seed).standard_normal(case.shape).astype(case.dtype)
    if case.where != "pinned":
        return values
    pinned: Any = gr.empty_pinned(values.shape, values.dtype)
    pinned[...] = values
    return pinned


def serve() -> None:
    """Measure cases that are lines of JSON; write a line of samples for each."""
    import torch

    import gpureduce as gr

    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    current: tuple[Case, Any] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        case = Case(*request["case"])
        case = case._replace(
            shape=tuple(case.shape),
            axis=tuple(case.axis) if isinstance(case.axis, list) else case.axis,
        )
        try:
            if current is None or current[0] != case:
                current = None
                current = case, array_for(case, request["seed"])
            array = current[1]
            options = {} if case.where == "cpu" else {"kernel": case.kernel}
            if case.where in ("ordinary", "pinned"):
                options["device"] = "cuda"
            if case.where == "cpu":
                options["device"] = "cpu"

            def call(array: Any = array, case: Case = case, options: Any = options) -> Any:
                return getattr(gr, case.function)(array, axis=case.axis, **options)

            for _ in range(2):
                call()
            if case.where == "device":
                small = array.numel() * array.element_size() < 512e6
                samples = time_on_device(call, flush if small else None, request["count"])
            else:
                samples = time_on_host(call, request["count"])
            run = gr.last_run()
            answer = {"samples": samples, "variant": run.variant if run else None}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), flush=True)


# ------------------------------------------------------------------ cases


def named_cases(kernels: list[str]) -> Iterator[Case]:
    for kernel in kernels:
        for function, dtype in (("sum", "int32"), ("sum", "float32"), ("max", "float64")):
            if kernel == "exact" and function == "max":
                continue
            slow = kernel.startswith(("naive", "single", "block_of", "warp"))
            for n in (1 << 18, 1 << 20) if slow else (1 << 18, 1 << 26):
                yield Case(function, dtype, (n,), None, kernel, "device")


def exact_cases() -> Iterator[Case]:
    shapes: tuple[tuple[tuple[int, ...], Any], ...] = (
        *(((1 << 28,), None), ((1 << 14, 1 << 14), 0), ((1 << 14, 1 << 14), 1)),
        *(((512, 512, 512), (0, 2)), ((1 << 22, 16), 1), ((16, 1 << 22), 0)),
        *(((1 << 24, 3), 1), ((19869, 19, 37), 1), ((1 << 20,), None), ((1 << 16, 300), 1)),
    )
    for shape, axis in shapes:
        for dtype in FLOATS:
            yield Case("sum", dtype, shape, axis, "exact", "device")
        for dtype in ("float32", "float64"):
            yield Case("var", dtype, shape, axis, "exact", "device")


def host_cases() -> Iterator[Case]:
    for n in (1000, 1 << 24):
        for where in ("ordinary", "pinned", "cpu"):
            for dtype in ("float32", "float64"):
                for function in ("sum", "max"):
                    yield Case(function, dtype, (n,), None, "auto", where)
    yield Case("sum", "float32", (64, 64), 1, "auto", "cpu")
    yield Case("sum", "float64", (2000, 2000), 0, "auto", "cpu")
    yield Case("max", "int32", (2000, 2000), 1, "auto", "cpu")


def random_cases(
    rng: random.Random,
    of: Sequence[str] = FUNCTIONS,
    dtypes: Sequence[str] = DTYPES,
    kernels: Sequence[str] = ("auto", "auto", "fast"),
) -> Iterator[Case]:
    while True:
        n = round(math.exp(rng.uniform(math.log(1e3), math.log(2.5e8))))
        cuts = [rng.random() + 0.02 for _ in range(rng.choice((1, 2, 2, 2, 3)))]
        shape = tuple(max(1, round(n ** (x / sum(cuts)))) for x in cuts)
        if math.prod(shape) > 3e8:
            continue
        axis: Any = rng.choice((None, *range(len(shape)), *range(len(shape))))
        if len(shape) == 3 and rng.random() < 0.3:
            axis = tuple(sorted(rng.sample(range(3), 2)))
        functions = [f for f in of if f != "argmax" or not isinstance(axis, tuple)]
        if functions:
            kernel = rng.choice(kernels)
            yield Case(rng.choice(functions), rng.choice(dtypes), shape, axis, kernel, "device")


def cases_again(path: str, above: float) -> list[Case]:
    """The cases of a result file whose ratio is above a bound, the slowest first."""
    with open(path, encoding="utf-8") as file:
        rows = [row for row in json.load(file)["rows"] if row.get("ratio", 0) > above]
    rows.sort(key=lambda row: -row["ratio"])
    return [
        Case(**{name: row[name] for name in Case._fields} | {"shape": tuple(row["shape"])})
        for row in rows
    ]


# ------------------------------------------------------------------ both, in turns


class Build:
    """One build's process."""

    def __init__(self, folder: str) -> None:
        environment = {**os.environ, "PYTHONPATH": folder}
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, case: Case, count: int, seed: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"case": case, "count": count, "seed": seed}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}


def measure(builds: dict[str, Build], case: Case, seed: int) -> dict[str, Any]:
    size = math.prod(case.shape)
    count = 60 if case.where != "device" and size < 1e5 else 5
    row: dict[str, Any] = {**case._asdict(), "before": [], "after": []}
    for turn in range(ROUNDS):
        names = ("before", "after") if turn % 2 == 0 else ("after", "before")
        for name in names:
            answer = builds[name].ask(case, count, seed)
            if "error" in answer:
                row[f"{name}_error"] = answer["error"]
                continue
            row[name] += answer["samples"]
            row[f"{name}_variant"] = answer["variant"]
    if row["before"] and row["after"]:
        before, after = (statistics.median(row[name]) for name in ("before", "after"))
        row["ratio"] = after / before
    return row


def kernel_names(folder: str) -> list[str]:
    script = "import gpureduce as gr; print(*(k.name for k in gr.kernels() if k.available))"
    environment = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def environment_of(folder: str) -> Any:
    script = (
        "import json; from gpureduce._bench.environment import environment; "
        "print(json.dumps(environment(), default=str))"
    )
    variables = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, check=False, capture_output=True, text=True
    )
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]}


def report(rows: list[dict[str, Any]]) -> None:
    done = [row for row in rows if "ratio" in row]
    for where in ("device", "ordinary", "pinned", "cpu"):
        ratios = sorted(row["ratio"] for row in done if row["where"] == where)
        if ratios:
            cut = statistics.quantiles(ratios, n=20) if len(ratios) > 1 else [ratios[0]]
            print(
                f"{where}: {len(ratios)} cases, ratio median {statistics.median(ratios):.3f}, "
                f"5 % {cut[0]:.3f}, 95 % {cut[-1]:.3f}, most {ratios[-1]:.3f}"
            )
    for row in sorted(done, key=lambda row: -row["ratio"])[:15]:
        print(
            f"{row['ratio']:.3f} {row['function']} {row['dtype']} {row['shape']} {row['axis']} "
            f"{row['kernel']} {row['where']} {row['before_variant']} -> {row['after_variant']} "
            f"{statistics.median(row['before']):.4f} {statistics.median(row['after']):.4f} ms"
        )
    for row in rows:
        if "ratio" not in row:
            print({k: v for k, v in row.items() if k not in ("before", "after")})


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--again", metavar="RESULT", help="its cases above a ratio, and no others")
    parser.add_argument("--above", type=float, default=1.05, help="that ratio; 1.05 if not given")
    parser.add_argument("--only", metavar="FUNCTIONS", help="random cases of these, by auto")
    parser.add_argument("--floats", action="store_true", help="with --only: of floats")
    options = parser.parse_args()
    if options.floats and options.only is None:
        parser.error("--floats needs --only")
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    rng = random.Random(seed)
    builds = {name: Build(getattr(options, name)) for name in ("before", "after")}
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + options.seconds
    parts: list[Iterable[Case]] = []
    if options.again is not None:
        parts.append(cases_again(options.again, options.above))
    elif options.only is not None:
        dtypes = FLOATS if options.floats else DTYPES
        parts.append(random_cases(rng, options.only.split(","), dtypes, ("auto",)))
    else:
        parts += [host_cases(), exact_cases(), named_cases(kernel_names(options.after))]
        parts.append(random_cases(rng))
    for part in parts:
        for case in part:
            if time.monotonic() > end:
                break
            rows.append(measure(builds, case, seed))
    result = {
        "part": "revisions",
        "seed": seed,
        "environment": environment_of(options.after),
        "milliseconds": "samples per build; ratio is after / before, of medians",
        "rows": rows,
    }
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=None, separators=(",", ":"))
        file.write("\n")
    report(rows)


if __name__ == "__main__":
    main()
