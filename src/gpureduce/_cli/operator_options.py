"""Operators of a command: one by its name, several by their names, or those of the user's own."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._yours.own_operator import Operator

__all__ = ["add_operators", "add_own", "operator_of", "operators_of", "read_names"]

_COMBINES = re.compile(r"\b(?:struct|class)\s+(\w+)\s*(?:final\s*)?\{")
_BLANK = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def add_operators(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Add ``--op``, ``--operator`` and ``--commutative``."""
    shown = "" if default is None else f" (default: {default})"
    parser.add_argument(
        "--op",
        metavar="OP[,OP...]",
        help=f"the operator, or several whose results are computed together{shown}",
    )
    add_own(parser)


def add_own(parser: argparse.ArgumentParser) -> None:
    """Add ``--operator`` and ``--commutative``."""
    own = parser.add_argument_group("operators of your own, in CUDA C++")
    own.add_argument(
        "--operator",
        action="append",
        default=[],
        metavar="FILE[:NAME]",
        help="file of an operator, and the name of its structure (default: the file's only one)",
    )
    own.add_argument(
        "--commutative",
        action="store_true",
        help="its elements may be combined in any order, which is faster",
    )


def read_names(text: str) -> str | tuple[str, ...]:
    """Read ``sum``, or several with commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"operators are names with commas between, as sum,min, not {text!r}")
    return names if len(names) > 1 else names[0]


def operator_of(text: str, options: argparse.Namespace) -> Operator:
    """The operator of ``FILE`` or ``FILE:NAME``."""
    from .._yours.own_operator import Operator
    from .._yours.source_file import read_source

    file, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = text, ""
    path = Path(file)
    if not name:
        found = _COMBINES.findall(_BLANK.sub(" ", read_source(path)))
        # A structure within one, as of states, is not an operator.
        outer = [each for each in dict.fromkeys(found) if each != "State"]
        if len(outer) != 1:
            listed = f", it has {', '.join(outer)}" if outer else ""
            raise ValueError(
                f"{path.name} has not one structure{listed}: name the operator's, as "
                f"--operator {path.name}:NAME"
            )
        name = outer[0]
    return Operator(name, path, commutative=options.commutative)


def operators_of(options: argparse.Namespace, default: str | None) -> Any:
    """What the options name: a name, an operator, or a tuple of several."""
    named: tuple[Any, ...] = ()
    if options.op is not None:
        names = read_names(options.op)
        named = names if isinstance(names, tuple) else (names,)
    own = tuple(operator_of(text, options) for text in options.operator)
    if options.commutative and not own:
        raise ValueError("--commutative is about an operator of your own: --operator FILE")
    found = (*named, *own) or (() if default is None else (default,))
    if not found:
        raise ValueError("no operator is named: --op sum, or --operator FILE")
    return found if len(found) > 1 else found[0]
