"""What OpenAI's chat completions endpoint accepts, written from its documentation and from the errors it is known for.

Knows nothing of perdure. Stricter than the endpoint where the documentation is, and where servers that call themselves
compatible are: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIELDS = (
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "user"}
    | {"temperature", "top_p", "stop", "seed", "max_tokens", "max_completion_tokens", "response_format"}
    | {"reasoning_effort", "frequency_penalty", "presence_penalty"}
)
MESSAGE_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "refusal", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
PART_TYPES = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,(.+)", re.DOTALL)
IMAGE_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def problems(body: object) -> list[str]:
    """Return what the endpoint would refuse in this request body; nothing when it would accept it."""
    if not isinstance(body, dict):
        return ["the body is not an object"]
    return [*_top_level(cast("dict[str, object]", body)), *_strings(cast("object", body))]


def _top_level(body: Mapping[str, object]) -> Iterator[str]:
    yield from (f"unknown field {name}" for name in body.keys() - FIELDS)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model is not a name"
    if not isinstance(body.get("stream", False), bool):
        yield "stream is not a boolean"
    if "stream_options" in body and body.get("stream") is not True:
        yield "stream_options without stream"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages is not a list of at least one"
        return
    yield from _conversation(cast("list[object]", messages))
    if "tools" in body:
        yield from _tools(body["tools"])


def _conversation(messages: list[object]) -> Iterator[str]:
    owed: list[str] = []
    seen: set[str] = set()
    for position, item in enumerate(messages):
        where = f"messages[{position}]"
        if not isinstance(item, dict):
            yield f"{where} is not an object"
            continue
        message = cast("dict[str, object]", item)
        yield from (f"{where}{problem}" for problem in _message(message))
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id in owed:
                owed.remove(cast("str", call_id))
            else:
                yield f"{where}: a tool message must answer a call of the assistant message before it"
            continue
        if owed:
            yield f"{where}: tool_calls must be followed by a tool message for each of {owed}"
        owed = _call_ids(message)
        yield from (f"{where}: the id {call_id} is not unique" for call_id in owed if call_id in seen)
        seen.update(owed)
    if owed:
        yield f"the last messages lack the results of {owed}"
    roles = [cast("dict[str, object]", item).get("role") for item in messages]
    spoken = [role for role in roles if role not in {"system", "developer"}]
    if not spoken:
        yield "nobody says anything"
    elif spoken[-1] == "assistant" and not owed:
        # Mistral refuses it ("Expected last role User or Tool"), Anthropic and vLLM go on with the assistant's words.
        yield "the assistant has the last word"


def _call_ids(message: Mapping[str, object]) -> list[str]:
    calls = message.get("tool_calls", [])
    return [str(cast("dict[str, object]", call).get("id")) for call in cast("list[object]", calls)]


def _message(message: Mapping[str, object]) -> Iterator[str]:
    role = message.get("role")
    if not isinstance(role, str) or role not in MESSAGE_FIELDS:
        yield f".role {role!r} is unknown"
        return
    yield from (f": unknown field {name}" for name in message.keys() - MESSAGE_FIELDS[role])
    if "tool_calls" in message:
        yield from _tool_calls(message["tool_calls"])
    content = message.get("content")
    if content is None:
        if role != "assistant" or "tool_calls" not in message:
            yield ".content: expected a string or a list, got null"
    elif isinstance(content, str):
        if not content.strip():
            yield ".content is empty"
    elif isinstance(content, list) and content:
        for position, part in enumerate(cast("list[object]", content)):
            yield from (f".content[{position}]{problem}" for problem in _part(part, PART_TYPES[role]))
    else:
        yield ".content is neither text nor a list of at least one part"


def _tool_calls(calls: object) -> Iterator[str]:
    if not isinstance(calls, list) or not calls:
        yield ".tool_calls is not a list of at least one"
        return
    for item in cast("list[object]", calls):
        call = cast("dict[str, object]", item)
        call_id = call.get("id")
        if call.keys() != {"id", "type", "function"} or call["type"] != "function":
            yield f".tool_calls: {sorted(call)} are not the fields of a function call"
            continue
        if not isinstance(call_id, str) or not re.fullmatch(r"[\x21-\x7e]{1,40}", call_id):
            yield f".tool_calls: the id {call_id!r} is not of 1 to 40 visible characters"
        function = cast("dict[str, object]", call["function"])
        if function.keys() != {"name", "arguments"}:
            yield f".tool_calls.function: {sorted(function)}"
            continue
        yield from _function_name(function["name"])
        if not _is_json_object(function["arguments"]):
            yield f".tool_calls: the arguments {function['arguments']!r} are not a string of a JSON object"


def _part(item: object, allowed: set[str]) -> Iterator[str]:
    part = cast("dict[str, object]", item)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        yield f": a part of type {kind!r} has no place in this role"
    elif part.keys() != {"type", kind}:
        yield f": {sorted(part)} are not the fields of a {kind} part"
    elif kind in {"text", "refusal"}:
        if not isinstance(part[kind], str) or not str(part[kind]).strip():
            yield f".{kind} is empty"
    else:
        checks = {"image_url": _image, "input_audio": _audio, "file": _file}
        yield from checks[kind](cast("dict[str, object]", part[kind]))


def _image(image: Mapping[str, object]) -> Iterator[str]:
    url = image.get("url")
    if not image.keys() <= {"url", "detail"} or not isinstance(url, str):
        yield ".image_url: not a URL"
        return
    embedded = DATA_URL.fullmatch(url)
    if embedded:
        if embedded[1] not in IMAGE_TYPES or not _is_base64(embedded[2]):
            yield f".image_url: {url[:40]} holds no image that is taken"
    elif urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname or re.search(r"\s", url):
        yield f".image_url: {url[:40]} can't be fetched"


def _audio(audio: Mapping[str, object]) -> Iterator[str]:
    if set(audio) != {"data", "format"} or audio["format"] not in {"wav", "mp3"} or not _is_base64(audio["data"]):
        yield ".input_audio is not base64 of wav or mp3"


def _file(file: Mapping[str, object]) -> Iterator[str]:
    embedded = DATA_URL.fullmatch(str(file.get("file_data")))
    if set(file) != {"filename", "file_data"} or not isinstance(file["filename"], str) or not file["filename"]:
        yield ".file needs a name and data"
    if not embedded or embedded[1] != "application/pdf" or not _is_base64(embedded[2]):
        yield ".file is not a PDF in a data URL"


def _tools(tools: object) -> Iterator[str]:
    if not isinstance(tools, list) or not 1 <= len(cast("list[object]", tools)) <= 128:
        yield "tools is not a list of 1 to 128"
        return
    names: set[object] = set()
    for item in cast("list[object]", tools):
        tool = cast("dict[str, object]", item)
        function = cast("dict[str, object]", tool.get("function"))
        if tool.keys() != {"type", "function"} or tool["type"] != "function":
            yield f"tools: {sorted(tool)}"
        if not function.keys() <= {"name", "description", "parameters", "strict"}:
            yield f"tools: unknown fields in {sorted(function)}"
        yield from _function_name(function.get("name"))
        if function.get("name") in names:
            yield f"tools: {function.get('name')} is not unique"
        names.add(function.get("name"))
        if not isinstance(function.get("description", ""), str):
            yield "tools: the description is not a string"
        parameters = function.get("parameters", {"type": "object"})
        if not isinstance(parameters, dict) or cast("dict[str, object]", parameters).get("type") != "object":
            yield "tools: the schema's type is not object"


def _function_name(name: object) -> Iterator[str]:
    if not isinstance(name, str) or not FUNCTION_NAME.fullmatch(name):
        yield f": the function name {name!r} does not match ^[a-zA-Z0-9_-]{{1,64}}$"


def _is_json_object(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _is_base64(data: object) -> bool:
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


def _strings(value: object) -> Iterator[str]:
    """Find text that is no Unicode, which servers refuse to parse."""
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _strings(item)
    elif isinstance(value, str):
        if "\0" in value or re.search("[\ud800-\udfff]", value):
            yield f"{value[:40]!r} holds a character that is none"
    elif not isinstance(value, int | float | None):
        yield f"a {type(value).__name__} is not JSON"
