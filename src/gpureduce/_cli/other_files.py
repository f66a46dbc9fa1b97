"""Files that are no .npy files: what they are, and the line of Python that makes one of them."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["what_to_do"]

_LOOKED_AT = 1 << 16
"""Bytes of a text file that are looked at."""
_SEPARATORS = (None, ",", ";", "\t")
"""What may be between the numbers of a line; ``None`` is any white space."""
_MOST_HEADINGS = 1
"""Lines above the numbers."""
_MOST_NAMES = 6


def what_to_do(path: Path) -> str:
    """The end of an error about a file that is no .npy file.

    Parameters
    ----------
    path : pathlib.Path
        A regular file.

    Returns
    -------
    str
        What the file is, and a line of Python that writes its numbers to a .npy file; the line was
        tried on the beginning of a text file.
    """
    if path.stat().st_size == 0:
        return ": it is empty"
    if zipfile.is_zipfile(path):
        return _of_archive(path)
    with path.open("rb") as file:
        begun = file.read(_LOOKED_AT)
    try:
        whole = begun if len(begun) < _LOOKED_AT else begun[: begun.rfind(b"\n") + 1]
        text = whole.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return ", nor a text file: numpy.save writes a .npy file of an array"
    for call in _readings(path, text):
        return f"; in Python, this makes one of it: {_saving(path, call)}"
    return (
        ", but a text file in which NumPy finds no table of numbers: numpy.save writes a .npy file "
        "of an array"
    )


def _saving(path: Path, array: str) -> str:
    is_other = path.suffix != ".npy"  # else the file would be replaced
    target = path.with_suffix(".npy") if is_other else path.with_name(f"{path.stem}-array.npy")
    return f"import numpy; numpy.save({str(target)!r}, {array})"


def _of_archive(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
    if not names:
        return ", but an archive without arrays"
    listed = ", ".join(names[:_MOST_NAMES]) + " ..." * (len(names) > _MOST_NAMES)
    line = _saving(path, f"numpy.load({str(path)!r})[{names[0]!r}]")
    if len(names) == 1:
        return f", but a .npz file; in Python, this makes one of it: {line}"
    return (
        f", but a .npz file of the arrays {listed}; in Python, this makes one of the first: {line}"
    )


def _readings(path: Path, text: str) -> Iterator[str]:
    """Calls of NumPy that read the numbers of a text: all of them, with gaps as NaN, or those of
    some columns.
    """
    for function, heading in (("loadtxt", "skiprows"), ("genfromtxt", "skip_header")):
        for separator in _SEPARATORS:
            for above in range(_MOST_HEADINGS + 1):
                options: dict[str, Any] = {} if separator is None else {"delimiter": separator}
                options |= {heading: above} if above else {}
                table = _read(function, text, options)
                if table is None or np.isnan(table[0]).all():
                    continue
                columns = np.flatnonzero(2 * np.isnan(table).sum(axis=0) < len(table)).tolist()
                if not columns:
                    continue
                options |= {"usecols": columns} if len(columns) < table.shape[1] else {}
                given = "".join(f", {name}={value!r}" for name, value in options.items())
                yield f"numpy.{function}({str(path)!r}{given})"


def _read(function: str, text: str, options: dict[str, Any]) -> np.ndarray[Any, Any] | None:
    """The table of a text; ``None`` if NumPy cannot read it so, or not without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = getattr(np, function)(io.StringIO(text), ndmin=2, **options)
        except (ValueError, UserWarning, IndexError):
            return None
    return found if found.size else None
