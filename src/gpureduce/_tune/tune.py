"""Measure the costs of a GPU's plans: :func:`gpureduce.tune`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from .._one_pass import forget_plans
from .._records import devices
from .cells import Cell, draw_cells
from .fit import Costs, Fit, Times, fit_costs, likely_ways

__all__ = [
    "Tuning",
    "compile_ways",
    "measure_and_fit",
    "measure_ways",
    "ordinal_of",
    "price_of",
    "tune",
]

ARRAYS, LARGEST_BYTES = 40, 256 << 20
"""Defaults: arrays that are measured, and bytes of the largest."""
WAYS, WARMUP, REPEATS = 9, 2, 7
"""Ways of an array that are measured at most; untimed and timed runs of each."""
FLUSH_CACHES = 2
"""L2 caches' worth of memory that is written before each run."""
MOST_MEMORY = 4
"""The largest array takes one in so many bytes of the GPU's memory, at most."""
LEAST_NS = 1.0
"""Events of a driver may be no further apart."""
SEED = 3
WORDS = (0x3B, 0x3C, 0x3D, 0x3E)
"""Bytes of elements: of whatever dtype, they are normal numbers."""
FILL_BYTES = 8 << 20


@dataclass(frozen=True)
class Tuning:
    """What :func:`tune` found.

    Attributes
    ----------
    device : str
        Name of the GPU.
    costs, estimates : dict of str to float
        The measured costs of plans, and those that plans had been made by. Names are members of
        ``gpr_plan_costs`` of ``gpureduce.h``.
    arrays, ways : int
        How many arrays were measured, and how many ways to read them.
    before, after : float
        Time of the ways that plans choose, over that of the fastest measured ways: a geometric mean
        over the arrays, with the costs before and after.
    launch_ns : float
        Time of a launch beside what costs explain.
    seconds : float
        How long it took.
    path : str
        File that keeps the costs; empty if they were not kept.
    """

    device: str
    costs: dict[str, float]
    estimates: dict[str, float]
    arrays: int
    ways: int
    before: float
    after: float
    launch_ns: float
    seconds: float
    path: str

    def __str__(self) -> str:
        names = "\n".join(
            f"  {name:<20}{self.estimates[name]:>12,.1f}{cost:>12,.1f}"
            for name, cost in self.costs.items()
        )
        kept = f"kept in {self.path}" if self.path else "not kept"
        return (
            f"{self.device}: {self.ways} ways to read {self.arrays} arrays, "
            f"{self.seconds:.0f} s\n"
            f"  {'cost':<20}{'before':>12}{'measured':>12}\n{names}\n"
            f"chosen over fastest way: {self.before:.3f} before, {self.after:.3f} now; {kept}"
        )


def ordinal_of(device: str | int) -> int:
    """Number of a CUDA device that is named."""
    if isinstance(device, int):
        return device
    name, _, number = device.partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise ValueError(f"costs are measured on a CUDA device, not on {device!r}")
    return int(number or 0)


def price_of(cell: Cell, facts: tuple[Any, ...]) -> Callable[[Costs], Sequence[float]]:
    """Prices of all ways to read an array on a GPU, as a function of costs."""

    def price(costs: Costs) -> Sequence[float]:
        return _core.price_ways(
            cell.op, cell.shape, cell.dtype, cell.reduced, (*facts[:-1], costs), cell.strides
        )

    return price


@contextmanager
def _memory(ordinal: int, nbytes: int) -> Iterator[int]:
    """Device memory full of ordinary numbers."""
    pointer = _core.alloc_device(ordinal, nbytes)
    try:
        words = np.random.default_rng(SEED).choice(
            np.array(WORDS, np.uint8), min(FILL_BYTES, nbytes)
        )
        for at in range(0, nbytes, FILL_BYTES):
            _core.upload(ordinal, pointer + at, words[: nbytes - at])
        yield pointer
    finally:
        _core.free_device(ordinal, pointer)


def compile_ways(
    cells: Sequence[Cell], ways: Sequence[Sequence[int]], facts: tuple[Any, ...]
) -> None:
    """Compile what will run into the cache, by all processors at once."""

    def warm(item: tuple[Cell, int]) -> None:
        cell, way = item
        _core.warm(
            cell.op, cell.shape, cell.dtype, cell.reduced, "fast", facts, way, strides=cell.strides
        )

    # The first way of every array, then the second: those of one array may share a program, which
    # two threads would both compile.
    work = [
        (cell, some[turn])
        for turn in range(max(map(len, ways)))
        for cell, some in zip(cells, ways, strict=True)
        if turn < len(some)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(warm, work):
            pass


def measure_ways(
    cells: Sequence[Cell],
    ways: Sequence[Sequence[int]],
    ordinal: int,
    flush_bytes: int,
    repeats: int = REPEATS,
) -> list[Any]:
    """Times of ways in nanoseconds, one array per cell: medians of runs with a cold L2.

    Ways take turns: a GPU whose clocks change while an array is measured is as slow for all of
    them.
    """
    found = []
    with _memory(ordinal, max(cell.nbytes for cell in cells)) as pointer:
        for cell, numbers in zip(cells, ways, strict=True):
            samples: list[list[float]] = [[] for _ in numbers]
            for turn in range(repeats):
                for place, way in enumerate(numbers):
                    samples[place] += _core.measure(
                        cell.op, pointer, cell.shape, cell.dtype, cell.reduced, "fast", ordinal,
                        0, 0, 0 if turn else WARMUP, 1, flush_bytes, None, 0, way,
                        strides=cell.strides,
                    )  # fmt: skip
            found.append(np.maximum(np.median(np.array(samples), axis=1) * 1e6, LEAST_NS))
    return found


def measure_and_fit(
    cells: Sequence[Cell], facts: tuple[Any, ...], start: Costs, ordinal: int, flush_bytes: int
) -> tuple[Fit, list[Times]]:
    """Measure arrays in ways that GPUs near ``start`` might choose, and fit costs to the times."""
    rng = np.random.default_rng(SEED)
    prices = [price_of(cell, facts) for cell in cells]
    ways = [likely_ways(price, start, WAYS, rng) for price in prices]
    compile_ways(cells, ways, facts)
    measured = measure_ways(cells, ways, ordinal, flush_bytes)
    times = [
        Times(np.array(some), ns, price)
        for some, ns, price in zip(ways, measured, prices, strict=True)
    ]
    return fit_costs(times, start), times


def tune(
    device: str | int = "cuda",
    *,
    arrays: int = ARRAYS,
    largest_bytes: int = LARGEST_BYTES,
    keep: bool = True,
) -> Tuning:
    """Measure a GPU, so that later calls choose faster launches.

    Before each launch, a plan chooses one of several ways to read the array, by a cost model of the
    GPU. Without this function, the model's constants are estimated from what the driver reports.
    This function reads some arrays in several ways each, fits the constants to the times, and
    stores them in the cache folder, for all GPUs of the same name. It takes half a minute to two
    minutes, most of it for compiling.

    Parameters
    ----------
    device : str or int, optional
        ``"cuda"`` (default), ``"cuda:1"`` or a number.
    arrays : int, optional
        Number of arrays to measure.
    largest_bytes : int, optional
        Size of the largest array; at most a quarter of the GPU's memory.
    keep : bool, optional
        Whether to write the file. Otherwise the constants are used in this process only.

    Returns
    -------
    Tuning

    Raises
    ------
    DeviceUnavailableError
        There is no usable GPU.
    ValueError
        The device does not exist, or a number is too small.
    OSError
        The cache's folder cannot be written to, or there is none.

    Notes
    -----
    Determinism: different constants give different plans. Exact sums, and all functions of
    integers, keep their bits. Sums, products and variances of floats by kernel ``fast`` may change
    in the last bits.

    Run it while no other program uses the GPU. ``gpureduce info`` shows the constants in use.

    Examples
    --------
    >>> print(gr.tune())  # doctest: +SKIP
    """
    ordinal = ordinal_of(device)
    reason = _core.why_no_cuda()
    if reason is not None:
        from .._exceptions import DeviceUnavailableError

        raise DeviceUnavailableError(reason)
    facts = _core.device_facts(ordinal)
    info = next(each for each in devices() if each.ordinal == ordinal)
    start: Costs = facts[-1]
    found = _core.plan_costs(ordinal)
    if keep and not found["path"]:
        raise OSError(f"measured costs are kept beside compiled programs: {found['reason']}")
    began = time.perf_counter()
    largest = min(largest_bytes, info.memory_bytes // MOST_MEMORY)
    cells = draw_cells(arrays, largest)
    fit, times = measure_and_fit(cells, facts, start, ordinal, FLUSH_CACHES * info.l2_bytes)
    if keep:
        _core.store_costs(ordinal, fit.costs)
    else:
        _core.use_costs(ordinal, fit.costs)
    forget_plans()
    return Tuning(
        device=info.name,
        costs=dict(zip(_core.PLAN_COSTS, fit.costs, strict=True)),
        estimates=dict(zip(_core.PLAN_COSTS, start, strict=True)),
        arrays=len(cells),
        ways=sum(len(each.ways) for each in times),
        before=fit.before,
        after=fit.after,
        launch_ns=fit.launch_ns,
        seconds=time.perf_counter() - began,
        path=found["path"] if keep else "",
    )
