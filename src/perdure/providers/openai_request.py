"""The body of a chat completion request, made of what perdure knows. Pure.

Any context that `perdure.messages.flaws` finds nothing wrong with becomes input that the provider accepts: what the
API can't carry is put in words or left out, never sent in hope. https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, assert_never

from perdure.messages import DataBlock, Message, Role, TextBlock, ToolResultBlock, ToolUseBlock
from perdure.providers.openai_data import JsonBody, data_part, data_text
from perdure.toolnames import outside_name
from perdure.values import clean_text, digest, thaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from perdure.models import ModelRequest, ToolSpec

MAX_CALL_ID = 40
"""Characters of a tool call's id; OpenAI refuses longer ones (`string_above_max_length`)."""

NOTHING_SAID = "(an empty message)"
"""What is sent for a user's message that holds nothing: a turn that somebody made should not vanish."""

GO_ON = "(Go on.)"
"""What is sent last when the assistant has had the last word, as in a turn that is resumed. Some servers refuse to
answer their own answer, and others take it for the beginning of the next one."""

NO_RESULT = "(no result was recorded)"
"""What is sent for a call without a result, which no well-formed context holds: a request can still be made of it."""

_CALL_ID = re.compile(r"(?!call_[0-9a-f]{32}\Z)[A-Za-z0-9_-]{1,40}", re.ASCII)
# What `outside_call_id` makes is not taken as it is, so that no id of a provider can be equal to one of those.


def request_body(model: str, request: ModelRequest, extra: Mapping[str, object] | None = None) -> JsonBody:
    """Return the JSON body that asks `model` to answer this request as a stream.

    Args:
        model: The provider's name for the model.
        request: The request.
        extra: Fields that are added, or put in place of these; a field that is None is left out.
    """
    body: JsonBody = {
        "model": model,
        "messages": list(_messages(request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    body |= {name: thaw(value) for name, value in (extra or {}).items()}
    if not body["stream"]:
        body["stream_options"] = None
    return {name: value for name, value in body.items() if value is not None}


def outside_call_id(call_id: str) -> str:
    """Return the id under which a tool call goes out: its own, if providers accept it, else one made of it."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return f"call_{digest(call_id.encode())}"


def _messages(request: ModelRequest) -> Iterator[JsonBody]:
    instructions = clean_text(request.instructions)
    if instructions.strip():
        yield {"role": "system", "content": instructions}
    results: dict[str, ToolResultBlock] = {}
    for message in request.messages:
        for result in message.results:
            results.setdefault(result.id, result)
    last = "system"
    for message in request.messages:
        for outgoing in _message(message, results):
            last = last if outgoing["role"] == "system" else str(outgoing["role"])
            yield outgoing
    if last in ("system", "assistant"):
        yield {"role": "user", "content": NOTHING_SAID if last == "system" else GO_ON}


def _message(message: Message, results: Mapping[str, ToolResultBlock]) -> Iterator[JsonBody]:
    """Yield a message, and the results of its calls right behind it, in the order of the calls.

    The rule lets results come later and one by one; the provider wants all of them before anything else is said.
    """
    match message.role:
        case Role.ASSISTANT:
            yield from _assistant(_words(message), message.calls)
        case Role.SYSTEM:
            text = _words(message)
            if text:
                yield {"role": "system", "content": text}
            yield from _assistant("", message.calls)
        case Role.USER | Role.TOOL:
            yield from _user(message)
            yield from _assistant("", message.calls)
        case _ as never:
            assert_never(never)
    yield from (_result(call, results.get(call.id)) for call in message.calls)


def _assistant(text: str, calls: tuple[ToolUseBlock, ...]) -> Iterator[JsonBody]:
    if calls:
        # Without text the content is null: some servers refuse an empty string beside calls, none refuses null.
        yield {"role": "assistant", "content": text or None, "tool_calls": [_call(call) for call in calls]}
    elif text:
        yield {"role": "assistant", "content": text}


def _user(message: Message) -> Iterator[JsonBody]:
    """Yield a user's message; also what a tool said on no call's account, for which the API has no role."""
    parts = list(_parts(message))
    if any(part["type"] != "text" for part in parts):
        yield {"role": "user", "content": parts}
    elif parts:
        yield {"role": "user", "content": "\n".join(str(part["text"]) for part in parts)}
    elif message.role is Role.USER and not message.calls and not message.results:
        yield {"role": "user", "content": NOTHING_SAID}


def _parts(message: Message) -> Iterator[JsonBody]:
    for block in message.content:
        part = data_part(block) if isinstance(block, DataBlock) else None
        if part is not None:
            yield part
        elif isinstance(block, TextBlock | DataBlock) and (text := _block_text(block)).strip():
            yield {"type": "text", "text": text}


def _words(message: Message) -> str:
    return _joined(block for block in message.content if isinstance(block, TextBlock | DataBlock))


def _joined(blocks: Iterable[TextBlock | DataBlock]) -> str:
    text = "\n".join(_block_text(block) for block in blocks)
    return text if text.strip() else ""


def _block_text(block: TextBlock | DataBlock) -> str:
    return block.text if isinstance(block, TextBlock) else data_text(block)


def _call(call: ToolUseBlock) -> JsonBody:
    arguments = json.dumps(call.input, ensure_ascii=False, allow_nan=False)
    function = {"name": outside_name(call.name), "arguments": arguments}
    return {"id": outside_call_id(call.id), "type": "function", "function": function}


def _result(call: ToolUseBlock, result: ToolResultBlock | None) -> JsonBody:
    text = NO_RESULT if result is None else _joined(result.output) or f"(no output: {result.state.value})"
    return {"role": "tool", "tool_call_id": outside_call_id(call.id), "content": text}


def _tool(spec: ToolSpec) -> JsonBody:
    function: JsonBody = {"name": outside_name(spec.name)}
    if spec.description.strip():
        function["description"] = clean_text(spec.description)
    function["parameters"] = {"type": "object", "properties": {}} | {
        name: thaw(value) for name, value in spec.parameters.items()
    }
    return {"type": "function", "function": function}
