"""What one call of the package calls: nothing is found out twice, in Python or in the core."""

from __future__ import annotations

import warnings
from pathlib import Path

import fakes
import numpy as np
from core_trace import core_calls

import gpureduce as gr


def test_a_plain_call_is_one_call_of_the_core() -> None:
    a = np.ones((10, 100), np.float32)
    for axis in (None, 0, 1, -1, (0, 1), ()):
        for keepdims in (False, True):
            calls = core_calls(lambda at=axis, keep=keepdims: gr.sum(a, axis=at, keepdims=keep))
            assert calls == ["reduce_plain"]
    assert core_calls(lambda: gr.minmax(a, axis=(0, 1))) == ["reduce_plain"]
    assert core_calls(lambda: gr.dot(a[0], a[1])).count("dot") == 1


def test_a_masked_call_is_one_call_of_the_core() -> None:
    a = np.ones((10, 100), np.float32)
    mask = a.astype(bool)
    for function in (gr.sum, gr.any, gr.mean, gr.var, gr.nansum, gr.nanmean, gr.nanstd):
        calls = core_calls(lambda f=function: f(a, axis=1, keepdims=True, where=mask))
        assert calls == ["reduce_plain"]
    for extreme in (gr.max, gr.nanmin):
        calls = core_calls(lambda f=extreme: f(a, axis=1, initial=0, where=mask))
        assert calls == ["reduce_plain"]


def test_a_masked_mean_of_other_masks_reads_its_mask_again_only_where_it_is_nan() -> None:
    a = np.ones((10, 100), np.float32)
    for mask, passes in ((np.ones(100, bool), 1), (np.zeros(100, bool), 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of means of nothing
            calls = core_calls(lambda mask=mask: gr.mean(a, axis=1, keepdims=True, where=mask))
        assert calls.count("reduce") == passes
        assert len(calls) == len(set(calls)) + passes - 1


def test_results_of_device_arrays_have_numpys_shapes(tmp_path: Path) -> None:
    fakes.run(
        """
    from core_trace import core_calls
    from fakes.array_libraries import Shown, memory_of, value
    from gpureduce import _core
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    array = Shown(cube)
    memory = memory_of(array)
    for axis in (None, 0, -1, (0, 2), (2, 0), (0, 1, 2), ()):
        for keepdims in (False, True):
            expected = cube.sum(axis=axis, keepdims=keepdims)
            shape, count = _core.result_axes("sum", memory, axis, keepdims, False, False)
            assert shape == expected.shape
            assert count == cube.size / expected.size
            assert value(gr.sum(array, axis=axis, keepdims=keepdims)).shape == shape
            low, high = gr.minmax(array, axis=axis, keepdims=keepdims)
            assert value(low).shape == value(high).shape == shape
            host = gr.minmax(cube, axis=axis, keepdims=keepdims, device="cuda")
            assert host[0].shape == host[1].shape == shape
    assert core_calls(lambda: gr.sum(array, axis=1)) == ["reduce_plain"]
    for bad, kind in (((0, 0), ValueError), (3, np.exceptions.AxisError), (1.5, TypeError)):
        with raises(kind):
            _core.result_axes("sum", memory, bad, False, False, False)
    for arguments in ((), ("sum", cube, None, False, False)):
        with raises(TypeError, "result_axes takes"):
            _core.result_axes(*arguments)
    with raises(ValueError, "no operator"):
        _core.result_axes("none", memory, None, False, False, False)
    """,
        tmp_path,
        PYTHONPATH=str(Path(__file__).parents[1]),
    )
