"""An operator of the user's own on the CPU: compiled by the machine's C++ compiler.

Machine code is kept in the cache of compiled programs, under a key that has everything that decides
it: the text, the compiler's file, its options.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._exceptions import KernelUnavailableError
from .operator_layout import FACTS, facts_of
from .operator_tasks import CpuTasks
from .operator_text import OperatorText, OperatorTypes, compile_error, headers, operator_program

__all__ = ["CpuProgram"]

_OPTIONS = (
    "-std=c++17", "-O3", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno",
    "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-fPIC", "-shared", "-w",
)  # fmt: skip
_ISA = {"avx2": ("-march=x86-64-v3",), "avx512": ("-march=x86-64-v4",)}
_BEFORE = """
#include <cmath>
#include <climits>
#include <cfloat>
#include <cstdint>
#include <cstdlib>
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define memcpy __builtin_memcpy
#define GPR_ARCH 0
#define GPR_CUSTOM_ALIGNED(bytes)
namespace yours {
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
template <class A, class B> constexpr auto min(A a, B b) { return b < a ? b : a; }
template <class A, class B> constexpr auto max(A a, B b) { return a < b ? b : a; }
}
"""
_AFTER = '#include "custom_cpu.cuh"'
_FILE = "program.cc"


def _compilers() -> list[list[str]]:
    named = os.environ.get("CXX", "").strip()
    return [*([shlex.split(named)] if named else []), ["g++"], ["c++"], ["clang++"]]


def _find_compiler(name: str) -> list[str]:
    """The command of a C++ compiler; `name` is the operator's."""
    for command in _compilers():
        if (path := shutil.which(command[0])) is not None:
            return [path, *command[1:]]
    raise KernelUnavailableError(
        f"operator '{name}' is compiled by a C++ compiler to run on the CPU, and there is no g++, "
        "c++ or clang++: install g++ (Debian and Ubuntu: apt install g++), set CXX, or reduce on a "
        "GPU"
    )


def _stamp(command: list[str]) -> str:
    about = Path(command[0]).resolve()
    facts = about.stat()
    return f"{' '.join(command)} {about} {facts.st_size} {facts.st_mtime_ns}"


def _compile(command: list[str], operator: OperatorText, text: str) -> bytes:
    """Machine code of a program; ``CompileError`` if it does not compile."""
    with tempfile.TemporaryDirectory(prefix="gpureduce-operator-") as folder:
        place = Path(folder)
        for header, content in headers().items():
            (place / header).write_text(content)
        (place / _FILE).write_text(text)
        output = place / "program.so"
        done = subprocess.run(
            [*command, "-I.", _FILE, "-o", output.name],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": folder, "LC_ALL": "C"},
        )
        if done.returncode != 0:
            raise compile_error(operator, done.stderr)
        return output.read_bytes()


def _load(image: bytes) -> ctypes.CDLL:
    """Load a program: the loader reads a file, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpureduce-operator-") as folder:
        path = Path(folder) / "program.so"
        path.write_bytes(image)
        return ctypes.CDLL(str(path))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class CpuProgram(CpuTasks):
    """An operator's program that is loaded into this process.

    Parameters
    ----------
    operator : OperatorText
    types : OperatorTypes

    Raises
    ------
    KernelUnavailableError
        There is no compiler.
    CompileError
        The operator does not compile.

    Attributes
    ----------
    facts
        ``gpr_custom_facts``, by name.
    """

    def __init__(self, operator: OperatorText, types: OperatorTypes) -> None:
        self.element = types.element
        text = operator_program(operator, types, _BEFORE, _AFTER)
        options = (*_OPTIONS, *_ISA.get(_core.cpu_isa(), ()))
        command = [*_find_compiler(operator.name), *options]
        key = "\n".join(
            [f"gpureduce {_core.__version__} operator", platform.machine(), _stamp(command)]
            + [f"{header} {content}" for header, content in headers().items() if "custom" in header]
            + [text]
        )
        cached = _core.find_cached_image(key)
        image = cached[0] if cached is not None else _compile(command, operator, text)
        if cached is None:
            _core.cache_image(key, image, ())
        self._library = _load(image)
        told = np.zeros((), FACTS)
        self._library.custom_facts(ctypes.c_void_p(told.ctypes.data))
        self.facts = facts_of(told)

    def fold_task(self, is_across: bool) -> int:
        """Address of the function that folds a part of rows."""
        return _address(self._library.custom_fold_task)

    def end_task(self) -> int:
        """Address of the function that merges the parts of rows."""
        return _address(self._library.custom_end_task)

    def evaluate(self, array: np.ndarray[Any, Any], steps: Sequence[int], out: Any) -> bool:
        """Combine elements as postfix steps say."""
        program = np.array(steps, np.int64)
        pointers = (array.ctypes.data, program.ctypes.data, program.size, out.ctypes.data)
        return bool(self._library.custom_evaluate(*map(ctypes.c_void_p, pointers)))
