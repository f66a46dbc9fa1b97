"""Exceptions and the warning that are gpureduce's own.

Bad arguments raise the classes that NumPy raises: ``ValueError``, ``TypeError``,
``numpy.exceptions.AxisError``. ``MemoryError`` means that memory ran out, on the host or on a
device. The C glue maps every status of the library to one of these classes, in one function.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of an error of an unknown name: the nearest names of `known`; "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=0.75)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def unknown_operator(op: object, known: Collection[str]) -> ValueError:
    """The error of an operator that no name of `known` is; it names the nearest ones, or all."""
    name = op if isinstance(op, str) else getattr(op, "__name__", "")
    if isinstance(op, list):
        hint = "; pass several operators as a tuple"
    elif callable(op):
        hint = did_you_mean(name, known) or "; gpureduce.operator makes one of a Python function"
    else:
        hint = did_you_mean(name, known) or f": the operators are {', '.join(known)}"
    return ValueError(f"unknown operator {op!r}{hint}")


class CudaError(RuntimeError):
    """A call of the CUDA driver failed, or NVRTC did not compile a program.

    Attributes
    ----------
    name : str
        The result's CUDA name, as ``"CUDA_ERROR_LAUNCH_FAILED"``; ``""`` if there is none.
    number : int
        The result's number.
    call : str
        The function that returned it, as ``"cuLaunchKernel"``.
    log : str or None
        NVRTC's messages, if it did not compile a program.
    """

    def __init__(
        self,
        message: str = "",
        name: str = "",
        number: int = 0,
        call: str = "",
        log: str | None = None,
    ) -> None:
        super().__init__(message, name, number, call, log)
        self.name = name
        self.number = number
        self.call = call
        self.log = log

    def __str__(self) -> str:
        return str(self.args[0])


class DeviceUnavailableError(RuntimeError):
    """A CUDA device was requested and there is none to use; the message has reason and remedy."""


class KernelUnavailableError(RuntimeError):
    """The kernel cannot run here: the GPU is too old, or headers that it needs are missing."""


class CompileError(ValueError):
    """The text of an operator of the user's own does not compile.

    Attributes
    ----------
    log : str
        The compiler's messages; lines are those of the operator's text where they name its file.
    line : int or None
        Line of that text that the first of them is about.
    """

    def __init__(self, message: str = "", log: str = "", line: int | None = None) -> None:
        super().__init__(message, log, line)
        self.log = log
        self.line = line

    def __str__(self) -> str:
        return str(self.args[0])


class NoDeviceWarning(UserWarning):
    """A call names a kernel that needs a GPU, or asks for pinned memory, and there is no usable
    GPU: the CPU backend's ``"fast"`` computed the result, which is right, in a time that is not
    the kernel's; or the memory is not pinned.

    Issued by the first such call of a process, also in a notebook: later cells and calls are
    silent. ``gpureduce.last_run().device`` tells where each call ran. For an error in place of the
    CPU's result pass ``device="cuda"``, or make the warning one, for every such call::

        warnings.simplefilter("error", gpureduce.NoDeviceWarning)
    """


for _class in (
    CompileError,
    CudaError,
    DeviceUnavailableError,
    KernelUnavailableError,
    NoDeviceWarning,
):
    _class.__module__ = "gpureduce"
del _class
