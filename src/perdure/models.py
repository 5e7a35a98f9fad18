"""What a model is to perdure: something that completes a request. Providers live elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from perdure.errors import PerdureError
from perdure.messages import Message, Usage
from perdure.operations import Effect
from perdure.values import EMPTY, JsonObject


class Purpose(StrEnum):
    """What a model call is for."""

    ANSWER = "answer"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: JsonObject
    effect: Effect = Effect.ONCE
    group: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asks for. `id` is the provider's; it is not trusted and may be missing.

    `problem` says why the provider's arguments could not be read as a JSON object; `arguments` is empty then, and the
    call gets an error result with these words.
    """

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    id: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer, as it is streamed."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """All that one model call needs.

    `operation_id` is the same for every attempt of the call; send it as `Idempotency-Key`.
    """

    purpose: Purpose
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    operation_id: str = ""
    turn_id: str = ""
    run_id: str = ""
    step: int = 1
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # type: ignore[assignment,return-value]


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A model's whole answer.

    `finish_reason` is what the provider said: `stop` or `tool_calls` for a whole answer. `length`, or an empty one,
    marks an answer that was cut off: it runs no tool call and is no answer.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] | list[ToolCall] = ()
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = "stop"
    thinking: str = ""


Emit = Callable[[Delta], Awaitable[None]]


@runtime_checkable
class Model(Protocol):
    """Completes requests. One instance serves many sessions at once.

    `complete` is cancelled when the turn is interrupted or the worker stops: let `CancelledError` through and close
    the connection. It may be called again with the same request after a failure or a worker's death. What is given to
    `emit` may be kept as a partial answer after an interrupt. Raise `ModelError` to say whether another try helps.
    """

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer one request.

        Raises:
            ModelError: the provider refused or failed, and whether another try can help.
        """
        ...


class ModelError(PerdureError):
    """A model call failed.

    Args:
        message: What happened, for the turn's error. No keys or tokens belong in it.
        retryable: Whether the same request may succeed later.
        retry_after: How long the provider asked to wait: seconds, or a timedelta.
        status: The HTTP status, if there was one.
    """

    def __init__(
        self,
        message: str,
        retryable: bool = False,  # noqa: FBT001, FBT002  # public signature, also used by position
        retry_after: float | timedelta | None = None,
        status: int | None = None,
    ) -> None:
        """Make an error; see the class."""
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = timedelta(seconds=retry_after) if isinstance(retry_after, int | float) else retry_after
        self.status = status
