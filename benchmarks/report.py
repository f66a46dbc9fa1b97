"""Write the tables of README.md and docs/ from benchmarks/results/*.json.

    python benchmarks/report.py            # rewrite the pages between their table markers
    python benchmarks/report.py --check    # fail if a page is not what the results say

Every figure in the tables comes from here; none is typed in.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import Any

import sweep

import gpureduce as gr
from gpureduce._bench.environment import show_cuda_version
from gpureduce._display.tables import markdown as table
from gpureduce._display.tables import show_bandwidth as gigabytes

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / name
        for name in (
            "counters.md",
            "exact-sums.md",
            "kernel-speeds.md",
            "performance.md",
            "several-results.md",
        )
    ),
)
SHORT = {
    "kernels": (
        "naive_atomic",
        "shared_atomic",
        "interleaved_modulo",
        "interleaved_strided",
        "sequential",
        "first_add",
        "unrolled",
        "multi_add",
        "shfl_atomic_vec",
        "fast",
    ),
    "auto": ("sum float32", "sum int32", "sum float16", "max float32", "any bool"),
}
"""Rows of the short tables, `short:NAME`, which a newcomer reads."""


def milliseconds(row: dict[str, Any]) -> str:
    return f"{row['milliseconds']['median']:.3f}"


PEERS = {"CuPy": "cupy", "PyTorch": "torch"}
"""Columns of tables, and how the names of the libraries' distributions begin."""


def caption(result: dict[str, Any], head: Sequence[str] = ()) -> str:
    """Where and when the figures of a table with these headings were measured, and of what."""
    env = result["environment"]
    # Results of the CPU belong to the CPU, not to the machine's GPU.
    device = None if "isa" in result else env["device"]
    if device:
        where = [device["name"], f"driver for CUDA {show_cuda_version(env['cuda_driver'])}"]
        if "% of peak" in head:
            where[0] += f" (peak {gigabytes(device['peak_bytes_per_second'])} GB/s)"
        where.append(f"NVRTC {show_cuda_version(env['nvrtc'])}")
    else:
        where = [env["cpu"], f"{env['cores']} cores", f"NumPy {env['versions']['numpy']}"]
    for column in (column for column in PEERS if column in head):
        for name, version in env["versions"].items():
            if name.startswith(PEERS[column]):
                where.append(f"{column} {version}")
    return f"*{', '.join(where)}, gpureduce {env['gpureduce']}, {env['date'][:10]}; medians.*"


def threads_of(result: dict[str, Any]) -> str:
    """How many threads of the CPU ran, and with which instructions."""
    count = result["threads"]
    return f"{count} thread{'s' * (count != 1)}, {result['isa']}"


def kernels_table(result: dict[str, Any], only: Collection[str] | None = None) -> str:
    """Of all kernels, or of those that are named."""
    peak = result["environment"]["device"]["peak_bytes_per_second"]
    present = [row for row in result["rows"] if "absent" not in row]
    first = present[0]["milliseconds"]["median"]
    rows = [
        [
            f"`{row['kernel']}`",
            str(row["block_size"]),
            milliseconds(row),
            gigabytes(row["bytes_per_second"]),
            f"{100 * row['bytes_per_second'] / peak:.1f}",
            f"{first / row['milliseconds']['median']:.2f}",
        ]
        for row in present
        if only is None or row["kernel"] in only
    ]
    head = ["kernel", "block size", "time, ms", "GB/s", "% of peak", "times the first"]
    return f"{table(head, rows)}\n\n{caption(result, head)}"


def staircase_table(result: dict[str, Any]) -> str:
    """Of some kernels, with what each of them removes."""
    peak = result["environment"]["device"]["peak_bytes_per_second"]
    removes = {info.name: info.removes for info in gr.kernels()}
    present = {row["kernel"]: row for row in result["rows"] if "absent" not in row}
    first = present[SHORT["kernels"][0]]["milliseconds"]["median"]
    rows = [
        [
            f"`{name}`",
            removes[name],
            gigabytes(present[name]["bytes_per_second"]),
            f"{100 * present[name]['bytes_per_second'] / peak:.1f}",
            f"{first / present[name]['milliseconds']['median']:.0f}",
        ]
        for name in SHORT["kernels"]
    ]
    head = ["kernel", "removes", "GB/s", "% of peak", "times the first"]
    return f"{table(head, rows, left=2)}\n\n{caption(result, head)}"


def rows_table(result: dict[str, Any], only: Collection[str] | None = None) -> str:
    """Of all kernels, or of those that are named."""
    blocks = sorted({row["block_size"] for row in result["rows"] if "absent" not in row} - {32})
    by_kernel: dict[str, dict[int, dict[str, Any]]] = {}
    for row in result["rows"]:
        if "absent" not in row and (only is None or row["kernel"] in only):
            by_kernel.setdefault(row["kernel"], {})[row["block_size"]] = row
    rows = []
    for kernel, cells in by_kernel.items():
        if 32 in cells and len(cells) == 1:
            rows.append(
                [
                    f"`{kernel}` (32)",
                    gigabytes(cells[32]["bytes_per_second"]),
                    *[""] * (len(blocks) - 1),
                ]
            )
        else:
            rows.append([f"`{kernel}`", *[gigabytes(cells[b]["bytes_per_second"]) for b in blocks]])
    return f"{table(['kernel, GB/s at block size', *map(str, blocks)], rows)}\n\n{caption(result)}"


def peer_cells(row: dict[str, Any], peers: list[str]) -> list[str]:
    cells = []
    for peer in peers:
        found = row["peers"].get(peer, {"absent": ""})
        cells.append("" if "absent" in found else gigabytes(found["bytes_per_second"]))
    return cells


OURS = ["`auto`", "`fast`"]


def our_cells(row: dict[str, Any], moved: float = 1) -> list[str]:
    """Speeds of ``auto``, and of ``fast`` where that is another kernel, times `moved`."""
    return [
        gigabytes(moved * row[name]["bytes_per_second"]) if name in row else ""
        for name in ("auto", "fast")
    ]


def auto_table(result: dict[str, Any], only: Collection[str] | None = None) -> str:
    """Of all reductions, or of those that are named."""
    peers = ["cub", "cupy", "torch"]
    rows = []
    for row in result["rows"]:
        if only is not None and f"{row['op']} {row['dtype']}" not in only:
            continue
        rows.append(
            [
                f"{row['op']} {row['dtype']}",
                *our_cells(row),
                *peer_cells(row, peers),
                over_the_best(row),
            ]
        )
    head = ["1 GiB on the device, GB/s", *OURS, "CUB", "CuPy", "PyTorch", "`auto` over the best"]
    return f"{table(head, rows)}\n\n{caption(result, head)}"


def over_the_best(row: dict[str, Any]) -> str:
    """Our bandwidth over that of the best library that has the case."""
    theirs = [peer["bytes_per_second"] for peer in row["peers"].values() if "absent" not in peer]
    return f"{row['auto']['bytes_per_second'] / max(theirs):.2f}" if theirs else ""


def functions_table(result: dict[str, Any]) -> str:
    peers = ["cub", "cupy", "torch"]
    rows = [
        [
            f"{row['op']} {row['dtype']}",
            *our_cells(row),
            *peer_cells(row, peers),
            over_the_best(row),
        ]
        for row in result["rows"]
    ]
    size = f"{result['bytes'] >> 20} MiB on the device, GB/s"
    head = [size, *OURS, "CUB", "CuPy", "PyTorch", "`auto` over the best"]
    return f"{table(head, rows)}\n\n{caption(result, head)}"


def axes_table(result: dict[str, Any]) -> str:
    peers = ["cupy", "torch"]
    rows = []
    for row in result["rows"]:
        # Results are written too, as many bytes whoever does it.
        moved = row["bytes"] / (
            row["auto"]["bytes_per_second"] * row["auto"]["milliseconds"]["median"] * 1e-3
        )
        cells = [row["peers"].get(peer, {"absent": ""}) for peer in peers]
        shape = "(" + ", ".join(f"{extent:,}" for extent in row["shape"]) + ")"
        rows.append(
            [
                f"{row['op']} {row['dtype']} of {shape}",
                ", ".join(map(str, row["axis"])),
                *our_cells(row, moved),
                *(
                    "" if "absent" in cell else gigabytes(moved * cell["bytes_per_second"])
                    for cell in cells
                ),
                over_the_best(row),
            ]
        )
    head = [
        "on the device, GB/s read and written",
        "axes",
        *OURS,
        "CuPy",
        "PyTorch",
        "`auto` over the best",
    ]
    return f"{table(head, rows)}\n\n{caption(result, head)}"


def interop_table(result: dict[str, Any]) -> str:
    rows = [
        [row["op"], row["library"], row["case"], f"{1e3 * row['milliseconds']['median']:.1f}"]
        for row in result["rows"]
    ]
    head = [f"{result['n']} {result['dtype']} on the device", "array of", "call", "µs"]
    return f"{table(head, rows)}\n\n{caption(result, head)}"


def sizes_table(result: dict[str, Any]) -> str:
    peers = ["cub", "cupy", "torch"]
    rows = []
    for row in result["rows"]:
        label = size_of(row["bytes"])
        cells = [
            "" if "absent" in found else f"{1e3 * found['milliseconds']['median']:.1f}"
            for peer in peers
            for found in [row["peers"].get(peer, {"absent": ""})]
        ]
        rows.append(
            [label, *(f"{1e3 * row[name]['median']:.1f}" for name in ("auto", "fast")), *cells]
        )
    head = ["sum of float32, device time in µs", *OURS, "CUB", "CuPy", "PyTorch"]
    return f"{table(head, rows)}\n\n{caption(result, head)}"


def over_sizes_table(result: dict[str, Any], beside: Sequence[tuple[str, str]]) -> str:
    """Times over sizes, and in words those of some kernels beside another one each."""
    names = result["kernels"]
    rows = [
        [size_of(row["bytes"]), *(f"{1e3 * row[name]['median']:.1f}" for name in names)]
        for row in result["rows"]
    ]
    head = ["sum of float32, device time in µs", *(f"`{name}`" for name in names)]
    words = " ".join(beside_words(result["rows"], *each) for each in beside)
    words = textwrap.fill(words, 100, break_on_hyphens=False)
    return f"{table(head, rows)}\n\n{caption(result, head)}\n\n{words}"


def beside_words(rows: Sequence[dict[str, Any]], name: str, other: str) -> str:
    """A kernel's time as a multiple of another's, at the smallest and the largest size."""

    def share(row: dict[str, Any]) -> str:
        return f"{row[name]['median'] / row[other]['median']:.2f} times"

    return (
        f"`{name}` takes {share(rows[0])} as long as `{other}` for {size_of(rows[0]['bytes'])} and "
        f"{share(rows[-1])} as long for {size_of(rows[-1]['bytes'])}."
    )


def copies_table(result: dict[str, Any]) -> str:
    sizes = over_sizes_table(
        result, [(name, "shfl_two_pass_vec") for name in ("async_copy", "bulk_copy")]
    )
    found = result["by_block"]
    rows = [
        [str(row["block_size"]), *(f"{1e3 * row[name]['median']:.1f}" for name in found["kernels"])]
        for row in found["rows"]
    ]
    head = [f"block size, {size_of(found['bytes'])}", *(f"`{name}`" for name in found["kernels"])]

    def extremes(name: str) -> str:
        least, most = (
            each(found["rows"], key=lambda row: row[name]["median"]) for each in (min, max)
        )
        return (
            f"`{name}` takes from {1e3 * least[name]['median']:.0f} µs (blocks of "
            f"{least['block_size']}) to {1e3 * most[name]['median']:.0f} µs (of "
            f"{most['block_size']})"
        )

    words = f"By the size of its blocks, {'; '.join(map(extremes, found['kernels']))}."
    by_block = "\n".join(textwrap.wrap(words, 100, break_on_hyphens=False))
    return f"{sizes}\n\n{table(head, rows)}\n\n{by_block}"


def finishes_table(result: dict[str, Any]) -> str:
    return over_sizes_table(
        result, [("cooperative", "shfl_two_pass_vec"), ("cluster", "block_atomic_vec")]
    )


def several_table(result: dict[str, Any]) -> str:
    def array(row: dict[str, Any]) -> str:
        shape = row.get("shape", [0])
        name = ", wide" if row.get("data") == "wide" else ""
        return f"whole{name}" if len(shape) == 1 else f"rows of ({shape[0]:,}, {shape[1]:,}){name}"

    def cells(row: dict[str, Any]) -> list[str]:
        own = [call["median"] for call in row["calls"].values()]
        together = row["pass"]["median"]
        names = ", ".join(f"`{name}`" for name in row["operators"].split())
        return [
            names,
            row["dtype"],
            array(row),
            f"{1e3 * together:.0f}",
            f"{together / max(own):.2f}",
            f"{1e3 * sum(own):.0f}",
        ]

    size = f"on the device, whole arrays of {result['bytes'] >> 20} MiB"
    head = [size, "dtype", "array", "one pass, µs", "over the longest call", "own calls, µs"]
    return f"{table(head, [cells(row) for row in result['rows']])}\n\n{caption(result, head)}"


def size_of(count: int) -> str:
    return (
        f"{count >> 30} GiB"
        if count >> 30
        else f"{count >> 20} MiB"
        if count >> 20
        else f"{count >> 10} KiB"
    )


def exact_table(result: dict[str, Any], only: Collection[str] | None = None) -> str:
    """What `exact` takes beside `fast`: all kinds of data at one size, all sizes of one kind."""
    largest = max(row["bytes"] for row in result["rows"])
    dtypes = list(dict.fromkeys(row["dtype"] for row in result["rows"]))
    kinds = list(dict.fromkeys(row["data"] for row in result["rows"]))
    sizes = sorted({row["bytes"] for row in result["rows"]} - {largest})

    def cell(dtype: str, data: str, size: int) -> str:
        (row,) = (
            r for r in result["rows"] if (r["dtype"], r["data"], r["bytes"]) == (dtype, data, size)
        )
        if not row["same_bits"]:
            return "wrong"
        return f"{row['exact']['median'] / row['fast']['median']:.2f}"

    rows = [
        [f"{kind}, {size_of(largest)}", *(cell(dtype, kind, largest) for dtype in dtypes)]
        for kind in kinds
    ]
    rows += [
        [f"normal, {size_of(size)}", *(cell(dtype, "normal", size) for dtype in dtypes)]
        for size in sizes
    ]

    def by_name(part: str, name_of: Callable[[dict[str, Any]], str]) -> list[list[str]]:
        cells: dict[str, dict[str, str]] = {}
        for row in result.get(part, []):
            times = f"{row['exact']['median'] / row['fast']['median']:.2f}"
            cells.setdefault(name_of(row), {})[row["dtype"]] = (
                times if row["same_bits"] else "wrong"
            )
        return [
            [name, *(found.get(dtype, "") for dtype in dtypes)] for name, found in cells.items()
        ]

    def axes_of(row: dict[str, Any]) -> str:
        shape = "(" + ", ".join(f"{extent:,}" for extent in row["shape"]) + ")"
        return f"{row['data']}, axis {', '.join(map(str, row['axis']))} of {shape}"

    rows += by_name("axes", axes_of)
    rows += by_name("variances", lambda row: f"var, {row['data']}, {size_of(row['bytes'])}")
    rows += by_name("variance_axes", lambda row: f"var, {axes_of(row)}")
    return f"{table(['time of `exact` over that of `fast`', *dtypes], rows)}\n\n{caption(result)}"


def accuracy_table(result: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["ulps"]))
    rows = [
        [
            f"{row['data']} {row['dtype']}, 2^{row['elements'].bit_length() - 1}",
            *(f"{row['ulps'][name]:.3g}" if name in row["ulps"] else "" for name in names),
        ]
        for row in result["rows"]
    ]
    return (
        f"{table(['units in the last place of the right sum', *names], rows)}\n\n{caption(result)}"
    )


def host_table(result: dict[str, Any]) -> str:
    copy = next((r for r in result["rows"] if r["what"] == "pinned copy alone"), None)
    rows = [
        [
            row["what"],
            milliseconds(row),
            f"{row['bytes_per_second'] / 1e9:.1f}",
            f"{row['bytes_per_second'] / copy['bytes_per_second']:.2f}" if copy else "",
        ]
        for row in result["rows"]
    ]
    small = result["microseconds_for_1000_elements"]["median"]
    head = ["1 GiB of float32 to a scalar", "time, ms", "GB/s", "of the pinned copy"]
    note = f"1000 float32 in NumPy to a scalar through the GPU: {small:.1f} µs."
    return f"{table(head, rows)}\n\n{note} {caption(result)}"


def first_call_table(result: dict[str, Any]) -> str:
    def spread(key: str) -> list[str]:
        values = sorted(row[key] for row in result["rows"] if row["kernel"] != "cub")
        return [f"{values[0]:.2f}", f"{values[len(values) // 2]:.2f}", f"{values[-1]:.2f}"]

    rows = [
        ["never compiled", *spread("never_compiled_ms")],
        ["in the disk cache", *spread("disk_cache_ms")],
        ["loaded", *spread("loaded_ms")],
    ]
    cub = next((row for row in result["rows"] if row["kernel"] == "cub"), None)
    note = (
        f"`cub`: {cub['never_compiled_ms']:.0f} ms, {cub['disk_cache_ms']:.2f} ms, "
        f"{cub['loaded_ms']:.2f} ms. "
        if cub
        else ""
    )
    head = ["first call of a kernel, ms", "fastest kernel", "median", "slowest"]
    return f"{table(head, rows)}\n\n{note}{caption(result)}"


def cpu_table(result: dict[str, Any]) -> str:
    sizes = sorted({row["n"] for row in result["rows"]})
    cells: dict[tuple[str, str], dict[int, float]] = {}
    for row in result["rows"]:
        cells.setdefault((row["op"], row["dtype"]), {})[row["n"]] = row["times_numpy"]
    rows = [
        [f"{op} {dtype}", *[f"{found[n]:.2f}" if n in found else "" for n in sizes]]
        for (op, dtype), found in cells.items()
    ]
    head = ["speed over NumPy's, elements", *[f"{n:,}" for n in sizes]]
    threads = f"{threads_of(result)}. "
    return f"{table(head, rows)}\n\n{threads}{caption(result)}"


def exact_cpu_table(result: dict[str, Any]) -> str:
    """Speeds of `exact` and `fast` on all cores, and of `exact` on one beside `math.fsum`."""

    def speed(row: dict[str, Any], kernel: str) -> float:
        return float(row["bytes"] / (row[kernel]["median"] * 1e-3))

    def ratio(of: dict[str, Any]) -> str:
        return f"{of['fast']['median'] / of['exact']['median']:.2f}"

    rows = [
        [
            f"{row['dtype']}, {row['data']}, {size_of(row['bytes'])}",
            gigabytes(speed(row, "fast")),
            gigabytes(speed(row, "exact")) if row["same_bits"] else "wrong",
            ratio(row),
            ratio(row["one_thread"]),
        ]
        for row in result["rows"]
    ]
    head = ["sum, GB/s", "`fast`", "`exact`", "`exact` over `fast`", "on one thread"]
    ways = ["math.fsum(array)", "math.fsum(list)"]
    beside = [
        [
            f"{row['dtype']}, {row['data']}, {row['elements']:,} elements",
            f"{1e6 * row['exact']['median'] / row['elements']:.2f}"
            if row["same_value"]
            else "wrong",
            *(f"{row[way]['median'] / row['exact']['median']:.0f}" for way in ways),
        ]
        for row in result["fsum"]
    ]
    fsum_head = [
        "one thread",
        "`exact`, ns per element",
        *(f"times the speed of `{way}`" for way in ways),
    ]
    threads = f"{threads_of(result)}. "
    return f"{table(head, rows)}\n\n{table(fsum_head, beside)}\n\n{threads}{caption(result)}"


def pair(launch: dict[str, Any], name: str) -> str:
    """The emulator's count, and the GPU's where they differ."""
    ours, gpu = launch["emulator"][name], launch["hardware"][name]
    return f"{ours:,.0f}" if ours == gpu else f"{ours:,.0f} / {gpu:,.0f}"


def counters_table(result: dict[str, Any]) -> str:
    launches = result["launches"]
    ratio, lanes = "threads_per_instruction", "load_store.threads"
    summary = []
    for name in result["metrics"]:
        if name in (ratio, lanes):
            continue
        differing = [x["kernel"] for x in launches if x["emulator"][name] != x["hardware"][name]]
        kernels = ", ".join(f"`{kernel}`" for kernel in dict.fromkeys(differing))
        summary.append(
            [
                name.replace("_", " ").replace(".", ", "),
                f"{len(launches) - len(differing)}",
                kernels,
            ]
        )
    shown = ["shared_load.conflicts", "shared_store.conflicts", "global_load.sectors", lanes]
    rows = []
    done = set()
    for launch in launches:
        cell = launch["kernel"], launch["dtype"]
        first = "First" in launch["entry"] and "fill_identity" not in launch["entry"]
        if (
            launch["op"] == "sum"
            and launch["dtype"] in ("float32", "int32")
            and first
            and cell not in done
        ):
            done.add(cell)
            threads = f"{launch['emulator'][ratio]:.1f} / {launch['hardware'][ratio]:.1f}"
            rows.append(
                [
                    f"`{launch['kernel']}` {launch['dtype']}",
                    *[pair(launch, name) for name in shown],
                    threads,
                ]
            )
    head = [
        "first launch of a sum",
        "load conflicts",
        "store conflicts",
        "load sectors",
        "lanes in memory",
        "lanes per instruction",
    ]
    cases = len({(x["dtype"], x["op"]) for x in launches})
    return (
        f"{len(launches)} launches: all kernels but `cub`, {cases} pairs of dtype and operator, "
        f"{result['elements']:,} elements.\n\n"
        f"{table(['count', 'launches where both agree', 'kernels where they differ'], summary)}\n\n"
        f"{table(head, rows)}\n\nEmulator / GPU where they differ. {caption(result)}"
    )


LEAST_RATIO = 0.95  # cases below it are listed
LARGE = 256 << 20  # bytes of cases whose bandwidth is compared with the ceiling
NEAR_CEILING = 0.85
WIDE_LOAD = 8  # bytes; by shorter loads memory is not kept busy
BY_ITEMS = ("fast_columns", "fast_few", "fast_strided", "exact_strided")
"""Kernels that load as many neighbours at once as are aligned, not runs of memory by vectors."""
STARTS_ARE_ELEMENTS = "2026-12-01T18"  # since when `initial` of extremes takes no launch of its own
LAUNCH = 8.0  # microseconds up to which the steps of a launch decide, not memory


def kind_of_sweep(result: dict[str, Any]) -> str:
    return f"{result['environment']['device']['name']}, `{result['size']}`"


def date_of_sweep(result: dict[str, Any]) -> str:
    return str(result["environment"]["date"])


def sweep_row(result: dict[str, Any]) -> list[str]:
    rows = result["rows"]
    ratios = [found for row in rows if (found := sweep.ratio(row)) is not None]
    large = [share_of_ceiling(row, result) for row in rows if row["bytes"] >= LARGE]
    return [
        kind_of_sweep(result),
        date_of_sweep(result)[:10],
        str(result["seed"]),
        f"{len(rows)} / {len(ratios)}",
        str(sum(row["right"] is not True for row in rows)),
        *(f"{100 * sum(r >= least for r in ratios) / len(ratios):.1f} %" for least in (1, 0.95)),
        f"{statistics.geometric_mean(ratios):.2f}",
        f"{sum(share >= NEAR_CEILING for share in large)} of {len(large)}",
    ]


def share_of_ceiling(row: dict[str, Any], result: dict[str, Any]) -> float:
    """Bandwidth of the bytes that must be read, as a share of the fastest read."""
    seconds = 1e-6 * statistics.median(row["microseconds"]["auto"])
    return float(row["bytes"] / seconds / result["ceiling"])


def bytes_of_load(row: dict[str, Any]) -> int:
    """The most bytes that a thread may load at once: of neighbours whose groups all begin aligned;
    0 if elements have no neighbours in memory."""
    itemsize = sweep.ITEMSIZE[row["dtype"]]
    axes = [
        (abs(step), extent)
        for step, extent in zip(row["strides"], row["shape"], strict=True)
        if extent > 1
    ]
    ends = [extent for step, extent in axes if step == 1]
    if not ends:
        return 0
    apart = math.gcd(row["offset"], *(step for step, _ in axes if step != 1))
    return itemsize * math.gcd(apart, *ends, 16 // itemsize)


def reason_of(row: dict[str, Any], result: dict[str, Any]) -> str:
    """Reason why a peer is faster in a case, from its layout and the measured times."""
    fast = sweep.ratio(row, "fast")
    if fast is not None and fast >= LEAST_RATIO:
        return f"exactness: `fast` has {fast:.2f}"
    share = share_of_ceiling(row, result)
    if share >= NEAR_CEILING:
        return f"at memory bandwidth, {100 * share:.0f} % of the ceiling"
    if statistics.median(row["microseconds"]["auto"]) <= LAUNCH:
        return "steps of one launch"
    starts_apart = result["environment"]["date"] < STARTS_ARE_ELEMENTS
    if row["masked"] and row["function"] in sweep.WITH_INITIAL and starts_apart:
        return "two launches, of elements and with `initial`"
    if row["layout"] in ("overlapping", "zero stride"):
        return "elements that are read several times come from caches"
    loaded = bytes_of_load(row) if row["variant"] in BY_ITEMS else 0
    narrow = f", {loaded}-byte loads" if 0 < loaded < WIDE_LOAD else ""
    return f"{100 * share:.0f} % of the ceiling{narrow}"


def sweep_table(results: list[dict[str, Any]]) -> str:
    """Random cases: a row per sweep, then every case of the last one of a device and size in which
    a peer is faster.
    """
    if not results:
        return "*No results of a sweep are committed.*"
    results = sorted(results, key=lambda result: (kind_of_sweep(result), date_of_sweep(result)))
    last = {kind_of_sweep(result): result for result in results}.values()
    head = [
        "random cases",
        "date",
        "seed",
        "cases / with a peer",
        "wrong",
        "at least the best peer's speed",
        f"at least {LEAST_RATIO} of it",
        "geometric mean",
        f"256 MiB and more at {NEAR_CEILING} of the ceiling",
    ]
    slower = [
        [
            f"{sweep.describe(row)}, {result['environment']['device']['name']}",
            f"{ratio:.2f}",
            *(
                f"{statistics.median(times):.1f}"
                if (times := row["microseconds"].get(name))
                else ""
                for name in ("auto", "fast", "cupy", "torch")
            ),
            f"`{row['variant']}`",
            reason_of(row, result),
        ]
        for result in last
        for row in result["rows"]
        if (ratio := sweep.ratio(row)) is not None and ratio < LEAST_RATIO
    ]
    slower.sort(key=lambda columns: float(columns[1]))
    list_head = [
        f"cases below {LEAST_RATIO}, µs", "ratio", "`auto`", "`fast`", "CuPy", "PyTorch",
        "variant", "where the time goes",
    ]  # fmt: skip
    return (
        f"{table(head, [sweep_row(result) for result in results])}\n\n"
        f"{table(list_head, slower)}\n\n"
        + "\n".join(dict.fromkeys(caption(result, list_head) for result in last))
    )


def cpu_sweep_row(name: str, cases: list[dict[str, Any]], peers: Collection[str]) -> list[str]:
    """How some cases of a sweep fare beside NumPy, and beside the fastest library of each."""

    def median(case: dict[str, Any], library: str) -> float:
        return statistics.median(case["microseconds"][library])

    over = [case["times_numpy"] for case in cases]
    best = [
        min(median(case, x) for x in ("numpy", *peers) if x in case["microseconds"])
        / median(case, "gpureduce")
        for case in cases
    ]
    return [
        name,
        f"{len(cases):,}",
        f"{statistics.geometric_mean(over):.2f}",
        f"{100 * sum(x >= 1 for x in over) / len(over):.1f}",
        f"{min(over):.2f}",
        f"{100 * sum(x >= 0.95 for x in best) / len(best):.1f}",
    ]


def cpu_sweep_size(case: dict[str, Any]) -> str:
    """How many elements, in powers of a hundred."""
    elements = max(1, math.prod(case["shape"]))
    step = min(3, int(math.log10(elements)) // 2)
    return ("below 100", "100 to 10,000", "10,000 to a million", "a million and more")[step]


SWEEP_REASONS = ROOT / "benchmarks" / "cpu_sweep_reasons.json"
NOISE = "noise", "the quartiles of the ratios enclose 1: no difference was found"
UNEXPLAINED = "unexplained", "no class of cases has it yet"


def cpu_sweep_facts(case: dict[str, Any]) -> dict[str, Any]:
    """What classes of cases choose by: how a case was drawn, and how much of it makes a result."""
    shape, axis = case["shape"], case["axis"]
    axes = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    return {
        **case,
        "into": into(case),
        "starts": starts(case),
        "elements": math.prod(shape),
        "per_result": math.prod(shape[i] for i in axes),
        "results": math.prod(n for i, n in enumerate(shape) if i not in axes),
    }


def cpu_sweep_reason(case: dict[str, Any], classes: list[dict[str, Any]]) -> tuple[str, str]:
    """Name and reason of the first class that a case slower than NumPy is one of.

    A class has conditions: a list of names, a range of numbers, or true or false. A case that has
    none of the classes is unexplained.
    """
    low, high = case["quartiles"]
    if low <= 1 <= high:
        return NOISE
    facts = cpu_sweep_facts(case)

    def is_met(name: str, wanted: Any) -> bool:
        if isinstance(wanted, list) and not isinstance(wanted[0], str):
            return bool(wanted[0] <= facts[name] <= wanted[1])
        return facts[name] in wanted if isinstance(wanted, list) else facts[name] == wanted

    for one in classes:
        if all(is_met(name, wanted) for name, wanted in one["cases"].items()):
            return one["class"], one["reason"]
    return UNEXPLAINED


def cpu_sweep_classes(found: list[tuple[dict[str, Any], tuple[str, str]]]) -> str:
    """A row per class of the cases that are slower than NumPy, with its reason."""
    head = ["slower than NumPy", "number", "least", "reason"]
    rows = []
    for name, reason in sorted({why for _, why in found}):
        ratios = [case["times_numpy"] for case, why in found if why == (name, reason)]
        rows.append([name, f"{len(ratios):,}", f"{min(ratios):.2f}", reason])
    return table(head, rows)


def cpu_sweep_shares(result: dict[str, Any]) -> str:
    """What share of the memory's read bandwidth the cases have that are larger than the caches."""
    least_bytes, bandwidth = result["beyond_caches"], max(result["read_gigabytes_per_second"])

    def share(case: dict[str, Any]) -> float:
        nanoseconds = 1e3 * statistics.median(case["microseconds"]["gpureduce"])
        return float(100 * case["bytes"] / nanoseconds / bandwidth)

    large = [c for c in result["cases"] if c["reads_all"] and c["bytes"] >= least_bytes]
    groups = {
        "all": large,
        "elements as they are: no `exact`, moments, 16-bit floats or reversed axes": [
            c for c in large
            if c["kernel"] != "exact" and c["layout"] != "reversed"
            and c["dtype"] not in ("float16", "bfloat16")
            and not c["function"].endswith(("var", "std"))
        ],
    }  # fmt: skip
    rows = []
    for name, cases in groups.items():
        if not cases:
            continue
        shares = sorted(share(case) for case in cases)
        rows.append([name, f"{len(shares)}", f"{statistics.median(shares):.0f}",
                     f"{shares[len(shares) // 4]:.0f}", f"{shares[-1]:.0f}"])  # fmt: skip
    if not rows:
        return ""
    head = [
        f"cases of {least_bytes >> 20} MiB and more",
        "number", "median, %", "lower quartile, %", "most, %",
    ]  # fmt: skip
    return (
        f"Share of the read bandwidth, {bandwidth:.0f} GB/s by {result['threads']} threads of "
        f"NumPy's `max`:\n\n{table(head, rows)}\n\n"
    )


def functions_of(result: dict[str, Any]) -> str:
    """Functions that a sweep was asked for, where it did not draw from all."""
    return f", {' and '.join(result['functions'])} alone" if "functions" in result else ""


def cpu_sweep_summary(results: list[dict[str, Any]]) -> str:
    """A row per sweep."""
    head = ["processor", "instructions", "threads", "cases", "geometric mean", "≥ 1, %", "< 0.8, %",
            "≥ 0.95 of the best, %", "beside"]  # fmt: skip
    rows = []
    for result in results:
        _, number, mean, not_slower, _, best = cpu_sweep_row("", result["cases"], result["peers"])
        below = sum(case["times_numpy"] < 0.8 for case in result["cases"])
        processor = result["environment"]["cpu"].removesuffix(" Processor")
        calls = f"{result['isa']}{functions_of(result)}"
        rows.append([processor, calls, str(result["threads"]), number, mean, not_slower,
                     f"{100 * below / len(result['cases']):.1f}", best,
                     ", ".join(["NumPy", *result["peers"]])])  # fmt: skip
    return table(head, rows)


def into(case: dict[str, Any]) -> bool:
    """Whether a case has an ``out``, which earlier sweeps did not draw."""
    return bool(case.get("into"))


def starts(case: dict[str, Any]) -> bool:
    """Whether a case has an ``initial``; earlier sweeps drew it with masks alone."""
    return bool(case.get("starts"))


def function_of(case: dict[str, Any]) -> str:
    """A case's function, with the kernel or what else makes it one of its own."""
    variant = case.get("variant", "")
    if variant:
        return f"{case['function']} {variant}"
    return case["function"] + " `exact`" * (case["kernel"] == "exact")


def notes_of(case: dict[str, Any]) -> list[str]:
    """Arguments that most cases do not have."""
    given = {"where=": case["masked"], "initial=": starts(case), "out=": into(case)}
    return [name for name, is_given in given.items() if is_given]


def layout_of(case: dict[str, Any]) -> str:
    return (notes_of(case) or [str(case["layout"])])[0]


def cpu_sweep_table(result: dict[str, Any]) -> str:
    """Random cases by what they have in common, and those slower than NumPy, with reasons."""
    classes = json.loads(SWEEP_REASONS.read_text(encoding="utf-8"))
    cases, peers = result["cases"], result["peers"]
    parts: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("function", function_of),
        ("dtype", lambda case: str(case["dtype"])),
        ("axes", lambda case: str(case["reduced"])),
        ("layout", layout_of),
        ("elements", cpu_sweep_size),
    ]
    rows = [cpu_sweep_row("all cases", cases, peers)]
    for part, name_of in parts:
        for name in sorted({name_of(case) for case in cases}):
            rows.append(
                cpu_sweep_row(f"{part}: {name}", [c for c in cases if name_of(c) == name], peers)
            )
    head = ["cases", "number", "geometric mean", "≥ 1, %", "least", "≥ 0.95 of the best, %"]
    shared = {name: result[name] for name in ("isa", "threads")}
    found = [
        (case, cpu_sweep_reason({**case, **shared}, classes))
        for case in sorted(cases, key=lambda case: case["times_numpy"])
        if case["times_numpy"] < 1
    ]
    slower = [
        [
            f"{function_of(case)} {case['dtype']}",
            f"{tuple(case['shape'])}, {case['axis']}",
            ", ".join([case["layout"], case["data"], *notes_of(case)]),
            *(f"{statistics.median(case['microseconds'][x]):,.1f}" for x in ("gpureduce", "numpy")),
            f"{case['times_numpy']:.2f}",
            " to ".join(f"{x:.2f}" for x in case["quartiles"]),
            name,
        ]
        for case, (name, _) in found
    ]
    slower_head = [
        "case", "shape, axes", "layout, data", "µs", "NumPy, µs", "ratio", "quartiles", "class",
    ]  # fmt: skip
    libraries = ", ".join(f"{name} {version}" for name, version in peers.items())
    processes = result.get("processes", 1)
    features = (
        " ".join(result["numpy_features"] or ["X86_V2"]) if "numpy_features" in result else ""
    )
    note = (
        f"Speed over NumPy's of {len(cases):,} random calls{functions_of(result)}, seed "
        f"{result['seed']}"
        f"{f' and the {processes - 1} after it' if processes > 1 else ''}, "
        f"{threads_of(result)}"
        f"{f', NumPy with {features}' if features else ''}; the best of NumPy"
        f"{f', {libraries}' if libraries else ''}. Cases below {result['again_below']} were "
        "measured three times, twice of them after all other cases."
    )
    reasons = f"{cpu_sweep_classes(found)}\n\n" if found else ""
    listed = f"\n\n{reasons}Slower than NumPy:\n\n{table(slower_head, slower)}" if slower else ""
    shares = cpu_sweep_shares(result)
    return f"{note}\n\n{shares}{table(head, rows)}{listed}\n\n{caption(result)}"


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "kernels": kernels_table,
    "short:kernels": staircase_table,
    "short:auto": lambda result: auto_table(result, SHORT["auto"]),
    "rows": rows_table,
    "auto": auto_table,
    "functions": functions_table,
    "axes": axes_table,
    "interop": interop_table,
    "sizes": sizes_table,
    "copies": copies_table,
    "finishes": finishes_table,
    "several": several_table,
    "exact": exact_table,
    "accuracy": accuracy_table,
    "host": host_table,
    "first_call": first_call_table,
    "cpu": cpu_table,
    "exact_cpu": exact_cpu_table,
    "cpu_sweep": cpu_sweep_table,
    "counters": counters_table,
}


def render(text: str) -> str:
    """A page with the content of each marked table replaced."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        part = name.partition("-")[0]
        if name == "sweep":
            found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("sweep_*.json"))]
            return f"<!-- table {name} -->\n{sweep_table(found)}\n<!-- end -->"
        if name == "cpu_sweep":
            found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("cpu_sweep-*"))]
            tables = "\n\n".join([cpu_sweep_summary(found), *map(cpu_sweep_table, found)])
            none = "*No results of a sweep are committed.*"
            return f"<!-- table {name} -->\n{tables if found else none}\n<!-- end -->"
        path = RESULTS / f"{name.removeprefix('short:')}.json"
        result = json.loads(path.read_text(encoding="utf-8"))
        return f"<!-- table {name} -->\n{TABLES[part](result)}\n<!-- end -->"

    return re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", replace, text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing, fail if there is a difference"
    )
    options = parser.parse_args()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        rendered = render(text)
        if not options.check:
            page.write_text(rendered, encoding="utf-8")
        elif rendered != text:
            sys.exit(
                f"{page.relative_to(ROOT)} differs from the results: run python "
                "benchmarks/report.py"
            )


if __name__ == "__main__":
    main()
