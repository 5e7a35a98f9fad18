"""Ways to the archive: what sessions hand over, and what they ask back when they open again.

The entries themselves are in no activity's input, which would put them into history once more: the activity reads them
from the session by a query.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from temporalio import activity

from activities.failures import failure
from perdure import contract
from perdure.contract import ArchiveAnswer, ArchiveCall, CheckpointSlice, PageRequest, Restored, Slice
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from perdure.archive import Archive
    from perdure.contract import TranscriptPage

    ReadTranscript = Callable[[str, str, PageRequest], Awaitable[TranscriptPage]]
    ReadCheckpoint = Callable[[str, str, Slice], Awaitable[CheckpointSlice]]


class ArchiveActivities:
    """The activities of one worker's archive; None where there is none."""

    def __init__(
        self, archive: Archive | None, read_transcript: ReadTranscript, read_checkpoint: ReadCheckpoint
    ) -> None:
        """Read what sessions hand over by these two, which take a workflow id and a workflow run id."""
        self._archive = archive
        self._read_transcript = read_transcript
        self._read_checkpoint = read_checkpoint

    @activity.defn(name=contract.ARCHIVE_ACTIVITY)
    async def keep(self, call: ArchiveCall) -> ArchiveAnswer:
        """Bring entries to the archive; repeating it does no harm.

        Raises:
            ApplicationError: the archive can't be reached, or the session can't be read; another attempt may help.
        """
        if self._archive is None:
            return ArchiveAnswer(upto=call.upto, kept=False)
        with _failing():
            return await self._keep(self._archive, call)

    async def _keep(self, archive: Archive, call: ArchiveCall) -> ArchiveAnswer:
        workflow_id, run_id = _whose()
        after = call.after
        while after < call.upto:
            page = await self._read_transcript(workflow_id, run_id, PageRequest(after=after))
            entries = [entry for entry in page.entries if entry.seq <= call.upto]
            if not entries:
                break  # the session has let go of them, when it had no archive
            await archive.append(workflow_id, entries)
            after = entries[-1].seq
        if call.checkpoint:
            await self._keep_checkpoint(archive, workflow_id, run_id)
        return ArchiveAnswer(upto=call.upto)

    async def _keep_checkpoint(self, archive: Archive, workflow_id: str, run_id: str) -> None:
        first = await self._read_checkpoint(workflow_id, run_id, Slice())
        text = first.text
        while text and len(text) < first.total:
            further = await self._read_checkpoint(workflow_id, run_id, Slice(after=len(text)))
            text = text + further.text if (further.seq, further.total) == (first.seq, first.total) else ""
        if not text:
            msg = "the session was opened again, or has changed while it was read"
            raise failure(msg, "SessionMoved", final=False)
        await archive.keep_checkpoint(workflow_id, first.seq, activity.info().scheduled_time, text)

    @activity.defn(name=contract.RESTORE_ACTIVITY)
    async def restore(self, wanted: Slice) -> Restored:
        """Return what the archive has of a session that was closed.

        Raises:
            ApplicationError: the archive can't be reached; another attempt may help.
        """
        if self._archive is None:
            return Restored()
        workflow_id, _ = _whose()
        with _failing():
            last_seq = await self._archive.last_seq(workflow_id)
            found = await self._archive.checkpoint(workflow_id)
        if found is None:
            return Restored(last_seq=last_seq)
        text = found.data[wanted.after : wanted.after + contract.SLICE]
        return Restored(
            checkpoint=CheckpointSlice(text=text, total=len(found.data), seq=found.seq),
            last_seq=max(last_seq, found.seq),
        )


@contextmanager
def _failing() -> Generator[None]:
    """Fail in one line, and let it be tried again."""
    try:
        yield
    except PerdureError as error:
        raise failure(str(error), type(error).__name__, final=False, cause=error) from error


def _whose() -> tuple[str, str]:
    info = activity.info()
    return info.workflow_id or "", info.workflow_run_id or ""
