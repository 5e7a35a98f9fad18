"""Streamed answers as the servers that call themselves OpenAI-compatible really write them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.providers.openai_errors import Complaint
from perdure.providers.openai_stream import Answer
from perdure.providers.sse import EventReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.models import ModelResponse

Chunk = dict[str, Any]

COMPLAINT = Complaint("provider.test", "text/event-stream", ("sk-abcdefgh12345678",))
USAGE: Chunk = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def chunk(delta: object = None, finish_reason: object = None, **fields: object) -> Chunk:
    choice: Chunk = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish_reason}
    return {"id": "c-1", "object": "chat.completion.chunk", "choices": [choice], **fields}


def call(index: object = 0, call_id: object = None, name: object = None, arguments: object = None) -> Chunk:
    """Return one entry of `tool_calls`; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry = {"index": index, "id": call_id, "function": function}
    return {key: value for key, value in entry.items() if value is not None}


def calling(*entries: object) -> Chunk:
    return chunk({"tool_calls": list(entries)})


def events(chunks: Iterable[object], *, line_end: str = "\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(item)}{line_end}{line_end}" for item in chunks]
    return "".join([*lines, f"data: [DONE]{line_end}{line_end}" if done else ""]).encode()


def read(pieces: Sequence[bytes]) -> tuple[str, ModelResponse]:
    """Return the text that was shown on the way, and the answer."""
    answer, reader, shown = Answer(COMPLAINT), EventReader(), ""
    for piece in pieces:
        for event in reader.feed(piece):
            shown += answer.add(event)
    for event in reader.end():
        shown += answer.add(event)
    shown += answer.rest()
    return shown, answer.response({})


@dataclass(frozen=True)
class Said:
    """What a model said: text, and calls as id, name and the pieces of their arguments."""

    texts: tuple[str, ...]
    calls: tuple[tuple[str, str, tuple[str, ...]], ...]

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"


@dataclass(frozen=True)
class Dialect:
    """One server's habits."""

    index: str = "right"
    """`right`; `missing`; `null`; `zero`: always 0; `text`: a string; `counting`: one more with each piece."""
    ids: str = "first"
    """`first`: with a call's first piece; `every`: with each; `fresh`: another one with each."""
    names: str = "first"
    """`first`, or `every`."""
    nulls: bool = False
    usage: str = "last"
    """`last`: in a chunk of its own; `every`: growing, in each; `final`: with the finish reason; `choice`: in it."""
    finish: str = "own"
    """`own`: in a chunk of its own; `twice`."""
    line_end: str = "\n"
    done: bool = True
    comments: bool = False
    empty_choices: bool = False
    byte_order_mark: bool = False

    def write(self, said: Said) -> bytes:
        chunks = list(self._chunks(said))
        if self.empty_choices:
            chunks.insert(0, {"choices": [], "prompt_filter_results": []})
        body = events(chunks, line_end=self.line_end, done=self.done).decode()
        if self.comments:
            end = self.line_end  # a line that begins so, and not the same words within what is said
            body = f": thinking{end}" + f"{end}{body}".replace(f"{end}data:", f"{end}: ping{end}data:")
        return (b"\xef\xbb\xbf" if self.byte_order_mark else b"") + body.encode()

    def _chunks(self, said: Said) -> Iterable[Chunk]:
        chunks = [chunk({"role": "assistant", "content": ""})]
        chunks += [self._filled(chunk({"content": text})) for text in said.texts]
        number = 0
        for index, (call_id, name, pieces) in enumerate(said.calls):
            for position, piece in enumerate(pieces):
                entry = self._entry(index, number, position, (call_id, name, piece))
                chunks.append(self._filled(calling(entry)))
                number += 1
        chunks += [chunk({}, said.finish_reason)] * (2 if self.finish == "twice" else 1)
        return self._with_usage(chunks)

    def _entry(self, index: int, number: int, position: int, parts: tuple[str, str, str]) -> Chunk:
        call_id, name, piece = parts
        entry: Chunk = {"function": {"arguments": piece}}
        indexes: dict[str, object] = {"right": index, "null": None, "zero": 0, "text": str(index), "counting": number}
        if self.index in indexes:
            entry["index"] = indexes[self.index]
        if position == 0 or self.ids == "every":
            entry["id"] = call_id
        elif self.ids == "fresh":
            entry["id"] = f"{call_id}-{position}"
        elif self.nulls:
            entry["id"] = None
        if position == 0 or self.names == "every":
            entry["function"] = {"name": name, "arguments": piece}
        elif self.nulls:
            entry["function"] = {"name": None, "arguments": piece}
        return entry

    def _filled(self, item: Chunk) -> Chunk:
        if not self.nulls:
            return item
        (choice,) = item["choices"]
        nulls = {"content": None, "tool_calls": None, "function_call": None, "refusal": None, "role": None}
        return {**item, "usage": None, "error": None, "choices": [{**choice, "delta": {**nulls, **choice["delta"]}}]}

    def _with_usage(self, chunks: list[Chunk]) -> Iterable[Chunk]:
        match self.usage:
            case "every":
                for position, item in enumerate(chunks):
                    counted = {"prompt_tokens": 11, "completion_tokens": max(7 - len(chunks) + 1 + position, 0)}
                    yield {**item, "usage": counted}
            case "final":
                yield from chunks[:-1]
                yield {**chunks[-1], "usage": USAGE}
            case "choice":
                yield from chunks[:-1]
                (choice,) = chunks[-1]["choices"]
                yield {**chunks[-1], "choices": [{**choice, "usage": USAGE}]}
            case _:
                yield from chunks
                yield {"choices": [], "usage": USAGE}
