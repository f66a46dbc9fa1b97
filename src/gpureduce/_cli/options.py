"""Parts that subcommands share: the parser, exit statuses, common options, JSON."""

from __future__ import annotations

import argparse
import difflib
import errno
import json
import os
from typing import Any, NoReturn

FAILED, WRONG_USAGE, WRONG_ANSWER, SLOWER, INTERRUPTED = 1, 2, 3, 4, 130


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and name what is near a wrong word."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = list(action.choices or ())
        if not choices or value in choices:
            return
        near = difflib.get_close_matches(str(value), map(str, choices))
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see --help"
        what = (action.metavar or action.dest or "choice") if not action.option_strings else "value"
        raise argparse.ArgumentError(
            action if action.option_strings else None,
            f"unknown {str(what).lower()} {value!r}; {hint}",
        )

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def print_json(thing: Any) -> None:
    """Print a JSON-ready thing."""
    print(json.dumps(thing, indent=1, default=str))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON, and nothing else"
    )


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``."""
    parser.add_argument(
        "--device", help="cpu, cuda, cuda:N or auto (default: a GPU if there is one)"
    )


def count(text: str) -> int:
    """Read a number of elements: ``1000000``, ``1_000_000`` or ``1e6``."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def examples(*lines: str) -> str:
    """The end of a help text: commands to try."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def axes(text: str) -> int | tuple[int, ...]:
    """Read the value of ``--axis``: one axis, or several with commas."""
    several = tuple(int(part) for part in text.split(",") if part.strip())
    return several if "," in text else int(text)


def add_bar(parser: argparse.ArgumentParser) -> None:
    """Add ``--progress`` and ``--no-progress``."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--progress", action="store_true", default=None, help="show a bar even into a pipe"
    )
    choice.add_argument("--no-progress", dest="progress", action="store_false", help="show none")


def expect_to_write(options: argparse.Namespace) -> None:
    """Raise, before minutes of work, if a file of the options cannot be written."""
    for path in filter(None, (options.csv, options.html, options.plot)):
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    if options.plot is not None:
        from .._display.figures import check_format

        check_format(options.plot)
    if getattr(options, "kind", None) is not None:
        from .._bench.charts import check_kind

        check_kind(options.kind)
