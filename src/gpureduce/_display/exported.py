"""What measurements and explanations have in common: JSON, CSV, and the name that users find them under."""

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
    """What a result gives to other programs: JSON of its dictionary, CSV of its rows."""

    __slots__ = ()

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
            Spaces for each level; all in one line by default.

        Returns
        -------
        str
        """
        return json.dumps(self.to_dict(), indent=indent)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows that the class names, as CSV, below the names of their columns.

        Parameters
        ----------
        path : path, optional
            File to write it to as well.

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
    """Give classes the package's own name, under which users find them."""
    for each in classes:
        each.__module__ = __name__.partition(".")[0]
