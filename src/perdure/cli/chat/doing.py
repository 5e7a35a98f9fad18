"""What a session does for somebody who waits, and what it needs of somebody who comes back: a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.cli.asked import request_lines
from perdure.cli.shapes import because, by, stopped_line
from perdure.results import SessionStatus

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from perdure.results import SessionView

HOW = {
    "approval": "/approve lets it run, /deny forbids it, /cancel gives the turn up.",
    "external": "Somebody outside is to do it; `perdure respond` gives the result, /cancel gives the turn up.",
    "reconciliation": "Nobody knows what became of it; `perdure reconcile` settles it.",
}
"""How what is asked can be answered."""

DOING = {"model": "thinking", "stopping": "stopping", "held": "held: the session is paused, /unpause goes on"}
"""What an active run does, where it is not tools."""


def doing(view: SessionView, turns: Container[str]) -> str:
    """Return what becomes of these turns at present."""
    place = next((place for place, entry in enumerate(view.queue, 1) if entry.turn_id in turns), 0)
    if view.active is not None and view.active.turn_id in turns:
        behind = f", {len(view.queue)} more in the queue" if view.queue else ""
        return f"{DOING.get(view.active.doing, f'running {view.active.doing}')}{behind}"
    return f"waiting, number {place} in the queue{_held(view)}" if place else "waiting"


def _held(view: SessionView) -> str:
    if view.paused:
        return ": the session is paused, /unpause goes on"
    return f": turn {view.parked} holds it, /resume or /cancel" if view.parked else ""


def waiting_lines(view: SessionView) -> str:
    """Return the turns that wait, a line each."""
    lines = [f"{place}  {entry.turn_id}{by(entry.actor)}: {entry.text}" for place, entry in enumerate(view.queue, 1)]
    if view.waiting_inputs:
        lines.append(f"{view.waiting_inputs} new input, seen at the next step")
    return "\n".join(lines) or "nothing waits"


def asked_lines(view: SessionView) -> Iterator[str]:
    """Yield what people are asked, and how it can be answered."""
    for request in view.interactions:
        yield from request_lines(request)
        yield HOW[request.kind]


def remarks(view: SessionView) -> Iterator[str]:
    """Yield what somebody who comes back should know, with the command that helps."""
    if view.status is SessionStatus.CLOSED:
        yield "The session is closed; a new message opens it again."
        return
    if view.paused:
        yield f"The session is paused{by(view.paused_by)}{because(view.pause_reason)}.  /unpause goes on."
    if view.stopped is not None:
        held = ", and holds the queue" if view.parked == view.stopped.turn_id else ""
        yield f"Unfinished{held}: turn {stopped_line(view.stopped)}.  /resume goes on with it, /cancel gives it up."
    yield from asked_lines(view)
    if view.uncertain and not view.interactions:
        yield "Nobody knows what became of an operation.  `perdure uncertain` shows it, `perdure reconcile` settles it."
    if view.parked is not None and (view.stopped is None or view.parked != view.stopped.turn_id):
        yield f"The queue is held by turn {view.parked}.  /cancel {view.parked} lets it go on."
