"""Commands that add input to what runs, or to what will."""

# typer reads the annotations when the program runs, so they are no strings here.

import typer

from perdure.cli.arguments import read_text
from perdure.cli.call import connected
from perdure.cli.frame import STEERING, command
from perdure.cli.options import ActiveRun, Actor, Target, Text, session_options
from perdure.cli.receipts import injected, steered, tell_receipt


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(
        app,
        session_options,
        panel=STEERING,
        examples=(f'perdure steer "Only orders of this year" {about}', f"git diff | perdure steer - {about}"),
    )(steer)
    command(
        app,
        session_options,
        panel=STEERING,
        examples=(f'perdure inject "The shop closes at six today" {about}',),
    )(inject)


async def steer(target: Target, *, text: Text, run_id: ActiveRun = None, actor: Actor = None) -> None:
    """Add something to the turn that runs. Its next model call sees it, without the turn being stopped.

    Refused when no turn runs: `perdure submit` says it as a turn of its own.
    """
    content = read_text(text)
    call = await connected(target)
    receipt = await call.once(lambda: call.handle.steer(content, run_id=run_id, actor=actor))
    tell_receipt(receipt, steered, as_json=target.as_json)


async def inject(target: Target, *, text: Text, actor: Actor = None) -> None:
    """Add something that the next step of whatever turn comes will see. Starts nothing."""
    content = read_text(text)
    call = await connected(target)
    receipt = await call.once(lambda: call.handle.inject(content, actor=actor))
    tell_receipt(receipt, injected, as_json=target.as_json)
