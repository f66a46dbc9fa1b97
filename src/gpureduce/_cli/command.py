"""The command ``gpureduce``: subcommands over the public functions.

Exit status: 0, 1 if the work failed, 2 if the command line or an argument is wrong, 3 if a result
was wrong, 130 after an interrupt. An error is one line on standard error.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import _core
from .._core import __version__
from .._exceptions import CudaError, DeviceUnavailableError, KernelUnavailableError
from .explain_command import add_explain, run_explain
from .info_commands import add_cache, add_kernels, run_cache, run_info, run_kernels
from .measure_commands import add_bench, add_compare, run_bench, run_compare
from .options import FAILED, INTERRUPTED, WRONG_USAGE, Parser, add_json, print_json
from .reduce_command import add_reduction, reductions, run_reduction

__all__ = ["SUBCOMMANDS", "main"]


_COMPLETION = """\
# bash: source <(gpureduce completion)    zsh: autoload -U bashcompinit && bashcompinit first
_gpureduce() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{subcommands}"
  else
    case "${{COMP_WORDS[COMP_CWORD - 1]}}" in
      --kernel | --source) words="{kernels}" ;;
      --op) words="{operators}" ;;
      --device) words="cpu cuda auto" ;;
      --cache) words="hot cold rotated" ;;
      *) case "${{COMP_WORDS[1]}}" in
{cases}
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _gpureduce gpureduce
"""
_NAMING_KERNELS = ("bench", "compare", "explain", "kernels")


def _completion(options: argparse.Namespace) -> int:
    """Print a completion script for the shell, generated from the parser."""
    from .._bench.session import operators

    names = [each["name"] for each in _core.kernels()]
    cases = []
    for name, parser in _subparsers(_parser()).items():
        flags = [
            flag
            for action in parser._actions
            for flag in action.option_strings
            if flag.startswith("--")
        ]
        more = names if name in _NAMING_KERNELS else []
        more = [*more, "show", "clear"] if name == "cache" else more
        cases.append(f'        {name}) words="{" ".join([*flags, *more])}" ;;')
    script = _COMPLETION.format(
        subcommands=" ".join(SUBCOMMANDS),
        kernels=" ".join(names),
        operators=" ".join(operators()),
        cases="\n".join(cases),
    )
    if options.json:
        print_json({"script": script})
    else:
        print(script, end="")
    return 0


@dataclass(frozen=True)
class Subcommand:
    """One subcommand: its line of help, its options, and the function that runs it."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


SUBCOMMANDS = {
    "info": Subcommand(
        "devices, versions, and what is missing and how to get it", add_json, run_info
    ),
    "kernels": Subcommand("the catalogue of kernels, and their source", add_kernels, run_kernels),
    **{
        name: Subcommand(f"{name} of a .npy file", add_reduction, run_reduction)
        for name in reductions()
    },
    "bench": Subcommand("time one kernel: the call, its kernels, its stages", add_bench, run_bench),
    "compare": Subcommand(
        "time kernels and libraries on one array, results checked", add_compare, run_compare
    ),
    "explain": Subcommand("see what a kernel does, on an emulated GPU", add_explain, run_explain),
    "cache": Subcommand("show or clear the compiled kernels on disk", add_cache, run_cache),
    "completion": Subcommand(
        "print a script that completes words in bash and zsh", add_json, _completion
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="gpureduce",
        description="Reduce arrays on NVIDIA GPUs by named kernels, and measure it.",
    )
    parser.add_argument("--version", action="version", version=f"gpureduce {__version__}")
    several = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, each in SUBCOMMANDS.items():
        each.add_arguments(several.add_parser(name, help=each.summary, description=each.summary))
    return parser


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    action = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)


def _warn_in_one_line(message: Warning | str, *_: object, **__: object) -> None:
    print(f"gpureduce: warning: {' '.join(str(message).split())}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the command's own name; those of the process by default.

    Returns
    -------
    int
        Exit status.
    """
    options = _parser().parse_args(arguments)
    status = FAILED
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed")
        with warnings.catch_warnings():
            warnings.showwarning = _warn_in_one_line
            status = SUBCOMMANDS[options.subcommand].run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output has closed it
        sys.stdout = None  # else the exit would flush the rest
        return FAILED
    except (
        CudaError,
        DeviceUnavailableError,
        KernelUnavailableError,
        ImportError,
        MemoryError,
        OSError,
    ) as error:
        message, status = str(error) or type(error).__name__, FAILED
    except RuntimeError as error:
        message, status = str(error), FAILED
    except (ValueError, TypeError) as error:
        message, status = str(error), WRONG_USAGE
    except KeyboardInterrupt:
        message, status = "interrupted", INTERRUPTED
    print(f"gpureduce {options.subcommand}: {' '.join(message.split())}", file=sys.stderr)
    return status
