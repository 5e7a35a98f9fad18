from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from perdure.messages import Usage
from perdure.models import ModelError, ModelResponse, ToolCall
from perdure.providers import openai_stream
from perdure.providers.sse import Event
from perdure.values import clean_text
from tests.providers.dialects import COMPLAINT, USAGE, Chunk, Dialect, Said, call, calling, chunk, events, read

CLEAN = Dialect()
TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=8)


def answer(*chunks: object, finish: str = "tool_calls", **options: Any) -> ModelResponse:
    return read([events([*chunks, chunk({}, finish)], **options)])[1]


def failure(body: bytes) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read([body])
    return caught.value


@st.composite
def cut(draw: st.DrawFn, text: str) -> tuple[str, ...]:
    """Cut a text into pieces, none of them empty."""
    cuts = sorted(draw(st.sets(st.integers(1, len(text) - 1), max_size=3)))
    return tuple(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))


@st.composite
def sayings(draw: st.DrawFn) -> Said:
    calls: list[tuple[str, str, tuple[str, ...]]] = []
    for number in range(draw(st.integers(0, 3))):
        arguments = json.dumps(draw(st.dictionaries(TEXT, TEXT | st.integers(), max_size=3)))
        pieces = draw(cut(arguments))
        opened = ("", *pieces) if draw(st.booleans()) else pieces
        calls.append((f"call-{number}", draw(st.sampled_from(["find", "pay"])), opened))
    return Said(tuple(draw(st.lists(TEXT, max_size=3))), tuple(calls))


def _readable(dialect: Dialect) -> bool:
    # Where each piece has another id and a name, or no right index but a name, nobody can tell which call it is of.
    return dialect.names == "first" or (
        dialect.ids != "fresh" and (dialect.index != "counting" or dialect.ids == "every")
    )


DIALECTS = st.builds(
    Dialect,
    index=st.sampled_from(["right", "missing", "null", "zero", "text", "counting"]),
    ids=st.sampled_from(["first", "every", "fresh"]),
    names=st.sampled_from(["first", "every"]),
    nulls=st.booleans(),
    usage=st.sampled_from(["last", "every", "final", "choice"]),
    finish=st.sampled_from(["own", "twice"]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    done=st.booleans(),
    comments=st.booleans(),
    empty_choices=st.booleans(),
    byte_order_mark=st.booleans(),
).filter(_readable)


@settings(max_examples=400)
@given(sayings(), DIALECTS)
def test_every_dialect_gives_the_message_of_the_clean_stream(said: Said, dialect: Dialect) -> None:
    """B79."""
    assert read([dialect.write(said)]) == read([CLEAN.write(said)])


def test_what_is_said_may_look_like_the_stream_itself() -> None:
    """B79."""
    said = Said(("data: x",), (("call-0", "find", ('{"data: ": ""}',)),))
    assert read([Dialect(comments=True).write(said)]) == read([CLEAN.write(said)])


@given(sayings(), st.data())
def test_where_the_network_cuts_a_stream_makes_no_difference(said: Said, data: st.DataObject) -> None:
    """B77, B79."""
    body = CLEAN.write(said)
    at = data.draw(st.integers(0, len(body)))
    assert read([body[:at], body[at:]]) == read([body])


@given(sayings())
def test_a_clean_stream_is_read_as_it_was_meant(said: Said) -> None:
    """B77, B79: what is shown on the way is the text of the answer, with nothing in it that can't be kept."""
    shown, response = read([CLEAN.write(said)])
    assert shown == response.text == clean_text("".join(said.texts))
    assert [(item.id, item.name) for item in response.tool_calls] == [(item[0], item[1]) for item in said.calls]
    assert response.usage == Usage(11, 7)
    assert all(item.problem is None for item in response.tool_calls)


@pytest.mark.parametrize("index", [int, str])
def test_pieces_of_parallel_calls_may_be_mixed(index: type[int | str]) -> None:
    """B79."""
    response = answer(
        calling(call(index(0), "a", "f", ""), call(index(1), "b", "f", "")),
        calling(call(index(1), arguments='{"n":')),
        calling(call(index(0), arguments='{"n":1}')),
        calling(call(index(1), arguments="2}")),
    )
    assert response.tool_calls == (ToolCall("f", {"n": 1}, "a"), ToolCall("f", {"n": 2}, "b"))


@pytest.mark.parametrize(
    "chunks",
    [
        [calling(call(0, None, "f", '{"n":1}'), call(0, None, "f", '{"n":2}'))],
        [calling(call(None, None, "f", '{"n":1}')), calling(call(None, None, "f", '{"n":2}'))],
        [
            calling(call(0, None, "f", '{"n":1}')),
            calling(call(1, None, "f", '{"n":')),
            calling(call(1, arguments="2}")),
        ],
        [
            calling(call(None, None, "f", '{"n":'), call(None, None, "g", '{"n":')),
            calling(call(None, arguments="1}"), call(None, arguments="2}")),
        ],
        [calling(call(0, "same", "f", '{"n":1}')), calling(call(1, "same", "f", '{"n":2}'))],
        [calling(call(0, "", "f", '{"n":')), calling(call(0, "", "f", "1}")), calling(call(1, "", "f", '{"n":2}'))],
    ],
    ids=["index always 0", "no index", "no ids", "position", "one id for all", "blank ids"],
)
def test_calls_without_ids_are_told_apart(chunks: list[object]) -> None:
    """B79."""
    assert [item.arguments for item in answer(*chunks).tool_calls] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("arguments", [None, "", " ", "{}", "null", {}])
def test_empty_and_absent_arguments_are_no_arguments(arguments: object) -> None:
    """B79."""
    assert answer(calling(call(0, "a", "f", arguments))).tool_calls == (ToolCall("f", {}, "a"),)


def test_arguments_may_be_an_object() -> None:
    """B79."""
    assert answer(calling(call(0, "a", "f", {"n": [1]}))).tool_calls == (ToolCall("f", {"n": (1,)}, "a"),)


def test_an_empty_object_before_the_arguments_is_a_placeholder() -> None:
    """B79."""
    response = answer(
        calling(call(0, "a", "f", "{}")), calling(call(0, arguments='{"n":')), calling(call(0, arguments="1}"))
    )
    assert response.tool_calls == (ToolCall("f", {"n": 1}, "a"),)


def test_entries_that_hold_nothing_are_no_calls() -> None:
    """B79."""
    empty = {"index": 0, "id": "", "type": None, "function": {"name": "", "arguments": None}}
    response = answer(chunk({"content": "hi", "tool_calls": [empty, None, {}]}), finish="stop")
    assert response == ModelResponse("hi")


def test_a_space_that_comes_alone_is_a_part_of_its_argument() -> None:
    """B79: a token may be white space, and white space in a string counts."""
    pieces = ['{"q":"a', " ", "b", "\\n", " ", '"}']
    chunks = [calling(call(0, "a", "f", "")), *[calling(call(0, arguments=piece)) for piece in pieces]]
    assert answer(*chunks).tool_calls == (ToolCall("f", {"q": "a b\n "}, "a"),)


def test_an_empty_entry_between_the_pieces_of_a_call_takes_none_of_them() -> None:
    """B79."""
    empty: Chunk = {"index": 1, "function": {}}
    chunks = [calling(call(0, "a", "f", '{"n":')), calling(empty), calling(call(None, arguments="1}"))]
    assert answer(*chunks).tool_calls == (ToolCall("f", {"n": 1}, "a"),)


def test_calls_without_arguments_are_told_apart_by_their_index() -> None:
    """B79."""
    assert len(answer(calling(call(0, "same", "f")), calling(call(1, "same", "f"))).tool_calls) == 2


def test_calls_of_the_old_form_are_read() -> None:
    """B79."""
    old = chunk({"function_call": {"name": "f", "arguments": '{"n":1}'}})
    assert answer(old, finish="function_call").tool_calls == (ToolCall("f", {"n": 1}),)


@pytest.mark.parametrize(
    "arguments", ["{", "[1]", '"text"', "{'n': 1}", '{"n": NaN}', '{"n":1,"n":2}', [1], "nonsense", "[" * 99_999]
)
def test_arguments_that_are_no_object_reach_the_caller_with_the_problem(arguments: object) -> None:
    """B79: the call gets an error result, so that the model can mend it."""
    (made,) = answer(calling(call(0, "a", "f", arguments))).tool_calls
    assert (made.id, made.name, made.arguments) == ("a", "f", {})
    assert made.problem is not None
    assert "not a JSON object" in made.problem
    assert len(made.problem) < 500


def test_outside_names_come_back_as_inside_ones() -> None:
    """B80: and a name that no tool has is left for the model to be told."""
    collected = openai_stream.Answer(COMPLAINT)
    for item in (calling(call(0, "a", "orders_find"), call(1, "b", "unknown")), chunk({}, "tool_calls")):
        collected.add(Event(json.dumps(item)))
    names = [item.name for item in collected.response({"orders_find": "orders.find"}).tool_calls]
    assert names == ["orders.find", "unknown"]


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": USAGE}).encode(),
        json.dumps(
            {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": USAGE}, indent=2
        ).encode(),
        b'\xef\xbb\xbf{"choices": [{"message": {"content": "hi"}, "finish_reason": "STOP"}], "usage": '
        + json.dumps(USAGE).encode()
        + b"}",
        events([chunk({"content": "hi"}), chunk({}, "stop", usage=USAGE)], done=False).replace(b"\n\n", b"\n"),
        events([chunk({"content": "hi"}), chunk({}, "stop", usage=USAGE)], done=False).rstrip(),
        events([chunk({"content": "hi"}), chunk({}, "stop", x_groq={"usage": USAGE})]),
        events([chunk({"content": [{"type": "text", "text": "hi"}]}), chunk(None, "stop", usage=USAGE)]),
        events([chunk({"content": "hi"}, "stop", usage=USAGE), {"choices": [], "usage": None}, {"choices": None}]),
        events([chunk({"content": "hi"}, "null"), chunk({"content": None}, "stop", usage=USAGE)]),
        events([chunk({"content": "hi"}), chunk({}, "stop", usage=USAGE)]) + b"data: not read any more\n\n",
        events([chunk({"refusal": "hi"}), chunk({}, "stop", usage={"input_tokens": 11.0, "output_tokens": 7})]),
        events([chunk({"content": "hi"}), {"choices": [{"delta": None, "finish_reason": "stop"}], "usage": USAGE}]),
    ],
)
def test_odd_forms_of_an_answer_are_read_like_the_usual_one(body: bytes) -> None:
    """B79: one JSON body, events without blank lines, parts, usage and finish reasons in odd places."""
    assert read([body]) == ("hi", ModelResponse("hi", usage=Usage(11, 7)))


def test_calls_in_a_body_that_is_no_stream_are_one_each() -> None:
    """B79."""
    entries = [call(None, None, "f", ""), call(None, None, "f", ""), call(None, "c", "f", '{"n":1}')]
    body = {"choices": [{"message": {"content": None, "tool_calls": entries}, "finish_reason": "tool_calls"}]}
    assert [item.arguments for item in read([json.dumps(body).encode()])[1].tool_calls] == [{}, {}, {"n": 1}]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_kept_apart_from_the_text(field: str) -> None:
    """B79."""
    shown, response = read([events([chunk({field: "hm"}), chunk({"content": "hi"}), chunk({}, "stop")])])
    assert (shown, response.text, response.thinking) == ("hi", "hi", "hm")


@pytest.mark.parametrize("finish", [None, "", "null", "length", "max_tokens", "error", "abort", "something new"])
@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_was_cut_off_is_no_answer(finish: str | None, done: bool) -> None:  # noqa: FBT001  # a case
    """B76: text, and a tool call that looks whole, are both given up."""
    chunks = [chunk({"content": "I pay"}), calling(call(0, "a", "pay", '{"n":1}')), chunk({}, finish)]
    error = failure(events(chunks, done=done))
    assert error.retryable
    assert "cut off its answer" in str(error)


def test_a_whole_finish_reason_does_not_mend_one_that_says_cut_off() -> None:
    """B76."""
    assert failure(events([chunk({"content": "I pay"}, "length"), chunk({}, "stop")])).retryable


@pytest.mark.parametrize("finish", ["content_filter", "SAFETY", "sensitive"])
def test_an_answer_that_was_filtered_is_a_final_error(finish: str) -> None:
    """B76: the same request would be filtered again."""
    error = failure(events([chunk({"content": "I"}), chunk({}, finish)]))
    assert not error.retryable
    assert finish.lower() in str(error)


def test_calls_that_were_announced_and_lost_make_no_answer() -> None:
    """B76."""
    assert failure(events([chunk({"content": "I pay"}), chunk({}, "tool_calls")])).retryable


def test_a_call_without_a_name_makes_no_answer() -> None:
    """B76."""
    assert failure(events([calling(call(0, "a", None, '{"n":1}')), chunk({}, "tool_calls")])).retryable


@pytest.mark.parametrize("body", [b"", b"\n\n", b": ping\n\n", b"data: [DONE]\n\n", b'{"choices": [{"mess', b"{}"])
def test_a_body_without_an_answer_is_tried_again(body: bytes) -> None:
    """B76."""
    assert failure(body).retryable


def test_an_event_that_is_no_json_is_tried_again() -> None:
    """B76: what it held can't be known, so the rest is no answer."""
    body = events([chunk({"content": "a"})]).replace(b"data: [DONE]", b"data: {oops") + events([chunk({}, "stop")])
    assert failure(body).retryable


@pytest.mark.parametrize(
    ("event", "retryable"),
    [
        ({"error": {"message": "too many", "code": 429}}, True),
        ({"error": {"message": "gone", "code": "server_error"}}, True),
        ({"error": "it broke"}, True),
        ({"error": {"message": "too long", "code": "context_length_exceeded"}}, False),
        ({"error": {"message": "no", "type": "invalid_request_error", "code": None}}, False),
        ({"error": {"message": "no", "code": 400}}, False),
        ({"error": {"message": "pay", "code": 429, "type": "insufficient_quota"}}, False),
        ({"object": "error", "message": "it broke", "code": 500}, True),
        ({**chunk(None, "error"), "error": {"code": 502, "message": "upstream"}}, True),
    ],
)
def test_an_error_inside_a_stream_is_raised_as_what_it_is(event: object, retryable: bool) -> None:  # noqa: FBT001  # a case
    """B79: though the status was a success, and though a finish reason follows."""
    error = failure(events([chunk({"content": "a"}), event, chunk({}, "stop")]))
    assert error.retryable is retryable
    assert "reported an error" in str(error)


def test_an_event_named_error_is_an_error_whatever_it_holds() -> None:
    """B79."""
    assert "it broke" in str(failure(b"event: error\ndata: it broke\n\n"))
    assert "it broke" in str(failure(b'event: error\ndata: {"message": "it broke"}\n\n'))


def test_an_error_inside_a_stream_shows_no_key() -> None:
    """B79."""
    error = failure(events([{"error": {"message": "bad key sk-abcdefgh12345678", "code": "sk-abcdefgh12345678"}}]))
    assert "abcdefgh" not in str(error)


def test_a_character_that_a_server_cut_in_two_is_made_whole() -> None:
    """B77: servers that cut by UTF-16 units send its halves in two chunks."""
    shown, response = read([events([chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b"}), chunk({}, "stop")])])
    assert shown == response.text == "a😀b"


def test_text_that_can_not_be_kept_is_cleaned() -> None:
    """B77: also a half of a character whose other half never comes, and bytes that are no UTF-8."""
    body = events([chunk({"content": "a\0b\udc00c"}), chunk({"content": "\ud800"}), chunk({}, "stop")])
    assert read([body])[0] == read([body])[1].text == "a\ufffdb\ufffdc\ufffd"
    assert read([body.replace(b"b", b"\xff")])[1].text == "a\ufffd\ufffd\ufffdc\ufffd"


def test_text_in_arguments_names_and_ids_is_cleaned() -> None:
    """B77."""
    (made,) = answer(
        calling(call(0, "a\0", "f\ud800", '{"n\\u0000": "\ud83d')), calling(call(0, arguments='\ude00"}'))
    ).tool_calls
    assert made == ToolCall("f\ufffd", {"n\ufffd": "😀"}, "a\ufffd")


def test_megabytes_in_one_chunk_are_read() -> None:
    """B77."""
    text = "é" * 2_000_000
    assert read([events([chunk({"content": text}), chunk({}, "stop")])])[1].text == text


@pytest.mark.parametrize(
    "delta",
    [{"content": "x" * 100}, {"reasoning": "x" * 100}, {"tool_calls": [call(0, "a", "f", "x" * 100)]}],
)
def test_an_answer_that_never_ends_is_a_final_error(delta: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """B77: in text, in thinking or in arguments."""
    monkeypatch.setattr(openai_stream, "MAX_ANSWER", 1_000)
    assert not failure(events([chunk(delta)] * 11)).retryable


def test_a_growing_usage_counts_once() -> None:
    """B79."""
    growing = [chunk({"content": "a"}, usage={"prompt_tokens": 11, "completion_tokens": count}) for count in range(8)]
    assert read([events([*growing, chunk({}, "stop", usage={"prompt_tokens": 0, "completion_tokens": None})])])[
        1
    ].usage == Usage(11, 7)


def test_the_dialects_differ_from_the_clean_stream() -> None:
    """B79: a dialect that wrote the same bytes would prove nothing."""
    said = Said(("hi",), (("a", "f", ("{", "}")), ("b", "f", ("{", "}"))))
    odd = [replace(CLEAN, index=index) for index in ("missing", "null", "zero", "text", "counting")]
    odd += [
        replace(CLEAN, ids="every"),
        replace(CLEAN, ids="fresh"),
        replace(CLEAN, names="every"),
        replace(CLEAN, nulls=True),
    ]
    assert len({dialect.write(said) for dialect in [CLEAN, *odd]}) == len(odd) + 1
