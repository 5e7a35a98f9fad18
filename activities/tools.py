"""The tool activity: one call of one tool, under the tool's own name."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from activities.wanting import AskWanted, check_wanted
from perdure import contract
from perdure.contract import ToolAnswer, ToolInvocation
from perdure.messages import ResultState, TextBlock
from perdure.operations import Effect
from perdure.tools import Tool, ToolContext, ToolError

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from datetime import timedelta

    from perdure.agents import App
    from perdure.state import AgentState

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header's name, as the IETF draft draft-ietf-httpapi-idempotency-key-header has it."""

CONNECT_SECONDS = 10
"""How long a service may take to accept a connection. Before that nothing can have happened there."""

MAX_CAUSES = 10
"""How far the causes of an error are followed; they can go in a circle."""

NEVER_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Transport errors after which nothing can have reached the other side."""


@dataclass(frozen=True)
class ToolEnvironment:
    """What a worker lends to the tools that it runs."""

    resources: Mapping[type, object]
    transport: httpx.AsyncBaseTransport
    threads: Executor
    read_state: Callable[[str], Awaitable[AgentState]]
    ask_wanted: AskWanted
    store: outputs.ResultStore | None = field(default=None)
    inline_limit: int | None = None


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
        client = _client(self._environment.transport, invocation.operation_id, tool.timeout)
        try:
            arguments = tool.bind(self._context(invocation, client), invocation.arguments)
        except ValidationError:
            return _error(invocation, tool.problem(invocation.arguments) or "the arguments do not fit")
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

    def _context(self, invocation: ToolInvocation, client: httpx.AsyncClient) -> ToolContext:
        workflow_id = activity.info().workflow_id or ""
        return ToolContext(
            agent_id=invocation.agent_id,
            session_id=invocation.session_id,
            user_id=invocation.user_id,
            turn_id=invocation.turn_id,
            run_id=invocation.run_id,
            attributes=invocation.attributes,
            resources=self._environment.resources,
            operation_id=invocation.operation_id,
            attempt=activity.info().attempt,
            http=client,
            read_state=lambda: self._environment.read_state(workflow_id),
        )


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

    def stopped(self) -> ApplicationError:
        """Return what an attempt ends with that was cancelled, by the session or by a worker that stops."""
        if self._once:
            return _uncertain(f"{self.tool.name} was stopped while it ran")
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
                raise _uncertain(words)
            if error.retryable and self._may_repeat:
                raise failure(words, "ToolError", final=False)
            return words
        if self._once and _outcome_unknown(error):
            raise _uncertain(words)
        if self._may_repeat:
            raise failure(words, type(error).__name__, final=False, cause=error)
        return f"{words} (after {self.number} attempts)" if self.number > 1 else words


def _outcome_unknown(error: BaseException, depth: int = 0) -> bool:
    """Tell whether an error leaves open what happened: a connection that broke after it stood, or a time-out."""
    if isinstance(error, NEVER_CONNECTED):
        return False
    if isinstance(error, httpx.TransportError | TimeoutError):
        return True
    return error.__cause__ is not None and depth < MAX_CAUSES and _outcome_unknown(error.__cause__, depth + 1)


def _uncertain(words: str) -> ApplicationError:
    return failure(words, contract.ERROR_UNCERTAIN, final=True)


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


def _error(invocation: ToolInvocation, words: str) -> ToolAnswer:
    block = outputs.result(invocation.call_id, invocation.tool, (TextBlock(words),), state=ResultState.ERROR)
    return ToolAnswer(result=block)


def _client(transport: httpx.AsyncBaseTransport, operation_id: str, timeout: timedelta) -> httpx.AsyncClient:
    """Return a client that sends the operation id with each request, and is as patient as its tool.

    It shares the worker's connections, and must not be closed.
    """

    async def identify(request: httpx.Request) -> None:  # httpx awaits its hooks
        request.headers[IDEMPOTENCY_KEY] = operation_id

    patience = httpx.Timeout(timeout.total_seconds(), connect=CONNECT_SECONDS)
    hooks = {"request": [identify]}
    return httpx.AsyncClient(transport=transport, event_hooks=hooks, timeout=patience, follow_redirects=False)
