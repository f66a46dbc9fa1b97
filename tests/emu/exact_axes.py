"""Sums of products, squares and magnitudes along axes of device arrays, beside the CPU's bits."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from exact_reference import FORMATS
from reference import random_array

import gpureduce as gr
from emu.exact_products import PARTS, choose
from emu.exact_sums import download, draw, dtype_of
from gpureduce import _core
from gpureduce._dot import PRODUCTS, SQUARES
from gpureduce._interop.libraries import DeviceBuffer

OPTIONS = ("auto", "cpu", None, None, None)


def make(rng: np.random.Generator, name: str, size: int) -> np.ndarray:
    """Numbers that are hard to sum, of any dtype."""
    if name in PARTS:
        return draw(rng, PARTS[name], 2 * max(size, 3)).view(name)[:size]
    if name in FORMATS:
        return np.resize(draw(rng, name, max(size, 3)), size)
    return random_array(rng, dtype_of(name), size, "sum")


def lay_out(rng: np.random.Generator, values: np.ndarray) -> tuple[np.ndarray, Any]:
    """An array in some layout with some of its axes repeated, and its copy in device memory."""
    shape = values.shape
    order = rng.permutation(values.ndim)
    steps = rng.integers(1, 3, values.ndim)
    extents = [shape[i] * steps[i] for i in order]
    ahead = int(rng.integers(3))
    memory = np.zeros(int(np.prod(extents, dtype=int)) + ahead, values.dtype)
    inside = memory[ahead:].reshape(extents)[tuple(slice(None, None, steps[i]) for i in order)]
    array = inside.transpose(np.argsort(order))
    array[...] = values
    strides = list(array.strides)
    for axis in range(values.ndim):
        if rng.random() < 0.15:
            strides[axis] = 0
    array = np.lib.stride_tricks.as_strided(array, shape, strides)
    stream = _core.device_stream(0)
    buffer = DeviceBuffer((max(memory.size, 1),), values.dtype.name, 0, stream)
    if memory.size:
        _core.upload(0, buffer.memory.pointer, memory)
    pointer = buffer.memory.pointer + ahead * values.dtype.itemsize
    there = _core.device_array(pointer, shape, tuple(strides), values.dtype.name, 0, stream, buffer)
    return array, there


def shape_of(rng: np.random.Generator) -> tuple[int, ...]:
    return [
        (int(rng.integers(0, 3000)),),
        tuple(rng.integers(1, 40, 2)),
        (int(rng.integers(1, 4)), int(rng.integers(1, 5000))),
        (int(rng.integers(1, 600)), int(rng.integers(1, 4))),
        tuple(rng.integers(1, 9, 3)),
        tuple(rng.integers(1, 5, 4)),
    ][rng.integers(6)]


def room(shape: tuple[int, ...], name: str, order: Any = None) -> tuple[DeviceBuffer, Any]:
    """Memory for a result, in C order."""
    made = DeviceBuffer(shape, name, 0, _core.device_stream(0))
    return made, made.memory


def check_random(task: dict[str, Any], emulated: bool = True) -> None:
    """``count`` random calls of ``dtype``, by any block and grid."""
    name = task["dtype"]
    for number in range(task["count"]):
        rng = choose(task, number, emulated=emulated)
        shape = shape_of(rng)
        values = make(rng, name, int(np.prod(shape, dtype=int))).reshape(shape)
        x, there = lay_out(rng, values)
        products = PRODUCTS if name in PARTS else int(rng.integers(3))
        other, b, other_there = name, None, None
        if products == PRODUCTS:
            other = str(rng.choice([name, "float32" if name != "bfloat16" else name]))
            b, other_there = lay_out(rng, make(rng, other, x.size).reshape(shape))
        factor = np.promote_types(x.dtype, dtype_of(other))
        is_float = factor.name in FORMATS
        root = products == SQUARES and rng.random() < 0.6
        result = None
        if root and not is_float:
            result = "float64"
        elif rng.random() < 0.3:
            result = "complex128" if factor.kind == "c" else "float64"
        axes = tuple(np.flatnonzero(rng.random(len(shape)) < 0.6).tolist())
        keepdims, conjugate = bool(rng.random() < 0.3), bool(rng.random() < 0.5)
        block = [None, 32, 64, 256][rng.integers(4)]
        grid = [None, 1, 3][rng.integers(3)]
        kind = (axes, keepdims, products, conjugate, root)
        wanted = _core.dot_along(
            x, b, factor, None if result is None else np.dtype(result), *kind, *OPTIONS
        )
        made = _core.dot_along_on_device(
            there, other_there, factor.name, result, *kind, "auto", None, block, grid,
            there.stream, room,
        )  # fmt: skip
        got = download(made)
        context = (
            f"{name} {other} {shape} {x.strides} {axes} products={products} {conjugate} {root} "
            f"{result} {block} {grid} number={number} GPR_TEST_SEED={task['seed']}"
        )
        assert got.shape == np.shape(wanted), context
        assert got.dtype == wanted.dtype, context
        assert got.tobytes() == np.asarray(wanted).tobytes(), f"{context}: {got} {wanted}"


def there(values: np.ndarray) -> DeviceBuffer:
    made = DeviceBuffer(values.shape, values.dtype.name, 0, _core.device_stream(0))
    _core.upload(0, made.memory.pointer, np.ascontiguousarray(values))
    return made


def check_calls(task: dict[str, Any]) -> None:
    """`norm`, `vdot` and `average` of arrays in GPU memory: their results, and what they refuse.
    Each dtype has all kinds of norms, or every ``share``-th, by turns of ``seed``.
    """
    orders = ((None, "fro", 2), (1,), (0,), (math.inf,))  # those of one kind have one program
    share = task.get("share", 1)
    rng = np.random.default_rng(task["seed"])
    x = rng.normal(size=(20, 30)).astype(np.float32)
    y = x[:, ::-1].copy()
    z = (x + 1j * y).astype(np.complex64)
    n = rng.integers(-9, 9, (20, 30)).astype(np.int16)
    for turn, values in enumerate((x, z, n), task["seed"]):
        for axis in (None, 0, 1, (0, 1)):
            for keepdims in (False, True):
                for order in itertools.chain(*orders[turn % share :: share]):
                    if (order in (1, math.inf) and values is z) or (
                        order == 2 and axis in (None, (0, 1))
                    ):
                        continue
                    is_matrix = axis in (None, (0, 1))
                    if (order == "fro" and not is_matrix) or (order == 0 and is_matrix):
                        continue
                    got = download(gr.norm(there(values), order, axis, keepdims))
                    wanted = gr.norm(values, order, axis, keepdims, device="cpu")
                    context = f"{values.dtype} {order} {axis} {keepdims}"
                    assert got.shape == np.shape(wanted), context
                    assert got.dtype == wanted.dtype, context
                    assert got.tobytes() == np.asarray(wanted).tobytes(), context
    a, c = there(x), there(z)
    assert download(gr.vdot(c, c)).tobytes() == gr.vdot(z, z, device="cpu").tobytes()
    assert download(gr.vdot(a, c)).tobytes() == gr.vdot(x, z, device="cpu").tobytes()
    flat = there(y.reshape(-1))
    wanted = gr.vdot(x, y, device="cpu")
    assert download(gr.vdot(a, flat)).tobytes() == wanted.tobytes()
    run = gr.last_run()
    assert run is not None
    assert run.variant == "exact_dot_rows"
    assert download(gr.norm(there(x[:0]), axis=0)).tolist() == [0] * 30
    assert download(gr.average(a)) == gr.mean(x, device="cpu")
    for kind, words, call in (
        (TypeError, "needs an array of magnitudes", lambda: gr.norm(a, 3, axis=0)),
        (TypeError, "needs an array of magnitudes", lambda: gr.norm(c, 1, axis=0)),
        (TypeError, "needs an array of magnitudes", lambda: gr.norm(a, -math.inf, axis=0)),
        (TypeError, "one of vdot's arrays is in GPU memory", lambda: gr.vdot(a, x)),
        (TypeError, "one of average's arrays", lambda: gr.average(a, weights=x)),
        (ValueError, "equal sizes", lambda: gr.vdot(a, there(x[0]))),
        (ValueError, "consistent with shape", lambda: gr.average(a, 0, there(x[0]))),
        (TypeError, "do not divide", lambda: gr.average(a, 1, there(x[0]))),
    ):
        with pytest.raises(kind, match=words):
            call()
    for weights in (there(z[0]), c):
        with pytest.raises(TypeError, match="do not divide"):
            gr.average(a, 1, weights)
        run = gr.last_run()  # the weights were summed last
        assert run is not None
        assert run.kernel == "exact"
