"""The count of lines of code and tokens leaves out comments, docstrings and blank lines."""

from __future__ import annotations

import count_code
import pytest


def test_comments_of_c_do_not_count() -> None:
    text = """/* A file.
     * int not_code; */
    #include <stdio.h> // stdio

    static int twice(int x) /* doubles */ { return 2 * x; }
    static const char text[] = "/* no comment */ // nor this";
    """
    assert count_code.count_c(text) == (3, 7 + 14 + 9)


def test_docstrings_and_comments_of_python_do_not_count() -> None:
    text = '''"""A module.

Two lines."""

import os  # needed


class Box:
    """A box."""

    size = 3
    """Its size."""

    def name(self) -> str:
        return (
            "# no comment"  # a comment
        )
'''
    assert count_code.count_python(text) == (7, 2 + 3 + 3 + 8 + 4)


def test_every_duty_has_code_in_the_working_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert count_code.main([]) == 0
    rows = [line.rsplit(maxsplit=2) for line in capsys.readouterr().out.splitlines()[1:]]
    counts = {name: (int(a.replace(",", "")), int(b.replace(",", ""))) for name, a, b in rows}
    assert [*counts] == [*count_code.DUTIES, "all"]
    assert all(100 < lines < tokens for lines, tokens in counts.values())
    assert counts["all"][0] == sum(counts[duty][0] for duty in count_code.DUTIES)


def test_files_of_a_folder_that_no_revision_has_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert count_code.main(["--files", "csrc/nothing"]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["0", "0"]
