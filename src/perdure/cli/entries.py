"""What messages and transcript entries look like to people: a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.cli.terminal import compact, one_line
from perdure.commands import CANCEL_TURN, INJECT, RESUME_TURN, STEER, OnBusy, Partial
from perdure.messages import INTERRUPTED_TEXT, Block, Message, ResultState, ToolResultBlock, blocks_text
from perdure.values import Frozen

if TYPE_CHECKING:
    from perdure.results import TranscriptEntry


VIA = {STEER: "steered: ", INJECT: "injected: "}
"""How input came that began no turn."""

COMMANDS = {RESUME_TURN: "resume", CANCEL_TURN: "cancel"}
"""The commands that people know by a shorter name."""


def message_line(message: Message) -> str:
    """Return a message on one line."""
    calls = [f"{call.name} {shortened(call.input)}" for call in message.calls]
    results = [_result(result) for result in message.results]
    return one_line(" · ".join(part for part in (message.text, *calls, *results) if part))


def entry_line(entry: TranscriptEntry) -> str:
    """Return a transcript entry on one line: number, time, kind, what it says, who asked for it."""
    actor = f" (by {one_line(entry.actor, 60)})" if entry.actor else ""
    return f"{entry.seq:>5}  {entry.at.astimezone():%H:%M:%S}  {entry.kind:<11}  {one_line(entry_text(entry))}{actor}"


class _Data(Frozen):
    """The parts of an entry's data that people read."""

    content: tuple[Block, ...] = ()
    message: Message | str | None = None
    result: ToolResultBlock | None = None
    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    status: str = ""
    type: str = ""
    via: str = ""
    change: str = ""
    command: str = ""
    reason: str | None = None
    partial: str | None = None


def entry_text(entry: TranscriptEntry) -> str:  # noqa: C901  # a table: one case a kind
    """Return what a transcript entry says; as JSON, if it is of a form that this version doesn't know."""
    try:
        data = _Data.model_validate(entry.data)
    except ValidationError:
        return compact(entry.data)
    match entry.kind:
        case "input":
            return f"{VIA.get(data.via, '')}{blocks_text(data.content)}"
        case "assistant" if isinstance(data.message, Message):
            return _assistant(data.message)
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
        case "command" if data.command:
            return _command(entry, data)
        case "change" if data.change == OnBusy.ROLLBACK:
            return f"{entry.turn_id}: taken back, as if it had not been said"
        case _:
            return compact(entry.data)


def _assistant(message: Message) -> str:
    cut = " (interrupted)" if message.interrupted and message.text != INTERRUPTED_TEXT else ""
    return f"{message.text}{cut}"


def _command(entry: TranscriptEntry, data: _Data) -> str:
    """Return what was asked for: of which turn, and in which words."""
    what = COMMANDS.get(data.command, data.command)
    turn = f" {entry.turn_id}" if entry.turn_id else ""
    discarded = ", discarding what it had said" if data.partial == Partial.DISCARD else ""
    words = data.message if isinstance(data.message, str) else data.reason
    return f"{what}{turn}{discarded}{f': {words}' if words else ''}"


def _result(result: ToolResultBlock) -> str:
    state = "" if result.state is ResultState.SUCCESS else f" ({result.state.value})"
    return f"{result.name}{state}: {result.text}"


def shortened(arguments: Mapping[str, object]) -> str:
    """Return a call's arguments in little room."""
    return one_line(compact(arguments), 80)
