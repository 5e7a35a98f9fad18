"""What messages and transcript entries look like to people: a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.cli.terminal import compact, one_line
from perdure.messages import Block, Message, ResultState, ToolResultBlock, blocks_text
from perdure.values import Frozen

if TYPE_CHECKING:
    from perdure.results import TranscriptEntry


def message_line(message: Message) -> str:
    """Return a message on one line."""
    calls = [f"{call.name} {shortened(call.input)}" for call in message.calls]
    results = [_result(result) for result in message.results]
    return one_line(" · ".join(part for part in (message.text, *calls, *results) if part))


def entry_line(entry: TranscriptEntry) -> str:
    """Return a transcript entry on one line: number, time, kind, what it says."""
    return f"{entry.seq:>5}  {entry.at.astimezone():%H:%M:%S}  {entry.kind:<11}  {one_line(entry_text(entry))}"


class _Data(Frozen):
    """The parts of an entry's data that people read."""

    content: tuple[Block, ...] = ()
    message: Message | str | None = None
    result: ToolResultBlock | None = None
    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    status: str = ""
    type: str = ""


def entry_text(entry: TranscriptEntry) -> str:
    """Return what a transcript entry says; as JSON, if it is of a form that this version doesn't know."""
    try:
        data = _Data.model_validate(entry.data)
    except ValidationError:
        return compact(entry.data)
    match entry.kind:
        case "input":
            return blocks_text(data.content)
        case "assistant" if isinstance(data.message, Message):
            return data.message.text
        case "tool_call" if data.tool:
            return f"{data.tool} {shortened(data.arguments or {})}"
        case "tool_result" if data.result is not None:
            return _result(data.result)
        case "turn" if data.status:
            return f"{entry.turn_id}: {data.status}"
        case "run":
            return f"{entry.turn_id}: run {entry.run_id}"
        case "error":
            return f"{data.type}: {data.message}"
        case _:
            return compact(entry.data)


def _result(result: ToolResultBlock) -> str:
    state = "" if result.state is ResultState.SUCCESS else f" ({result.state.value})"
    return f"{result.name}{state}: {result.text}"


def shortened(arguments: Mapping[str, object]) -> str:
    """Return a call's arguments in little room."""
    return one_line(compact(arguments), 80)
