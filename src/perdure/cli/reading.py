"""Commands that look into sessions. They change nothing and create nothing."""

# typer reads the annotations when the program runs, so they are no strings here.

import json
from collections.abc import AsyncIterator
from typing import Annotated

import typer

from perdure.cli.call import Call, connected
from perdure.cli.entries import entry_line
from perdure.cli.frame import READING, command
from perdure.cli.options import Server, Target, Turn, answering_server_options, session_options
from perdure.cli.shapes import sessions_table, state_table, turn_table, view_table
from perdure.cli.terminal import say, say_json, say_model, show
from perdure.cli.waiting import is_unanswered, told_when_nobody_works
from perdure.client import Sessions
from perdure.errors import ServerUnavailable
from perdure.results import SessionInfo, SessionStatus, TranscriptEntry


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(app, session_options, panel=READING, examples=(f"perdure view {about}", f"perdure view {about} --json"))(
        view
    )
    command(
        app,
        session_options,
        panel=READING,
        examples=(f"perdure state {about}", f"perdure state {about} --json > a.json"),
    )(state)
    command(app, session_options, panel=READING, examples=(f"perdure turn m-1 {about}",))(turn)
    command(
        app,
        session_options,
        panel=READING,
        examples=(f"perdure transcript {about}", f"perdure transcript {about} --follow --json"),
    )(transcript)
    command(
        app,
        answering_server_options,
        panel=READING,
        examples=("perdure sessions --agent support", "perdure sessions --status needs_approval --json"),
    )(sessions)


async def view(target: Target) -> None:
    """Show a session at a glance: what runs, what waits, what it needs from people."""
    call = await connected(target)
    found = await call.patiently(call.handle.view)
    if target.as_json:
        say_model(found)
    else:
        show(view_table(found))


async def state(target: Target) -> None:
    """Show a session's state. With --json all of it: exactly the AgentState, as `AgentState.from_json` reads it."""
    call = await connected(target)
    found = await call.patiently(call.handle.state)
    if target.as_json:
        say_json(found.to_json())
    else:
        show(state_table(found))


async def turn(target: Target, *, turn: Turn) -> None:
    """Show one turn as it stands: input, output, runs."""
    call = await connected(target)
    found = await call.patiently(lambda: call.handle.turn(turn))
    if target.as_json:
        say_model(found)
    else:
        show(turn_table(found))


async def transcript(
    target: Target,
    *,
    after: Annotated[int, typer.Option("--after", min=0, help="Only what comes behind this number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """Show all that was ever said, done and decided in a session, an entry a line.

    With --json each line is a JSON object.
    """
    call = await connected(target)
    async for entry in entries(call, after, follow=follow):
        if target.as_json:
            say_model(entry)
        else:
            say(entry_line(entry))


async def entries(call: Call, after: int = 0, *, follow: bool = False) -> AsyncIterator[TranscriptEntry]:
    """Yield transcript entries, through times without a worker."""
    async with told_when_nobody_works(call.handle, call.target.place):
        while True:
            try:
                async for entry in call.handle.transcript(after, follow=follow):
                    yield entry
                    after = entry.seq
            except ServerUnavailable as error:
                if not is_unanswered(error):
                    raise
            else:
                return


async def sessions(
    server: Server,
    *,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Only this agent's.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only this user's.")] = None,
    status: Annotated[SessionStatus | None, typer.Option("--status", help="Only those in this status.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
) -> None:
    """List sessions, the newest first, as far as Temporal's visibility has heard of them: up to a moment ago."""
    client = await server.place.connect()
    found = [info async for info in _at_most(limit, Sessions(client).list(agent, user, status))]
    if server.as_json:
        say_json(json.dumps([json.loads(info.model_dump_json()) for info in found], ensure_ascii=False))
    else:
        show(sessions_table(found))


async def _at_most(limit: int, found: AsyncIterator[SessionInfo]) -> AsyncIterator[SessionInfo]:
    for _ in range(limit):
        try:
            yield await anext(found)
        except StopAsyncIteration:
            return
