"""Which namespaces keep something in a storage: workers write it down, and a sweep looks.

Folders carry a namespace's name, and two servers may each have a namespace `default`. A sweep that asks one of them
would take the other's payloads for garbage. Temporal gives each namespace an id of its own, by which they are told
apart.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

from perdure.errors import ConfigurationError
from perdure.storage.directories import namespace_folder

if TYPE_CHECKING:
    from pathlib import Path

    from temporalio.client import Client

FOLDER = "namespaces"

_SAFE = re.compile(r"[^A-Za-z0-9-]")


async def register(client: Client, root: Path) -> str:
    """Write down that the client's namespace keeps something in the storage at `root`; return the namespace's id.

    Raises:
        RPCError: the server does not say which namespace it is.
    """
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    namespace_id = _SAFE.sub("_", answer.namespace_info.id)
    path = _folder(root, client.namespace) / namespace_id
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        address = client.service_client.config.target_host
        path.write_text(json.dumps({"namespace": client.namespace, "address": address}) + "\n", encoding="utf-8")
    return namespace_id


async def require_only(client: Client, root: Path) -> None:
    """See that no other namespace of the same name keeps anything in the storage.

    Raises:
        ConfigurationError: one does, or did. The message says what to do.
        RPCError: the server does not say which namespace it is.
    """
    ours = await register(client, root)
    others = [path for path in sorted(_folder(root, client.namespace).iterdir()) if path.name != ours]
    if others:
        msg = (
            f"another Temporal server has a namespace {client.namespace!r} too, and keeps payloads in {root}: "
            "give each server a storage of its own. If that server is gone for good, delete "
            f"{' and '.join(map(str, others))}, and what is still referred to by sessions here stays"
        )
        raise ConfigurationError(msg)


def _folder(root: Path, namespace: str) -> Path:
    return root / FOLDER / namespace_folder(namespace)
