"""Print the requirements of an extra of pyproject.toml, one a line, with those of extras it names.

python tools/extra.py test
"""

from __future__ import annotations

import pathlib
import re
import sys
import tomllib

EXTRAS: dict[str, list[str]] = tomllib.loads(
    (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text()
)["project"]["optional-dependencies"]


def requirements(extra: str) -> list[str]:
    found: list[str] = []
    for requirement in EXTRAS[extra]:
        own = re.fullmatch(r"gpureduce\[(.*)\]", requirement)
        parts = (
            [one for name in own[1].split(",") for one in requirements(name)]
            if own
            else [requirement]
        )
        found += [part for part in parts if part not in found]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
