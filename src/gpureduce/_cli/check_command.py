"""``gpureduce check``: finds mistakes in a kernel of the user's own."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import WRONG_ANSWER, count, expect_to_write, prints_file, write_text

if TYPE_CHECKING:
    from .._yours.kernel import Kernel

__all__ = ["add_check", "add_kernel_options", "kernel_of", "kernel_or_name", "run_check"]


def kernel_or_name(word: Any, options: argparse.Namespace) -> Any:
    """The kernel of a CUDA file; a name of the catalogue or a ``Kernel`` is returned unchanged."""
    if isinstance(word, str) and word.endswith(".npy"):
        raise ValueError(f"{word} stands where a kernel does: the array is given by --file {word}")
    is_file = isinstance(word, str) and word.endswith((".cu", ".cuh"))
    return kernel_of(Path(word), options) if is_file else word


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """What a kernel's text does not say, as :class:`gpureduce.Kernel` takes it."""
    group = parser.add_argument_group("kernels of your own, in a .cu file")
    group.add_argument("--name", metavar="NAME", help="name of the kernel, if the file has several")
    group.add_argument(
        "--computes", metavar="OP", help="operator: sum, prod, min or max (default: inferred)"
    )
    group.add_argument(
        "--finish",
        metavar="HOW",
        help="how blocks store results: partials, atomic or single (default: inferred)",
    )
    group.add_argument(
        "--template",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a template parameter",
    )


_OPTIONS = {"by name=": "by --name NAME", "by finish=": "by --finish"}
"""Arguments that errors name, and the options they are here."""


def kernel_of(source: Path | str, options: argparse.Namespace, **more: Any) -> Kernel:
    """The kernel of a file or a text, with the options of :func:`add_kernel_options`."""
    from .._yours.kernel import Kernel

    values = {}
    for each in options.template:
        name, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"--template takes NAME=VALUE, not {each!r}")
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[name] = value
    given = {"op": options.computes, "finish": options.finish, "template": values}
    try:
        return Kernel(source, name=options.name, **given, **more)
    except ValueError as error:
        said = str(error)
        for argument, option in _OPTIONS.items():
            said = said.replace(argument, option)
        raise ValueError(said) from None


def add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="CUDA file with the kernel")
    add_kernel_options(parser)
    parser.add_argument(
        "--block-size",
        type=int,
        nargs="+",
        metavar="B",
        help="threads per block (default: the kernel's own, or several)",
    )
    parser.add_argument(
        "--sizes",
        type=count,
        nargs="+",
        metavar="N",
        help="numbers of elements (default: edge cases)",
    )
    parser.add_argument(
        "--dtype",
        nargs="+",
        metavar="DTYPE",
        help="dtypes of the elements, if the kernel is templated on them",
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON, and nothing else"
    )
    parser.add_argument(
        "--sanitizer",
        action="store_true",
        help="on a GPU, run it under NVIDIA's compute-sanitizer, too",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")


def run_check(options: argparse.Namespace) -> int:
    from .._display.html_page import whole_page
    from .._yours.check import check

    expect_to_write(options)
    kernel = kernel_of(options.file, options)
    report = check(
        kernel,
        block_sizes=options.block_size,
        sizes=options.sizes,
        dtypes=options.dtype,
        sanitizer=options.sanitizer,
    )
    if options.html is not None:
        write_text(options.html, whole_page(f"{kernel.name}: check", report._repr_html_()))
    if not prints_file(options):
        print(report.to_json(1) if options.json else str(report).rstrip("\n"))
    return 0 if report.right else WRONG_ANSWER
