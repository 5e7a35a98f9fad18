from __future__ import annotations

from itertools import count

from hypothesis import example, given, settings, strategies as st

from perdure.messages import (
    GENESIS,
    Message,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    as_blocks,
    as_json,
    chain,
    chain_all,
    context_origin,
    flaws,
)
from perdure.values import thaw
from tests.support.strategies import ANY_TEXT, CONTEXTS, MESSAGES


def message(*blocks: str, number: int = 0) -> Message:
    """Make a message of a shorthand: `?a` calls a, `!a` is a's result, all else is text."""
    content: list[TextBlock | ToolUseBlock | ToolResultBlock] = []
    for block in blocks:
        if block.startswith("?"):
            content.append(ToolUseBlock(id=block[1:], name="t"))
        elif block.startswith("!"):
            content.append(ToolResultBlock(id=block[1:], name="t"))
        else:
            content.append(TextBlock(block))
    return Message(id=f"m{number}", role=Role.ASSISTANT, content=tuple(content))


def conversation(*messages: str) -> list[Message]:
    return [message(*text.split(), number=number) for number, text in enumerate(messages)]


def well_formed(messages: list[Message]) -> bool:
    """Check the rule of calls and results the slow way: look for each call's result, and for each result's call."""
    calls = [(place, call.id) for place, each in enumerate(messages) for call in each.calls]
    results = [(place, result.id) for place, each in enumerate(messages) for result in each.results]
    if len({call_id for _, call_id in calls}) != len(calls):
        return False
    for place, call_id in calls:
        answered = [where for where, result_id in results if result_id == call_id]
        if len(answered) != 1 or answered[0] <= place:
            return False
        between = messages[place + 1 : answered[0]]
        if not all(each.results for each in between):
            return False
    return all(any(call_id == result_id for _, call_id in calls) for _, result_id in results)


@st.composite
def small_conversations(draw: st.DrawFn) -> list[Message]:
    """Conversations out of few ids, so that calls and results meet in every way."""
    block = st.sampled_from(["x", "?a", "?b", "!a", "!b", "?c", "!c"])
    texts = draw(st.lists(st.lists(block, max_size=3).map(" ".join), max_size=5))
    return conversation(*texts)


@given(small_conversations())
@example(conversation("?a", "!a", "x"))
@example(conversation("?a ?b", "!a !b"))
@example(conversation("?a ?b", "!b", "!a"))
@example(conversation("?a", "x", "!a"))
@example(conversation("!a", "?a"))
@example(conversation("?a !a"))
@example(conversation("?a", "!a !a"))
@example(conversation("?a ?a", "!a"))
@example(conversation("?a", "!a", "?a", "!a"))
def test_flaws_are_found_where_a_slow_checker_finds_them(messages: list[Message]) -> None:
    """B24, B78: every call has exactly one result, right behind it, before anything else is said."""
    assert (not list(flaws(messages))) == well_formed(messages)


def test_each_flaw_is_named_with_its_message_and_its_call() -> None:
    """B24: whoever reads the words finds the place."""
    assert list(flaws(conversation("?a", "hello"))) == ["message m1 comes before the results of a"]
    assert list(flaws(conversation("?a"))) == ["no result for a"]
    assert list(flaws(conversation("!z"))) == ["message m0 has a result for z, which is not an open call"]
    assert list(flaws(conversation("?a", "!a", "?a", "!a"))) == ["message m2 uses the call id a again"]


def test_a_call_that_was_never_answered_stays_a_flaw_however_the_conversation_goes_on() -> None:
    """B24: a later result comes too late; the call was left open when something else was said."""
    assert list(flaws(conversation("?a ?b", "!a", "hello", "!b")))


@settings(max_examples=40)
@given(ANY_TEXT, CONTEXTS, ANY_TEXT, CONTEXTS)
def test_digests_are_equal_exactly_if_summaries_and_messages_are(
    summary: str, messages: tuple[Message, ...], other_summary: str, others: tuple[Message, ...]
) -> None:
    """B5: a worker that holds a context by its digest holds the right one."""
    one = chain_all(context_origin(TextBlock(summary).text), messages)
    same = chain_all(
        context_origin(TextBlock(summary).text), [Message.model_validate(thaw(as_json(each))) for each in messages]
    )
    assert one == same
    other = chain_all(context_origin(TextBlock(other_summary).text), others)
    alike = TextBlock(summary) == TextBlock(other_summary) and list(map(as_json, messages)) == list(
        map(as_json, others)
    )
    assert (one == other) == alike


@settings(max_examples=40)
@given(st.lists(MESSAGES, min_size=2, max_size=4))
def test_digests_depend_on_the_order_of_messages_and_on_their_number(messages: list[Message]) -> None:
    """B5: a context with its messages in another order, one fewer or one twice is another context."""
    digest = chain_all(GENESIS, messages)
    assert chain_all(chain_all(GENESIS, messages[:1]), messages[1:]) == digest
    assert chain_all(GENESIS, messages[:-1]) != digest
    assert chain_all(GENESIS, [*messages, messages[-1]]) != digest
    turned = [messages[1], messages[0], *messages[2:]]
    assert (chain_all(GENESIS, turned) == digest) == (as_json(messages[0]) == as_json(messages[1]))


def test_a_summary_is_not_taken_for_a_message_nor_nothing_for_a_summary() -> None:
    """B5, B62: what stands in the summary is part of the digest, and no message can stand for it."""
    numbers = count()
    said = Message(id=str(next(numbers)), role=Role.USER, content=as_blocks("hello"))
    digests = {
        context_origin(""),
        context_origin("hello"),
        context_origin("hello\n"),
        chain(context_origin(""), said),
        chain(context_origin("hello"), said),
    }
    assert len(digests) == 5
    assert context_origin("") == GENESIS


@given(MESSAGES)
def test_a_message_goes_to_json_and_back_unchanged(message: Message) -> None:
    """B1, B77: with any text in any of its blocks."""
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert Message.model_validate(thaw(as_json(message))) == message
    assert hash(Message.model_validate(as_json(message))) == hash(message)


def test_roles_are_read_in_upper_case_and_text_stands_for_one_block() -> None:
    """B1: what other writers of this form write is read."""
    read = Message.model_validate({"id": "1", "role": "ASSISTANT", "content": "hello", "metadata": None})
    assert read.role is Role.ASSISTANT
    assert read.content == (TextBlock("hello"),)
    assert read.metadata == {}
    result = ToolResultBlock.model_validate({"id": "1", "name": "t", "output": "done"})
    assert result.text == "done"


def test_the_text_of_a_message_is_what_a_person_reads() -> None:
    """B30: no thinking, calls or results in it."""
    assert message("one", "?a", "!b", "two").text == "one\ntwo"
