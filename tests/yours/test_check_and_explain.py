"""check and explain name one mistake alike; check tries the blocks that a text allows and points to
changes of exports; files that are not there are said so.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from draws import EVERYTHING, SEED

import gpureduce as gr
from gpureduce._cli import command
from gpureduce._yours.changed_lines import changed_lines

GALLERY = Path(__file__).parent / "gallery"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

TREE = """
__global__ void tree(const int *in, int *out, unsigned n)
{
    __shared__ int s[LENGTH];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned h = HALF; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
"""


def tree(length: int, half: str = "blockDim.x / 2") -> str:
    return TREE.replace("LENGTH", str(length)).replace("HALF", half)


# ---------------------------------------------------------------- block sizes --------------------


def test_blocks_up_to_a_shared_arrays_length_are_tried_where_the_text_computes_with_them() -> None:
    length = 2 ** random.Random(SEED).randrange(7, 11)
    kernel = gr.Kernel(tree(length))
    assert f"block      up to {length} threads, the elements of s" in str(kernel)
    report = gr.check(kernel, sizes=[1, 100])
    smaller = {block for block in (64, 256, 32, 96, 512) if block < length}
    assert set(report.blocks) == {length, *smaller}, SEED
    assert report.right
    assert any("of 96 not" in limit.text for limit in report.limits)
    assert gr.explain(kernel, block_size=64).block_size == 64
    with pytest.raises(ValueError, match=f"takes blocks of up to {length} threads, the elements"):
        gr.explain(kernel, block_size=2 * length)


def test_the_length_itself_decides_the_verdict() -> None:
    report = gr.check(tree(192), sizes=[192])
    assert report.blocks == (192, 64, 32, 96)
    assert report.kinds == ("result",), str(report)
    assert report.findings[0].block_size in (96, 192)


def test_one_size_alone_is_tried_where_the_text_has_no_other_and_the_report_says_why() -> None:
    report = gr.check(tree(128, "64"))
    assert report.blocks == (128,)
    assert report.right
    why = "the only size that the kernel is for; block_sizes, or --block-size, tries others"
    assert f"blocks of 128 threads, {why}" in " ".join(str(report).split())
    assert why not in str(gr.check(tree(128)))


def test_an_export_is_checked_in_the_block_sizes_that_are_asked_for() -> None:
    export = gr.kernel_source("sequential", standalone=True, block_size=256)
    report = gr.check(export, block_sizes=[64, 128], sizes=[1, 100])
    assert report.right, str(report)


# ---------------------------------------------------------------- changed exports ----------------


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("sequential", "s > 0; s /= 2", "s > 0; s /= 4"),
        ("shfl_two_pass", "if (threadIdx.x == 0)", "if (threadIdx.x == 1)"),
        ("first_add", "(2 * BLOCK)", "(3 * BLOCK)"),
    ],
)
def test_a_wrong_result_of_a_changed_export_points_to_the_change(
    kernel: str, old: str, new: str
) -> None:
    export = gr.kernel_source(kernel, standalone=True)
    at = export.index(old, export.index(f"\n{kernel}("))
    text = export[:at] + export[at:].replace(old, new, 1)
    line = 1 + text[:at].count("\n")
    mine = gr.Kernel(text)
    assert changed_lines(mine) == (line,)
    report = gr.check(mine, sizes=[100, 1000])
    found = next(each for each in report.findings if each.kind in ("result", "no store"))
    assert found.line == line
    assert f"line {line} differs from `gpureduce kernels --export {kernel}`" in found.what


def test_other_files_have_no_changed_lines() -> None:
    export = gr.kernel_source("sequential", standalone=True, dtype="int32", op="max")
    assert changed_lines(gr.Kernel(export)) == ()
    assert changed_lines(gr.Kernel(tree(64))) == ()
    assert changed_lines(gr.Kernel(export.replace("// ", "//  "))) == ()  # comments alone
    removed = "        __syncthreads(); // the next step reads what this one wrote\n"
    at = export.index(removed, export.index("\nsequential("))
    without = export[:at] + export[at + len(removed) :]
    assert changed_lines(gr.Kernel(without)) == (export[:at].count("\n"),)
    others = export.replace("partial", "slot")
    assert len(changed_lines(gr.Kernel(others))) <= 12


# ---------------------------------------------------------------- one name -----------------------


MISTAKES = (
    "barrier_after_load_missing",
    "barrier_in_branch",
    "barrier_in_loop_missing",
    "barrier_of_elements",
    "grid_barrier_by_spinning",
    "half_a_warp_shuffles",
    "return_before_barrier",
    "slots_left_empty",
    "total_cleared_without_barrier",
    "volatile_last_warp",
)


@pytest.mark.parametrize(
    "name", MISTAKES if EVERYTHING else random.Random(SEED).sample(MISTAKES, 3)
)
def test_explain_names_a_mistake_as_check_does(name: str) -> None:
    path = GALLERY / f"{name}.cu"
    found = gr.check(path).findings[0]
    with pytest.raises(gr.CudaError) as caught:
        gr.explain(gr.Kernel(path))
    assert f": {found.title}: " in str(caught.value)
    assert f"(line {found.line})" in str(caught.value)


def test_a_wrong_run_is_not_explained_and_the_error_says_why() -> None:
    with pytest.raises(RuntimeError, match="its counts and its picture would pass for the kernel"):
        gr.explain(gr.Kernel(GALLERY / "block_of_192.cu"))


def test_threads_that_return_before_a_barrier_are_explained() -> None:
    run = gr.explain(gr.Kernel(GALLERY / "return_with_zeros.cu"), 300, block_size=128)
    assert run.figures.barriers > 0


# ---------------------------------------------------------------- names --------------------------


def test_what_auto_chose_is_said() -> None:
    run = gr.explain("auto", block_size=128)
    assert run.kernel == "exact"
    assert str(run).startswith("exact, chosen by auto: sum of")
    both = gr.explain(["auto", "exact"], 1000)
    assert str(both).splitlines()[1].split()[-2:] == ["(auto)", "exact"]
    assert "chosen by" not in str(gr.explain("exact", 1000))


@pytest.mark.parametrize("verb", ["explain", "check"])
def test_a_file_that_is_not_there_is_said_so(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.cu").write_text(tree(64))
    assert command.main([verb, str(tmp_path / "mien.cu")]) == 1
    said = capsys.readouterr().err
    assert f"No such file: {tmp_path / 'mien.cu'}; did you mean {tmp_path / 'mine.cu'}?" in said
    assert "Errno" not in said
    assert command.main([verb, "nosuch_at_all.cu"]) == 1
    assert "No such file: nosuch_at_all.cu\n" in capsys.readouterr().err


def test_check_of_a_kernels_name_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sequential", "reduce2"):
        assert command.main(["check", name]) == 1
        said = capsys.readouterr().err
        assert f"{name} is a kernel of the catalogue" in said
        assert f"gpureduce kernels --export {name} > mine.cu" in said
