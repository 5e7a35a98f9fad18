"""The model activity: one model call of one step."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
from temporalio import activity

from activities.beating import beating, cancelled_by_session
from activities.contexts import ContextCache, ContextMovedOnError
from activities.correlation import correlated
from activities.failures import failure, stopped
from activities.sizes import too_large
from activities.wanting import AskWanted, check_wanted
from perdure import contract
from perdure.contract import ContextPage, ModelAnswer, ModelCall, PageRequest, Renewal
from perdure.errors import ContextTooLarge
from perdure.models import Delta, Emit, Model, ModelError, ModelResponse, Purpose
from perdure.planning import Planner
from perdure.providers import resolve_model
from perdure.requests import build_request
from perdure.tools import RuntimeContext

if TYPE_CHECKING:
    from temporalio.exceptions import ApplicationError

    from perdure.agents import Agent, App
    from perdure.contract import Limits

MAX_PARTIAL = 100_000
"""Characters of a half answer that are kept; it must fit where nothing is stored outside of history."""


class TurnTimeoutError(Exception):
    """The turn has had its time."""


ReadPage = Callable[[str, str, PageRequest], Awaitable[ContextPage]]
"""Reads a page of a context: workflow id, workflow run id, which page."""


class ModelActivities:
    """Calls the models of an app's agents."""

    def __init__(
        self,
        app: App,
        cache: ContextCache,
        read_page: ReadPage,
        *,
        ask_wanted: AskWanted,
        heartbeat: timedelta,
        resources: Mapping[type, object] | None = None,
        inline_limit: int | None = None,
        renewal: Renewal | None = None,
    ) -> None:
        """Serve `app`; read contexts that are not in `cache` by `read_page`; refuse answers above `inline_limit`.

        Calls that were taken up late are made only if the session, asked by `ask_wanted`, still wants them. The checks
        of tools may use `resources`.
        """
        self._app = app
        self._ask_wanted = ask_wanted
        self._cache = cache
        self._read_page = read_page
        self._heartbeat = heartbeat
        self._resources = resources or {}
        self._inline_limit = inline_limit
        self._renewal = renewal or Renewal()
        self._models = {agent.id: resolve_model(agent.model) for agent in app.agents}

    async def aclose(self) -> None:
        """Close what the models hold open, where they can be closed."""
        for model in self._models.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    @activity.defn(name=contract.MODEL_ACTIVITY)
    async def call_model(self, call: ModelCall) -> ModelAnswer:
        """Make one model call.

        Cancelled by the session it hands back what was streamed so far; by a worker that stops it is tried again
        elsewhere. Every failure says by its type and `non_retryable` whether another attempt helps.
        """
        with correlated(call, f"chat {call.agent_id}", **{"gen_ai.operation.name": "chat"}) as span:
            async with beating():
                await check_wanted(call.operation_id, self._ask_wanted)
                answer = await self._call(call)
            span.set_attribute("gen_ai.usage.input_tokens", answer.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", answer.usage.output_tokens)
            return answer

    async def _call(self, call: ModelCall) -> ModelAnswer:
        agent = self._agent(call.agent_id)
        planner = self._planner(agent, call)
        said: list[str] = []
        try:
            response = await self._in_time(agent, call, said)
            if cancelled_by_session():  # the model did not listen: what it says after that is not wanted
                return planner.partial("".join(said)[:MAX_PARTIAL])
            answer = planner.summary(response) if call.purpose is Purpose.SUMMARY else planner.answer(response)
        except asyncio.CancelledError:
            if cancelled_by_session():
                return planner.partial("".join(said)[:MAX_PARTIAL])
            what = f"a model call of {agent.id}"
            raise stopped(what) from None
        except Exception as error:
            raise _failure(error, agent, planner.limits) from error
        size = too_large(answer, self._inline_limit)
        if size is not None:
            msg = f"the answer of {size} bytes is too large for history; set PERDURE_STORAGE to keep it outside"
            raise failure(msg, ContextTooLarge.__name__, final=True, details=[planner.limits])
        self._remember(call, answer)
        return answer

    def _planner(self, agent: Agent, call: ModelCall) -> Planner:
        context = RuntimeContext(
            agent_id=call.agent_id,
            session_id=call.session_id,
            user_id=call.user_id,
            turn_id=call.turn_id,
            run_id=call.run_id,
            attributes=call.attributes,
            resources=self._resources,
        )
        heartbeat = self._heartbeat.total_seconds()
        return Planner(agent, call, datetime.now(UTC), heartbeat, context, self._inline_limit, self._renewal)

    async def _in_time(self, agent: Agent, call: ModelCall, said: list[str]) -> ModelResponse:
        """Have the model answer, unless it falls silent or the turn's time is over before.

        Raises:
            ModelError: it did not say anything for the agent's `model_timeout`; another attempt may help.
            TurnTimeoutError: the turn has had its time.
        """
        clock = asyncio.get_running_loop().time
        left, silence = _time_left(agent, call), agent.model_timeout.total_seconds()
        turn, quiet = asyncio.timeout(left), asyncio.timeout(silence)
        here = contextvars.copy_context()  # a model may speak from a task, or a context, of its own

        async def emit(delta: Delta) -> None:  # the protocol is asynchronous
            if not here.run(cancelled_by_session):
                said.append(delta.text)
            with contextlib.suppress(RuntimeError):  # a model that goes on after its end
                quiet.reschedule(clock() + silence)

        try:
            async with turn, quiet:
                return await self._complete(agent, self._models[agent.id], call, emit)
        except TimeoutError:
            if turn.expired():
                msg = f"the turn took longer than {_seconds(agent.turn_timeout):g} s, which is what its agent allows"
                raise TurnTimeoutError(msg) from None
            if quiet.expired():
                msg = f"the model said nothing for {silence:g} s"
                raise ModelError(msg, retryable=True) from None
            raise

    def _agent(self, agent_id: str) -> Agent:
        agent = self._app.agent(agent_id)
        if agent is None:
            known = ", ".join(repr(each.id) for each in self._app.agents)
            msg = f"this worker has no agent {agent_id!r}; it has {known}"
            raise failure(msg, contract.ERROR_UNKNOWN_AGENT, final=True)
        return agent

    async def _complete(self, agent: Agent, model: Model, call: ModelCall, emit: Emit) -> ModelResponse:
        info = activity.info()
        workflow_id, workflow_run_id = info.workflow_id or "", info.workflow_run_id or ""

        async def read_page(request: PageRequest) -> ContextPage:
            return await self._read_page(workflow_id, workflow_run_id, request)

        context = await self._cache.load(workflow_id, call, read_page)
        return await model.complete(build_request(agent, call, context.summary, context.messages), emit)

    def _remember(self, call: ModelCall, answer: ModelAnswer) -> None:
        if call.purpose is Purpose.SUMMARY:
            return
        workflow_id = activity.info().workflow_id or ""
        context = self._cache.peek(workflow_id, call.head)
        if context is not None:
            self._cache.keep(workflow_id, context.plus([answer.message]))


def _seconds(time: timedelta | None) -> float:
    return 0 if time is None else time.total_seconds()


def _time_left(agent: Agent, call: ModelCall) -> float | None:
    """Return the seconds that the turn has left; None without a limit. By the server's clock alone, which began it."""
    if agent.turn_timeout is None or call.clock_from is None:
        return None
    taken = activity.info().current_attempt_scheduled_time - call.clock_from
    return max((agent.turn_timeout - taken).total_seconds(), 0)


def _failure(error: Exception, agent: Agent, limits: Limits) -> ApplicationError:
    """Say in Temporal's terms whether another attempt helps."""
    last = activity.info().attempt >= agent.model_attempts
    match error:
        case ModelError():
            kind, final, after = contract.ERROR_MODEL, last or not error.retryable, error.retry_after
        case TurnTimeoutError():
            kind, final, after = contract.TURN_TIMEOUT, True, None
        case httpx.TransportError() | ContextMovedOnError():
            kind, final, after = type(error).__name__, last, None
        case _:
            kind, final, after = type(error).__name__, True, None
    return failure(_words(error), kind, final=final, after=after, cause=error, details=[limits])


def _words(error: Exception) -> str:
    words = str(error) or type(error).__name__
    where = _address(error)
    return f"{words} ({where})" if where else words


def _address(error: Exception) -> str:
    """Return where a request went that did not get through: the host, without anything that may be private."""
    try:
        request = error.request if isinstance(error, httpx.RequestError) else None
    except RuntimeError:  # it was raised without a request
        return ""
    return "" if request is None else f"{request.url.scheme}://{request.url.netloc.decode(errors='replace')}"
