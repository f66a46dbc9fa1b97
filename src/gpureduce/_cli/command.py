"""The command ``gpureduce``: subcommands over the public functions.

Exit status: 0, 1 if the work failed, 2 if the command line or an argument is wrong, 3 if a result
was wrong, 4 if a kernel was slower than `--fail-if-slower` allows, 130 after an interrupt. An error
is one line on standard error.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import _core
from .._core import __version__
from .._exceptions import CudaError, DeviceUnavailableError, KernelUnavailableError
from .array_commands import ARRAY_FUNCTIONS, add_array_command, run_array_command
from .check_command import add_check, run_check
from .explain_command import add_explain, run_explain
from .info_commands import add_cache, add_kernels, run_cache, run_info, run_kernels
from .measure_commands import add_bench, add_compare, run_bench, run_compare
from .options import FAILED, INTERRUPTED, WRONG_USAGE, Parser, add_json, examples, print_json
from .reduce_command import add_reduce, add_reduction, reductions, run_reduce, run_reduction
from .tune_command import add_tune, run_tune
from .warm_command import add_warm, run_warm

__all__ = ["SUBCOMMANDS", "main"]

HELP_WIDTH = 78

_COMPLETION = """\
# bash: source <(gpureduce completion)    zsh: autoload -U bashcompinit && bashcompinit first
_gpureduce() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{subcommands}"
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{values}
      *) case "${{COMP_WORDS[1]}}" in
{cases}
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _gpureduce gpureduce
"""


def _words_of(action: argparse.Action) -> list[str]:
    """What may follow an option, or stand for a positional argument; nothing for file names."""
    from .._bench.baselines import BASELINES
    from .._bench.charts import KINDS
    from .._bench.session import CACHES, operators

    if action.choices is not None:
        return list(action.choices)
    is_file = "FILE" in str(action.metavar)
    kernels = [each["name"] for each in _core.kernels()]
    by_name: dict[str, list[str]] = {
        "kernel": kernels,
        "source": kernels,
        "name": kernels,
        "op": operators(),
        "dtype": list(_core.DTYPES),
        "device": ["cpu", "cuda", "auto"],
        "cache": list(CACHES),
        "kind": list(KINDS),
        "baselines": list(BASELINES),
    }
    return [] if is_file else by_name.get(action.dest, [])


def _completion(options: argparse.Namespace) -> int:
    """Print a completion script for the shell, generated from the parser."""
    values, cases = [], []
    for name, parser in _subparsers(_parser()).items():
        flags, words = [], []
        for action in parser._actions:
            flags += [flag for flag in action.option_strings if flag.startswith("--")]
            if not action.option_strings:
                words += _words_of(action)
            elif action.nargs != 0:
                spelled = " | ".join(f'"{name} {flag}"' for flag in action.option_strings)
                values.append(f'      {spelled}) words="{" ".join(_words_of(action))}" ;;')
        cases.append(f'        {name}) words="{" ".join([*flags, *words])}" ;;')
    script = _COMPLETION.format(
        subcommands=" ".join(SUBCOMMANDS), values="\n".join(values), cases="\n".join(cases)
    )
    if options.json:
        print_json({"script": script})
    else:
        print(script, end="")
    return 0


@dataclass(frozen=True)
class Subcommand:
    """One subcommand: its line of help, its options, the function that runs it, and examples."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    examples: tuple[str, ...] = ()


SUBCOMMANDS = {
    "info": Subcommand(
        "print devices, versions, and how to install what is missing", add_json, run_info
    ),
    "kernels": Subcommand(
        "list the kernels, or print the source of one",
        add_kernels,
        run_kernels,
        (
            "gpureduce kernels",
            "gpureduce kernels reduce3",
            "gpureduce kernels --source shfl_atomic",
        ),
    ),
    **{
        name: Subcommand(
            f"{name} of a .npy file",
            partial(add_reduction, name),
            run_reduction,
            (
                f"gpureduce {name} big.npy",
                f"gpureduce {name} big.npy --axis 0 --output columns.npy",
            ),
        )
        for name in reductions()
    },
    **{
        name: Subcommand(
            f"{name} of {'two .npy files' if 'dot' in name else 'a .npy file'}",
            partial(add_array_command, name),
            run_array_command,
            (f"gpureduce {name} {'x.npy y.npy' if 'dot' in name else 'big.npy'}",),
        )
        for name in ARRAY_FUNCTIONS
    },
    "reduce": Subcommand(
        "several reductions of a .npy file together, or one by an operator of your own",
        add_reduce,
        run_reduce,
        (
            "gpureduce reduce big.npy --op sum,min,max,argmax",
            "gpureduce reduce big.npy --operator gcd.cu --commutative --axis 0",
        ),
    ),
    "bench": Subcommand(
        "time one kernel: the whole call, its kernels alone, its stages",
        add_bench,
        run_bench,
        (
            "gpureduce bench",
            "gpureduce bench shfl_atomic -n 1e8 --cache cold",
            "gpureduce bench --op sum,min,max -n 1e8",
            "gpureduce bench --operator gcd.cu --dtype int32",
        ),
    ),
    "compare": Subcommand(
        "time kernels and libraries on one array, and check their results",
        add_compare,
        run_compare,
        (
            "gpureduce compare",
            "gpureduce compare reduce0 reduce6 auto -n 1e8 --block-size 128 256",
            "gpureduce compare auto --sizes 1e4 1e6 1e8 -n 1e8 --plot sizes.png",
            "gpureduce compare auto --dtype float32 float64 int32 --save before",
            "gpureduce compare auto --dtype float32 float64 int32 --against before",
            "gpureduce compare reduce3 auto --kernel-file mine.cu",
        ),
    ),
    "check": Subcommand(
        "find mistakes in a kernel of your own, on an emulated GPU",
        add_check,
        run_check,
        ("gpureduce check mine.cu", "gpureduce check mine.cu --block-size 128 --html report.html"),
    ),
    "explain": Subcommand(
        "count and draw what a kernel's threads do, on an emulated GPU",
        add_explain,
        run_explain,
        ("gpureduce explain reduce0 reduce1 reduce2", "gpureduce explain shfl_atomic --source"),
    ),
    "tune": Subcommand(
        "measure this GPU, so that later calls choose faster launches",
        add_tune,
        run_tune,
        ("gpureduce tune", "gpureduce tune --device cuda:1 --dry-run", "gpureduce tune --forget"),
    ),
    "warm": Subcommand(
        "compile kernels before the calls that need them",
        add_warm,
        run_warm,
        (
            "gpureduce warm sum mean --dtype float32 float64",
            "gpureduce warm max --dtype int32 --shape 1000,1000 --axis 0 --device sm_90",
            "gpureduce warm sum,min,max --operator gcd.cu --device sm_90",
        ),
    ),
    "cache": Subcommand("list or delete the compiled kernels on disk", add_cache, run_cache),
    "completion": Subcommand(
        "print a script that completes commands and options in bash and zsh",
        add_json,
        _completion,
        ("source <(gpureduce completion)",),
    ),
}


def _functions() -> list[str]:
    """Functions of arrays in files, which are subcommands."""
    return [*reductions(), *ARRAY_FUNCTIONS]


def _parser() -> argparse.ArgumentParser:
    listed = textwrap.fill(
        " ".join(_functions()), HELP_WIDTH, initial_indent="  ", subsequent_indent="  "
    )
    parser = Parser(
        prog="gpureduce",
        description="Reduce arrays on NVIDIA GPUs by named kernels, and explain and time these.",
        epilog=f"functions of the array in a .npy file, each a command:\n{listed}\n\n"
        + examples("gpureduce info", "gpureduce sum big.npy --axis 0", "gpureduce compare -n 1e7"),
    )
    parser.add_argument("--version", action="version", version=f"gpureduce {__version__}")
    several = parser.add_subparsers(dest="subcommand", title="commands", metavar="COMMAND")
    for name, each in SUBCOMMANDS.items():
        # Without a line of help it is not listed: the functions have a list of their own.
        line: dict[str, Any] = {} if name in _functions() else {"help": each.summary}
        epilog = examples(*each.examples) if each.examples else None
        each.add_arguments(
            several.add_parser(name, description=each.summary, epilog=epilog, **line)
        )
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
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    if not given:
        parser.print_help()
        return 0
    options = parser.parse_args(given)
    if options.subcommand is None:
        parser.error("a command is missing")
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
