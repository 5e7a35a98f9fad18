"""Asking a Temporal server whether it is ready to be used, by calls that its users make too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

if TYPE_CHECKING:
    from collections.abc import Collection

PATIENCE = 2.0
"""Seconds for one try. Something else may listen at the address, and never answer."""


async def is_ready(address: str, namespace: str, search_attributes: Collection[str]) -> bool:
    """Tell whether a server answers at `address`, knows the namespace, and has the search attributes in it."""
    try:
        async with asyncio.timeout(PATIENCE):
            client = await Client.connect(address, namespace=namespace)
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
            known = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=namespace)
            )
    except (RPCError, RuntimeError, TimeoutError):
        # RuntimeError is how the SDK says that nobody listens.
        return False
    return set(search_attributes) <= set(known.custom_attributes)
