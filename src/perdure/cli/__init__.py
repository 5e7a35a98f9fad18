"""The command line. `main` is the `perdure` command; each command is a function in a module of its group."""

from perdure.cli.root import main

__all__ = ["main"]
