"""Read the emulator's report, which has one JSON object per launch."""

from __future__ import annotations

import json
from typing import Any

from .launches import WARP_LANES, Atomics, BlockMap, Column, Count, Figures, Launch, Line, add_up

__all__ = ["read_report"]


REPORT_FORMAT = 2
_EXCHANGES = ("shuffle", "vote", "reduce")
_MEMORY = (
    "shared_load",
    "shared_store",
    "shared_atomic",
    "global_load",
    "global_store",
    "global_atomic",
    "copy",
)


def read_report(text: str) -> tuple[Launch, ...]:
    """Launches of the emulator's report, which has one JSON object per line.

    Parameters
    ----------
    text : str

    Returns
    -------
    tuple of Launch
    """
    launches: list[Launch] = []
    for line in text.splitlines():
        report = json.loads(line)
        if report["format"] != REPORT_FORMAT:
            raise RuntimeError(
                f"the emulator reports in format {report['format']}, this package reads "
                f"{REPORT_FORMAT}: they were built from different versions; install the package "
                "again"
            )
        if "::custom_facts<" in report["entry"]:  # tells the host of an operator
            continue
        seen_first = any(launch.stage == "first" for launch in launches)
        launches.append(_read_launch(report, _stage(report["entry"], seen_first)))
    return tuple(launches)


def _stage(entry: str, seen_first: bool) -> str:
    if "::fill_identity<" in entry or "::custom_clear<" in entry or entry == "gpr_set_value":
        return "fill"
    if "::finalize_rows<" in entry or "::custom_merge<" in entry:
        return "finish"
    # Where partials have the elements' type, the passes over both run one template.
    return "next" if "<Next," in entry or seen_first else "first"


def _read_count(row: dict[str, Any]) -> Count:
    return Count(**{name: row[name] for name in Count.__slots__ if name in row})


def _read_launch(report: dict[str, Any], stage: str) -> Launch:
    warps_there = _warps_there(report["columns"])
    barriers = _barriers(report["columns"])
    columns = tuple(
        _read_column(row, WARP_LANES * there, ends)
        for row, there, ends in zip(report["columns"], warps_there, barriers, strict=True)
    )
    atomics = {
        where: Atomics(*(row[name] for name in Atomics.__slots__))
        for where, row in report["atomics"].items()
    }
    most = max((each.most for each in atomics.values()), default=0)
    picture = report["map"]
    return Launch(
        entry=report["entry"],
        stage=stage,
        grid=report["grid"],
        block=report["block"],
        shared_bytes=report["shared_bytes"],
        columns=columns,
        lines=tuple(_read_line(row) for row in report["lines"]),
        atomics=atomics,
        map=BlockMap(
            picture["block"],
            picture["threads"],
            tuple(map(tuple, picture["did"])),
            tuple(map(tuple, picture["ways"])),
            tuple(map(tuple, picture["there"])),
            tuple(picture["conflicts"]),
            tuple(picture["atomics"]),
        ),
        figures=add_up((column.figures for column in columns), launches=1, most=most),
    )


def _warps_there(rows: list[dict[str, Any]]) -> list[int]:
    """Warps of all blocks in each column that have not exited: active or at a barrier later."""
    arrivals: dict[int, int] = {}
    for row in rows:
        waiting = row["ops"].get("barrier", {"requests": 0})["requests"]
        arrivals[row["phase"]] = arrivals.get(row["phase"], 0) + waiting
    there: list[int] = []
    most = 0
    for row in reversed(rows):
        most = max(most, row["warps"], arrivals[row["phase"]])
        there.append(most)
    return there[::-1]


def _barriers(rows: list[dict[str, Any]]) -> list[int]:
    """1 for the last column of each phase that ends with a block barrier, else 0."""
    last = {row["phase"]: i for i, row in enumerate(rows)}
    ended = {last[row["phase"]] for row in rows if "barrier" in row["ops"]}
    return [int(i in ended) for i in range(len(rows))]


def _read_column(row: dict[str, Any], slots: int, barriers: int) -> Column:
    ops = {name: _read_count(count) for name, count in row["ops"].items()}
    return Column(
        phase=row["phase"],
        step=row["step"],
        ends=row["ends"],
        file=row.get("from_file") or row["file"],
        line=row.get("from_line") or row["line"],
        op_file=row["file"],
        op_line=row["line"],
        blocks=row["blocks"],
        ops=ops,
        figures=_count(ops, row["threads"], row["warps"], slots, barriers),
    )


def _count(ops: dict[str, Count], threads: int, warps: int, slots: int, barriers: int) -> Figures:
    def total(field: str, *names: str) -> int:
        return sum(getattr(ops[name], field) for name in names if name in ops)

    shared = ("shared_load", "shared_store", "shared_atomic")
    in_global = ("global_load", "global_store", "global_atomic", "copy")
    wavefronts, ideal = total("wavefronts", *shared), total("ideal", *shared)
    return Figures(
        launches=0,
        barriers=barriers,
        active_threads=threads,
        active_warps=warps,
        slots=slots,
        shared_loads=total("requests", "shared_load"),
        shared_stores=total("requests", "shared_store"),
        bank_conflicts=wavefronts - ideal,
        wavefronts=wavefronts,
        ideal_wavefronts=ideal,
        shuffles=total("requests", *_EXCHANGES),
        copies=total("requests", "copy"),
        atomics=total("threads", "shared_atomic", "global_atomic"),
        most_on_one_address=None,
        global_requests=total("requests", *in_global),
        sectors=total("sectors", *in_global),
        ideal_sectors=total("ideal_sectors", *in_global),
        requests=total("requests", *_MEMORY),
        request_lanes=total("threads", *_MEMORY),
    )


def _read_line(row: dict[str, Any]) -> Line:
    return Line(
        file=row["file"],
        line=row["line"],
        from_file=row.get("from_file") or row["file"],
        from_line=row.get("from_line") or row["line"],
        op=row["op"],
        count=_read_count(row),
    )
