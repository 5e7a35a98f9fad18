"""Whether a tool call may run: the rules of plan mode, then the session's permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.builtins import PLAN_EXIT
from perdure.judging import CallFacts, Judgement, Opinion, denied_by_rule, judge
from perdure.operations import Effect

if TYPE_CHECKING:
    from perdure.contract import CallPlan
    from perdure.state import AgentState

PLANNING = "the session is in plan mode, in which nothing runs that changes something; leave it by plan_exit first"
LEAVING = "leaving plan mode needs a person's word"


def judge_call(state: AgentState, plan: CallPlan) -> Judgement:
    """Return what the session's state says of a call."""
    planning = state.plan_mode_context.plan_active
    if planning and not plan.builtin and plan.effect is not Effect.READ:
        return Judgement(behavior="deny", reason=PLANNING)
    return judge(state.permission_context, _facts(state, plan))


def deny_again(state: AgentState, plan: CallPlan) -> Judgement | None:
    """Return what forbids a call that was allowed before: a deny rule that came since."""
    return denied_by_rule(state.permission_context, _facts(state, plan))


def _facts(state: AgentState, plan: CallPlan) -> CallFacts:
    if not plan.builtin:
        return CallFacts(tool=plan.tool, effect=plan.effect, subject=plan.subject, opinion=plan.opinion)
    if plan.tool == PLAN_EXIT and state.plan_mode_context.plan_active:  # more than reading: acting follows
        return CallFacts(tool=plan.tool, effect=Effect.IDEMPOTENT, opinion=Opinion(behavior="ask", reason=LEAVING))
    return CallFacts(tool=plan.tool, effect=Effect.READ, opinion=Opinion(behavior="allow"))
