"""What an operator sees in Temporal, without anything of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import SearchAttributeKey

from perdure import Agent, App, Effect, ToolCall, ToolError, TurnStatus, tool
from perdure.testing import ScriptedModel
from tests.support.stage import Stage
from tests.support.world import events, fresh, until, world

if TYPE_CHECKING:
    from worker.embedded import EmbeddedServer

SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED


@tool(effect=Effect.READ)
async def look_up(order: str) -> str:
    """Look an order up."""
    return order


@tool
async def pay(order: str) -> str:
    """Pay, and lose the answer."""
    msg = f"no answer for {order}"
    raise ToolError(msg, uncertain=True)


async def test_activities_are_named_by_tool_and_readable_id_and_grouped_by_turn(server: EmbeddedServer) -> None:
    """Design, what the Temporal UI shows."""
    model = ScriptedModel([[ToolCall("look_up", {"order": "A1"}), ToolCall("look_up", {"order": "A2"})], "done"])
    async with world(server, App([Agent("a", model, tools=[look_up])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("go", turn_id="t/1")
        scheduled = [event for event in await events(session) if event.event_type == SCHEDULED]
        named = [event.activity_task_scheduled_event_attributes for event in scheduled]
        assert [(each.activity_type.name, each.activity_id) for each in named] == [
            ("perdure.model", "t/1/1/model/0"),
            ("look_up", "t/1/1/look_up/0"),
            ("look_up", "t/1/1/look_up/1"),
            ("perdure.model", "t/1/2/model/0"),
        ]
        assert [event.user_metadata.summary.data for event in scheduled] == [
            b'"step 1"',
            b"\"order='A1'\"",
            b"\"order='A2'\"",
            b'"step 2"',
        ]
        groups = {marker.label.id for event in scheduled for marker in event.event_group_markers}
        assert groups == {"turn:t/1"}


async def test_details_and_search_attributes_say_what_a_person_must_do(server: EmbeddedServer) -> None:
    """The status changes when somebody must act, and a plain turn leaves no event for any of it."""
    model = ScriptedModel(["hello", "hello", ToolCall("pay", {"order": "`A1042`\n# big"})])
    async with world(server, App([Agent("a", model, tools=[pay])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("hi")
        upserts = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
        first = len([event for event in await events(session) if event.event_type == upserts])
        await session.ask("hi")
        assert len([event for event in await events(session) if event.event_type == upserts]) == first
        assert (await session.ask("pay")).status is TurnStatus.SUSPENDED
        await session.submit("and then?", turn_id="next-one")
        workflow = served.client.get_workflow_handle(session.workflow_id)

        async def status_is_shown() -> bool:
            attributes = (await workflow.describe()).typed_search_attributes
            return attributes.get(SearchAttributeKey.for_keyword("PerdureStatus")) == "needs_reconciliation"

        await until(status_is_shown)
        description = await workflow.describe()
        assert await description.static_summary() == f"a · alice · {session.key.session_id}"
        metadata = await workflow.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        details = metadata.current_details
        assert "**needs_reconciliation**" in details
        assert '- **outcome unknown**: `pay {"order":"\'A1042\'\\n# big"}`' in details
        assert "- next: turn `next-one`: `and then?`" in details
        assert [info.key async for info in served.sessions.list(status="needs_reconciliation")].count(session.key) == 1


async def test_details_say_what_can_be_resumed_what_is_held_and_who_asked(server: EmbeddedServer) -> None:
    """What runs, what waits, what was stopped, each with whoever asked for it; a pause is a status of its own."""
    async with world(server, App([Agent("a", stage := Stage(), after_interrupt="park")])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        workflow = served.client.get_workflow_handle(session.workflow_id)

        async def details() -> str:
            metadata = await workflow.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
            return metadata.current_details

        await session.submit("go", turn_id="t-1", actor="web")
        await session.submit("and then", turn_id="t-2", actor="phone")
        await stage.call(1)
        await session.inject("by the way")
        shown = await details()
        assert "- running: turn `t-1` (asked by `web`), step 1: `model`" in shown
        assert "- next: turn `t-2` (asked by `phone`): `and then`" in shown
        assert "- input for the next step: 1" in shown
        await session.interrupt(message="wait for me", actor="bob")
        await session.pause("lunch", actor="carol")
        shown = await details()
        assert "- running: nothing" in shown
        assert "- **can be resumed**: turn `t-1` is interrupted (stopped by `bob`): `wait for me`" in shown
        assert "- **the queue waits** until turn `t-1` is resumed or cancelled" in shown
        assert "- **paused** (asked by `carol`): `lunch`; `unpause` goes on" in shown
        view = await session.view()
        assert view.stopped is not None
        assert (view.stopped.stopped_by, view.stopped.message) == ("bob", "wait for me")

        async def paused_is_shown() -> bool:
            attributes = (await workflow.describe()).typed_search_attributes
            return attributes.get(SearchAttributeKey.for_keyword("PerdureStatus")) == "paused"

        await until(paused_is_shown)
