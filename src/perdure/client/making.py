"""Commands, made and checked before they are sent, with refusals that read like the session's own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure import commands
from perdure.changes import change_json
from perdure.commands import Reconcile, Respond, SubmitTurn, UpdateState
from perdure.errors import InvalidCommand
from perdure.tools import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.calls import Model
    from perdure.changes import AnyChange
    from perdure.commands import Decision, OnBusy
    from perdure.contract import AfterStop
    from perdure.messages import Block
    from perdure.operations import Outcome


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
    """Return what a user says in the form that commands take.

    Raises:
        InvalidCommand: it is neither text nor blocks.
    """
    if isinstance(given, str):
        return given
    try:
        return [block.model_dump(mode="json") for block in given]
    except (TypeError, AttributeError):
        msg = f"input is a string or a list of blocks, such as [TextBlock('hello')], not {type(given).__name__}"
        raise InvalidCommand(msg) from None


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


def respond(
    request_id: str,
    approve: bool | Mapping[str, Decision] | None,  # noqa: FBT001  # the public method's own parameter
    *,
    remember: bool,
    reason: str | None,
    result: Mapping[str, object] | None,
    actor: str | None,
) -> Respond:
    """Make an answer.

    Raises:
        InvalidCommand: a field of it can't be understood, or a result is not JSON.
    """
    results = {call_id: value for call_id, value in (result or {}).items() if not isinstance(value, ToolError)}
    errors = {call_id: str(value) for call_id, value in (result or {}).items() if isinstance(value, ToolError)}
    return made(
        Respond,
        request_id=request_id,
        approve=dict(approve) if isinstance(approve, Mapping) else approve,
        remember=remember,
        reason=reason,
        result=None if result is None else results,
        errors=errors or None,
        actor=actor,
    )


def reconcile(outcomes: Mapping[str, Outcome], *, reason: str, actor: str | None) -> Reconcile:
    """Make a statement of what became of operations.

    Raises:
        InvalidCommand: a field of it can't be understood; an outcome is none that a person can state.
    """
    stated = {
        operation_id: {"outcome": outcome.kind, "result": outcome.result, "reason": outcome.reason or None}
        for operation_id, outcome in outcomes.items()
    }
    return made(Reconcile, outcomes=stated, reason=reason, actor=actor)


def update_state(
    changes: Sequence[AnyChange], *, expected_revision: int, reason: str, actor: str | None
) -> UpdateState:
    """Make a change of the state.

    Raises:
        InvalidCommand: a field of it can't be understood.
    """
    plain = [change_json(change) for change in changes]
    return made(UpdateState, changes=plain, expected_revision=expected_revision, reason=reason, actor=actor)
