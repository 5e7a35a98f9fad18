"""Telling what turns say and how they end, in the order in which it happened: as the transcript has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from perdure.cli.receipts import verdict
from perdure.messages import INTERRUPTED_TEXT, Message
from perdure.results import TurnError, TurnResult, TurnStatus
from perdure.values import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.cli.chat.screens import Screen
    from perdure.results import TranscriptEntry


class _Data(Frozen):
    """The parts of an entry's data that are told."""

    message: Message | str | None = None
    status: TurnStatus | None = None
    type: str = ""


class Telling:
    """What is told at a screen. Nothing is told twice: what was shown before, as messages of the state, is left out."""

    def __init__(self, screen: Screen, shown: Iterable[Message] = ()) -> None:
        """Tell it at `screen`."""
        self._screen = screen
        self._shown = {message.id for message in shown}
        self._errors: dict[str, TurnError] = {}

    def entry(self, turn_id: str, entry: TranscriptEntry) -> bool:
        """Tell an entry of a turn, and return whether the turn is settled by it."""
        try:
            data = _Data.model_validate(entry.data)
        except ValidationError:
            return False
        match entry.kind:
            case "assistant" if isinstance(data.message, Message):
                self._message(data.message)
            case "error" if isinstance(data.message, str):
                self._errors[turn_id] = TurnError(type=data.type, message=data.message)
            case "turn" if data.status is not None and data.status.settled:
                error = self._errors.pop(turn_id, None) if data.status is TurnStatus.FAILED else None
                self.ending(TurnResult(turn_id=turn_id, status=data.status, error=error))
                return True
            case _:
                pass
        return False

    def _message(self, message: Message) -> None:
        nothing_said = message.interrupted and message.text == INTERRUPTED_TEXT
        if message.id not in self._shown and message.text.strip() and not nothing_said:
            self._screen.answer(message.text)

    def result(self, result: TurnResult) -> None:
        """Tell all that a result says."""
        if result.output:
            self._screen.answer(result.output)
        self.ending(result)

    def ending(self, result: TurnResult) -> None:
        """Tell how a turn ended, if it did not complete, and what can be done then."""
        if result.status is TurnStatus.COMPLETED:
            return
        words = "interrupted" if result.status is TurnStatus.INTERRUPTED else verdict(result)
        resumable = result.status in (TurnStatus.INTERRUPTED, TurnStatus.FAILED)
        hint = "   (/resume goes on with it)" if resumable and self._screen.interactive else ""
        self._screen.note(f"{words}{hint}")
