"""The model activity: one model call of one step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
from temporalio import activity

from activities.beating import beating, cancelled_by_session
from activities.contexts import ContextCache, ContextMovedOnError
from activities.correlation import correlated
from activities.failures import failure, stopped
from activities.sizes import too_large
from perdure import contract
from perdure.contract import ContextPage, ModelAnswer, ModelCall, PageRequest
from perdure.errors import ContextTooLarge
from perdure.models import Delta, Model, ModelError, ModelResponse
from perdure.planning import Planner
from perdure.providers import resolve_model
from perdure.requests import build_request

if TYPE_CHECKING:
    from temporalio.exceptions import ApplicationError

    from perdure.agents import Agent, App

MAX_PARTIAL = 100_000
"""Characters of a half answer that are kept; it must fit where nothing is stored outside of history."""

ReadPage = Callable[[str, str, PageRequest], Awaitable[ContextPage]]
"""Reads a page of a context: workflow id, workflow run id, which page."""


class ModelActivities:
    """Calls the models of an app's agents."""

    def __init__(
        self,
        app: App,
        cache: ContextCache,
        read_page: ReadPage,
        heartbeat: timedelta,
        inline_limit: int | None = None,
    ) -> None:
        """Serve `app`; read contexts that are not in `cache` by `read_page`; refuse answers above `inline_limit`."""
        self._app = app
        self._cache = cache
        self._read_page = read_page
        self._heartbeat = heartbeat
        self._inline_limit = inline_limit
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
                answer = await self._call(call)
            span.set_attribute("gen_ai.usage.input_tokens", answer.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", answer.usage.output_tokens)
            return answer

    async def _call(self, call: ModelCall) -> ModelAnswer:
        agent = self._agent(call.agent_id)
        planner = Planner(agent, call, datetime.now(UTC), self._heartbeat.total_seconds(), self._inline_limit)
        said: list[str] = []
        try:
            answer = planner.answer(await self._complete(agent, self._models[agent.id], call, said))
        except asyncio.CancelledError:
            if cancelled_by_session() and "".join(said).strip():
                return planner.partial("".join(said)[:MAX_PARTIAL])
            if cancelled_by_session():
                raise
            what = f"a model call of {agent.id}"
            raise stopped(what) from None
        except Exception as error:
            raise _failure(error, agent) from error
        size = too_large(answer, self._inline_limit)
        if size is not None:
            msg = f"the answer of {size} bytes is too large for history; set PERDURE_STORAGE to keep it outside"
            raise failure(msg, ContextTooLarge.__name__, final=True)
        self._remember(call, answer)
        return answer

    def _agent(self, agent_id: str) -> Agent:
        agent = self._app.agent(agent_id)
        if agent is None:
            known = ", ".join(repr(each.id) for each in self._app.agents)
            msg = f"this worker has no agent {agent_id!r}; it has {known}"
            raise failure(msg, contract.ERROR_UNKNOWN_AGENT, final=True)
        return agent

    async def _complete(self, agent: Agent, model: Model, call: ModelCall, said: list[str]) -> ModelResponse:
        info = activity.info()
        workflow_id, workflow_run_id = info.workflow_id or "", info.workflow_run_id or ""

        async def read_page(request: PageRequest) -> ContextPage:
            return await self._read_page(workflow_id, workflow_run_id, request)

        context = await self._cache.load(workflow_id, call, read_page)

        async def emit(delta: Delta) -> None:  # the protocol is asynchronous
            said.append(delta.text)

        return await model.complete(build_request(agent, call, context.summary, context.messages), emit)

    def _remember(self, call: ModelCall, answer: ModelAnswer) -> None:
        workflow_id = activity.info().workflow_id or ""
        context = self._cache.peek(workflow_id, call.head)
        if context is not None:
            self._cache.keep(workflow_id, context.plus([answer.message]))


def _failure(error: Exception, agent: Agent) -> ApplicationError:
    """Say in Temporal's terms whether another attempt helps."""
    last = activity.info().attempt >= agent.model_attempts
    match error:
        case ModelError():
            final = last or not error.retryable
            return failure(str(error), contract.ERROR_MODEL, final=final, after=error.retry_after, cause=error)
        case httpx.TransportError() | ContextMovedOnError():
            return failure(_words(error), type(error).__name__, final=last, cause=error)
        case _:
            return failure(_words(error), type(error).__name__, final=True, cause=error)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
