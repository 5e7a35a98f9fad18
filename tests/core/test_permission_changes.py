from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given

from perdure.judging import CallFacts, denied_by_rule, is_default
from perdure.permissions import (
    LISTS,
    MAX_CONTENT,
    REMEMBERED,
    PermissionBehavior,
    PermissionContext,
    PermissionMode,
    PermissionRule,
    WorkingDirectory,
    merged,
    with_rule,
    without_rule,
)
from perdure.state import AgentState
from perdure.values import FrozenMap
from tests.support.strategies import CALL_FACTS, MEETING_PERMISSIONS, MEETING_RULES, PERMISSIONS, RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

ALLOW, DENY, ASK, PASSTHROUGH = PermissionBehavior
EMPTY = PermissionContext()


def rule(
    behavior: PermissionBehavior, content: str | None = None, *, tool: str = "pay", source: str | None = None
) -> PermissionRule:
    return PermissionRule(tool_name=tool, rule_content=content, behavior=behavior, source=source)


def said(permissions: PermissionContext) -> Iterator[tuple[str, str, str | None, bool]]:
    """Yield what each rule says, by its place."""
    for name in LISTS.values():
        for tool, listed in getattr(permissions, name).items():
            for each in listed:
                yield name, tool, each.rule_content, each.behavior is PASSTHROUGH


# ---- one more rule (B46, B49) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("behavior", LISTS)
def test_a_rule_goes_into_the_list_that_its_behavior_names(behavior: PermissionBehavior) -> None:
    """B49."""
    first, second = rule(behavior, "a*"), rule(behavior, "b*")
    permissions = with_rule(with_rule(EMPTY, first), second)
    assert getattr(permissions, LISTS[behavior]) == {"pay": (first, second)}
    assert len(list(said(permissions))) == 2


def test_a_rule_that_is_there_already_changes_nothing_whatever_its_source() -> None:
    """B46: remembered twice is remembered once."""
    permissions = with_rule(EMPTY, rule(ALLOW, "a*", source="alice"))
    assert with_rule(permissions, rule(ALLOW, "a*", source="bob")) == permissions
    assert with_rule(permissions, rule(ALLOW, "a*", source=REMEMBERED)) == permissions


def test_a_rule_that_was_remembered_is_somebodys_once_somebody_sets_it() -> None:
    """B42: a set rule ends the default, which a remembered answer does not."""
    remembered = with_rule(EMPTY, rule(ALLOW, "a*", source=REMEMBERED))
    permissions = with_rule(remembered, rule(ALLOW, "a*"))
    assert permissions == with_rule(EMPTY, rule(ALLOW, "a*"))
    assert is_default(remembered)
    assert not is_default(permissions)


def test_a_rule_beside_one_that_says_nothing_is_added() -> None:
    """B46: it would not answer the next call otherwise."""
    permissions = PermissionContext(allow_rules=FrozenMap({"pay": (rule(PASSTHROUGH),)}))
    assert with_rule(permissions, rule(ALLOW)).allow_rules["pay"] == (rule(PASSTHROUGH), rule(ALLOW))


def test_a_rule_that_says_nothing_can_not_be_added() -> None:
    """B49: the error says what can."""
    with pytest.raises(ValueError, match="must be allow, deny or ask"):
        with_rule(EMPTY, rule(PASSTHROUGH))


def test_a_rule_whose_glob_is_too_long_can_not_be_added_and_is_not_repeated() -> None:
    """B49: nobody wants to read it in an error."""
    assert with_rule(EMPTY, rule(DENY, "x" * MAX_CONTENT)) != EMPTY
    with pytest.raises(ValueError, match=f"at most {MAX_CONTENT} characters") as caught:
        with_rule(EMPTY, rule(DENY, "secret" * MAX_CONTENT))
    assert "secret" not in str(caught.value)


@given(PERMISSIONS, RULES)
def test_adding_a_rule_twice_is_adding_it_once_and_the_state_can_be_stored(
    permissions: PermissionContext, added: PermissionRule
) -> None:
    """B46: the rule is in the state's JSON."""
    assume(added.behavior is not PASSTHROUGH)
    once = with_rule(permissions, added)
    assert with_rule(once, added) == once
    assert set(said(once)) == {*said(permissions), *said(with_rule(EMPTY, added))}
    state = AgentState(session_id="s", permission_context=once)
    assert AgentState.from_json(state.to_json()).permission_context == once


# ---- one rule less (B49) ------------------------------------------------------------------------------------------


@given(PERMISSIONS | MEETING_PERMISSIONS, MEETING_RULES)
def test_what_is_added_can_be_removed(permissions: PermissionContext, added: PermissionRule) -> None:
    """B49: nothing else goes with it."""
    assume(added.behavior is not PASSTHROUGH)
    one = set(said(with_rule(EMPTY, added)))
    assume(not one & set(said(permissions)))
    there = with_rule(permissions, added)
    gone = without_rule(there, added.model_copy(update={"source": "whoever"}))
    assert set(said(gone)) == set(said(permissions))
    with pytest.raises(ValueError, match="no such rule"):
        without_rule(gone, added)


def test_the_last_rule_of_a_tool_leaves_nothing_behind() -> None:
    """B49: the permissions are what they were."""
    assert without_rule(with_rule(EMPTY, rule(ASK, "a*")), rule(ASK, "a*")) == EMPTY


def test_a_rule_is_removed_from_where_it_says_something_and_never_from_another_list() -> None:
    """B49: lifting an allow rule must not lift a deny rule."""
    permissions = with_rule(with_rule(EMPTY, rule(ALLOW)), rule(DENY))
    assert without_rule(permissions, rule(ALLOW)) == with_rule(EMPTY, rule(DENY))


def test_a_rule_in_a_list_that_its_field_does_not_name_is_removed_as_what_it_says() -> None:
    """B43: the list says what it says, and the key whose it is."""
    permissions = PermissionContext(deny_rules=FrozenMap({"pay": (rule(ALLOW, tool="look"),)}))
    with pytest.raises(ValueError, match="no such rule"):
        without_rule(permissions, rule(ALLOW, tool="look"))
    assert without_rule(permissions, rule(DENY)) == EMPTY


def test_a_rule_that_says_nothing_is_removed_from_all_lists() -> None:
    """B49: an imported state may have it anywhere."""
    inert = FrozenMap({"pay": (rule(PASSTHROUGH), rule(ALLOW))})
    permissions = PermissionContext(allow_rules=inert, deny_rules=inert)
    assert list(said(without_rule(permissions, rule(PASSTHROUGH)))) == [
        ("allow_rules", "pay", None, False),
        ("deny_rules", "pay", None, False),
    ]


def test_a_rule_that_is_not_there_can_not_be_removed_and_is_not_repeated() -> None:
    """B49: the error says where to look."""
    with pytest.raises(ValueError, match="as the session's state has them") as caught:
        without_rule(with_rule(EMPTY, rule(ALLOW, "a*")), rule(ALLOW, "secret"))
    assert "secret" not in str(caught.value)


# ---- a session's own over its agent's -----------------------------------------------------------------------------


@given(MEETING_PERMISSIONS, MEETING_PERMISSIONS)
def test_merged_permissions_have_the_rules_of_both_and_none_twice(
    own: PermissionContext, defaults: PermissionContext
) -> None:
    """B43: and merging again adds nothing."""
    both = merged(own, defaults)
    there = list(said(both))
    assert set(there) == {*said(own), *said(defaults)}
    assert len(there) == len(set(there))
    assert merged(both, defaults) == both


@given(MEETING_PERMISSIONS, MEETING_PERMISSIONS, CALL_FACTS)
def test_what_either_denies_by_rule_stays_denied_and_what_either_sets_ends_the_default(
    own: PermissionContext, defaults: PermissionContext, call: CallFacts
) -> None:
    """B41, B42: neither makes the other's rules count for nothing."""
    both = merged(own, defaults)
    either = (own, defaults)
    assert (denied_by_rule(both, call) is not None) == any(denied_by_rule(one, call) for one in either)
    assert is_default(both) == all(map(is_default, either))


def test_the_own_mode_counts_unless_it_is_default() -> None:
    """B49."""
    for own in PermissionMode:
        both = merged(PermissionContext(mode=own), PermissionContext(mode=PermissionMode.EXPLORE))
        assert both.mode is (PermissionMode.EXPLORE if own is PermissionMode.DEFAULT else own)


def test_own_working_directories_stand_in_the_place_of_default_ones() -> None:
    """B43."""
    mine, theirs, other = (WorkingDirectory(path=path) for path in ("/mine", "/theirs", "/other"))
    both = merged(
        PermissionContext(working_directories=FrozenMap({"home": mine})),
        PermissionContext(working_directories=FrozenMap({"home": theirs, "other": other})),
    )
    assert both.working_directories == {"home": mine, "other": other}


def test_an_own_remembered_answer_does_not_hide_that_the_agent_has_rules() -> None:
    """B42: an agent's only rule, which a session happens to have remembered, ends the default all the same."""
    mine = with_rule(EMPTY, rule(ALLOW, "a*", source=REMEMBERED))
    agents = with_rule(EMPTY, rule(ALLOW, "a*"))
    for both in (merged(mine, agents), merged(agents, mine)):
        assert both == agents
        assert not is_default(both)


@given(PERMISSIONS)
def test_merging_with_nothing_leaves_what_is_there(permissions: PermissionContext) -> None:
    """B49: but for rules that stood there twice."""
    either = merged(permissions, EMPTY), merged(EMPTY, permissions)
    for both in either:
        assert both.mode is permissions.mode
        assert both.working_directories == permissions.working_directories
        assert set(said(both)) == set(said(permissions))
