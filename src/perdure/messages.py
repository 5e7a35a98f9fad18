"""Messages, their content blocks, and the rule that makes a list of messages valid input for a model.

The rule: every tool call has exactly one result, which stands right behind the message that made the call, before
anything else is said. Form and names are AgentScope 2's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

from pydantic import BeforeValidator, Field, field_validator

from perdure.values import EMPTY, Frozen, FrozenDict, FrozenMap, JsonObject, Text, canonical_json, digest

INTERRUPTED_MARK = "perdure_interrupted"
"""The metadata key of an assistant message that was cut short or closes an interrupted turn."""

INTERRUPTED_TEXT = "(interrupted)"
"""What closes an interrupted turn when nothing of the answer was kept: models refuse an empty message."""


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class CallState(StrEnum):
    """How far a tool call is."""

    PENDING = "pending"
    ASKING = "asking"
    ALLOWED = "allowed"
    SUBMITTED = "submitted"
    FINISHED = "finished"


class ResultState(StrEnum):
    """How a tool call ended."""

    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    DENIED = "denied"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that model calls used."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Add two usages."""
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


class TextBlock(Frozen):
    """Text that anyone may read."""

    type: Literal["text"] = "text"
    text: Text

    def __init__(self, text: str | None = None, /, **data: object) -> None:
        """Make a block; the text may be given by position. Fields come by name only, as pydantic gives them."""
        super().__init__(**(data if text is None else {**data, "text": text}))


class ThinkingBlock(Frozen):
    """What a model thought before it answered. Kept, shown to operators, never sent back as an answer."""

    type: Literal["thinking"] = "thinking"
    thinking: Text

    def __init__(self, thinking: str | None = None, /, **data: object) -> None:
        """Make a block; the text may be given by position. Fields come by name only, as pydantic gives them."""
        super().__init__(**(data if thinking is None else {**data, "thinking": thinking}))


class URLSource(Frozen):
    """Data that lies elsewhere."""

    type: Literal["url"] = "url"
    url: Text
    media_type: Text | None = None


class Base64Source(Frozen):
    """Data in the message itself."""

    type: Literal["base64"] = "base64"
    media_type: Text
    data: Text


class DataBlock(Frozen):
    """An image, a sound, a video or a file; `source.media_type` says which."""

    type: Literal["data"] = "data"
    source: Annotated[URLSource | Base64Source, Field(discriminator="type")]
    name: Text | None = None


class ToolUseBlock(Frozen):
    """A tool call that a model asked for."""

    type: Literal["tool_use"] = "tool_use"
    id: Text
    name: Text
    input: JsonObject = EMPTY
    state: CallState = CallState.PENDING


OutputBlock: TypeAlias = Annotated[TextBlock | DataBlock, Field(discriminator="type")]


def _as_blocks(value: object) -> object:
    """Read a plain string as one text block."""
    return (TextBlock(value),) if isinstance(value, str) else value


class ToolResultBlock(Frozen):
    """What came of a tool call; `id` is the call's."""

    type: Literal["tool_result"] = "tool_result"
    id: Text
    name: Text
    output: Annotated[tuple[OutputBlock, ...], BeforeValidator(_as_blocks)] = ()
    state: ResultState = ResultState.SUCCESS
    metadata: JsonObject = EMPTY

    @property
    def text(self) -> str:
        """The text of the output, blocks joined by line ends."""
        return "\n".join(block.text for block in self.output if isinstance(block, TextBlock))


Block: TypeAlias = Annotated[
    TextBlock | ThinkingBlock | DataBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]
Blocks = Annotated[tuple[Block, ...], BeforeValidator(_as_blocks)]


class Message(Frozen):
    """One message of a conversation. `content` also takes a plain string."""

    id: Text
    name: Text | None = None
    role: Role
    content: Blocks = ()
    metadata: JsonObject = EMPTY
    timestamp: Text | None = None
    usage: Usage | None = None

    if TYPE_CHECKING:

        def __init__(  # noqa: D107  # what a type checker should know: content may be a string, and a role too
            self,
            *,
            id: str,  # noqa: A002  # the field's name
            role: Role | str,
            content: str | Sequence[Block] = (),
            name: str | None = None,
            metadata: Mapping[str, object] = EMPTY,
            timestamp: str | None = None,
            usage: Usage | None = None,
        ) -> None: ...

    @field_validator("role", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @field_validator("metadata", mode="before")
    @classmethod
    def _no_metadata(cls, value: object) -> object:
        return EMPTY if value is None else value

    @property
    def text(self) -> str:
        """The text that a person reads: text blocks joined by line ends, without thinking, calls and results."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls of this message, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))

    @property
    def results(self) -> tuple[ToolResultBlock, ...]:
        """The tool results of this message, in order."""
        return tuple(block for block in self.content if isinstance(block, ToolResultBlock))

    @property
    def interrupted(self) -> bool:
        """Whether the message was cut short by an interrupt or closes an interrupted turn."""
        return self.metadata.get(INTERRUPTED_MARK) is True


def as_blocks(content: str | Sequence[Block]) -> tuple[Block, ...]:
    """Return content as blocks, a string as one text block."""
    return (TextBlock(content),) if isinstance(content, str) else tuple(content)


def blocks_text(blocks: Iterable[Block]) -> str:
    """Return the text that a person would read in these blocks."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def as_json(model: Frozen) -> FrozenDict:
    """Return a model as frozen JSON."""
    return cast("FrozenDict", _frozen(model.model_dump(mode="json")))


def _frozen(value: object) -> object:
    # The model was cleaned when it was made: this only changes the containers, at a fraction of the cost of `freeze`.
    if isinstance(value, Mapping):
        return FrozenMap({key: _frozen(item) for key, item in cast("Mapping[str, object]", value).items()})  # type: ignore[misc]
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in cast("Sequence[object]", value))
    return value


def flaws(messages: Iterable[Message]) -> Iterator[str]:
    """Yield what makes these messages invalid input for a model; nothing when they are well-formed.

    Each call needs one result, in the messages right behind it; results need a call; call ids are unique.
    """
    owed: list[str] = []
    seen: set[str] = set()
    for message in messages:
        results = [result.id for result in message.results]
        if owed and not results:
            yield f"message {message.id} comes before the results of {', '.join(owed)}"
            owed = []
        for call_id in results:
            if call_id in owed:
                owed.remove(call_id)
            else:
                yield f"message {message.id} has a result for {call_id}, which is not an open call"
        for call in message.calls:
            if call.id in seen:
                yield f"message {message.id} uses the call id {call.id} again"
            seen.add(call.id)
            owed.append(call.id)
    if owed:
        yield f"no result for {', '.join(owed)}"


GENESIS = digest(b"perdure:context")
"""The digest of an empty context without a summary."""


def context_origin(summary: str) -> str:
    """Return the digest that a context starts from: it covers the summary that stands before its messages."""
    return digest(f"{GENESIS}\n{summary}".encode()) if summary else GENESIS


def chain(previous: str, message: Message) -> str:
    """Return the digest of a context after one more message.

    Equal digests mean equal summaries and messages, on any worker: it is made of the message's canonical JSON.
    """
    return digest(previous.encode() + canonical_json(message.model_dump(mode="json")))


def chain_all(previous: str, messages: Iterable[Message]) -> str:
    """Return the digest of a context after more messages."""
    for message in messages:
        previous = chain(previous, message)
    return previous
