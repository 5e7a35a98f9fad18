"""Every error that perdure raises on purpose.

    PerdureError
    ├── InvalidSessionKey        a key that can't name a session
    ├── InvalidCommand           a command that can't be understood
    ├── CommandRefused           understood, and not possible now
    │   ├── SessionExists  SessionBusy  SessionClosed  QueueFull
    │   ├── TurnConflict  RunConflict  TurnNotFound
    │   ├── NotResumable  NotSteerable  RollbackRefused
    │   ├── StaleRun  StaleRevision
    │   ├── UncertainOperations  InteractionNotFound
    │   └── ContextTooLarge
    ├── SessionNotFound          no such session on this server
    ├── ServerUnavailable        nobody answers at the server's address
    ├── ArchiveUnavailable       the archive's database can't be reached, or refuses
    ├── SetupRequired            the server or the app lacks something; the message names the command that mends it
    └── ConfigurationError       a setting, an agent or a tool that can't be used

An error's class name is its name on the wire (`ApplicationError.type`), so a class is never renamed.
"""

from __future__ import annotations


class PerdureError(Exception):
    """Base of all errors of perdure. `str(error)` says what is wrong and, where it can, how to mend it."""


class InvalidSessionKey(PerdureError):
    """The key can't name a session: a blank agent or session, or too long when encoded."""


class InvalidCommand(PerdureError):
    """The command can't be understood: a field is missing, unknown or of the wrong form. Nothing was recorded."""


class CommandRefused(PerdureError):
    """The command was understood, but the session can't carry it out in its present state. Nothing changed."""


class SessionExists(CommandRefused):
    """A session with this key is there already."""


class SessionBusy(CommandRefused):
    """A turn runs or waits, and the caller asked to be refused in that case."""


class SessionClosed(CommandRefused):
    """The session was closed. A new submit opens it again."""


class QueueFull(CommandRefused):
    """As many turns wait as the agent allows. Submit again when some have run."""


class TurnConflict(CommandRefused):
    """This turn id was used before, with another input. Choose a new id for a new input."""


class RunConflict(CommandRefused):
    """This run id was used before in the session. Leave it out to have one generated."""


class TurnNotFound(CommandRefused):
    """The session doesn't know a turn with this id."""


class NotResumable(CommandRefused):
    """The turn can't be resumed: it is not the latest unfinished one, or something is still outstanding."""


class NotSteerable(CommandRefused):
    """No turn runs that could take the input. Submit it as a turn of its own."""


class RollbackRefused(CommandRefused):
    """The running turn has used a tool that is not read-only, so its messages can't be taken back."""


class StaleRun(CommandRefused):
    """The named run is not the active one any more; nothing was interrupted."""


class StaleRevision(CommandRefused):
    """The state changed since it was read. Read it again and decide anew."""


class UncertainOperations(CommandRefused):
    """Operations whose outcome is unknown must be reconciled first."""


class InteractionNotFound(CommandRefused):
    """No interaction with this request id is pending."""


class ContextTooLarge(CommandRefused):
    """The session's state or an input is too large for the payloads that the setup can carry."""


class SessionNotFound(PerdureError):
    """No session with this key exists on this server."""


class ServerUnavailable(PerdureError):
    """No Temporal server, or no worker, answers."""


class ArchiveUnavailable(PerdureError):
    """The archive's database can't be reached, or refuses. Sessions go on; what they say is kept until it is back."""


class SetupRequired(PerdureError):
    """The server lacks something that perdure needs, such as its search attributes."""


class ConfigurationError(PerdureError):
    """A setting, an agent or a tool can't be used as it is defined."""


def _tree(root: type[PerdureError]) -> dict[str, type[PerdureError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_NAME = _tree(PerdureError)
"""The error classes by their name on the wire."""
