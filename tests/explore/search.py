"""Breadth first over everything that can happen to the small session, so that the first life that breaks is a shortest.

Every step is looked at by a witness, and every state that is new by the invariants that the state machine has too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.advance import advance
from perdure.intake import fact_of
from perdure.session import Session, change
from tests.explore.events import Event, events, life
from tests.explore.normal_form import normal_form
from tests.support.invariants import a_session_is_its_json, check, check_what_tells_nothing_apart
from tests.support.refusals import accepted
from tests.support.strategies import EPOCH
from tests.support.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.facts import Fact

BEGINNING = -1
EVERY = 500
"""States between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A life that no session may have: what happened, and what does not hold then."""

    path: tuple[str, ...]
    why: str


@dataclass(slots=True)
class Found:
    """What an exploration has seen. `whole` says that there is nothing else."""

    states: int = 0
    steps: int = 0
    refusals: int = 0
    depth: int = 0
    whole: bool = False
    broken: Broken | None = None


@dataclass(slots=True)
class Exploration:
    """A search for up to this many states."""

    limit: int
    report: Callable[[Found], None] = lambda _: None
    found: Found = field(default_factory=Found)
    _came: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _seen: set[bytes] = field(default_factory=set[bytes])
    _open: deque[tuple[int, int, Session, Witness]] = field(default_factory=deque[tuple[int, int, Session, Witness]])

    def run(self) -> Found:
        """Search until something breaks, everything is seen, or the limit is reached."""
        session = life().session
        self._arrive(BEGINNING, "", 0, session, Witness.of(session))
        while self._open and self.found.states < self.limit and self.found.broken is None:
            number, depth, session, witness = self._open.popleft()
            for event in events(session, witness):
                self._try(number, depth, session, witness, event)
                if self.found.broken is not None:
                    break
        self.found.whole = not self._open and self.found.broken is None
        return self.found

    def _try(self, number: int, depth: int, session: Session, witness: Witness, event: Event) -> None:
        try:
            after = happen(session, witness, event)
            if after is None:
                self.found.refusals += 1
                return
            self.found.steps += 1
            check_what_tells_nothing_apart(session, *after)
            self._arrive(number, event.words, depth + 1, *after)
        except Exception as broken:  # noqa: BLE001  # the rules raise nothing, so that anything is a fault with a path
            self.found.broken = Broken((*self._path(number), event.words), _words(broken))

    def _arrive(self, came_from: int, words: str, depth: int, session: Session, witness: Witness) -> None:
        form = normal_form(session, witness)
        if form in self._seen:
            return
        self._seen.add(form)
        check(session, witness)
        a_session_is_its_json(session)
        self._open.append((len(self._came), depth, session, witness))
        self._came.append((came_from, words))
        self.found.states, self.found.depth = len(self._seen), depth
        if self.found.states % EVERY == 0:
            self.report(self.found)

    def _path(self, number: int) -> tuple[str, ...]:
        path: list[str] = []
        while number != BEGINNING:
            number, words = self._came[number]
            path.append(words)
        return tuple(reversed(path))[1:]


def happen(session: Session, witness: Witness, event: Event) -> tuple[Session, Witness] | None:
    """Return the session and its witness after an event; None when it was a command that means nothing now.

    Raises:
        AssertionError: the session did what no session may.
    """
    facts: tuple[Fact, ...]
    if isinstance(event.what, tuple):
        facts = event.what
    else:
        if not accepted(session, witness, event.what):
            return None
        fact = fact_of(event.what, EPOCH, lambda: f"run {session.last_seq}")
        facts = () if fact is None else (fact,)
    for fact in facts:
        after = advance(session, fact)
        witness = witness.sees(session, fact, after)
        # What is archived leaves the session too; the numbers of its entries go on.
        session = change(after, transcript=())
    return session, witness


def _words(broken: Exception) -> str:
    """Return what did not hold: in the words of an assertion, or the line, and the error for any other."""
    if isinstance(broken, AssertionError):
        return str(broken) or _where(broken)
    return f"{type(broken).__name__}: {broken} ({_where(broken)})"


def _where(broken: Exception) -> str:
    trace = broken.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an assertion"
    return f"{trace.tb_frame.f_code.co_name}, line {trace.tb_lineno} of {trace.tb_frame.f_code.co_filename}"
