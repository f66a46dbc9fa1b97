"""Costs are recovered from times of cards that are simulated by the model itself, and by others."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpureduce import _core
from gpureduce._tune.cells import Cell, draw_cells
from gpureduce._tune.fit import Costs, Times, fit_costs, likely_ways

ARRAYS, LARGEST = 16, 64 << 20
WAYS = 9
LAUNCH_NS = 1800.0
SEED = secrets.randbits(32)


@pytest.fixture(scope="module")
def facts() -> tuple[Any, ...]:
    return _core.typical_facts(90)


def pricer(cell: Cell, facts: tuple[Any, ...]) -> Callable[[Costs], list[float]]:
    return lambda costs: _core.price_ways(
        cell.op, cell.shape, cell.dtype, cell.reduced, (*facts[:-1], costs), cell.strides
    )


def card(
    facts: tuple[Any, ...], costs: Costs, noise: float, rng: np.random.Generator, seed: int
) -> list[Times]:
    """Times of a card of these costs."""
    cells = []
    for cell in draw_cells(ARRAYS, LARGEST, seed):
        price = pricer(cell, facts)
        ways = np.array(likely_ways(price, facts[-1], WAYS, rng))
        ns = np.array(price(costs))[ways - 1] + LAUNCH_NS
        cells.append(Times(ways, ns * np.exp(rng.normal(0, noise, len(ns))), price))
    return cells


def regret(cells: list[Times], costs: Costs) -> float:
    """Time of what costs choose over that of the fastest, of times without noise."""
    logs = [
        np.log(each.ns[np.argmin(np.array(each.price(costs))[each.ways - 1])] / each.ns.min())
        for each in cells
    ]
    return float(np.exp(np.mean(logs)))


def test_known_costs_are_recovered(facts: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(SEED)
    true = tuple((np.array(facts[-1]) * np.exp(rng.uniform(-0.5, 0.5, len(facts[-1])))).tolist())
    fit = fit_costs(card(facts, true, 0.02, rng, SEED), facts[-1])
    found = dict(zip(_core.PLAN_COSTS, np.array(fit.costs) / np.array(true), strict=True))
    # Every large array has its time from one of these two, small ones from the third.
    for name in ("bytes_per_ns", "load_ns"):
        assert 0.75 < found[name] < 1.33, f"seed {SEED}: {found}"
    assert fit.after <= fit.before, f"seed {SEED}"
    # Arrays that it has not seen: plans are within 3 % of those by the card's own costs.
    others = card(facts, true, 0, rng, SEED + 1)
    assert regret(others, fit.costs) < 1.03, f"seed {SEED}: {found}"


def test_a_fit_is_never_worse_than_its_start(facts: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(SEED)
    cells = card(facts, facts[-1], 0.5, rng, SEED)[:4]
    fit = fit_costs(cells, facts[-1])
    assert fit.after <= fit.before, f"seed {SEED}"
    assert all(cost > 0 for cost in fit.costs)


def test_times_that_cannot_be_are_refused(facts: tuple[Any, ...]) -> None:
    price = pricer(draw_cells(1, LARGEST)[0], facts)
    with pytest.raises(ValueError, match="at least one array"):
        fit_costs([], facts[-1])
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="times are positive"):
            fit_costs([Times(np.array([1]), np.array([bad]), price)], facts[-1])


def test_likely_ways_begin_with_the_plan_and_are_different(facts: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(SEED)
    for cell in draw_cells(10, LARGEST, SEED):
        price = pricer(cell, facts)
        prices = price(facts[-1])
        ways = likely_ways(price, facts[-1], WAYS, rng)
        assert ways[0] == int(np.argmin(prices)) + 1, f"seed {SEED}: {cell}"
        assert len(ways) == len(set(ways)) == min(WAYS, len(prices)), f"seed {SEED}: {cell}"
        assert set(ways) <= set(range(1, len(prices) + 1)), f"seed {SEED}: {cell}"


def test_cells_are_the_same_each_time_and_within_their_bounds() -> None:
    cells = draw_cells(50, LARGEST)
    assert cells == draw_cells(50, LARGEST)
    assert all(cell.nbytes <= LARGEST for cell in cells)
    assert max(cell.nbytes for cell in cells) > LARGEST // 8
    with pytest.raises(ValueError, match="at least one array"):
        draw_cells(0, LARGEST)
    with pytest.raises(ValueError, match="4096 bytes or more"):
        draw_cells(1, 100)


def test_prices_need_no_gpu_and_refuse_what_has_no_ways(facts: tuple[Any, ...]) -> None:
    assert len(_core.price_ways("max", (4609, 250), "float16", 1, facts)) > 10
    with pytest.raises(ValueError, match="no compute capability"):
        _core.typical_facts(7)
    with pytest.raises(ValueError, match="empty array"):
        _core.price_ways("sum", (0,), "int32", 1, facts)
    with pytest.raises(TypeError, match="tuple of 8"):
        _core.price_ways("sum", (4,), "int32", 1, (*facts[:-1], (1.0,)))
    with pytest.raises(ValueError, match="has multiprocessors"):
        _core.price_ways("sum", (4,), "int32", 1, (90, 0, *facts[2:]))
