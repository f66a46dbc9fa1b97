"""Claims of docs/security.md: each sentence names the tests that prove it, or claims nothing.

Tests that no other file has are here, too.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpureduce as gr

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"

CACHE_C = "c/lib/driver/test_cache.c"
CACHE, COSTS = "api/test_cache.py", "api/test_plan_costs.py"
ENVIRONMENT = "api/test_environment.py"
EXPLAIN, EXTENTS, HERE = (
    "explain/test_explain.py",
    "interop/test_extents.py",
    "docs/test_security.py",
)
OTHERS_WROTE = (
    f"{CACHE_C}::test_an_entry_that_others_could_have_written_is_dropped",
    f"{CACHE_C}::test_directories_that_others_could_write_to_are_not_used",
)
RAISED_RIGHTS = (
    f"{ENVIRONMENT}::test_nothing_else_reads_the_environment",
    f"{ENVIRONMENT}::test_a_program_with_its_owners_rights_ignores_the_callers_environment",
)
LIES = (
    f"{EXTENTS}::test_interfaces_that_lie_are_errors",
    f"{EXTENTS}::test_arrays_are_taken_if_every_element_has_an_address",
)

PROOFS: dict[str, tuple[str, ...]] = {
    "cached programs: The folder and each entry": (
        *OTHERS_WROTE,
        f"{HERE}::test_an_operators_entry_that_others_could_have_written_is_compiled_again",
    ),
    "Anything else is a miss": (*OTHERS_WROTE, f"{CACHE_C}::test_what_is_no_plain_file_is_a_miss"),
    "An entry's name, header and SHA-256": (
        f"{CACHE_C}::test_an_entry_is_for_its_own_key_only",
        f"{CACHE}::test_another_compiler_or_gpu_is_another_entry",
    ),
    "The digest finds damage": (
        f"{CACHE_C}::test_every_damaged_byte_is_a_miss_and_makes_room",
        f"{CACHE}::test_a_damaged_entry_is_compiled_anew",
    ),
    "measured costs of plans": (
        f"{COSTS}::test_a_file_that_others_could_have_written_is_not_used",
    ),
    "The file is text of a few lines": (f"{COSTS}::test_a_damaged_file_is_not_used_and_says_why",),
    "A process with more rights": RAISED_RIGHTS,
    "compilers of the emulator": (f"{EXPLAIN}::test_a_missing_compiler_is_named",),
    "What they write": (
        f"{EXPLAIN}::test_what_compilers_write_is_in_a_folder_of_the_users_own",
        f"{HERE}::test_an_operators_entry_that_others_could_have_written_is_compiled_again",
    ),
    "`.npy` files of the command": (
        f"{HERE}::test_the_command_loads_no_pickle",
        "cli/test_cli.py::test_headers_of_files_that_cannot_be_are_errors_in_one_line",
        "cli/test_cli.py::test_headers_in_a_pipe_that_cannot_be_are_errors_in_one_line",
    ),
    "bytes of `ExactSum` states": (
        "exact/test_exact.py::test_every_damaged_byte_and_every_other_length_is_refused",
        "exact/test_exact.py::test_bytes_no_elements_could_have_given_are_refused_by_reason",
        "exact/test_exact_edges.py::test_bytes_with_a_right_checksum_are_refused_or_all_mean_something",
    ),
    "shapes, strides and offsets": (
        *LIES,
        f"{EXTENTS}::test_contiguous_arrays_have_at_most_so_many_bytes",
        "interop/test_interop.py::test_what_is_wrong_with_a_tensor_is_an_error_and_the_tensor_goes_back",
    ),
    "names of kernels": (f"{HERE}::test_names_are_looked_up",),
    "None becomes part": (f"{HERE}::test_names_are_looked_up",),
    "The folder is `GPUREDUCE_CACHE_DIR`": (
        f"{CACHE_C}::test_the_environment_says_where_and_whether",
    ),
    "It is created with mode 0700": (
        f"{CACHE_C}::test_a_directory_made_by_the_cache_is_private",
        f"{CACHE_C}::test_the_umask_decides_nothing",
        f"{CACHE_C}::test_root_makes_nothing_in_a_users_folder",
    ),
    "Entries are written under": (
        f"{CACHE_C}::test_the_umask_decides_nothing",
        f"{CACHE_C}::test_processes_that_write_at_once_see_whole_entries",
        f"{CACHE}::test_a_process_killed_at_any_moment_leaves_a_usable_cache",
    ),
    "Symbolic links are not followed": (
        f"{CACHE_C}::test_what_is_no_plain_file_is_a_miss",
        f"{CACHE_C}::test_directories_that_others_could_write_to_are_not_used",
    ),
    "`clear_cache` removes": (
        f"{CACHE_C}::test_clearing_takes_nothing_of_the_users",
        f"{COSTS}::test_clearing_the_cache_keeps_what_was_measured",
        "tune/test_tune.py::test_the_command_measures_shows_and_forgets",
    ),
    "`GPUREDUCE_CACHE_BYTES=0`": (f"{CACHE}::test_zero_bytes_is_off",),
    "With a driver": LIES[:1],
    "So an interface with a wrong size": LIES[:1],
    "Without a driver no array": (f"{HERE}::test_without_a_driver_no_device_array_is_taken",),
    "The child has a process group": (
        f"{EXPLAIN}::test_a_signal_ends_the_compiler_and_leaves_no_folder",
    ),
    "A program's own signal handlers": (f"{HERE}::test_a_programs_own_handlers_stay",),
    "Users cannot share a cache": OTHERS_WROTE,
    "Each user has a cache": (
        f"{CACHE_C}::test_the_least_recently_used_entries_make_way",
        f"{HERE}::test_a_cache_has_at_most_256_mib",
    ),
    "Homes without space": (
        f"{CACHE}::test_a_directory_that_cannot_be_written_is_no_error",
        f"{CACHE}::test_a_full_disk_is_no_error",
        f"{HERE}::test_info_says_why_there_is_no_cache",
    ),
    "Programs with raised rights": RAISED_RIGHTS,
    "Variables that name": (f"{HERE}::test_variables_of_the_package_are_listed",),
}
"""How a claim begins, and the tests that prove it, below tests/."""

UNCLAIMED = (
    "This page lists",
    "environment variables: Their author",
    "libcuda, NVRTC, CUDA's headers",
    "device arrays of other libraries: see",
    "sources in the package: Whoever",
    "kernels and operators of your own",
    "Text of strangers",
    "A file that is cut short",
    "Unpickling runs Python code",
    "`__cuda_array_interface__` and DLPack describe",
    "Host memory from other libraries",
    "The code that made the object",
    "The checks find mistakes",
    "`gpureduce explain` compiles C++",
    "The source is",
    "The emulator is not a sandbox",
    "Nothing runs with raised rights",
    "Python code in such a program",
)
"""Sentences that name who is trusted, or limits: nothing that the package does."""


def sentences() -> list[str]:
    """Sentences of the page; of a row of a table, its first cell and its last one."""
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", PAGE.read_text(encoding="utf-8")):
        lines = [line for line in block.split("\n") if not line.startswith("#")]
        if lines and lines[0].startswith("|"):
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
            parts += [f"{row[0]}: {row[-1]}" for row in cells]
        else:
            parts += re.split(r"(?:\n|^)- ", "\n".join(lines))
    flat = [" ".join(part.split()) for part in parts]
    return [one for part in flat for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`])", part) if one]


pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")


@pytest.mark.parametrize("sentence", sentences() if PAGE.exists() else [])
def test_every_sentence_has_its_proof_or_claims_nothing(sentence: str) -> None:
    found = [begin for begin in (*PROOFS, *UNCLAIMED) if sentence.startswith(begin)]
    assert len(found) == 1, f"{found}: {sentence}"


def test_no_proof_is_of_a_sentence_that_is_gone() -> None:
    text = sentences()
    gone = [x for x in (*PROOFS, *UNCLAIMED) if not any(one.startswith(x) for one in text)]
    assert gone == []


@pytest.mark.parametrize("proof", sorted({one for proofs in PROOFS.values() for one in proofs}))
def test_proofs_are_tests_that_run(proof: str) -> None:
    path, _, name = proof.partition("::")
    text = (ROOT / "tests" / path).read_text(encoding="utf-8")
    is_c = path.endswith(".c")
    defined = rf"^static void {name}\(void\)$" if is_c else rf"^def {name}\("
    assert re.search(defined, text, re.MULTILINE), f"there is no {proof}"
    assert not is_c or f"    {name}();" in text, f"{proof} is not called"


# ---------------------------------------------------------------- what no other file proves


class Trap:
    """What leaves a trace where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_loads_no_pickle(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "objects.npy"
    np.save(path, np.array([Trap(trace)], dtype=object), allow_pickle=True)
    done = run("-m", "gpureduce", "sum", path, "--device", "cpu")
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not trace.exists()


OPERATOR = """
import numpy as np, gpureduce as gr
added = gr.Operator("added", source='''
struct added {
    static T identity() { return 0; }
    static T combine(T a, T b) { return a + b; }
};''')
assert gr.reduce(np.arange(5), added, device="cpu") == 10
"""
COMPILER = """#!/bin/sh
stat -c %a . >> "{log}"
exec "{compiler}" "$@"
"""


def test_an_operators_entry_that_others_could_have_written_is_compiled_again(
    tmp_path: Path,
) -> None:
    compiler = shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    log, cache, named = tmp_path / "log", tmp_path / "cache", tmp_path / "compiler"
    named.write_text(COMPILER.format(log=log, compiler=compiler))
    named.chmod(0o755)

    def folders_of_compilers() -> list[str]:
        done = run("-c", OPERATOR, GPUREDUCE_CACHE_DIR=str(cache), CXX=str(named))
        assert done.returncode == 0, done.stderr
        return log.read_text().split()

    assert folders_of_compilers() == ["700"]
    assert folders_of_compilers() == ["700"]
    entries = [path for path in cache.rglob("*") if path.is_file()]
    assert entries
    for entry in entries:
        assert entry.stat().st_mode & 0o777 == 0o600
        entry.chmod(0o620)
    assert folders_of_compilers() == ["700"] * 2
    assert all(entry.stat().st_mode & 0o777 == 0o600 for entry in entries)
    assert folders_of_compilers() == ["700"] * 2


NAMES = ('fast"\n#include "/etc/passwd', "../../fast", "fast;", "fast\0", "", "f" * 100_000)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_are_looked_up(name: str) -> None:
    a = np.ones(3)
    for call in (
        lambda: gr.sum(a, kernel=name),  # type: ignore[call-overload]
        lambda: gr.kernel_source(name),  # type: ignore[arg-type]
        lambda: gr.reduce(a, name),
        lambda: gr.explain(name),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"kernel|operator|reduction"):
            call()
    with pytest.raises(TypeError):
        gr.sum(a, dtype=name or "nothing")


WITHOUT_DRIVER = """
import numpy as np, gpureduce as gr
class Shown:
    def __init__(self):
        self.values = np.ones(8, np.float32)
        self.__cuda_array_interface__ = {
            "shape": (8,), "typestr": "<f4", "data": (self.values.ctypes.data, False), "version": 3}
class Lent(Shown):
    def __dlpack_device__(self):
        return 2, 0
    def __dlpack__(self, **_):
        return self.values.__dlpack__()
for lie in (Shown(), Lent()):
    try:
        print(gr.sum(lie))
    except (gr.DeviceUnavailableError, TypeError, ValueError, BufferError) as error:
        assert str(error)
        print("refused")
"""


def test_without_a_driver_no_device_array_is_taken(tmp_path: Path) -> None:
    done = run("-c", WITHOUT_DRIVER, GPUREDUCE_LIBCUDA=str(tmp_path / "nowhere.so"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused", "refused"]


HANDLERS = """
import os, signal, gpureduce as gr
seen = []
for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, lambda *_: seen.append(_[0]))
before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
os.environ["CXX"] = os.environ["MINE"]
try:
    gr.explain("sequential", block_size=32)
except Exception:
    pass  # that compiler compiles nothing
after = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
assert before == after
print(*seen)
"""


def test_a_programs_own_handlers_stay(tmp_path: Path) -> None:
    """One that a signal meets while a compiler runs is called, and the program goes on."""
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nkill -{signal.SIGTERM.value} "$CALLER"\nexit 1\n')
    compiler.chmod(0o755)
    script = "import os; os.environ['CALLER'] = str(os.getpid())\n" + HANDLERS
    done = run("-c", script, MINE=str(compiler), GPUREDUCE_CACHE_BYTES="0", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {str(signal.SIGTERM.value)}


def test_a_cache_has_at_most_256_mib(tmp_path: Path) -> None:
    code = "import os; os.environ.pop('GPUREDUCE_CACHE_BYTES', None); import gpureduce as gr\n"
    code += "print(gr.cache_info().limit_bytes)"
    assert int(run("-c", code, GPUREDUCE_CACHE_DIR=str(tmp_path)).stdout) == 256 << 20


def test_info_says_why_there_is_no_cache() -> None:
    done = run("-m", "gpureduce", "info", GPUREDUCE_CACHE_DIR="/dev/null/x")
    assert re.search(r"^cache +off: \S", done.stdout, re.MULTILINE), done.stdout


NUMBERS = {"GPUREDUCE_CACHE_BYTES", "GPUREDUCE_CPU_ISA", "GPUREDUCE_SLOW_FLOAT64"}
"""Variables that name neither code nor files."""


def test_variables_of_the_package_are_listed() -> None:
    (listed,) = (one for one in sentences() if one.startswith("Variables that name"))
    named = set(re.findall(r"`([A-Z_]+)`", listed))
    sources = [*ROOT.joinpath("csrc").rglob("*.c"), *ROOT.joinpath("src").rglob("*.py")]
    calls = r'(?:gpr_environment\(|environ(?:\.get)?[(\[])"([A-Z0-9_]+)"'
    read = {name for path in sources for name in re.findall(calls, path.read_text("utf-8"))}
    ours = {name for name in read if re.match("GPUREDUCE_|CUDA_|XDG_|HOME$|CXX$", name)}
    assert ours - NUMBERS <= named
    assert read >= NUMBERS
