"""The base of measurements and explanations: how they are exported and shown, and a public name."""

from __future__ import annotations

import csv
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Exported", "make_public"]


class Exported(ABC):
    """A result that exports its dictionary as JSON and its rows as CSV.

    Its ``repr`` is one short line; IPython shows the tables that ``print`` prints.
    """

    __slots__ = ()

    @abstractmethod
    def _summary(self) -> str:
        """What the result is of, in one line."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._summary()}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))

    @abstractmethod
    def to_dict(self) -> Any:
        """Everything as dictionaries, lists, strings and numbers."""

    @abstractmethod
    def _rows(self) -> Iterable[Sequence[object]]:
        """The rows of :meth:`to_csv`; the first has the columns' names."""

    def to_json(self, indent: int | None = None) -> str:
        """:meth:`to_dict` as JSON.

        Parameters
        ----------
        indent : int, optional
            Spaces per level; everything in one line by default.

        Returns
        -------
        str
        """
        return json.dumps(self.to_dict(), indent=indent)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows that the class describes, as CSV, with a row of headings.

        Parameters
        ----------
        path : path, optional
            File that the text is also written to.

        Returns
        -------
        str
        """
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._rows())
        if path is not None:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text.getvalue())
        return text.getvalue()


def make_public(*classes: type) -> None:
    """Make the package the classes' module: users find them there, and pickles name it."""
    for each in classes:
        each.__module__ = __name__.partition(".")[0]
