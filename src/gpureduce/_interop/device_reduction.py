"""Reductions of device arrays: NumPy's arguments for arrays that the CPU does not see.

The result is made in the caller's library, on the array's device. Work is queued on the stream that
the array's library works on now, or on `stream`, with that other stream waiting before and after;
the host does not wait, unless `out` is a NumPy array.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from .. import _core
from .._arguments import (
    as_ddof,
    begin_through,
    check_inexact,
    check_mean,
    check_moment_out_dtype,
    check_out_dtype,
    check_shape,
    check_takes_mean,
    check_takes_positions,
    check_variance_dtype,
    real_of,
    start_of,
    type_for_out,
    type_of_fold_into,
    type_of_moment_into,
    warn_of_imaginary_parts,
)
from .._calls import Call, NoValue, Options, warn
from .._core import DeviceArray
from .._dtypes import is_narrow_float, is_numpys, item_bytes, name_of, native_dtype
from .._ufuncs import UFUNCS
from .libraries import (
    LEGACY_STREAM,
    DeviceBuffer,
    Library,
    device_library,
    from_host,
)

EXACT = ("bool", "int", "uint")
"""How names of dtypes without NaN begin."""
NUMBERS = _core.OPERATORS
_MOMENTS = ("mean", "var", "std")
_ROUNDED = ("sum", "prod", *_MOMENTS)
"""Operators whose results are rounded, to a type that `out` has a part in."""

Order = tuple[int, ...] | None
"""Axes of a result from the farthest in memory to the nearest; None: C order."""
Room = Callable[..., "tuple[Any, DeviceArray | np.ndarray[Any, Any]]"]
"""Makes room for a result of a shape, a dtype and an order: what to return, and its memory."""


def reduce_on_device(library: Library, call: Call) -> Any:
    """Carry out a call whose array ``device_library`` found `library` for."""
    op, a, options, axis, dtype, out, keepdims, initial, where, skip_nan, ddof, center, _ = call
    if center is NoValue:
        center = None
    if center is not None:
        check_takes_mean(call)
    if op == "minmax" and (out is not None or initial is not NoValue or where is not True):
        return _minmax(library, call)
    source = library.read(a)
    skip_nan = skip_nan and not source.dtype.startswith(EXACT)
    if op in _MOMENTS:
        shape, most = _core.result_axes(
            NUMBERS[op], source, axis, False, skip_nan, where is not True
        )
        keeps_nothing = isinstance(where, bool | np.bool_) and not where
        # Where nothing is left out, NumPy does not look whether there are results.
        if 0 not in shape or (where is True and not skip_nan):
            _warn_of_too_few(op, 0 if keeps_nothing else most, skip_nan, ddof)
    is_complex = False
    if dtype is not None:
        dtype = library.dtype(dtype)
        dtype_name = name_of(dtype)
        if op in ("var", "std"):
            check_variance_dtype(call.name, source.dtype, dtype_name)
            is_complex = dtype_name.startswith("complex")
        if skip_nan and op in _MOMENTS:
            check_inexact("dtype", dtype_name)
        if source.dtype.startswith("complex"):
            if out is None and dtype_name.startswith(("int", "uint", "float", "bfloat")):
                warn_of_imaginary_parts()
        elif is_complex and skip_nan and center is None:
            warn_of_imaginary_parts()  # of variances, which NumPy divides as real numbers
    usual = initial is NoValue and where is True and center is None and options[-1] is None
    if (
        usual
        and dtype is None
        and type(out) is np.ndarray
        and out.flags.carray
        and not library.lends
        and not (op == "ptp" and source.dtype == "bool")
    ):
        try:
            return _reduce_into(out, op, source, axis, keepdims, options, skip_nan, ddof)
        except _NeedsConversionError:
            pass
    if usual and out is None and not is_complex:

        def room(shape: tuple[int, ...], name: str, order: Order = None) -> tuple[Any, DeviceArray]:
            return library.make(a, source, shape, name, order)

        kernel, device, block, grid, _ = options
        stream = source.stream
        result = _core.reduce_on_device(
            NUMBERS[op], source, axis, dtype, keepdims, None, kernel, device, block, grid, stream,
            skip_nan, ddof, room,
        )  # fmt: skip
        if library.lends:
            assert stream is not None
            _core.keep_loan(source.device, stream, source)
        result = library.finish(a, result)
    else:
        work = Reduction(library, op, a, source, options, skip_nan, ddof)
        result = work.run(call._replace(dtype=dtype, skip_nan=skip_nan, center=center))
    return library.split(result) if op == "minmax" else result


def _warn_of_too_few(op: str, most: int, skip_nan: bool, ddof: Any) -> None:
    """Warn as for host arrays if `most` elements are too few; NaN and masks do not count."""
    if op == "mean" and most == 0:
        warn("Mean of empty slice")
    if op != "mean" and most <= as_ddof(ddof):
        warn("Degrees of freedom <= 0 for slice" + ("." if skip_nan else ""))


class _NeedsConversionError(Exception):
    """What `out` is given is not what the reduction makes."""


def _reduce_into(
    out: np.ndarray[Any, Any],
    op: str,
    source: DeviceArray,
    axis: Any,
    keepdims: Any,
    options: Options,
    skip_nan: bool,
    ddof: float,
) -> Any:
    """Reduce to host memory of the result's own shape and dtype, by the shortest way."""

    def room(
        shape: tuple[int, ...], name: str, order: Order = None
    ) -> tuple[Any, np.ndarray[Any, Any]]:
        if out.shape != shape or out.dtype.name != name or not out.dtype.isnative:
            raise _NeedsConversionError
        return out, out

    kernel, device, block, grid, _ = options
    stream = source.stream
    return _core.reduce_on_device(
        NUMBERS[op], source, axis, None, keepdims, None, kernel, device, block, grid, stream,
        skip_nan, ddof, room,
    )  # fmt: skip


def _minmax(library: Library, call: Call) -> tuple[Any, Any]:
    """Minima, then maxima, where they go to arrays of their own or start from something."""
    outs = (None, None) if call.out is None else call.out
    if not isinstance(outs, tuple) or len(outs) != 2:
        raise TypeError("out= of minmax is a tuple of two arrays, for minima and maxima")
    low, high = (
        reduce_on_device(library, call._replace(op=op, out=out))
        for op, out in zip(("min", "max"), outs, strict=True)
    )
    return low, high


def _ufunc_of(op: str, skip_nan: bool) -> np.ufunc:
    if op == "ptp":
        return np.maximum
    return UFUNCS.get("nan" + op if skip_nan else op, np.add)


class Work:
    """Work on a stream, ordered with what is around it: a context that ends when all is queued."""

    def __init__(self, library: Library, a: Any, source: DeviceArray, options: Options) -> None:
        assert source.stream is not None
        self.library, self.a, self.source = library, a, source
        self.home: int = source.stream
        stream = options[-1]
        self.stream = self.home if stream is None else _core.stream_handle(stream) or LEGACY_STREAM
        self.options: Options = (*options[:4], self.stream)
        self.others: set[int] = set()
        """Other streams that lend or take memory: the work waits for them, and they for it."""
        self.lends: bool = library.lends
        self.lent: list[Any] = [source] if library.lends else []
        self.held: list[Any] = []
        """What lives as long as this object: stream order keeps it from being overwritten."""

    def __enter__(self) -> Work:
        self.join(self.home)
        return self

    def __exit__(self, *_: object) -> None:
        self.part()

    def join(self, stream: int) -> None:
        """Let the work wait for a stream, and in the end the stream for the work."""
        if stream != self.stream and stream not in self.others:
            _core.order_streams(self.source.device, stream, self.stream)
            self.others.add(stream)

    def use(self, memory: DeviceArray, owner: Library | None = None) -> None:
        """Let the work wait for another array of the device, and keep it if it is lent.

        `owner` is its library, if that is not the first array's.
        """
        if memory.stream is not None:
            self.join(memory.stream)
        if self.lends if owner is None else owner.lends:
            self.lent.append(memory)

    def part(self) -> None:
        """Let every stream that lent memory go on only after the work."""
        for stream in self.others:
            _core.order_streams(self.source.device, self.stream, stream)
        if self.lent:
            _core.keep_loan(self.source.device, self.stream, tuple(self.lent))

    def empty(
        self, shape: tuple[int, ...], name: str, order: Order = None
    ) -> tuple[Any, DeviceArray]:
        return self.library.make(self.a, self.source, shape, name, order)

    def scratch(
        self, shape: tuple[int, ...], name: str, order: Order = None
    ) -> tuple[DeviceArray, DeviceArray]:
        """Room for what only this work reads; the result is its memory too."""
        made, memory = self.empty(shape, name, order)
        # Freeing a buffer of the package's own before its turn would wait for the device.
        (self.lent if isinstance(made, DeviceBuffer) else self.held).append(made)
        return memory, memory


def same_memory(
    memory: DeviceArray,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str | None = None,
    offset: int = 0,
) -> DeviceArray:
    """The same memory, from `offset` bytes on, as an array of another shape or dtype.

    Strides None: it is C-contiguous.
    """
    return _core.device_array(
        memory.pointer + offset, shape, strides, dtype or memory.dtype, memory.device,
        memory.stream, memory,
    )  # fmt: skip


def _bits_of(name: str, parts: int) -> str:
    """The signed integers of as many bytes as one of an element's real numbers."""
    return f"int{8 * item_bytes(name) // parts}"


def _as_bits(memory: DeviceArray, bits: str, parts: int) -> DeviceArray:
    """The real numbers of each element, `parts` of them, as integers along a last axis."""
    return same_memory(memory, (*memory.shape, parts), (*memory.strides, item_bytes(bits)), bits)


class Reduction(Work):
    """One reduction with more than usual: `out`, `initial`, `where`, `mean` or `stream`, or a
    complex `dtype` of variances.
    """

    def __init__(
        self,
        library: Library,
        op: str,
        a: Any,
        source: DeviceArray,
        options: Options,
        skip_nan: bool,
        ddof: float,
    ) -> None:
        super().__init__(library, a, source, options)
        self.op, self.skip_nan, self.ddof = op, skip_nan, ddof
        self.mean: DeviceArray | float | complex | None = None
        """What squared distances are from, if that is given."""

    # ---- the pieces

    def reduce(
        self,
        array: DeviceArray,
        axis: Any,
        dtype: Any,
        keepdims: Any,
        mask: Any,
        room: Room,
        start: bytes | None = None,
    ) -> Any:
        number, skip = NUMBERS[self.op], self.skip_nan
        kernel, device, block, grid, stream = self.options
        return _core.reduce_on_device(
            number, array, axis, dtype, keepdims, mask, kernel, device, block, grid, stream,
            skip, self.ddof, room, self.mean, start,
        )  # fmt: skip

    def mask(self, where: Any) -> DeviceArray | None:
        if where is True or where is np.True_:
            return None
        library = device_library(where)
        if library is None:
            if not isinstance(where, (bool, np.bool_)):
                raise TypeError(
                    "where= of a device array must be one too, on the same device, not "
                    f"{type(where).__name__}"
                )
            nothing = DeviceBuffer((), "bool", self.source.device, self.stream)
            _core.fill_device(nothing.memory, bytes(1), self.stream)
            self.lent.append(nothing)
            return nothing.memory
        memory = library.read(where)
        if memory.device == self.source.device:  # else the core refuses it
            self.use(memory, library)
        return memory

    def take_mean(self, given: Any, kept: tuple[int, ...]) -> str | None:
        """Find where a given mean is; the name of its dtype, None for a number of Python's."""
        element = self.source.dtype
        library = device_library(given)
        if library is not None:
            return self.take_device_mean(library, given, kept)
        if isinstance(given, int | float | complex) and not isinstance(given, np.generic):
            check_mean((), isinstance(given, complex), kept, element)
            self.mean = given if isinstance(given, complex) else float(given)
            return None
        values = from_host(given)
        if values.dtype.name not in _core.DTYPES:
            raise TypeError(f"mean of dtype {values.dtype} is not supported: it must be of numbers")
        is_complex = values.dtype.kind == "c"
        check_mean(values.shape, is_complex, kept, element)
        # A copy of our own.
        wide = np.array(values, np.complex128 if is_complex else np.float64, order="C")
        if wide.size > 1:
            self.mean, _ = self.scratch(wide.shape, wide.dtype.name)
            _core.queue_upload(self.mean, wide, self.stream)
            self.lent.append(wide)
        else:
            self.mean = wide.item() if wide.size == 1 else 0.0  # no result depends on it
        return str(values.dtype.name)

    def take_device_mean(self, library: Library, given: Any, kept: tuple[int, ...]) -> str:
        if library.name != self.library.name and not isinstance(given, DeviceBuffer):
            raise TypeError(
                f"the array is of {self.library.name} and mean= of {library.name}: they must be of "
                "one library"
            )
        memory = library.read(given)
        if memory.device != self.source.device:
            raise TypeError(
                f'the array is on device "cuda:{self.source.device}" and mean= on '
                f'"cuda:{memory.device}": they must be on one'
            )
        check_mean(memory.shape, memory.dtype.startswith("complex"), kept, self.source.dtype)
        self.use(memory, library)
        self.mean = memory
        return memory.dtype

    def result_axes(
        self, axis: Any, keepdims: Any, masked: bool = False
    ) -> tuple[tuple[int, ...], int]:
        """Find the shape of the result, and the number of elements that make one of it."""
        return _core.result_axes(
            NUMBERS[self.op], self.source, axis, keepdims, self.skip_nan, masked
        )

    # ---- the whole

    def run(self, call: Call) -> Any:
        axis, keepdims, mean, dtype = call.axis, call.keepdims, call.center, call.dtype
        ufunc = _ufunc_of(self.op, self.skip_nan)
        self.has_start = call.initial is not NoValue and call.initial is not None
        if (
            call.where is not True
            and not self.has_start
            and (call.initial is None or ufunc.identity is None)
        ):
            raise ValueError(
                f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a "
                "where mask one has to specify 'initial'"
            )
        target = None if call.out is None else Out(self, ufunc.__name__, call.out)
        self.read_truths_as_numbers(target)
        kept, most = self.result_axes(axis, True, call.where is not True)
        is_of_nothing = most == 0
        if call.initial is None and is_of_nothing and math.prod(kept) > 0:
            raise ValueError(
                f"zero-size array to reduction operation {ufunc.__name__} which has no identity"
            )
        if target is not None:
            target.check_dtype(ufunc, self.skip_nan, dtype)
        if target is not None and dtype is None and self.op in _ROUNDED:
            dtype = target.resolve(ufunc)
        room: Room = self.empty if target is None else target.room
        is_complex = self.op in _MOMENTS and dtype is not None and name_of(dtype)[0] == "c"
        if is_complex and self.op != "mean":
            if target is None:
                room = functools.partial(self.complex_room, name_of(dtype))
            if not self.source.dtype.startswith("complex"):
                dtype = real_of(np.dtype(dtype)).name
        self.join(self.home)
        mask = self.mask(call.where)
        if mean is not None:
            of_mean = self.take_mean(mean, kept)
            # NumPy's nan functions keep the floats they know.
            widens = not self.skip_nan or not is_numpys(self.source.dtype)
            if dtype is None and widens:
                dtype = _dtype_given_mean(self.source.dtype, of_mean)
        try:
            if target is not None:
                call = self.convert_for(call, ufunc, target, is_of_nothing)
            start = self.start_of(call._replace(dtype=dtype), ufunc, target)
            negative = self.negative_zeros(call.initial, start, dtype)
            if any(negative) and 0 not in kept and not is_of_nothing:
                result = self.from_minus_zero(axis, dtype, keepdims, mask, negative, room)
            elif any(negative) and is_of_nothing:
                shape, _ = self.result_axes(axis, keepdims)
                name = self.source.dtype if dtype is None else name_of(dtype)
                result = self.only_start(shape, name, start, room)
            elif start is None:
                result = self.reduce(self.source, axis, dtype, keepdims, mask, room)
            elif is_of_nothing and ufunc.identity is None:
                shape, _ = self.result_axes(axis, keepdims)
                result = self.only_start(shape, self.source.dtype, start, room)
            else:
                result = self.with_start(axis, dtype, keepdims, mask, start, room)
        finally:
            self.part()
        return self.library.finish(self.a, result) if target is None else target.finish(result)

    def read_truths_as_numbers(self, target: Out | None) -> None:
        """Let ``ptp`` subtract truths where ``out`` is of numbers, as NumPy does."""
        source = self.source
        into_numbers = target is not None and target.dtype != "bool"
        if self.op == "ptp" and source.dtype == "bool" and into_numbers:
            self.source = same_memory(source, source.shape, source.strides, "uint8")

    def convert_for(self, call: Call, ufunc: np.ufunc, target: Out, is_of_nothing: bool) -> Call:
        """Read elements of the type that NumPy reduces in for this ``out``, if that matters.

        A product of one element is the element, converted.
        """
        source = self.source
        if not (is_numpys(target.dtype) and is_numpys(source.dtype)):
            return call
        out, element = np.dtype(target.dtype), np.dtype(source.dtype)
        call = begin_through(call, out, element)
        inner = type_for_out(call, ufunc, out, element, is_of_nothing)
        if inner is not None and inner != element:
            alone = same_memory(source, (*source.shape, 1), (*source.strides, 0))
            self.source = _core.reduce_on_device(
                NUMBERS["prod"], alone, -1, inner, False, None, *self.options, False, 0,
                lambda shape, name, _order=None: self.scratch(shape, name),
            )  # fmt: skip
        return call

    def start_of(self, call: Call, ufunc: np.ufunc, target: Out | None) -> Any:
        """What the fold begins with besides its identity, as NumPy converts it; None: nothing."""
        if call.initial is NoValue or call.initial is None:
            return None
        out = None if target is None else target.dtype
        if not all(is_numpys(name_of(one)) for one in (self.source.dtype, call.dtype, out) if one):
            return call.initial
        return start_of(
            call._replace(
                array=np.empty(0, self.source.dtype), out=None if out is None else np.empty(0, out)
            ),
            ufunc,
        )

    def gives_rows_starts(self) -> bool:
        """Whether the kernel takes a start as one more element of each row."""
        return self.op in ("min", "max") and self.options[0] in ("auto", "fast")

    def with_start(
        self, axis: Any, dtype: Any, keepdims: Any, mask: Any, initial: Any, room: Room
    ) -> Any:
        """Let rows have the start as an element; or, where the kernel cannot, reduce to the first
        half of a pair whose other half is the start, then the pair.
        """
        if self.gives_rows_starts():
            element = np.empty((), native_dtype(self.source.dtype))
            element[()] = initial
            return self.reduce(self.source, axis, dtype, keepdims, mask, room, element.tobytes())
        pairs: list[DeviceArray] = []

        def first(
            shape: tuple[int, ...], name: str, order: Order = None
        ) -> tuple[Any, DeviceArray]:
            inner = None if order is None else (0, *(axis + 1 for axis in order))
            pair, _ = self.scratch((2, *shape), name, inner)
            pairs.append(pair)
            return pair, self.half(pair, 0)

        name = self.source.dtype if dtype is None else name_of(dtype)
        # An exact sum of narrow floats is rounded after the start was added.
        widens = (
            self.op == "sum"
            and self.options[0] in ("auto", "exact")
            and is_narrow_float(name)
            and is_narrow_float(self.source.dtype)
        )
        self.reduce(self.source, axis, np.float64 if widens else dtype, keepdims, mask, first)
        (pair,) = pairs
        start = np.asarray(initial).astype(native_dtype(name)) if widens else initial
        self.fill(self.half(pair, 1, in_order=False), start)
        if self.op not in ("min", "max"):
            self.skip_nan = False  # sums and products of what is left count like any other number
        compute = pair.dtype if self.op in ("sum", "prod") else None  # of min and max their own
        compute = name if widens else compute
        return self.reduce(pair, 0, compute, False, None, room)

    # ---- sums that begin with -0.0

    def negative_zeros(self, initial: Any, start: Any, dtype: Any) -> tuple[bool, ...]:
        """Whether the real part of a sum, and the imaginary one if it has one, is -0.0 where all
        elements' are: what it begins with decides.
        """
        element = self.source.dtype
        name = element if dtype is None else name_of(dtype)
        if self.op != "sum" or element.startswith(EXACT) or name.startswith(EXACT):
            return (False,)
        parts = 2 if name.startswith("complex") else 1
        if initial is None:  # real elements have imaginary parts of 0.0
            return (True, element.startswith("complex"))[:parts]
        if start is None or start != 0:
            return (False,)
        value = complex(start)
        return tuple(math.copysign(1, part) < 0 for part in (value.real, value.imag))[:parts]

    def from_minus_zero(
        self,
        axis: Any,
        dtype: Any,
        keepdims: Any,
        mask: DeviceArray | None,
        negative: tuple[bool, ...],
        room: Room,
    ) -> Any:
        """Sum rows that come to -0.0, in the parts that `negative` names, if they have no other
        elements.

        The device's sums begin with 0.0. A pass over the bits of the elements, as integers, finds
        whether all are -0.0, which is the least integer; small launches make this the sign of the
        sum.
        """
        first: list[Any] = []

        def in_triple(
            shape: tuple[int, ...], name: str, order: Order = None
        ) -> tuple[Any, DeviceArray]:
            inner = None if order is None else (0, *(axis + 1 for axis in order))
            triple, _ = self.scratch((3, *shape), name, inner)
            first.extend((triple, shape, name, order))
            return triple, self.half(triple, 0)

        self.reduce(self.source, axis, dtype, keepdims, mask, in_triple)
        triple, shape, name, order = first
        parts = len(negative)
        bits = _bits_of(name, parts)
        self.find_signs(axis, keepdims, mask, negative, triple, order)
        made, memory = room(shape, name, order)
        if isinstance(memory, np.ndarray):
            real = np.lib.stride_tricks.as_strided(
                memory.real if parts > 1 else memory,
                (*shape, parts), (*memory.strides, item_bytes(bits)),
            )  # fmt: skip
            self.fold("bitwise_xor", _as_bits(triple, bits, parts), 0, None, real.view(bits))
        else:
            self.fold(
                "bitwise_xor", _as_bits(triple, bits, parts), 0, None,
                _as_bits(memory, bits, parts),
            )  # fmt: skip
        return made

    def find_signs(
        self,
        axis: Any,
        keepdims: Any,
        mask: DeviceArray | None,
        negative: tuple[bool, ...],
        triple: DeviceArray,
        order: Order,
    ) -> None:
        """Write two numbers behind the sum in each triple: by exclusive or they come to the sign's
        bit, the least integer, where all elements are -0.0, and to 0 elsewhere.
        """
        source, shape, parts = self.source, triple.shape[1:], len(negative)
        own = min(parts, 2 if source.dtype.startswith("complex") else 1)
        from_bits = _bits_of(source.dtype, 2 if source.dtype.startswith("complex") else 1)
        bits = _bits_of(triple.dtype, parts)
        axes = tuple(range(len(source.shape)))
        if axis is not None and len(source.shape) > 0:
            axes = normalize_axis_tuple(axis, len(source.shape))
        if mask is not None:
            mask = same_memory(mask, (*mask.shape, 1), (*mask.strides, 0))
        inner = None if order is None else (0, *(i + 1 for i in order), len(shape) + 1)
        pair, _ = self.scratch((2, *shape, own), from_bits, inner)
        factors, _ = self.scratch((2, *shape, own), bits, inner)
        least, sign = (int(np.iinfo(name).min) for name in (from_bits, bits))
        # The largest is the least integer or, as the smaller of it and the next one, that: their
        # last bits differ.
        self.fold("max", _as_bits(source, from_bits, own), axes, mask, self.half(pair, 0), keepdims)
        self.fill(self.half(pair, 1, in_order=False), least + 1)
        lesser, _ = self.scratch((*shape, own), from_bits, None if inner is None else
                                 tuple(i - 1 for i in inner[1:]))  # fmt: skip
        self.fold("min", pair, 0, None, lesser)
        if self.skip_nan and own > 1:
            places = self.find_left_out(axes, keepdims, mask, pair)
            both, _ = self.scratch((2, *shape, own), bits, inner)
            self.fold("sum", lesser, (), None, self.half(both, 0), dtype=bits)
            self.fold("sum", places, (), None, self.half(both, 1), dtype=bits)
            self.fold("bitwise_or", both, 0, None, self.half(factors, 0))
        else:
            self.fold("sum", lesser, (), None, self.half(factors, 0), dtype=bits)
        # The last bit times the sign's bit is the opposite of what is wanted.
        signs = np.array([sign if is_negative else 0 for is_negative in negative], bits)
        self.fill_pattern(self.half(factors, 1), signs[:own])
        self.fill_pattern(self.half(triple, 1), np.zeros(parts, bits))
        self.fill_pattern(self.half(triple, 2), signs)
        self.fold("prod", factors, 0, None, _as_bits(self.half(triple, 1), bits, own))

    def find_left_out(
        self, axes: tuple[int, ...], keepdims: Any, mask: DeviceArray | None, like: DeviceArray
    ) -> DeviceArray:
        """1 for each part of rows of which the other part has NaN, else 0: NumPy's sums take an
        element that is left out as 0.0 in both parts. `like` has the shape of a pair of results.
        """
        real = f"float{8 * item_bytes(like.dtype)}"
        pair, _ = self.scratch(like.shape, real)
        self.fold("max", _as_bits(self.source, real, 2), axes, mask, self.half(pair, 1), keepdims)
        self.fill(self.half(pair, 0, in_order=False), math.inf)
        places, _ = self.scratch(like.shape[1:], "int64")
        self.fold("argmax", pair, 0, None, places)  # NaN is preferred, and else the first one
        step = item_bytes(places.dtype)
        return same_memory(places, places.shape, (*places.strides[:-1], -step), offset=step)

    def fold(
        self,
        op: str,
        array: DeviceArray,
        axis: Any,
        mask: DeviceArray | None,
        into: DeviceArray | np.ndarray[Any, Any],
        keepdims: Any = False,
        dtype: str | None = None,
    ) -> None:
        """Reduce one array of the work's own to memory that is there."""
        if op in ("sum", "prod"):
            dtype = dtype or array.dtype
        _core.reduce_on_device(
            NUMBERS[op], array, axis, dtype, keepdims, mask, "fast", self.options[1], None, None,
            self.stream, False, 0.0, lambda _shape, _name, _order=None: (into, into),
        )  # fmt: skip

    def fill_pattern(self, memory: DeviceArray, pattern: np.ndarray[Any, Any]) -> None:
        """Fill memory without gaps by numbers that come again and again."""
        size = math.prod(memory.shape) * item_bytes(memory.dtype) // pattern.nbytes
        name = {2: "int16", 4: "int32", 8: "int64", 16: "complex128"}[pattern.nbytes]
        flat = same_memory(memory, (size,), None, name)
        _core.fill_device(flat, pattern.tobytes(), self.stream)

    def complex_room(
        self, complex_name: str, shape: tuple[int, ...], name: str, order: Order = None
    ) -> tuple[Any, DeviceArray]:
        """Room for complex results, of which the real parts are still to be written."""
        made, memory = self.empty(shape, complex_name, order)
        size = math.prod(shape)
        self.fill(same_memory(memory, (size,), None), 0)
        return made, same_memory(memory, shape, memory.strides, name)

    def half(self, pair: DeviceArray, which: int, in_order: bool = True) -> DeviceArray:
        """One half, which is contiguous; not in its order but in C order if all are alike."""
        shape, strides = pair.shape[1:], pair.strides[1:] if in_order else None
        offset = which * math.prod(shape) * item_bytes(pair.dtype)
        return same_memory(pair, shape, strides, offset=offset)

    def fill(self, memory: DeviceArray, value: Any) -> None:
        if 0 in memory.shape:
            return
        start = np.empty((), native_dtype(memory.dtype))
        start[()] = value
        _core.fill_device(memory, start.tobytes(), self.stream)

    def only_start(self, shape: tuple[int, ...], name: str, initial: Any, room: Room) -> Any:
        """A reduction of nothing that has a start but no identity."""
        result, memory = room(shape, name)
        if isinstance(memory, np.ndarray):
            memory[()] = initial
        else:
            self.fill(memory, initial)
        return result


def _dtype_given_mean(element: str, mean: str | None) -> str | None:
    """Type of a variance about a mean, by NumPy's rule; None: what it is without one."""
    if mean in (None, element) or element.startswith(EXACT):
        return None
    assert mean is not None
    if is_numpys(element) and is_numpys(mean):
        return np.result_type(element, mean).name
    other = element if is_numpys(element) else mean
    if other in ("bool", "int8", "uint8"):
        return None
    if other in ("float32", "float64", "complex64", "complex128"):
        return other
    raise TypeError(
        f"elements of dtype {element} and a mean of dtype {mean} have no dtype in common: pass "
        "dtype="
    )


class Out:
    """Where the caller wants the result."""

    def __init__(self, call: Reduction, name: str, out: Any) -> None:
        self.call, self.name, self.out = call, name, out
        self.library: Library | None = None
        self.memory: DeviceArray | np.ndarray[Any, Any]
        self.result: Any = None
        """What holds the result until it is converted into `out`; None if `out` itself does."""
        if isinstance(out, np.ndarray):
            if not out.flags.writeable:
                raise ValueError("output array is read-only")
            self.memory = out
            return
        self.library = device_library(out)
        if self.library is None:
            raise TypeError(
                f"out= of a device array must be an array of {call.library.name} on the same "
                f"device, or a NumPy array for a result on the host, not {type(out).__name__}"
            )
        if not self.library.writes:
            raise TypeError(
                f"out= cannot be an array of {self.library.name}: they are never written"
            )
        if self.library is not call.library:
            raise TypeError(
                f"the array is of {call.library.name} and out= of {self.library.name}: they must "
                "be of one library"
            )
        self.memory = self.library.read(out)
        if self.memory.read_only:
            raise ValueError("output array is read-only")
        if self.memory.device != call.source.device:
            raise ValueError(
                f'the array is on device "cuda:{call.source.device}" and out= on '
                f'"cuda:{self.memory.device}"'
            )
        call.use(self.memory)

    @property
    def dtype(self) -> str:
        """Name of the dtype, whatever its byte order."""
        memory = self.memory
        return memory.dtype.name if isinstance(memory, np.ndarray) else memory.dtype

    def check_dtype(self, ufunc: np.ufunc, skip_nan: bool, dtype: Any) -> None:
        """Refuse what NumPy does not convert results to."""
        op, source = self.call.op, self.call.source.dtype
        if skip_nan and op in _MOMENTS:
            check_inexact("out", self.dtype)
        if op in ("argmin", "argmax"):
            check_takes_positions(self.dtype)
            return
        if not (is_numpys(self.dtype) and is_numpys(source)):
            return
        out, elements = np.dtype(self.dtype), np.dtype(source)
        asked = np.bool_ if op in ("any", "all") else dtype
        if asked is not None and not is_numpys(name_of(asked)):
            asked = None
        if op in _MOMENTS:
            check_moment_out_dtype(op, out, elements, asked, skip_nan)
            return
        check_out_dtype(out, ufunc, elements, asked)
        if op == "ptp":
            np.subtract(np.empty(0, out), np.empty(0, elements), np.empty(0, out))

    def resolve(self, ufunc: np.ufunc) -> Any:
        """The type of a sum into `out`, by NumPy's rule; means and variances are rounded to it."""
        own, source = self.dtype, self.call.source.dtype
        if self.call.op in _MOMENTS:
            return type_of_moment_into(own, source)
        if not (is_numpys(own) and is_numpys(source)):
            return None
        return type_of_fold_into(ufunc, np.dtype(own), np.dtype(source))

    def room(
        self, shape: tuple[int, ...], name: str, order: Order = None
    ) -> tuple[Any, DeviceArray | np.ndarray[Any, Any]]:
        """`out` itself if the result is of its type, else memory for the result to convert."""
        memory = self.memory
        check_shape(memory.shape, shape, self.name)
        # A difference of signed integers that wraps is right as an unsigned one, also when that is
        # converted to a wider type, in which NumPy subtracts.
        is_unsigned = self.call.op == "ptp" and name.startswith("int") and self.dtype != name
        made = "u" + name if is_unsigned else name
        if isinstance(memory, np.ndarray):
            if memory.dtype == native_dtype(name) and memory.flags.behaved:
                return self.out, memory
            self.result = np.empty(shape, native_dtype(made))
            return self.out, self.result.view(native_dtype(name))
        if memory.dtype == name and not self.is_read(memory):
            return self.out, memory
        assert self.library is not None
        if not self.library.converts:
            raise TypeError(
                f"out= must have the result's dtype, {name}, and no memory in common with what is "
                f"read: {self.library.name} has no conversion on the device"
            )
        self.result, held = self.call.empty(shape, made)
        return self.out, same_memory(held, shape, held.strides, name)

    def is_read(self, memory: DeviceArray) -> bool:
        """Whether the work reads what it would write there."""
        mean = self.call.mean
        read = [self.call.source, mean] if isinstance(mean, DeviceArray) else [self.call.source]
        return any(_core.may_overlap(memory, one) for one in read)

    def finish(self, out: Any) -> Any:
        """Convert what is not in `out` yet."""
        if self.library is None:
            if self.result is not None:
                with np.errstate(all="ignore"):  # of NaN that become integers
                    np.copyto(out, self.result, casting="unsafe")
            return out
        if self.result is not None:
            self.library.assign(out, self.library.finish(self.call.a, self.result))
        if self.library.lends:  # its users do not wait for our stream
            _core.mark_wait(_core.mark_stream(self.call.source.device, self.call.stream))
        return out
