from __future__ import annotations

import copy
import json
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given, strategies as st
from pydantic import TypeAdapter, ValidationError

from perdure.values import (
    MAX_DEPTH,
    MAX_WRAPPED_DEPTH,
    Frozen,
    FrozenMap,
    JsonObject,
    JsonRecord,
    JsonValue,
    Text,
    canonical_json,
    clean_text,
    digest,
    freeze,
    freeze_object,
    parse_json,
    thaw,
)
from tests.support.strategies import ANY_TEXT, JSON_OBJECTS, json_values

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES: tuple[Callable[[Any], object], ...] = (
    lambda each: each.__setitem__("new", 1),
    lambda each: each.__delitem__("old"),
    lambda each: each.update(old=2),
    lambda each: each.pop("old"),
    lambda each: each.popitem(),
    lambda each: each.clear(),
    lambda each: each.setdefault("new", 1),
    lambda each: each.__ior__({"new": 1}),
)


class Holder(Frozen):
    text: Text = ""
    value: JsonValue = None
    data: JsonObject = FrozenMap()
    record: JsonRecord = FrozenMap()
    numbers: FrozenMap[int] = FrozenMap()


def nested(depth: int, *, leaf: object = 1) -> object:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def storable(text: str) -> bool:
    """Tell by each character, the slow way, whether text can be kept by JSON, UTF-8 and PostgreSQL."""
    return all(character != "\0" and not 0xD800 <= ord(character) <= 0xDFFF for character in text)


@given(ANY_TEXT)
def test_cleaned_text_can_be_stored_sent_and_read_back(text: str) -> None:
    """B77: no lone surrogate and no NUL is left; UTF-8, JSON and pydantic give the text back."""
    cleaned = clean_text(text)
    assert storable(cleaned)
    assert cleaned.encode().decode() == cleaned
    assert json.loads(json.dumps(cleaned)) == cleaned
    assert parse_json(canonical_json(cleaned)) == cleaned
    assert Holder.model_validate_json(Holder(text=text).model_dump_json()).text == cleaned


@given(ANY_TEXT)
def test_text_that_can_be_stored_is_kept_as_it_is_and_the_rest_loses_only_what_cant(text: str) -> None:
    """B77: cleaning is no normalising, and cleaning twice is cleaning once."""
    cleaned = clean_text(text)
    assert clean_text(cleaned) == cleaned
    if storable(text):
        assert cleaned == text
    kept = [each for each in text if storable(each)]
    assert [each for each in cleaned if each != "\ufffd"] == [each for each in kept if each != "\ufffd"] or any(
        # Two halves of a character that were split meet again.
        0xD800 <= ord(high) <= 0xDBFF and 0xDC00 <= ord(low) <= 0xDFFF
        for high, low in pairwise(text)
    )


def test_a_character_that_was_split_over_two_reads_is_whole_again() -> None:
    """B77: the two halves of an emoji that came one by one are the emoji."""
    assert clean_text("\ud83d" + "\ude00") == "\U0001f600"
    assert clean_text("\ude00\ud83d") == "\ufffd\ufffd"


@given(json_values())
def test_frozen_json_is_the_same_json_after_thawing_and_after_a_trip_through_bytes(value: object) -> None:
    """B1: freezing changes containers and unstorable characters only."""
    frozen = freeze(value)
    assert hash(frozen) == hash(freeze(value))
    assert freeze(thaw(frozen)) == frozen
    assert freeze(json.loads(canonical_json(frozen))) == frozen
    assert freeze(parse_json(canonical_json(frozen))) == frozen
    holder = Holder(value=cast("JsonValue", value))
    assert Holder.model_validate_json(holder.model_dump_json()) == holder
    assert Holder.model_validate(holder.model_dump(mode="json")) == holder


@given(JSON_OBJECTS)
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, object]) -> None:
    """B1: equal values have one spelling, and so one digest."""
    frozen = freeze_object(value)
    turned = freeze_object(dict(reversed(list(frozen.items()))))
    assert canonical_json(turned) == canonical_json(frozen)
    assert digest(canonical_json(turned)) == digest(canonical_json(frozen))


@pytest.mark.parametrize("make_change", CHANGES)
def test_a_frozen_mapping_refuses_every_change(make_change: Callable[[Any], object]) -> None:
    """B2: whoever reads a mapping can't change the state that it came from."""
    frozen = freeze_object({"old": {"deep": [1]}})
    with pytest.raises(TypeError, match="snapshot"):
        make_change(frozen)
    with pytest.raises(TypeError, match="snapshot"):
        make_change(frozen["old"])
    assert frozen == {"old": {"deep": (1,)}}


def test_what_is_copied_from_a_frozen_mapping_can_be_changed_without_changing_it() -> None:
    """B2: `dict(...)`, `copy()` and `|` give a dictionary of the reader's own."""
    frozen = freeze_object({"a": 1})
    for own in (dict(frozen), frozen.copy(), frozen | {"b": 2}):
        own["a"] = 5
    assert frozen == {"a": 1}


def test_freezing_does_not_keep_hold_of_what_was_given() -> None:
    """B2: the caller's own list, changed later, is not the state's."""
    given_list: list[object] = [1]
    frozen = freeze_object({"a": given_list})
    holder = Holder(data=cast("JsonObject", {"a": given_list}))
    given_list.append(2)
    assert frozen == holder.data == {"a": (1,)}


@given(JSON_OBJECTS)
def test_a_frozen_mapping_survives_hashing_copying_and_pickling(value: dict[str, object]) -> None:
    """B2: copies are equal, equally hashed and as immutable."""
    frozen = freeze_object(value)
    for other in (copy.copy(frozen), copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):  # noqa: S301  # our own
        assert other == frozen
        assert hash(other) == hash(frozen)
        assert isinstance(other, FrozenMap)
    assert len({frozen, freeze_object(value)}) == 1


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"bytes",
        bytearray(b"x"),
        object(),
        {1: 2},
        {None: 1},
        [float("nan")],
        float("inf"),
        pytest.param(10**5000, id="huge"),
        {"a": {3}},
    ],
)
def test_what_is_not_json_can_not_be_frozen(value: object) -> None:
    """B77: sets, bytes, keys that are no strings, NaN and endless numbers are a ValueError, nothing else."""
    with pytest.raises(ValueError, match=r"JSON|digits"):
        freeze(value)
    with pytest.raises(ValidationError):
        Holder(value=cast("JsonValue", value))


def test_json_nested_deeper_than_the_bound_is_refused_and_what_wraps_the_deepest_is_not() -> None:
    """B77: whatever was accepted can still be read back from inside messages, entries and a carried session."""
    deepest = nested(MAX_DEPTH)
    assert thaw(freeze(deepest)) == deepest
    with pytest.raises(ValueError, match="too deep"):
        freeze(nested(MAX_DEPTH + 1))
    wrapped = {"carried": {"transcript": [{"data": {"message": {"content": [{"input": deepest}]}}}]}}
    assert parse_json(canonical_json(wrapped)) == wrapped
    Holder(record=cast("JsonRecord", wrapped))
    with pytest.raises(ValidationError):
        Holder(data=cast("JsonObject", wrapped))
    with pytest.raises(ValueError, match="too deep"):
        parse_json(canonical_json(nested(MAX_WRAPPED_DEPTH + 1)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\xff",
        b"\xff\xfe",
        b'"\x80"',
        "\ufeff{}",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        pytest.param(b"1" * 4400, id="4400 digits"),
        pytest.param(b"1" * 5000, id="5000 digits"),
        pytest.param(b"[" * 100_000, id="lists"),
        pytest.param(b'{"a":' * 100_000, id="objects"),
        pytest.param(b"[" * 500 + b"]" * 500, id="closed lists"),
    ],
)
def test_hostile_json_is_a_value_error_and_nothing_else(data: bytes | str) -> None:
    """B16, B77: bytes that are no text, NaN, keys that stand twice, endless numbers and bottomless nesting."""
    with pytest.raises(ValueError):  # noqa: PT011  # each has its own words
        parse_json(data)


@given(st.binary(max_size=40) | ANY_TEXT | json_values().map(json.dumps))
@example(b'"\xed\xa0\x80"')
@example('"\\ud800"')
def test_any_input_is_json_that_can_be_kept_or_a_value_error(data: bytes | str) -> None:
    """B77: what `parse_json` lets through can always be frozen, written and read again."""
    try:
        value = parse_json(data)
    except ValueError:
        return
    frozen = freeze(value)
    assert freeze(parse_json(canonical_json(frozen))) == frozen


@given(json_values())
def test_reading_json_agrees_with_pythons_own_reader(value: object) -> None:
    """B1: nothing is changed by reading."""
    data = json.dumps(value)
    assert parse_json(data) == json.loads(data)
    assert TypeAdapter(JsonValue).validate_python(parse_json(data)) == freeze(value)


def test_digests_are_the_same_in_every_process() -> None:
    """B5: a digest made on one machine is found on another; Python's own hashes differ by process."""
    assert digest(b"perdure") == "e5e3a6af2266aa7cfc43288f98c1ccd3"
