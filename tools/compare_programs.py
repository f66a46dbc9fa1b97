"""Compare the machine code of kernels before and after a change: needs NVRTC, cc, no GPU.

    python tools/compare_programs.py save /tmp/before               # on the tree before the change
    python tools/compare_programs.py compare /tmp/before            # on the tree after it
    python tools/compare_programs.py save /tmp/before --kernels exact --dtypes float32,int64

``save`` compiles a sample of programs, or those that the options name, and keeps their cubins with
what they contain: per kernel function a digest of its instructions and constants, how many
instructions it has, its registers, and its bytes of shared and of local memory (stack, and with it
what registers spill to). ``compare`` compiles the same programs again and prints what differs.
Names decide in which order the assembler takes functions, and so which registers it assigns: a
program whose PTX is the same but for symbols counts as the same, whatever its machine code.
``compare`` exits with 1 where a program differs, and with ``--allow-better`` only where a figure
has grown.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import struct
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

OPERATORS = "sum,mean,var,max,argmin"
DTYPES = "float16,bfloat16,float32,float64,int8,int64,complex64"
ARCHITECTURES = "90"

PRODUCTS = {"dot": None, "dot_rows": (0, False), "norm": (1, True)}
"""Programs of exact products; along axes their kind, and whether a root follows."""

INSTRUCTION_BYTES = 16
# The lower twelve bits of STL, LDL, NOP.
STORE_LOCAL, LOAD_LOCAL, NO_OPERATION = (0x387, 0x983, 0x918)
OPCODE_MASK = 0xFFF
FRAME_SIZE, REGISTER_COUNT = 0x11, 0x2F  # attributes in .nv.info
SIZED_VALUE = 4  # format of an attribute: two bytes of size, then the value


@dataclass(frozen=True)
class Case:
    """Programs that one call compiles: of a kernel, an operator or products, and a dtype."""

    kernel: str
    operator: str
    dtype: str
    cc: int

    @property
    def label(self) -> str:
        return f"{self.kernel}-{self.operator}-{self.dtype}-sm_{self.cc}-"


@dataclass
class Function:
    """Instructions and resources of a kernel function of a cubin."""

    name: str  # of the template: only shown
    digest: str
    ptx: str  # digest of the program's PTX
    instructions: int
    local_accesses: int
    registers: int
    local_bytes: int
    shared_bytes: int


FIGURES = ("instructions", "local_accesses", "registers", "local_bytes", "shared_bytes")


# ---- cubins


def ptx_digest(text: str) -> str:
    """Digest of a program's PTX without symbols, labels, and the order of functions."""
    text = re.sub(r"//.*", "", text)
    text = re.sub(r"[$\w]*_Z[\w$]+", "symbol", text)
    text = re.sub(r"(\$L__BB|__local_depot|callseq |prototype_)\d+", r"\1", text)
    parts = re.split(r"\n(?=\.(?:weak|visible|func|entry|shared|global|extern|const))", text)
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


@dataclass
class Section:
    name: str
    offset: int
    size: int
    info: int
    body: bytes


def sections_of(image: bytes) -> list[Section]:
    """Read the section table of a 64-bit ELF file."""
    table, entry_size, count, names_at = (
        struct.unpack_from("<Q", image, 0x28)[0],
        *struct.unpack_from("<HHH", image, 0x3A),
    )
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", image, table + i * entry_size) for i in range(count)
    ]
    strings = headers[names_at][4]
    sections = []
    for name, kind, _, _, offset, size, _, info, _, _ in headers:
        start = strings + name
        text = image[start : image.index(b"\0", start)].decode()
        without_bytes = kind == 8  # SHT_NOBITS
        sections.append(
            Section(
                text, offset, size, info, b"" if without_bytes else image[offset : offset + size]
            )
        )
    return sections


def symbols_of(sections: list[Section]) -> list[str]:
    table = next(section.body for section in sections if section.name == ".symtab")
    strings = next(section.body for section in sections if section.name == ".strtab")
    starts = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
    return [strings[start : strings.index(b"\0", start)].decode() for start in starts]


def attributes_of(sections: list[Section]) -> dict[tuple[str, int], int]:
    """Numbers that .nv.info has for functions, by symbol and attribute."""
    names = symbols_of(sections)
    found = {}
    body = next((section.body for section in sections if section.name == ".nv.info"), b"")
    at = 0
    while at + 4 <= len(body):
        form, attribute, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form != SIZED_VALUE:
            continue
        if size == 8 and attribute in (FRAME_SIZE, REGISTER_COUNT):
            symbol, value = struct.unpack_from("<II", body, at)
            found[names[symbol], attribute] = value
        at += size
    return found


def functions_of(image: bytes, ptx: str) -> list[Function]:
    sections = sections_of(image)
    by_name = {section.name: section for section in sections}
    attributes = attributes_of(sections)
    constants = b"".join(
        s.body for s in sections if re.fullmatch(r"\.nv\.constant[1-9]\d*(\..*)?", s.name)
    )
    functions = []
    for section in sections:
        if not section.name.startswith(".text."):
            continue
        symbol = section.name.removeprefix(".text.")
        opcodes = [
            struct.unpack_from("<Q", section.body, at)[0] & OPCODE_MASK
            for at in range(0, len(section.body), INSTRUCTION_BYTES)
        ]
        local = attributes.get((symbol, FRAME_SIZE), 0)
        shared = by_name.get(f".nv.shared.{symbol}")
        readable = re.match(r"_ZN3gpr(\d+)", symbol)
        name = symbol[readable.end() :][: int(readable[1])] if readable else symbol
        functions.append(
            Function(
                name,
                hashlib.sha256(section.body + constants).hexdigest(),
                ptx_digest(ptx),
                sum(opcode != NO_OPERATION for opcode in opcodes),
                sum(opcode in (STORE_LOCAL, LOAD_LOCAL) for opcode in opcodes),
                attributes.get((symbol, REGISTER_COUNT), section.info >> 24),
                local,
                shared.size if shared else 0,
            )
        )
    return sorted(functions, key=lambda function: -function.instructions)


# ---- compiling


def find_nvrtc() -> Path:
    """The NVRTC that the package uses."""
    from gpureduce import _core

    _core.compile_program("sequential", "sum", "int32", None, 0, 90)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if re.search(r"/libnvrtc\.so", line):
            return Path(line.split(maxsplit=5)[5])
    raise SystemExit("the package has compiled a program, and no NVRTC is loaded")


def make_recorder(folder: Path) -> Path:
    """Build the library that stands in front of NVRTC and writes cubins."""
    source = Path(__file__).with_name("record_nvrtc.c")
    recorder, nvrtc = folder / "record_nvrtc.so", find_nvrtc()
    options = [
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        f"-Wl,-rpath,{nvrtc.parent}",
        f'-DREAL_NVRTC="{nvrtc}"',
    ]
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, *options, source, nvrtc, "-ldl", "-o", recorder], check=True)
    return recorder


def compile_programs(case: Case, folder: Path, recorder: Path) -> int | None:
    """Compile a case's programs into `folder`: how many; None if the kernel does not fold this."""
    os.environ["GPUREDUCE_LIBNVRTC"] = str(recorder)
    import gpureduce as gr
    from gpureduce import _core

    library = ctypes.CDLL(str(recorder))
    library.record_to(str(folder / case.label).encode())
    try:
        along = PRODUCTS.get(case.operator)
        types = (case.dtype, case.dtype, case.dtype, None)
        if along is not None:
            _core.compile_dot_along(*types, along[0], False, along[1], 0, case.cc)
        elif case.operator in PRODUCTS:
            _core.compile_dot(*types, 0, case.cc)
        else:
            _core.compile_program(case.kernel, case.operator, case.dtype, None, 0, case.cc)
    except (gr.KernelUnavailableError, TypeError, ValueError):
        return None
    return int(library.record_to(b""))


def cases_of(options: argparse.Namespace) -> list[Case]:
    import gpureduce as gr

    # Kernel auto has fast's programs.
    names = [info.name for info in gr.kernels() if info.name not in ("auto", "cub")]
    kernels = options.kernels.split(",") if options.kernels else names
    operators, dtypes = options.operators.split(","), options.dtypes.split(",")
    architectures = [int(cc) for cc in options.cc.split(",")]
    cases = [Case(*each) for each in itertools.product(kernels, operators, dtypes, architectures)]
    if "exact" in kernels:
        cases += [
            Case(*each) for each in itertools.product(["exact"], PRODUCTS, dtypes, architectures)
        ]
    return cases


def compile_all(cases: list[Case], folder: Path, jobs: int) -> dict[str, list[Function]]:
    """Compile cases into `folder`, and return the functions of each program, by label."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    recorder = make_recorder(folder)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        counts = list(
            pool.map(compile_programs, cases, itertools.repeat(folder), itertools.repeat(recorder))
        )
    programs = {}
    for case, count in zip(cases, counts, strict=True):
        for i in range(count or 0):
            path = folder / f"{case.label}{i}.cubin"
            programs[path.stem] = functions_of(
                path.read_bytes(), path.with_suffix(".ptx").read_text()
            )
    listed = {
        label: [asdict(function) for function in functions] for label, functions in programs.items()
    }
    text = json.dumps({"cases": [asdict(case) for case in cases], "programs": listed}, indent=1)
    (folder / "programs.json").write_text(text + "\n")
    return programs


def read(folder: Path) -> tuple[list[Case], dict[str, list[Function]]]:
    saved = json.loads((folder / "programs.json").read_text())
    programs = {
        label: [Function(**each) for each in functions]
        for label, functions in saved["programs"].items()
    }
    return [Case(**case) for case in saved["cases"]], programs


# ---- comparing


def difference(before: list[Function], after: list[Function]) -> tuple[str, bool]:
    """Differences between two programs' functions, as text, and whether a figure has grown."""
    if len(before) != len(after):
        return f"{len(before)} functions, now {len(after)}", True
    texts, is_worse = [], False
    for old, new in zip(before, after, strict=True):
        if old.ptx == new.ptx or (
            old.digest == new.digest and old.shared_bytes == new.shared_bytes
        ):
            continue
        changed = [
            f"{figure} {getattr(old, figure)} -> {getattr(new, figure)}"
            for figure in FIGURES
            if getattr(old, figure) != getattr(new, figure)
        ]
        is_worse = is_worse or any(
            getattr(new, figure) > getattr(old, figure) for figure in FIGURES
        )
        texts.append(f"{new.name}: {', '.join(changed) or 'other instructions'}")
    return "; ".join(texts), is_worse


def compare(
    before: dict[str, list[Function]], after: dict[str, list[Function]], allow_better: bool
) -> int:
    failed = differing = 0
    for label in sorted(before.keys() | after.keys()):
        if label not in before or label not in after:
            text, is_worse = "only before" if label in before else "only after", True
        else:
            text, is_worse = difference(before[label], after[label])
        if not text:
            continue
        differing += 1
        failed += is_worse or not allow_better
        print(f"{'! ' if is_worse else '  '}{label}: {text}")
    print(f"{len(before)} programs, {differing} differ")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("save", "compare"):
        sub = actions.add_parser(action)
        sub.add_argument("folder", type=Path, help="where the programs before the change are kept")
        sub.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
        if action == "save":
            sub.add_argument(
                "--kernels", help="names, with commas between; all but cub without this"
            )
            sub.add_argument("--operators", default=OPERATORS)
            sub.add_argument("--dtypes", default=DTYPES)
            sub.add_argument(
                "--cc", default=ARCHITECTURES, help="compute capabilities, 10 * major + minor"
            )
        else:
            sub.add_argument("--after", type=Path, help="where to keep the programs of this tree")
            sub.add_argument(
                "--allow-better", action="store_true", help="fail only where a figure has grown"
            )
    options = parser.parse_args()
    if options.action == "save":
        print(
            f"{len(compile_all(cases_of(options), options.folder, options.jobs))} programs in "
            f"{options.folder}"
        )
        return 0
    cases, before = read(options.folder)
    after = compile_all(cases, options.after or options.folder / "after", options.jobs)
    return compare(before, after, options.allow_better)


if __name__ == "__main__":
    sys.exit(main())
