"""Counts of a few elements, which are made without a request: they are NumPy's, and leave the
record that a request leaves.

``GPR_TEST_SEED`` repeats a run.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from draws import SEED

import gpureduce as gr

DTYPES = "?bBhHiIlLqQefdFD"


def _layouts(a: np.ndarray) -> dict[str, np.ndarray]:
    moved = np.ndarray(a.shape, a.dtype, np.zeros(a.nbytes + 1, np.uint8)[1:])
    moved[...] = a
    return {
        "as it is": a,
        "turned": a.T,
        "reversed": a[..., ::-1],
        "reversed and turned": a[::-1].T,
        "an axis moved": np.moveaxis(a, 0, -1),
        "overlapping": np.lib.stride_tricks.sliding_window_view(a, 1, axis=-1),
        "windows": np.lib.stride_tricks.sliding_window_view(a, a.shape[-1] // 2 + 1, axis=-1),
        "with gaps": a[::2],
        "broadcast": np.broadcast_to(a, (2, *a.shape)),
        "swapped": a.astype(a.dtype.newbyteorder()),
        "not aligned": moved,
    }


def _record() -> dict[str, Any]:
    run = gr.last_run()
    assert run is not None
    assert run.seconds > 0
    return dataclasses.asdict(run) | {"seconds": 0}


@pytest.mark.parametrize("char", DTYPES)
def test_counts_of_few_elements_are_numpys_and_leave_a_request_s_record(char: str) -> None:
    print("seed", SEED)
    rng = np.random.default_rng([SEED, ord(char)])
    for _ in range(25):
        shape = tuple(int(x) for x in rng.integers(1, 12, rng.integers(1, 4)))
        values = rng.integers(-1, 2, shape) * rng.choice([1.0, 0.5, np.nan], shape)
        with np.errstate(invalid="ignore"):
            a = np.where(rng.random(shape) < 0.5, values, -0.0).astype(char)
        for name, array in _layouts(a).items():
            for kernel in ("auto", "fast"):
                got = gr.count_nonzero(array, device="cpu", kernel=kernel)
                few = _record()
                wanted = np.count_nonzero(array)
                assert type(got) is np.intp
                assert got == wanted, (name, shape, SEED)
                every = tuple(range(array.ndim))
                assert gr.count_nonzero(array, every, device="cpu", kernel=kernel) == wanted
                assert few == _record(), (name, shape, SEED)


@pytest.mark.parametrize("elements", [1, 511, 512, 513, 2047, 8192, 8193, 16384, 16385, 32769])
@pytest.mark.parametrize("char", "?efF")
def test_no_element_is_missed_where_ways_change(char: str, elements: int) -> None:
    a = np.ones(elements, char)
    assert gr.count_nonzero(a, device="cpu") == elements
    a[-1] = a[0] = 0
    assert gr.count_nonzero(a, device="cpu") == max(elements - 2, 0)
    assert gr.count_nonzero(a[:65], device="cpu") == np.count_nonzero(a[:65])
    wide = np.ones((5, elements // 4 + 2), char)
    wide[1, ::3] = 0
    for apart in (a[::2], a[::-3], a[::2][:64], a[1:][::-1], wide[:, 1:], wide[::2, ::-2]):
        assert gr.count_nonzero(apart, device="cpu") == np.count_nonzero(apart)


def test_no_elements_a_scalar_and_options() -> None:
    assert gr.count_nonzero(np.ones(0)) == 0
    assert gr.count_nonzero(np.array(2.5)) == 1
    a = np.ones(5)
    for bad in ({"kernel": "nothing"}, {"device": "nothing"}, {"block_size": -1}):
        with pytest.raises(ValueError, match=r"nothing|block_size"):
            gr.count_nonzero(a, **bad)
    with pytest.raises(TypeError):
        gr.count_nonzero(a, stream="x")
    with pytest.raises(TypeError):
        gr.count_nonzero(np.ones(5, np.longdouble), device="cpu")
    assert gr.count_nonzero(a, kernel="cub", device="cpu") == 5


def test_the_default_device_counts_where_there_is_one(tmp_path: Path) -> None:
    fakes.run(
        """
    a = np.arange(9)
    assert gr.count_nonzero(a) == 8 and gr.last_run().device == "cuda:0"
    assert gr.count_nonzero(a, device="cpu") == 8 and gr.last_run().device == "cpu"
    """,
        tmp_path,
    )
