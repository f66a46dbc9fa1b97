"""Arrays from .npy files, memory-mapped, or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["load", "named_dtype"]


STANDARD_INPUT = "-"


def named_dtype(dtype: str) -> np.dtype[Any]:
    from .._dtypes import native_dtype

    return native_dtype(dtype)


class _Pipe:
    """Standard input for NumPy, which would call ``tell`` of a file object."""

    def read(self, count: int = -1, /) -> bytes:
        return sys.stdin.buffer.read(count)


def load(name: str) -> tuple[np.ndarray[Any, Any], Path | None]:
    """The array of a .npy file, memory-mapped, and the file's path; or the array on standard input.

    Raises
    ------
    ValueError
        The file is no .npy file, is truncated, or holds Python objects.
    OSError
        The file cannot be read.
    """
    import numpy as np

    if name == STANDARD_INPUT:
        return np.lib.format.read_array(_Pipe(), allow_pickle=False), None
    path = Path(name).resolve()
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"{name} is no .npy file: save arrays by numpy.save")
    array: np.ndarray[Any, Any]
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        if "mmap" not in str(error) and "empty" not in str(error):
            raise ValueError(f"{name}: {error}") from None
        with path.open("rb") as file:  # an empty array cannot be mapped
            array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == 2:
        # numpy.save writes bfloat16 as two bytes of no type.
        array = array.view(named_dtype("bfloat16"))
    return array.view(np.ndarray), path
