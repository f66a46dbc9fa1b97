"""``gpureduce info``, ``kernels`` and ``cache``: devices, kernels, the cache, missing parts."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from .. import _core
from .._core import __version__
from .options import add_json, print_json

__all__ = ["add_cache", "add_kernels", "run_cache", "run_info", "run_kernels"]


def _missing(versions: tuple[int, int]) -> dict[str, str]:
    """Missing parts, each with the reason or how to install it."""
    import importlib.util
    import shutil

    from .._locate import emulator

    found = {}
    no_cuda = _core.why_no_cuda()
    if no_cuda is not None:
        found["GPU"] = no_cuda
    if not versions[1]:
        found["NVRTC"] = (
            "compiles kernels of a GPU: pip install 'gpureduce[cu13]', or [cu12] for CUDA 12"
        )
    extras = {
        "cuda.pathfinder": (
            "cu13",
            "finds the NVRTC that pip installs, which compiles kernels for a GPU",
        ),
        "ml_dtypes": ("bf16", "bfloat16 arrays"),
        "matplotlib": ("plot", "pictures"),
        "numba": ("numba", "operators that are Python functions"),
        "tqdm": ("progress", "progress bars"),
        "pynvml": ("clocks", "the GPU's clocks in benchmarks"),
    }
    for module, (extra, purpose) in extras.items():
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        if not there and (no_cuda is None or module != "pynvml"):
            found[module] = f"{purpose}: pip install 'gpureduce[{extra}]'"
    if emulator() is None:
        found["emulator"] = "explain, check: install gpureduce from its source, with pip install ."
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        found["C++ compiler"] = "explain, check: install g++"
    if no_cuda is None and shutil.which("ncu") is None:
        found["Nsight Compute"] = "--profile: install it, or put the toolkit's ncu on PATH"
    return found


def _costs(ordinal: int) -> dict[str, Any]:
    """Costs that a device's plans go by, and where they come from."""
    found = _core.plan_costs(ordinal)
    named = dict(zip(_core.PLAN_COSTS, found["costs"], strict=True))
    return {**found, "device": f"cuda:{ordinal}", "costs": named}


def _costs_words(ordinal: int) -> str:
    found = _costs(ordinal)
    costs = ", ".join(f"{name} {value:,.0f}" for name, value in found["costs"].items())
    if found["is_measured"]:
        return f"measured by gpureduce tune ({found['path']}): {costs}"
    return f"estimated, as {found['reason']}: {costs}"


def run_info(options: argparse.Namespace) -> int:
    from .._bench.environment import (
        environment,
        last_level_cache_bytes,
        peak_bytes_per_second,
        show_cuda_version,
    )
    from .._display.tables import lay_out, show_bandwidth, show_bytes, terminal_width
    from .._records import cache_info, cuda_versions, devices, limits

    _core.why_no_cuda()
    found, versions = devices(), cuda_versions()
    if not versions[1]:
        from .._locate import locate

        locate()
        versions = cuda_versions()
    missing, cache = _missing(versions), cache_info()
    if options.json:
        cpu = {"isa": _core.cpu_isa(), "last_level_cache_bytes": last_level_cache_bytes()}
        print_json(
            {
                "environment": environment(),
                "devices": [asdict(each) for each in found],
                "plan_costs": [_costs(each.ordinal) for each in found],
                "cpu": cpu,
                "limits": asdict(limits()),
                "cache": asdict(cache),
                "missing": missing,
            }
        )
        return 0
    setting = environment()
    lines = [("gpureduce", __version__), ("Python", setting["python"])]
    lines += [(name, version) for name, version in setting["versions"].items()]
    lines += [("driver for CUDA", show_cuda_version(versions[0]) if versions[0] else "none")]
    lines += [("NVRTC", show_cuda_version(versions[1]) if versions[1] else "none")]
    for each in found:
        capability = ".".join(map(str, each.compute_capability))
        peak = show_bandwidth(peak_bytes_per_second(each))
        words = (
            f"{each.name}, compute capability {capability}, {each.multiprocessors} "
            "multiprocessors, "
        )
        words += f"{show_bytes(each.memory_bytes)}, L2 {show_bytes(each.l2_bytes)}, {peak} GB/s"
        lines.append((f"cuda:{each.ordinal}", words))
        lines.append((f"plans of cuda:{each.ordinal}", _costs_words(each.ordinal)))
    last = show_bytes(last_level_cache_bytes())
    lines.append(
        (
            "cpu",
            f"{setting['cpu']}, {limits().cpu_threads} threads, {_core.cpu_isa()}, last-level "
            f"cache {last}",
        )
    )
    lines.append(("cache", _cache_words(cache)))
    lines += [(f"no {name}", how) for name, how in missing.items()]
    table = lay_out(["", ""], [list(line) for line in lines], left=2, width=terminal_width())
    print("\n".join(table.splitlines()[2:]))
    return 0


def add_kernels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", help="names or aliases (default: all)")
    parser.add_argument(
        "--source", metavar="NAME", help="print the CUDA source of a kernel instead"
    )
    parser.add_argument(
        "--with-helpers", action="store_true", help="also print the functions that the kernel calls"
    )
    parser.add_argument(
        "--export",
        metavar="NAME",
        help="print a kernel as one CUDA file with its helpers and a main(), which nvcc compiles",
    )
    parser.add_argument("--dtype", help="dtype of an exported kernel's elements (default: float32)")
    parser.add_argument("--op", help="operator of an exported kernel (default: sum)")
    parser.add_argument(
        "--block-size", type=int, help="threads per block of an exported kernel (default: its own)"
    )
    add_json(parser)


def run_kernels(options: argparse.Namespace) -> int:
    from .._display.kernel_list import KernelList, kernels
    from .._display.tables import terminal_width
    from .._records import kernel_source

    wanted = options.export or options.source
    if options.export is None and (options.dtype or options.op or options.block_size is not None):
        raise ValueError("--dtype, --op and --block-size belong to --export")
    if wanted is not None:
        if options.export is not None and (options.source is not None or options.with_helpers):
            raise ValueError("--export is a file with its helpers: no --source, no --with-helpers")
        if options.export is not None:
            text = kernel_source(
                options.export,
                standalone=True,
                dtype=options.dtype or "float32",
                op=options.op or "sum",
                block_size=options.block_size,
            )
        else:
            text = kernel_source(wanted, helpers="used" if options.with_helpers else False)
        if options.json:
            print_json({"kernel": _core.find_kernel(wanted), "source": text})
        else:
            print(text, end="" if text.endswith("\n") else "\n")
            if options.source is not None and not options.with_helpers and terminal_width():
                _explain_source(text)
        return 0
    names = [_core.find_kernel(name) for name in options.name]
    found = KernelList(info for info in kernels() if not names or info.name in names)
    if options.json:
        print_json([asdict(info) for info in found])
        return 0
    print("\n\n".join(map(str, found)) if names else found)
    return 0


def _explain_source(text: str) -> None:
    """What a reader in a terminal needs beside a source; a file or a pipe gets the source alone."""
    from .._display.tables import lay_out, terminal_width
    from .._kernel_sources import explained_words

    words = [list(pair) for pair in explained_words(text)]
    table = lay_out(["", ""], words, left=2, width=terminal_width()).splitlines()[2:]
    hint = "(--with-helpers also prints the functions that it calls)"
    print("\n".join(["", *table, "", hint]), file=sys.stderr)


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["show", "clear"], default="show", help="default: %(default)s"
    )
    add_json(parser)


def _cache_words(info: Any) -> str:
    from .._display.tables import show_bytes

    if not info.directory:
        return f"off: {info.reason}"
    return (
        f"{info.directory}: {info.entries:,} entries, {show_bytes(info.bytes)} of "
        f"{show_bytes(info.limit_bytes)}"
    )


def run_cache(options: argparse.Namespace) -> int:
    from .._records import cache_info, clear_cache

    if options.action == "clear":
        clear_cache()
    info = cache_info()
    if options.json:
        print_json(asdict(info))
    else:
        print(_cache_words(info))
    return 0
