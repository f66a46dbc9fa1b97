"""Operators of users' own on the CPU: results of left-to-right folds, NumPy's arguments, errors."""

from __future__ import annotations

import copy
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from draws import EVERYTHING, SEED, one, some
from operator_cases import CASES, DTYPES, GCD, check, check_structures, random_call, reference

import gpureduce as gr
from gpureduce._yours.operator_layout import FACTS, PARAMETERS
from gpureduce._yours.shared_header import constants

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
ADD = (
    "struct add { static T identity() { return 0; } static T combine(T a, T b) { return a + b; } };"
)
ADD_WITHOUT = "struct add { static T combine(T a, T b) { return a + b; } };"


@pytest.fixture
def add() -> gr.Operator:
    return gr.Operator("add", ADD, commutative=True)


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = gr.limits().cpu_threads
    gr.set_limits(cpu_threads=request.param)
    yield request.param
    gr.set_limits(cpu_threads=before)


def test_parameters_and_facts_are_the_structures_of_the_shared_header(tmp_path: Path) -> None:
    """Each member's offset and size, and constants, as the C compiler has them."""
    numbers = constants("custom_params.h") | constants("tuning.h")
    assert {"GPR_CUSTOM_CONTINUES", "GPR_CUSTOM_COLUMN_BYTES"} <= numbers.keys()
    lines = [f'printf("{name} %d\\n", {name});' for name in numbers]
    wanted = [f"{name} {value}" for name, value in numbers.items()]
    axis = PARAMETERS["axes"].subdtype[0]
    for kind, dtype in (
        ("gpr_custom_params", PARAMETERS), ("gpr_custom_facts", FACTS), ("gpr_axis", axis),
    ):  # fmt: skip
        for name, (field, offset, *_) in (dtype.fields or {}).items():
            member = f"offsetof({kind}, {name}), sizeof(({kind} *)0)->{name}"
            lines.append(f'printf("{kind}.{name} %zu %zu\\n", {member});')
            wanted.append(f"{kind}.{name} {offset} {field.itemsize}")
        lines.append(f'printf("{kind} %zu\\n", sizeof({kind}));')
        wanted.append(f"{kind} {dtype.itemsize}")
    source, program = tmp_path / "members.c", tmp_path / "members"
    body = " ".join(lines)
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n"
        f'#include "custom_params.h"\n#include "tuning.h"\nint main(void) {{ {body} return 0; }}\n'
    )
    csrc = Path(__file__).parents[2] / "csrc"
    folders = [f"-I{csrc / each}" for each in ("shared", "registry", "include")]
    compiler = ["gcc", "-std=gnu11", *folders, str(source), "-o", str(program)]
    subprocess.run(compiler, check=True, capture_output=True, text=True)
    found = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert found.splitlines() == wanted


# ---------------------------------------------------------------- results ------------------------


@pytest.mark.parametrize("name", CASES)
def test_any_layout_is_folded_in_order(name: str, threads: int) -> None:
    """Elements are of a type that an ordinary run draws: each is a program of its own."""
    rng = np.random.default_rng([SEED, threads])
    case = CASES[name]
    operator = case.operator()
    dtypes = one(DTYPES[:2] if name == "gcd" else DTYPES, f"layouts {name}")
    for number in range(25 if EVERYTHING else 40):
        a, arguments = random_call(case, rng, 3000)
        if a.dtype.newbyteorder("=").name not in dtypes:
            continue
        want = reference(case, a, **arguments)
        got = gr.reduce(a, operator, device="cpu", **arguments)
        what = f"seed {SEED}: call {number}, {a.dtype} {a.shape} {a.strides} {arguments}"
        check(got, want, what)


@pytest.mark.parametrize(
    ("name", "axis"), [(name, axis) for name in CASES for axis in one((0, 1), f"tasks {name}")]
)
def test_rows_that_many_tasks_fold(name: str, axis: int) -> None:
    """Long rows, and columns, of more than one task."""
    rng = np.random.default_rng(SEED)
    case = CASES[name]
    shape = [3, 3]
    shape[axis] = 150_000 + int(rng.integers(1000))
    a = (6 * rng.integers(0, 3, shape)).astype("int32")
    a[a == 12] = 1 if name != "gcd" else 12
    got = gr.reduce(a, case.operator(), axis=axis, device="cpu")
    check(got, reference(case, a, axis), f"seed {SEED}")


def test_threads_do_not_change_bits_of_floats(add: gr.Operator) -> None:
    a = np.random.default_rng(SEED).standard_normal(1_000_003).astype("float32")
    before = gr.limits().cpu_threads
    found = set()
    try:
        for threads in (1, 2, 7):
            gr.set_limits(cpu_threads=threads)
            found.add(gr.reduce(a, add, device="cpu").tobytes())
    finally:
        gr.set_limits(cpu_threads=before)
    assert len(found) == 1
    value = float(np.frombuffer(found.pop(), "float32")[0])
    assert abs(value - np.sum(a, dtype="float64")) < 1


@pytest.mark.parametrize(
    "dtype", some(["bool", "uint8", "int16", "uint64", "float16", "float32"], 1 / 2, "type T")
)
def test_a_result_of_type_t_has_the_arrays_dtype(dtype: str) -> None:
    smallest = gr.Operator(
        "smallest", "struct smallest { static T combine(T a, T b) { return a < b ? a : b; } };"
    )
    a = (
        np.random.default_rng(SEED)
        .integers(0, 2 if dtype == "bool" else 100, (40, 7))
        .astype(dtype)
    )
    got = gr.reduce(a, smallest, axis=0, device="cpu")
    assert got.dtype == a.dtype
    np.testing.assert_array_equal(got, a.min(axis=0))


def test_bfloat16_is_computed_in_float32(add: gr.Operator) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a = np.array([256, 1, 1, 1], bfloat16)
    got = gr.reduce(a, add, device="cpu")
    assert got.dtype == bfloat16
    assert float(got) == float(np.float32(259).astype(bfloat16))


def test_elements_states_and_results_may_be_structures() -> None:
    check_structures(np.random.default_rng(SEED), "cpu")


def test_structures_that_c_has_not_are_refused() -> None:
    first = gr.Operator("first", "struct first { static T combine(T a, T) { return a; } };")
    for fields, message in (
        ([("a b", "i4")], "names of C++"),
        ([("a", "O")], "field 'a' is of dtype object"),
        ([("a", "i4", 3)], "field 'a' is of dtype"),
    ):
        with pytest.raises(TypeError, match=message.replace("+", r"\+")):
            gr.reduce(np.zeros(3, fields), first, device="cpu")
    a = np.array([(1.5, 2)], [("x", "f2"), ("y", ">i4")])
    assert gr.reduce(a, first, device="cpu").tolist() == (1.5, 2)
    with pytest.raises(TypeError, match="structures are not converted"):
        gr.reduce(a, first, dtype="f4", device="cpu")


def test_complex_elements_have_parts() -> None:
    product = gr.Operator(
        "product",
        """
struct product {
    static T identity() { return {1, 0}; }
    static T combine(T a, T b)
    {
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
};""",
    )
    a = np.array([[1 + 2j, 3 - 1j], [2j, 1 - 1j]])
    np.testing.assert_array_equal(gr.reduce(a, product, axis=0, device="cpu"), a.prod(axis=0))
    narrow = a.astype("complex64")
    assert gr.reduce(narrow, product, device="cpu") == narrow.prod()


def test_dtype_converts_elements_first(add: gr.Operator) -> None:
    a = np.array([200, 100, 1], "uint8")
    assert gr.reduce(a, add, device="cpu") == np.uint8(45)
    wide = gr.reduce(a, add, dtype="int64", device="cpu")
    assert wide == 301
    assert wide.dtype == np.int64
    with pytest.raises(TypeError, match="does not convert complex elements"):
        gr.reduce(np.ones(3, complex), add, dtype="float64", device="cpu")


def test_results_of_every_kind_of_number() -> None:
    kinds = (
        ("bool", "bool"), ("signed char", "int8"), ("char", "int8"), ("unsigned char", "uint8"),
        ("short", "int16"), ("unsigned", "uint32"), ("long", "int64"), ("uint64", "uint64"),
        ("float", "float32"), ("double", "float64"), ("complex64", "complex64"),
    )  # fmt: skip
    for text, dtype in some(kinds, 0.4, "kinds of numbers"):
        value = "{1, 0}" if "complex" in text else "1"
        operator = gr.Operator(
            "one",
            f"struct one {{ static T combine(T a, T) {{ return a; }}"
            f" static {text} finish(T) {{ return {value}; }} }};",
        )
        got = gr.reduce(np.zeros(3, "int32"), operator, device="cpu")
        if text == "char":
            dtype = np.dtype("int8" if np.iinfo(np.int8).min < 0 else "uint8").name
        assert got == 1
        assert got.dtype.kind == np.dtype(dtype).kind or text == "char"
        assert got.dtype.itemsize == np.dtype(dtype).itemsize


# ---------------------------------------------------------------- NumPy's arguments --------------


def test_axis_keepdims_and_out_are_numpys(add: gr.Operator) -> None:
    a = np.arange(24).reshape(2, 3, 4)
    for axis in (None, 0, -1, (0, 2), (2, 0), ()):
        for keepdims in (False, True):
            want = np.sum(a, axis=axis, keepdims=keepdims)
            got = gr.reduce(a, add, axis=axis, keepdims=keepdims, device="cpu")
            assert type(got) is type(want)
            np.testing.assert_array_equal(got, want)
            out = np.zeros_like(want, dtype="float64")
            assert (
                gr.reduce(a, add, axis, None, out, keepdims, device="cpu") is out or out.ndim == 0
            )
            np.testing.assert_array_equal(out, want)
    assert gr.reduce(5, add, device="cpu") == 5
    with pytest.raises(np.exceptions.AxisError):
        gr.reduce(a, add, axis=3, device="cpu")
    with pytest.raises(ValueError, match=r"repeated axis|duplicate"):
        gr.reduce(a, add, axis=(0, 0), device="cpu")
    with pytest.raises(ValueError, match="output array has shape"):
        gr.reduce(a, add, axis=0, out=np.zeros((3, 5)), device="cpu")
    with pytest.raises(TypeError, match="Cannot cast"):
        gr.reduce(a * 1.5, add, axis=0, out=np.zeros((3, 4), int), device="cpu")


@pytest.mark.parametrize("dtype", ["S4", "U4", "V8", "O", [("x", "f8")]])
def test_out_of_strings_objects_and_structures_is_refused_by_name(
    add: gr.Operator, dtype: object
) -> None:
    out = np.zeros((), dtype)
    with pytest.raises(TypeError, match=re.escape(f"out of dtype {out.dtype} is not supported")):
        gr.reduce(np.arange(5), add, out=out, device="cpu")


def test_out_that_results_are_not_converted_to_is_refused_by_name() -> None:
    pair = np.dtype([("low", "i8"), ("high", "i8")], align=True)
    source = """
    struct ends {
        struct State { long long low, high; };
        static State lift(T x, uint64) { return {x, x}; }
        static State combine(State l, State r) { return {l.low, r.high}; }
    };"""
    ends = gr.Operator("ends", source, result=pair)
    out = np.zeros((), pair)
    assert gr.reduce(np.arange(5), ends, out=out, device="cpu") is out
    assert out.item() == (0, 4)
    for wrong in ([("low", "i8")], [("low", "?"), ("high", "i8")]):
        out = np.zeros((), wrong)
        with pytest.raises(
            TypeError, match=r"operator 'ends'.*out of dtype " + re.escape(str(out.dtype))
        ):
            gr.reduce(np.arange(5), ends, out=out, device="cpu")
    for wrong in ("S4", "V16", "f8"):
        out = np.zeros((), wrong)
        with pytest.raises(TypeError, match=re.escape(f"out of dtype {out.dtype}")):
            gr.reduce(np.arange(5), ends, out=out, device="cpu")
    fixed = np.zeros((), pair)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="output array is read-only"):
        gr.reduce(np.arange(5), ends, out=fixed, device="cpu")


def test_nothing_reduces_to_the_identity(add: gr.Operator) -> None:
    assert gr.reduce(np.zeros(0), add, device="cpu") == 0
    np.testing.assert_array_equal(gr.reduce(np.zeros((3, 0)), add, axis=1, device="cpu"), [0, 0, 0])
    assert gr.reduce(np.zeros((0, 3)), add, axis=1, device="cpu").shape == (0,)
    without = gr.Operator("add", ADD_WITHOUT)
    with pytest.raises(ValueError, match="zero-size array to reduction operation add which has no"):
        gr.reduce(np.zeros((3, 0)), without, axis=1, device="cpu")
    assert gr.reduce(np.zeros(0), without, initial=3, device="cpu") == 3
    with pytest.raises(ValueError, match="where mask one has to specify 'initial'"):
        gr.reduce(np.zeros(3), without, where=[True, False, True], device="cpu")
    np.testing.assert_array_equal(
        gr.reduce(np.ones((2, 2)), without, axis=1, where=[[True, True], [False, False]],
                  initial=5, device="cpu"),
        [7, 5],
    )  # fmt: skip


def test_finish_is_told_how_many_elements_counted() -> None:
    mean = gr.Operator(
        "mean",
        """
struct mean {
    using State = double;
    static State identity() { return 0; }
    static State combine(State a, State b) { return a + b; }
    static double finish(State s, uint64 n) { return s / n; }
};""",
    )
    a = np.arange(12.0).reshape(3, 4)
    mask = a % 3 != 1
    np.testing.assert_array_equal(
        gr.reduce(a, mean, axis=0, where=mask, device="cpu"), np.mean(a, axis=0, where=mask)
    )
    assert gr.reduce(a, mean, device="cpu") == a.mean()


# ---------------------------------------------------------------- errors -------------------------


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="name is that of its structure, not 'a b'"):
        gr.Operator("a b", ADD)
    with pytest.raises(ValueError, match="has no structure sub"):
        gr.Operator("sub", ADD)
    with pytest.raises(TypeError, match="text or a path, not int"):
        gr.Operator("add", 3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        gr.Operator("add", "no-such-file.cu")


def test_messages_name_lines_of_the_users_text(tmp_path: Path) -> None:
    text = """#include <cstdio>
// a comment
struct add {
    static T combine(T a, T b)
    {
        return a + c;
    }
};
"""
    (tmp_path / "my add.cu").write_text(text)
    operator = gr.Operator("add", tmp_path / "my add.cu")
    assert operator.file == "my_add.cu"
    with pytest.raises(gr.CompileError, match=r"my_add.cu, line 6: .*return a \+ c;") as caught:
        gr.reduce(np.zeros(3), operator, device="cpu")
    assert caught.value.line == 6
    assert "my_add.cu:6" in caught.value.log


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("static T join(T a, T b) { return a; }", "no `static State combine"),
        (
            "struct State { T x; }; static State combine(State a, State) { return a; }",
            "it needs `static State lift",
        ),
        (
            "struct State { T x; State(T y) : x(y) {} State() {} State(const State &o) : x(o.x) {}"
            " }; static State lift(T x) { return x; }"
            " static State combine(State a, State) { return a; }",
            "copied as bytes",
        ),
    ],
)
def test_what_the_structure_lacks_is_said(body: str, message: str) -> None:
    operator = gr.Operator("bad", f"struct bad {{ {body} }};")
    with pytest.raises(gr.CompileError, match=message):
        gr.reduce(np.zeros(3), operator, device="cpu")


def test_unsupported_elements_and_arguments_are_refused(add: gr.Operator) -> None:
    words = "takes no elements of dtype|holds strings|dtype object"
    for bad in (np.array([object()]), np.array(["a"]), np.array(["2020-01-01"], "datetime64[D]")):
        with pytest.raises(TypeError, match=words):
            gr.reduce(bad, add, device="cpu")
    ints = gr.Operator("add", ADD, dtypes=["int32", "int64"])
    assert gr.reduce(np.arange(3), ints, device="cpu") == 3
    with pytest.raises(TypeError, match="takes elements of int32, int64, not of float64"):
        gr.reduce(np.zeros(3), ints, device="cpu")
    with pytest.raises(TypeError, match="takes no ddof"):
        gr.reduce(np.zeros(3), add, ddof=1, device="cpu")
    with pytest.raises(ValueError, match="unknown kernel"):
        gr.reduce(np.zeros(3), add, kernel="no such", device="cpu")
    with pytest.raises(
        gr.KernelUnavailableError, match="kernel 'exact' sums numbers: it takes no operators"
    ):
        gr.reduce(np.zeros(3), add, kernel="exact", device="cpu")
    mine = gr.Kernel("__global__ void mine(const int *in, int *out) { *out = in[threadIdx.x]; }")
    with pytest.raises(TypeError, match="take operators of your own, not <Kernel: mine"):
        gr.reduce(np.zeros(3), add, kernel=mine, device="cpu")
    with pytest.raises(TypeError, match="masked array"):
        gr.reduce(np.ma.masked_array([1, 2], [True, False]), add, device="cpu")


def test_results_that_are_structures_need_a_dtype() -> None:
    text = "struct pair { struct State { int a, b; }; static State lift(T x) { return {x, 1}; }"
    text += " static State combine(State l, State r) { return {l.a + r.a, l.b + r.b}; } };"
    with pytest.raises(TypeError, match="structures of 8 bytes: their dtype is needed"):
        gr.reduce(np.arange(3, dtype="i4"), gr.Operator("pair", text), device="cpu")
    with pytest.raises(TypeError, match="result= is a dtype of 12"):
        gr.reduce(np.arange(3, dtype="i4"), gr.Operator("pair", text, result="i4,i8"), device="cpu")
    got = gr.reduce(
        np.arange(3, dtype="i4"), gr.Operator("pair", text, result="i4,i4"), device="cpu"
    )
    assert got.tolist() == (3, 3)


def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path) -> None:
    script = f"""
    import numpy as np, gpureduce as gr
    try:
        gr.reduce(np.arange(3), gr.Operator("add", {ADD!r}), device="cpu")
    except gr.KernelUnavailableError as error:
        print(error)
    """
    environment = {k: v for k, v in os.environ.items() if k != "CXX"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "there is no g++" in done.stdout
    assert "apt install g++" in done.stdout


# ---------------------------------------------------------------- programs -----------------------


def test_a_program_is_compiled_once_and_cached_on_disk(tmp_path: Path) -> None:
    """Another process takes it from the cache; a damaged entry is compiled again; entries are the
    user's alone."""
    log = tmp_path / "calls"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho call >> "{log}"\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    script = f"""
    import numpy as np, gpureduce as gr
    add = gr.Operator("add", {ADD!r})
    for _ in range(3):
        assert gr.reduce(np.arange(10), add, device="cpu") == 45
    """
    cache = tmp_path / "cache"

    def run() -> int:
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**os.environ, "CXX": str(compiler), "GPUREDUCE_CACHE_DIR": str(cache)},
            check=True,
        )
        return len(log.read_text().splitlines())

    assert run() == 1
    assert run() == 1
    (entry,) = cache.glob("*.gpr")
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    content = bytearray(entry.read_bytes())
    content[-1000] ^= 1
    entry.write_bytes(content)
    assert run() == 2
    entry.chmod(0o666)  # others could have written it
    assert run() == 3


def test_operators_are_pickled_and_copied_without_their_programs(add: gr.Operator) -> None:
    a = np.arange(5)
    assert gr.reduce(a, add, device="cpu") == 10
    for other in (pickle.loads(pickle.dumps(add)), copy.copy(add)):
        assert gr.reduce(a, other, device="cpu") == 10
        assert other.source == add.source
    assert repr(add) == "<Operator: add>"
    assert "not commutative" in repr(gr.Operator("gcd", GCD))


def test_a_call_by_an_operator_leaves_no_record_of_the_call_before(add: gr.Operator) -> None:
    a = np.arange(5)
    gr.sum(a, device="cpu")
    assert gr.last_run() is not None
    gr.reduce(a, add, device="cpu")
    assert gr.last_run() is None
    gr.max(a, device="cpu")
    assert gr.last_run() is not None


def test_a_field_that_is_an_array_is_refused_with_what_to_do() -> None:
    rng = np.random.default_rng(SEED)
    trace = gr.Operator(
        "trace",
        """struct trace {
        static int64 lift(T x) { return x.a + x.d; }
        using State = int64;
        static State identity() { return 0; }
        static State combine(State l, State r) { return l + r; }
    };""".replace("int64", "long long"),
    )
    a = np.zeros(10, [("m", "i8", (2, 2))])
    a["m"] = rng.integers(-9, 9, (10, 2, 2))
    with pytest.raises(TypeError, match=r"field 'm' is of dtype .*; give it a field per number.*"):
        gr.reduce(a, trace, device="cpu")
    dt = np.dtype([(name, "i8") for name in "abcd"])
    expected = np.trace(a["m"].sum(axis=0))
    assert gr.reduce(a.view(dt), trace, device="cpu") == expected, f"seed {SEED}"
