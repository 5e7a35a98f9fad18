"""One session, and who sits before it: a person with the commands, or in a conversation without a terminal."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from perdure.cli.call import Call
from perdure.cli.chat.conversation import converse
from perdure.cli.chat.orders import WhileBusy
from perdure.cli.failures import ExitCode
from perdure.cli.options import Target
from perdure.cli.places import Place
from perdure.cli.terminal import console
from perdure.errors import SessionNotFound
from tests.cli.programs import PATIENCE, Ended, inside, perdure
from tests.cli.sample import gates
from tests.support.world import fresh

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from rich.console import RenderableType

    from perdure import SessionHandle
    from perdure.testing import Served


async def reached(name: str) -> None:
    """Wait until a model call is held at the gate of this name."""
    async with asyncio.timeout(PATIENCE):
        await gates[name].reached.wait()


class Desk:
    """One session, and the commands that are about it."""

    def __init__(self, served: Served) -> None:
        """Address a session that nobody has used."""
        self.session = fresh()
        self.env = served.env | {"PERDURE_AGENT": "support", "PERDURE_USER": "alice", "PERDURE_SESSION": self.session}
        self.handle: SessionHandle = served.sessions.session("support", self.session, "alice")
        self._settings = served.settings

    async def run(self, *arguments: str, typed: str = "") -> Ended:
        return await inside(*arguments, env=self.env, typed=typed)

    async def process(self, *arguments: str, typed: str = "") -> Ended:
        return await perdure(*arguments, env=self.env, typed=typed)

    async def doing(self) -> bool:
        try:
            return (await self.handle.view()).active is not None
        except SessionNotFound:
            return False

    async def said(self) -> list[str]:
        return [message.text for message in (await self.handle.state()).context]

    async def held(self, turn_id: str | None = None, **options: str) -> str:
        """Submit a turn, wait until its model call is held at a gate, and return the gate's name."""
        name = fresh("gate")
        await self.handle.submit(f"hold {name}", turn_id=turn_id, **options)  # type: ignore[arg-type]
        await reached(name)
        return name

    @asynccontextmanager
    async def conversation(self, while_busy: WhileBusy = WhileBusy.STEER) -> AsyncGenerator[Seat]:
        """Hold a conversation about the session without a terminal; it ends with the block."""
        settings, seat = self._settings, Seat()
        place = Place(settings.home, settings.task_queue, settings.storage, settings.storage_threshold)
        call = Call(Target(self.handle.key, place, as_json=False), self.handle)
        talking = asyncio.create_task(converse(call, seat, while_busy))
        try:
            yield seat
            seat.leave()
            async with asyncio.timeout(PATIENCE):
                assert await talking is ExitCode.DONE
        finally:
            talking.cancel()


class Seat:
    """A screen for a conversation, and the person before it."""

    interactive = True

    def __init__(self) -> None:
        """Nothing is typed yet, and nothing shown."""
        self.shown: list[str] = []
        self._seen = 0
        self._more = asyncio.Event()
        self._typed = asyncio.Queue[str | None]()
        self._pressed: Callable[[], bool] = lambda: False
        self.doing = ""

    # ---- the person ---------------------------------------------------------------------------------------------

    def enter(self, line: str) -> None:
        self._typed.put_nowait(line)

    def leave(self) -> None:
        self._typed.put_nowait(None)

    def ctrl_c(self) -> bool:
        return self._pressed()

    async def see(self, text: str) -> str:
        """Wait until something with `text` is shown, behind what was seen before, and return all of it."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    for at, each in enumerate(self.shown[self._seen :], self._seen):
                        if text in each:
                            self._seen = at + 1
                            return each
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            msg = f"never saw {text!r} in {self.shown[self._seen :]}"
            raise AssertionError(msg) from None

    # ---- the screen ---------------------------------------------------------------------------------------------

    @contextmanager
    def talking(self, pressed: Callable[[], bool]) -> Generator[None]:
        self._pressed = pressed
        yield

    async def read(self) -> str | None:
        return await self._typed.get()

    def said(self, text: str) -> None:
        self._show(f"said: {text}")

    def answer(self, text: str) -> None:
        self._show(f"answer: {text}")

    def note(self, text: str) -> None:
        self._show(f"note: {text}")

    def show(self, what: RenderableType | str) -> None:
        stream = io.StringIO()
        console(stream).print(what)
        self._show(f"shown: {stream.getvalue()}")

    def progress(self, doing: str) -> None:
        self.doing = doing
        self._more.set()

    def _show(self, text: str) -> None:
        self.shown.append(text)
        self._more.set()
