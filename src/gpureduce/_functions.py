"""The reductions: NumPy's names and arguments, then where and how the work is done.

An exact ``ndarray`` with default ``out``, ``initial`` and ``where`` goes to the C core at once: a
small call costs little more than the call. The rest goes by :mod:`gpureduce._rules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from numpy import ndarray

from . import _core
from ._rules import NoValue, reduce_any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    Axis = int | tuple[int, ...] | None

__all__ = ["all", "any", "max", "mean", "min", "prod", "reduce", "sum"]

_reduce = _core.reduce

_SHARED = {
    "a": """
a : array_like
    Numbers of dtype bool, any integer, float16, bfloat16 (of ``ml_dtypes``), float32 or
    float64, in any layout and byte order. Never changed.""",
    "axis": """
axis : None or int or tuple of ints, optional
    Axes to reduce; all of them by default.""",
    "dtype": """
dtype : dtype, optional
    Type that the elements are converted to first, and of the result.""",
    "out": """
out : ndarray, optional
    Receives the result, converted to its dtype, and is returned.""",
    "keepdims": """
keepdims : bool, optional
    Whether reduced axes stay, with length one.""",
    "initial": """
initial : scalar, optional
    Value that the reduction starts from.""",
    "where": """
where : array_like of bool, optional
    Elements to take into account; broadcast against `a`.""",
    "options": """
kernel : str, optional
    Name or alias of a kernel, see :func:`kernels`. ``"auto"`` is the fastest. Names are
    checked on the CPU too, which then answers by its own means.
device : str, optional
    ``None``: the first GPU if there is one, else the CPU. ``"cpu"``, ``"cuda"``,
    ``"cuda:N"``. ``"auto"``: wherever a measured cost model expects the answer soonest;
    for one pass over host memory that is often the CPU.
block_size : int, optional
    Threads per block; by default the kernel's own. Ignored on the CPU once checked.
grid_size : int, optional
    Blocks per row, for kernels that loop; by default the planner's choice.
stream : int or object, optional
    CUDA stream to work on: a ``CUstream`` handle, or an object with ``.ptr`` or
    ``.cuda_stream``. The call still waits for its result. Ignored on the CPU.""",
    "raises": """
TypeError
    A dtype that does not reduce (complex, object, strings, dates, structures, extended
    precision), a masked array, an array in GPU memory.
ValueError
    Unknown kernel or device, a block or grid size the kernel does not take, shapes that do
    not match.
numpy.exceptions.AxisError
    `axis` is out of bounds.
DeviceUnavailableError
    A CUDA device was asked for and there is none to use.
KernelUnavailableError
    The kernel cannot run on that device.
CudaError
    The driver refused a call, or NVRTC a program.
MemoryError
    Host or device memory ran out.""",
    "determinism": """
Determinism: the same input on the same device gives the same bits with every kernel whose
``KernelInfo.deterministic`` is true, ``"auto"`` and the CPU backend among them. Kernels that
fold floats with atomics may differ from run to run in the last bits.""",
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _documented(function: _Function) -> _Function:
    """Put the texts that all reductions share into a docstring, where it says ``{name}``."""
    if function.__doc__ is None:  # python -OO
        return function
    indent = "" if sys.version_info >= (3, 13) else "    "  # 3.13 dedents docstrings itself
    for name, text in _SHARED.items():
        lines = [indent + line if line else line for line in text.strip("\n").split("\n")]
        function.__doc__ = function.__doc__.replace(indent + "{" + name + "}", "\n".join(lines))
    return function


_SUM = _core.OPERATORS["sum"]


@_documented
def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: ArrayLike = True,
    *,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Sum of the elements over given axes, as ``numpy.sum``.

    Parameters
    ----------
    {a}
    {axis}
    {dtype}
    {out}
    {keepdims}
    {initial}
    {where}
    {options}

    Returns
    -------
    scalar or ndarray
        Of `dtype`; by default int64 for bool and signed integers, uint64 for unsigned ones, else
        the dtype of `a`. The sum of nothing is 0.

    Raises
    ------
    {raises}

    Notes
    -----
    Integers are summed modulo 2**64 (or the width of `dtype`). Floats are accumulated in float32
    or wider and rounded to the result's type once; NaN and infinities spread as in NumPy.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.sum(np.arange(6, dtype=np.int32))
    np.int64(15)
    >>> gr.sum(np.ones((2, 3), np.float32), axis=0)
    array([2., 2., 2.], dtype=float32)
    """
    if out is None and initial is NoValue and where is True and type(a) is ndarray:
        return _reduce(_SUM, a, axis, dtype, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("sum", a, axis, dtype, out, keepdims, initial, where, options)


_PROD = _core.OPERATORS["prod"]


@_documented
def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: ArrayLike = True,
    *,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Product of the elements over given axes, as ``numpy.prod``.

    Parameters
    ----------
    {a}
    {axis}
    {dtype}
    {out}
    {keepdims}
    {initial}
    {where}
    {options}

    Returns
    -------
    scalar or ndarray
        Of `dtype`; by default int64 for bool and signed integers, uint64 for unsigned ones, else
        the dtype of `a`. The product of nothing is 1.

    Raises
    ------
    {raises}

    Notes
    -----
    Integers are multiplied modulo 2**64 (or the width of `dtype`). Floats are accumulated in
    float32 or wider and rounded to the result's type once.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.prod(np.array([1.5, 2.0, 4.0]))
    np.float64(12.0)
    """
    if out is None and initial is NoValue and where is True and type(a) is ndarray:
        return _reduce(_PROD, a, axis, dtype, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("prod", a, axis, dtype, out, keepdims, initial, where, options)


_MIN = _core.OPERATORS["min"]


@_documented
def min(
    a: ArrayLike,
    axis: Axis = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: ArrayLike = True,
    *,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Smallest element over given axes, as ``numpy.min``.

    Parameters
    ----------
    {a}
    {axis}
    {out}
    {keepdims}
    {initial}
    {where}
    {options}

    Returns
    -------
    scalar or ndarray
        Of the dtype of `a`. NaN if any element is NaN.

    Raises
    ------
    {raises}

    Notes
    -----
    The smallest of nothing is a ``ValueError``, unless `initial` is given. `where` needs
    `initial`.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.min(np.array([[4, 2], [3, 1]]), axis=1)
    array([2, 1])
    """
    if out is None and initial is NoValue and where is True and type(a) is ndarray:
        return _reduce(_MIN, a, axis, None, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("min", a, axis, None, out, keepdims, initial, where, options)


_MAX = _core.OPERATORS["max"]


@_documented
def max(
    a: ArrayLike,
    axis: Axis = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: ArrayLike = True,
    *,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Largest element over given axes, as ``numpy.max``.

    Parameters
    ----------
    {a}
    {axis}
    {out}
    {keepdims}
    {initial}
    {where}
    {options}

    Returns
    -------
    scalar or ndarray
        Of the dtype of `a`. NaN if any element is NaN.

    Raises
    ------
    {raises}

    Notes
    -----
    The largest of nothing is a ``ValueError``, unless `initial` is given. `where` needs
    `initial`.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.max(np.array([0.5, np.nan, 2.0]))
    np.float64(nan)
    >>> gr.max(np.array([3, 9, 4]), initial=5, where=[True, False, True])
    np.int64(5)
    """
    if out is None and initial is NoValue and where is True and type(a) is ndarray:
        return _reduce(_MAX, a, axis, None, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("max", a, axis, None, out, keepdims, initial, where, options)


_MEAN = _core.OPERATORS["mean"]


@_documented
def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Arithmetic mean of the elements over given axes, as ``numpy.mean``.

    Parameters
    ----------
    {a}
    {axis}
    {dtype}
    {out}
    {keepdims}
    {where}
    {options}

    Returns
    -------
    scalar or ndarray
        Of `dtype`; by default float64 for bool and integers, else the dtype of `a`.

    Raises
    ------
    {raises}

    Notes
    -----
    The mean of nothing is NaN, with a ``RuntimeWarning``. Floats are accumulated in float32 or
    wider and rounded to the result's type once.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.mean(np.array([1, 2, 4]), dtype=np.float32)
    np.float32(2.3333333)
    """
    if out is None and where is True and type(a) is ndarray and a.size:
        return _reduce(_MEAN, a, axis, dtype, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("mean", a, axis, dtype, out, keepdims, NoValue, where, options)


_ANY = _core.OPERATORS["any"]


@_documented
def any(
    a: ArrayLike,
    axis: Axis = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Whether any element over given axes is true, as ``numpy.any``.

    Parameters
    ----------
    {a}
    {axis}
    {out}
    {keepdims}
    {where}
    {options}

    Returns
    -------
    bool or ndarray of bool
        Whether an element is not zero; NaN is not. Of nothing: False.

    Raises
    ------
    {raises}

    Notes
    -----
    An element of any dtype is true if it is not zero.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.any(np.array([[0.0, 0.0], [0.0, 1.0]]), axis=1)
    array([False,  True])
    """
    if out is None and where is True and type(a) is ndarray:
        return _reduce(_ANY, a, axis, None, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("any", a, axis, None, out, keepdims, NoValue, where, options)


_ALL = _core.OPERATORS["all"]


@_documented
def all(
    a: ArrayLike,
    axis: Axis = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Whether all elements over given axes are true, as ``numpy.all``.

    Parameters
    ----------
    {a}
    {axis}
    {out}
    {keepdims}
    {where}
    {options}

    Returns
    -------
    bool or ndarray of bool
        Whether no element is zero. Of nothing: True.

    Raises
    ------
    {raises}

    Notes
    -----
    An element of any dtype is true if it is not zero.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.all(np.array([1, 2, 0], dtype=np.uint8))
    np.False_
    """
    if out is None and where is True and type(a) is ndarray:
        return _reduce(_ALL, a, axis, None, keepdims, None, kernel, device, block_size, grid_size, stream, False, 0.0)
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any("all", a, axis, None, out, keepdims, NoValue, where, options)


@_documented
def reduce(
    a: ArrayLike,
    op: str,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: ndarray[Any, Any] | None = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    where: ArrayLike = True,
    *,
    kernel: str = "auto",
    device: str | None = None,
    block_size: int | None = None,
    grid_size: int | None = None,
    stream: Any = None,
) -> Any:
    """Reduce with an operator given by name: ``reduce(a, "sum")`` is ``sum(a)``.

    Parameters
    ----------
    {a}
    op : {"sum", "prod", "min", "max", "mean", "any", "all"}
        The operator.
    {axis}
    dtype : dtype, optional
        For ``"sum"``, ``"prod"`` and ``"mean"``: type that the elements are converted to first,
        and of the result.
    {out}
    {keepdims}
    initial : scalar, optional
        Value that the reduction starts from; ``"mean"`` has none.
    {where}
    {options}

    Returns
    -------
    scalar or ndarray
        What the operator's own function returns.

    Raises
    ------
    {raises}

    Notes
    -----
    A `dtype` for an operator that computes in
    the elements' own type is a ``TypeError``.

    {determinism}

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> gr.reduce(np.array([3, 1, 2]), "max")
    np.int64(3)
    """
    number = _core.OPERATORS.get(op)
    if number is None:
        names = ", ".join(_core.OPERATORS)
        raise ValueError(f"unknown operator {op!r}: the operators are {names}")
    if op == "mean" and initial is not NoValue:
        raise TypeError("mean takes no initial value")
    options = (kernel, device, block_size, grid_size, stream)
    return reduce_any(op, a, axis, dtype, out, keepdims, initial, where, options)
