"""What `perdure dev` says when it is ready: where everything is, and what to type next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.cli import deployed
from perdure.cli.places import STORAGE, configured_address, same_address
from perdure.contract import TASK_QUEUE

if TYPE_CHECKING:
    from perdure.agents import App
    from worker.embedded import EmbeddedServer
    from worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class Found:
    """The server that is used."""

    address: str
    namespace: str | None
    ui: str | None = None
    embedded: EmbeddedServer | None = None


def announcement(app: App, name: str, found: Found, settings: WorkerSettings) -> str:
    """Return where everything is, and what to type next."""
    agents = [agent.id for agent in app.agents]
    reused = found.embedded is not None and found.embedded.reused
    end = "the worker" if found.embedded is None or reused else "the worker and the server"
    data = "" if found.embedded is None else f"  (data in {settings.home})"
    lines = [
        f"Serving {name} on task queue {settings.task_queue}.",
        "",
        f"  Agents    {', '.join(agents)}",
        f"  Temporal  {found.address}{data}",
        *((f"  UI        {found.ui}",) if found.ui else ()),
        "",
        "Talk to it from another terminal:",
        "",
        f"  {_next_command(agents, found, settings)}",
        "",
        f"Ctrl-C stops {end}.",
    ]
    return "\n".join(lines)


def _next_command(agents: list[str], found: Found, settings: WorkerSettings) -> str:
    """Return a command that finds this server, from a shell that knows nothing and from one like this."""
    variables: list[str] = []
    if found.embedded is not None and settings.home != deployed.settings.default_home():
        variables.append(f"PERDURE_HOME={shlex.quote(str(settings.home))}")
    if settings.storage is not None and (found.embedded is None or settings.storage != settings.home / STORAGE):
        variables.append(f"PERDURE_STORAGE={shlex.quote(str(settings.storage))}")
    options = ["--agent", agents[0] if agents else "AGENT", "--session", "first"]
    if found.embedded is None or not same_address(configured_address() or found.address, found.address):
        options += ["--address", found.address]
    if settings.task_queue != TASK_QUEUE:
        options += ["--task-queue", settings.task_queue]
    return " ".join([*variables, "perdure", "chat", *(shlex.quote(option) for option in options)])
