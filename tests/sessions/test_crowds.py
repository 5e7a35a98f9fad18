"""Many who want something of one session at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from perdure import Agent, App, Effect, ModelRequest, SessionHandle, ToolCall, TurnStatus, tool
from perdure.errors import CommandRefused
from perdure.messages import flaws
from perdure.testing import Reply, ReplyLike, ScriptedModel
from tests.support.stage import Stage
from tests.support.world import failed_tasks_ever, fresh, until, world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.contract import AfterStop
    from worker.embedded import EmbeddedServer

WAITING = 50
SENDERS, EACH = 200, 15


async def test_fifty_who_wait_for_a_turn_keep_nobody_from_commanding_it(server: EmbeddedServer) -> None:
    """B71: half of them in one client, half in clients of their own; each gets the result."""
    async with world(server, App([Agent("a", stage := Stage())])) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go", turn_id="t-1")
        call = await stage.call(1)
        own = [SessionHandle(served.client, session.key, archive=served.archive) for _ in range(WAITING // 2)]
        waiting = [asyncio.create_task(each.result("t-1")) for each in [session] * (WAITING // 2) + own]
        # Those who can't wait in the session look again and again; four are in it, and are seen in its history.
        await until(lambda: _updates(session, 5))
        await call.say("half")
        interrupting = asyncio.create_task(session.interrupt())
        receipt = await session.submit("next", turn_id="t-2")
        assert (await asyncio.wait_for(interrupting, 30)).interrupted
        assert receipt.turn_id == "t-2"
        results = await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert {(result.turn_id, result.status) for result in results} == {("t-1", TurnStatus.INTERRUPTED)}
        assert len({result.output for result in results}) == 1
        (await stage.call(2)).answer("done")
        assert (await session.result("t-2", timeout=30)).output == "done"


async def _updates(session: SessionHandle, count: int) -> bool:
    workflow = session.client.get_workflow_handle(session.workflow_id)
    found = [event async for event in workflow.fetch_history_events()]
    return sum(event.HasField("workflow_execution_update_accepted_event_attributes") for event in found) >= count


async def test_three_thousand_submits_by_signal_are_accepted_or_counted(server: EmbeddedServer) -> None:
    """B72: from 200 senders at once; none vanishes, and the session goes on."""
    model = ScriptedModel(lambda request: f"heard {request.messages[-1].text}")
    async with world(server, App([Agent("a", model)])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        workflow = served.client.get_workflow_handle(session.workflow_id)

        async def send(sender: int) -> None:
            for number in range(EACH):
                await workflow.signal("submit_turn", {"input": "go", "turn_id": f"{sender}-{number}"})

        await asyncio.gather(*(send(sender) for sender in range(SENDERS)))

        async def all_counted() -> bool:
            view = await session.view()
            return view.turns - 1 + view.rejected_count == SENDERS * EACH

        await until(all_counted, patience=60)
        assert (await session.view()).rejections[-1].error == "QueueFull"

        async def idle() -> bool:
            view = await session.view()
            return view.active is None and not view.queue

        await until(idle, patience=60)
        view = await session.view()
        statuses = [entry.data["status"] async for entry in session.transcript() if entry.kind == "turn"]
        assert statuses == ["completed"] * view.turns
        assert (await session.ask("still there?", timeout=30)).output == "heard still there?"
        assert await failed_tasks_ever(session) == 0


# ---- all commands in all orders -----------------------------------------------------------------------------------

CLIENTS, SEQUENCES, LENGTH = 4, 200, 5


@tool(effect=Effect.READ)
async def read(seconds: float) -> str:
    """Read."""
    await asyncio.sleep(seconds)
    return "read"


@tool(effect=Effect.IDEMPOTENT)
async def idempotent(seconds: float) -> str:
    """Change something, once a key."""
    await asyncio.sleep(seconds)
    return "changed"


@tool
async def once(seconds: float) -> str:
    """Change something."""
    await asyncio.sleep(seconds)
    return "done"


class Moody:
    """A model whose answers take their time, and ask for tools as the dice fall."""

    def __init__(self, dice: random.Random) -> None:
        """Throw these dice."""
        self.dice = dice

    def answer(self, request: ModelRequest) -> ReplyLike:
        """Answer, call tools, or fail."""
        assert not list(flaws(request.messages))
        if self.dice.random() < 0.03:
            return ValueError("no more")
        if request.step < 6 and self.dice.random() < 0.4:
            names = self.dice.choices(["read", "idempotent", "once", "unheard of"], k=self.dice.randint(1, 3))
            return [ToolCall(name, {"seconds": self.dice.random() / 20}) for name in names]
        chunks = ["word "] * self.dice.randint(1, 4)
        return Reply(chunks=chunks, chunk_delay=self.dice.random() / 50)


class Client:
    """One of those who command the session. `accepted` are the turns that it was given a receipt for."""

    def __init__(self, session: SessionHandle, name: str, dice: random.Random, turns: list[str]) -> None:
        """Command a session as the dice fall. `turns` are the turns of all clients."""
        self.session = session
        self.name = name
        self.dice = dice
        self.turns = turns
        self.accepted: dict[str, str] = {}

    async def submit(self) -> None:
        policy = self.dice.choice(["enqueue", "enqueue", "reject", "interrupt", "steer", "latest", "rollback"])
        turn_id = f"{self.name}-{len(self.turns)}"
        self.turns.append(turn_id)
        rules: list[AfterStop | None] = [None, None, "park"]
        rule = self.dice.choice(rules)
        receipt = await self.session.submit("go", turn_id=turn_id, on_busy=policy, after_interrupt=rule)
        if receipt.disposition != "steered":
            self.accepted[turn_id] = policy

    def turn(self) -> str:
        return self.dice.choice(self.turns[-6:] or ["nobody's"])

    async def act(self) -> None:
        """Do one thing. What is refused is refused for a reason of the session's."""
        deeds: list[Callable[[], Awaitable[object]]] = [
            self.submit,
            self.submit,
            self.submit,
            lambda: self.session.interrupt(message="hm", partial=self.dice.choice(["keep", "discard"])),
            self.resume,
            self.cancel,
            lambda: self.session.steer("like this"),
            lambda: self.session.inject("by the way"),
            self.session.pause,
            self.session.unpause,
            self.session.unpause,
        ]
        with contextlib.suppress(CommandRefused):
            await self.dice.choice(deeds)()

    async def resume(self) -> None:
        view = await self.session.view()
        await self.session.resume(view.unfinished or self.turn())

    async def cancel(self) -> None:
        await self.session.cancel(self.turn())


async def test_random_commands_of_four_clients_leave_nothing_stuck(server: EmbeddedServer) -> None:
    """The invariants of the rules, on the real server: 200 sequences of commands against one session."""
    seed = random.randrange(2**32)  # noqa: S311  # dice, and no secrets
    print(f"seed {seed}")
    dice = random.Random(seed)  # noqa: S311  # the same
    app = App([Agent("a", ScriptedModel(Moody(dice).answer), tools=[read, idempotent, once], queue_limit=20)])
    async with world(server, app) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello", timeout=30)
        turns: list[str] = []
        clients = [
            Client(
                SessionHandle(served.client, session.key, archive=served.archive),
                name,
                random.Random(dice.random()),  # noqa: S311  # the same
                turns,
            )
            for name in "bcde"[:CLIENTS]
        ]

        async def command(client: Client) -> None:
            for _ in range(SEQUENCES // CLIENTS):
                for _ in range(LENGTH):
                    await client.act()
                await asyncio.sleep(client.dice.random() / 20)  # not waited for: people do nothing now and then

        await asyncio.gather(*(command(client) for client in clients))
        await settle(session)
        await check(session, {turn_id: how for client in clients for turn_id, how in client.accepted.items()})
        assert (await session.ask("still there?", timeout=30)).status in (TurnStatus.COMPLETED, TurnStatus.FAILED)
        assert await failed_tasks_ever(session) == 0


async def settle(session: SessionHandle) -> None:
    """Let everything go on that anybody has held, until nothing is left to do."""
    await session.unpause()

    async def at_rest() -> bool:
        view = await session.view()
        if view.parked is not None and view.active is None:
            try:
                await session.cancel(view.parked)
            except CommandRefused:  # an operation of it has not settled yet
                return False
        return view.active is None and not view.queue and not view.uncertain

    await until(at_rest, patience=60)


async def check(session: SessionHandle, accepted: dict[str, str]) -> None:
    """Check what holds whatever was commanded."""
    state, entries = await session.state(), [entry async for entry in session.transcript()]
    assert not list(flaws(state.context))
    assert len({message.id for message in state.context}) == len(state.context)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    final = [entry.turn_id for entry in entries if entry.kind == "turn" and entry.data["status"] in FINAL]
    assert len(final) == len(set(final)), "a turn was over twice"
    for turn_id in accepted:
        assert (await session.turn(turn_id)).status.settled, turn_id
    begun = list(dict.fromkeys(entry.turn_id for entry in entries if entry.kind == "run"))
    in_line = {turn_id for turn_id, how in accepted.items() if how not in ("interrupt", "rollback")}
    came = [entry.turn_id for entry in entries if entry.kind == "input" and "via" not in entry.data]
    assert [turn_id for turn_id in begun if turn_id in in_line] == [
        turn_id for turn_id in came if turn_id in in_line and turn_id in begun
    ]


FINAL = {TurnStatus.COMPLETED.value, TurnStatus.CANCELLED.value}
