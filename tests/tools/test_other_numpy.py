"""Which NumPy a word of `make test-numpy` stands for."""

from __future__ import annotations

import other_numpy
from packaging.version import Version

VERSIONS = [Version(one) for one in ("2.0.0", "2.0.10", "2.4.6")]


def test_words_stand_for_versions() -> None:
    assert other_numpy.choose("oldest", VERSIONS) == Version("2.0.0")
    assert other_numpy.choose("newest", VERSIONS) == Version("2.4.6")
    assert other_numpy.choose("2.2.0", VERSIONS) == Version("2.2.0")


def test_versions_are_those_that_the_package_requires() -> None:
    allowed = other_numpy.supported().specifier
    assert "2.0.0" in allowed
    assert "1.26.4" not in allowed
