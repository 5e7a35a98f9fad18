"""`Session`: everything that a session is, as one value. It rides whole through continue-as-new.

How it changes is in `advance`, what it wants done is in `decide`, what it refuses is in `admission`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import Field

from perdure.contract import Limits, Mark, Setting
from perdure.former import Former, find_former, has_run
from perdure.identity import SessionKey
from perdure.messages import Message, ToolResultBlock, Usage, chain, chain_all, context_origin
from perdure.results import Answered, EntryKind, Rejection, SessionStatus, TranscriptEntry, TurnStatus
from perdure.state import AgentState
from perdure.turns import (
    Aside,
    Asker,
    Compaction,
    CurrentTurn,
    Doubt,
    Joined,
    LateResult,
    Pause,
    QueuedTurn,
    TurnRecord,
    Uncertain,
)
from perdure.values import Frozen, FrozenDict, Text, json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from perdure.permissions import PermissionContext

REMEMBERED_REJECTIONS = 20
"""How many refused signals are shown; all are counted."""


_NEEDS = {
    "approval": SessionStatus.NEEDS_APPROVAL,
    "reconciliation": SessionStatus.NEEDS_RECONCILIATION,
    "external": SessionStatus.NEEDS_RESULT,
}


class Session(Frozen):
    """The whole value of one session.

    `head` is the digest of the whole context; `known` the place up to which the worker that made the last model call
    has it already. `unfinished` is the turn that ended last of those that were interrupted or failed: the one that can
    be resumed. `parked` is the turn whose end holds the queue. `asides` is input that the next step will see.
    `late` is what became of calls after their turns had gone on, which the next model call will be told.
    `answered` are the last requests that somebody has answered. `context_tokens` is what the context had at the last
    model call, and `compact_again_over` the size below which the next summary is not tried. `compact_for` and
    `clear_for` are who waits for either. `unset` are the settings that the agent's definition still has to give.
    `turns` are the last ones, of which all is known, and `former` the fingerprints of those before. `transcript` is the
    end of the transcript, with all that is not in the archive yet; up to `archived` it is there. The rules of that are
    in `rules.archiving`.
    """

    state: AgentState
    head: str
    known: Mark
    current: CurrentTurn | None = None
    queue: tuple[QueuedTurn, ...] = ()
    unfinished: CurrentTurn | None = None
    parked: str | None = None
    pause: Pause | None = None
    asides: tuple[Aside, ...] = ()
    joined: tuple[Joined, ...] = ()
    turns: tuple[TurnRecord, ...] = ()
    former: tuple[str, ...] = ()
    turn_count: int = 0
    limits: Limits = Field(default_factory=Limits)
    uncertain: tuple[Uncertain, ...] = ()
    late: tuple[LateResult, ...] = ()
    answered: tuple[Answered, ...] = ()
    compaction: Compaction | None = None
    compactions: int = 0
    compact_again_over: int = 0
    context_tokens: int = 0
    compact_for: Asker | None = None
    clear_for: Asker | None = None
    unset: tuple[Setting, ...] = ()
    transcript: tuple[TranscriptEntry, ...] = ()
    last_seq: int = 0
    archives: bool = False
    archived: int = 0
    archive_tries: int = 0
    archive_when: int | None = None
    unarchived_bytes: int = 0
    checkpointed: bool = False
    ending: bool = False
    has_archive: bool = False
    usage: Usage = Field(default_factory=Usage)
    rejections: tuple[Rejection, ...] = ()
    rejected_count: int = 0
    closing: bool = False
    close_reason: Text | None = None
    cancelled_by_close: tuple[str, ...] = ()

    @classmethod
    def new(
        cls,
        key: SessionKey,
        seed: AgentState | None = None,
        permissions: PermissionContext | None = None,
        unset: tuple[Setting, ...] | None = None,
    ) -> Session:
        """Return a session in which nothing has happened yet, with the contents of `seed` if one is given.

        What neither `seed` nor `permissions` say comes from the agent's definition, with the first model call: all of
        it without a seed, and with one what `unset` names.
        """
        base = seed or AgentState(session_id=key.session_id)
        fields: dict[str, object] = {
            "agent_id": key.agent_id,
            "user_id": key.user_id,
            "session_id": key.session_id,
            **({} if permissions is None else {"permission_context": permissions}),
        }
        state = base.model_copy(update=fields)
        head = chain_all(context_origin(state.summary), state.context)
        if unset is None:
            unset = () if seed else ("permissions", "groups")
        return cls(
            state=state,
            head=head,
            known=Mark(position=len(state.context), digest=head),
            unset=tuple(one for one in unset if one == "groups" or permissions is None),
        )

    @property
    def key(self) -> SessionKey:
        """Whose session this is."""
        return SessionKey(self.state.agent_id, self.state.session_id, self.state.user_id)

    @property
    def running(self) -> CurrentTurn | None:
        """The turn that runs, if one does."""
        return self.current if self.current is not None and not self.current.suspended else None

    @property
    def steerable(self) -> CurrentTurn | None:
        """The turn that input can join: it runs, and nobody has stopped it."""
        return self.running if self.running is not None and self.running.stop is None else None

    @property
    def paused(self) -> bool:
        """Whether no step may begin."""
        return self.pause is not None

    @property
    def busy(self) -> bool:
        """Whether a new turn would have to wait."""
        return self.current is not None or bool(self.queue) or self.paused or self.parked is not None

    @property
    def closed(self) -> bool:
        """Whether the session is over and everything has settled."""
        return self.closing and self.current is None

    @property
    def reopens(self) -> bool:
        """Whether a turn would open it again where it is: it is closed, and the archive has not got all of it yet."""
        return self.closed and self.archives and not self.checkpointed and not self.ending

    @property
    def status(self) -> SessionStatus:
        """What the session needs from people."""
        if self.closing:
            return SessionStatus.CLOSED
        if self.current is not None and self.current.suspended:
            kinds = {request.kind for request in self.current.requests}
            return next(
                (status for kind, status in _NEEDS.items() if kind in kinds), SessionStatus.NEEDS_RECONCILIATION
            )
        if any(one.doubt is Doubt.OPEN for one in self.uncertain):
            return SessionStatus.NEEDS_RECONCILIATION
        return SessionStatus.PAUSED if self.paused else SessionStatus.ACTIVE

    @property
    def mark(self) -> Mark:
        """The end of the context."""
        return Mark(position=len(self.state.context), digest=self.head)

    def record(self, turn_id: str) -> TurnRecord | None:
        """Return what is remembered of a turn. The newest are looked at first."""
        return next((record for record in reversed(self.turns) if record.turn_id == turn_id), None)

    def joined_by(self, turn_id: str) -> Joined | None:
        """Return the submit of this turn id that joined another turn, if it did."""
        return next((one for one in reversed(self.joined) if one.turn_id == turn_id), None)

    def find(self, turn_id: str) -> TurnRecord | Former | None:
        """Return what is remembered of a turn, or of the one that it joined."""
        joined = self.joined_by(turn_id)
        turn_id = turn_id if joined is None else joined.into
        return self.record(turn_id) or find_former(self.former, turn_id)

    def run_ids(self) -> Iterator[str]:
        """Yield the run ids of the last turns."""
        for record in self.turns:
            yield record.run_id
            yield from (run.run_id for run in record.runs)

    def used_run(self, run_id: str) -> bool:
        """Tell whether a run id is taken."""
        return run_id in self.run_ids() or has_run(self.former, run_id)


S = TypeVar("S", bound=Frozen)


def change(value: S, **fields: object) -> S:
    """Return a copy with some fields changed. The fields are trusted: they come from values made by our own rules."""
    return value.model_copy(update=fields)


def with_message(session: Session, message: Message) -> Session:
    """Add a message to the context."""
    state = change(session.state, context=(*session.state.context, message), revision=session.state.revision + 1)
    return change(session, state=state, head=chain(session.head, message))


def with_record(session: Session, turn_id: str, **fields: object) -> Session:
    """Change what is remembered of a turn."""
    turns = list(session.turns)
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].turn_id == turn_id:
            turns[index] = change(turns[index], **fields)
            break
    return change(session, turns=tuple(turns))


def with_entry(
    session: Session,
    at: datetime,
    kind: EntryKind,
    *,
    turn_id: str | None = None,
    run_id: str | None = None,
    actor: str | None = None,
    **data: object,
) -> Session:
    """Add an entry to the transcript."""
    seq = session.last_seq + 1
    record = cast("FrozenDict", data)  # which it becomes in the entry
    entry = TranscriptEntry(seq=seq, at=at, kind=kind, turn_id=turn_id, run_id=run_id, actor=actor, data=record)
    return change(
        session,
        transcript=(*session.transcript, entry),
        last_seq=seq,
        unarchived_bytes=session.unarchived_bytes + json_bytes(entry),
    )


def with_state(session: Session, state: AgentState) -> Session:
    """Change the state, all but its messages and its summary; its revision goes up."""
    return change(session, state=change(state, revision=session.state.revision + 1))


def with_context(session: Session, messages: tuple[Message, ...], summary: str) -> Session:
    """Put other messages and another summary in the place of what the context was. No worker knows them yet."""
    origin = context_origin(summary)
    state = change(session.state, context=messages, summary=summary, revision=session.state.revision + 1)
    known = Mark(position=0, digest=origin)
    return change(session, state=state, head=chain_all(origin, messages), known=known, context_tokens=0)


def with_turn_entry(
    session: Session, at: datetime, kind: EntryKind, *, actor: str | None = None, **data: object
) -> Session:
    """Add an entry of the current turn and its run to the transcript."""
    current = session.current
    turn_id, run_id = (None, None) if current is None else (current.turn_id, current.run_id)
    return with_entry(session, at, kind, turn_id=turn_id, run_id=run_id, actor=actor, **data)


def without_messages(session: Session, ids: frozenset[str]) -> Session:
    """Take messages out of the context; ids that are not in it mean nothing.

    What the last worker has of it is known only up to the first of them.
    """
    kept: list[Message] = []
    head, known = context_origin(session.state.summary), None
    for message in session.state.context:
        if message.id in ids:
            known = known or Mark(position=len(kept), digest=head)
        else:
            head = chain(head, message)
            kept.append(message)
    if known is None:
        return session
    if known.position > session.known.position:
        known = session.known
    state = change(session.state, context=tuple(kept), revision=session.state.revision + 1)
    return change(session, state=state, head=head, known=known)


def with_late_results(session: Session) -> Session:
    """Put results that came late in the place of those that stood in for them. Only where no model call is under way.

    What the last worker has of the context is known only up to the first of them.
    """
    if not session.late:
        return session
    late = {one.call_id: one.result for one in session.late}
    session = change(session, late=())
    context = session.state.context
    amended = tuple(_amended(message, late) for message in context)
    first = next((index for index, message in enumerate(context) if amended[index] is not message), None)
    if first is None:
        return session
    origin = chain_all(context_origin(session.state.summary), amended[:first])
    known = min(session.known, Mark(position=first, digest=origin), key=lambda mark: mark.position)
    state = change(session.state, context=amended, revision=session.state.revision + 1)
    return change(session, state=state, head=chain_all(origin, amended[first:]), known=known)


def _amended(message: Message, late: Mapping[str, ToolResultBlock]) -> Message:
    if not any(result.id in late for result in message.results):
        return message
    blocks = (
        change(late[block.id], id=block.id, name=block.name)
        if isinstance(block, ToolResultBlock) and block.id in late
        else block
        for block in message.content
    )
    return change(message, content=tuple(blocks))


def status_of(session: Session, turn_id: str) -> TurnStatus | None:
    """Return a turn's status, or None when the session doesn't know it."""
    record = session.find(turn_id)
    return None if record is None else record.status
