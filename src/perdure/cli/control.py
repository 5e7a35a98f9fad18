"""Commands that take hold of a session: holding it, letting it go on, ending it."""

# typer reads the annotations when the program runs, so they are no strings here.

import typer

from perdure.cli.call import connected
from perdure.cli.frame import STEERING, command
from perdure.cli.options import Actor, Reason, Target, session_options
from perdure.cli.receipts import closed, paused, tell_receipt, unpaused


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(app, session_options, panel=STEERING, examples=(f'perdure pause {about} --reason "The shop is down"',))(
        pause
    )
    command(app, session_options, panel=STEERING, examples=(f"perdure unpause {about}",))(unpause)
    command(app, session_options, panel=STEERING, examples=(f'perdure close {about} --reason "Solved"',))(close)


async def pause(target: Target, *, reason: Reason = None, actor: Actor = None) -> None:
    """Hold a session: the step that runs is finished, and no other begins until `perdure unpause`.

    Turns are accepted meanwhile, and wait.
    """
    call = await connected(target)
    receipt = await call.patiently(lambda: call.handle.pause(reason, actor=actor))
    tell_receipt(receipt, paused, as_json=target.as_json)


async def unpause(target: Target, *, reason: Reason = None, actor: Actor = None) -> None:
    """Let a session go on where `perdure pause` held it. When it is not held, nothing happens."""
    call = await connected(target)
    receipt = await call.patiently(lambda: call.handle.unpause(reason, actor=actor))
    tell_receipt(receipt, unpaused, as_json=target.as_json)


async def close(target: Target, *, reason: Reason = None, actor: Actor = None) -> None:
    """End a session. What runs or waits is cancelled; what was said stays readable, and a new turn opens it again."""
    call = await connected(target)
    receipt = await call.patiently(lambda: call.handle.close(reason, actor=actor))
    tell_receipt(receipt, closed, as_json=target.as_json)
