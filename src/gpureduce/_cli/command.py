"""The command ``gpureduce``: subcommands over the public functions.

Exit status: 0, 1 if the work failed, 2 if the command line or an argument is wrong, 3 if an answer was wrong, 130 if it
was interrupted. Errors are one line on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import inspect
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core, _functions
from .._core import __version__
from .._exceptions import CudaError, DeviceUnavailableError, KernelUnavailableError

if TYPE_CHECKING:
    import numpy as np

    from .._bench.compare import Comparison
    from .._bench.timing import Timing
    from .._explain.explanation import Explanations

FAILED, WRONG_USAGE, WRONG_ANSWER, INTERRUPTED = 1, 2, 3, 130
STANDARD_INPUT = "-"
DEFAULT_ELEMENTS = 10_000_000
"""Of the random array that is measured where no file is named."""
LEAST_WATCHED_BYTES = 1 << 28
"""Files shorter than this are read before a bar is worth looking at."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _print_json(thing: Any) -> None:
    print(json.dumps(thing, indent=1, default=str))


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print everything as JSON, and nothing else")


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="cpu, cuda, cuda:N or auto (default: a GPU if there is one)")


def axes(text: str) -> int | tuple[int, ...]:
    several = tuple(int(part) for part in text.split(",") if part.strip())
    return several if "," in text else int(text)


def _add_bar(parser: argparse.ArgumentParser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--progress", action="store_true", default=None, help="show a bar even into a pipe")
    choice.add_argument("--no-progress", dest="progress", action="store_false", help="show none")


# ---------------------------------------------------------------- explain


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", nargs="+", metavar="KERNEL", help="name or alias; several are compared")
    parser.add_argument("-n", type=int, help="elements of a row (default: four full blocks)")
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block (default: the kernel's own)")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row, for kernels that loop")
    parser.add_argument("--dtype", default="float32", help="of the elements (default: %(default)s)")
    parser.add_argument("--op", default="sum", help="the operator (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=1, help="rows, each reduced by itself (default: %(default)s)")
    parser.add_argument("--source", action="store_true", help="print the source, with counts in the margin, too")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, and nothing else")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures of each column")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with tables, picture and source")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the picture (png, svg, pdf), by matplotlib")


def explained(options: argparse.Namespace) -> Explanations:
    """Explain kernels as the options say."""
    from .._explain.explain import explain

    found: Explanations = explain(
        options.kernel,
        options.n,
        block_size=options.block_size,
        dtype=options.dtype,
        op=options.op,
        grid_size=options.grid_size,
        rows=options.rows,
    )
    return found


def _expect_to_write(options: argparse.Namespace) -> None:
    """Raise what would keep files from being written, before minutes are spent on what is to be in them."""
    for path in filter(None, (options.csv, options.html, options.plot)):
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    if options.plot is not None:
        from .._explain.picture import check_format

        check_format(options.plot)
    if getattr(options, "kind", None) is not None:
        from .._bench.charts import check_kind

        check_kind(options.kind)


def _explain(options: argparse.Namespace) -> int:
    _expect_to_write(options)
    found = explained(options)
    if options.csv is not None:
        found.to_csv(options.csv)
    if options.html is not None:
        from .._explain.page import page

        options.html.write_text(page(found), encoding="utf-8")
    if options.plot is not None:
        from .._explain.picture import save

        save(found, options.plot)
    if options.json:
        print(found.to_json() if len(found) > 1 else found[0].to_json())
        return 0
    parts = [text for each in found for text in (str(each), each.annotated_source() if options.source else "") if text]
    if len(found) > 1:
        parts.append(str(found))
    print("\n\n".join(part.rstrip("\n") for part in parts))
    return 0


# ---------------------------------------------------------------- reductions of files


def reductions() -> list[str]:
    """Names of the package's reductions, which are subcommands."""
    functions = [name for name in _functions.__all__ if not isinstance(getattr(_functions, name), type)]
    return [name for name in functions if name not in ("reduce", "amin", "amax")]


def _add_reduction(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.npy", help="memory-mapped; - for standard input")
    parser.add_argument("--axis", type=axes, help="axis, or several as 0,1 (default: all)")
    parser.add_argument("--dtype", help="that elements are converted to first, and of the result")
    parser.add_argument("--kernel", default="auto", help="name or alias (default: %(default)s)")
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row")
    _add_where(parser)
    parser.add_argument("--output", type=Path, metavar="FILE.npy", help="write the result to a file")
    _add_bar(parser)
    _add_json(parser)


def _named(dtype: str) -> np.dtype[Any]:
    from .._dtypes import native_dtype

    return native_dtype(dtype)


class _Pipe:
    """Standard input for NumPy, which would ask a file object where in the file it is."""

    def read(self, count: int = -1, /) -> bytes:
        return sys.stdin.buffer.read(count)


def load(name: str) -> tuple[np.ndarray[Any, Any], Path | None]:
    """The array of a .npy file, memory-mapped, with the file's place; or what comes in on standard input.

    Raises
    ------
    ValueError
        It is no .npy file, is cut off, or holds Python objects.
    OSError
        It cannot be read.
    """
    import numpy as np

    if name == STANDARD_INPUT:
        return np.lib.format.read_array(_Pipe(), allow_pickle=False), None
    path = Path(name).resolve()
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"{name} is no .npy file: save arrays by numpy.save")
    array: np.ndarray[Any, Any]
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        if "mmap" not in str(error) and "empty" not in str(error):
            raise ValueError(f"{name}: {error}") from None
        with path.open("rb") as file:  # an empty array cannot be mapped
            array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == 2:
        array = array.view(_named("bfloat16"))  # numpy.save writes it as two bytes of nothing in particular
    return array.view(np.ndarray), path


def as_json(value: Any) -> Any:
    """A result as JSON has it: lists and numbers; what JSON has no number for as NumPy's word for it."""
    import numpy as np

    if isinstance(value, tuple):
        return [as_json(each) for each in value]
    array = np.asarray(value)
    if array.ndim:
        return [as_json(each) for each in array]
    if array.dtype.kind == "c":
        return [as_json(array.real[()]), as_json(array.imag[()])]
    if array.dtype.kind in "mM":
        return str(array[()])
    plain = array[()].item() if array.dtype.kind in "biuf" else float(array[()])
    return plain if not isinstance(plain, float) or math.isfinite(plain) else str(plain)


def _reduce(options: argparse.Namespace) -> int:
    import numpy as np

    from .._bench.sampling import progress_bar
    from .._records import last_run
    from .watch import watching

    function = getattr(_functions, options.subcommand)
    array, path = load(options.file)
    asked = {"kernel": options.kernel, "device": options.device}
    asked |= {"block_size": options.block_size, "grid_size": options.grid_size, "axis": options.axis}
    if options.dtype is not None:
        if "dtype" not in inspect.signature(function).parameters:
            raise ValueError(f"{options.subcommand} takes no --dtype: it computes in the elements' own type")
        asked["dtype"] = _named(options.dtype)
    is_long = path is not None and array.nbytes >= LEAST_WATCHED_BYTES
    with contextlib.ExitStack() as open_:
        if path is not None and (options.progress or (is_long and options.progress is None)):
            bar = open_.enter_context(progress_bar(f"{options.subcommand} {path.name}", options.progress))
            open_.enter_context(watching(path, array.nbytes, bar))
        result = function(array, **asked)
    run = last_run()
    if options.output is not None:
        with options.output.open("wb") as file:
            np.save(file, np.asarray(result))
    if options.json:
        dtype = result[0].dtype if isinstance(result, tuple) else np.asarray(result).dtype
        found = {"result": as_json(result), "dtype": dtype.name, "op": options.subcommand, "kernel": options.kernel}
        found |= {"elements": array.size, "bytes": array.nbytes}
        if run is not None:
            found |= {"device": run.device, "variant": run.variant, "seconds": run.seconds}
        _print_json(found)
    elif options.output is None:
        with np.printoptions(threshold=sys.maxsize if not sys.stdout.isatty() else 1000):
            print(*result if isinstance(result, tuple) else (result,))
    return 0


# ---------------------------------------------------------------- measuring


def _add_measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", metavar="FILE.npy", help="array to reduce (default: random elements)")
    parser.add_argument("-n", type=int, help=f"random elements without a file (default: {DEFAULT_ELEMENTS:,})")
    parser.add_argument("--dtype", help="of the random elements (default: float32)")
    parser.add_argument("--op", default="sum", help="the operator (default: %(default)s)")
    parser.add_argument("--axis", type=axes, help="axis, or several as 0,1 (default: all)")
    parser.add_argument("--cache", default="hot", help="hot, cold or rotated (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="time for samples of each kind")
    _add_where(parser)
    parser.add_argument("--profile", action="store_true", help="add the hardware's counters, by Nsight Compute")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the tables")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a picture (png, svg, pdf), by matplotlib")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    _add_bar(parser)
    _add_json(parser)


def _measured(options: argparse.Namespace) -> np.ndarray[Any, Any]:
    """The array that is measured."""
    from .._bench.benchmark_array import random_values

    if options.file is not None:
        if options.n is not None or options.dtype is not None:
            raise ValueError("-n and --dtype are of random elements, without --file")
        return load(options.file)[0]
    n = DEFAULT_ELEMENTS if options.n is None else options.n
    if n < 1:
        raise ValueError(f"-n must be 1 or more, not {n}")
    return random_values(_named(options.dtype or "float32"), n)


def _shared(options: argparse.Namespace) -> dict[str, Any]:
    names = ("op", "axis", "cache", "device", "profile", "progress")
    given = {name: getattr(options, name) for name in names}
    return given if options.seconds is None else given | {"seconds": options.seconds}


def _show(found: Any, options: argparse.Namespace, **plot: Any) -> None:
    """Write and print a measurement in the forms that were asked for."""
    if options.csv is not None:
        found.to_csv(options.csv)
    if options.html is not None:
        from .._explain.page import whole_page

        options.html.write_text(whole_page(found.title, found._repr_html_()), encoding="utf-8")
    if options.plot is not None:
        from .._bench.charts import save

        save(found, options.plot, **plot)
    if options.json:
        print(found.to_json(indent=1))
    else:
        print(found.to_markdown() if options.markdown else str(found), end="")


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", nargs="?", default="auto", help="name or alias (default: %(default)s)")
    _add_measured(parser)
    parser.add_argument("--block-size", type=int, metavar="B", help="threads per block")
    parser.add_argument("--grid-size", type=int, metavar="G", help="blocks per row")


def bench(array: Any, options: argparse.Namespace) -> Timing:
    """Time a reduction of the array as the options say."""
    from .._bench.timing import benchmark

    sizes = {"block_size": options.block_size, "grid_size": options.grid_size}
    return benchmark(options.kernel, array, **sizes, **_shared(options))


def _bench(options: argparse.Namespace) -> int:
    _expect_to_write(options)
    _show(bench(_measured(options), options), options)
    return 0


def _add_compare(parser: argparse.ArgumentParser) -> None:
    from .._bench.compare import BASELINES

    parser.add_argument("kernel", nargs="*", help="names or aliases (default: all, or auto where there is no GPU)")
    _add_measured(parser)
    parser.add_argument("--block-size", type=int, nargs="+", metavar="B", help="threads per block, or several to try")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="compare on the first N elements, for each")
    parser.add_argument(
        "--baselines", nargs="*", default=list(BASELINES), metavar="LIBRARY", help="numpy, cub, cupy, torch"
    )
    parser.add_argument("--no-break-even", action="store_true", help="do not look for the size that is worth a GPU")
    parser.add_argument("--kind", help="of the picture: bars, sizes or roofline")


def contest(array: Any, options: argparse.Namespace) -> Comparison:
    """Compare on the array as the options say."""
    from .._bench.compare import compare

    return compare(
        array,
        options.kernel or None,
        block_size=options.block_size,
        baselines=options.baselines,
        sizes=options.sizes,
        break_even=not options.no_break_even,
        **_shared(options),
    )


def _compare(options: argparse.Namespace) -> int:
    _expect_to_write(options)
    found = contest(_measured(options), options)
    _show(found, options, kind=options.kind)
    return WRONG_ANSWER if any(row.is_kernel and row.right is False for row in found) else 0


# ---------------------------------------------------------------- what there is


def _missing(versions: tuple[int, int]) -> dict[str, str]:
    """What is not there, and how to get it."""
    import importlib.util
    import shutil

    from .._locate import emulator

    found = {}
    no_cuda = _core.why_no_cuda()
    if no_cuda is not None:
        found["GPU"] = no_cuda
    if not versions[1]:
        found["NVRTC"] = "pip install 'gpureduce[cu13]', or [cu12] for CUDA 12 drivers"
    extras = {"cuda.pathfinder": "cu13", "ml_dtypes": "bf16", "matplotlib": "plot", "tqdm": "progress"}
    for module, extra in extras.items():
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            found[module] = f"pip install 'gpureduce[{extra}]'"
    if emulator() is None:
        found["emulator"] = "for explain: install gpureduce from its source, with pip install ."
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        found["C++ compiler"] = "for explain: install g++"
    if shutil.which("ncu") is None:
        found["Nsight Compute"] = "for --profile: install it, or put the toolkit's ncu on PATH"
    return found


def _info(options: argparse.Namespace) -> int:
    from .._bench.environment import environment, last_level_cache_bytes, peak_bytes_per_second, show_cuda_version
    from .._display.tables import lay_out, show_bandwidth, show_bytes
    from .._records import cache_info, cuda_versions, devices, limits

    _core.why_no_cuda()
    found, versions = devices(), cuda_versions()
    if not versions[1]:
        from .._locate import locate

        locate()
        versions = cuda_versions()
    missing, cache = _missing(versions), cache_info()
    if options.json:
        cpu = {"isa": _core.cpu_isa(), "last_level_cache_bytes": last_level_cache_bytes()}
        _print_json(
            {
                "environment": environment(),
                "devices": [asdict(each) for each in found],
                "cpu": cpu,
                "limits": asdict(limits()),
                "cache": asdict(cache),
                "missing": missing,
            }
        )
        return 0
    setting = environment()
    lines = [("gpureduce", __version__), ("Python", setting["python"])]
    lines += [(name, version) for name, version in setting["versions"].items()]
    lines += [("driver for CUDA", show_cuda_version(versions[0]) if versions[0] else "none")]
    lines += [("NVRTC", show_cuda_version(versions[1]) if versions[1] else "none")]
    for each in found:
        capability = ".".join(map(str, each.compute_capability))
        peak = show_bandwidth(peak_bytes_per_second(each))
        words = f"{each.name}, compute capability {capability}, {each.multiprocessors} multiprocessors, "
        words += f"{show_bytes(each.memory_bytes)}, L2 {show_bytes(each.l2_bytes)}, {peak} GB/s"
        lines.append((f"cuda:{each.ordinal}", words))
    last = show_bytes(last_level_cache_bytes())
    lines.append(
        ("cpu", f"{setting['cpu']}, {limits().cpu_threads} threads, {_core.cpu_isa()}, last-level cache {last}")
    )
    lines.append(("cache", _cache_words(cache)))
    lines += [(f"no {name}", how) for name, how in missing.items()]
    print("\n".join(lay_out(["", ""], [list(line) for line in lines], left=2).splitlines()[2:]))
    return 0


def _add_kernels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", help="names or aliases (default: all)")
    parser.add_argument("--source", metavar="NAME", help="print the CUDA source of a kernel instead")
    _add_json(parser)


def _kernels(options: argparse.Namespace) -> int:
    from .._display.tables import lay_out
    from .._records import kernel_source, kernels

    if options.source is not None:
        text = kernel_source(options.source)
        if options.json:
            _print_json({"kernel": _core.find_kernel(options.source), "source": text})
        else:
            print(text, end="" if text.endswith("\n") else "\n")
        return 0
    wanted = [_core.find_kernel(name) for name in options.name]
    found = [info for info in kernels() if not wanted or info.name in wanted]
    if options.json:
        _print_json([asdict(info) for info in found])
        return 0
    if wanted:
        print("\n\n".join(_describe(info) for info in found))
        return 0
    rows = [
        [info.name, " ".join(info.aliases), str(info.block_size), "yes" if info.deterministic else "no", info.summary]
        for info in found
    ]
    headings = ["kernel", "aliases", "block", "same bits", "what it is"]
    print("\n".join(line[: _width()] for line in lay_out(headings, rows, left=5).splitlines()))
    return 0


def _width() -> int | None:
    """Columns of the terminal; ``None`` into a pipe, where nothing is cut."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _describe(info: Any) -> str:
    lines = [f"{info.name}: {info.summary}"]
    lines += [f"  aliases    {', '.join(info.aliases)}"] if info.aliases else []
    lines += [f"  removes    {info.removes}", f"  pays       {info.pays}", f"  source     {info.source}"]
    lines.append(f"  block      {info.block_size} by default; takes {info.block_rule}")
    if not info.available:
        lines.append(f"  not here   {info.reason}")
    return "\n".join(lines)


def _add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=["show", "clear"], default="show", help="default: %(default)s")
    _add_json(parser)


def _cache_words(info: Any) -> str:
    from .._display.tables import show_bytes

    if not info.directory:
        return f"off: {info.reason}"
    return f"{info.directory}: {info.entries:,} entries, {show_bytes(info.bytes)} of {show_bytes(info.limit_bytes)}"


def _cache(options: argparse.Namespace) -> int:
    from .._records import cache_info, clear_cache

    if options.action == "clear":
        clear_cache()
    info = cache_info()
    if options.json:
        _print_json(asdict(info))
    else:
        print(_cache_words(info))
    return 0


# ---------------------------------------------------------------- completion

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
    """Print a script for the shell, made from the parser itself."""
    from .._bench.session import operators

    names = [each["name"] for each in _core.kernels()]
    cases = []
    for name, parser in _subparsers(_parser()).items():
        flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
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
        _print_json({"script": script})
    else:
        print(script, end="")
    return 0


# ---------------------------------------------------------------- the command


@dataclass(frozen=True)
class _Subcommand:
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


SUBCOMMANDS = {
    "info": _Subcommand("devices, versions, and what is missing and how to get it", _add_json, _info),
    "kernels": _Subcommand("the catalogue of kernels, and their source", _add_kernels, _kernels),
    **{name: _Subcommand(f"{name} of a .npy file", _add_reduction, _reduce) for name in reductions()},
    "bench": _Subcommand("time one kernel: the call, its kernels, its stages", _add_bench, _bench),
    "compare": _Subcommand("time kernels and libraries on one array, answers checked", _add_compare, _compare),
    "explain": _Subcommand("see what a kernel does, on an emulated GPU", _add_explain, _explain),
    "cache": _Subcommand("show or clear the compiled kernels on disk", _add_cache, _cache),
    "completion": _Subcommand("print a script that completes words in bash and zsh", _add_json, _completion),
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpureduce", description="Reduce arrays on NVIDIA GPUs by named kernels, and measure it.")
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
        with warnings.catch_warnings():
            warnings.showwarning = _warn_in_one_line
            status = SUBCOMMANDS[options.subcommand].run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read the output has seen enough
        sys.stdout = None  # nor is the rest flushed at exit
        return FAILED
    except (CudaError, DeviceUnavailableError, KernelUnavailableError, ImportError, MemoryError, OSError) as error:
        message, status = str(error) or type(error).__name__, FAILED
    except RuntimeError as error:
        message, status = str(error), FAILED
    except (ValueError, TypeError) as error:
        message, status = str(error), WRONG_USAGE
    except KeyboardInterrupt:
        message, status = "interrupted", INTERRUPTED
    print(f"gpureduce {options.subcommand}: {' '.join(message.split())}", file=sys.stderr)
    return status
