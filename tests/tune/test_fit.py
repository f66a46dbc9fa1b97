"""Costs are fitted to times of simulated cards: by the plans' own model, and by a linear one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import SEED

from gpureduce import _core
from gpureduce._tune.cells import Cell, draw_cells
from gpureduce._tune.fit import NOISE, Costs, Times, fit_costs, likely_ways, loss

ARRAYS, LARGEST = 16, 64 << 20
WAYS = 9
LAUNCH_NS = 1800.0


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


def test_costs_of_simulated_cards_are_fitted_as_well_as_their_own(facts: tuple[Any, ...]) -> None:
    # Many costs give the arrays of a card the times that they have, and choose the same ways: the
    # loss and later choices can be tested, not the costs.
    start = np.array(facts[-1])
    for seed in range(SEED, SEED + 4):
        rng = np.random.default_rng(seed)
        true = start * np.exp(rng.uniform(-0.5, 0.5, len(start)))
        cells = card(facts, tuple(true.tolist()), 0.02, rng, seed)
        fit = fit_costs(cells, facts[-1])
        found = loss(cells, start, np.array(fit.costs), fit.launch_ns)
        assert found <= loss(cells, start, true, LAUNCH_NS), f"seed {seed}: {fit}"
        # Arrays that it has not seen.
        others = card(facts, tuple(true.tolist()), 0, rng, seed + 1000)
        assert regret(others, fit.costs) < 1.03, f"seed {seed}: {fit}"


def test_costs_that_decide_times_are_recovered(facts: tuple[Any, ...]) -> None:
    # Prices are weighted sums of the costs, so that times without noise determine each of them.
    # The fit's last term draws costs to their start, by up to 0.15 of the 0.25 or more between.
    rng = np.random.default_rng(SEED)
    start = np.array(facts[-1])
    true = start * np.exp(rng.choice([-1, 1], len(start)) * rng.uniform(0.25, 0.5, len(start)))
    launch_ns = LAUNCH_NS * np.exp(rng.uniform(-0.5, 0.5))
    cells = []
    for _ in range(24):
        weights = np.exp(rng.uniform(-6, 0, (WAYS, len(start)))) * 20_000 / start
        weights[rng.integers(0, WAYS, 4)] *= 0.02

        def price(costs: Costs, weights: Any = weights) -> list[float]:
            return (weights @ np.array(costs)).tolist()

        ns = np.array(price(tuple(true.tolist()))) + launch_ns
        cells.append(Times(np.arange(1, WAYS + 1), ns, price))
    fit = fit_costs(cells, facts[-1])
    assert np.abs(np.log(np.array(fit.costs) / true)).max() < 0.2, f"seed {SEED}: {fit}, {true}"
    assert abs(np.log(fit.launch_ns / launch_ns)) < 0.05, f"seed {SEED}: {fit}, {launch_ns}"


def test_a_fit_is_as_good_as_its_start(facts: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(SEED)
    cells = card(facts, facts[-1], 0.5, rng, SEED)[:4]
    fit = fit_costs(cells, facts[-1])
    assert fit.after <= fit.before * NOISE, f"seed {SEED}"
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
