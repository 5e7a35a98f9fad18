"""Sessions as they are at some moment, for tests of what can be done with them then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.contract import Limits
from perdure.operations import Effect
from perdure.session import change
from tests.support.lives import Call, Life

if TYPE_CHECKING:
    from perdure.contract import AfterStop

PAY = Call("pay", Effect.ONCE)
SEND = Call("send", Effect.IDEMPOTENT)
LOOK = Call("look", Effect.READ)


def living(*turns: str, limits: Limits | None = None, eager: bool = True) -> Life:
    """Return a session with these turns submitted."""
    life = Life(limits=limits or Limits(), eager=eager)
    life.session = change(life.session, limits=life.limits)
    for turn_id in turns:
        life.submit(f"ask {turn_id}", turn_id=turn_id)
    return life


def acting(*calls: Call, limits: Limits | None = None) -> Life:
    """Return a session whose first turn has these tool calls under way, and in which a second waits."""
    life = living("t1", "t2", limits=limits)
    life.answer("let me see", *calls)
    for index in range(len(calls)):
        life.start(index)
    return life


def uncertain() -> Life:
    """Return a session whose first turn waits for somebody to settle an operation."""
    life = acting(PAY)
    life.lose(0)
    return life


def interrupted(*others: str, after: AfterStop = "continue") -> Life:
    """Return a session whose first turn was interrupted in its first model call."""
    life = Life()
    life.submit("ask t1", turn_id="t1", after_interrupt=after, after_failure=after)
    for turn_id in others:
        life.submit(f"ask {turn_id}", turn_id=turn_id)
    life.interrupt()
    life.answer("as I was say", partial=True)
    return life
