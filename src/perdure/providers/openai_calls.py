"""Tool calls out of the pieces in which servers stream them.

By the documentation each piece carries the `index` of its call, and only a call's first piece its id and its name. In
practice indexes are missing, always 0 or counted by piece; ids are missing or repeated; names come with every piece.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from perdure.models import ModelError, ToolCall
from perdure.providers.loose import as_index, as_object, as_text
from perdure.values import EMPTY, FrozenDict, FrozenMap, clean_text, freeze, freeze_object, parse_json

MAX_SHOWN = 200
"""Characters of unreadable arguments that the model is shown again: enough to see its mistake."""


@dataclass(frozen=True, slots=True)
class _Piece:
    id: str
    index: int | None
    name: str
    text: str
    given: Mapping[str, object]

    @classmethod
    def read(cls, entry: object) -> _Piece:
        outer = as_object(entry)
        function = as_object(outer.get("function")) or outer
        text, given = _arguments(function.get("arguments"))
        index = as_index(outer.get("index"))
        return cls(as_text(outer.get("id")), index, as_text(function.get("name")), text, given)

    @property
    def brings_arguments(self) -> bool:
        return bool(self.text.strip() or self.given)

    @property
    def size(self) -> int:
        return len(self.id) + len(self.name) + len(self.text) + (len(repr(self.given)) if self.given else 1)


@dataclass(slots=True)
class _Call:
    id: str = ""
    index: int | None = None
    name: str = ""
    texts: list[str] = field(default_factory=list[str])
    given: Mapping[str, object] = EMPTY

    def take(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.index = piece.index if self.index is None else self.index
        self.given = piece.given or self.given
        if piece.text:
            self.texts.append(piece.text)

    @property
    def text(self) -> str:
        text = "".join(self.texts).strip()
        # No JSON goes on behind "{}": some servers send it first, as a placeholder for the arguments that follow.
        return text if text == "{}" else text.removeprefix("{}")

    @property
    def begun(self) -> bool:
        return bool(self.given) or any(text.strip() for text in self.texts)

    @property
    def whole(self) -> bool:
        """Whether the arguments so far are a whole JSON object, behind which nothing more can come."""
        if not self.texts:
            return bool(self.given)
        return self.texts[-1].rstrip().endswith("}") and isinstance(_parsed(self.text), FrozenMap)


class CallCollector:
    """Puts pieces together; calls stand in the order in which they began."""

    def __init__(self) -> None:
        """Begin without any call."""
        self._calls: list[_Call] = []

    def take(self, entries: Sequence[object], *, separate: bool) -> int:
        """Take the `tool_calls` of one chunk, or, when `separate`, of a whole message, where each is a call of its own.

        Returns:
            The characters that were kept.
        """
        kept = 0
        for position, entry in enumerate(entries):
            piece = _Piece.read(entry)
            call = None if separate else self._owner(piece, position if len(entries) > 1 else None)
            if call is None:
                call = _Call()
                self._calls.append(call)
            call.take(piece)
            kept += piece.size
        return kept

    def calls(self, inside: Mapping[str, str]) -> tuple[ToolCall, ...]:
        """Return the calls under the tools' inside names.

        Raises:
            ModelError: a call has arguments and no name, so that the answer was garbled on its way; retryable.
        """
        return tuple(_finished(call, inside) for call in self._calls if call.name or call.begun)

    def _owner(self, piece: _Piece, position: int | None) -> _Call | None:
        """Return the call that this piece goes on with, or None when it begins one."""
        for known in (self._by_id(piece), self._by_index(piece)):
            if known is not None:
                return None if _begins_another(known, piece) else known
        tagged = piece.index is not None or bool(piece.id)
        if not self._calls or (piece.name and tagged):
            return None
        last = self._calls[-1 if position is None or position >= len(self._calls) else position]
        if not piece.name and tagged:
            # A server that gives each piece an id or an index of its own, or a call whose name is still to come.
            return None if last.whole else last
        return None if _begins_another(last, piece) else last

    def _by_id(self, piece: _Piece) -> _Call | None:
        return next((call for call in reversed(self._calls) if piece.id and call.id == piece.id), None)

    def _by_index(self, piece: _Piece) -> _Call | None:
        if piece.index is None:
            return None
        return next((call for call in reversed(self._calls) if call.index == piece.index), None)


def _begins_another(call: _Call, piece: _Piece) -> bool:
    """Whether a piece that seems to belong to a call can't: it names another function, or the call is whole."""
    if not piece.name:
        return False
    if (call.id and piece.id and call.id != piece.id) or (call.name and call.name != piece.name):
        return True
    other_index = call.index is not None and piece.index is not None and call.index != piece.index
    if not call.begun:
        return other_index and not piece.brings_arguments
    return (other_index or piece.brings_arguments) and call.whole


def _arguments(value: object) -> tuple[str, Mapping[str, object]]:
    match value:
        case str():
            return value, EMPTY
        case Mapping():
            return "", cast("Mapping[str, object]", value)
        case None:
            return "", EMPTY
        case _:
            return json.dumps(value), EMPTY


def _parsed(text: str) -> object:
    try:
        return freeze(parse_json(text))
    except ValueError as error:
        return error


def _finished(call: _Call, inside: Mapping[str, str]) -> ToolCall:
    name = clean_text(call.name)
    if not name:
        msg = "the model's answer holds a tool call without a name: it was garbled on its way"
        raise ModelError(msg, retryable=True)
    arguments, problem = _read_arguments(call)
    return ToolCall(inside.get(name, name), arguments, clean_text(call.id) or None, problem)


def _read_arguments(call: _Call) -> tuple[FrozenDict, str | None]:
    text = call.text
    if text in {"", "null"}:
        try:
            return freeze_object(call.given), None
        except ValueError as error:
            return EMPTY, f"the arguments can't be read: {error}"
    parsed = _parsed(text)
    match parsed:
        case FrozenMap():
            return cast("FrozenDict", parsed), None
        case ValueError() as error:
            reason = str(error)
        case _:
            reason = "they are JSON of another kind"
    return EMPTY, f"the arguments are not a JSON object ({reason}): {clean_text(text[:MAX_SHOWN])}"
