"""Signatures of the reductions for type checkers, one for each list of arguments.

Host arrays: a scalar where all axes are reduced and none is kept; an array where all are kept; what
``out`` is. With an axis it depends on the number of dimensions, which types do not tell, as they do
not tell fields of structured arrays. Device arrays: an array of their own kind.
"""

from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._kernel_names import KernelName
from ._records import MinMax

Axis = int | tuple[int, ...] | None

class DeviceArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class OwnKernel(Protocol):
    # gpureduce.Kernel
    def reduce_call(self, call: Any) -> Any: ...

class OwnOperator(Protocol):
    # gpureduce.Operator
    @property
    def name(self) -> str: ...
    def reduce_array(self, call: Any) -> Any: ...

class Options(TypedDict, total=False):
    kernel: KernelName | OwnKernel
    device: str | None
    block_size: int | None
    grid_size: int | None
    stream: Any

class Masked(Options, total=False):
    where: ArrayLike

class Started(Masked, total=False):
    initial: Any

class Varied(Masked, total=False):
    mean: Any
    correction: Any

_Device = TypeVar("_Device", bound=DeviceArray)
_Out = TypeVar("_Out", bound=NDArray[Any])
_Scalar = TypeVar("_Scalar", bound=np.generic)
_Inexact = TypeVar("_Inexact", bound=np.inexact[Any])

class Accumulation(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: _Device | None = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: Axis = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        *,
        out: _Out,
        keepdims: bool = False,
        **rest: Unpack[Started],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: NDArray[_Inexact],
        axis: None = None,
        dtype: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> _Inexact: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> np.number[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        *,
        keepdims: Literal[True],
        **rest: Unpack[Started],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> Any: ...

class Extreme(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: Axis = None,
        out: _Device | None = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        *,
        out: _Out,
        keepdims: bool = False,
        **rest: Unpack[Started],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: NDArray[_Scalar],
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> _Scalar: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        out: None = None,
        *,
        keepdims: Literal[True],
        **rest: Unpack[Started],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> Any: ...

class Truth(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: Axis = None,
        out: _Device | None = None,
        keepdims: bool = False,
        **rest: Unpack[Masked],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: Axis = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        *,
        out: _Out,
        keepdims: bool = False,
        **rest: Unpack[Masked],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        **rest: Unpack[Masked],
    ) -> np.bool: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        out: None = None,
        *,
        keepdims: Literal[True],
        **rest: Unpack[Masked],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        **rest: Unpack[Masked],
    ) -> Any: ...

class Mean(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: _Device | None = None,
        keepdims: bool = False,
        **rest: Unpack[Masked],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: Axis = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        *,
        out: _Out,
        keepdims: bool = False,
        **rest: Unpack[Masked],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: NDArray[_Inexact],
        axis: None = None,
        dtype: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        **rest: Unpack[Masked],
    ) -> _Inexact: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        **rest: Unpack[Masked],
    ) -> np.number[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        *,
        keepdims: Literal[True],
        **rest: Unpack[Masked],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        **rest: Unpack[Masked],
    ) -> Any: ...

class Variance(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: _Device | None = None,
        ddof: float = 0,
        keepdims: bool = False,
        **rest: Unpack[Varied],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: Axis = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        *,
        out: _Out,
        ddof: float = 0,
        keepdims: bool = False,
        **rest: Unpack[Varied],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: float = 0,
        keepdims: Literal[False] = False,
        **rest: Unpack[Varied],
    ) -> np.inexact[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: float = 0,
        *,
        keepdims: Literal[True],
        **rest: Unpack[Varied],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        **rest: Unpack[Varied],
    ) -> Any: ...

class Position(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: int | None = None,
        out: _Device | None = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: int | None = None,
        *,
        out: _Out,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: int | None = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        out: None = None,
        *,
        keepdims: Literal[False] = False,
        **options: Unpack[Options],
    ) -> np.intp: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: int | None = None,
        out: None = None,
        *,
        keepdims: Literal[True],
        **options: Unpack[Options],
    ) -> NDArray[np.intp]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: int | None = None,
        out: Any = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...

class Span(Protocol):
    @overload
    def __call__(
        self,
        a: _Device,
        axis: Axis = None,
        out: _Device | None = None,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: Axis = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        *,
        out: _Out,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> _Out: ...
    @overload
    def __call__(
        self,
        a: NDArray[_Inexact],
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        **options: Unpack[Options],
    ) -> _Inexact: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        out: None = None,
        keepdims: Literal[False] = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        out: None = None,
        *,
        keepdims: Literal[True],
        **options: Unpack[Options],
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        out: Any = None,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...

class Count(Protocol):
    @overload
    def __call__(
        self, a: _Device, axis: Axis = None, *, keepdims: bool = False, **options: Unpack[Options]
    ) -> _Device: ...
    @overload
    def __call__(
        self,
        a: NDArray[np.void],
        axis: Axis = None,
        *,
        keepdims: bool = False,
        **options: Unpack[Options],
    ) -> Any: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: None = None,
        *,
        keepdims: Literal[False] = False,
        **options: Unpack[Options],
    ) -> np.intp: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        axis: Axis = None,
        *,
        keepdims: Literal[True],
        **options: Unpack[Options],
    ) -> NDArray[np.intp]: ...
    @overload
    def __call__(
        self, a: ArrayLike, axis: Axis = None, *, keepdims: bool = False, **options: Unpack[Options]
    ) -> Any: ...

class Pair(Protocol):
    def __call__(
        self,
        a: ArrayLike | DeviceArray,
        axis: Axis = None,
        out: tuple[Any, Any] | None = None,
        keepdims: bool = False,
        initial: Any = ...,
        where: ArrayLike = True,
        **options: Unpack[Options],
    ) -> MinMax: ...
