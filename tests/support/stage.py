"""A model that a test speaks for: each call waits until the test says how it goes on. And tools that wait alike."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure import Delta, Effect, ModelRequest, ModelResponse, Tool, ToolCall, ToolContext, tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.models import Emit

PATIENCE = 30
"""Seconds that a call may take to come before a test fails."""


@dataclass
class Speaking:
    """One model call."""

    request: ModelRequest
    emit: Emit
    ending: asyncio.Future[ModelResponse]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, text: str) -> None:
        """Stream a piece of the answer."""
        await self.emit(Delta(text))

    def answer(self, text: str = "", *calls: ToolCall) -> None:
        """End the call with an answer."""
        self.ending.set_result(ModelResponse(text, calls, finish_reason="tool_calls" if calls else "stop"))

    def fail(self, error: Exception) -> None:
        """End the call with an error."""
        self.ending.set_exception(error)

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self.ending.done() or self.cancelled.is_set()

    @property
    def heard(self) -> list[str]:
        """What the model was told, in short."""
        return [message.text for message in self.request.messages]


class Stage:
    """The model. `deaf` calls go on when they are cancelled once, like a provider that misses a disconnect."""

    def __init__(self, *, deaf: bool = False) -> None:
        """Begin without any call."""
        self.calls: list[Speaking] = []
        self._deaf = deaf
        self._came = asyncio.Condition()

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Wait for the test's word."""
        call = Speaking(request, emit, asyncio.get_running_loop().create_future())
        async with self._came:
            self.calls.append(call)
            self._came.notify_all()
        while True:
            try:
                return await asyncio.shield(call.ending)
            except asyncio.CancelledError:
                again = call.cancelled.is_set()
                call.cancelled.set()
                if not self._deaf or again:
                    raise

    async def call(self, number: int) -> Speaking:
        """Return call number so and so, from 1, as soon as it is made."""
        async with asyncio.timeout(PATIENCE), self._came:
            await self._came.wait_for(lambda: len(self.calls) >= number)
        return self.calls[number - 1]

    async def call_of(self, turn_id: str) -> Speaking:
        """Return a call of this turn that has not ended, as soon as there is one."""

        def open_calls() -> list[Speaking]:
            return [each for each in self.calls if each.request.turn_id == turn_id and not each.over]

        async with asyncio.timeout(PATIENCE), self._came:
            await self._came.wait_for(lambda: bool(open_calls()))
        return open_calls()[0]


@dataclass
class Prop:
    """A tool that begins, waits for the test's word, and ends. What it was given and what became of it can be seen."""

    effect: Effect
    name: str
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    operations: list[str] = field(default_factory=list[str])

    def tool(self, **options: object) -> Tool:
        """Return it as a tool."""
        decorate: Callable[..., Tool] = tool(name=self.name, effect=self.effect, **options)  # type: ignore[call-overload]

        async def act(ctx: ToolContext) -> str:
            """Act, when told to."""
            self.operations.append(ctx.operation_id)
            self.begun.set()
            try:
                await self.finish.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "done"

        return decorate(act)
