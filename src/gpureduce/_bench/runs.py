"""Files of saved comparisons: ``.gpureduce/NAME.json`` in the current folder, or any ``.json``."""

from __future__ import annotations

import difflib
import errno
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["check_to_save", "load_run", "save_run"]

FOLDER, ENDING = Path(".gpureduce"), ".json"


def check_name(name: str | os.PathLike[str]) -> Path:
    """The file that a run of this name is saved in.

    Parameters
    ----------
    name : str or path
        A name, or a path that ends with ``.json``.

    Raises
    ------
    ValueError
        It is neither.
    """
    path = Path(name)
    if path.suffix == ENDING and path.stem:
        return path
    text = os.fspath(name)
    if not text or os.sep in text or text.startswith("."):
        raise ValueError(
            f"a run is saved under a name like 'before', or in a file that ends with {ENDING}, not "
            f"{text!r}"
        )
    return FOLDER / f"{text}{ENDING}"


def check_to_save(name: str | os.PathLike[str]) -> None:
    """Raise if a run cannot be saved under a name, before minutes of work."""
    folder = check_name(name).parent
    if folder != FOLDER and not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def save_run(name: str | os.PathLike[str], text: str) -> Path:
    """Write a run's JSON; a reader finds the old file or the new one, never a part of it."""
    path = check_name(name)
    if path.parent == FOLDER:
        FOLDER.mkdir(exist_ok=True)
    part = path.with_name(f".{path.stem}-{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def load_run(name: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """The file of a saved run, and its JSON.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    ValueError
        It is not JSON.
    """
    path = check_name(name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"no saved run {os.fspath(name)!r}; {_hint(path)}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a saved comparison (it is not text)") from None
    try:
        return path, json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a saved comparison ({error})") from None


def _hint(path: Path) -> str:
    """Which runs there are instead of this one."""
    saved = sorted(each.stem for each in path.parent.glob(f"*{ENDING}"))
    if not saved:
        return "save one by compare --save NAME, or Comparison.save(NAME)"
    near = difflib.get_close_matches(path.stem, saved)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"{path.parent} has {', '.join(saved)}"
