"""What a worker sets that the SDK has no public name for: should a new version of it do without, this says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from perdure import Agent, App
from perdure.connection import connect
from perdure.testing import ScriptedModel
from worker.assembly import ACTIVATION_SECONDS, worker_for
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from worker.embedded import EmbeddedServer


async def test_a_burst_of_signals_has_as_long_as_the_server_gives_a_task(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    client = await connect(server.address)
    app = App([Agent("a", ScriptedModel([]))])
    async with worker_for(client, app, WorkerSettings.load(home=tmp_path)) as worker:
        inner = worker._workflow_worker  # pyright: ignore[reportPrivateUsage]
        limit = cast("dict[str, object]", vars(inner))["_deadlock_timeout_seconds"]
        assert limit == ACTIVATION_SECONDS
