"""Imports go one way: no circle between modules or packages, none against the packages' order.

Imports inside functions and imports for type checkers count: a reader follows them like any other.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gpureduce as gr

Graph = dict[str, set[str]]
"""Modules that each module imports, named from the package down: ``"gpureduce._bench.timing"``."""

PACKAGES = ("_interop", "_display", "_yours", "_explain", "_bench", "_tune", "_cli")
"""From the bottom up: modules of a package import from it and from packages before it."""
BELOW_THE_API = ("_interop",)
"""Packages that modules beside the packages import: those modules are the reductions themselves."""
ON_TOP = ("__init__", "__main__")
"""Modules beside the packages that import from any package, and that no module imports."""


def read_graph(root: Path) -> Graph:
    """Imports of every module and stub below `root`, the folder of a package."""
    files: dict[str, list[Path]] = {}
    for file in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):
        name = ".".join([root.name, *file.relative_to(root).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        files.setdefault(name, []).append(file)
    return {
        name: set().union(*(imports_of(file, name, set(files)) for file in files[name]))
        for name in files
    }


def imports_of(file: Path, name: str, modules: set[str]) -> set[str]:
    """Those of `modules` that a file imports, anywhere in its text."""
    found = set()
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = [node.module] if node.module else []
            if node.level:
                source = [*package.split(".")[: package.count(".") + 2 - node.level], *source]
            below = {alias.name: ".".join([*source, alias.name]) for alias in node.names}
            found |= {each if each in modules else ".".join(source) for each in below.values()}
    return found & modules


def room(module: str) -> str:
    """The package that a module is in; ``""`` for a module beside the packages."""
    _, _, below = module.partition(".")
    return below.partition(".")[0] if below.partition(".")[0] in PACKAGES else ""


def by_packages(graph: Graph) -> Graph:
    """The same graph between packages; a module beside them is a node of its own."""
    nodes = {module: room(module) or module for module in graph}
    merged: Graph = {node: set() for node in nodes.values()}
    for module, imported in graph.items():
        merged[nodes[module]] |= {nodes[each] for each in imported} - {nodes[module]}
    return merged


def circle(graph: Graph) -> list[str]:
    """Modules that import each other in a circle, the first one also at the end; or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def against_the_order(graph: Graph) -> list[str]:
    """Imports that lead upwards, in words."""
    (root,) = {module.partition(".")[0] for module in graph}
    on_top = {root if name == "__init__" else f"{root}.{name}" for name in ON_TOP}
    wrong = []
    for module in sorted(graph.keys() - on_top):
        here = room(module)
        allowed = PACKAGES[: PACKAGES.index(here) + 1] if here else BELOW_THE_API
        wrong += [
            f"{module} imports {each}"
            for each in sorted(graph[module])
            if each in on_top or (room(each) and room(each) not in allowed)
        ]
    return wrong


@pytest.fixture(scope="module")
def graph() -> Graph:
    return read_graph(Path(gr.__file__).parent)


def test_modules_do_not_import_each_other_in_a_circle(graph: Graph) -> None:
    assert circle(graph) == []


def test_packages_do_not_import_each_other_in_a_circle(graph: Graph) -> None:
    assert circle(by_packages(graph)) == []


def test_no_import_goes_against_the_order_of_the_packages(graph: Graph) -> None:
    assert against_the_order(graph) == []


def test_every_package_has_its_place_in_the_order() -> None:
    folder = Path(gr.__file__).parent
    assert sorted(PACKAGES) == sorted(each.parent.name for each in folder.glob("*/__init__.py"))


# ---------------------------------------------------------------- what the tests above must find


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A small package in which every import is allowed."""
    root = tmp_path / "house"
    texts = {
        "__init__.py": "from ._sums import total\n",
        "_sums.py": "import math\nfrom . import _core\nfrom ._interop.arrays import read\n",
        "_core.pyi": "def reduce() -> float: ...\n",
        "_interop/__init__.py": "",
        "_interop/arrays.py": "from .. import _core\n",
        "_bench/__init__.py": "",
        "_bench/charts.py": "import math\n",
        "_bench/timing.py": "from .._sums import total\nfrom . import charts\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    return root


def test_a_package_in_order_has_nothing_to_find(planted: Path) -> None:
    graph = read_graph(planted)
    assert graph["house._sums"] == {"house._core", "house._interop.arrays"}
    assert graph["house._bench.timing"] == {"house._sums", "house._bench.charts"}
    assert (circle(graph), circle(by_packages(graph)), against_the_order(graph)) == ([], [], [])


@pytest.mark.parametrize(
    "text",
    [
        "from .timing import Timing\n",
        "from house._bench.timing import Timing\n",
        "import house._bench.timing\n",
        "def draw():\n    from . import timing\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .timing import Timing\n",
    ],
)
def test_a_planted_circle_is_found(planted: Path, text: str) -> None:
    (planted / "_bench" / "charts.py").write_text(text)
    assert set(circle(read_graph(planted))) == {"house._bench.charts", "house._bench.timing"}


def test_a_circle_of_packages_is_found_where_modules_have_none(planted: Path) -> None:
    (planted / "_interop" / "reading.py").write_text("from .._sums import total\n")
    graph = read_graph(planted)
    assert circle(graph) == []
    assert set(circle(by_packages(graph))) == {"_interop", "house._sums"}


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (
            "_interop/arrays.py",
            "from .._bench import charts\n",
            "house._interop.arrays imports house._bench.charts",
        ),
        ("_sums.py", "from ._bench.charts import bar\n", "house._sums imports house._bench.charts"),
        ("_bench/charts.py", "from .. import total\n", "house._bench.charts imports house"),
    ],
)
def test_an_import_that_leads_upwards_is_found(
    planted: Path, file: str, text: str, words: str
) -> None:
    (planted / file).write_text(text)
    assert against_the_order(read_graph(planted)) == [words]
