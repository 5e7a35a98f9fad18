"""From a model's answer to what a session keeps of it: a message with ids of our own, and a plan for each call.

Ids that models give are not trusted: they come empty, repeated and constant. Arguments are checked here, before
anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.contract import CallPlan, Defaults, Limits, ModelAnswer, ModelCall, Renewal
from perdure.judging import Opinion
from perdure.messages import INTERRUPTED_MARK, Block, Message, Role, TextBlock, ThinkingBlock, ToolUseBlock
from perdure.models import ModelError, ModelResponse, ToolCall
from perdure.operations import Effect, derived_id
from perdure.permissions import PermissionContext
from perdure.requests import active_groups, active_tools
from perdure.toolnames import MAX_INSIDE
from perdure.values import EMPTY, FrozenDict, canonical_json, clean_text, freeze_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from perdure.agents import Agent
    from perdure.builtins import Builtin
    from perdure.tools import RuntimeContext, Tool

CUT_OFF = frozenset({"length", "max_tokens", ""})
"""Finish reasons of an answer that is not whole."""

FILTERED = frozenset({"content_filter"})
"""Finish reasons of an answer that the provider withheld."""

MAX_CALLS = 128
"""Tool calls of one step; as many as OpenAI has tools in a request. More would keep a session busy with bookkeeping."""

MAX_ARGUMENTS_BYTES = 512 * 1024
"""All arguments of one step. Its calls are handed out in one message, which Temporal bounds at 4 MB; beyond that the
server ends the workflow."""

MAX_SUMMARY = 120
"""Characters of the line that operators read on an activity."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns the answers to one model call into messages and plans."""

    agent: Agent
    call: ModelCall
    at: datetime
    heartbeat_seconds: float
    context: RuntimeContext
    carry_bytes: int | None = None
    renewal: Renewal = field(default_factory=Renewal)

    def answer(self, response: ModelResponse) -> ModelAnswer:
        """Return a whole answer.

        Raises:
            ModelError: it is not whole, and so neither an answer nor a reason to run anything.
        """
        _check_whole(response)
        plans = tuple(self._plan(index, call) for index, call in enumerate(response.tool_calls))
        size = sum(len(canonical_json(plan.arguments)) for plan in plans)
        if size > MAX_ARGUMENTS_BYTES:
            msg = f"the arguments of one step's tool calls have {size} bytes; {MAX_ARGUMENTS_BYTES} are the most"
            raise ModelError(msg, retryable=True)
        uses = tuple(ToolUseBlock(id=plan.call_id, name=plan.tool, input=plan.arguments) for plan in plans)
        thinking = (ThinkingBlock(response.thinking),) if response.thinking else ()
        text = (TextBlock(response.text),) if response.text or not plans else ()
        return ModelAnswer(
            message=self._message((*thinking, *text, *uses), response),
            plans=plans,
            limits=self.limits,
            usage=response.usage,
            defaults=self._defaults() if self.call.defaults_wanted else None,
        )

    def summary(self, response: ModelResponse) -> ModelAnswer:
        """Return a summary.

        Raises:
            ModelError: it is not whole, or says nothing.
        """
        _check_whole(response)
        if not response.text.strip():
            msg = "the model gave no summary"
            raise ModelError(msg, retryable=True)
        message = self._message((TextBlock(response.text),), response)
        return ModelAnswer(message=message, limits=self.limits, usage=response.usage)

    def _defaults(self) -> Defaults:
        return Defaults(
            permissions=self.agent.permissions or PermissionContext(),
            activated_groups=tuple(sorted(active_groups(self.agent, None))),
        )

    def partial(self, text: str) -> ModelAnswer:
        """Return what was streamed before the call was cancelled, which may be nothing."""
        message = self._message((TextBlock(text),), ModelResponse(text))
        marked = freeze_object({INTERRUPTED_MARK: True})
        return ModelAnswer(message=message.model_copy(update={"metadata": marked}), limits=self.limits, partial=True)

    @property
    def limits(self) -> Limits:
        """What the agent says of turns and queue."""
        agent = self.agent
        return Limits(
            max_steps=agent.max_steps,
            queue_limit=agent.queue_limit,
            turn_timeout_seconds=_seconds(agent.turn_timeout),
            after_interrupt=agent.after_interrupt,
            after_failure=agent.after_failure,
            approval_timeout_seconds=_seconds(agent.approval_timeout),
            approval_reminder_seconds=_seconds(agent.approval_reminder),
            compact_over=agent.compact_over,
            show_requirements=agent.show_requirements,
            show_verifications=agent.show_verifications,
            carry_bytes=self.carry_bytes,
            renewal=self.renewal,
        )

    def _message(self, content: tuple[Block, ...], response: ModelResponse) -> Message:
        return Message(
            id=derived_id("message", self.call.operation_id, "answer"),
            name=self.agent.id,
            role=Role.ASSISTANT,
            content=content,
            timestamp=self.at.isoformat(),
            usage=response.usage,
        )

    def _plan(self, index: int, call: ToolCall) -> CallPlan:
        call_id = f"call_{derived_id('call', self.call.operation_id, str(index)).replace('-', '')[:24]}"
        name = clean_text(call.name)[:MAX_INSIDE] or "(no name)"
        arguments, unreadable = _arguments(call.arguments)
        problem = call.problem or unreadable
        builtin = self.agent.builtin(name)
        if builtin is not None:
            return self._builtin_plan(call_id, builtin, arguments, problem)
        tools = {tool.name: tool for tool in active_tools(self.agent, self.call.activated_groups)}
        tool = tools.get(name)
        if tool is None:
            known = sorted((*tools, *(one.name for one in self.agent.builtin_tools)))
            refusal = f"there is no tool {name!r}; there are: {', '.join(known) or 'none'}"
            return CallPlan(call_id=call_id, tool=name, arguments=arguments, refusal=refusal)
        return self._tool_plan(call_id, tool, arguments, problem)

    def _builtin_plan(self, call_id: str, builtin: Builtin, arguments: FrozenDict, problem: str | None) -> CallPlan:
        return CallPlan(
            call_id=call_id,
            tool=builtin.name,
            arguments=arguments,
            effect=Effect.READ,
            builtin=True,
            meta_groups=self.agent.meta_groups,
            refusal=f"the arguments can't be read: {problem}" if problem else builtin.problem(arguments),
        )

    def _tool_plan(self, call_id: str, tool: Tool, arguments: FrozenDict, problem: str | None) -> CallPlan:
        refusal = f"the arguments can't be read: {problem}" if problem else tool.problem(arguments)
        subject, opinion = None, None
        if refusal is None:
            subject, refusal = subject_of(tool, arguments)
        if refusal is None:
            opinion = opinion_of(tool, self.context, arguments)
        return CallPlan(
            call_id=call_id,
            tool=tool.name,
            arguments=arguments,
            effect=tool.effect,
            timeout_seconds=tool.timeout.total_seconds(),
            heartbeat_seconds=self.heartbeat_seconds,
            attempts=tool.attempts,
            task_queue=tool.task_queue,
            subject=subject,
            opinion=opinion,
            external=tool.external,
            reconcilable=tool.reconcile is not None,
            summary=_summary(arguments),
            refusal=refusal,
        )


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()


def _check_whole(response: ModelResponse) -> None:
    if len(response.tool_calls) > MAX_CALLS:
        msg = f"the model asked for {len(response.tool_calls)} tool calls in one step; {MAX_CALLS} are the most"
        raise ModelError(msg, retryable=True)
    reason = response.finish_reason
    if reason in CUT_OFF:
        msg = f"the answer was cut off (finish reason {reason!r}); it is no answer, and none of its calls was run"
        raise ModelError(msg, retryable=True)
    if reason in FILTERED:
        msg = "the provider withheld the answer (finish reason 'content_filter')"
        raise ModelError(msg)


def _arguments(arguments: Mapping[str, object]) -> tuple[FrozenDict, str | None]:
    try:
        return freeze_object(arguments), None
    except ValueError as error:
        return EMPTY, str(error)


def subject_of(tool: Tool, arguments: FrozenDict) -> tuple[str | None, str | None]:
    """Return what permission rules match against, and why the call can't run if that can't be told."""
    if tool.subject is None:
        return None, None
    try:
        return str(tool.subject(arguments)), None
    except Exception as error:  # noqa: BLE001  # whatever the app's function raises, no rule can be checked
        return None, f"the subject of this call to {tool.name} can't be told ({type(error).__name__}); it did not run"


def opinion_of(tool: Tool, context: RuntimeContext, arguments: FrozenDict) -> Opinion | None:
    """Return the tool's own verdict on a call: its check's, or, where that has none, what its `approval` says.

    A check that fails denies: what nobody could check must not run.
    """
    try:
        verdict = None if tool.check is None else tool.check(context, arguments)
        if verdict is not None:
            return Opinion(behavior=verdict.behavior, reason=verdict.reason, safety=verdict.safety)
    except Exception as error:  # noqa: BLE001  # whatever the app's function raises
        return Opinion(behavior="deny", reason=f"the check of {tool.name} failed ({type(error).__name__})")
    if tool.approval is None:
        return None
    return Opinion(behavior="ask", reason=f"{tool.name} needs approval", safety=tool.approval == "safety")


def _summary(arguments: FrozenDict) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    text = shown or "no arguments"
    return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"
