"""States that AgentScope for Python 2 has written, in the form that we read. Java's form is ours already.

What is another thing here is translated, and what we have no place for is left out:

    there                                   here
    reply_context {reply_id, cur_iter}      the two fields
    summary as blocks                       its text
    created_at of a message                 timestamp
    tool_call, whose input is JSON text     tool_use, whose input is an object
    results in the assistant's message      a message of results behind each message of calls
    a call without a result                 one with a result that says interrupted
    hint                                    a message of the user's side, marked in its metadata
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, TypeAlias, cast

from perdure.values import clean_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable

HINT_MARK = "perdure_hint"
"""The metadata key of a message that was a hint, whose value is where the hint came from."""

UNREADABLE = "unreadable_input"
"""The argument that keeps the input of a call which was no JSON object."""

NO_RESULT = "interrupted: the state was saved before this call had a result"

Fields: TypeAlias = "Mapping[str, object]"


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


def _summary(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    return "\n".join(str(block.get("text", "")) for block in _mappings(cast("object", value)) if block.get("text"))


def _tool_context(value: object) -> object:
    """Return the tool settings; sizes are fractions there, and the cache of files is of no use elsewhere."""
    if not isinstance(value, Mapping):
        return {} if value is None else value
    fields = dict(cast("Fields", value))
    size = fields.get("max_cache_bytes")
    return {**fields, "max_cache_bytes": round(size) if isinstance(size, float) else size}


class _Reader:
    """Reads the messages of one state. Ids of messages and calls are unique in what comes out."""

    def __init__(self) -> None:
        self._message_ids: set[str] = set()
        self._call_ids: set[str] = set()

    def messages(self, value: object) -> object:
        """Return the context, or whatever stands in its place, for its reader to refuse."""
        if not isinstance(value, list | tuple):
            return () if value is None else value
        return [made for item in cast("Sequence[object]", value) for made in self._of(item)]

    def _of(self, item: object) -> Iterator[object]:
        if not isinstance(item, Mapping):
            yield item
            return
        message = cast("Fields", item)
        head = {
            **{key: message[key] for key in ("name", "role", "metadata", "usage") if key in message},
            "timestamp": message.get("timestamp") or message.get("created_at"),
        }
        content = message.get("content")
        if not isinstance(content, list | tuple):
            yield {**head, "id": self._message_id(message), "content": content}
            return
        yield from self._parts(message, head, list(_mappings(cast("object", content))))

    def _parts(self, message: Fields, head: Fields, blocks: list[Fields]) -> Iterator[Fields]:
        """Yield one message of theirs as ours: what is said and called, then the results, and so on."""
        results: dict[str, deque[Fields]] = defaultdict(deque)
        for block in blocks:
            if block.get("type") == "tool_result":
                results[str(block.get("id"))].append(block)
        spoken: list[Fields] = []
        calls: list[tuple[Fields, Fields]] = []
        over = False
        for block in blocks:
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
                calls.append(self._call(block, results[str(block.get("id"))]))
            else:
                spoken.append(_block(block))
        if not blocks:
            yield {**head, "id": self._message_id(message), "content": ()}
        yield from self._flushed(message, head, spoken, calls)

    def _flushed(
        self, message: Fields, head: Fields, spoken: list[Fields], calls: list[tuple[Fields, Fields]]
    ) -> Iterator[Fields]:
        if spoken or calls:
            content = [*spoken, *(call for call, _ in calls)]
            yield {**head, "id": self._message_id(message), "content": content}
        if calls:
            results = [result for _, result in calls]
            timestamp = head.get("timestamp")
            yield {"id": self._message_id(message), "role": "tool", "content": results, "timestamp": timestamp}

    def _hint(self, message: Fields, head: Fields, block: Fields) -> Fields:
        hint = block.get("hint")
        content = hint if isinstance(hint, str) else [_block(each) for each in _mappings(hint)]
        mark = {HINT_MARK: block.get("source") or True}
        return {"id": self._message_id(message), "role": "user", "content": content, "metadata": mark} | {
            "timestamp": head.get("timestamp")
        }

    def _call(self, block: Fields, results: deque[Fields]) -> tuple[Fields, Fields]:
        """Return a call and its result."""
        call_id = _unused(str(block.get("id") or "call"), self._call_ids)
        name = block.get("name")
        state = block.get("state")
        call = {"type": "tool_use", "id": call_id, "name": name, "input": _input(block.get("input"))}
        result = results.popleft() if results else {"output": NO_RESULT, "state": "interrupted"}
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
        return _unused(str(message.get("id") or "message"), self._message_ids)


def _unused(wanted: str, used: set[str]) -> str:
    """Return an id that nobody has, as like to the one that is wanted as can be, and keep it."""
    wanted = clean_text(wanted)
    names: Callable[[int], str] = lambda number: wanted if number == 0 else f"{wanted}-{number}"  # noqa: E731  # one use
    found = next(name for name in map(names, count()) if name not in used)
    used.add(found)
    return found


def _block(block: Fields) -> Fields:
    """Return a block of text, thinking or data without what only they have."""
    names = ("type", "text", "thinking", "source", "name")
    return {key: block[key] for key in names if key in block and block[key] is not None}


def _output(output: object) -> object:
    return output if isinstance(output, str) else [_block(each) for each in _mappings(output)]


def _input(text: object) -> object:
    """Return a call's arguments; what is no JSON object is kept as it is, under a name that says so."""
    if isinstance(text, Mapping):
        return cast("object", text)
    if not isinstance(text, str) or not text.strip():
        return {}
    try:
        value = parse_json(text)
    except ValueError:
        value = text
    return cast("object", value) if isinstance(value, dict) else {UNREADABLE: value}
