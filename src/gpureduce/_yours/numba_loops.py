"""Loops of the CPU for an operator that is made of Python functions: compiled by Numba together
with the functions, which become part of the loops.

The text of the loops is written for the numbers that elements, states and results consist of. What
a task is, and what it leaves for the task that ends a row, is that of
``csrc/kernels/custom/custom_cpu.cuh``; both read the same parameters. A row's value is a number of
elements and, if that is not 0, their state: the first element of a row is its first state, so that
loops need no identity.

Each function that Numba compiles takes it a tenth of a second and more. So the loops are few and
long, tasks are compiled when a call first needs them, and what depends on no operator is compiled
once per process.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._dtypes import name_of
from .numba_types import Types, Value, dispatcher, import_numba
from .operator_layout import PARAMETERS, STARTS
from .python_functions import Functions

__all__ = ["Loops", "columns_of", "partial_dtype"]

_CHAINS = 4
"""Values that a run is folded to at once where order is kept, so that no operation waits for the
one before."""
_LANE_BYTES = 256
"""Bytes that a number takes of the values that a run is folded to otherwise: the compiler makes
vectors of them."""
_COLUMN_BYTES = 16 << 10  # GPR_CUSTOM_COLUMN_BYTES
_AXIS = PARAMETERS["axes"].subdtype[0]  # type: ignore[index]


def partial_dtype(state: Value) -> np.dtype[Any]:
    """What tasks leave for the task that ends a row."""
    return state.aligned(("count", "i8"))


def columns_of(state: Value) -> int:
    """Rows side by side that a task takes at most."""
    return max(8, _COLUMN_BYTES // partial_dtype(state).itemsize)


# ---------------------------------------------------------------- memory -------------------------


@functools.cache
def _pointer_of() -> Any:
    """``(address) -> pointer``."""
    from numba import types
    from numba.extending import intrinsic

    def pointer(typing: Any, address: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_value_type(signature.return_type)
            return builder.inttoptr(arguments[0], kind)

        return types.voidptr(types.int64), write

    return intrinsic(pointer)


@functools.cache
def _room_of(size: int) -> Any:
    """``() -> pointer`` to `size` bytes that the calling function has until it returns."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def room(typing: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            with builder.goto_entry_block():  # not cgutils.alloca_once, which stores zeros
                made = builder.alloca(ir.ArrayType(ir.IntType(8), size))
            made.align = 64
            return builder.bitcast(made, context.get_value_type(types.voidptr))

        return types.voidptr(), write

    return intrinsic(room)


def _at(builder: Any, arguments: Any, kind: Any) -> Any:
    """The address of a value, as a pointer to its type."""
    from llvmlite import ir

    pointer, offset = arguments
    place = builder.gep(pointer, [offset], source_etype=ir.IntType(8))
    return builder.bitcast(place, kind.as_pointer())


@functools.cache
def _load_of(dtype: np.dtype[Any]) -> Any:
    """``(pointer, offset) -> number``; of 16-bit floats, a float of 32 bits."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
    from numba.np.numpy_support import from_dtype

    half = name_of(dtype) if dtype.kind in "fV" and dtype.itemsize == 2 else ""
    number = types.float32 if half else from_dtype(dtype)

    def load(typing: Any, pointer: Any, offset: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if half:
                place = _at(builder, arguments, ir.IntType(16))
                return _widened(builder, builder.load(place, align=1), half)
            model = context.data_model_manager[number]
            place = _at(builder, arguments, model.get_data_type())
            return model.load_from_data_pointer(builder, place, align=1)

        return number(types.voidptr, types.int64), write

    return intrinsic(load)


def _widened(builder: Any, bits: Any, name: str) -> Any:
    """A float of 32 bits of the bits of one of 16, by whole numbers: not every processor has an
    instruction, and the compiler's function is not in every process.
    """
    from llvmlite import ir

    word, number = ir.IntType(32), ir.FloatType()
    wide = builder.zext(bits, word)
    if name == "bfloat16":
        return builder.bitcast(builder.shl(wide, word(16)), number)
    sign = builder.shl(builder.and_(wide, word(0x8000)), word(16))
    rest = builder.shl(builder.and_(wide, word(0x7FFF)), word(13))
    scaled = builder.fmul(builder.bitcast(rest, number), number(2.0**112))
    is_finite = builder.icmp_unsigned("<", rest, word(0x7C00 << 13))
    largest = builder.or_(rest, word(0x7F800000))
    magnitude = builder.select(is_finite, builder.bitcast(scaled, word), largest)
    return builder.bitcast(builder.or_(magnitude, sign), number)


@functools.cache
def _store_of(dtype: np.dtype[Any]) -> Any:
    """``(pointer, offset, number)``."""
    from numba import types
    from numba.extending import intrinsic
    from numba.np.numpy_support import from_dtype

    number = from_dtype(dtype)

    def store(typing: Any, pointer: Any, offset: Any, value: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            *place, value = arguments
            model = context.data_model_manager[number]
            place = _at(builder, place, model.get_data_type())
            builder.store(model.as_data(builder, value), place, align=1)
            return context.get_dummy_value()

        return types.void(types.voidptr, types.int64, number), write

    return intrinsic(store)


# ---------------------------------------------------------------- rows ---------------------------

_ROWS = """
def run_at(p, place, base, mask, end):
    inner = {axes} + (load_i4(p, {kept}) + load_i4(p, {reduced}) - 1) * {axis}
    extent = load_i8(p, inner)
    outer = place // extent
    here = place - outer * extent
    count = extent - here
    if count > end - place:
        count = end - place
    base += here * load_i8(p, inner + {step})
    mask += here * load_i8(p, inner + {mask_step})
    index = load_i8(p, {first}) + here * load_i8(p, inner + {last})
    at = inner - {axis}
    while at >= {axes} + load_i4(p, {kept}) * {axis}:
        before = outer // load_i8(p, at)
        here = outer - before * load_i8(p, at)
        base += here * load_i8(p, at + {step})
        mask += here * load_i8(p, at + {mask_step})
        index += here * load_i8(p, at + {last})
        outer = before
        at -= {axis}
    return base, mask, index, count

def row_at(p, row):
    base, mask, out = load_i8(p, {in}), load_i8(p, {mask}), load_i8(p, {out})
    at = {axes} + (load_i4(p, {kept}) - 1) * {axis}
    while at >= {axes}:
        before = row // load_i8(p, at)
        here = row - before * load_i8(p, at)
        base += here * load_i8(p, at + {step})
        mask += here * load_i8(p, at + {mask_step})
        out += here * load_i8(p, at + {last})
        row = before
        at -= {axis}
    return base, mask, out
"""
"""``run_at``: addresses of an element and of its mask, its index, and how many elements follow each
other along the innermost axis up to `end`. ``row_at``: where a row begins, its mask, its result."""


def _offsets(dtype: np.dtype[Any]) -> list[int]:
    """Of the fields of a structure; a number is at its beginning."""
    fields: Mapping[str, Any] = dtype.fields or {}
    return [fields[name][1] for name in dtype.names or ()] if fields else [0]


def _places() -> dict[str, int]:
    """Where parameters are, and members of an axis."""
    axis = PARAMETERS["axes"].subdtype[0]  # type: ignore[index]
    names = dict(zip(PARAMETERS.names or (), _offsets(PARAMETERS), strict=True))
    members = zip(("extent", "step", "mask_step", "last"), _offsets(axis), strict=True)
    return {**names, **dict(members), "axis": axis.itemsize, "starts": STARTS}


@functools.cache
def _shared() -> dict[str, Any]:
    """What loops use that depends on no operator."""
    numba = import_numba()
    space: dict[str, Any] = {"__name__": __name__, "pointer": _pointer_of()}
    for name in ("i8", "i4", "u1"):
        space[f"load_{name}"] = _load_of(np.dtype(name))
        space[f"store_{name}"] = _store_of(np.dtype(name))
    exec(_ROWS.format(**_places()), space)
    for name in ("run_at", "row_at"):
        space[name] = numba.njit(space[name], error_model="numpy")
    return space


# ---------------------------------------------------------------- text ---------------------------
# In braces: offsets and sizes in bytes, expressions and statements of the operator's. A row's value
# is `s`, of `n` elements. `p` are the parameters, `x` is where elements begin.

_ROW = """
def fold_rows(context, unit, memory):
    p = pointer(context)
    {task}
    partials = pointer(load_i8(p, {partials}))
    inner = {axes} + (load_i4(p, {kept}) + load_i4(p, {reduced}) - 1) * {axis}
    apart, step = load_i8(p, inner + {step}), load_i8(p, inner + {last})
    mask_apart = load_i8(p, inner + {mask_step})
    room = room_of_lanes()
    for row in range(first, first + width):
        base, mask, out = row_at(p, row)
        place = begin
        n = 0
        s = {no_state}
        while place < end:
            at, m, index, count = run_at(p, place, base, mask, end)
            place += count
            x = pointer(at)
            {fold_run}
        if parts > 1:
            at = (row * parts + part) * {partial}
            {store_partial}
        else:
            {deliver}
    store_u1(pointer(load_i8(p, {states})), unit, 1)
    return 1
"""
_MASKED_RUN = """
for i in range(count):
    if load_u1(pointer(m + i * mask_apart), 0) != 0:
        r = {element_apart}
        if n == 0:
            s = r
        else:
            s = {combined}
        n += 1
"""
_RUN = """
i = 0
if apart == {size}:
    {fold_parts}
    while i < count:
        r = {element}
        if n == 0:
            s = r
        else:
            s = {combined}
        n += 1
        i += 1
else:
    while i < count:
        r = {element_apart}
        if n == 0:
            s = r
        else:
            s = {combined}
        n += 1
        i += 1
"""
_LANES = """
if count >= {most}:
    for k in range({width}):
        i = k
        r = {element}
        {store_lane}
    at_lane = {width}
    while at_lane + {width} <= count:
        for k in range({width}):
            i = at_lane + k
            l = {load_lane}
            r = {element}
            r = {combined_lane}
            {store_lane}
        at_lane += {width}
    for k in range({width}):
        r = {load_lane}
        if n == 0:
            s = r
        else:
            s = {combined}
        n += at_lane // {width}
    i = at_lane
"""
"""Of commutative operators: elements beside each other are of different values, vectors of which
the compiler makes."""
_COLUMNS = """
def fold_columns(context, unit, memory):
    p = pointer(context)
    {task}
    partials = pointer(load_i8(p, {partials}))
    inner = {axes} + (load_i4(p, {kept}) + load_i4(p, {reduced}) - 1) * {axis}
    apart, step = load_i8(p, inner + {step}), load_i8(p, inner + {last})
    mask_step = load_i8(p, inner + {mask_step})
    column = {axes} + (load_i4(p, {kept}) - 1) * {axis}
    column_apart, mask_apart = load_i8(p, column + {step}), load_i8(p, column + {mask_step})
    room = room_of_lanes()
    base, mask, out = row_at(p, first)
    for k in range(width):
        store_i8(room, {counts} + 8 * k, {counted})
    place = begin
    while place < end:
        at, m, index_of_run, count = run_at(p, place, base, mask, end)
        for j in range(count):
            x = pointer(at + j * apart)
            index = index_of_run + j * step
            {fold_row}
        place += count
    for k in range(width):
        row = first + k
        n = load_i8(room, {counts} + 8 * k)
        s = {no_state}
        if n > 0:
            s = {load_lane}
        if parts > 1:
            at = (row * parts + part) * {partial}
            {store_partial}
        else:
            base, mask, out = row_at(p, row)
            {deliver}
    store_u1(pointer(load_i8(p, {states})), unit, 1)
    return 1
"""
_MASKED_ROW = """
for k in range(width):
    if load_u1(pointer(m + j * mask_step + k * mask_apart), 0) != 0:
        n = load_i8(room, {counts} + 8 * k)
        r = {element_column}
        if n > 0:
            l = {load_lane}
            r = {combined_lane}
        store_i8(room, {counts} + 8 * k, n + 1)
        {store_lane}
"""
_ROW_OF_COLUMNS = """
if place == begin and j == 0:
    for k in range(width):
        r = {element_column}
        {store_lane}
elif column_apart == {size}:
    for k in range(width):
        l = {load_lane}
        r = {element_beside}
        r = {combined_lane}
        {store_lane}
else:
    for k in range(width):
        l = {load_lane}
        r = {element_column}
        r = {combined_lane}
        {store_lane}
"""
_TASK = """
kept, lanes = load_i4(p, {kept}), load_i4(p, {lanes})
parts, share = load_i8(p, {parts}), load_i8(p, {share})
extent = load_i8(p, {axes} + (kept - 1) * {axis})
groups = (extent + lanes - 1) // lanes
part, group = unit % parts, unit // parts
place = group % groups * lanes
first = group // groups * extent + place
width = extent - place
if width > lanes:
    width = np.int64(lanes)
begin = part * share
end = begin + share
if end > load_i8(p, {n}):
    end = load_i8(p, {n})
"""
"""Part `part` of `width` rows from row `first` on: elements `begin` to `end`."""
_END = """
def end_rows(context, group, memory):
    p = pointer(context)
    lanes, parts = load_i4(p, {lanes}), load_i8(p, {parts})
    partials = pointer(load_i8(p, {partials}))
    for row in range(group * lanes, (group + 1) * lanes):
        if row < load_i8(p, {rows}):
            n = 0
            s = {no_state}
            for i in range(parts):
                at = (row * parts + i) * {partial}
                more = load_i8(partials, at + {count_at})
                if more > 0:
                    r = {load_partial}
                    if n == 0:
                        s = r
                    else:
                        s = {combined}
                    n += more
            base, mask, out = row_at(p, row)
            {deliver}
    store_u1(pointer(load_i8(p, {states})), group, 1)
    return 1
"""
_DELIVER = """
total = n
if load_i4(p, {flags}) & {starts} != 0:
    x = p
    r = s
    s = {initial_element}
    if n > 0:
        s = {combined}
result = pointer(out)
v = {finish}
{store_result}
"""
_EVALUATE = """
def evaluate(elements, steps, count, out):
    x, program = pointer(elements), pointer(steps)
    room = room_of_lanes()
    depth = 0
    total = 0
    for i in range(count):
        step = load_i8(program, 8 * i)
        if step == -1:
            if depth < 2:
                return 0
            k = depth - 1
            r = {load_lane}
            k = depth - 2
            l = {load_lane}
            r = {combined_lane}
            depth -= 1
        else:
            if depth == {columns}:
                return 0
            k = depth
            if step == -2:
                if not {has_identity}:
                    return 0
                r = {no_state}
            else:
                index = step
                r = {step_element}
                total += 1
            depth += 1
        {store_lane}
    if depth != 1:
        return 0
    k = 0
    s = {load_lane}
    result = pointer(out)
    v = {finish}
    {store_result}
    return 1
"""


def _filled(text: str, words: Mapping[str, Any]) -> str:
    """A text with words in place of braces; of several lines, each at the brace's column."""
    lines = []
    for line in text.strip("\n").splitlines():
        stripped = line.strip()
        word = words.get(stripped[1:-1]) if stripped[:1] == "{" and stripped[-1:] == "}" else None
        if isinstance(word, str):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(textwrap.indent(word.strip("\n"), indent))
        else:
            lines.append(line.format_map(words))
    return "\n".join(lines)


def _value(value: Value, numbers: list[str], name: str) -> str:
    """The expression of a value of its numbers; `name` is that of a named tuple's class."""
    if not value.is_tuple:
        return numbers[0]
    inner = "".join(f"{each}, " for each in numbers)
    return f"{name}({inner})" if value.make is not None else f"({inner})"


def _numbers(value: Value, expression: str) -> list[str]:
    """Expressions of a value's numbers."""
    if not value.is_tuple:
        return [expression]
    return [f"{expression}[{i}]" for i in range(len(value.dtypes))]


def _chains() -> str:
    """Of operators whose order counts: values that are shares of the run, merged in order."""
    shares = range(_CHAINS)
    lines = [f"share = count // {_CHAINS}", "if share > 1:"]
    for c in shares:
        lines += [f"    i = {c} * share", f"    c{c} = {{element}}"]
    lines.append("    for j in range(1, share):")
    for c in shares:
        lines += [
            f"        i = {c} * share + j",
            f"        l, r = c{c}, {{element}}",
            f"        c{c} = {{combined_lane}}",
        ]
    for c in shares:
        lines += [
            f"    r = c{c}",
            "    if n == 0:", "        s = r", "    else:", "        s = {combined}",
            "    n += share",
        ]  # fmt: skip
    lines.append(f"    i = {_CHAINS} * share")
    return "\n".join(lines)


class Loops:
    """The tasks of an operator.

    Parameters
    ----------
    functions : Functions
    types : Types
    element, result : dtype
        Of elements and results in memory.
    identity : list or None
        Its numbers.
    commutative, masked : bool
    """

    def __init__(
        self, functions: Functions, types: Types, element: np.dtype[Any], result: np.dtype[Any],
        identity: list[Any] | None, *, commutative: bool, masked: bool,
    ) -> None:  # fmt: skip
        state, partial = types.state, partial_dtype(types.state)
        columns = columns_of(state)
        width = max(8, _LANE_BYTES // max(each.itemsize for each in state.dtypes))
        lanes, end = [], 0  # a lane's numbers are in an array each
        for dtype in state.dtypes:
            lanes.append(end)
            end += -(-max(columns, width) * dtype.itemsize // 64) * 64
        self._space = self._functions(functions, types, element, identity, end + 8 * columns)
        has_lift = functions.lift is not None

        def loaded(address: str, index: str) -> str:
            """The state of an element."""
            numbers = [f"load_e{i}(x, {address} + {at})" for i, at in enumerate(_offsets(element))]
            if element.names is None:  # converted to what elements are computed in
                numbers = [f"E0({numbers[0]})"]
            value = _value(types.element, numbers, "Element")
            if has_lift:
                value = f"user_lift({value}{', ' + index if functions.takes_index else ''})"
            return self._converted(types.lifted, state, value, "lifted")

        def combined(left: str) -> str:
            value = f"user_combine({left}, r)"
            return self._converted(types.combined, state, value, "combined")

        def stored(prefix: str, name: str, kinds: str, value: Value, place: list[str]) -> str:
            parts = _numbers(value, name)
            return "\n".join(
                f"store_{prefix}{i}({place[i]}, {kinds}{i}({part}))" for i, part in enumerate(parts)
            )

        in_lane = [
            f"{at} + k * {dtype.itemsize}" for at, dtype in zip(lanes, state.dtypes, strict=True)
        ]
        in_partial = [f"at + {at}" for at in _offsets(partial)[:-1]]
        finish = "s"
        if functions.finish is not None:
            finish = f"user_finish(s{', total' if functions.takes_count else ''})"
        words: dict[str, Any] = {
            **_places(), "size": element.itemsize, "counts": end, "partial": partial.itemsize,
            "columns": columns, "has_identity": identity is not None, "width": width,
            "most": 4 * width, "count_at": _offsets(partial)[-1],
            "counted": "0" if masked else "end - begin",
            "element": loaded(f"i * {element.itemsize}", "index + i * step"),
            "element_apart": loaded("i * apart", "index + i * step"),
            "element_beside": loaded(f"k * {element.itemsize}", "index"),
            "element_column": loaded("k * column_apart", "index"),
            "combined": combined("s"), "combined_lane": combined("l"), "finish": finish,
            "no_state": _value(state, [f"z{i}" for i in range(len(state.dtypes))], "State"),
            "load_lane": _value(
                state, [f"load_s{i}(room, {at})" for i, at in enumerate(in_lane)], "State"
            ),
            "store_lane": stored("s", "r", "S", state, [f"room, {at}" for at in in_lane]),
            "load_partial": _value(
                state, [f"load_s{i}(partials, {at})" for i, at in enumerate(in_partial)], "State"
            ),
            "store_partial": f"store_i8(partials, at + {_offsets(partial)[-1]}, n)\n"
            + stored("s", "s", "S", state, [f"partials, {at}" for at in in_partial]),
            "store_result": stored(
                "r", "v", "R", types.result, [f"result, {at}" for at in _offsets(result)]
            ),
        }  # fmt: skip
        words["initial_element"] = loaded(str(words["initial"]), "-1")
        words["step_element"] = loaded(f"step * {element.itemsize}", "step")
        words["deliver"] = _filled(_DELIVER, words)
        words["task"] = _filled(_TASK, words)
        words["fold_parts"] = _filled(_LANES if commutative else _chains(), words)
        words["fold_run"] = _filled(_MASKED_RUN if masked else _RUN, words)
        words["fold_row"] = _filled(_MASKED_ROW if masked else _ROW_OF_COLUMNS, words)
        self._texts = {
            name: _filled(text, words)
            for name, text in (
                ("fold_rows", _ROW), ("fold_columns", _COLUMNS), ("end_rows", _END),
                ("evaluate", _EVALUATE),
            )
        }  # fmt: skip

    def _functions(
        self, functions: Functions, types: Types, element: np.dtype[Any],
        identity: list[Any] | None, room: int,
    ) -> dict[str, Any]:  # fmt: skip
        """What the texts name."""
        from numba.np.numpy_support import from_dtype

        space: dict[str, Any] = {
            **_shared(), "__name__": __name__, "np": np, "Element": types.element.make,
            "State": types.state.make, "room_of_lanes": _room_of(room),
        }  # fmt: skip
        for role, _ in functions.named():
            space[f"user_{role}"] = dispatcher(functions, role)
        space["E0"] = from_dtype(types.element.dtypes[0])
        for prefix, value in (("s", types.state), ("r", types.result)):
            for i, dtype in enumerate(value.dtypes):
                space[f"load_{prefix}{i}"] = _load_of(dtype)
                space[f"store_{prefix}{i}"] = _store_of(dtype)
                space[f"{prefix.upper()}{i}"] = from_dtype(dtype)
        fields = [element] if element.names is None else [element[name] for name in element.names]
        for i, dtype in enumerate(fields):
            space[f"load_e{i}"] = _load_of(dtype)
        numbers = identity if identity is not None else [0] * len(types.state.dtypes)
        for i, (dtype, number) in enumerate(zip(types.state.dtypes, numbers, strict=True)):
            space[f"z{i}"] = bool(number) if dtype.kind == "b" else dtype.type(number)
        return space

    def _converted(self, given: Value, to: Value, expression: str, name: str) -> str:
        """The expression of a value that is converted, by a function if it has several numbers."""
        if given == to and given.make is to.make:
            return expression
        if not to.is_tuple:
            return f"S0({expression})"
        if f"convert_{name}" not in self._space:
            numba = import_numba()
            parts = [f"S{i}({part})" for i, part in enumerate(_numbers(to, "v"))]
            text = f"def convert(v):\n    return {_value(to, parts, 'State')}\n"
            space = dict(self._space)
            exec(text, space)
            self._space[f"convert_{name}"] = numba.njit(space["convert"], error_model="numpy")
        return f"convert_{name}({expression})"

    def written(self, name: str) -> Any:
        """The Python function of a task: ``fold_rows``, ``fold_columns``, ``end_rows``,
        ``evaluate``.
        """
        space = dict(self._space)
        exec(self._texts[name], space)
        return space[name]
