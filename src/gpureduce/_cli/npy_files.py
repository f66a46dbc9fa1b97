"""Arrays from .npy files, memory-mapped, or from pipes."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
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

    def __init__(self, file: BinaryIO, begun: bytes) -> None:
        self.file, self.begun = file, begun

    def read(self, count: int = -1, /) -> bytes:
        """Bytes of what was read already, then of the file."""
        if not self.begun:
            return self.file.read(count)
        begun = self.begun if count < 0 else self.begun[:count]
        self.begun = self.begun[len(begun) :]
        return begun + (self.file.read() if count < 0 else b"")


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

    begun = file.read(len(np.lib.format.MAGIC_PREFIX))
    if begun != np.lib.format.MAGIC_PREFIX:
        what = "is no .npy file" if begun else "is empty"
        raise ValueError(f"{name} {what}: a .npy file is expected, as numpy.save writes one")
    with _naming(name):
        pipe = _Pipe(file, begun)
        array: np.ndarray[Any, Any] = np.lib.format.read_array(pipe, allow_pickle=False)
    return array


def _map(name: str) -> np.ndarray[Any, Any]:
    import numpy as np

    path = Path(name).resolve()
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            from .other_files import what_to_do

            raise ValueError(f"{name} is no .npy file{what_to_do(Path(name))}")
    with _naming(name):
        return np.lib.format.open_memmap(path, mode="r")


def _near(name: str) -> str:
    """The end of an error of a file that does not exist: a .npy file of a similar name."""
    path = Path(name)
    there = sorted(each.name for each in path.parent.glob("*.npy"))
    near = [f"{path.name}.npy"] if f"{path.name}.npy" in there else []
    near = near or difflib.get_close_matches(path.name, there, n=1)
    return f" (did you mean {path.with_name(near[0])}?)" if near else ""


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
    elif not Path(name).exists():
        raise FileNotFoundError(errno.ENOENT, f"{os.strerror(errno.ENOENT)}{_near(name)}", name)
    elif Path(name).is_file():
        array, path = _map(name), Path(name)
    else:
        with Path(name).open("rb") as file:
            array, path = _read(name, file), None
    return array.view(dtype_of_saved(array.dtype)).view(np.ndarray), path
