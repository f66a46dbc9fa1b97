"""Every case of the table compiles: kernel x dtype x operator x architecture.

Needs NVRTC, no GPU. Variances have every program twice, the second time about means that are given.

There are tens of thousands of cases, and NVRTC compiles one at a time in a process. So a run takes,
for one architecture and a sixty-fourth of the kernels and of the programs of ``fast``, drawn anew
each time, each with every dtype and with every operator, and some operators with some dtypes
besides; and a sample for the others, with random block sizes. What a kernel does not fold is
refused in every case. ``GPR_ALL_CASES=1`` takes everything, and ``GPR_TEST_SEED`` repeats a run.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor

import fakes
import numpy as np
import pytest
from draws import SEED, one, some
from reference import ALL_DTYPES, BITS, REFUSALS, covering

import gpureduce as gr
from gpureduce import _core

ALL_CASES = os.environ.get("GPR_ALL_CASES", "0") != "0"

ARCHITECTURES = (75, 80, 90, 120)
OPERATORS = list(_core.OPERATORS)  # mean too: its sums have compute types of their own
SHARE = 64  # of the kernels, and of fast's programs, an ordinary run takes so manyth
SHARE_OF_PAIRS = 10  # of the operators and dtypes that do not meet in these
OTHERS = 6  # cases of the other architectures in an ordinary run
LIBRARY_CASES = 1  # cases of kernels that compile CUB, which take seconds each
DOTS = 1  # dot product for each architecture in an ordinary run
SHOWN = 5  # failures that are printed

EVERY_PROGRAM = -1
ANY_PROGRAM = 100  # one of as many numbers, which are counted round

pytestmark = pytest.mark.long

Case = tuple[str, str, str, int, int, int]
"""kernel, operator, dtype, block size, compute capability, which of the kernel's programs"""


def block_sizes(kernel: gr.KernelInfo) -> list[int]:
    if kernel.block_rule == "32":
        return [32]
    if kernel.block_rule == "power of two":
        return [32, 64, 128, 256, 512, 1024]
    return list(range(32, 1025, 32))


def cases_of(kernel: gr.KernelInfo, cc: int, rng: random.Random | None = None) -> list[Case]:
    """Cases of a kernel at its own block size, or at random ones."""
    least = kernel.min_compute_capability
    if least is not None and 10 * least[0] + least[1] > cc:
        return []
    return [
        (
            kernel.name,
            op,
            dtype,
            rng.choice(block_sizes(kernel)) if rng else kernel.block_size,
            cc,
            EVERY_PROGRAM,
        )
        for op in OPERATORS
        for dtype in _core.DTYPES
    ]


@pytest.fixture(scope="module")
def programs_of_fast(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Programs of each case of fast, by operator: its machine code's parts. Fakes count quickly."""
    counted = fakes.run(
        """
        from gpureduce import _core
        for op in ("sum", "var"):
            case = ("fast", op, "int32", None, 0, 90)
            left, count = _core.compile_program(*case), 0
            while left > 0:
                left -= _core.compile_program(*case, count)
                count += 1
            assert left == 0
            print(count)
        """,
        tmp_path_factory.mktemp("fakes"),
    )
    return dict(zip(("sum", "var"), map(int, counted.split()), strict=True))


def folds(case: Case) -> bool:
    """Whether there is such a case: the CPU backend refuses the others in the same words."""
    kernel, op, dtype, *_ = case
    try:
        gr.reduce(np.ones(1, ALL_DTYPES[dtype]), op, kernel=kernel, device="cpu")
    except (TypeError, ValueError):
        return False
    return True


def sample_of(
    drawn: list[tuple[gr.KernelInfo, int]], cc: int, about: range, rng: random.Random
) -> list[Case]:
    """Kernels' programs with each dtype and operator, some with both, and what is refused.

    Of ``fast``, those of its programs that are ``about`` given means too.
    """
    chosen: list[Case] = []
    left: dict[tuple[str, str], Case] = {}
    for kernel, program in drawn:
        cases = [(*case[:-1], program) for case in cases_of(kernel, cc)]
        if kernel.name == "exact":  # its programs take seconds each
            cases = [(*case[:-1], rng.randrange(ANY_PROGRAM)) for case in cases]
        there = [case for case in cases if folds(case)]
        chosen += [case for case in cases if case not in set(there)]
        picked = covering([case[1:3] for case in there], rng)
        chosen += [case for case in there if case[1:3] in picked]
        if kernel.name == "fast":
            dtypes = dict.fromkeys(case[2] for case in there)
            ways = {dtype: rng.choice(("var", "std")) for dtype in dtypes}
            chosen += [
                (*case[:-1], rng.choice(about)) for case in there if case[1] == ways[case[2]]
            ]
        left.update({case[1:3]: case for case in there if case[1:3] not in picked})
    done = {case[1:3] for case in chosen if folds(case)}
    rest = [case for pair, case in left.items() if pair not in done]
    return chosen + rng.sample(rest, -(-len(rest) // SHARE_OF_PAIRS))


def compile_cases(cases: list[Case]) -> list[tuple[Case, str]]:
    """Compile cases and return those that failed, with the compiler's messages."""
    failures = []
    for case in cases:
        kernel, op, dtype, block_size, cc, program = case
        try:
            assert _core.compile_program(kernel, op, dtype, None, block_size, cc, program) > 0
        except gr.CudaError as error:
            failures.append((case, error.log or str(error)))
        except TypeError:
            assert op in ("ptp", *BITS), case  # NumPy does not have these either
        except ValueError as error:
            assert any(reason in str(error) for reason in REFUSALS), case  # noqa: PT017
    return failures


def expect_to_compile(cases: list[Case], rng: random.Random) -> None:
    rng.shuffle(cases)
    workers = os.cpu_count() or 1
    parts = [cases[i :: 4 * workers] for i in range(4 * workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        failures = [failure for part in pool.map(compile_cases, parts) for failure in part]
    text = "\n\n".join(f"{case}:\n{log}" for case, log in failures[:SHOWN])
    assert failures == [], (
        f"seed {SEED}: {len(failures)} of {len(cases)} cases do not compile\n{text}"
    )


@pytest.fixture(scope="module", autouse=True)
def needs_nvrtc() -> None:
    try:
        _core.compile_program("sequential", "sum", "int32", None, 0, 90)
    except gr.DeviceUnavailableError as error:
        pytest.skip(str(error))


def is_library(kernel: gr.KernelInfo) -> bool:
    return kernel.family == "library"


@pytest.mark.timeout(3600)
def test_every_case_compiles(programs_of_fast: dict[str, int]) -> None:
    rng = random.Random(SEED)
    # Kernel auto is others.
    own = [kernel for kernel in gr.kernels() if not is_library(kernel) and kernel.name != "auto"]
    whole = rng.choice(ARCHITECTURES)
    print(f"seed {SEED}, sm_{whole}")
    if ALL_CASES:
        cases = [case for kernel in own for case in cases_of(kernel, whole)]
    else:
        plain = programs_of_fast["sum"]
        about = range(plain, programs_of_fast["var"])
        assert len(about) == plain
        units = [
            (kernel, program)
            for kernel in own
            for program in (range(plain) if kernel.name == "fast" else [EVERY_PROGRAM])
        ]
        cases = sample_of(rng.sample(units, -(-len(units) // SHARE)), whole, about, rng)
    others = [
        case
        for cc in ARCHITECTURES
        if cc != whole
        for kernel in own
        for case in cases_of(kernel, cc, None if ALL_CASES else rng)
    ]
    if not ALL_CASES:
        others = [(*case[:-1], rng.randrange(ANY_PROGRAM)) for case in rng.sample(others, OTHERS)]
    cases += others
    expect_to_compile(cases, rng)


@pytest.mark.timeout(3600)
def test_variances_about_given_means_compile_for_the_oldest_and_todays_gpus(
    programs_of_fast: dict[str, int],
) -> None:
    """Half of the programs of fast, and a named kernel's, for each type of means; one GPU a run."""
    rng = random.Random(SEED)
    plain, both = programs_of_fast["sum"], programs_of_fast["var"]
    cases: list[Case] = []
    for cc in (75, 90) if ALL_CASES else (rng.choice((75, 90)),):
        dtypes = rng.sample(list(_core.DTYPES), len(_core.DTYPES))
        for place, program in enumerate(range(plain, both)):
            cases.append(
                (
                    "fast",
                    ("var", "std")[(place + cc) % 2],
                    dtypes[place % len(dtypes)],
                    256,
                    cc,
                    program,
                )
            )
        cases.append(("shfl_two_pass", "var", dtypes[-1], 256, cc, 1))
        cases.append(("last_block", "std", dtypes[-2], 128, cc, 1))
    if not ALL_CASES:
        cases = some(cases, 1 / 2, "given means")
    expect_to_compile(cases, rng)


@pytest.mark.timeout(3600)
def test_cases_of_library_kernels_compile() -> None:
    rng = random.Random(SEED)
    cases = []
    for kernel in filter(is_library, gr.kernels()):
        cases += [case for cc in ARCHITECTURES for case in cases_of(kernel, cc)]
    try:
        expect_to_compile(cases if ALL_CASES else rng.sample(cases, LIBRARY_CASES), rng)
    except gr.KernelUnavailableError as error:  # its headers are not there
        pytest.skip(str(error))


@pytest.mark.timeout(3600)
def test_every_dot_product_compiles() -> None:
    """Of factors of any two types, which no operator names: one for two architectures a run."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    dots = []
    for a, b in itertools.product(_core.DTYPES, repeat=2):
        try:
            factor = np.promote_types(ALL_DTYPES[a], ALL_DTYPES[b]).name
        except TypeError:
            continue
        dots += [(a, b, factor, result) for result in _core.DTYPES if can_hold(result, factor)]
    blocks = range(32, 1025, 32)
    for cc in ARCHITECTURES if ALL_CASES else some(ARCHITECTURES, 1 / 2, "dots"):
        for dot in dots if ALL_CASES else rng.sample(dots, DOTS):
            block = rng.choice(blocks)
            assert _core.compile_dot(*dot, block, cc) > 0, (
                f"{dot} block {block} sm_{cc} seed {SEED}"
            )


def can_hold(result: str, factor: str) -> bool:
    """Whether there is a dot product of `factor` as a `result`."""
    try:
        gr.dot(
            np.ones(1, ALL_DTYPES[factor]),
            np.ones(1, ALL_DTYPES[factor]),
            dtype=ALL_DTYPES[result],
            device="cpu",
        )
    except TypeError:
        return False
    return True


@pytest.mark.timeout(3600)
def test_every_exact_variance_compiles() -> None:
    """Both programs of a type for an architecture: a run seldom draws them among all cases."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    for cc in ARCHITECTURES if ALL_CASES else one(ARCHITECTURES, "exact variances"):
        for dtype in _core.DTYPES if ALL_CASES else [rng.choice(list(_core.DTYPES))]:
            block = rng.choice(range(32, 1025, 32))
            size = _core.compile_program(
                "exact", rng.choice(["var", "std"]), dtype, None, block, cc
            )
            assert size > 0, f"{dtype} block {block} sm_{cc} seed {SEED}"


def test_a_case_that_cannot_compile_says_so() -> None:
    for cc in (10, 35):
        with pytest.raises(gr.DeviceUnavailableError, match="compute capability"):
            _core.compile_program("sequential", "sum", "int32", None, 0, cc)
        with pytest.raises(gr.DeviceUnavailableError, match="compute capability"):
            _core.compile_dot("float64", "float64", "float64", None, 0, cc)
    with pytest.raises(ValueError, match="power of two"):
        _core.compile_program("sequential", "sum", "int32", None, 48, 90)
    with pytest.raises(ValueError, match="multiple of 32"):
        _core.compile_dot("float64", "float64", "float64", None, 48, 90)
    with pytest.raises(
        TypeError, match="does not make a sum of products of complex64 one of float32"
    ):
        _core.compile_dot("complex64", "int8", "complex64", "float32", 0, 90)
    with pytest.raises(ValueError, match="there is no dtype"):
        _core.compile_dot("float64", "int8", None, None, 0, 90)
