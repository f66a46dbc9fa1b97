"""check names mistakes with asynchronous copies and mbarriers, in kernels that are made of ours.

The kernels are exports of async_copy and bulk_copy with one place changed.
"""

from __future__ import annotations

import shutil

import pytest
from draws import one, some

import gpureduce as gr

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++"),
]
MISTAKES = {
    "copies that are read too early": (
        "async_copy",
        ("wait_for_groups<places - 1>()", "wait_for_groups<places>()"),
        "access to bytes that are being copied",
        "copies[place][threadIdx.x]",
    ),
    "no wait": (
        "bulk_copy",
        ("wait_for_phase(&full[stage], parity_of(round));", ""),
        "access to bytes that are being copied",
        "= {tile[stage]",
    ),
    "half of the bytes": (
        "bulk_copy",
        ("arrive_expecting(&full[stage], bytes)", "arrive_expecting(&full[stage], bytes / 2)"),
        "bytes that are announced and bytes that are copied differ",
        "begin_bulk_copy(tile[stage]",
    ),
    "twice the bytes": (
        "bulk_copy",
        ("arrive_expecting(&full[stage], bytes)", "arrive_expecting(&full[stage], 2 * bytes)"),
        "wait for an mbarrier that does not end",
        "wait_for_phase(&full[stage], parity_of(round))",
    ),
    "no fence": (
        "bulk_copy",
        ("        publish_mbarriers();\n", ""),
        "mbarrier that is not ready",
        "begin_bulk_copy(tile[stage]",
    ),
    "no barrier": (
        "bulk_copy",
        ("    __syncthreads(); // all threads may use the mbarriers\n", ""),
        "mbarrier that is not ready",
        "wait_for_phase(&full[stage], parity_of(round))",
    ),
    "no multiple of 16 bytes": (
        "bulk_copy",
        ("* sizeof(Vector));", "* sizeof(Vector) - 4);"),
        "misaligned access",
        "begin_bulk_copy(tile[stage]",
    ),
}


@pytest.mark.parametrize("name", some(MISTAKES, 1 / 2, "mistakes of exported copies"))
def test_mistakes_of_copies_have_advice_of_their_own(name: str) -> None:
    kernel, (old, new), title, at = MISTAKES[name]
    text = gr.kernel_source(kernel, standalone=True, op="sum", dtype="float32", block_size=64)
    assert text.count(old) == 1
    text = text.replace(old, new)
    report = gr.check(gr.Kernel(text), sizes=[64, 20_000])
    shown = str(report)
    assert report.findings
    assert f". {title}" in shown, shown
    assert "Read: gpureduce kernels --source" in shown
    if at:
        (line,) = [i for i, each in enumerate(text.splitlines(), 1) if at in each]
        assert f"{title}, line {line}" in shown, shown


@pytest.mark.parametrize("kernel", one(["async_copy", "bulk_copy"], "right copies"))
def test_exports_of_kernels_that_copy_are_right(kernel: str) -> None:
    text = gr.kernel_source(kernel, standalone=True, op="sum", dtype="float32", block_size=64)
    report = gr.check(gr.Kernel(text))
    assert not report.findings, str(report)
