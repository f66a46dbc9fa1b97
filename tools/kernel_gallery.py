"""Writes docs/kernel-gallery.md: kernels as others teach them, each with its verdict.

The kernels are tests/yours/gallery/*.cu; their first lines have title, verdict and lesson.
tests/yours/test_gallery.py compares verdicts and page with the reports of gpureduce.check.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import gpureduce as gr

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "tests" / "yours" / "gallery"
PAGE = ROOT / "docs" / "kernel-gallery.md"
INTRODUCTION = """# Gallery of kernels

Reduction kernels like those of tutorials, courses and exercise sites, written anew: right ones, and
the well-known wrong ones. "Within limits" means that the kernel is right for the sizes, blocks or
dtypes that `gr.check` names, and not for all. The verdicts are those of
[`gr.check`](your-kernel.md), which a test compares with this page;
`python tools/kernel_gallery.py` writes it.

| kernel | verdict | lesson |
|---|---|---|
"""


class Exhibit(NamedTuple):
    """A kernel of the gallery, with the text of its first lines."""

    path: Path
    title: str
    verdict: str
    lesson: str

    @property
    def line(self) -> int:
        """The line that findings name, marked by HERE; 0: none is marked."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return next((i for i, line in enumerate(lines, 1) if "// HERE" in line), 0)


def exhibits() -> list[Exhibit]:
    """All kernels: right ones first."""
    found = []
    for path in GALLERY.glob("*.cu"):
        says = dict(re.findall(r"^// (\w+): (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
        found.append(Exhibit(path, says["title"], says["verdict"], says["lesson"]))
    return sorted(found, key=lambda each: (not each.verdict.startswith("right"), each.path.name))


def verdict_of(exhibit: Exhibit) -> tuple[str, tuple[int, ...]]:
    """The check's verdict, in the words of the first lines, and the lines of its findings."""
    try:
        report = gr.check(exhibit.path)
    except ValueError as error:
        _, line, message = str(error).split(":", 2)
        return f"refused: {message.partition(':')[0].strip()}", (int(line),)
    if not report.right:
        return f"wrong: {', '.join(report.kinds)}", tuple(each.line for each in report.findings)
    return "right, within limits" if report.limits else "right", ()


def row_of(exhibit: Exhibit) -> str:
    """The kernel's row in the page."""
    from gpureduce._yours.findings import ADVICE

    verdict = exhibit.verdict
    if verdict.startswith("wrong: "):
        kinds = verdict.removeprefix("wrong: ").split(", ")
        where = f", line {exhibit.line}" if exhibit.line else ""
        verdict = f"wrong: {', '.join(ADVICE[kind].title for kind in kinds)}{where}"
    verdict = re.sub(r"\b__\w+", r"`\g<0>`", verdict)
    path = exhibit.path.relative_to(ROOT).as_posix()
    return f"| [{exhibit.title}](../{path}) | {verdict} | {exhibit.lesson} |"


def page() -> str:
    """The page's text."""
    return INTRODUCTION + "\n".join(map(row_of, exhibits())) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
