"""Commands that answer what a session asks, and settle what nobody knows; and the same in a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Effect, ToolCall, TurnStatus, tool
from perdure.testing import ScriptedModel
from tests.cli.sample import lost
from tests.support.world import fresh, until, world

if TYPE_CHECKING:
    from tests.cli.desks import Desk
    from worker.embedded import EmbeddedServer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@tool(effect=Effect.ONCE, approval="ask")
def pay() -> str:
    """Pay."""
    return "paid"


async def asked(desk: Desk) -> str:
    (request,) = (await desk.handle.view()).interactions
    return request.request_id


async def test_an_approval_is_found_shown_and_given(desk: Desk) -> None:
    suspended = await desk.run("ask", "refund A1", "--turn-id", "m-1")
    assert (suspended.code, "waits for" in suspended.err) == (4, True)
    request = await asked(desk)

    async def listed() -> bool:
        return request in (await desk.run("approvals", "--agent", "support")).out

    await until(listed)
    shown = (await desk.run("approvals", "--agent", "support", "--user", "alice")).out
    assert f"-a support -u alice -s {desk.session}" in shown
    assert "refund, about A1: refund needs approval" in shown
    assert 'order_id: "A1"' in shown
    (entry,) = [
        one
        for one in (await desk.run("approvals", "--agent", "support", "--json")).json()
        if one["request_id"] == request
    ]
    assert (entry["workflow_id"], entry["calls"][0]["tool"]) == (desk.handle.workflow_id, "refund")
    assert 'refund {"order_id": "A1"}' in (await desk.run("view")).out
    unsure = await desk.run("approve")
    assert (unsure.code, unsure.out) == (2, "")
    assert "--yes" in unsure.err
    given = await desk.run("approve", "--yes", "--wait", "--actor", "bob")
    assert (given.code, given.out) == (0, "refunded 5 for A1\n")
    again = await desk.run("approve", request, "--yes")
    assert (again.code, again.out) == (1, "")
    assert "by 'bob': refund approved" in again.err
    none = await desk.run("deny", "--yes")
    assert (none.code, "asks for no approval" in none.err) == (1, True)


async def test_a_session_that_nobody_serves_does_not_keep_the_others_from_view(
    desk: Desk, server: EmbeddedServer
) -> None:
    """Its worker is gone while it waits; it is named, and the list is there."""
    agent = fresh("agent")
    model = ScriptedModel([ToolCall("pay")])
    async with world(server, App([Agent(agent, model, tools=[pay])])) as served:
        session = served.sessions.session(agent, fresh())
        await session.ask("pay", timeout=30)

        async def listed() -> bool:
            return session.key in [info.key async for info in served.sessions.list(agent, status="needs_approval")]

        await until(listed)
    shown = await desk.run("approvals", "--agent", agent)
    assert (shown.code, shown.out) == (0, "no session waits for an approval\n")
    assert f"{session.workflow_id} can't be looked into" in shown.err


async def test_some_calls_are_approved_with_other_arguments_and_the_rest_is_denied(desk: Desk) -> None:
    await desk.run("ask", "refund A1 B2", "--turn-id", "m-1")
    first = await asked(desk)
    (request,) = (await desk.handle.view()).interactions
    one, two = (call.call_id for call in request.calls)
    many = await desk.run("approve", "--yes", "--arguments", '{"order_id": "A1"}')
    assert (many.code, "a single call" in many.err) == (2, True)
    unknown = await desk.run("approve", "--yes", "--call", "call_x")
    assert (unknown.code, "call_x is not asked about" in unknown.err) == (2, True)
    part = await desk.run("approve", "--yes", "--call", one, "--arguments", '{"order_id": "A1", "amount": 3}')
    assert (part.code, part.out) == (0, "turn m-1: answered in part; the rest is still waited for\n")
    assert await asked(desk) != first
    denied = await desk.run("deny", "--yes", "--reason", "not that one", "--json")
    assert (denied.code, denied.json()["disposition"]) == (0, "started")
    await desk.handle.result("m-1", timeout=30)
    results = (await desk.handle.state()).context[2].results
    assert results[0].text == '(a person changed the arguments to {"amount":3,"order_id":"A1"})\nrefunded 3 for A1'
    assert results[1].text == "denied: not that one"
    assert two in {result.id for result in results}
    said = (await desk.run("transcript")).out
    assert "not that one" in said


async def test_an_approval_that_is_remembered_is_not_asked_again(desk: Desk) -> None:
    await desk.run("ask", "refund A1")
    assert (await desk.run("approve", "--yes", "--remember", "--wait")).code == 0
    assert (await desk.run("ask", "refund A1")).out == "refunded 5 for A1\n"
    assert "1 allow" in (await desk.run("state")).out


async def test_a_call_that_was_carried_out_outside_gets_its_result(desk: Desk) -> None:
    assert (await desk.run("ask", "ship", "--turn-id", "m-1")).code == 4
    (request,) = (await desk.handle.view()).interactions
    call = request.calls[0].call_id
    assert (await desk.run("respond")).code == 2
    wrong = await desk.run("respond", "--result", "invented=1")
    assert (wrong.code, "asked about" in wrong.err) == (1, True)
    given = await desk.run("respond", "--result", f'{call}={{"tracking": 5}}', "--wait")
    assert (given.code, given.out) == (0, '{"tracking":5}\n')
    await desk.run("ask", "ship", "--turn-id", "m-2")
    (request,) = (await desk.handle.view()).interactions
    failed = await desk.run("respond", "--error", f"{request.calls[0].call_id}=no stock", "--wait")
    assert (failed.code, failed.out) == (0, "no stock\n")


async def test_an_operation_that_nobody_knows_of_is_found_and_settled(desk: Desk) -> None:
    what = fresh()
    assert (await desk.run("ask", f"lose {what}", "--turn-id", "m-1")).code == 4
    (operation,) = (await desk.handle.view()).uncertain

    async def listed() -> bool:
        return operation.operation_id in (await desk.run("uncertain", "--session", desk.session)).out

    await until(listed)
    assert (await desk.run("uncertain", "--agent", "support", "--json")).json()
    assert (await desk.run("reconcile", "--reason", "r")).code == 2
    other = await desk.run("reconcile", "--happened", "another", "--reason", "I looked", "--yes")
    assert (other.code, operation.operation_id in other.err) == (1, True)
    settled = await desk.run(
        "reconcile", "--did-not-happen", operation.operation_id, "--reason", "I looked", "--yes", "--wait"
    )
    assert (settled.code, settled.out) == (0, f"did {what}\n")
    assert lost[what] == 2
    assert (await desk.run("uncertain", "--session", fresh())).out.startswith("no operation's outcome is unknown")


async def test_a_state_is_cleared_compacted_forked_exported_and_imported(
    desk: Desk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for number in range(3):
        await desk.run("ask", f"hi {number}")
    fork = fresh()
    assert (await desk.run("fork", fork)).out == f"made session:support:alice:{fork}\n"
    assert (await desk.run("fork", fork)).code == 1
    file = tmp_path_factory.mktemp("state") / "state.json"
    assert (await desk.run("export", str(file))).out == f"wrote {file}: 6 messages\n"
    exported = await desk.run("export")
    assert exported.out == file.read_text() == (await desk.run("state", "--json")).out
    copy = fresh()
    made = await desk.run("import", "-", "--user", "bob", "--session", copy, typed=exported.out)
    assert (made.code, made.out) == (0, f"made session:support:bob:{copy}: 6 messages\n")
    assert (await desk.run("import", str(file), "--user", "bob", "--session", copy)).code == 1
    broken = await desk.run("import", "-", "--session", fresh(), typed="{")
    assert (broken.code, "not an AgentState" in broken.err) == (2, True)
    missing = await desk.run("import", "nowhere.json", "--session", fresh())
    assert (missing.code, "can't be read" in missing.err) == (2, True)
    assert (await desk.run("compact")).out.startswith("a summary is being made")

    async def compacted() -> bool:
        return (await desk.handle.state()).summary == "they talked"

    await until(compacted)
    assert "cleared; the state is at revision" in (await desk.run("clear", "--when-idle")).out
    assert (await desk.handle.state()).context == ()


# ---- in a conversation ----------------------------------------------------------------------------------------------


async def test_a_conversation_shows_what_is_asked_and_takes_the_answer(desk: Desk) -> None:
    await desk.handle.ask("hi")
    async with desk.conversation() as seat:
        seat.enter("/approve")
        await seat.see("asks for no approval")
        seat.enter("refund A1")
        await seat.see("refund needs approval")
        await seat.see("/approve lets it run")
        seat.enter("/approve remember")
        await seat.see("answer: refunded 5 for A1")
        seat.enter("refund B2")
        await seat.see("/approve lets it run")
        seat.enter("/deny not that one")
        await seat.see("answer: denied: not that one")
        seat.enter("/approve of everything")
        await seat.see("/approve remember")


async def test_who_comes_back_is_told_what_waits_and_which_command_helps(desk: Desk) -> None:
    await desk.handle.ask("ship", turn_id="m-1")
    async with desk.conversation() as seat:
        await seat.see("perdure respond")
    await desk.handle.cancel("m-1")
    await desk.handle.ask(f"lose {fresh()}", turn_id="m-2")
    async with desk.conversation() as seat:
        await seat.see("perdure reconcile")
    assert (await desk.handle.turn("m-2")).status is TurnStatus.SUSPENDED


async def test_approve_answers_only_what_was_shown(desk: Desk) -> None:
    """B45: what somebody else began may ask for something that nobody here has read."""
    await desk.handle.ask("refund A1", turn_id="t-1")
    async with desk.conversation() as seat:
        await seat.see("refund needs approval")
        await desk.handle.cancel("t-1")
        await desk.handle.ask("refund B2", turn_id="t-2")
        seat.enter("/approve")
        await seat.see("something else is asked now")
        await seat.see("B2")
        assert (await desk.handle.turn("t-2")).status is TurnStatus.SUSPENDED
        seat.enter("/approve")
        await seat.see("answer: refunded 5 for B2")


async def test_who_comes_back_may_answer_what_the_greeting_showed(desk: Desk) -> None:
    """B45."""
    await desk.handle.ask("refund A1")
    async with desk.conversation() as seat:
        await seat.see("refund needs approval")
        seat.enter("/approve")
        await seat.see("answer: refunded 5 for A1")
