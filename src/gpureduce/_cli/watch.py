"""How much of a memory-mapped file this process has read, from the kernel's own books.

A reduction of a long file is one call, so that its result does not depend on whether somebody watches. A thread asks
the system meanwhile how much of the mapping is resident, and how much was read from disk: what is cached shows in the
first, what does not fit into memory in the second.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["watching"]

PERIOD = 0.2
"""Seconds between two questions."""
_KIB = 1024
_SMAPS, _IO = Path("/proc/self/smaps"), Path("/proc/self/io")


def resident_bytes(path: Path) -> int:
    """Bytes of a file's mappings that are in this process's memory."""
    total, is_ours = 0, False
    name = str(path)
    try:
        with _SMAPS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                first = line.split(" ", 1)[0]
                if not first.endswith(":"):  # the head of a mapping
                    is_ours = line.rstrip("\n").endswith(name)
                elif is_ours and first == "Rss:":
                    total += int(line.split()[1]) * _KIB
    except OSError:
        return 0
    return total


def disk_bytes() -> int:
    """Bytes that this process has had read from storage."""
    try:
        for line in _IO.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(": ")
            if name == "read_bytes":
                return int(value)
    except OSError:
        pass
    return 0


@contextlib.contextmanager
def watching(path: Path, nbytes: int, progress: Callable[[float], object]) -> Iterator[None]:
    """Tell `progress`, every now and then, which share of a mapped file has been read.

    Parameters
    ----------
    path : Path
        Of the file, resolved.
    nbytes : int
        Its size.
    progress : callable
        Is given the share, from 0 to 1.
    """
    over = threading.Event()
    start = disk_bytes()

    def ask() -> None:
        while not over.wait(PERIOD):
            progress(min(max(resident_bytes(path), disk_bytes() - start) / nbytes, 1.0))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
