"""Building a model request from an agent and a session's context: pure, made anew for each call, never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.messages import Message, Role
from perdure.models import ModelRequest, Purpose, ToolSpec
from perdure.operations import Effect, derived_id
from perdure.toolgroups import is_active

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from perdure.agents import Agent
    from perdure.builtins import Builtin
    from perdure.contract import ModelCall
    from perdure.tools import Tool


SUMMARISE = """You write the summary of a conversation between a user and an assistant with tools.
It takes the place of the conversation: what is not in it is forgotten.
Keep what the user wants and has decided, names, numbers and ids as they were said, what was done by tools and with
which result, and what is still open. Say what is known and from where; add nothing."""

ASK_FOR_SUMMARY = "Write the summary of our conversation up to here."


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


def builtin_spec(builtin: Builtin) -> ToolSpec:
    """Return a tool that perdure brings as a model sees it."""
    return ToolSpec(
        name=builtin.name, description=builtin.description, parameters=builtin.parameters, effect=Effect.READ
    )


def build_request(agent: Agent, call: ModelCall, summary: str, messages: tuple[Message, ...]) -> ModelRequest:
    """Return the request of a model call: of a step's, or of the one that a summary is made by."""
    if call.purpose is Purpose.SUMMARY:
        return _summary_request(call, summary, messages)
    tools = (*map(tool_spec, active_tools(agent, call.activated_groups)), *map(builtin_spec, agent.builtin_tools))
    return _request(call, "\n\n".join(_instructions(agent, call, summary)), messages, tools)


def _summary_request(call: ModelCall, summary: str, messages: tuple[Message, ...]) -> ModelRequest:
    """Ask for a summary in a message behind the conversation. The tools stay out: nothing is to be done."""
    asked = Message(id=derived_id("message", call.operation_id, "ask"), role=Role.USER, content=ASK_FOR_SUMMARY)
    instructions = f"{SUMMARISE}\n\n{_before(summary)}" if summary else SUMMARISE
    return _request(call, instructions, (*messages, asked), ())


def _request(
    call: ModelCall, instructions: str, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]
) -> ModelRequest:
    return ModelRequest(
        purpose=call.purpose,
        instructions=instructions,
        messages=messages,
        tools=tools,
        operation_id=call.operation_id,
        turn_id=call.turn_id,
        run_id=call.run_id,
        step=call.step,
        attributes=call.attributes,
    )


def _before(summary: str) -> str:
    return f"Summary of the conversation so far:\n{summary}"


def _instructions(agent: Agent, call: ModelCall, summary: str) -> Iterator[str]:
    if agent.instructions:
        yield agent.instructions
    if summary:
        yield _before(summary)
    yield from call.projections
