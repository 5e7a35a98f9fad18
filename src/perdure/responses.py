"""Which answers a session takes to what its suspended turn waits for. Refusing changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perdure.errors import InteractionNotFound, InvalidCommand
from perdure.rules.calls import calls_of
from perdure.rules.interactions import concerned, decisions_of, find_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.commands import Decision, Respond
    from perdure.session import Session
    from perdure.turns import PlannedCall, Request


def admit_response(session: Session, command: Respond) -> None:
    """Check that an answer fits what is asked.

    Raises:
        InteractionNotFound: nothing is asked under this id, or not any more: it says who was first, and what they said.
        InvalidCommand: it speaks of calls that are not asked about, or answers something else than what is asked.
    """
    request = _request(session, command.request_id)
    calls = tuple(call for call in calls_of(session) if concerned(call, request.kind))
    match request.kind:
        case "approval":
            _check_decisions(command, calls)
        case "external":
            _check_results(session, command, calls)
        case "reconciliation":
            msg = "what became of these calls is said by reconcile, by operation id"
            raise InvalidCommand(msg)


def _request(session: Session, request_id: str) -> Request:
    current = session.current
    request = None if current is None else find_request(current, request_id)
    if request is not None:
        return request
    answered = next((one for one in reversed(session.answered) if one.request_id == request_id), None)
    if answered is None:
        msg = f"nothing is asked under the request id {request_id!r}; the session's view lists what is"
        raise InteractionNotFound(msg)
    raise InteractionNotFound(str(answered))


def _check_decisions(command: Respond, calls: tuple[PlannedCall, ...]) -> None:
    if command.approve is None or command.result is not None or command.errors is not None:
        msg = "an approval is answered by approve, and by nothing else"
        raise InvalidCommand(msg)
    by_id = {call.plan.call_id: call for call in calls}
    if isinstance(command.approve, Mapping):
        _check_ids(command.approve.keys(), by_id)
    decisions = decisions_of(command, calls)
    for call_id, decision in decisions.items():
        if decision.arguments is not None and (by_id[call_id].plan.external or by_id[call_id].plan.builtin):
            msg = (
                f"the arguments of {by_id[call_id].plan.tool} can't be edited, since no worker runs it; deny it instead"
            )
            raise InvalidCommand(msg)
    if command.remember:
        _check_unedited(by_id, decisions)
        _check_memorable(call for call_id, call in by_id.items() if call_id in decisions and decisions[call_id].approve)


def _check_unedited(asked: Mapping[str, PlannedCall], decisions: Mapping[str, Decision]) -> None:
    for call_id, decision in decisions.items():
        if decision.approve and decision.arguments not in (None, asked[call_id].plan.arguments):
            msg = (
                "what would be remembered is about the arguments that the model gave, and these are others; "
                "answer without remember, or add a rule by update_state"
            )
            raise InvalidCommand(msg)


def _check_memorable(approved: Iterable[PlannedCall]) -> None:
    if not any(call.ask is not None and call.ask.remembered for call in approved):
        msg = (
            "there is nothing to remember: no call is approved that a rule could answer next time; "
            "answer without remember, or change the rules by update_state"
        )
        raise InvalidCommand(msg)


def _check_results(session: Session, command: Respond, calls: tuple[PlannedCall, ...]) -> None:
    if command.approve is not None or command.remember:
        msg = "a call that was carried out outside is answered by result and errors, and by nothing else"
        raise InvalidCommand(msg)
    results, errors = command.result or {}, command.errors or {}
    if results.keys() & errors.keys():
        msg = "a call has either a result or an error, not both"
        raise InvalidCommand(msg)
    given = results.keys() | errors.keys()
    done = {call.plan.call_id for call in calls_of(session) if call.plan.external and call.result is not None}
    if given & done:
        msg = f"{len(given & done)} of these calls have their result already; the first one counts"
        raise InvalidCommand(msg)
    _check_ids(given, {call.plan.call_id: call for call in calls})


def _check_ids(given: Iterable[str], asked: Mapping[str, PlannedCall]) -> None:
    ids = set(given)
    unknown = ids - asked.keys()
    if ids and not unknown:
        return
    wrong = f"{len(unknown)} of the ids given are not among them" if ids else "none of them is named"
    msg = f"these calls are asked about: {', '.join(asked)}; {wrong}"
    raise InvalidCommand(msg)
