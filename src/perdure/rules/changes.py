"""How the state is changed from outside: typed changes, and a context that is cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.changes import SetActivatedGroups, apply_changes, change_json, touches_context
from perdure.errors import PerdureError
from perdure.permissions import merged
from perdure.session import Session, change, with_context, with_entry, with_state
from perdure.turns import Asker

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.contract import Defaults
    from perdure.facts import ClearRequested, StateChanged


def state_changed(session: Session, fact: StateChanged) -> Session:
    """Change the state as somebody has asked, all of it or nothing."""
    if session.closing:
        return session
    try:
        state = apply_changes(session.state, fact.changes)
    except PerdureError:  # admission has refused it; nothing changes
        return session
    if touches_context(fact.changes):
        session = _forget_context(with_context(session, state.context, state.summary))
        session = change(session, state=change(state, revision=session.state.revision))
    else:
        session = with_state(session, state)
    if any(isinstance(one, SetActivatedGroups) for one in fact.changes):
        session = change(session, unset=tuple(one for one in session.unset if one != "groups"))
    return with_entry(
        session,
        fact.at,
        "change",
        actor=fact.actor,
        reason=fact.reason,
        revision=session.state.revision,
        changes=[change_json(one) for one in fact.changes],
    )


def _forget_context(session: Session) -> Session:
    """Give up what only made sense with the messages that were there: a turn to be resumed, a summary on its way."""
    return change(
        session, unfinished=None, parked=None, compaction=None, compact_for=None, compact_again_over=0, late=()
    )


def clear_requested(session: Session, fact: ClearRequested) -> Session:
    """Forget what was said, now or as soon as no turn runs and no outcome is unknown."""
    if session.closing:
        return session
    if session.current is not None or session.uncertain:
        return change(session, clear_for=Asker(actor=fact.actor))
    return clear(session, fact.at, fact.actor)


def clear(session: Session, at: datetime, actor: str | None) -> Session:
    """Empty the context. All else stays as it is."""
    session = _forget_context(with_context(session, (), ""))
    session = change(session, clear_for=None)
    return with_entry(session, at, "change", actor=actor, change="clear_context", revision=session.state.revision)


def take_defaults(session: Session, defaults: Defaults | None) -> Session:
    """Take over what the agent's definition says of a new session, where nobody has said otherwise."""
    if defaults is None or not session.unset:
        return session
    state = session.state
    if "permissions" in session.unset:
        state = change(state, permission_context=merged(state.permission_context, defaults.permissions))
    if "groups" in session.unset:
        tools = change(state.tool_context, activated_groups=defaults.activated_groups)
        state = change(state, tool_context=tools)
    session = change(session, unset=())
    return session if state == session.state else with_state(session, state)
