"""Reading what a session has let go of: its transcript and its turns, from the session and the archive as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from perdure.errors import SetupRequired
from perdure.messages import Block, Message, Usage
from perdure.results import RunView, TranscriptEntry, TurnError, TurnStatus, TurnView
from perdure.values import Frozen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from perdure.archive import Archive

READ_ARCHIVE = "set PERDURE_ARCHIVE_URL as the workers do"


async def archived_entries(
    archive: Archive | None, workflow_id: str, after: int, upto: int
) -> AsyncIterator[TranscriptEntry]:
    """Yield a session's entries behind `after`, up to `upto`, which are in the archive.

    Raises:
        SetupRequired: they are not in the archive that this client reads.
    """
    while after < upto:
        page = () if archive is None else await archive.entries(workflow_id, after=after)
        if not page or page[0].seq != after + 1:
            if page and page[0].seq > after + 1 and await _has_all(archive, workflow_id, upto):
                after = page[0].seq - 1  # numbers that were never used: the session has begun anew
                continue
            msg = f"entries {after + 1} to {upto} are in the archive, which this client can't read: {READ_ARCHIVE}"
            raise SetupRequired(msg)
        for entry in page:
            if entry.seq <= upto:
                yield entry
        after = page[-1].seq


async def _has_all(archive: Archive | None, workflow_id: str, upto: int) -> bool:
    return archive is not None and await archive.last_seq(workflow_id) >= upto


async def whole_turn(archive: Archive | None, workflow_id: str, known: TurnView) -> TurnView:
    """Return a turn of long ago as the archive has it; as far as the session knows it where there is none of it.

    Raises:
        SetupRequired: it is not in the archive that this client reads.
    """
    found = await archived_turn(archive, workflow_id, known.turn_id)
    if found is None:
        msg = f"turn {known.turn_id!r} is in the archive, which this client can't read: {READ_ARCHIVE}"
        raise SetupRequired(msg)
    if not known.runs:  # the session knows its status only
        return found.model_copy(update={"status": known.status})
    return known.model_copy(update={"input": found.input, "output": known.output or found.output, "archived": False})


async def archived_turn(archive: Archive | None, workflow_id: str, turn_id: str) -> TurnView | None:
    """Return a turn as the archive has it, if it has it."""
    if archive is None:
        return None
    entries: list[TranscriptEntry] = []
    while page := await archive.entries(workflow_id, turn_id=turn_id, after=entries[-1].seq if entries else 0):
        entries += page
    return turn_of(turn_id, entries)


class _Data(Frozen):
    """The parts of an entry's data that tell what became of a turn."""

    content: tuple[Block, ...] = ()
    via: str | None = None
    status: TurnStatus | None = None
    steps: int | None = None
    usage: Usage | None = None
    operation_id: str | None = None
    type: str = ""
    message: Message | str | None = None


def turn_of(turn_id: str, entries: Sequence[TranscriptEntry]) -> TurnView | None:
    """Return what a turn's entries tell of it, in order; None if they don't tell how it began."""
    view: TurnView | None = None
    for entry in entries:
        try:
            data = _Data.model_validate(entry.data)
        except ValidationError:  # of a kind that tells nothing of this
            continue
        if entry.kind == "input" and data.via is None:
            view = TurnView(
                turn_id=turn_id,
                status=TurnStatus.QUEUED,
                input=data.content,
                submitted_at=entry.at,
                submitted_by=entry.actor,
            )
        elif view is not None:
            view = _further(view, entry, data)
    return view


def _further(view: TurnView, entry: TranscriptEntry, data: _Data) -> TurnView:
    match entry.kind:
        case "run":
            run = RunView(run_id=entry.run_id or "", started_at=entry.at)
            return view.model_copy(update={"runs": (*view.runs, run), "status": TurnStatus.RUNNING, "error": None})
        case "assistant" if isinstance(data.message, Message):
            return view.model_copy(update={"output": data.message.text})
        case "error" if isinstance(data.message, str) and data.operation_id is None:
            return view.model_copy(update={"error": TurnError(type=data.type, message=data.message)})
        case "turn" if data.status is not None:
            runs = view.runs
            if runs and runs[-1].ended_at is None:
                runs = (*runs[:-1], runs[-1].model_copy(update={"ended_at": entry.at, "outcome": data.status}))
            counts = {"steps": data.steps, "usage": data.usage}  # which a turn that is cancelled later keeps
            told = {name: count for name, count in counts.items() if count is not None}
            return view.model_copy(update={"status": data.status, "runs": runs, **told})
        case _:
            return view
