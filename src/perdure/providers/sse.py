"""Server-sent events out of bytes that arrive in any pieces, and other bodies that come in their place.

Written here and not taken from httpx-sse, which loses the first event behind a byte order mark and the last one
without a blank line, decodes by the charset that a header claims although the format is always UTF-8, refuses a body
of another content type, and buffers a line without bound. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.models import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event, or of a body that is no stream: more is no answer of a model, and would fill the memory."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_A_STREAM = (b"{", b"[", b"<")


@dataclass(frozen=True, slots=True)
class Event:
    """One event. One that is not `complete` was ended by the end of the body, and may be half of itself."""

    data: str
    name: str = ""
    complete: bool = True


class EventReader:
    """Cuts a body into events.

    A body that begins like JSON or HTML is no stream of events: the whole of it becomes one event at the end.
    """

    def __init__(self) -> None:
        """Begin at the start of a body."""
        self._line: list[bytes] = []
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first_line = True
        self._streams: bool | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete.

        Raises:
            ModelError: an event is larger than `MAX_EVENT`; final.
        """
        if not piece:
            return
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        self._after_cr = piece.endswith(b"\r") and self._streams is not False
        if self._streams is False:
            self._grow(piece)
        else:
            *ended, rest = _LINE_END.split(piece)
            for end in ended:
                self._grow(end)
                yield from self._take_line()
            self._grow(rest)

    def end(self) -> Iterator[Event]:
        """Yield what is left when the body has ended."""
        if self._streams is not False and any(self._line):
            yield from self._take_line()
        if self._streams is False:
            body = _LINE_END.sub(b"\n", b"".join(self._line))
            yield Event(body.decode(errors="replace"), complete=False)
        elif any(self._data):
            yield Event("\n".join(self._data), self._name, complete=False)

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_EVENT:
            msg = f"the answer holds an event of more than {MAX_EVENT // (1024 * 1024)} MiB: that is no model's answer"
            raise ModelError(msg)
        self._line.append(piece)

    def _take_line(self) -> Iterator[Event]:
        self._size += 1  # its end
        if self._streams is False:
            self._line.append(b"\n")
            return
        line = b"".join(self._line)
        self._line = []
        if self._first_line:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._first_line = False
        if self._streams is None and line.strip():
            self._streams = not line.lstrip().startswith(_NOT_A_STREAM)
        if self._streams is False:
            self._line = [line, b"\n"]
        elif not line:
            yield from self._dispatch()
        elif not self._take_field(line.decode(errors="replace")):
            self._size -= len(line) + 1

    def _take_field(self, line: str) -> bool:
        """Take one field, and return whether it was kept: comments may come without end while a model thinks."""
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "data":
                self._data.append(value)
            case "event":
                self._name = value
            case _:
                return False
        return True

    def _dispatch(self) -> Iterator[Event]:
        if any(self._data):
            yield Event("\n".join(self._data), self._name)
        self._data, self._name, self._size = [], "", 0
