"""A comparison in words: the answer for each array, and what its columns mean.

The answer comes first and is one sentence. It says that one contender is faster only where the
quartiles of the two times do not overlap, as the tables do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from .._core import DTYPES
from .._display.tables import show_range, show_speedup, show_time
from .contenders import NUMPY, ComparisonRecord, Contender, is_too_noisy, outcome
from .sampling import Spread, ratio_interval

__all__ = ["answer", "explain_columns", "explain_error", "named"]

UNSTEADY = 0.2
"""Difference of a time's quartiles over its median from which on the answer asks for another run:
the next one may give another."""


def named(names: Sequence[str]) -> str:
    """Names as in a sentence: ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def answer(record: ComparisonRecord, here: Sequence[Contender]) -> str:
    """Who is faster for one array: the fastest kernel or NumPy.

    Parameters
    ----------
    record : ComparisonRecord
    here : sequence of Contender
        The rows of the array.

    Returns
    -------
    str
        Empty if no kernel was timed.
    """
    timed = [(row.host, row) for row in here if row.is_kernel and row.host is not None]
    if not timed:
        return ""
    best, row = min(timed, key=lambda pair: pair[0].median)
    on_cpu = row.ran_on == "cpu"
    who = (
        f"the fastest kernel, {_named(row, here)}," if len(timed) > 1 else f"gpureduce's {row.name}"
    )
    numpy = next((each.host for each in here if each.name == NUMPY), None)
    if numpy is None:
        start = timed[0][1]
        text = f"For {_array(record, row)}, {who} took {show_time(best.median)} {_place(on_cpu)}"
        if start is not row:
            ratio = record.show_speedup(row, "first", "host")
            text += f", {ratio} times as fast as {_named(start, here)}"
        return text + "."
    copy = "" if on_cpu else ", with the copy from host memory,"
    text = (
        f"For {_array(record, row)}, {who} took {show_time(best.median)} {_place(on_cpu)}{copy} "
        f"and numpy.{record.op} {show_time(numpy.median)}: {_verdict(best, numpy)}."
    )
    is_slower = outcome(ratio_interval(numpy, best)) == "slower"
    if is_slower and row.on_device is not None:
        text += f" Its kernels alone took {show_time(row.on_device.median)}"
        copied = row.on_device.median < numpy.median
        text += ": the copy over PCIe takes the rest." if copied else "."
    return text


def _named(row: Contender, here: Sequence[Contender]) -> str:
    """A row's name, with its block size if it has several."""
    is_alone = sum(each.name == row.name for each in here) == 1
    return row.name if is_alone else row.label


def _array(record: ComparisonRecord, row: Contender) -> str:
    """The array of a row, in words."""
    whole = math.prod(record.shape) == row.elements and len(record.shape) > 1
    extents = record.shape if whole else (row.elements,)
    axis = "" if record.axis is None else f" along axis {record.axis}"
    dtype = row.dtype or record.dtype
    kind = "element" if dtype == "bool" or dtype not in DTYPES else "number"
    plural = "" if extents == (1,) else "s"
    return f"{' x '.join(f'{n:,}' for n in extents)} {dtype} {kind}{plural}{axis}"


def _place(on_cpu: bool) -> str:
    return "on this CPU" if on_cpu else "on the GPU"


def _verdict(kernel: Spread, numpy: Spread) -> str:
    interval = ratio_interval(numpy, kernel)
    which = outcome(interval)
    noise = max(kernel.noise, numpy.noise)
    unsteady = f" in this run, where times vary by {noise:.0%} from call to call: measure again"
    doubt = unsteady if noise > UNSTEADY else ""
    if which == "faster":
        ratio = show_speedup(numpy.median / kernel.median, interval)
        return f"gpureduce is {ratio} times as fast{doubt}"
    if which == "slower":
        inverse = show_speedup(kernel.median / numpy.median, ratio_interval(kernel, numpy))
        return f"NumPy is {inverse} times as fast{doubt}"
    if is_too_noisy(interval):
        return f"too close to call, because times vary by {noise:.0%} from call to call"
    return f"too close to call, as they differ by less than they vary ({show_range(interval)})"


# ---------------------------------------------------------------- columns


def explain_columns(record: ComparisonRecord) -> list[str]:
    """What the headings of the tables mean, a line each; only those that are there."""
    kinds = {
        kind
        for kind in ("host", "on_device")
        for row in record.rows
        if getattr(row, kind) is not None
    }
    if not kinds:
        return []
    lines = ["time: the median of many calls, each from the array in memory to its result"]
    if "on_device" in kinds:
        lines = ["whole call: the median time, with the copy from host memory to the GPU"]
        lines = lines if "host" in kinds else []
        lines.append("kernels alone: the median time on the GPU, of an array in its memory")
    counts = Counter((row.dtype, row.elements) for row in record.rows if row.host or row.on_device)
    if max(counts.values()) == 1:
        return lines
    lines.append(
        "times as fast: 2 is twice as fast, 0.5 half as fast; in brackets the range, as times "
        "vary; a range with 1 in it is too close to call"
    )
    return lines


def explain_error(record: ComparisonRecord) -> list[str]:
    """What the column of errors means, if there is one."""
    if all(row.ulps is None for row in record.rows):
        return []
    return [
        "error: 0 is the number of this dtype nearest to the exact result; others are this far "
        "from it, in ulps, units of the last digit that the dtype holds"
    ]
