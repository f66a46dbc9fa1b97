"""An independent model of three tree kernels: what threads touch, as the hardware counts.

Written from the kernels' prefaces: no emulator, no CUDA source. A model's column is a dictionary
with the figures of
:class:`gpureduce._explain.launches.Figures` that it has an opinion on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

LANES, BANKS, WORD, SECTOR = 32, 32, 4, 32

Access = tuple[int, int]
"""Thread and byte address."""


def pairs(kernel: str, block: int) -> Iterator[list[tuple[int, int, int]]]:
    """For each step of the tree: thread, index it adds to, index it adds."""
    steps = int(math.log2(block))
    for k in range(steps):
        if kernel == "interleaved_modulo":
            yield [(t, t, t + 2**k) for t in range(0, block, 2 ** (k + 1))]
        elif kernel == "interleaved_strided":
            yield [
                (t, t * 2 ** (k + 1), t * 2 ** (k + 1) + 2**k) for t in range(block // 2 ** (k + 1))
            ]
        elif kernel == "sequential":
            s = block >> (k + 1)
            yield [(t, t, t + s) for t in range(s)]
        else:
            raise ValueError(kernel)


def by_warp(accesses: list[Access]) -> list[list[Access]]:
    warps: dict[int, list[Access]] = {}
    for thread, address in accesses:
        warps.setdefault(thread // LANES, []).append((thread, address))
    return list(warps.values())


def passes(warp: list[Access], size: int, is_store: bool) -> tuple[int, int]:
    """Passes over the banks that one request takes, and as many as it needs without conflicts.

    As a GPU's counters have them: a load needs as many as its words fill; a store one for each
    group of neighbouring lanes that could fill the banks.
    """
    words = {address // WORD + i for _, address in warp for i in range(size // WORD)}
    queues = [0] * BANKS
    for word in words:
        queues[word % BANKS] += 1
    lanes_at_once = BANKS * WORD // size
    groups = {thread % LANES // lanes_at_once for thread, _ in warp}
    return max(queues), len(groups) if is_store else -(-len(words) // BANKS)


def count_shared(requests: list[list[Access]], size: int, is_store: bool = False) -> dict[str, int]:
    """Requests, wavefronts and ideal wavefronts of several instructions, by a block's threads."""
    total = {"requests": 0, "wavefronts": 0, "ideal_wavefronts": 0}
    for accesses in requests:
        for warp in by_warp(accesses):
            taken, needed = passes(warp, size, is_store)
            total["requests"] += 1
            total["wavefronts"] += taken
            total["ideal_wavefronts"] += needed
    return total


def count_sectors(accesses: list[Access], size: int) -> int:
    return sum(
        len({byte // SECTOR for _, address in warp for byte in (address, address + size - 1)})
        for warp in by_warp(accesses)
    )


def block_columns(
    kernel: str, block: int, index: int, n: int, element: int, accumulator: int
) -> list[dict[str, int]]:
    """The columns of one block over its part of n elements."""
    mine = [(t, (index * block + t) * element) for t in range(block) if index * block + t < n]
    stored = count_shared(
        [[(t, t * accumulator) for t in range(block)]], accumulator, is_store=True
    )
    columns = [
        {
            "active_threads": block,
            "active_warps": block // LANES,
            "shared_loads": 0,
            "shared_stores": stored["requests"],
            "wavefronts": stored["wavefronts"],
            "ideal_wavefronts": stored["ideal_wavefronts"],
            "global_requests": len(by_warp(mine)),
            "sectors": count_sectors(mine, element),
            "slots": block,
            "barriers": 1,
        }
    ]
    for step in pairs(kernel, block):
        left = [(t, a * accumulator) for t, a, _ in step]
        right = [(t, b * accumulator) for t, _, b in step]
        loads = count_shared([left, right], accumulator)
        stores = count_shared([left], accumulator, is_store=True)
        columns.append(
            {
                "active_threads": len(step),
                "active_warps": len(by_warp(left)),
                "shared_loads": loads["requests"],
                "shared_stores": stores["requests"],
                "wavefronts": loads["wavefronts"] + stores["wavefronts"],
                "ideal_wavefronts": loads["ideal_wavefronts"] + stores["ideal_wavefronts"],
                "global_requests": 0,
                "sectors": 0,
                "slots": block,
                "barriers": 1,
            }
        )
    columns.append(
        {
            "active_threads": 1,
            "active_warps": 1,
            "shared_loads": 1,
            "shared_stores": 0,
            "wavefronts": 1,
            "ideal_wavefronts": 1,
            "global_requests": 1,
            "sectors": 1,
            "slots": LANES,
            "barriers": 0,
        }
    )
    return columns


def launch_columns(
    kernel: str, block: int, n: int, element: int, accumulator: int
) -> list[dict[str, int]]:
    """The columns of a launch over n elements: sums over blocks, barriers as a block has them."""
    blocks = [
        block_columns(kernel, block, i, n, element, accumulator) for i in range(-(-n // block))
    ]
    columns = [
        {name: sum(row[name] for row in rows) for name in rows[0]}
        for rows in zip(*blocks, strict=True)
    ]
    for column, first in zip(columns, blocks[0], strict=True):
        column["barriers"] = first["barriers"]
    return columns
