"""Changes of what the workflow does, by the name that runs which have begun under the new way carry in their history.

A run that was begun before goes on in the old way. One that continues another is told the new ways by its input, and
asks no history: the SDK does not replay the first `workflow.patched` of a run whose first task was lost, for which it
has kept no flags. A name stays here as long as a run without it can be alive; see `tests/histories/`.

What a session refuses is a decision too: a signal that was refused, and is accepted by newer rules, takes another way
on replay. Before the first release that was done without a name here, once, since no such session was alive.
"""

from __future__ import annotations

STOP_THEN_ANSWER = "stop-then-answer"
"""An update that stops a turn is answered when it has stopped, and not as soon as it was accepted."""

ANSWER_THEN_RENEW = "answer-then-renew"
"""A new run does not begin in the workflow task in which an update was answered: the server loses such answers
sometimes (temporalio/temporal issue 6375)."""

UNSETTLED_NEEDS_SOMEBODY = "unsettled-needs-somebody"
"""A session in which an operation is left uncertain shows that somebody must act, also when no turn waits for it."""

SETTLE_THEN_END = "settle-then-end"
"""A session that was closed ends when the last effect that may be happening has settled; ending it stops its tools."""

ARCHIVE = "archive"
"""A session asks the archive for what it was before it begins, hands over what was said, and begins new runs by its own
limits."""

MOVE_ON = "move-on"
"""A run that was asked to, or that is at rest while another worker version is current, goes on as a new one."""

_UNTIL_ARCHIVE = (STOP_THEN_ANSWER, ANSWER_THEN_RENEW, UNSETTLED_NEEDS_SOMEBODY, SETTLE_THEN_END, ARCHIVE)

ALL = (*_UNTIL_ARCHIVE, MOVE_ON)
"""What a run that is begun by this code does in the newer way."""

MARKS = (("ways-2", ALL), (ARCHIVE, _UNTIL_ARCHIVE))
"""The marks that a run which continues no other asks its history for in its first task, the newest first, and the ways
that each stands for. Each way that is added needs a new mark here, so that no run goes in a way that was not known when
it began; and only one mark is left in history."""
