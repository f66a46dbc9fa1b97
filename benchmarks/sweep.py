"""Measure random calls beside CuPy and PyTorch: functions, dtypes, shapes, axes and layouts.

    python benchmarks/sweep.py small big                 # 300 cases of each, with a fresh seed
    python benchmarks/sweep.py big --cases 400 --seed 7  # the cases of a seed are always the same
    python benchmarks/sweep.py small --seconds 60        # as many of them as fit

A case is one call on an array in device memory. Cases of ``small`` have 10^3 to 2 * 10^8 elements,
those of ``big`` 10^6 to 4 * 10^8. Shapes have one to five axes, powers of two, primes and others;
layouts are C order, transposed axes, steps, padded rows, overlapping windows and zero strides;
some calls have ``where=`` or ``keepdims=``. Our answer is checked against PyTorch's in float64 or
int64. Libraries take turns on the same memory; times are by events, the calls are queued behind a
busy device so that the host's overhead does not count, and the L2 is flushed before each sample of
an array that may fit in it. A library without the function, dtype or layout is left out of the
case; of a call with a mask, theirs are ``where`` and then the function.

Writes ``sweep_small-<device>.json`` and ``sweep_big-<device>.json`` with environment, seed, cases
and raw samples. Needs PyTorch, which lends the arrays; CuPy if it is there.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import gpureduce as gr
from gpureduce import _core
from gpureduce._bench.environment import environment

RESULTS = pathlib.Path(__file__).parent / "results"

FUNCTIONS = (
    *("sum", "sum", "sum", "mean", "max", "min", "argmax", "var", "std", "prod", "any", "all"),
    *("count_nonzero", "nansum", "nanmax", "nanmean", "ptp"),
)
DTYPES = (
    *("float32", "float32", "float32", "float64", "float64", "bfloat16", "bfloat16", "float16"),
    *("int32", "int64", "uint8", "int8", "int16", "bool"),
)
FLOATS = ("float16", "bfloat16", "float32", "float64")
ITEMSIZE = {"bfloat16": 2} | {name: np.dtype(name).itemsize for name in set(DTYPES) - {"bfloat16"}}
OF_BOOL = ("any", "all", "count_nonzero", "sum")
SIZES = {"small": (1e3, 2e8), "big": (1e6, 4e8)}
MOST_ELEMENTS = 600_000_000
MOST_BYTES = 4 * 10**9
PATTERN = 1 << 24  # elements after which the data repeat
IN_CACHE = 512 << 20  # bytes up to which L2 is flushed before each sample
FLUSHED = 256 << 20  # bytes that are written to flush it
SHORT, SAMPLES_OF_SHORT, SAMPLES = 16 << 20, 25, 9
SLOW, SLOW_SAMPLES = 0.1, 2  # seconds after which so many samples are enough
BUSY_CYCLES = 400_000  # of the device while calls are queued
SECTOR = 32  # bytes, the least that memory delivers
CEILING_BYTES = 2 << 30
WITH_INITIAL = ("max", "min", "nanmax")  # where there is a mask
WITH_MASK = ("sum", "mean", "max", "min", "prod", "any", "all", "nansum", "nanmax")


# ------------------------------------------------------------------ drawing cases


@dataclass(frozen=True, slots=True)
class Case:
    """A call, and the array it is made on: ``shape`` and ``strides`` in elements of a run of
    ``span`` elements, whose first one is ``offset`` elements behind an address of 256 bytes."""

    function: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    span: int
    offset: int
    axis: Any
    layout: str
    masked: bool
    keepdims: bool
    seed: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the array that must be read: of sectors, each of them once."""
        steps = [abs(s) for s, e in zip(self.strides, self.shape, strict=True) if s and e > 1]
        itemsize = ITEMSIZE[self.dtype]
        apart = min(steps, default=1) * itemsize
        read = self.elements * min(max(apart, itemsize), max(SECTOR, itemsize))
        return min(read, self.span * itemsize) + (self.elements if self.masked else 0)


def is_prime(n: int) -> bool:
    return n > 1 and all(n % i for i in range(2, math.isqrt(n) + 1))


def draw_extents(rng: random.Random, elements: float) -> list[int]:
    """Extents of one to five axes whose product is about `elements`."""
    axes = rng.choice([1, 2, 2, 2, 2, 3, 3, 5])
    cuts = [rng.random() + 0.02 for _ in range(axes)]
    extents = [max(1, round(elements ** (cut / sum(cuts)))) for cut in cuts]
    kind = rng.random()
    if kind < 0.35:
        return [1 << max(0, round(math.log2(extent))) for extent in extents]
    if kind < 0.5:
        return [next(p for p in range(max(extent, 2), 4 * extent + 4) if is_prime(p))
                for extent in extents]  # fmt: skip
    return extents


def draw_axis(rng: random.Random, function: str, extents: list[int]) -> Any:
    """The axes to reduce, by which an axis of 1 to 64 may be left alone; may change `extents`."""
    axes = len(extents)
    if axes == 1 or (function != "argmax" and rng.random() < 0.08):
        return None
    if function != "argmax" and rng.random() < 0.12:
        kept, extent = rng.randrange(axes), rng.randint(1, 64)
        longest = max((i for i in range(axes) if i != kept), key=lambda i: extents[i])
        extents[longest] = max(1, extents[longest] * extents[kept] // extent)
        extents[kept] = extent
        return tuple(i for i in range(axes) if i != kept)
    if function != "argmax" and axes > 2 and rng.random() < 0.3:
        return tuple(sorted(rng.sample(range(axes), rng.randint(2, axes - 1))))
    return rng.choice([0, axes - 1, rng.randrange(axes)])


def c_order(extents: list[int]) -> list[int]:
    strides = [1] * len(extents)
    for i in reversed(range(len(extents) - 1)):
        strides[i] = strides[i + 1] * extents[i + 1]
    return strides


def draw_layout(rng: random.Random, extents: list[int]) -> tuple[str, list[int], int]:
    """A layout's name, its strides, and the elements that it spans; may change `extents`."""
    kind, last = rng.random(), len(extents) - 1
    strides = c_order(extents)
    span = math.prod(extents)
    if kind < 0.14 and last > 0:
        order = rng.sample(range(last + 1), last + 1)
        extents[:] = [extents[i] for i in order]
        name = "C" if order == sorted(order) else "transposed"
        return name, [strides[i] for i in order], span
    if kind < 0.20:
        axis, step = rng.choice([last, rng.randrange(last + 1)]), rng.choice([2, 2, 3, 5])
        extents[axis] = -(-extents[axis] // step)
        strides[axis] *= step
        return f"step {step}", strides, span
    if kind < 0.25 and last > 0:
        pad = rng.choice([1, 3, 4, 16])
        strides = c_order([*extents[:-1], extents[-1] + pad])
        return "padded", strides, strides[0] * extents[0]
    if kind < 0.28 and last > 0:
        axis = rng.randrange(last + 1)
        strides = c_order([1 if i == axis else extent for i, extent in enumerate(extents)])
        strides[axis] = 0
        return "zero stride", strides, span // extents[axis]
    if kind < 0.31 and last > 0:
        # Windows that begin at each element of the last axis but one.
        strides = c_order([*extents[:-1], 1])
        return "overlapping", strides, span // extents[-1] + extents[-1] - 1
    return "C", strides, span


def draw_case(rng: random.Random, size: str) -> Case:
    least, most = SIZES[size]
    while True:
        function, dtype = rng.choice(FUNCTIONS), rng.choice(DTYPES)
        extents = draw_extents(rng, math.exp(rng.uniform(math.log(least), math.log(most))))
        axis = draw_axis(rng, function, extents)
        layout, strides, span = draw_layout(rng, extents)
        masked = rng.random() < 0.08 and function in WITH_MASK
        offset = rng.choice([0] * 9 + [1, 3])
        case = Case(
            function, dtype, tuple(extents), tuple(strides), span, offset, axis, layout, masked,
            rng.random() < 0.15, rng.randrange(1 << 30),
        )  # fmt: skip
        if dtype == "bool" and function not in OF_BOOL:
            continue
        if function.startswith("nan") and dtype not in FLOATS:
            continue
        if 0 < case.elements <= MOST_ELEMENTS and case.elements * ITEMSIZE[dtype] <= MOST_BYTES:
            return case


def draw_cases(seed: int, size: str, count: int) -> list[Case]:
    rng = random.Random(f"{seed} {size}")
    return [draw_case(rng, size) for _ in range(count)]


# ------------------------------------------------------------------ calls


def arrays_of(case: Case, *, filled: bool = True) -> tuple[Any, Any]:
    """The array and its mask, or None, as tensors of PyTorch."""
    import torch

    dtype = getattr(torch, case.dtype)
    room = case.span + case.offset
    if not filled:
        base = torch.empty(room, dtype=dtype, device="cuda")
    else:
        source = torch.Generator(device="cuda").manual_seed(case.seed)
        count = min(room, PATTERN)
        if case.dtype not in FLOATS:
            most = 2 if case.function in ("any", "all") or case.dtype == "bool" else 100
            pattern = torch.randint(0, most, (count,), generator=source, device="cuda").to(dtype)
        else:
            pattern = torch.randn(count, generator=source, device="cuda")
            if case.function == "prod":
                pattern = 1 + pattern / 64  # products neither vanish nor overflow soon
            if case.function.startswith("nan"):
                pattern[::17] = math.nan
            pattern = pattern.to(dtype)
        base = pattern.repeat(-(-room // count))[:room] if room > count else pattern
    array = torch.as_strided(base, case.shape, case.strides, case.offset)
    mask = None
    if case.masked:
        mask = torch.empty(case.shape, dtype=torch.bool, device="cuda")
        if filled:
            mask.copy_(torch.rand(case.shape, device="cuda") < 0.7)
    return array, mask


def our_calls(case: Case, array: Any, mask: Any) -> dict[str, Callable[[], Any]]:
    """The call with the default kernel, and with "fast" where that is another one."""
    function = getattr(gr, case.function)
    options: dict[str, Any] = {"axis": case.axis, "keepdims": case.keepdims}
    if mask is not None:
        options["where"] = mask
        if case.function in WITH_INITIAL:
            options["initial"] = 0
    calls = {"auto": lambda: function(array, **options)}
    name = case.function.removeprefix("nan")
    if name in ("sum", "mean") and _core.choose_kernel("auto", name, case.dtype) != "fast":
        calls["fast"] = lambda: function(array, kernel="fast", **options)
    return calls


NEUTRAL = {"prod": 1, "all": 1}  # put where the mask is false by other libraries; else 0


def torch_call(case: Case, array: Any, mask: Any) -> Callable[[], Any] | None:
    import torch

    names = {"max": "amax", "min": "amin"}
    name = names.get(case.function, case.function)
    if case.function in ("ptp", "nanmax") or (case.function == "mean" and mask is not None):
        return None
    options: dict[str, Any] = {} if case.axis is None else {"dim": case.axis}
    if case.keepdims and case.axis is not None and case.function != "count_nonzero":
        options["keepdim"] = True
    if case.function in ("var", "std"):
        options["correction"] = 0
    if case.function == "prod" and isinstance(case.axis, tuple):
        return None
    function = getattr(torch, name)
    if mask is None:
        return lambda: function(array, **options)
    neutral = torch.tensor(NEUTRAL.get(case.function, 0), dtype=array.dtype, device="cuda")
    return lambda: function(torch.where(mask, array, neutral), **options)


def cupy_call(case: Case, array: Any, mask: Any) -> Callable[[], Any] | None:
    try:
        import cupy
    except ImportError:
        return None
    # The variance of all elements takes CuPy a thousand times as long as others.
    if case.function in ("var", "std") and case.axis is None and case.bytes > 10**7:
        return None
    if case.function == "mean" and mask is not None:
        return None
    function = getattr(cupy, case.function)
    options = {"axis": case.axis, "keepdims": case.keepdims}
    if case.function == "count_nonzero":
        del options["keepdims"]
    try:
        view = cupy.from_dlpack(array.detach())
        kept = None if mask is None else cupy.from_dlpack(mask)
    except Exception:  # it has no such dtype
        return None
    if kept is None:
        return lambda: function(view, **options)
    neutral = view.dtype.type(NEUTRAL.get(case.function, 0))
    return lambda: function(cupy.where(kept, view, neutral), **options)


# ------------------------------------------------------------------ answers


def tolerance(case: Case, row: int) -> float:
    """Relative error that is right: of rounding to the result, and of the reference itself."""
    if case.dtype not in FLOATS:
        return 1e-9
    epsilon = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
    own = epsilon[case.dtype]
    if case.function == "prod":  # every product is rounded
        own += math.sqrt(row) * (2.0**-52 if case.dtype == "float64" else 2.0**-23)
    return 4 * own + 1e-12


def is_right(case: Case, got: Any, array: Any, mask: Any) -> bool:
    """Whether a result of ours is PyTorch's in float64 or int64."""
    import torch

    got = torch.as_tensor(got, device="cuda")
    axes = tuple(range(len(case.shape))) if case.axis is None else case.axis
    row = case.elements // max(got.numel(), 1)
    if case.function == "argmax":
        axis = 0 if case.axis is None else case.axis
        flat = array.reshape(-1) if case.axis is None else array
        places = torch.arange(flat.shape[axis], device="cuda", dtype=torch.int32)
        places = places.reshape([-1 if i == axis else 1 for i in range(flat.dim())])
        is_best = flat == torch.amax(flat, dim=axis, keepdim=True)
        first = torch.where(is_best, places, flat.shape[axis]).amin(dim=axis)
        return bool((first.reshape(-1) == got.reshape(-1)).all())
    wide = array.to(torch.float64 if case.dtype in FLOATS else torch.int64)
    scale = None
    counted = torch.ones_like(wide, dtype=torch.bool) if mask is None else mask
    neutral = NEUTRAL.get(case.function, 0)
    if mask is not None:
        wide = torch.where(mask, wide, neutral)
    if case.function.startswith("nan"):
        counted = counted & ~wide.isnan()
        wide = torch.where(wide.isnan(), -math.inf if case.function == "nanmax" else 0, wide)
    function = case.function.removeprefix("nan")
    if function in ("sum", "mean"):
        wanted = wide.sum(dim=axes)
        scale = wide.abs().sum(dim=axes)
        if function == "mean":
            wanted = wanted.to(torch.float64) / counted.sum(dim=axes)
            scale = scale.to(torch.float64) / counted.sum(dim=axes)
    elif function in ("max", "min"):
        wanted = getattr(torch, "a" + function)(wide, dim=axes)
        if mask is not None:  # our calls start at 0, also where the mask leaves nothing out
            wanted = getattr(torch, function + "imum")(wanted, torch.zeros_like(wanted))
        if case.function == "nanmax" and mask is None:  # else the initial value is there
            wanted = torch.where(counted.any(dim=axes), wanted, math.nan)
    elif function == "ptp":
        wanted = torch.amax(wide, dim=axes) - torch.amin(wide, dim=axes)
        scale = wanted.abs() + torch.amax(wide, dim=axes).abs()
    elif function in ("var", "std"):
        wanted = getattr(torch, function)(wide.to(torch.float64), dim=axes, correction=0)
    elif function in ("any", "all"):
        wanted = getattr(torch, function)(wide != 0, dim=axes)
    elif function == "count_nonzero":
        wanted = (wide != 0).sum(dim=axes)
    elif function == "prod":
        wanted = wide
        for axis in sorted((axes,) if isinstance(axes, int) else axes, reverse=True):
            wanted = wanted.prod(dim=axis)
    got, wanted = got.reshape(-1), wanted.reshape(-1)
    if case.dtype in FLOATS or wanted.is_floating_point():
        dtype = getattr(torch, case.dtype) if case.dtype in FLOATS else torch.float64
        wanted = wanted.to(dtype)
        got, wanted = got.to(torch.float64), wanted.to(torch.float64)
        # Subnormal numbers have the last place of the smallest normal one.
        bound = tolerance(case, row) * wanted.abs().clamp(min=torch.finfo(dtype).smallest_normal)
        if scale is not None:
            sloppy = 1e-13 if case.dtype == "float64" else 1e-7
            bound = bound + sloppy * scale.to(torch.float64).reshape(-1)
        close = (got - wanted).abs() <= bound
        return bool((close | (got == wanted) | (got.isnan() & wanted.isnan())).all())
    return bool((got.to(torch.int64) == wanted.to(torch.int64)).all())


# ------------------------------------------------------------------ times


def time_in_turns(calls: dict[str, Any], nbytes: int, flush: Any) -> dict[str, Any]:
    """Samples in microseconds of each call, or why it has none."""
    import torch

    found: dict[str, Any] = {}
    expected: dict[str, float] = {}
    for name, call in calls.items():
        try:
            for _ in range(2):
                start = time.perf_counter()
                call()
                torch.cuda.synchronize()
                expected[name] = time.perf_counter() - start
            found[name] = []
        except Exception as error:  # libraries raise various exceptions for cases that they lack
            found[name] = f"{type(error).__name__}: {str(error)[:120]}"
    for turn in range(SAMPLES_OF_SHORT if nbytes < SHORT else SAMPLES):
        for name, samples in found.items():
            if isinstance(samples, str) or (expected[name] > SLOW and turn >= SLOW_SAMPLES):
                continue
            if nbytes < IN_CACHE:
                flush.zero_()
            start_event, stop_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(BUSY_CYCLES)
            start_event.record()
            calls[name]()
            stop_event.record()
            stop_event.synchronize()
            samples.append(round(1e3 * start_event.elapsed_time(stop_event), 2))
    return found


def measure_case(case: Case, flush: Any) -> dict[str, Any]:
    import torch

    array, mask = arrays_of(case)
    calls = our_calls(case, array, mask)
    right: bool | str
    try:
        # The default kernel comes last: last_run() is of its call.
        right = all(is_right(case, call(), array, mask) for call in reversed(calls.values()))
    except Exception as error:
        right = f"{type(error).__name__}: {str(error)[:200]}"
    variant, grid = gr.last_run().variant, gr.last_run().grid_size
    torch.cuda.empty_cache()
    peers = {"cupy": cupy_call(case, array, mask), "torch": torch_call(case, array, mask)}
    calls.update({name: call for name, call in peers.items() if call is not None})
    times = time_in_turns(calls, case.bytes, flush)
    return {
        **asdict(case),
        "bytes": case.bytes,
        "right": right,
        "variant": variant,
        "grid": grid,
        "microseconds": {name: each for name, each in times.items() if not isinstance(each, str)},
        "absent": {name: each for name, each in times.items() if isinstance(each, str)},
    }


def read_ceiling() -> float:
    """Bytes per second of the fastest of three ways to read a large array."""
    import torch

    array = torch.randint(0, 100, (CEILING_BYTES // 4,), dtype=torch.int32, device="cuda")
    calls = {
        "max": lambda: gr.max(array),
        "sum": lambda: gr.sum(array),
        "amax": lambda: torch.amax(array),
    }
    times = time_in_turns(calls, array.nbytes, None)
    return CEILING_BYTES / (1e-6 * min(statistics.median(each) for each in times.values()))


def warm_cache(cases: list[Case], jobs: int) -> None:
    """Compile the cases' programs in `jobs` processes at a time, for the disk cache."""
    import torch

    if jobs == 0:
        return
    text = json.dumps([asdict(case) for case in cases])
    command = [sys.executable, __file__, "--compile"]
    workers = []
    for rank in range(jobs):
        worker = subprocess.Popen([*command, f"{rank}/{jobs}"], stdin=subprocess.PIPE, text=True)
        workers.append(worker)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(text)
        worker.stdin.close()
    for worker in workers:
        worker.wait()
    torch.cuda.empty_cache()


def compile_share(share: str) -> None:
    """The process of `warm_cache`: makes our calls of its share of the cases that it is given."""
    import torch

    rank, jobs = map(int, share.split("/"))
    for row in json.load(sys.stdin)[rank::jobs]:
        row |= {name: tuple(row[name]) for name in ("shape", "strides")}
        if isinstance(row["axis"], list):
            row["axis"] = tuple(row["axis"])
        case = Case(**row)
        for call in our_calls(case, *arrays_of(case, filled=False)).values():
            call()
        torch.cuda.empty_cache()


# ------------------------------------------------------------------ results


def ratio(row: dict[str, Any], name: str = "auto") -> float | None:
    """The best peer's median time over ours of kernel `name`; above 1 we are faster."""
    times = row["microseconds"]
    peers = [statistics.median(times[peer]) for peer in ("cupy", "torch") if times.get(peer)]
    if not peers or not times.get(name):
        return None
    return float(min(peers) / statistics.median(times[name]))


def describe(row: dict[str, Any]) -> str:
    words = [row["function"], row["dtype"], str(tuple(row["shape"])), f"axis {row['axis']}"]
    words += [row["layout"]] if row["layout"] != "C" else []
    words += ["where"] if row["masked"] else []
    return " ".join(words)


def print_summary(result: dict[str, Any]) -> None:
    rows = result["rows"]
    compared = [(found, row) for row in rows if (found := ratio(row)) is not None]
    ratios = np.array([found for found, _ in compared])
    wrong = [row for row in rows if row["right"] is not True]
    print(
        f"{result['environment']['device']['name']}, {result['size']}, seed {result['seed']}: "
        f"{len(rows)} cases, {len(wrong)} not right; of {len(ratios)} with a peer >= 1: "
        f"{(ratios >= 1).mean():.3f}, >= 0.95: {(ratios >= 0.95).mean():.3f}, geometric mean "
        f"{np.exp(np.log(ratios).mean()):.2f}; ceiling {result['ceiling'] / 1e9:.0f} GB/s"
    )
    for row in wrong[:10]:
        print("  not right:", describe(row), row["right"])
    for found, row in sorted(compared, key=lambda each: each[0]):
        if found >= 0.95:
            break
        times = {name: statistics.median(each) for name, each in row["microseconds"].items()}
        print(f"  {found:.2f} {describe(row)} {row['variant']} {row['grid']} {times}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", choices=[*SIZES, []], help="default: both")
    parser.add_argument("--cases", type=int, default=300, help="of each size")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each size, at most")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--jobs", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder for the files")
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile is not None:
        compile_share(options.compile)
        return
    import torch

    label = gr.devices()[0].name.lower().replace(" ", "-")
    flush = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    options.output.mkdir(parents=True, exist_ok=True)
    ceiling = read_ceiling()
    for size in options.sizes or SIZES:
        cases = draw_cases(options.seed, size, options.cases)
        warm_cache(cases, options.jobs)
        rows: list[dict[str, Any]] = []
        start = time.perf_counter()
        for case in cases:
            if time.perf_counter() - start > options.seconds:
                break
            rows.append(measure_case(case, flush))
            torch.cuda.empty_cache()
        result = {
            "part": f"sweep_{size}",
            "size": size,
            "seed": options.seed,
            "environment": environment(),
            "ceiling": ceiling,
            "rows": rows,
        }
        path = options.output / f"sweep_{size}-{label}.json"
        head = json.dumps({name: each for name, each in result.items() if name != "rows"}, indent=1)
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        path.write_text(f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")
        print_summary(result)


if __name__ == "__main__":
    main()
