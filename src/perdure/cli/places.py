"""Finding the server that a command talks to, and the storage that it shares with that server's workers.

The address is, in this order: `--address`, Temporal's own variables and profiles, the embedded server that runs on
the home folder, Temporal's default. Whoever talks to that embedded server uses the storage beside it, as `perdure dev`
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.envconfig import ClientConfig

from perdure.cli import deployed
from perdure.connection import DEFAULT_ADDRESS, connect, data_converter

if TYPE_CHECKING:
    from pathlib import Path

    from temporalio.client import Client
    from temporalio.converter import DataConverter

    from perdure.storage.places import StoragePlace

STORAGE = "storage"
"""The folder for large payloads in the home folder."""

LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works. `address` and `namespace` are None where Temporal's own variables and profiles decide."""

    home: Path
    task_queue: str
    storage: StoragePlace | None
    threshold: int
    address: str | None = None
    namespace: str | None = None

    @property
    def converter(self) -> DataConverter:
        """The converter that the server's workers use too."""
        return data_converter(self.storage, self.threshold)

    async def connect(self) -> Client:
        """Connect to the server.

        Raises:
            ServerUnavailable: nobody answers there.
        """
        return await connect(self.address, self.namespace, converter=self.converter)


def configured_address() -> str | None:
    """Return the address that Temporal's own variables or profile give, if they do."""
    return ClientConfig.load_client_connect_config().get("target_host")


def find_place(address: str | None, namespace: str | None, task_queue: str, home: Path | None = None) -> Place:
    """Return where a command with these options works.

    Raises:
        ConfigurationError: a `PERDURE_` variable has a value that can't be used.
    """
    settings = deployed.settings.WorkerSettings.load(**({} if home is None else {"home": home}))
    wanted = address or configured_address()
    record = deployed.embedded.running_server(settings.home)
    storage = settings.storage
    if record is not None and same_address(wanted or record.address, record.address):
        storage = storage or settings.home / STORAGE
        address = wanted or record.address
        namespace = namespace or (record.namespace if wanted is None else None)
    return Place(
        home=settings.home,
        task_queue=task_queue,
        storage=storage,
        threshold=settings.storage_threshold,
        address=address,
        namespace=namespace,
    )


def same_address(one: str, other: str) -> bool:
    """Tell whether two addresses are the same, however this machine is called in them."""
    return _parts(one) == _parts(other)


def _parts(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return ("localhost" if host in LOCAL else host, port)


def is_local(address: str) -> bool:
    """Tell whether the address is this machine's own."""
    return _parts(address)[0] == "localhost"


def readable(address: str | None) -> str:
    """Return the address for a message."""
    return address or configured_address() or DEFAULT_ADDRESS
