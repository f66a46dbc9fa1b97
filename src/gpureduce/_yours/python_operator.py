"""Operators of the user's own that are Python functions: :func:`gpureduce.operator`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .own_operator import Operator
from .python_functions import Functions, plain_function
from .python_text import PythonText

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["PythonOperator", "operator"]


class PythonOperator(Operator):
    """What :func:`gpureduce.operator` returns: an :class:`Operator` that can be called as the
    function that it is made of.
    """

    def __init__(self, text: PythonText) -> None:
        self._text = text
        self._programs = {}
        functools.update_wrapper(self, text.functions.combine)

    def __call__(self, left: Any, right: Any) -> Any:
        """Combine two states in Python.

        Parameters
        ----------
        left, right : state

        Returns
        -------
        state
        """
        assert isinstance(self._text, PythonText)
        return self._text.functions.combine(left, right)

    def __reduce__(self) -> tuple[Any, ...]:
        return PythonOperator, (self._text,)


def _same(x: Any) -> Any:
    return x


@overload
def operator(
    combine: Callable[[Any, Any], Any],
    /,
    *,
    name: str | None = None,
    identity: Any = None,
    lift: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    state: DTypeLike | None = None,
    commutative: bool = False,
    dtypes: Sequence[DTypeLike] | None = None,
    result: DTypeLike | None = None,
) -> PythonOperator: ...
@overload
def operator(
    *,
    name: str | None = None,
    identity: Any = None,
    lift: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    state: DTypeLike | None = None,
    commutative: bool = False,
    dtypes: Sequence[DTypeLike] | None = None,
    result: DTypeLike | None = None,
) -> Callable[[Callable[[Any, Any], Any]], PythonOperator]: ...
def operator(
    combine: Callable[[Any, Any], Any] | None = None,
    /,
    *,
    name: str | None = None,
    identity: Any = None,
    lift: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    state: DTypeLike | None = None,
    commutative: bool = False,
    dtypes: Sequence[DTypeLike] | None = None,
    result: DTypeLike | None = None,
) -> PythonOperator | Callable[[Callable[[Any, Any], Any]], PythonOperator]:
    """Make an operator of Python functions, which Numba compiles.

    A decorator of ``combine(left, right)``. It takes what :class:`Operator` takes in CUDA C++, as
    Python functions, and every function that takes an operator takes it.

    Parameters
    ----------
    combine : callable
        ``combine(left, right)``: the state of two states, of which `left` comes first in the array.
        It must be associative.
    name : str, optional
        Name of the operator; by default that of the function.
    identity : number, tuple or callable, optional
        The state of no elements. A function is called with the elements' dtype, in Python. Without
        it, an array without elements is an error.
    lift : callable, optional
        ``lift(x)`` or ``lift(x, index)``: the state of an element. The index counts a row's
        elements in the array's order, from 0; that of ``initial`` is -1. Without it a state is an
        element.
    finish : callable, optional
        ``finish(state)`` or ``finish(state, n)``: the result of a row of which `n` elements
        counted. Without it the result is the state.
    state : dtype, optional
        Dtype of states; a structured dtype makes named tuples of them. By default what `lift`
        returns, widened until ``combine`` returns nothing wider, or else the elements' dtype.
    commutative : bool, optional
        Whether elements may be combined in any order, which is faster. By default the order of the
        array is kept: the result is that of a left-to-right fold.
    dtypes : sequence of dtype, optional
        Elements that it takes; by default all that the functions compile for.
    result : dtype, optional
        Dtype of results; by default what `finish` returns.

    Returns
    -------
    Operator
        It can be called as `combine`, too. Without `combine`, a decorator.

    Raises
    ------
    TypeError
        A function is no Python function, or takes other arguments.
    ValueError
        A function raises exceptions, or the name is none.

    See Also
    --------
    gpureduce.Operator : The same, written in CUDA C++.
    gpureduce.reduce : Reduce an array by the operator.

    Notes
    -----
    Values are numbers or tuples of numbers; elements of a structured dtype are named tuples. What
    the functions return is converted to the state as C does, but never from a float to an integer.
    Integers wrap, and a division by zero raises nothing.

    Numba compiles the functions when a dtype is first reduced: for the CPU together with the loops,
    for a GPU to code that nvJitLink links into the kernels. Without Numba that raises
    ``ImportError``. What Numba does not compile raises ``CompileError`` with its message and the
    line.

    Determinism: results depend neither on the number of threads nor on the run; those of floats
    depend on the device, which combines in another order.

    Examples
    --------
    >>> import numpy as np
    >>> import gpureduce as gr
    >>> @gr.operator(identity=0, commutative=True)
    ... def gcd(a, b):
    ...     while b:
    ...         a, b = b, a % b
    ...     return a
    >>> gr.reduce(np.array([[12, 18], [35, 21]]), gcd, axis=1, device="cpu")
    array([6, 7])
    """
    if combine is None:

        def decorator(function: Callable[[Any, Any], Any]) -> PythonOperator:
            return operator(
                function, name=name, identity=identity, lift=lift, finish=finish, state=state,
                commutative=commutative, dtypes=dtypes, result=result,
            )  # fmt: skip

        return decorator
    called = name if name is not None else getattr(combine, "__name__", type(combine).__name__)
    if called == "<lambda>":
        called = "operator"
    if not isinstance(called, str) or not called.isidentifier() or not called.isascii():
        raise ValueError(f"an operator's name is an identifier, not {called!r}")
    states = None if state is None else np.dtype(state)
    lifts = _same if lift is None and states is not None else lift
    finishes = _same if finish is None and result is not None else finish
    functions = Functions(
        plain_function(combine, "combine", called),
        None if lifts is None else plain_function(lifts, "lift", called),
        None if finishes is None else plain_function(finishes, "finish", called),
        identity,
        states,
    )
    text = PythonText(
        called,
        functions.file,
        functions.source,
        bool(commutative),
        None if dtypes is None else tuple(np.dtype(each) for each in dtypes),
        None if result is None else np.dtype(result),
        functions,
    )
    return PythonOperator(text)


operator.__module__ = "gpureduce"
