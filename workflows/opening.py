"""How a session opens: with what the archive has of it, if it was there before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from perdure import contract
from perdure.contract import CheckpointSlice, Restored, SessionStart, Slice
from perdure.rules.archiving import begun_blind, known_before, reopened
from perdure.session import Session
from workflows import timeouts

if TYPE_CHECKING:
    from perdure.identity import SessionKey


class Opening:
    """The opening of a session that continues no other run."""

    def __init__(self, key: SessionKey, start: SessionStart) -> None:
        """Open the session of `key` by its workflow's input."""
        self._key = key
        self._start = start

    async def opened(self, session: Session) -> Session:
        """Return the session to begin with: the one that was closed, or the new one that was given.

        A session that was there before waits for the archive. One that nobody has heard of does so for a moment only.
        """
        try:
            found = await self._first()
        except FailureError as error:  # of a local activity the bare cause, of another an ActivityError
            if is_cancelled_exception(error):
                raise
            return begun_blind(session, workflow.now())
        text = None
        if found.checkpoint is not None and self._start.seed is None:
            text = await self._whole(found.checkpoint)
        return known_before(session, found.last_seq) if text is None else self._read(text, found.last_seq)

    async def _first(self) -> Restored:
        """Ask the archive. The answer is one event; that of a session that was there before is worth some more."""
        if self._start.existed:
            return await self._ask(Slice())
        return await workflow.execute_local_activity(
            contract.RESTORE_ACTIVITY,
            Slice(),
            result_type=Restored,
            start_to_close_timeout=timeouts.RESTORE_ATTEMPT,
            schedule_to_close_timeout=timeouts.RESTORE_IN_ALL,
            retry_policy=timeouts.RESTORE_TRY,
        )

    async def _ask(self, wanted: Slice) -> Restored:
        return await workflow.execute_activity(
            contract.RESTORE_ACTIVITY,
            wanted,
            result_type=Restored,
            start_to_close_timeout=timeouts.ARCHIVE_ATTEMPT,
            retry_policy=timeouts.RESTORE_RETRIES,
            summary="what the archive has of the session",
        )

    async def _whole(self, first: CheckpointSlice) -> str | None:
        """Read a checkpoint on to its end, anew if another has taken its place; None if it was forgotten meanwhile."""
        text = first.text
        while len(text) < first.total:
            further = (await self._ask(Slice(after=len(text)))).checkpoint
            if further is None:
                return None
            if (further.seq, further.total) == (first.seq, first.total):
                text += further.text
                continue
            begun = (await self._ask(Slice())).checkpoint
            if begun is None:
                return None
            first, text = begun, begun.text
        return text

    def _read(self, text: str, last_seq: int) -> Session:
        try:
            session = Session.model_validate_json(text)
        except ValidationError as error:
            # Written by another version of this code: the task is tried again until a worker comes that can read it.
            msg = f"the session's checkpoint can't be read: {error.error_count()} errors"
            raise RuntimeError(msg) from None
        if session.key != self._key:
            msg = f"the checkpoint is of {session.key.workflow_id}, not of {self._key.workflow_id}"
            raise RuntimeError(msg)
        return reopened(session, workflow.now(), last_seq, self._start.permissions)
