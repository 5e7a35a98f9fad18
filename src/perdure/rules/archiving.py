"""What a session hands over to the archive, and what it lets go of then; and how it opens again after it was closed.

The archive is never waited for by a turn: entries that are not there yet ride on with the session, also into a new run,
and are tried again when more have come. Only a session that was closed ends when all of it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.former import Former
from perdure.session import Session, change, with_entry
from perdure.turns import FORGETTABLE, REMEMBERED_TURNS
from perdure.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from perdure.facts import Archived, ArchiveFailed, ArchiveWanted
    from perdure.permissions import PermissionContext
    from perdure.results import TranscriptEntry

ARCHIVE_ENTRIES = 400
ARCHIVE_BYTES = 256 * 1024
"""When what is not in the archive yet is to go there. It rides along with each new run until then; each way to the
archive costs some seven events, which is little beside the turns that so many entries come from."""

KEPT_BYTES = 32 * 1024
"""How much of what is in the archive stays in the session, so that the last results are read without the archive."""

KEPT_WITHOUT_ARCHIVE = 1024 * 1024
"""How much of its transcript a session keeps where there is no archive. What is older is gone."""

FULLY_KNOWN = 50
"""The last turns of which a session knows all; of those before it keeps fingerprints, once the archive has the rest."""

WORDS_KEPT = 5
"""The last turns whose input and answer stay in the session, however much was done in them."""


def due(session: Session) -> bool:
    """Tell whether entries are to go to the archive now."""
    if not session.archives or session.closing:
        return False
    waiting = session.last_seq - session.archived
    enough = ARCHIVE_ENTRIES if session.archive_when is None else session.archive_when
    return waiting >= enough or session.unarchived_bytes >= ARCHIVE_BYTES * (session.archive_tries + 1)


def wanted(session: Session, fact: ArchiveWanted) -> Session:
    """Have what there is go to the archive, before the session begins a new run; not where that has just failed."""
    del fact
    if not session.archives or session.archive_when is not None or session.archived == session.last_seq:
        return session
    return change(session, archive_when=0)


def archived(session: Session, fact: Archived) -> Session:
    """Let go of what the archive has, or of what is too much to carry where there is none."""
    if fact.upto <= session.archived and not fact.checkpoint:
        return session
    upto = max(session.archived, fact.upto)
    left = tuple(entry for entry in session.transcript if entry.seq > upto)
    kept = _worth_keeping(session, upto, KEPT_BYTES if fact.kept else KEPT_WITHOUT_ARCHIVE)
    session = change(
        session,
        transcript=(*kept, *left),
        archived=upto,
        archive_tries=0,
        archive_when=None,
        unarchived_bytes=sum(map(json_bytes, left)),
        checkpointed=fact.checkpoint and upto == session.last_seq,
        has_archive=fact.kept,
    )
    return _fold(session) if fact.kept else session


def archive_failed(session: Session, fact: ArchiveFailed) -> Session:
    """Try again when more has come, in number or in weight. Nothing is lost meanwhile, and nobody waits."""
    del fact
    waiting = session.last_seq - session.archived
    return change(session, archive_tries=session.archive_tries + 1, archive_when=waiting + ARCHIVE_ENTRIES // 4)


def _worth_keeping(session: Session, upto: int, room: int) -> tuple[TranscriptEntry, ...]:
    """Return the entries up to `upto` that stay: the last ones, and the words of the turns that are not over."""
    candidates = [entry for entry in session.transcript if entry.seq <= upto]
    words = set(_words(session, candidates))
    kept: list[TranscriptEntry] = []
    for entry in reversed(candidates):
        room = max(room - json_bytes(entry), 0)
        if room or entry.seq in words:
            kept.append(entry)
    return tuple(reversed(kept))


def _words(session: Session, entries: list[TranscriptEntry]) -> Iterator[int]:
    """Yield the numbers of the entries that say what a recent or unfinished turn was given and has answered."""
    open_turns = {turn.turn_id for turn in session.queue}
    open_turns |= {one.turn_id for one in (session.current, session.unfinished) if one is not None}
    recent = {record.turn_id for record in session.turns[-WORDS_KEPT:]}
    answered: set[str | None] = set()
    for entry in reversed(entries):
        if entry.turn_id not in open_turns | recent:
            continue
        if entry.kind == "input" and "via" not in entry.data:
            yield entry.seq
        elif entry.kind == "assistant" and entry.turn_id not in answered:
            answered.add(entry.turn_id)
            yield entry.seq


def _fold(session: Session) -> Session:
    """Keep fingerprints only of turns that are over, long ago, and in the archive."""
    waiting = {entry.turn_id for entry in session.transcript if entry.seq > session.archived}
    needed = {one.turn_id for one in (session.current, session.unfinished, *session.uncertain) if one is not None}
    needed |= {session.parked, *waiting}
    older = session.turns[:-FULLY_KNOWN]
    over = [record for record in older if record.status in FORGETTABLE and record.turn_id not in needed]
    if not over:
        return session
    gone = {record.turn_id for record in over}
    former = (*session.former, *(str(Former.of(record)) for record in over))
    turns = tuple(record for record in session.turns if record.turn_id not in gone)
    return change(session, turns=turns, former=former[-(REMEMBERED_TURNS - FULLY_KNOWN) :])


# ---- opening again ----------------------------------------------------------------------------------------------


def reopen(session: Session, at: datetime) -> Session:
    """Open a closed session again, as it was: what held its queue holds it no more."""
    session = with_entry(session, at, "command", command="reopen")
    return change(
        session,
        closing=False,
        ending=False,
        close_reason=None,
        cancelled_by_close=(),
        pause=None,
        parked=None,
        checkpointed=False,
        archive_tries=session.archive_tries + 1,
        archive_when=None,
    )


def reopened(session: Session, at: datetime, last_seq: int, permissions: PermissionContext | None) -> Session:
    """Return a session to begin with from the checkpoint of a closed one; `permissions` are new ones for it, if any.

    Entries behind the checkpoint are of a life that was ended by force: their numbers are taken.
    """
    last_seq = max(last_seq, session.last_seq)
    session = reopen(change(known_before(session, last_seq), archives=True), at)
    if permissions is None:
        return session
    return change(session, state=change(session.state, permission_context=permissions))


def known_before(session: Session, last_seq: int) -> Session:
    """Return a session of which the archive has entries up to `last_seq` already."""
    return change(session, last_seq=last_seq, archived=last_seq, has_archive=last_seq > 0)


def begun_blind(session: Session, at: datetime) -> Session:
    """Return a new session to begin with while the archive does not answer.

    If it was there once, longer ago than Temporal remembers, its entries there have small numbers, or were numbered
    from an earlier moment: those of this one are numbered from the present one, in milliseconds.
    """
    seq = int(at.timestamp() * 1000)
    session = change(session, last_seq=seq, archived=seq)
    words = "the archive did not answer; if the session was there long ago, it has begun anew"
    return with_entry(session, at, "error", type="ArchiveUnavailable", message=words)


def checkpoint(session: Session) -> Session:
    """Return what the archive keeps of a closed session: all but its transcript, which is there already."""
    return change(session, transcript=(), archived=session.last_seq, unarchived_bytes=0, archive_when=None)
