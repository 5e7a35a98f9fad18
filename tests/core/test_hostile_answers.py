"""Whatever anybody sends as an answer, an outcome or a change: it is taken or refused in words, and breaks nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from perdure.admission import admit
from perdure.advance import advance
from perdure.commands import read_command
from perdure.decide import decide
from perdure.errors import PerdureError
from perdure.intake import fact_of
from perdure.judging import Opinion
from perdure.messages import flaws
from perdure.operations import Effect
from perdure.values import freeze_object
from perdure.views import interactions, session_view
from tests.support.invariants import a_session_is_its_json, digests_say_what_the_context_is
from tests.support.lives import Call, Life
from tests.support.strategies import ANY_TEXT, json_values

if TYPE_CHECKING:
    from perdure.session import Session

ASK = Opinion(behavior="ask")
PAY = Call("pay", Effect.ONCE, opinion=ASK, subject="A1", arguments=freeze_object({"order_id": "A1"}))


def lives() -> dict[str, Session]:
    """Return sessions that wait for each kind of answer, and one that waits for nothing."""
    made: dict[str, Session] = {}
    for name, calls in {
        "asking": (PAY, Call("look"), Call("plan_exit", builtin=True)),
        "outside": (Call("ship", Effect.ONCE, external=True), Call("ship", Effect.ONCE, external=True)),
        "uncertain": (Call("pay", Effect.ONCE),),
    }.items():
        life = Life()
        life.submit(turn_id="t1")
        life.answer("", *calls)
        if name == "uncertain":
            life.start(0)
            life.lose(0)
        made[name] = life.session
    idle = Life()
    idle.submit(turn_id="t1")
    idle.answer("done")
    made["idle"] = idle.session
    return made


LIVES = lives()
IDS = sorted(
    {
        "",
        "x",
        *(one.request_id for session in LIVES.values() for one in interactions(session)),
        *(call.call_id for session in LIVES.values() for one in interactions(session) for call in one.calls),
        *(one.operation_id for session in LIVES.values() for one in session.uncertain),
    }
)
SOME_ID = st.sampled_from(IDS) | ANY_TEXT
ANYTHING = json_values(max_leaves=4)
Strategy: TypeAlias = "st.SearchStrategy[Any]"


def record(needed: dict[str, Strategy], may: dict[str, Strategy] | None = None) -> Strategy:
    """Return JSON objects with these fields, and perhaps with those."""
    return st.fixed_dictionaries(needed, optional=may or {})


DECISION: st.SearchStrategy[Any] = ANYTHING | record(
    {"approve": st.booleans() | ANYTHING}, {"arguments": ANYTHING, "reason": ANYTHING}
)
RULE = record(
    {"tool_name": ANY_TEXT, "behavior": st.sampled_from(["allow", "deny", "ask", "passthrough", "?"])},
    {"rule_content": ANYTHING, "source": ANYTHING, "misspelt": ANYTHING},
)
CHANGE: st.SearchStrategy[Any] = ANYTHING | st.one_of(
    record({"change": st.sampled_from(["add_rule", "remove_rule"]), "rule": RULE}),
    record({"change": st.just("set_plan_mode"), "active": st.booleans()}),
    record({"change": st.just("set_summary"), "text": ANYTHING}),
    record({"change": st.just("set_activated_groups"), "names": st.lists(ANY_TEXT, max_size=3)}),
    record({"change": st.just("set_context"), "messages": ANYTHING}),
    record({"change": st.just("begin_task"), "scope": ANYTHING | st.just({"taskId": "1", "objective": "o"})}),
)
PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    "respond": record(
        {"request_id": SOME_ID},
        {
            "approve": st.booleans() | st.dictionaries(SOME_ID, DECISION, max_size=3) | ANYTHING,
            "remember": st.booleans() | ANYTHING,
            "result": st.dictionaries(SOME_ID, ANYTHING, max_size=3) | ANYTHING,
            "errors": st.dictionaries(SOME_ID, ANY_TEXT, max_size=3) | ANYTHING,
            "reason": ANYTHING,
            "actor": ANYTHING,
        },
    ),
    "reconcile": record(
        {
            "outcomes": ANYTHING
            | st.dictionaries(
                SOME_ID,
                record(
                    {"outcome": st.sampled_from(["happened", "did_not_happen", "unresolved", "unknown"])},
                    {"result": ANYTHING, "reason": ANYTHING},
                ),
                max_size=3,
            )
        },
        {"reason": ANY_TEXT},
    ),
    "update_state": record(
        {"changes": st.lists(CHANGE, max_size=3) | ANYTHING, "expected_revision": st.integers(0, 9) | ANYTHING},
        {"reason": ANY_TEXT},
    ),
    "clear_context": record({}, {"when_idle": st.booleans() | ANYTHING, "more": ANYTHING}),
    "compact": record({}, {"actor": ANYTHING}),
}


@pytest.mark.parametrize("command", sorted(PAYLOADS))
@pytest.mark.parametrize("state", sorted(LIVES))
@settings(max_examples=150)
@given(data=st.data())
def test_what_anybody_sends_is_taken_or_refused_in_words(command: str, state: str, data: st.DataObject) -> None:
    """B16, B45, B77: no error of another kind, the context is valid, and the session is its JSON."""
    session, life = LIVES[state], Life()
    payload = json.dumps(data.draw(PAYLOADS[command]))
    try:
        read = read_command(command, payload)
        admit(session, read)
    except PerdureError:
        return
    fact = fact_of(read, life.now(), life.fresh_id)
    assert fact is not None
    session = advance(session, fact)
    decide(session)
    session_view(session).model_dump_json()
    if session.current is None:
        assert not list(flaws(session.state.context))
    digests_say_what_the_context_is(session)
    a_session_is_its_json(session)
