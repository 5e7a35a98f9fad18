"""A conversation: what is typed is obeyed line by line, Ctrl-C stops what runs, what comes of it all is shown."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from functools import partial
from typing import TYPE_CHECKING

from perdure.cli.chat.doing import remarks
from perdure.cli.chat.following import Following
from perdure.cli.chat.orders import Orders, WhileBusy
from perdure.cli.chat.outcome import Outcome
from perdure.errors import SessionNotFound, StaleRun
from perdure.messages import Message, Role

if TYPE_CHECKING:
    from perdure.cli.call import Call
    from perdure.cli.chat.screens import Screen
    from perdure.cli.failures import ExitCode
    from perdure.results import SessionView
    from perdure.state import AgentState

REMEMBERED = 6
"""Messages that are shown when somebody comes back."""

HINTS = {
    WhileBusy.STEER: "Ctrl-C interrupts, a message steers",
    WhileBusy.QUEUE: "Ctrl-C interrupts, a message waits",
}


async def converse(call: Call, screen: Screen, while_busy: WhileBusy) -> ExitCode:
    """Talk until the end of what is typed, and return the exit code.

    Raises:
        PerdureError: nobody answers, and no person is there to be told so.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            # In a pipe each line is a turn: what runs there was begun by somebody else.
            return await Conversation(call, screen, while_busy if screen.interactive else WhileBusy.QUEUE, tasks).run()
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


class Conversation:
    """One conversation at one screen."""

    def __init__(self, call: Call, screen: Screen, while_busy: WhileBusy, tasks: asyncio.TaskGroup) -> None:
        """Hold the conversation of `call` at `screen`."""
        self._call = call
        self._handle = call.handle
        self._screen = screen
        self._tasks = tasks
        self._outcome = Outcome(screen)
        self._following = Following(call, screen, self._outcome, tasks, HINTS[while_busy])
        self._orders = Orders(call, screen, self._following, while_busy)
        self._lines = asyncio.Queue[str]()
        self._obeying: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._warned = set[str]()
        self._in_vain = False

    async def run(self) -> ExitCode:
        """Talk until the end of what is typed, and return the exit code."""
        view = await self._welcome() if self._screen.interactive else None
        with self._screen.talking(self._pressed):
            obeying = self._tasks.create_task(self._obey())
            for turn_id in _unsettled(view):
                self._following.join(turn_id)
            while (line := await self._screen.read()) is not None and line.strip() != "/quit":
                if text := line.strip():
                    self._lines.put_nowait(text)
                if not self._screen.interactive:
                    await self._lines.join()
                    await self._following.settled()
                    await self._end_if_stopped_in_vain()
            await self._rest_obeyed()
            if self._following.turns:
                self._screen.note("what runs or waits goes on; come back to see what comes of it")
            self._following.leave()
            obeying.cancel()
        return self._outcome.code

    async def _rest_obeyed(self) -> None:
        """Whoever leaves has said what was typed, and has stopped what was to be stopped."""
        if self._obeying or not self._lines.empty():
            self._screen.note("sending what was typed (Ctrl-C twice gives that up)")
        await self._lines.join()
        if self._stopping is not None:
            await asyncio.wait({self._stopping})

    async def _end_if_stopped_in_vain(self) -> None:
        """Take a Ctrl-C that came as the turn was just over for one that came after it: it ends the program."""
        if self._stopping is not None:
            await asyncio.wait({self._stopping})
        if self._in_vain:
            signal.raise_signal(signal.SIGINT)

    async def _obey(self) -> None:
        """Obey what is typed, one line after the other, while the next are typed."""
        while True:
            line = partial(self._orders.obey, await self._lines.get())
            self._obeying = self._tasks.create_task(self._outcome.survive(line))
            await asyncio.wait({self._obeying})
            self._obeying = None
            self._lines.task_done()

    # ---- coming back --------------------------------------------------------------------------------------------

    async def _welcome(self) -> SessionView | None:
        """Say where we are, show the last messages, and say what is left to do."""
        key = self._call.target.key
        self._screen.note(f"{key.agent_id} · {key.user_id or 'anonymous'} · {key.session_id}   (/help, Ctrl-D leaves)")
        try:
            await self._call.patiently(self._following.pass_over)
        except SessionNotFound:
            return None
        # In this order nothing is missed: what a turn of the view says behind the state is told when it is followed.
        view = await self._call.patiently(self._handle.view)
        state = await self._call.patiently(self._handle.state)
        self._following.shown(state.context)
        for message in _last(state):
            if message.role is Role.USER:
                self._screen.said(message.text)
            else:
                self._screen.answer(message.text)
            if message.interrupted:
                self._screen.note("interrupted")
        for remark in remarks(view):
            self._screen.note(remark)
        self._following.has_shown(view)
        return view

    # ---- stopping -----------------------------------------------------------------------------------------------

    def _pressed(self) -> bool:
        """Interrupt what is followed; pressed again before it has stopped, leave it alone.

        Returns:
            Whether there was anything.
        """
        if not (self._following.turns or self._obeying):
            return False
        if self._stopping is None or self._stopping.done():
            self._following.interrupting = True
            self._screen.progress("interrupting (Ctrl-C once more leaves it alone)")
            self._stopping = self._tasks.create_task(self._outcome.survive(self._interrupt))
        else:
            self._stopping.cancel()
            self._leave_alone()
        return True

    def _leave_alone(self) -> None:
        if self._obeying is not None:
            self._obeying.cancel()
        self._following.leave()
        self._screen.note("left alone: what was accepted goes on")

    async def _interrupt(self) -> None:
        """Interrupt the turn that runs, if it is one of those that are followed. One that waits is left alone."""
        try:
            await self._lines.join()
            while (view := await self._handle.view()).active is not None:
                if view.active.turn_id not in self._following.turns:
                    break
                with contextlib.suppress(StaleRun):
                    await self._handle.interrupt(run_id=view.active.run_id)
                    return
        finally:
            self._following.interrupting = False
        waiting = {entry.turn_id for entry in view.queue}.intersection(self._following.turns)
        if not waiting:
            self._in_vain = True
        elif waiting <= self._warned:
            self._leave_alone()
        else:
            self._warned |= waiting
            self._screen.note("it has not begun: /queue shows what waits; Ctrl-C once more leaves it alone")


def _unsettled(view: SessionView | None) -> list[str]:
    """Return the turns on which something will happen, in the order in which it will."""
    if view is None:
        return []
    running = [] if view.active is None else [view.active.turn_id]
    return [*running, *(entry.turn_id for entry in view.queue)]


def _last(state: AgentState) -> list[Message]:
    """Return the last messages that somebody said to somebody."""
    said = [each for each in state.context if each.role in (Role.USER, Role.ASSISTANT) and each.text.strip()]
    return said[-REMEMBERED:]
