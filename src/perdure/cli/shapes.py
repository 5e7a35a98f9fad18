"""What sessions, turns and states look like to people: tables made of the public values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.cli.entries import message_line, shortened
from perdure.cli.terminal import columns, fields, one_line
from perdure.messages import blocks_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from rich.table import Table

    from perdure.messages import Usage
    from perdure.results import InteractionCall, RunView, SessionInfo, SessionView, Stopped, TurnView
    from perdure.state import AgentState


LAST = 5
"""Messages of a state that are shown; its JSON has all."""

NEEDS = {"approval": "approve?", "external": "to be done", "reconciliation": "what became"}
"""What people are asked, in a word."""


def moment(at: datetime | None) -> str | None:
    """Return a time on this machine's clock."""
    return None if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def tokens(usage: Usage) -> str:
    """Return how many tokens were used."""
    return f"{usage.input_tokens} in, {usage.output_tokens} out"


def view_table(view: SessionView) -> Table:
    """Return a session at a glance."""
    active = view.active
    rows: list[tuple[str, object]] = [
        ("status", view.status.value),
        ("running", active and f"turn {active.turn_id}, run {active.run_id}, step {active.step}: {active.doing}"),
        ("since", active and moment(active.since)),
        ("asked by", active and active.actor),
        ("stopped by", active and active.stopped_by),
        *(("queued", f"{entry.turn_id}{by(entry.actor)}: {one_line(entry.text, 60)}") for entry in view.queue),
        ("new input", f"{view.waiting_inputs}, seen at the next step" if view.waiting_inputs else None),
        *((NEEDS[item.kind], f"{_calls(item.calls)} (request {item.request_id})") for item in view.interactions),
        *(("uncertain", f"{each.operation_id}: {each.tool} {shortened(each.arguments)}") for each in view.uncertain),
        ("clearing", "the context, when no turn runs" if view.clearing else None),
        ("compacting", "older messages become a summary" if view.compacting else None),
        ("unfinished", view.unfinished if view.stopped is None else stopped_line(view.stopped)),
        ("parked", view.parked and f"the queue is held until turn {view.parked} is resumed or cancelled"),
        ("paused", f"yes{by(view.paused_by)}{because(view.pause_reason)}" if view.paused else None),
        ("turns", view.turns),
        ("messages", view.messages),
        ("tokens", tokens(view.usage)),
        ("revision", view.revision),
        ("history", f"{view.history_length} events, {view.history_size} bytes"),
        ("refused", f"{view.rejected_count} signals" if view.rejected_count else None),
        *(("", f"{each.command}: {each.error}: {one_line(each.message)}") for each in view.rejections[-3:]),
    ]
    return fields(rows)


def stopped_line(stopped: Stopped) -> str:
    """Return how the turn ended that can be resumed."""
    error = "" if stopped.error is None else because(f"{stopped.error.type}: {stopped.error.message}")
    told = because(stopped.message)
    return f"{stopped.turn_id}, {stopped.status.value} {moment(stopped.ended_at)}{by(stopped.stopped_by)}{told}{error}"


def by(actor: str | None) -> str:
    """Return who it was, if that is known."""
    return f" by {one_line(actor, 60)}" if actor else ""


def because(reason: str | None) -> str:
    """Return a reason, if one was given."""
    return f": {one_line(reason)}" if reason else ""


def _calls(calls: Iterable[InteractionCall]) -> str:
    return "; ".join(f"{call.tool} {shortened(call.arguments)}" for call in calls)


def turn_table(turn: TurnView) -> Table:
    """Return one turn."""
    rows: list[tuple[str, object]] = [
        ("turn", turn.turn_id),
        ("status", turn.status.value),
        ("input", blocks_text(turn.input)),
        ("output", turn.output),
        ("error", turn.error and f"{turn.error.type}: {turn.error.message}"),
        ("submitted", f"{moment(turn.submitted_at)}{by(turn.submitted_by)}"),
        *(("run", f"{run.run_id}: {_span(run)}") for run in turn.runs),
        ("steps", turn.steps),
        ("tokens", tokens(turn.usage)),
    ]
    return fields(rows)


def _span(run: RunView) -> str:
    if run.outcome is None:
        return f"running since {moment(run.started_at)}"
    return f"{run.outcome.value} {moment(run.ended_at)}, begun {moment(run.started_at)}"


def state_table(state: AgentState) -> Table:
    """Return a state in short; its JSON has all of it."""
    permissions = state.permission_context
    rules = (permissions.allow_rules, permissions.deny_rules, permissions.ask_rules)
    counts = [sum(len(each) for each in kind.values()) for kind in rules]
    rows: list[tuple[str, object]] = [
        ("agent", state.agent_id),
        ("user", state.user_id or "(anonymous)"),
        ("session", state.session_id),
        ("revision", state.revision),
        ("summary", one_line(state.summary)),
        ("messages", f"{len(state.context)}{'' if len(state.context) <= LAST else f', the last {LAST}:'}"),
        *((message.role.value, message_line(message)) for message in state.context[-LAST:]),
        ("permissions", f"mode {permissions.mode.value}; rules: {counts[0]} allow, {counts[1]} deny, {counts[2]} ask"),
        ("plan mode", "on" if state.plan_mode_context.plan_active else None),
        *((f"task {task.state.value}", one_line(task.subject)) for task in state.tasks_context.tasks),
    ]
    return fields(rows)


def sessions_table(found: Iterable[SessionInfo]) -> Table:
    """Return a list of sessions."""
    names = ("agent", "user", "session", "status", "started", "closed")
    return columns(
        names,
        (
            (
                info.key.agent_id,
                info.key.user_id or "~",
                info.key.session_id,
                info.status.value,
                moment(info.started_at),
                moment(info.closed_at),
            )
            for info in found
        ),
    )
