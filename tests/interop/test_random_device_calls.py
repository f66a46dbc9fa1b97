"""Random calls with arrays of other libraries in device memory, compared with NumPy's of the same
elements: over the fakes, whose kernels compute by the rules of the host.

What is tested is the way in and out: layouts, axes, dtypes, masks, starts, means and ``out`` of
every library in miniature. ``differential.py`` has the cases and what must be the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from conftest import EXAMPLES, SEED

hypothesis = pytest.importorskip("hypothesis")

import differential as d  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from reference import BFLOAT16  # noqa: E402

import gpureduce as gr  # noqa: E402

RULES = ("__array_ufunc__", "__array_function__")


# A process with all that it imports takes as long to start as the calls of a function.
GROUPS = [d.NAMES[start::6] for start in range(6)]


@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_random_calls_with_device_arrays_agree_with_numpy(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    fakes.run(
        f"import test_random_device_calls as t; [t.compare_calls(name) for name in {names!r}]",
        tmp_path,
        PYTHONPATH=fakes.module_path("api", "interop"),
        GPR_TEST_SEED=str(SEED),
        timeout=len(names) * (60 + EXAMPLES),
    )


# ---------------------------------------------------------------- in a process with the fakes


def compare_calls(name: str) -> None:
    """Make random calls of a function twice."""
    from fakes import array_libraries as libraries

    libraries.offer(libraries.Exchanged)

    @settings(
        max_examples=max(EXAMPLES // 4, 1),
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.seed(SEED)
    @given(data=st.data())
    def call(data: Any) -> None:
        compare(data.draw, data.draw(d.cases(name)))

    call()
    libraries.settle()


def lend(draw: Any, values: Any, name: str) -> Any:
    """An array of one of the libraries in miniature."""
    from fakes.array_libraries import Exchanged, Producer, Shown

    kinds = [Producer, Shown, Exchanged]
    if name == "minmax":
        kinds.remove(Exchanged)  # pairs are split by subscripts
    return draw(st.sampled_from(kinds))(values)


def on_host(result: Any) -> Any:
    from fakes.array_libraries import value

    if isinstance(result, tuple):
        return tuple(map(on_host, result))
    return result if isinstance(result, np.ndarray | np.generic) else value(result)


def outs_of(case: d.Case) -> list[Any]:
    out = case.keywords.get("out")
    given = out if isinstance(out, tuple) else (out,)
    return [one for one in given if isinstance(one, np.ndarray)]


def is_left_out(case: d.Case) -> bool:
    """What has a row of its own in the table, or no types on a device."""
    keywords, dtype = case.keywords, np.asarray(case.array).dtype
    if dtype.kind in "mM" or not dtype.isnative or not case.array.flags.aligned:
        return True
    outs = [one.dtype for one in outs_of(case)]
    if case.mistake:  # what the protocols and their errors make of it is another test's
        return case.mistake.startswith(("out", "where", "initial")) or BFLOAT16 in (dtype, *outs)
    asked = keywords.get("dtype")
    is_infinite = d.is_inexact(dtype) and not np.all(np.isfinite(case.array.astype(complex)))
    if case.family == "var":
        if dtype.kind == "c" and asked is not None and np.dtype(asked).kind != "c":
            return True  # real-variance
        if "mean" in keywords and is_infinite:
            return True  # the fakes fold as the host does; tests/emu/means.py has them
    if case.family == "mean" and asked is not None and not d.is_inexact(np.dtype(asked)):
        return True  # undefined-conversion
    return BFLOAT16 in (dtype, asked, *outs)  # bfloat16


def device_keywords(draw: Any, case: d.Case) -> dict[str, Any]:
    """The case's keywords as a device array takes them; those that it does not take are dropped."""
    own = case.keywords
    where, mean = own.get("where"), own.get("mean")
    if own.get("out") is ...:
        del own["out"]
    elif isinstance(own.get("out"), tuple) and case.family != "pair":
        own["out"] = own["out"][0]
    keywords = d.fresh(own)
    if isinstance(where, np.ndarray):
        fits = where.ndim <= case.array.ndim
        shown = np.broadcast_to(where, case.array.shape) if fits else where
        keywords["where"] = lend(draw, shown, "where")
    if isinstance(mean, np.ndarray) and draw(st.booleans()):
        keywords["mean"] = lend(draw, mean, "mean")
    return keywords


def compare(draw: Any, case: d.Case) -> None:
    from test_differential import excuse_for

    hypothesis.assume(not is_left_out(case))
    case.given = case.array
    keywords = device_keywords(draw, case)
    array = lend(draw, case.array, case.name)
    rule = draw(st.sampled_from([None] * 9 + list(RULES)))
    if rule is not None:
        check_refusal(case, array, keywords, rule, draw)
        return
    theirs = d.observe(lambda: d.call_numpy(case, d.fresh(case.keywords)))
    ours = d.observe(lambda: on_host(getattr(gr, case.name)(array, **keywords)))
    assert ours.float_warned == []
    try:
        assert_alike(case, ours, theirs)
    except AssertionError:
        if excuse_for(case, theirs, ours) is None:
            raise


def check_refusal(case: d.Case, array: Any, keywords: Any, rule: str, draw: Any) -> None:
    """An argument of a type with rules of its own is refused, whatever else the call is."""
    if case.mistake:
        return
    arguments = {"a": array} | {
        name: one for name, one in keywords.items() if name in ("where", "mean")
    }
    name = draw(st.sampled_from(sorted(arguments)))
    kind = type(arguments[name])
    if isinstance(arguments[name], bool | int | float | np.generic):
        return
    special = type("Special", (kind,), {rule: lambda *_, **__: NotImplemented})
    plain = arguments[name]
    if isinstance(plain, np.ndarray):
        arguments[name] = plain.view(special)
    else:
        arguments[name] = special.__new__(special)
        arguments[name].__dict__.update(plain.__dict__)
    ours = d.observe(
        lambda: getattr(gr, case.name)(arguments.pop("a"), **{**keywords, **arguments})
    )
    assert isinstance(ours.error, TypeError), f"{name} of a type with {rule}: {ours}"
    assert rule in str(ours.error), str(ours.error)


def assert_alike(case: d.Case, ours: d.Outcome, theirs: d.Outcome) -> None:
    finds_nothing = case.name.startswith("nanarg") and isinstance(theirs.error, ValueError)
    if finds_nothing and ours.error is None:  # device-warnings
        assert np.any(np.asarray(ours.result) == -1)
        return
    if theirs.error is not None or ours.error is not None:
        assert theirs.error is not None, f"{ours.error!r}, NumPy: {theirs.result!r}"
        assert ours.error is not None, f"{theirs.error!r}, ours: {ours.result!r}"
        assert issubclass(type(ours.error), d.builtin_class(type(theirs.error))), (
            f"{ours.error!r}, {theirs.error!r}"
        )
        assert str(ours.error)
        return
    assert_same_warnings(case, set(ours.warned), set(theirs.warned))
    if case.family == "pair":
        results = list(zip(ours.result, theirs.result, strict=True))
    else:
        results = [(ours.result, theirs.result)]
    for result, expected in results:
        result, expected = np.asarray(result), np.asarray(expected)
        assert result.dtype == expected.dtype, f"{result.dtype} is not {expected.dtype}"
        assert result.shape == expected.shape, f"{result.shape} is not {expected.shape}"
        d.compare(case, result, expected)


def assert_same_warnings(case: d.Case, ours: set[Any], theirs: set[Any]) -> None:
    """Warnings are NumPy's but for what the device alone knows: `device-warnings`."""
    unknown = "where" in case.keywords or (case.skips_nan and d.has_nan(case.array))
    missing = {
        (kind, text)
        for kind, text in theirs - ours
        if not (unknown and text.startswith(("Mean of empty", "Degrees of freedom", "All-NaN")))
    }
    assert not missing, f"{missing} missing"
    assert ours <= theirs, f"{ours - theirs} too many"
