"""The refund service as a process: `python -m examples.refunds.service --port 8765 --database refunds.db`.

It prints one line of JSON when it is ready, and ends in order on SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from examples.refunds.endpoints import STAFF_TOKEN_VARIABLE, Endpoints
from examples.refunds.faults import Faults
from examples.refunds.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

LOOPBACK = "127.0.0.1"

DEFAULT_PORT = 8765

GRACE_SECONDS = 5
"""How long requests under way may take when the service is told to end."""


class Service(uvicorn.Server):
    """A server that says when it is ready, and for which being told to end is no failure."""

    def __init__(self, config: uvicorn.Config, faults: Faults) -> None:
        """Make a server; `serve` runs it."""
        super().__init__(config)
        self._faults = faults

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so on standard output."""
        await super().startup(sockets)
        host, port = (sockets or [])[0].getsockname()
        print(json.dumps({"event": "ready", "url": f"http://{host}:{port}", "pid": os.getpid()}), flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """End on SIGTERM and SIGINT with code 0; uvicorn's own way would raise the signal once more at the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self._faults.release()
        self.should_exit = True


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="The refund service of the example. Listens on 127.0.0.1 only.")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--database", type=Path, default=Path("refunds.db"), help="the ledger's file (%(default)s)")
    return parser.parse_args(given)


def main() -> None:
    """Serve until told to end."""
    options = arguments()
    faults = Faults.from_environment(os.environ)
    ledger = Ledger(options.database)
    endpoints = Endpoints(ledger, faults, os.environ.get(STAFF_TOKEN_VARIABLE) or None)
    config = uvicorn.Config(
        endpoints.app(), log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS
    )
    with _listen(options.port) as listener:
        asyncio.run(Service(config, faults).serve([listener]))
    ledger.close()


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        sys.exit(f"can't listen on {LOOPBACK}:{port} ({error.strerror}); choose another port with --port, 0 for any")


if __name__ == "__main__":
    main()
