from __future__ import annotations

import base64
import json
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from perdure.messages import (
    Base64Source,
    Block,
    DataBlock,
    Message,
    ResultState,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    flaws,
)
from perdure.models import ModelRequest, Purpose, ToolSpec
from perdure.providers.openai_request import outside_call_id, request_body
from perdure.values import clean_text, freeze_object
from tests.support.openai_validator import problems

TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["", " \n", "\ud800", "a\0b"]
)
MEDIA = (
    "image/png",
    "image/JPEG; q=1",
    "image/tiff",
    "audio/wav",
    "audio/mpeg",
    "audio/ogg",
    "video/mp4",
    "application/pdf",
    "application/json",
    "text/csv",
    "",
    "nonsense",
)
URLS = (
    "https://host/a.png",
    "https://host/é.gif",
    "https://host/file",
    "http://host/a b.png",
    "https:///a.png",
    "https://[::1/a.png",
    "file:///etc/passwd",
    "ftp://host/a.png",
    "data:image/png;base64,AAAA",
    "javascript:alert(1)",
    "",
)
DATA = st.binary(max_size=6).map(lambda raw: base64.b64encode(raw).decode()) | TEXT | st.just("AA AA\nAAAA")
SOURCES = st.one_of(
    st.builds(URLSource, url=st.sampled_from(URLS) | TEXT, media_type=st.none() | st.sampled_from(MEDIA)),
    st.builds(Base64Source, media_type=st.sampled_from(MEDIA) | TEXT, data=DATA),
)
TEXTS = st.builds(TextBlock, TEXT)
DATA_BLOCKS = st.builds(DataBlock, source=SOURCES, name=st.none() | TEXT)
SPOKEN = st.lists(TEXTS | st.builds(ThinkingBlock, TEXT) | DATA_BLOCKS, max_size=3)
ARGUMENTS = st.dictionaries(
    TEXT,
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    max_size=3,
)
CALL_IDS = TEXT | st.text("abc", min_size=35, max_size=60) | TEXT.map(lambda text: outside_call_id(clean_text(text)))


@st.composite
def contexts(draw: st.DrawFn) -> tuple[Message, ...]:
    """Draw what `flaws` allows: calls and results in any role, results late and one by one, beside new calls."""
    messages: list[Message] = []
    owed: list[ToolUseBlock] = []
    seen: set[str] = set()
    for position in range(draw(st.integers(0, 6))):
        blocks: list[Block] = list(draw(SPOKEN))
        answered = draw(st.permutations(owed))[: draw(st.integers(1, len(owed)))] if owed else []
        for call in answered:
            owed.remove(call)
            output = draw(st.lists(TEXTS | DATA_BLOCKS, max_size=2))
            state = draw(st.sampled_from(ResultState))
            blocks.append(ToolResultBlock(id=call.id, name=call.name, output=tuple(output), state=state))
        for _ in range(draw(st.integers(0, 2))):
            call = ToolUseBlock(id=draw(CALL_IDS), name=draw(TEXT), input=freeze_object(draw(ARGUMENTS)))
            if call.id not in seen:
                seen.add(call.id)
                owed.append(call)
                blocks.append(call)
        role = draw(st.sampled_from(Role))
        messages.append(Message(id=str(position), role=role, content=tuple(draw(st.permutations(blocks)))))
    if owed:
        results = tuple(ToolResultBlock(id=call.id, name=call.name) for call in owed)
        messages.append(Message(id="last", role=Role.TOOL, content=results))
    return tuple(messages)


def request(*messages: Message, instructions: str = "", tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(Purpose.ANSWER, instructions, messages, tools)


def said(role: str, *content: Block | str) -> Message:
    blocks = tuple(TextBlock(block) if isinstance(block, str) else block for block in content)
    return Message(id="m", role=Role(role), content=blocks)


def sent(*messages: Message) -> list[dict[str, Any]]:
    """Return the messages that go out, after checking that they would be accepted."""
    body = request_body("m", request(*messages))
    assert problems(body) == []
    return cast("list[dict[str, Any]]", body["messages"])


def image(media_type: str = "image/png", data: str = "iVBORw0KGgo=") -> DataBlock:
    return DataBlock(source=Base64Source(media_type=media_type, data=data), name="it")


@settings(max_examples=300)
@given(contexts(), TEXT, st.lists(TEXT, max_size=2, unique=True))
def test_every_context_that_the_rules_allow_is_one_that_the_provider_accepts(
    messages: tuple[Message, ...], instructions: str, tools: list[str]
) -> None:
    """B78."""
    assert list(flaws(messages)) == []
    specs = tuple(ToolSpec(f"tool {position}", text, freeze_object({})) for position, text in enumerate(tools))
    body = request_body("m", request(*messages, instructions=instructions, tools=specs))
    assert problems(body) == []
    assert problems(json.loads(json.dumps(body, ensure_ascii=False).encode())) == []


@given(contexts())
def test_every_call_goes_out_once_and_its_result_right_behind_it_in_the_order_of_the_calls(
    messages: tuple[Message, ...],
) -> None:
    """B78."""
    outgoing = cast("list[dict[str, Any]]", request_body("m", request(*messages))["messages"])
    calls = [call["id"] for message in outgoing for call in message.get("tool_calls", ())]
    assert calls == [outside_call_id(call.id) for message in messages for call in message.calls]
    assert calls == [message["tool_call_id"] for message in outgoing if message["role"] == "tool"]


def test_an_assistant_that_had_the_last_word_is_asked_to_go_on() -> None:
    """B30, B78: a resumed turn says nothing of its own, and some servers refuse to answer their own answer."""
    body = request_body("m", request(said("user", "Where is it?"), said("assistant", "It is")))
    assert problems(body) == []
    assert cast("list[object]", body["messages"])[-1] == {"role": "user", "content": "(Go on.)"}


@given(contexts())
def test_no_thinking_goes_out(messages: tuple[Message, ...]) -> None:
    """B78: a thought is kept and shown, and never sent back as an answer."""
    marked = said("assistant", ThinkingBlock("what I think"))
    assert "what I think" not in json.dumps(request_body("m", request(*messages, marked)))


def test_a_plain_conversation_goes_out_as_it_was_held() -> None:
    """B78."""
    call = ToolUseBlock(id="call-1", name="orders.find", input=freeze_object({"order": "A1", "also": [1, None]}))
    body = request_body(
        "gpt-5-mini",
        request(
            said("user", "Where is it?"),
            said("assistant", ThinkingBlock("hm"), "I look.", call),
            said("tool", ToolResultBlock(id="call-1", name="orders.find", output=(TextBlock("on its way"),))),
            said("assistant", "It is on its way."),
            said("user", "Thank you."),
            instructions="Be kind.",
            tools=(ToolSpec("orders.find", "Find an order.", freeze_object({"properties": {"order": {}}})),),
        ),
    )
    assert problems(body) == []
    function = {"name": "orders_find", "arguments": '{"order": "A1", "also": [1, null]}'}
    parameters: dict[str, object] = {"type": "object", "properties": {"order": {}}}
    assert body == {
        "model": "gpt-5-mini",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Where is it?"},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": "call-1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call-1", "content": "on its way"},
            {"role": "assistant", "content": "It is on its way."},
            {"role": "user", "content": "Thank you."},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "orders_find", "description": "Find an order.", "parameters": parameters},
            }
        ],
    }


def test_results_that_came_late_and_apart_are_put_behind_their_calls() -> None:
    """B78."""
    first, second = (ToolUseBlock(id=call_id, name="f") for call_id in ("a", "b"))
    results = {call_id: ToolResultBlock(id=call_id, name="f", output=(TextBlock(call_id),)) for call_id in "ab"}
    messages = (said("assistant", first, second), said("user", results["b"], "meanwhile"), said("tool", results["a"]))
    assert [(message["role"], message["content"]) for message in sent(*messages)] == [
        ("assistant", None),
        ("tool", "a"),
        ("tool", "b"),
        ("user", "meanwhile"),
    ]


@pytest.mark.parametrize("state", list(ResultState))
def test_a_result_without_output_says_how_the_call_ended(state: ResultState) -> None:
    """B78."""
    call = ToolUseBlock(id="a", name="f")
    result = ToolResultBlock(id="a", name="f", output=(TextBlock(" "),), state=state)
    assert state.value in sent(said("assistant", call), said("tool", result))[1]["content"]


def test_a_message_with_nothing_to_send_is_left_out_unless_it_is_the_users() -> None:
    """B78."""
    messages = sent(said("assistant", ThinkingBlock("hm")), said("system", " "), said("tool"), said("user"))
    assert messages == [{"role": "user", "content": "(an empty message)"}]
    assert sent() == messages


def test_a_user_can_send_images_sounds_and_pdfs() -> None:
    """B78."""
    sound, pdf = image("audio/mpeg", "SUQz"), image("application/pdf", "JVBE\nRi0=")
    linked = DataBlock(source=URLSource(url="https://host/a.webp"))
    (message,) = sent(said("user", "look:", image(), linked, sound, pdf))
    assert message["content"] == [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "image_url", "image_url": {"url": "https://host/a.webp"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "file", "file": {"filename": "it", "file_data": "data:application/pdf;base64,JVBERi0="}},
    ]


def test_a_pdf_without_a_name_is_given_one() -> None:
    """B78: the provider wants a file to have one."""
    nameless = DataBlock(source=Base64Source(media_type="application/pdf", data="JVBERi0="))
    (message,) = sent(said("user", nameless))
    assert message["content"][0]["file"]["filename"] == "document.pdf"


@pytest.mark.parametrize(
    "block",
    [
        image("image/tiff"),
        image("image/png", "not base64"),
        image("image/png", "!AAAA"),
        image("image/png", ""),
        image("video/mp4"),
        DataBlock(source=URLSource(url="file:///etc/passwd", media_type="image/png"), name="it"),
        DataBlock(source=URLSource(url="ftp://host/a.png"), name="it"),
        DataBlock(source=URLSource(url="https://[::1/a.png"), name="it"),
        DataBlock(source=URLSource(url="https://host/a.pdf", media_type="application/pdf"), name="it"),
    ],
)
def test_data_that_the_provider_does_not_take_is_put_in_words(block: DataBlock) -> None:
    """B78: refused once, it would be refused in every later call of its session."""
    (message,) = sent(said("user", block))
    assert message["content"].startswith("[attached: ")
    assert "named it" in message["content"]


def test_text_files_are_sent_as_their_text_and_other_roles_name_their_data() -> None:
    """B78."""
    table = image("text/csv; charset=utf-8", base64.b64encode(b"a,b\n1,2").decode())
    call = ToolUseBlock(id="a", name="f")
    result = ToolResultBlock(id="a", name="f", output=(TextBlock("done"), image(), table))
    user, assistant, tool = sent(said("user", table), said("assistant", call, image()), said("tool", result))
    assert user["content"].endswith("a,b\n1,2")
    assert sent(said("user", image("text/plain", "YQBi")))[0]["content"].endswith("a\ufffdb")
    assert assistant["content"] == "[attached: image/png, named it, not readable here]"
    assert tool["content"].startswith("done\n[attached: image/png")
    assert tool["content"].endswith("a,b\n1,2")


@given(st.lists(CALL_IDS, unique=True, max_size=5))
def test_call_ids_stay_different_outside(call_ids: list[str]) -> None:
    """B78: also those that look like one of the ids that are made for others."""
    cleaned = {clean_text(call_id) for call_id in call_ids}
    assert len({outside_call_id(call_id) for call_id in cleaned}) == len(cleaned)


def test_more_fields_are_added_and_none_takes_one_away() -> None:
    """B78: some servers refuse `stream_options`, and it may not go without a stream."""
    extra = freeze_object({"temperature": 0.5, "stop": ["x"], "stream_options": None})
    body = request_body("m", request(), extra)
    assert body.keys() == {"model", "messages", "stream", "temperature", "stop"}
    assert body["stop"] == ["x"]
    assert problems(request_body("m", request(), freeze_object({"stream": False}))) == []
