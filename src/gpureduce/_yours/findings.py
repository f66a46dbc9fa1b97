"""What the emulator found in a kernel, in a teacher's words.

A finding has a kind; :data:`ADVICE` says for each kind what rule is broken, how it is mended and
which kernel of the course explains it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .device_text import (
    barrier_in_branch,
    barrier_in_loop,
    is_in_loop,
    stores_to_one_word,
    without_comments,
)

__all__ = ["ADVICE", "Advice", "Place", "Trouble", "is_finding", "line_of_place", "read_finding"]


@dataclass(frozen=True)
class Advice:
    """Of a kind of mistake.

    Attributes
    ----------
    title
        Its name.
    rule
        The rule that is broken.
    remedy
        What usually mends it.
    read
        A kernel of the catalogue whose source explains it.
    """

    title: str
    rule: str
    remedy: str
    read: str


ADVICE = {
    "not associative": Advice(
        "combine is not associative",
        "Kernels combine neighbours first, so combine(combine(x, y), z) has to be what "
        "combine(x, combine(y, z)) is. Floats may differ by rounding.",
        "Change combine, or let the state hold what it needs to know of the elements before.",
        "single_block_ordered",
    ),
    "no identity": Advice(
        "identity() changes a value",
        "Threads without elements hold identity(): combined with it, on either side, a state has "
        "to stay what it is.",
        "Return the state of no elements, or leave identity() out.",
        "first_add",
    ),
    "not commutative": Advice(
        "combine is not commutative",
        "Kernels that reorder combine operands in any order. An operator with "
        "commutative=True must give the same result for combine(x, y) and combine(y, x).",
        "Leave commutative=True out: the order of the array is kept then.",
        "single_block_ordered",
    ),
    "block race": Advice(
        "missing block barrier (race)",
        "Threads run in any order, within a warp, too. What one stores, another may read or "
        "overwrite only after a __syncthreads(), and what one reads, another may overwrite only "
        "after one.",
        "Put __syncthreads() between the two lines, where all threads of the block reach it.",
        "interleaved_modulo",
    ),
    "warp race": Advice(
        "missing warp barrier (race)",
        "The lanes of a warp do not run in lockstep: since compute capability 7.0 each has a "
        "program counter of its own, and volatile orders nothing between threads.",
        "Put __syncwarp() between the read and the write of each step, or use __shfl_down_sync, "
        "which needs no memory.",
        "unrolled_last_warp",
    ),
    "one word": Advice(
        "one word that several threads write (race)",
        "Threads run in any order: any of those that store to a word may be the last. An update is "
        "a read, an operation and a write; where another thread updates the word in between, one "
        "of the two updates is lost. No barrier helps, because the threads execute the same line.",
        "Use an atomic operation, or a tree in which each thread has a slot of its own.",
        "shared_atomic",
    ),
    "grid race": Advice(
        "race between blocks",
        "Blocks run in any order, and nothing that __syncthreads() does reaches another block.",
        "Store a partial per block and launch again, or use an atomic operation for every access; "
        "a last block that combines partials needs __threadfence() on both sides of its ticket.",
        "last_block",
    ),
    "cluster race": Advice(
        "missing cluster barrier (race)",
        "The blocks of a cluster run at the same time and in any order. What a block stores to "
        "shared memory another one may read, and what another one has read the block may "
        "overwrite, only after a cluster barrier, which all threads of all its blocks reach.",
        "Put a cluster barrier between the two lines, where all threads come. __syncthreads() does "
        "not reach another block.",
        "cluster",
    ),
    "cluster barrier": Advice(
        "cluster barrier that not all threads reach",
        "A cluster barrier waits for every thread of the cluster that has not returned. A thread "
        "that took another branch never comes.",
        "Move the barrier out of the branch, so that all threads of all blocks come to it, also of "
        "a block that has no work left.",
        "cluster",
    ),
    "ended block": Advice(
        "shared memory of a block that may have returned",
        "A block's shared memory is there while the block runs. The other blocks of its cluster "
        "may access it only before the block returns, and in no block that the cluster lacks.",
        "Put a cluster barrier after the last access, before any block returns, and let ranks be "
        "below the cluster's number of blocks.",
        "cluster",
    ),
    "grid wait": Advice(
        "wait for a block that does not come",
        "A barrier of the grid waits for every block of the launch: for one that has returned it "
        "waits for ever, and for one that has not begun too, if those that wait leave no room for "
        "it. A cooperative launch has all of its blocks at once.",
        "Let every block come to the barrier, also one without elements, and launch no more blocks "
        "than are resident, by a cooperative launch.",
        "cooperative",
    ),
    "divergent barrier": Advice(
        "barrier that not all threads reach",
        "__syncthreads() waits for every thread of the block that has not returned. It may be in a "
        "branch only if all threads of the block take it: a thread that goes past it may never "
        "come, and on a GPU the kernel hangs or goes wrong.",
        "Move the barrier out of the branch, and give threads without work the identity to work "
        "with.",
        "interleaved_modulo",
    ),
    "warp mask": Advice(
        "wrong mask of a warp operation",
        "The mask of a shuffle, vote or __syncwarp names the lanes that execute it: all of them, "
        "and no others. It waits for those that have not returned, and the value of a lane that "
        "takes no part is undefined.",
        "Call it where all 32 lanes come, outside the branch and before any return, with the mask "
        "0xffffffff; lanes without an element bring the identity.",
        "shfl_last_warp",
    ),
    "bounds": Advice(
        "access out of bounds",
        "Memory outside an array belongs to somebody else: it is read as garbage, or overwritten.",
        "Compare the index with n (i < n) before the access, for each element that a thread loads.",
        "first_add",
    ),
    "shared unwritten": Advice(
        "read of shared memory that nobody wrote",
        "Shared memory holds garbage until a thread of the block stores to it.",
        "Let every thread store its slot, the identity where it has no element, before others "
        "read it.",
        "sequential",
    ),
    "output unwritten": Advice(
        "read of global memory that nobody wrote",
        "The output holds garbage before a kernel stores to it: adding to it, also atomically, "
        "adds the garbage.",
        "Add in a variable of the thread, and store it with =. A kernel that uses atomics on one "
        "result needs the identity there before it is launched: a fill, then the kernel.",
        "naive_atomic",
    ),
    "misaligned": Advice(
        "misaligned access",
        "A load of 8 or 16 bytes needs an address that is a multiple of its size.",
        "Read the elements before the first multiple one by one, or use narrower loads.",
        "shfl_atomic",
    ),
    "copy under way": Advice(
        "access to bytes that are being copied",
        "An asynchronous copy may write its bytes at any time before it has been waited for: by "
        "its own thread, or, where a bulk copy arrives at an mbarrier, for the copy's phase by "
        "every thread that reads.",
        "Wait before the access, for the phase of this copy: parity 0 first, then 1, and so on by "
        "turns. Begin a copy only when all threads have read what it overwrites.",
        "bulk_copy",
    ),
    "copy bytes": Advice(
        "bytes that are announced and bytes that are copied differ",
        "A phase of an mbarrier completes when as many bytes have arrived as its arrivals have "
        "announced.",
        "Announce the bytes of all copies of the phase, by the same variable that the copy gets.",
        "bulk_copy",
    ),
    "mbarrier wait": Advice(
        "wait for an mbarrier that does not end",
        "A phase completes when all arrivals have come that the mbarrier was initialized with, and "
        "all bytes that these have announced.",
        "Count who arrives in each phase, each thread or one of each warp, and announce what is "
        "copied. Wait for the phases in turn: parity 0, 1, 0, 1.",
        "bulk_copy",
    ),
    "mbarrier": Advice(
        "mbarrier that is not ready",
        "One thread initializes an mbarrier, with the arrivals of a phase, once; a fence lets "
        "copies use it, and a barrier of the block the other threads.",
        "Let thread 0 initialize all mbarriers and call the fence, and put __syncthreads() before "
        "anything else is done with them. A thread that arrives waits for the phase before it "
        "arrives again.",
        "bulk_copy",
    ),
    "hang": Advice(
        "kernel that does not end",
        "A thread waits for something that never happens, or its loop never ends.",
        "Look at the loop's condition. A block must not wait for another block: that one may start "
        "only when this one has ended.",
        "last_block",
    ),
    "crash": Advice(
        "kernel that crashes",
        "The kernel's code did what a processor refuses: a division of integers by zero, or a "
        "function that calls itself without end.",
        "Look at divisions and recursive functions.",
        "sequential",
    ),
    "state": Advice(
        "right once, wrong the next time",
        "A __device__ variable keeps its value from launch to launch.",
        "Let the last block set the variable back to what it was before the launch.",
        "last_block",
    ),
    "no store": Advice(
        "output that no thread stores",
        "Every block stores its partial, also one whose threads have no elements.",
        "Let one thread of each block store, whatever n is.",
        "sequential",
    ),
    "operator": Advice(
        "another operator",
        "The results are those of another operator.",
        "Mend it, or say which it is: --computes OP, gr.Kernel(..., op=...).",
        "sequential",
    ),
    "result": Advice(
        "wrong result",
        "The result differs from NumPy's, and no rule of memory is broken: elements are left out, "
        "taken twice, or combined with a wrong identity, or the kernel computes another function "
        "than sum, prod, min or max, which alone are known here.",
        "Follow the smallest case by hand: which thread loads each element, and where does it go?",
        "sequential",
    ),
}


@dataclass(frozen=True)
class Place:
    """A line of the user's file; 0: unknown."""

    line: int
    text: str = ""


@dataclass(frozen=True)
class Trouble:
    """One broken rule of one run.

    Attributes
    ----------
    kind
        A key of :data:`ADVICE`.
    what
        Which thread did what, up to the line.
    where
        The line.
    other, other_where
        What another thread had done, and its line; "" if there is none.
    end
        What is missing between the two; may be "".
    remedy
        What mends this one, where the kind's remedy does not fit; else "".
    """

    kind: str
    what: str
    where: Place
    other: str = ""
    other_where: Place = Place(0)
    end: str = ""
    remedy: str = ""

    @property
    def lines(self) -> frozenset[int]:
        """Its lines, in no order."""
        return frozenset((self.where.line, self.other_where.line))

    @property
    def in_branch(self) -> bool:
        """Whether it is a race between threads of which some skip a barrier."""
        return self.kind == "divergent barrier" and bool(self.end)


def _in_line(place: Place) -> str:
    return f" (line {place.line})" if place.line > 0 else ""


_INSTRUCTION = re.compile(r"\bgpr_emu_\w+\(|\b__pipeline_\w+\(")
"""What stands in for an instruction, in a function of its own: the function's call says more."""
_FINDING = re.compile(
    r"kernel (?P<kernel>.+?), block (?P<block>\d+), (?P<thread>thread \d+ \(warp \d+, lane \d+\)), "
    r"phase \d+: (?P<rest>.*?)(?: \[schedule=[^\]]*\])?(?: \(CUDA_ERROR_\w+, \d+\))?$",
    re.DOTALL,
)
_PLACE = re.compile(r" at ([\w.-]+):(\d+)(?:, called at ([\w.-]+):(\d+))?")


_OF_OTHER = re.compile(r"read of shared [^,]*? of block \d+, ")
"""A read of another block's shared memory."""


def _kind(rest: str) -> str:
    if "bulk copy to it" in rest or "under way" in rest or ", and a bulk copy began" in rest:
        return "copy under way"
    if "no cluster barrier lies between" in rest:
        return "cluster race"
    if rest.startswith("race on"):
        if "of block" in rest or "no device fence" in rest:
            return "grid race"
        return "warp race" if "no warp or block barrier" in rest else "block race"
    for start, kind in (
        ("barrier that not all", "divergent barrier"),
        ("cluster barrier that not all", "cluster barrier"),
        ("return of a block whose shared memory", "ended block"),
        ("shared memory of a block that", "ended block"),
        ("wait for a block that may never begin", "grid wait"),
        ("wait that does not end", "grid wait"),
        ("out-of-bounds", "bounds"),
        ("read of shared", "cluster race" if _OF_OTHER.match(rest) else "shared unwritten"),
        ("read of", "output unwritten"),
        ("misaligned", "misaligned"),
        ("bulk copy of", "misaligned"),
        ("asynchronous copy of", "misaligned"),
        ("asynchronous copy whose thread returns", "copy under way"),
        ("bulk copy that no thread waits for", "copy under way"),
        ("copies of", "copy bytes"),
        ("wait for parity", "mbarrier wait"),
        ("mbarrier", "mbarrier"),
        ("arrival at", "mbarrier"),
        ("wait at", "mbarrier"),
        ("bulk copy to mbarrier", "mbarrier"),
        ("bulk copy at", "mbarrier"),
        ("thread that does not end", "hang"),
    ):
        if rest.startswith(start):
            return kind
    return "warp mask"


def is_finding(text: str) -> bool:
    """Whether a message of an exception is the emulator's of a broken rule."""
    return _FINDING.search(text) is not None


def line_of_place(text: str, file: str) -> int:
    """The line of a file that the first place in the emulator's text names: where the operation is,
    or else where its function is called; 0: neither is in the file.
    """
    found = _PLACE.search(text)
    places = ((found[1], found[2]), (found[3], found[4])) if found is not None else ()
    return next((int(line) for name, line in places if name == file), 0)


def read_finding(
    text: str,
    file: str,
    lines: list[str],
    shared: str | None,
    arrays: dict[str, tuple[str, int]],
    op: str = "sum",
) -> Trouble:
    """Read the emulator's text.

    Parameters
    ----------
    text : str
        Message of the exception.
    file : str
        The user's file, as the program names it.
    lines : list of str
        Its lines.
    shared : str or None
        Name of the dynamic shared array.
    arrays : dict
        By the label of an array in global memory: its name, and bytes of an element.
    op : str, optional
        What the kernel computes.

    Returns
    -------
    Trouble
    """
    found = _FINDING.search(text)
    if found is None:
        raise RuntimeError(f"the emulator reports what this package does not know: {text}")
    rest = found["rest"]
    places = list(_PLACE.finditer(rest))

    def place(match: re.Match[str]) -> Place:
        found = Place(0)
        for name, number in ((match[3], match[4]), (match[1], match[2])):
            if name != file:
                continue
            line = int(number)
            text = lines[line - 1].rstrip() if line <= len(lines) else ""
            if found.line == 0 or not _INSTRUCTION.search(text):
                found = Place(line, text)
        return found

    def named(part: str) -> str:
        part = part.replace("dynamic shared memory", shared or "the dynamic shared array")
        return _name_arrays(part, arrays).strip(" ,:")

    what = rest[: places[0].start()] if places else rest
    other = rest[places[0].end() : places[1].start()] if len(places) > 1 else ""
    end = rest[places[-1].end() :] if places else ""
    if len(places) == 1:
        other, end = end, ""
    thread = f"{found['thread']} of block {found['block']}"
    kind = _kind(rest)
    what, other = named(what), named(other)
    if race := _RACE.fullmatch(what):
        said = f"{thread} {race['verb']} {race['word']}{race['how']}"
        other = _RACED.sub(rf"\1 \2 {race['word']}\3 before", other.removeprefix("and "))
    elif kind in _ABSENT:
        said = f"{thread}: {_ABSENT[kind][0].sub(_ABSENT[kind][1], what)}"
    else:
        said = f"{thread}: {what}"
    here = place(places[0]) if places else Place(0)
    there = place(places[1]) if len(places) > 1 else Place(0)
    code = without_comments("\n".join(lines))
    end = named(end)
    remedy = _remedy(kind, rest, here, there, code)
    if race and kind in ("block race", "warp race"):
        if here == there and (of_word := _one_word_remedy(code, here, race["word"], op)):
            kind, remedy = "one word", of_word
        elif branch := barrier_in_branch(code, here.line, there.line):
            line, condition = branch
            return Trouble(
                "divergent barrier",
                f"not all threads come to this barrier, only those with {condition}",
                Place(line, lines[line - 1].rstrip()),
                said,
                here,
                f"{other}{_in_line(there)}: {end}",
            )
    if kind == "output unwritten" and stores_to_one_word(code, here.line, _name(what)) == "update":
        remedy = (
            "Where several threads add to one result, use atomicAdd: the result holds the identity "
            "before the launch. Where one thread does, store with =."
        )
    return Trouble(kind, said, here, other, there, end, remedy)


def _name(word: str) -> str:
    """The variable of a word: ``"s"`` of ``"shared s[3]"``."""
    found = re.search(r"(\w+)(?:\[\d+\])?(?:,.*)?$", word)
    return found[1] if found is not None else ""


_ATOMICS = {"sum": "atomicAdd", "min": "atomicMin", "max": "atomicMax"}
"""By operator; CUDA has none that multiplies."""


def _one_word_remedy(code: str, place: Place, word: str, op: str) -> str:
    """What mends a line that stores to one word in all threads of a block; "" of other lines."""
    how = stores_to_one_word(code, place.line, _name(word))
    if how == "store":
        return (
            "Let one thread store it, if (threadIdx.x == 0), and put __syncthreads() behind that, "
            "before other threads use the word."
        )
    if how == "update":
        atomic = f"{_ATOMICS[op]}(&{word.removeprefix('shared ')}, ...)" if op in _ATOMICS else ""
        slots = (
            "ive each thread a slot of its own in shared memory and combine the slots by a tree."
        )
        return f"Use an atomic operation, {atomic}, or g{slots}" if atomic else f"G{slots}"
    return ""


_RACE = re.compile(
    r"race on (?P<word>.*): it (?P<verb>reads|writes|updates|begins a bulk copy to) it"
    r"(?P<how>(?: atomically)?)"
)
_RACED = re.compile(r"(.*) (wrote|read|updated) it((?: atomically)?) before")
_ABSENT = {
    "warp mask": (re.compile(r"which has returned"), "which has skipped the call, or has returned"),
    "divergent barrier": (
        re.compile(r"(thread \d+ \([^)]*\)) has returned, and it waits"),
        r"\1 has skipped it, or has returned, and it waits",
    ),
    "cluster barrier": (
        re.compile(r"((?:thread \d+ \([^)]*\)|block \d+)) has returned, and it waits"),
        r"\1 has skipped it, or has returned, and it waits",
    ),
}
"""The emulator sees that a thread has ended, and not whether it came past the place."""


_OF_LOOPS = {"block race": "__syncthreads()", "warp race": "__syncwarp()"}
"""Barriers that loops lack, by the kind of the race."""
_BEFORE = re.compile(r" \d+ before (?:an allocation|the array \w+) of ")


def _remedy(kind: str, rest: str, here: Place, there: Place, code: str) -> str:
    """What mends a case, where the remedy of its kind does not fit; else ""."""
    if kind == "block race" and here.line > 0 and here.line == there.line:
        if is_in_loop(code, here.line):
            return (
                "Put __syncthreads() at the end of the loop's body, outside the if, where all "
                "threads of the block reach it."
            )
        return (
            "Read into a variable of the thread, put __syncthreads() where all threads of the "
            "block reach it, then write."
        )
    if kind in _OF_LOOPS and there.line > 0 and barrier_in_loop(code, here.line, there.line):
        return (
            "The barrier between the two lines orders them within a round of the loop. Put another "
            f"{_OF_LOOPS[kind]} at the end of the loop's body, before the next round."
        )
    if kind == "copy under way" and ("returns" in rest or "no thread waits" in rest):
        return "Wait for every copy, or begin none that no round is left to read."
    if kind == "misaligned" and "bulk copy" in rest:
        return (
            "A bulk copy needs addresses and a size that are multiples of 16: read the elements "
            "before the first multiple, and those behind the last whole 16 bytes, one by one."
        )
    if kind == "bounds" and " to shared memory" in rest:
        return (
            "Compare the index with the array's size, or make the array as long as the threads "
            "that use it."
        )
    if kind == "bounds" and _BEFORE.search(rest):
        return "Let no index fall below 0: an unsigned one wraps instead, to a large number."
    if kind == "warp mask":
        if "does not name the lane that calls it" in rest:
            return (
                "Name every lane that makes the call: by 0xffffffff where all 32 lanes come. "
                "Lanes that are not named must not make it."
            )
        if "which is not there" in rest:
            return (
                "Launch blocks of a multiple of 32 threads, or name only the lanes that the last "
                "warp has."
            )
        if "which its mask" in rest:
            return (
                "Name the lanes that are read, too, which must make the call: by 0xffffffff where "
                "all 32 lanes come."
            )
        if "of width" in rest:
            return "Use a width of 1, 2, 4, 8, 16 or 32."
    return ""


def _name_arrays(text: str, arrays: dict[str, tuple[str, int]]) -> str:
    """Elements of arrays in place of bytes of them."""

    def element(match: re.Match[str]) -> str:
        name, size = arrays[match[2]]
        return f"{name}[{int(match[1]) // size}]"

    def past(match: re.Match[str]) -> str:
        name, size = arrays[match[2]]
        count = int(match[3]) // size
        place = count + int(match[1]) // size
        return f"{name}[{place}], where {name} has {count} element{'s' * (count != 1)}"

    def before(match: re.Match[str]) -> str:
        name, size = arrays[match[2]]
        return f"{name}[{-(int(match[1]) // size)}], before the first element"

    def past_shared(match: re.Match[str]) -> str:
        size, name = int(match[1]), match[3]
        return f"{name}[{int(match[2]) // size}], where {name} has {int(match[4]) // size} elements"

    text = re.sub(r"(\d+) bytes at byte (\d+) of (.+?), which has (\d+) bytes", past_shared, text)
    text = re.sub(r"byte (\d+) of the array (\w+) of \d+ bytes", element, text)
    text = re.sub(r"\d+ bytes, (\d+) before the array (\w+) of \d+", before, text)
    return re.sub(r"\d+ bytes, (\d+) past the end of the array (\w+) of (\d+)", past, text)
