"""`perdure replay`: a rehearsal of what sessions have lived through, on today's code, before that is deployed."""

# typer reads the annotations when the program runs, so they are no strings here.

from pathlib import Path
from typing import Annotated

import typer

from perdure import histories
from perdure.cli.failures import WrongUsage
from perdure.cli.frame import CARE, command
from perdure.cli.options import Server, server_options
from perdure.cli.terminal import say


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        server_options,
        panel=CARE,
        examples=("perdure replay tests/histories", "perdure replay --from-server --limit 200"),
    )(replay)


async def replay(
    server: Server,
    *,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Recorded histories, or folders of them.")
    ] = None,
    from_server: Annotated[bool, typer.Option("--from-server", help="Replay the sessions that are open now.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="With --from-server: only so many, the newest.")
    ] = None,
) -> None:
    """Check that sessions which run can go on with this code. A gate before a deploy.

    Each history is replayed. Exit code 1: one would not go the same way, and its session would be stuck.
    """
    if bool(paths) == from_server:
        msg = "name recorded histories to replay, or give --from-server"
        raise WrongUsage(msg)
    if limit is not None and not from_server:
        msg = "--limit goes with --from-server"
        raise WrongUsage(msg)
    count = 0
    if from_server:
        count = await histories.replay_from_server(await server.place.connect(), limit)
    for path in paths or ():
        count += await histories.replay(path, converter=server.place.converter)
    say(f"{count} {'history replays' if count == 1 else 'histories replay'} on this code")
