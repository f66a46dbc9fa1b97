"""Figures by matplotlib, if it is installed, and the sizes and colours that all of them share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_format", "expect_axes", "matplotlib_or_why", "save_figure"]


INK = "#1a1a1a"
DPI = 160
TITLE_SIZE, TEXT_SIZE, LEGEND_SIZE, SMALL_SIZE = 15, 11, 10.5, 10


def matplotlib_or_why() -> Any:
    """The module, or an error that names what to install."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("drawing needs matplotlib: pip install 'gpureduce[plot]'") from None
    return matplotlib


def expect_axes(given: object, axes: str = "plot()") -> None:
    """Raise ``TypeError`` for the name of a file where axes are expected.

    Parameters
    ----------
    given : object
    axes : str, optional
        The expression for the axes of a picture, in the advice.
    """
    if isinstance(given, (str, os.PathLike)):
        name = os.fspath(given)
        raise TypeError(
            f"plot draws on matplotlib's axes, and {name!r} is the name of a file: "
            f"{axes}.figure.savefig({name!r}) saves the picture"
        )


def check_format(path: str | os.PathLike[str]) -> None:
    """Raise if a picture cannot be written: matplotlib is missing, or does not write the format.

    Parameters
    ----------
    path : path
        Its ending names the format.
    """
    matplotlib_or_why()
    from matplotlib.figure import Figure

    ending = os.path.splitext(path)[1].removeprefix(".")
    known = Figure().canvas.get_supported_filetypes()
    if ending.lower() not in known:
        raise ValueError(
            f"{os.fspath(path)}: a picture's name ends with one of .png, .svg, .pdf, or another "
            "format that matplotlib writes"
        )


def save_figure(path: str | os.PathLike[str], draw: Callable[[Figure], object]) -> None:
    """Draw into a file, without a display; its ending names the format.

    Parameters
    ----------
    path : path
    draw : callable
        Draws into the figure that it is given.
    """
    matplotlib_or_why()
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", facecolor="white")
    draw(figure)
    figure.savefig(path, dpi=DPI)
