from __future__ import annotations

import uuid

import pytest
from hypothesis import example, given, strategies as st

from perdure.operations import NAMESPACE, Outcome, derived_id, operation_id, readable_id
from tests.support.strategies import NAMES

PARTS = st.lists(st.text(alphabet="ab:12é😀", max_size=4) | NAMES, max_size=4)


@given(PARTS)
def test_an_operation_id_is_the_uuid_that_the_standard_library_would_make(parts: list[str]) -> None:
    """B35: RFC 9562, version 5, over the parts with their lengths: anyone can check it with their own tools."""
    name = "".join(f"{len(part)}:{part}" for part in parts)
    made = uuid.UUID(derived_id(*parts))
    assert made == uuid.uuid5(uuid.UUID(bytes=NAMESPACE), name)
    assert (made.version, made.variant) == (5, uuid.RFC_4122)
    assert str(made) == derived_id(*parts)


@given(PARTS, PARTS)
@example(["a", "bc"], ["ab", "c"])
@example(["a", ""], ["a"])
@example(["1:a"], ["a"])
@example(["a1:b"], ["a", "b"])
def test_different_parts_never_run_together_into_one_id(one: list[str], other: list[str]) -> None:
    """B35: the id of one operation is no other's."""
    assert (derived_id(*one) == derived_id(*other)) == (one == other)


def test_operation_ids_are_different_for_everything_that_differs() -> None:
    """B35: session, turn, first run, step and index all count, also for equal calls and the model call beside them."""
    ids = {
        operation_id(workflow, turn, step, index, first_run_id=run)
        for workflow in ("session:a:~:b", "session:a:~:c")
        for turn in ("t", "t1", "model")
        for step in (1, 11, 2)
        for index in (None, 0, 1, 10)
        for run in ("r", "r1")
    }
    assert len(ids) == 2 * 3 * 3 * 4 * 2


def test_an_operation_id_never_changes_from_one_release_to_the_next() -> None:
    """B35: ledgers know operations by these ids; another construction would pay twice what is in flight."""
    assert operation_id("session:support:alice:A1", "t-1", 2, 0, first_run_id="r-1") == (
        "bd24e2f5-259b-55d8-977b-71366000c639"
    )
    assert operation_id("session:support:alice:A1", "t-1", 2, None, first_run_id="r-1") == (
        "81edba5d-cc13-5f77-a689-2ee0367c5e8a"
    )


def test_the_readable_id_says_turn_step_tool_and_index() -> None:
    """B35: an operator finds the call in the UI."""
    assert readable_id("t-1", 2, "pay", 0) == "t-1/2/pay/0"


def test_outcomes_hold_json_and_nothing_else() -> None:
    """B34: what somebody says that happened is kept like any result."""
    assert Outcome.happened({"paid": [1]}).result == {"paid": (1,)}
    assert Outcome.did_not_happen().kind == "did_not_happen"
    assert Outcome.unknown() != Outcome.unresolved("nobody knows")
    assert Outcome.unresolved("nobody knows").reason == "nobody knows"
    with pytest.raises(ValueError, match="not JSON"):
        Outcome.happened({1, 2})
