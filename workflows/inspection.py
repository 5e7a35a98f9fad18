"""What the Temporal UI shows of a session, beyond its history.

Nothing here costs an event but the search attributes, which change only when somebody must act.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.common import SearchAttributeKey, SearchAttributeUpdate, TypedSearchAttributes

from perdure import contract
from perdure.identity import SessionKey, attribute_value
from perdure.values import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.results import SessionStatus, SessionView

AGENT = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_AGENT)
USER = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_USER)
SESSION = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_SESSION)
STATUS = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_STATUS)

SHOWN_TEXT = 200
"""Characters of foreign text in one place."""

SHOWN_QUEUE = 10
"""Waiting turns that are listed one by one."""


def attribute_updates(
    present: TypedSearchAttributes, key: SessionKey, status: SessionStatus
) -> Sequence[SearchAttributeUpdate[str]]:
    """Return what has to change in the search attributes; nothing on a plain turn."""
    wanted = {AGENT: attribute_value(key.agent_id), SESSION: attribute_value(key.session_id), STATUS: status.value}
    if key.user_id is not None:
        wanted[USER] = attribute_value(key.user_id)
    return [name.value_set(value) for name, value in wanted.items() if present.get(name) != value]


def current_details(key: SessionKey, view: SessionView) -> str:
    """Return the session at a glance, as Markdown."""
    return "\n".join(_lines(key, view))


def _lines(key: SessionKey, view: SessionView) -> Iterator[str]:
    yield " · ".join(
        (f"**{view.status}**", *map(as_code, (key.agent_id, key.user_id or "(anonymous)", key.session_id)))
    )
    yield ""
    yield from _now(view)
    yield from _held(view)
    yield from _asked(view)
    for operation in view.uncertain[:SHOWN_QUEUE]:
        call = f"{operation.tool} {canonical_json(operation.arguments).decode()}"
        yield f"- **outcome unknown**: {as_code(call)}, operation `{operation.operation_id}`"
    if view.rejected_count:
        yield f"- refused signals: {view.rejected_count}, the last: {as_code(view.rejections[-1].message)}"
    yield f"- turns: {view.turns}, messages: {view.messages}"
    yield f"- tokens: {view.usage.input_tokens} in, {view.usage.output_tokens} out"


def _now(view: SessionView) -> Iterator[str]:
    """Yield what runs and what waits."""
    active = view.active
    if active is None:
        yield "- running: nothing"
    else:
        stopped_by = _by("stopped", active.stopped_by)
        turn = f"turn {as_code(active.turn_id)}{_by('asked', active.actor)}"
        yield f"- running: {turn}, step {active.step}: {as_code(active.doing)}{stopped_by}"
    yield f"- waiting: {len(view.queue)} turn(s)"
    for entry in view.queue[:SHOWN_QUEUE]:
        yield f"- next: turn {as_code(entry.turn_id)}{_by('asked', entry.actor)}: {as_code(entry.text)}"
    if view.waiting_inputs:
        yield f"- input for the next step: {view.waiting_inputs}"


def _held(view: SessionView) -> Iterator[str]:
    """Yield what somebody has to do something about."""
    if view.paused:
        reason = "" if view.pause_reason is None else f": {as_code(view.pause_reason)}"
        yield f"- **paused**{_by('asked', view.paused_by)}{reason}; `unpause` goes on"
    stopped = view.stopped
    if stopped is not None:
        why = stopped.message if stopped.error is None else f"{stopped.error.type}: {stopped.error.message}"
        said = "" if why is None else f": {as_code(why)}"
        turn = f"turn {as_code(stopped.turn_id)} is {stopped.status.value}{_by('stopped', stopped.stopped_by)}{said}"
        yield f"- **can be resumed**: {turn}"
    elif view.unfinished is not None:
        yield f"- unfinished: turn {as_code(view.unfinished)}"
    if view.parked is not None:
        yield f"- **the queue waits** until turn {as_code(view.parked)} is resumed or cancelled"


def _asked(view: SessionView) -> Iterator[str]:
    """Yield what people are asked: the calls that would run."""
    for interaction in view.interactions:
        if interaction.kind == "reconciliation":
            continue
        wanted = "**approve or deny**" if interaction.kind == "approval" else "**to be done outside**"
        yield f"- {wanted}, request `{interaction.request_id}`, turn {as_code(interaction.turn_id)}"
        for call in interaction.calls[:SHOWN_QUEUE]:
            said = f": {as_code(call.reason)}" if call.reason else ""
            shown = as_code(f"{call.tool} {canonical_json(call.arguments).decode()}")
            yield f"  - {shown}, call `{call.call_id}`{said}"


def _by(what: str, actor: str | None) -> str:
    return "" if actor is None else f" ({what} by {as_code(actor)})"


def as_code(text: str) -> str:
    """Return foreign text, shortened, as a code span, which renders nothing that is in it."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 2 * SHOWN_TEXT]).split())
    shown = line if len(line) <= SHOWN_TEXT else f"{line[: SHOWN_TEXT - 1]}…"
    return "`" + shown.replace("`", "'") + "`"
