"""States of exact sums that device arrays were added to, beside Python's integers and the host.

Arrays of any layout are added on the host and on devices, to states that are merged in any order: a
state's bytes are those of its elements, wherever they were added.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from exact_reference import FLOATS, expected_bytes
from reference import DTYPES

import gpureduce as gr
from emu import layouts
from emu.exact_layouts import draw_elements
from gpureduce import _core

LONG = 30_000  # elements that several blocks of an emulated GPU share
MOST_ARRAYS = 6


class OnDevice:
    """A copy of a view's memory on a device, which shows the view by DLPack."""

    def __init__(self, array: layouts.Strided, device: int = 0) -> None:
        pointer, view = _core.alloc_device(device, max(array.memory.nbytes, 1)), array.view
        weakref.finalize(self, _core.free_device, device, pointer)
        _core.upload(device, pointer, array.memory)
        name = next(name for name, dtype in DTYPES.items() if dtype == view.dtype)
        start = pointer + (array.offset if view.size else 0)
        self.memory = _core.device_array(start, view.shape, view.strides, name, device, None, self)
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int]) -> Any:
        return _core.export_dlpack(self.memory, True)


def draw_state_array(rng: np.random.Generator, name: str) -> layouts.Strided:
    """Of any layout; without elements or axes, long, or of one number that makes a flag."""
    shapes = ((), (0,), (3, 0, 2), (LONG,), (150, LONG // 300))
    chosen = int(rng.integers(2 * len(shapes)))
    shape = shapes[chosen] if chosen < len(shapes) else layouts.draw_shape(rng)
    alone = name in FLOATS and rng.random() < 0.3
    number = rng.choice([-0.0, 0.0, np.inf, -np.inf, np.nan])

    def make(n: int) -> np.ndarray:
        return np.full(n, number).astype(DTYPES[name]) if alone else draw_elements(rng, name, n)

    if 0 in shape:
        memory = make(1)
        return layouts.Strided(memory, memory[:0].reshape(shape))
    return layouts.strided(rng, shape, make, bool(rng.random() < 0.3))


def sources_of(name: str) -> list[str]:
    """Types of elements that a state takes, its own as often as all others."""
    others = [
        each
        for each, dtype in DTYPES.items()
        if each != name and np.can_cast(dtype, DTYPES[name], "safe")
    ]
    return [name] * max(len(others), 1) + others


def check_random(rng: np.random.Generator, name: str, where: str, devices: int = 1) -> None:
    """Add a few arrays to states on host and devices, and merge those as a tree of any form."""
    wanted, states = gr.ExactSum(DTYPES[name]), [gr.ExactSum(DTYPES[name])]
    elements: list[np.ndarray] = []
    are_own = True
    for _ in range(int(rng.integers(1, MOST_ARRAYS))):
        source = str(rng.choice(sources_of(name)))
        array = draw_state_array(rng, source)
        place = int(rng.integers(-1, devices))  # -1: the host
        where += f" {source} {array.view.shape} {array.view.strides} on {place},"
        if rng.random() < 0.5:
            states.append(gr.ExactSum(DTYPES[name]))
        state = states[int(rng.integers(len(states)))]
        count = state.count
        assert state.update(array.view if place < 0 else OnDevice(array, place)) is state
        assert state.count == count + array.view.size, where
        wanted.update(array.view)
        elements.append(np.array(array.view).ravel())
        are_own = are_own and source == name
    while len(states) > 1:
        other = states.pop(int(rng.integers(len(states))))
        states[int(rng.integers(len(states)))].merge(other)
    assert states[0].to_bytes() == wanted.to_bytes(), where
    if are_own:
        assert wanted.to_bytes() == expected_bytes(np.concatenate(elements)), where


def check_states(task: dict[str, Any]) -> None:
    """Make ``count`` random trees of states of ``dtype``, each under one schedule; ``seed``."""
    for number in range(task["count"]):
        rng, where = layouts.under_a_schedule(task, number, "states")
        check_random(
            rng, task["dtype"], f"{where} GPR_TEST_SEED={task['seed']}", task.get("devices", 1)
        )
