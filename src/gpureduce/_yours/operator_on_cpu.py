"""An operator of the user's own on the CPU, by the compiler of what it is made of."""

from __future__ import annotations

from .numba_cpu import NumbaProgram
from .operator_cpu import CpuProgram
from .operator_tasks import CpuTasks
from .operator_text import OperatorText, OperatorTypes
from .python_text import PythonText

__all__ = ["cpu_program"]


def cpu_program(operator: OperatorText, types: OperatorTypes) -> CpuTasks:
    """The operator's machine code, which is not loaded twice where the caller keeps it.

    Raises
    ------
    KernelUnavailableError, ImportError
        There is no compiler.
    CompileError
        The operator does not compile.
    """
    if isinstance(operator, PythonText):
        return NumbaProgram(operator, types)
    return CpuProgram(operator, types)
