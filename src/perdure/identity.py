"""Who a session belongs to, and the one workflow id that says so. No other module builds or takes apart such an id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes

from perdure.errors import InvalidSessionKey
from perdure.values import clean_text

PREFIX = "session"
ANONYMOUS = "~"
"""The user part of a session without a user. No encoded name can be `~`: the encoding writes that as `%7E`."""

MAX_WORKFLOW_ID = 1000
"""Characters; Temporal's own bound on a workflow id."""


@dataclass(frozen=True, order=True)
class SessionKey:
    """The key of a session's state: agent, session and, unless it is anonymous, user.

    A blank `user_id` is the same as None. Names are kept exactly as given otherwise.

    Raises:
        InvalidSessionKey: `agent_id` or `session_id` is blank, a part can't be encoded, or the workflow id is too long.
    """

    agent_id: str
    session_id: str
    user_id: str | None = None

    def __post_init__(self) -> None:
        """Check the parts, so that a key that exists can be used."""
        for name in ("agent_id", "session_id"):
            value: object = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                msg = f"{name} must be a string that is not blank, got {value!r}"
                raise InvalidSessionKey(msg)
        if self.user_id is not None and not isinstance(self.user_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
            msg = f"user_id must be a string or None, got {self.user_id!r}"
            raise InvalidSessionKey(msg)
        if self.user_id is not None and not self.user_id.strip():
            object.__setattr__(self, "user_id", None)
        if len(self.workflow_id) > MAX_WORKFLOW_ID:
            msg = (
                f"the workflow id of this key has {len(self.workflow_id)} characters, the limit is {MAX_WORKFLOW_ID}; "
                "shorten agent_id, user_id or session_id"
            )
            raise InvalidSessionKey(msg)

    @property
    def workflow_id(self) -> str:
        """The id of the session's workflow: `session:{agent}:{user}:{session}`, each part percent-encoded."""
        return _workflow_id(self.agent_id, self.session_id, self.user_id)

    @classmethod
    def parse(cls, workflow_id: str) -> SessionKey:
        """Read a key back from a workflow id.

        Raises:
            InvalidSessionKey: it is not exactly what `workflow_id` would have written.
        """
        match workflow_id.split(":"):
            case [prefix, agent, user, session] if prefix == PREFIX:
                key = cls(_decode(agent), _decode(session), None if user == ANONYMOUS else _decode(user))
                if key.workflow_id == workflow_id:
                    return key
            case _:
                pass
        msg = (
            f"{workflow_id!r} is not the id of a session; the form is {PREFIX}:AGENT:USER:SESSION, with each part "
            f"percent-encoded except A-Z a-z 0-9 . _ - and {ANONYMOUS} as the user of an anonymous session"
        )
        raise InvalidSessionKey(msg)


@lru_cache(maxsize=4096)
def _workflow_id(agent_id: str, session_id: str, user_id: str | None) -> str:
    # Remembered, since a session asks for its own id several times a turn.
    user = ANONYMOUS if user_id is None else _encode(user_id)
    return f"{PREFIX}:{_encode(agent_id)}:{user}:{_encode(session_id)}"


def attribute_value(name: str) -> str:
    r"""Return a name as it stands in search attributes: itself, but for the characters that visibility can't match.

    Quotes and backslashes can't be searched for on every store (tried on SQLite: `"` never matches, a `\` at the end
    breaks the query), so they, control characters and `%` are percent-encoded.
    """
    return "".join(f"%{ord(each):02X}" if each in _UNSEARCHABLE or each < " " else each for each in name)


_UNSEARCHABLE = frozenset("\"'\\%\x7f")


def _encode(part: str) -> str:
    # Text of a state is cleaned: a name that cleaning would change could not be found in it again.
    if clean_text(part) != part:
        msg = f"{part!r} has a NUL or is not valid Unicode text, so it can't name anything"
        raise InvalidSessionKey(msg)
    return quote_from_bytes(part.encode(), safe="").replace("~", "%7E")


def _decode(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeError:
        msg = f"{part!r} in the id of a session is not percent-encoded UTF-8"
        raise InvalidSessionKey(msg) from None
