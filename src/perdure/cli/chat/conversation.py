"""A conversation: what is typed becomes turns or commands, what comes of them is shown."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from perdure.cli.chat.following import Following
from perdure.cli.control import closed, interrupted
from perdure.cli.entries import entry_line
from perdure.cli.failures import ExitCode, exit_code
from perdure.cli.reading import entries
from perdure.cli.shapes import state_table, view_table
from perdure.cli.turns import verdict
from perdure.errors import PerdureError, SessionNotFound
from perdure.messages import Message, Role
from perdure.results import SessionStatus, TurnStatus

if TYPE_CHECKING:
    from perdure.cli.call import Call
    from perdure.cli.chat.screens import Screen
    from perdure.results import TurnResult
    from perdure.state import AgentState

REMEMBERED = 6
"""Messages that are shown when somebody comes back."""

HELP = """\
What you type goes to the agent. Besides:
  /view        what runs, what waits, what the session needs from people
  /state       the state: messages, permissions, tasks
  /transcript  all that was said and done
  /interrupt   stop what runs, whoever started it
  /close       end the session; a new message opens it again
  /quit        leave; the session stays, and whatever runs goes on
A message that begins with a slash is typed with two."""


class Conversation:
    """One conversation at one screen."""

    def __init__(self, call: Call, screen: Screen) -> None:
        """Hold the conversation of `call` at `screen`."""
        self._call = call
        self._handle = call.handle
        self._screen = screen
        self._code = ExitCode.DONE

    async def run(self) -> ExitCode:
        """Talk until the end of what is typed, and return the exit code."""
        if self._screen.interactive:
            await self._welcome()
        while (line := await self._screen.read()) is not None:
            text = line.strip()
            if text == "/quit":
                break
            if text:
                await self._survive(text)
        return ExitCode.DONE if self._screen.interactive else self._code

    async def _survive(self, text: str) -> None:
        """Do what a line says. What is refused is told, and the conversation goes on; a pipe ends without a server."""
        try:
            if text.startswith("/") and not text.startswith("//"):
                await self._command(text)
            else:
                await self._say(text.removeprefix("/") if text.startswith("//") else text)
        except PerdureError as error:
            if not self._screen.interactive and exit_code(error) is ExitCode.NO_SERVER:
                raise
            self._code = exit_code(error)
            self._screen.note(str(error))

    async def _welcome(self) -> None:
        """Say where we are, show the last messages, and wait for what still runs."""
        key = self._call.target.key
        self._screen.note(f"{key.agent_id} · {key.user_id or 'anonymous'} · {key.session_id}   (/help, Ctrl-D leaves)")
        try:
            state = await self._call.patiently(self._handle.state)
        except SessionNotFound:
            return
        for message in _last(state):
            if message.role is Role.USER:
                self._screen.said(message.text)
            else:
                self._screen.answer(message.text)
        view = await self._call.patiently(self._handle.view)
        if view.status is SessionStatus.CLOSED:
            self._screen.note("The session is closed; a new message opens it again.")
        if view.active is not None:
            following = Following(self._handle, self._screen, view.active.turn_id)
            following.run_id.set_result(view.active.run_id)
            self._settled(await following.until_settled(self._result(view.active.turn_id)))

    async def _say(self, text: str) -> None:
        following = Following(self._handle, self._screen, turn_id := uuid.uuid4().hex)

        async def work() -> TurnResult:
            receipt = await self._call.patiently(lambda: self._handle.submit(text, turn_id=turn_id))
            following.run_id.set_result(receipt.run_id)
            return await self._result(turn_id)

        self._settled(await following.until_settled(work()))

    async def _result(self, turn_id: str) -> TurnResult:
        return await self._call.patiently(lambda: self._handle.result(turn_id))

    def _settled(self, result: TurnResult | None) -> None:
        if result is not None and result.output:
            self._screen.answer(result.output)
        if result is None or result.status is not TurnStatus.COMPLETED:
            self._code = ExitCode.INCOMPLETE
        if result is not None and result.status is TurnStatus.INTERRUPTED:
            self._screen.note("interrupted")
        elif result is not None and result.status is not TurnStatus.COMPLETED:
            self._screen.note(verdict(result))

    async def _command(self, text: str) -> None:
        match text:
            case "/help":
                self._screen.show(HELP)
            case "/view":
                self._screen.show(view_table(await self._call.patiently(self._handle.view)))
            case "/state":
                self._screen.show(state_table(await self._call.patiently(self._handle.state)))
            case "/transcript":
                async for entry in entries(self._call):
                    self._screen.show(entry_line(entry))
            case "/interrupt":
                self._screen.show(interrupted(await self._call.patiently(self._handle.interrupt)))
            case "/close":
                self._screen.show(closed(await self._call.patiently(self._handle.close)))
            case _:
                self._screen.note(f"there is no {text.split(maxsplit=1)[0]}; /help lists what there is")


def _last(state: AgentState) -> list[Message]:
    """Return the last messages that somebody said to somebody."""
    said = [each for each in state.context if each.role in (Role.USER, Role.ASSISTANT) and each.text.strip()]
    return said[-REMEMBERED:]
