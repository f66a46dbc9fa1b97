"""Child processes in which kernels run, mostly on the emulator.

The emulator replaces libcuda and NVRTC. A process opens these once, so a process of its own runs
the kernels, with the emulator in their place. The child reads a request and writes answers, both
JSON; what it prints besides goes to its standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from . import _exceptions
from ._locate import emulator

__all__ = [
    "EndedBySignalError",
    "answers",
    "as_exception",
    "emulator_environment",
    "error_record",
    "module_path",
    "reply",
    "run_worker",
]

_HOST_LIMITS = ("GPUREDUCE_DEVICE_BYTES", "GPUREDUCE_PINNED_BYTES")
_COMPILER = re.compile(r"the emulator's C\+\+ compiler is (.*)")
"""How the last line of the log names it (csrc/emu/compiler.c)."""
_MOST_LOG_LINES = 4
_EXCEPTIONS = ("CudaError", "DeviceUnavailableError", "KernelUnavailableError")
_BUILTIN_EXCEPTIONS: dict[str, type[Exception]] = {
    each.__name__: each for each in (ValueError, TypeError, MemoryError, RuntimeError, ImportError)
}


def emulator_environment(directory: Path, settings: str) -> dict[str, str]:
    """Environment of a child whose libcuda and NVRTC are the emulator, with its `settings`.

    Temporary files go to `directory`.
    """
    library = emulator()
    if library is None:
        raise _exceptions.DeviceUnavailableError(
            f"the emulator is not beside the package, in {Path(__file__).parent}: it was built "
            "without. Install gpureduce again from its source, with pip install ."
        )
    if "," in str(directory):
        raise ValueError(
            f"the folder for temporary files must have no comma in its name: {directory} (see "
            "TMPDIR)"
        )
    environment = {name: value for name, value in os.environ.items() if name not in _HOST_LIMITS}
    environment |= {
        "GPUREDUCE_LIBCUDA": str(library),
        "GPUREDUCE_LIBNVRTC": str(library),
        "GPUREDUCE_EMULATOR": settings,
        "TMPDIR": str(directory),
    }
    return environment | module_path()


class EndedBySignalError(RuntimeError):
    """A child process did not end by itself: it crashed, or it was killed."""


def module_path() -> dict[str, str]:
    """Environment by which a child finds the modules that this process does, wherever it was
    started.
    """
    return {"PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)}


def run_worker(
    module: str,
    request: dict[str, Any],
    environment: dict[str, str],
    time_limit: float | None = None,
    before: Sequence[str] = (),
) -> str:
    """Standard output of a process that runs a module of the package, which reads the request as
    JSON. ``RuntimeError`` if it fails, with the last line of its standard error,
    :class:`EndedBySignalError` if a signal ends it. `before` is the command of a program that runs
    it.

    It has a process group of its own: an interrupt ends its children with it, so that nothing
    writes to their folder any more when that is removed. After `time_limit` seconds it is killed:
    ``subprocess.TimeoutExpired``.
    """
    with subprocess.Popen(
        [*before, sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0,
    ) as worker:
        try:
            reply, said = worker.communicate(json.dumps(request), timeout=time_limit)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            raise
    if worker.returncode != 0:
        kind = EndedBySignalError if worker.returncode < 0 else RuntimeError
        raise kind(f"the child process {_how_it_ended(worker.returncode, said)}")
    return reply


def _how_it_ended(status: int, said: str) -> str:
    """Of a process that failed: by a signal or by itself, and the last that it said."""
    last = said.strip().splitlines()[-1:]
    if status == -signal.SIGKILL and not last:
        return "was killed (SIGKILL), as Linux does where memory runs out"
    how = f"ended with status {status}"
    if status < 0:
        how = f"ended by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
    return f"{how}: {last[0] if last else 'it said nothing'}"


@contextlib.contextmanager
def answers() -> Iterator[TextIO]:
    """In the child: the original standard output, for answers alone."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        yield out


def error_record(error: BaseException) -> dict[str, Any]:
    """In the child: an exception as an answer, of which :func:`as_exception` makes it again."""
    details = [getattr(error, name, None) for name in ("name", "number", "call", "log")]
    return {
        "error": {
            "name": type(error).__name__,
            "message": str(error),
            "details": details,
            "line": getattr(error, "line", None),
        }
    }


def reply(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In the child: answer the request on standard input, if need be by an error."""
    with answers() as out:
        try:
            made = answer(json.load(sys.stdin))
        except Exception as error:
            made = error_record(error)
        json.dump(made, out)


def _of_compiler(message: str, log: str) -> str:
    """The message of a program that the emulator's compiler refuses: which compiler, and its own
    first messages in place of NVRTC's name.
    """
    lines = [line for line in log.splitlines() if line.strip()]
    named = lines.pop() if lines and _COMPILER.fullmatch(lines[-1]) else ""
    compiler = _COMPILER.sub(r"\1", named) or "unknown"
    what = message.removeprefix("NVRTC cannot compile ").split(": ")[0]
    first = "\n".join(f"  {line}" for line in lines[:_MOST_LOG_LINES])
    return (
        f"the emulator's C++ compiler, {compiler}, cannot compile {what}; its first messages:\n"
        f"{first}"
    )


def as_exception(error: dict[str, Any]) -> Exception:
    """A child's exception, as an exception of this process."""
    name, message = error["name"], error["message"]
    log = error["details"][-1] or ""
    if log.startswith(
        "the emulator "
    ):  # no message of a compiler: there is no compiler, or no room for its files
        return _exceptions.DeviceUnavailableError(log)
    if name == "CompileError":
        return _exceptions.CompileError(message, log, error.get("line"))
    if name == "CudaError" and log:
        return _exceptions.CudaError(_of_compiler(message, log), *error["details"])
    if name == "CudaError":
        return _exceptions.CudaError(message, *error["details"])
    if name in _EXCEPTIONS:
        made: Exception = getattr(_exceptions, name)(message)
        return made
    return _BUILTIN_EXCEPTIONS.get(name, RuntimeError)(message)
