"""The eight exercises of notebook 5: what each asks of a kernel, and how an attempt is looked at.

All of it runs on an emulated GPU. What is counted there is counted as a GPU's counters do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from lessons import HAS_GPU, HERE, plt

import gpureduce as gr

WHERE = f"What is measured here runs on {HERE}; what is counted, on an emulated GPU."
Goal = tuple[bool, str]
"""Whether it is reached, and what it is, with the figure."""


@dataclass(frozen=True)
class Exercise:
    """What an exercise asks.

    Attributes
    ----------
    op, dtype, n
        The operator, the elements' dtype, and the length that is drawn and counted.
    course
        A kernel of the course that does the same, whose picture is shown.
    goals
        Of a kernel and what was counted, beyond a right result.
    block_size
        Threads of a block, where one is given.
    grid_size
        Blocks, of a kernel that loops.
    sizes
        Lengths that are checked; several around a block by default.
    """

    op: str
    dtype: str
    n: int
    course: str
    goals: Callable[[gr.Kernel, gr.Explanation], Iterator[Goal]]
    block_size: int | None = None
    grid_size: int | None = None
    sizes: tuple[int, ...] | None = None


def _is(reached: bool, words: str, figure: Any) -> Goal:
    return reached, f"{words}: {figure}"


def _sum_a_warp(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    shared = told.figures.shared_loads + told.figures.shared_stores
    yield _is(shared == 0, "no shared memory, requests to it", shared)
    yield _is(told.figures.shuffles <= 5, "at most 5 shuffles", told.figures.shuffles)


def _sum_a_block(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    each = told.main.figures.barriers
    yield _is(each <= 10, "at most 10 barriers per block", each)


def _any_length(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    loaded = kernel.form.elements_per_thread
    yield _is(loaded >= 2, "at least 2 elements per thread", loaded)


def _no_conflicts(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    conflicts = told.figures.bank_conflicts
    yield _is(conflicts == 0, "no bank conflicts", conflicts)


def _more_work(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    barriers = told.main.figures.barriers * told.main.grid
    yield _is(barriers <= 40, "at most 40 barriers of blocks for 8192 elements", barriers)


def _one_atomic_per_warp(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    figures = told.main.figures
    shared = figures.shared_loads + figures.shared_stores + figures.barriers
    yield _is(shared == 0, "no shared memory, no barrier, requests and barriers", shared)
    most = told.main.grid * told.main.block // 32
    yield _is(figures.atomics <= most, f"one atomic per warp, at most {most}", figures.atomics)


def _another_operator(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    yield _is(kernel.op == "max", "the kernel computes max", kernel.op)


def _work(told: gr.Explanation) -> int:
    figures = told.figures
    return figures.shared_loads + figures.shared_stores + figures.shuffles + figures.barriers


def _beat_auto(kernel: gr.Kernel, told: gr.Explanation) -> Iterator[Goal]:
    auto = _work(gr.explain("auto", told.n, dtype=told.dtype))
    yield _is(
        _work(told) < auto,
        f"fewer requests to shared memory, shuffles and barriers together than auto's {auto}",
        _work(told),
    )


EXERCISES = {
    1: Exercise("sum", "int32", 32, "warp_registers", _sum_a_warp, 32, sizes=(1, 31, 32)),
    2: Exercise("sum", "float32", 256, "sequential", _sum_a_block, 256),
    3: Exercise("sum", "float32", 700, "first_add", _any_length, 256),
    4: Exercise("sum", "float32", 256, "sequential", _no_conflicts, 256),
    5: Exercise("sum", "float32", 8192, "multi_add", _more_work, 256, 4),
    6: Exercise("sum", "int32", 4096, "shfl_atomic", _one_atomic_per_warp, 256, 4),
    7: Exercise("max", "int32", 2048, "shfl_two_pass", _another_operator, 256, 4),
    8: Exercise("sum", "int32", 1000, "auto", _beat_auto),
}


def picture(number: int) -> None:
    """Draw what the threads of a kernel of the course do in an exercise."""
    asked = EXERCISES[number]
    block = asked.block_size if asked.course != "warp_registers" else 32
    told = gr.explain(
        asked.course, asked.n, op=asked.op, dtype=asked.dtype, block_size=block,
        grid_size=asked.grid_size if asked.course in ("multi_add", "shfl_atomic") else None,
    )  # fmt: skip
    _draw(told)


def attempt(number: int, kernel: gr.Kernel) -> bool:
    """Check a kernel, count what it does, and draw it; return whether the exercise is solved."""
    asked = EXERCISES[number]
    report = gr.check(kernel, sizes=asked.sizes)
    if not report.right:
        print(report)
        print(f"Exercise {number}: not yet. The first mistake is above.")
        return False
    told = gr.explain(
        kernel, asked.n, dtype=asked.dtype, block_size=kernel.form.block_size or asked.block_size,
        grid_size=asked.grid_size if kernel.form.cover == "stride" else None,
    )  # fmt: skip
    goals = [_is(kernel.op == asked.op, f"it computes {asked.op}", kernel.op)]
    goals += asked.goals(kernel, told)
    _draw(told)
    print(f"{kernel.name} is right: {report.runs} launches, no rule broken.")
    for reached, words in goals:
        print(f"  {'yes' if reached else 'no '}  {words}")
    solved = all(reached for reached, _ in goals)
    print(f"Exercise {number}: {'solved.' if solved else 'not yet.'}")
    if HAS_GPU and solved:
        _race(kernel, asked)
    return solved


def _draw(told: gr.Explanation) -> None:
    told.plot()
    plt.show()


def _race(kernel: gr.Kernel, asked: Exercise) -> None:
    """Time the kernel beside ``auto``, where there is a GPU."""
    a = np.random.default_rng(0).integers(-9, 9, asked.n).astype(asked.dtype)
    found = gr.compare(
        a, [kernel, "auto"], asked.op, baselines=[], seconds=0.1, break_even=False, ceiling=False
    )
    for row in found:
        if row.on_device is not None:
            print(f"  {row.label}: {1e6 * row.on_device.median:.2f} µs on {HERE}")
