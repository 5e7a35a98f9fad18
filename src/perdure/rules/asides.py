"""Input that waits for the next step: steered, for the running turn, or injected, for whatever turn comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.messages import Message, Role, as_json
from perdure.operations import derived_id
from perdure.session import Session, change, with_entry, with_message
from perdure.turns import Aside

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.commands import InputBlock

STEER, INJECT = "steer", "inject"


def put_aside(
    session: Session, at: datetime, content: tuple[InputBlock, ...], turn_id: str | None, actor: str | None
) -> Session:
    """Keep input for the next step, of this turn or of any."""
    via = INJECT if turn_id is None else STEER
    blocks = [as_json(block) for block in content]
    session = with_entry(session, at, "input", turn_id=turn_id, actor=actor, via=via, content=blocks)
    # The entry's number is used once in a session, and the time tells sessions of the same key apart.
    message_id = derived_id("message", session.key.workflow_id, via, str(session.last_seq), at.isoformat())
    aside = Aside(message_id=message_id, input=content, turn_id=turn_id)
    return change(session, asides=(*session.asides, aside))


def see_asides(session: Session, at: datetime, *, steered_only: bool = False) -> Session:
    """Put what waits into the context, in the order in which it came."""
    current = session.current
    for aside in session.asides:
        if aside.turn_id is None and steered_only:
            continue
        message = Message(
            id=aside.message_id,
            name=session.state.user_id,
            role=Role.USER,
            content=aside.input,
            timestamp=at.isoformat(),
        )
        session = with_message(session, message)
        if current is not None and aside.turn_id is not None:
            current = change(current, message_ids=(*current.message_ids, message.id))
    left = tuple(aside for aside in session.asides if aside.turn_id is None and steered_only)
    return change(session, current=current, asides=left)


def steered(session: Session) -> bool:
    """Whether the running turn has input that it has not seen yet."""
    return any(aside.turn_id is not None for aside in session.asides)
