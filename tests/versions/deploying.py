"""Deploying versions of an agent, each of which says which one it is, on the server that tests share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import (
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.service import RPCError

from perdure import Agent, App, Effect, ModelRequest, ToolCall, ToolContext, tool
from perdure.testing import ScriptedModel
from tests.support.world import fresh, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from perdure import SessionHandle
    from perdure.testing import ReplyLike, Served
    from worker.embedded import EmbeddedServer


@dataclass
class Acts:
    """What agents do: payments by version, and work that ends when the test says so."""

    paid: list[str] = field(default_factory=list[str])
    working: asyncio.Event = field(default_factory=asyncio.Event)
    work_ends: asyncio.Event = field(default_factory=asyncio.Event)


def app_of(version: str, acts: Acts) -> App:
    """Return an app whose agent answers with its version, pays after it was approved, and works."""

    @tool(approval="ask")
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        acts.paid.append(version)
        return f"paid on {version}"

    @tool(effect=Effect.IDEMPOTENT)
    async def work(ctx: ToolContext) -> str:
        """Work."""
        acts.working.set()
        await acts.work_ends.wait()
        return f"worked on {version}"

    def answer(request: ModelRequest) -> ReplyLike:
        last = request.messages[-1]
        if last.text in ("pay", "work"):
            return ToolCall(last.text, {})
        heard = last.text or " ".join(result.text for result in last.results)
        return f"{version} heard {heard}"

    return App([Agent("a", ScriptedModel(answer), tools=[pay, work])])


@dataclass
class Deploying:
    """A deployment, with workers of its versions."""

    served: Served
    name: str
    acts: Acts = field(default_factory=Acts)

    async def start(self, version: str | None) -> str:
        """Start a worker of a version, or of none, and return its name."""
        app = app_of(version or "none", self.acts)
        if version is None:
            return await self.served.start_worker(app)
        return await self.served.start_worker(app, deployment=self.name, build_id=version)

    async def make_current(self, version: str | None) -> None:
        """Make a version the current one, or workers without a version."""
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self.served.client.namespace, deployment_name=self.name, build_id=version or ""
        )

        async def done() -> bool:
            try:
                await self.served.client.workflow_service.set_worker_deployment_current_version(request)
            except RPCError:  # the server has not heard of the version's workers yet
                return False
            return True

        await until(done)
        await until(lambda: self._new_sessions_go_to(version))

    async def ramp(self, version: str, percentage: float) -> None:
        """Let a version have some of the new runs."""
        request = SetWorkerDeploymentRampingVersionRequest(
            namespace=self.served.client.namespace,
            deployment_name=self.name,
            build_id=version,
            percentage=percentage,
        )
        await self.served.client.workflow_service.set_worker_deployment_ramping_version(request)

    async def _new_sessions_go_to(self, version: str | None) -> bool:
        """Tell whether the server's task queues know by now which version is current."""
        probe = self.session()
        answer = (await probe.ask("hi")).output
        await probe.close()
        return answer.startswith(version or "none")

    def session(self) -> SessionHandle:
        """Return a session that nobody has used."""
        return self.served.sessions.session("a", fresh())


@asynccontextmanager
async def deploying(server: EmbeddedServer, **settings: object) -> AsyncGenerator[Deploying]:
    """Have a deployment of its own for the length of a test."""
    async with world(server, app_of("none", Acts()), workers=0, **settings) as served:
        yield Deploying(served, fresh("deployment"))


async def version_of(session: SessionHandle) -> str | None:
    """Return the build id that the session is pinned to, as the server knows it."""
    described = await session.client.get_workflow_handle(session.workflow_id).describe()
    info = described.raw_description.workflow_execution_info.versioning_info
    return info.deployment_version.build_id or None


async def run_of(session: SessionHandle) -> str | None:
    """Return the workflow run id of the session's present run."""
    return (await session.client.get_workflow_handle(session.workflow_id).describe()).run_id
