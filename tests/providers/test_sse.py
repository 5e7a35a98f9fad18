from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, strategies as st

from perdure.models import ModelError
from perdure.providers.sse import MAX_EVENT, Event, EventReader


def read(*pieces: bytes) -> list[Event]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + list(reader.end())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_any_of_the_three_ways(end: bytes) -> None:
    """B79."""
    assert read(b"data: one" + end + end + b"data:two" + end + end) == [Event("one"), Event("two")]


@pytest.mark.parametrize("at", range(29))
def test_a_line_end_may_be_cut_in_two(at: int) -> None:
    """B79: its second half is not a blank line, which would end the event."""
    body = b"data: {\r\ndata: 1\r\ndata: }\r\n\r\n"
    assert read(body[:at], body[at:]) == [Event("{\n1\n}")]


def test_comments_unknown_fields_and_empty_events_are_no_events() -> None:
    """B79."""
    body = b": ping\n\n\n\nid: 3\nretry: 5\n\ndata\n\nevent: note\ndata: said\n\n"
    assert read(body) == [Event("said", "note")]


def test_a_byte_order_mark_does_not_hide_the_first_event() -> None:
    """B79."""
    assert read(b"\xef\xbb", b"\xbfdata: one\n\n") == [Event("one")]


def test_an_event_of_several_lines_is_one() -> None:
    """B79."""
    assert read(b"data: {\ndata: }\n\n") == [Event("{\n}")]


def test_the_last_event_is_read_without_its_blank_line() -> None:
    """B79: it is marked, since it may be half of itself."""
    assert read(b"data: one\n\ndata: tw") == [Event("one"), Event("tw", complete=False)]


@pytest.mark.parametrize("body", [b'{"a":\r\n 1}', b"  \n[1]", b"<html>\n\ndata: no\n\n"])
def test_a_body_that_is_no_stream_is_one_event(body: bytes) -> None:
    """B79: a JSON answer in place of a stream, or a proxy's page."""
    (event,) = read(body)
    assert not event.complete
    assert event.data.split() == body.decode().split()


BODIES = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=200).map(lambda text: f"data: {text}\n\n".encode(errors="replace")),
    st.text("{}<: data\r\n\ufeffé", max_size=30).map(str.encode),
)


@given(BODIES, st.data())
def test_where_the_bytes_are_cut_makes_no_difference(body: bytes, data: st.DataObject) -> None:
    """B77, B79: a character, a line end or a mark that is split over two reads."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert read(*pieces) == read(body) == read(*(bytes([byte]) for byte in body))


def test_megabytes_in_one_line_are_read_in_the_time_they_take_to_arrive() -> None:
    """B77: 8 MiB in pieces of 64 KiB."""
    piece = b"x" * 65_536
    (event,) = read(b"data: ", *[piece] * 128, b"\n\n")
    assert len(event.data) == 8 * 1024 * 1024


@pytest.mark.parametrize(
    "piece", [b"x" * 65_536, b"data: " + b"x" * 65_530 + b"\n", b"{" * 65_536, b"{" * 32_768 + b"\n" * 32_768]
)
def test_an_event_without_end_is_a_final_error(piece: bytes) -> None:
    """B77: as one line, as many lines of one event, as a body that is no stream."""
    reader = EventReader()
    pieces = [piece] * (MAX_EVENT // len(piece) + 1)
    with pytest.raises(ModelError, match="16 MiB") as caught:
        list(chain.from_iterable(reader.feed(piece) for piece in pieces))
    assert not caught.value.retryable


def test_comments_may_come_for_ever() -> None:
    """B79: some servers send nothing else while a model thinks."""
    reader = EventReader()
    comments = (b":" + b" still here" * 100 + b"\n") * 1_000
    for _ in range(MAX_EVENT // len(comments) + 2):
        assert not list(reader.feed(comments))
