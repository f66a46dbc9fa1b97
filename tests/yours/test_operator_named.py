"""Kernels of the course with operators of users' own: their order, what they refuse, chunks.

Calls run on the emulator, in a child process, by all of its schedules. Programs are compiled by
NVRTC where there is one.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import emu
import numpy as np
import pytest
from draws import EVERYTHING, SEED, one, some
from emu.operators import takes
from operator_cases import CASES, reference
from test_operator_on_gpu import BEGIN, emulated

import gpureduce as gr
from gpureduce import _core
from gpureduce._yours.operator_device_program import OPTIONS
from gpureduce._yours.operator_named import named_text
from gpureduce._yours.operator_text import OperatorTypes

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
KERNELS = {row["name"]: row for row in _core.kernels()}
NAMED = [name for name in KERNELS if any(takes(name, case) for case in CASES.values())]
ORDERED = [name for name in NAMED if not KERNELS[name]["commutative_only"]]
BLOCKS = {"power of two": [32, 64, 256], "multiple of 32": [32, 96, 256], "32": [32]}
# Each operator shows another mistake: swapped operands, or elements that are folded twice or never.
ORDERED_OPS = ("affine", "matrix", "hash", "run")
REORDERED_OPS = ("total", "largest", "gcd")
PROVED_EACH_RUN = 3 if EVERYTHING else 2
"""Kernels that reorder, of those that a run draws; GPR_TEST_EXAMPLES is of all."""


def proofs(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Of some ordered kernels with an operator each, and of some others."""
    everything = "GPR_TEST_EXAMPLES" in os.environ
    pairs = [
        (name, op)
        for name in (ORDERED if everything else some(ORDERED, 0.6, "ordered kernels"))
        for op in (ORDERED_OPS if everything else [str(rng.choice(ORDERED_OPS))])
    ]
    others = [name for name in NAMED if name not in ORDERED]
    drawn = others if everything else rng.choice(others, PROVED_EACH_RUN, replace=False)
    pairs += [
        (str(name), op)
        for name in drawn
        for op in REORDERED_OPS
        if takes(str(name), CASES[op]) and (everything or op == "total")
    ]
    return [
        {
            "do": "operators.check_named",
            "kernel": kernel,
            "op": op,
            "blocks": [int(rng.choice(BLOCKS[KERNELS[kernel]["block_rule"]]))],
            "count": 12 if everything else 4,
            "most": 900 if op == "run" else 2500,
            "seed": SEED,
            "limit": 300.0,
        }
        for kernel, op in pairs
    ]


@needs_compiler
@pytest.mark.long
def test_named_kernels_fold_as_their_order_says_by_any_schedule() -> None:
    wrong = emu.failures(proofs(np.random.default_rng(SEED)))
    assert not wrong, "\n".join(wrong)


def test_ordered_kernels_are_those_of_the_registry() -> None:
    assert ORDERED == [
        "single_block_ordered",
        "last_block_ordered",
        "single_warp_ordered",
        "single_warp_ordered_padded",
        "warp_registers",
    ]


# ---------------------------------------------------------------- what is refused ----------------

HASH = CASES["hash"].operator()
TOTAL = CASES["total"].operator()
LARGEST = CASES["largest"].operator()


def refused(*args: Any, **options: Any) -> str:
    with pytest.raises(Exception) as found:  # noqa: PT011 - the type is part of what is returned
        gr.reduce(*args, **options, device="cpu")
    return f"{type(found.value).__name__}: {found.value}"


@pytest.mark.parametrize("kernel", [name for name in NAMED if name not in ORDERED])
def test_a_kernel_that_reorders_refuses_an_operator_that_does_not_commute(kernel: str) -> None:
    ordered = ", ".join(f"'{name}'" for name in [*ORDERED, "auto"])
    assert refused(np.arange(9), HASH, kernel=kernel) == (
        f"ValueError: kernel '{kernel}' reorders operands, and operator 'hash' is not "
        f"commutative: {ordered} and 'fast' keep the order"
    )


@needs_compiler
def test_atomics_refuse_states_that_they_do_not_swap() -> None:
    end = ". Kernels that write partials take it, as 'shfl_two_pass', 'last_block' and 'auto' do"
    assert refused(np.arange(9), LARGEST, kernel="shfl_atomic") == (
        "ValueError: kernel 'shfl_atomic' folds by atomics, which swap 4 or 8 bytes: a state of "
        "operator 'largest' has 16, and a count of its elements of 8, as there is no identity()"
        + end
    )
    wide = gr.Operator(
        "wide",
        "struct wide { struct State { double a, b; }; static State identity() { return {0, 0}; }"
        " static State lift(T x) { return {(double)x, 1}; }"
        " static State combine(State l, State r) { return {l.a + r.a, l.b + r.b}; }"
        " static double finish(State s) { return s.a / s.b; } };",
        commutative=True,
    )
    assert refused(np.arange(9), wide, kernel="naive_atomic") == (
        "ValueError: kernel 'naive_atomic' folds by atomics, which swap 4 or 8 bytes: a state of "
        "operator 'wide' has 16" + end
    )
    assert gr.reduce(np.arange(9), wide, kernel="sequential", device="cpu") == 4.0
    assert gr.reduce(np.arange(9), TOTAL, kernel="naive_atomic", device="cpu") == 36


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "exact"}, "KernelUnavailableError: kernel 'exact' sums numbers: it takes no"),
        ({"kernel": "cub"}, "KernelUnavailableError: kernel 'cub' is NVIDIA's library, compiled"),
        ({"kernel": "no such"}, "ValueError: unknown kernel 'no such'"),
        ({"kernel": 3}, "TypeError: kernels by name take operators of your own, not 3"),
        ({"kernel": "sequential", "block_size": 96}, "ValueError: kernel 'sequential' takes a b"),
        ({"kernel": "sequential", "grid_size": 2}, "ValueError: kernel 'sequential' takes no gri"),
        ({"kernel": "shfl_xor", "grid_size": 0}, "ValueError: grid_size must be from 1 to"),
        ({"kernel": "single_warp", "block_size": 64}, "ValueError: kernel 'single_warp' is one w"),
    ],
)
def test_arguments_that_a_kernel_does_not_take_are_refused_on_the_cpu_too(
    options: dict[str, Any], message: str
) -> None:
    assert refused(np.arange(9), TOTAL, **options).startswith(message)


@needs_compiler
def test_the_cpu_takes_the_names_of_kernels() -> None:
    a = np.random.default_rng(SEED).integers(0, 3, 5000)
    for kernel in ("last_block_ordered", "warp_registers"):
        assert gr.reduce(a, HASH, kernel=kernel, device="cpu") == reference(CASES["hash"], a)[()]
    assert gr.reduce(a, TOTAL, kernel="reduce3", device="cpu") == a.sum()


@needs_compiler
def test_calls_that_named_kernels_take_and_refuse_on_a_gpu(tmp_path: Any) -> None:
    """Chunks whose operator sees indices, nothing to fold, large states, layouts."""
    axes = one((None, 0, 1), "indices of chunks")
    code = (
        f"AXES, ROWS = {axes}, {3000 if EVERYTHING else 600}"
        + """
from gpureduce import _core
from gpureduce._yours import operator_device
largest, hash_ = CASES["largest"].operator(), CASES["hash"].operator()
operator_device._MOST_CHUNK = 1024
a = rng.integers(0, 50, (3, 4000))
part = a[:, :1000].copy()
for axis in AXES:
    check(gr.reduce(part, largest, axis, kernel="last_block", device="cuda"),
          reference(CASES["largest"], part, axis), "indices of chunks")
operator_device._MOST_CHUNK = 4096
rows = rng.integers(0, 50, (ROWS, 3))  # a launch at a time for those whose blocks run at once
check(gr.reduce(rows, ADD, 1, kernel="cooperative", device="cuda"), rows.sum(1), "many launches")
nothing = {"kernel": "sequential", "device": "cuda"}
assert gr.reduce(np.zeros((2, 0), "i4"), ADD, 1, **nothing).tolist() == [0, 0]
assert gr.reduce(np.zeros((0, 3)), ADD, 1, **nothing).shape == (0,)
big = gr.Operator("big", '''struct big {
    struct State { int v[64]; };
    static State lift(T x) { State s{}; s.v[x & 63] = 1; return s; }
    static State combine(State l, State r)
    { for (int i = 0; i < 64; i++) l.v[i] += r.v[i]; return l; }
    static int finish(State s)
    { int m = 0; for (int i = 0; i < 64; i++) m += s.v[i] * i; return m; }
};''', commutative=True)
b = rng.integers(0, 64, 1000)
assert gr.reduce(b, big, kernel="sequential", block_size=64, device="cuda") == b.sum()
from device_buffers import device
def at(buffer, shape, strides):
    return _core.device_array(buffer.memory.pointer, shape, strides, buffer.dtype, 0, None, buffer)
class Part:
    def __init__(self, part): self.part = part
    @property
    def __cuda_array_interface__(self):
        p = self.part
        return {"shape": p.shape, "typestr": np.dtype(p.dtype).str, "data": (p.pointer, False),
                "version": 3, "strides": p.strides}
d = device(a)
from gpureduce._yours import operator_named
loaded = next(iter(operator_named._programs.values()))._loaded
place = bytearray(8)
def queue(*pointer):
    return refused(lambda: _core.queue_launches(loaded, (), None, 64, (pointer,)))
assert queue(place, 0, 64).startswith("ValueError: byte 64 of scratch of 64"), queue(place, 0, 64)
assert "not within its argument" in queue(place, 1, 0)
assert "not within its argument" in queue(place, -1, 0)
assert queue(bytes(8), 0, 0).startswith("TypeError")
assert "has several programs" in refused(lambda: _core.plan_kernel("fast", 0, 1, 1, 0, 0))
print(json.dumps([
    refused(lambda: gr.reduce(b, big, kernel="sequential", block_size=1024, device="cuda")),
    refused(lambda: gr.reduce(d, hash_, 0, kernel="last_block_ordered")),
    refused(lambda: gr.reduce(Part(at(d, (3, 2000), (32000, 16))), ADD, 1, kernel="shfl_xor")),
    refused(lambda: gr.reduce(d, ADD, 1, kernel="shfl_xor", where=device(a > 3))),
    refused(lambda: gr.reduce(d, hash_, kernel="shfl_xor")),
]))
"""
    )
    found = emulated(BEGIN + code, tmp_path)
    assert isinstance(found, list)
    only_runs = "reads device arrays whose rows follow each other in memory, without a mask; kernel"
    for text, part in zip(
        found,
        [
            "ValueError: kernel 'sequential' has no room for the states of operator 'big': in "
            "blocks of 1024 threads they take more than the 49,152 bytes of shared memory",
            f"ValueError: kernel 'last_block_ordered' {only_runs}",
            f"ValueError: kernel 'shfl_xor' {only_runs}",
            f"ValueError: kernel 'shfl_xor' {only_runs}",
            "ValueError: kernel 'shfl_xor' reorders operands, and operator 'hash' is not commu",
        ],
        strict=True,
    ):
        assert text.startswith(part), text


# ---------------------------------------------------------------- NVRTC --------------------------

FINISHES = {"last_block": "ticket", "last_block_ordered": "ticket"}


def test_programs_of_named_kernels_compile_for_a_gpu() -> None:
    """Of three kernels with any operator that they take, and of all with GPR_TEST_EXAMPLES."""
    rng = np.random.default_rng([SEED, 1])
    names = (
        NAMED
        if "GPR_TEST_EXAMPLES" in os.environ
        else rng.choice(NAMED, 6 if EVERYTHING else 3, replace=False)
    )
    for name in map(str, names):
        row = KERNELS[name]
        op = rng.choice([op for op, case in CASES.items() if takes(name, case)])
        finish = FINISHES.get(name, "passes" if row["deterministic"] else "atomic")
        sizes = {"block": row["block_size"], "per_thread": row["elements_per_thread"]}
        dtype = np.dtype(str(rng.choice(["int8", "int64", "int32"])))
        types = OperatorTypes(dtype, dtype, bool(rng.integers(2)))
        operator = CASES[str(op)].operator()
        plan = {**sizes, "finish": finish}
        text, entries = named_text(operator._text, types, name, plan, emulated=False)
        try:
            image, symbols = _core.compile_text("operator", text, entries, OPTIONS, 90)
        except gr.DeviceUnavailableError as error:
            pytest.skip(str(error))
        assert len(image) > 1000
        assert len(symbols) == len(entries) == 4


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", NAMED)
def test_named_kernels_on_a_gpu_fold_as_the_cpu_does(kernel: str) -> None:
    rng = np.random.default_rng([SEED, len(kernel)])
    for op in ORDERED_OPS + REORDERED_OPS:
        if not takes(kernel, CASES[op]):
            continue
        operator = CASES[op].operator()
        n = 300_007 if KERNELS[kernel]["takes_grid_size"] else 30_011
        for shape, axis in (((n,), None), ((301, 3001), 1), ((5, 70, 300), (0, 2))):
            a = (6 * rng.integers(0, 3, shape)).astype("int32")
            got = gr.reduce(a, operator, axis, kernel=kernel, device="cuda")
            np.testing.assert_array_equal(got, gr.reduce(a, operator, axis, device="cpu"))
