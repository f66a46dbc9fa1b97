"""Parts that subcommands share: the parser, exit statuses, common options, JSON."""

from __future__ import annotations

import argparse
import difflib
import errno
import itertools
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

FAILED, WRONG_USAGE, WRONG_ANSWER, SLOWER, INTERRUPTED = 1, 2, 3, 4, 130
STANDARD_OUTPUT = Path("-")
"""The file name that means standard output."""
MOST_COLUMNS = 100
"""Width of help texts on wide terminals."""
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_HEADING = re.compile(r"^(usage:|[a-z].*:$)", re.MULTILINE)


class Help(argparse.RawDescriptionHelpFormatter):
    """Help texts that fit the terminal."""

    def __init__(self, prog: str, **options: Any) -> None:
        import shutil

        width = min(shutil.get_terminal_size().columns - 2, MOST_COLUMNS)
        super().__init__(prog, **({"width": width} | options))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:  # examples, a line each
            return super()._fill_text(text, width, indent)
        import textwrap

        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def has_colour(file: Any) -> bool:
    """Whether text in a file may have colours, by NO_COLOR, FORCE_COLOR, TERM and the file."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    is_terminal: bool = hasattr(file, "isatty") and file.isatty()
    return is_terminal and os.environ.get("TERM") != "dumb"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and name what is near a wrong word or option."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", Help)
        super().__init__(*arguments, **options)

    def _print_message(self, message: str, file: Any = None) -> None:
        # Python 3.14 and newer colour help texts by themselves.
        is_help = file is not None and file is sys.stdout and sys.version_info < (3, 14)
        if is_help and has_colour(file):
            message = _HEADING.sub(rf"{_BOLD}\g<0>{_PLAIN}", message)
        super()._print_message(message, file)

    def parse_known_args(
        self, args: Any = None, namespace: Any = None, *more: Any, **options: Any
    ) -> Any:
        """Parse, and refuse an option that does not exist where it is, in its subcommand."""
        for word in itertools.takewhile(lambda word: word != "--", args or ()):
            self._expect_no_letter(word)
        known, unknown = super().parse_known_args(args, namespace, *more, **options)
        for word in unknown:
            if word.startswith("-") and word != "--":
                option = word.partition("=")[0]
                near = difflib.get_close_matches(option, self._option_string_actions, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.error(f"unknown option {option}{hint}")
        if unknown and not isinstance(self._subparsers, argparse._ArgumentGroup):
            self.error(f"unexpected {' '.join(unknown)}{self._hint_for(unknown)}")
        return known, unknown

    def _expect_no_letter(self, word: str) -> None:
        """Refuse ``--n`` where ``-n`` is meant: argparse would look for longer options."""
        option = word.partition("=")[0]
        options = self._option_string_actions
        is_letter = len(option) == len("--n") and option.startswith("--")
        if is_letter and option not in options and option[1:] in options:
            self.error(f"unknown option {option}; did you mean {option[1:]}?")

    def _hint_for(self, words: list[str]) -> str:
        """Where words belong that stand where no more are taken."""
        from .. import _core

        if "--op" in self._option_string_actions and set(words) <= set(_core.OPERATORS):
            return f": operators are given by --op {','.join(words)}"
        if self._takes_one_file() and all(map(_is_number, words)):
            name = self.prog.rpartition(" ")[2]
            in_python = f"in Python, gpureduce.{name}([1, 2, 3]) takes numbers"
            return f": {name} reads one .npy file; {in_python}"
        if any(action.nargs in ("*", "+") for action in self._get_positional_actions()):
            return ": write all words beside each other, before the options or after them"
        return ""

    def _takes_one_file(self) -> bool:
        taken = self._get_positional_actions()
        return [action.metavar for action in taken] == ["FILE.npy"]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = list(action.choices or ())
        if not choices or value in choices:
            return
        near = difflib.get_close_matches(str(value), map(str, choices))
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?" if near else f"see {self.prog} --help"
        )
        what = (action.metavar or action.dest or "choice") if not action.option_strings else "value"
        raise argparse.ArgumentError(
            action if action.option_strings else None,
            f"unknown {str(what).lower()} {value!r}; {hint}",
        )

    def error(self, message: str) -> NoReturn:
        see = "" if "--help" in message else f" (see {self.prog} --help)"
        self.exit(WRONG_USAGE, f"{self.prog}: {message}{see}\n")


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
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not number.is_integer():
            raise argparse.ArgumentTypeError(
                f"{text!r} is no number of elements; write 1000000 or 1e6"
            ) from None
        return int(number)


def examples(*lines: str) -> str:
    """The end of a help text: commands to try."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def axes(text: str) -> int | tuple[int, ...]:
    """Read the value of ``--axis``: one axis, or several with commas."""
    try:
        several = tuple(int(part) for part in text.split(",") if part.strip())
        return several if "," in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no axis; write 0, or 0,1") from None


def add_bar(parser: argparse.ArgumentParser) -> None:
    """Add ``--progress`` and ``--no-progress``."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--progress",
        action="store_true",
        default=None,
        help="show a progress bar even if the output is no terminal",
    )
    choice.add_argument(
        "--no-progress", dest="progress", action="store_false", help="show no progress bar"
    )


def prints_file(options: argparse.Namespace) -> bool:
    """Whether a file of the options is the standard output, which shows nothing else then."""
    return STANDARD_OUTPUT in (getattr(options, "csv", None), getattr(options, "html", None))


def write_text(path: Path, text: str) -> None:
    """Write a file, or print it."""
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")
        tell_written(path)


def tell_written(path: Path) -> None:
    """Say where a file is, beside what is printed."""
    print(f"wrote {path}", file=sys.stderr)


def expect_to_write(options: argparse.Namespace) -> None:
    """Raise, before minutes of work, if a file of the options cannot be written."""
    named = {name: getattr(options, name, None) for name in ("csv", "html", "plot")}
    printed = [name for name in ("csv", "html") if named[name] == STANDARD_OUTPUT]
    printed += [name for name in ("json", "markdown", "source") if getattr(options, name, False)]
    if prints_file(options) and len(printed) > 1:
        raise ValueError(f"only one of {', '.join(f'--{name}' for name in printed)} can be printed")
    for path in filter(None, named.values()):
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    if named["plot"] is not None:
        from .._display.figures import check_format

        check_format(options.plot)
    if getattr(options, "kind", None) is not None:
        from .._bench.charts import check_kind

        check_kind(options.kind)
