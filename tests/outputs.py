"""What tests of the command and of pages share: running the one, and reading the others."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser


class _Balance(HTMLParser):
    VOID = ("meta", "br", "hr", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.data: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), "no scripts"
            assert name not in ("src", "href"), f"fetches {value}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def assert_balanced(html: str) -> _Balance:
    parser = _Balance()
    parser.feed(html)
    parser.close()
    assert not parser.open
    assert "script" not in parser.seen
    return parser


def run_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpureduce", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | environment,
    )
