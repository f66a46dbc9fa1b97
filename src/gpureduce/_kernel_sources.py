"""Sources of kernels, and the helpers that one uses.

A helper is a function of a file that kernels share. The text is cut at blank lines outside of
braces and of conditions of the preprocessor, so a helper comes with its comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

__all__ = ["explained_words", "shown_rule", "used_helpers"]

_DEFINED = re.compile(r"^(?:template <.*> ?)?GPR_DEVICE[^;{}()]*?\b(\w+)\(", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.:>])(\w+)(?:<[\w:,<> *+]*>)?\(")
_NAMESPACE = re.compile(r"^namespace gpr \{\n(.*)^\} // namespace gpr$", re.MULTILINE | re.DOTALL)


_WORDS = {
    "Traits": "types and operator: elements of type In, accumulators Acc, results Out; identity(), "
    "lift() and combine()",
    "BLOCK": "threads per block",
    "Rows": "rows of the launch: n elements each, served by `blocks` blocks; row_of() is this "
    "block's (rows.cuh)",
    "Scratch": "memory of kernels whose last block combines: partials, and a counter per row",
    "Layout": "where rows begin and where results go, for rows at any distance (layout.cuh)",
    "Run": "neighbouring elements, read by 16-byte vectors from the first aligned one (runs.cuh)",
    "Tile": "elements of a thread that are folded together (tile.cuh)",
}
"""Words of this project's kernels that CUDA's documentation does not have."""


def explained_words(text: str) -> list[tuple[str, str]]:
    """Words of this project in a source, each with what it stands for."""
    code = _code(text)
    return [(word, what) for word, what in _WORDS.items() if re.search(rf"\b{word}\b", code)]


def _code(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _pieces(source: str) -> Iterable[str]:
    """The declarations of a file, each with the comment above it."""
    inside = _NAMESPACE.search(source)
    piece: list[str] = []
    depth = 0
    for line in (inside[1] if inside is not None else "").splitlines():
        code = _code(line)
        depth += code.count("{") - code.count("}")
        depth += line.startswith("#if") - line.startswith("#endif")
        if line.strip() or depth:
            piece.append(line)
        elif piece:
            yield "\n".join(piece)
            piece = []
    if piece:
        yield "\n".join(piece)


def used_helpers(name: str, file: str, sources: Mapping[str, str], own: Collection[str]) -> str:
    """Functions of shared files that a kernel calls, and those that they call.

    Parameters
    ----------
    name, file : str
        The kernel, and its file; if nothing of this name is there, the whole file counts.
    sources : mapping
        Names and texts of all files.
    own : collection of str
        Names of the files of kernels, which are not shared.

    Returns
    -------
    str
        With the name of its file above each; ``""`` if there are none.
    """
    pieces = [
        (shared, piece)
        for shared, text in sources.items()
        if shared not in own
        for piece in _pieces(text)
    ]
    defining: dict[str, list[int]] = {}
    for i, (_, piece) in enumerate(pieces):
        for each in _DEFINED.findall(_code(piece)):
            defining.setdefault(each, []).append(i)
    used: set[int] = set()
    mine = list(_pieces(sources[file]))
    texts = [piece for piece in mine if re.search(rf"^{name}\(", piece, re.MULTILINE)] or mine
    texts += [piece for piece in mine if "__global__" not in piece]
    while texts:
        for each in _CALLED.findall(_code(texts.pop())):
            fresh = set(defining.get(each, ())) - used
            used |= fresh
            texts += [pieces[i][1] for i in fresh]
    shown, last = [], ""
    for i in sorted(used):
        shared, piece = pieces[i]
        shown += [f"// ==== {shared}"] if shared != last else []
        shown.append(f"{piece}\n")
        last = shared
    return "\n".join(shown)


def shown_rule(block_rule: str) -> str:
    """A rule of block sizes after "takes": ``"32"``, ``"a power of two"``."""
    return block_rule if block_rule.isdigit() else f"a {block_rule}"
