"""Declarations of the kernels' sources, and those that one program uses.

The files are read as text: a declaration ends where brackets are closed and a line ends with ``;``
or ``}``. Branches of ``if constexpr`` that a program cannot take are left out: their conditions are
evaluated by :class:`Facts`, which knows the program's dtypes and folds. No meaning is parsed beyond
this, so a name that is reached in two ways brings both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ._dtypes import is_below_float32

__all__ = ["slice_program"]

_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE_WORD = re.compile(r"\b(?:dt|fold)_\w+")
_FUNCTION = re.compile(
    r"(?:GPR_DEVICE|GPR_CALLED|GPR_SHARED_\w+|GPR_CONSTANT_FUNCTION|__global__)\b.*?"
    r"(?<![\w.:>])(?!__launch_bounds__)(operator\W+?|\w+)\s*\(",
    re.DOTALL,
)
_RULER = re.compile(r"^(?://|/\*) -{10,}")
_KINDS = {
    "is_complex": ("complex",),
    "is_float": ("float", "bfloat"),
    "is_signed": ("int",),
    "is_unsigned": ("uint",),
    "is_integer": ("int", "uint"),
}
"""Predicates of dtypes, and how the names of those that fulfil them begin."""
Truth = bool | None


# ---------------------------------------------------------------- conditions ---------------------


@dataclass(frozen=True)
class Facts:
    """The facts of a program: its dtypes, its folds, and the identities of the folds."""

    dtypes: frozenset[str]
    folds: frozenset[str]
    identities: frozenset[str]
    names: Mapping[str, bool] = field(default_factory=dict)
    """Constants with one value in the whole program."""

    def truth(self, atom: str) -> Truth:
        """Whether an expression without ``&&``, ``||`` and ``!`` is true; None: unknown."""
        atom = re.sub(r"\s+", " ", atom).strip()
        if atom in ("true", "false"):
            return atom == "true"
        if atom in self.names:
            return self.names[atom]
        if match := re.fullmatch(r"(\w+)<(.*)>", atom):
            return self._of_template(match[1], match[2])
        if (match := re.fullmatch(r"IDENTITY == (GPR_IDENTITY_\w+)", atom)) is not None:
            if match[1] not in self.identities:
                return False
            return True if len(self.identities) == 1 else None
        if atom.endswith("::positional") and "positional" in self.names:
            return self.names["positional"] and None
        if atom.endswith("::skips_nan"):
            return False
        return None

    def _of_template(self, name: str, arguments: str) -> Truth:
        prefixes = _KINDS.get(name)
        if prefixes is not None and not any(each.startswith(prefixes) for each in self.dtypes):
            return False
        if name == "has_own_accumulator":
            return False
        if name == "same":
            second = arguments.rsplit(",", 1)[-1].strip()
            if second.startswith("dt_") and second[3:] not in self.dtypes:
                return False
            if second.startswith("fold_") and second not in self.folds:
                return False
            if second == "float" and not any(
                name in ("float32", "complex64") or is_below_float32(name) for name in self.dtypes
            ):
                return False
        return None


def _split(text: str, operator: str) -> list[str]:
    """Parts of an expression between operators outside of brackets."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(operator, i):
            parts.append(text[start:i])
            i += len(operator)
            start = i
            continue
        i += 1
    return [*parts, text[start:]]


def _simplified(text: str, facts: Facts) -> tuple[Truth, str]:
    """The truth of a condition if it is known, else None and the unknown parts of the condition."""
    for operator, absorbing in (("||", True), ("&&", False)):
        parts = _split(text, operator)
        if len(parts) == 1:
            continue
        left = []
        for part in parts:
            truth, rest = _simplified(part, facts)
            if truth is absorbing:
                return absorbing, ""
            if truth is None:
                left.append(rest.strip())
        if not left:
            return not absorbing, ""
        if len(left) == len(parts):
            return None, text
        only = left[0]
        if len(left) == 1 and only.startswith("(") and _closing(only, 0) == len(only) - 1:
            only = only[1:-1]
        return None, only if len(left) == 1 else f" {operator} ".join(left)
    bare = text.strip()
    if bare.startswith("!") and not bare.startswith("!="):
        truth, rest = _simplified(bare[1:], facts)
        return (not truth, "") if truth is not None else (None, f"!{rest.strip()}")
    if bare.startswith("(") and _closing(bare, 0) == len(bare) - 1:
        truth, rest = _simplified(bare[1:-1], facts)
        return truth, f"({rest.strip()})"
    return facts.truth(bare), text


# ---------------------------------------------------------------- statements ---------------------


def _masked(text: str) -> str:
    """The text with comments blanked, so that positions do not change."""
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _closing(text: str, at: int) -> int:
    """Where the bracket that opens at `at` closes."""
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] in "([{"
        depth -= text[i] in ")]}"
        if depth == 0:
            return i
    raise ValueError(f"a bracket is never closed: {text[at : at + 60]!r}")


def _statement_end(code: str, at: int) -> int:
    """End of the statement that begins at `at`, with its ``else``."""
    at += len(code[at:]) - len(code[at:].lstrip())
    if code[at] == "{":
        return _closing(code, at) + 1
    match = re.compile(r"(?:if(?: constexpr)?|for|while) \(").match(code, at)
    if match is None:
        depth = 0
        for i in range(at, len(code)):
            depth += code[i] in "([{"
            depth -= code[i] in ")]}"
            if code[i] == ";" and depth == 0:
                return i + 1
        raise ValueError(f"a statement does not end: {code[at : at + 60]!r}")
    end = _statement_end(code, _closing(code, match.end() - 1) + 1)
    other = re.compile(r"\s*else\b").match(code, end)
    if code[at:].startswith("if") and other is not None:
        end = _statement_end(code, other.end())
    return end


def _unwrapped(statement: str, indent: str) -> str:
    """The branch of an ``if`` in place of the ``if``: no braces, the indent of the ``if``."""
    body = statement.strip()
    if body.startswith("{"):
        body = body[1:-1].strip("\n")
    elif body.startswith("if "):
        return body
    else:
        body = statement.lstrip(" ").strip("\n") if "\n" in body else body
    lines = body.splitlines()
    shift = len(lines[0]) - len(lines[0].lstrip()) - len(indent)
    return "\n".join(
        line[min(shift, len(line) - len(line.lstrip())) :] if shift > 0 else line for line in lines
    ).strip()


_IF_CONSTEXPR = re.compile(r"\bif constexpr \(")
_CONSTANT = re.compile(
    r"^( *)(?:template <[^\n]*> )?(?:static )?constexpr bool (\w+) =\s*([^;]*);[^\n]*(?:\n|\Z)",
    re.MULTILINE,
)


def _without_dead_branches(text: str, facts: Facts) -> str:
    """A declaration without branches of ``if constexpr`` that the program cannot take."""
    known = dict(facts.names)
    for local in _CONSTANT.finditer(_masked(text)):
        truth, _ = _simplified(local[3], facts)
        if local[1] and truth is not None and local[2] not in ("positional", "skips_nan"):
            known[local[2]] = truth
    here = Facts(facts.dtypes, facts.folds, facts.identities, known)

    def constant(match: re.Match[str]) -> str:
        truth, rest = _simplified(match[3], here)
        if match[1] and match[2] in known and match[2] not in facts.names:
            return ""
        left = rest.strip() if truth is None else str(truth).lower()
        return match[0].replace(match[3], left)

    text = _CONSTANT.sub(constant, text)
    at = 0
    while (match := _IF_CONSTEXPR.search(code := _masked(text), at)) is not None:
        open_at = match.end() - 1
        close = _closing(code, open_at)
        condition = code[open_at + 1 : close]
        truth, rest = _simplified(condition, here)
        if truth is None:
            if rest != condition:
                text = text[: open_at + 1] + rest.strip() + text[close:]
            at = open_at
            continue
        then_end = _statement_end(code, close + 1)
        other = re.compile(r"\s*else\b").match(code, then_end)
        end = _statement_end(code, other.end()) if other is not None else then_end
        line_start = code.rfind("\n", 0, match.start()) + 1
        indent = re.match(r" *", text[line_start:])
        kept = ""
        if truth or other is not None:
            kept = text[close + 1 : then_end] if truth or other is None else text[other.end() : end]
            is_else = re.search(r"\belse *$", code[: match.start()]) is not None
            if is_else and kept.strip().startswith("{"):
                kept = kept.strip()  # braces as those of the branches before
            else:
                kept = _unwrapped(kept, indent[0] if indent else "")
        before, after = text[: match.start()], text[end:]
        if not kept:  # the line is removed, unless it contains more
            before = before.rstrip(" ")
            if re.search(r"\belse$", before.rstrip()):
                before = before.rstrip()[: -len("else")].rstrip()
            if before.endswith("\n") and after.startswith("\n"):
                after = after[1:]
            elif not before.endswith("\n") and not before:
                after = after.lstrip("\n")
        text = before + kept + after
        at = len(before)
    return _without_unused_constants(text)


_LOCAL_CONSTANT = re.compile(
    r"^ +constexpr \w+(?: \w+)? (\w+) =\s*[^;]*;[^\n]*(?:\n|\Z)", re.MULTILINE
)


def _without_unused_constants(text: str) -> str:
    """Without constants of functions that only dropped branches used, of which compilers warn."""
    at = 0
    while (match := _LOCAL_CONSTANT.search(code := _masked(text), at)) is not None:
        depth = 0
        for end in range(match.end(), len(code)):  # of the block that it is in
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            if depth < 0:
                break
        else:
            end = len(code)
        if re.search(rf"\b{match[1]}\b", code[match.end() : end]):
            at = match.end()
        else:
            text = text[: match.start()] + text[match.end() :]
            at = 0  # it may have used another constant
    return text


# ---------------------------------------------------------------- declarations -------------------


_Conditions = tuple[tuple[int, str, tuple[str, ...]], ...]


@dataclass
class _Declaration:
    file: str
    text: str
    group: int
    """Declarations without a blank line between them share their comments."""
    comment: str
    """Above it, or above the last one of its group that has one."""
    conditions: _Conditions
    """Directives around it, outermost first: number, the one in force, and those before."""
    in_namespace: bool
    names: set[str] = field(default_factory=set)
    head: str = ""
    code: str = ""


def _read_names(declaration: _Declaration) -> None:
    code = declaration.code = _masked(declaration.text)
    names = declaration.names
    brace = code.find("{")
    declaration.head = code if brace < 0 else code[:brace]
    head = re.sub(r"^template <.*?>\s*(?=[a-zA-Z_])", "", declaration.head.strip(), flags=re.DOTALL)
    of_kind = r"(?:struct|class|union) (?:alignas\(\d+\) )?(\w+)|using (\w+) ="
    if match := re.match(r"#define (\w+)", code):
        names.add(match[1])
    elif match := re.match(r"(?:typedef )?enum(?: class)?\s*(\w*)", head):
        names |= {match[1]} if match[1] else set()
        inside = code[brace + 1 : code.rfind("}")]
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\([^()]*\)", "", inside)))
    elif code.startswith("typedef"):
        names.add(_WORD.findall(code)[-1])
    elif match := re.match(of_kind, head):
        names.add(match[1] or match[2])
        if match[2]:  # what it stands for may be one of several types, as a body may
            declaration.head = declaration.head.split("=", 1)[0]
    elif match := _FUNCTION.match(code[code.find(head[:20]) :]):
        names.add("operator" if match[1].startswith("operator") else match[1])
    elif match := re.match(r"constexpr [\w:]+ (\w+)(<[^=]*>)? =", head):
        names.add(match[1])
        declaration.head = match[0]


_X_MACRO = re.compile(
    r"^#define (GPR_\w+)\(([^)]*)\)((?:[^\n]|(?<=\\)\n)*)\n#include \"(\w+\.def)\"\n#undef \1\n",
    re.MULTILINE,
)


def _substituted(body: str, values: Mapping[str, str]) -> str:
    """A macro's body with its arguments inserted; strings do not change, ``#argument`` aside."""
    made = re.sub(r'" #(\w+)', lambda use: f'{values[use[1]]}"', body)
    made = re.sub(
        r'"[^"]*"|(?:##)?\b\w+', lambda use: values.get(use[0].removeprefix("##"), use[0]), made
    )
    return "\n".join(line.rstrip() for line in made.splitlines())


def _expanded(text: str, sources: Mapping[str, str]) -> str:
    """A file in which lists of the registry are expanded, to a declaration per row."""

    def rows(match: re.Match[str]) -> str:
        macro, parameters, body, listed = match[1], match[2], match[3], match[4]
        names = [each.strip() for each in parameters.split(",")]
        body = body.replace("\\\n", "\n").strip()
        indent = min((len(x) - len(x.lstrip()) for x in body.splitlines()[1:] if x), default=0)
        body = re.sub(rf"(?m)^ {{{indent}}}", "", body)
        found = []
        rows = _COMMENT.sub("", sources[listed])
        for row in re.finditer(rf"^{macro}\(([^()]*)\)", rows, re.MULTILINE):
            values = [each.strip() for each in row[1].split(",")]
            found.append(_substituted(body, dict(zip(names, values, strict=True))))
        return "\n\n".join(found) + "\n"

    return _X_MACRO.sub(rows, text)


def _declarations(file: str, text: str) -> Iterator[_Declaration]:
    lines = text.splitlines()
    comment: list[str] = []
    piece: list[str] = []
    inherited = ""
    conditions: list[tuple[int, str, tuple[str, ...]]] = []
    group, in_namespace, i = 0, False, 0

    while i < len(lines):
        line = lines[i]
        i += 1
        if not piece:
            if not line.strip():
                group, comment, inherited = group + 1, [], ""
                continue
            if line.startswith(("//", "/*")):
                block = [line]
                while line.startswith("/*") and "*/" not in block[-1]:
                    block.append(lines[i])
                    i += 1
                if not _RULER.match(line):
                    comment += block
                continue
            if line.startswith(("namespace gpr {", "} // namespace gpr")):
                in_namespace = line.startswith("namespace")
                continue
            if re.match(r"#pragma once|#include|#undef", line):
                continue
            if line.startswith("#if"):
                conditions.append((i, line, ()))
                continue
            if line.startswith(("#else", "#elif")):
                number, now, before = conditions[-1]
                conditions[-1] = (number, line, (*before, now))
                continue
            if line.startswith("#endif"):
                conditions.pop()
                group, comment, inherited = group + 1, [], ""
                continue
        piece.append(line)
        code = _masked("\n".join(piece))
        if code.startswith("#define"):
            ended = not code.rstrip().endswith("\\")
        else:
            depth = sum((c in "([{") - (c in ")]}") for c in code)
            ended = depth == 0 and code.rstrip().endswith((";", "}"))
        if ended:
            inherited = "\n".join(comment) or inherited
            declaration = _Declaration(
                file, "\n".join(piece), group, inherited, tuple(conditions), in_namespace
            )
            _read_names(declaration)
            yield declaration
            piece, comment = [], []


def _files(start: str, sources: Mapping[str, str]) -> list[str]:
    """A file and those that it includes, each before its users."""
    found: list[str] = []

    def visit(file: str) -> None:
        for other in _INCLUDE.findall(sources[file]):
            if other.endswith(".def") or other in found or other not in sources:
                continue
            visit(other)
        if file not in found:
            found.append(file)

    visit(start)
    return found


_CONSTANTS = {"per_thread", "lanes"}
"""Constants of programs that kernels of one row may use."""
_TRAITS = {"KernelTraits", "Next"}
"""Structures of which a program may lack members."""


def _keeps(conditions: _Conditions) -> bool:
    """Whether CUDA C++ compiles a declaration within these directives."""
    return not any(before[:1] == ("#ifdef __cplusplus",) for _, _, before in conditions)


def _written(conditions: _Conditions) -> _Conditions:
    """The directives of a file without include guards and without C."""
    return tuple(
        each
        for each in conditions
        if not re.match(r"#ifndef GPR_\w+_H$|#ifdef __cplusplus$", [*each[2], each[1]][0])
    )


def _reached(declarations: list[_Declaration], start: set[str], facts: Facts) -> list[_Declaration]:
    """Declarations that kernels and the names in `start` use, in their order."""
    names = {*start, "operator"}
    kept: set[int] = set()
    held = [i for i, each in enumerate(declarations) if each.names]
    own = {f"dt_{each}" for each in facts.dtypes} | set(facts.folds)
    structures = {
        name
        for each in declarations
        if re.search(r"\b(?:struct|union) ", each.head) and "GPR_DEVICE" not in each.head
        for name in each.names
    }
    functions = Counter(name for each in declarations if "(" in each.head for name in each.names)

    has_moments = any(fold.startswith("fold_moments") for fold in facts.folds)

    def is_wanted(each: _Declaration) -> bool:
        if "__global__" in each.code:
            return True
        if "AccumulationWay::MOMENTS" in each.head and not has_moments:
            return False
        if not each.names & names:
            return False
        words = set(_WORD.findall(each.head)) - each.names
        if not {word for word in words if _TYPE_WORD.fullmatch(word)} <= own:
            return bool(each.names & own)  # a fold made of another one
        if "operator" in each.names and not words & own:
            return False
        # Of several functions of a name those whose arguments exist.
        overloaded = any(functions[name] > 1 for name in each.names)
        return not overloaded or words & structures <= names

    while fresh := [i for i in held if is_wanted(declarations[i])]:
        for i in fresh:
            held.remove(i)
            kept.add(i)
            each = declarations[i]
            text = each.code + " ".join(now for _, now, _ in _written(each.conditions))
            names |= {
                word[2]
                for word in re.finditer(r"(?:(\.|->)\s*)?\b([A-Za-z_]\w*)", text)
                if word[1] is None
            }
    defined = set().union(*(each.names for each in declarations))
    made = set().union(*(declarations[i].names for i in kept), start)
    for i, each in enumerate(declarations):
        if each.code.startswith("static_assert"):
            used = set(_WORD.findall(each.code)) & (defined | _CONSTANTS)
            if used and used <= made:
                kept.add(i)
    return [declarations[i] for i in sorted(kept)]


def _lines(chosen: list[_Declaration]) -> Iterator[str]:
    """Declarations with their comments, directives, namespace and the names of their files."""
    file, inside, group = "", False, -1
    open_now: list[tuple[int, str]] = []
    printed: set[tuple[str, int, str]] = set()

    for each in chosen:
        wanted = [(number, now) for number, now, _ in _written(each.conditions)]
        moved = each.file != file or each.in_namespace != inside
        common = 0
        while (
            not moved
            and common < min(len(open_now), len(wanted))
            and open_now[common] == wanted[common]
        ):
            common += 1
        turns = (
            common == len(open_now) - 1
            and common < len(wanted)
            and open_now[common][0] == wanted[common][0]
        )
        if turns:
            yield wanted[common][1]
            open_now[common] = wanted[common]
            common += 1
        yield from ["#endif"] * (len(open_now) - common)
        del open_now[common:]
        if moved and inside:
            yield from ("", "} // namespace gpr")
        if each.file != file:
            title = f"// ==== {each.file} "
            yield from ("", title + "=" * (99 - len(title)))
        if moved and each.in_namespace:
            yield from ("", "namespace gpr {")
        if moved or each.group != group:
            yield ""
        file, inside, group = each.file, each.in_namespace, each.group
        for number, now in wanted[common:]:
            before = next(before for other, _, before in each.conditions if other == number)
            yield f"#if !({before[0].removeprefix('#if ')})" if before else now
            open_now.append((number, now))
        if each.comment and (file, group, each.comment) not in printed:
            printed.add((file, group, each.comment))
            yield from each.comment.splitlines()
        yield from each.text.splitlines()
    yield from ["#endif"] * len(open_now)
    if inside:
        yield from ("", "} // namespace gpr")


_OF_TRAITS = re.compile(r"\b(?:\w*Traits|First|Next|Tile)(?:<\w+>)?::(?:template )?(\w+)")
"""Members of traits that code uses."""
_BARE = re.compile(r"(?<![\w:])(\w+)")
_MEMBER = re.compile(r"\b(\w+)(?:\(| =)")


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Lines of a structure, cut behind each member: the member's name, and the lines."""
    lines = text.splitlines(keepends=True)
    opened = next(i for i, line in enumerate(lines) if "{" in line)
    yield "", "".join(lines[: opened + 1])
    piece = ""
    for line in lines[opened + 1 :]:
        piece += line
        code = _masked(piece)
        if code.strip() == "};" or code.count("{") != code.count("}"):
            continue
        if code.rstrip().endswith((";", "}")):
            found = _MEMBER.search(re.sub(r"template <.*?>", "", code, flags=re.DOTALL))
            yield found[1] if found else "", piece
            piece = ""
    yield "", piece


def _without_members(text: str, dropped: set[str]) -> str:
    """A structure without the members of these names."""
    return "".join(piece for name, piece in _members(text) if name not in dropped).rstrip()


def _unused_members(chosen: list[_Declaration]) -> set[str]:
    """Names of members of traits that name nothing else in the program."""
    traits = [each for each in chosen if each.names & _TRAITS]
    code = [each.code for each in chosen if not each.names & _TRAITS]
    members: dict[str, list[str]] = {}
    for each in traits:
        for name, piece in _members(each.text):
            members.setdefault(name, []).append(_masked(piece))
    used = set(_OF_TRAITS.findall("\n".join(code))) | {"In", "Acc"}
    while True:
        inside = [
            piece
            for name, pieces in members.items()
            if not name or name in used
            for piece in pieces
        ]
        words = set(_OF_TRAITS.findall("\n".join(inside)))
        for name, pieces in members.items():
            if name in used:
                own = re.compile(rf"\b{name}(?:\(| =)")
                words |= set(_BARE.findall("\n".join(own.sub("", piece) for piece in pieces)))
        fresh = (words & set(members)) - used - {""}
        if not fresh:
            return {name for name in members if name and name not in used}
        used |= fresh


def slice_program(
    file: str, kernels: set[str], start: str, dtypes: set[str], sources: Mapping[str, str]
) -> tuple[str, set[str]]:
    """The declarations that a program uses, in the order of their files, with their comments.

    Parameters
    ----------
    file : str
        The kernel's file.
    kernels : set of str
        The ``__global__`` functions of the program: others are left out.
    start : str
        Text whose names are used: the program's traits.
    dtypes : set of str
        Of elements, and of what they are computed and accumulated in.
    sources : mapping
        Names and texts of all files.

    Returns
    -------
    str
        The declarations.
    set of str
        The constants of the program that they use, which must be declared before them.
    """
    identities = dict(
        re.findall(
            r"^GPR_FOLD\((\w+),.*(GPR_IDENTITY_\w+)\)", sources["folds.def"], flags=re.MULTILINE
        )
    )
    folds = set(re.findall(r"\bfold_\w+", start))
    read = [
        declaration
        for each in _files(file, sources)
        for declaration in _declarations(each, _expanded(sources[each], sources))
        if _keeps(declaration.conditions)
        and ("__global__" not in declaration.code or declaration.names & kernels)
    ]
    unused: set[str] = set()
    while True:
        facts = Facts(
            frozenset(dtypes),
            frozenset(folds),
            frozenset(identities[each.removeprefix("fold_")] for each in folds),
            {"SKIP_NAN": False}
            | ({} if folds & {"fold_argmin", "fold_argmax"} else {"positional": False}),
        )
        declarations = [replace(each, names=set()) for each in read]
        for each in declarations:
            if not each.text.startswith("#"):
                each.text = _without_dead_branches(each.text, facts)
            if (
                each.file == "kernel_traits.cuh"
                and unused
                and re.search(r"^struct KernelTraits|struct Next\b", each.text, re.MULTILINE)
            ):
                each.text = _without_members(each.text, unused)
            _read_names(each)
        chosen = _reached(declarations, set(_WORD.findall(start)), facts)
        code = "\n".join(each.code for each in chosen)
        found = set(re.findall(r"\bfold_\w+", re.sub(r"\bsame<[^<>]*>", "", code)))
        found &= {f"fold_{each}" for each in identities}
        fresh = _unused_members(chosen) - unused
        if found <= folds and not fresh:
            break
        folds |= found
        unused |= fresh
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(_lines(chosen))).strip("\n") + "\n"
    return text, set(_WORD.findall(code)) & _CONSTANTS
