"""Dumps a state by AgentScope's own classes: run as a program of its own, since importing that package may warn."""

from __future__ import annotations

from agentscope.message import (
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    Usage,
)
from agentscope.permission import PermissionBehavior, PermissionContext, PermissionMode, PermissionRule
from agentscope.state import AgentState, Task

state = AgentState(session_id="order-A1042", summary=[TextBlock(text="they met"), TextBlock(text="and talked")])
state.context.append(
    Msg(
        name="alice",
        role="user",
        content=[
            TextBlock(text="refund A1"),
            DataBlock(source=Base64Source(data="aGk=", media_type="image/png"), name="receipt"),
        ],
    )
)
state.reply_context.reply_id, state.reply_context.cur_iter = "reply-1", 2
state.append_context(
    "support",
    [
        TextBlock(text="let me see"),
        ToolCallBlock(id="c1", name="look", input='{"order_id": "A1"}', state=ToolCallState.FINISHED),
        ToolCallBlock(id="c2", name="look", input="{broken", state=ToolCallState.FINISHED),
        ToolResultBlock(id="c1", name="look", output="paid 12", state=ToolResultState.SUCCESS),
        ToolResultBlock(id="c2", name="look", output=[TextBlock(text="no")], state=ToolResultState.ERROR),
        HintBlock(hint="be quick", source="system"),
        TextBlock(text="it can be refunded"),
        ToolCallBlock(id="c1", name="refund", input="", state=ToolCallState.SUBMITTED),
    ],
)
state.context[-1].content.insert(0, ThinkingBlock(thinking="hm"))
state.context[-1].usage = Usage(input_tokens=10, output_tokens=5)
# What is observed while a call runs comes in between, and the result begins a message of its own.
state.context.append(Msg(name="bob", role="user", content=[TextBlock(text="I am in a hurry")]))
state.append_context(
    "support",
    [
        ToolResultBlock(id="c1", name="refund", output="paid back", state=ToolResultState.SUCCESS),
        ToolCallBlock(id="c3", name="look", input="{}", state=ToolCallState.ASKING),
    ],
)
rule = PermissionRule(tool_name="refund", rule_content="A*", behavior=PermissionBehavior.ASK, source="user")
state.permission_context = PermissionContext(mode=PermissionMode.ACCEPT_EDITS, ask_rules={"refund": [rule]})
state.tool_context.activated_groups = ["shop"]
state.tasks_context.tasks = [Task(subject="refund A1", description="all of it", metadata={"n": 1}, state="in_progress")]
state.middle_context = {"anything": {"else": 1}}
print(state.model_dump_json())
