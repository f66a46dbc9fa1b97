"""Exact dot products and variances beside Python's integers, on the emulator or on a GPU.

Errors that rounding hides are found too: the rounded sum is subtracted from the products, and the
rest summed again.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from exact_reference import (
    FORMATS,
    GENERATORS,
    assert_result,
    expected_dot,
    expected_variance,
    from_bits,
    name_of,
    one_sided,
)
from reference import DTYPES, random_array

import gpureduce as gr
from emu.cases import SCHEDULES, set_option
from emu.exact_sums import LONG, SIZES, download, draw, dtype_of
from gpureduce import _core
from gpureduce._interop.libraries import DeviceBuffer

DDOFS = (0, 1, 2.5, -3, 0.1, 1e-300, -1e300, np.inf, -np.inf)
PARTS = {"complex64": "float32", "complex128": "float64"}


def upload(values: np.ndarray, offset: int) -> Any:
    """The array in device memory, `offset` elements from its beginning, at its own steps."""
    stream = _core.device_stream(0)
    name = values.dtype.name
    steps = values.strides[-1] // values.itemsize if values.ndim == 1 and values.size > 1 else 1
    flat = values if abs(steps) <= 1 else np.repeat(values, abs(steps))
    room = DeviceBuffer((flat.size + offset,), name, 0, stream)
    _core.upload(
        0, room.memory.pointer, np.concatenate([np.zeros(offset, values.dtype), flat.ravel()])
    )
    pointer = room.memory.pointer + offset * values.itemsize
    strides = None if abs(steps) <= 1 else (abs(steps) * values.itemsize,)
    return _core.device_array(pointer, values.shape, strides, name, 0, stream, room)


def room(shape: tuple[int, ...], name: str) -> tuple[DeviceBuffer, Any]:
    made = DeviceBuffer(shape, name, 0, _core.device_stream(0))
    return made, made.memory


def dot_there(
    x: np.ndarray, y: np.ndarray, offsets: tuple[int, int], block: int, grid: int, dtype: Any = None
) -> Any:
    """A dot product of copies in device memory, whose result stays there."""
    a, b = upload(x, offsets[0]), upload(y, offsets[1])
    factor = np.promote_types(x.dtype, y.dtype).name
    made = _core.dot_on_device(
        a, b, factor, dtype, "exact", None, block or None, grid or None, a.stream, room
    )
    return download(made)[()]


def vary_there(
    values: np.ndarray, op: str, offset: int, block: int, grid: int, ddof: float = 0, **options: Any
) -> Any:
    """A variance or deviation of a device copy's last axis; the result stays on the device."""
    source = upload(values, offset)
    skip = bool(options.get("skip_nan", False))
    number, stream = _core.OPERATORS[op], source.stream
    made = _core.reduce_on_device(
        number, source, -1, options.get("dtype"), False, None, "exact", None,
        block or None, grid or None, stream, skip, ddof, room,
    )  # fmt: skip
    return download(made)[()]


def choose(task: dict[str, Any], *more: int, emulated: bool = True) -> np.random.Generator:
    """A generator of its own, and a schedule."""
    rng = np.random.default_rng([task["seed"], *more, *task["dtype"].encode()])
    if not emulated:
        return rng
    set_option("schedule", SCHEDULES[(task["seed"] + sum(more)) % len(SCHEDULES)])
    set_option("seed", int(rng.integers(1, 2**31)))
    return rng


# ---------------------------------------------------------------- dot


def pairs_of(rng: np.random.Generator, name: str, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two arrays whose products are hard to sum: generators beside others or themselves."""
    pairs = []
    with np.errstate(all="ignore"):
        for make in GENERATORS:
            x = make(rng, name, n)
            y = draw(rng, name, len(x))
            y = np.resize(y, len(x))
            pairs += [(x, y), (x, x), (x, np.ascontiguousarray(-x[::-1]))]
    return [*pairs, largest_and_least(rng, name, n)]


def largest_and_least(rng: np.random.Generator, name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest numbers, and subnormal ones, which begin lower than their exponents say."""
    fraction, exponent = FORMATS[name]
    word = np.dtype(f"u{np.dtype(DTYPES[name]).itemsize}")
    largest = rng.integers(1 << fraction, size=n, dtype=word) | word.type(
        ((1 << exponent) - 2) << fraction
    )
    least = rng.integers(1, 1 << rng.integers(1, fraction + 1, n), dtype=word)
    signs = rng.integers(2, size=n, dtype=word) << word.type(8 * word.itemsize - 1)
    return (largest | signs).view(DTYPES[name]), least.view(DTYPES[name])


def check_all_bits(dot: Any, x: np.ndarray, y: np.ndarray, context: str) -> None:
    """Compare dot products, subtract them, and compare the remainders."""
    name = name_of(x.dtype)
    for step in range(3):
        wanted = expected_dot([(x, y)], name)
        assert_result(dot(x, y), wanted, f"{context}, after {step} sums were taken away")
        if not np.isfinite(float(wanted)) or wanted == 0:
            return
        x, y = np.append(x, -wanted), np.append(y, DTYPES[name].type(1))


def check_dot(task: dict[str, Any]) -> None:
    """Multiply ``count`` random pairs of ``dtype`` at some place and grid: ``block``, ``seed``."""
    name, block = task["dtype"], task["block"]
    for number in range(task["count"]):
        rng = choose(task, number, block)
        fills = number == 0 and block == 32  # bins, in one warp
        n = LONG if fills else int(rng.choice(SIZES))
        offsets = (int(rng.integers(4)), int(rng.integers(4))) if rng.random() < 0.5 else (2, 2)
        grid = 1 if fills else int(rng.choice([0, 1, 2, 5]))
        if fills:
            x, y = one_sided(rng, name, n), np.abs(one_sided(rng, name, n))
        elif number == 1:  # -0, if the count shows elements
            x, y = np.full(n, -0.0, DTYPES[name]), np.ones(n, DTYPES[name])
        else:
            pairs = pairs_of(rng, name, max(n, 3))
            x, y = (values[:n] for values in pairs[rng.integers(len(pairs))])
        where = f"{name} case {number} {n=} {block=} {grid=} {offsets} GPR_TEST_SEED={task['seed']}"
        check_all_bits(lambda a, b: dot_there(a, b, offsets, block, grid), x, y, where)  # noqa: B023
        got = gr.dot(x, y, device="cuda", block_size=block, grid_size=grid or None)
        assert_result(got, expected_dot([(x, y)], name), f"host arrays, {where}")


def edge_pairs(rng: np.random.Generator, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs for one warp, which meet every edge of every bin: products by a large one and others so
    many orders below, products that grow so many orders after the first tile, and products of each
    order beside extreme ones.
    """
    dtype = DTYPES[name]
    fraction, exponent = FORMATS[name]
    bias = 2 ** (exponent - 1) - 1
    tile = 1024 // dtype.itemsize  # of pairs

    def ones(field: Any, n: int) -> np.ndarray:  # all bits of the significand
        bits = np.full(n, (1 << fraction) - 1, np.uint64) | np.asarray(
            field, np.uint64
        ) << np.uint64(fraction)
        return from_bits(bits, name)

    def odd(field: int, n: int) -> np.ndarray:  # the last bit of their products is set
        return from_bits(
            rng.integers(0, 1 << fraction, n, np.uint64) | np.uint64(field << fraction | 1), name
        )

    def split(total: int) -> tuple[int, int]:
        low, high = max(1, total - 2 * bias), min(2 * bias, total - 1)
        one = int(rng.integers(low, high + 1))
        return one, total - one

    for below in range(min(2 * fraction + 130, 3 * bias)):
        total = int(rng.integers(2 + below, 4 * bias + 1))
        a, b = split(total)
        c, d = split(total - below)
        for small in (ones, odd):
            x = np.concatenate([ones(a, 1), small(c, tile), ones(a, 1)])
            yield x, np.concatenate([ones(b, 1), small(d, tile), -ones(b, 1)])
    for above in range(20):
        total = int(rng.integers(2, 4 * bias - above))
        a, b = split(total)
        c, d = split(total + above)
        more = 20 * tile  # so many that each lane adds some dozens of the larger ones
        yield (
            np.concatenate([ones(a, tile), ones(c, more)]),
            np.concatenate([ones(b, tile), ones(d, more)]),
        )
    for field in range(2 * bias - 12, 2 * bias + 1):  # where bins of sums are no higher
        # Of equal numbers the variance is 0.
        yield (odd(field, 20 * tile), ones(max(bias - 20, 1), 20 * tile))
    for total in {
        *range(2, 4 * bias + 1, max(1, bias // 60)),
        *range(2 * bias - 990, 2 * bias - 940, 3),
    }:
        if total < 2:
            continue
        a, b = split(total)
        x = np.concatenate(
            [ones(2 * bias, 1), from_bits([1], name), ones(a, 2 * tile), ones(2 * bias, 1)]
        )
        y = np.concatenate(
            [ones(2 * bias, 1), from_bits([1], name), ones(b, 2 * tile), -ones(2 * bias, 1)]
        )
        yield x, y
        yield x[2:-1], y[2:-1]


def check_edges(task: dict[str, Any]) -> None:
    """Multiply pairs of ``dtype`` at the edges of bins, every ``stride``-th of them."""
    name, stride = task["dtype"], task["stride"]
    rng = choose(task)
    for number, (x, y) in enumerate(
        list(edge_pairs(rng, name))[int(rng.integers(stride)) :: stride]
    ):
        where = (
            f"{name} edges {number}: {x[:2]} {y[:2]} and {x[-3:]} {y[-3:]} "
            f"GPR_TEST_SEED={task['seed']}"
        )
        for step in range(2):
            wanted = expected_dot([(x, y)], name)
            assert_result(dot_there(x, y, (0, 0), 32, 1), wanted, f"{where}, {step}")
            if not np.isfinite(float(wanted)):
                break
            x, y = np.append(x, -wanted), np.append(y, DTYPES[name].type(1))
        wanted = expected_variance([x], name, 1)
        op = "var" if np.isfinite(float(wanted)) and wanted != 0 else "std"
        got = vary_there(x, op, 0, 32, 1, 1)
        assert_result(got, expected_variance([x], name, 1, op == "std"), f"{op} of {where}")


def check_kinds(task: dict[str, Any], emulated: bool = True) -> None:
    """Dot products of ``dtype``: steps, other types, results, host chunks, the CPU's bits. All
    types of results and of factors, or every ``share``-th, by turns of ``seed``.
    """
    name, share = task["dtype"], task.get("share", 1)
    drawn = slice(task["seed"] % share, None, share)
    rng = choose(task, emulated=emulated)
    dtype = dtype_of(name)

    def make(n: int) -> np.ndarray:
        if name in PARTS:
            return draw(rng, PARTS[name], 2 * max(n, 3)).view(name)[:n]
        return draw(rng, name, n) if name in FORMATS else random_array(rng, dtype, n, "sum")

    def agree(got: Any, wanted: Any, what: str) -> None:
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes(), (
            f"{name} {what} {got} {wanted} GPR_TEST_SEED={task['seed']}"
        )

    for n in (1, 16, 77, 1030, task.get("long", 40_000)):
        x, y = make(3 * n), make(3 * n)
        for a, b, what in (
            (x, y, "runs"),
            (x[::3], y[:n], "a step"),
            (x[:n], y[::-3], "back"),
            (x[::2], y[::2], "2"),
        ):
            agree(gr.dot(a, b, device="cuda"), gr.dot(a, b, device="cpu"), f"{n} {what}")
    x, y = make(500), make(500)
    for offsets in ((0, 0), (1, 1), (1, 2), (3, 0)):
        agree(dot_there(x, y, offsets, 64, 3), gr.dot(x, y, device="cpu"), f"{offsets}")
    agree(
        dot_there(x[::3], y[:167], (1, 0), 0, 0),
        gr.dot(x[::3], y[:167], device="cpu"),
        "step on the device",
    )
    for result in ("complex64", "float16", "float64")[drawn]:
        if name in PARTS and not result.startswith("c"):
            continue
        wanted = gr.dot(x, y, dtype=result, device="cpu")
        agree(gr.dot(x, y, dtype=result, device="cuda"), wanted, result)
        agree(dot_there(x, y, (0, 1), 32, 2, result), wanted, result)
    for other in ("float64", "complex64", "int32")[drawn]:
        if name == "bfloat16" and other == "int32":
            continue  # NumPy has no common type of theirs
        z = (
            make(500).real.astype(other)
            if name not in FORMATS
            else rng.integers(-9, 9, 500).astype(other)
        )
        agree(gr.dot(x, z, device="cuda"), gr.dot(x, z, device="cpu"), f"with {other}")
        agree(dot_there(z, x, (0, 0), 32, 0), gr.dot(z, x, device="cpu"), f"{other} with it")
    if name != "bfloat16":
        swapped = x.astype(x.dtype.newbyteorder())
        agree(gr.dot(swapped, y, device="cuda"), gr.dot(x, y, device="cpu"), "swapped")
    empty = np.zeros(0, dtype)
    agree(gr.dot(empty, empty, device="cuda"), gr.dot(empty, empty, device="cpu"), "nothing")
    agree(
        dot_there(empty, empty, (0, 0), 0, 0),
        gr.dot(empty, empty, device="cpu"),
        "nothing on the device",
    )
    if name in FORMATS or name in PARTS:
        check_zeros(name, dtype)


def check_zeros(name: str, dtype: np.dtype[Any]) -> None:
    """Products that are zeros, infinite or NaN, in every place of a tile."""
    numbers = [np.inf, -np.inf, np.nan, 2.0, -3.0, 0.0, -0.0]
    for n in (1, 3, 40, 300):
        for a in numbers:
            for b in numbers:
                x, y = np.full(n, -0.0, dtype), np.full(n, 1.0, dtype)
                if name in PARTS:  # -0 in both parts of all products
                    x, y = (
                        np.full(n, complex(-0.0, -0.0), dtype),
                        np.full(n, complex(1.0, 0.0), dtype),
                    )
                x[n // 2], y[n // 2] = a, b
                with np.errstate(invalid="ignore"):
                    wanted = gr.dot(x, y, device="cpu")
                for got in (dot_there(x, y, (1, 1), 32, 2), dot_there(x, y, (0, 1), 32, 1)):
                    assert got.tobytes() == wanted.tobytes(), (name, n, a, b, got, wanted)


# ---------------------------------------------------------------- variances


def check_variances(task: dict[str, Any]) -> None:
    """Variances of ``count`` random arrays at some place and grid: ``block``, ``seed``."""
    name, block = task["dtype"], task["block"]
    for number in range(task["count"]):
        rng = choose(task, number, block)
        fills = number == 0 and block == 32  # bins, in one warp
        n = LONG if fills else int(rng.choice(SIZES))
        offset, grid = int(rng.integers(8)), 1 if fills else int(rng.choice([0, 1, 2, 5]))
        values = one_sided(rng, name, n) if fills else draw(rng, name, n)
        ddof, root = float(rng.choice([*DDOFS, rng.normal()])), bool(rng.random() < 0.5)
        op = "std" if root else "var"
        where = (
            f"{op} {name} case {number} n={n} {block} {grid} {offset} ddof={ddof} "
            f"GPR_TEST_SEED={task['seed']}"
        )
        wanted = expected_variance([values], name, ddof, root)
        assert_result(
            vary_there(values, op, offset, block, grid, ddof), wanted, f"on the device, {where}"
        )
        assert_result(
            vary_on(values, op, ddof, block_size=block, grid_size=grid or None), wanted, where
        )


def vary_on(values: np.ndarray, op: str, ddof: float = 0, **options: Any) -> Any:
    """A variance of a host array on the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(gr, op)(values, ddof=ddof, kernel="exact", device="cuda", **options)


def check_variance_kinds(task: dict[str, Any], emulated: bool = True) -> None:
    """Variances of ``dtype``: rows, masks, NaN, chunks, results of other types."""
    name = task["dtype"]
    rng = choose(task, emulated=emulated)
    dtype = dtype_of(name)
    context = f"{name} GPR_TEST_SEED={task['seed']}"

    def make(*shape: int) -> np.ndarray:
        n = int(np.prod(shape))
        if name in PARTS:
            return draw(rng, PARTS[name], 2 * max(n, 3)).view(name)[:n].reshape(shape)
        values = draw(rng, name, n) if name in FORMATS else random_array(rng, dtype, n, "sum")
        return values.reshape(shape)

    def on_cpu(values: np.ndarray, op: str, ddof: float = 0, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(gr, op)(values, ddof=ddof, kernel="exact", device="cpu", **options)

    for shape in ((5, 257), (40, 3), (3, 2100), (1, task.get("long", 90_000))):
        rows = make(*shape)
        kept = rng.random(shape[1]) < 0.6
        for op in ("var", "std", "nanvar", "nanstd"):
            for options in (
                {},
                {"where": kept},
                {"dtype": np.complex64 if name in PARTS else np.float32},
            ):
                ddof = float(rng.choice(DDOFS))
                got, wanted = (f(rows, op, ddof, axis=1, **options) for f in (vary_on, on_cpu))
                assert got.tobytes() == wanted.tobytes(), (
                    f"{op} {shape} {options} {ddof} {context}: {got} {wanted}"
                )
            for offset in (0, 1):
                skip = op.startswith("nan") and (name in FORMATS or name in PARTS)
                got = vary_there(rows, op.removeprefix("nan"), offset, 64, 0, 1, skip_nan=skip)
                assert got.tobytes() == on_cpu(rows, op, 1, axis=1).tobytes(), (
                    f"{op} {shape} on the device {context}"
                )
    if name in FORMATS:
        for values in (
            np.array([1, np.inf]),
            np.full(70, np.nan),
            np.append(np.ones(40), np.nan),
            -np.zeros(5),
        ):
            for op in ("var", "nanvar"):
                for ddof in (0, 1, 200, -1):
                    got, wanted = (f(values.astype(dtype), op, ddof) for f in (vary_on, on_cpu))
                    assert got.tobytes() == wanted.tobytes(), (op, values, ddof, got, wanted)
                    got = vary_there(
                        values.astype(dtype), "var", 0, 32, 0, ddof, skip_nan=op == "nanvar"
                    )
                    assert got.tobytes() == wanted.tobytes(), (op, values, ddof, got, wanted)


def check_exponents(task: dict[str, Any]) -> None:
    """Variances of numbers at every ``stride``-th exponent of ``dtype``, as rows on the device."""
    name, stride = task["dtype"], task["stride"]
    fraction, exponent = FORMATS[name]
    rng = choose(task)
    fields = list(range(2**exponent - 1))[int(rng.integers(stride)) :: stride]
    rows = np.stack(
        [
            from_bits(rng.integers(0, 2**fraction, 67, np.uint64) | np.uint64(f << fraction), name)
            for f in fields
        ]
    )
    for ddof in (0, 1, 2.5):
        for op in ("var", "std"):
            for row, got in zip(rows, vary_there(rows, op, 1, 32, 0, ddof), strict=True):
                wanted = expected_variance([row], name, ddof, op == "std")
                assert_result(got, wanted, f"{op} {ddof} of {row[:2]} GPR_TEST_SEED={task['seed']}")


# ---------------------------------------------------------------- devices


def expect(error: type[Exception], text: str, call: Any) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


def last_place() -> tuple[str, str, str]:
    run = gr.last_run()
    assert run is not None
    return run.device, run.kernel, run.variant


def check_devices(task: dict[str, Any]) -> None:
    """Conversions of host arrays and of device arrays: every ``share``-th from ``seed`` on of the
    calls that take programs of their own.
    """
    share = task.get("share", 1)
    drawn = slice(task["seed"] % share, None, share)
    values = np.array([1.0, 2.0, 4.0, 9.0])
    for device in (None, "cuda", "cuda:0"):
        assert gr.var(values, kernel="exact", device=device) == 9.5
        assert last_place() == ("cuda:0", "exact", "exact_moments"), device
        assert gr.dot(values, values, device=device) == 102
        assert last_place() == ("cuda:0", "exact", "exact_dot"), device
    # Not "auto", which measures for 13 s how fast an emulated GPU is.
    assert gr.var(values, kernel="exact", device="cpu") == 9.5
    assert gr.dot(values, values, device="cpu") == 102
    assert last_place()[0] == "cpu"

    shown = DeviceBuffer((4,), "float64", 0, _core.device_stream(0))
    _core.upload(0, shown.memory.pointer, values)
    halves = DeviceBuffer((2, 2), "float64", 0, _core.device_stream(0))
    _core.upload(0, halves.memory.pointer, values)
    for call, wanted in (
        (lambda: gr.var(shown, kernel="exact"), 9.5),
        (lambda: gr.std(shown, kernel="exact", ddof=3), 38**0.5),
        (lambda: gr.dot(shown, shown), 102),
        (lambda: gr.dot(shown, shown, stream=1), 102),
        *(
            (lambda: gr.nanvar(halves, axis=1, kernel="exact"), [0.25, 6.25]),
            (lambda: gr.dot(shown, shown, dtype="complex64"), 102),
        )[drawn],
    ):
        got = call()
        assert isinstance(got, DeviceBuffer)
        assert np.array_equal(download(got), wanted)
    across = SimpleNamespace(
        __cuda_array_interface__=halves.__cuda_array_interface__ | {"strides": (8, 16)}
    )
    kept = DeviceBuffer((2, 2), "bool", 0, _core.device_stream(0))
    _core.upload(0, kept.memory.pointer, np.array([[True, True], [False, True]]))
    for call, wanted in (
        (lambda: gr.var(across, axis=1, kernel="exact"), [2.25, 12.25]),
        (lambda: gr.std(halves, axis=0, kernel="exact"), [1.5, 3.5]),
        (lambda: gr.nanvar(halves, axis=1, kernel="exact", where=kept), [0.25, 0]),
        (
            lambda: gr.std(across, kernel="exact", where=kept),
            gr.std([1.0, 4.0, 9.0], kernel="exact", device="cpu"),
        ),
    )[drawn]:
        assert np.array_equal(download(call()), wanted), wanted
        assert last_place() == ("cuda:0", "exact", "exact_moments_strided")
    out = np.empty(2)
    assert gr.var(halves, axis=1, kernel="exact", out=out) is out
    assert out.tolist() == [0.25, 6.25]

    expect(
        TypeError,
        "the first array of dot is in GPU memory and the second, ndarray, is not",
        lambda: gr.dot(shown, values),
    )
    expect(
        TypeError,
        "the second array of dot is in GPU memory and the first, list, is not",
        lambda: gr.dot([1.0], shown),
    )
    short = DeviceBuffer((3,), "float64", 0, _core.device_stream(0))
    expect(ValueError, "shapes (4,) and (3,) not aligned", lambda: gr.dot(shown, short))
    expect(ValueError, "numpy.matmul", lambda: gr.dot(halves, halves))
    expect(ValueError, "copy it first", lambda: gr.dot(shown, shown, device="cpu"))
    expect(ValueError, 'not of "cuda:1"', lambda: gr.dot(shown, shown, device="cuda:1"))
    expect(ValueError, "multiple of 32", lambda: gr.dot(shown, shown, block_size=48))
    expect(
        ValueError,
        "kernel 'shfl_atomic' has no dot",
        lambda: gr.dot(shown, shown, kernel="shfl_atomic"),
    )
    expect(
        TypeError, "does not make a sum of products", lambda: gr.dot(shown, shown, dtype="int64")
    )
