"""Refuse circles of C and kernel files and folders, uses against the rooms' order, equal names.

    python tools/check_rooms.py [build/strict]

ROOMS is the one list of folders, in the order of the house: a file uses files of its own room and
of rooms that stand before it. A folder that is not listed belongs to the one around it. Calls are
read from the objects of the folder that is named, by nm; without one, only text is read.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent

# A room may use the rooms before it in its own list, and those that USES adds.
ROOMS = [
    [
        "csrc/include",
        "csrc/registry",
        "csrc/shared",
        "csrc/lib/base",
        "csrc/lib/exact",
        "csrc/lib/rules",
        "csrc/lib/driver",
        "csrc/lib/run",
        "csrc/cpu",
        "csrc/dispatch",
    ],
    ["csrc/python"],
    ["csrc/kernels/core", "csrc/kernels/fast", "csrc/kernels/exact", "csrc/kernels/several"],
    ["csrc/kernels/course"],
    ["csrc/kernels/custom"],
    ["csrc/emu"],
    ["csrc/vendor"],
]
USES = {
    "csrc/kernels/core": ["csrc/registry", "csrc/shared"],
    "csrc/kernels/fast": ["csrc/shared"],
    "csrc/kernels/exact": ["csrc/shared"],
    "csrc/kernels/several": ["csrc/shared"],
    "csrc/kernels/course": ["csrc/kernels/core"],
    "csrc/kernels/custom": ["csrc/kernels/core", "csrc/shared"],
    "csrc/python": [
        "csrc/include",
        "csrc/registry",
        "csrc/shared",
        "csrc/lib/base/convert.h",
        "csrc/lib/base/convert.c",
        "csrc/lib/base/integers.h",
        "csrc/lib/base/threads.h",
        "csrc/lib/base/threads.c",
        "csrc/lib/rules/nd_view.h",
        "csrc/lib/rules/nd_view.c",
        "csrc/vendor",
    ],
    "csrc/emu": ["csrc/shared", "csrc/lib/driver/driver.h"],
}
BY_HEADER = ["csrc/python"]
"""Rooms that call what the public header declares, whichever file defines it."""
Graph = Mapping[str, Iterable[str]]
"""Files, by path from the root, and the files that they use."""


def sources(root: Path, *suffixes: str) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.suffix in suffixes
    )


def includes(root: Path) -> dict[str, set[str]]:
    """Files of csrc that each file of csrc includes; a bare name is searched for in all folders."""
    files = [file for file in sources(root, ".c", ".h", ".cuh", ".def") if file.startswith("csrc/")]
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(Path(file).name, []).append(file)
    graph: dict[str, set[str]] = {}
    for file in files:
        graph[file] = set()
        for name in re.findall(
            r'^\s*#\s*include\s+"([^"]+)"', (root / file).read_text(), re.MULTILINE
        ):
            places = [
                Path(file).parent,
                *map(Path, ("csrc", "csrc/kernels", "csrc/include", "csrc/registry")),
            ]
            found = [str(place / name) for place in places if str(place / name) in files]
            found += by_name.get(Path(name).name, []) if not found and "/" not in name else []
            graph[file].update(found[:1])
    return graph


def calls(root: Path, objects: Path) -> dict[str, set[str]]:
    """Files whose functions and variables each C file uses, by the symbols of their objects."""
    header = (root / "csrc/include/gpureduce.h").read_text()
    public = set(re.findall(r"\bgpr_\w+(?=\()", header))
    defined: dict[str, str] = {}
    undefined: dict[str, set[str]] = {}
    for path in sorted(objects.rglob("*.o")):
        file = str(Path("csrc") / path.relative_to(objects).with_suffix(".c"))
        if not (root / file).exists():
            continue  # an object left over from a file that was moved
        undefined[file] = set()
        out = subprocess.run(
            ["nm", "-P", "-g", str(path)], capture_output=True, text=True, check=True
        ).stdout
        for name, kind, *_ in (line.split() for line in out.splitlines()):
            if kind == "U":
                if not (name in public and room_of(file) in BY_HEADER):
                    undefined[file].add(name)
            else:
                defined[name] = file
    return {
        file: {defined[name] for name in names if name in defined and defined[name] != file}
        for file, names in undefined.items()
    }


def room_of(file: str) -> str | None:
    rooms = [room for house in ROOMS for room in house if f"{file}/".startswith(f"{room}/")]
    return max(rooms, key=len, default=None)


def may_use(user: str, used: str) -> bool:
    """Whether a file of the first path may use one of the second."""
    room, other = room_of(user), room_of(used)
    if room is None or other is None or room == other:
        return True
    (house,) = (house for house in ROOMS if room in house)
    allowed = house[: house.index(room)] + USES.get(room, [])
    return any(each in (other, used) for each in allowed)


def against(graph: Graph) -> Iterator[str]:
    for user, others in graph.items():
        for used in sorted(others):
            if not may_use(user, used):
                yield f"{user} uses {used}, whose folder does not stand before its own"


def circles(graph: Graph) -> list[list[str]]:
    """Sets of nodes that reach each other, each sorted (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            one = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(one) > 1:
                result.append(sorted(one))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(result)


def between_folders(graph: Graph) -> dict[str, set[str]]:
    """Rooms and the rooms that they use."""
    result: dict[str, set[str]] = {}
    for user, others in graph.items():
        rooms = {room_of(used) for used in others}
        if (room := room_of(user)) is not None:
            result.setdefault(room, set()).update(
                each for each in rooms if each not in (None, room)
            )
    return result


def names_twice(files: Iterable[str]) -> Iterator[str]:
    """File names that occur in several folders."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(Path(file).name, []).append(file)
    for places in by_name.values():
        if len(places) > 1:
            yield f"one name for several files: {', '.join(places)}"


def findings(root: Path, objects: Path | None) -> Iterator[str]:
    """All violations, a line each."""
    graphs = {"include": includes(root)}
    if objects is not None:
        graphs["call"] = calls(root, objects)
        missing = [
            file for file in graphs["include"] if file.endswith(".c") and file not in graphs["call"]
        ]
        yield from (f"{file} has no object in {objects}" for file in missing)
    for verb, graph in graphs.items():
        yield from against(graph)
        for folders in circles(between_folders(graph)):
            yield f"folders {verb} each other: {', '.join(folders)}"
        for files in circles(graph):
            yield f"files {verb} each other: {', '.join(files)}"
    yield from names_twice(
        file for file in graphs["include"] if not file.startswith("csrc/vendor/")
    )


def main() -> None:
    objects = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    wrong = list(findings(ROOT, objects))
    print("\n".join(wrong) or "no circles, nothing against the direction of the rooms")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
