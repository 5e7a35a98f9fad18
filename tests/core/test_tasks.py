"""The contract of a task: each row of the table of task commands, by example and for any sequence of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from perdure.errors import InvalidCommand, PerdureError, StaleRevision
from perdure.tasking import (
    MAX_RECORD_BYTES,
    MAX_REFERENCE,
    begin_task,
    binding,
    decide_requirement,
    invalidate_subject,
    is_current,
    propose_requirement,
    record_verification,
    set_subject_version,
)
from perdure.tasks import (
    MAX_REQUIREMENT_TEXT,
    MAX_REQUIREMENTS,
    Authority,
    Requirement,
    RequirementDecision,
    RequirementKind,
    RequirementStatus,
    Scope,
    Task,
    TasksContext,
    Verification,
    VerificationOutcome,
)
from perdure.todos import replace_tasks
from tests.support.strategies import TASKS_CONTEXTS

if TYPE_CHECKING:
    from collections.abc import Callable

CRITERION = RequirementKind.ACCEPTANCE_CRITERION
CONSTRAINT = RequirementKind.CONSTRAINT
CONFIRMED = RequirementStatus.CONFIRMED
REJECTED = RequirementStatus.REJECTED
SECRET = "hunter2"  # noqa: S105  # of nothing


def scope(task_id: str = "T", objective: str = "refund A1042", source: str | None = None) -> Scope:
    return Scope(taskId=task_id, objective=objective, sourceRef=source)


def decision(authority: Authority = Authority.USER, source: str | None = None) -> RequirementDecision:
    return RequirementDecision(authority=authority, source_ref=source)


def report(
    tasks: TasksContext, requirement: str = "q", outcome: str = "PASSED", name: str = "v", reason: str | None = None
) -> Verification:
    """Make a report on what the tasks are now."""
    return Verification(
        id=name,
        requirementId=requirement,
        outcome=VerificationOutcome(outcome),
        binding=binding(tasks),
        reason=reason,
    )


def requirement(name: str, kind: RequirementKind, status: RequirementStatus) -> Requirement:
    return Requirement(id=name, kind=kind, text=f"text of {name}", status=status)


BEGUN = begin_task(TasksContext(), scope())

CONTRACTED = set_subject_version(
    decide_requirement(
        propose_requirement(BEGUN, CRITERION, "the money is back", None, "q"), "q", CONFIRMED, decision()
    ),
    "v1",
)
"""A task that has been begun, with a confirmed acceptance criterion `q` and a subject."""

VERIFIED = record_verification(CONTRACTED, report(CONTRACTED))


def versions(tasks: TasksContext) -> tuple[int, int]:
    return tasks.revision, tasks.contract_version


def moved(before: TasksContext, after: TasksContext) -> tuple[int, int]:
    """By how much revision and contract went up."""
    return after.revision - before.revision, after.contract_version - before.contract_version


# ---- begin_task -------------------------------------------------------------------------------------------------


def test_a_task_begins_with_nothing_of_the_one_before() -> None:
    """B52: tasks, requirements, verifications and subject are gone; contract and revision are one on."""
    busy = replace_tasks(VERIFIED, [Task(id="t", subject="look")])
    begun = begin_task(busy, scope("U", "send A1043"))
    assert begun == TasksContext(
        scope=scope("U", "send A1043"),
        revision=busy.revision + 1,
        contractVersion=busy.contract_version + 1,
    )


def test_the_same_scope_again_changes_nothing() -> None:
    """B52: a caller that asks twice clears nothing."""
    assert begin_task(VERIFIED, scope()) is VERIFIED


@pytest.mark.parametrize("other", [scope(objective="something else"), scope(source="turn:9")])
def test_a_task_that_was_begun_is_not_begun_with_another_objective(other: Scope) -> None:
    """B52: what was agreed on under one id stays what it was."""
    with pytest.raises(InvalidCommand, match="under an id of its own"):
        begin_task(VERIFIED, other)


@pytest.mark.parametrize("bad", [scope(" "), scope(objective="\n"), scope(SECRET * 1000), scope(source=SECRET * 4000)])
def test_a_scope_says_something_within_bounds(bad: Scope) -> None:
    """B52: and the words of the refusal don't repeat it."""
    with pytest.raises(InvalidCommand) as caught:
        begin_task(TasksContext(), bad)
    assert SECRET not in str(caught.value)


# ---- replace_tasks ----------------------------------------------------------------------------------------------


def test_replacing_the_todos_leaves_the_contract_alone() -> None:
    """B52: revision + 1, and nothing but the list is another."""
    todos = (Task(id="a", subject="look"), Task(id="b", subject="pay"))
    after = replace_tasks(VERIFIED, todos)
    assert after == VERIFIED.model_copy(update={"tasks": todos, "revision": VERIFIED.revision + 1})
    assert replace_tasks(after, ()).tasks == ()


# ---- propose ----------------------------------------------------------------------------------------------------


def test_a_proposal_is_a_candidate_and_moves_no_version() -> None:
    """B52: it is not checked by revision, and makes no other caller's revision old."""
    after = propose_requirement(BEGUN, CONSTRAINT, "at most 50 EUR", "turn:1", "q1")
    (one,) = after.requirements
    assert (one.id, one.kind, one.text, one.proposed_source_ref) == ("q1", CONSTRAINT, "at most 50 EUR", "turn:1")
    assert (one.status, one.decision) == (RequirementStatus.CANDIDATE, None)
    assert versions(after) == versions(BEGUN)


def test_the_same_proposal_again_is_the_one_that_is_there() -> None:
    """B52: kind, text and source make it; it keeps its id and what was decided."""
    once = propose_requirement(BEGUN, CONSTRAINT, "at most 50 EUR", "turn:1", "q1")
    decided = decide_requirement(once, "q1", REJECTED, decision())
    assert propose_requirement(decided, CONSTRAINT, "at most 50 EUR", "turn:1", "q2") is decided
    for kind, text, source in (
        (CRITERION, "at most 50 EUR", "turn:1"),
        (CONSTRAINT, "at most 51 EUR", "turn:1"),
        (CONSTRAINT, "at most 50 EUR", None),
    ):
        assert len(propose_requirement(decided, kind, text, source, "q2").requirements) == 2


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_blank_source_is_none(blank: str) -> None:
    """B52: so that it can't make a second one of the same."""
    once = propose_requirement(BEGUN, CONSTRAINT, "at most 50 EUR", None, "q1")
    assert propose_requirement(once, CONSTRAINT, "at most 50 EUR", blank, "q2") is once
    assert propose_requirement(BEGUN, CONSTRAINT, "at most 50 EUR", blank, "q1") == once


def test_the_65th_requirement_is_refused_and_the_64_can_be_proposed_again() -> None:
    """B52."""
    tasks = BEGUN
    for number in range(MAX_REQUIREMENTS):
        tasks = propose_requirement(tasks, CRITERION, f"number {number}", None, f"q{number}")
    assert len(tasks.requirements) == 64
    with pytest.raises(InvalidCommand, match="64 requirements"):
        propose_requirement(tasks, CRITERION, "number 64", None, "q64")
    assert propose_requirement(tasks, CRITERION, "number 63", None, "other") is tasks


@pytest.mark.parametrize(
    ("text", "source"),
    [("", None), (" \n", None), (SECRET * MAX_REQUIREMENT_TEXT, None), ("good", SECRET * MAX_REFERENCE)],
)
def test_a_requirement_says_something_within_bounds(text: str, source: str | None) -> None:
    """B52: up to 2,000 characters."""
    with pytest.raises(InvalidCommand) as caught:
        propose_requirement(BEGUN, CRITERION, text, source, "q")
    assert SECRET not in str(caught.value)
    assert propose_requirement(BEGUN, CRITERION, "x" * 2000, "y" * 2000, "q").requirements


# ---- decide -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [CONFIRMED, REJECTED])
def test_a_decision_is_kept_with_who_made_it(status: RequirementStatus) -> None:
    """B52: contract and revision + 1; the other requirements stay."""
    before = propose_requirement(CONTRACTED, CONSTRAINT, "at most 50 EUR", None, "q1")
    after = decide_requirement(before, "q1", status, decision(Authority.CALLER, "ticket 7"))
    assert after.requirements[0] == before.requirements[0]
    assert (after.requirements[1].status, after.requirements[1].decision) == (
        status,
        decision(Authority.CALLER, "ticket 7"),
    )
    assert moved(before, after) == (1, 1)


def test_the_same_decision_again_changes_nothing_and_another_one_counts() -> None:
    """B52: another authority or source is another decision."""
    assert decide_requirement(CONTRACTED, "q", CONFIRMED, decision()) is CONTRACTED
    for status, made in (
        (REJECTED, decision()),
        (CONFIRMED, decision(Authority.CALLER)),
        (CONFIRMED, decision(source="x")),
    ):
        assert moved(CONTRACTED, decide_requirement(CONTRACTED, "q", status, made)) == (1, 1)


def test_an_unknown_requirement_and_a_candidate_are_no_decision() -> None:
    """B52: nothing goes back to being a candidate."""
    with pytest.raises(InvalidCommand, match="no requirement of this id") as caught:
        decide_requirement(CONTRACTED, SECRET, CONFIRMED, decision())
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidCommand, match="CONFIRMED or REJECTED"):
        decide_requirement(CONTRACTED, "q", RequirementStatus.CANDIDATE, decision())
    with pytest.raises(InvalidCommand, match=f"{MAX_RECORD_BYTES} bytes"):
        decide_requirement(CONTRACTED, "q", CONFIRMED, decision(source="x" * MAX_RECORD_BYTES))


# ---- the subject ------------------------------------------------------------------------------------------------


def test_a_subject_gets_a_version_once_a_task_was_begun() -> None:
    """B52: the same value changes nothing; another moves contract and revision."""
    with pytest.raises(InvalidCommand, match="begin one"):
        set_subject_version(TasksContext(), "v1")
    assert set_subject_version(CONTRACTED, "v1") is CONTRACTED
    after = set_subject_version(CONTRACTED, "v2")
    assert after.subject_version == "v2"
    assert moved(CONTRACTED, after) == (1, 1)


@pytest.mark.parametrize("version", ["", "  ", SECRET * MAX_REFERENCE])
def test_a_version_says_something_within_bounds(version: str) -> None:
    """B52."""
    with pytest.raises(InvalidCommand) as caught:
        set_subject_version(CONTRACTED, version)
    assert SECRET not in str(caught.value)


def test_an_invalid_subject_is_none_and_each_time_the_contract_moves() -> None:
    """B52: also without a subject or a task: whoever verified something just now must look again."""
    for before in (CONTRACTED, invalidate_subject(CONTRACTED), TasksContext()):
        after = invalidate_subject(before)
        assert after.subject_version is None
        assert moved(before, after) == (1, 1)
        assert after.requirements == before.requirements


# ---- verifications ----------------------------------------------------------------------------------------------


def test_a_report_on_what_is_there_now_is_recorded_and_the_newest_counts() -> None:
    """B52: revision + 1, the contract stays; one of each requirement is kept."""
    assert VERIFIED.verifications == (report(CONTRACTED),)
    assert moved(CONTRACTED, VERIFIED) == (1, 0)
    again = record_verification(VERIFIED, report(VERIFIED, outcome="FAILED", name="w"))
    assert [one.id for one in again.verifications] == ["w"]
    assert all(is_current(again, one) for one in again.verifications)


def test_a_report_on_another_requirement_stands_beside_the_first() -> None:
    """B52."""
    two = TasksContext(
        scope=scope(), requirements=(requirement("q", CRITERION, CONFIRMED), requirement("r", CRITERION, CONFIRMED))
    )
    one = record_verification(two, report(two))
    both = record_verification(one, report(one, "r", "ERROR", "w"))
    assert [each.id for each in both.verifications] == ["v", "w"]


CHANGES_OF_CONTRACT: dict[str, Callable[[TasksContext], TasksContext]] = {
    "another decision": lambda tasks: decide_requirement(tasks, "q", CONFIRMED, decision(Authority.CALLER)),
    "another subject": lambda tasks: set_subject_version(tasks, "v2"),
    "no subject": invalidate_subject,
    "the same subject by a detour": lambda tasks: set_subject_version(invalidate_subject(tasks), "v1"),
}


@pytest.mark.parametrize("change", CHANGES_OF_CONTRACT.values(), ids=CHANGES_OF_CONTRACT)
def test_a_change_of_the_contract_makes_older_reports_stale(change: Callable[[TasksContext], TasksContext]) -> None:
    """B54: those on their way are refused; those that are there stay, and count no more."""
    after = change(VERIFIED)
    assert after.verifications == VERIFIED.verifications
    assert not is_current(after, after.verifications[0])
    with pytest.raises(StaleRevision, match="read the state"):
        record_verification(after, report(VERIFIED, name="late"))


def test_what_does_not_change_the_contract_leaves_reports_current() -> None:
    """B54: todos and proposals are no part of what was verified."""
    after = replace_tasks(VERIFIED, [Task(id="t", subject="look")])
    after = propose_requirement(after, CRITERION, "another", None, "r")
    assert is_current(after, after.verifications[0])
    assert record_verification(after, report(VERIFIED, name="w")).verifications[0].id == "w"


def test_a_report_of_the_task_before_is_stale_before_it_is_unknown() -> None:
    """B54: its requirement is gone too, but the caller should know why."""
    other = begin_task(VERIFIED, scope("U"))
    with pytest.raises(StaleRevision):
        record_verification(other, report(VERIFIED))


@pytest.mark.parametrize(
    ("kind", "status"),
    [(CRITERION, RequirementStatus.CANDIDATE), (CRITERION, REJECTED), (CONSTRAINT, CONFIRMED)],
)
def test_only_a_confirmed_acceptance_criterion_is_verified(kind: RequirementKind, status: RequirementStatus) -> None:
    """B52: nothing that nobody has confirmed can pass."""
    tasks = TasksContext(scope=scope(), requirements=(requirement("q", kind, status),))
    with pytest.raises(InvalidCommand, match="only a CONFIRMED ACCEPTANCE_CRITERION"):
        record_verification(tasks, report(tasks))


@pytest.mark.parametrize(
    "bad",
    [
        report(CONTRACTED, SECRET),
        report(CONTRACTED, name=" "),
        report(CONTRACTED, name=SECRET * 1000),
        report(CONTRACTED, reason=SECRET * 4000),
    ],
)
def test_a_report_names_a_requirement_and_itself_within_bounds(bad: Verification) -> None:
    """B52."""
    with pytest.raises(InvalidCommand) as caught:
        record_verification(CONTRACTED, bad)
    assert SECRET not in str(caught.value)


# ---- any sequence -----------------------------------------------------------------------------------------------

KINDS = {"q": CRITERION, "r": CRITERION, "s": CONSTRAINT}


@dataclass(frozen=True)
class Step:
    command: str
    name: str
    task: str
    status: RequirementStatus
    authority: Authority
    outcome: VerificationOutcome

    def carry_out(self, tasks: TasksContext) -> TasksContext:
        match self.command:
            case "begin":
                return begin_task(tasks, scope(self.task, f"refund {self.name}"))
            case "replace":
                return replace_tasks(tasks, [Task(id=self.name, subject="look")])
            case "propose":
                return propose_requirement(tasks, KINDS[self.name], f"text of {self.name}", None, self.name)
            case "decide":
                return decide_requirement(tasks, self.name, self.status, decision(self.authority))
            case "subject":
                return set_subject_version(tasks, self.name)
            case "invalidate":
                return invalidate_subject(tasks)
            case _:
                return record_verification(tasks, report(tasks, self.name, self.outcome))


MOVES = {
    "begin": {(0, 0), (1, 1)},
    "replace": {(1, 0)},
    "propose": {(0, 0)},
    "decide": {(0, 0), (1, 1)},
    "subject": {(0, 0), (1, 1)},
    "invalidate": {(1, 1)},
    "record": {(1, 0)},
}
"""By how much each command may move revision and contract."""

STEPS = st.builds(
    Step,
    command=st.sampled_from(sorted(MOVES)),
    name=st.sampled_from(sorted(KINDS)),
    task=st.sampled_from("TU"),
    status=st.sampled_from(RequirementStatus),
    authority=st.sampled_from(Authority),
    outcome=st.sampled_from(VerificationOutcome),
)


NOT_DECIDED = (RequirementStatus.CANDIDATE, None)


def decided(tasks: TasksContext) -> dict[str, tuple[RequirementStatus, RequirementDecision | None]]:
    return {one.id: (one.status, one.decision) for one in tasks.requirements}


@given(st.lists(STEPS, max_size=30))
def test_only_its_own_command_decides_and_only_its_own_verifies(steps: list[Step]) -> None:
    """B52, B53: after any commands in any order; versions never go back, and move exactly where the table says."""
    tasks = TasksContext()
    for step in steps:
        try:
            after = step.carry_out(tasks)
        except PerdureError:
            continue
        name = step.command
        assert moved(tasks, after) in MOVES[name]
        assert moved(tasks, after) != (0, 0) or after == tasks or name == "propose"
        assert name == "begin" or decided(tasks).keys() <= decided(after).keys()
        assert name == "decide" or all(
            what == decided(tasks).get(one, NOT_DECIDED) for one, what in decided(after).items()
        )
        assert name in ("begin", "record") or after.verifications == tasks.verifications
        assert name in ("begin", "replace") or after.tasks == tasks.tasks
        assert name == "begin" or after.scope == tasks.scope
        verified = [one.requirement_id for one in after.verifications]
        assert len(set(verified)) == len(verified)
        tasks = after


@given(TASKS_CONTEXTS)
def test_what_is_verified_of_the_present_contract_is_current_and_the_next_contract_ends_that(
    tasks: TasksContext,
) -> None:
    """B54: whatever the state came from."""
    now = report(tasks)
    assert is_current(tasks, now)
    assert not is_current(invalidate_subject(tasks), now)
