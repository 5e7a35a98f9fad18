"""Commands that give a session something to do, and fetch what came of it."""

# typer reads the annotations when the program runs, so they are no strings here.

import asyncio
from typing import Annotated, TypeAlias

import typer

from perdure.cli.arguments import pairs, read_text, turn_name
from perdure.cli.call import Call, connected
from perdure.cli.failures import ExitCode, WrongUsage
from perdure.cli.frame import TURNS, command
from perdure.cli.options import Actor, RunId, Target, Text, Timeout, Turn, session_options
from perdure.cli.receipts import accepted, tell_receipt, verdict
from perdure.cli.terminal import complain, say, say_model
from perdure.commands import OnBusy
from perdure.contract import AfterStop
from perdure.results import TurnResult, TurnStatus

NewTurn: TypeAlias = Annotated[
    str | None,
    typer.Option("--turn-id", help="A name of your own. Repeating a command with the same name and text is harmless."),
]
Busy: TypeAlias = Annotated[OnBusy, typer.Option("--on-busy", help="What to do when the session is busy.")]
Attributes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--attribute", metavar="KEY=VALUE", help="Given to tools and traces, never to the model. Repeatable."),
]
AfterInterrupt: TypeAlias = Annotated[
    AfterStop | None,
    typer.Option(
        "--after-interrupt",
        help="When this turn is interrupted: the queue goes on, or is held until the turn is resumed or cancelled. "
        "By default as its agent says.",
    ),
]
AfterFailure: TypeAlias = Annotated[
    AfterStop | None, typer.Option("--after-failure", help="The same for when this turn fails.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app,
        session_options,
        panel=TURNS,
        examples=(
            'perdure ask "Where is order A1042?" -a support -u alice -s orders',
            "git diff | perdure ask - -a reviewer -s today --json",
        ),
    )(ask)
    command(
        app,
        session_options,
        panel=TURNS,
        examples=('perdure submit "Refund order A1042" -a support -u alice -s orders --turn-id m-1',),
    )(submit)
    command(
        app,
        session_options,
        panel=TURNS,
        examples=("perdure result m-1 -a support -u alice -s orders --timeout 60",),
    )(result)


async def ask(
    target: Target,
    *,
    text: Text,
    turn_id: NewTurn = None,
    on_busy: Busy = OnBusy.ENQUEUE,
    run_id: RunId = None,
    attribute: Attributes = None,
    actor: Actor = None,
    after_interrupt: AfterInterrupt = None,
    after_failure: AfterFailure = None,
    timeout: Timeout = None,  # an option of the command
) -> ExitCode:
    """Say something to a session, wait, and print the answer.

    The session is created if it is not there. Exit code 4: the turn failed, was interrupted or waits for somebody.
    """
    content, attributes, name = read_text(text), pairs(attribute), turn_name(turn_id)
    call = await connected(target)
    try:
        async with asyncio.timeout(timeout):
            answer = await call.patiently(
                lambda: call.handle.ask(
                    content,
                    turn_id=name,
                    on_busy=on_busy,
                    run_id=run_id,
                    attributes=attributes,
                    actor=actor,
                    after_interrupt=after_interrupt,
                    after_failure=after_failure,
                )
            )
    except (TimeoutError, asyncio.CancelledError) as error:
        return unsettled(name, error)
    return tell(answer, as_json=target.as_json)


async def submit(
    target: Target,
    *,
    text: Text,
    turn_id: NewTurn = None,
    on_busy: Busy = OnBusy.ENQUEUE,
    run_id: RunId = None,
    attribute: Attributes = None,
    actor: Actor = None,
    after_interrupt: AfterInterrupt = None,
    after_failure: AfterFailure = None,
) -> None:
    """Hand a turn to a session and return as soon as that is durable.

    The session is created if it is not there. `perdure result` fetches what comes of the turn.
    """
    content, attributes, name = read_text(text), pairs(attribute), turn_name(turn_id)
    call = await connected(target)
    receipt = await call.patiently(
        lambda: call.handle.submit(
            content,
            turn_id=name,
            on_busy=on_busy,
            run_id=run_id,
            attributes=attributes,
            actor=actor,
            after_interrupt=after_interrupt,
            after_failure=after_failure,
        )
    )
    tell_receipt(receipt, accepted, as_json=target.as_json)


async def result(target: Target, *, turn: Turn, timeout: Timeout = None) -> ExitCode:  # an option
    """Wait until a turn is settled and print what came of it.

    A settled turn answers at once, however often it is asked. Exit code 4: it did not complete.
    """
    return await fetch(await connected(target), turn, timeout)


def check_wait(*, wait: bool, timeout: float | None) -> None:
    """Check the options of a command that may wait.

    Raises:
        WrongUsage: there is a time-out for a wait that is not wanted.
    """
    if timeout is not None and not wait:
        msg = "--timeout goes with --wait"
        raise WrongUsage(msg)


async def fetch(call: Call, turn_id: str, timeout: float | None) -> ExitCode:
    """Wait until a turn is settled, print what came of it, and return the exit code that says whether it completed."""
    try:
        async with asyncio.timeout(timeout):
            answer = await call.patiently(lambda: call.handle.result(turn_id))
    except (TimeoutError, asyncio.CancelledError) as error:
        return unsettled(turn_id, error)
    return tell(answer, as_json=call.target.as_json)


def tell(result: TurnResult, *, as_json: bool) -> ExitCode:
    """Print what came of a turn, and return the exit code that says whether it completed."""
    if as_json:
        say_model(result)
    elif result.output:
        say(result.output)
    if result.status is TurnStatus.COMPLETED:
        return ExitCode.DONE
    complain(verdict(result))
    return ExitCode.INCOMPLETE


def unsettled(turn_id: str, error: TimeoutError | asyncio.CancelledError) -> ExitCode:
    """Say how to find the answer that was not waited for.

    Raises:
        CancelledError: it was Ctrl-C that ended the wait.
    """
    complain(f"turn {turn_id} is not settled yet; if it was accepted, it goes on: `perdure result {turn_id}`")
    if isinstance(error, asyncio.CancelledError):
        raise error
    return ExitCode.INCOMPLETE
