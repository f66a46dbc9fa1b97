"""The process in which a kernel of the user's own is checked: reads a request and writes a line of
JSON per case.

It compiles the programs, then forks a process per stretch of cases: a kernel that breaks a rule
ends the emulated context, one that crashes ends its process, and one that hangs is killed.
:mod:`gpureduce._yours.check` starts it, with the emulator as libcuda and NVRTC.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from .. import _core, _exceptions
from .._emulator_process import answers, error_record
from .program_text import Places, arguments, identity, set_value

_BROKEN = {"finding", "broken"}
"""Answers of cases after which the emulated context cannot be used."""
_ENDS = {*_BROKEN, "hang", "crash"}
"""Answers of cases that ended their process."""
_DOES_NOT_END = "thread that does not end"
"""How the emulator's text of such a thread begins (csrc/emu/run.c)."""
_OF_LANES = "no warp or block barrier lies between"
"""How the emulator's text of a race between lanes of a warp ends (csrc/emu/check.c)."""
_TICKET_BYTES = 4
_ROUNDING = 1e-3
"""Relative difference of floats' products in two orders, at most."""
_GARBAGE = {"forward": "large", "reverse": "small", "random": "random"}
"""What shuffles return whose value is undefined, by schedule (csrc/emu/settings.c)."""
_BARRIERS, _MASKS, _VALUES = 1, 2, 4
"""Bits of what a launch may rely on (csrc/emu/engine.h)."""
_CC = 90
"""Compute capability that programs are compiled for."""


def elements(op: str, dtype: str, n: int, kind: str, seed: int) -> np.ndarray[Any, Any]:
    """Elements of which none can be left out, or taken twice, unnoticed, and whose result is exact
    in any order.

    `kind` is ``"random"``; ``"ones"`` or ``"index"`` to find out which are missing; ``"rounding"``
    for results that depend on the order.
    """
    rng = np.random.default_rng([seed, n])
    type_ = np.dtype(dtype)
    if kind == "ones":
        return np.ones(n, type_)
    if kind == "index":
        return np.arange(n).astype(type_)
    if kind == "rounding":
        return rng.standard_normal(n).astype(type_)
    if op == "sum":
        return rng.integers(1, 10, n).astype(type_)
    if op == "prod":
        if type_.kind == "f":
            return rng.permutation(np.where(np.arange(n) % 2 == 0, 2.0, 0.5)).astype(type_)
        return (2 * rng.integers(1, 40, n) + 1).astype(type_)
    # The extreme is at one place, the last or any, and on the wrong side of zero.
    values = rng.integers(20, 90, n)
    if n > 0:
        values[n - 1 if seed % 2 == 0 else rng.integers(n)] = 10
    if op == "max":
        values = 100 - values if type_.kind == "u" else -values
    return values.astype(type_)


def expected(op: str, values: np.ndarray[Any, Any], out: str) -> Any:
    """The result in the output's type, where integers wrap."""
    type_ = np.dtype(out)
    if values.size == 0:
        return identity(op, out)
    if op in ("min", "max"):
        return getattr(values, op)().astype(type_)
    if type_.kind == "f":
        return getattr(values.astype(np.float64), op)().astype(type_)
    wide = values.astype(np.int64)
    return getattr(wide, op)().astype(np.uint64).astype(type_)


class Emulated:
    """A program that is loaded on the emulated GPU."""

    def __init__(self, image: bytes, symbols: tuple[str, ...]) -> None:
        self._image = (image, symbols)
        self._driver = ctypes.CDLL(os.environ["GPUREDUCE_LIBCUDA"])
        self.loaded = _core.load_image(0, image, symbols)
        self._relied = 0

    def set(self, key: str, value: str) -> None:
        """Set an option of the emulator."""
        self._driver.fake_set(key.encode(), value.encode())

    def begin(self, case: dict[str, Any], strict: int) -> None:
        """Set the emulator's options for a case; `strict` has a bit for each kind of what is
        undefined, or goes on without threads that have returned, and has to be a finding.
        """
        for key, value in (
            ("schedule", case["schedule"]),
            ("seed", str(case["seed"])),
            ("lockstep", str(int(case["lockstep"]))),
            ("strict", str(strict)),
            ("garbage", _GARBAGE[case["schedule"]]),
        ):
            self.set(key, value)
        self.relied()
        self._relied = 0

    def relied(self) -> int:
        """Bits of what the launches of the case relied on."""
        self._relied |= int(self._driver.fake_relied())
        return self._relied

    def reload(self) -> None:
        """With variables as a fresh program has them."""
        self.loaded = _core.load_image(0, *self._image)

    def run(self, case: dict[str, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What the last launch stores: an output per block, or one."""
        further = case["further"]
        out = np.zeros(further[-1][1] if further else case["outputs"], case["out"])
        source = _core.alloc_device(0, values.nbytes)
        rooms = [_core.alloc_device(0, case["outputs"] * out.itemsize)]
        rooms += [_core.alloc_device(0, grid * out.itemsize) for _, grid in further]
        target = rooms[0]
        partials, ticket = (
            (
                _core.alloc_device(0, case["grid"] * out.itemsize),
                _core.alloc_device(0, _TICKET_BYTES),
            )
            if case["scratch"]
            else (0, 0)
        )
        places = Places(source, target, partials, ticket)
        for role, pointer in (("in", source), ("out", target)):  # as findings name them
            self._driver.fake_label(ctypes.c_void_p(pointer), role.encode())
        try:
            if values.nbytes > 0:
                _core.upload(0, source, values)
            given = arguments(case["parameters"], places, case["n"], case["grid"])
            launches: tuple[Any, ...] = (
                (0, case["grid"], case["block"], case["shared_bytes"], given, *case["launch"]),
            )
            if case["finish"] == "atomic":
                launches = (set_value(target, identity(case["op"], case["out"])), *launches)
            elif case["scratch"]:
                launches = (set_value(ticket, np.uint32(0)), *launches)
            symbol = int(len(self._image[1]) > 1)  # Next, where it is another kernel
            for (n, grid), here, there in zip(further, rooms, rooms[1:], strict=False):
                given = arguments(case["parameters"], Places(here, there), n, grid)
                launches += ((symbol, grid, case["block"], case["shared_bytes"], given),)
            _core.run_launches(self.loaded, launches)
            _core.download(0, rooms[-1], out)
        finally:
            for pointer in filter(None, (source, *rooms, partials, ticket)):
                _core.free_device(0, pointer)
        return out


def fold(case: dict[str, Any], out: np.ndarray[Any, Any]) -> Any:
    """One value of what a launch stores, as the host combines partials."""
    if case["finish"] != "partials":
        return out[0]
    return expected(case["op"], out, case["out"])


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or bool(a != a and b != b)


def _is_nearly(a: Any, b: Any) -> bool:
    """Whether results are equal, or floats that were rounded in two orders."""
    if _same(a, b) or np.asarray(a).dtype.kind != "f":
        return _same(a, b)
    return bool(np.isclose(float(a), float(b), rtol=_ROUNDING, atol=0))


def missing(
    case: dict[str, Any], probes: dict[str, float], values: np.ndarray[Any, Any], got: Any
) -> str:
    """Which elements are left out, as the sums of ones and of indices tell; "" unless the sum of
    the others is the result.
    """
    n, left = case["n"], case["n"] - probes["ones"]
    lost = n * (n - 1) / 2 - probes["index"]
    idle = case["slots"] - n

    def is_result(others: np.ndarray[Any, Any]) -> bool:
        return _same(expected("sum", others, case["out"]), got)

    if left == 0 or not float(left).is_integer():
        return ""
    # Elements are integers: what threads bring that have none is one, too.
    if idle > 0 and left == lost and left % idle == 0 and is_result(np.append(values, -left)):
        return f": threads without an element bring {-left / idle:g} each"
    first = int(n - left)
    if probes["ones"] == 0 and left > 0:
        return ""  # not one element counts: a product with 0 looks like that, too
    if left > 0 and first >= 0 and lost == (first + n - 1) * left / 2 and is_result(values[:first]):
        return (
            f": the last {left:.0f}, from element {first} on, are left out"
            if left > 1
            else f": the last one, element {n - 1}, is left out"
        )
    if abs(left) == 1:
        at = int(abs(lost))
        if not 0 <= at < n or lost * left < 0:
            return ""
        if left == 1 and is_result(np.delete(values, at)):
            return f": element {at} is left out"
        return (
            ": an element is taken twice"
            if left == -1 and is_result(np.append(values, values[at]))
            else ""
        )
    difference = (float(values.astype(np.float64).sum()) - float(got)) / left
    if not float(values.min()) <= difference <= float(values.max()):
        return ""
    return (
        f": {left:.0f} elements are left out"
        if left > 0
        else f": {-left:.0f} elements are taken more than once"
    )


def run_case(program: Emulated, case: dict[str, Any]) -> dict[str, Any]:
    """Run one case; what is wrong with its result, if anything is."""
    if case["kind"] == "rounding":
        values = elements(case["op"], case["in"], case["n"], case["kind"], case["data"])
        return {"bits": np.asarray(fold(case, program.run(case, values))).tobytes().hex()}
    values = elements(case["op"], case["in"], case["n"], "random", case["data"])
    wanted = expected(case["op"], values, case["out"])
    if case["twice"]:
        program.reload()
    out = program.run(case, values)
    got = fold(case, out)
    if _same(got, wanted):
        if case["twice"] and not _same(second := fold(case, program.run(case, values)), wanted):
            return {"second": float(second), "want": float(wanted)}
        return {}
    answer: dict[str, Any] = {"got": float(got), "want": float(wanted)}
    if program.relied() & _VALUES:
        try:
            if depends_on_garbage(program, case, values, got):
                return answer | {"undefined": True}
        except _exceptions.CudaError:
            return answer | {"undefined": True, "broken": True}
    others = {
        op: _is_nearly(expected(op, values, case["out"]), fold({**case, "op": op}, out))
        for op in ("sum", "prod", "min", "max")
        if op != case["op"] and case["finish"] != "atomic" and values.size > 1
    }
    if others:
        answer["others"] = [op for op, equal in others.items() if equal]
    if case["op"] == "sum" and case["probes"]:
        probes = {}
        for kind in ("ones", "index"):
            probe = elements("sum", case["in"], case["n"], kind, 0)
            probes[kind] = float(fold(case, program.run(case, probe)))
        answer["missing"] = missing(case, probes, values, got)
    return answer


def depends_on_garbage(
    program: Emulated, case: dict[str, Any], values: np.ndarray[Any, Any], got: Any
) -> bool:
    """Whether the result is another one where undefined values are others. An index, say, may also
    break a rule then: ``CudaError``.
    """
    try:
        for garbage in ("large", "small", "zero"):
            program.set("garbage", garbage)
            if case["twice"]:
                program.reload()
            if not _same(fold(case, program.run(case, values)), got):
                return True
    finally:
        program.set("garbage", _GARBAGE[case["schedule"]])
    return False


def _run_cases(
    cases: list[dict[str, Any]], images: list[Any], numbers: list[int], strict: int, out: int
) -> NoReturn:
    """Run cases by their numbers, in a process of its own, until one breaks a rule."""
    with os.fdopen(out, "w") as lines:
        loaded: dict[int, Emulated] = {}
        for case in map(cases.__getitem__, numbers):
            number = case["program"]
            try:
                if number not in loaded:
                    loaded[number] = Emulated(*images[number])
                loaded[number].begin(case, strict)
                answer = run_case(loaded[number], case)
            except _exceptions.CudaError as error:
                answer = {"finding": str(error)}
            if number in loaded and (relied := loaded[number].relied()):
                answer["relied"] = relied
            print(json.dumps(answer), file=lines, flush=True)
            if not _BROKEN.isdisjoint(answer):
                break
    # Objects of the emulated context are not worth an orderly end.
    os._exit(0)


def _answers(
    request: dict[str, Any], images: list[Any], numbers: list[int], strict: int = 0
) -> Iterator[dict[str, Any]]:
    """Answers of a stretch of cases; the last one may be of a case that ended the process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _run_cases(request["cases"], images, numbers, strict, writing)
        except BaseException:  # nothing of this process may go on in the child
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    left = len(numbers)
    buffer = b""
    try:
        while left > 0:
            while b"\n" not in buffer:
                if not select.select([reading], [], [], request["time_limit"])[0]:
                    yield {"hang": request["time_limit"]}
                    return
                more = os.read(reading, 1 << 16)
                if not more:
                    _, status = os.waitpid(child, 0)
                    child = 0
                    yield {"crash": os.waitstatus_to_exitcode(status)}
                    return
                buffer += more
            line, buffer = buffer.split(b"\n", 1)
            answer = json.loads(line)
            yield answer
            left -= 1
            if not _BROKEN.isdisjoint(answer):
                return
    finally:
        os.close(reading)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def run(request: dict[str, Any], out: Any) -> None:
    """Compile the programs and run the cases; an answer is ``{"case": number, ...}``."""
    images = [
        _core.compile_text(each["name"], each["text"], tuple(each["entries"]), (), _CC)
        for each in request["programs"]
    ]
    if request["in_process"]:  # for the emulator's report, which one process writes
        program = Emulated(*images[0])
        program.begin(request["cases"][0], 0)
        answer = run_case(program, request["cases"][0]) | {"relied": program.relied()}
        print(json.dumps({"case": 0, **answer}), file=out)
        return
    cases = request["cases"]
    left = [number for number, case in enumerate(cases) if not case["lockstep"]]
    ended: Counter[int] = Counter()
    of_lanes = set()
    first: dict[tuple[int, int, int, bool], int] = {}
    """By program, block size, bit and whether the result depends on it, the first case that relied
    on what the bit stands for."""
    while left and ended.total() < request["stretches"]:
        for answer in _answers(request, images, left):
            number = left.pop(0)
            print(json.dumps({"case": number, **answer}), file=out, flush=True)
            for bit in (_BARRIERS, _MASKS, _VALUES):
                if answer.get("relied", 0) & bit:
                    of = cases[number]["program"], cases[number]["block"]
                    depends = bit == _VALUES and "undefined" in answer
                    first.setdefault((*of, bit, depends), number)
            if "hang" in answer or _DOES_NOT_END in answer.get("finding", ""):
                return  # each such case takes its time
            if not _ENDS.isdisjoint(answer):
                block = cases[number]["block"]
                ended[block] += 1
                if _OF_LANES in answer.get("finding", ""):
                    of_lanes.add((cases[number]["program"], block))
                if ended[block] == request["stretches_per_block"]:
                    left = [each for each in left if cases[each]["block"] != block]
    for number, case in enumerate(cases):
        if case["lockstep"] and (case["program"], case["block"]) in of_lanes:
            for answer in _answers(request, images, [number]):
                if "finding" in answer:
                    print(json.dumps({"case": number, **answer}), file=out, flush=True)
    for (_, _, bit, _), number in first.items():
        for answer in _answers(request, images, [number], bit):
            if "finding" in answer:
                strict = {"case": number, "bit": bit, "strict": answer["finding"]}
                print(json.dumps(strict), file=out, flush=True)


def main() -> None:
    """Answer one request."""
    with answers() as out:
        try:
            run(json.load(sys.stdin), out)
        except Exception as error:
            print(json.dumps(error_record(error)), file=out)


if __name__ == "__main__":
    main()
