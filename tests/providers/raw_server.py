"""A server that answers with exactly the bytes it was given, in exactly the pieces, on a free port of loopback."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """Bytes to write, and what comes then: the next request, the end, or silence until the client goes away."""

    data: bytes
    then: str = "next"


@dataclass
class RawServer:
    replies: list[Reply]
    port: int = 0
    requests: list[Received] = field(default_factory=list[Received])
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Received(method, path, headers, body))
        self.asked.set()
        reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
        writer.write(reply.data)
        await writer.drain()
        if reply.then == "silence" and not await reader.read():
            self.left.set()
        return reply.then == "next"


@asynccontextmanager
async def serving(*replies: Reply) -> AsyncGenerator[RawServer]:
    """Serve these replies in turn, the last one for ever."""
    server = RawServer(list(replies))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)


def head(status: int = 200, content_type: str = EVENT_STREAM, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {content_type}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(pieces: Iterable[bytes]) -> bytes:
    """Return pieces that reach the client one by one, however the network cuts them, without the end."""
    return b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces if piece)


def streamed(pieces: Iterable[bytes], content_type: str = EVENT_STREAM, then: str = "next") -> Reply:
    """Return a whole streamed answer."""
    start = head(content_type=content_type, transfer_encoding="chunked")
    return Reply(start + chunked(pieces) + b"0\r\n\r\n", then)


def whole(status: int, body: bytes | object, content_type: str = "application/json", **headers: str) -> Reply:
    """Return an answer in one body, JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(head(status, content_type, content_length=str(len(data)), **headers) + data)
