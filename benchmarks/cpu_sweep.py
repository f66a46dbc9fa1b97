"""Draw random reductions, measure the CPU backend beside NumPy, and write the result to a file.

    python benchmarks/cpu_sweep.py                      # ten minutes, a fresh seed
    python benchmarks/cpu_sweep.py --seconds 120 --seed 7 --largest 1e7
    python benchmarks/cpu_sweep.py --threads 1 --functions var,std --dtypes float32
    python benchmarks/cpu_sweep.py --functions norm,average  # beside numpy.linalg.norm
    python benchmarks/cpu_sweep.py --threads 1 --processes 4  # a core and a seed each
    GPUREDUCE_CPU_ISA=avx2 NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" \
        python benchmarks/cpu_sweep.py  # or baseline, and X86_V3 disabled, too

A *case* is a function with a dtype, a shape, axes, a layout in memory, and perhaps a mask, or an
array for its results. Cases are drawn until the time is used up, or until there are enough; the
seed repeats their order. Every library that has the function (NumPy always; PyTorch on the CPU,
Bottleneck and numexpr where they can be imported) is measured in turns with gpureduce, so that a
drift of the machine's clocks meets all. A sample is the mean of as many calls as fill 100
microseconds; a case's figure is the median of NumPy's time over ours, sample by sample. Threads of
OpenBLAS, which NumPy's norms call, look for more work for 2^26 ticks of the processor's clock, 20
milliseconds, on a processor that the call after it needs: here it is 2^16 ticks, and NumPy's own
calls in a row take no longer. Where the quartiles of these ratios enclose 1, more samples are
taken. In the end the cases below AGAIN_BELOW, on either side of 1, are measured twice more, in
another order: what else a machine did for a while does not come back there, and a figure is the
median of all samples.

How many bytes a second the machine reads from memory is measured first and last, by as many threads
that each look for the largest number of their own part of an array beyond the caches, with NumPy.
Cases that read as much have a share of it.

With one thread a sample is the time that the processor spent on it: what other programs take then
is not in it. Then several processes can draw cases at once, from seeds that follow each other.

GPUREDUCE_CPU_ISA narrows the instruction set of gpureduce alone. NPY_DISABLE_CPU_FEATURES makes
NumPy what it is on such a machine; the file has the features that are left.

Every answer is compared with NumPy's, sums with NumPy's of wider numbers. The file has the
environment, the raw samples in microseconds, and the worst cases; `report.py` makes tables of it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import importlib
import json
import math
import os
import pathlib
import random
import secrets
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")  # read when NumPy is imported

import numpy as np

import gpureduce as gr
from gpureduce import _core
from gpureduce._bench.environment import environment
from gpureduce._dtypes import native_dtype

RESULTS = pathlib.Path(__file__).parent / "results"

SUMS = ("sum", "mean", "nansum", "nanmean")
FUNCTIONS = (
    *SUMS, "sum", "mean", "prod", "nanprod", "max", "min", "ptp", "nanmax", "nanmin", "argmax",
    "argmin", "nanargmax", "nanargmin", "var", "var", "std", "nanvar", "nanstd", "any", "all",
    "count_nonzero",
)  # fmt: skip
OF_PRODUCTS = ("norm", "average")
"""Exact sums of products, which take no kernel: drawn where --functions names them."""
ORDERS = ("", "", "", "1", "1", "inf", "-inf", "0", "3")
WEIGHTS = ("", "", "equal weights", "weights of few bits")
DTYPES = (
    "float32", "float32", "float32", "float64", "float64", "float16", "bfloat16", "complex64",
    "complex128", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "datetime64[s]", "timedelta64[us]",
)  # fmt: skip
OF_DATES = ("max", "min", "argmax", "argmin", "nanmax", "nanmin")
OF_TIMES = (*OF_DATES, "sum", "nansum")
LAYOUTS = ("C", "C", "C", "C", "C", "F", "permuted", "strided", "reversed", "swapped", "broadcast")
NOT_OF_BOOL = ("ptp",)
WITHOUT_MASK = (
    "argmax", "argmin", "nanargmax", "nanargmin", "count_nonzero", "ptp", *OF_PRODUCTS,
)  # fmt: skip
WITHOUT_OUT = ("count_nonzero", *OF_PRODUCTS)
WITH_START = ("sum", "nansum", "prod", "nanprod", "max", "min", "nanmax", "nanmin")
ROUNDED = (
    "mean", "nanmean", "var", "std", "nanvar", "nanstd", "prod", "nanprod", "sum", "nansum",
    *OF_PRODUCTS,
)  # fmt: skip
POOL_ELEMENTS = 1 << 20
START = 3

SHORTEST_SAMPLE = 100e-6  # seconds
ROUNDS, MOST_ROUNDS, FEWEST_ROUNDS = 7, 21, 3
CASE_SECONDS = 1.5  # after which a case has as many samples as it gets
AGAIN_BELOW, AGAIN = 1.1, 2
WORST = 40

clock = time.perf_counter
"""What measures samples: of one thread the processor's time, in which others do not count."""

BEYOND_CACHES = 3  # times the last cache
PROBED_BYTES, PROBES = 256 << 20, 9


@dataclass(frozen=True, slots=True)
class Case:
    """A function's call: what is reduced, how, and by which kernel."""

    function: str
    dtype: str
    shape: tuple[int, ...]
    axis: int | tuple[int, ...] | None
    layout: str
    data: str
    masked: bool
    kernel: str
    into: bool = False
    """Whether results go to an array that was made before, by ``out``."""
    starts: bool = False
    """Whether results begin with a number, by ``initial``."""
    variant: str = ""
    """The order of a norm that is not the root of squares; what is special about weights."""

    @property
    def reduced(self) -> str:
        """Where the reduced axes are."""
        last = len(self.shape) - 1
        if self.axis is None or last == 0:
            return "all axes"
        if isinstance(self.axis, tuple):
            return "several axes"
        return {0: "first axis", last: "last axis"}.get(self.axis, "middle axis")


@dataclass(slots=True)
class Contender:
    """A library's call, and the seconds that its samples took."""

    call: Callable[[], Any]
    samples: list[float] = field(default_factory=list)


# ------------------------------------------------------------------ drawing cases


def draw_shape(draw: random.Random, most: float) -> tuple[int, ...]:
    """Of any proportions, or with an axis that is short."""
    elements = math.exp(draw.uniform(math.log(10), math.log(most)))
    axes = draw.choice([1, 2, 2, 2, 3, 3, 4, 5])
    short = draw.choice([None, None, "first", "last", "any"]) if axes > 1 else None
    place = {"first": 0, "last": axes - 1, "any": draw.randrange(axes), None: -1}[short]
    shape = [0] * axes
    if place >= 0:
        shape[place] = draw.randint(2, 64) if draw.random() < 0.6 else draw.randint(2, 8)
        elements = max(1.0, elements / shape[place])
    free = [i for i in range(axes) if i != place]
    weights = [draw.random() + 0.05 for _ in free]
    for i, weight in zip(free, weights, strict=True):
        shape[i] = max(1, round(elements ** (weight / sum(weights))))
    return tuple(shape)


def draw_case(draw: random.Random, functions: list[str], dtypes: list[str], most: float) -> Case:
    while True:
        function, dtype = draw.choice(functions), draw.choice(dtypes)
        kind = dtype[0]
        if function in NOT_OF_BOOL and dtype == "bool":
            continue
        if function in OF_PRODUCTS and dtype == "bfloat16":
            continue  # NumPy's norms and averages are of float64 then
        is_time = dtype.endswith("]")
        if is_time and function not in (OF_DATES if kind == "d" else OF_TIMES):
            continue
        # NumPy's nan functions take bfloat16 for a type without NaN and leave nothing out.
        if function.startswith("nan") and dtype == "bfloat16":
            continue
        shape = draw_shape(draw, most)
        axes = len(shape)
        axis: int | tuple[int, ...] | None = None
        if axes > 1 and draw.random() < 0.8:
            axis = draw.randrange(axes)
            if axes > 2 and draw.random() < 0.2 and not function.endswith(("argmax", "argmin")):
                axis = tuple(sorted(draw.sample(range(axes), 2)))
        layout = draw.choice(LAYOUTS)
        if layout == "swapped" and dtype in ("bool", "int8", "uint8", "bfloat16"):
            layout = "C"  # of one byte, or a type that has no other order
        floats = kind in "fc" or dtype == "bfloat16"
        data = "normal"
        if dtype == "bool":
            data = draw.choice(["mixed", "false", "true"])
        elif (floats or is_time) and draw.random() < (0.5 if function.startswith("nan") else 0.1):
            data = "with nan"
        masked = function not in WITHOUT_MASK and not is_time and draw.random() < 0.12
        sums_exactly = function in SUMS and kind != "c" and not is_time
        kernels = ["exact", "fast"] if floats else ["exact", "fast", "fast", "fast"]
        kernel = draw.choice(kernels) if sums_exactly else "fast"
        if function in OF_PRODUCTS:
            kernel = "exact"
        into = function not in WITHOUT_OUT and draw.random() < 0.1
        starts = function in WITH_START and not is_time and draw.random() < 0.1
        variant = ""
        if function == "average":
            variant = draw.choice(WEIGHTS)
        elif function == "norm" and (axes == 1 or isinstance(axis, int)):
            variant = draw.choice(ORDERS)
        return Case(
            function, dtype, shape, axis, layout, data, masked, kernel, into, starts, variant
        )  # fmt: skip


@functools.cache
def pool(dtype: str, data: str, near_one: bool) -> np.ndarray:
    """Random elements that arrays are made of."""
    random_numbers = np.random.default_rng(20)
    if data in ("false", "true"):
        return np.full(POOL_ELEMENTS, data == "true")
    values = random_numbers.standard_normal(POOL_ELEMENTS)
    if dtype == "bool":
        return values > 0
    if dtype.startswith("complex"):
        values = values + 1j * random_numbers.standard_normal(POOL_ELEMENTS)
    if near_one and not dtype.startswith(("int", "uint")):
        values = 1 + 1e-3 * values  # products of many stay numbers
    else:
        values = values * 50
    if dtype.startswith("uint"):
        values = np.abs(values)
    missing = (data == "with nan") & (random_numbers.random(POOL_ELEMENTS) < 1e-3)
    if dtype.endswith("]"):
        times = values.astype(np.int64).astype(dtype)
        times[missing] = "NaT"
        return times
    values[missing] = np.nan
    return values.astype(native_dtype(dtype))


def make_array(case: Case, draw: random.Random) -> tuple[np.ndarray, np.ndarray | None]:
    """The array of a case in its layout, and its mask."""
    shape = list(case.shape)
    order = list(range(len(shape)))
    at = draw.randrange(len(shape))
    if case.layout == "F":
        order.reverse()
    elif case.layout == "permuted":
        draw.shuffle(order)
    elif case.layout == "strided":
        shape[at] *= 2
    elif case.layout == "broadcast":
        shape[at] = 1
    memory_shape = [shape[i] for i in order]
    source = pool(case.dtype, case.data, "prod" in case.function)
    start = draw.randrange(POOL_ELEMENTS)
    values = np.resize(np.roll(source, start), math.prod(memory_shape)).reshape(memory_shape)
    array = values.transpose(np.argsort(order))
    if case.layout in ("strided", "reversed"):
        step = 2 if case.layout == "strided" else -1
        array = array[tuple(slice(None, None, step if i == at else 1) for i in range(len(shape)))]
    elif case.layout == "swapped":
        array = array.astype(array.dtype.newbyteorder())
    elif case.layout == "broadcast":
        array = np.broadcast_to(array, case.shape)
    mask = None
    if case.masked:
        # from another place: the mask of an element must not depend on the element
        start = draw.randrange(POOL_ELEMENTS)
        mask = np.resize(np.roll(pool("bool", "mixed", False), start), array.size)
        mask = mask.reshape(array.shape)
    return array, mask


# ------------------------------------------------------------------ libraries


def options_of(case: Case, mask: np.ndarray | None) -> dict[str, Any]:
    """Arguments that NumPy and gpureduce share."""
    options: dict[str, Any] = {"axis": case.axis}
    needs_start = case.function in ("max", "min", "nanmax", "nanmin")
    if mask is not None:
        options["where"] = mask
    if case.starts or (mask is not None and needs_start):
        options["initial"] = START
    if case.function == "average":
        options["weights"] = weights_of(case)
    elif case.variant:
        options["ord"] = float(case.variant)
    return options


def weights_of(case: Case) -> np.ndarray:
    """Positive weights along the axis, or of all elements."""
    dtype = "float32" if case.dtype in ("float16", "float32", "complex64") else "float64"
    extents = (case.shape[case.axis],) if isinstance(case.axis, int) else case.shape
    numbers = 0.5 + np.abs(pool("float64", "normal", False))
    if case.variant == "equal weights":
        numbers = numbers[:1]
    elif case.variant:
        numbers = np.ceil(numbers / 16)
    return np.resize(numbers, math.prod(extents)).reshape(extents).astype(dtype)


def numpys(function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(np.linalg if function == "norm" else np, function)
    return found


def torch_call(
    torch: Any, case: Case, array: np.ndarray, mask: np.ndarray | None
) -> Callable[[], Any] | None:
    names = {"max": "amax", "min": "amin", "var": "var", "std": "std"}
    supported = ("sum", "mean", "prod", "argmax", "argmin", "any", "all", "count_nonzero", "nansum")
    name = names.get(case.function, case.function if case.function in supported else None)
    if name is None or mask is not None or array.dtype.kind == "V" or min(array.strides) < 0:
        return None
    values = torch.from_numpy(array)
    every = tuple(range(array.ndim))
    axis = every if case.axis is None and name not in ("argmax", "argmin", "prod") else case.axis
    if case.function in ("var", "std"):
        return lambda: getattr(torch, name)(values, dim=axis, correction=0)
    if axis is None:
        return lambda: getattr(torch, name)(values)
    return lambda: getattr(torch, name)(values, dim=axis)


def bottleneck_call(
    bottleneck: Any, case: Case, array: np.ndarray, mask: np.ndarray | None
) -> Callable[[], Any] | None:
    function = getattr(bottleneck, case.function, None)
    fast = array.dtype.isnative and array.dtype.name in ("float32", "float64", "int32", "int64")
    if function is None or mask is not None or isinstance(case.axis, tuple) or not fast:
        return None
    return lambda: function(array, axis=case.axis)


def numexpr_call(
    numexpr: Any, case: Case, array: np.ndarray, mask: np.ndarray | None
) -> Callable[[], Any] | None:
    known = array.dtype.name in ("float32", "float64", "int32", "int64", "complex128")
    if case.function not in ("sum", "prod", "min", "max") or mask is not None or not known:
        return None
    if isinstance(case.axis, tuple):
        return None
    axis = "" if case.axis is None else f", axis={case.axis}"
    text = f"{case.function}(a{axis})"
    return lambda: numexpr.evaluate(text, local_dict={"a": array})


PEERS: dict[str, Callable[..., Callable[[], Any] | None]] = {
    "torch": torch_call,
    "bottleneck": bottleneck_call,
    "numexpr": numexpr_call,
}


LEAST_NUMEXPR = (2, 12)
"""Those up to 2.10 corrupt the heap in reductions along an axis of elements with gaps or steps."""


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def importable() -> dict[str, Any]:
    modules = {}
    for name in PEERS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if name == "numexpr" and release(module.__version__) < LEAST_NUMEXPR:
            print(f"numexpr {module.__version__} is left out: it writes beyond its memory")
            continue
        modules[name] = module
    return modules


def limit_threads(threads: int, modules: dict[str, Any]) -> None:
    """The same number of threads for every library that has threads."""
    gr.set_limits(cpu_threads=threads)
    if "torch" in modules:
        modules["torch"].set_num_threads(threads)
    if "numexpr" in modules:
        modules["numexpr"].set_num_threads(threads)


# ------------------------------------------------------------------ right answers


def is_right(
    case: Case, array: np.ndarray, mask: np.ndarray | None, ours: Any, theirs: Any
) -> bool:
    """Whether our result is NumPy's: exactly, or within the error of results that are rounded."""
    if case.dtype == "bfloat16":  # whose NaN NumPy's nan functions do not know
        theirs = numpys(case.function)(array.astype(np.float32), **options_of(case, mask))
    got = np.asarray(ours)
    wanted = np.asarray(theirs).astype(got.dtype)
    if got.shape != wanted.shape:
        return False
    inexact = got.dtype.kind not in "biumM"
    if case.function not in ROUNDED or not inexact:
        equal = got == wanted
        if got.dtype.kind not in "biu":
            equal |= (got != got) & (wanted != wanted)
        return bool(np.all(equal))
    is_complex = array.dtype.kind == "c"
    wide: Any = np.complex128 if is_complex else np.float64
    options = options_of(case, mask)
    # Numbers as NumPy reads them, computed with in double precision.
    values = array.astype(wide)
    if case.function in ("prod", "nanprod"):  # and in a range that products on the way stay in
        wide = np.clongdouble if is_complex else np.longdouble
        values = values.astype(wide)
    reference = np.asarray(numpys(case.function)(values, **options))
    with np.errstate(all="ignore"):
        size = np.asarray(np.nanmax(np.abs(values), initial=0))
        narrow = np.float16 if got.dtype.name == "float16" else np.float32
        is_double = got.dtype.name in ("float64", "complex128")
        limits = np.finfo(np.float64 if is_double else narrow)
        bits = 8 if got.dtype.name == "bfloat16" else 11 if got.dtype.itemsize == 2 else 24
        steps = 2.0 ** (4 - (bits if got.dtype.itemsize < 8 else 24))
        count = array.size / max(1, got.size)
        if case.function in ("sum", "nansum"):
            size = size * count * 2.0**-20
        elif case.function in ("mean", "nanmean"):
            size = size * 2.0**-20
        elif case.function in ("prod", "nanprod"):
            size = limits.tiny  # which a product may have passed on its way to nothing
            steps *= math.sqrt(count) if count < 1e8 else math.inf
        else:
            size = (size * size if "var" in case.function else size) * 2.0**-20
        got, reference = got.astype(wide), reference.astype(wide)
        largest = np.abs(reference) + (START if case.starts else 0)  # also before the start
        near = np.abs(got - reference) <= steps * largest + size
        near |= (got != got) & (reference != reference)
        near |= np.isinf(got) & (np.abs(reference) >= limits.max)
        near |= (got != got) & (np.abs(reference) >= limits.max)
    return bool(np.all(near))


# ------------------------------------------------------------------ measuring


def time_of(call: Callable[[], Any], calls: int) -> float:
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def ratios(theirs: list[float], ours: list[float]) -> np.ndarray:
    return np.array(theirs) / np.array(ours)


def measure(contenders: dict[str, Contender]) -> None:
    """Samples of every contender, in turns."""
    began = time.perf_counter()
    shortest = min(time_of(contender.call, 1) for contender in contenders.values())
    calls = max(1, min(2000, round(SHORTEST_SAMPLE / max(shortest, 1e-7))))
    wanted = ROUNDS
    done = 0
    while done < wanted:
        for contender in contenders.values():
            contender.samples.append(time_of(contender.call, calls))
        done += 1
        if done >= FEWEST_ROUNDS and time.perf_counter() - began > CASE_SECONDS:
            break
        if done == wanted and wanted < MOST_ROUNDS:
            over = ratios(contenders["numpy"].samples, contenders["gpureduce"].samples)
            low, high = np.percentile(over, [25, 75])
            if low < 1.05 and high > 0.95:
                wanted = MOST_ROUNDS


def reads_all(case: Case) -> bool:
    """Whether a call reads every byte of the memory that its array is in, and no other."""
    stops_early = case.function in ("any", "all") or (
        "arg" in case.function and (case.dtype == "bool" or case.data == "with nan")
    )
    is_whole = case.layout not in ("strided", "broadcast")
    return is_whole and not case.masked and not stops_early


def run_case(case: Case, draw: random.Random, modules: dict[str, Any]) -> dict[str, Any] | None:
    """The case's row; None where NumPy does not have the call."""
    array, mask = make_array(case, draw)
    options = options_of(case, mask)
    kernel = {} if case.function in OF_PRODUCTS else {"kernel": case.kernel}
    ours = functools.partial(getattr(gr, case.function), array, device="cpu", **kernel, **options)
    theirs = functools.partial(numpys(case.function), array, **options)
    try:
        wanted = theirs()
    except (TypeError, ValueError):
        return None  # a dtype that NumPy's function does not take, or a row of nothing but NaN
    found = ours()
    right = is_right(case, array, mask, found, wanted)
    if case.into:
        room, numpys_room = (np.empty_like(np.asarray(one)) for one in (found, wanted))
        ours = functools.partial(ours, out=room)
        theirs = functools.partial(theirs, out=numpys_room)
        right = right and ours() is room and np.array_equal(room, found, equal_nan=True)
        theirs()
    contenders = {"gpureduce": Contender(ours), "numpy": Contender(theirs)}
    for name, module in () if case.into or case.starts else modules.items():
        try:
            call = PEERS[name](module, case, array, mask)
            if call is not None:
                call()
        except Exception:  # libraries raise any exception for a dtype that they lack
            continue
        if call is not None:
            contenders[name] = Contender(call)
    measure(contenders)
    row = {
        "function": case.function, "kernel": case.kernel, "dtype": case.dtype,
        "shape": list(case.shape), "axis": case.axis, "reduced": case.reduced,
        "layout": case.layout, "data": case.data, "masked": case.masked, "into": case.into,
        "starts": case.starts, "variant": case.variant,
        "bytes": array.nbytes, "reads_all": reads_all(case), "right": right, "microseconds": {},
    }  # fmt: skip
    add_samples(row, {name: contender.samples for name, contender in contenders.items()})
    return row


def add_samples(row: dict[str, Any], seconds: dict[str, list[float]]) -> None:
    """Add samples to a case's, and summarize all of them."""
    microseconds = row["microseconds"]
    for name, times in seconds.items():
        microseconds.setdefault(name, []).extend(float(f"{1e6 * x:.4g}") for x in times)
    over = ratios(microseconds["numpy"], microseconds["gpureduce"])
    row["times_numpy"] = round(float(np.median(over)), 3)
    row["quartiles"] = [round(float(x), 3) for x in np.percentile(over, [25, 75])]


def describe(row: dict[str, Any]) -> str:
    ours, theirs = (np.median(row["microseconds"][name]) for name in ("gpureduce", "numpy"))
    given = {"where=": row["masked"], "initial=": row["starts"], "out=": row["into"]}
    notes = [row["layout"], row["data"], *(name for name, is_given in given.items() if is_given)]
    return (
        f"{row['times_numpy']:6.2f}  {ours:9.1f} / {theirs:9.1f} µs  {row['function']}"
        f"{' exact' if row['kernel'] == 'exact' else ''} {row['dtype']} {tuple(row['shape'])} "
        f"axis {row['axis']}  {', '.join(notes)}{'' if row['right'] else '  WRONG'}"
    )


def run_quietly(case: Case, seed: float, modules: dict[str, Any]) -> dict[str, Any] | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return run_case(case, random.Random(seed), modules)


def sweep(options: argparse.Namespace, modules: dict[str, Any]) -> list[dict[str, Any]]:
    draw = random.Random(options.seed)
    drawn: list[tuple[Case, float, dict[str, Any]]] = []
    end = time.monotonic() + options.seconds
    while time.monotonic() < end and len(drawn) < options.cases:
        case = draw_case(draw, options.functions, options.dtypes, options.largest)
        # per case: the next case does not depend on how many numbers this one draws
        seed = draw.random()
        row = run_quietly(case, seed, modules)
        if row is not None:
            drawn.append((case, seed, row))
    near = [one for one in drawn if one[2]["times_numpy"] < AGAIN_BELOW]
    for _ in range(AGAIN):
        draw.shuffle(near)
        for case, seed, row in near:
            again = run_quietly(case, seed, modules)
            if again is not None:
                add_samples(
                    row, {k: [x / 1e6 for x in v] for k, v in again["microseconds"].items()}
                )
    return [row for _, _, row in drawn]


# ------------------------------------------------------------------ the memory


def last_cache_bytes() -> int:
    """Bytes of the largest cache that the system knows of."""
    sizes = [
        int(path.read_text().strip().removesuffix("K")) * 1024
        for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    return max(sizes, default=32 << 20)


def read_bandwidth(threads: int) -> float:
    """Gigabytes a second that threads of NumPy's read, each a part of an array."""
    parts = np.split(np.ones(PROBED_BYTES // 8 // threads * threads), threads)
    times = []
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for _ in range(PROBES):
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            times.append(time.perf_counter() - start)
    return PROBED_BYTES / min(times) / 1e9


def write(path: pathlib.Path, result: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """One line per case: thousands of lists of samples would be a long file otherwise."""
    head = json.dumps(result, indent=1)[:-2]
    cases = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "cases": [\n  {cases}\n ]\n}}\n', encoding="utf-8")


def numpy_features() -> list[str]:
    """The instruction sets that NumPy chooses loops by and has on this machine."""
    umath = importlib.import_module("numpy._core._multiarray_umath")
    return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    over = np.array([row["times_numpy"] for row in rows])
    worst = sorted(rows, key=lambda row: row["times_numpy"])[:WORST]
    return {
        "geometric_mean": float(np.exp(np.log(over).mean())),
        "not_slower": float((over >= 1).mean()),
        "least": float(over.min()),
        "wrong": sum(not row["right"] for row in rows),
        "worst": [describe(row).strip() for row in worst],
    }


def sweep_by_processes(options: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The sweeps of several processes as one: each has a core of this one's, and its own seed."""
    cores = sorted(os.sched_getaffinity(0))[: options.processes]
    if len(cores) < options.processes:
        sys.exit(f"{options.processes} processes have {len(cores)} cores")
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / f"{core}.json" for core in cores]
        running = [
            subprocess.Popen(
                [
                    sys.executable, __file__, "--threads", "1", "--output", str(path),
                    "--seed", str(options.seed + i), "--seconds", str(options.seconds),
                    "--cases", str(options.cases), "--largest", str(options.largest),
                    "--functions", ",".join(options.functions),
                    "--dtypes", ",".join(options.dtypes), "--core", str(core),
                ],
                stdout=subprocess.DEVNULL,
            )
            for i, (core, path) in enumerate(zip(cores, paths, strict=True))
        ]  # fmt: skip
        for process in running:
            process.wait()
        if not all(path.exists() for path in paths):
            sys.exit("a process measured nothing")
        found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    rows = [row for one in found for row in one.pop("cases")]
    bandwidths = [x for one in found for x in one["read_gigabytes_per_second"]]
    return {**found[0], "read_gigabytes_per_second": bandwidths}, rows


def sweep_here(options: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The sweep of this process, and what it was measured with."""
    global clock
    modules = importable()
    limit_threads(options.threads, modules)
    if options.threads == 1:
        clock = time.thread_time
    bandwidths = [read_bandwidth(options.threads)]
    rows = sweep(options, modules)
    bandwidths.append(read_bandwidth(options.threads))
    if not rows:
        sys.exit("no case was measured: more --seconds")
    result = {
        "part": "cpu_sweep",
        "environment": environment(),
        "peers": {name: module.__version__ for name, module in modules.items()},
        "numpy_features": numpy_features(),
        "threads": options.threads,
        "clock": clock.__name__,
        "isa": _core.cpu_isa(),
        "seed": options.seed,
        "seconds": options.seconds,
        "largest": options.largest,
        "read_gigabytes_per_second": bandwidths,
        "beyond_caches": BEYOND_CACHES * last_cache_bytes(),
        "again_below": AGAIN_BELOW,
    }
    if options.functions != list(FUNCTIONS):
        result["functions"] = options.functions
    return result, rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = functools.partial(str.split, sep=",")
    parser.add_argument("--seconds", type=float, default=600, help="time to draw cases in")
    parser.add_argument("--cases", type=int, default=4000, help="most cases")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the cases")
    parser.add_argument("--threads", type=int, default=gr.limits().cpu_threads)
    parser.add_argument("--largest", type=float, default=1e8, help="most elements of a case")
    parser.add_argument("--functions", type=names, default=list(FUNCTIONS), help="of these alone")
    parser.add_argument("--dtypes", type=names, default=list(DTYPES), help="of these alone")
    parser.add_argument("--processes", type=int, default=1, help="of one thread, a core each")
    parser.add_argument("--core", type=int, help="run on this one alone")
    parser.add_argument("--output", type=pathlib.Path, help="the file; default: in results/")
    options = parser.parse_args()
    if options.processes > 1 and options.threads != 1:
        parser.error("several processes have one thread each: --threads 1")
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    began = time.perf_counter()
    if options.processes > 1:
        result, rows = sweep_by_processes(options)
    else:
        result, rows = sweep_here(options)
    result.update(processes=options.processes, **summary_of(rows))
    path = options.output or RESULTS / f"cpu_sweep-{_core.cpu_isa()}-{options.threads}.json"
    write(path, result, rows)
    worst = sorted(rows, key=lambda row: row["times_numpy"])[:WORST]
    for row in [*worst, *(row for row in rows if not row["right"])]:
        print(describe(row))
    print(
        f"{len(rows)} cases, seed {options.seed}, {options.threads} threads, {_core.cpu_isa()}: "
        f"geometric mean {result['geometric_mean']:.2f}, not slower {result['not_slower']:.3f}, "
        f"least {result['least']:.2f}, wrong {result['wrong']}\n"
        f"{path} ({time.perf_counter() - began:.0f} s)"
    )
    sys.exit(result["wrong"] > 0)


if __name__ == "__main__":
    main()
