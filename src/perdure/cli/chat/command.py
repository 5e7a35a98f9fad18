"""The `chat` command."""

# typer reads the annotations when the program runs, so they are no strings here.

import sys
from typing import Annotated

import typer

from perdure.cli.call import connected
from perdure.cli.chat.conversation import converse
from perdure.cli.chat.orders import WhileBusy
from perdure.cli.chat.screens import Pipe, Screen
from perdure.cli.failures import ExitCode, WrongUsage
from perdure.cli.frame import TURNS, command
from perdure.cli.options import Target, session_options


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        session_options,
        panel=TURNS,
        examples=(
            "perdure chat -a support -u alice -s orders",
            "perdure chat -a support -u alice -s orders --while-busy queue",
            "printf 'Hello\\nWhere is order A1042?\\n' | perdure chat -a support -s orders",
        ),
    )(chat)


async def chat(
    target: Target,
    *,
    while_busy: Annotated[
        WhileBusy,
        typer.Option(
            "--while-busy",
            help="What becomes of a message that is typed while the agent works: it steers the turn that runs, or "
            "waits behind it.",
        ),
    ] = WhileBusy.STEER,
) -> ExitCode:
    """Talk with an agent.

    The conversation goes on where it was left, also from another machine. You can go on typing while the agent works.
    Ctrl-C interrupts it, and clears the line when nothing runs; Ctrl-D leaves, and the session stays. /help lists what
    else can be typed.

    Without a terminal each line of standard input is a turn and each answer is printed; exit code 4 then says that a
    turn did not complete. Programs better use `perdure ask --json`.
    """
    if target.as_json:
        msg = "a conversation has no JSON; `perdure ask --json` has"
        raise WrongUsage(msg)
    return await converse(await connected(target), _screen(target), while_busy)


def _screen(target: Target) -> Screen:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Pipe()
    # prompt_toolkit takes a moment to import, and only this needs it.
    from perdure.cli.chat.person import Person  # noqa: PLC0415  # see above

    return Person(target)
