"""Commands, made and checked before they are sent, with refusals that read like the session's own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from perdure import commands
from perdure.commands import SubmitTurn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.calls import Model
    from perdure.commands import OnBusy
    from perdure.contract import AfterStop
    from perdure.messages import Block


def made(kind: type[Model], **fields: object) -> Model:
    """Make a command.

    Raises:
        InvalidCommand: a field of it can't be understood.
    """
    try:
        return kind.model_validate(fields)
    except ValueError as error:
        raise commands.invalid(kind.__name__, error) from None


def content(given: str | Sequence[Block]) -> object:
    """Return what a user says in the form that commands take."""
    return given if isinstance(given, str) else [block.model_dump(mode="json") for block in given]


def submit(
    given: str | Sequence[Block],
    *,
    turn_id: str | None,
    on_busy: OnBusy | str,
    run_id: str | None,
    attributes: Mapping[str, str] | None,
    actor: str | None,
    after_interrupt: AfterStop | None,
    after_failure: AfterStop | None,
) -> SubmitTurn:
    """Make a submit. It has a turn id in any case, so that it can be sent again.

    Raises:
        InvalidCommand: a field of it can't be understood.
    """
    return made(
        SubmitTurn,
        input=content(given),
        turn_id=uuid.uuid4().hex if turn_id is None else turn_id,
        on_busy=on_busy,
        run_id=run_id,
        attributes=dict(attributes or {}),
        actor=actor,
        after_interrupt=after_interrupt,
        after_failure=after_failure,
    )
