"""Threads that use the same objects at the same time, with or without a GIL.

What goes wrong between threads goes wrong at some time: each test repeats what threads do, from a
barrier on, and has Python switch threads as often as it can.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import fakes
import numpy as np
import pytest
from conftest import SEED
from fakes.together import THREADS, together

import gpureduce as gr
from gpureduce import _core

IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

OVER_FAKES = """
    from fakes import array_libraries
    from fakes.array_libraries import Memory, Producer, Shown, settle
    from fakes.together import together
    from gpureduce import _core
    sys.setswitchinterval(1e-6)
"""


def run_over_fakes(script: str, tmp_path: Path) -> None:
    """Run a script of threads in a process over the fakes."""
    fakes.run(OVER_FAKES + script, tmp_path, PYTHONPATH=fakes.module_path())


@pytest.fixture(autouse=True)
def _switches_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.skipif(not IS_FREE_THREADED, reason="this Python has a GIL")
def test_the_import_does_not_switch_the_gil_on() -> None:
    script = """
import sys
import gpureduce as gr
import numpy as np

assert gr.sum(np.arange(10)) == 45 and gr.ExactSum().update(np.ones(3)).result() == 3
assert gr.describe(np.arange(5.0)).mean == 2
assert not sys._is_gil_enabled()
"""
    # Python warns where it switches the GIL on for a module.
    words = [sys.executable, "-W", "error::RuntimeWarning", "-c", script]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_functions_return_each_thread_its_own_results(rng: np.random.Generator) -> None:
    arrays = [rng.integers(-1000, 1000, int(n)) for n in rng.integers(1, 3000, THREADS)]
    grids = [rng.standard_normal((7, int(n))) for n in rng.integers(2, 90, THREADS)]
    wanted = [
        (a.sum(), a.min(), np.count_nonzero(a), g.max(1))
        for a, g in zip(arrays, grids, strict=True)
    ]
    deviations = [gr.std(g, axis=0) for g in grids]

    def work(thread: int, number: int) -> None:
        a, g = arrays[thread], grids[thread]
        whole, least, count, most = wanted[thread]
        kernel = "".join(["aut", "o"])  # a new string each time
        assert gr.sum(a, kernel=kernel) == whole, SEED
        assert gr.min(a) == least, SEED
        assert gr.count_nonzero(a, axis=None, kernel=kernel) == count, SEED
        np.testing.assert_array_equal(gr.max(g, axis=1), most)
        np.testing.assert_array_equal(gr.std(g, axis=0), deviations[thread])
        assert gr.last_run() is not None
        with pytest.raises(ValueError, match=f"kernel_{thread}_{number}"):
            gr.sum(a, kernel=f"kernel_{thread}_{number}")

    together(work, 200)


def test_names_of_kernels_are_found_by_all_threads_at_once() -> None:
    """The names that calls gave so far are shared, and each is new to some round."""
    names = list(_core.KERNEL_FILES)
    a = np.arange(100, dtype=np.int32)

    def work(thread: int, number: int) -> None:
        name = names[(thread + number) % len(names)]
        if name in _core.KERNELS_ON_CPU:
            assert gr.sum(a, kernel="".join(name), device="cpu") == 4950
        else:
            assert _core.choose_kernel("".join(name), 0, "int32") == name

    together(work, 100)


def test_exact_sums_are_updated_merged_and_read_at_once(rng: np.random.Generator) -> None:
    parts = [
        [rng.standard_normal(500) * 10.0 ** rng.integers(-200, 200) for _ in range(20)]
        for _ in range(THREADS)
    ]
    total, other = gr.ExactSum(), gr.ExactSum()

    def work(thread: int, number: int) -> None:
        total.update(parts[thread][number])
        other.merge(gr.ExactSum().update(parts[thread][number]))
        assert gr.ExactSum.from_bytes(total.to_bytes()).count <= total.count
        total.result()

    together(work, 20)
    alone = gr.ExactSum()
    for each in parts:
        for part in each:
            alone.update(part)
    assert total.to_bytes() == other.to_bytes() == alone.to_bytes(), SEED


def test_types_change_their_bases_while_their_arrays_are_looked_at() -> None:
    class One: ...

    class Two: ...

    class Array(One):
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.arange(5)

    def work(thread: int, number: int) -> None:
        for _ in range(20):
            if thread == 0:
                Array.__bases__ = (Two, One) if number % 2 else (One,)
            else:
                assert _core.find_library(Array()) is None
                assert gr.sum(Array()) == 10

    together(work, 30)


def test_a_start_of_another_type_leaves_the_filters_of_warnings_alone() -> None:
    """Filters are of all threads: who changes and restores them undoes another one's change."""
    before = list(warnings.filters)
    seen = []

    def work(thread: int, number: int) -> None:
        out = np.zeros((), np.float32)
        assert gr.sum(np.arange(4.0), out=out, initial=2.5) is out
        assert out == 8.5
        seen.append(list(warnings.filters) == before)

    together(work, 50)
    assert all(seen)


def test_one_thread_consumes_a_capsule(tmp_path: Path) -> None:
    script = """
    ROUNDS = 300
    producers = [Producer(np.ones(3, np.float32), versions=k % 2 == 0) for k in range(ROUNDS)]
    capsules = [each.__dlpack__(stream=1) for each in producers]
    taken = [[] for _ in range(ROUNDS)]

    def work(thread, each):
        try:
            taken[each].append(_core.import_dlpack(capsules[each], 1))
        except ValueError as error:
            assert "consumed already" in str(error)

    together(work, ROUNDS)
    assert [len(each) for each in taken] == [1] * ROUNDS
    taken.clear()
    assert [each.returned for each in producers] == [1] * ROUNDS
    """
    run_over_fakes(script, tmp_path)


def test_interfaces_change_while_they_are_read(tmp_path: Path) -> None:
    script = """
    memory = Memory(np.ones((4, 6), np.float32))
    interface = {"shape": (4, 6), "typestr": "<f4", "data": (memory.start, False), "version": 3,
                 "strides": None}
    shapes = [(4, 6), (6, 4), (24,), (2, 2, 6)]

    def work(thread, each):
        for number in range(30):
            if thread < 2:
                interface["shape"] = tuple(list(shapes[number % 4]))
                interface["data"] = tuple([memory.start, False])
                interface["strides"] = None
            else:
                found = _core.import_cai(interface, memory, 1)
                assert found.shape in shapes and found.pointer == memory.start

    together(work, 100)
    """
    run_over_fakes(script, tmp_path)


def test_loans_of_all_threads_end_once(tmp_path: Path) -> None:
    script = """
    import weakref
    class Lent: ...
    alive = [[] for _ in range(8)]

    def work(thread, each):
        lent = Lent()
        alive[thread].append(weakref.ref(lent))
        _core.keep_loan(0, 1, lent)
        if each % 20 == thread:
            _core.end_loans()

    together(work, 200)
    _core.end_loans()
    assert all(each() is None for refs in alive for each in refs)
    assert sum(map(len, alive)) == 1600
    """
    run_over_fakes(script, tmp_path)


def test_device_arrays_of_libraries_are_reduced_by_all_threads(tmp_path: Path) -> None:
    script = """
    arrays = [Producer(np.arange(100 + k, dtype=np.float32)) for k in range(8)]
    wanted = [float(np.arange(100 + k).sum()) for k in range(8)]

    def work(thread, each):
        found = gr.sum(arrays[thread], kernel="shfl_atomic")
        assert array_libraries.value(found) == wanted[thread]
        assert gr.sum(np.arange(1000 + thread)) == sum(range(1000 + thread))

    together(work, 40)
    _core.end_loans()
    """
    run_over_fakes(script, tmp_path)
