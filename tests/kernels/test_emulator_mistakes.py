"""The tutorials' own mistakes are found and named, with the line; kernels that reorder, too.

Each file of emu/mistakes stands in for a kernel's own (the emulator's `overlay`): its first lines
say which kernel, what is wrong, and what the finding says; `// TESTS` marks the line that it names.
"""

from __future__ import annotations

import re
from pathlib import Path

import emu
import pytest
from draws import SEED, some

import gpureduce as gr
from gpureduce import _core

MISTAKES = sorted((Path(__file__).parents[1] / "emu" / "mistakes").glob("*.cuh"))


def overlay(tmp_path: Path, kernel: str, text: str) -> tuple[str, str]:
    """A folder with `text` in place of the kernel's own file, and that file's name."""
    file = _core.KERNEL_FILES[kernel]
    (tmp_path / file).write_text(text)
    return str(tmp_path), file


@pytest.mark.parametrize("path", some(MISTAKES, 0.6, "mistakes"), ids=lambda path: path.stem)
def test_mistake_is_named_with_kernel_and_line(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    says = dict(re.findall(r"^// (kernel|block|finds): (.*)$", text, re.MULTILINE))
    folder, file = overlay(tmp_path, says["kernel"], text)
    task = {
        "do": "cases.check_case",
        "kernel": says["kernel"],
        "dtype": "int32",
        "ops": ["sum"],
        "block": int(says["block"]),
        "sizes": [int(says["block"]) * 5 - 3],
        "rows": [(129, 2)],
        "starts": "device",
        "seed": SEED,
    }
    ((_, good), (_, answer)) = emu.run([task, {**task, "emulator": {"overlay": folder}}])
    assert good == "", f"the kernel as it should be: {good}"
    assert f"kernel gpr::{says['kernel']}<" in answer, answer
    for part in says["finds"].split("; "):
        assert part in answer, f"no {part!r} in: {answer}"
    if "// TESTS" in text:
        line = next(
            number for number, line in enumerate(text.splitlines(), 1) if "// TESTS" in line
        )
        assert f"{file}:{line}" in answer, f"not {file}:{line} in: {answer}"


# Composition of x -> a * x + b, packed as a and b in the halves of 64 bits: associative, not
# commutative.
COMPOSE = """struct fold_sum {
    template <class Acc, class Compute> static GPR_DEVICE Acc identity() { return Acc(1) << 32; }
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        return static_cast<Acc>(value_of(x));
    }
    template <class Acc> static GPR_DEVICE Acc combine(Acc f, Acc g)
    {
        const unsigned a = static_cast<unsigned>(f >> 32), b = static_cast<unsigned>(f);
        const unsigned c = static_cast<unsigned>(g >> 32), d = static_cast<unsigned>(g);
        const unsigned factor = a * c, term = a * d + b;
        return static_cast<Acc>(factor) << 32 | term;
    }
};
"""


@pytest.mark.long
def test_ordered_kernels_keep_the_order_of_a_fold_that_needs_it_and_others_do_not(
    tmp_path: Path,
) -> None:
    operators = re.sub(
        r"struct fold_sum : .*?\n\};\n",
        COMPOSE,
        _core.sources()["operators.cuh"],
        flags=re.DOTALL,
    )
    assert "Acc(1) << 32" in operators
    (tmp_path / "operators.cuh").write_text(operators)
    infos = {
        info.name: info
        for info in gr.kernels()
        if info.name not in ("cub", "auto") and info.family != "atomic"
    }
    ordered = {name for name, info in infos.items() if not info.commutative_only}
    assert {
        "single_block_ordered",
        "last_block_ordered",
        "single_warp_ordered",
        "warp_registers",
    } <= ordered
    others = ("sequential", "multi_add", "shfl_two_pass", "fast")
    tasks = [
        {
            "do": "cases.check_order",
            "kernel": name,
            "seed": SEED,
            "emulator": {"overlay": str(tmp_path)},
        }
        for name in infos
        if name in ordered or name in others
    ]
    answers = {str(task["kernel"]): answer for task, answer in emu.run(tasks)}
    assert not [answer for name, answer in answers.items() if name in ordered and answer]
    # These reorder, and must be told: the test can fail.
    for name in others:
        assert "the order was not kept" in answers[name], f"{name}: {answers[name]!r}"
