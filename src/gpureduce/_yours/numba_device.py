"""Functions of an operator of Python functions, as programs of a GPU or of the emulator call them.

For a GPU, Numba makes LTO-IR of them: what NVRTC makes of the program is linked with it by
nvJitLink, which optimises both as one. On the emulator they are machine code of the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._exceptions import CudaError, KernelUnavailableError
from .._first_made import first_made
from .numba_types import Types, Value, compile_error, dispatcher, import_numba
from .python_text import PythonText, addresses_of_numbers, entry_name, version_of

__all__ = ["addresses", "device_code", "device_compilers", "link"]

_INSTALL = (
    "operators that are Python functions run on a GPU by numba-cuda and nvJitLink: pip install "
    "'gpureduce[numba-cu13]', or [numba-cu12] for CUDA 12 drivers"
)


def _entries(
    operator: PythonText, types: Types, compiled: Callable[[str], Any]
) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Roles of functions, functions that pass numbers by their addresses, and their signatures;
    `compiled` makes of a role the function of the user's own that they can call.
    """
    from numba import types as kinds
    from numba.np.numpy_support import from_dtype

    functions = operator.functions
    given = {
        "combine": (types.state, [types.state, types.state], False),
        "lift": (types.state, [types.element], functions.takes_index),
        "finish": (types.result, [types.state], functions.takes_count),
    }
    for role, _ in functions.named():
        returned, arguments, counts = given[role]
        text = _entry_text(returned, arguments, counts)
        space: dict[str, Any] = {"user": compiled(role)}
        for number, value in enumerate((returned, *arguments)):
            space[f"make{number}"] = value.make
            for i, dtype in enumerate(value.dtypes):
                space[f"kind{number}_{i}"] = from_dtype(dtype)
        exec(text, space)
        numbers = [each for value in (returned, *arguments) for each in addresses_of_numbers(value)]
        parameters = [kinds.CPointer(from_dtype(each)) for each in numbers]
        signature = kinds.int32(*parameters, *[kinds.int64] * counts)
        yield role, space["entry"], signature


def _entry_text(returned: Value, arguments: list[Value], counts: bool) -> str:
    """A function that reads its arguments and writes what the user's function returns."""
    names: list[str] = []
    written, passed = [], []
    for number, value in enumerate((returned, *arguments)):
        parts = []
        for i, dtype in enumerate(value.dtypes):
            name = f"p{number}_{i}"
            if number == 0:
                part = f"v[{i}]" if value.is_tuple else "v"
                written.append(f"    w{i} = kind0_{i}({part})")
                if dtype.kind == "c":
                    written += [f"    {name}r[0] = w{i}.real", f"    {name}i[0] = w{i}.imag"]
                else:
                    written.append(f"    {name}[0] = w{i}")  # of a bool, 0 or 1
            if dtype.kind == "c":
                names += [f"{name}r", f"{name}i"]
                parts.append(f"kind{number}_{i}(complex({name}r[0], {name}i[0]))")
            else:
                names.append(name)
                parts.append(f"{name}[0]" + " != 0" * (dtype.kind == "b"))
        if number > 0 and value.is_tuple:
            inner = "".join(f"{part}, " for part in parts)
            passed.append(f"make{number}({inner})" if value.make is not None else f"({inner})")
        elif number > 0:
            passed.append(parts[0])
    if counts:
        names.append("count")
        passed.append("count")
    begin = [f"def entry({', '.join(names)}):", f"    v = user({', '.join(passed)})"]
    return "\n".join([*begin, *written, "    return 0\n"])


def addresses(operator: PythonText, compute: np.dtype[Any]) -> dict[str, int]:
    """Addresses of the functions' machine code of the host, by their roles."""

    def compiled(role: str) -> Any:
        return dispatcher(operator.functions, role)

    def make() -> dict[str, Any]:
        numba = import_numba()
        return {
            role: numba.cfunc(signature, error_model="numpy")(entry)
            for role, entry, signature in _entries(operator, operator.inferred(compute), compiled)
        }

    functions = first_made(_on_host, (operator, compute), make)
    return {role: int(function.address) for role, function in functions.items()}


_on_host: dict[tuple[PythonText, np.dtype[Any]], dict[str, Any]] = {}
"""C functions that live as long as programs of the emulator may call them."""


@functools.cache
def _import_cuda() -> Any:
    import_numba()
    # Numba's own compiler for GPUs, which numba-cuda replaces, needs a driver to write for one.
    if version_of("numba-cuda") == "none":
        raise KernelUnavailableError(f"{_INSTALL} (numba-cuda is not installed)")
    try:
        from numba import cuda

        # Its parts are imported when it first compiles: here, so that what fails is not taken for
        # a mistake of the user's function.
        cuda.compile(_nothing, "int32()", abi="c", cc=(9, 0), output="ltoir")
    except Exception as error:  # what an import of others raises may be anything
        raise KernelUnavailableError(f"{_INSTALL}{_why_not(error)}") from error
    return cuda


def _nothing() -> int:
    return 0


def _why_not(error: Exception) -> str:
    """What is installed, and what it said."""
    versions = ", ".join(f"{each} {version_of(each)}" for each in ("numba-cuda", "numba"))
    remedy = ""
    if isinstance(error, AttributeError) and "numpy" in str(error):
        remedy = "; this NumPy is too new for it: upgrade numba-cuda, or install an older numpy"
    return (
        f" ({versions} and NumPy {np.__version__} are installed: "
        f"{type(error).__name__}: {error}{remedy})"
    )


def device_compilers() -> list[str]:
    """Versions of what makes device code of functions."""
    packages = ("numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink")
    return [f"{each} {found}" for each in packages if (found := version_of(each)) != "none"]


def device_code(
    operator: PythonText, compute: np.dtype[Any], capability: tuple[int, int]
) -> list[bytes]:
    """LTO-IR of the functions, for a compute capability.

    Raises
    ------
    KernelUnavailableError
        numba-cuda, or NVVM, is not installed.
    CompileError
        Numba does not compile a function for a GPU.
    """
    cuda = _import_cuda()
    from numba.core.errors import NumbaError

    functions = dict(operator.functions.named())

    def compiled(role: str) -> Any:
        return cuda.jit(device=True, inline="always")(functions[role])

    made = []
    for role, entry, signature in _entries(operator, operator.inferred(compute), compiled):
        try:
            code, _ = cuda.compile(
                entry, signature, device=True, abi="c", cc=capability, output="ltoir",
                abi_info={"abi_name": entry_name(role)},
            )  # fmt: skip
        except NumbaError as error:
            where = " for a GPU"
            raise compile_error(operator.name, functions[role], error, where) from None
        made.append(bytes(code))
    return made


def link(operator: PythonText, images: list[bytes], capability: tuple[int, int]) -> bytes:
    """Machine code of a program and the functions that it calls.

    Parameters
    ----------
    operator : PythonText
    images : list of bytes
        LTO-IR.
    capability : tuple of int

    Raises
    ------
    KernelUnavailableError
        nvJitLink is not installed.
    CudaError
        It does not link them, with its messages.
    """
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError) as error:
        raise KernelUnavailableError(f"{_INSTALL} ({error})") from None
    major, minor = capability
    options = [f"-arch=sm_{major}{minor}", "-lto", "-O3"]
    handle = nvjitlink.create(len(options), options)
    try:
        for number, image in enumerate(images):
            name = operator.name if number == 0 else f"{operator.name}, function {number}"
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, image, len(image), name)
        nvjitlink.complete(handle)
        linked = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, linked)
        return bytes(linked)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        message = log.decode(errors="replace").strip("\0\n ")
        raise CudaError(
            f"nvJitLink does not link operator '{operator.name}': {message or error}",
            call="nvJitLinkComplete",
            log=message,
        ) from None
    finally:
        nvjitlink.destroy(handle)
