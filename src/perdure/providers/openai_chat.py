"""A model behind any OpenAI-compatible chat completions endpoint, streamed over httpx.

The edge: connections, keys and time-outs. What goes out is made in `openai_request`, what comes back is read in `sse`
and `openai_stream`, what a refusal means is said in `openai_errors`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import httpx
from pydantic import SecretStr

from perdure.errors import ConfigurationError
from perdure.models import Delta, Emit, ModelError, ModelRequest, ModelResponse
from perdure.providers.openai_endpoint import Endpoint
from perdure.providers.openai_errors import Complaint, http_error
from perdure.providers.openai_request import request_body
from perdure.providers.openai_stream import Answer
from perdure.providers.sse import EventReader
from perdure.toolnames import outside_names
from perdure.values import freeze_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

CONNECT_TIMEOUT = 10.0
"""Seconds to reach a provider: one that takes longer is better tried again."""

READ_TIMEOUT = 60.0
"""Seconds without a single byte after which a stream counts as dead: one that works sends pieces, or comments."""

MAX_ERROR_BODY = 64 * 1024
"""Bytes read of a refusal: its message stands at the beginning."""

DRAIN = 0.2
"""Seconds given to a finished stream to end by itself, so that its connection can be used for the next call."""

OURS = frozenset({"messages", "tools", "n"})
"""Fields that `extra_body` can't replace: the conversation, and the one answer that a step has."""


class OpenAIChatModel:
    """A model of OpenAI, or of any server that speaks its chat completions API.

    One instance serves many sessions at once, over one connection pool for each event loop. A key given here or in
    the environment is in no error, no `repr` and no log.

    Args:
        name: The model's name, as the provider knows it.
        base_url: Where the API lies, `https://host/v1`; `OPENAI_BASE_URL`, or OpenAI's own by default.
        api_key: The key; `OPENAI_API_KEY` by default. A server that needs none is sent none.
        timeout: Seconds without a byte after which a call fails and may be tried again; an `httpx.Timeout` says more.
        extra_body: More fields for each request, such as `temperature`. A field that is None is left out of requests,
            for servers that refuse one (`{"stream_options": None}`).

    Raises:
        ConfigurationError: the name is blank, `extra_body` is not JSON or replaces the conversation, or the base URL
            or the key can't be used. Those from the environment are read, and checked, at the first call.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | httpx.Timeout = READ_TIMEOUT,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        """Make a model; see the class. Nothing is connected and no environment is read."""
        if not name.strip():
            msg = "the model's name is blank; give the provider's name for it, as in OpenAIChatModel('gpt-5-mini')"
            raise ConfigurationError(msg)
        self.name = name
        self._base_url = base_url
        self._api_key = None if api_key is None else SecretStr(api_key)
        self._endpoint: Endpoint | None = None
        if base_url is not None:
            Endpoint.of(base_url, self._api_key)
        self._timeout = _timeout(timeout)
        self._extra = _extra(extra_body)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def __repr__(self) -> str:
        """Name the model, and nothing that is secret."""
        return f"OpenAIChatModel({self.name!r})"

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer one request. Cancellation closes the connection, which tells the provider to stop.

        Raises:
            ModelError: the provider refused or failed, or its answer is not whole.
            httpx.TransportError: the provider could not be reached, or fell silent; another try may help.
            ConfigurationError: the environment holds no usable base URL or key.
        """
        endpoint = self._endpoint = self._endpoint or self._read_endpoint()
        inside = outside_names(spec.name for spec in request.tools)
        stream = self._client().stream(
            "POST",
            endpoint.url,
            json=request_body(self.name, request, self._extra),
            headers=_headers(request),
            auth=endpoint.auth,
        )
        try:
            async with stream as response:
                complaint = endpoint.complaint(response.headers.get("content-type", ""))
                if not response.is_success:
                    raise await _refusal(response, complaint)
                return await _answer(response, complaint, inside, emit)
        except httpx.DecodingError:
            msg = endpoint.complaint().words("sent an answer whose compression is broken")
            raise ModelError(msg, retryable=True) from None

    async def aclose(self) -> None:
        """Close the connections of this event loop. The model can be used again afterwards."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # Connections belong to the loop that made them. How many calls run at once is the worker's business.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
            client = self._clients[loop] = httpx.AsyncClient(timeout=self._timeout, limits=limits)
        return client

    def _read_endpoint(self) -> Endpoint:
        base_url = self._base_url if self._base_url is not None else os.environ.get("OPENAI_BASE_URL")
        api_key = self._api_key
        if api_key is None and "OPENAI_API_KEY" in os.environ:
            api_key = SecretStr(os.environ["OPENAI_API_KEY"])
        return Endpoint.of(base_url, api_key)


def _timeout(timeout: float | httpx.Timeout) -> httpx.Timeout:
    if isinstance(timeout, httpx.Timeout):
        return timeout
    return httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))


def _extra(extra_body: Mapping[str, object] | None) -> Mapping[str, object]:
    try:
        extra = freeze_object(extra_body or {})
    except ValueError as error:
        msg = f"extra_body is not JSON: {error}"
        raise ConfigurationError(msg) from None
    if not OURS.isdisjoint(extra):
        msg = f"extra_body can't hold {', '.join(sorted(OURS & extra.keys()))}: perdure makes it"
        raise ConfigurationError(msg)
    return extra


def _headers(request: ModelRequest) -> dict[str, str]:
    # Compression would have proxies hold pieces back until a block of them is full.
    headers = {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
    if request.operation_id:
        headers["Idempotency-Key"] = request.operation_id
    return headers


async def _answer(
    response: httpx.Response, complaint: Complaint, inside: Mapping[str, str], emit: Emit
) -> ModelResponse:
    answer, events = Answer(complaint), EventReader()
    async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as pieces:
        while not answer.done and (piece := await _next(pieces, answer)) is not None:
            for event in events.feed(piece):
                await _show(answer.add(event), emit)
        for event in events.end():
            await _show(answer.add(event), emit)
        await _show(answer.rest(), emit)
        whole = answer.response(inside)
        await _drain(pieces)
    return whole


async def _next(pieces: AsyncGenerator[bytes], answer: Answer) -> bytes | None:
    """Return the next bytes, or None when there are no more."""
    try:
        return await anext(pieces, None)
    except httpx.TransportError:
        if not answer.finished:
            raise
        return None  # all of the answer is here; only its usage may be lost


async def _drain(pieces: AsyncGenerator[bytes]) -> None:
    try:
        async with asyncio.timeout(DRAIN):
            while await anext(pieces, None) is not None:
                pass
    except (TimeoutError, httpx.HTTPError):
        pass


async def _show(text: str, emit: Emit) -> None:
    if text:
        await emit(Delta(text))


async def _refusal(response: httpx.Response, complaint: Complaint) -> ModelError:
    body = b""
    try:
        async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ERROR_BODY:
                    break
    except httpx.HTTPError:
        pass  # the status says enough
    return http_error(response.status_code, response.headers, body[:MAX_ERROR_BODY], complaint, datetime.now(UTC))
