"""The `perdure` command itself: what it is, its groups of commands, its way in."""

# typer reads the annotations when the program runs, so they are no strings here.

import inspect
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from perdure.cli import (
    answering,
    chat,
    control,
    forgetting,
    reading,
    rehearsing,
    serving,
    settling,
    states,
    steering,
    stopping,
    sweeping,
    turns,
    upgrading,
)
from perdure.cli.failures import ExitCode
from perdure.cli.frame import end_program, reflow
from perdure.cli.terminal import say
from perdure.deployment import make_importable

OVERVIEW = """Durable sessions with AI agents, on Temporal.

Start here: [bold]perdure dev my_module:app[/bold] serves the app of your module on this machine, and
[bold]perdure chat --agent support --session first[/bold] talks to it from another terminal.

A session is named by agent, user and session: by options, or by PERDURE_AGENT, PERDURE_USER and PERDURE_SESSION.
The server is found by --address, by TEMPORAL_ADDRESS and its like, or where `perdure dev` runs it.
"""

CODES = """[bold]Exit codes[/bold]
0  done
1  refused; the reason is on standard error
2  wrong usage
3  no server, or one that is not set up
4  the turn did not complete: failed, interrupted, suspended, or not in time"""


def tell_version(wanted: bool) -> None:  # noqa: FBT001  # typer calls it so
    """Print the version and leave, if that is wanted.

    Raises:
        Exit: it is.
    """
    if wanted:
        say(f"perdure {version('perdure')}")
        raise typer.Exit(ExitCode.DONE)


def make_app() -> typer.Typer:
    """Return the program, with all its commands."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=reflow(OVERVIEW), epilog=CODES)
    app.callback()(perdure)
    for module in (
        *(chat, turns, serving, reading, stopping, steering, control),
        *(answering, settling, states, forgetting, sweeping, rehearsing, upgrading),
    ):
        module.register(app)
    return app


def perdure(
    *,
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=tell_version)
    ] = False,
) -> None:
    """Options of the program itself; `OVERVIEW` is its help."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line, with the program's own arguments by default, and exit with its code.

    Raises:
        SystemExit: always, when it is called from anywhere but the program itself, which is ended.
    """
    code = run(argv)
    here = inspect.currentframe()
    if here and here.f_back and here.f_back.f_globals.get("__name__") == "__main__":
        end_program(code)
    sys.exit(code)


def _open_missing_streams() -> None:
    """Put nothing in the place of streams that the program was started without."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # open as long as the program runs


def run(argv: list[str] | None) -> int:
    """Run a command and return its exit code."""
    make_importable()
    _open_missing_streams()
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        # typer colours its help for some CI systems even when nobody looks; this is how it is told not to.
        os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        make_app()(args=argv, prog_name="perdure")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.DONE
    return ExitCode.DONE
