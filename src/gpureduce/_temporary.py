"""Folders for temporary files that are removed however the work in them ends, short of SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

__all__ = ["temporary_folder"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _Ended(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


@contextlib.contextmanager
def _ended_after_cleaning_up() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the process after the block, where they would have at once.

    A program's own handlers stay. So do all outside the main thread, where none can be set.
    """
    replaced: list[signal.Signals] = []

    def end(number: int, frame: FrameType | None) -> None:
        for each in replaced:
            signal.signal(each, signal.SIG_IGN)  # a second one would end the cleaning up
        raise _Ended(number)

    number = None
    try:
        for each in _ENDING:
            if signal.getsignal(each) is signal.SIG_DFL:
                with contextlib.suppress(ValueError):
                    signal.signal(each, end)
                    replaced.append(each)
        yield
    except _Ended as ended:
        number = ended.number
    finally:
        for each in replaced:
            signal.signal(each, signal.SIG_DFL)
    if number is not None:
        os.kill(os.getpid(), number)


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder that only this user can enter, for the time of the block."""
    with _ended_after_cleaning_up(), tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)
