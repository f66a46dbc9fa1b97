"""A kernel's launch, inferred from its text: :func:`read_kernel`.

The text is looked at, not executed: parameters, the shared memory that is declared, how
``blockIdx`` and ``gridDim`` occur, what is stored to the output. What cannot be concluded is an
error that names the line and the argument of :class:`gpureduce.Kernel` that says it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .device_text import (
    Declaration,
    declarations,
    device_text,
    left_out,
    line_of,
    without_comments,
)
from .template_form import is_template_form, read_template_form

__all__ = ["COVERS", "C_TYPES", "FINISHES", "OPERATORS", "KernelForm", "read_kernel"]

OPERATORS = ("sum", "prod", "min", "max")
FINISHES = ("partials", "atomic", "single")
"""One partial per block; atomics on ``out[0]``, which holds the identity before; ``out[0]`` stored
by one block."""
COVERS = ("cover", "stride", "one", "thread")
"""As many blocks as the elements need; any number that loops; one block; one thread."""

C_TYPES = {
    "float": "float32",
    "double": "float64",
    "char": "int8",
    "signed char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long long": "int64",
    "unsigned char": "uint8",
    "unsigned short": "uint16",
    "unsigned": "uint32",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "int8_t": "int8",
    "int16_t": "int16",
    "int32_t": "int32",
    "int64_t": "int64",
    "uint8_t": "uint8",
    "uint16_t": "uint16",
    "uint32_t": "uint32",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "uint": "uint32",
    "uchar": "uint8",
    "ushort": "uint16",
}
"""C types, their words in the order of :func:`_plain_type`, and the dtypes that they are."""
_INTEGERS = ("int32", "uint32", "int64", "uint64")
_VECTOR = re.compile(r"([a-z]+)[1234]")
"""CUDA's vectors, such as ``float4``, and the type of their parts."""
_NOT_EMULATED = ("half", "__half", "nv_bfloat16", "__nv_bfloat16", "half2", "__half2")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict|struct|typename)\b")
_IDENTIFIER = r"[A-Za-z_]\w*"
_BLOCK_NAME = re.compile(r"block|thread|tpb|^bs$|^bdim$", re.IGNORECASE)
_ITEMS_NAME = re.compile(r"item|per_?thread|unroll|coarse|work|chunk|factor", re.IGNORECASE)
_OLD_SHUFFLE = re.compile(r"\b__(shfl(?:_up|_down|_xor)?|any|all|ballot)\s*\(")
_MOST_BLOCK = 1024


@dataclass(frozen=True)
class Parameter:
    role: str
    """``in``, ``out`` or ``n``; of the template form ``rows`` and ``scratch``, structures."""
    c_type: str
    """Of elements, or of n; a template parameter's name where it is one."""
    name: str


@dataclass(frozen=True)
class IndexLimit:
    """A number of the kernel that must not overflow: n itself, or an index."""

    bits: int
    why: str
    """What it is; follows "since"."""
    line: int
    steps: bool = False
    """Whether a loop adds the stride to it, also when it is the last index below n."""

    def most(self, stride: int) -> int:
        """The largest n."""
        return (1 << self.bits) - (stride if self.steps else 1)


_NO_LIMIT = IndexLimit(63, "", 0)


@dataclass(frozen=True)
class KernelForm:
    """A kernel's launch, as inferred from its text.

    Attributes
    ----------
    name, file, line
        The kernel, the name of its file and its line there.
    text
        Device code of the file, line for line.
    parameters
        In the kernel's order.
    template
        Template parameters and their values; ``None``: the element's type, or the block size.
    op, finish, cover
        One of :data:`OPERATORS`, :data:`FINISHES`, :data:`COVERS`.
    elements_per_thread
        Elements that a block covers, per thread, where it does not loop.
    block_size
        The only one that the kernel takes, or the largest; ``None``: it takes any.
    shared_type, shared_name
        C type and name of the dynamic shared array, of which there is one element per thread;
        ``None``: there is none.
    loops
        Whether one block takes any number of elements.
    index_limits
        What limits n, as indices overflow.
    left_out
        Lines and names of headers that are not read, though device code may need them.
    scope, dtypes
        Of the template form: the kernel's namespace, dtypes of elements and output.
    traits
        Of the template form: ``First``; ``Next`` of launches over partials, where it is another;
        ``scratch`` where the last block combines partials.
    is_cooperative
        Of the template form: blocks wait for each other, so that all of them have to be resident.
    most_cluster
        Of the template form: blocks of a cluster, at most; 1 without clusters.
    limiting_array
        Where `block_size` is the largest that the text allows: the shared array of as many
        elements. ``""``: it is the only one.
    """

    name: str
    file: str
    line: int
    text: str
    parameters: tuple[Parameter, ...]
    template: tuple[tuple[str, str | None], ...]
    op: str
    finish: str
    cover: str
    elements_per_thread: int
    block_size: int | None
    shared_type: str | None
    shared_name: str | None
    loops: bool
    index_limits: tuple[IndexLimit, ...]
    left_out: tuple[tuple[int, str], ...] = ()
    scope: str = ""
    dtypes: tuple[str, str] | None = None
    traits: tuple[str, ...] = ()
    is_cooperative: bool = False
    most_cluster: int = 1
    limiting_array: str = ""

    def takes_block(self, block: int) -> bool:
        """Whether the text allows blocks of so many threads."""
        if self.block_size is None or block == self.block_size:
            return True
        return bool(self.limiting_array) and block < self.block_size

    @property
    def block_words(self) -> str:
        """Block sizes that the text allows."""
        if self.block_size is None:
            return "any size"
        threads = f"{self.block_size} thread{'s' * (self.block_size != 1)}"
        if not self.limiting_array:
            return threads
        return f"up to {threads}, the elements of {self.limiting_array}"

    def launch_kind(self, grid: int) -> tuple[bool, int]:
        """Whether a launch of so many blocks is cooperative, and the blocks of its clusters."""
        cluster = self.most_cluster
        while grid % cluster != 0:
            cluster //= 2
        return self.is_cooperative, cluster

    @property
    def takes_n(self) -> bool:
        """Whether the kernel is told the number of elements."""
        return self.of("n") is not None or self.of("rows") is not None

    @property
    def has_scratch(self) -> bool:
        """Whether its last block combines partials, by a counter in device memory."""
        return "scratch" in self.traits

    def most_elements(self, grid: int, block: int) -> tuple[int, str, int]:
        """The largest n whose indices do not overflow in a launch, why, and the line."""
        stride = grid * block * self.elements_per_thread
        least = min((_NO_LIMIT, *self.index_limits), key=lambda each: (each.most(stride), each.why))
        stepped = f" to which the loop adds {stride:,}" if least.steps else ""
        return least.most(stride), least.why + stepped, least.line

    def of(self, role: str) -> Parameter | None:
        """The parameter of a role; ``None``: the kernel has none."""
        return next((each for each in self.parameters if each.role == role), None)

    def name_of(self, role: str) -> str:
        """The name of the elements or of the output."""
        return next(each.name for each in self.parameters if each.role == role)


class _Text:
    """The file, its code without comments, and the names that it gives to types and numbers."""

    def __init__(self, source: str, file: str) -> None:
        self.file = file
        self.device = device_text(source)
        self.left_out = tuple(left_out(source))
        self.code = without_comments(self.device)
        self.declarations = tuple(declarations(self.code))
        self.types = dict(self._types())
        self.constants = self._constants()

    def error(self, position: int, message: str) -> ValueError:
        return ValueError(f"{self.file}:{line_of(self.code, position)}: {message}")

    def _types(self) -> Iterator[tuple[str, str]]:
        for each in self.declarations:
            text = each.text.strip()
            if found := re.fullmatch(rf"typedef\s+([\w\s]+?)\s+({_IDENTIFIER})\s*;", text):
                yield found[2], found[1]
            elif (
                found := re.fullmatch(rf"using\s+({_IDENTIFIER})\s*=\s*([\w\s]+?)\s*;", text)
            ) or (found := re.fullmatch(rf"#\s*define\s+({_IDENTIFIER})\s+([a-z][\w\s]*)", text)):
                yield found[1], found[2]

    def _constants(self) -> dict[str, int]:
        known: dict[str, int] = {}
        found = re.finditer(
            rf"#\s*define\s+({_IDENTIFIER})[ \t]+([^\n]+)"
            rf"|\b(?:const|constexpr)\b[\w\s]*?\b({_IDENTIFIER})\s*=\s*([^;,]+)[;,]"
            rf"|\benum\s*\w*\s*\{{\s*({_IDENTIFIER})\s*=\s*([^,}}]+)",
            self.code,
        )
        for each in found:
            name, value = next((each[i], each[i + 1]) for i in (1, 3, 5) if each[i] is not None)
            number = evaluate(value, known)
            if number is not None:
                known[name] = number
        return known

    def plain_type(self, text: str) -> str:
        """A type without qualifiers and aliases, its words in one order."""
        words = _QUALIFIERS.sub(" ", text).split()
        for _ in range(len(self.types)):
            words = [word for each in words for word in self.types.get(each, each).split()]
        if len(words) > 1 and "int" in words:
            words.remove("int")
        if "signed" in words and words != ["signed", "char"]:
            words.remove("signed")
            words = words or ["int"]
        return " ".join(sorted(words, key=lambda word: word != "unsigned"))


def evaluate(text: str, names: Mapping[str, int]) -> int | None:
    """Value of an integer expression of numbers and known names; ``None``: it is something else."""
    text = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text.strip())
    text = re.sub(r"(?<![/])/(?![/])", "//", text)

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.FloorDiv) and right != 0:
                return left // right
            if isinstance(node.op, ast.LShift) and 0 <= right < 32:
                return left << right
        raise ValueError

    try:
        return value(ast.parse(text, mode="eval"))
    except (ValueError, SyntaxError):
        return None


def split_at_commas(text: str) -> list[str]:
    """Split where a comma is in no bracket."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    last = text[start:]
    return [*parts, last] if last.strip() else parts


# ---------------------------------------------------------------- the signature ------------------


@dataclass(frozen=True)
class _Signature:
    declaration: Declaration
    name: str
    parameters: str
    template: str | None


def _signature(declaration: Declaration) -> _Signature | None:
    head = re.sub(r"__launch_bounds__\s*\([^()]*\)", " ", declaration.head)
    found = re.search(rf"__global__\b[\w\s]*?\b({_IDENTIFIER})\s*\((.*)\)\s*$", head, re.DOTALL)
    if found is None or "{" not in declaration.text:
        return None
    template = re.match(r"\s*template\s*<(.*?)>\s*(?=static|inline|extern|__global__)", head, re.S)
    return _Signature(declaration, found[1], found[2], template[1] if template else None)


def _parameters(
    text: _Text, signature: _Signature, template: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """The parameters with their roles; an error says which one has none."""
    here = (
        signature.declaration.start
        + len(signature.declaration.text)
        - len(signature.declaration.text.lstrip())
    )
    pointers: list[tuple[bool, str]] = []
    order: list[tuple[str, str]] = []
    n_type = None
    for one in split_at_commas(signature.parameters):
        position = here + max(text.code[here:].find(one.strip()), 0)
        declared = one.strip()
        found = re.fullmatch(
            rf"(.+?)\s*(\*)\s*((?:const|volatile|__restrict__|__restrict)\s*)*({_IDENTIFIER})"
            rf"|(.+?)\s+({_IDENTIFIER})\s*(\[\s*\d*\s*\])?",
            declared,
            re.DOTALL,
        )
        if found is None or "&" in declared or "**" in declared.replace(" ", ""):
            raise text.error(position, f"parameter '{declared}' is no pointer and no number")
        c_type, name = (found[1], found[4]) if found[2] else (found[5], found[6])
        is_const = bool(re.search(r"\bconst\b", c_type))
        plain = text.plain_type(c_type)
        if found[2] or found[7]:
            if plain in _NOT_EMULATED:
                raise text.error(
                    position,
                    f"elements of '{name}' are {plain}: kernels of your own take "
                    f"{', '.join(sorted(set(C_TYPES.values())))}",
                )
            if plain not in C_TYPES and template.get(plain) != "type":
                vector = _VECTOR.fullmatch(plain)
                if vector is not None and vector[1] in C_TYPES:
                    raise text.error(
                        position,
                        f"elements of '{name}' are vectors: take {vector[1]} *{name}, and read "
                        f"reinterpret_cast<const {plain} *>({name}) in the kernel",
                    )
                raise text.error(
                    position,
                    f"elements of '{name}' are '{plain}', which is no type of numbers that is "
                    f"known here: {', '.join(sorted({*C_TYPES} - {'uint', 'uchar', 'ushort'}))}",
                )
            order.append((f"*{len(pointers)}", name))
            pointers.append((is_const, plain))
        elif C_TYPES.get(plain) in _INTEGERS and n_type is None:
            n_type = plain
            order.append(("n", name))
        else:
            raise text.error(
                position,
                f"parameter '{declared}' has no place in the plain form: a kernel takes the "
                "elements, the output and their number (const T *in, T *out, unsigned n)",
            )
    start = text.code.find(signature.name, here)
    if len(pointers) != 2:
        raise text.error(
            start,
            f"kernel '{signature.name}' has {len(pointers)} pointers: the plain form has two, the "
            "elements and the output (const T *in, T *out, unsigned n). Products of two "
            "arrays are gpureduce.dot and average",
        )
    constant = [is_const for is_const, _ in pointers]
    if all(constant):
        raise text.error(
            start, f"both pointers of kernel '{signature.name}' are const: none is its output"
        )
    first_is_out = constant[1] and not constant[0]
    roles = {"*0": "out" if first_is_out else "in", "*1": "in" if first_is_out else "out"}
    types = {"*0": pointers[0][1], "*1": pointers[1][1], "n": n_type}
    return tuple(Parameter(roles.get(key, key), str(types[key]), name) for key, name in order)


def _template(
    text: _Text, signature: _Signature, given: Mapping[str, object]
) -> tuple[dict[str, str], tuple[tuple[str, str | None], ...], int]:
    """Kinds of the template's parameters, their values, and elements per thread among them."""
    kinds: dict[str, str] = {}
    values: list[tuple[str, str | None]] = []
    items = 1
    position = signature.declaration.start
    for one in split_at_commas(signature.template or ""):
        head = one.split("=")[0].split()
        name = head[-1]
        if head[0] in ("class", "typename"):
            kinds[name] = "type"
            values.append((name, None))
            continue
        if name in given:
            value = given[name]
            values.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
            if _ITEMS_NAME.search(name) and isinstance(value, int):
                items = value
        elif head[0] == "bool":
            values.append((name, "false"))
        elif _BLOCK_NAME.search(name):
            kinds[name] = "block"
            values.append((name, None))
        else:
            raise text.error(
                position + text.code[position:].find(name),
                f"template parameter '{name}' of kernel '{signature.name}' needs a value: "
                f"template={{'{name}': ...}}",
            )
    unknown = [name for name in given if name not in dict(values)]
    if unknown:
        raise ValueError(f"kernel '{signature.name}' has no template parameter '{unknown[0]}'")
    return kinds, tuple(values), items


# ---------------------------------------------------------------- the body -----------------------


class _Body:
    """Facts that a kernel's body shows, by the names of its parameters."""

    def __init__(self, text: _Text, signature: _Signature, blocks: frozenset[str]) -> None:
        self.text = text
        self.start = signature.declaration.start
        self.code = signature.declaration.text
        self.inner = self.code[len(signature.declaration.head) :]
        groups = r"(?:blockIdx\s*\.\s*x|\w+\.group_index\(\)\s*\.\s*x)"
        self.block_index = self._aliases(groups)
        self.block_dim = self._aliases(r"(?:blockDim\s*\.\s*x|\w+\.(?:size|num_threads)\(\))")
        self.block_dim |= blocks
        self.uses_blocks = bool(re.search(groups, self.inner))
        self.grid = grid = self.alternatives(self._aliases(r"gridDim\s*\.\s*x"))
        # Its size is a stride where it is multiplied or added; a ticket is compared with it.
        self.uses_grid = bool(
            re.search(rf"\*\s*\(?\s*{grid}|{grid}\s*\)?\s*\*|\+=\s*{grid}", self.inner)
        )
        self.uses_threads = bool(re.search(r"\bthreadIdx\b|\bthread_rank\b", self.inner))

    def _aliases(self, expression: str) -> set[str]:
        """The expression's forms, as regular expressions: itself and variables that are its
        value.
        """
        found = re.findall(rf"\b(\w+)\s*=\s*{expression}\s*[;,]", self.inner)
        return {expression, *(rf"\b{name}\b" for name in found)}

    def alternatives(self, forms: set[str]) -> str:
        return "(?:" + "|".join(sorted(forms)) + ")"

    def stores(self, out: str) -> list[tuple[int, str]]:
        """Where the kernel stores to its output, and the index; "0" for ``*out``."""
        found = []
        for match in re.finditer(rf"\b{out}\s*\[", self.inner):
            index, end = _in_brackets(self.inner, match.end())
            if re.match(r"\s*(?:[-+*|&^]?=(?!=)|\+\+|--)", self.inner[end:]):
                found.append((match.start(), index))
        for match in re.finditer(
            rf"\*\s*(?:\(\s*{out}\s*\+([^;()]*)\)|{out}\b)\s*[-+*|&^]?=(?!=)", self.inner
        ):
            found.append((match.start(), (match[1] or "0").strip()))
        return found

    def atomics(self, out: str) -> list[tuple[int, str]]:
        """Where the kernel updates its output atomically, itself or by a function of the file, and
        the index.
        """
        found = []
        for match in re.finditer(r"\batomic\w*\s*\(\s*([^,;]*)", self.inner, re.IGNORECASE):
            if not re.search(rf"\b{out}\b", match[1]):
                continue
            index = re.search(rf"\b{out}\s*(?:\[(.*)\]|\+(.*))", match[1])
            found.append((match.start(), (index[1] or index[2]).strip() if index else "0"))
        return found

    def stepping(self, n: str) -> set[str]:
        """Variables below n to which a loop adds the size of the grid, or of the one block."""
        sizes = [self.grid] if self.uses_blocks else [self.alternatives(self.block_dim)]
        derived = "|".join(
            rf"\b{name}\b" for name in re.findall(rf"\b(\w+)\s*=[^;=]*{sizes[0]}[^;]*;", self.inner)
        )
        size = "|".join([*sizes, *([derived] if derived else [])])
        added = re.findall(rf"\b(\w+)\s*(?:\+=|=\s*\1\s*\+)[^;{{}}]*?(?:{size})", self.inner)
        return {
            name
            for name in added
            if re.search(rf"\b{name}\b[^;<>]*<=?\s*[^;<]*\b{n}\b", self.inner)
        }

    def is_of_block(self, index: str) -> bool:
        return bool(
            re.fullmatch(rf"\s*\(?\s*{self.alternatives(self.block_index)}\s*\)?\s*", index)
        )


def _in_brackets(code: str, position: int) -> tuple[str, int]:
    """What is before the closing bracket, and where it ends."""
    depth, end = 1, position
    while end < len(code) and depth > 0:
        depth += (code[end] == "[") - (code[end] == "]")
        end += 1
    return code[position : end - 1].strip(), end


def _finish(body: _Body, out: str, cover: str) -> str:
    """How blocks become one value; an error where stores are at other places than known ones."""
    stores, atomics = body.stores(out), body.atomics(out)
    of_block = [each for each in stores + atomics if body.is_of_block(each[1])]
    at_zero = [each for each in stores if each[1] == "0"]
    if cover in ("one", "thread") and (stores or atomics):
        return "single" if stores else "atomic"
    if of_block:
        counts = re.search(r"\batomic(?:Inc|Add)\s*\(", body.inner)
        return "single" if at_zero and counts else "partials"
    if any(index == "0" for _, index in atomics):
        return "atomic"
    if at_zero:
        return "single"
    if not stores and not atomics:
        headers = "".join(
            f"line {line} includes {name}, which is not read: put what the kernel needs of it into "
            "this file; "
            for line, name in body.text.left_out
        )
        raise body.text.error(
            body.start + body.code.find("__global__"),
            f"{headers}no store to '{out}' is seen: say where blocks leave their results, by "
            "finish='partials' (out[blockIdx.x]), 'atomic' (out[0], by atomics) or 'single' "
            "(out[0], by one block)",
        )
    position, index = (stores + atomics)[0]
    raise body.text.error(
        body.start + len(body.code) - len(body.inner) + position,
        f"'{out}[{index}]' is no place for a block's result that is known here: out[blockIdx.x] "
        "for a partial per block, or out[0]; or say which it is, by finish=",
    )


def _cover(body: _Body) -> str:
    if not body.uses_blocks:
        return "one" if body.uses_threads else "thread"
    return "stride" if body.uses_grid else "cover"


def _per_thread(body: _Body, block: int | None) -> int:
    """Elements per thread, by the factor of ``blockDim.x`` where the block's first is computed, or
    by a number there that is a multiple of the block size.
    """
    index, size = body.alternatives(body.block_index), body.alternatives(body.block_dim)
    number = r"\(?\s*(\d+[uU]?|[A-Za-z_]\w*)\s*\)?"
    most = 1
    for statement in re.split(r"[;{}]", body.inner):
        if not re.search(index, statement):
            continue
        alone = re.search(rf"{index}\s*\*\s*{number}|{number}\s*\*\s*{index}", statement)
        if alone is not None and not re.search(size, statement):
            tile = evaluate(alone[1] or alone[2], body.text.constants)
            if tile is not None and block is not None and tile % block == 0:
                most = max(most, tile // block)
            continue
        factors = [
            *re.finditer(rf"{number}\s*\*\s*\(?\s*{size}", statement),
            *re.finditer(rf"{size}\s*\)?\s*\*\s*{number}", statement),
            *re.finditer(rf"{number}\s*\*\s*{index}", statement),
            *re.finditer(rf"{index}\s*\*\s*{number}", statement),
        ]
        for found in factors:
            factor = evaluate(found[1], body.text.constants)
            is_size = bool(re.fullmatch(size, found[1]))
            if factor is not None and not is_size and 1 < factor <= 64:
                most = max(most, factor)
    return most


def _computes_with_block(body: _Body) -> bool:
    """Whether the text uses ``blockDim.x`` for more than indices of elements and strides."""
    size = body.alternatives(body.block_dim)
    others = rf"(?:{body.alternatives(body.block_index)}|{body.grid})"
    rest = re.sub(rf"{others}\s*\*\s*{size}|{size}\s*\*\s*{others}", "", body.inner)
    rest = re.sub(rf"\b\w[\w\s]*=\s*{size}\s*[,;]", ";", rest)  # another name of it
    return bool(re.search(size, rest))


def _fixed_block(body: _Body) -> tuple[int | None, str]:
    """The block size that the text fixes, by a named constant or a shared array; the array, if the
    text would do with fewer threads than it has elements.
    """
    constants = body.text.constants
    for name, value in constants.items():
        if (
            _BLOCK_NAME.search(name)
            and re.search(rf"\b{name}\b", body.inner)
            and (1 <= value <= _MOST_BLOCK)
        ):
            return value, ""
    arrays = re.findall(r"__shared__\s+[\w\s:]+?(\w+)\s*\[([^\]]+)\]", body.inner)
    for array, length in arrays:
        size = evaluate(length, constants)
        if size is not None and 32 < size <= _MOST_BLOCK:
            return size, array if _computes_with_block(body) else ""
    index = body.alternatives(body.block_index)
    for found in re.finditer(rf"{index}\s*\*\s*(\d+)\b|\b(\d+)\s*\*\s*{index}", body.inner):
        tile = int(found[1] or found[2])
        if 32 <= tile <= _MOST_BLOCK and not re.search(r"\bblockDim\b", body.inner):
            return tile, ""
    return None, ""


def _dynamic_shared(body: _Body) -> tuple[str, str] | None:
    """C type and name of the dynamic shared array."""
    found = re.search(
        rf"extern\s+__shared__\s+(?:__align__\s*\([^)]*\)\s*)?([\w\s:]+?)\s*\b({_IDENTIFIER})"
        r"\s*\[\s*\]",
        body.text.code,
    )
    return (body.text.plain_type(found[1]), found[2]) if found else None


def _operator(body: _Body, out: str) -> str:
    """The operator, by atomics on the output, reductions of warps, or what combines values."""
    marks = (("max", r"max"), ("min", r"min"), ("sum", r"(?:add|inc|plus)"))
    code = body.text.code
    for pattern in (
        rf"\batomic\w*?MARK\w*\s*\(\s*[^,;]*\b{out}\b",
        r"\b__reduce_MARK_sync\b",
        r"\bcg::(?:plus|less|greater)\b",
    ):
        for name, mark in marks:
            if "MARK" in pattern and re.search(pattern.replace("MARK", mark), code, re.IGNORECASE):
                return name
    loops = re.sub(r"\bfor\s*\([^;]*;[^;]*;[^)]*\)", "for", code)
    found = {
        "max": len(re.findall(r"\bf?maxf?\s*\(|\bgreater\s*<", loops))
        + len(re.findall(r"(\w[\w\[\]+ ]*?)\s*>\s*([\w\[\]+ ]+?)\s*\?\s*\1\s*:", loops))
        + len(re.findall(r"\bif\s*\(\s*([^<>()]+?)\s*>\s*(\w+)\s*\)\s*\2\s*=\s*\1\s*;", loops)),
        "min": len(re.findall(r"\bf?minf?\s*\(|\bless\s*<", loops))
        + len(re.findall(r"(\w[\w\[\]+ ]*?)\s*<\s*([\w\[\]+ ]+?)\s*\?\s*\1\s*:", loops))
        + len(re.findall(r"\bif\s*\(\s*([^<>()]+?)\s*<\s*(\w+)\s*\)\s*\2\s*=\s*\1\s*;", loops)),
        "prod": len(re.findall(r"(?<![<>])\*=", loops)),
        "sum": len(re.findall(r"\+=", loops)),
    }
    if found["sum"] == 0 or found["max"] + found["min"] > found["sum"]:
        best = max(("max", "min", "prod"), key=lambda name: found[name])
        if found[best] > 0:
            return best
    if found["prod"] > found["sum"]:
        return "prod"
    return "sum"


_WIDE = re.compile(
    r"\(\s*(?:size_t|u?int64_t|(?:unsigned\s+)?long[\w\s]*)\s*\)|static_cast|\d[uU]?[lL]"
)


_DECLARED = re.compile(
    r"(?<=[;{}(])\s*((?:const\s+|auto\s+|unsigned\s+|long\s+|int\s+|size_t\s+|uint\s+"
    r"|u?int\d+_t\s+)+)(\w+\s*=[^;]*);"
)
"""Types and initializers of integers, also of a loop's."""


def _index_limits(body: _Body, parameters: tuple[Parameter, ...]) -> Iterator[IndexLimit]:
    """What overflows in long arrays: n's own type, each variable that is computed from the block's
    index, and each that a loop over the elements adds its stride to.
    """
    text = body.text
    start = body.start + len(body.code) - len(body.inner)
    n = next((each for each in parameters if each.role == "n"), None)
    bits = {"int32": 31, "uint32": 32, "int64": 63, "uint64": 63}
    if n is not None:
        line = line_of(text.code, text.code.find(n.name, body.start))
        yield IndexLimit(bits[C_TYPES[n.c_type]], f"{n.name} is {_article(n.c_type)}", line)
    index = body.alternatives(body.block_index)
    stepping = set() if n is None else body.stepping(n.name)
    for declared in _DECLARED.finditer(body.inner):
        plain = text.plain_type(declared[1])
        for one in split_at_commas(declared[2]):
            name, _, value = (part.strip() for part in one.partition("="))
            steps = name in stepping
            if not steps and not re.search(rf"{index}.*\*|\*.*{index}", value, re.DOTALL):
                continue
            line = line_of(text.code, start + declared.start(2) + declared[2].find(one.strip()))
            width = bits.get(C_TYPES.get(plain, ""), 32 if plain == "auto" else 63)
            if steps:  # it starts below the stride
                yield IndexLimit(width, f"{name} is {_article(plain)}", line, width < 63)
            elif width == 63 and not _WIDE.search(value):
                yield IndexLimit(32, f"{name} is computed in 32 bits", line)
            else:
                yield IndexLimit(width, f"{name} is {_article(plain)}", line)


def _article(c_type: str) -> str:
    return f"{'an' if c_type[0] in 'aeiou' else 'a'} {c_type}"


# ---------------------------------------------------------------- all of it ----------------------


def _choose(text: _Text, name: str | None) -> _Signature:
    found = [each for each in map(_signature, text.declarations) if each is not None]
    # In template form there is a kernel, too, that fills the output.
    found = [each for each in found if is_template_form(each.parameters)] or found
    if not found:
        raise ValueError(f"{text.file}: there is no __global__ function with a body")
    lines = [line_of(text.code, text.code.find(one.name, one.declaration.start)) for one in found]
    names = ", ".join(f"{each.name} (line {line})" for each, line in zip(found, lines, strict=True))
    if name is not None:
        for each in found:
            if each.name == name:
                return each
        raise ValueError(f"{text.file}: there is no kernel '{name}': the kernels are {names}")
    if len(found) > 1:
        raise ValueError(f"{text.file}: several kernels, say which by name=: {names}")
    return found[0]


def _refuse_what_no_gpu_takes(text: _Text, signature: _Signature) -> None:
    """Names that CUDA has no more, and what the plain form cannot launch."""
    where = signature.declaration
    for found in _OLD_SHUFFLE.finditer(text.code):
        raise text.error(
            found.start(),
            f"GPUs of compute capability 7.0 and newer have no __{found[1]}: write "
            f"__{found[1]}_sync, whose first argument is a mask of the lanes that take part",
        )
    for pattern, message in (
        (r"<<<", "a kernel that launches kernels is not taken"),
        (
            r"\bthis_grid\s*\(\)\s*\.\s*sync|\bgrid\w*\.sync\s*\(",
            "a barrier of the grid needs a cooperative launch, which the plain form does not have: "
            "use a second launch, or let the last block combine partials (gpureduce kernels "
            "--source last_block), or begin with the template form of a kernel that has one "
            "(--export cooperative)",
        ),
        (
            r"\bthis_cluster\s*\(|\bcluster_group\b|__cluster_dims__",
            "blocks in clusters need a launch that the plain form does not have: begin with the "
            "template form of a kernel in clusters (gpureduce kernels --export cluster)",
        ),
        (
            r"\b(?:threadIdx|blockIdx|blockDim|gridDim)\s*\.\s*[yz]\b",
            "blocks and grids have one axis here: use .x",
        ),
    ):
        if place := re.search(pattern, where.text):
            raise text.error(where.start + place.start(), message)
    for each in text.declarations:
        if (
            re.search(r"\b__shared__\b", each.head)
            and not each.is_function
            and ("extern" not in each.head)
        ):
            raise text.error(
                each.start + each.text.find("__shared__"),
                "shared memory is declared outside functions: declare it in the kernel",
            )


_EXPORTED = re.compile(r"^#if defined\(__CUDACC__\) && !defined\(__CUDACC_RTC__\)", re.MULTILINE)
"""Where the program of an exported file begins, which compilers of kernels alone do not read."""


def _template_form(
    text: _Text,
    signature: _Signature,
    source: str,
    op: str | None,
    block_size: int | None,
    finish: str | None,
) -> KernelForm:
    code = without_comments(source)
    body = signature.declaration.text
    found = read_template_form(text.file, code, signature.name, body)
    for what, given, known in (
        ("block_size", block_size, found.block_size),
        ("finish", finish, found.finish),
    ):
        if given is not None and given != known:
            raise ValueError(
                f"kernel '{signature.name}' is in template form, whose {what} the file says: it is "
                f"{known}, not {given}"
            )
    parameters = split_at_commas(signature.parameters)
    names = [(re.findall(_IDENTIFIER, each) or [""])[-1] for each in parameters]
    roles = ("in", "out", "rows", "scratch")
    if len(parameters) != len(roles):
        raise text.error(
            signature.declaration.start + signature.declaration.text.find("__global__"),
            f"kernel '{signature.name}' has {len(parameters)} parameters: the template form has "
            "in, out, rows and scratch",
        )
    end = _EXPORTED.search(source)
    return KernelForm(
        name=signature.name,
        scope="gpr::" if re.search(r"\bnamespace\s+gpr\b", code) else "",
        file=text.file,
        line=line_of(code, code.find(signature.name, signature.declaration.start)),
        text=source if end is None else source[: end.start()],
        parameters=tuple(
            Parameter(role, role, name) for role, name in zip(roles, names, strict=True)
        ),
        template=(),
        op=op or found.op,
        finish=found.finish,
        cover=found.cover,
        elements_per_thread=found.elements_per_thread,
        block_size=found.block_size,
        shared_type=None,
        shared_name=None,
        loops=found.cover != "cover",
        index_limits=(),
        dtypes=found.dtypes,
        traits=(
            "First",
            *([found.next_kernel] if found.next_kernel else []),
            *(["scratch"] if found.has_scratch else []),
        ),
        is_cooperative=found.is_cooperative,
        most_cluster=found.most_cluster,
    )


def read_kernel(
    source: str,
    file: str,
    *,
    name: str | None = None,
    op: str | None = None,
    block_size: int | None = None,
    elements_per_thread: int | None = None,
    finish: str | None = None,
    template: Mapping[str, object] | None = None,
) -> KernelForm:
    """Read a kernel, in the plain form, ``__global__ void name(const T *in, T *out, unsigned n)``,
    or in template form.

    Parameters
    ----------
    source : str
        Text of a CUDA file; what the host compiles is left out.
    file : str
        Its name, for messages.
    name, op, block_size, elements_per_thread, finish, template : optional
        What the text does not say, or says otherwise; see :class:`gpureduce.Kernel`.

    Returns
    -------
    KernelForm

    Raises
    ------
    ValueError
        There is no kernel, or none in this form; the message begins with file and line.
    """
    text = _Text(source, file)
    signature = _choose(text, name)
    _refuse_what_no_gpu_takes(text, signature)
    if is_template_form(signature.parameters):
        return _template_form(text, signature, source, op, block_size, finish)
    kinds, values, items = _template(text, signature, template or {})
    parameters = _parameters(text, signature, kinds)
    blocks = frozenset(rf"\b{each}\b" for each, kind in kinds.items() if kind == "block")
    fixed_names = frozenset(rf"\b{each}\b" for each in text.constants if _BLOCK_NAME.search(each))
    body = _Body(text, signature, blocks | fixed_names)
    roles = {each.role: each.name for each in parameters}
    cover = _cover(body)
    dynamic = _dynamic_shared(body)
    in_loops = " ".join(re.findall(r"\b(?:for|while)\s*\(([^{;]*;?[^{;]*)", body.inner))
    fixed, array = (block_size, "") if block_size else _fixed_block(body)
    form = KernelForm(
        name=signature.name,
        file=file,
        line=line_of(text.code, text.code.find(signature.name, signature.declaration.start)),
        text=text.device,
        parameters=parameters,
        template=values,
        op=op or _operator(body, roles["out"]),
        finish=finish or _finish(body, roles["out"], cover),
        cover=cover,
        elements_per_thread=elements_per_thread or max(_per_thread(body, fixed), items),
        block_size=fixed,
        shared_type=dynamic[0] if dynamic else None,
        shared_name=dynamic[1] if dynamic else None,
        loops="n" not in roles or bool(re.search(rf"\b{roles['n']}\b", in_loops)),
        index_limits=tuple(_index_limits(body, parameters)),
        left_out=text.left_out,
        limiting_array=array,
    )
    if cover == "thread":
        form = replace(form, block_size=1)
    return form
