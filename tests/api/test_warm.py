"""``warm`` and its command: afterwards the calls compile nothing, and without it they do."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import fakes
import numpy as np
import pytest
from draws import SEED

import gpureduce as gr
from gpureduce._cli.command import main

CALLS, LARGEST = 12, 400_000
FUNCTIONS = ("sum", "mean", "max", "argmin", "var", "nansum", "nanmax", "any", "prod", "minmax")
DTYPES = ("float32", "float64", "int8", "int32", "float16")
KERNELS = ("auto", "auto", "fast", "shfl_two_pass", "sequential", "last_block")

CALL = """
def call(function, dtype, shape, axis, where, kernel, memory):
    a = np.random.default_rng(1).integers(0, 3, shape).astype(dtype)
    given = {"where": a < 2, "initial": 0} if where else {}
    if where and function not in ("min", "max", "nanmax"):
        del given["initial"]
    if memory == "pinned":
        pinned = gr.empty_pinned(a.shape, a.dtype)
        pinned[...] = a
        a = pinned
    elif memory == "device":
        import array_libraries as lib
        a = lib.Producer(a)
        if where:
            given["where"] = lib.Producer(given["where"])
        gr.reduce(a, function, axis, kernel=kernel, **given)
        lib.settle()
        return
    gr.reduce(a, function, axis, kernel=kernel, device="cuda", **given)
"""


def draw(rng: random.Random) -> tuple[str, str, tuple[int, ...], int | None, bool, str, str]:
    """A random call that every part of the package takes."""
    axes = rng.randint(1, 3)
    shape: tuple[int, ...] = (LARGEST, LARGEST)
    while math.prod(shape) > LARGEST:
        shape = tuple(rng.choice((1, 3, 40, 257, 1500)) for _ in range(axes))
    function, kernel = rng.choice(FUNCTIONS), rng.choice(KERNELS)
    memory = rng.choice(("ordinary", "pinned", "device"))
    named = kernel not in ("auto", "fast")
    # Rows that the course's kernels read follow each other in memory, and have no masks there.
    axis = rng.choice((None, axes - 1) if named else (None, 0, axes - 1))
    where = rng.random() < 0.3 and not (named and memory == "device")
    # Positions and pairs take no mask, a masked mean needs a count, and the start that a masked
    # extreme needs is folded in by another kernel in GPU memory.
    if (
        function in ("argmin", "minmax")
        or (named and function in ("mean", "var"))
        or (memory == "device" and function in ("max", "nanmax"))
    ):
        where = False
    return function, rng.choice(DTYPES), shape, axis, where, kernel, memory


def test_calls_compile_nothing_afterwards(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    calls = [draw(rng) for _ in range(CALLS)]
    warm_all = f"""
        for function, dtype, shape, axis, where, kernel, memory in {calls}:
            found = gr.warm(
                function, dtype, [shape], axis, where=where, kernel=kernel,
                memory="device" if memory == "device" else "host",
            )
            assert found.calls == 1 and found.device == "cuda:0"
        info = gr.cache_info()
        assert info.hits + info.misses > 0 and info.entries > 0
        works()
        """
    fakes.run(warm_all, tmp_path)
    fakes.run(
        f"""
        sys.path.insert(0, {str(fakes.HERE)!r})
        {CALL.replace(chr(10), chr(10) + " " * 8)}
        for each in {calls}:
            before = gr.cache_info().misses
            call(*each)
            assert gr.cache_info().misses == before, (each, "GPR_TEST_SEED={SEED}")
        """,
        tmp_path,
    )


def test_a_call_that_was_not_warmed_compiles(tmp_path: Path) -> None:
    fakes.run(
        """
        gr.warm("sum", "float32", 1000)
        before = gr.cache_info().misses
        gr.sum(np.ones(1000, np.float32), device="cuda")
        assert gr.cache_info().misses == before
        gr.max(np.ones(1000, np.float32), device="cuda")
        assert gr.cache_info().misses == before + 1
        """,
        tmp_path,
    )


def test_programs_that_are_there_are_not_compiled_again(tmp_path: Path) -> None:
    first, second = fakes.run(
        """
        for _ in range(2):
            found = gr.warm(("sum", "max"), ("int32", np.float64), [10, (70, 3000)], axis=-1)
            assert found.calls == 16
            print(found.compiled)
        works()
        """,
        tmp_path,
    ).split()
    assert int(first) >= 8
    assert second == "0"


def test_nothing_is_compiled_for_arrays_without_results(tmp_path: Path) -> None:
    fakes.run(
        """
        assert gr.warm("sum", "int32", [(0, 5)], axis=1).compiled == 0
        works()
        """,
        tmp_path,
    )


def test_an_architecture_needs_no_gpu(tmp_path: Path) -> None:
    printed = fakes.run(
        """
        assert not gr.devices()
        found = gr.warm("sum", "int32", 1000, device="sm_80", memory="host")
        assert (found.calls, found.compiled, found.device) == (1, 1, "sm_80")
        print(found)
        with raises(gr.DeviceUnavailableError, "such as 'sm_90'"):
            gr.warm("sum", "int32", 1000)
        """,
        tmp_path,
        GPUREDUCE_LIBCUDA="/nonexistent",
    )
    assert "sm_80: 1 programs compiled for 1 calls" in printed


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (("cumsum", "int32", 10), ValueError, "unknown function 'cumsum'"),
        (("nanany", "int32", 10), ValueError, "unknown function 'nanany'"),
        (("sum", "U3", 10), TypeError, "U3"),
        (("sum", "datetime64[s]", 10), TypeError, "datetime64"),
        (("bitwise_or", "float32", 10), TypeError, "bitwise_or"),
        (("sum", "int32", (3, -4)), ValueError, "no negative extents"),
        (("sum", "int32", (3, 4), 2), np.exceptions.AxisError, "axis 2 is out of bounds"),
        (("sum", "int32", (3, 4), (0, 0)), ValueError, "repeated axis"),
    ],
)
def test_what_cannot_be_warmed_is_refused(
    arguments: tuple[object, ...], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        gr.warm(*arguments, device="sm_90")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "cpu"}, "not 'cpu'"),
        ({"device": "sm_9"}, "no compute capability"),
        ({"memory": "disk"}, "memory is one of host, device"),
        ({"kernel": "shfl_tomic"}, "did you mean"),
        ({"block_size": 100, "kernel": "shfl_atomic"}, "block size"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        gr.warm("sum", "int32", 10, **{"device": "sm_90", **options})  # type: ignore[arg-type]


def test_without_a_cache_there_is_nothing_to_keep(tmp_path: Path) -> None:
    fakes.run(
        """
        with raises(OSError, "GPUREDUCE_CACHE_BYTES is 0"):
            gr.warm("sum", "int32", 10)
        """,
        tmp_path,
        GPUREDUCE_CACHE_BYTES="0",
    )


def test_the_command_prints_what_it_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["warm", "sum", "max", "--dtype", "int8", "--shape", "30,1e3", "--axis", "0"]
    assert main([*line, "--device", "sm_75", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["calls"], found["device"]) == (4, "sm_75")
    assert found["compiled"] > 0
    assert main([*line, "--device", "sm_75"]) == 0
    assert "sm_75: 0 programs compiled for 4 calls" in capsys.readouterr().out
    assert main(["warm", "cumsum", "--device", "sm_75"]) == 2
    assert "unknown function 'cumsum'" in capsys.readouterr().err


GCD = """struct gcd {
    static T identity() { return 0; }
    static T combine(T a, T b)
    {
        while (b != 0) { const T rest = a % b; a = b; b = rest; }
        return a;
    }
};"""


def test_tuples_of_operators_and_operators_of_users_own_are_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size, target = 30_000_000, {"device": "sm_80"}
    ops = [("sum", "nansum", "max")]
    found = gr.warm(ops, "float32", size, memory="device", **target)
    assert (found.calls, found.compiled) == (1, 2)  # the pass, and nansum by itself
    assert gr.warm(ops, "float32", size, memory="device", **target).compiled == 0
    own = gr.Operator("gcd", GCD, commutative=True)
    assert gr.warm(own, ["int32", "uint8"], size, **target).compiled == 2
    assert gr.warm([own], ["int32", "uint8"], 7, **target).compiled == 0
    assert gr.warm([own], "int32", 7, where=True, **target).compiled == 1
    (tmp_path / "gcd.cu").write_text(GCD)
    line = ["warm", "min,argmin", "--operator", str(tmp_path / "gcd.cu"), "--commutative"]
    line += ["--dtype", "int32", "--shape", "3e7", "--device", "sm_80", "--json"]
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["calls"] == 3  # host and device memory, and gcd
    for wrong, said in (
        (["--commutative", "sum"], "--operator FILE"),
        ([], "no function is named"),
        (["--operator", "none.cu"], "none.cu"),
    ):
        assert main(["warm", *wrong, "--device", "sm_80"]) != 0
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ops", "options", "kind", "text"),
    [
        ([("sum",)], {}, ValueError, "two or more"),
        ([("sum", "median")], {}, ValueError, "unknown function 'median'"),
        ([("sum", 3)], {}, TypeError, "names of functions"),
        ([("sum", "min")], {"where": True}, ValueError, "without a mask"),
        ([("sum", "min")], {"kernel": "shfl_atomic"}, ValueError, "kernel auto alone"),
        (
            gr.Operator("gcd", GCD, commutative=True),
            {"kernel": "shfl_two_pass"},
            ValueError,
            "compiled when it is called",
        ),
    ],
)
def test_tuples_and_operators_that_cannot_be_warmed_are_refused(
    ops: object, options: dict[str, object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        gr.warm(ops, "int32", 1000, device="sm_90", **options)  # type: ignore[arg-type]
