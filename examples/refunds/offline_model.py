"""A model without a network and without a mind: rules that read the conversation and word what the tools returned.

It stands in for a real one so that the example runs anywhere. Like a real one it sees only the request, and knows
nothing about a refund that no tool result of this turn says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.refunds.intents import Intent, Understood, mentioned_orders, understand
from examples.refunds.phrases import CHINESE, ENGLISH, LANGUAGES, Phrases
from examples.refunds.tools import query_task, submit_large_refund, submit_refund_request
from perdure import Delta, Message, ModelRequest, ModelResponse, Purpose, ResultState, Role, ToolCall, ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.models import Emit

PIECE = 8
"""Characters of a streamed piece."""

MAX_REASON = 500
MAX_ORDERS = 5
"""Orders that one message may be about."""

TOOLS = {Intent.REFUND: submit_refund_request.name, Intent.STATUS: query_task.name}


class OfflineModel:
    """Answers by rules. Holds nothing between calls."""

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer one request."""
        if request.purpose == Purpose.SUMMARY:
            return ModelResponse(text=summary(request.messages))
        reply = decide(request)
        if not isinstance(reply, str):
            return ModelResponse(tool_calls=reply, finish_reason="tool_calls")
        for start in range(0, len(reply), PIECE):
            await emit(Delta(text=reply[start : start + PIECE]))
        return ModelResponse(text=reply)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation as far as it matters: what the customer said, the last answer, the results not yet told."""

    said: tuple[Understood, ...]
    answer: str
    results: tuple[ToolResultBlock, ...]

    @property
    def now(self) -> Understood:
        """What the customer said last."""
        return self.said[-1] if self.said else understand("")

    @property
    def phrases(self) -> Phrases:
        """The language of the customer's last message that has words."""
        known = (said.chinese for said in reversed(self.said) if said.chinese is not None)
        return CHINESE if next(known, False) else ENGLISH

    @property
    def intent(self) -> Intent:
        """What the customer wants now, an answer to our own question included."""
        now = self.now
        if now.intent is not Intent.CHAT:
            return now.intent
        asked = self._asked
        if asked is not None and (now.orders or now.agrees):
            return asked
        return Intent.STATUS if now.orders else Intent.CHAT

    @property
    def _asked(self) -> Intent | None:
        """What the last answer asked about, if it ended with a question."""
        for phrases in LANGUAGES:
            if self.answer.endswith((phrases.ask_refund, phrases.offer_submit)):
                return Intent.REFUND
            if self.answer.endswith((phrases.ask_status, phrases.offer_look)):
                return Intent.STATUS
        return None

    @property
    def reason(self) -> str:
        """Why the customer wants a refund, in the words used to ask for it."""
        asked = next((said for said in reversed(self.said) if said.intent is Intent.REFUND), self.now)
        visible = "".join(letter if letter.isprintable() else " " for letter in asked.text[: 4 * MAX_REASON])
        return " ".join(visible.split())[:MAX_REASON].strip() or "not given"


def read(messages: Iterable[Message]) -> Talk:
    """Read a conversation. Results count only while nobody has answered to them or asked for something else."""
    said: list[Understood] = []
    results: list[ToolResultBlock] = []
    answer = ""
    for message in messages:
        if message.results:
            results.extend(message.results)
        elif message.role is Role.USER and message.text.strip():
            said.append(understand(message.text))
            if said[-1].intent is not Intent.CHAT:
                results.clear()
        elif message.role is Role.ASSISTANT:
            results.clear()
            if not message.calls and not message.interrupted:
                answer = message.text
    return Talk(tuple(said), answer, tuple(results))


def decide(request: ModelRequest) -> str | tuple[ToolCall, ...]:
    """Return the answer's text, or the tool calls that have to come first."""
    talk = read(request.messages)
    phrases = talk.phrases
    if larger := _over_limit(talk, request):
        return larger
    if talk.results:
        return "\n".join(phrases.result(result) for result in talk.results)
    match talk.intent:
        case Intent.CHAT:
            return phrases.hello
        case Intent.DECLINE:
            return phrases.declined
        case Intent.NOTE:
            orders = _orders(talk, request)
            return phrases.joined(phrases.note, phrases.offer_look if orders else phrases.ask_status)
        case Intent.REFUND | Intent.STATUS as intent:
            return _calls(intent, talk, request)


def _over_limit(talk: Talk, request: ModelRequest) -> tuple[ToolCall, ...]:
    """Return the calls that ask a person, for those submits that were refused without one."""
    calls = {call.id: call for message in request.messages for call in message.calls}
    return tuple(
        ToolCall(submit_large_refund.name, dict(calls[result.id].input))
        for result in talk.results
        if result.state is ResultState.ERROR and submit_large_refund.name in result.text and result.id in calls
    )


def _calls(intent: Intent, talk: Talk, request: ModelRequest) -> str | tuple[ToolCall, ...]:
    phrases = talk.phrases
    if TOOLS[intent] not in {tool.name for tool in request.tools}:
        return phrases.no_tool
    orders = _orders(talk, request)
    if intent is Intent.STATUS:
        return tuple(ToolCall(TOOLS[intent], {"order_id": order}) for order in orders) or phrases.ask_status
    now = talk.now
    if now.intent is Intent.REFUND and not now.orders and not now.refers:
        return phrases.ask_refund  # something is about to be written: no guessing which order is meant
    arguments = ({"order_id": order, "reason": talk.reason} for order in orders)
    return tuple(ToolCall(TOOLS[intent], each) for each in arguments) or phrases.ask_refund


def _orders(talk: Talk, request: ModelRequest) -> tuple[str, ...]:
    """Return the orders that the last message is about: named in it, or the last that were spoken of."""
    if talk.now.orders:
        return talk.now.orders[:MAX_ORDERS]
    for message in reversed(request.messages):
        spoken = " ".join([message.text, *(json.dumps(dict(call.input), default=str) for call in message.calls)])
        if found := mentioned_orders(spoken):
            return found[:MAX_ORDERS]
    return mentioned_orders(request.instructions)[:MAX_ORDERS]  # a summary of what was said before


def summary(messages: Iterable[Message]) -> str:
    """Return what has to be remembered of a conversation: the orders, and no facts about them."""
    found = dict.fromkeys(order for message in messages for order in mentioned_orders(message.text))
    spoken = ", ".join(found) or "none"
    return f"Orders that were spoken of: {spoken}. How far their refunds are has to be looked up again."
