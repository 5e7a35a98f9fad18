"""Plan mode in the state: its JSON, and how it is switched and written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from perdure.errors import InvalidCommand
from perdure.plan import MAX_PLAN, PLAN_FILE, PlanModeContext, enter, leave, write
from tests.support.strategies import PLANS


def test_without_a_plan_the_json_is_agentscopes_to_the_letter() -> None:
    """B1: `plan` is ours, and is only there when there is one."""
    assert PlanModeContext().model_dump_json() == '{"plan_active":false,"current_plan_file":null}'
    planned = write(enter(PlanModeContext()), "1. look")
    assert json.loads(planned.model_dump_json()) == {
        "plan_active": True,
        "current_plan_file": PLAN_FILE,
        "plan": "1. look",
    }


@given(PLANS)
def test_a_plan_goes_to_json_and_back(context: PlanModeContext) -> None:
    """B1."""
    text = context.model_dump_json()
    assert PlanModeContext.model_validate_json(text) == context
    assert ("plan" in json.loads(text)) == (context.plan is not None)


@given(PLANS)
def test_the_switch_moves_the_flag_and_nothing_else(context: PlanModeContext) -> None:
    """B50: the plan stays, to be gone on with or to be carried out."""
    assert enter(context) == context.model_copy(update={"plan_active": True})
    assert leave(context) == context.model_copy(update={"plan_active": False})


def test_a_plan_takes_the_place_of_the_one_before() -> None:
    """B50: it is kept under a name that never changes."""
    once = write(enter(PlanModeContext(current_plan_file="other.md")), "1. look")
    assert write(once, "2. pay") == PlanModeContext(plan_active=True, current_plan_file=PLAN_FILE, plan="2. pay")


@pytest.mark.parametrize(
    ("context", "content", "words"),
    [
        (PlanModeContext(), "1. look", "plan mode is off"),
        (PlanModeContext(plan_active=True), " \n", "the plan is blank"),
        (PlanModeContext(plan_active=True), "x" * (MAX_PLAN + 1), f"{MAX_PLAN} are the most"),
    ],
)
def test_a_plan_is_written_in_plan_mode_only_and_says_something(
    context: PlanModeContext, content: str, words: str
) -> None:
    """B50."""
    with pytest.raises(InvalidCommand, match=words):
        write(context, content)
