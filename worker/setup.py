"""What a Temporal server needs before sessions can run on it: perdure's search attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.service import RPCError, RPCStatusCode

from perdure.contract import SEARCH_ATTRIBUTES
from perdure.errors import ServerUnavailable, SetupRequired

if TYPE_CHECKING:
    from temporalio.client import Client


async def missing_attributes(client: Client) -> tuple[str, ...]:
    """Return the search attributes that the namespace lacks.

    Raises:
        ServerUnavailable: the server doesn't say.
    """
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        answer = await client.operator_service.list_search_attributes(request)
    except RPCError as error:
        msg = f"the server does not say which search attributes it has: {error}"
        raise ServerUnavailable(msg) from error
    return tuple(name for name in SEARCH_ATTRIBUTES if name not in answer.custom_attributes)


async def register_attributes(client: Client) -> tuple[str, ...]:
    """Register what is missing, and return it. Doing it again is harmless.

    Raises:
        ServerUnavailable: the server refuses; Temporal Cloud has them added in its own console or by `tcld`.
    """
    missing = await missing_attributes(client)
    if missing:
        kinds = dict.fromkeys(missing, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
        try:
            await client.operator_service.add_search_attributes(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                msg = f"the server did not register {', '.join(missing)}: {error}"
                raise ServerUnavailable(msg) from error
    return missing


async def require_attributes(client: Client) -> None:
    """See that sessions can run here.

    Raises:
        SetupRequired: the namespace lacks search attributes; the message names the command that adds them.
    """
    missing = await missing_attributes(client)
    if missing:
        msg = (
            f"namespace {client.namespace!r} lacks the search attributes {', '.join(missing)}: "
            "run `perdure setup` once for this server"
        )
        raise SetupRequired(msg)
