"""What can be typed in a conversation: text for the agent, and commands that begin with a slash."""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import TYPE_CHECKING

from perdure.cli.asked import answerer, one_request
from perdure.cli.chat.doing import waiting_lines
from perdure.cli.entries import entry_line
from perdure.cli.reading import entries
from perdure.cli.receipts import cancelled, closed, injected, interrupted, paused, unpaused
from perdure.cli.shapes import state_table, view_table
from perdure.commands import OnBusy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.cli.call import Call
    from perdure.cli.chat.following import Following
    from perdure.cli.chat.screens import Screen
    from perdure.results import SessionView

HELP = """\
What you type goes to the agent. While it works, that steers it or waits behind
it, as --while-busy says. Besides:
  /steer TEXT        add to what runs: the agent sees it at its next step
  /queue [TEXT]      say it when the rest is done; without text: what waits
  /inject TEXT       have the next step see it, without starting anything
  /interrupt [TEXT]  stop what runs; the text tells the agent why
  /resume            go on with what was interrupted or has failed
  /cancel [TURN_ID]  give up what runs, or is unfinished, or the turn named
  /approve           let what is asked about run; /approve remember: also later
  /deny [REASON]     forbid it; the agent is told why
  /pause [REASON]    let nothing further begin, until /unpause
  /unpause           go on
  /view              what runs, what waits, what the session needs from people
  /state             the state: messages, permissions, tasks
  /transcript        all that was said and done
  /close [REASON]    end the session; a new message opens it again
  /quit              leave; the session stays, and whatever runs goes on
A message that begins with a slash is typed with two."""


class WhileBusy(StrEnum):
    """What becomes of a message that is typed while the agent works."""

    STEER = "steer"
    QUEUE = "queue"


ON_BUSY = {WhileBusy.STEER: OnBusy.STEER, WhileBusy.QUEUE: OnBusy.ENQUEUE}
"""How that is asked of a session. Where no turn runs that could be steered, a turn begins."""


class Orders:
    """What the lines of a conversation do to its session."""

    def __init__(self, call: Call, screen: Screen, following: Following, while_busy: WhileBusy) -> None:
        """Obey lines for the session of `call`."""
        self._call = call
        self._handle = call.handle
        self._screen = screen
        self._following = following
        self._while_busy = while_busy
        self._commands: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/steer": self._steer,
            "/queue": self._queue,
            "/inject": self._inject,
            "/interrupt": self._interrupt,
            "/resume": self._resume,
            "/cancel": self._cancel,
            "/approve": self._approve,
            "/deny": self._deny,
            "/pause": self._pause,
            "/unpause": self._unpause,
            "/view": self._show_view,
            "/state": self._show_state,
            "/transcript": self._show_transcript,
            "/close": self._close,
            "/help": self._help,
        }

    async def obey(self, line: str) -> None:
        """Do what a line says.

        Raises:
            PerdureError: the session refuses it, or nobody answers.
        """
        if line.startswith("//") or not line.startswith("/"):
            await self._say(line.removeprefix("/"), self._while_busy)
            return
        name, _, rest = line.partition(" ")
        if command := self._commands.get(name):
            await command(rest.strip())
        else:
            self._screen.note(f"there is no {name}; /help lists what there is")

    # ---- saying something ---------------------------------------------------------------------------------------

    async def _say(self, text: str, while_busy: WhileBusy) -> None:
        """Hand text to the session, and follow the turn that it begins or joins."""
        turn_id = uuid.uuid4().hex
        receipt = await self._following.follow(
            turn_id,
            lambda: self._call.patiently(
                lambda: self._handle.submit(text, turn_id=turn_id, on_busy=ON_BUSY[while_busy])
            ),
        )
        if not self._screen.interactive:
            return
        if receipt.disposition == "steered":
            self._screen.note("seen at the next step of what runs")
        elif receipt.position is not None:
            self._screen.note(f"waits, number {receipt.position} in the queue")

    async def _steer(self, text: str) -> None:
        if text:
            await self._say(text, WhileBusy.STEER)
        else:
            self._screen.note("what should the agent see at its next step? /steer TEXT")

    async def _queue(self, text: str) -> None:
        if text:
            await self._say(text, WhileBusy.QUEUE)
        else:
            self._screen.show(waiting_lines(await self._view()))

    async def _inject(self, text: str) -> None:
        if text:
            self._screen.show(injected(await self._call.once(lambda: self._handle.inject(text))))
        else:
            self._screen.note("what should the next step see? /inject TEXT")

    # ---- taking hold --------------------------------------------------------------------------------------------

    async def _interrupt(self, message: str) -> None:
        receipt = await self._call.once(lambda: self._handle.interrupt(message=message or None))
        self._screen.show(interrupted(receipt))

    async def _resume(self, named: str) -> None:
        turn_id = named or (await self._view()).unfinished
        if turn_id is None:
            self._screen.note("nothing is unfinished")
        else:
            await self._following.follow(turn_id, lambda: self._call.once(lambda: self._handle.resume(turn_id)))

    async def _cancel(self, named: str) -> None:
        view = await self._view()
        turn_id = named or (view.unfinished if view.active is None else view.active.turn_id)
        if turn_id is None:
            self._screen.note("nothing runs, and nothing is unfinished; /cancel TURN_ID names a turn that waits")
        else:
            self._screen.show(cancelled(await self._call.patiently(lambda: self._handle.cancel(turn_id))))

    async def _approve(self, words: str) -> None:
        if words in ("", "remember"):
            await self._decide(approve=True, remember=words == "remember")
        else:
            self._screen.note("/approve, or /approve remember; `perdure approve` can do more")

    async def _deny(self, reason: str) -> None:
        await self._decide(approve=False, reason=reason or None)

    async def _decide(self, *, approve: bool, remember: bool = False, reason: str | None = None) -> None:
        """Answer what was shown, and follow the turn that goes on. What asks now and was not shown is shown first."""
        view = await self._view()
        request = one_request(view, "approval", None)
        if request.request_id not in self._following.asked:
            self._screen.note("something else is asked now:")
            self._following.tell_asked(view)
            return
        await self._following.follow(
            request.turn_id,
            lambda: self._call.once(
                lambda: self._handle.respond(
                    request.request_id, approve, remember=remember, reason=reason, actor=answerer(None)
                )
            ),
        )

    async def _pause(self, reason: str) -> None:
        self._screen.show(paused(await self._call.patiently(lambda: self._handle.pause(reason or None))))

    async def _unpause(self, reason: str) -> None:
        self._screen.show(unpaused(await self._call.patiently(lambda: self._handle.unpause(reason or None))))

    async def _close(self, reason: str) -> None:
        self._screen.show(closed(await self._call.patiently(lambda: self._handle.close(reason or None))))

    # ---- looking ------------------------------------------------------------------------------------------------

    async def _show_view(self, _: str) -> None:
        self._screen.show(view_table(await self._view()))

    async def _show_state(self, _: str) -> None:
        self._screen.show(state_table(await self._call.patiently(self._handle.state)))

    async def _show_transcript(self, _: str) -> None:
        async for entry in entries(self._call):
            self._screen.show(entry_line(entry))

    async def _help(self, _: str) -> None:
        self._screen.show(HELP)

    async def _view(self) -> SessionView:
        return await self._call.patiently(self._handle.view)
