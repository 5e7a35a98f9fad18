"""The tool activity: one call of one tool, under the tool's own name."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
from pydantic import ValidationError
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities import outputs
from activities.beating import beating
from activities.correlation import correlated
from activities.failures import failure, stopped
from activities.sizes import too_large
from activities.wanting import check_wanted
from perdure import contract
from perdure.contract import ToolAnswer, ToolInvocation
from perdure.judging import CallFacts, denied_by_rule
from perdure.messages import ResultState, TextBlock
from perdure.operations import Effect
from perdure.permissions import PermissionContext
from perdure.planning import opinion_of, subject_of
from perdure.tools import Tool, ToolContext, ToolError
from perdure.values import FrozenMap

if TYPE_CHECKING:
    from activities.environment import ToolEnvironment
    from perdure.agents import App

MAX_CAUSES = 10
"""How far the causes of an error are followed; they can go in a circle."""

NEVER_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Transport errors after which nothing can have reached the other side."""


class ToolActivities:
    """Runs the tools of an app's agents."""

    def __init__(self, app: App, environment: ToolEnvironment) -> None:
        """Serve `app`, with what `environment` lends."""
        self._tools = app.tools
        self._environment = environment

    @activity.defn(dynamic=True)
    async def call_tool(self, args: Sequence[RawValue]) -> ToolAnswer:
        """Run one tool call.

        A definite outcome, good or bad, is a result. A failure asks for another attempt, where the tool's effect allows
        one, or says with the type `OperationUncertain` that nobody can tell whether it took effect.
        """
        invocation = activity.payload_converter().from_payload(args[0].payload, ToolInvocation)
        tool = self._tools.get((invocation.agent_id, invocation.tool))
        if tool is None:
            msg = f"this worker has no tool {invocation.tool!r} for agent {invocation.agent_id!r}; it did not run"
            raise failure(msg, contract.ERROR_NOT_STARTED, final=True)
        facts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.call.id": invocation.call_id,
        }
        with correlated(invocation, f"execute_tool {tool.name}", **facts):
            async with beating():
                await self._check_wanted(tool, invocation)
                return await self._call(tool, invocation)

    async def _check_wanted(self, tool: Tool, invocation: ToolInvocation) -> None:
        """Begin nothing that the session has given up. What an earlier attempt has done is unknown then."""
        try:
            await check_wanted(invocation.operation_id, self._environment.ask_wanted)
        except ApplicationError as error:
            given_up = error.type == contract.ERROR_UNWANTED
            if tool.effect is Effect.READ or activity.info().attempt == 1 or not given_up:
                raise
            words = f"{tool.name} was stopped between two attempts"
            raise _uncertain(words) from None

    async def _call(self, tool: Tool, invocation: ToolInvocation) -> ToolAnswer:
        context = self._environment.context(tool, invocation)
        try:
            arguments = tool.bind(context, invocation.arguments)
        except ValidationError:
            return _error(invocation, tool.problem(invocation.arguments) or "the arguments do not fit")
        if invocation.edited and (why := forbidden(tool, context, invocation)) is not None:
            return _error(invocation, f"denied: {why}", ResultState.DENIED)
        attempt = Attempt(tool, activity.info().attempt)
        try:
            async with asyncio.timeout(tool.timeout.total_seconds()):
                value = await self._run(tool, arguments)
        except BaseException as error:  # noqa: BLE001  # also what would end the worker: a tool may raise anything
            if isinstance(error, asyncio.CancelledError) and (activity.is_cancelled() or activity.is_worker_shutdown()):
                raise attempt.stopped() from None
            return _error(invocation, attempt.failed(error))
        return self._answer(tool, invocation, value)

    def _answer(self, tool: Tool, invocation: ToolInvocation, value: object) -> ToolAnswer:
        """Return what a tool returned. It has run, so that nothing here may ask for another attempt."""
        workflow_id, store = activity.info().workflow_id or "", self._environment.store
        try:
            blocks = outputs.blocks(value)
            block = outputs.result(invocation.call_id, tool.name, blocks, workflow_id=workflow_id, store=store)
            answer = ToolAnswer(result=block)
            answer.model_dump_json()
        except Exception as error:  # noqa: BLE001  # whatever is wrong with the result, the tool has run
            why = str(error) if isinstance(error, outputs.UnusableResultError) else type(error).__name__
            return _error(invocation, f"{tool.name} ran, but its result can't be shown: {why}")
        size = too_large(answer, self._environment.inline_limit)
        if size is not None:
            return _error(invocation, f"{tool.name} ran, but its result of {size} bytes is too large to be kept")
        return answer

    async def _run(self, tool: Tool, arguments: Mapping[str, object]) -> object:
        if inspect.iscoroutinefunction(tool.function):
            return await tool.function(**arguments)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()

        def run() -> tuple[object, BaseException | None]:
            return context.run(_outcome, tool.function, arguments)

        value, error = await loop.run_in_executor(self._environment.threads, run)
        if error is not None:
            raise error
        return await value if inspect.isawaitable(value) else value


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a call, and what its end means under the tool's effect."""

    tool: Tool
    number: int

    @property
    def _once(self) -> bool:
        return self.tool.effect is Effect.ONCE

    @property
    def _may_repeat(self) -> bool:
        return not self._once and self.number < self.tool.attempts

    @property
    def _over(self) -> bool:
        """Whether the tool has surely ended with its attempt: a function in a thread can't be stopped."""
        return inspect.iscoroutinefunction(self.tool.function)

    def stopped(self) -> ApplicationError:
        """Return what an attempt ends with that was cancelled, by the session or by a worker that stops."""
        if self._once:
            return _uncertain(f"{self.tool.name} was stopped while it ran", over=self._over)
        return stopped(self.tool.name)

    def failed(self, error: BaseException) -> str:
        """Return the words of a definite error result.

        Raises:
            ApplicationError: another attempt is due, or the outcome is unknown.
        """
        words = f"{self.tool.name} failed: {_words(error)}"
        if isinstance(error, TimeoutError) and not error.args:
            words = f"{self.tool.name} did not answer within {self.tool.timeout.total_seconds():g} s"
        if isinstance(error, ToolError):
            words = _text(error) or type(error).__name__
            if error.uncertain and self._once:
                raise _uncertain(words)  # the tool itself has said so, and is over
            if error.retryable and self._may_repeat:
                raise failure(words, "ToolError", final=False)
            return words
        if self._once and _outcome_unknown(error):
            raise _uncertain(words, over=self._over)
        if self._may_repeat:
            raise failure(words, type(error).__name__, final=False, cause=error)
        return f"{words} (after {self.number} attempts)" if self.number > 1 else words


def forbidden(tool: Tool, context: ToolContext, invocation: ToolInvocation) -> str | None:
    """Return why arguments that a person has edited can't be used: a person can answer a question, and no more."""
    subject, problem = subject_of(tool, invocation.arguments)
    if problem is not None:
        return problem
    rules = PermissionContext(deny_rules=FrozenMap({tool.name: invocation.deny_rules}))
    by_rule = denied_by_rule(rules, CallFacts(tool=tool.name, effect=tool.effect, subject=subject))
    if by_rule is not None:
        return by_rule.reason
    opinion = opinion_of(tool, context, invocation.arguments)
    return opinion.reason if opinion is not None and opinion.behavior == "deny" else None


def _outcome_unknown(error: BaseException, depth: int = 0) -> bool:
    """Tell whether an error leaves open what happened: a connection that broke after it stood, or a time-out."""
    if isinstance(error, NEVER_CONNECTED):
        return False
    if isinstance(error, httpx.TransportError | TimeoutError):
        return True
    return error.__cause__ is not None and depth < MAX_CAUSES and _outcome_unknown(error.__cause__, depth + 1)


def _uncertain(words: str, *, over: bool = True) -> ApplicationError:
    return failure(words, contract.ERROR_UNCERTAIN, final=True, details=() if over else (contract.NOT_OVER,))


def _outcome(function: Callable[..., object], arguments: Mapping[str, object]) -> tuple[object, BaseException | None]:
    """Call a function in a thread and return what came of it: some errors do not survive the way through a future."""
    try:
        return function(**arguments), None
    except BaseException as error:  # noqa: BLE001  # raised again where the call is awaited
        return None, error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # an error that can't even say what it is
        return ""


def _words(error: BaseException) -> str:
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _error(invocation: ToolInvocation, words: str, state: ResultState = ResultState.ERROR) -> ToolAnswer:
    block = outputs.result(invocation.call_id, invocation.tool, (TextBlock(words),), state=state)
    return ToolAnswer(result=block)
