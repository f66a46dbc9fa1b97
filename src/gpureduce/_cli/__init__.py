"""The command ``gpureduce``, and its subcommands as magics of IPython."""

from .command import main

__all__ = ["main"]
