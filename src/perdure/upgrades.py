"""Moving sessions to the worker version that is current: asking those on other versions to go on in a new run.

A session on a worker version stays on it until it goes on in a new run. One that is used does so by itself when it
comes to rest; one that nobody uses runs no code, and has to be asked. Asking is the command `renew`, by update: a
version that does not know it refuses, which leaves no trace.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest, ListWorkerDeploymentsRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from perdure import calls, commands
from perdure.client import list_query
from perdure.commands import Renew
from perdure.errors import InvalidCommand, PerdureError, SessionClosed, SessionNotFound
from perdure.results import RenewReceipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from temporalio.api.deployment.v1 import RoutingConfig, WorkerDeploymentVersion
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowHandle

SIDE_BY_SIDE = 10
"""Sessions that are asked at once. Each costs its old version a decision, and the new one the first of a new run."""

PATIENCE = 10.0
"""Seconds that a session may take to answer, and then to go on. Nobody answers where no worker of its version runs."""

PAUSES = (0.02, 0.05, 0.1, 0.2)
"""Seconds between two looks at whether a session has moved; the last is repeated."""

BEGUN = 4
"""Events in a run whose first decision was taken: only then the server says on which version that was."""

PINNED = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED


class Outcome(StrEnum):
    """What became of a session."""

    MOVED = "moved"
    """It goes on in a new run."""

    ASKED = "asked"
    """Something is in flight; it goes on in a new run when that has ended."""

    STAYS = "stays"
    """It could not be moved."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What became of a session that was on `version`, and why it stays if it does."""

    workflow_id: str
    version: str
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where a deployment's new runs go: to its current version, or its ramping one. Each may be none."""

    name: str
    wanted: tuple[str, ...]

    @property
    def query(self) -> str:
        """The visibility query for the open sessions on its other versions."""
        parts = [
            list_query(None, None, None),
            "ExecutionStatus = 'Running'",
            "TemporalWorkflowVersioningBehavior = 'Pinned'",
            f"TemporalWorkerDeployment = '{self.name}'",
            *(f"TemporalWorkerDeploymentVersion != '{version}'" for version in self.wanted),
        ]
        return " AND ".join(parts)


async def deployments(client: Client, name: str | None = None) -> list[Deployment]:
    """Return the worker deployments of the namespace, or the one of this name.

    Raises:
        InvalidCommand: there is none of this name.
        ServerUnavailable: the server does not say.
    """
    try:
        if name is None:
            return [each async for each in _all(client)]
        described = await client.workflow_service.describe_worker_deployment(
            DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=name)
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            msg = f"there is no worker deployment {name!r}; `temporal worker deployment list` shows what there is"
            raise InvalidCommand(msg) from error
        calls.raise_for(error)
    return [_deployment(name, described.worker_deployment_info.routing_config)]


async def _all(client: Client) -> AsyncIterator[Deployment]:
    token = b""
    while True:
        request = ListWorkerDeploymentsRequest(namespace=client.namespace, next_page_token=token)
        page = await client.workflow_service.list_worker_deployments(request)
        for found in page.worker_deployments:
            yield _deployment(found.name, found.routing_config)
        token = page.next_page_token
        if not token:
            return


def _deployment(name: str, routing: RoutingConfig) -> Deployment:
    versions = (routing.current_deployment_version, routing.ramping_deployment_version)
    return Deployment(name, tuple(_version(each) for each in versions if each.build_id))


def _version(version: WorkerDeploymentVersion) -> str:
    return f"{version.deployment_name}:{version.build_id}"


async def count(client: Client, deployment: Deployment) -> int:
    """Return how many sessions are to be moved, as visibility knows them: up to a moment ago.

    Raises:
        ServerUnavailable: nobody answers.
    """
    try:
        return (await client.count_workflows(deployment.query)).count
    except RPCError as error:
        calls.raise_for(error)


async def upgrade(
    client: Client, deployment: Deployment, *, rate: float = 50, patience: float = PATIENCE
) -> AsyncIterator[Upgrade]:
    """Ask the open sessions on other versions to move, and yield what became of each. Doing it again is harmless.

    At most `rate` sessions are asked in a second. Closing the iterator asks no more.

    Raises:
        ServerUnavailable: nobody answers.
    """
    asking: set[asyncio.Task[Upgrade | None]] = set()
    try:
        async for found in _paced(client, deployment, rate):
            asking.add(asyncio.create_task(_move(client, found, patience)))
            if len(asking) >= SIDE_BY_SIDE:
                done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                for each in _results(done):
                    yield each
        while asking:
            done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for each in _results(done):
                yield each
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _results(done: set[asyncio.Task[Upgrade | None]]) -> Iterator[Upgrade]:
    return (result for task in done if (result := task.result()) is not None)


async def _paced(client: Client, deployment: Deployment, rate: float) -> AsyncIterator[WorkflowExecution]:
    clock = asyncio.get_running_loop()
    at = clock.time()
    try:
        async for found in client.list_workflows(deployment.query):
            await asyncio.sleep(at - clock.time())
            at = max(at, clock.time()) + 1 / rate
            yield found
    except RPCError as error:
        calls.raise_for(error)


async def _move(client: Client, found: WorkflowExecution, patience: float) -> Upgrade | None:
    """Ask one session to move; None when it has moved or ended since visibility was told of it."""
    handle = client.get_workflow_handle(found.id)
    described = await _described(handle)
    if described is None or described.run_id != found.run_id or described.status is not WorkflowExecutionStatus.RUNNING:
        return None
    version = _version_of(described)
    if described.raw_description.workflow_execution_info.versioning_info.versioning_override.behavior == PINNED:
        return Upgrade(found.id, version, Outcome.STAYS, _held(found.id))
    try:
        async with asyncio.timeout(patience):
            receipt = await calls.update(handle, commands.RENEW, Renew(), RenewReceipt)
            if receipt.in_flight:
                return Upgrade(found.id, version, Outcome.ASKED)
    except TimeoutError:
        why = f"nobody answers in {patience:g} seconds: does a worker of version {version} run?"
        return Upgrade(found.id, version, Outcome.STAYS, why)
    except (SessionNotFound, SessionClosed):
        return None
    except PerdureError as error:
        return Upgrade(found.id, version, Outcome.STAYS, str(error))
    return await _arrived(handle, found.run_id, version, patience)


async def _arrived(
    handle: WorkflowHandle[object, object], run_id: str | None, version: str, patience: float
) -> Upgrade:
    """Tell where a session that was asked has gone on."""
    try:
        async with asyncio.timeout(patience):
            described = await _begun_anew(handle, run_id)
    except TimeoutError:
        why = f"it was asked, and no worker has begun its new run in {patience:g} seconds: does one of the version run?"
        return Upgrade(handle.id, version, Outcome.STAYS, why)
    if described is not None and version == _version_of(described):
        why = "its new run began on the same version, since the server was not ready for the other; try again"
        return Upgrade(handle.id, version, Outcome.STAYS, why)
    return Upgrade(handle.id, version, Outcome.MOVED)


def _version_of(described: WorkflowExecutionDescription) -> str:
    return _version(described.raw_description.workflow_execution_info.versioning_info.deployment_version)


def _held(workflow_id: str) -> str:
    return (
        "it is held on its version by an override; take that away with `temporal workflow update-options "
        f"--workflow-id '{workflow_id}' --versioning-override-behavior unspecified`"
    )


async def _begun_anew(
    handle: WorkflowHandle[object, object], run_id: str | None
) -> WorkflowExecutionDescription | None:
    """Wait until a worker has begun another run of a session, and return it; None when the session has ended."""
    pauses = iter(PAUSES)
    pause = PAUSES[0]
    while True:
        described = await _described(handle)
        if described is None or (described.run_id != run_id and described.history_length >= BEGUN):
            return described
        pause = next(pauses, pause)
        await asyncio.sleep(pause)


async def _described(handle: WorkflowHandle[object, object]) -> WorkflowExecutionDescription | None:
    try:
        return await handle.describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        calls.raise_for(error, handle.id)
