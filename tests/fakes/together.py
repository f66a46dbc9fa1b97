"""Work of several threads at the same time, in this process or in one that runs over the fakes."""

from __future__ import annotations

import threading
from collections.abc import Callable

THREADS = 8


def together(work: Callable[[int, int], None], rounds: int) -> None:
    """Call ``work(thread, round)`` in all threads, each round at the same time."""
    barrier = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def run(thread: int) -> None:
        for each in range(rounds):
            barrier.wait()
            try:
                work(thread, each)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
