"""Run a kernel on the emulator, without a GPU, and read the emulator's report:
:func:`gpureduce.explain`.

The emulator replaces libcuda and NVRTC. A process opens it once, as it opens the driver, so a child
process runs the reduction: :mod:`gpureduce._explain.emulator_worker`.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .. import _core, _exceptions
from .._dtypes import native_dtype
from .._emulator_process import as_exception, emulator_environment, run_worker
from .._kernel_names import KernelName
from .._temporary import temporary_folder
from .._yours.kernel import Kernel
from .._yours.one_launch import launch_emulated
from .._yours.own_operator import Operator
from .._yours.program_text import shown_name
from .explanation import Explanation, Explanations
from .report import read_report

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["explain"]

_DEFAULT_OP, _DEFAULT_DTYPE = "sum", "float32"
_OPERATORS = "custom_kernels.cuh"
"""File of the kernels that ``"auto"`` and ``"fast"`` are with an operator of the user's own."""
_MOST_ELEMENTS = 10_000_000
"""Of an array that is explained: each takes the emulator microseconds, and a hundred bytes."""


@overload
def explain(
    kernel: KernelName | Kernel,
    n: int | None = None,
    *,
    block_size: int | None = None,
    dtype: DTypeLike = _DEFAULT_DTYPE,
    op: str | Operator = _DEFAULT_OP,
    grid_size: int | None = None,
    rows: int = 1,
) -> Explanation: ...
@overload
def explain(
    kernel: list[KernelName | Kernel] | tuple[KernelName | Kernel, ...],
    n: int | None = None,
    *,
    block_size: int | None = None,
    dtype: DTypeLike = _DEFAULT_DTYPE,
    op: str | Operator = _DEFAULT_OP,
    grid_size: int | None = None,
    rows: int = 1,
) -> Explanations: ...
def explain(
    kernel: KernelName | Kernel | Sequence[KernelName | Kernel],
    n: int | None = None,
    *,
    block_size: int | None = None,
    dtype: DTypeLike = _DEFAULT_DTYPE,
    op: str | Operator = _DEFAULT_OP,
    grid_size: int | None = None,
    rows: int = 1,
) -> Explanation | Explanations:
    """Run a kernel on an emulated GPU and report what each of its threads did.

    The kernel's CUDA source is compiled for the CPU and run thread by thread, with the launch that
    a GPU would get. It needs a C++ compiler, but no GPU, driver or NVRTC.

    Parameters
    ----------
    kernel : str or Kernel, or sequence of them
        Name or alias of a kernel, a :class:`Kernel` of your own, or several to compare. ``"auto"``
        is the kernel that it selects for `op` and `dtype`.
    n : int, optional
        Elements per row; by default they fill four blocks. At most 10,000,000 in all rows.
    block_size : int, optional
        Threads per block; by default the kernel's own.
    dtype : dtype, optional
        Dtype of the elements; for a kernel of your own, the one in its text.
    op : str or Operator, optional
        The operator that the kernel computes, as ``"sum"`` (the default), ``"max"``, ``"argmax"``
        or ``"std"``, or an :class:`Operator` of your own; for a kernel of your own, the one in its
        text.
    grid_size : int, optional
        Blocks per row, for kernels that loop; by default the planner's choice.
    rows : int, optional
        Rows of `n` elements; each is reduced to one result. 1 by default.

    Returns
    -------
    Explanation or Explanations
        An ``Explanation`` for one kernel, ``Explanations`` for several.

    Raises
    ------
    ValueError
        An unknown kernel or operator, no kernel, `n` or `rows` below 1, more than 10,000,000
        elements, a block or grid size that the kernel does not support.
    TypeError
        A dtype that is not supported, or an argument of the wrong type.
    KernelUnavailableError
        ``"cub"``: NVIDIA's headers are not emulated.
    DeviceUnavailableError
        There is no C++ compiler, or the package was built without the emulator.
    CudaError
        The emulator found an error in the kernel (a race, a barrier that not all threads reach),
        which the message describes.
    CompileError
        An operator of your own does not compile.
    ImportError
        The dtype is bfloat16 and ``ml_dtypes`` is not installed.

    Notes
    -----
    Elements are random, with the same seed in every run. The result is compared with NumPy's, or
    with the CPU backend's for an operator of your own; a wrong result raises ``RuntimeError``.

    Each instruction of a warp counts once, as in hardware counters. Times are not emulated.

    Determinism: the same arguments give the same explanation.

    Examples
    --------
    >>> import gpureduce as gr
    >>> strided, sequential = gr.explain(["interleaved_strided", "sequential"], block_size=64)
    >>> strided.figures.bank_conflicts > 0, sequential.figures.bank_conflicts
    (True, 0)
    """
    if isinstance(n, (str, Kernel)):
        raise TypeError(
            "n is the number of elements: several kernels are written as a list, as in "
            'explain(["sequential", "shfl_atomic"])'
        )
    if isinstance(kernel, (str, Kernel)):
        return _explain_one(kernel, n, block_size, dtype, op, grid_size, rows)
    if not isinstance(kernel, Sequence):
        raise TypeError(
            f"kernel must be a string, a Kernel or a sequence of them, not {type(kernel).__name__}"
        )
    if not kernel:
        raise ValueError("no kernel is named")
    return Explanations(
        [_explain_one(one, n, block_size, dtype, op, grid_size, rows) for one in kernel]
    )


def _explain_one(
    kernel: str | Kernel,
    n: int | None,
    block_size: int | None,
    dtype: DTypeLike,
    op: str | Operator,
    grid_size: int | None,
    rows: int,
) -> Explanation:
    if isinstance(op, Operator):
        return _explain_operator(kernel, n, block_size, dtype, op, grid_size, rows)
    descr = native_dtype(dtype)
    if isinstance(kernel, Kernel):
        return _explain_yours(kernel, n, block_size, descr.name, op, grid_size, rows)
    request = _checked(kernel, n, block_size, descr, op, grid_size, rows)
    answer, report = _run(request)
    return Explanation(
        kernel=request["kernel"],
        op=op,
        dtype=descr.name,
        n=answer["n"],
        rows=request["rows"],
        block_size=answer["block_size"],
        launches=read_report(report),
        chosen_by="auto" if kernel == "auto" else "",
    )


def _explain_yours(
    kernel: Kernel,
    n: int | None,
    block_size: int | None,
    dtype: str,
    op: str,
    grid_size: int | None,
    rows: int,
) -> Explanation:
    """Of a kernel that computes one operator of one row; defaults are its own."""
    _check_counts(n, rows)
    if rows != 1:
        raise ValueError(f"kernel '{kernel.name}' reduces one row: rows must be 1, not {rows}")
    if op not in (_DEFAULT_OP, kernel.op):
        raise ValueError(f"kernel '{kernel.name}' computes {kernel.op}, not {op}")
    if kernel.dtypes is not None and dtype not in (_DEFAULT_DTYPE, kernel.dtypes[0]):
        raise ValueError(f"kernel '{kernel.name}' takes {kernel.dtypes[0]}, not {dtype}")
    case, report = launch_emulated(kernel, n, block_size, grid_size, dtype)
    return Explanation(
        kernel=kernel.name,
        op=kernel.op,
        dtype=case["in"],
        n=case["n"],
        rows=1,
        block_size=case["block"],
        launches=read_report(report),
        own_source=(shown_name(kernel.file), kernel.source),
    )


def _explain_operator(
    kernel: str | Kernel,
    n: int | None,
    block_size: int | None,
    dtype: DTypeLike,
    op: Operator,
    grid_size: int | None,
    rows: int,
) -> Explanation:
    """Of a kernel with an operator of the user's own."""
    _check_counts(n, rows)
    name = op.kernel_for(kernel, block_size, grid_size)
    descr = native_dtype(dtype)
    if op.dtypes is not None and descr not in op.dtypes and descr == _DEFAULT_DTYPE:
        descr = op.dtypes[0]
    request = {
        "kernel": name,
        "n": None if n is None else int(n),
        "rows": int(rows),
        "block_size": None if block_size is None else int(block_size),
        "grid_size": None if grid_size is None else int(grid_size),
        "operator": base64.b64encode(pickle.dumps((op, descr))).decode(),
    }
    answer, report = _run(request)
    launches = read_report(report)
    planned = name in ("auto", "fast")
    return Explanation(
        kernel="fast" if planned else name,
        op=op.name,
        dtype=str(descr),
        n=answer["n"],
        rows=int(rows),
        block_size=next(each.block for each in launches if each.stage == "first"),
        launches=launches,
        own_source=(_OPERATORS, _core.sources()[_OPERATORS]) if planned else None,
        chosen_by="auto" if kernel == "auto" else "",
    )


def _check_counts(n: int | None, rows: int) -> None:
    for name, value in {"n": n, "rows": rows}.items():
        if name == "n" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, not {value}")
    total = int(rows) * int(1 if n is None else n)
    if total > _MOST_ELEMENTS:
        raise ValueError(
            f"explain takes up to {_MOST_ELEMENTS:,} elements, not {total:,}: the emulator runs "
            "each thread on the CPU and records what it does, and a few blocks show what many do"
        )


def _checked(
    kernel: str,
    n: int | None,
    block_size: int | None,
    dtype: np.dtype[Any],
    op: str,
    grid_size: int | None,
    rows: int,
) -> dict[str, Any]:
    """The child's request, of arguments that a reduction accepts.

    The reduction's own errors otherwise.
    """
    if op not in _core.OPERATORS:
        raise _exceptions.unknown_operator(op, _core.OPERATORS)
    _check_counts(n, rows)
    one = np.ones(1, dtype)
    options = (kernel, "cpu", block_size, grid_size, None)
    _core.reduce(_core.OPERATORS[op], one, None, None, False, None, *options, False, 0.0)
    name = _core.choose_kernel(kernel, op, dtype.name)
    if name == "cub":
        raise _exceptions.KernelUnavailableError(
            "kernel 'cub' cannot be explained: it is NVIDIA's code, whose headers the emulator "
            "does not compile"
        )
    return {
        "kernel": name,
        "n": None if n is None else int(n),
        "rows": int(rows),
        "block_size": None if block_size is None else int(block_size),
        "grid_size": None if grid_size is None else int(grid_size),
        "dtype": dtype.name,
        "op": op,
    }


def _run(request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Run the reduction on the emulator in a child process: its reply and the emulator's report."""
    with temporary_folder("gpureduce-explain-") as directory:
        report = directory / "report"
        environment = emulator_environment(directory, f"report={report}")
        answer = json.loads(run_worker("gpureduce._explain.emulator_worker", request, environment))
        if "error" in answer:
            raise as_exception(answer["error"])
        return answer, report.read_text(encoding="utf-8")
