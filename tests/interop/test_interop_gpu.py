"""Device arrays of the real libraries: CuPy, PyTorch, JAX, Numba, each where it is installed.

What all of them promise comes first, then what is each one's own: streams, captures, gradients.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpureduce as gr
from gpureduce import _core

pytestmark = pytest.mark.gpu

LONG = 1 << 26  # elements that take a stream long enough to be late
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")


class Peer(NamedTuple):
    """What tests ask of a library."""

    put: Callable[[np.ndarray], Any]
    get: Callable[[Any], np.ndarray]
    kind: type


def cupy_peer() -> Peer:
    cupy = pytest.importorskip("cupy")
    return Peer(cupy.asarray, cupy.asnumpy, cupy.ndarray)


def torch_peer() -> Peer:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return Peer(
        lambda a: torch.from_numpy(np.array(a)).cuda(), lambda t: t.cpu().numpy(), torch.Tensor
    )


def jax_peer() -> Peer:
    jax = pytest.importorskip("jax")
    if not any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this JAX has no CUDA")
    jax.config.update("jax_enable_x64", True)
    return Peer(jax.device_put, np.asarray, jax.Array)


def numba_peer() -> Peer:
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("this Numba has no CUDA")
    device_array = type(cuda.to_device(np.zeros(1)))
    return Peer(
        lambda a: cuda.to_device(np.ascontiguousarray(a)), lambda d: d.copy_to_host(), device_array
    )


PEERS = {"cupy": cupy_peer, "torch": torch_peer, "jax": jax_peer, "numba": numba_peer}


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    return PEERS[request.param]()


# ---------------------------------------------------------------- every library


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "mean", "any", "all"])
def test_results_are_numpys_and_the_librarys(peer: Peer, op: str, dtype: str) -> None:
    values = (np.random.default_rng(1).integers(0, 3, (7, 300)) > 0).astype(dtype)
    array = peer.put(values)
    for axis in (None, 0, 1, (0, 1)):
        for keepdims in (False, True):
            expected = getattr(np, op)(values, axis=axis, keepdims=keepdims)
            try:
                result = getattr(gr, op)(array, axis=axis, keepdims=keepdims)
            except TypeError as error:
                assert "no dtype" in str(error)  # noqa: PT017  PyTorch before 2.3 has no uint64
                continue
            assert isinstance(result, peer.kind)
            found = peer.get(result)
            assert found.dtype == expected.dtype
            assert found.shape == np.shape(expected)
            np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_zero_size_and_zero_dimensional_arrays_reduce(peer: Peer) -> None:
    empty = peer.put(np.zeros((0, 3), np.float32))
    assert peer.get(gr.sum(empty)) == 0
    np.testing.assert_array_equal(peer.get(gr.sum(empty, axis=0)), np.zeros(3, np.float32))
    assert peer.get(gr.sum(empty, axis=1)).shape == (0,)
    with pytest.raises(ValueError, match="zero-size array"):
        gr.min(empty)
    assert peer.get(gr.max(peer.put(np.array(5, np.int32)))) == 5


@pytest.mark.parametrize("dtype", DTYPES)
def test_states_of_exact_sums_take_the_librarys_arrays(peer: Peer, dtype: str) -> None:
    """Their bytes are those of the same elements on the host, in any mixture and order."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 100, (70, 3001)).astype(dtype)
    if values.dtype.kind == "f":
        values = (
            values * np.exp2(rng.integers(-9, 9, values.shape)) * rng.choice([-1, 1], values.shape)
        ).astype(dtype)
    array = peer.put(values)
    before = gr.ExactSum(dtype).update(values).update(values)
    assert gr.ExactSum(dtype).update(array).update(values).to_bytes() == before.to_bytes()
    parts = [gr.ExactSum(dtype).update(peer.put(part)) for part in np.array_split(values, 7)]
    total = gr.ExactSum(dtype).update(values)
    for part in parts[::-1]:
        total.merge(part)
    assert total.to_bytes() == before.to_bytes()
    assert peer.get(array).tobytes() == values.tobytes()
    if values.dtype.kind == "f":
        for number in (-0.0, 0.0, np.inf, -np.inf, np.nan):
            alone = np.full(500, number, dtype)
            assert gr.ExactSum(dtype).update(peer.put(alone)) == gr.ExactSum(dtype).update(alone)
    assert gr.ExactSum(dtype).update(peer.put(values[:0])) == gr.ExactSum(dtype)
    assert gr.ExactSum("float64").update(peer.put(values.astype("float32"))) == gr.ExactSum(
        "float64"
    ).update(values.astype("float32"))
    with pytest.raises(TypeError, match="does not take elements of dtype float32"):
        gr.ExactSum("int32").update(peer.put(values.astype("float32")))


def test_a_start_and_a_host_out(peer: Peer) -> None:
    values = np.arange(100, dtype=np.int32).reshape(4, 25)
    array = peer.put(values)
    np.testing.assert_array_equal(
        peer.get(gr.sum(array, axis=1, initial=7)), values.sum(axis=1) + 7
    )
    assert peer.get(gr.min(array, initial=-3)) == -3
    out = np.zeros(4)
    assert gr.sum(array, axis=1, out=out) is out
    np.testing.assert_array_equal(out, values.sum(axis=1))


def test_masks_of_the_library(peer: Peer) -> None:
    values = np.arange(100, dtype=np.int32).reshape(4, 25)
    keep = values % 7 > 2
    found = peer.get(gr.sum(peer.put(values), axis=0, where=peer.put(keep)))
    np.testing.assert_array_equal(found, np.sum(values, axis=0, where=keep))


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_variances_about_a_mean_of_the_library(peer: Peer, name: str) -> None:
    """Of any shape that broadcasts and any dtype, also numbers and host arrays: as NumPy."""
    rng = np.random.default_rng(5)
    values = rng.normal(3, 2, (37, 300)).astype(np.float32)
    if name.startswith("nan"):
        values[rng.random(values.shape) < 0.3] = np.nan
    keep = rng.random(values.shape) < 0.8
    array, mask = peer.put(values), peer.put(keep)
    ours, theirs = getattr(gr, name), getattr(np, name)
    for axis in (None, 0, 1, (0, 1)):
        means = np.asarray(np.nanmean(values, axis=axis, keepdims=True))
        for mean in (means, means + 1, means.astype(np.float64), np.rint(means).astype(np.int32)):
            for given in (peer.put(mean), mean):
                for more, masked in (
                    ({}, {}),
                    ({"ddof": 2, "keepdims": True}, {}),
                    ({"ddof": 1}, {"where": keep}),
                ):
                    found = ours(
                        array, axis=axis, mean=given, **more, **({"where": mask} if masked else {})
                    )
                    assert isinstance(found, peer.kind)
                    expected = np.asarray(theirs(values, axis=axis, mean=mean, **more, **masked))
                    result = peer.get(found)
                    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
                    np.testing.assert_allclose(result, expected, rtol=1e-5)
    for given in (2, 2.5, np.float32(2), np.float64(2)):
        result, expected = peer.get(ours(array, mean=given)), theirs(values, mean=given)
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    own = gr.nanmean(array, axis=1, keepdims=True)
    np.testing.assert_allclose(
        peer.get(ours(array, axis=1, mean=own)), theirs(values, axis=1), rtol=1e-5
    )
    out = np.zeros(37)
    assert ours(array, axis=1, mean=own, out=out) is out
    np.testing.assert_allclose(out, theirs(values, axis=1), rtol=1e-5)


def test_means_that_do_not_fit_are_named(peer: Peer) -> None:
    array = peer.put(np.ones((4, 5), np.float32))
    for given in (np.zeros(4), peer.put(np.zeros(4)), peer.put(np.zeros((4, 5)))):
        with pytest.raises(ValueError, match="must broadcast to the result's shape"):
            gr.var(array, axis=1, mean=given)
    with pytest.raises(TypeError, match="mean is complex"):
        gr.var(array, mean=1j)
    with pytest.raises(ValueError, match="kernel='exact'"):
        gr.var(array, mean=1.0, kernel="exact")
    assert peer.get(gr.var(array, mean=3.0)) == 4


def test_mistakes_are_named(peer: Peer) -> None:
    array = peer.put(np.ones(10, np.float32))
    with pytest.raises(ValueError, match="copy it first"):
        gr.sum(array, device="cpu")
    with pytest.raises(ValueError, match="cuda:9"):
        gr.sum(array, device="cuda:9")
    with pytest.raises(TypeError, match="where="):
        gr.sum(array, where=np.ones(10, bool))
    with pytest.raises(np.exceptions.AxisError):
        gr.sum(array, axis=3)
    assert peer.get(gr.sum(array)) == 10


def test_a_result_is_reduced_again_without_waiting(peer: Peer) -> None:
    values = np.ones((1000, 1000), np.float32)
    array = peer.put(values)
    for _ in range(20):
        assert peer.get(gr.sum(gr.sum(array, axis=1))) == values.size


@pytest.mark.parametrize("other", PEERS)
def test_arrays_move_on_to_other_libraries(peer: Peer, other: str) -> None:
    there = PEERS[other]()
    result = gr.sum(peer.put(np.ones((20, 30), np.float32)), axis=0)
    if other == "cupy" or other == "torch":
        if not hasattr(result, "__dlpack__"):
            pytest.skip("the result's library does not lend by DLPack")
        module = pytest.importorskip(other)
        np.testing.assert_array_equal(
            there.get(module.from_dlpack(result)), np.full(30, 20, np.float32)
        )


# ---------------------------------------------------------------- CuPy


def test_cupy_views_of_any_strides() -> None:
    cupy = pytest.importorskip("cupy")
    cube = cupy.arange(2 * 3 * 4 * 5, dtype=cupy.int32).reshape(2, 3, 4, 5)
    for view in (
        cube.T,
        cube[:, ::-1, 1:, ::2],
        cube[..., 2],
        cupy.broadcast_to(cube[0, 0, 0], (3, 5)),
    ):
        for axis in (None, 0, -1, (0, 1)):
            for op in ("sum", "max"):
                expected = getattr(np, op)(cupy.asnumpy(view), axis=axis)
                np.testing.assert_array_equal(
                    cupy.asnumpy(getattr(gr, op)(view, axis=axis)), expected
                )
        out = cupy.zeros((2, *view.shape[1:]), cupy.int64)[1]
        assert gr.sum(view, axis=0, out=out) is out
        np.testing.assert_array_equal(cupy.asnumpy(out), cupy.asnumpy(view).sum(axis=0))


def test_cupy_work_follows_its_current_stream() -> None:
    cupy = pytest.importorskip("cupy")
    gr.sum(cupy.ones(LONG, cupy.float32))
    for _ in range(5):
        with cupy.cuda.Stream(non_blocking=True):
            late = cupy.zeros(LONG, cupy.float32)
            for number in range(1, 8):
                late.fill(number)
            total = gr.sum(late)
            late.fill(0)  # comes after
            assert float(total) == 7 * LONG


def test_cupy_states_follow_its_current_stream_and_strides() -> None:
    cupy = pytest.importorskip("cupy")
    total, wanted = gr.ExactSum("float32"), gr.ExactSum("float32")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for number in range(3):
            late = cupy.zeros(LONG, cupy.float32)
            late += number  # the stream is late
            total.update(late)
            late += 1  # and is not read any more
        cube = cupy.arange(60_000, dtype=cupy.float32).reshape(30, 40, 50)
        for view in (cube[::-2, 1::3, ::-1], cube.transpose(2, 0, 1)[:, ::4], cube[:, 7]):
            total.update(view)
            wanted.update(cupy.asnumpy(view))
        stream.synchronize()
        before = total.to_bytes()
        stream.begin_capture()
        with pytest.raises(ValueError, match="captured into a graph"):
            total.update(cube)
        stream.end_capture()
    for number in range(3):
        wanted.update(np.broadcast_to(np.float32(number), LONG))
    assert total.to_bytes() == before == wanted.to_bytes()


def test_cupy_capture_replays_with_changed_input() -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = cupy.ones((300, 500), cupy.float32)
        total, rows = cupy.zeros((), cupy.float32), cupy.zeros(300, cupy.float32)
        gr.sum(array, out=total)
        gr.max(array, axis=1, out=rows)
        stream.synchronize()
        stream.begin_capture()
        gr.sum(array, out=total)
        gr.max(array, axis=1, out=rows)
        graph = stream.end_capture()
        for number in (2, 5):
            array.fill(number)
            graph.launch(stream)
            assert float(total) == 150000 * number
            assert float(rows.sum()) == 300 * number


def test_cupy_means_are_read_in_order_and_captured() -> None:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array, mean = cupy.ones((300, 500), cupy.float32), cupy.zeros((300, 1), cupy.float32)
        rows, whole = cupy.zeros(300, cupy.float32), cupy.zeros((), cupy.float32)
        for number in (3, 2):
            mean.fill(number)
        gr.var(array, axis=1, mean=mean, out=rows)
        mean.fill(7)  # comes after
        gr.var(array, mean=4.0, out=whole)
        assert float(rows.sum()) == 300
        assert float(whole) == 9
        stream.synchronize()
        stream.begin_capture()
        gr.var(array, axis=1, mean=mean, out=rows)
        gr.var(array, mean=4.0, out=whole)
        graph = stream.end_capture()
        for number in (2, 5):
            mean.fill(number)
            array.fill(number + 1)
            graph.launch(stream)
            assert float(rows.sum()) == 300
            assert float(whole) == (number - 3) ** 2
        mean.fill(3)
        array.fill(1)
        # What is read is written only then.
        gr.var(array, axis=1, keepdims=True, mean=mean, out=mean)
        assert float(mean.sum()) == 1200
        total = cupy.zeros((300, 1), cupy.float32)
        total[0] = 3
        gr.var(array, axis=1, keepdims=True, mean=cupy.broadcast_to(total[0], (300, 1)), out=total)
        assert float(total.sum()) == 1200


def test_cupy_arrays_of_another_device() -> None:
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with cupy.cuda.Device(1):
        array = cupy.arange(1000, dtype=cupy.float32)
    result = gr.sum(array)
    assert result.device.id == 1
    assert float(result) == 499500
    state = gr.ExactSum("float32").update(array).update(cupy.arange(1000, dtype=cupy.float32))
    assert state == gr.ExactSum("float32").update(np.arange(1000, dtype=np.float32)).merge(
        gr.ExactSum("float32").update(array)
    )
    with pytest.raises(ValueError, match="cuda:0"):
        gr.sum(array, out=cupy.zeros((), cupy.float32))
    with pytest.raises(TypeError, match="cuda:0"):
        gr.var(array, mean=cupy.zeros((), cupy.float32))


# ---------------------------------------------------------------- PyTorch


def test_torch_dtypes_that_numpy_lacks_and_results_of_every_dtype() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    values = torch.full((4, 300), 0.5, dtype=torch.bfloat16, device="cuda")
    if importlib.util.find_spec("ml_dtypes") is not None:
        assert gr.ExactSum("float32").update(values.T[::2]).result() == 300
    for op, expected in (("sum", 150.0), ("max", 0.5), ("mean", 0.5)):
        result = getattr(gr, op)(values, axis=1)
        assert result.dtype is torch.bfloat16
        assert result.tolist() == [expected] * 4
    assert gr.sum(values, dtype=torch.float64).dtype is torch.float64
    assert gr.sum(values > 0).dtype is torch.int64
    assert gr.any(values).dtype is torch.bool
    for name in ("uint16", "uint32", "uint64"):
        unsigned = torch.ones(100, dtype=torch.uint8, device="cuda").to(getattr(torch, name))
        result = gr.sum(unsigned, initial=5)
        assert result.dtype is torch.uint64
        assert int(result.cpu().numpy()) == 105
    assert gr.sum(torch.ones(10, dtype=torch.complex64, device="cuda")).item() == 10
    with pytest.raises(TypeError, match="not supported"):
        gr.sum(torch.ones(8, device="cuda").to(torch.float8_e5m2))


def test_torch_tensors_that_are_no_plain_memory_are_refused_or_resolved() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    wanted = torch.ones(10, device="cuda", requires_grad=True)
    with pytest.raises(TypeError, match="detach"):
        gr.sum(wanted)
    assert gr.sum(wanted.detach()).item() == 10
    with torch.no_grad():
        assert gr.sum(wanted).item() == 10
    with pytest.raises(TypeError, match="to_dense"):
        gr.sum(torch.eye(3, device="cuda").to_sparse())
    with pytest.raises(TypeError, match="unbind"):
        gr.sum(
            torch.nested.nested_tensor([torch.ones(2, device="cuda"), torch.ones(3, device="cuda")])
        )
    number = torch.full((10,), 1 + 2j, device="cuda")
    assert gr.sum(number.conj()).item() == 10 - 20j
    assert gr.sum(number.conj().imag).item() == -20
    assert type(gr.sum(torch.ones(10))) is np.float32


def test_torch_work_follows_its_current_stream_and_waits_for_another_one() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    late = torch.zeros(LONG, device="cuda")
    gr.sum(late)
    for _ in range(5):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for number in range(1, 8):
                late.fill_(number)
            total = gr.sum(late)
            late.fill_(0)
            assert total.item() == 7 * LONG
        for number in range(1, 8):
            late.fill_(number)
        total = gr.sum(late, stream=side)
        late.fill_(0)  # waits for the work on the other stream
        assert total.item() == 7 * LONG


def test_torch_graph_replays_with_changed_input_and_allocates_its_result() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    array = torch.ones((300, 500), device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            gr.sum(array), gr.max(array, axis=1), gr.sum(array[:, ::3], axis=0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total, rows, columns = gr.sum(array), gr.max(array, axis=1), gr.sum(array[:, ::3], axis=0)
    for number in (2.0, 5.0):
        array.fill_(number)
        graph.replay()
        assert total.item() == 150000 * number
        assert rows.tolist() == [number] * 300
        assert columns.tolist() == [300 * number] * 167


def test_torch_means_are_read_in_order_and_captured() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    array, mean = torch.ones((300, 500), device="cuda"), torch.full((300, 1), 2.0, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            gr.var(array, axis=1, mean=mean), gr.std(array, mean=4.0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows, whole = gr.var(array, axis=1, mean=mean), gr.std(array, mean=4.0)
    for number in (2.0, 6.0):
        mean.fill_(number)
        array.fill_(number + 3)
        graph.replay()
        assert rows.tolist() == [9.0] * 300
        assert whole.item() == number - 1
    late = torch.zeros(LONG, device="cuda")
    zero = torch.zeros((), device="cuda")
    for _ in range(3):  # the mean comes late, goes at once, and the work is on another stream
        for number in range(1, 8):
            late.fill_(number)
        given = zero + late[0]
        found = gr.var(late, mean=given + 1, stream=side)
        del given
        torch.zeros((), device="cuda")
        late.fill_(0)
        assert found.item() == 1
    brief = torch.full((4, 8), 1.5, dtype=torch.bfloat16, device="cuda")
    assert gr.var(brief, axis=1, mean=brief[:, :1] - 1).dtype is torch.bfloat16
    assert gr.var(brief, axis=1, mean=torch.zeros((4, 1), device="cuda")).tolist() == [2.25] * 4
    turned = torch.full((4,), 1 + 2j, device="cuda")
    assert gr.var(turned, mean=turned[0].conj()).item() == 16


def test_torch_means_of_others_are_refused() -> None:
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    torch_peer()
    array = torch.ones(10, device="cuda")
    with pytest.raises(TypeError, match="must be of one library"):
        gr.var(array, mean=cupy.zeros(()))
    with pytest.raises(TypeError, match="detach"):
        gr.var(array, mean=torch.zeros((), device="cuda", requires_grad=True))
    if torch.cuda.device_count() > 1:
        with pytest.raises(TypeError, match="cuda:1"):
            gr.var(array, mean=torch.zeros((), device="cuda:1"))


def test_torch_out_is_converted_and_overlapping_out_is_safe() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    array = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    out = torch.zeros(3, dtype=torch.int32, device="cuda")
    assert gr.sum(array, axis=1, out=out) is out
    assert out.tolist() == [6, 22, 38]
    column = array[:, 0]
    gr.sum(array, axis=1, out=column)
    assert array[:, 0].tolist() == [6, 22, 38]
    with pytest.raises(ValueError, match="share memory"):
        gr.sum(array, axis=1, out=torch.zeros(1, device="cuda").expand(3))


def test_torch_results_are_torchs_own_memory() -> None:
    torch = pytest.importorskip("torch")
    torch_peer()
    array = torch.ones(1000, device="cuda")
    gr.sum(array)
    before = torch.cuda.memory_allocated()
    result = gr.sum(array)
    assert torch.cuda.memory_allocated() > before
    result.record_stream(torch.cuda.Stream())
    result += 1
    assert result.item() == 1001


# ---------------------------------------------------------------- JAX, Numba


def test_jax_arrays_come_back_as_arrays_and_tracers_are_refused() -> None:
    jax = pytest.importorskip("jax")
    jax_peer()
    array = jax.numpy.arange(1000, dtype=jax.numpy.bfloat16)
    result = gr.max(array)
    assert result.dtype == jax.numpy.bfloat16
    for _ in range(20):
        produced = jax.numpy.full((1000, 1000), 2.0) * 3
        assert float(gr.sum(produced) + 1) == 6_000_001
    with pytest.raises(jax.errors.TracerArrayConversionError):
        jax.jit(gr.sum)(array)
    with pytest.raises(TypeError, match="never written"):
        gr.sum(array, out=array)
    _core.end_loans()


def test_numba_arrays_keep_their_stream() -> None:
    cuda = pytest.importorskip("numba.cuda")
    numba_peer()
    stream = cuda.stream()
    values = np.arange(100_000, dtype=np.float64)
    for _ in range(10):
        array = cuda.to_device(values, stream=stream)
        result = gr.sum(array)
        assert result.copy_to_host(stream=stream) == values.sum()
    view = cuda.to_device(values.reshape(100, 1000))[:, ::2]
    np.testing.assert_array_equal(
        gr.sum(view, axis=0).copy_to_host(), values.reshape(100, 1000)[:, ::2].sum(axis=0)
    )
