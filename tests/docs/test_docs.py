"""The pages are right before the site is built: links, anchors, tables, the C header."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pages
import pytest

import gpureduce as gr
from gpureduce import _core

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("benchmarks", "docs/site", "tools")]

import c_api  # noqa: E402
import check_rooms  # noqa: E402
import course  # noqa: E402
import markdown_pages  # noqa: E402
import report  # noqa: E402
import stage  # noqa: E402

SITE = "docs/site/"
HEADER = (ROOT / "csrc" / "include" / "gpureduce.h").read_text()
REPOSITORY_PAGES = [page for page in pages.PAGES if not page.startswith(SITE)]


@pytest.mark.parametrize("page", REPOSITORY_PAGES)
def test_links_lead_to_files_and_anchors_as_github_reads_them(page: str) -> None:
    for line, target in markdown_pages.links((ROOT / page).read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = Path(os.path.normpath(ROOT / Path(page).parent / file)) if file else ROOT / page
        assert path.is_file(), f"{page}:{line}: there is no {target}"
        assert ROOT in path.parents, f"{page}:{line}: {target} is outside of the repository"
        if anchor:
            assert anchor in markdown_pages.anchors(path.read_text()), (
                f"{page}:{line}: {file} has no #{anchor}"
            )


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_tables_say_what_the_results_say(page: Path) -> None:
    text = page.read_text()
    assert report.render(text) == text, "run python benchmarks/report.py"


# ---------------------------------------------------------------- Markdown

SAMPLE = """\
# A page: with `code`

[one](a.md) and ![two](b/c.png) `[no](link.md)`

## The *second* part
## The *second* part

```sh
# no heading [no](link.md)
```

<!-- example: needs this, that -->
<!-- example: before it
x = 1
y = 2 -->
```python
x + y
```
"""


def files_named_in(text: str) -> set[str]:
    """Paths of C, CUDA and Python files that a text names, from csrc or from the root."""
    return set(
        re.findall(
            r"(?<![\w/.-])((?:csrc/|src/gpureduce/|tools/|tests/|benchmarks/)?"
            r"(?:lib/\w+|kernels/\w+|shared|cpu|dispatch|registry|emu|python|include|_\w+|\w+)"
            r"/\w+\.(?:c|h|cuh|def|py))\b",
            text,
        )
    )


def is_there(name: str) -> bool:
    return any(
        (folder / name).is_file()
        for folder in (ROOT, ROOT / "csrc", ROOT / "csrc/kernels", ROOT / "src/gpureduce")
    )


def test_files_that_a_text_names_are_found() -> None:
    assert files_named_in("`lib/rules/plan.c`, `csrc/cpu/cpu.c:1` and dispatch/*.c, x.c") == {
        "lib/rules/plan.c",
        "csrc/cpu/cpu.c",
    }
    assert is_there("lib/run/launch.c")
    assert not is_there("lib/run/no.c")


@pytest.mark.parametrize(
    "page",
    ["CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))],
)
def test_files_that_pages_name_exist(page: str) -> None:
    named = files_named_in((ROOT / page).read_text())
    assert {name for name in named if not is_there(name)} == set()


def test_files_that_sources_name_exist() -> None:
    """In comments and docstrings: includes are the compiler's to check."""
    named = {
        (str(path.relative_to(ROOT)), name)
        for folder in ("csrc", "src", "tools", "examples", "benchmarks", "tests/emu", "tests/c")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".c", ".h", ".cuh", ".cpp", ".def", ".py") and "vendor" not in path.parts
        for line in path.read_text().splitlines()
        if not re.match(r"\s*#\s*include", line)
        for name in files_named_in(line)
        if name != "array_api_tests/test_statistical_functions.py"  # of the standard's own suite
    }
    assert not [f"{path}: {name}" for path, name in sorted(named) if not is_there(name)]


def test_links_are_those_outside_of_code() -> None:
    assert list(markdown_pages.links(SAMPLE)) == [(3, "a.md"), (3, "b/c.png")]


def test_anchors_are_githubs() -> None:
    assert markdown_pages.anchors(SAMPLE) == {
        "a-page-with-code",
        "the-second-part",
        "the-second-part-1",
    }


def test_blocks_know_their_language_line_and_notes() -> None:
    shell, python = markdown_pages.blocks(SAMPLE)
    assert (shell.language, shell.text, shell.line, shell.notes) == (
        "sh",
        "# no heading [no](link.md)\n",
        8,
        (),
    )
    assert (python.language, python.text) == ("python", "x + y\n")
    assert python.notes == ("needs this, that", "before it\nx = 1\ny = 2")
    with pytest.raises(ValueError, match="has no end"):
        list(markdown_pages.blocks("```python\n1\n"))


def test_sections_and_introduction_are_the_whole_page() -> None:
    text = (ROOT / "README.md").read_text()
    parts = markdown_pages.sections(text)
    assert next(iter(parts)) == "start"
    assert all(part.startswith("# ") for part in parts.values())
    title = text.splitlines()[0]
    assert not markdown_pages.introduction(text).startswith(title)
    words = (
        " ".join([title, markdown_pages.introduction(text), *parts.values()])
        .replace("#", "")
        .split()
    )
    assert words == text.replace("#", "").split()


def test_the_design_page_lists_every_room_and_every_variant() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    listed = set(re.findall(r"^\| `((?:csrc|src)/[\w/]+)/` \|", page, re.MULTILINE))
    rooms = {room for rooms in check_rooms.ROOMS for room in rooms} - {"csrc/include"}
    package = ROOT / "src" / "gpureduce"
    packages = {str(path.parent.relative_to(ROOT)) for path in package.rglob("__init__.py")}
    assert listed == rooms | packages
    kernels = [
        name
        for folder in ("fast", "exact")
        for path in (ROOT / "csrc" / "kernels" / folder).glob("*.cuh")
        for name in re.findall(r"^__global__[^\n]*\n(\w+)\(", path.read_text(), re.MULTILINE)
    ]
    assert len(kernels) > 10
    assert [name for name in kernels if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("page", pages.PAGES)
def test_code_of_a_page_fits_the_sites_column(page: str) -> None:
    """The site's style sheet makes room for 100 columns, which kernel files have at most."""
    for block in markdown_pages.blocks((ROOT / page).read_text()):
        widest = max(block.text.splitlines(), key=len, default="")
        assert len(widest) <= 100, f"{page}:{block.line}: {widest}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_the_readme_names_no_place_on_a_page_because_the_site_takes_it_apart() -> None:
    for name, part in stage.readme_parts(stage.site_pages()).items():
        assert re.findall(r"(?i)\b(?:above|below|(?:top|end) of|this page)\b", part) == [], name


def test_every_section_of_the_readme_has_a_page() -> None:
    own = stage.site_pages()
    assert stage.readme_parts(own)
    name = next(name for name, text in own.items() if f"/{stage.PARTS}/start.md" in text)
    with pytest.raises(ValueError, match="no page takes in the section 'start'"):
        stage.readme_parts(own | {name: ""})


# ---------------------------------------------------------------- kernels


@pytest.mark.parametrize("file", sorted(set(_core.KERNEL_FILES.values())))
def test_a_kernel_files_preface_is_a_lesson(file: str) -> None:
    lines = course.preface(_core.sources()[file])
    named = lines[0].partition(": ")[0].split(", ")
    kernels = [info.name for info in gr.kernels() if _core.KERNEL_FILES[info.name] == file]
    assert set(kernels) <= set(named) or file == "fast.cuh"
    text = course.prose(lines, {})
    for part in ("Still paid", "Launch"):
        assert f"**{part}:** " in text
    if file != "fast.cuh":
        assert "**Reference:** " in text


def test_a_preface_becomes_prose_code_and_lists() -> None:
    lines = [
        "Removed: the queue at out[row], `volatile` and all, 2 * BLOCK of",
        "them; see block.cuh and <that>.",
        "",
        "  s = 1   0+1   2+3",
        "  s = 2   0+2",
        "",
        "  one_kernel    does this,",
        "                and that",
        "  other_kernel  does more",
        "",
        "  Launch: one block",
        "  a row.",
    ]
    assert course.prose(lines, {"block.cuh": "/b.md", "one_kernel": "/o.md"}) == (
        "**Removed:** the queue at `out[row]`, `volatile` and all, 2 \\* `BLOCK` of them; see "
        "[`block.cuh`](/b.md) and \\<that\\>.\n\n"
        "```text\n"
        "s = 1   0+1   2+3\n"
        "s = 2   0+2\n"
        "```\n\n"
        "- [`one_kernel`](/o.md): does this, and that\n"
        "- `other_kernel`: does more\n\n"
        "**Launch:** one block a row.\n"
    )


def test_what_was_measured_comes_from_the_results() -> None:
    shown = course.measured(["sequential"], "interleaved_strided")
    result = course._results("kernels")[0]
    for name in ("interleaved_strided", "sequential"):
        row = next(row for row in result["rows"] if row["kernel"] == name)
        assert f"| `{name}` | {row['block_size']} | {report.milliseconds(row)} |" in shown
    assert "`first_add`" not in shown
    assert course.measured(["no_such_kernel"], None) == ""


# ---------------------------------------------------------------- the C header


def plain(text: str) -> str:
    """Words of a comment or of reStructuredText, without markup and punctuation."""
    text = re.sub(
        r":c:\w+:`([^`<]*)(?: <[^`]*)?`", r"\1", text.replace("\\ ", "").replace("\\", "")
    )
    return " ".join(re.findall(r"\w+", text))


def test_every_declaration_of_the_header_is_in_the_reference() -> None:
    page = c_api.page(HEADER)
    functions = re.findall(r"^GPR_API .*?(gpr_\w+)\(", HEADER, re.MULTILINE)
    types = re.findall(r"^typedef (?:struct|enum) (\w+)", HEADER, re.MULTILINE)
    constants = re.findall(r"\b(GPR_(?!API)[A-Z0-9_]+)(?: = -?\d+)?(?:,| \}|\s*/\*|\n\})", HEADER)
    assert len(functions) == HEADER.count("\nGPR_API ")
    for name in functions:
        assert len(re.findall(rf"^\.\. c:function:: .*\b{name}\(", page, re.MULTILINE)) == 1, name
    for name in types:
        assert len(re.findall(rf"^\.\. c:(?:struct|enum):: {name}$", page, re.MULTILINE)) == 1, name
    for name in constants:
        assert re.search(rf"^   \.\. c:enumerator:: {name}\b", page, re.MULTILINE), name


def test_no_comment_of_the_header_is_lost() -> None:
    words = plain(c_api.page(HEADER))
    declared = HEADER[: HEADER.rindex("#endif")]  # behind it stands the name of the guard
    comments = re.findall(r"/\*(.*?)\*/", declared, re.DOTALL)
    assert len(comments) > HEADER.count("\nGPR_API ")
    for comment in comments:
        assert plain(re.sub(r"\n\s*\*|-{2,}.*", " ", comment)) in words, comment


def test_a_declaration_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="union odd"):
        c_api.page(
            "/* opening */\n/* -------------------- part -------- */\nunion odd { int a; };\n"
        )
    with pytest.raises(ValueError, match="does not end"):
        c_api.page("/* opening */\n/* -------------------- part -------- */\nGPR_API int f(void)\n")
