"""Options that many commands share. The functions say which options belong together, and what is made of them."""

# typer reads the annotations when the program runs, so they are no strings here, nor in the modules of the commands.

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from perdure.cli.failures import WrongUsage
from perdure.cli.places import Place, find_place
from perdure.contract import TASK_QUEUE
from perdure.identity import SessionKey

SESSION, CONNECTION = "The session", "The server"

Agent: TypeAlias = Annotated[
    str, typer.Option("--agent", "-a", envvar="PERDURE_AGENT", help="The agent.", rich_help_panel=SESSION)
]
User: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--user", "-u", envvar="PERDURE_USER", help="The user; without one it is anonymous.", rich_help_panel=SESSION
    ),
]
Session: TypeAlias = Annotated[
    str,
    typer.Option(
        "--session", "-s", envvar="PERDURE_SESSION", help="The session's name for this user.", rich_help_panel=SESSION
    ),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Temporal server. Without it: TEMPORAL_ADDRESS or a Temporal profile, the server of `perdure dev`, "
        "localhost:7233.",
        rich_help_panel=CONNECTION,
    ),
]
Namespace: TypeAlias = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace, or TEMPORAL_NAMESPACE.", rich_help_panel=CONNECTION),
]
TaskQueue: TypeAlias = Annotated[
    str,
    typer.Option(
        "--task-queue", envvar="PERDURE_TASK_QUEUE", help="The task queue of the workers.", rich_help_panel=CONNECTION
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Debug: TypeAlias = Annotated[
    bool, typer.Option("--debug", envvar="PERDURE_DEBUG", help="Show the traceback of an error.")
]


@dataclass(frozen=True, slots=True)
class Target:
    """The session that a command is about, and how it answers."""

    key: SessionKey
    place: Place
    as_json: bool


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a command is about, and how it answers."""

    place: Place
    as_json: bool = False


def session_options(
    *,
    agent: Agent = "",
    user: User = None,
    session: Session = "",
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = TASK_QUEUE,
) -> Target:
    """Read which session a command is about.

    Raises:
        WrongUsage: no agent or no session is named.
        InvalidSessionKey: what is named can't name a session.
        ConfigurationError: a `PERDURE_` variable has a value that can't be used.
    """
    if missing := [name for name, value in (("agent", agent), ("session", session)) if not value.strip()]:
        wanted = " and ".join(f"--{name} (or PERDURE_{name.upper()})" for name in missing)
        msg = f"which session? Name it by {wanted}"
        raise WrongUsage(msg)
    return Target(SessionKey(agent, session, user), find_place(address, namespace, task_queue), as_json)


def server_options(
    *, address: Address = None, namespace: Namespace = None, task_queue: TaskQueue = TASK_QUEUE
) -> Server:
    """Read which server a command is about.

    Raises:
        ConfigurationError: a `PERDURE_` variable has a value that can't be used.
    """
    return Server(find_place(address, namespace, task_queue))


def answering_server_options(
    *,
    as_json: Json = False,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = TASK_QUEUE,
) -> Server:
    """Read which server a command is about that can answer in JSON.

    Raises:
        ConfigurationError: a `PERDURE_` variable has a value that can't be used.
    """
    return Server(find_place(address, namespace, task_queue), as_json)
