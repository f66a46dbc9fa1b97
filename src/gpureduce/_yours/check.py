"""Run a kernel of the user's own on the emulator, report mistakes: :func:`gpureduce.check`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from .. import _exceptions
from .._dtypes import native_dtype
from .._emulator_process import as_exception, emulator_environment, run_worker
from .._temporary import temporary_folder
from .changed_lines import changed_lines
from .check_report import SCHEDULES, CheckReport, Finding, Limit
from .device_text import divergent_branch, without_comments
from .findings import Place, Trouble, line_of_place, read_finding
from .kernel import Kernel
from .kernel_form import C_TYPES, KernelForm
from .operator_check import check_operator
from .own_operator import Operator
from .program_text import (
    TEMPLATE_DTYPES,
    Program,
    blocks_for,
    does_not_compile,
    dtypes_of,
    roles,
    shared_bytes,
    shown_name,
    write,
)
from .sanitizer import sanitize

__all__ = ["check", "judge", "launch_case", "most_steps", "worker_exception"]

BLOCKS = (64, 256, 32, 96, 512)
"""Block sizes of kernels that take any: powers of two, one warp, and no power of two."""
_SEED = 1
_MOST_LOOPING_BLOCKS = 3
_STEPS, _STEPS_PER_ELEMENT = 20_000, 16
"""Steps after which a thread counts as one that does not end."""
_STRETCHES, _STRETCHES_PER_BLOCK = 20, 3
"""Broken rules after which a check ends, and leaves a block size: each ends a process."""
_TIME_LIMIT = 20.0
_SANITIZER_SECONDS = 300.0
"""For a launch under compute-sanitizer, which is slow to start."""
_HIDDEN_BY = {
    "shared unwritten": ("block race", "warp race", "one word"),
    "output unwritten": ("grid race",),
}
"""Kinds that another one on the same line explains."""
_UNWRITTEN = "copy to the host of memory that nobody has written"
"""The emulated driver's text of an output that is not stored (csrc/emu/driver_copies.c)."""
_SHOWN_BY = {"warp race": "block race"}
"""Kinds whose cases show another one on the same line, too: a block barrier orders a warp."""
_RACES = ("block race", "warp race", "grid race")
_EXPLAIN_RESULTS = {
    *_RACES, "one word", "shared unwritten", "output unwritten", "divergent barrier", "warp mask",
}  # fmt: skip
"""Kinds that make results wrong: those say nothing beyond them."""
_BARRIERS, _VALUES = 1, 4
"""Of :attr:`Strict.bit`."""
_WARP = 32
_ENOUGH = 64
"""Threads of the smallest block that shows what several warps do."""


def check(
    kernel: Kernel | str | os.PathLike[str],
    *,
    op: Operator | None = None,
    block_sizes: Iterable[int] | None = None,
    sizes: Iterable[int] | None = None,
    dtypes: Iterable[str] | None = None,
    time_limit: float = _TIME_LIMIT,
    sanitizer: bool = False,
) -> CheckReport:
    """Run a kernel or an operator of your own on an emulated GPU, and find its mistakes.

    The kernel runs over arrays of edge-case sizes, with several block sizes and with three orders
    of its threads. Each access to memory, each barrier and each operation of a warp is checked. It
    needs a C++ compiler, but no GPU, driver or NVRTC. It runs in a child process, which may crash
    or hang.

    Parameters
    ----------
    kernel : Kernel, str or path
        The kernel, or its text or file, as for :class:`Kernel`. With `op` the name of a kernel of
        the catalogue, or ``"auto"``.
    op : Operator, optional
        An operator of your own to check: whether it is associative, its identity changes nothing,
        it is commutative if it says so, and the kernel computes the result of a fold from left to
        right.
    block_sizes : iterable of int, optional
        Threads per block; by default the size in the kernel's text, or several.
    sizes : iterable of int, optional
        Numbers of elements; by default 0, 1, sizes around a warp, a block and the elements that a
        block loads, and larger odd sizes.
    dtypes : iterable of dtype, optional
        Of the elements, where the kernel is templated on them; by default three.
    time_limit : float, optional
        Seconds after which a run counts as hanging.

    sanitizer : bool, optional
        Whether to run the kernel under NVIDIA's compute-sanitizer on a GPU, too: memcheck,
        racecheck, synccheck and initcheck.

    Returns
    -------
    CheckReport
        ``right``, and the findings. It prints as text, and is shown as a page in a notebook.

    Raises
    ------
    ValueError
        The form of the kernel is not known, or a size is not possible.
    CompileError
        The operator does not compile.
    CudaError
        The kernel does not compile; ``log`` has the compiler's messages, with lines of your file.
    DeviceUnavailableError
        There is no C++ compiler, or the package was built without the emulator.

    Notes
    -----
    A race is found for every order in which threads happen to run. Arrays have a few thousand
    elements, so indices that overflow only in arrays of billions do not fail; they are reported as
    a limit.

    Determinism: the same kernel gives the same report.

    Examples
    --------
    >>> import gpureduce as gr
    >>> report = gr.check('''
    ... __global__ void mine(const int *in, int *out, unsigned n)
    ... {
    ...     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i <= n) atomicAdd(out, in[i]);
    ... }''', block_sizes=[64])
    >>> report.right, report.findings[0].title, report.findings[0].line
    (False, 'access out of bounds', 5)
    """
    if time_limit <= 0:
        raise ValueError("time_limit must be above 0")
    if op is not None:
        if sanitizer:
            raise ValueError("sanitizer=True is for kernels of your own, not for operators")
        return check_operator(kernel, op, block_sizes, sizes, dtypes, time_limit)
    mine = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    form = mine.form
    blocks = _blocks(form, block_sizes)
    types = _types(mine, dtypes)
    programs, cases = _cases(form, blocks, types, None if sizes is None else list(sizes))
    report = _report(mine, blocks, cases, _run(form, programs, cases, time_limit))
    if not sanitizer:
        return report
    known = {(each.kind, each.line) for each in report.findings}
    more = [
        each
        for each in sanitize(mine, blocks, types, _SANITIZER_SECONDS)
        if (each.kind, each.line) not in known
    ]
    findings = (*report.findings, *more)
    return replace(report, right=not findings, findings=findings)


# ---------------------------------------------------------------- cases --------------------------


def _blocks(form: KernelForm, given: Iterable[int] | None) -> tuple[int, ...]:
    if given is None:
        if form.block_size is None:
            return BLOCKS
        smaller = (block for block in BLOCKS if block < form.block_size)
        return (form.block_size, *(smaller if form.limiting_array else ()))
    blocks = tuple(dict.fromkeys(int(block) for block in given))
    if not blocks or min(blocks) < 1 or max(blocks) > 1024:
        raise ValueError("block sizes are from 1 to 1024")
    return blocks


def _types(kernel: Kernel, given: Iterable[str] | None) -> tuple[str | None, ...]:
    """Element types of the template, or ``None`` for a kernel without one."""
    if kernel.dtypes is not None:
        if given is not None:
            raise ValueError(
                f"kernel '{kernel.name}' takes {kernel.dtypes[0]}: dtypes are of kernels that are "
                "templated on the element's type"
            )
        return (None,)
    types = TEMPLATE_DTYPES if given is None else tuple(native_dtype(each).name for each in given)
    unknown = [each for each in types if each not in C_TYPES.values()]
    if unknown:
        raise TypeError(f"kernels of your own take no {unknown[0]}")
    return types


def _sizes(form: KernelForm, block: int, given: Sequence[int] | None) -> list[int]:
    """Edge sizes: around a warp, a block and what a block loads, and odd larger ones."""
    tile = block * form.elements_per_thread
    if not form.takes_n:  # whole blocks alone
        found = [tile] if form.cover in ("one", "thread") else [tile, 2 * tile, 5 * tile]
    else:
        found = [0, 1, 2, _WARP - 1, _WARP, _WARP + 1, block - 1, block, block + 1]
        found += [tile - 1, tile, tile + 1, 2 * tile, 3 * tile + 17, 5 * tile - 3]
    if given is not None:
        found = list(given)
        if not found or min(found) < 0 or max(found) > 1 << 20:
            raise ValueError("sizes are from 0 to 1,048,576 elements on the emulator")
    if form.cover in ("one", "thread") and not form.loops:
        found = [n for n in found if n <= tile] if given is None else found
    if form.op in ("min", "max"):
        found = [n for n in found if n > 0]  # NumPy has no extreme of nothing
    return sorted(set(found))


def _size(case: dict[str, Any]) -> tuple[Any, ...]:
    """Elements, then threads of a block, where powers of two come first. Without elements is last:
    most kernels are not meant for that.
    """
    block = case["block"]
    return case["n"] == 0, case["n"], block & (block - 1) != 0, block


def _cases(
    form: KernelForm,
    blocks: Sequence[int],
    types: Sequence[str | None],
    sizes: Sequence[int] | None,
) -> tuple[list[Program], list[dict[str, Any]]]:
    """Programs, and launches of them, the smallest first."""
    programs: list[Program] = []
    numbers: dict[Program, int] = {}
    cases: list[dict[str, Any]] = []
    has_state = "__device__" in form.text
    for dtype in types:
        element, result = dtypes_of(form, dtype)
        for block in blocks:
            program = write(form, dtype, block, emulated=True)
            if program not in numbers:
                numbers[program] = len(programs)
                programs.append(program)
            for n in _sizes(form, block, sizes):
                grid = blocks_for(form, n, block, _MOST_LOOPING_BLOCKS)
                for turn, schedule in enumerate(SCHEDULES):
                    launch = {"schedule": schedule, "data": turn, "twice": has_state}
                    case = launch_case(form, element, result, block, n, grid) | launch
                    cases.append(
                        case
                        | {
                            "program": numbers[program],
                            "probes": _can_count(element, result, n),
                        }
                    )
    cases.sort(key=_size)
    largest = max(case["n"] for case in cases)
    if np.dtype(cases[0]["out"]).kind == "f" and form.op in ("sum", "prod"):
        cases += [
            {**case, "kind": "rounding", "data": 0}
            for case in cases
            if case["n"] == largest and case["block"] == max(blocks)
        ]
    return programs, cases + _across_warps(cases)


def _across_warps(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest launch of each program, for programs whose lanes race: with lanes that do not, it
    shows whether threads of several warps race, too.
    """
    largest: dict[tuple[int, int], dict[str, Any]] = {}
    for case in cases:
        if case["block"] > _WARP and case["schedule"] == SCHEDULES[0] and case["kind"] == "random":
            key = case["program"], case["block"]
            largest[key] = max(case, largest.get(key, case), key=lambda each: each["n"])
    return [{**case, "lockstep": True} for case in largest.values()]


def launch_case(
    form: KernelForm, element: str, result: str, block: int, n: int, grid: int
) -> dict[str, Any]:
    """One launch of the first program, as the worker takes it."""
    return {
        "program": 0,
        "kind": "random",
        "in": element,
        "out": result,
        "op": form.op,
        "finish": form.finish,
        "parameters": roles(form),
        "scratch": form.has_scratch,
        "n": n,
        "grid": grid,
        "further": [],
        "slots": grid * block * form.elements_per_thread,
        "outputs": 1 if form.finish == "atomic" or form.has_scratch else grid,
        "block": block,
        "shared_bytes": shared_bytes(form, element, block),
        "launch": form.launch_kind(grid),
        "schedule": SCHEDULES[0],
        "seed": _SEED,
        "data": 0,
        "twice": False,
        "probes": False,
        "lockstep": False,
    }


def _can_count(element: str, result: str, n: int) -> bool:
    """Whether the kernel's sums of indices below n are exact."""

    def most(dtype: str) -> float:
        kind = np.dtype(dtype)
        return 2.0 ** (np.finfo(kind).nmant + 1) if kind.kind == "f" else np.iinfo(kind).max

    return n <= most(element) and n * n / 2 <= most(result)


def most_steps(n: int) -> int:
    """Steps of a thread after which it counts as one that does not end."""
    return _STEPS + _STEPS_PER_ELEMENT * n


def judge(kernel: Kernel, program: Program, case: dict[str, Any], text: str = "") -> Finding | None:
    """The mistake that one case shows in all schedules, or else the one of the emulator's `text`;
    ``None``: there is none.
    """
    turns = [
        {**case, "schedule": schedule, "data": turn} for turn, schedule in enumerate(SCHEDULES)
    ]
    cases = turns + [{**case, "lockstep": True}]
    found = _run(kernel.form, [program], cases, _TIME_LIMIT)
    findings = _report(kernel, [case["block"]], cases, found).findings
    if findings:
        return findings[0]
    return Finding.of(_read(kernel, case, text), case) if text else None


class Strict(NamedTuple):
    """What a launch relied on although CUDA promises it only to some kernels, or leaves it
    undefined.

    `bit` is 1 for a barrier, 2 for an operation of a warp, that went on without threads that had
    returned; 4 for a shuffle whose value is undefined. `text` is the emulator's.
    """

    case: int
    bit: int
    text: str


class Answers(NamedTuple):
    """Of the child process: answers by the number of the case, and what cases relied on."""

    of_case: dict[int, dict[str, Any]]
    strict: list[Strict]


def _run(
    form: KernelForm,
    programs: Sequence[Program],
    cases: Sequence[dict[str, Any]],
    time_limit: float,
) -> Answers:
    """Run the cases in a child process."""
    request = {
        "programs": [asdict(each) for each in programs],
        "cases": cases,
        "time_limit": time_limit,
        "in_process": False,
        "stretches": _STRETCHES,
        "stretches_per_block": _STRETCHES_PER_BLOCK,
    }
    steps = most_steps(max(case["n"] for case in cases))
    with temporary_folder("gpureduce-check-") as directory:
        environment = emulator_environment(directory, f"limit={steps}")
        environment["OPENBLAS_NUM_THREADS"] = "1"  # the child forks
        try:
            reply = run_worker("gpureduce._yours.check_worker", request, environment)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError("the emulating process does not end") from error
    found = Answers({}, [])
    for line in reply.splitlines():
        answer = json.loads(line)
        if "error" in answer:
            raise worker_exception(form, answer["error"])
        number = answer.pop("case")
        if "strict" in answer:
            found.strict.append(Strict(number, answer["bit"], answer["strict"]))
        else:
            found.of_case[number] = answer
    return found


def worker_exception(form: KernelForm, error: dict[str, Any]) -> Exception:
    """The worker's exception: of a text that does not compile, with the file's name."""
    log = error["details"][-1]
    if error["name"] == "CudaError" and log and not log.startswith("the emulator "):
        return does_not_compile(form, _exceptions.CudaError(error["message"], *error["details"]))
    return as_exception(error)


# ---------------------------------------------------------------- what was found -----------------


def trouble_of(
    kernel: Kernel, case: dict[str, Any], answer: dict[str, Any], others: Sequence[str] = ()
) -> Trouble | None:
    """The mistake in one case; ``None``: the case is right. `others` are the operators whose
    results the kernel computes.
    """
    form = kernel.form
    here, changed = _suspect(kernel)
    if _UNWRITTEN in answer.get("finding", ""):
        return Trouble("no store", _not_stored(case["outputs"]) + changed, here)
    some_returned = answer.get("relied", 0) & _BARRIERS
    if "finding" in answer:
        trouble = _read(kernel, case, answer["finding"])
        if some_returned and trouble.kind == "shared unwritten":
            return replace(trouble, remedy=_RETURNED)
        return trouble
    if "hang" in answer:
        said = f"the launch had not ended after {answer['hang']:g} seconds"
        return Trouble("hang", said + changed, here)
    if "crash" in answer:
        said = f"the process ended with status {answer['crash']}"
        return Trouble("crash", said + changed, here)
    if "second" in answer:
        return Trouble(
            "state",
            f"the second launch computes {answer['second']:g}, and {answer['want']:g} is right"
            + changed,
            here,
        )
    if "got" not in answer:
        return None
    if others:
        return Trouble(
            "operator",
            f"results are those of {' or '.join(others)}, not of {form.op}" + changed,
            here,
        )
    return Trouble(
        "result",
        f"the kernel computes {answer['got']:g}, and {answer['want']:g} is right"
        + answer.get("missing", "")
        + changed,
        here,
        remedy=_RETURNED if some_returned else _RESULT_REMEDIES.get(form.op, ""),
    )


def _suspect(kernel: Kernel) -> tuple[Place, str]:
    """The line to show where a run names none, and words that say why.

    Of a changed export it is the first line that differs, else the kernel's first.
    """
    lines = kernel.source.splitlines()
    changed = changed_lines(kernel)
    line = changed[0] if changed else kernel.form.line
    words = ""
    if changed:
        numbers = f"line {line} differs" if len(changed) == 1 else f"lines {_list(changed)} differ"
        words = f"; {numbers} from `gpureduce kernels --export {kernel.name}`"
    return Place(line, lines[line - 1].rstrip()), words


def _read(kernel: Kernel, case: dict[str, Any], text: str) -> Trouble:
    form = kernel.form
    element, result = np.dtype(case["in"]).itemsize, np.dtype(case["out"]).itemsize
    arrays = {"in": (form.name_of("in"), element), "out": (form.name_of("out"), result)}
    return read_finding(
        text,
        shown_name(form.file),
        kernel.source.splitlines(),
        form.shared_name,
        arrays,
        form.op,
    )


def _strict_troubles(
    kernel: Kernel, cases: Sequence[dict[str, Any]], answers: Answers
) -> Iterator[tuple[Trouble, dict[str, Any], bool]]:
    """What launches relied on, the case of each, and whether it is a mistake.

    A barrier or an operation of a warp waits for all threads that have not returned, so threads may
    return before it. In a branch that not all threads take CUDA leaves it undefined: a thread that
    goes past the branch has not returned, and whether it does before the others come is a matter of
    timing. A shuffle's undefined value is a mistake if the result depends on it.
    """
    code = without_comments(kernel.source)
    for number, bit, text in answers.strict:
        trouble = _read(kernel, cases[number], text)
        if bit == _VALUES:
            wrong = "undefined" in answers.of_case[number]
        else:
            line = line_of_place(text, shown_name(kernel.form.file))
            wrong = line > 0 and bool(divergent_branch(code, line))
        yield trouble, cases[number], wrong


_RETURNED = (
    "Threads have returned before a barrier. It waits for the others alone, and what the ones that "
    "returned would have stored or combined is missing. Let threads without elements go on, with "
    "the identity in place of an element."
)
"""What mends a kernel that misses work of threads that have returned."""
_RESULT_REMEDIES = {
    "max": "Look at where maxima begin, and at threads without an element: 0 is larger than every "
    "negative element. Begin with the first element or with minus infinity (-INFINITY, INT_MIN).",
    "min": "Look at where minima begin, and at threads without an element: 0 is smaller than every "
    "positive element. Begin with the first element or with infinity (INFINITY, INT_MAX).",
    "prod": "Follow the smallest case by hand: which thread loads each element, and do products "
    "begin with 1, also of threads without an element?",
}
"""Of wrong results, by operator, where the general remedy says too little."""


def _not_stored(outputs: int) -> str:
    return "the output is not stored" if outputs == 1 else f"not all {outputs} outputs are stored"


def _other_operators(
    cases: Sequence[dict[str, Any]], answers: dict[int, dict[str, Any]]
) -> dict[int, list[str]]:
    """By block size, the operators that explain all of its wrong results: a few elements may have
    one product and one maximum.
    """
    by_block: dict[int, list[str]] = {}
    for number, answer in answers.items():
        if "others" in answer:
            block, found = cases[number]["block"], answer["others"]
            by_block[block] = [op for op in by_block.get(block, found) if op in found]
    explained = [ops for ops in by_block.values() if ops]
    common = [op for op in (explained[0] if explained else []) if all(op in o for o in explained)]
    return {block: common if ops else [] for block, ops in by_block.items()}


def _passing_blocks(
    form: KernelForm, blocks: Sequence[int], failed: Iterable[dict[str, Any]]
) -> tuple[tuple[int, ...], bool]:
    """Block sizes without trouble, and whether they show that the kernel is right in these.

    The size that the text names must be among them, if it was tried.
    """
    bad = {case["block"] for case in failed}
    good = tuple(block for block in blocks if block not in bad)
    if form.block_size in blocks:
        return good, form.block_size in good
    return good, any(block >= min(_ENOUGH, max(blocks)) for block in good)


_Troubles = dict[tuple[str, int, bool], tuple[Trouble, dict[str, Any], set[int]]]
"""By kind, line and whether there are elements: what the smallest case shows, the case, and all
block sizes that show it."""


def _rank(trouble: Trouble, case: dict[str, Any]) -> tuple[Any, ...]:
    """By which cases of one mistake are compared: the smallest is the one to describe."""
    return *_size(case), trouble.kind in _SHOWN_BY, SCHEDULES.index(case["schedule"])


def _add(troubles: _Troubles, trouble: Trouble, case: dict[str, Any]) -> None:
    key = (trouble.kind, trouble.where.line, case["n"] > 0)
    if key in troubles:
        so_far = troubles[key]
        smaller = min(so_far[:2], (trouble, case), key=lambda each: _rank(*each))
        troubles[key] = (*smaller, so_far[2] | {case["block"]})
    else:
        troubles[key] = (trouble, case, {case["block"]})


def _merge(troubles: _Troubles) -> None:
    """Make one of two races that are one mistake, with the smaller case: at one line, or between
    the same two lines in the other order.
    """
    for key in [*troubles]:
        if key not in troubles or key[0] not in _RACES:
            continue
        kind, line, some = key
        wider = _SHOWN_BY.get(kind, kind)
        lines = troubles[key][0].lines
        same = [
            other
            for other, (trouble, _, _) in troubles.items()
            if other != key
            and other[0] in (wider, kind)
            and other[2] == some
            and (other[1] == line or trouble.lines == lines)
        ]
        if same:
            other = min(same, key=lambda each: (each[0] != wider, each[1] != line))
            wider, of_wider = other[0], troubles[other][0].remedy
            parts = troubles.pop(key), troubles.pop(other)
            trouble, case, _ = min(parts, key=lambda each: _rank(*each[:2]))
            if trouble.kind != wider:
                trouble = replace(trouble, kind=wider, remedy=of_wider)
            blocks = parts[0][2] | parts[1][2]
            troubles[wider, trouble.where.line, some] = (trouble, case, blocks)


def _drop_consequences(troubles: _Troubles) -> None:
    """Leave out what others explain, and what only odd block sizes show of a kernel that is wrong
    in all.
    """
    kinds = {kind for kind, _, some in troubles if some}
    usual = {
        key
        for key, (_, _, blocks) in troubles.items()
        if any(block >= _ENOUGH and block & (block - 1) == 0 for block in blocks)
    }
    barriers: list[int] = []
    for trouble, _, _ in sorted(troubles.values(), key=lambda each: _rank(*each[:2])):
        if trouble.kind == "divergent barrier" and trouble.lines.isdisjoint(barriers):
            barriers.append(trouble.where.line)
    unordered = {each.other_where.line for each, _, _ in troubles.values() if each.in_branch}
    for key in [*troubles]:
        kind, line, some = key
        if (
            any((other, line, some) in troubles for other in _HIDDEN_BY.get(kind, ()))
            or (kind == "result" and not _EXPLAIN_RESULTS.isdisjoint(kinds))
            or (kind == "shared unwritten" and line in unordered)
            or (kind == "divergent barrier" and some and line not in barriers)
            # a coincidence: it is not always so
            or (kind == "operator" and ("result", line, True) in (usual or troubles))
            or (some and key not in usual and any(other[2] for other in usual))
        ):
            del troubles[key]


def _report(
    kernel: Kernel,
    blocks: Sequence[int],
    cases: Sequence[dict[str, Any]],
    found: Answers,
) -> CheckReport:
    troubles: _Troubles = {}
    failed = []
    answers = found.of_case
    remarks: dict[str, None] = {}
    others = _other_operators(cases, answers)
    for relied, case, wrong in _strict_troubles(kernel, cases, found):
        if wrong:
            failed.append(case)
            _add(troubles, relied, case)
        else:
            remarks[_remark(relied)] = None
    for number, answer in answers.items():
        case = cases[number]
        trouble = trouble_of(
            kernel, case, answer, others.get(case["block"], ()) if "others" in answer else ()
        )
        if trouble is None:
            continue
        failed.append(case)
        _add(troubles, trouble, case)
    _merge(troubles)
    _drop_consequences(troubles)
    unfinished = [
        case
        for number, case in enumerate(cases)
        if number not in answers and not case["lockstep"] and case["kind"] == "random"
    ]
    good, is_right = _passing_blocks(
        kernel.form, blocks, (case for case in failed + unfinished if case["n"] > 0)
    )
    findings: list[Finding] = []
    limits: list[Limit] = list(_limits_of_text(kernel, cases))
    bad_blocks = tuple(block for block in blocks if block not in good)
    for trouble, case, _ in sorted(troubles.values(), key=lambda each: _rank(*each[:2])):
        finding = Finding.of(trouble, case)
        if case["n"] > 0 and not is_right:
            findings.append(finding)
        elif case["n"] > 0:
            limits.append(
                Limit(
                    f"blocks of {_list(good)} threads are right, of {_list(bad_blocks)} not: with "
                    f"{case['block']} threads and n = {case['n']}, {trouble.what}",
                    finding,
                )
            )
        elif is_right:
            limits.append(Limit(f"an empty array is not taken: {trouble.what}", finding))
    limits = list({(each.text.split(":")[0]): each for each in reversed(limits)}.values())[::-1]
    bits: dict[int, set[str]] = {}
    for number, answer in answers.items():
        if "bits" in answer:
            bits.setdefault(cases[number]["program"], set()).add(answer["bits"])
    if any(len(each) > 1 for each in bits.values()):
        limits.append(
            Limit("sums of floats depend on the order of threads: not the same bits in each run")
        )
    return CheckReport(
        kernel=kernel.name,
        file=kernel.file,
        op=kernel.op,
        description=str(kernel),
        right=not findings,
        findings=tuple(findings),
        limits=tuple(limits),
        remarks=tuple(remarks) if not findings else (),
        blocks=tuple(blocks),
        sizes=tuple(sorted({case["n"] for case in cases})),
        dtypes=tuple(dict.fromkeys(case["in"] for case in cases)),
        runs=len(answers),
        why_blocks=_why_blocks(kernel.form, blocks),
    )


def _why_blocks(form: KernelForm, blocks: Sequence[int]) -> str:
    """Why no other block size was tried; "" if the text names none, or others were."""
    if tuple(blocks) != (form.block_size,):
        return ""
    return "the only size that the kernel is for; block_sizes, or --block-size, tries others"


def _remark(trouble: Trouble) -> str:
    """What a right kernel relied on."""
    line = trouble.where.line
    if trouble.kind == "divergent barrier":
        return (
            f"threads have returned before the barrier in line {line}: it waits for all threads "
            "of the block that have not"
        )
    if trouble.kind == "cluster barrier":
        return (
            f"threads have returned before the cluster barrier in line {line}: it waits for all "
            "threads of the cluster that have not"
        )
    if "that reads lane" in trouble.what:
        return (
            f"the shuffle in line {line} reads lanes that take no part in it: their values are "
            "undefined, and the result does not depend on them"
        )
    return (
        f"lanes have returned that the mask in line {line} names: it waits for the named lanes "
        "that have not"
    )


def _list(numbers: Sequence[int]) -> str:
    words = [str(number) for number in sorted(numbers)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _limits_of_text(kernel: Kernel, cases: Sequence[dict[str, Any]]) -> Iterator[Limit]:
    """Lengths at which indices overflow: no emulated array is as long."""
    if not kernel.form.takes_n:
        yield Limit("it has no n: arrays are whole blocks of elements")
        return
    grid, block = max(
        ((case["grid"], case["block"]) for case in cases), key=lambda each: each[0] * each[1]
    )
    most, why, line = kernel.form.most_elements(grid, block)
    if most < 2**63 - 1:
        yield Limit(f"arrays of up to {most:,} elements: {why} (line {line})")
