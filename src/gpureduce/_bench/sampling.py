"""Samples of time: taking them in turns, and their statistics.

A *sample* is the time of one call, or the mean of several calls that are too short for the clock.
Contenders take turns, so that a drift of the machine's clocks affects all of them. Each contender
is sampled until its median is known to the wanted precision, or its time is used up.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Phases", "Spread", "Turn", "calls_for", "progress_bar", "ratio_interval", "take_turns"]

LEAST_SAMPLES, MOST_SAMPLES = 10, 10_000
"""Least samples for a median, and most samples that are taken."""
LEAST_AFTER_BUDGET = 2
"""Least samples of a call that is too slow for :data:`LEAST_SAMPLES` in its time."""
SHORTEST_SAMPLE = 50e-6
"""Least wall time of a sample in seconds: reading the clock takes about 50 ns, 0.1 % of it."""
CONFIDENCE_QUANTILE = 1.96
"""Quantile of the normal distribution, for 95 %."""
NOISY = 0.05
"""Noise (quartile distance over median) above which a warning is given."""
DRIFTED = 0.03
"""Change of the median from the first to the second half of the samples above which a warning is
given."""
LEAST_FOR_DRIFT = 8
REDRAW_SECONDS = 0.2
"""Seconds between two drawings of a progress bar."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Sampled times and their statistics, in seconds.

    Attributes
    ----------
    samples
        The raw times, in the order in which they were taken.
    calls_per_sample
        Calls per sample, which is their mean.
    """

    samples: tuple[float, ...]
    calls_per_sample: int = 1

    def __repr__(self) -> str:
        return f"Spread(median={self.median:g}, noise={self.noise:.2g}, count={len(self.samples)})"

    @property
    def median(self) -> float:
        """Median of the samples."""
        return float(np.median(self.samples))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the samples."""
        low, high = np.percentile(self.samples, [25, 75])
        return float(low), float(high)

    @property
    def minimum(self) -> float:
        """The shortest sample."""
        return min(self.samples)

    @property
    def maximum(self) -> float:
        """The longest sample."""
        return max(self.samples)

    @property
    def noise(self) -> float:
        """Difference of the quartiles over the median."""
        low, high = self.quartiles
        return (high - low) / self.median if self.median else 0.0

    @property
    def uncertainty(self) -> float:
        """Half the width of the median's 95 % confidence interval, over the median.

        The interval's ends are order statistics, for samples of any distribution: the ranks at 1.96
        standard deviations of a binomial (n, 1/2) from the middle. Infinite if there are too few
        samples.
        """
        n = len(self.samples)
        reach = CONFIDENCE_QUANTILE * math.sqrt(n) / 2
        low, high = math.floor(n / 2 - reach), math.ceil(n / 2 + reach)
        if low < 1 or high > n:
            return math.inf
        ordered = sorted(self.samples)
        return (ordered[high - 1] - ordered[low - 1]) / 2 / self.median if self.median else 0.0

    @property
    def drift(self) -> float:
        """Change of the median from the first to the second half of the samples, over the first.

        0 for few samples.
        """
        n = len(self.samples)
        if n < LEAST_FOR_DRIFT:
            return 0.0
        first = float(np.median(self.samples[: n // 2]))
        return float(np.median(self.samples[n // 2 :])) / first - 1 if first else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers and lists, in seconds; an infinite uncertainty is ``None``."""
        uncertainty = self.uncertainty
        return {
            "median": self.median,
            "quartiles": list(self.quartiles),
            "minimum": self.minimum,
            "maximum": self.maximum,
            "noise": self.noise,
            "uncertainty": uncertainty if math.isfinite(uncertainty) else None,
            "drift": self.drift,
            "calls_per_sample": self.calls_per_sample,
            "samples": list(self.samples),
        }

    def doubts(self, precision: float) -> dict[str, str]:
        """What is wrong with the samples: in one to three words, and as the end of a sentence."""
        found = {}
        if self.noise > NOISY:
            found["noisy"] = f" is noisy: its quartiles are {self.noise:.0%} of the median apart"
        if abs(self.drift) > max(DRIFTED, self.noise):
            slower = "slower" if self.drift > 0 else "faster"
            found["drifted"] = (
                f" drifted: the second half of the samples was {abs(self.drift):.0%} {slower}"
            )
        if self.uncertainty > precision:
            known = (
                f"give the median only to ± {self.uncertainty:.1%}"
                if math.isfinite(self.uncertainty)
                else "are too few"
            )
            samples = f"the {len(self.samples)} samples in the time given"
            found["too few samples"] = f": {samples} {known}"
        return found

    def troubles(self, what: str, precision: float) -> list[str]:
        """Warnings about the samples, in words."""
        return [f"{what}{each}" for each in self.doubts(precision).values()]


def ratio_interval(over: Spread, under: Spread) -> tuple[float, float]:
    """The lowest and the highest ratio of the quartiles of two times."""
    return over.quartiles[0] / under.quartiles[1], over.quartiles[1] / under.quartiles[0]


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles and raw samples, in their unit: the format of ``benchmarks/results``."""
    spread = Spread(tuple(map(float, samples)))
    return {
        "median": spread.median,
        "quartiles": list(spread.quartiles),
        "samples": list(spread.samples),
    }


# ---------------------------------------------------------------- taking samples


@dataclass(slots=True)
class Turn:
    """A call that is timed in turns with others.

    Attributes
    ----------
    take
        Takes the given number of samples, in seconds.
    batch
        Samples per turn.
    calls_per_sample
        As in :class:`Spread`.
    samples, spent
        Samples taken so far, and the wall time of taking them, in seconds.
    """

    take: Callable[[int], Sequence[float]]
    batch: int = 1
    calls_per_sample: int = 1
    samples: list[float] = field(default_factory=list)
    spent: float = 0.0

    @property
    def spread(self) -> Spread:
        """Statistics of the samples so far."""
        return Spread(tuple(self.samples), self.calls_per_sample)

    def run(self) -> None:
        """Take one batch."""
        start = time.perf_counter()
        self.samples += self.take(self.batch)
        self.spent += time.perf_counter() - start

    def is_done(self, seconds: float, precision: float) -> bool:
        """Whether its time is used up, or its median is known to the precision."""
        n = len(self.samples)
        if n >= LEAST_AFTER_BUDGET and self.spent >= seconds:
            return True
        return n >= LEAST_SAMPLES and (n >= MOST_SAMPLES or self.spread.uncertainty <= precision)

    def seconds_left(self, seconds: float, precision: float) -> float:
        """About how long it takes from here until it is done.

        The uncertainty of a median falls with the root of the number of samples.
        """
        n = len(self.samples)
        if self.is_done(seconds, precision):
            return 0.0
        if not n:
            return seconds
        uncertainty = self.spread.uncertainty
        wanted = float(LEAST_SAMPLES)
        if precision > 0 and math.isfinite(uncertainty):
            wanted = max(wanted, n * (uncertainty / precision) ** 2)
        elif n >= LEAST_SAMPLES:
            wanted = math.inf
        return max(min(seconds - self.spent, (wanted - n) * self.spent / n), 0.0)


def take_turns(
    turns: Sequence[Turn],
    seconds: float,
    precision: float,
    progress: Callable[[float], object] | None = None,
) -> None:
    """Take a batch of samples of each, in an order that changes from round to round, until all are
    done.

    Parameters
    ----------
    turns : sequence of Turn
    seconds : float
        Time per turn.
    precision : float
        Uncertainty of the median at which a turn is done.
    progress : callable, optional
        Called after each round with about the seconds that are left.
    """
    order = np.random.default_rng(0)
    while waiting := [turn for turn in turns if not turn.is_done(seconds, precision)]:
        for i in order.permutation(len(waiting)):
            waiting[i].run()
        if progress is not None:
            progress(sum(turn.seconds_left(seconds, precision) for turn in turns))


def calls_for(seconds_per_call: float) -> int:
    """Calls per sample."""
    return max(1, math.ceil(SHORTEST_SAMPLE / seconds_per_call)) if seconds_per_call > 0 else 1


# ---------------------------------------------------------------- progress


def _is_interactive() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class progress_bar:  # noqa: N801  used as a function
    """A bar from 0 to 1 on a terminal or in a notebook, by tqdm; nothing without it, or in a pipe.

    Parameters
    ----------
    words : str
        Text beside the bar.
    wanted : bool, optional
        ``None``: on a terminal and in a notebook.
    """

    def __init__(self, words: str, wanted: bool | None = None) -> None:
        self._bar: Any = None
        if wanted is False or (wanted is None and not _is_interactive()):
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of text
                from tqdm.auto import tqdm
        except ImportError:
            if wanted:
                raise ImportError(
                    "a progress bar needs tqdm: pip install 'gpureduce[progress]'"
                ) from None
            return
        form = "{l_bar}{bar}| {elapsed}"
        # Drawn seldom: drawing on a slow terminal between samples takes time from them.
        self._bar = tqdm(
            total=1.0,
            desc=words,
            leave=False,
            bar_format=form,
            mininterval=REDRAW_SECONDS,
            miniters=0,
        )

    def __enter__(self) -> progress_bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, share: float) -> None:
        """Set the share that is done."""
        if self._bar is not None:
            self._bar.update(min(max(share - self._bar.n, 0.0), 1.0 - self._bar.n))


class Phases:
    """Progress of work in phases, by the time that each takes.

    Parameters
    ----------
    bar : progress_bar
    expected : mapping
        For each kind of phase, how many there are and about how many seconds one takes; once one
        has been seen, the next ones are expected to take as long.
    """

    def __init__(self, bar: Callable[[float], object], expected: dict[str, tuple[int, float]]):
        self._bar, self._spent = bar, 0.0
        self._to_come = {kind: count for kind, (count, _) in expected.items()}
        self._seconds = {kind: seconds for kind, (_, seconds) in expected.items()}

    @contextlib.contextmanager
    def phase(self, kind: str) -> Iterator[Callable[[float], None]]:
        """One phase; its value moves the bar, given the seconds that are left of the phase."""
        self._to_come[kind] -= 1
        start = time.perf_counter()

        def progress(left: float) -> None:
            spent = self._spent + time.perf_counter() - start
            later = sum(n * self._seconds[each] for each, n in self._to_come.items())
            self._bar(spent / (spent + left + later) if spent else 0.0)

        yield progress
        self._seconds[kind] = time.perf_counter() - start
        self._spent += self._seconds[kind]
        start = time.perf_counter()
        progress(0.0)


def host_samples(
    call: Callable[[], object], number: int = 1, before: Callable[[], object] | None = None
) -> Callable[[int], list[float]]:
    """Wall time of a synchronous call, by a monotonic clock.

    Parameters
    ----------
    call : callable
    number : int
        Calls for each sample.
    before : callable, optional
        Runs untimed before each sample.
    """

    def take(count: int) -> list[float]:
        times = []
        for _ in range(count):
            if before is not None:
                before()
            start = time.perf_counter()
            for _ in range(number):
                call()
            times.append((time.perf_counter() - start) / number)
        return times

    return take
