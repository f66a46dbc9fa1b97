"""The command ``gpureduce``: subcommands over the public functions.

Exit status: 0, 1 if the work failed, 2 if the command line is wrong. Errors are one line on standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import __version__
from ._exceptions import CudaError, DeviceUnavailableError, KernelUnavailableError

FAILED, WRONG_USAGE = 1, 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


# ---------------------------------------------------------------- explain


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", nargs="+", metavar="KERNEL", help="name or alias; several are compared")
    parser.add_argument("-n", type=int, help="elements of a row (default: four full blocks)")
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block (default: the kernel's own)")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row, for kernels that loop")
    parser.add_argument("--dtype", default="float32", help="of the elements (default: %(default)s)")
    parser.add_argument("--op", default="sum", help="sum, prod, min, max, mean, any or all (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=1, help="rows, each reduced by itself (default: %(default)s)")
    parser.add_argument("--source", action="store_true", help="print the source, with counts in the margin, too")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, and nothing else")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures of each column")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with tables, picture and source")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the picture (png, svg, pdf), by matplotlib")


def _explain(options: argparse.Namespace) -> None:
    from ._explain import explain

    found = explain(
        options.kernel,
        options.n,
        block_size=options.block_size,
        dtype=options.dtype,
        op=options.op,
        grid_size=options.grid_size,
        rows=options.rows,
    )
    if options.csv is not None:
        found.to_csv(options.csv)
    if options.html is not None:
        from ._html import page

        options.html.write_text(page(found), encoding="utf-8")
    if options.plot is not None:
        from ._picture import save

        save(found, options.plot)
    if options.json:
        print(found.to_json() if len(found) > 1 else found[0].to_json())
        return
    parts = [text for each in found for text in (str(each), each.annotated_source() if options.source else "") if text]
    if len(found) > 1:
        parts.append(str(found))
    print("\n\n".join(part.rstrip("\n") for part in parts))


# ---------------------------------------------------------------- the command


@dataclass(frozen=True)
class _Subcommand:
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


SUBCOMMANDS = {
    "explain": _Subcommand("see what a kernel does, on an emulated GPU", _add_explain, _explain),
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpureduce", description="Reduce arrays on NVIDIA GPUs by named kernels.")
    parser.add_argument("--version", action="version", version=f"gpureduce {__version__}")
    several = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for name, each in SUBCOMMANDS.items():
        each.add_arguments(several.add_parser(name, help=each.summary, description=each.summary))
    return parser


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
        SUBCOMMANDS[options.subcommand].run(options)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stdout = None  # nor is the rest flushed at exit
        return FAILED
    except (CudaError, DeviceUnavailableError, KernelUnavailableError, ImportError, MemoryError, OSError) as error:
        message = str(error)
    except RuntimeError as error:
        message = str(error)
    except (ValueError, TypeError) as error:
        message, status = str(error), WRONG_USAGE
    except KeyboardInterrupt:
        message = "interrupted"
    print(f"gpureduce {options.subcommand}: {' '.join(message.split())}", file=sys.stderr)
    return status
