"""Arrays of every sort through the GPU's host path, over a fake GPU: the results are NumPy's.

The GPU is slow, asynchronous and checks every pointer; the memory limits are small, so that arrays
are cut into many chunks. Values are small whole numbers: no order of folding changes a bit.
``GPR_TEST_SEED`` repeats a run.
"""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest
from draws import SEED

RANDOM = """
    seed = {seed}
    rng = np.random.default_rng(seed)
    gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20, cpu_threads=2)
    KERNELS = [k for k in gr.kernels() if k.name != "cub"]
    INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    OPS = ["sum", "prod", "min", "max", "mean", "any", "all"]

    def values(op, dtype, n):
        if op == "prod":
            a = rng.choice([1, 1, -1], n) if np.dtype(dtype).kind in "if" else np.ones(n, int)
        elif op in ("any", "all"):
            a = np.full(n, op == "all")
            a[rng.integers(n)] ^= rng.random() < 0.5
        elif np.dtype(dtype).kind in "if":
            a = rng.integers(-4, 5, n)
        else:
            a = rng.integers(0, 5, n)
        return a.astype(dtype)

    def twist(a):
        '''The same sort of array in another layout.'''
        what = rng.integers(8)
        if what == 0:
            return a[tuple(slice(None, None, rng.choice([-1, 1, 2, -3])) for _ in range(a.ndim))]
        if what == 1:
            return a.T
        if what == 2:
            return np.asfortranarray(a)
        if what == 3:
            return a.astype(a.dtype.newbyteorder())
        if what == 4:
            raw = np.zeros(a.nbytes + 1, np.uint8)[1:]
            moved = np.ndarray(a.shape, a.dtype, raw)
            moved[...] = a
            return moved
        if what == 5:
            return np.broadcast_to(a, (int(rng.integers(1, 4)), *a.shape))
        if what == 6:
            return gr.pinned_copy(a)
        return a

    def expected(op, a, axis, keepdims):
        '''NumPy's answer in wide arithmetic, rounded once.'''
        native = a.dtype.newbyteorder("=")
        if native in (np.float16, np.float32) and op in ("sum", "prod", "mean"):
            wide = getattr(np, op)(a.astype(np.float64), axis=axis, keepdims=keepdims)
            return np.asarray(wide).astype(native)
        return np.asarray(getattr(np, op)(a, axis=axis, keepdims=keepdims))

    for case in range({cases}):
        cuda.fake_set_delays(int(rng.integers(1 << 30)), int(rng.choice([0, 0, 100])))
        op = rng.choice(OPS)
        dtype = rng.choice([*INTEGERS, "bool", "float16", "float32", "float64"])
        ndim = int(rng.integers(1, 5))
        size = int(rng.choice([1000, 40_000, 400_000, 2_000_000])) // np.dtype(dtype).itemsize
        shape = []
        for _ in range(ndim - 1):
            shape.append(int(rng.integers(1, min(60, size) + 1)))
            size = max(1, size // shape[-1])
        shape.append(size)
        rng.shuffle(shape)
        a = twist(values(op, dtype, int(np.prod(shape))).reshape(shape))
        axes = [int(i) for i in range(a.ndim) if rng.random() < 0.6]
        axis = None if rng.random() < 0.3 else tuple(axes)
        keepdims = bool(rng.random() < 0.3)
        kernel = rng.choice([k for k in KERNELS if k.name != "exact" or op in ("sum", "mean")])
        options = dict(kernel=kernel.name)
        kept = [extent for i, extent in enumerate(a.shape) if axis is not None and i not in axis]
        rows = np.prod(kept)
        # each row has as many blocks
        if kernel.takes_grid_size and rows < 10_000 and rng.random() < 0.3:
            # of cooperative as many blocks as the fake GPU holds at once
            most = 8 if kernel.name == "cooperative" else 99
            options["grid_size"] = int(rng.integers(1, most + 1))
        what = (seed, case, op, a.dtype, a.shape, a.strides, axis, keepdims, options)
        got = getattr(gr, op)(a, axis=axis, keepdims=keepdims, device="cuda", **options)
        want = expected(op, a, axis, keepdims)
        assert type(got) is (np.ndarray if want.ndim else want.dtype.type), what
        assert np.asarray(got).dtype == want.dtype and np.shape(got) == want.shape, what
        assert np.array_equal(got, want), (what, got, want)
        cpu = getattr(gr, op)(a, axis=axis, keepdims=keepdims, device="cpu")
        assert np.array_equal(got, cpu), (what, got, cpu)
        assert cuda.fake_violation() == b"", (what, cuda.fake_violation())
        del a, got
        assert cuda.fake_bytes(0) <= 1 << 20 and cuda.fake_bytes(1) <= 1 << 20, what
    assert cuda.fake_pageable() == 0
"""


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_random_arrays_give_what_numpy_gives(part: int, tmp_path: Path) -> None:
    fakes.run(RANDOM.format(seed=SEED + part, cases=120), tmp_path, timeout=300)


def test_arrays_larger_than_the_gpu_are_reduced_within_its_memory(tmp_path: Path) -> None:
    fakes.run(
        """
        a = np.ones((3, 5_000_000), np.uint8)
        for limit in (1 << 20, 3 << 20):
            gr.set_limits(device_bytes=limit, pinned_bytes=limit)
            works()
            cuda.fake_reset_peaks()
            assert gr.sum(a, device="cuda") == 15_000_000
            assert gr.last_run().chunks > 15_000_000 // limit
            assert gr.sum(a, axis=1, device="cuda").tolist() == [5_000_000] * 3
            assert gr.max(a, axis=0, device="cuda").sum(dtype=int) == 5_000_000
            assert 0 < cuda.fake_peak(0) <= limit and 0 < cuda.fake_peak(1) <= limit
        """,
        tmp_path,
        cuda="device_bytes=4000000,pinned_bytes=4000000",
    )


def test_the_default_limits_hold_for_large_arrays(tmp_path: Path) -> None:
    fakes.run(
        """
        # many bytes, few elements: the fake takes one after the other
        a = np.ones(20_000_000, np.complex128)
        assert gr.any(a, device="cuda")
        assert gr.all(a.reshape(-1, 100), axis=1, device="cuda").all()
        assert cuda.fake_peak(0) <= gr.limits().device_bytes == 256 << 20
        assert cuda.fake_peak(1) <= gr.limits().pinned_bytes == 128 << 20
        """,
        tmp_path,
        timeout=200,
    )


def test_limits_come_from_the_environment(tmp_path: Path) -> None:
    fakes.run(
        """
        assert (gr.limits().device_bytes, gr.limits().pinned_bytes) == (2 << 20, 1 << 20)
        assert gr.sum(np.ones(3_000_000), device="cuda") == 3_000_000
        assert cuda.fake_peak(0) <= 2 << 20 and cuda.fake_peak(1) <= 1 << 20
        with raises(ValueError, "1 MiB"):
            gr.set_limits(device_bytes=1000)
        assert gr.limits().device_bytes == 2 << 20
        """,
        tmp_path,
        GPUREDUCE_DEVICE_BYTES=str(2 << 20),
        GPUREDUCE_PINNED_BYTES=str(1 << 20),
    )


def test_lower_limits_give_memory_back(tmp_path: Path) -> None:
    fakes.run(
        """
        gr.set_limits(device_bytes=64 << 20, pinned_bytes=64 << 20)
        assert gr.sum(np.ones(8_000_000), device="cuda") == 8_000_000
        assert cuda.fake_bytes(0) > 4 << 20
        gr.set_limits(device_bytes=1 << 20, pinned_bytes=1 << 20)
        works()
        assert cuda.fake_bytes(0) <= 1 << 20 and cuda.fake_bytes(1) <= 1 << 20
        """,
        tmp_path,
    )


def test_pinned_arrays_are_not_staged(tmp_path: Path) -> None:
    fakes.run(
        """
        a = gr.pinned_copy(np.arange(500_000))
        cuda.fake_watch(ctypes.c_void_p(a.ctypes.data), ctypes.c_size_t(a.nbytes))
        assert gr.sum(a, device="cuda") == 124999750000
        assert cuda.fake_watched() == a.nbytes
        assert gr.last_run().stages["stage"] == 0
        b = a[::2]  # parts of it are no longer contiguous
        cuda.fake_watch(ctypes.c_void_p(a.ctypes.data), ctypes.c_size_t(a.nbytes))
        assert gr.sum(b, device="cuda") == 62499750000
        assert cuda.fake_watched() == 0 and gr.last_run().stages["stage"] > 0
        c = a[1000:]
        cuda.fake_watch(ctypes.c_void_p(a.ctypes.data), ctypes.c_size_t(a.nbytes))
        assert gr.sum(c, device="cuda") == 124999750000 - 499500
        assert cuda.fake_watched() == c.nbytes
        """,
        tmp_path,
    )


def test_short_pinned_arrays_outlive_their_views(tmp_path: Path) -> None:
    fakes.run(
        """
        import gc
        works()
        before = cuda.fake_live(b"pinned")
        a = gr.empty_pinned((100, 100), np.float32)
        view = a[10:20].T
        del a
        gc.collect()
        view[...] = 2
        assert view.sum() == 2000 and cuda.fake_live(b"pinned") == before + 1
        del view
        gc.collect()
        assert cuda.fake_live(b"pinned") == before
        """,
        tmp_path,
    )


def test_nothing_is_left_behind_by_many_calls(tmp_path: Path) -> None:
    fakes.run(
        """
        kinds = (b"device", b"pinned", b"streams", b"events", b"modules", b"contexts")
        def everything():
            for shape in ((10,), (300_000,), (50_000, 3), (3, 50_000)):
                a = np.ones(shape, np.int16)
                for kernel in ("auto", "naive_atomic", "sequential", "last_block"):
                    assert gr.sum(a, axis=-1, kernel=kernel, device="cuda").sum() == a.size
                with raises(ValueError):
                    gr.sum(a, kernel="nothing", device="cuda")
        everything()
        def alive():
            return [cuda.fake_live(k) for k in kinds], cuda.fake_bytes(0), cuda.fake_bytes(1)
        before = alive()
        for _ in range(3):
            everything()
        assert before == alive()
        """,
        tmp_path,
    )


def test_what_a_mask_leaves_out_is_in_no_range(tmp_path: Path) -> None:
    fakes.run(
        """
        for sign in (1, -1):
            a = sign * np.arange(1, 601, dtype=np.float32).reshape(50, 12)
            mask = np.arange(12) % 3 > 0
            low, high = gr.minmax(a, axis=1, initial=sign * 30, where=mask, device="cuda")
            assert np.array_equal(low, np.min(a, axis=1, initial=sign * 30, where=mask)), low
            assert np.array_equal(high, np.max(a, axis=1, initial=sign * 30, where=mask)), high
        """,
        tmp_path,
    )
