"""Puts the site's source together: python docs/site/stage.py FOLDER.

The folder mirrors the repository. Its Markdown lies there under its own paths, so that a link that
works in the repository and on GitHub works on the site as it stands; a file that a page links to
and that is no page comes along, to be downloaded. To these come the pages of docs/site, which exist
on the site alone, and pages that are made: of the kernels, of the C header, and of README.md, whose
sections are parts of several pages (_generated/readme/).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent
sys.path[:0] = [str(SITE), str(ROOT / "benchmarks")]

import c_api  # noqa: E402
import course  # noqa: E402
from markdown_pages import introduction, links, sections  # noqa: E402

OWN_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the repository that lie outside of docs/. README.md is taken apart instead."""
PARTS = "_generated/readme"
NOT_ON_THE_SITE = {"documentation", "the-staircase", "speed"}
"""Sections of README.md whose contents the site shows on pages of their own."""
ADDED = {"docs/adr/README.md": "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"}
"""What Sphinx needs to hear and GitHub would show."""


def repository_pages() -> dict[str, str]:
    """Markdown of the repository that the site shows, by its path."""
    found = [ROOT / name for name in OWN_PAGES]
    found += [path for path in sorted((ROOT / "docs").rglob("*.md")) if SITE not in path.parents]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def site_pages() -> dict[str, str]:
    """Markdown that is the site's alone, by its path in the site."""
    return {
        path.relative_to(SITE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SITE.rglob("*.md"))
    }


def readme_parts(own: dict[str, str]) -> dict[str, str]:
    """README.md's introduction and sections, each of which some page must take in."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    parts = {"introduction": introduction(text), **sections(text)}
    taken = "".join(own.values())
    for name in parts:
        if name not in NOT_ON_THE_SITE and f"/{PARTS}/{name}.md" not in taken:
            raise ValueError(f"docs/site: no page takes in the section '{name}' of README.md")
    return {f"{PARTS}/{name}.md": part for name, part in parts.items()}


def linked_files(pages: dict[str, str]) -> set[Path]:
    """Files of the repository that its pages link to."""
    found = set()
    for name, text in pages.items():
        for _, target in links(text):
            file = target.partition("#")[0]
            if file and "://" not in file and not file.endswith(".md"):
                found.add(Path(os.path.normpath(ROOT / Path(name).parent / file)))
    return found


def collect(kept: Path) -> dict[str, bytes]:
    """Everything that the site is made of, by its path in the site."""
    own = site_pages()
    repository = repository_pages()
    texts = repository | own | readme_parts(own) | course.pages(kept)
    header = (ROOT / "csrc" / "include" / "gpureduce.h").read_text(encoding="utf-8")
    texts["c/gpureduce.rst"] = c_api.page(header)
    for name, text in ADDED.items():
        texts[name] += text
    files = linked_files(
        repository | {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    )
    files |= {ROOT / "examples" / "sum_file.c", *(ROOT / "csrc" / "kernels").glob("*/*.cuh")}
    files |= {*(ROOT / "csrc" / "shared").glob("*.h"), *(ROOT / "csrc" / "registry").glob("*.def")}
    copied = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(files)}
    return copied | {name: text.encode() for name, text in texts.items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Make the folder hold just the files. A folder that this did not make must be empty."""
    marker = folder / ".staged"
    if folder.exists() and any(folder.iterdir()) and not marker.exists():
        raise FileExistsError(f"{folder} holds other things, and would be emptied")
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    marker.touch()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--kept", type=Path, help="folder for what the kernels did, to be used again"
    )
    options = parser.parse_args()
    write(
        options.folder,
        collect(options.kept or options.folder.with_name(options.folder.name + "-explained")),
    )


if __name__ == "__main__":
    main()
