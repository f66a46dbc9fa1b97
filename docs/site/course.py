"""Pages of the kernel course, from the kernel files: prefaces as prose, code, measurements.

What a kernel's threads do comes from :func:`gpureduce.explain`. That takes a second a kernel, so it
is kept beside the site and made again when the kernels, the emulator or the code that explains have
changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import report  # benchmarks/report.py

import gpureduce as gr
from gpureduce import _core
from gpureduce._display.tables import markdown as table
from gpureduce._locate import emulator

_ROOT = Path(__file__).parents[2]

BLOCK_SIZE = 128
"""Threads of the blocks drawn: four warps show a pattern, and each thread can be seen."""

LABEL_WIDTH, BAR_WIDTH, VALUE_WIDTH, ROW_HEIGHT = 210, 430, 50, 18
"""Of the picture of the staircase, in pixels."""

STAIRCASE = ("atomic", "tree", "shuffle")
"""Families whose kernels follow from one another; each of the others begins anew."""

_LEADS = re.compile(r"^(Removed|Still paid|Launch|Reference|Problem): ")
_NAMED = re.compile(r"^( *)([a-z]\w+)( {2,})(\S.*)$")
_INDENT = re.compile(r" *")
_SPECIAL = re.compile(r"([\\`*_<>\[\]#$~|{}])")
_CODE = re.compile(
    r"`[^`]+`"
    r"|\b(?:ceil|log2)\((?:[^()]|\([^()]*\))*\)"
    r"|\b\w+(?:::\w+)+"
    r"|\b\w+(?:::\w+)*\[[^\]]*\]"
    r"|\b\w+\.(?:cuh|h|c)\b"
    r"|\b__\w+(?:\*\w+)?"
    r"|\b\w*[a-z0-9]_\w+(?:\.\w+)*(?:\(\))?"
    r"|\bBLOCK\b"
)


def preface(source: str) -> list[str]:
    """Lines of the comment that a file begins with, without their slashes and stars."""
    lines = []
    is_shared = source.startswith("/*")  # a file that is C, too
    for line in source.splitlines():
        if not is_shared and not line.startswith("//"):
            break
        lines.append(re.sub(r"^(//|/\*| \*) ?| \*/$", "", line))
        if is_shared and line.endswith("*/"):
            break
    if not lines:
        raise ValueError("a kernel file has no preface")
    return lines


def prose(lines: Sequence[str], pages: dict[str, str]) -> str:
    """A comment as Markdown; words of `pages` become links."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line)
        else:
            paragraphs.append([])
    parts = []
    for paragraph in paragraphs:
        run: list[str] = []
        for line in paragraph:
            if run and _is_indented(line) != _is_indented(run[0]):
                parts.append(_run(run, pages))
                run = []
            run.append(line)
        if run:
            parts.append(_run(run, pages))
    return "\n\n".join(parts) + "\n"


def _is_indented(line: str) -> bool:
    return line.startswith("  ")


def _run(lines: list[str], pages: dict[str, str]) -> str:
    """A few lines that are all indented or all are not."""
    margin = min(len(_INDENT.match(line)[0]) for line in lines)  # type: ignore[index]
    own = [line[margin:] for line in lines]
    if not margin or _LEADS.match(own[0]):
        return _paragraph(" ".join(own), pages)
    if _NAMED.match(own[0]):
        return _named_list(own, pages)
    return "```text\n" + "\n".join(own) + "\n```"


def _paragraph(text: str, pages: dict[str, str]) -> str:
    lead = _LEADS.match(text)
    return f"**{lead[1]}:** {_inline(text[lead.end() :], pages)}" if lead else _inline(text, pages)


def _named_list(lines: list[str], pages: dict[str, str]) -> str:
    """Names with what is said of each beside them, over one or more lines."""
    items: list[tuple[str, list[str]]] = []
    for line in lines:
        found = _NAMED.match(line)
        if found and not found[1]:
            items.append((found[2], [found[4]]))
        else:
            items[-1][1].append(line.strip())
    return "\n".join(
        f"- {_inline(name, pages, True)}: {_inline(' '.join(words), pages)}"
        for name, words in items
    )


def _inline(text: str, pages: dict[str, str], is_code: bool = False) -> str:
    """A text with its identifiers as code and links, and Markdown's own characters escaped."""
    parts, end = [], 0
    for found in re.compile(rf"{_CODE.pattern}|^\w+$" if is_code else _CODE).finditer(text):
        word = found[0]
        parts.append(_SPECIAL.sub(r"\\\1", text[end : found.start()]))
        end = found.end()
        code = f"`{word.strip('`')}`"
        target = pages.get(word.strip("`"))
        parts.append(f"[{code}]({target})" if target else code)
    parts.append(_SPECIAL.sub(r"\\\1", text[end:]))
    return "".join(parts)


# ---------------------------------------------------------------- what was measured


def _results(kind: str) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(report.RESULTS.glob(f"{kind}-*.json"))
    ]


def staircase() -> str:
    """A picture of how fast each kernel reads, for each GPU; names link to kernels' pages."""
    parts = []
    for result in _results("kernels"):
        present = [row for row in result["rows"] if "absent" not in row]
        peak = result["environment"]["device"]["peak_bytes_per_second"]
        right, height = LABEL_WIDTH + BAR_WIDTH, ROW_HEIGHT * len(present)
        bars, texts = [], []
        for i, row in enumerate(present):
            name, width = row["kernel"], BAR_WIDTH * row["bytes_per_second"] / peak
            y = ROW_HEIGHT * i
            place = f'x="{LABEL_WIDTH}" y="{y + 2}" width="{width:.1f}" height="{ROW_HEIGHT - 4}"'
            bars.append(f"<rect {place}/>")
            baseline = y + ROW_HEIGHT - 5
            word = f'<text x="{LABEL_WIDTH - 6}" y="{baseline}" text-anchor="end">{name}</text>'
            page = Path(_core.KERNEL_FILES[name]).with_suffix(".html")
            texts.append(f'<a href="kernels/{page}">{word}</a>')
            rate = report.gigabytes(row["bytes_per_second"])
            texts.append(
                f'<text x="{right + VALUE_WIDTH}" y="{baseline}" text-anchor="end">{rate}</text>'
            )
        line = f'<path d="M{right} 0v{height}"/>'
        foot = f"GB/s; the line is the memory's peak, {report.gigabytes(peak)}"
        texts.append(
            f'<text x="{right}" y="{height + ROW_HEIGHT - 3}" text-anchor="end">{foot}</text>'
        )
        size = f'viewBox="0 0 {right + VALUE_WIDTH} {height + ROW_HEIGHT}"'
        label = f'role="img" aria-label="Bandwidth of each kernel, {foot}"'
        parts.append(
            "```{raw} html\n"
            f'<svg class="gpr-staircase" xmlns="http://www.w3.org/2000/svg" {size} {label}>'
            f"{''.join(bars)}{line}{''.join(texts)}</svg>\n```\n\n{report.caption(result)}\n"
        )
    return "\n".join(parts)


def measured(names: Sequence[str], before: str | None) -> str:
    """Tables of a page's kernels, with the step before them, for each GPU measured."""
    parts = []
    for result in _results("kernels"):
        shown = {row["kernel"] for row in result["rows"] if "absent" not in row} & set(names)
        if shown:
            size = (
                f"{result['n']:,} {result['dtype']} in device memory to their {result['op']}, "
                "kernel time"
            )
            size += ", after the step before:" if before else ":"
            only = [*([before] if before else []), *names]
            parts.append(f"{size}\n\n{report.kernels_table(result, only)}")
    for result in _results("rows"):
        if any(row["kernel"] in names and "absent" not in row for row in result["rows"]):
            size = (
                f"{result['rows_reduced']:,} rows of {result['n']:,} {result['dtype']}, over block "
                "sizes:"
            )
            parts.append(f"{size}\n\n{report.rows_table(result, names)}")
    return "\n\n".join(parts)


# ---------------------------------------------------------------- what the threads do


def _fingerprint() -> str:
    """Of all that decides what an explanation says."""
    digest = hashlib.sha256(json.dumps(_core.sources()).encode())
    package = Path(_core.__file__).parent
    library = emulator()
    for path in (*sorted(package.rglob("*.py")), *([library] if library else []), Path(__file__)):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()}-{BLOCK_SIZE}"


def explained(groups: Iterable[Sequence[str]], kept: Path) -> list[str]:
    """What the kernels of each group do, in HTML, and how that is known; or why it is not."""
    kept.mkdir(parents=True, exist_ok=True)
    of_kept, fingerprint = kept / "fingerprint", _fingerprint()
    if not of_kept.is_file() or of_kept.read_text() != fingerprint:
        for old in kept.glob("*.html") if of_kept.is_file() else ():
            old.unlink()
        of_kept.write_text(fingerprint)
    sizes = {
        info.name: info.block_size
        for info in gr.kernels()
        if info.block_rule == str(info.block_size)
    }

    def explain(names: Sequence[str]) -> str:
        block_size = sizes.get(names[0], BLOCK_SIZE)
        path = kept / f"{names[0]}.html"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        try:
            found = gr.explain(list(names), block_size=block_size)
        except (gr.KernelUnavailableError, gr.DeviceUnavailableError) as reason:
            return f"There is no picture of it: {_inline(str(reason), {})}."
        shown = (
            (found if len(names) > 1 else found[0])
            ._repr_html_()
            .replace("<details open>", "<details>")
        )
        text = (
            f"Blocks of {block_size} threads, a sum of float32, on the "
            "[emulator](/docs/emulator.md); [explain](/docs/explain.md) says how to read it.\n\n"
            "```{raw} html\n"
            f"{shown}\n```"
        )
        path.write_text(text, encoding="utf-8")
        return text

    with ThreadPoolExecutor() as pool:
        return list(pool.map(explain, groups))


# ---------------------------------------------------------------- pages


def _facts(info: gr.KernelInfo) -> list[str]:
    capability = info.min_compute_capability
    return [
        f"`{info.name}`",
        ", ".join(f"`{alias}`" for alias in info.aliases),
        f"{info.block_rule} ({info.block_size})"
        if info.block_rule != str(info.block_size)
        else info.block_rule,
        "yes" if info.takes_grid_size else "no",
        "any" if info.commutative_only else "kept",
        "yes" if info.deterministic else "no",
        "any" if capability is None else "{}.{}".format(*capability),
    ]


_FACTS = [
    "name",
    "aliases",
    "block size",
    "`grid_size`",
    "operand order",
    "same bits each run",
    "compute capability",
]

_COLUMNS = ["kernel", "what it is", "removes", "still pays"]


def _path(file: str) -> str:
    """Where a file of device code is in the repository: no two have the same name."""
    folders = ("kernels/*", "shared", "registry")
    (path,) = (path for folder in folders for path in (_ROOT / "csrc").glob(f"{folder}/{file}"))
    return path.relative_to(_ROOT).as_posix()


def _page(file: str) -> str:
    """Name of a file's page. A header and a table may share a stem, and no kernel has either's."""
    path = Path(file)
    return file.replace(".", "_") if path.suffix in (".h", ".def") else path.stem


def _code(file: str, source: str) -> str:
    first = len(preface(source)) + 1
    return (
        f"```{{literalinclude}} /{_path(file)}\n"
        ":language: cuda\n"
        f":lines: {first}-\n"
        ":lineno-match:\n"
        "```\n"
    )


def pages(kept: Path) -> dict[str, str]:
    """Every page of the course, by its path in the site.

    Parameters
    ----------
    kept : Path
        Folder for explanations.
    """
    files: dict[str, list[gr.KernelInfo]] = {}
    for info in gr.kernels():
        files.setdefault(_core.KERNEL_FILES[info.name], []).append(info)
    sources = _core.sources()
    shared = [file for file in sources if file not in files]
    to_page = {file: f"/kernels/{_page(file)}.md" for file in sources}
    to_page |= {
        info.name: to_page[file]
        for file, infos in files.items()
        for info in infos
        if "_" in info.name
    }

    to_page |= {Path(file).stem: to_page[file] for file in shared if "_" in file}

    made = {}
    pictures = explained([[info.name for info in infos] for infos in files.values()], kept)
    before: gr.KernelInfo | None = None
    for (file, infos), picture in zip(files.items(), pictures, strict=True):
        names = [info.name for info in infos]
        lines = preface(sources[file])
        others = {word: page for word, page in to_page.items() if page != to_page[file]}
        title, _, summary = lines[0].partition(": ")
        parts = [
            f"# {', '.join(f'`{name}`' for name in names)}",
            prose([summary[:1].upper() + summary[1:] if summary else title, *lines[1:]], others),
            table(_FACTS, [_facts(info) for info in infos], len(_FACTS)),
        ]
        families = {infos[0].family, before.family if before else ""}
        is_next = len(families) == 1 or families <= set(STAIRCASE)
        if found := measured(names, before.name if before and is_next else None):
            parts.append(f"## Measured\n\n{found}")
        does = "its threads do" if len(names) == 1 else "their threads do"
        parts.append(f"## What {does}\n\n{picture}")
        parts.append(f"## Source\n\n`{_path(file)}`\n\n{_code(file, sources[file])}")
        made[f"kernels/{_page(file)}.md"] = "\n\n".join(parts)
        before = infos[0]
    for file in shared:
        lines = preface(sources[file])
        others = {word: page for word, page in to_page.items() if page != to_page[file]}
        made[f"kernels/{_page(file)}.md"] = (
            f"# `{file}`\n\n{prose(lines, others)}\n\n{_code(file, sources[file])}"
        )

    catalogue = [
        [f"[`{info.name}`]({to_page[file]})", *map(_cell, (info.summary, info.removes, info.pays))]
        for info in gr.kernels()
        for file in [_core.KERNEL_FILES[info.name]]
    ]
    made["_generated/catalogue.md"] = table(_COLUMNS, catalogue, len(_COLUMNS)) + "\n"
    made["_generated/staircase.md"] = staircase()
    made["_generated/course.md"] = _tree([*files, "shared"])
    made["_generated/shared.md"] = _tree(shared)
    firsts = [
        [f"[`{file}`]({to_page[file]})", _cell(_first_sentence(sources[file]))] for file in shared
    ]
    made["_generated/shared_files.md"] = table(["file", "what it is"], firsts, 2) + "\n"
    return made


def _tree(files: Iterable[str]) -> str:
    """A table of contents that only the sidebar shows."""
    return "\n".join(
        [
            "```{toctree}",
            ":hidden:",
            "",
            *(f"/kernels/{_page(file)}" for file in files),
            "```",
            "",
        ]
    )


def _first_sentence(source: str) -> str:
    text = " ".join(preface(source)).partition(". ")[0].rstrip(".")
    return text.rpartition(": ")[2] if re.match(r"\w+: ", text) else text


def _cell(text: str) -> str:
    return _inline(text, {})
