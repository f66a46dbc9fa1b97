"""Docstrings of the reductions: the texts of each function, and those that functions share.

A docstring lists the parameters of the signature, in the same order.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

_PARAMETERS = {
    "a": """a : array_like
    Numbers of dtype bool, any integer, float16, bfloat16 (of ``ml_dtypes``), float32, float64,
    complex64 or complex128, of any shape, in any layout and byte order. Never changed. Of a
    structured array each field is reduced by itself, to a result with the same fields.""",
    "op": """op : str, ufunc, function of ``operator`` or Operator
    The operator: a function's name, as ``"nanmax"``; a ufunc or its name, as ``numpy.maximum`` or
    ``"maximum"``; or ``operator.add``, ``mul``, ``and_``, ``or_``, ``xor``; or one of your own, a
    :class:`gpureduce.Operator`. A tuple of operators: all of them, from one pass over memory where
    the notes say so.""",
    "axis": """axis : None or int or tuple of ints, optional
    Axes to reduce; all of them by default, none for ``()``.""",
    "dtype": """dtype : dtype, optional
    Dtype of the accumulator and the result; elements are converted to it first. Sums of floats
    add the elements as they are, and only round to it.""",
    "out": """out : ndarray, optional
    Of the result's shape. Receives the result, converted to its dtype, and is returned. It may
    overlap `a`.""",
    "keepdims": """keepdims : bool, optional
    Whether reduced axes are kept, with length one.""",
    "initial": """initial : scalar, optional
    Value that the reduction starts from.""",
    "where": """where : array_like of bool, optional
    Elements to include; broadcast against `a`.""",
    "ddof": """ddof : int or float, optional
    The divisor is ``max(N - ddof, 0)``, where N is the number of elements.""",
    "mean": """mean : array_like, optional
    Mean to use instead of the array's own; broadcasts to the result's shape with
    ``keepdims=True``. A complex mean needs complex elements. Host arrays are read once for the
    variance and once for the mean, in float64. Arrays in GPU memory are read once; their mean may
    be an array of the same library on the same device, a number, or a host array.""",
    "correction": """correction : int or float, optional
    The array API standard's name for `ddof`.""",
    "kernel": """kernel : str, optional
    Name or alias of a kernel, see :func:`kernels`. ``"auto"`` is ``"exact"`` for sums and means of
    floats, which are rounded once, and ``"fast"`` for everything else. The CPU backend has these
    two kernels; other names must exist, and run ``"fast"`` there, with a ``NoDeviceWarning``.""",
    "device": """device : str, optional
    ``None``: the first GPU if there is one, else the CPU. ``"cpu"``, ``"cuda"``,
    ``"cuda:N"``. ``"auto"``: the device for which a measured cost model
    predicts the shorter time; for an array in host memory that is often the CPU.""",
    "block_size": """block_size : int, optional
    Threads per block; each kernel has a default. The CPU backend validates the value and otherwise
    ignores it.""",
    "grid_size": """grid_size : int, optional
    Blocks per row, for kernels that loop; by default the planner's choice.""",
    "stream": """stream : int or object, optional
    CUDA stream to work on: a ``CUstream`` handle, or an object with ``.ptr`` or
    ``.cuda_stream``. With a host array the call still waits for its result. Ignored on the
    CPU.""",
}

_RAISES = """TypeError
    A dtype that the function does not support (object, strings, extended precision, ...), also of a
    field; a masked array; or an array or argument of a type that overrides NumPy's functions, as
    those of pandas and astropy do, and has no ``__gpureduce_wrap__``.
ValueError
    An unknown kernel or device, a block or grid size that the kernel does not support, shapes that
    do not match.
numpy.exceptions.AxisError
    `axis` is out of bounds.
DeviceUnavailableError
    `device` requests a CUDA device, and none can be used.
KernelUnavailableError
    The kernel cannot run on this device.
CudaError
    A call of the CUDA driver failed, or NVRTC did not compile a program.
MemoryError
    Host or device memory ran out."""

_DETERMINISM = """Determinism: the same input on the same device gives the same bits with every
kernel whose ``KernelInfo.deterministic`` is true, with ``"auto"`` and on the CPU. Exact sums, which
``"auto"`` computes, have the same bits on every device. Kernels that combine floats by atomics may
differ from run to run."""

_ONE_AXIS = """axis : int, optional
    Axis to search along; by default the flat array."""
_OUT_OF_POSITIONS = """out : ndarray, optional
    Of the result's shape and an integer dtype that converts to int64 safely. Receives the positions
    and is returned."""
_PAIR_OF_OUTS = """out : tuple of two ndarrays, optional
    Of the result's shape. They receive the minima and the maxima, converted to their dtypes."""
_ANY_DTYPE = """dtype : dtype, optional
    Dtype of the accumulator and the result, for operators that have one."""
_START = """initial : scalar, optional
    Value that the reduction starts from, for operators that have one."""
_INEXACT = """dtype : dtype, optional
    Float or complex dtype of the accumulator and the result; elements are converted to it first."""


class _Text(NamedTuple):
    """The texts that one function does not share."""

    summary: str
    returns: str
    notes: str
    example: str
    parameters: dict[str, str] = {}  # noqa: RUF012


_SCALAR = "scalar or ndarray\n    "
_SUMMED = (
    "Of `dtype`; by default int64 for bool and signed integers, uint64 for unsigned ones, else\n"
    "    the dtype of `a`. "
)
_AVERAGED = "Of `dtype`; by default float64 for bool and integers, else the dtype of `a`."
_SPREAD = (
    "Of `dtype`; by default float64 for bool and integers, real for complex elements, else the "
    "dtype of `a`."
)
_BITS = "Of the dtype of `a`. "
_NAMED_AFTER = (
    "NumPy's equivalent is ``numpy.{0}.reduce``, which reduces the first axis by default.\n"
    "This function reduces all axes by default."
)
_TIMES = "Takes datetime64 and timedelta64 too: the result is NaT if any element is. "
_ACCUMULATED = (
    "Kernels other than ``'exact'`` accumulate floats in float32 or wider; the result is rounded\n"
    "to its type once. NaN and infinities propagate as in NumPy."
)
_MULTIPLIED = (
    "Floats are accumulated in float32 or wider and rounded to the result's type once; NaN and\n"
    "infinities propagate as in NumPy."
)
_MOMENTS = (
    "The mean and the squared distances from it are accumulated in float64 in one pass, by\n"
    "Welford's and Chan's rules, and rounded to the result's type once.\n"
    "Kernel ``'exact'`` computes the exact value from the unconverted elements, with `ddof` as a\n"
    "double, and rounds it once. No intermediate result overflows, underflows or cancels. It\n"
    "raises ``ValueError`` for `mean`."
)
_ALL_NAN = (
    "NaN are left out. Where all elements are NaN the result is NaN, with a ``RuntimeWarning``."
)
_NO_START = (
    "Without elements it raises ``ValueError``, unless `initial` is given. `where` needs `initial`."
)

_TEXTS = {
    "sum": _Text(
        "Sum of the elements over given axes, as ``numpy.sum``.",
        _SCALAR + _SUMMED + "The sum of no elements is 0.",
        f"Integers are summed modulo 2**64 (or the width of `dtype`).\n{_ACCUMULATED} timedelta64 "
        "is summed too.",
        ">>> gr.sum(np.arange(6, dtype=np.int32))\nnp.int64(15)\n"
        ">>> gr.sum(np.ones((2, 3), np.float32), axis=0)\narray([2., 2., 2.], dtype=float32)",
    ),
    "prod": _Text(
        "Product of the elements over given axes, as ``numpy.prod``.",
        _SCALAR + _SUMMED + "The product of no elements is 1.",
        f"Integers are multiplied modulo 2**64 (or the width of `dtype`).\n{_MULTIPLIED}",
        ">>> gr.prod(np.array([1.5, 2.0, 4.0]))\nnp.float64(12.0)",
    ),
    "nansum": _Text(
        "Sum of the elements that are not NaN, as ``numpy.nansum``.",
        _SCALAR + _SUMMED + "The sum of no elements is 0.",
        f"{_ACCUMULATED}",
        ">>> gr.nansum(np.array([1.0, np.nan, 2.0]))\nnp.float64(3.0)",
    ),
    "nanprod": _Text(
        "Product of the elements that are not NaN, as ``numpy.nanprod``.",
        _SCALAR + _SUMMED + "The product of no elements is 1.",
        f"{_MULTIPLIED}",
        ">>> gr.nanprod(np.array([[1.0, np.nan], [3.0, 4.0]]), axis=0)\narray([3., 4.])",
    ),
    "min": _Text(
        "Smallest element over given axes, as ``numpy.min``.",
        _SCALAR + "Of the dtype of `a`. NaN if any element is NaN.",
        f"{_TIMES}Complex numbers are ordered by their real parts, then by the imaginary ones.\n"
        f"{_NO_START}",
        ">>> gr.min(np.array([[4, 2], [3, 1]]), axis=1)\narray([2, 1])",
    ),
    "max": _Text(
        "Largest element over given axes, as ``numpy.max``.",
        _SCALAR + "Of the dtype of `a`. NaN if any element is NaN.",
        f"{_TIMES}Complex numbers are ordered by their real parts, then by the imaginary ones.\n"
        f"{_NO_START}",
        ">>> gr.max(np.array([0.5, np.nan, 2.0]))\nnp.float64(nan)\n"
        ">>> gr.max(np.array([3, 9, 4]), initial=5, where=[True, False, True])\nnp.int64(5)",
    ),
    "nanmin": _Text(
        "Smallest element that is not NaN, as ``numpy.nanmin``.",
        _SCALAR + "Of the dtype of `a`.",
        f"{_ALL_NAN}\n{_NO_START} NaT are left out, too.",
        ">>> gr.nanmin(np.array([3.0, np.nan, 2.0]))\nnp.float64(2.0)",
    ),
    "nanmax": _Text(
        "Largest element that is not NaN, as ``numpy.nanmax``.",
        _SCALAR + "Of the dtype of `a`.",
        f"{_ALL_NAN}\n{_NO_START} NaT are left out, too.",
        ">>> gr.nanmax(np.array([[3.0, np.nan], [2.0, 7.0]]), axis=0)\narray([3., 7.])",
    ),
    "bitwise_and": _Text(
        "Bitwise AND of the elements over given axes.",
        _SCALAR + _BITS + "Without elements: all bits, or True.",
        f"`a` is of bool or integers. {_NAMED_AFTER.format('bitwise_and')}",
        ">>> gr.bitwise_and(np.array([7, 5, 13]))\nnp.int64(5)",
    ),
    "bitwise_or": _Text(
        "Bitwise OR of the elements over given axes.",
        _SCALAR + _BITS + "Without elements: 0, or False.",
        f"`a` is of bool or integers. {_NAMED_AFTER.format('bitwise_or')}",
        ">>> gr.bitwise_or(np.array([[1, 2], [4, 2]], dtype=np.uint8), axis=1)\n"
        "array([3, 6], dtype=uint8)",
    ),
    "bitwise_xor": _Text(
        "Bitwise XOR of the elements over given axes.",
        _SCALAR + _BITS + "Without elements: 0, or False.",
        f"`a` is of bool or integers. {_NAMED_AFTER.format('bitwise_xor')}",
        ">>> gr.bitwise_xor(np.array([7, 5, 13]))\nnp.int64(15)",
    ),
    "logical_xor": _Text(
        "Logical XOR of the elements over given axes: whether an odd number of them is true.",
        "bool or ndarray of bool\n    Without elements: False.",
        f"An element is true if it is not zero; NaN is true. {_NAMED_AFTER.format('logical_xor')}",
        ">>> gr.logical_xor(np.array([1.5, 0.0, 2.0, 3.0]))\nnp.True_",
    ),
    "any": _Text(
        "Whether any element over given axes is true, as ``numpy.any``.",
        "bool or ndarray of bool\n    Without elements: False.",
        "An element is true if it is not zero; NaN is true.",
        ">>> gr.any(np.array([[0.0, 0.0], [0.0, 1.0]]), axis=1)\narray([False,  True])",
    ),
    "all": _Text(
        "Whether all elements over given axes are true, as ``numpy.all``.",
        "bool or ndarray of bool\n    Without elements: True.",
        "An element is true if it is not zero; NaN is true.",
        ">>> gr.all(np.array([1, 2, 0], dtype=np.uint8))\nnp.False_",
    ),
    "mean": _Text(
        "Arithmetic mean of the elements over given axes, as ``numpy.mean``.",
        _SCALAR + _AVERAGED,
        f"The mean of no elements is NaN, with a ``RuntimeWarning``.\n{_ACCUMULATED} timedelta64 "
        "has means too.",
        ">>> gr.mean(np.array([1, 2, 4]), dtype=np.float32)\nnp.float32(2.3333333)",
    ),
    "nanmean": _Text(
        "Arithmetic mean of the elements that are not NaN, as ``numpy.nanmean``.",
        _SCALAR + _AVERAGED,
        f"{_ALL_NAN}\n{_ACCUMULATED}",
        ">>> gr.nanmean(np.array([[1.0, np.nan], [3.0, 4.0]]), axis=1)\narray([1. , 3.5])",
        {"dtype": _INEXACT},
    ),
    "var": _Text(
        "Variance of the elements over given axes, as ``numpy.var``.",
        _SCALAR + _SPREAD,
        f"{_MOMENTS}\n"
        "With `ddof` elements or fewer it is NaN or infinite, with a ``RuntimeWarning``.",
        ">>> gr.var(np.array([1.0, 2.0, 4.0, 5.0]))\nnp.float64(2.5)\n"
        ">>> gr.var(np.array([[1, 2], [3, 5]]), axis=0, ddof=1)\narray([2. , 4.5])",
        {"dtype": _INEXACT},
    ),
    "std": _Text(
        "Standard deviation of the elements over given axes, as ``numpy.std``.",
        _SCALAR + _SPREAD,
        f"{_MOMENTS}\n"
        "With `ddof` elements or fewer it is NaN or infinite, with a ``RuntimeWarning``.",
        ">>> gr.std(np.array([3.0, 5.0, 5.0, 3.0], dtype=np.float32))\nnp.float32(1.0)",
        {"dtype": _INEXACT},
    ),
    "nanvar": _Text(
        "Variance of the elements that are not NaN, as ``numpy.nanvar``.",
        _SCALAR + _SPREAD,
        f"{_MOMENTS}\n"
        "With `ddof` or fewer elements that are not NaN it is NaN, with a ``RuntimeWarning``.",
        ">>> gr.nanvar(np.array([1.0, np.nan, 3.0]))\nnp.float64(1.0)",
        {"dtype": _INEXACT},
    ),
    "nanstd": _Text(
        "Standard deviation of the elements that are not NaN, as ``numpy.nanstd``.",
        _SCALAR + _SPREAD,
        f"{_MOMENTS}\n"
        "With `ddof` or fewer elements that are not NaN it is NaN, with a ``RuntimeWarning``.",
        ">>> gr.nanstd(np.array([[1.0, np.nan], [5.0, 2.0]]), axis=0)\narray([2., 0.])",
        {"dtype": _INEXACT},
    ),
    "argmin": _Text(
        "Position of the first smallest element, as ``numpy.argmin``.",
        "int64 or ndarray of int64\n    Position along `axis`, or in the flat array.",
        "The first NaN or NaT counts as smallest and as largest. Without elements it raises "
        "``ValueError``.",
        ">>> gr.argmin(np.array([[4, 2], [1, 3]]))\nnp.int64(2)",
        {"axis": _ONE_AXIS, "out": _OUT_OF_POSITIONS},
    ),
    "argmax": _Text(
        "Position of the first largest element, as ``numpy.argmax``.",
        "int64 or ndarray of int64\n    Position along `axis`, or in the flat array.",
        "The first NaN or NaT counts as smallest and as largest. Without elements it raises "
        "``ValueError``.",
        ">>> gr.argmax(np.array([[4, 2], [1, 3]]), axis=1)\narray([0, 1])",
        {"axis": _ONE_AXIS, "out": _OUT_OF_POSITIONS},
    ),
    "nanargmin": _Text(
        "Position of the first smallest element that is not NaN, as ``numpy.nanargmin``.",
        "int64 or ndarray of int64\n    Position along `axis`, or in the flat array.",
        "Without elements, or with NaN alone, it raises ``ValueError``.",
        ">>> gr.nanargmin(np.array([np.nan, 2.0, 1.0]))\nnp.int64(2)",
        {"axis": _ONE_AXIS, "out": _OUT_OF_POSITIONS},
    ),
    "nanargmax": _Text(
        "Position of the first largest element that is not NaN, as ``numpy.nanargmax``.",
        "int64 or ndarray of int64\n    Position along `axis`, or in the flat array.",
        "Without elements, or with NaN alone, it raises ``ValueError``.",
        ">>> gr.nanargmax(np.array([[np.nan, 2.0], [1.0, np.nan]]), axis=0)\narray([1, 0])",
        {"axis": _ONE_AXIS, "out": _OUT_OF_POSITIONS},
    ),
    "ptp": _Text(
        "Largest element less the smallest over given axes, as ``numpy.ptp``.",
        _SCALAR + "Of the dtype of `a`, integers wrapped; timedelta64 for datetime64.",
        "One pass finds both extremes. The result is NaN, or NaT, if any element is. bool raises\n"
        "``TypeError``, as in NumPy.",
        ">>> gr.ptp(np.array([[4, 2], [9, 1]]), axis=1)\narray([2, 8])",
    ),
    "count_nonzero": _Text(
        "Number of elements over given axes that are not zero, as ``numpy.count_nonzero``.",
        "int64 or ndarray of int64\n    NaN and NaT count, because they are not zero.",
        "Strings and objects, which NumPy counts, raise ``TypeError``.",
        ">>> gr.count_nonzero(np.array([[0, 7], [1, 2]]), axis=0)\narray([1, 2])",
    ),
    "minmax": _Text(
        "Smallest and largest element over given axes, in one pass.",
        "MinMax\n"
        "    Named tuple of `min` and `max`: the results of :func:`min` and :func:`max` for "
        "the same arguments.",
        _NO_START,
        ">>> gr.minmax(np.array([[4, 2], [9, 1]]), axis=0)\n"
        "MinMax(min=array([4, 1]), max=array([9, 2]))",
        {"out": _PAIR_OF_OUTS},
    ),
    "reduce": _Text(
        'Reduce with an operator given by name: ``reduce(a, "sum")`` is ``sum(a)``.',
        "scalar or ndarray\n    The result of the operator's own function. Of a tuple of "
        "operators: a named\n    tuple of their results, whose fields are their names.",
        "It raises ``TypeError`` for an argument that the operator's function does not have.\n\n"
        "Of a tuple of operators each result has the bits of a call of its own. On the CPU an "
        "array that\ndoes not fit the caches is read once by those that the page "
        "`several-results` lists; on a GPU each\noperator has launches of its own.",
        '>>> gr.reduce(np.array([3, 1, 2]), "max")\nnp.int64(3)\n'
        ">>> gr.reduce(np.array([3, 1, 2]), np.bitwise_or)\nnp.int64(3)\n"
        '>>> gr.reduce(np.array([3, 1, 2]), ("sum", "argmax"))\n'
        "Reduced(sum=np.int64(6), argmax=np.int64(0))",
        {"dtype": _ANY_DTYPE, "initial": _START},
    ),
}


def compose(name: str, parameters: tuple[str, ...]) -> str | None:
    """Put a function's docstring together."""
    if sys.flags.optimize > 1:  # -OO: without docstrings
        return None
    text = _TEXTS[name]
    described = "\n".join(
        text.parameters.get(parameter, _PARAMETERS[parameter]) for parameter in parameters
    )
    sections = (
        ("Parameters", described),
        ("Returns", text.returns),
        ("Raises", _RAISES),
        ("Notes", f"{text.notes}\n\n{_DETERMINISM}"),
        ("Examples", f">>> import numpy as np\n>>> import gpureduce as gr\n{text.example}"),
    )
    return (
        text.summary
        + "".join(f"\n\n{title}\n{'-' * len(title)}\n{body}" for title, body in sections)
        + "\n"
    )
