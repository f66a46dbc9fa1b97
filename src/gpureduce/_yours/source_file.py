"""Files with a user's CUDA C++ or Python."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from .. import _core

__all__ = ["read_source"]

_CUTOFF = 0.8
"""Likeness of names that may be meant for each other, of 1."""


def read_source(path: str | os.PathLike[str]) -> str:
    """The text of a file.

    Raises
    ------
    FileNotFoundError
        There is none, or it is a folder; the message says what to do.
    ValueError
        The file is no text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(f"No such file: {path}{_advice(Path(path))}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no source code, since it is not text in UTF-8") from error


def _advice(path: Path) -> str:
    """What may have been meant."""
    names = {word for row in _core.kernels() for word in (row["name"], *row["aliases"].split())}
    if str(path) in names:
        return (
            f": {path} is a kernel of the catalogue, which `gpureduce explain {path}` shows; "
            f"`gpureduce kernels --export {path} > mine.cu` writes it as a file"
        )
    if path.is_dir():
        return ", it is a folder"
    here = [each.name for each in path.parent.glob(f"*{path.suffix}")] if path.suffix else []
    near = difflib.get_close_matches(path.name, here, n=1, cutoff=_CUTOFF)
    return f"; did you mean {path.with_name(near[0])}?" if near else ""
