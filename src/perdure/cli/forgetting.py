"""The command that forgets a user."""

# typer reads the annotations when the program runs, so they are no strings here.

from typing import Annotated

import typer

from perdure.archive import archive_from_environment
from perdure.cli.answering import Yes
from perdure.cli.asked import confirmed
from perdure.cli.failures import ExitCode, WrongUsage
from perdure.cli.frame import STATES, command
from perdure.cli.options import Server, answering_server_options
from perdure.cli.terminal import complain, one_line, say, say_json
from perdure.client import Sessions
from perdure.results import ForgetReceipt, KnownSession


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        answering_server_options,
        panel=STATES,
        examples=(
            "perdure forget -u alice",
            "perdure forget -u alice -a support -s orders --yes --json",
            "perdure forget --anonymous -a support -s visitor-17",
        ),
    )(forget)


async def forget(
    server: Server,
    *,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Whose sessions.")] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Those that belong to no user.")] = False,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Only those of this agent.")] = None,
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only those of this name.")] = None,
    yes: Yes = False,
) -> ExitCode:
    """Forget a user: end the sessions, and remove what was kept of them, in the archive, the storage and Temporal.

    It shows what would go, and asks. It can't be undone; it may be repeated. PERDURE_USER and its like are not read
    here: who is to be forgotten is said. What a tool has done outside, and what a model's provider keeps, stays.
    """
    if (user is None) is not anonymous or (user is not None and not user.strip()):
        msg = "who is to be forgotten? Name --user, or say --anonymous"
        raise WrongUsage(msg)
    archive = archive_from_environment()
    sessions = Sessions(await server.place.connect(), server.place.task_queue, archive)
    found = await sessions.kept_of(user, agent_id=agent, session_id=session)
    if found and not confirmed([*map(_line, found)], _question(found), yes=yes, otherwise="nothing was forgotten"):
        return ExitCode.REFUSED
    receipt = await sessions.forget(user, agent_id=agent, session_id=session) if found else ForgetReceipt()
    if archive is not None:
        await archive.aclose()
    if server.as_json:
        say_json(receipt.model_dump_json())
    else:
        say(_told(receipt))
    if receipt.held:
        complain(f"Temporal does not delete for us: it holds {receipt.held} runs until its retention is over")
    return ExitCode.DONE


def _line(known: KnownSession) -> str:
    key = known.key
    kept = [
        "open" if known.open else "",
        f"{_count(known.runs, 'run')} in Temporal" if known.runs else "",
        "archived" if known.archived else "",
        f"{_count(known.files, 'stored file')}" if known.files else "",
    ]
    user = key.user_id or "(anonymous)"
    return f"{one_line(key.agent_id)} · {one_line(user)} · {one_line(key.session_id)}: {', '.join(filter(None, kept))}"


def _question(found: tuple[KnownSession, ...]) -> str:
    return f"forget {_count(len(found), 'session')} for good?"


def _told(receipt: ForgetReceipt) -> str:
    if not receipt.sessions:
        return "nothing is kept of it"
    parts = [
        f"forgotten: {_count(len(receipt.sessions), 'session')}, {receipt.ended} of them ended",
        f"{receipt.entries} entries and {receipt.checkpoints} checkpoints of the archive",
        f"{receipt.files} stored files",
        f"{_count(receipt.deleted, 'run')} of Temporal",
    ]
    return "; ".join(parts)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
