"""Commands about a session's state as a whole: making it shorter, taking it elsewhere."""

# typer reads the annotations when the program runs, so they are no strings here.

import sys
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.call import connected
from perdure.cli.failures import WrongUsage
from perdure.cli.frame import STATES, command
from perdure.cli.options import Actor, Target, session_options
from perdure.cli.terminal import say, say_json
from perdure.client import Sessions
from perdure.state import AgentState


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(app, session_options, panel=STATES, examples=(f"perdure clear {about} --when-idle",))(clear)
    command(app, session_options, panel=STATES, examples=(f"perdure compact {about}",))(compact)
    command(app, session_options, panel=STATES, examples=(f"perdure fork another {about}",))(fork)
    command(app, session_options, panel=STATES, examples=(f"perdure export a1042.json {about}",))(export)
    command(
        app,
        session_options,
        panel=STATES,
        name="import",
        examples=(
            f"perdure import a1042.json {about}",
            f"perdure export {about} | perdure import - -a support -s copy",
        ),
    )(import_)


async def clear(
    target: Target,
    *,
    when_idle: Annotated[bool, typer.Option("--when-idle", help="Wait until no turn runs, and clear then.")] = False,
    actor: Actor = None,
) -> None:
    """Have the model forget what was said. All else stays: permissions, tasks, groups; and the transcript, whole."""
    call = await connected(target)
    revision = await call.once(lambda: call.handle.clear_context(when_idle=when_idle, actor=actor))
    _told(target, revision, "cleared")


async def compact(target: Target, *, actor: Actor = None) -> None:
    """Put a summary, made by the agent's model, in the place of the older messages, before the next step."""
    call = await connected(target)
    revision = await call.patiently(lambda: call.handle.compact(actor=actor))
    _told(target, revision, "a summary is being made")


def _told(target: Target, revision: int, words: str) -> None:
    if target.as_json:
        say_json(f'{{"revision": {revision}}}')
    else:
        say(f"{words}; the state is at revision {revision}")


async def fork(
    target: Target, *, new_session: Annotated[str, typer.Argument(metavar="NEW_SESSION", help="Its name.")]
) -> None:
    """Make another session from this one's state, for the same agent and user. This one must be at rest."""
    call = await connected(target)
    made = await call.once(lambda: call.handle.fork(new_session))
    say_json(f'{{"workflow_id": "{made.workflow_id}"}}') if target.as_json else say(f"made {made.workflow_id}")


async def export(
    target: Target,
    *,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Where to; `-`, the default, is standard output.")
    ] = "-",
) -> None:
    """Write a session's state as JSON, as `perdure import` and `AgentState.from_json` read it."""
    call = await connected(target)
    state = await call.patiently(call.handle.state)
    if file == "-":
        say_json(state.to_json())
    else:
        _write(Path(file), state.to_json())
        say(f"wrote {file}: {len(state.context)} messages")


async def import_(
    target: Target,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The state; `-` reads it from standard input.")],
) -> None:
    """Make a new session from a state: one of perdure, or of AgentScope 2 for Java or Python.

    The names on the command line win over those in the state. Exit code 1: the session exists.
    """
    state = AgentState.from_json(_read(file))
    client = await target.place.connect()
    key = target.key
    sessions = Sessions(client, target.place.task_queue)
    made = await sessions.create(key.agent_id, key.session_id, key.user_id, state=state)
    if target.as_json:
        say_json(f'{{"workflow_id": "{made.workflow_id}"}}')
    else:
        say(f"made {made.workflow_id}: {len(state.context)} messages")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        msg = f"{file} can't be written: {error.strerror}"
        raise WrongUsage(msg) from None


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        msg = f"{file} can't be read: {error.strerror}"
        raise WrongUsage(msg) from None
