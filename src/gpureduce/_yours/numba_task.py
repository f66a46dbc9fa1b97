"""A C function that Numba compiles, kept in the cache of compiled programs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from .. import _core
from .numba_types import import_numba

__all__ = ["compiled_task"]


class _Cache:
    """What a C function of Numba reads and writes instead of files of Numba's own, which need a
    file of the function.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._found: Any = None

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The result of an earlier compilation; ``None``: there is none."""
        from numba.core.compiler import CompileResult

        if self._found is None:
            cached = _core.find_cached_image(self._of_machine(context))
            if cached is not None:
                context.refresh()
                # The cache's checks of owner and digest hold for pickles as for machine code.
                self._found = CompileResult._rebuild(context, *pickle.loads(cached[0]))
        return self._found

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the result of a compilation."""
        from numba.core import serialize

        key = self._of_machine(result.target_context)
        _core.cache_image(key, serialize.dumps(result._reduce()), ())

    def _of_machine(self, context: Any) -> str:
        return f"{self._key}\n{context.codegen().magic_tuple()}"


def _unwritten() -> int:
    """In the place of a function whose machine code the cache has."""
    return 0


def compiled_task(key: str | None, arguments: int, write: Callable[[], Any]) -> Any:
    """A function of integers, which are addresses and counts, that returns an integer.

    Parameters
    ----------
    key : str or None
        Key of the cache, but for the processor; ``None``: it is not kept.
    arguments : int
        Number of its arguments.
    write : callable
        Returns the Python function; it is called where the cache has no machine code.

    Returns
    -------
    CFunc
        Its ``address`` is that of the machine code, which lives as long.
    """
    import_numba()
    from numba import types
    from numba.core.ccallback import CFunc
    from numba.core.registry import cpu_target

    signature = types.int32(*[types.int64] * arguments)
    cache = found = None
    if key is not None:
        cache = _Cache(key)
        found = cache.load_overload(signature, cpu_target.target_context)
    function = _unwritten if found is not None else write()
    made: Any = CFunc(
        function, (signature.args, signature.return_type), {}, {"error_model": "numpy"}
    )
    if cache is not None:
        made._cache = cache
    made.compile()
    return made
