"""What the notebooks share: recorded figures, a step of the staircase, charts, a project to test.

Cells of a notebook are about reductions; everything else that they need is here.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import display
from matplotlib import pyplot as plt

import gpureduce as gr
from gpureduce._bench.charts import draw_bars
from gpureduce._explain.timeline import strips
from gpureduce._locate import emulator

HAS_GPU = bool(gr.devices())
HERE = gr.devices()[0].name if HAS_GPU else "the CPU backend: there is no GPU"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
STEPS = (
    *("naive_atomic", "shared_atomic", "interleaved_modulo", "interleaved_strided"),
    *("sequential", "first_add", "unrolled_last_warp", "unrolled", "multi_add"),
    *("shfl_two_pass", "shfl_two_pass_vec", "fast"),
)
GREY = "#7A7A7A"
MOST_LINES = 300
"""Lines of helpers that are shown below a kernel."""

plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False})


def load_recorded(name: str) -> dict[str, Any]:
    """The results of one benchmark that were recorded on an NVIDIA H200."""
    return json.loads((RESULTS / f"{name}-nvidia-h200.json").read_text())


# ---------------------------------------------------------------- 1-staircase


class Staircase:
    """The kernels of the staircase, and their speeds.

    Parameters
    ----------
    elements : int
        int32 that are summed to measure the speeds. Without a GPU the speeds are recorded ones.
    seconds : float
        Time for each measurement.
    steps : sequence of str
        Names of the kernels.
    """

    def __init__(self, elements: int, seconds: float, steps: tuple[str, ...] = STEPS) -> None:
        self.steps = steps
        self.info = {info.name: info for info in gr.kernels()}
        if HAS_GPU:
            a = np.random.default_rng(0).integers(-1000, 1000, elements, dtype=np.int32)
            found = gr.compare(a, steps, baselines=[], break_even=False, seconds=seconds)
            self.rates = {row.name: row.device_bandwidth for row in found}
            self.peak = found.peak
            self.source_of_times = f"measured here: sum of {elements:,} int32 on {HERE}"
        else:
            recorded = load_recorded("kernels")
            setting = recorded["environment"]
            rows = [row for row in recorded["rows"] if "absent" not in row]
            self.rates = {row["kernel"]: row["bytes_per_second"] for row in rows}
            self.peak = setting["device"]["peak_bytes_per_second"]
            self.source_of_times = (
                f"recorded: sum of {recorded['n']:,} int32 on {setting['device']['name']}, "
                f"{setting['date'][:10]}"
            )

    def step(self, name: str) -> None:
        """Show a kernel: its source, what its threads do, its figures."""
        show_source(name)
        seen = gr.explain(name, block_size=128)
        seen.plot()
        plt.show()
        info, rate, figures = self.info[name], self.rates[name], seen.figures
        queue = f", {figures.most_on_one_address} of them on one word" if figures.atomics else ""
        place = self.steps.index(name)
        before = self.steps[place - 1] if place else ""
        factor = f", {rate / self.rates[before]:.2f} times {before}" if before else ""
        print(f"{name}: {info.summary}")
        print(f"  removes  {info.removes}")
        print(f"  pays     {info.pays}")
        print(f"  counted  over {seen.n:,} elements and all launches:")
        print(f"           {figures.barriers} barriers, {figures.bank_conflicts} bank conflicts,")
        print(f"           {figures.shuffles} shuffles, {figures.atomics} atomics{queue},")
        print(f"           {figures.lanes_per_warp:.1f} of 32 lanes active per active warp")
        print(f"  speed    {rate / 1e9:,.1f} GB/s, {rate / self.peak:.1%} of the peak{factor}")
        print(f"           ({self.source_of_times})")

    def draw(self) -> None:
        """Draw the speeds of all steps."""
        _, ax = plt.subplots(figsize=(10, 0.36 * len(self.steps) + 1.3), layout="constrained")
        rates = [self.rates[name] for name in self.steps]
        draw_bars(ax, self.steps, rates, [True] * len(rates), peak=self.peak, steps=True)
        ax.set_title(f"The staircase, {self.source_of_times}\n", loc="left", fontsize=11)
        plt.show()


def show_copies(name: str) -> None:
    """Show a kernel that copies asynchronously: its source, its rounds, the bytes under way."""
    show_source(name)
    seen = gr.explain(name, 5120, block_size=128, grid_size=2)  # five rounds for each block
    seen.plot()
    plt.show()
    info = next(info for info in gr.kernels() if info.name == name)
    most = max(strip.under_way or 0 for strip in strips(seen.main))
    print(f"{name}: {info.summary}")
    print(f"  removes  {info.removes}")
    print(f"  pays     {info.pays}")
    print(f"  counted  in the first launch over {seen.n:,} elements:")
    print(f"           {seen.main.figures.copies} requests of warps begin copies,")
    print(f"           of each block at most {most / 1024:.3g} KiB are under way")


def show_source(name: str) -> None:
    """Show a kernel's own source, and below it, folded, the functions that it calls."""
    own, whole = kernel_text(name), gr.kernel_source(name, helpers="used")
    called, _, _ = whole.rpartition("\n// ==== ")
    shown = _highlighted(own)
    lines = len(called.splitlines())
    if lines > MOST_LINES:
        shown += f"<p>It calls {lines:,} lines of functions: "
        shown += f'<code>print(gr.kernel_source("{name}", helpers="used"))</code></p>'
    elif called.strip():
        words = f"Show the functions that it calls ({lines} lines)"
        shown += f"<details><summary>{words}</summary>{_highlighted(called)}</details>"
    display({"text/html": shown, "text/plain": own}, raw=True)


def kernel_text(name: str) -> str:
    """A kernel's own text, without its preface and the other kernels of the file."""
    entry = {"fast": "fast_stream"}.get(name, name)  # of its kernels, the one for one long row
    inside = re.search(
        r"namespace gpr \{\n+(.*)\n\} // namespace gpr", gr.kernel_source(name), re.DOTALL
    )[1]
    parts = re.split(r"\n\n(?=template|constexpr|//)", inside.strip())
    kernel = next(part for part in parts if f"\n{entry}(" in part)
    helpers = []
    for part in parts:
        defined = re.search(r"^(?:GPR_DEVICE|constexpr) .*?(\w+)(?:\(| =)", part, re.MULTILINE)
        if defined and re.search(rf"\b{defined[1]}\b", kernel) and "__global__" not in part:
            helpers.append(part)
    return "\n\n".join([*helpers, kernel])


def _highlighted(code: str) -> str:
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import CudaLexer
    except ImportError:
        return f"<pre>{html.escape(code)}</pre>"
    style = "font-family: monospace; line-height: 1.35; padding: 8px"
    return highlight(code, CudaLexer(), HtmlFormatter(noclasses=True, prestyles=style))


def show_tree_lines(*names: str) -> None:
    """Print the line of each kernel's tree that adds, with its counts."""
    for name in names:
        heading, *lines = gr.explain(name, block_size=128).annotated_source().splitlines()
        line = next(line for line in lines if "Traits::combine(partial" in line)
        columns = heading.index("sectors")
        print(f"{name}:  {line.partition('|')[2].strip()}\n{heading[:columns]}\n{line[:columns]}\n")


# ---------------------------------------------------------------- 2-numpy, 4-benchmark


def draw_rates(rates: dict[str, float], title: str) -> None:
    """Draw bytes per second as bars: gpureduce, other libraries, a copy that does nothing else."""
    names = sorted(rates, key=rates.__getitem__)
    sorts = {
        "gpureduce": ("#0072B2", None),
        "another library": ("#E69F00", "///"),
        "the copy over PCIe, nothing else": (GREY, None),
    }
    _, ax = plt.subplots(figsize=(10, 4.2), layout="constrained")
    most = max(rates.values()) / 1e9
    for i, name in enumerate(names):
        kind = "gpureduce" if name.startswith("gpureduce") else "another library"
        colour, hatch = sorts["the copy over PCIe, nothing else" if "alone" in name else kind]
        rate = rates[name] / 1e9
        ax.barh(i, rate, height=0.74, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
        ax.text(rate + most / 150, i, f"{rate:,.1f}", va="center")
    ax.set_yticks(range(len(names)), names)
    ax.set_xlim(0, most * 1.1)
    ax.set_xlabel("bytes of the array over the time of the whole call, GB/s")
    ax.set_title(title, loc="left")
    patches = [
        plt.Rectangle((0, 0), 1, 1, facecolor=colour, hatch=hatch, edgecolor="white")
        for colour, hatch in sorts.values()
    ]
    ax.legend(patches, sorts, loc="lower right", frameon=False)
    plt.show()


def draw_recorded_call() -> None:
    """Draw the parts of a call on a GPU, as recorded."""
    host, auto = load_recorded("host"), load_recorded("auto")
    times = {row["what"]: row["milliseconds"]["median"] for row in host["rows"]}
    kernel = next(row for row in auto["rows"] if (row["op"], row["dtype"]) == ("sum", "float32"))
    bars = {
        "the kernel alone": (kernel["auto"]["milliseconds"]["median"], "#009E73"),
        "the copy alone, from pinned memory": (times["pinned copy alone"], "#0072B2"),
        "whole call, array in pinned memory": (times["gpureduce pinned"], "#1a1a1a"),
        "whole call, array in ordinary memory": (times["gpureduce ordinary"], "#1a1a1a"),
    }
    _, ax = plt.subplots(figsize=(10, 2.8), layout="constrained")
    for i, (milliseconds, colour) in enumerate(bars.values()):
        ax.barh(i, milliseconds, color=colour, height=0.66)
        ax.text(milliseconds, i, f"  {milliseconds:.2f} ms", va="center")
    ax.set_yticks(range(len(bars)), bars)
    ax.invert_yaxis()
    ax.set(xlabel="time, ms", xlim=(0, 1.15 * max(spent for spent, _ in bars.values())))
    where = host["environment"]["device"]["name"]
    ax.set_title(f"Sum of 1 GiB of float32, recorded on {where}", loc="left")
    plt.show()


def draw_run(run: dict[str, Any]) -> None:
    """Draw the medians and quartiles of a run of pytest-benchmark over the arrays' sizes."""
    # The colours are those of Okabe and Ito, which the colour-blind tell apart.
    looks = (("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"), ("#D55E00", "D"), (GREY, "v"))
    by_name: dict[str, list[dict[str, Any]]] = {}
    for entry in sorted(run["benchmarks"], key=lambda each: each["extra_info"]["bytes"]):
        kernel = entry["params"].get("kernel")
        by_name.setdefault(f"gpureduce, {kernel}" if kernel else "numpy", []).append(entry)
    _, ax = plt.subplots(figsize=(10, 5), layout="constrained")
    for (name, entries), (colour, marker) in zip(by_name.items(), looks, strict=False):
        look = {"color": colour, "marker": marker}
        sizes = [each["extra_info"]["bytes"] / 4 for each in entries]
        low, median, high = (
            np.array([1e6 * each["stats"][what] for each in entries])
            for what in ("q1", "median", "q3")
        )
        spans = [median - low, high - median]
        ax.errorbar(
            sizes, median, yerr=spans, **look, markersize=8, linewidth=2, capsize=5, label=name
        )
        alone = [each["extra_info"].get("device_seconds") for each in entries]
        if all(alone):
            ax.plot(sizes, [1e6 * each for each in alone], **look, linestyle=":", alpha=0.5)
    ax.set(xscale="log", yscale="log")
    ax.set(xlabel="elements, float32 (logarithmic)", ylabel="time of a call, µs (logarithmic)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    gpus = run["machine_info"]["gpus"]
    where = gpus[0]["name"] if gpus else run["machine_info"]["cpu"]["brand_raw"] + ", no GPU"
    words = "median; bars from the first quartile to the third"
    ax.set_title(f"Sum, from NumPy to a number, on {where}\n{words}", loc="left")
    ax.grid(True, color="#E5E5E5")
    handles, labels = ax.get_legend_handles_labels()
    if gpus:
        handles += ax.plot([], [], color=GREY, linestyle=":")
        labels.append("kernels alone, on the device")
    ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    plt.show()


class Project:
    """A project in a folder of its own, for pytest.

    The cell magic ``%%project FILE`` writes a cell into a file of it.
    """

    def __init__(self) -> None:
        from IPython import get_ipython

        self._folder = tempfile.TemporaryDirectory(prefix="my-project-")
        self.folder = Path(self._folder.name)
        get_ipython().register_magic_function(self._write, "cell", "project")

    def _write(self, line: str, cell: str) -> None:
        (self.folder / line.strip()).write_text(cell)
        print("written")

    def pytest(self, *words: str) -> int:
        """Run pytest in the folder, as in a shell, and return its exit status."""
        print("$ pytest", *words)
        # These words are not printed: less of pytest's own text, no colours, no cache.
        quiet = ("-q", "--no-header", "--color=no", "-p", "no:cacheprovider")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *quiet, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):  # not a test's failure, but pytest's
            raise RuntimeError(done.stderr)
        print(done.stdout.partition("\nLegend:")[0].strip())
        verdict = re.search(r"Performance has regressed:\n\t.*", done.stderr)
        print(re.sub(r"\x1b\[[\d;]*m", "", verdict[0]) if verdict else "")
        print(f"exit status {done.returncode}")
        return done.returncode

    def remove(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


# ---------------------------------------------------------------- 3-accuracy

_SUMS = """
import json, sys
import numpy as np
import gpureduce as gr

names, n, runs = json.loads(sys.argv[1])
a = np.random.default_rng(1).normal(size=n).astype(np.float32)
found = {
    name: [float(gr.sum(a, kernel=name, block_size=256, device="cuda")) for _ in range(runs)]
    for name in names
}
print(json.dumps(found))
"""


def repeat_kernels(
    names: list[str], runs: int, elements: int, emulated_elements: int
) -> tuple[int, str, dict[str, list[float]]]:
    """Sum the same float32 several times by each kernel.

    The kernels run on the GPU, or on an emulated one, with another schedule of threads each time.

    Returns
    -------
    tuple
        The number of elements, where the kernels ran, and the sums of each.
    """
    if HAS_GPU:
        n, at_once, environments, where = elements, runs, [{}], HERE
    elif (stand_in := emulator()) is None:
        raise RuntimeError("gpureduce was built without the emulator: install it from its source")
    else:
        n, at_once, where = emulated_elements, 1, "an emulated GPU with random schedules"
        libraries = {"GPUREDUCE_LIBCUDA": str(stand_in), "GPUREDUCE_LIBNVRTC": str(stand_in)}
        environments = [
            {**libraries, "GPUREDUCE_EMULATOR": f"schedule=random,seed={seed}"}
            for seed in range(runs)
        ]
    sums: dict[str, list[float]] = {name: [] for name in names}
    for environment in environments:
        done = subprocess.run(
            [sys.executable, "-c", _SUMS, json.dumps([names, n, at_once])],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        for name, found in json.loads(done.stdout).items():
            sums[name] += found
    return n, where, sums
