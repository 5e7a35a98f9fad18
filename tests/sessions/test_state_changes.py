"""Changing, clearing, compacting, forking and importing a session's state on the real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from perdure import (
    Agent,
    AgentState,
    App,
    Effect,
    Message,
    ModelError,
    PermissionBehavior,
    PermissionContext,
    PermissionMode,
    PermissionRule,
    RequirementDecision,
    Scope,
    ToolCall,
    TurnStatus,
    tool,
)
from perdure.changes import (
    AddRule,
    AnyChange,
    BeginTask,
    DecideRequirement,
    ProposeRequirement,
    RecordVerification,
    RemoveRule,
    SetContext,
    SetPermissionMode,
    SetSummary,
)
from perdure.errors import (
    InvalidCommand,
    PerdureError,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StaleRevision,
    UncertainOperations,
)
from perdure.messages import flaws
from perdure.models import Purpose
from perdure.tasks import Authority, Binding, RequirementKind, RequirementStatus, Verification, VerificationOutcome
from perdure.testing import Reply, ScriptedModel
from tests.support.stage import Stage
from tests.support.world import events, failed_tasks_ever, fresh, until, world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure import ModelRequest, SessionHandle
    from worker.embedded import EmbeddedServer

RULE = PermissionRule(tool_name="pay", behavior=PermissionBehavior.ASK)


def talker() -> App:
    """Return an app that answers with what it was told last."""
    return App([Agent("a", ScriptedModel(lambda request: f"you said {request.messages[-1].text}"))])


async def changes_of(session: SessionHandle) -> list[dict[str, object]]:
    """Return what the transcript has of changes."""
    return [{**entry.data, "actor": entry.actor} async for entry in session.transcript() if entry.kind == "change"]


async def test_a_change_needs_the_present_revision_and_a_reason_and_is_in_the_transcript(
    server: EmbeddedServer,
) -> None:
    """B6: an old revision or a blank reason is refused and changes nothing, not even by an event."""
    async with world(server, talker()) as served:
        session = served.sessions.session("a", fresh(), "alice")
        with pytest.raises(SessionNotFound):
            await session.update_state([AddRule(RULE)], expected_revision=0, reason="r")
        await session.ask("hello", timeout=30)
        before = await session.state()
        length = len(await events(session))
        for revision, reason in ((before.revision - 1, "r"), (before.revision + 1, "r"), (before.revision, " ")):
            with pytest.raises(PerdureError):
                await session.update_state([AddRule(RULE)], expected_revision=revision, reason=reason)
        assert await session.state() == before
        assert len(await events(session)) == length
        after = await session.update_state(
            [AddRule(RULE), SetPermissionMode(PermissionMode.ACCEPT_EDITS)],
            expected_revision=before.revision,
            reason="ask before you pay",
            actor="bob",
        )
        state = await session.state()
        assert after == state.revision == before.revision + 1
        assert state.permission_context.ask_rules == {"pay": (RULE,)}
        (change,) = await changes_of(session)
        assert (change["actor"], change["reason"], change["revision"]) == ("bob", "ask before you pay", after)


async def test_of_several_changes_that_do_not_all_fit_none_is_made(server: EmbeddedServer) -> None:
    """B6: all or nothing, and identity can't be changed at all."""
    async with world(server, talker()) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("hello", timeout=30)
        before = await session.state()
        with pytest.raises(InvalidCommand, match="no such rule"):
            await session.update_state(
                [SetSummary("s"), RemoveRule(RULE)], expected_revision=before.revision, reason="r"
            )
        with pytest.raises(InvalidCommand):
            await session.update_state([], expected_revision=before.revision, reason="nothing")
        assert await session.state() == before


async def test_of_two_who_change_the_same_revision_at_once_exactly_one_wins(server: EmbeddedServer) -> None:
    """B7: and by a function over the newest state both get their way."""
    async with world(server, talker()) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("hello", timeout=30)
        revision = (await session.state()).revision
        rules = [PermissionRule(tool_name=f"t{number}", behavior=PermissionBehavior.DENY) for number in range(8)]
        answers = await asyncio.gather(
            *(session.update_state([AddRule(rule)], expected_revision=revision, reason="r") for rule in rules),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers].count(int) == 1
        assert [type(answer) for answer in answers].count(StaleRevision) == 7
        await asyncio.gather(
            *(session.change_state(lambda _, rule=rule: [AddRule(rule)], reason="r") for rule in rules)
        )
        assert len((await session.state()).permission_context.deny_rules) == 8
        revision = (await session.state()).revision
        assert await session.change_state(lambda _: [], reason="nothing to change") == revision


async def test_a_context_is_changed_at_rest_only_and_into_what_a_model_takes(server: EmbeddedServer) -> None:
    """B6: and the next turn goes on from it."""
    stage = Stage()
    async with world(server, App([Agent("a", stage)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.submit("hello", turn_id="t-1")
        call = await stage.call(1)
        messages = (Message(id="m1", role="user", content="we agreed on 5"),)
        with pytest.raises(SessionBusy):
            await session.change_state(lambda _: [SetContext(messages)], reason="r")
        call.answer("hi")
        await session.result("t-1", timeout=30)
        with pytest.raises(InvalidCommand, match="same id"):
            await session.change_state(lambda _: [SetContext((*messages, *messages))], reason="r")
        await session.change_state(lambda _: [SetContext(messages), SetSummary("long ago")], reason="r")
        await session.submit("so?", turn_id="t-2")
        call = await stage.call(2)
        assert call.heard == ["we agreed on 5", "so?"]
        assert "long ago" in call.request.instructions
        call.answer("5")
        await session.result("t-2", timeout=30)


# ---- clearing and compacting ----------------------------------------------------------------------------------------


async def test_clearing_empties_the_context_and_leaves_everything_else(server: EmbeddedServer) -> None:
    """B8: also the transcript; refused while a turn runs, or done when it is over; creates nothing."""
    stage = Stage()
    async with world(server, App([Agent("a", stage)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        with pytest.raises(SessionNotFound):
            await session.clear_context()
        with pytest.raises(SessionNotFound):
            await session.state()
        await session.submit("hello", turn_id="t-1")
        call = await stage.call(1)
        await session.change_state(lambda _: [AddRule(RULE)], reason="r")
        with pytest.raises(SessionBusy):
            await session.clear_context()
        clearing = asyncio.create_task(session.clear_context(when_idle=True))
        await until(lambda: _clearing(session))
        call.answer("hi")
        revision = await clearing
        state = await session.state()
        assert (state.context, state.summary, state.revision) == ((), "", revision)
        assert state.permission_context.ask_rules == {"pay": (RULE,)}
        kinds = [entry.kind async for entry in session.transcript()]
        assert (kinds.count("input"), kinds.count("assistant")) == (1, 1)
        await session.submit("again", turn_id="t-2")
        call = await stage.call(2)
        assert call.heard == ["again"]
        call.answer("hi again")
        await session.result("t-2", timeout=30)


async def test_who_waits_to_clear_is_told_when_the_session_ends_instead(server: EmbeddedServer) -> None:
    """B8: nobody waits for ever for a session that was ended from outside."""
    stage = Stage()
    async with world(server, App([Agent("a", stage)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.submit("hello", turn_id="t-1")
        await stage.call(1)
        clearing = asyncio.create_task(session.clear_context(when_idle=True))
        await until(lambda: _clearing(session))
        await served.client.get_workflow_handle(session.workflow_id).terminate("by hand")
        with pytest.raises(SessionClosed):
            async with asyncio.timeout(30):
                await clearing


async def _clearing(session: SessionHandle) -> bool:
    return (await session.view()).clearing


def rambling(request: ModelRequest) -> str:
    """Answer at length, and sum up shortly."""
    return "they talked about A1" if request.purpose is Purpose.SUMMARY else "blah " * 100


async def test_a_long_conversation_goes_on_over_summaries_and_on_other_workers(server: EmbeddedServer) -> None:
    """B62: what is sent to the model stays bounded, the newest messages stay, and the transcript is whole."""
    model = ScriptedModel(rambling)
    async with world(server, App([Agent("a", model, compact_over=1200)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        for number in range(20):
            if number == 10:
                await served.stop_worker()
                await served.start_worker()
            assert (await session.ask(f"tell me {number}", timeout=30)).status is TurnStatus.COMPLETED
        state = await session.state()
        assert state.summary == "they talked about A1"
        texts = [message.text for message in state.context]
        assert len(texts) < 20
        assert texts[-2] == "tell me 19"
        assert not list(flaws(state.context))
        asked = [request for request in model.requests if request.purpose is Purpose.SUMMARY]
        assert len(asked) >= 2
        assert all(not request.tools for request in asked)
        assert "they talked about A1" in asked[1].instructions
        assert max(len(request.messages) for request in model.requests) < 20
        kinds = [entry.kind async for entry in session.transcript()]
        assert (kinds.count("assistant"), kinds.count("summary")) == (20, len(asked))
        assert await failed_tasks_ever(session) == 0


async def test_a_summary_that_fails_costs_nothing(server: EmbeddedServer) -> None:
    """B62: the turn goes on uncompacted, and the error is in the transcript."""

    def refuses(request: ModelRequest) -> str | Exception:
        return ModelError("too long for me") if request.purpose is Purpose.SUMMARY else rambling(request)

    async with world(server, App([Agent("a", ScriptedModel(refuses), compact_over=500)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        for number in range(6):
            assert (await session.ask(f"tell me {number}", timeout=30)).status is TurnStatus.COMPLETED
        assert len((await session.state()).context) == 12
        errors = [entry.data["message"] async for entry in session.transcript() if entry.kind == "error"]
        assert errors
        assert all("too long for me" in str(error) for error in errors)


async def test_an_interrupt_gets_through_while_a_summary_is_made(server: EmbeddedServer) -> None:
    """B23, B62: the turn has stopped at once; the session goes on."""
    stage = Stage()
    async with world(server, App([Agent("a", stage)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        for number in (1, 2):
            await session.submit("hello", turn_id=f"t-{number}")
            (await stage.call(number)).answer("hi")
            await session.result(f"t-{number}", timeout=30)
        await session.compact()
        summary = await stage.call(3)
        assert summary.heard[-1].startswith("Write the summary")
        await session.submit("now", turn_id="t-3")
        assert (await session.view()).compacting
        assert (await session.cancel("t-3")).disposition == "settled"
        summary.answer("they said hello")
        await until(lambda: _summarised(session))
        assert [message.text for message in (await session.state()).context] == ["hello", "hi"]


async def _summarised(session: SessionHandle) -> bool:
    return (await session.state()).summary == "they said hello"


# ---- new sessions from old states -----------------------------------------------------------------------------------


async def test_a_fork_knows_what_the_session_knew_and_goes_its_own_way(server: EmbeddedServer) -> None:
    """B43: of a session at rest; what either does later doesn't touch the other."""
    async with world(server, talker()) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("one", timeout=30)
        await session.change_state(lambda _: [AddRule(RULE)], reason="r")
        fork = await session.fork(fresh("fork"))
        assert (fork.key.agent_id, fork.key.user_id) == ("a", "alice")
        before, after = await session.state(), await fork.state()
        assert after.model_dump(exclude={"session_id"}) == before.model_dump(exclude={"session_id"})
        await fork.ask("two", timeout=30)
        assert len((await fork.state()).context) == 4
        assert len((await session.state()).context) == 2
        with pytest.raises(SessionExists):
            await session.fork(fork.key.session_id)


@pytest.mark.parametrize("how", ["fork", "state"])
async def test_what_a_state_does_not_say_comes_from_the_agent(server: EmbeddedServer, how: str) -> None:
    """B41, B9: a session that was made before its first turn, or from a state without rules, is under its agent's."""
    paid: list[int] = []

    @tool(effect=Effect.ONCE)
    def pay() -> str:
        paid.append(1)
        return "paid"

    rules = PermissionContext(
        deny_rules={"pay": [PermissionRule(tool_name="pay", behavior=PermissionBehavior.DENY)]}  # pyright: ignore[reportArgumentType]
    )
    model = ScriptedModel([ToolCall("pay"), "so be it"])
    async with world(server, App([Agent("a", model, tools=[pay], permissions=rules)])) as served:
        state = None if how == "fork" else AgentState(session_id="s")
        session = await served.sessions.create("a", fresh(), "alice", state=state)
        if how == "fork":
            session = await session.fork(fresh("fork"))
        assert (await session.ask("pay", timeout=30)).output == "so be it"
        assert not paid
        assert (await session.state()).permission_context.deny_rules


async def test_a_busy_session_is_not_forked(server: EmbeddedServer) -> None:
    """B58: there is no moment to take its state at."""
    stage = Stage()

    @tool(effect=Effect.ONCE, approval="ask")
    def pay() -> str:
        """Pay."""
        return "paid"

    async with world(server, App([Agent("a", stage, tools=[pay])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        with pytest.raises(SessionNotFound):
            await session.fork(fresh())
        await session.submit("hello", turn_id="t-1")
        call = await stage.call(1)
        with pytest.raises(SessionBusy):
            await session.fork(fresh())
        call.answer("", ToolCall("pay"))
        await session.result("t-1", timeout=30)
        with pytest.raises(SessionBusy):
            await session.fork(fresh())


async def test_an_exported_state_becomes_a_session_of_another_name(server: EmbeddedServer) -> None:
    """B1, B9: the names that are given win, and a persisted empty list of groups stays empty."""
    async with world(server, talker()) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("one", timeout=30)
        exported = AgentState.from_json((await session.state()).to_json())
        created = await served.sessions.create("a", fresh(), "bob", state=exported)
        state = await created.state()
        assert (state.session_id, state.user_id, state.context) == (created.key.session_id, "bob", exported.context)
        assert (await created.ask("two", timeout=30)).output == "you said two"
        assert (await created.state()).tool_context.activated_groups == ()


# ---- the contract of a task -----------------------------------------------------------------------------------------


async def test_only_trusted_callers_decide_and_verify_and_a_change_of_contract_makes_it_stale(
    server: EmbeddedServer,
) -> None:
    """B52, B53, B54: the model completes every todo, and nothing is confirmed, passed or done by that."""
    todos = [{"content": "write it", "status": "completed"}]
    model = ScriptedModel([[ToolCall("todo_write", {"todos": todos})], "all done", "again"])
    agent = Agent("a", model, builtins=["todo"], show_requirements=True, show_verifications=True)
    async with world(server, App([agent])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("go", timeout=30)
        await _change(session, BeginTask(Scope(taskId="T1", objective="a good text")))
        await _change(session, ProposeRequirement(RequirementKind.ACCEPTANCE_CRITERION, "it is short", "mail 1"))
        tasks = (await session.state()).tasks_context
        (requirement,) = tasks.requirements
        assert (requirement.status, tasks.verifications) == (RequirementStatus.CANDIDATE, ())
        decision = RequirementDecision(Authority.USER, "mail 2")
        await _change(session, DecideRequirement(requirement.id, RequirementStatus.CONFIRMED, decision))
        tasks = (await session.state()).tasks_context
        report = Verification(
            id="v1",
            requirementId=requirement.id,
            outcome=VerificationOutcome.PASSED,
            binding=Binding(taskId="T1", contractVersion=tasks.contract_version),
        )
        await _change(session, RecordVerification(report))
        await session.ask("what now?", timeout=30)
        told = model.requests[-1].instructions
        assert "it is short" in told
        assert "PASSED" in told
        assert ", stale" not in told
        other = ProposeRequirement(RequirementKind.CONSTRAINT, "no adjectives", None)
        await _change(session, other)
        second = (await session.state()).tasks_context.requirements[1]
        await _change(session, DecideRequirement(second.id, RequirementStatus.REJECTED, decision))
        with pytest.raises(StaleRevision):
            await _change(session, RecordVerification(report))
        assert not any("it is short" in message.text for message in (await session.state()).context)


async def _change(session: SessionHandle, *changes: AnyChange) -> int:
    def all_of(_: AgentState) -> Sequence[AnyChange]:
        return changes

    revision = (await session.state()).revision
    return await session.update_state(all_of(await session.state()), expected_revision=revision, reason="r")


async def test_an_uncertain_operation_keeps_the_context_as_it_is(server: EmbeddedServer) -> None:
    """B6, B8."""

    @tool(effect=Effect.ONCE)
    def pay() -> str:
        """Pay, and lose the answer."""
        raise TimeoutError

    model = ScriptedModel([[ToolCall("pay")], Reply("done")])
    async with world(server, App([Agent("a", model, tools=[pay])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        assert (await session.ask("pay", timeout=30)).status is TurnStatus.SUSPENDED
        with pytest.raises(UncertainOperations):
            await session.clear_context()
        with pytest.raises(UncertainOperations):
            await session.change_state(lambda _: [SetSummary("s")], reason="r")
        await session.change_state(lambda _: [AddRule(RULE)], reason="permissions may change")
