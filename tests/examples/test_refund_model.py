# ruff: noqa: RUF001  # Chinese has punctuation of its own
"""The rules of the offline model: what it asks the service, and what it never says without having asked."""

from __future__ import annotations

import json
from itertools import count

import pytest
from hypothesis import given, strategies as st

from examples.refunds.app import app
from examples.refunds.offline_model import OfflineModel
from perdure.messages import (
    INTERRUPTED_MARK,
    Block,
    Message,
    ResultState,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from perdure.models import Delta, ModelRequest, ModelResponse, Purpose, ToolSpec
from perdure.requests import tool_spec
from perdure.values import EMPTY, freeze_object

FACT_WORDS = ("refunded", "paid", "approved", "submitted refund request", "退款已完成", "已付款", "已批准", "已为订单")
"""Words of which each says that something has happened."""

TOOLS = tuple(tool_spec(tool) for tool in app.agents[0].tools)


class Conversation:
    """What a session would show the model."""

    def __init__(self, *said: str) -> None:
        self.messages: list[Message] = []
        self._numbers = count()
        for text in said:
            self.says(text)

    def says(self, text: str) -> Conversation:
        return self._add(Role.USER, TextBlock(text))

    def answered(self, text: str, *, interrupted: bool = False) -> Conversation:
        return self._add(Role.ASSISTANT, TextBlock(text), interrupted=interrupted)

    def returned(self, tool: str, said: object, state: ResultState = ResultState.SUCCESS) -> Conversation:
        """A tool was called, and this is what came of it."""
        call_id = f"call-{next(self._numbers)}"
        self._add(Role.ASSISTANT, ToolUseBlock(id=call_id, name=tool, input=EMPTY))
        text = said if isinstance(said, str) else json.dumps(said)
        return self._add(Role.TOOL, ToolResultBlock(id=call_id, name=tool, output=(TextBlock(text),), state=state))

    def _add(self, role: Role, block: Block, *, interrupted: bool = False) -> Conversation:
        metadata = freeze_object({INTERRUPTED_MARK: True}) if interrupted else EMPTY
        self.messages.append(Message(id=f"m-{next(self._numbers)}", role=role, content=(block,), metadata=metadata))
        return self

    async def next(
        self, *, tools: tuple[ToolSpec, ...] = TOOLS, purpose: Purpose = Purpose.ANSWER, instructions: str = ""
    ) -> ModelResponse:
        pieces: list[str] = []

        async def emit(delta: Delta) -> None:
            pieces.append(delta.text)

        request = ModelRequest(purpose, instructions, tuple(self.messages), tools)
        response = await OfflineModel().complete(request, emit)
        assert "".join(pieces) == (response.text if purpose is Purpose.ANSWER else "")
        return response


def calls(response: ModelResponse) -> list[tuple[str, object]]:
    return [(call.name, call.arguments["order_id"]) for call in response.tool_calls]


def record(status: str, order_id: str = "A1042") -> dict[str, str]:
    request = {"request_id": "R-77AA88BB", "order_id": order_id, "amount": "120.00", "currency": "EUR"}
    return request | {"status": status}


def found(*requests: dict[str, str]) -> dict[str, object]:
    return {"order": {"order_id": "A1042", "amount": "120.00", "currency": "EUR"}, "requests": list(requests)}


REFUNDS = (
    "订单 A1042 需要申请退款",
    "我想把a1042退了",
    "可以退款吗？订单号A1042",
    "我忘记申请退款了，订单Ａ１０４２",
    "I need a refund for order A1042",
    "This is not what I ordered: please refund A1042.",
    "I paid for A1042 and it was broken. Can I get a refund?",
    "I want A1042 to be refunded",
)
STATUS = (
    "处理到哪里了",
    "退款了吗？",
    "为什么还没收到钱",
    "什么时候到账",
    "how far is it?",
    "where is it?",
    "Is it refunded?",
    "I have not received my refund",
    "any news",
)
NOTES = (
    "记一下已经退款了",
    "请把订单标记为已退款",
    "已经给我退钱了",
    "note that it is refunded",
    "Mark A1042 as paid!",
    "the refund for A1042 has arrived",
)
NO_REFUND = ("我不要退款了", "取消A1042的退款", "I don't want a refund for A1042", "please cancel my refund for A1042")


@pytest.mark.parametrize("text", REFUNDS)
async def test_it_submits_a_refund_that_is_asked_for(text: str) -> None:
    response = await Conversation(text).next()

    assert calls(response) == [("submit_refund_request", "A1042")]
    assert response.tool_calls[0].arguments["reason"]


@pytest.mark.parametrize("text", STATUS)
async def test_it_looks_up_the_order_that_was_spoken_of(text: str) -> None:
    """B68: the second answer comes from the service's record, not from the conversation."""
    talk = Conversation("I need a refund for order A1042").returned(
        "submit_refund_request", {"created": True, "request": record("requested")}
    )

    response = await talk.answered("It waits for approval.").says(text).next()

    assert calls(response) == [("query_task", "A1042")]


@pytest.mark.parametrize("text", NOTES)
async def test_being_told_what_is_true_it_writes_nothing_and_offers_to_look(text: str) -> None:
    """B68: the user saying "note that it is refunded" changes nothing in the service."""
    talk = Conversation("A1042").returned("query_task", found(record("requested"))).answered("It waits.").says(text)

    response = await talk.next()
    assert not response.tool_calls
    assert not any(word in response.text for word in FACT_WORDS)

    agreed = await talk.answered(response.text).says("好的" if "记录" in response.text else "yes, please").next()
    assert calls(agreed) == [("query_task", "A1042")]


@pytest.mark.parametrize("text", NO_REFUND)
async def test_no_refund_is_submitted_for_who_wants_none(text: str) -> None:
    response = await Conversation(text).next()

    assert not response.tool_calls
    assert response.text


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("I want a refund", "submit_refund_request"),
        ("我要退款", "submit_refund_request"),
        ("how far is it?", "query_task"),
    ],
)
async def test_it_asks_for_a_missing_order_number_and_goes_on_when_it_has_it(text: str, tool: str) -> None:
    talk = Conversation(text)
    asked = await talk.next()
    assert not asked.tool_calls

    response = await talk.answered(asked.text).says("A1042").next()

    assert calls(response) == [(tool, "A1042")]
    if tool == "submit_refund_request":
        assert response.tool_calls[0].arguments["reason"] == text


async def test_it_does_not_guess_the_order_of_a_refund() -> None:
    talk = Conversation("how far is A1042?").returned("query_task", found(record("paid"))).answered("Paid.")

    response = await talk.says("I want a refund for my other order").next()

    assert not response.tool_calls


async def test_several_orders_are_several_calls() -> None:
    response = await Conversation("refund A1042 and A1043 please").next()

    assert calls(response) == [("submit_refund_request", "A1042"), ("submit_refund_request", "A1043")]


@pytest.mark.parametrize("text", ["hello", "你好", "thank you!", "谢谢", "🙂", "What a day"])
async def test_small_talk_calls_no_tool(text: str) -> None:
    response = await Conversation(text).next()

    assert not response.tool_calls
    assert response.text


async def test_the_order_is_found_in_the_summary_of_a_long_conversation() -> None:
    talk = Conversation("I need a refund for order A1042").answered("Submitted.")
    summary = (await talk.next(purpose=Purpose.SUMMARY)).text

    response = await Conversation("how far is it?").next(instructions=summary)

    assert calls(response) == [("query_task", "A1042")]


@pytest.mark.parametrize("status", ["requested", "approved", "paid", "rejected", "lost in the post"])
@pytest.mark.parametrize("question", ["how far is A1042?", "A1042 处理到哪里了"])
async def test_it_says_what_the_record_says(status: str, question: str) -> None:
    """B70: when there is one payment in the ledger, the session says so."""
    response = await Conversation(question).returned("query_task", found(record(status))).next()

    assert all(fact in response.text for fact in ("R-77AA88BB", "A1042", "120.00 EUR"))
    says_paid = any(word in response.text for word in ("refunded", "退款已完成"))
    assert says_paid is (status == "paid")
    assert ("record" in response.text) is question.startswith("how")


async def test_a_standing_request_is_named_and_not_called_new() -> None:
    """B69: the answer names the existing one."""
    talk = Conversation("refund A1042").returned(
        "submit_refund_request", {"created": False, "request": record("approved")}
    )

    text = (await talk.next()).text

    assert "R-77AA88BB" in text
    assert "already" in text


async def test_no_request_on_record_is_said_and_one_is_offered() -> None:
    talk = Conversation("how far is A1042?").returned("query_task", found())
    offered = await talk.next()
    assert not offered.tool_calls

    response = await talk.answered(offered.text).says("yes").next()

    assert calls(response) == [("submit_refund_request", "A1042")]


async def test_the_error_of_a_tool_is_told_as_it_is() -> None:
    talk = Conversation("refund A1042").returned("submit_refund_request", "no answer", ResultState.ERROR)

    assert "no answer" in (await talk.next()).text


@pytest.mark.parametrize("state", [state for state in ResultState if state is not ResultState.SUCCESS])
async def test_a_tool_that_gave_no_result_is_no_success(state: ResultState) -> None:
    half = "stopped" if state is ResultState.ERROR else {"created": True, "request": record("paid")}
    talk = Conversation("refund A1042").returned("submit_refund_request", half, state)

    text = (await talk.next()).text

    assert text
    assert not any(word in text for word in FACT_WORDS)


@pytest.mark.parametrize(
    "said", ["", "refunded", "[]", "null", "{}", '{"created": true}', '{"requests": [1]}', "[" * 9999]
)
async def test_an_unreadable_result_is_called_unreadable(said: str) -> None:
    text = (await Conversation("how far is A1042?").returned("query_task", said).next()).text

    assert "can't read" in text
    assert not any(word in text for word in FACT_WORDS)


async def test_a_resumed_turn_asks_the_service_again() -> None:
    talk = Conversation("refund A1042").returned("submit_refund_request", "stopped", ResultState.INTERRUPTED)

    response = await talk.answered("(interrupted)", interrupted=True).next()

    assert calls(response) == [("submit_refund_request", "A1042")]


async def test_what_is_thrown_in_while_a_tool_runs_does_not_hide_its_result() -> None:
    talk = Conversation("how far is A1042?").returned("query_task", found(record("approved"))).says("quickly please")

    assert "R-77AA88BB" in (await talk.next()).text


async def test_without_the_tool_it_says_so() -> None:
    response = await Conversation("refund A1042").next(tools=TOOLS[:1])

    assert not response.tool_calls
    assert "no tool" in response.text


async def test_it_answers_in_the_language_of_the_last_message() -> None:
    talk = Conversation("订单 A1042 需要申请退款").answered("已提交。").says("A1042 how far?")

    assert (await talk.returned("query_task", found(record("paid"))).next()).text.isascii()
    assert not (await talk.answered("Paid.").says("你好").next()).text.isascii()
    assert not (await talk.says("?").next()).text.isascii()


phrase = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [*REFUNDS, *STATUS, *NOTES, *NO_REFUND, "yes", "好的", "A1042", "it is paid", "我说已付款", "ok refunded"]
    ),
)


@given(st.lists(phrase, max_size=5))
async def test_nothing_that_people_say_makes_it_state_a_fact(said: list[str]) -> None:
    talk = Conversation()
    for text in said:
        response = await talk.says(text).next()
        assert not any(word in response.text for word in FACT_WORDS)
        assert bool(response.text) is not bool(response.tool_calls)
        if response.tool_calls:  # and the service does not answer
            for call in response.tool_calls:
                talk.returned(call.name, "no answer", ResultState.ERROR)
            response = await talk.next()
            assert not any(word in response.text for word in FACT_WORDS)
        talk.answered(response.text)
    summary = (await talk.next(purpose=Purpose.SUMMARY)).text
    assert not any(word in summary for word in FACT_WORDS)


@given(st.text(alphabet="note refundpaid记退a1042?,。", max_size=40).map(lambda text: text * 20_000))
async def test_a_text_of_any_length_is_read_in_no_time(text: str) -> None:
    response = await Conversation(text).next()

    assert len(response.tool_calls) <= 5
    assert all(len(str(call.arguments)) < 1000 for call in response.tool_calls)
