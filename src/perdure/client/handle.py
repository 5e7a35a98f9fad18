"""One session, as a client sees it."""

from __future__ import annotations

from perdure import commands
from perdure.client import making, opening, reading
from perdure.client.answers import Answers
from perdure.client.states import States
from perdure.client.turns import Turns
from perdure.commands import Close, Pause, Renew, Unpause
from perdure.contract import SessionStart
from perdure.identity import SessionKey
from perdure.results import CloseReceipt, PauseReceipt, RenewReceipt


class SessionHandle(Turns, Answers, States):
    """One session. Making a handle creates nothing and asks nobody.

    Commands wait until a worker is there. Every method raises `ServerUnavailable` when no server answers (reads also
    when no worker does), `SessionClosed` when the session is just being closed and, but for `submit` and `ask`,
    `SessionNotFound` when there is no such session. Cancelling a method that waits leaves the session as it is: what
    was accepted goes on.
    """

    async def pause(self, reason: str | None = None, *, actor: str | None = None) -> PauseReceipt:
        """Let the current step finish, and begin no other. Turns are accepted meanwhile. Twice is the same as once."""
        return await self._update(commands.PAUSE, making.made(Pause, reason=reason, actor=actor), PauseReceipt)

    async def unpause(self, reason: str | None = None, *, actor: str | None = None) -> PauseReceipt:
        """Go on where the session was paused. On one that is not paused nothing happens."""
        return await self._update(commands.UNPAUSE, making.made(Unpause, reason=reason, actor=actor), PauseReceipt)

    async def close(self, reason: str | None = None, *, actor: str | None = None) -> CloseReceipt:
        """End the session. What runs or waits is cancelled, and the receipt names it.

        It stays readable, and a new turn opens it again as it was, from the archive; without one, empty.
        """
        return await self._update(commands.CLOSE, making.made(Close, reason=reason, actor=actor), CloseReceipt)

    async def renew(self, *, actor: str | None = None) -> RenewReceipt:
        """Have the session go on in a new run as soon as nothing is in flight; nothing of it changes or is lost.

        With worker versions that takes it to the one that is current.

        Raises:
            ContextTooLarge: it is too large for that; set PERDURE_STORAGE.
        """
        return await self._update(commands.RENEW, making.made(Renew, actor=actor), RenewReceipt)

    async def fork(self, session_id: str) -> SessionHandle:
        """Create another session of the same agent and user from this one's state: what it knows, not its history.

        Raises:
            SessionBusy: a turn runs or waits; a session is forked when it is at rest.
            UncertainOperations: the outcome of an operation is unknown.
            SessionExists: there is a session of that id.
            ContextTooLarge: the state is too large for the server; set PERDURE_STORAGE.
        """
        key = SessionKey(self.key.agent_id, session_id, self.key.user_id)
        state, view = await reading.read_state_at_rest(self._workflow)
        given = SessionStart.model_validate({"seed": state, "unset": view.unset})
        await opening.start(self.client, key, self._task_queue, given)
        return SessionHandle(self.client, key, self._task_queue, self._waits, self._archive)
