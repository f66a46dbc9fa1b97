"""``mean=`` of variances of device arrays over the emulator: random calls beside NumPy's own.

Arrays, masks, means and ``out`` are views of device memory of their own, by the CUDA array
interface, as of a library that is not known by name.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from reference import ALL_DTYPES

import gpureduce as gr
from emu.layouts import (
    Strided,
    draw_shape,
    rounding_of,
    strew_specials,
    strided,
    under_a_schedule,
)
from gpureduce import _core
from gpureduce._interop import libraries

FUNCTIONS = ("var", "std", "nanvar", "nanstd")
# The interface has no bfloat16.
DTYPES = {name: dtype for name, dtype in ALL_DTYPES.items() if name != "bfloat16"}
SPREAD = 40  # of elements around a number of this size


class Lent:
    """A view of device memory, with the bytes of a host array in it."""

    def __init__(self, host: Strided) -> None:
        self.host = host
        self.pointer = _core.alloc_device(0, host.memory.nbytes)
        if host.memory.nbytes:
            _core.upload(0, self.pointer, host.memory)
        view = host.view
        self.__cuda_array_interface__ = {
            "shape": view.shape,
            "typestr": view.dtype.str,
            "data": (self.pointer + host.offset if view.size else 0, False),
            "strides": view.strides,
            "version": 3,
        }

    def read(self, stream: int) -> np.ndarray:
        """The content once the stream's work is done."""
        if self.host.memory.nbytes:
            _core.download(0, self.pointer, self.host.memory, stream)
        return self.host.view

    def __del__(self) -> None:
        _core.free_device(0, self.pointer)


@dataclass
class Case:
    """One call, for both."""

    name: str
    array: Strided
    axis: Any
    keywords: dict[str, Any] = field(default_factory=dict)
    where: Strided | None = None
    mean: Any = None
    """A number, a host array, or a copy on the device."""
    out: Strided | np.ndarray | None = None

    def __str__(self) -> str:
        view = self.array.view
        mean = self.mean.view if isinstance(self.mean, Strided) else self.mean
        about = (
            f"{type(self.mean).__name__} {mean.dtype} {mean.shape} {mean.strides}"
            if np.ndim(mean)
            else repr(mean)
        )
        return (
            f"{self.name} of {view.dtype} {view.shape} {view.strides} axis={self.axis} "
            f"{self.keywords} mean={about} where={self.where and self.where.view.shape} "
            f"out={None if self.out is None else type(self.out).__name__}"
        )


def random_numbers(
    rng: np.random.Generator, dtype: np.dtype[Any], n: int, holes: bool
) -> np.ndarray:
    """Numbers that every type holds nearly: some far from 0 for their spread, some of them NaN or
    infinite.
    """
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    center = rng.choice([0, SPREAD, 3 * SPREAD])
    values: Any = rng.normal(center, SPREAD / 4, n)
    if dtype.kind in "iu":
        return np.clip(np.rint(values), 0 if dtype.kind == "u" else -SPREAD, 3 * SPREAD).astype(
            dtype
        )
    if dtype.kind == "c":
        values = values + 1j * rng.normal(0, SPREAD / 4, n)
    values = values.astype(dtype)
    if holes:
        values[rng.random(n) < rng.choice([0.05, 0.9])] = np.nan
    return strew_specials(rng, np.asarray(values))


def view_of(
    rng: np.random.Generator, shape: tuple[int, ...], memory_of: Any, plain: float = 0.3
) -> Strided:
    """A view of fresh memory, which may have no elements; `plain`: how likely it is contiguous."""
    if 0 in shape:
        nothing = memory_of(0).reshape(shape)
        return Strided(nothing, nothing)
    return strided(rng, shape, memory_of, bool(rng.random() < plain))


def kept_shape(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    return np.empty(shape, np.bool_).any(axis=axis, keepdims=True).shape


def draw_mean(rng: np.random.Generator, case: Case) -> Any:
    """A number, or an array on the host or the device that broadcasts to the result's shape."""
    of_complex = case.array.view.dtype.kind == "c"
    kind = rng.choice(["number", "scalar", "host", "device", "device", "device"])
    if kind == "number":
        return (
            [1.5, 2, True, SPREAD, -math.inf, math.nan][rng.integers(6)]
            if not of_complex
            else [2, 1.5 - 3j, complex(1, math.inf)][rng.integers(3)]
        )
    names = [name for name, dtype in DTYPES.items() if dtype.kind != "c" or of_complex]
    dtype = DTYPES[str(rng.choice(names))]
    if kind == "scalar":
        return random_numbers(rng, dtype, 1, False)[0]
    shape = [1 if rng.random() < 0.15 else n for n in kept_shape(case.array.view.shape, case.axis)]
    while shape and shape[0] == 1 and rng.random() < 0.3:
        shape.pop(0)
    view = view_of(rng, tuple(shape), lambda n: random_numbers(rng, dtype, n, False))
    return view.view if kind == "host" else view


def draw_case(rng: np.random.Generator, dtype: np.dtype[Any]) -> Case:
    name = str(rng.choice(FUNCTIONS))
    shape = tuple(0 if rng.random() < 0.03 else n for n in draw_shape(rng))
    if rng.random() < 0.05:
        shape = ()
    holes = name.startswith("nan") and dtype.kind in "fc" and rng.random() < 0.8
    array = view_of(rng, shape, lambda n: random_numbers(rng, dtype, n, holes))
    axes = [int(i) for i in rng.permutation(len(shape))[: rng.integers(len(shape) + 1)]]
    axis = None if rng.random() < 0.2 else axes[0] - len(shape) if len(axes) == 1 else tuple(axes)
    case = Case(name, array, axis)
    if rng.random() < 0.5:
        case.keywords["ddof"] = [0, 1, 0.5, 2, 30, -1][rng.integers(6)]
    if rng.random() < 0.5:
        case.keywords["keepdims"] = bool(rng.random() < 0.7)
    if rng.random() < 0.3:
        mask = tuple(1 if rng.random() < 0.2 else n for n in shape[rng.integers(len(shape) + 1) :])
        case.where = view_of(rng, mask, lambda n: rng.random(n) < 0.7)
    if rng.random() < 0.2:
        real = (
            ("float16", "float32", "float64") if dtype.kind != "c" else ("complex64", "complex128")
        )
        case.keywords["dtype"] = DTYPES[str(rng.choice(real))]
    case.mean = draw_mean(rng, case)
    return case


def result_dtype(case: Case) -> np.dtype[Any]:
    """NumPy's dtype, from a call with one element."""
    asked = case.keywords.get("dtype")
    mean = case.mean.view if isinstance(case.mean, Strided) else case.mean
    if np.ndim(mean) or isinstance(mean, np.ndarray):
        mean = np.ones((), mean.dtype)
    with np.errstate(all="ignore"):
        if case.array.view.dtype.kind in "biu":
            return np.dtype(np.float64 if asked is None else asked)
        one = np.ones((), case.array.view.dtype)
        return np.asarray(getattr(np, case.name)(one, dtype=asked, mean=mean)).dtype


def expected(case: Case) -> np.ndarray:
    """NumPy's result, in 64 bits where it would round in between."""
    view = case.array.view
    mean = case.mean.view if isinstance(case.mean, Strided) else case.mean
    wide = np.complex128 if view.dtype.kind == "c" else np.float64
    keywords = {key: value for key, value in case.keywords.items() if key != "dtype"}
    if case.where is not None:
        keywords["where"] = case.where.view
    name = case.name if view.dtype.kind in "fc" else case.name.removeprefix("nan")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(
            getattr(np, name)(
                view.astype(wide), axis=case.axis, mean=np.asarray(mean, wide), **keywords
            )
        )


def add_out(rng: np.random.Generator, case: Case, like: np.ndarray) -> None:
    """An ``out`` half the time, of real results: complex ones need a library that converts."""
    kind = rng.choice(["none", "none", "host", "device"])
    if like.dtype.kind == "c":
        return
    if kind == "host":
        case.out = np.full(like.shape, 7, rng.choice(["f4", "f8", ">f8"]))
    if kind == "device":
        out = view_of(rng, like.shape, lambda n: np.full(n, 7, like.dtype))
        case.out = None if 0 in out.view.strides else out  # several results in one place


def carry_out(case: Case) -> np.ndarray:
    """The package's result, copied to the host."""
    keywords = dict(case.keywords)
    if case.where is not None:
        keywords["where"] = Lent(case.where)
    mean = Lent(case.mean) if isinstance(case.mean, Strided) else case.mean
    out = Lent(case.out) if isinstance(case.out, Strided) else case.out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = getattr(gr, case.name)(
            Lent(case.array), axis=case.axis, mean=mean, out=out, **keywords
        )
    assert out is None or result is out
    if isinstance(result, Lent):
        return result.read(libraries.LEGACY_STREAM)
    if isinstance(result, np.ndarray):
        return result
    found = np.empty(result.shape, result.dtype)
    if found.size:
        _core.download(0, result.memory.pointer, found, result.stream)
    return found


def check_calls(task: dict[str, Any]) -> None:
    """Make ``count`` random calls for elements of ``dtype``; ``seed``."""
    for number in range(task["count"]):
        rng, where = under_a_schedule(task, number, "mean=")
        case = draw_case(rng, DTYPES[task["dtype"]])
        want, dtype = expected(case), result_dtype(case)
        with np.errstate(all="ignore"):
            rounded = want.astype(dtype)
        add_out(rng, case, rounded)
        where = f"{where} {case}"
        try:
            got = carry_out(case)
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        assert got.shape == want.shape, f"{where}: shape {got.shape}, not {want.shape}"
        assert case.out is not None or got.dtype == dtype, f"{where}: {got.dtype}, not {dtype}"
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        narrow = min(dtype, got.dtype, key=lambda one: one.itemsize)
        with np.errstate(all="ignore"):
            good = np.allclose(
                got.astype(wide), rounded.astype(got.dtype).astype(wide),
                rtol=rounding_of(narrow, case.array.view.size), atol=0, equal_nan=True,
            )  # fmt: skip
        assert good, f"{where}: {got} is not {rounded}"


def check_specials(task: dict[str, Any]) -> None:
    """Variances of rows with every sequence of four out of an ordinary number, both infinities, NaN
    and a number too large to be squared, about a number, infinities and NaN. Rows are along
    memory and across it, by themselves and with ordinary numbers between; ``dtype``, ``seed``.
    """
    dtype = DTYPES[task["dtype"]]
    large = float(np.finfo(dtype).max) / 2
    sequences = np.array(list(product([1.0, math.inf, -math.inf, math.nan, large], repeat=4)))
    means: list[Any] = [2.0, math.inf, -math.inf, math.nan]
    if dtype.kind == "c":
        means += [complex(2, math.inf), complex(math.inf, -math.inf)]
    for number, (others, mean) in enumerate(product((0, 30), means)):
        rng, where = under_a_schedule(task, number, "specials")
        for axis in (1, 0):
            rows = np.ones((len(sequences), 4 + others), dtype)
            places = np.sort(rng.permutation(rows.shape[1])[:4])
            rows[:, places] = sequences
            if dtype.kind == "c":
                rows.imag[:, places] = rng.permutation(sequences)
            memory = rows if axis == 1 else np.ascontiguousarray(rows.T)
            case = Case("var", Strided(memory, memory), axis, mean=mean)
            with np.errstate(all="ignore"):
                want = expected(case).astype(result_dtype(case))
            got = carry_out(case)
            wrong = np.flatnonzero(~np.isclose(got, want, rtol=1e-6, equal_nan=True))
            assert not wrong.size, (
                f"{where}: {got[wrong[0]]}, not {want[wrong[0]]}, of {rows[wrong[0]].tolist()} "
                f"about {mean}, axis {axis}, and {wrong.size - 1} more"
            )
