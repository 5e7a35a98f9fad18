"""Commands that take hold of a session: stopping what runs, ending it."""

# typer reads the annotations when the program runs, so they are no strings here.

from typing import Annotated

import typer

from perdure.cli.call import connected
from perdure.cli.frame import STEERING, command
from perdure.cli.options import Target, session_options
from perdure.cli.terminal import say, say_model
from perdure.cli.turns import Actor
from perdure.commands import Partial
from perdure.results import CloseReceipt, InterruptReceipt


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app,
        session_options,
        panel=STEERING,
        examples=(
            "perdure interrupt -a support -u alice -s orders",
            'perdure interrupt -a support -s orders --message "Wrong order" --partial discard',
        ),
    )(interrupt)
    command(
        app,
        session_options,
        panel=STEERING,
        examples=('perdure close -a support -u alice -s orders --reason "Solved"',),
    )(close)


async def interrupt(
    target: Target,
    *,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="Only if this is the run that is active; refused otherwise.")
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", help="What the model is told, as the user's words.")
    ] = None,
    partial: Annotated[Partial, typer.Option("--partial", help="What becomes of a half-spoken answer.")] = Partial.KEEP,
    actor: Actor = None,
) -> None:
    """Stop what runs in a session, wherever it runs. When nothing runs, nothing happens."""
    call = await connected(target)
    receipt = await call.patiently(
        lambda: call.handle.interrupt(run_id=run_id, message=message, partial=partial, actor=actor)
    )
    if target.as_json:
        say_model(receipt)
    else:
        say(interrupted(receipt))


async def close(
    target: Target,
    *,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the record.")] = None,
    actor: Actor = None,
) -> None:
    """End a session. What runs or waits is cancelled; what was said stays readable, and a new turn opens it again."""
    call = await connected(target)
    receipt = await call.patiently(lambda: call.handle.close(reason, actor=actor))
    if target.as_json:
        say_model(receipt)
    else:
        say(closed(receipt))


def interrupted(receipt: InterruptReceipt) -> str:
    """Return for people what an interrupt did."""
    if not receipt.interrupted:
        return "nothing was running"
    return f"interrupted turn {receipt.turn_id}, run {receipt.run_id}"


def closed(receipt: CloseReceipt) -> str:
    """Return for people what closing did."""
    return f"closed; cancelled: {', '.join(receipt.cancelled)}" if receipt.cancelled else "closed; nothing was waiting"
