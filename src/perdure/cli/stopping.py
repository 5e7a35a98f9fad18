"""Commands that stop turns, take them up again, or give them up."""

# typer reads the annotations when the program runs, so they are no strings here.

from typing import Annotated

import typer

from perdure.cli.call import connected
from perdure.cli.failures import ExitCode
from perdure.cli.frame import STEERING, command
from perdure.cli.options import ActiveRun, Actor, RunId, Target, Timeout, Turn, session_options
from perdure.cli.receipts import came_too_late, cancelled, interrupted, resumed, tell_receipt
from perdure.cli.terminal import complain
from perdure.cli.turns import check_wait, fetch
from perdure.commands import Partial
from perdure.results import TurnStatus


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(
        app,
        session_options,
        panel=STEERING,
        examples=(
            f"perdure interrupt {about}",
            f'perdure interrupt {about} --message "Wrong order" --partial discard',
        ),
    )(interrupt)
    command(
        app,
        session_options,
        panel=STEERING,
        examples=(f"perdure resume m-1 {about}", f"perdure resume m-1 {about} --wait --timeout 60"),
    )(resume)
    command(app, session_options, panel=STEERING, examples=(f"perdure cancel m-1 {about}",))(cancel)


async def interrupt(
    target: Target,
    *,
    run_id: ActiveRun = None,
    message: Annotated[
        str | None, typer.Option("--message", help="What the model is told, as the user's words.")
    ] = None,
    partial: Annotated[Partial, typer.Option("--partial", help="What becomes of a half-spoken answer.")] = Partial.KEEP,
    actor: Actor = None,
) -> None:
    """Stop what runs in a session, wherever it runs. When nothing runs, nothing happens.

    The turn can be taken up again by `perdure resume`, or given up for good by `perdure cancel`.
    """
    call = await connected(target)
    receipt = await call.once(
        lambda: call.handle.interrupt(run_id=run_id, message=message, partial=partial, actor=actor)
    )
    tell_receipt(receipt, interrupted, as_json=target.as_json)
    if message and not receipt.interrupted:
        complain("the message was said to nobody; `perdure inject` says it to the next turn")


async def resume(
    target: Target,
    *,
    turn: Turn,
    run_id: RunId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is settled, and print the answer.")] = False,
    timeout: Timeout = None,  # an option of the command
    actor: Actor = None,
) -> ExitCode:
    """Go on with a turn that was interrupted or has failed. What was said and done is kept; nothing is said again.

    It is the latest unfinished turn that can be resumed; `perdure view` names it. With --wait, exit code 4: the turn
    did not complete this time either.
    """
    check_wait(wait=wait, timeout=timeout)
    call = await connected(target)
    receipt = await call.once(lambda: call.handle.resume(turn, run_id=run_id, actor=actor))
    if wait:
        return await fetch(call, turn, timeout)
    tell_receipt(receipt, resumed, as_json=target.as_json)
    return ExitCode.DONE


async def cancel(target: Target, *, turn: Turn, actor: Actor = None) -> None:
    """Have a turn be over for good, whether it waits, runs or was interrupted. Twice is the same as once."""
    call = await connected(target)
    before = await call.patiently(lambda: call.handle.turn(turn))
    receipt = await call.patiently(lambda: call.handle.cancel(turn, actor=actor))
    late = before.status is TurnStatus.COMPLETED
    tell_receipt(receipt, came_too_late if late else cancelled, as_json=target.as_json)
