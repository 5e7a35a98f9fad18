"""States that AgentScope for Python 2 has written, in the form that we read. Java's form is ours already.

What is another thing here is translated, and what we have no place for is left out:

    there                                   here
    reply_context {reply_id, cur_iter}      the two fields
    summary as blocks                       its text
    created_at of a message                 timestamp
    tool_call, whose input is JSON text     tool_use, whose input is an object
    results in the assistant's message,     a message of results behind each message of calls
    or in a later one
    a call without a result                 one with a result that says interrupted
    hint                                    a message of the user's side, marked in its metadata
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import TypeAlias, cast

from perdure.values import clean_text, freeze_object, parse_json

HINT_MARK = "perdure_hint"
"""The metadata key of a message that was a hint, whose value is where the hint came from."""

UNREADABLE = "unreadable_input"
"""The argument that keeps the input of a call which was no JSON object."""

NO_RESULT = "interrupted: the state was saved before this call had a result"

Fields: TypeAlias = "Mapping[str, object]"

Place: TypeAlias = tuple[int, int]
"""Where a block stands: the number of its message, and its own in there."""


def is_foreign(data: Fields) -> bool:
    """Tell whether a state was written by AgentScope for Python: by the fields that only it has."""
    if "reply_context" in data or "middle_context" in data:
        return True
    return any("created_at" in message for message in _mappings(data.get("context")))


def translated(data: Fields) -> dict[str, object]:
    """Return such a state in the form that we read. What is not as it should be is left for whoever reads it."""
    reply = data.get("reply_context")
    replied: Fields = cast("Fields", reply) if isinstance(reply, Mapping) else {}
    kept = {key: value for key, value in data.items() if key not in ("reply_context", "middle_context", "context")}
    return {
        **kept,
        **{key: replied[key] for key in ("reply_id", "cur_iter") if key in replied},
        "summary": _summary(data.get("summary")),
        "tool_context": _tool_context(data.get("tool_context")),
        "context": _Reader().messages(data.get("context")),
    }


def _mappings(value: object) -> Iterator[Fields]:
    for item in cast("Iterable[object]", value) if isinstance(value, list | tuple) else ():
        if isinstance(item, Mapping):
            yield cast("Fields", item)


def _blocks(value: object) -> list[Fields] | None:
    """Return a list of blocks; None for anything else, which is left for whoever reads it."""
    blocks = list(_mappings(value))
    return blocks if isinstance(value, list | tuple) and len(blocks) == len(cast("Sequence[object]", value)) else None


def _summary(value: object) -> object:
    blocks = _blocks(value)
    return value if blocks is None else "\n".join(str(block["text"]) for block in blocks if block.get("text"))


def _tool_context(value: object) -> object:
    """Return the tool settings; sizes are fractions there, and the cache of files is of no use elsewhere."""
    if not isinstance(value, Mapping):
        return {} if value is None else value
    fields = dict(cast("Fields", value))
    size = fields.get("max_cache_bytes")
    return {**fields, "max_cache_bytes": ceil(size)} if isinstance(size, float) else fields


def _paired(context: Sequence[object]) -> dict[Place, Fields]:
    """Return the results by the places of their calls.

    A result may stand in a later message: what is observed while a call runs comes in between. Ids may come again, so
    that a result belongs to the nearest message with an open call of its id, and there to the first.
    """
    paired: dict[Place, Fields] = {}
    waiting: dict[str, list[deque[Place]]] = defaultdict(list)
    for number, message in enumerate(context):
        content = cast("Fields", message).get("content") if isinstance(message, Mapping) else None
        for at, block in enumerate(_blocks(content) or ()):
            waits = waiting[str(block.get("id"))]
            if block.get("type") == "tool_call":
                if not waits or waits[-1][0][0] != number:
                    waits.append(deque())
                waits[-1].append((number, at))
            elif block.get("type") == "tool_result" and waits:
                paired[waits[-1].popleft()] = block
                if not waits[-1]:
                    waits.pop()
    return paired


class _Ids:
    """Ids that were given, each once."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._numbers: dict[str, int] = {}

    def unused(self, wanted: object) -> str:
        """Return an id that nobody has, as like to the one that is wanted as can be, and keep it."""
        base = found = clean_text(str(wanted))
        while found in self._given:
            self._numbers[base] = self._numbers.get(base, 0) + 1
            found = f"{base}-{self._numbers[base]}"
        self._given.add(found)
        return found


class _Reader:
    """Reads the messages of one state. Ids of messages and calls are unique in what comes out."""

    def __init__(self) -> None:
        self._message_ids = _Ids()
        self._call_ids = _Ids()

    def messages(self, value: object) -> object:
        """Return the context, or whatever stands in its place, for its reader to refuse."""
        if not isinstance(value, list | tuple):
            return () if value is None else value
        context = cast("Sequence[object]", value)
        results = _paired(context)
        return [made for number, item in enumerate(context) for made in self._of(number, item, results)]

    def _of(self, number: int, item: object, results: Mapping[Place, Fields]) -> Iterator[object]:
        if not isinstance(item, Mapping):
            yield item
            return
        message = cast("Fields", item)
        head = {
            **{key: message[key] for key in ("name", "role", "metadata", "usage") if key in message},
            "timestamp": message.get("timestamp") or message.get("created_at"),
        }
        blocks = _blocks(message.get("content"))
        if not blocks:
            yield {**head, "id": self._message_id(message), "content": message.get("content")}
            return
        yield from self._parts(message, head, [(block, results.get((number, at))) for at, block in enumerate(blocks)])

    def _parts(
        self, message: Fields, head: dict[str, object], blocks: list[tuple[Fields, Fields | None]]
    ) -> Iterator[Fields]:
        """Yield one message of theirs as ours: what is said and called, then the results, and so on."""
        spoken: list[Fields] = []
        calls: list[tuple[Fields, Fields]] = []
        over = False
        for block, result in blocks:
            kind = block.get("type")
            over = over or (kind == "tool_result" and bool(calls))
            if kind == "tool_result":
                continue
            if kind == "hint" or (calls and (kind != "tool_call" or over)):
                yield from self._flushed(message, head, spoken, calls)
                spoken, calls, over = [], [], False
            if kind == "hint":
                yield self._hint(message, head, block)
            elif kind == "tool_call":
                calls.append(self._call(block, result))
            else:
                spoken.append(_block(block))
        yield from self._flushed(message, head, spoken, calls)

    def _flushed(
        self, message: Fields, head: dict[str, object], spoken: list[Fields], calls: list[tuple[Fields, Fields]]
    ) -> Iterator[Fields]:
        if spoken or calls:
            content = [*spoken, *(call for call, _ in calls)]
            yield {**head, "id": self._message_id(message), "content": content}
            head.pop("usage", None)  # it is the whole message's, and counts once
        if calls:
            results = [result for _, result in calls]
            timestamp = head.get("timestamp")
            yield {"id": self._message_id(message), "role": "tool", "content": results, "timestamp": timestamp}

    def _hint(self, message: Fields, head: Fields, block: Fields) -> Fields:
        content = _output(block.get("hint"))
        mark = {HINT_MARK: block.get("source") or True}
        return {"id": self._message_id(message), "role": "user", "content": content, "metadata": mark} | {
            "timestamp": head.get("timestamp")
        }

    def _call(self, block: Fields, found: Fields | None) -> tuple[Fields, Fields]:
        """Return a call and its result."""
        call_id = self._call_ids.unused(block.get("id") or "call")
        name = block.get("name")
        state = block.get("state")
        call = {"type": "tool_use", "id": call_id, "name": name, "input": _input(block.get("input"))}
        result = found or {"output": NO_RESULT, "state": "interrupted"}
        ended = result.get("state")
        return (
            {**call, **({} if state is None else {"state": state})},
            {
                "type": "tool_result",
                "id": call_id,
                "name": result.get("name") or name,
                "output": _output(result.get("output")),
                "state": "interrupted" if ended == "running" else ended,
                "metadata": result.get("metadata") or {},
            },
        )

    def _message_id(self, message: Fields) -> str:
        return self._message_ids.unused(message.get("id") or "message")


def _block(block: Fields) -> Fields:
    """Return a block of text, thinking or data without what only they have."""
    names = ("type", "text", "thinking", "source", "name")
    return {key: block[key] for key in names if key in block and block[key] is not None}


def _output(output: object) -> object:
    blocks = _blocks(output)
    return output if blocks is None else [_block(each) for each in blocks]


def _input(text: object) -> object:
    """Return a call's arguments; what is no JSON object, or too deep a one, stays as text under a name of its own."""
    if not isinstance(text, str):
        return {} if text is None else text
    if not text.strip():
        return {}
    try:
        return freeze_object(parse_json(text))
    except ValueError:
        return {UNREADABLE: text}
