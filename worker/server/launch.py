"""From what a server should be to one that is ready: its command line, its ports, its log."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from perdure.contract import SEARCH_ATTRIBUTES
from perdure.errors import ConfigurationError, ServerUnavailable
from worker.server.probe import is_ready
from worker.server.process import LOOPBACK, ServerProcess, find_binary, free_port, is_free

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PRAGMAS = ("journal_mode=wal", "synchronous=normal")
"""3.5 times the turns a second of SQLite's defaults. A killed server loses nothing; a machine that loses power may
lose its last moments, but not its consistency."""

ATTEMPTS = 5
"""How often to start when a port was taken between choosing it and listening. The server chooses some by itself."""

PAUSE = 0.05
"""Seconds between two looks at something that can't be waited for."""

CLAIM = 1.0
"""Seconds that a server which answers, but has not yet said in its log that it listens, must live on to be believed
ours: one that lost its port to another server ends at once, and it is the other that answers."""

TAIL = 2_000
"""How many characters of the server's log go into an error."""


@dataclass(frozen=True)
class ServerOptions:
    """What a server should be, wherever it listens. `database` None keeps everything in memory."""

    database: Path | None = None
    namespace: str = "default"
    headless: bool = False
    search_attributes: tuple[str, ...] = SEARCH_ATTRIBUTES
    dynamic_config: Mapping[str, object] = field(default_factory=dict[str, object])
    log_level: str = "warn"

    def arguments(self, port: int, ui_port: int | None) -> Iterator[str]:
        """Yield the arguments of the `temporal` program."""
        yield from ("server", "start-dev", "--ip", LOOPBACK, "--port", str(port), "--log-level", self.log_level)
        yield from ("--namespace", self.namespace)
        yield from ("--headless",) if ui_port is None else ("--ui-port", str(ui_port), "--ui-disable-news-fetch")
        if self.database:
            yield from ("--db-filename", str(self.database))
            for pragma in PRAGMAS:
                yield from ("--sqlite-pragma", pragma)
        for name in self.search_attributes:
            yield from ("--search-attribute", f"{name}=Keyword")
        for key, value in self.dynamic_config.items():
            yield from ("--dynamic-config-value", f"{key}={json.dumps(value)}")


@dataclass(frozen=True)
class Launched:
    """A server that is ready."""

    process: ServerProcess
    port: int
    ui_port: int | None


async def launch(
    options: ServerOptions, log: Path, *, port: int | None, ui_port: int | None, lock: BinaryIO | None
) -> Launched:
    """Start a server and return when it is ready. Ports that are None are chosen.

    Raises:
        ConfigurationError: no program, or a given port is taken.
        ServerUnavailable: it ended by itself; the message has the tail of its log.
    """
    binary = find_binary()
    _keep_old(log)
    for _ in range(ATTEMPTS):
        chosen = port or free_port()
        chosen_ui = None if options.headless else ui_port or free_port()
        process = await _spawn([binary, *options.arguments(chosen, chosen_ui)], log, lock)
        try:
            if await _comes_up(process, chosen, options, log):
                return Launched(process, chosen, chosen_ui)
        except BaseException:
            await process.terminate(grace=0)
            raise
        if "address already in use" not in _read(log):
            break
    if taken := [number for number in (port, ui_port) if number and not is_free(number)]:
        msg = f"port {taken[0]} of {LOOPBACK} is taken: end what listens there, or choose another port"
        raise ConfigurationError(msg)
    msg = f"the embedded server ended while it started{tail(log)}"
    raise ServerUnavailable(msg)


async def _spawn(command: Sequence[str | Path], log: Path, lock: BinaryIO | None) -> ServerProcess:
    with log.open("wb") as output:
        return await ServerProcess.spawn(command, output, lock)


async def _comes_up(process: ServerProcess, port: int, options: ServerOptions, log: Path) -> bool:
    """Wait until the server is ready, or has ended: False."""
    ready = asyncio.create_task(_becomes_ready(port, options, log))
    try:
        await asyncio.wait({ready, process.ended}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
    finally:
        ready.cancel()
    return process.running


async def _becomes_ready(port: int, options: ServerOptions, log: Path) -> None:
    while not await is_ready(f"{LOOPBACK}:{port}", options.namespace, options.search_attributes):  # noqa: ASYNC110  # nothing tells it
        await asyncio.sleep(PAUSE)
    listens = re.compile(rf"Server:\s+\S+:{port}\b")
    for _ in range(int(CLAIM / PAUSE)):
        if listens.search(_read(log)):
            return
        await asyncio.sleep(PAUSE)


def _keep_old(log: Path) -> None:
    if log.exists():
        log.replace(log.with_name(log.name + ".old"))


def _read(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


def tail(log: Path) -> str:
    """Return the end of a server's log for an error message."""
    text = _read(log).strip()
    return f"; the end of its log ({log}):\n{text[-TAIL:]}" if text else f"; its log ({log}) is empty"
