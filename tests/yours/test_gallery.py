"""Kernels as others teach them are classified rightly, and the page of the docs lists them."""

from __future__ import annotations

import shutil

import kernel_gallery
import pytest

EXHIBITS = kernel_gallery.exhibits()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda each: each.path.stem)
def test_kernel_is_classified_rightly(exhibit: kernel_gallery.Exhibit) -> None:
    verdict, lines = kernel_gallery.verdict_of(exhibit)
    assert verdict == exhibit.verdict
    assert exhibit.line in lines or exhibit.line == 0


def test_the_page_lists_all_kernels_with_their_verdicts() -> None:
    assert kernel_gallery.PAGE.read_text(encoding="utf-8") == kernel_gallery.page()


def test_the_gallery_has_right_kernels_and_every_kind_of_mistake() -> None:
    from gpureduce._yours.findings import ADVICE

    kinds = {
        kind
        for each in EXHIBITS
        if each.verdict.startswith("wrong: ")
        for kind in each.verdict.removeprefix("wrong: ").split(", ")
    }
    elsewhere = {"crash", "misaligned", "no store", "operator"}
    """Tested in test_check.py: no tutorial has them."""
    elsewhere |= {"not associative", "no identity", "not commutative"}
    """Of operators, not of kernels."""
    elsewhere |= {"copy under way", "copy bytes", "mbarrier wait", "mbarrier"}
    """Tested in test_check_copies.py: of kernels in the template form alone."""
    elsewhere |= {"cluster race", "cluster barrier", "ended block", "grid wait"}
    """Tested in test_check_blocks.py: likewise."""
    assert kinds | elsewhere == set(ADVICE)
    assert sum(each.verdict.startswith("right") for each in EXHIBITS) >= 10
