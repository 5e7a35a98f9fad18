"""What `perdure dev` does: a server and a worker that live and end together."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perdure.cli import deployed
from perdure.cli.announcing import Found, announcement
from perdure.cli.places import STORAGE, configured_address, is_local
from perdure.cli.terminal import say
from perdure.connection import connect
from perdure.errors import ConfigurationError, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from pathlib import Path

    from perdure.agents import App
    from worker.embedded import EmbeddedServer
    from worker.settings import WorkerSettings

log = logging.getLogger("perdure.dev")

PORT, UI_PORT = 7233, 8233
"""Where everybody looks for Temporal. Other ports are taken when somebody else listens there."""

GRACE = 3
"""Seconds that tools have to end when `dev` is stopped, unless PERDURE_GRACEFUL_SHUTDOWN says otherwise."""

REVIVALS = 5
"""How often in a row a server that died is tried again; a second lies between two attempts."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for on the command line."""

    port: int | None
    ui_port: int | None
    data_dir: Path | None
    address: str | None
    namespace: str | None
    task_queue: str

    @property
    def own_server(self) -> bool:
        """Whether a server of our own was asked for."""
        return not (self.port is None and self.ui_port is None and self.data_dir is None)


async def develop(app: App, name: str, wishes: Wishes) -> None:
    """Serve an app until SIGINT or SIGTERM, then stop in order what was started here.

    Raises:
        PerdureError: the server or the worker can't start, or the server dies and does not come back.
    """
    settings = _settings(wishes)
    deployed.logs.configure(settings, sys.stderr)
    with deployed.running.stop_requested() as stop:
        await _until(stop, _serve(app, name, wishes, settings))


async def _until(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Do the work until it ends or `stop` is set."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
    await asyncio.wait({working})
    if not working.cancelled():
        working.result()


async def _serve(app: App, name: str, wishes: Wishes, settings: WorkerSettings) -> None:
    async with _server(wishes, settings) as found:
        client = await deployed.running.connect_worker(settings, found.address, found.namespace)
        async with deployed.running.serving(client, app, settings):
            say(announcement(app, name, found, settings))
            if found.embedded is None:
                await asyncio.Event().wait()
            else:
                await _keep_alive(found.embedded)


def _settings(wishes: Wishes) -> WorkerSettings:
    load = deployed.settings.WorkerSettings.load
    # A version would have to be made current before it gets any session.
    given: dict[str, object] = {"task_queue": wishes.task_queue, "deployment": None, "build_id": None}
    if wishes.data_dir is not None:
        given["home"] = wishes.data_dir.absolute()
    settings = load(**given)
    if settings.storage is None:
        given["storage"] = settings.home / STORAGE
    if "graceful_shutdown" not in settings.model_fields_set:
        given["graceful_shutdown"] = GRACE
    return load(**given)


@asynccontextmanager
async def _server(wishes: Wishes, settings: WorkerSettings) -> AsyncGenerator[Found]:
    """Use the server that runs elsewhere, if an address is given; else one on the data folder, started if need be."""
    address = wishes.address or (None if wishes.own_server else configured_address())
    if address is not None:
        if await _answers(address, wishes.namespace):
            yield Found(address, wishes.namespace)
            return
        if not is_local(address):
            msg = f"no Temporal server at {address}: without --address and TEMPORAL_ADDRESS, `perdure dev` starts one"
            raise ServerUnavailable(msg)
        wishes = replace(wishes, port=_port(address))
    async with _embedded(wishes, settings) as server:
        yield Found(server.address, server.namespace, server.ui_address, server)


async def _answers(address: str, namespace: str | None) -> bool:
    try:
        await connect(address, namespace)
    except ServerUnavailable:
        return False
    return True


@asynccontextmanager
async def _embedded(wishes: Wishes, settings: WorkerSettings) -> AsyncGenerator[EmbeddedServer]:
    is_free = deployed.process.is_free
    server = deployed.embedded.EmbeddedServer(
        settings.home,
        port=wishes.port or (PORT if is_free(PORT) else None),
        ui_port=wishes.ui_port or (UI_PORT if is_free(UI_PORT) else None),
        namespace=wishes.namespace or "default",
        reuse=True,
    )
    try:
        await server.start()
    except ConfigurationError:
        if wishes.port and wishes.ui_port:
            raise
        # A port that nobody asked for was taken just now; any other will do.
        server.port, server.ui_port = wishes.port, wishes.ui_port
        await server.start()
    async with server:
        yield server


def _port(address: str) -> int | None:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else None


async def _keep_alive(server: EmbeddedServer) -> None:
    """Start the server again whenever it has ended, at the same ports.

    Raises:
        ServerUnavailable: it does not come up any more.
    """
    while True:
        address, ui = server.address, server.ui_address
        code = await server.wait_closed()
        log.warning("the Temporal server has ended; starting it again", extra={"exit_code": code})
        server.port = _port(address)
        server.ui_port = server.ui_port if ui is None else _port(ui)
        await _revive(server)
        log.info("the Temporal server is back", extra={"address": server.address})


async def _revive(server: EmbeddedServer) -> None:
    for _ in range(REVIVALS - 1):
        try:
            return await server.start()
        except ServerUnavailable:
            await asyncio.sleep(1)
    return await server.start()
