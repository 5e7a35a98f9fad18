"""A model's answer out of the chunks of a chat completion, in the dialects of the servers that call theirs compatible.

Knows no network: it takes events and keeps what they say until the answer is whole.
https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from perdure.messages import Usage
from perdure.models import ModelError, ModelResponse
from perdure.providers.loose import as_count, as_list, as_object, as_text
from perdure.providers.openai_calls import CallCollector
from perdure.providers.openai_errors import Complaint, answer_error
from perdure.values import clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.providers.sse import Event

MAX_ANSWER = 16 * 1024 * 1024
"""Characters of text, thinking and calls together: more than any model writes, and a stop for one that never ends."""

DONE = "[DONE]"
"""The event that ends a stream. Not every server sends it."""

WHOLE = frozenset(
    {"stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed"}
    | {"tool_calls", "tool_call", "tool_use", "function_call"}
)
"""Finish reasons of a whole answer, in lower case. Any other reason, a new one included, means that it is not whole."""

FILTERED = frozenset(
    {"content_filter", "content_filtered", "sensitive", "safety", "recitation", "prohibited_content", "blocklist"}
    | {"refusal"}
)
"""Finish reasons of an answer that was withheld for its content."""

_NO_REASON = frozenset({"", "null", "none"})


class Answer:
    """An answer as far as it has come."""

    def __init__(self, complaint: Complaint) -> None:
        """Begin an answer; `complaint` words what is wrong with it."""
        self.done = False
        self._complaint = complaint
        self._texts: list[str] = []
        self._held = ""
        self._thinking: list[str] = []
        self._calls = CallCollector()
        self._usage = Usage()
        self._reasons: list[str] = []
        self._size = 0
        self._recognised = False

    @property
    def finished(self) -> bool:
        """Whether a finish reason has come: what follows can only be usage."""
        return bool(self._reasons)

    def add(self, event: Event) -> str:
        """Take one event, and return the text in it that can be shown already.

        Raises:
            ModelError: the server reported an error, or sent what is no chunk of an answer.
        """
        if self.done or event.data.strip() == DONE:
            self.done = True
            return ""
        return "".join(self._add_chunk(chunk, event.name) for chunk in self._chunks(event))

    def rest(self) -> str:
        """Return the text that was held back and won't get its other half any more."""
        held, self._held = self._held, ""
        return clean_text(held)

    def response(self, inside: Mapping[str, str]) -> ModelResponse:
        """Return the whole answer, its tool calls under the tools' inside names.

        Raises:
            ModelError: the answer is not whole. Retryable when it was cut off, final when it was filtered.
        """
        self._check_whole()
        calls = self._calls.calls(inside)
        if not calls and any(reason.startswith(("tool_", "function_")) for reason in self._reasons):
            msg = self._complaint.words("ended its answer for a tool call and sent none")
            raise ModelError(msg, retryable=True)
        return ModelResponse(
            text=clean_text("".join(self._texts)),
            tool_calls=calls,
            usage=self._usage,
            finish_reason="tool_calls" if calls else "stop",
            thinking=clean_text("".join(self._thinking)),
        )

    def _check_whole(self) -> None:
        bad = [reason for reason in self._reasons if reason not in WHOLE]
        if any(reason in FILTERED for reason in bad):
            msg = self._complaint.words(f"withheld its answer for its content (finish reason {bad[0]!r})")
            raise ModelError(msg)
        if bad:
            msg = self._complaint.words(f"cut off its answer (finish reason {self._complaint.clean(bad[0])!r})")
            raise ModelError(msg, retryable=True)
        if not self._reasons and not self._recognised:
            raise self._complaint.no_answer()
        if not self._reasons:
            msg = self._complaint.words("cut off its answer: it ended without a finish reason")
            raise ModelError(msg, retryable=True)

    def _chunks(self, event: Event) -> list[object]:
        try:
            return [_loads(event.data)]
        except ValueError:
            pass
        lines = [line.strip() for line in event.data.split("\n")]
        self.done = self.done or DONE in lines
        try:  # a server that leaves out the blank lines between its events
            return [_loads(line) for line in lines if line not in {"", DONE}]
        except ValueError:
            if event.name == "error":
                return [event.data]
            if not event.complete:  # half of an event, or no stream at all: `response` says which
                return []
        raise ModelError(self._complaint.words("sent an event that is not JSON"), retryable=True)

    def _add_chunk(self, chunk: object, event_name: str) -> str:
        fields = as_object(chunk)
        error = answer_error(chunk, self._complaint, named_error=event_name == "error")
        if error is not None:
            raise error
        self._recognised = self._recognised or "choices" in fields
        self._add_usage(fields.get("usage"))
        self._add_usage(as_object(fields.get("x_groq")).get("usage"))
        return "".join(self._add_choice(as_object(choice)) for choice in as_list(fields.get("choices")))

    def _add_choice(self, choice: Mapping[str, object]) -> str:
        self._add_usage(choice.get("usage"))
        delta, message = as_object(choice.get("delta")), as_object(choice.get("message"))
        said = delta or message
        calls = as_list(said.get("tool_calls"))
        if not calls and as_object(said.get("function_call")):
            calls = ({"function": said["function_call"]},)
        self._grow(self._calls.take(calls, separate=not delta))
        thinking = as_text(said.get("reasoning_content")) or as_text(said.get("reasoning"))
        text, thought = _content(said.get("content"))
        self._thinking += [part for part in (thinking, thought) if part]
        self._grow(len(thinking) + len(thought))
        reason = as_text(choice.get("finish_reason")).strip().lower()
        if reason not in _NO_REASON and reason not in self._reasons:
            self._grow(len(reason))
            self._reasons.append(reason)
        return self._add_text(text + as_text(said.get("refusal")))

    def _add_text(self, text: str) -> str:
        if not text:
            return ""
        self._grow(len(text))
        self._texts.append(text)
        text = self._held + text
        # A server that cuts its text by UTF-16 units can send a character's two halves in two chunks.
        split = len(text) - 1 if "\ud800" <= text[-1] <= "\udbff" else len(text)
        self._held = text[split:]
        return clean_text(text[:split])

    def _add_usage(self, value: object) -> None:
        usage = as_object(value)
        given = as_count(usage.get("prompt_tokens")) or as_count(usage.get("input_tokens"))
        made = as_count(usage.get("completion_tokens")) or as_count(usage.get("output_tokens"))
        # Counts only grow in a stream, so that the largest is the last true one.
        self._usage = Usage(max(given, self._usage.input_tokens), max(made, self._usage.output_tokens))

    def _grow(self, characters: int) -> None:
        self._size += characters
        if self._size > MAX_ANSWER:
            msg = self._complaint.words(f"sent an answer of more than {MAX_ANSWER // (1024 * 1024)} MiB")
            raise ModelError(msg)


def _loads(data: str) -> object:
    try:
        return cast("object", json.loads(data, strict=False))
    except RecursionError:
        msg = "nested too deep"
        raise ValueError(msg) from None


def _content(value: object) -> tuple[str, str]:
    """Return the text and the thinking in a content, which is a string or, at some servers, a list of parts."""
    if isinstance(value, str):
        return value, ""
    parts = [as_object(part) for part in as_list(value)]
    text = "".join(as_text(part.get("text")) for part in parts if part.get("type") in {"text", "output_text", None})
    thinking = [part.get("thinking") for part in parts if part.get("type") == "thinking"]
    return text, "".join(as_text(item) or _content(item)[0] for item in thinking)
