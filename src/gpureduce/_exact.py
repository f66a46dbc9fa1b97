"""Exact sums, which round once, and their states, which merge in any order."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._dtypes import finest_unit, native_dtype
from ._interop.inputs import as_array, check_plain
from ._interop.libraries import device_library

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable
    from typing import Self

    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["ExactSum"]

_WORDS_AT = 28  # of the bytes; docs/exact-format.md
_CHECKSUM_BYTES = 4
_FLAGS_AT = 12
_NOT_FINITE = 0b0111
_INFINITIES = (0b0001, 0b0010)


class ExactSum:
    """Exact sum of the elements of several arrays, which are added one after another.

    :meth:`result` and :meth:`mean` round once; no other method rounds. States can be merged, and
    converted to bytes and pickles. A state depends only on the elements: any order and any split
    into updates and merges gives the same bits.

    Parameters
    ----------
    dtype : dtype, optional
        Dtype of the elements: bool, an integer, float16, bfloat16, float32 or float64 (the
        default). Its byte order is ignored.

    Raises
    ------
    TypeError
        Any other dtype.

    Notes
    -----
    A state is a fixed-point number of 2176 bits for float64, 352 for float32 and bfloat16, 128 or
    160 for the others: enough for 2**64 - 1 elements of any magnitude, so that no intermediate sum
    overflows. Infinities and NaN propagate as in IEEE additions: infinities of both signs give NaN.
    All NaN results have the same bits.

    A sum of -0.0 alone is -0.0, as in IEEE addition; every other zero, and the sum of no elements,
    is 0.0. ``sum``, ``numpy.sum`` and ``math.fsum`` start at 0.0 and return 0.0 for both.

    Updates with host arrays run on all cores without the GIL, those with arrays in GPU memory on
    their GPU. Any thread may use any state at any time; an update or merge that fails changes
    nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> total = gr.ExactSum().update(np.array([1e308, 1e308, -1e308, 1.0, -1e308]))
    >>> total.result()
    np.float64(1.0)
    >>> gr.ExactSum("float32").update(np.full(10, 0.1, np.float32)).result()
    np.float32(1.0)
    """

    __slots__ = ("_state", "_type")
    __hash__ = None  # type: ignore[assignment]  # a state changes

    def __init__(self, dtype: DTypeLike = np.float64) -> None:
        self._type = native_dtype(dtype)
        self._state = _core.exact_new(self._type)

    # ------------------------------------------------------------ adding

    def update(self, a: ArrayLike) -> Self:
        """Add every element of an array.

        Parameters
        ----------
        a : array_like
            Of the state's dtype, or of one that ``numpy.can_cast`` to it safely: elements
            are added without rounding (an int64 to a float64 state too). Any shape, strides, byte
            order and alignment; read in place. In host memory, or of any library in GPU memory (see
            :func:`sum`): its GPU then adds the elements, ordered on the stream that the library
            works on, and the call waits.

        Returns
        -------
        ExactSum
            The state itself.

        Raises
        ------
        TypeError
            Another dtype, a masked array, or one of a type that overrides NumPy's functions.
        ValueError
            The state would have more than 2**64 - 1 elements; the array is in GPU memory and its
            stream is being captured into a graph, in which no call can wait.
        DeviceUnavailableError
            The array is in GPU memory and the GPU cannot be used: NVRTC is missing, or the process
            is a fork of one that used the driver.
        CudaError
            A call of the driver or NVRTC failed; nothing was added.
        MemoryError
            Memory ran out.
        KeyboardInterrupt
            Ctrl-C: nothing was added.

        Examples
        --------
        >>> import gpureduce as gr
        >>> gr.ExactSum().update([1e100, 1.0]).update(-1e100).result()
        np.float64(1.0)
        """
        library = device_library(a)
        if library is not None:
            check_plain(a, "a")
        array = as_array(a, "a.compressed()") if library is None else library.read(a)
        dtype = array.dtype if isinstance(array, np.ndarray) else native_dtype(array.dtype)
        if dtype != self._type and not np.can_cast(dtype, self._type, "safe"):
            raise TypeError(
                f"an exact sum of {self._type} does not take elements of dtype {dtype}: "
                f"{self._type} does not hold all of these. Take a wider state, or convert the "
                f"elements first: numpy.asarray(a, {self._type.name!r})"
            )
        _core.exact_update(self._state, array)
        return self

    def merge(self, other: ExactSum) -> Self:
        """Add the elements of another state.

        Parameters
        ----------
        other : ExactSum
            Of the same dtype. Not changed, unless it is this state itself.

        Returns
        -------
        ExactSum
            The state itself.

        Raises
        ------
        TypeError
            `other` is no ``ExactSum``, or one of another dtype.
        ValueError
            The state would have more than 2**64 - 1 elements.

        Examples
        --------
        >>> import gpureduce as gr
        >>> one, other = gr.ExactSum().update([0.1, 0.2]), gr.ExactSum().update([0.3])
        >>> one.merge(other) == gr.ExactSum().update([0.3, 0.2, 0.1])
        True
        """
        if not isinstance(other, ExactSum):
            raise TypeError(f"an ExactSum merges with another one, not with {type(other).__name__}")
        _core.exact_merge(self._state, other._state)
        return self

    # ------------------------------------------------------------ results

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements, in the machine's byte order."""
        return self._type

    @property
    def count(self) -> int:
        """Number of elements added."""
        return _core.exact_count(self._state)

    def result(self, dtype: DTypeLike | None = None) -> Any:
        """Round the sum once, to nearest, ties to even.

        Parameters
        ----------
        dtype : dtype, optional
            Type of the result: float16, bfloat16, float32 or float64, to which the exact sum is
            rounded directly; for integers and bools also int64 and uint64. By default the state's
            own, and for integers and bools that of ``numpy.sum``, int64 or uint64.

        Returns
        -------
        scalar
            Of that dtype; infinite if the sum is out of its range.

        Raises
        ------
        ValueError
            The sum does not fit in the integer type; see :meth:`as_integer_ratio`.
        TypeError
            Any other dtype.

        Examples
        --------
        >>> import gpureduce as gr
        >>> half = gr.ExactSum("float64").update([1 + 2**-11, 2**-60])
        >>> half.result("float16")  # through float64 it would be a tie, and 1.0
        np.float16(1.001)
        """
        if dtype is None:
            kind = self._type.kind
            return self._round(
                np.uint64 if kind == "u" else np.int64 if kind in "bi" else self._type, False
            )
        return self._round(dtype, False)

    def mean(self, dtype: DTypeLike | None = None) -> Any:
        """Divide the exact sum by the number of elements and round once, to nearest, ties to even.

        Parameters
        ----------
        dtype : dtype, optional
            float16, bfloat16, float32 or float64. By default the state's own, float64 for integers
            and bools.

        Returns
        -------
        scalar
            NaN, with NumPy's ``RuntimeWarning``, if there are no elements.

        Raises
        ------
        TypeError
            Any other dtype.

        Examples
        --------
        >>> import gpureduce as gr
        >>> gr.ExactSum().update([1.7e308, 1.7e308]).mean()
        np.float64(1.7e+308)
        """
        if self.count == 0:
            warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
        return self._round(
            self._type if dtype is None and self._type.kind not in "biu" else dtype, True
        )

    def _round(self, dtype: DTypeLike | None, mean: bool) -> Any:
        return _core.exact_result(self._state, np.dtype(dtype), mean)

    def as_integer_ratio(self) -> tuple[int, int]:
        """Return the unrounded sum, as ``float.as_integer_ratio`` does.

        Returns
        -------
        numerator, denominator : int
            In lowest terms; the denominator is positive, and a power of two.

        Raises
        ------
        OverflowError
            The sum is infinite.
        ValueError
            The sum is NaN.

        Examples
        --------
        >>> import gpureduce as gr
        >>> gr.ExactSum().update([2.0**1000, 0.5]).as_integer_ratio() == (2**1001 + 1, 2)
        True
        """
        data = self.to_bytes()
        special = data[_FLAGS_AT] & _NOT_FINITE
        if special in _INFINITIES:
            raise OverflowError("cannot convert Infinity to integer ratio")
        if special != 0:
            raise ValueError("cannot convert NaN to integer ratio")
        number = int.from_bytes(data[_WORDS_AT:-_CHECKSUM_BYTES], "little", signed=True)
        halvings = -finest_unit(_core.exact_dtype(self._state))  # which the state counts in
        twos = min((number & -number).bit_length() - 1, halvings) if number != 0 else halvings
        return number >> twos, 1 << (halvings - twos)

    # ------------------------------------------------------------ states as values

    def to_bytes(self) -> bytes:
        """Return the state as bytes, which depend on the elements alone.

        Returns
        -------
        bytes
            The format is versioned and checksummed; docs/exact-format.md describes it.

        Examples
        --------
        >>> import gpureduce as gr
        >>> len(gr.ExactSum("float32").to_bytes())
        76
        """
        return _core.exact_store(self._state)

    @classmethod
    def from_bytes(cls, data: Buffer) -> Self:
        """Make a state of the bytes that :meth:`to_bytes` returned.

        Parameters
        ----------
        data : bytes-like

        Returns
        -------
        ExactSum

        Raises
        ------
        ValueError
            The bytes are not a state's: truncated, changed, or of a later version, as the message
            says.

        Examples
        --------
        >>> import gpureduce as gr
        >>> total = gr.ExactSum().update([1.0, 2.0])
        >>> gr.ExactSum.from_bytes(total.to_bytes()) == total
        True
        """
        made = cls.__new__(cls)
        made._state = _core.exact_load(data)
        made._type = native_dtype(_core.exact_dtype(made._state))
        return made

    def __reduce__(self) -> tuple[Callable[[Buffer], Self], tuple[bytes], dict[str, Any] | None]:
        # A subclass may have attributes, in its __dict__.
        return type(self).from_bytes, (self.to_bytes(),), getattr(self, "__dict__", None) or None

    def __eq__(self, other: object) -> bool:
        return (
            self.to_bytes() == other.to_bytes() if isinstance(other, ExactSum) else NotImplemented
        )

    def __repr__(self) -> str:
        name = _core.exact_dtype(self._state)
        rounded = self._round(np.float64, False)
        return f"<ExactSum of {self.count} {name} elements: {float(rounded)!r}>"
