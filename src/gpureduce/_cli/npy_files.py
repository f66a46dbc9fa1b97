"""Arrays from .npy files, memory-mapped, or from pipes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy as np

__all__ = ["load", "named_dtype"]


STANDARD_INPUT = "-"


def named_dtype(dtype: str) -> np.dtype[Any]:
    from .._dtypes import native_dtype

    return native_dtype(dtype)


class _Pipe:
    """A file that is read from front to back, for NumPy, which would call ``tell`` of others."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, count: int = -1, /) -> bytes:
        return self.file.read(count)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turn what NumPy raises for a header that is none into one error, which names the file."""
    import numpy as np

    try:
        with np.errstate(over="ignore"):  # of a size that is an error afterwards
            yield
    except (ValueError, TypeError, OverflowError, EOFError, SyntaxError, TokenError) as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    except MemoryError as error:
        raise MemoryError(f"{name} cannot be read: {error}") from None


def _read(name: str, file: BinaryIO) -> np.ndarray[Any, Any]:
    import numpy as np

    with _naming(name):
        array: np.ndarray[Any, Any] = np.lib.format.read_array(_Pipe(file), allow_pickle=False)
    return array


def _map(name: str) -> np.ndarray[Any, Any]:
    import numpy as np

    path = Path(name).resolve()
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ValueError(
                f"{name} is no .npy file. Of numbers in a text file numpy makes one: "
                f"numpy.save('{path.stem}.npy', numpy.loadtxt('{name}'))"
            )
    with _naming(name):
        return np.lib.format.open_memmap(path, mode="r")


def load(name: str) -> tuple[np.ndarray[Any, Any], Path | None]:
    """The array of a .npy file, and the file's path if it is memory-mapped.

    A name of a pipe, a device or ``-``, standard input, is read to the end of the array.

    Raises
    ------
    ValueError
        The file is no .npy file, is truncated, or holds Python objects.
    OSError
        The file cannot be read.
    MemoryError
        The header of a file read through a pipe has a size beyond memory.
    """
    import numpy as np

    from .._dtypes import dtype_of_saved

    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise OSError("standard input is closed")
        array, path = _read("standard input", sys.stdin.buffer), None
    elif Path(name).is_file():
        array, path = _map(name), Path(name)
    else:
        with Path(name).open("rb") as file:
            array, path = _read(name, file), None
    return array.view(dtype_of_saved(array.dtype)).view(np.ndarray), path
