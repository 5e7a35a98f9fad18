"""The context cache: what sessions have said, kept on the worker so that history need not carry it again and again.

A wrong context is impossible: whatever the cache holds is used only if its digest is the one that the session asked
for, and is read from the session otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from perdure.contract import ContextPage, Mark, ModelCall, PageRequest
from perdure.messages import Message, chain, context_origin
from perdure.values import json_bytes

ReadPage = Callable[[PageRequest], Awaitable[ContextPage]]


class ContextMovedOnError(Exception):
    """The session's context is no longer the one that the call was made for."""


@dataclass(frozen=True, slots=True)
class Context:
    """A summary, the messages behind it, and the digest and the size in bytes after each number of them."""

    summary: str
    messages: tuple[Message, ...]
    digests: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def empty(cls, summary: str = "") -> Context:
        """Return a context in which nothing was said yet."""
        return cls(summary, (), (context_origin(summary),), (len(summary.encode(errors="surrogatepass")),))

    @property
    def size(self) -> int:
        """Bytes of JSON."""
        return self.sizes[-1]

    @property
    def mark(self) -> Mark:
        """The context's end."""
        return Mark(position=len(self.messages), digest=self.digests[-1])

    def plus(self, messages: Sequence[Message]) -> Context:
        """Return the context with more messages."""
        digests, sizes = list(self.digests), list(self.sizes)
        for message in messages:
            digests.append(chain(digests[-1], message))
            sizes.append(sizes[-1] + json_bytes(message))
        return Context(self.summary, (*self.messages, *messages), tuple(digests), tuple(sizes))

    def upto(self, mark: Mark) -> Context | None:
        """Return the part up to a mark, or None if this context never was what the mark says."""
        end = mark.position + 1
        if end > len(self.digests) or self.digests[mark.position] != mark.digest:
            return None
        if end == len(self.digests):
            return self
        return Context(self.summary, self.messages[: mark.position], self.digests[:end], self.sizes[:end])


class ContextCache:
    """Contexts by session, the most recently used ones, up to a number of bytes of JSON."""

    def __init__(self, max_bytes: int) -> None:
        """Keep at most `max_bytes`."""
        self.max_bytes = max_bytes
        self.size = 0
        self._contexts: OrderedDict[str, Context] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def keep(self, workflow_id: str, context: Context) -> None:
        """Remember a session's context, and forget the ones that were used least recently."""
        self.drop(workflow_id)
        self._contexts[workflow_id] = context
        self.size += context.size
        while self.size > self.max_bytes and self._contexts:
            _, forgotten = self._contexts.popitem(last=False)
            self.size -= forgotten.size

    def drop(self, workflow_id: str) -> None:
        """Forget a session's context."""
        forgotten = self._contexts.pop(workflow_id, None)
        if forgotten is not None:
            self.size -= forgotten.size

    def peek(self, workflow_id: str, mark: Mark) -> Context | None:
        """Return a session's context up to a mark, if it is here."""
        context = self._contexts.get(workflow_id)
        return None if context is None else context.upto(mark)

    async def load(self, workflow_id: str, call: ModelCall, read_page: ReadPage) -> Context:
        """Return the context that a model call is for, reading from the session what is missing here.

        Raises:
            ContextMovedOnError: the session's context has changed since the call was made.
        """
        cached = self._contexts.get(workflow_id)
        context = None if cached is None else _continued(cached, call)
        if context is None:
            self.misses += 1
            context = await _read(call, cached, read_page)
        else:
            self.hits += 1
        self._keep_longer(workflow_id, context)
        return context

    def _keep_longer(self, workflow_id: str, context: Context) -> None:
        """Remember a context, or what is here already if that goes on from it: a late call must not shorten it."""
        held = self._contexts.get(workflow_id)
        longer = held is not None and held.upto(context.mark) is not None
        self.keep(workflow_id, held if held is not None and longer else context)


def _continued(cached: Context, call: ModelCall) -> Context | None:
    """Return the context of a call from what is cached and what came with the call, if that is enough."""
    whole = cached.upto(call.head)
    if whole is not None:
        return whole
    base = cached.upto(call.base)
    if base is None or call.delta is None:
        return None
    context = base.plus(call.delta)
    return context if context.mark == call.head else None


async def _read(call: ModelCall, cached: Context | None, read_page: ReadPage) -> Context:
    if call.base.position == 0 and call.delta is not None:
        context = Context.empty().plus(call.delta)
        if context.mark == call.head:
            return context
    context = await _read_from(call, cached or Context.empty(), read_page)
    if context.mark != call.head:
        context = await _read_from(call, Context.empty(), read_page)
    if context.mark != call.head:
        msg = f"the context is no longer {call.head.digest} at {call.head.position} messages"
        raise ContextMovedOnError(msg)
    return context


async def _read_from(call: ModelCall, context: Context, read_page: ReadPage) -> Context:
    """Read pages until the call's position, starting with what is there.

    Only the first page is asked for with a digest, for which the session may have to go through all its messages. If
    the context is rewritten behind that, the digest at the end is not the call's.
    """
    digest: str | None = context.mark.digest
    while True:
        page = await read_page(PageRequest(after=context.mark.position, digest=digest))
        digest = None
        if page.start != context.mark.position or page.summary != context.summary:
            context = (
                Context.empty(page.summary).plus(page.messages) if page.start == 0 else Context.empty(page.summary)
            )
        else:
            context = context.plus(page.messages)
        if context.mark.position >= call.head.position or not page.messages:
            return context.upto(call.head) or context
