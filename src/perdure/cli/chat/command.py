"""The `chat` command."""

# typer reads the annotations when the program runs, so they are no strings here.

import sys

import typer

from perdure.cli.call import connected
from perdure.cli.chat.conversation import Conversation
from perdure.cli.chat.screens import Pipe, Screen
from perdure.cli.failures import ExitCode
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
            "printf 'Hello\\nWhere is order A1042?\\n' | perdure chat -a support -s orders",
        ),
    )(chat)


async def chat(target: Target) -> ExitCode:
    """Talk with an agent.

    The conversation goes on where it was left, also from another machine. Ctrl-C interrupts the agent while it works
    and clears the line otherwise; Ctrl-D leaves, and the session stays. /help lists what else can be typed.

    Without a terminal each line of standard input is a turn and each answer is printed; exit code 4 then says that a
    turn did not complete. There is no JSON here: use `perdure ask` in programs.
    """
    call = await connected(target)
    return await Conversation(call, _screen(target)).run()


def _screen(target: Target) -> Screen:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Pipe()
    # prompt_toolkit takes a moment to import, and only this needs it.
    from perdure.cli.chat.person import Person  # noqa: PLC0415  # see above

    return Person(target)
