"""Kernels of users' own compile by NVRTC, the newest and the oldest, with the headers they include.

No GPU is needed. What NVRTC lacks of C's headers comes from ``host_headers``; CUDA's are those of a
toolkit.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from draws import some
from nvrtc_versions import oldest_nvrtc
from test_own_kernel_calls import needs_compiler

import gpureduce as gr
from gpureduce import _core, _locate
from gpureduce._yours import host_headers
from gpureduce._yours.launching import compile_for
from gpureduce._yours.program_text import TEMPLATE_DTYPES

GALLERY = Path(__file__).parent / "gallery"
CAPABILITIES = ((7, 5), (9, 0))
_locate.locate()
needs_nvrtc = pytest.mark.skipif(not _core.cuda_versions()[1], reason="there is no NVRTC")


def failures(with_toolkit: bool) -> list[str]:
    """Kernels of the gallery that do not compile, with every dtype that they take for two GPUs; or
    of these cases some.
    """
    cases = []
    for path in sorted(GALLERY.glob("*.cu")):
        if path.stem == "shuffle_without_sync":  # which no GPU has any more
            continue
        kernel = gr.Kernel(path)
        if "cooperative_groups" in kernel.form.text and not with_toolkit:
            continue
        dtypes = [None] if kernel.dtypes else TEMPLATE_DTYPES
        cases += itertools.product([(path.stem, kernel.form)], dtypes, CAPABILITIES)
    found = []
    for (name, form), dtype, capability in some(cases, 0.4, f"gallery, {with_toolkit}"):
        try:
            compile_for(form, capability, dtype, form.block_size or 256)
        except (gr.CudaError, gr.KernelUnavailableError) as error:
            found.append(f"{name}, {dtype}, {capability}: {error}")
    return found


def has_toolkit() -> bool:
    try:
        return bool(host_headers.include_folders("", "#include <cooperative_groups.h>"))
    except gr.KernelUnavailableError:
        return False


@needs_nvrtc
@pytest.mark.long
def test_every_kernel_of_the_gallery_compiles() -> None:
    assert failures(has_toolkit()) == []


@pytest.mark.long
def test_every_kernel_of_the_gallery_compiles_by_the_oldest_nvrtc() -> None:
    """But for those with cooperative groups: their headers are of a toolkit of NVRTC's version."""
    folders = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, test_with_nvrtc as t; print(json.dumps(t.failures(False)))",
        ],
        env=os.environ | {"GPUREDUCE_LIBNVRTC": oldest_nvrtc(), "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


HEADERS = """
#include <cassert>
#include <cfloat>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <algorithm>
#include "cuda_runtime.h"
#include "device_launch_parameters.h"
#include <math_constants.h>
__global__ void most(const int32_t *in, int32_t *out, uint32_t n)
{
    int32_t best = INT_MIN;
    for (uint32_t i = 0; i < n; i++) best = std::max(best, in[i]);
    assert(best >= std::numeric_limits<int32_t>::lowest());
    if (best > UINT8_MAX && n > (uint)CHAR_BIT) printf("%d\\n", best);
    double x = FLT_MAX + DBL_EPSILON + std::numeric_limits<float>::infinity() + std::min(1, 2);
    if (x < -CUDART_INF_F || x > INFINITY || x > std::numeric_limits<double>::max()) *out = 0;
    *out = best;
}
"""


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_words_of_c_headers_are_known(capability: tuple[int, int]) -> None:
    compile_for(gr.Kernel(HEADERS, op="max").form, capability, None, 1)


@needs_compiler
def test_words_of_c_headers_are_known_to_the_emulator() -> None:
    report = gr.check(gr.Kernel(HEADERS, op="max"), sizes=[1, 100])
    assert report.right, str(report)


MISSING = """#include "helpers.cuh"
#include <cub/cub.cuh>
#include <cstdio>
__global__ void mine(const float *in, float *out, unsigned n)
{
    *out = helper(in, n);
}
"""


@needs_nvrtc
@needs_compiler
def test_an_error_names_the_headers_that_are_not_read() -> None:
    kernel = gr.Kernel(MISSING, op="sum")
    message = (
        r"mine.cu does not compile: mine.cu\(6\): error: identifier \"helper\" is undefined; line "
        r"1 includes helpers.cuh, which is not read: .*; line 2 includes cub/cub.cuh, which"
    )
    with pytest.raises(gr.CudaError, match=message) as caught:
        compile_for(kernel.form, (9, 0), None, 1)
    assert 'identifier "helper"' in (caught.value.log or "")
    with pytest.raises(gr.CudaError, match=r"mine.cu:6:.*helper.*; line 1 includes helpers.cuh"):
        gr.check(kernel)


def test_headers_that_are_nowhere_are_named_with_their_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_headers, "_toolkits", lambda: iter(()))
    kernel = gr.Kernel(GALLERY / "cooperative_tiles.cu")
    with pytest.raises(
        gr.KernelUnavailableError, match=r"cooperative_tiles.cu:\d+: cooperative_groups.h is not fo"
    ):
        compile_for(kernel.form, (9, 0), None, 256)
