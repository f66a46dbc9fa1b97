"""Operators that show any change of order, what they make of an array by a left-to-right fold in
Python, and random calls of them. For tests on the CPU, on the emulator and on GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import gpureduce as gr

WORD = 1 << 64


@dataclass(frozen=True)
class Case:
    """An operator, and ``fold(elements, indices)`` of Python integers."""

    name: str
    text: str
    fold: Callable[[Sequence[int], Sequence[int]], Any]
    commutative: bool = False
    has_identity: bool = True
    takes_n: bool = False
    """Whether a result depends on the number of elements that counted."""

    def operator(self, made_of: str = "CUDA C++") -> gr.Operator:
        """The operator, of its text or of ``"Python"`` functions."""
        if made_of == "Python":
            return PYTHON[self.name]
        return gr.Operator(self.name, self.text, commutative=self.commutative)


def signed(value: int) -> int:
    return (value + WORD // 2) % WORD - WORD // 2


# Composition of x -> a x + b over integers that wrap; the index has a part in it.
AFFINE = """
struct affine {
    struct State { long long a, b; };
    static State identity() { return {1, 0}; }
    static State lift(T x, uint64 index)
    {
        return {static_cast<long long>(2 * (index % 7) + 3), static_cast<long long>(x)};
    }
    static State combine(State l, State r)
    {
        using Word = unsigned long long; // wraps
        return {(long long)((Word)l.a * (Word)r.a),
                (long long)((Word)l.b * (Word)r.a + (Word)r.b)};
    }
    static long long finish(State s, uint64 n) { return s.b + 1000 * (long long)n; }
};"""


def fold_affine(elements: Sequence[int], indices: Sequence[int]) -> int:
    b = 0
    for x, i in zip(elements, indices, strict=True):
        b = signed(b * (2 * (i % 7) + 3) + x)
    return signed(b + 1000 * len(elements))


# Products of the matrices (x 1; 1 0) over integers of 32 bits.
MATRIX = """
struct matrix {
    struct State { unsigned a, b, c, d; };
    static State identity() { return {1, 0, 0, 1}; }
    static State lift(T x) { return {(unsigned)x, 1, 1, 0}; }
    static State combine(State l, State r)
    {
        return {l.a * r.a + l.b * r.c, l.a * r.b + l.b * r.d,
                l.c * r.a + l.d * r.c, l.c * r.b + l.d * r.d};
    }
    static unsigned finish(State s) { return s.a ^ (3 * s.b) ^ (5 * s.c) ^ (7 * s.d); }
};"""


def fold_matrix(elements: Sequence[int], indices: Sequence[int]) -> int:
    word = 1 << 32
    a, b, c, d = 1, 0, 0, 1
    for x in elements:
        a, b, c, d = (a * x + b) % word, a, (c * x + d) % word, c
    return a ^ (3 * b) % word ^ (5 * c) % word ^ (7 * d) % word


# The hash of a string: polynomial, so that halves are put together by a power.
HASH = """
struct hash {
    struct State { uint64 value, power; };
    static State identity() { return State{0, 1}; }
    static State lift(T x) { return State{(uint64)(long long)x + 7, 1099511628211ull}; }
    static State combine(const State &l, const State &r)
    {
        return State{l.value * r.power + r.value, l.power * r.power};
    }
    static uint64 finish(const State &s) { return s.value; }
};"""


def fold_hash(elements: Sequence[int], indices: Sequence[int]) -> int:
    value = 0
    for x in elements:
        value = (value * 1099511628211 + x + 7) % WORD
    return value


# The longest run of equal elements; a state of 33 bytes, without an identity.
RUN = """
struct run {
    struct State {
        T first, last;
        unsigned prefix, suffix, best, length;
        bool any;
    };
    static State lift(T x) { return {x, x, 1, 1, 1, 1, true}; }
    static State combine(State l, State r)
    {
        State s = {l.first, r.last, l.prefix, r.suffix, max(l.best, r.best), l.length + r.length,
                   true};
        if (l.last == r.first) {
            s.best = max(s.best, l.suffix + r.prefix);
            if (l.prefix == l.length) s.prefix = l.length + r.prefix;
            if (r.suffix == r.length) s.suffix = r.length + l.suffix;
        }
        return s;
    }
    static int finish(State s) { return (int)s.best; }
};"""


def fold_run(elements: Sequence[int], indices: Sequence[int]) -> int:
    best = length = 0
    last = None
    for x in elements:
        length = length + 1 if x == last else 1
        last = x
        best = max(best, length)
    return best


# Commutative, with an identity; and one without, whose result has the array's dtype.
GCD = """
struct gcd {
    static T identity() { return 0; }
    static T combine(T a, T b)
    {
        if (a < 0) a = -a;
        if (b < 0) b = -b;
        while (b != 0) { const T rest = a % b; a = b; b = rest; }
        return a;
    }
};"""


def fold_gcd(elements: Sequence[int], indices: Sequence[int]) -> int:
    return math.gcd(*elements)


# Commutative, and an element that is folded twice counts twice.
TOTAL = """
struct total {
    struct State { long long sum; };
    static State identity() { return {0}; }
    static State lift(T x) { return {(long long)x}; }
    static State combine(State a, State b) { return {a.sum + b.sum}; }
    static long long finish(State s) { return s.sum; }
};"""


def fold_total(elements: Sequence[int], indices: Sequence[int]) -> int:
    return sum(elements)


FIRST_LARGEST = """
struct largest {
    struct State { T value; uint64 index; };
    static State lift(T x, uint64 index) { return {x, index}; }
    static State combine(State a, State b)
    {
        if (a.value != b.value) return a.value > b.value ? a : b;
        return a.index < b.index ? a : b;
    }
    static uint64 finish(State s) { return s.index; }
};"""


def fold_largest(elements: Sequence[int], indices: Sequence[int]) -> int:
    place = max(range(len(elements)), key=lambda i: (elements[i], -indices[i]))
    return indices[place] % WORD


CASES = {
    case.name: case
    for case in (
        Case("affine", AFFINE, fold_affine, takes_n=True),
        Case("matrix", MATRIX, fold_matrix),
        Case("hash", HASH, fold_hash),
        Case("run", RUN, fold_run, has_identity=False),
        Case("gcd", GCD, fold_gcd, commutative=True),
        Case("total", TOTAL, fold_total, commutative=True),
        Case("largest", FIRST_LARGEST, fold_largest, commutative=True, has_identity=False),
    )
}
DTYPES = ("int8", "int64", "float32")


# ---------------------------------------------------------------- Python functions ---------------
# What the texts compute, as Numba compiles it.


def lift_affine(x: Any, index: Any) -> Any:
    place = np.int64(np.uint64(index) % np.uint64(7))
    return (2 * place + 3, np.int64(x))


@gr.operator(identity=(1, 0), lift=lift_affine, finish=lambda s, n: s[1] + 1000 * n, name="affine")
def affine(l: Any, r: Any) -> Any:  # noqa: E741
    return (l[0] * r[0], l[1] * r[0] + r[1])


def lift_matrix(x: Any) -> Any:
    return (np.uint32(x), np.uint32(1), np.uint32(1), np.uint32(0))


@gr.operator(
    identity=lambda dtype: (1, 0, 0, 1),
    lift=lift_matrix,
    finish=lambda s: np.uint32(s.a ^ (3 * s.b) ^ (5 * s.c) ^ (7 * s.d)),
    state=[(name, "u4") for name in "abcd"],
)
def matrix(l: Any, r: Any) -> Any:  # noqa: E741
    return (
        l.a * r.a + l.b * r.c,
        l.a * r.b + l.b * r.d,
        l.c * r.a + l.d * r.c,
        l.c * r.b + l.d * r.d,
    )


@gr.operator(
    identity=(0, 1),
    lift=lambda x: (np.uint64(np.int64(x) + 7), np.uint64(1099511628211)),
    finish=lambda s: s[0],
    name="hash",
)
def polynomial(l: Any, r: Any) -> Any:  # noqa: E741
    return (l[0] * r[1] + r[0], l[1] * r[1])


class Run(NamedTuple):
    first: Any
    last: Any
    prefix: int
    suffix: int
    best: int
    length: int
    any: bool


@gr.operator(
    lift=lambda x: Run(x, x, 1, 1, 1, 1, True), finish=lambda s: np.int32(s.best), name="run"
)
def longest_run(l: Any, r: Any) -> Any:  # noqa: E741
    prefix, suffix, best = l.prefix, r.suffix, max(l.best, r.best)
    if l.last == r.first:
        best = max(best, l.suffix + r.prefix)
        if l.prefix == l.length:
            prefix = l.length + r.prefix
        if r.suffix == r.length:
            suffix = r.length + l.suffix
    return Run(l.first, r.last, prefix, suffix, best, l.length + r.length, True)


@gr.operator(identity=0, commutative=True)
def gcd(a: Any, b: Any) -> Any:
    a, b = abs(a), abs(b)
    while b != 0:
        a, b = b, a % b
    return a


@gr.operator(identity=0, lift=lambda x: np.int64(x), commutative=True)
def total(a: Any, b: Any) -> Any:
    return a + b


@gr.operator(lift=lambda x, index: (x, np.uint64(index)), finish=lambda s: s[1], commutative=True)
def largest(a: Any, b: Any) -> Any:
    if a[0] != b[0]:
        return a if a[0] > b[0] else b
    return a if a[1] < b[1] else b


PYTHON = {
    each.name: each for each in (affine, matrix, polynomial, longest_run, gcd, total, largest)
}


def reference(
    case: Case, a: np.ndarray, axis: Any = None, where: Any = True, initial: int | None = None
) -> np.ndarray:
    """What a left-to-right fold in Python makes of each row, as an array of Python integers."""
    axes = range(a.ndim) if axis is None else np.atleast_1d(axis)
    reduced = sorted(int(i) % a.ndim for i in axes)
    kept = [i for i in range(a.ndim) if i not in reduced]
    rows = a.transpose(kept + reduced).reshape([a.shape[i] for i in kept] + [-1])
    masks = np.broadcast_to(where, a.shape).transpose(kept + reduced).reshape(rows.shape)
    result = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(result.shape):
        elements = [int(x) for x in rows[place]]
        indices = [i for i in range(len(elements)) if masks[place][i]]
        chosen = [elements[i] for i in indices]
        if initial is not None:
            made = case.fold([initial, *chosen], [WORD - 1, *indices])
            result[place] = signed(made - 1000) if case.takes_n else made
        else:
            result[place] = case.fold(chosen, indices)
    return result


def random_call(
    case: Case, rng: np.random.Generator, most: int
) -> tuple[np.ndarray, dict[str, Any]]:
    """An array of up to `most` elements in any layout, and arguments of ``reduce``."""
    ndim = int(rng.integers(1, 5))
    shape = [1] * ndim
    for _ in range(20):
        i = int(rng.integers(ndim))
        grown = [*shape[:i], int(shape[i] * rng.uniform(1, 8)) + 1, *shape[i + 1 :]]
        if math.prod(grown) <= most:
            shape = grown
    dtype = rng.choice(DTYPES[:2] if case.name == "gcd" else DTYPES)
    low = 0 if case.name == "matrix" else -2
    values = rng.integers(low, 3, shape)
    if case.name == "gcd":
        values = 6 * rng.integers(0, 20, shape)
    a = values.astype(dtype)
    layout = rng.integers(5)
    if layout == 1:
        a = a.transpose(rng.permutation(ndim))
    elif layout == 2:
        a = np.repeat(a, 3, axis=int(rng.integers(ndim)))[..., ::-1]
    elif layout == 3:
        a = np.asfortranarray(a)
    elif layout == 4:
        a = a.astype(a.dtype.newbyteorder())
    reduced = [int(i) for i in range(ndim) if rng.random() < 0.6]
    arguments: dict[str, Any] = {"axis": tuple(reduced) if reduced else None}
    if rng.random() < 0.3:
        arguments["where"] = rng.random(a.shape[int(rng.integers(ndim)) :]) < 0.7
        if not case.has_identity:
            arguments["initial"] = int(rng.integers(-1, 2))
    elif rng.random() < 0.2:
        arguments["initial"] = int(rng.integers(0, 3))
    return a, arguments


def check(got: Any, want: np.ndarray, what: str) -> None:
    assert np.shape(got) == want.shape, what
    assert np.asarray(got).astype(object).tolist() == want.tolist(), what


# ---------------------------------------------------------------- structures ---------------------

PARTICLE = [("mass", "f8"), ("charge", "i2"), ("alive", "?")]
HEAVIEST = """
struct heaviest {                              // the first one of the largest mass
    static T combine(T a, T b) { return b.mass > a.mass ? b : a; }
};"""
BOX = """
struct box {
    struct State { double low, high; long long charge; int alive; };
    static State lift(T x) { return {x.mass, x.mass, x.charge, x.alive}; }
    static State combine(State l, State r)
    {
        return {min(l.low, r.low), max(l.high, r.high), l.charge * 3 + r.charge,
                l.alive + r.alive};
    }
};"""
BOX_DTYPE = [("low", "f8"), ("high", "f8"), ("charge", "i8"), ("alive", "i4")]


def particles(rng: np.random.Generator, shape: tuple[int, ...], *, align: bool) -> np.ndarray:
    made = np.zeros(shape, np.dtype(PARTICLE, align=align))
    made["mass"] = rng.integers(0, 50, shape)
    made["charge"] = rng.integers(-3, 4, shape)
    made["alive"] = rng.random(shape) < 0.5
    return made


def check_structures(rng: np.random.Generator, device: str) -> None:
    """Elements, states and results that are structures, packed and aligned, in any layout."""
    heaviest = gr.Operator("heaviest", HEAVIEST)
    box = gr.Operator(
        "box", BOX.replace("l.charge * 3 + r.charge", "l.charge + r.charge"),
        result=np.dtype(BOX_DTYPE, align=True),
    )  # fmt: skip
    for align in (False, True):
        a = particles(rng, (30, 14), align=align)[:, ::2]
        for axis in (None, 0, 1):
            got = gr.reduce(a, heaviest, axis, device=device)
            assert got.dtype == a.dtype
            places = np.argmax(a["mass"], axis)
            if axis is None:
                assert got == a.reshape(-1)[places]
            else:
                index = np.expand_dims(places, axis)
                want = np.take_along_axis(a, index, axis).squeeze(axis)
                assert (got == want).all()
            found = gr.reduce(a, box, axis, device=device)
            np.testing.assert_array_equal(found["low"], a["mass"].min(axis))
            np.testing.assert_array_equal(found["high"], a["mass"].max(axis))
            np.testing.assert_array_equal(found["charge"], a["charge"].sum(axis))
            np.testing.assert_array_equal(found["alive"], a["alive"].sum(axis))
        start = gr.reduce(a, heaviest, 0, initial=(99, 5, True), device=device)
        assert (start["mass"] == 99).all()
        assert (start["charge"] == 5).all()
