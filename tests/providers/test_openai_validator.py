from __future__ import annotations

from typing import Any

import pytest

from tests.support.openai_validator import problems


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **fields}


USER = {"role": "user", "content": "hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}


def calling(**fields: object) -> dict[str, object]:
    return {**CALLING, "tool_calls": [{**CALL, **fields}]}


def user(*parts: object) -> dict[str, object]:
    return {"role": "user", "content": list(parts)}


def test_the_validator_accepts_what_the_documentation_shows() -> None:
    """B78: a validator that refused everything would prove nothing, and so would the opposite."""
    assert problems(body({"role": "system", "content": "s"}, USER, CALLING, RESULT, USER)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        body(),
        body({"role": "system", "content": "s"}),
        body({"role": "user", "content": ""}),
        body({"role": "user", "content": None}),
        body({"role": "user", "content": []}),
        body({"role": "robot", "content": "x"}),
        body({"role": "user", "content": "\ud800"}),
        body({**USER, "colour": "red"}),
        body(USER, {"role": "assistant", "content": "x"}),
        body(USER, {"role": "assistant", "content": None}, USER),
        body(USER, {"role": "assistant", "content": "x", "tool_calls": []}, USER),
        body(USER, CALLING),
        body(USER, CALLING, USER, RESULT),
        body(USER, CALLING, RESULT, RESULT),
        body(USER, RESULT),
        body(USER, CALLING, {**RESULT, "tool_call_id": "b"}),
        body(USER, CALLING, RESULT, CALLING, RESULT),
        body(USER, calling(id=""), {**RESULT, "tool_call_id": ""}),
        body(USER, calling(id="x" * 41), {**RESULT, "tool_call_id": "x" * 41}),
        body(USER, calling(function={"name": "f.g", "arguments": "{}"}), RESULT),
        body(USER, calling(function={"name": "f", "arguments": "[]"}), RESULT),
        body(USER, calling(function={"name": "f", "arguments": {}}), RESULT),
        body(USER, CALLING, {**RESULT, "content": ""}),
        body(USER, CALLING, {**RESULT, "content": [{"type": "image_url", "image_url": {"url": "https://h/a.png"}}]}),
        body(user({"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AAAA"}})),
        body(user({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}})),
        body(user({"type": "image_url", "image_url": {"url": "file:///a.png"}})),
        body(user({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}})),
        body(user({"type": "file", "file": {"filename": "a", "file_data": "data:text/csv;base64,AAAA"}})),
        body(user({"type": "text", "text": ""})),
        body(USER, tools=[]),
        body(USER, tools=[{"type": "function", "function": {"name": "a b"}}]),
        body(USER, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]),
        body(USER, tools=[{"type": "function", "function": {"name": "f"}}] * 2),
        body(USER, stream_options={"include_usage": True}),
        body(USER, colour="red"),
    ],
)
def test_the_validator_refuses_what_the_provider_refuses(wrong: dict[str, object]) -> None:
    """B78."""
    assert problems(wrong)
