"""Building a model request from an agent and a session's context: pure, made anew for each call, never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.models import ModelRequest, Purpose, ToolSpec
from perdure.toolgroups import is_active

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from perdure.agents import Agent
    from perdure.contract import ModelCall
    from perdure.messages import Message
    from perdure.tools import Tool


def active_groups(agent: Agent, activated: Iterable[str] | None) -> frozenset[str]:
    """Return the tool groups that are on: the session's, or the agent's defaults while it has none of its own."""
    if activated is None:
        return frozenset(group.name for group in agent.tool_groups if group.active)
    return frozenset(activated)


def active_tools(agent: Agent, activated: Iterable[str] | None) -> tuple[Tool, ...]:
    """Return the tools that the model may see and call."""
    groups = active_groups(agent, activated)
    return tuple(tool for tool in agent.tools if is_active(tool.group, groups))


def tool_spec(tool: Tool) -> ToolSpec:
    """Return a tool as a model sees it."""
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        effect=tool.effect,
        group=tool.group,
    )


def build_request(agent: Agent, call: ModelCall, summary: str, messages: tuple[Message, ...]) -> ModelRequest:
    """Return the request of a step's model call."""
    return ModelRequest(
        purpose=Purpose.ANSWER,
        instructions="\n\n".join(_instructions(agent, summary)),
        messages=messages,
        tools=tuple(tool_spec(tool) for tool in active_tools(agent, call.activated_groups)),
        operation_id=call.operation_id,
        turn_id=call.turn_id,
        run_id=call.run_id,
        step=call.step,
        attributes=call.attributes,
    )


def _instructions(agent: Agent, summary: str) -> Iterator[str]:
    if agent.instructions:
        yield agent.instructions
    if summary:
        yield f"Summary of the conversation so far:\n{summary}"
