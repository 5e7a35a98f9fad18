"""Many who answer, reconcile, change and compact one session at once, while it renews itself every few events."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure import (
    Agent,
    App,
    Decision,
    Effect,
    ModelRequest,
    Outcome,
    PermissionBehavior,
    PermissionRule,
    SessionHandle,
    ToolCall,
    ToolContext,
    ToolError,
    TurnStatus,
    tool,
)
from perdure.changes import AddRule, RemoveRule, SetPlanMode
from perdure.errors import CommandRefused, InvalidCommand
from perdure.messages import flaws
from perdure.models import Purpose
from perdure.testing import Reply, ReplyLike, ScriptedModel, serve
from tests.sessions.test_crowds import Client
from tests.support.world import AT_ONCE, failed_tasks_ever, fresh, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure import Tool, TranscriptEntry

CLIENTS, DEEDS = 4, 60


class Ledger:
    """What was paid, by operation; some answers get lost, before or after the payment."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.paid: Counter[str] = Counter()

    def tools(self) -> list[Tool]:
        """Return tools that ask, that lose their answers, and that somebody outside carries out."""

        @tool(effect=Effect.ONCE, approval="ask")
        async def pay(ctx: ToolContext) -> str:
            """Pay, if somebody agrees."""
            self.paid[ctx.operation_id] += 1
            return "paid"

        async def look_up(ctx: ToolContext) -> Outcome:
            if self.dice.random() < 0.4:
                return Outcome.unknown()
            return self.outcome(ctx.operation_id)

        @tool(effect=Effect.ONCE, reconcile=look_up)
        async def lose(ctx: ToolContext) -> str:
            """Pay, and perhaps lose the answer, or fail before."""
            lost = self.dice.random()
            if lost > 0.3:
                self.paid[ctx.operation_id] += 1
            if lost < 0.6:
                msg = "the answer was lost"
                raise ToolError(msg, uncertain=True)
            return "paid"

        @tool(external=True)
        def ship() -> str:
            """Ship; somebody outside does it."""
            raise NotImplementedError

        return [pay, lose, ship]

    def outcome(self, operation_id: str) -> Outcome:
        """Return the truth about an operation."""
        return Outcome.happened("paid") if self.paid[operation_id] else Outcome.did_not_happen()

    def answer(self, request: ModelRequest) -> ReplyLike:
        """Be the model: ask for tools as the dice fall."""
        assert not list(flaws(request.messages))
        if request.purpose is Purpose.SUMMARY:
            return Reply("they talked", delay=self.dice.random() / 20)
        if request.step < 5 and self.dice.random() < 0.6:
            names = self.dice.choices(["pay", "lose", "ship", "todo_write", "plan_enter"], k=self.dice.randint(1, 3))
            return [ToolCall(name, {"todos": []} if name == "todo_write" else {}) for name in names]
        return "word " * self.dice.randint(1, 30)


class Person(Client):
    """A client that answers too, and changes what it likes."""

    ledger: Ledger

    async def act(self) -> None:
        """Do one thing. What is refused is refused for a reason of the session's."""
        deeds: list[Callable[[], Awaitable[object]]] = [
            *[self.submit] * 3,
            *[self.respond] * 6,
            *[self.reconcile] * 3,
            self.change,
            self.session.clear_context,
            self.session.compact,
            self.resume,
            self.cancel,
            lambda: self.session.interrupt(message="hm"),
        ]
        with suppress(CommandRefused, InvalidCommand):
            await self.dice.choice(deeds)()

    async def respond(self) -> None:
        for request in (await self.session.view()).interactions:
            ids = self.dice.sample([call.call_id for call in request.calls], k=self.dice.randint(1, len(request.calls)))
            if request.kind == "approval":
                approve = self.dice.random() < 0.7
                await self.session.respond(request.request_id, dict.fromkeys(ids, Decision(approve)), actor=self.name)
            if request.kind == "external":
                await self.session.respond(request.request_id, result=dict.fromkeys(ids, "shipped"), actor=self.name)

    async def reconcile(self) -> None:
        outcomes = {
            one.operation_id: self.ledger.outcome(one.operation_id) for one in (await self.session.view()).uncertain
        }
        await self.session.reconcile(outcomes, reason="I looked", actor=self.name)

    async def change(self) -> None:
        rule = PermissionRule(tool_name="pay", behavior=PermissionBehavior.DENY)
        there = "pay" in (await self.session.state()).permission_context.deny_rules
        changes = [SetPlanMode(active=False), RemoveRule(rule) if there else AddRule(rule)]
        await self.session.change_state(lambda _: changes, reason="as I like", actor=self.name)


async def test_random_answers_and_changes_of_four_people_leave_nothing_stuck_and_pay_nothing_twice() -> None:
    """B7, B12, B34, B45, B58, B82: with a new run every few events; nothing runs that nobody has agreed to."""
    seed = random.randrange(2**32)  # noqa: S311  # dice, and no secrets
    print(f"seed {seed}")
    dice = random.Random(seed)  # noqa: S311  # the same
    ledger = Ledger(dice)
    agent = Agent(
        "a",
        ScriptedModel(ledger.answer),
        tools=ledger.tools(),
        builtins=["todo", "plan"],
        queue_limit=20,
        compact_over=900,
    )
    config = AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 25}
    async with serve(App([agent]), workers=2, dynamic_config=config) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello", timeout=30)
        turns: list[str] = []
        people = [
            Person(
                SessionHandle(served.client, session.key, archive=served.archive),
                name,
                random.Random(dice.random()),  # noqa: S311  # the same
                turns,
            )
            for name in "bcde"[:CLIENTS]
        ]
        for person in people:
            person.ledger = ledger

        async def command(person: Person) -> None:
            for _ in range(DEEDS):
                await person.act()

        await asyncio.gather(*map(command, people))
        await _settle(people[0])
        for turn_id in {turn_id for person in people for turn_id in person.accepted}:
            assert (await session.turn(turn_id)).status.settled
        assert not list(flaws((await session.state()).context))
        entries = [entry async for entry in session.transcript()]
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert max(ledger.paid.values(), default=0) <= 1, "something was paid twice"
        _nothing_ran_that_nobody_has_agreed_to(entries, ledger)
        await session.change_state(lambda _: [SetPlanMode(active=False)], reason="enough")
        assert (await session.view()).status == "active"
        assert await failed_tasks_ever(session) == 0


def _nothing_ran_that_nobody_has_agreed_to(entries: list[TranscriptEntry], ledger: Ledger) -> None:
    calls = {str(entry.data["operation_id"]): entry for entry in entries if entry.kind == "tool_call"}
    agreed: set[str] = set()
    for entry in entries:
        decisions = entry.data.get("decisions") if entry.kind == "answer" else None
        if isinstance(decisions, dict):
            agreed |= {call_id for call_id, decision in decisions.items() if decision["approve"]}  # type: ignore[index]  # as it was written
    for operation_id in ledger.paid:
        call = calls[operation_id]
        assert call.data["tool"] == "lose" or call.data["call_id"] in agreed


async def _settle(person: Person) -> None:
    """Answer whatever is asked, and let everything go on, until nothing is left to do."""
    session = person.session

    async def at_rest() -> bool:
        view = await session.view()
        with suppress(CommandRefused, InvalidCommand):
            await person.respond()
            if view.uncertain:
                await person.reconcile()
            if view.parked is not None and view.active is None:
                await session.cancel(view.parked)
        waits = view.interactions or view.uncertain or view.queue or view.compacting
        return view.active is None and not waits

    await until(at_rest, patience=90)
    for entry in reversed([entry async for entry in session.transcript()]):
        if entry.kind == "turn":
            assert TurnStatus(str(entry.data["status"])).settled
            break
