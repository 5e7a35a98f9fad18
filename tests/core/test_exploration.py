from __future__ import annotations

from typing import TYPE_CHECKING

from tests.explore import search
from tests.explore.search import Exploration, happen

if TYPE_CHECKING:
    import pytest

    from perdure.session import Session
    from tests.explore.events import Event
    from tests.support.witness import Witness

STATES = 3_000
"""A few seconds' worth; `make explore` looks at many more."""


def test_whatever_happens_to_a_small_session_every_rule_holds() -> None:
    """B11-B32: every order of the first commands and outcomes; `make explore` goes further."""
    found = Exploration(STATES).run()
    assert found.broken is None
    assert found.states >= STATES
    assert found.refusals > 0


def test_a_life_that_breaks_a_rule_is_told_by_the_shortest_way_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by step from the beginning, and what does not hold."""

    def forgetful(session: Session, witness: Witness, event: Event) -> tuple[Session, Witness] | None:
        assert event.words != "inject" or session.queue == (), "nobody injects while a turn waits"
        return happen(session, witness, event)

    monkeypatch.setattr(search, "happen", forgetful)
    broken = Exploration(STATES).run().broken
    assert broken is not None
    assert "nobody injects while a turn waits" in broken.why
    assert broken.path == ("submit t1", "submit t2, on_busy=enqueue", "inject")
