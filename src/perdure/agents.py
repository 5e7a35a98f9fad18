"""Agents and apps: what a worker knows and a session never sees.

A definition may change between any two steps of a running turn. Whatever a session needs of it travels in the result
of a model call, and so is in history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.builtins import Builtin, builtins_of
from perdure.errors import ConfigurationError
from perdure.toolnames import outside_names
from perdure.tools import Tool

if TYPE_CHECKING:
    from perdure.contract import AfterStop
    from perdure.models import Model
    from perdure.permissions import PermissionContext
    from perdure.toolgroups import ToolGroup

Resources = Callable[[], AbstractAsyncContextManager[Mapping[type, object]]]


@dataclass(frozen=True)
class Agent:
    """An agent: a model, its instructions and its tools.

    Args:
        id: The agent's name, part of every session's key.
        model: A model, or `openai:NAME` for any OpenAI-compatible endpoint (`OPENAI_API_KEY`, `OPENAI_BASE_URL`).
        instructions: What the model is told before the conversation. Not part of any session's state.
        tools: What the model may call.
        tool_groups: Groups of tools that can be switched on and off.
        builtins: Tools that perdure brings: `todo`, `plan`.
        max_steps: Model calls of one run of a turn; one that needs more is failed with `max_steps`.
        turn_timeout: How long one run of a turn may take, pauses not counted; one that takes longer is failed with
            `turn_timeout`. None for no limit.
        queue_limit: Turns that may wait, the running one not counted.
        after_interrupt: Whether the queue goes on after an interrupted turn or is parked until somebody resumes it.
        after_failure: The same for a failed turn.
        approval_timeout: When a question that nobody answers counts as denied; None for never.
        approval_reminder: After how long a waiting question is brought up again.
        compact_over: Tokens of context above which older messages become a summary; None for never.
        show_requirements: Whether the model sees the task's requirements.
        show_verifications: Whether the model sees verification results.
        permissions: The permissions that a new session starts with.
        model_attempts: How often a model call is tried before the turn fails.
        model_timeout: How long a model may be silent before an attempt counts as failed. Models that give their answer
            in one piece need at least as long as that takes.

    Raises:
        ConfigurationError: a value can't be used, two tools share a name, or a group is not there.
    """

    id: str
    model: Model | str
    instructions: str = ""
    tools: Sequence[Tool] = ()
    tool_groups: Sequence[ToolGroup] = ()
    builtins: Sequence[str] = ()
    max_steps: int = 32
    turn_timeout: timedelta | None = None
    queue_limit: int = 100
    after_interrupt: AfterStop = "continue"
    after_failure: AfterStop = "continue"
    approval_timeout: timedelta | None = None
    approval_reminder: timedelta | None = None
    compact_over: int | None = None
    show_requirements: bool = False
    show_verifications: bool = False
    permissions: PermissionContext | None = None
    model_attempts: int = 5
    model_timeout: timedelta = timedelta(minutes=10)
    builtin_tools: tuple[Builtin, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check what can be checked before a worker starts."""
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "tool_groups", tuple(self.tool_groups))
        object.__setattr__(self, "builtins", tuple(self.builtins))
        object.__setattr__(self, "builtin_tools", builtins_of(self.builtins, self.meta_groups))
        problem = self._problem()
        if problem:
            msg = f"agent {self.id!r}: {problem}"
            raise ConfigurationError(msg)
        outside_names(self.tool_names)

    def _problem(self) -> str | None:
        not_tools = [item for item in self.tools if not isinstance(item, Tool)]  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
        if not_tools:
            return f"{not_tools[0]!r} is not a tool; decorate the function with @tool"
        names = self.tool_names
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            return f"two tools are named {repeated[0]!r}"
        groups = {group.name for group in self.tool_groups}
        homeless = [item.name for item in self.tools if item.group is not None and item.group not in groups]
        if homeless:
            return f"tool {homeless[0]!r} belongs to a group that the agent doesn't have; add it to tool_groups"
        if not self.id.strip():
            return "the id is blank"
        if min(self.max_steps, self.queue_limit, self.model_attempts, self.compact_over or 1) < 1:
            return "max_steps, queue_limit, model_attempts and compact_over must be at least 1"
        return self._problem_of_groups() or self._problem_of_times()

    def _problem_of_groups(self) -> str | None:
        names = [group.name for group in self.tool_groups]
        if len(set(names)) != len(names) or not all(name.strip() for name in names):
            return f"tool groups need names, and different ones; got {names}"
        return None

    def _problem_of_times(self) -> str | None:
        times = {
            "turn_timeout": self.turn_timeout,
            "model_timeout": self.model_timeout,
            "approval_timeout": self.approval_timeout,
            "approval_reminder": self.approval_reminder,
        }
        for name, time in times.items():
            if time is not None and not isinstance(time, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
                return f"{name} is a timedelta, such as timedelta(seconds=30), not {time!r}"
            if time is not None and time <= timedelta(0):
                return f"{name} must be more than nothing, not {time}"
        for name, rule in (("after_interrupt", self.after_interrupt), ("after_failure", self.after_failure)):
            if rule not in ("continue", "park"):
                return f"{name} is 'continue' or 'park', not {rule!r}"
        return None

    @property
    def tool_names(self) -> list[str]:
        """The names of all tools, in the order given; those that perdure brings come last."""
        return [*(item.name for item in self.tools), *(item.name for item in self.builtin_tools)]

    @property
    def meta_groups(self) -> tuple[str, ...]:
        """The names of the groups that the model may switch."""
        return tuple(group.name for group in self.tool_groups if group.scope == "meta")

    def builtin(self, name: str) -> Builtin | None:
        """Return the tool of this name that perdure brings, if the agent has it."""
        return next((item for item in self.builtin_tools if item.name == name), None)

    def tool(self, name: str) -> Tool | None:
        """Return the tool of this name, if the agent has it."""
        return next((item for item in self.tools if item.name == name), None)


@dataclass(frozen=True)
class App:
    """What a worker serves: agents, and resources that their tools share.

    Args:
        agents: The agents, each with an id of its own.
        resources: Called once when a worker starts: an async context manager that gives a mapping from type to
            object, for `RuntimeContext.resource`. Left when the worker stops.

    Raises:
        ConfigurationError: no agent, or two with the same id.
    """

    agents: Sequence[Agent]
    resources: Resources | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check that each agent can be told from the others."""
        object.__setattr__(self, "agents", tuple(self.agents))
        ids = [agent.id for agent in self.agents]
        if not ids or len(set(ids)) != len(ids):
            msg = f"an app needs agents with different ids, got {ids}"
            raise ConfigurationError(msg)

    def agent(self, agent_id: str) -> Agent | None:
        """Return the agent of this id, if the app has it."""
        return next((agent for agent in self.agents if agent.id == agent_id), None)

    @property
    def tools(self) -> dict[tuple[str, str], Tool]:
        """Every tool by agent id and tool name."""
        return {(agent.id, item.name): item for agent in self.agents for item in agent.tools}
