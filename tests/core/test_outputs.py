from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from activities.outputs import HEAD, MAX_TEXT, TAIL, UnusableResultError, blocks, result
from perdure.messages import DataBlock, ResultState, TextBlock, ToolResultBlock, URLSource
from perdure.tools import ToolOutput
from perdure.values import clean_text, digest
from tests.support.strategies import ANY_TEXT, json_values


class Refund(BaseModel):
    order_id: str
    amount: Decimal


@dataclass
class Point:
    x: int


class Colour(Enum):
    RED = "red"


class Shelf:
    """Keeps results in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, workflow_id: str, data: bytes) -> str:
        name = f"{workflow_id}/{digest(data)}"
        self.kept[name] = data
        return name


def text_of(value: object) -> str:
    (block,) = blocks(value)
    assert isinstance(block, TextBlock)
    return block.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (1.5, "1.5"),
        ([1, "a"], '[1,"a"]'),
        ({"a": {"b": (1,)}}, '{"a":{"b":[1]}}'),
        (Refund(order_id="A1", amount=Decimal("1.10")), '{"order_id":"A1","amount":"1.10"}'),
        ([Refund(order_id="A1", amount=Decimal(1))], '[{"order_id":"A1","amount":"1"}]'),
        (Point(1), '{"x":1}'),
        (Colour.RED, '"red"'),
        (Decimal("1.10"), '"1.10"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ({1}, "[1]"),
        (b"bytes", '"bytes"'),
        ({1: "a"}, '{"1":"a"}'),
        (float("nan"), '"NaN"'),
        ({"a": "\ud800"}, '{"a":"\ufffd"}'),
        ("a\0b", "a\ufffdb"),
    ],
    ids=repr,
)
def test_whatever_has_a_json_form_is_a_result(value: object, text: str) -> None:
    """B38, B77: text as it is, all else as JSON that the model reads."""
    assert text_of(value) == text


def test_blocks_are_a_result_as_they_are() -> None:
    """B38: for tools that answer with more than text."""
    picture = DataBlock(source=URLSource(url="https://a/b.png"))
    assert blocks(ToolOutput(blocks=[TextBlock("see"), picture])) == (TextBlock("see"), picture)
    assert blocks(ToolOutput(())) == ()


@pytest.mark.parametrize(
    "value", [object(), lambda: None, {"a": object()}, b"\xff"], ids=["object", "function", "inside", "bytes"]
)
def test_what_has_no_json_form_is_refused_with_the_name_of_its_type(value: object) -> None:
    """B38: the tool ran; the model is told that its result can't be shown."""
    with pytest.raises(UnusableResultError, match=type(value).__name__):
        blocks(value)


def test_what_goes_round_in_circles_is_refused() -> None:
    """B38: and does not take the worker down."""
    circle: list[object] = []
    circle.append(circle)
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep):
        with pytest.raises(UnusableResultError):
            blocks(value)


@given(json_values() | ANY_TEXT)
def test_any_json_is_a_result_that_can_be_kept(value: object) -> None:
    """B77: and the result says the same as the value."""
    text = text_of(value)
    text.encode()
    assert clean_text(text) == text
    made = result("c", "t", blocks(value))
    assert ToolResultBlock.model_validate_json(made.model_dump_json()) == made
    if not isinstance(value, str):
        json.loads(text)


@given(st.integers(-2, 2), st.sampled_from(["x", "é", "😀"]))
def test_up_to_the_bound_a_result_stands_whole_and_above_it_its_beginning_and_end(over: int, letter: str) -> None:
    """B38: 5 MB do not enter the conversation; what is missing is said in numbers."""
    text = "begin" + letter * (MAX_TEXT + over - 8) + "end"
    shelf = Shelf()
    made = result("c", "t", (TextBlock(text),), workflow_id="w", store=shelf)
    if over <= 0:
        assert made.text == text
        assert made.metadata == {}
        assert shelf.kept == {}
        return
    assert made.text.startswith("begin" + letter * (HEAD - 5))
    assert made.text.endswith(letter * (TAIL - 3) + "end")
    assert f"{len(text) - HEAD - TAIL} of {len(text)} characters left out" in made.text
    assert len(made.text) < HEAD + TAIL + 200
    ((name, data),) = shelf.kept.items()
    assert data.decode() == text
    assert made.metadata == {"offloaded": {"full_bytes": len(data), "digest": digest(data), "stored": name}}


def test_without_a_store_the_rest_is_gone_and_the_words_say_so() -> None:
    """B38: nothing promises what is not there."""
    made = result("c", "t", (TextBlock("x" * 5_000_000),))
    assert "was not kept" in made.text
    assert made.metadata["offloaded"]["stored"] is None  # type: ignore[index]  # pyright: ignore[reportOptionalSubscript, reportArgumentType, reportCallIssue, reportIndexIssue]


def test_each_block_of_a_result_is_measured_for_itself_and_pictures_are_kept() -> None:
    """B38: order and number of blocks stay."""
    picture = DataBlock(source=URLSource(url="https://a/b.png"))
    made = result("c", "t", (TextBlock("short"), picture, TextBlock("x" * (MAX_TEXT + 1))), state=ResultState.ERROR)
    assert made.output[:2] == (TextBlock("short"), picture)
    assert len(made.output) == 3
    assert (made.id, made.name, made.state) == ("c", "t", ResultState.ERROR)


def test_every_long_block_of_a_result_is_found_again() -> None:
    """B38: not only the last one."""
    shelf = Shelf()
    result("c", "t", (TextBlock("x" * (MAX_TEXT + 1)), TextBlock("y" * (MAX_TEXT + 1))), workflow_id="w", store=shelf)
    assert len(shelf.kept) == 2
