"""Device arrays of other libraries: how they come in, the order of work, what is refused.

Over the fakes, whose device memory the host can read; the libraries are miniatures
(``fakes/array_libraries.py``).
"""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest
from conftest import SEED

SETUP = """
    import gc
    import weakref
    from fakes import array_libraries
    from fakes.array_libraries import Exchanged, Producer, Shown, dawdle, fill, lend_late
    from fakes.array_libraries import make_stream, memory_of, offer, settle, value
    from gpureduce import _core
    from gpureduce._interop import libraries
    ROWS = np.arange(600, dtype=np.float32).reshape(20, 30)
    DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
              "float16", "float32", "float64")
"""


def run(script: str, tmp_path: Path, cuda: str = "", setup: str = "") -> None:
    fakes.run(SETUP + setup + script, tmp_path, cuda, PYTHONPATH=fakes.module_path())


# ---------------------------------------------------------------- DLPack


def test_tensors_come_in_as_they_are_lent_and_go_back_once(tmp_path: Path) -> None:
    run(
        """
    for versions in (True, False):
        for dtype in DTYPES:
            values = np.ones((3, 4), dtype)
            producer = Producer(values, versions=versions)
            found = _core.import_dlpack(producer.__dlpack__(stream=7), 7)
            layout = found.shape, found.strides, found.dtype
            assert layout == (values.shape, values.strides, dtype)
            place = found.pointer, found.device, found.stream, found.read_only
            assert place == (producer.held.start, 0, 7, 0)
            assert (producer.lent, producer.returned) == (1, 0)
            del found
            assert (producer.lent, producer.returned) == (1, 1)
    for dtype in ("complex64", "complex128"):
        capsule = Producer(np.ones(3, dtype)).__dlpack__(stream=1)
        assert _core.import_dlpack(capsule, 1).dtype == dtype
    half = Producer(np.ones(3, np.uint16), dtype="bfloat16")
    assert _core.import_dlpack(half.__dlpack__(stream=1), None).stream is None
    assert _core.import_dlpack(half.__dlpack__(stream=1), 1).dtype == "bfloat16"
    """,
        tmp_path,
    )


def test_layouts_come_in_whatever_they_are(tmp_path: Path) -> None:
    run(
        """
    cube = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    for values in (cube, cube.T, cube[::-1, ::2], cube[1:, 2, ::-2], cube[:0], cube[:, :0],
                   cube[0, 0, 0:1].reshape(()), np.broadcast_to(cube[0, 0], (2, 5))):
        found = _core.import_dlpack(Producer(values).__dlpack__(stream=1), 1)
        assert (found.shape, found.strides) == (values.shape, values.strides)
        assert (value(found) == values).all()
    found = _core.import_dlpack(Producer(cube, compact=True).__dlpack__(stream=1), 1)
    assert found.strides == cube.strides
    def shift(tensor):
        tensor.byte_offset = 6
        tensor.data -= 6
    found = _core.import_dlpack(Producer(cube, change=shift).__dlpack__(stream=1), 1)
    assert (value(found) == cube).all()
    managed = Producer(cube, kind=array_libraries.MANAGED)
    assert _core.import_dlpack(managed.__dlpack__(stream=1), 1).shape == cube.shape
    assert _core.import_dlpack(Producer(cube, flags=1).__dlpack__(stream=1), 1).read_only
    """,
        tmp_path,
    )


def test_what_is_wrong_with_a_tensor_is_an_error_and_the_tensor_goes_back(tmp_path: Path) -> None:
    run(
        """
    def change(**fields):
        def spoil(tensor):
            for name, what in fields.items():
                setattr(tensor, name, what)
        return spoil
    def extent(tensor):
        tensor.shape[0] = -2
    def stride(tensor):
        tensor.strides[0] = 1 << 62
    wrong = [
        (BufferError, "version 2", dict(major=2)),
        (BufferError, "device type is 1", dict(kind=array_libraries.HOST)),
        (BufferError, "device type is 3", dict(kind=array_libraries.PINNED)),
        (BufferError, "device type is 10", dict(kind=10)),
        (TypeError, "2 lanes", dict(change=change(dtype=array_libraries.Type(2, 32, 2)))),
        (TypeError, "type code 10", dict(change=change(dtype=array_libraries.Type(10, 8, 1)))),
        (TypeError, "float16, bfloat16",
         dict(change=change(dtype=array_libraries.Type(2, 128, 1)))),
        (ValueError, "-1", dict(change=change(ndim=-1))),
        (ValueError, "65", dict(change=change(ndim=65))),
        (BufferError, "no shape", dict(change=change(shape=None))),
        (ValueError, "offset", dict(change=change(byte_offset=(1 << 64) - 4))),
        (ValueError, "negative extent -2", dict(change=extent)),
        (ValueError, "axis 0", dict(change=stride)),
        (ValueError, "NULL", dict(change=change(data=None))),
        (ValueError, "freed, or never allocated", dict(change=change(data=4096))),
        (ValueError, 'names device "cuda:1"',
         dict(change=change(device=array_libraries.Device(2, 1)))),
        (ValueError, "device -1", dict(change=change(device=array_libraries.Device(2, -1)))),
    ]
    for versions in (True, False):
        for kind, words, how in wrong:
            if not versions and "major" in how:
                continue
            producer = Producer(ROWS, versions=versions, **how)
            with raises(kind, words):
                _core.import_dlpack(producer.__dlpack__(stream=1), 1)
            assert (producer.lent, producer.returned) == (1, 1), words
    producer = Producer(ROWS)
    for stream, kind in ((-5, ValueError), ("x", TypeError)):
        with raises(kind):
            _core.import_dlpack(producer.__dlpack__(stream=1), stream)
    assert (producer.lent, producer.returned) == (2, 2)
    """,
        tmp_path,
        "devices=2",
    )


def test_a_capsule_is_consumed_once(tmp_path: Path) -> None:
    run(
        """
    for versions in (True, False):
        producer = Producer(ROWS, versions=versions)
        capsule = producer.__dlpack__(stream=1)
        found = _core.import_dlpack(capsule, 1)
        assert array_libraries.capsule_name(capsule).startswith(b"used_dltensor")
        with raises(ValueError, "consumed already"):
            _core.import_dlpack(capsule, 1)
        del found, capsule
        assert producer.returned == 1
        refused = Producer(ROWS, versions=versions, kind=array_libraries.HOST)
        capsule = refused.__dlpack__(stream=1)
        with raises(BufferError):
            _core.import_dlpack(capsule, 1)
        with raises(ValueError, "consumed already"):
            _core.import_dlpack(capsule, 1)
        assert refused.returned == 1
    with raises(ValueError, "'other'"):
        _core.import_dlpack(array_libraries.new_capsule(1, b"other", None), 1)
    with raises(ValueError, "has a name"):
        _core.import_dlpack(array_libraries.new_capsule(1, None, None), 1)
    for bad in (None, 5, ROWS):
        with raises(TypeError, "must return a capsule"):
            _core.import_dlpack(bad, 1)
    """,
        tmp_path,
    )


# ---------------------------------------------------------------- the CUDA array interface


def test_interfaces_come_in_by_versions_2_and_3(tmp_path: Path) -> None:
    run(
        """
    for values in (ROWS, ROWS.T, ROWS[::-1, ::3], ROWS[:0], ROWS[0, 0], ROWS.astype("?"),
                   ROWS.astype("c8")):
        values = np.asarray(values)
        for how in (dict(), dict(version=2, drop=("stream",)), dict(strides=values.strides),
                    dict(stream=2)):
            shown = Shown(values, **how)
            found = _core.import_cai(shown.__cuda_array_interface__, shown, 1)
            assert (found.shape, found.dtype) == (values.shape, values.dtype.name)
            assert 0 in values.shape or found.strides == values.strides
            assert found.stream == (2 if "stream" in how else 1) and (value(found) == values).all()
    old = Shown(ROWS, version=2, stream=5)
    assert _core.import_cai(old.entries, old, None).stream is None
    shown = Shown(ROWS, device=1)
    found = _core.import_cai(shown.entries, shown, 1)
    assert found.device == 1
    shown.entries["data"] = (shown.held.start, True)
    assert _core.import_cai(shown.entries, shown, 1).read_only
    nothing = Shown(ROWS[:0], data=(0, False))
    assert _core.import_cai(nothing.entries, nothing, 1).shape == (0, 30)
    there = weakref.ref(shown)
    del shown
    gc.collect()
    assert there() is not None
    del found
    gc.collect()
    assert there() is None
    """,
        tmp_path,
        "devices=2",
    )


def test_what_is_wrong_with_an_interface_is_an_error(tmp_path: Path) -> None:
    run(
        """
    wrong = [
        (ValueError, "stream 0", dict(stream=0)),
        (ValueError, "negative", dict(stream=-3)),
        (TypeError, "stream", dict(stream="x")),
        (TypeError, "masked", dict(mask=Shown(ROWS))),
        (TypeError, "byte order", dict(typestr=">f4")),
        (TypeError, "not supported", dict(typestr="<M8[s]")),
        (TypeError, "not supported", dict(typestr="|V2")),
        (TypeError, "", dict(typestr="nonsense")),
        (ValueError, "version 1", dict(version=1)),
        (ValueError, "version 4", dict(version=4)),
        (ValueError, "'version'", dict(drop=("version",))),
        (ValueError, "'shape'", dict(drop=("shape",))),
        (ValueError, "'typestr'", dict(drop=("typestr",))),
        (ValueError, "'data'", dict(drop=("data",))),
        (ValueError, "'data'", dict(data=5)),
        (ValueError, "'data'", dict(data=(5,))),
        (ValueError, "NULL", dict(data=(0, False))),
        (ValueError, "freed", dict(data=(4096, False))),
        (OverflowError, "", dict(data=(1 << 70, False))),
        (TypeError, "tuple of integers", dict(shape=[20, 30])),
        (TypeError, "", dict(shape=("x",))),
        (ValueError, "negative extent", dict(shape=(-20, 30))),
        (ValueError, "64", dict(shape=(1,) * 65)),
        (ValueError, "1 strides for 2 axes", dict(strides=(4,))),
        (TypeError, "", dict(strides=(4, "x"))),
        (ValueError, "2^63", dict(shape=(1 << 40, 1 << 40))),
        (ValueError, "address space", dict(shape=(5,), strides=(1 << 62,))),
        (ValueError, "address space", dict(shape=(5,), strides=(-1 << 62,))),
        (ValueError, "address space", dict(shape=(2, 2), strides=(-1 << 63, 4))),
        (ValueError, "address space", dict(shape=(2, 3), strides=((1 << 63) - 1, 1 << 62))),
    ]
    for kind, words, how in wrong:
        shown = Shown(ROWS, **how)
        before = sys.getrefcount(shown)
        with raises(kind, words):
            _core.import_cai(shown.entries, shown, 1)
        assert sys.getrefcount(shown) == before
        with raises(kind, words):
            gr.sum(shown)
    with raises(ValueError, "more than is allocated"):  # which the driver knows
        gr.sum(Shown(ROWS, shape=(5,), strides=(1 << 40,)))
    with raises(TypeError, "dictionary"):
        _core.import_cai(5, None, 1)
    """,
        tmp_path,
    )


# ---------------------------------------------------------------- the C exchange API


def test_an_exchange_api_that_is_not_understood_leaves_dlpack(tmp_path: Path) -> None:
    run(
        """
    import ctypes
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype = ctypes.py_object
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    room = ctypes.create_string_buffer(256)
    room[0:4] = (1).to_bytes(4, "little")  # of version 1, with no functions
    later = type("Later", (Producer,), {})
    offer(later, major=2)
    shown = [None, 5, "x", capsule(ctypes.addressof(room), b"something_else", None),
             capsule(ctypes.addressof(room), b"dlpack_exchange_api", None),
             later.__dlpack_c_exchange_api__]
    for each in shown:
        kind = type("Offers", (Producer,), {"__dlpack_c_exchange_api__": each})
        producer = kind(ROWS)
        assert (value(gr.sum(producer, axis=0)) == ROWS.sum(axis=0)).all(), each
        assert _core.import_exchange(producer) is None
    class Strange(type):
        def __getattr__(kind, name):
            raise LookupError(name)
    strange = Strange("Strange", (Producer,), {})
    with raises(LookupError, "exchange"):
        gr.sum(strange(ROWS))
    """,
        tmp_path,
    )


def test_an_exchange_api_that_gives_nothing_or_goes_in_a_circle_is_an_error(tmp_path: Path) -> None:
    run(
        """
    # A lender, a maker and a taker that say they have done it, and streams that have no name.
    nothing = lambda *_: 0
    lost = type("Lost", (Exchanged,), {})
    offer(lost)
    lost.api[0].stream = array_libraries.STREAM(lambda *_: -1)
    with raises(BufferError, "name its stream"):
        gr.sum(lost(ROWS), axis=0)
    for field, kind, words in (
        ("take", array_libraries.FROM, "lend the array"),
        ("allocate", array_libraries.ALLOCATE, "could not make another"),
        ("give", array_libraries.TO, "take an array over"),
    ):
        lazy = type("Lazy", (Exchanged,), {})
        offer(lazy, views=field != "take")
        setattr(lazy.api[0], field, kind(nothing))
        with raises(MemoryError if field == "allocate" else BufferError, words):
            gr.sum(lazy(ROWS), axis=0)
    # Versions that each name another one as the one before.
    later = type("Later", (Producer,), {})
    offer(later, major=2)
    header = later.api[0].header
    header.prev_api = ctypes.pointer(header)
    assert (value(gr.sum(later(ROWS), axis=0)) == ROWS.sum(axis=0)).all()
    """,
        tmp_path,
    )


def test_the_exchange_api_shows_makes_and_takes_arrays(tmp_path: Path) -> None:
    run(
        """
    for views in (True, False):
        kind = type("Exchanged", (Exchanged,), {})
        offer(kind, views=views)
        kind.current = make_stream()
        array = kind(ROWS.T)
        found = _core.import_exchange(array)
        assert (found.shape, found.strides, found.dtype) == ((30, 20), ROWS.T.strides, "float32")
        assert found.stream == kind.current and (value(found) == ROWS.T).all()
        del found
        counts = kind.counts
        met = counts["view"], counts["take"], counts["returned"]
        assert met == ((1, 0, 0) if views else (0, 1, 1))
        result = gr.sum(array, axis=0)
        assert type(result) is kind and (value(result) == ROWS.T.sum(axis=0)).all()
        assert gr.last_run().device == "cuda:0"
        kind.__setitem__ = lambda *about: assigned.append(about)
        assigned, wide = [], kind(np.zeros(30, np.int32))
        assert gr.argmax(array, axis=1, out=wide) is wide
        (out, where, result), = assigned
        assert out is wide and where is ... and (value(result) == ROWS.T.argmax(axis=1)).all()
        made = _core.empty_like(array, (2, 3), "int16", 0)
        assert type(made) is kind and made.held.dtype == "int16" and made.held.shape == (2, 3)
        kind.current = 0
        assert _core.import_exchange(array).stream == 1
    assert _core.import_exchange(ROWS) is None
    newer = type("Newer", (Exchanged,), {})
    offer(newer, major=1, older=True)
    assert _core.import_exchange(newer(ROWS)).shape == ROWS.shape
    unknown = type("Unknown", (Exchanged,), {})
    offer(unknown, major=2)
    assert _core.import_exchange(unknown(ROWS)) is None
    silent = type("Silent", (Exchanged,), {})
    offer(silent, fails=True)
    with raises(BufferError, "gave no reason"):
        gr.sum(silent(ROWS))
    with raises(TypeError, "no DLPack C exchange API"):
        _core.empty_like(ROWS, (2,), "int8", 0)
    for bad in ((array, [2], "int8", 0), (array, (2,), 5, 0), (array, (2,), "int8", "x"),
                (array, (2,))):
        with raises(TypeError):
            _core.empty_like(*bad)
    with raises(ValueError, "no dtype"):
        _core.empty_like(array, (2,), "float8", 0)
    """,
        tmp_path,
    )


# ---------------------------------------------------------------- reducing


def test_results_are_numpys_in_the_memory_of_the_device(tmp_path: Path) -> None:
    run(
        """
    for dtype in ("int32", "float32", "uint8", "bool", "float16"):
        values = (ROWS % 2).astype(dtype)
        for lend in (Producer, Shown):
            array = lend(values)
            for op in ("sum", "prod", "min", "max", "mean", "any", "all"):
                for axis in (None, 1, (0, 1), -1, ()):
                    for keepdims in (False, True):
                        result = getattr(gr, op)(array, axis=axis, keepdims=keepdims)
                        expected = getattr(np, op)(values, axis=axis, keepdims=keepdims)
                        assert isinstance(result, libraries.DeviceBuffer)
                        found = value(result)
                        assert found.dtype == expected.dtype
                        assert np.shape(found) == np.shape(expected)
                        np.testing.assert_allclose(found, expected, rtol=1e-3,
                                                   err_msg=f"{op} {axis} {dtype}")
    assert value(gr.sum(Producer(ROWS), dtype="float64")).dtype == np.float64
    assert value(gr.sum(Shown(ROWS), dtype=np.int16)).dtype == np.int16
    assert value(gr.reduce(Shown(ROWS), "max")) == 599
    empty = Producer(ROWS[:0])
    assert value(gr.sum(empty)) == 0 and value(gr.sum(empty, axis=0)).shape == (30,)
    for bad, kind in ((dict(axis=2), np.exceptions.AxisError), (dict(axis="x"), TypeError),
                      (dict(dtype="x"), TypeError), (dict(kernel="nothing"), ValueError),
                      (dict(block_size=0), ValueError)):
        with raises(kind):
            gr.sum(Producer(ROWS), **bad)
    with raises(ValueError, "zero-size array", "minimum"):
        gr.min(empty)
    """,
        tmp_path,
    )


def test_the_array_says_where_it_is_reduced(tmp_path: Path) -> None:
    run(
        """
    for lend in (Producer, Shown):
        array = lend(ROWS, device=1)
        for device in (None, "cuda", "cuda:1", "auto"):
            result = gr.sum(array, device=device)
            assert result.device == 1 and value(result) == ROWS.sum()
            assert gr.last_run().device == "cuda:1"
        with raises(ValueError, "cuda:1", "cupy.asnumpy"):
            gr.sum(array, device="cpu")
        with raises(ValueError, 'not of "cuda:0"'):
            gr.sum(array, device="cuda:0")
        with raises(ValueError, "unknown device"):
            gr.sum(array, device="gpu")
        here = lend(ROWS)
        with raises(ValueError, "cuda:0", "cuda:1"):
            gr.sum(here, out=lend(np.zeros((), np.float32), device=1))
        with raises(ValueError, "cuda:0", "cuda:1"):
            gr.sum(here, where=lend(ROWS > 5, device=1))
    """,
        tmp_path,
        "devices=2",
    )


def test_work_waits_for_its_producer_and_its_consumer_for_it(tmp_path: Path) -> None:
    run(
        """
    dawdle(3000)
    consumer = make_stream()
    for seed in range(10):
        for lend in (Producer, Shown):
            array, stream = lend_late(lend, 5.0, 1.0)
            result = gr.sum(array)
            if lend is Producer:
                assert array.asked == [_core.device_stream(0)] == [result.stream]
            else:
                assert result.stream == stream
            # Whoever takes the result over reads it in order.
            given = _core.import_dlpack(result.__dlpack__(stream=consumer), consumer)
            again = gr.max(array)
            assert value(given) == 500 and value(again) == 1
    """,
        tmp_path,
    )


def test_a_stream_of_the_callers_waits_before_and_the_producers_after(tmp_path: Path) -> None:
    run(
        """
    dawdle(3000)
    for seed in range(10):
        away = make_stream()
        array, home = lend_late(Shown, 7.0, 2.0)
        result = gr.sum(array, stream=away)
        # What follows on the producer's stream comes after the work: it may not change what is
        # read.
        fill(array.held, home, 9.0)
        assert value(result) == 1000
    class WithPtr:
        ptr = away
    assert value(gr.sum(array, stream=WithPtr)) == 4500 == value(gr.sum(array, stream=0))
    with raises(TypeError, "stream"):
        gr.sum(array, stream="x")
    with raises(ValueError, "negative"):
        gr.sum(array, stream=-1)
    """,
        tmp_path,
    )


def test_loans_end_when_the_device_is_done_and_not_before(tmp_path: Path) -> None:
    run(
        """
    array = Producer(ROWS)
    first = gr.sum(array)
    assert array.lent == 1
    settle()
    second = gr.sum(array)  # looks whether earlier loans have ended
    assert array.lent == 2 and array.returned == 1
    settle()
    _core.end_loans()
    assert array.returned == 2
    # A stream that waits for another one, which dawdles: its loan lasts as long.
    slow, stream = make_stream(), _core.device_stream(0)
    last = Producer(ROWS)
    dawdle(400_000, seed=3)
    for _ in range(4):
        fill(last.held, slow, 0.0)
    _core.order_streams(0, slow, stream)
    dawdle(0)
    mark = _core.mark_stream(0, stream)  # the device passes it before the loan's own
    _core.keep_loan(0, stream, _core.import_dlpack(last.__dlpack__(stream=stream), stream))
    _core.keep_loan(0, stream, None)
    returned = last.returned
    assert returned == 0 or _core.mark_passed(mark)
    _core.end_loans()
    assert last.returned == 1 and _core.mark_passed(mark)
    """,
        tmp_path,
    )


def test_out_receives_the_result_and_is_returned(tmp_path: Path) -> None:
    run(
        """
    for lend in (Producer, Shown):
        array = lend(ROWS)
        out = lend(np.zeros(20, np.float32))
        assert gr.sum(array, axis=1, out=out) is out and (out.held.read() == ROWS.sum(axis=1)).all()
        thirds = lend(ROWS / np.float32(3))
        wider = lend(np.zeros(20, np.float64))
        for make in (gr.mean, gr.nanmean):
            assert make(thirds, axis=1, out=wider) is wider
            exact = (ROWS / np.float32(3)).astype(np.float64).mean(axis=1)
            assert np.allclose(wider.held.read(), exact, rtol=1e-15, atol=0)
        for name in ("var", "std", "nanvar", "nanstd"):
            for about in {}, {"mean": lend(np.ones((20, 1), np.float32))}:
                exact = ROWS / np.float32(3)
                exact = getattr(np, name)(exact.astype("f8"), axis=1,
                                          **({"mean": np.ones((20, 1))} if about else {}))
                for kernel in ("auto", "last_block", "exact")[:2 if about else 3]:
                    for held in wider, np.zeros(20):
                        found = getattr(gr, name)(thirds, axis=1, out=held, kernel=kernel, **about)
                        assert found is held
                        found = found if isinstance(found, np.ndarray) else found.held.read()
                        assert np.allclose(found, exact, rtol=1e-14, atol=0)
            # 1, 1, 2
            brief = Producer(np.array([[0x3F80, 0x3F80, 0x4000]], np.uint16), dtype="bfloat16")
            assert make(brief, axis=1, out=np.zeros(1))[0] == 4 / 3
        with raises(ValueError, "wrong number of dimensions", "add"):
            gr.sum(array, out=out)
        with raises(ValueError, "shape"):
            gr.sum(array, axis=0, out=out)
        with raises(TypeError, "float64"):
            gr.sum(array, axis=1, out=out, dtype="float64")
    with raises(ValueError, "read-only"):
        gr.sum(Producer(ROWS), out=Producer(np.zeros((), np.float32), flags=1))
    shown = Shown(np.zeros((), np.float32))
    shown.entries["data"] = (shown.held.start, True)
    with raises(ValueError, "read-only"):
        gr.sum(Shown(ROWS), out=shown)
    with raises(TypeError, "must be of one library"):
        gr.sum(Shown(ROWS), out=Producer(np.zeros((), np.float32)))
    with raises(ValueError, "share memory"):
        gr.sum(Shown(ROWS), axis=1, out=Shown(np.broadcast_to(np.float32(0), 20)))
    for bad in ([1.0], 5, "x"):
        with raises(TypeError, "out="):
            gr.sum(Shown(ROWS), out=bad)
    inside = Shown(ROWS)
    row = Shown.__new__(Shown)
    row.entries = dict(inside.entries, shape=(20,), strides=(120,))
    with raises(TypeError, "no memory in common"):
        gr.sum(inside, axis=1, out=row)
    """,
        tmp_path,
    )


def test_a_numpy_out_is_a_result_on_the_host(tmp_path: Path) -> None:
    run(
        """
    for lend in (Producer, Shown):
        array = lend(ROWS)
        for dtype in ("float32", "float64", "int32", ">f8"):
            out = np.zeros(20, dtype)
            assert gr.sum(array, axis=1, out=out) is out
            np.testing.assert_array_equal(out, ROWS.sum(axis=1))
        scalar = np.zeros((), np.float32)
        assert gr.max(array, out=scalar) is scalar and scalar == 599
        fixed = np.zeros((), np.float32)
        fixed.flags.writeable = False
        with raises(ValueError, "read-only"):
            gr.sum(array, out=fixed)
        with raises(ValueError, "dimensions"):
            gr.sum(array, out=np.zeros(3))
        with raises(ValueError, "shape"):
            gr.sum(array, axis=1, out=np.zeros(3))
    """,
        tmp_path,
    )


def test_a_start_is_folded_in_on_the_device(tmp_path: Path) -> None:
    run(
        """
    nothing = np.zeros((0, 3), np.float32)
    for lend in (Producer, Shown):
        for dtype in DTYPES:
            values = np.arange(1, 5).astype(dtype)
            for op, start in (("sum", 3), ("prod", 2), ("min", 0), ("max", 7), ("max", 0)):
                found = value(getattr(gr, op)(lend(values), initial=start))
                expected = getattr(np, op)(values, initial=start)
                assert found == expected and found.dtype == expected.dtype, (op, dtype)
        for op, start in (("min", np.nan), ("max", np.nan), ("max", np.inf)):
            found = value(getattr(gr, op)(lend(ROWS), initial=start))
            np.testing.assert_array_equal(found, getattr(np, op)(ROWS, initial=start))
        # In `fast` it is one element more, elsewhere one of a pair of results.
        for kernel in ("auto", "fast", "last_block"):
            for start in (-3, 7, 10**6):
                found = value(gr.max(lend(ROWS), initial=start, kernel=kernel))
                assert found == np.max(ROWS, initial=start), kernel
        # Of nothing there is the start alone.
        assert value(gr.min(lend(nothing), initial=4)) == 4
        assert (value(gr.max(lend(nothing), axis=0, initial=4)) == [4, 4, 4]).all()
        assert value(gr.max(lend(nothing), axis=0, keepdims=True, initial=4)).shape == (1, 3)
        host = np.zeros((), np.float32)
        assert gr.sum(lend(ROWS), initial=0.5, out=host) is host and host == ROWS.sum() + 0.5
        assert gr.min(lend(nothing), initial=4, out=host) == 4
        with raises(ValueError, "no identity"):
            gr.sum(lend(nothing), initial=None)
        with raises(OverflowError):
            gr.sum(lend(np.ones(3, np.int32)), dtype=np.int8, initial=1000)
        with raises(ValueError):
            gr.sum(lend(ROWS), initial="x")
    with raises(ValueError, "does not have an identity"):
        gr.min(Shown(ROWS), where=Shown(ROWS > 5))
    """,
        tmp_path,
    )


def test_any_layout_and_mask_is_reduced_where_it_lies(tmp_path: Path) -> None:
    run(
        """
    cube = np.arange(2 * 3 * 4 * 5, dtype=np.int32).reshape(2, 3, 4, 5)
    keep = cube % 3 > 0
    for view in (cube, cube.T, cube[:, ::-1, 1:, ::2], cube[..., 2],
                 np.broadcast_to(cube[0, 0, 0], (3, 5))):
        for lend in (Producer, Shown):
            for axis in (None, 0, 1, (0, -1)):
                for op in ("sum", "max"):
                    expected = getattr(np, op)(view, axis=axis)
                    assert (value(getattr(gr, op)(lend(view), axis=axis)) == expected).all()
    for mask in (keep, keep[0], keep[:, :1], keep[..., 0, :][:, :, None], np.array(False),
                 np.array(True)):
        for axis in (None, 2, (0, 3)):
            found = value(gr.sum(Shown(cube), axis=axis, where=Producer(np.asarray(mask))))
            assert (found == np.sum(cube, axis=axis, where=mask)).all()
            found = value(gr.max(Producer(cube), axis=axis, where=Shown(np.asarray(mask)),
                                 initial=7))
            assert (found == np.max(cube, axis=axis, where=mask, initial=7)).all()
    assert value(gr.sum(Shown(cube), where=False)) == 0
    assert value(gr.sum(Shown(cube), where=np.True_)) == cube.sum()
    for out in (np.zeros((4, 3), np.float32)[::2, 0], np.zeros(2, np.float32)[::-1]):
        rows = np.arange(8, dtype=np.float32).reshape(2, 4)
        lent = Shown(out)
        assert gr.sum(Shown(rows), axis=1, out=lent) is lent and (lent.held.read() == [6, 22]).all()
        assert (gr.sum(Shown(rows), axis=1, out=out) == [6, 22]).all() and (out == [6, 22]).all()
    starts = value(gr.sum(Shown(cube), axis=(0, 2), initial=100))
    assert (starts == np.sum(cube, axis=(0, 2), initial=100)).all()
    """,
        tmp_path,
    )


def test_every_function_takes_device_arrays(tmp_path: Path) -> None:
    run(
        """
    values = np.random.default_rng(3).normal(size=(6, 50)).astype(np.float32)
    holes = np.where(values > 1, np.float32(np.nan), values)
    for lend in (Producer, Shown):
        for axis in (None, 0, 1):
            for name in ("argmin", "argmax", "var", "std", "count_nonzero", "ptp"):
                found = value(getattr(gr, name)(lend(values), axis=axis))
                expected = getattr(np, name)(values, axis=axis)
                assert found.dtype == np.asarray(expected).dtype, name
                np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=name)
            for name in ("nansum", "nanmin", "nanmax", "nanmean", "nanvar", "nanstd", "nanargmin",
                         "nanargmax"):
                found = value(getattr(gr, name)(lend(holes), axis=axis))
                np.testing.assert_allclose(found, getattr(np, name)(holes, axis=axis), rtol=1e-4,
                                           err_msg=name)
            both = gr.minmax(lend(values), axis=axis)
            assert (value(both.min) == values.min(axis=axis)).all()
            assert (value(both.max) == values.max(axis=axis)).all()
            both = gr.minmax(lend(values), axis=axis, initial=0)
            assert (value(both.min) == values.min(axis=axis, initial=0)).all()
        assert value(gr.nansum(lend(ROWS.astype(np.int8)), axis=0)).dtype == np.int64
        assert abs(value(gr.var(lend(values), ddof=1)) - values.var(ddof=1)) < 1e-5
        whole = ROWS.astype(np.int32)
        assert value(gr.bitwise_xor(lend(whole))) == np.bitwise_xor.reduce(whole, axis=None)
        for start in (3, np.nan):
            found = value(gr.nanmin(lend(holes), initial=start))
            np.testing.assert_array_equal(found, np.nanmin(holes, initial=start))
            found = value(gr.nansum(lend(holes), initial=start))
            np.testing.assert_allclose(found, np.nansum(holes, initial=start), rtol=1e-5)
        outs = lend(np.zeros(6, np.float32)), lend(np.zeros(6, np.float32))
        assert gr.minmax(lend(values), axis=1, out=outs).max is outs[1]
        assert (outs[0].held.read() == values.min(axis=1)).all()
        assert (outs[1].held.read() == values.max(axis=1)).all()
        with raises(TypeError, "tuple of two"):
            gr.minmax(lend(values), out=outs[0])
    """,
        tmp_path,
    )


def test_variances_are_taken_about_a_given_mean(tmp_path: Path) -> None:
    run(
        """
    values = np.random.default_rng(4).normal(3, 2, (6, 50)).astype(np.float32)
    holes = np.where(values > 5, np.float32(np.nan), values)
    means = values.mean(axis=1, keepdims=True)
    def agree(found, expected):
        assert found.dtype == expected.dtype, found.dtype
        assert found.shape == np.shape(expected), found.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    for lend in (Producer, Shown):
        array = lend(values)
        for name in ("var", "std"):
            ours, theirs = getattr(gr, name), getattr(np, name)
            for given in (2, 2.5, True, np.float32(2), np.float64(2), np.int16(2), np.array(2.0),
                          np.array([[2.0]])):
                agree(value(ours(array, mean=given)), theirs(values, mean=given))
            others = means.astype("f8"), means.astype("i8"), means[::-1], np.ones((6, 1), ">f4")
            for given in (means, *others, means + 1):
                expected = theirs(values, axis=1, mean=given, ddof=1)
                agree(value(ours(array, axis=1, mean=given, ddof=1)), expected)
                if given.dtype.isnative:
                    agree(value(ours(array, axis=1, mean=lend(given), ddof=1)), expected)
            agree(value(ours(array, axis=0, mean=lend(values[2]))),
                  theirs(values, axis=0, mean=values[2]))
            agree(value(ours(array, axis=0, mean=values[2].tolist())),
                  theirs(values, axis=0, mean=values[2].tolist()))
            given = np.broadcast_to(np.float32(2), (6, 1))
            agree(value(ours(array, axis=1, keepdims=True, mean=lend(given))),
                  theirs(values, axis=1, keepdims=True, mean=given))
            assert (value(ours(array, axis=(), mean=lend(values))) == 0).all()
            # A result of ours is a mean for any of them.
            found = ours(array, axis=1, mean=gr.mean(array, axis=1, keepdims=True))
            agree(value(found), theirs(values, axis=1))
            host = np.zeros(6)
            assert ours(array, axis=1, mean=means, out=host) is host
            np.testing.assert_allclose(host, theirs(values, axis=1, mean=means), rtol=1e-5)
            # What masks and NaN leave is counted a row.
            keep = values > 2
            agree(value(ours(array, axis=1, mean=lend(means), where=lend(keep), ddof=3)),
                  theirs(values, axis=1, mean=means, where=keep, ddof=3))
            ours, theirs = getattr(gr, "nan" + name), getattr(np, "nan" + name)
            agree(value(ours(lend(holes), axis=1, mean=lend(means.astype("f8")), ddof=2)),
                  theirs(holes, axis=1, mean=means.astype("f8"), ddof=2))
            left = [[1, np.nan, np.nan], [1, 2, np.nan], [1, 2, 4]]
            found = value(ours(lend(np.array(left)), axis=1, mean=0.0, ddof=2))
            np.testing.assert_array_equal(np.isnan(found), [True, True, False])
        for dtype in DTYPES:
            small = (values % 3).astype(dtype)
            agree(value(gr.var(lend(small), axis=1, mean=lend(means))).astype("f8"),
                  np.var(small.astype("f8"), axis=1, mean=means))
        turned = values[:, :25] + 1j * values[:, 25:]
        for given in (1 - 2j, np.complex64(3j), turned.mean(axis=1, keepdims=True)):
            agree(value(gr.var(lend(turned), axis=1, mean=given)),
                  np.var(turned, axis=1, mean=given))
        agree(value(gr.var(lend(turned), mean=2)), np.var(turned, mean=2))
        about = dict(axis=1, mean=lend(means))
        agree(value(gr.var(array, dtype="f8", **about)),
              np.var(values.astype("f8"), axis=1, mean=means))
        agree(value(gr.var(array, kernel="shfl_two_pass", **about)),
              np.var(values, axis=1, mean=means))
        agree(value(gr.var(lend(values[:0]), axis=0, mean=lend(values[0]), ddof=-1)),
              np.zeros(50, "f4"))
        assert value(gr.var(lend(values[:, :0]), axis=0, mean=lend(values[:1, :0]))).shape == (0,)
        agree(value(gr.var(array, mean=None)), np.var(values))
        half = np.array([0.5, 1.5], np.float16)
        assert value(gr.var(lend(half), mean=lend(np.array(1.0)))).dtype == np.float64
        assert value(gr.nanvar(lend(half), mean=lend(np.array(1.0)))).dtype == np.float16
        assert value(gr.var(lend(half > 1), mean=lend(half[:1]))).dtype == np.float64
    brief = Producer(np.zeros((2, 2), np.uint16), dtype="bfloat16")
    for of_mean, name in (("float32", "float32"), ("float64", "float64"), ("int8", "bfloat16"),
                          ("bool", "bfloat16")):
        assert gr.var(brief, axis=0, mean=Shown(np.zeros(2, of_mean))).dtype == name
    assert gr.var(brief, mean=2.0).dtype == "bfloat16"
    assert gr.var(brief, axis=0, mean=Shown(np.zeros(2, "f2")), dtype="float32").dtype == "float32"
    with raises(TypeError, "bfloat16", "float16", "dtype="):
        gr.var(brief, axis=0, mean=Shown(np.zeros(2, "f2")))
    mean_of_brief = Producer(np.zeros(2, np.uint16), dtype="bfloat16")
    assert gr.var(Shown(np.ones((2, 2), "f4")), axis=0, mean=mean_of_brief).dtype == "float32"
    """,
        tmp_path,
    )


def test_sums_begin_with_minus_zero_where_numpys_do(tmp_path: Path) -> None:
    run(
        """
    rng = np.random.default_rng(SEED)
    floats = ("f2", "f4", "f8", "c8", "c16")

    def signs(result):
        parts = [result.real, result.imag] if result.dtype.kind == "c" else [result]
        return [(np.asarray(part == 0), np.asarray(np.signbit(part))) for part in parts]

    def same(ours, numpys, *context):
        ours = np.asarray(ours if isinstance(ours, np.ndarray) else value(ours))
        assert (ours.shape, ours.dtype) == (numpys.shape, numpys.dtype), context
        for (zero, negative), (numpys_zero, numpys_negative) in zip(signs(ours), signs(numpys)):
            assert (zero == numpys_zero).all(), (ours, numpys, context)
            assert (negative == numpys_negative).all(), (ours, numpys, context)

    starts = (None, -0.0, 0.0, complex(-0.0, -0.0), complex(0.0, -0.0), complex(-0.0, 0.0))
    for turn in range(16):
        lend = (Producer, Shown)[turn % 2]
        shape = tuple(rng.integers(1, 4, rng.integers(0, 4)))
        dtype = np.dtype(str(rng.choice(floats)))
        array = np.full(shape, -0.0, dtype)
        if dtype.kind == "c":
            array.imag = -0.0
        if rng.random() < 0.7:  # most rows stay zeros
            real = array.view(array.real.dtype) if array.ndim else array.real[None]
            chosen = rng.random(real.shape) < 0.15
            # Not both: 1 - 1 - 5e-324 is not 0 where sums are exact, as NumPy's are not.
            numbers = ((0.0, 1.0, -1.0, np.nan), (0.0, 5e-324, -5e-324))[rng.integers(2)]
            real[chosen] = rng.choice(numbers, chosen.sum())
        array = np.asarray(array, order=str(rng.choice(("C", "F"))))
        axes = [i for i in range(array.ndim) if rng.random() < 0.5]
        given = {"axis": tuple(axes) if axes or array.ndim == 0 else None,
                 "initial": starts[rng.integers(len(starts))],
                 "keepdims": bool(rng.random() < 0.3)}
        if isinstance(given["initial"], complex) and dtype.kind != "c":
            given["initial"] = -0.0
        if rng.random() < 0.3:
            given["dtype"] = rng.choice(("f4", "f8", "c16") if dtype.kind != "c" else ("c8", "c16"))
            if np.dtype(given["dtype"]).itemsize < dtype.itemsize:  # zero-sign: what underflows
                array = array.astype(given["dtype"]).astype(dtype)
        where = np.asarray(rng.random(shape) < 0.6)
        function = str(rng.choice(("sum", "nansum")))
        kernel = str(rng.choice(("auto", "fast", "exact")))
        same(getattr(gr, function)(lend(array), kernel=kernel, **given),
             np.asarray(getattr(np, function)(array, **given)), SEED, turn, function, array,
             given)
        if given["initial"] is not None:
            same(gr.sum(lend(array), where=lend(where), **given),
                 np.asarray(np.sum(array, where=where, **given)), SEED, turn, where, array)
        for host in (True, False):
            numpys = np.asarray(np.sum(array, **given))
            wide = np.complex128 if numpys.dtype.kind == "c" else np.float64
            for made in (numpys.dtype, wide):
                out = np.ones((*numpys.shape, 2), made)[..., 0]
                target = out if host else lend(np.ones(numpys.shape, made))
                if not host and made != numpys.dtype:
                    continue
                np.sum(array, out=out, **given)
                numpys_out = out.copy()
                out[()] = 1
                gr.sum(lend(array), out=target, **given)
                same(target, numpys_out, SEED, turn, "out", array, given)
    # An element that is left out counts as 0.0 in both parts, wherever its NaN is.
    minus = complex(-0.0, -0.0)
    left_out = [complex(-0.0, np.nan), complex(np.nan, -0.0), complex(np.nan, np.nan), minus]
    for dtype in ("c8", "c16"):
        array = np.array([[one, minus, minus] for one in left_out], dtype)
        for lend in (Producer, Shown):
            for start in (None, -0.0, complex(-0.0, -0.0), complex(0.0, -0.0)):
                for axis in (0, 1, None):
                    wheres = (True, np.arange(3) > 0, np.arange(3) < 1)
                    for where in wheres[:1] if start is None else wheres:
                        masked = where if where is True else lend(where)
                        same(gr.nansum(lend(array), axis=axis, initial=start, where=masked),
                             np.asarray(np.nansum(array, axis=axis, initial=start, where=where)),
                             dtype, start, axis, where)
    nothing = np.zeros((3, 0))
    for start in (-0.0, 0.0):
        for lend in (Producer, Shown):
            same(gr.sum(lend(nothing), axis=1, initial=start),
                 np.sum(nothing, axis=1, initial=start))
            same(gr.sum(lend(nothing), axis=0, initial=start),
                 np.sum(nothing, axis=0, initial=start))
    integers = np.zeros(3, int)
    same(gr.sum(Shown(integers), dtype="f8", initial=None),
         np.asarray(np.sum(integers, dtype="f8", initial=None)))
    """.replace("SEED", repr(SEED)),
        tmp_path,
    )


def test_differences_of_device_arrays_can_be_shown(tmp_path: Path) -> None:
    run(
        """
    for lend in (Producer, Shown):
        # A sum and its start are rounded together, and do not overflow on the way.
        half, ones = np.float16, np.ones((2, 2049), np.float16)
        for kernel in ("auto", "exact"):
            for out in (None, np.zeros(2, half), np.zeros(2), lend(np.zeros(2, half))):
                found = gr.sum(lend(ones), axis=1, initial=1, kernel=kernel, out=out)
                assert (value(found) if out is None or out is not found or
                        not isinstance(out, np.ndarray) else out).tolist() == [2050, 2050]
            assert value(gr.sum(lend(half([6e4, 6e4])), initial=-6e4, kernel=kernel)) == half(6e4)
        big = np.full(2, 1e200)  # rounding
        assert np.isnan(value(gr.prod(lend(big), initial=0.0)))
        assert gr.prod(big, initial=0.0) == 0
    """,
        tmp_path,
    )


def test_outs_of_other_types_take_what_numpy_stores_in_them(tmp_path: Path) -> None:
    run(
        """
    offer(Exchanged)
    small = np.array([[100, -100, 7], [5, 6, -128]], np.int8)
    marks = np.array([[True, False, False], [False, False, False]])
    calls = [
        ("min", small, "f8", {"initial": 2.5}),
        ("max", small, "i8", {"initial": 1000, "axis": 1}),
        ("min", small, "i8", {"initial": 1000, "axis": 1, "where": marks}),
        ("max", small.astype("u1"), ">i4", {"initial": -5, "axis": 1, "where": marks}),
        ("bitwise_and", small.astype("u1"), "i8", {"axis": 1, "where": marks}),
        ("bitwise_or", small, "i2", {"initial": 512, "axis": 0}),
        ("bitwise_and", small, "?", {"axis": 1}),
        ("minmax", small, "i8", {"initial": 1000}),
        ("ptp", small, "i8", {"axis": 1}),
        ("ptp", small, "f4", {"axis": 1}),
        ("ptp", small, ">i2", {"axis": 0}),
        ("ptp", small > 0, "f4", {"axis": 1}),
        ("ptp", small > 0, ">i4", {"axis": 0}),
        ("ptp", small > 99, "c16", {}),
        ("ptp", small > 0, "i1", {"axis": 1, "keepdims": True}),
        ("sum", small, ">i2", {"axis": 0}),
        ("argmax", small, ">i4", {"axis": 0}),
        ("mean", small, ">f4", {"axis": 0}),
        ("var", small, ">c16", {"axis": 0, "dtype": "c8"}),
    ]
    for name, values, dtype, given in calls:
        shape = np.any(small, axis=given.get("axis"), keepdims=given.get("keepdims", False)).shape
        pair = name == "minmax"
        room = lambda: tuple(np.zeros(shape, dtype) for _ in range(2)) if pair else np.zeros(
            shape, dtype)
        if pair:
            expected = [getattr(np, one)(values, out=room()[0], **given) for one in ("min", "max")]
        else:
            function = getattr(np, name)
            function = function.reduce if isinstance(function, np.ufunc) else function
            expected = function(values, out=room(), **given)
        for lend in (Producer, Shown, Exchanged):
            shown = dict(given)
            if "where" in given:
                shown["where"] = lend(given["where"])
            found = getattr(gr, name)(lend(values), out=room(), **shown)
            np.testing.assert_array_equal(found, expected, name)
            assert np.asarray(found).dtype == dtype
    # A complex dtype makes a variance complex, in the caller's library.
    for kept in (False, True):
        for values in (small, small + 1j):
            given = {"axis": 1, "keepdims": kept, "dtype": "complex128"}
            expected = np.var(values, **given)
            for lend in (Producer, Shown, Exchanged):
                found = value(gr.var(lend(values), **given))
                assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
                np.testing.assert_allclose(found, expected, rtol=1e-12)
    for lend in (Producer, Shown):
        with contextlib.suppress(TypeError):
            gr.ptp(lend(small.astype("f4")), out=np.zeros((), np.int64))
            raise AssertionError("an out that NumPy refuses")
        with contextlib.suppress(TypeError):
            gr.ptp(lend(small > 0), out=np.zeros((), bool))
            raise AssertionError("NumPy does not subtract truths into truths")
        with raises(ValueError, "identity", "where"):
            gr.minmax(lend(small), where=lend(small > 0))
        assert value(gr.min(lend(small[:0]), axis=1, initial=3)).shape == (0,)
        for real in ("f4", "bfloat16"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                gr.sum(lend(small + 1j), dtype=real)
            assert [one.category for one in caught] == [np.exceptions.ComplexWarning], real
    """,
        tmp_path,
    )


def test_dtypes_that_numpy_refuses_are_refused_alike(tmp_path: Path) -> None:
    run(
        """
    turned = ROWS.astype(np.complex64)
    for lend in (Producer, Shown):
        for call in (
            lambda gr, a, out: gr.argmax(a, out=out(np.zeros((), "f8"))),
            lambda gr, a, out: gr.nanargmin(a, axis=0, out=out(np.zeros(30, "u8"))),
            lambda gr, a, out: gr.nanmean(a, dtype="int32"),
            lambda gr, a, out: gr.nanvar(a, dtype=bool),
            lambda gr, a, out: gr.nanmean(a, axis=0, out=out(np.zeros(30, "int64"))),
            lambda gr, a, out: gr.nanstd(a, axis=0, out=out(np.zeros(30, "uint8"))),
        ):
            with raises(TypeError, ""):
                call(np, ROWS, lambda out: out)
            for out in (lend, lambda out: out):
                with raises(TypeError, ""):
                    call(gr, lend(ROWS), out)
        for name in ("var", "std", "nanvar", "nanstd"):
            for array in (turned, lend(turned)):
                with raises(TypeError, f"{name} of complex elements is computed in "
                                       "a complex dtype, not in float64"):
                    getattr(gr, name)(array, dtype="float64")
        assert gr.var(lend(ROWS), dtype="complex128").dtype == "complex128"
        for mask in ([True] * 30, np.ones(30, bool)):
            with raises(TypeError, "where= of a device array must be one too"):
                gr.sum(lend(ROWS), where=mask)
        with raises(TypeError, ""):
            gr.sum(lend(ROWS), initial=lend(np.ones((), "f4")))
    counts = gr.argmax(Shown(ROWS), axis=0, out=np.zeros(30, "i4"))
    assert counts.tolist() == [19] * 30
    """,
        tmp_path,
    )


UNREDUCED = """
    import ml_dtypes
    def refused(name, lend, *words):
        calls = (gr.sum, gr.nanmax, gr.argmin, gr.minmax,
                 lambda a: gr.sum(a, axis=0, dtype="float64"),
                 lambda a: gr.mean(a, stream=1), lambda a: gr.dot(a, a),
                 gr.ExactSum("float64").update)
        for call in calls:
            with raises(TypeError, name, "not supported", *words):
                call(lend())
    def refused_beside(array, name, lend):
        for how in (dict(out=lend()), dict(where=lend(), initial=0)):
            with raises(TypeError, name, "not supported"):
                gr.max(array, **how)
        with raises(TypeError, name, "not supported"):
            gr.var(array, mean=lend())
"""


def test_dtypes_that_are_not_reduced_are_named_by_every_protocol(tmp_path: Path) -> None:
    run(
        """
    offer(Exchanged)
    bytes_ = np.ones(4, np.uint8)
    for name in array_libraries.UNREDUCED:
        for lend in (Producer, Exchanged):
            array = lend(bytes_, dtype=name)
            refused(name, lambda: array, "bool, integers, float16, bfloat16")
            if lend is Producer:
                assert array.lent == array.returned > 0
        refused_beside(Producer(ROWS), name, lambda: Producer(bytes_, dtype=name))
    for typestr in ("|V1", "<U3", "|S2", "|O", "<M8[s]", "<f16", "<c32"):
        shown = Shown(bytes_, typestr=typestr)
        refused(str(np.dtype(typestr)), lambda: shown)
        refused_beside(Shown(ROWS), str(np.dtype(typestr)), lambda: shown)
    # The interface has no names for narrow floats: the array's own dtype has.
    for name in ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"):
        shown = Shown(bytes_, typestr="|V1")
        shown.dtype = np.dtype(getattr(ml_dtypes, name))
        refused(name, lambda: shown)
    """,
        tmp_path,
        setup=UNREDUCED,
    )


def test_dtypes_that_are_not_reduced_are_named_for_the_libraries_that_are_known_by_name(
    tmp_path: Path,
) -> None:
    run(
        """
    bytes_, narrow = np.ones(4, np.uint8), ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4")
    for name in narrow:
        array = ndarray(np.ones(4).astype(getattr(ml_dtypes, name)))
        refused(name, lambda: array)
        refused_beside(ndarray(ROWS), name, lambda: array)
    def tensor(name, **more):
        made = Tensor(bytes_)
        made.dtype = made.held.dtype = dtype(name)
        made.__dict__.update(more)
        return made
    def refuse():
        raise RuntimeError("QUInt8 is not supported by dlpack")
    for _ in range(2):
        for name in (*narrow, "complex32"):
            refused(name, lambda: tensor(name))
        refused("torch.quint8", lambda: tensor("quint8", is_quantized=True, layout="strided",
                                               data_ptr=refuse))
        refused("torch.bits8", lambda: tensor("bits8", data_ptr=refuse))
        Tensor.kind, Tensor.counts = array_libraries.CUDA, None
        offer(Tensor)  # the same by the exchange API, which cannot show the last two
        array_libraries.fill_tensor = lambda *all, fill=array_libraries.fill_tensor, **more: (
            refuse() if all[1].dtype in ("quint8", "bits8") else fill(*all, **more))
    class Array(Producer):
        def devices(self):
            return [types.SimpleNamespace(platform="gpu")]
        def __dlpack__(self, **more):
            raise RuntimeError("UNIMPLEMENTED: no such type")
    Array.__module__ = "jaxlib._jax"
    dlpack = array_libraries.install("jax.dlpack", from_dlpack=None)
    tracer = type("Tracer", (), {})
    array_libraries.install("jax", Array=Array, core=types.SimpleNamespace(Tracer=tracer),
                            dlpack=dlpack)
    for name in narrow:
        array = Array(bytes_)
        array.dtype = np.dtype(getattr(ml_dtypes, name))
        refused(name, lambda: array)
    array.dtype = np.dtype("float32")
    with raises(RuntimeError, "UNIMPLEMENTED"):  # of another cause
        gr.sum(array)
    """,
        tmp_path,
        setup=CUPY + TORCH + UNREDUCED,
    )


def test_a_mean_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    run(
        """
    turned = ROWS.astype(np.complex64)
    for lend in (Producer, Shown):
        array = lend(ROWS)
        misfits = [((20,), 1), ((1, 20), 1), ((20, 30), 1), ((1, 1, 1), None), ((2,), None),
                   ((30, 1), 1), ((0,), 0)]
        for shape, axis in misfits:
            for given in (np.zeros(shape), lend(np.zeros(shape))):
                with raises(ValueError, f"mean has shape {shape}", "keepdims=True"):
                    gr.var(array, axis=axis, mean=given)
                with raises(ValueError, f"mean has shape {shape}", "keepdims=True"):
                    gr.var(ROWS, axis=axis, mean=np.zeros(shape), device="cpu")
        for given in (1j, np.complex64(1j), np.array([[1j]]), lend(np.array(1j))):
            with raises(TypeError, "mean is complex, of elements of dtype float32"):
                gr.std(array, mean=given)
        for given in ("x", [None], np.datetime64(1, "s"), {}):
            with raises(TypeError, "mean of dtype"):
                gr.std(array, mean=given)
        with raises(TypeError, "the array is in host memory and mean= in GPU memory"):
            gr.var(ROWS, mean=lend(np.zeros(())))
        with raises(TypeError, "complex dtype, not in float32"):
            gr.var(lend(turned), mean=1.0, dtype="float32")
        with raises(TypeError, "float or complex type"):
            gr.var(array, mean=1.0, dtype="int32")
        with raises(ValueError, "kernel='exact'"):
            gr.var(array, mean=1.0, kernel="exact")
        with raises(ValueError, "folds by atomics"):
            gr.var(array, mean=1.0, kernel="shfl_atomic")
        with raises(TypeError, 'on device "cuda:0"', 'mean= on "cuda:1"'):
            gr.var(array, mean=lend(np.zeros(()), device=1))
    odd = Shown(np.zeros(3, np.float32))
    odd.entries = dict(odd.entries, data=(odd.held.start + 2, False), shape=(2,))
    with raises(ValueError, "addresses of given means are multiples of their size, 4 bytes"):
        gr.var(Shown(ROWS[:, :2]), axis=0, mean=odd)
    odd.entries = dict(odd.entries, data=(odd.held.start, False), shape=(600,))
    with raises(ValueError, "the mean needs 2400 bytes"):
        gr.var(Shown(ROWS.reshape(1, 600)), axis=0, mean=odd)
    here = _core.device_array(odd.held.start, (3,), None, "float32", 0, None, odd)
    there = memory_of(Shown(np.zeros(3, np.float32), device=1))
    number = memory_of(Shown(np.zeros((), np.float32)))
    ask = ("auto", None, None, None, None, False, 0.0, lambda *_: (None, number))
    misfit = _core.device_array(odd.held.start, (3, 1), None, "float32", 0, None, odd)
    for mean, kind, words in ((there, TypeError, "cuda:1"), ((here, here), TypeError, ""),
                              (1j, TypeError, "complex"),
                              (misfit, ValueError, "cannot be broadcast")):
        with raises(kind, words):
            _core.reduce_on_device("var", here, None, None, False, None, *ask, mean)
    with raises(ValueError, "sum takes no mean"):
        _core.reduce_on_device("sum", here, None, None, False, None, *ask, 1.0)
    with raises(ValueError, "sum takes no start"):
        _core.reduce_on_device("sum", here, None, None, False, None, *ask, None, bytes(4))
    for start in (bytes(3), bytes(8), bytearray(4), 1.0):
        with raises(TypeError, "a start is an element's 4 bytes"):
            _core.reduce_on_device("max", here, None, None, False, None, *ask, None, start)
    with raises(TypeError, "twelve to fourteen"):
        _core.reduce_on_device("var", here)
    """,
        tmp_path,
        "devices=2",
    )


def test_a_given_mean_is_read_in_order_and_before_out_is_written(tmp_path: Path) -> None:
    run(
        """
    ones = np.ones((500, 4), np.float32)
    dawdle(3000)
    for seed in range(6):
        # A mean on a stream of its own, written late, and overwritten after the call.
        home, theirs, away = make_stream(), make_stream(), make_stream()
        array, mean = Shown(ones, stream=home), Shown(np.zeros(4, np.float32), stream=theirs)
        for stream in (None, away):
            fill(mean.held, theirs, 5.0, 3.0)
            result = gr.var(array, axis=0, mean=mean, stream=stream)
            fill(mean.held, theirs, 9.0)
            assert (value(result) == 4).all()
        # One on the host may go as soon as the call returns; nobody waits for it.
        for stream in (None, away):
            given = np.full(4, 3.0)
            result = gr.var(array, axis=0, mean=given, stream=stream)
            given[:] = 9
            del given
            gc.collect()
            assert (value(result) == 4).all()
        lent = Producer(ones)
        mean = Producer(np.full(4, 3, np.float32))
        assert (value(gr.var(lent, axis=0, mean=mean)) == 4).all()
        _core.end_loans()
        assert (lent.returned, mean.returned) == (1, 1)
    dawdle(0)
    out = Shown(np.full(4, 3, np.float32))
    with raises(TypeError, "no memory in common with what is read"):
        gr.var(Shown(ones), axis=0, mean=out, out=out)
    # Nothing of the host is captured: a replay would read it again.
    stream = make_stream()
    array, out = Shown(ones, stream=stream), Shown(np.zeros(4, np.float32), stream=stream)
    means = Shown(np.full(4, 3, np.float32), stream=stream)
    gr.var(array, axis=0, mean=means, out=out), gr.var(array, axis=0, mean=3.0, out=out)
    settle()
    cuda.fake_end_capture.restype = ctypes.c_void_p
    for given in (means, 3.0, np.float32(3), np.array([3], np.float32)):
        cuda.fake_begin_capture(ctypes.c_void_p(stream))
        gr.var(array, axis=0, mean=given, out=out)
        graph = ctypes.c_void_p(cuda.fake_end_capture(ctypes.c_void_p(stream)))
        fill(means.held, stream, 2.0)
        assert cuda.fake_launch_graph(graph, ctypes.c_void_p(stream)) == 0
        assert (out.held.read() == (1 if given is means else 4)).all()
        cuda.fake_destroy_graph(graph)
    memory = memory_of(Shown(np.zeros(4)))
    cuda.fake_begin_capture(ctypes.c_void_p(stream))
    with raises(ValueError, "cannot be captured"):
        _core.queue_upload(memory, np.zeros(4), stream)
    cuda.fake_destroy_graph(ctypes.c_void_p(cuda.fake_end_capture(ctypes.c_void_p(stream))))
    source = np.arange(4.0)  # stays until the stream has passed the copy
    _core.queue_upload(memory, source, stream)
    assert (value(memory) == np.arange(4)).all()
    with raises(ValueError, "C-contiguous"):
        _core.queue_upload(memory, np.zeros(3), stream)
    with raises(TypeError):
        _core.queue_upload(memory, np.zeros(4), "x")
    """,
        tmp_path,
    )


def test_blocks_that_meet_are_launched_likewise_by_a_graph(tmp_path: Path) -> None:
    """Cooperative launches and clusters are attributes of a launch, which a graph keeps."""
    run(
        """
    cuda.fake_end_capture.restype = ctypes.c_void_p
    for kernel in ("cooperative", "cluster"):
        stream = make_stream()
        array = Shown(np.ones(30_000, np.float32), stream=stream)
        out = Shown(np.zeros((), np.float32), stream=stream)
        gr.sum(array, kernel=kernel, out=out)
        settle()
        assert value(out) == 30_000, kernel
        for blocks in (None, 1, 3, 8):
            cuda.fake_begin_capture(ctypes.c_void_p(stream))
            gr.sum(array, kernel=kernel, grid_size=blocks, out=out)
            graph = ctypes.c_void_p(cuda.fake_end_capture(ctypes.c_void_p(stream)))
            for number in (2.0, 5.0):
                fill(array.held, stream, number)
                assert cuda.fake_launch_graph(graph, ctypes.c_void_p(stream)) == 0
                assert out.held.read() == 30_000 * number, (kernel, blocks, number)
            cuda.fake_destroy_graph(graph)
    with raises(ValueError, "grid_size is up to 8 in blocks of 512 threads"):
        gr.sum(array, kernel="cooperative", grid_size=9, out=out)
    """,
        tmp_path,
    )


def test_warnings_that_shapes_call_for_are_those_for_host_arrays(tmp_path: Path) -> None:
    run(
        """
    def outcome(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call()
        return [(w.category, str(w.message), os.path.basename(w.filename)) for w in caught], result
    cases = [(name, shape, axis, {}) for name in ("mean", "nanmean", "var", "nanstd", "sum")
             for shape, axis in (((0,), None), ((0, 3), 0), ((0, 3), 1), ((3, 1), 1),
                                 ((3, 2), (0, 1)), ((), None))]
    cases += [(name, (3, 2), axis, dict(ddof=ddof)) for name in ("var", "std", "nanvar", "nanstd")
              for axis in (None, 0, 1) for ddof in (1, 2, 2.5, 7)]
    cases += [(name, (3, 2), 1, dict(where=keep)) for name in ("mean", "var", "nanmean")
              for keep in (True, False)]
    warned = 0
    for lend in (Producer, Shown):
        for dtype in (np.float32, np.int16):
            for name, shape, axis, how in cases:
                values = np.ones(shape, dtype)
                expected, host = outcome(
                    lambda: getattr(gr, name)(values, axis=axis, device="cpu", **how))
                theirs, _ = outcome(lambda: getattr(np, name)(values, axis=axis, **how))
                theirs = [w[:2] for w in theirs if "encountered" not in w[1]]
                found, result = outcome(lambda: getattr(gr, name)(lend(values), axis=axis, **how))
                assert found == expected, (name, shape, axis, how, found, expected)
                assert [w[:2] for w in found] == theirs, (name, shape, axis, how, found, theirs)
                np.testing.assert_array_equal(value(result), host)
                warned += len(found)
    assert warned > 50
    nobody = Shown(np.zeros((3, 2), bool))
    # nobody waits to know
    assert outcome(lambda: gr.mean(Shown(np.ones((3, 2))), where=nobody))[0] == []
    assert len(outcome(lambda: gr.var(Shown(np.ones((3, 2))), ddof=6, where=nobody))[0]) == 1
    holes = Shown(np.array([[np.nan, np.nan], [1, np.nan]]))
    left = {"nanmin": [np.nan, 1], "nanmean": [np.nan, 1], "nanargmax": [-1, 0],
            "nanvar": [np.nan, 0]}
    for name, expected in left.items():
        found, result = outcome(lambda: getattr(gr, name)(holes, axis=1))
        assert found == []
        np.testing.assert_array_equal(value(result), expected)
    scalar = Shown(np.array(2.5))
    assert value(gr.nanmean(scalar, axis=-1)) == 2.5 and value(gr.nanvar(scalar, axis=0)) == 0
    for name in ("mean", "std"):
        with raises(np.exceptions.AxisError):
            getattr(gr, name)(scalar, axis=0)
    for bad, kind in ((np.nan, ValueError), (1j, TypeError), ("1", TypeError)):
        with raises(kind):
            gr.var(Shown(np.ones(3)), ddof=bad)
    """,
        tmp_path,
    )


def test_masks_are_device_arrays(tmp_path: Path) -> None:
    run(
        """
    array = Shown(ROWS)
    for bad in ([True], np.ones(ROWS.shape, bool), 1):
        with raises(TypeError, "where="):
            gr.sum(array, where=bad)
    with raises(TypeError, "Cannot cast", "int8"):
        gr.sum(array, where=Shown(np.ones(ROWS.shape, np.int8)))
    for shape in ((20,), (3, 20, 30), (20, 2)):
        with raises(ValueError, "broadcast"):
            gr.sum(array, where=Shown(np.ones(shape, bool)))
    """,
        tmp_path,
    )


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    run(
        """
    def calls():
        for lend in (Producer, Shown):
            array = lend(ROWS)
            gr.sum(array)
            gr.max(array, initial=3)
            gr.var(array, axis=0, mean=ROWS[0])
            gr.var(array, axis=0, mean=lend(ROWS[0]))
            gr.sum(array, out=np.zeros((), np.float32))
            gr.sum(array, stream=away)
            for bad in (dict(axis=7), dict(out=[1]), dict(where=5), dict(initial="x"),
                        dict(device="cpu")):
                try:
                    gr.sum(array, **bad)
                except (ValueError, TypeError):
                    pass
        _core.end_loans()
        gc.collect()
        settle()
    def census():
        kinds = b"device", b"pinned", b"events", b"modules", b"depth"
        return [cuda.fake_live(what) for what in kinds]
    away = make_stream()
    calls()
    before = census()
    for _ in range(3):
        calls()
    assert census() == before
    """,
        tmp_path,
    )


# ---------------------------------------------------------------- what we lend


def test_a_result_of_ours_is_lent_in_order_and_outlives_its_maker(tmp_path: Path) -> None:
    run(
        """
    import ctypes
    result = gr.sum(Producer(ROWS), axis=1)
    assert result.__dlpack_device__() == (2, 0)
    assert result.shape == (20,) and result.dtype == "float32"
    assert "cuda:0" in repr(result)
    shown = result.__cuda_array_interface__
    said = shown["shape"], shown["typestr"], shown["version"], shown["stream"]
    assert said == ((20,), "<f4", 3, result.stream)
    for more, name in (({}, b"dltensor"), ({"max_version": (0, 8)}, b"dltensor"),
                       ({"max_version": (1, 0)}, b"dltensor_versioned")):
        assert array_libraries.capsule_name(result.__dlpack__(stream=1, **more)) == name
    for more in ({}, {"max_version": (1, 3)}):
        found = _core.import_dlpack(result.__dlpack__(stream=1, **more), 1)
        assert (found.shape, found.strides, found.dtype) == ((20,), (4,), "float32")
    again = gr.sum(result)
    assert value(again) == ROWS.sum()
    del result
    _core.end_loans()
    gc.collect()
    assert (value(found) == ROWS.sum(axis=1)).all()
    del found, again, shown
    _core.end_loans()
    gc.collect()
    before = cuda.fake_live(b"device")
    for more in ({}, {"max_version": (1, 3)}):
        lent = libraries.DeviceBuffer((2,), "int8", 0, 1).__dlpack__(stream=1, **more)
        assert cuda.fake_live(b"device") == before + 1
        found = _core.import_dlpack(lent, 1)
        del lent
        assert cuda.fake_live(b"device") == before + 1
        del found
        assert cuda.fake_live(b"device") == before
        # nobody consumes it
        libraries.DeviceBuffer((2,), "int8", 0, 1).__dlpack__(stream=1, **more)
        assert cuda.fake_live(b"device") == before
    buffer = libraries.DeviceBuffer((2,), "int8", 0, _core.device_stream(0))
    with raises(BufferError, "copied elsewhere"):
        buffer.__dlpack__(dl_device=(1, 0))
    with raises(BufferError, "not copied"):
        buffer.__dlpack__(copy=True)
    with raises(ValueError, "stream 0"):
        buffer.__dlpack__(stream=0)
    assert buffer.__dlpack__(stream=-1) is not None
    assert buffer.__dlpack__(dl_device=(2, 0)) is not None
    brief = libraries.DeviceBuffer((2,), "bfloat16", 0, 1)
    assert not hasattr(brief, "__cuda_array_interface__")
    with raises(TypeError):
        _core.export_dlpack(5, True)
    """,
        tmp_path,
    )


def test_libraries_with_a_namespace_get_arrays_of_their_own(tmp_path: Path) -> None:
    run(
        """
    class Namespace:
        @staticmethod
        def from_dlpack(lent):
            array = Producer.__new__(Producer)
            array.memory = _core.import_dlpack(lent.__dlpack__(stream=1, max_version=(1, 0)), 1)
            return array
    Producer.__array_namespace__ = lambda self: Namespace
    result = gr.sum(Producer(ROWS), axis=1)
    assert type(result) is Producer and (value(result) == ROWS.sum(axis=1)).all()
    """,
        tmp_path,
    )


def test_arrays_on_the_host_stay_there(tmp_path: Path) -> None:
    run(
        """
    class Pinned:
        def __dlpack_device__(self):
            return (3, 0)
        def __dlpack__(self, **more):
            return ROWS.__dlpack__(**{k: v for k, v in more.items() if k == "max_version"})
    class HostOnly(Pinned):
        def __dlpack_device__(self):
            return (1, 0)
    assert gr.sum(HostOnly()) == ROWS.sum() and type(gr.sum(HostOnly())) is np.float32
    assert not any(libraries.is_on_device(a) for a in (Pinned(), ROWS, [1]))
    assert gr.ExactSum("float32").update(Pinned()) == gr.ExactSum("float32").update(ROWS)
    # what is measured
    with raises(TypeError, "Producer is in GPU memory. Copy it to the host first"):
        gr.benchmark("sum", Producer(ROWS))
    """,
        tmp_path,
    )


# ---------------------------------------------------------------- states of exact sums


def test_states_take_arrays_of_any_library_and_type_on_any_device(tmp_path: Path) -> None:
    run(
        """
    from itertools import product
    offer(Exchanged)
    for dtype, state in product(DTYPES, DTYPES):
        values = (np.arange(600) % 7 == 0).astype(dtype).reshape(20, 30)
        for lend in (Producer, Shown, Exchanged):
            for array in (values, values.T[::-2, 3:], values[:0], values[3, 4:5].reshape(())):
                total, wanted = gr.ExactSum(state), gr.ExactSum(state)
                lent = lend(array, device=array.ndim % 2)
                if np.can_cast(dtype, state, "safe"):
                    assert total.update(lent) is total
                    wanted.update(array)
                else:
                    words = f"exact sum of {state} does not take elements of dtype {dtype}"
                    with raises(TypeError, words, "Take a wider state"):
                        total.update(lent)
                assert total == wanted and total.count == wanted.count
    half = np.array([1, 2, 3], np.uint16)  # subnormal numbers of bfloat16
    for state in ("float32", "float64"):
        total = gr.ExactSum(state).update(Producer(half, dtype="bfloat16"))
        assert total.as_integer_ratio() == (3, 2**132), total.as_integer_ratio()
    with raises(TypeError, "exact sum of float64 does not take elements of dtype complex64"):
        total.update(Shown(np.ones(3, np.complex64)))
    assert (total.count, cuda.fake_violation()) == (3, b"")
    # The library's own memory, and a tree over host and devices.
    buffer = gr.sum(Shown(ROWS), axis=1)
    assert type(buffer) is libraries.DeviceBuffer
    parts = [gr.ExactSum("float32").update(buffer),
             gr.ExactSum("float32").update(Shown(-ROWS, device=1))]
    wanted = gr.ExactSum("float32").update(ROWS.sum(1)).update(ROWS).update(-ROWS)
    assert parts[0].merge(parts[1]).update(ROWS) == wanted
    """,
        tmp_path,
        "devices=2",
    )


def test_states_wait_for_the_producers_stream_and_give_the_memory_back(tmp_path: Path) -> None:
    run(
        """
    dawdle(3000)
    for seed in range(10):
        for lend in (Producer, Shown):
            array, _ = lend_late(lend, 5.0, 1.0)
            assert gr.ExactSum("float32").update(array).result() == 500
            if lend is Producer:
                assert (array.lent, array.returned) == (1, 1)
    """,
        tmp_path,
    )


def test_updates_with_device_arrays_that_fail_add_nothing(tmp_path: Path) -> None:
    run(
        """
    array, total = Shown(ROWS, stream=make_stream()), gr.ExactSum("float32").update(ROWS)
    before = total.to_bytes()
    stream = ctypes.c_void_p(array.__cuda_array_interface__["stream"])
    cuda.fake_end_capture.restype = ctypes.c_void_p
    cuda.fake_begin_capture(stream)
    with raises(ValueError, "captured into a graph", "update an exact sum before or after"):
        total.update(array)
    cuda.fake_destroy_graph(ctypes.c_void_p(cuda.fake_end_capture(stream)))
    assert total.to_bytes() == before
    gone = Shown(ROWS)
    gone.held.end()
    with raises(ValueError, "freed"):
        total.update(gone)
    # Ctrl-C while the device is at work, which nobody can stop.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    dawdle(100_000)
    for _ in range(20):
        fill(array.held, stream.value, 0.0)
    with raises(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        total.update(array)
    dawdle(0)
    assert total.to_bytes() == before
    cuda.fake_fail(b"cuLaunchKernel", 1, 999)
    with raises(gr.CudaError, "cuLaunchKernel"):
        total.update(array)
    assert total.to_bytes() == before
    assert total.update(array).count == 1200
    assert cuda.fake_violation() == b""
    """,
        tmp_path,
    )


# ------------------------------------------------------------ the libraries that are known by name

TORCH = """
    class dtype:
        def __init__(self, name):
            self.name = name
        def __repr__(self):
            return f"torch.{self.name}"
    names = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
             "float64", "complex64", "complex128", "float8_e5m2")
    kinds = {name: dtype(name) for name in names}
    grad = [True]
    class Tensor:
        requires_grad = is_nested = is_quantized = negated = False
        layout = "strided"
        def __init__(self, values, on_gpu=True, device=0):
            self.held = array_libraries.Memory(np.asarray(values), device) if on_gpu else None
            self.values, self.is_cuda = values, on_gpu
            self.dtype = kinds[np.asarray(values).dtype.name]
            self.alive, self.made = [], 0
        @property
        def shape(self):
            return list(self.held.shape)
        @property
        def device(self):
            return types.SimpleNamespace(index=self.held.device)
        def data_ptr(self):
            return self.held.start
        def element_size(self):
            return self.held.numpy_dtype.itemsize
        def stride(self):
            return tuple(step // self.element_size() for step in self.held.strides)
        def is_neg(self):
            return self.negated
        def is_conj(self):
            return False
        def resolve_neg(self):
            return Tensor(-self.values)
        def resolve_conj(self):
            return self
        def new_empty(self, shape, dtype=None):
            return Tensor(np.zeros(shape, (dtype or self.dtype).name), True, self.held.device)
        def permute(self, axes):
            view = copy.copy(self)
            view.held = self.held.transposed(axes)
            return view
        def __getitem__(self, index):
            return Tensor(np.asarray(self.held.read()[index]))
        def copy_(self, other):
            settle()
            _core.upload(self.held.device, self.held.start,
                         np.asarray(value(other)).astype(self.held.dtype))
        def __array__(self, dtype=None, copy=None):
            return self.values
    Tensor.__module__ = "torch"
    import copy
    import types
    raw = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: Tensor.current)
    Tensor.current = 0
    torch = array_libraries.install("torch", Tensor=Tensor, dtype=dtype, strided="strided", _C=raw,
                                    cuda=None, is_grad_enabled=lambda: grad[0], **kinds)
    del torch.__dict__["float8_e5m2"]
"""


def test_pytorch_gets_tensors_on_its_current_stream(tmp_path: Path) -> None:
    run(
        """
    Tensor.current = make_stream()
    tensor = Tensor(ROWS)
    assert libraries.device_library(tensor).read(tensor).stream == Tensor.current
    for op in ("sum", "max", "mean", "any"):
        result = getattr(gr, op)(tensor, axis=1)
        assert type(result) is Tensor and (value(result) == getattr(np, op)(ROWS, axis=1)).all()
        assert result.dtype is kinds[getattr(np, op)(ROWS).dtype.name]
    assert value(gr.sum(tensor, dtype=kinds["float64"])).dtype == np.float64
    with raises(TypeError, "float8_e5m2"):
        gr.sum(tensor, dtype=kinds["float8_e5m2"])
    with raises(TypeError, "no dtype uint64"):
        gr.sum(Tensor(ROWS.astype(np.uint8)))
    out = Tensor(np.zeros(20, np.int32))
    assert gr.sum(tensor, axis=1, out=out) is out and (out.held.read() == ROWS.sum(axis=1)).all()
    assert value(gr.sum(tensor, initial=1)) == ROWS.sum() + 1
    assert gr.sum(Tensor(ROWS, False)) == ROWS.sum()
    assert type(gr.sum(Tensor(ROWS, False))) is np.float32
    means = ROWS.mean(axis=1, keepdims=True) + 1
    for given in (Tensor(means), means, Tensor(means, False), 7):
        result = gr.std(tensor, axis=1, mean=given)
        expected = np.std(ROWS, axis=1, mean=given.values if isinstance(given, Tensor) else given)
        assert type(result) is Tensor and result.dtype is kinds["float32"]
        np.testing.assert_allclose(value(result), expected, rtol=1e-6)
    assert gr.std(tensor, axis=1, mean=Tensor(means.astype("f8"))).dtype is kinds["float64"]
    out = Tensor(means[:, 0])
    assert gr.std(tensor, axis=1, mean=Tensor(means), out=out) is out
    np.testing.assert_allclose(out.held.read(), np.std(ROWS, axis=1, mean=means), rtol=1e-6)
    with raises(TypeError, "the array is of PyTorch and mean= of the array's library",
                "one library"):
        gr.std(tensor, mean=Shown(np.zeros(())))
    wants = Tensor(means)
    wants.requires_grad = True
    with raises(TypeError, "detach()"):
        gr.std(tensor, axis=1, mean=wants)
    assert libraries.device_library(tensor) is libraries.device_library(Tensor(ROWS))
    with raises(TypeError, "PyTorch", "NumPy array"):
        gr.sum(tensor, out=Tensor(np.zeros((), np.float32), False))
    """,
        tmp_path,
        setup=TORCH,
    )


def test_pytorch_tensors_that_are_not_plain_memory_are_refused_by_kind(tmp_path: Path) -> None:
    run(
        """
    tensor = Tensor(ROWS)
    tensor.requires_grad = True
    with raises(TypeError, "detach()"):
        gr.sum(tensor)
    grad[0] = False
    assert value(gr.sum(tensor)) == ROWS.sum()
    negated = Tensor(ROWS)
    negated.negated = True
    assert value(gr.sum(negated)) == -ROWS.sum()
    def refuse():
        raise RuntimeError("no storage")
    waves = (ROWS * (1 + 2j)).astype(np.complex64)
    for more in {}, dict(data_ptr=refuse):  # PyTorch shows the elements in memory, or nothing
        turned = Tensor(waves)
        turned.__dict__.update(more, is_conj=lambda: True, resolve_neg=lambda: turned,
                               resolve_conj=lambda: Tensor(waves.conj()))
        assert value(gr.max(turned)) == waves.conj().max()
    sparse = Tensor(ROWS)
    sparse.layout = "sparse_coo"
    with raises(TypeError, "sparse_coo", "to_dense"):
        gr.sum(sparse)
    cases = ((dict(is_nested=True), "unbind"), (dict(is_quantized=True), "dequantize"),
             ({}, "no storage"))
    for attribute, words in cases:
        odd = Tensor(ROWS)
        odd.__dict__.update(attribute, data_ptr=refuse)
        with raises(TypeError, words):
            gr.sum(odd)
    small = Tensor(ROWS)
    small.dtype = kinds["float8_e5m2"]
    with raises(TypeError, "float8_e5m2"):
        gr.sum(small)
    """,
        tmp_path,
        setup=TORCH,
    )


# Tensors of a PyTorch that has the exchange API, with a stream that is not the default one.
OFFERED = """
    Tensor.kind, Tensor.counts = array_libraries.CUDA, None
    offer(Tensor)
    Tensor.current = make_stream()
"""


def test_pytorch_is_asked_by_the_exchange_api_where_it_has_it(tmp_path: Path) -> None:
    run(
        """
    result = gr.sum(Tensor(ROWS), axis=1)
    assert (value(result) == ROWS.sum(axis=1)).all()
    # Results are PyTorch's own: its record_stream ignores what came in by DLPack.
    assert Tensor.counts["view"] == 2 and Tensor.counts["made"] == 0
    """,
        tmp_path,
        setup=TORCH + OFFERED,
    )


def test_device_arrays_with_rules_of_their_own_are_refused_or_take_part(tmp_path: Path) -> None:
    run(
        """
    def never(*arguments, **keywords):
        raise AssertionError("a rule of the array was called")
    for kind in (Shown, Producer):
        for rule in (dict(__array_ufunc__=never), dict(__array_ufunc__=None),
                     dict(__array_function__=never)):
            ruled = type("Ruled", (kind,), rule)(ROWS)
            name, = rule
            for call in (lambda: gr.sum(ruled), lambda: gr.mean(ruled, axis=0, keepdims=True),
                         lambda: gr.sum(kind(ROWS), initial=ruled),
                         lambda: gr.sum(kind(ROWS), where=ruled),
                         lambda: gr.var(kind(ROWS), mean=ruled),
                         lambda: gr.sum(kind(ROWS), out=ruled),
                         lambda: gr.minmax(kind(ROWS), out=(kind(ROWS), ruled)),
                         lambda: gr.ExactSum("float32").update(ruled),
                         lambda: gr.dot(kind(ROWS[0]), type(ruled)(ROWS[1]))):
                with raises(TypeError, "Ruled", name, "plain array"):
                    call()
        def wrap(self, result, function):
            return NotImplemented if function == "prod" else (function, value(result))
        tagged = type("Tagged", (kind,), dict(__array_ufunc__=None, __gpureduce_wrap__=wrap))(ROWS)
        assert gr.sum(tagged) == ("sum", ROWS.sum())
        assert gr.nanmax(tagged, initial=-1) == ("nanmax", 599)
        assert gr.minmax(tagged) == (("min", 0), ("max", 599))
        host = np.zeros((), np.float32)
        assert gr.max(tagged, out=host) is host and host == 599
        with raises(TypeError, "Tagged", "takes no result of prod"):
            gr.prod(tagged)
    """,
        tmp_path,
    )


CUPY = """
    import copy
    import types
    state = types.SimpleNamespace(device=0, stream=0, entered=[])
    class ndarray:
        def __init__(self, values, device=0):
            self.held = array_libraries.Memory(np.asarray(values), device)
            self.data = types.SimpleNamespace(ptr=self.held.start, device_id=device)
            self.shape, self.strides = self.held.shape, self.held.strides
            self.dtype = self.held.numpy_dtype
        def transpose(self, axes):
            view = copy.copy(self)
            view.held = self.held.transposed(axes)
            view.shape, view.strides = view.held.shape, view.held.strides
            return view
        def __getitem__(self, index):
            return ndarray(np.asarray(self.held.read()[index]), self.data.device_id)
        def __array_ufunc__(self, *arguments, **keywords):
            raise AssertionError("a rule of the array was called")
        __array_function__ = __array_ufunc__
    ndarray.__module__ = "cupy"
    class Device:
        def __init__(self, device):
            self.device = device
        def __enter__(self):
            self.before, state.device = state.device, self.device
            state.entered.append(self.device)
        def __exit__(self, *_):
            state.device = self.before
    def copyto(out, result, casting):
        settle()
        _core.upload(out.data.device_id, out.data.ptr, np.asarray(value(result)).astype(out.dtype))
    empty = lambda shape, dtype: ndarray(np.zeros(shape, dtype), state.device)
    runtime = types.SimpleNamespace(getDevice=lambda: state.device)
    array_libraries.install("cupy", ndarray=ndarray, empty=empty,
        copyto=copyto, cuda=types.SimpleNamespace(runtime=runtime,
        get_current_stream=lambda device: types.SimpleNamespace(ptr=state.stream), Device=Device))
"""


def test_cupy_gets_arrays_on_their_device_and_its_current_stream(tmp_path: Path) -> None:
    run(
        """
    for device in (0, 1):
        array = ndarray(ROWS, device)
        for stream in (0, 2, make_stream(device)):
            state.stream = stream
            memory = libraries.device_library(array).read(array)
            assert memory.stream == (stream or 1) and memory.device == device
            result = gr.max(array, axis=1)
            assert type(result) is ndarray and result.data.device_id == device and state.device == 0
            assert (value(result) == ROWS.max(axis=1)).all()
        out = ndarray(np.zeros(20, np.int32), device)
        assert gr.sum(array, axis=1, out=out) is out and (out.held.read() == ROWS.sum(axis=1)).all()
    assert set(state.entered) == {0, 1}
    state.stream = 0
    with raises(TypeError, "not supported"):
        swapped = ndarray(ROWS)
        swapped.dtype = np.dtype(">f4")
        gr.sum(swapped)
    class Sub(ndarray):
        pass
    assert type(gr.sum(Sub(ROWS))) is ndarray
    """,
        tmp_path,
        "devices=2",
        CUPY,
    )


@pytest.mark.parametrize("library", ["CuPy", "PyTorch"])
def test_results_lie_in_memory_as_numpys_do_where_the_library_has_orders(
    tmp_path: Path, library: str
) -> None:
    run(
        """
    def order_of(strides, shape):
        return [step for step, extent in zip(strides, shape) if extent > 1]
    cube = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    arrays = [cube.transpose(axes) for axes in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1))]
    arrays += [arrays[1][::-1], np.broadcast_to(cube[:1], cube.shape)]
    arrays.append(cube.astype(np.int16).transpose(1, 2, 0))
    plain = dict(sum={}, mean={}, var={}, argmax={}, count_nonzero={}, nansum={}, nanvar={},
                 max=dict(initial=0), prod=dict(initial=2, dtype=np.float64), min=dict(keepdims=1))
    for values in arrays:
        array = make(values)
        for name, keywords in plain.items():
            for axis in (0, 1, 2):
                expected = getattr(np, name)(values, axis=axis, **keywords)
                result = getattr(gr, name)(array, axis=axis, **keywords)
                found = memory_of(result)
                assert np.allclose(value(result), expected), (name, axis, values.strides)
                assert order_of(found.strides, found.shape) == order_of(
                    expected.strides, expected.shape), (name, axis, values.strides, found.strides)
        for found, expected in zip(gr.minmax(array, axis=1), (values.min(1), values.max(1))):
            assert (value(found) == expected).all()
        mask = np.asfortranarray(values > 3)
        result = gr.sum(array, axis=0, where=make(mask))
        expected = values.sum(axis=0, where=mask)
        assert (value(result) == expected).all(), (values.strides, value(result), expected)
        assert memory_of(result).strides == expected.strides, values.strides
    memory = libraries.device_library(make(ROWS)).read(make(ROWS))
    for order in ((0,), (0, 0), (0, 2), (1, 0, 2), [1, 0]):
        with raises(ValueError, "an order"):
            libraries.device_library(make(ROWS)).make(make(ROWS), memory, (2, 3), "float32", order)
    """,
        tmp_path,
        setup=(CUPY + "    make = ndarray\n")
        if library == "CuPy"
        else (TORCH + "    make = Tensor\n"),
    )


SHORT = """
    from gpureduce import _functions
    asked = []
    def ask_python(call, reduce_any=_functions.reduce_any):
        asked.append(call.name)
        return reduce_any(call)
    _functions.reduce_any = ask_python
    def takes_the_short_way(make):
        array, host = make(ROWS), np.zeros((), np.float32)
        gr.sum(array)
        ops = ("sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax", "var", "std",
               "count_nonzero", "ptp")
        few = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
        for values in (few, few[::-1, ::3], few.astype(np.int32), few > 7, few[1, 0]):
            array = make(np.asarray(values))
            for op in ops:
                if op == "ptp" and np.asarray(values).dtype == bool:
                    continue
                for axis in (None, 0, -1)[: np.ndim(values) + 1]:
                    for keepdims in (False, True):
                        want = np.asarray(getattr(np, op)(values, axis=axis, keepdims=keepdims))
                        got = value(getattr(gr, op)(array, axis=axis, keepdims=keepdims))
                        assert (got.dtype, got.shape) == (want.dtype, want.shape), op
                        np.testing.assert_allclose(got, want, rtol=1e-6)
        array = make(ROWS)
        np.testing.assert_array_equal(value(gr.sum(array, axis=(1, 0))), ROWS.sum())
        holes = np.where(ROWS % 7 == 1, np.float32(np.nan), ROWS)
        for op in ("nansum", "nanmin", "nanmax", "nanmean", "nanvar", "nanargmax"):
            found = value(getattr(gr, op)(make(holes), axis=0))
            expected = getattr(np, op)(holes, axis=0)
            np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=op)
        for axis in (None, 1):
            both = gr.minmax(array, axis=axis)
            np.testing.assert_array_equal(value(both.min), ROWS.min(axis=axis))
            np.testing.assert_array_equal(value(both.max), ROWS.max(axis=axis))
        assert gr.sum(array, out=host) is host and host == ROWS.sum()
        assert gr.max(array, out=host, kernel="auto", device="cuda:0") is host and host == 599
        rows = np.zeros(20, np.float32)
        assert gr.sum(array, axis=1, out=rows) is rows and (rows == ROWS.sum(axis=1)).all()
        theirs = make(np.zeros(20, np.float32))
        assert gr.max(array, axis=1, out=theirs) is theirs
        assert (theirs.held.read() == ROWS.max(axis=1)).all()
        assert not asked
    def leaves_to_python(make):
        array, mask, ones = make(ROWS), make(ROWS > 7), make(np.ones((2, 3), np.float32))
        gr.sum(array)
        asked.clear()
        double, other = np.zeros((), np.float64), make(np.zeros(20, np.int32))
        pair = np.zeros((), np.float32), np.zeros((), np.float32)
        calls = [
            lambda: gr.sum(array, initial=1), lambda: gr.sum(array, where=mask),
            lambda: gr.sum(array, stream=1), lambda: gr.sum(array, dtype="float64"),
            lambda: gr.sum(array, keepdims=1),
            lambda: gr.minmax(array, out=pair), lambda: gr.sum(array, out=double),
            lambda: gr.sum(array, axis=1, out=other),
            lambda: gr.sum(make(ROWS[:0])),
            lambda: gr.argmax(array, axis=None, out=np.zeros((), np.int32)),
            lambda: gr.sum(array, axis=1, out=np.zeros(40, np.float32)[::2]),
        ]
        for i, call in enumerate(calls):
            call()
            assert len(asked) == i + 1, i
        assert double == ROWS.sum()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gr.var(ones, axis=0, ddof=2)
            gr.mean(make(ROWS[:0]), axis=0)
        met = [str(one.message) for one in caught]
        assert met == ["Degrees of freedom <= 0 for slice", "Mean of empty slice"]
        before = len(asked)
        with raises(ValueError, "cupy.asnumpy"):
            gr.sum(array, device="cpu")
        with raises(np.exceptions.AxisError, "axis 2"):
            gr.sum(array, axis=2)
        with raises(TypeError, "ddof"):
            gr.var(array, ddof="x")
        with raises(ValueError, "output array has shape"):
            gr.sum(array, axis=1, out=np.zeros(3, np.float32))
        with raises(ValueError, "unknown kernel"):
            gr.sum(array, kernel="no such")
        assert len(asked) == before + 5
"""


def test_plain_calls_with_pytorch_take_the_short_way(tmp_path: Path) -> None:
    run(
        """
    takes_the_short_way(Tensor)
    # The work is on PyTorch's current stream: it waits for what is there.
    dawdle(20_000)
    for _ in range(5):
        tensor = Tensor(np.zeros(100, np.float32))
        _core.fill_device(
            _core.device_array(tensor.held.start, (100,), None, "float32", 0, None, tensor),
            np.float32(2).tobytes(), Tensor.current)
        out = np.zeros((), np.float32)
        assert gr.sum(tensor, out=out) == 200
        assert value(gr.max(tensor)) == 2
    dawdle(0)
    assert not asked
    # Context in and out, whose stream and memory it is, the launch: of the tensor that PyTorch
    # made nothing is asked.
    made, theirs = Tensor(np.zeros((), np.float32)), Tensor(np.zeros((), np.float32))
    calls = []
    for out in (None, theirs):
        new_empty, Tensor.new_empty = Tensor.new_empty, lambda self, shape: made
        before = cuda.fake_calls()
        gr.sum(tensor, out=out)
        calls.append(cuda.fake_calls() - before)
        Tensor.new_empty = new_empty
    assert calls == [5, 6], calls
    assert made.held.read() == theirs.held.read() == 200
    """,
        tmp_path,
        setup=TORCH + SHORT + OFFERED,
    )


def test_what_is_not_plain_of_pytorch_is_left_to_python(tmp_path: Path) -> None:
    run(
        """
    leaves_to_python(Tensor)
    asked.clear()
    tensor = Tensor(ROWS)
    tensor.requires_grad = True
    with raises(TypeError, "detach()"):
        gr.sum(tensor)
    assert not asked
    with raises(TypeError, "detach()"):
        gr.sum(Tensor(ROWS), out=tensor)
    assert len(asked) == 1
    asked.clear()
    negated = Tensor(ROWS)
    negated.negated = True
    assert value(gr.sum(negated)) == -ROWS.sum()
    assert value(gr.sum(Tensor(ROWS.astype(np.complex64)))) == ROWS.sum()
    with raises(TypeError, "no dtype uint64"):
        gr.sum(Tensor(ROWS.astype(np.uint8)))
    class Sub(Tensor):
        pass
    assert value(gr.sum(Sub(ROWS))) == ROWS.sum()
    assert not asked
    assert gr.sum(Tensor(ROWS, False)) == ROWS.sum()  # on the host
    assert len(asked) == 1
    """,
        tmp_path,
        setup=TORCH + SHORT + OFFERED,
    )


def test_plain_calls_with_cupy_take_the_short_way(tmp_path: Path) -> None:
    run(
        """
    state.stream = make_stream()
    takes_the_short_way(ndarray)
    assert not state.entered
    state.stream = 0
    leaves_to_python(ndarray)
    asked.clear(), state.entered.clear()
    there = ndarray(ROWS, 1)
    # where CuPy does not make arrays now
    assert gr.sum(there).data.device_id == 1 and state.entered == [1]
    class Sub(ndarray):
        pass
    gr.sum(Sub(ROWS))
    assert not asked
    array = ndarray(ROWS)
    with raises(ValueError, 'out= on "cuda:1"'):
        gr.sum(array, out=ndarray(np.zeros((), np.float32), 1))
    part = ndarray(ROWS[:, 0])
    part.data.ptr = array.data.ptr  # of the array's own memory
    part.strides = (4,)
    gr.sum(array, axis=1, out=part)
    assert len(asked) == 2
    """,
        tmp_path,
        "devices=2",
        CUPY + SHORT,
    )


def test_plain_calls_with_arrays_of_any_library_take_the_short_way(tmp_path: Path) -> None:
    run(
        """
    offer(Exchanged)
    Exchanged.__getitem__ = lambda self, index: Exchanged(np.asarray(self.held.read()[index]))
    takes_the_short_way(Shown)
    takes_the_short_way(Exchanged)
    for op in ("sum", "nanmax", "var"):
        array = Producer(ROWS)
        assert type(getattr(gr, op)(array, axis=1)) is libraries.DeviceBuffer
        assert (array.lent, len(asked)) == (1, 0)
        _core.end_loans()
        assert array.returned == 1
    low, high = gr.minmax(Producer(ROWS))
    assert (value(low), value(high), len(asked)) == (0, 599, 0)
    host = np.zeros((), np.float32)
    assert gr.sum(array, out=host) is host and len(asked) == 1  # lent until the host has the result
    """,
        tmp_path,
        setup=SHORT,
    )


@pytest.mark.parametrize("per_thread", [0, 1])
def test_numba_gets_arrays_on_the_stream_of_the_array(tmp_path: Path, per_thread: int) -> None:
    run(
        f"""
    import types
    class DeviceNDArray(Shown):
        stream = 0
    DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"
    entered = []
    class Gpu:
        def __enter__(self):
            entered.append(True)
        def __exit__(self, *_):
            pass
    def device_array(shape, dtype, stream):
        made = DeviceNDArray(np.zeros(shape, dtype), stream=stream or None)
        made.stream = stream
        return made
    def from_cuda_array_interface(interface, owner, sync):
        assert not sync and interface["strides"] is None and not interface["data"][1]
        pointer, shape = interface["data"][0], interface["shape"]
        made = DeviceNDArray.__new__(DeviceNDArray)
        made.entries, made.stream = interface, owner.stream
        made.held = _core.device_array(pointer, shape, None, "float32", 0, None, owner)
        return made
    cuda_module = types.SimpleNamespace(gpus=[Gpu()], device_array=device_array)
    splits = {per_thread} == 1  # an old version has no such function
    if splits:
        cuda_module.from_cuda_array_interface = from_cuda_array_interface
    config = types.SimpleNamespace(CUDA_PER_THREAD_DEFAULT_STREAM={per_thread})
    array_libraries.install("numba", cuda=cuda_module, config=config)
    array = DeviceNDArray(ROWS)
    assert libraries.device_library(array).read(array).stream == {per_thread} + 1
    result = gr.sum(array, axis=1)
    assert type(result) is DeviceNDArray and (value(result) == ROWS.sum(axis=1)).all() and entered
    home = make_stream()
    array = DeviceNDArray(ROWS, stream=home)
    array.stream = home
    assert gr.sum(array).stream == home
    if not splits:
        with raises(AttributeError, "Numba has no", "from_cuda_array_interface"):
            gr.minmax(array)
    for axis in (None, 0, 1) if splits else ():
        least, largest = gr.minmax(array, axis=axis)
        assert type(least) is type(largest) is DeviceNDArray and least.stream == home
        assert (value(least) == ROWS.min(axis=axis)).all()
        assert (value(largest) == ROWS.max(axis=axis)).all()
    with raises(TypeError, "Numba"):
        gr.sum(array, out=DeviceNDArray(np.zeros((), np.int8)))
    with raises(TypeError, "Numba has no conversion"):
        libraries.device_library(array).assign(array, array)
    """,
        tmp_path,
    )


def test_jax_gets_arrays_by_from_dlpack_and_is_never_written(tmp_path: Path) -> None:
    run(
        """
    import types
    class Array(Producer):
        platform = "gpu"
        def devices(self):
            return [types.SimpleNamespace(platform=self.platform)]
        def __array__(self, dtype=None, copy=None):
            return ROWS
    Array.__module__ = "jaxlib._jax"
    class Tracer(Array):
        def devices(self):
            raise AssertionError("a tracer has none")
    def from_dlpack(lent):
        made = Array.__new__(Array)
        made.memory = _core.import_dlpack(lent.__dlpack__(stream=1), 1)
        return made
    dlpack = array_libraries.install("jax.dlpack", from_dlpack=from_dlpack)
    array_libraries.install("jax", Array=Array, core=types.SimpleNamespace(Tracer=Tracer),
                            dlpack=dlpack)
    array = Array(ROWS)
    result = gr.sum(array, axis=1)
    assert type(result) is Array and (value(result) == ROWS.sum(axis=1)).all()
    with raises(TypeError, "JAX", "never written"):
        gr.sum(array, out=Array(np.zeros((), np.float32)))
    host = np.zeros((), np.float32)
    assert gr.sum(array, out=host) == ROWS.sum()
    array.platform = "cpu"
    assert type(gr.sum(array)) is np.float32
    assert not libraries.is_on_device(Tracer.__new__(Tracer))
    """,
        tmp_path,
    )


def test_positions_count_axes_whose_elements_repeat(tmp_path: Path) -> None:
    """Repeats are read once, but the elements behind them keep their positions."""
    run(
        """
    rng = np.random.default_rng()
    for shape in ((2, 1), (5, 1), (3, 1, 4), (1, 6, 1)):
        whole = tuple(37 if extent == 1 else extent for extent in shape)
        values = np.broadcast_to(rng.permutation(np.prod(shape)).reshape(shape) * 1.0, whole)
        a = Producer(values)
        for function in ("argmin", "argmax", "nanargmin", "nanargmax"):
            found = value(getattr(gr, function)(a))
            assert found == getattr(np, function)(values), (function, whole, found)
    """,
        tmp_path,
    )
