"""`perdure upgrade`, against versions on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest

from perdure import commands
from perdure.upgrades import count, deployments
from tests.cli.programs import Ended, inside
from tests.support.world import events, until
from tests.versions.deploying import Deploying, deploying, run_of, version_of

if TYPE_CHECKING:
    import pytest

    from perdure import SessionHandle
    from worker.embedded import EmbeddedServer


async def upgrade(deployed: Deploying, *options: str) -> Ended:
    return await inside("upgrade", "--deployment", deployed.name, *options, env=deployed.served.env)


async def seen_as_old(deployed: Deploying, sessions: int) -> None:
    """Wait until visibility knows how many sessions are to be moved."""
    client = deployed.served.client

    async def known() -> bool:
        (deployment,) = await deployments(client, deployed.name)
        return await count(client, deployment) == sessions

    await until(known)


async def deploy(deployed: Deploying, sessions: int) -> list[SessionHandle]:
    """Have sessions at rest on v1, and make v2 current."""
    await deployed.start("v1")
    await deployed.make_current("v1")
    made = [deployed.session() for _ in range(sessions)]
    for session in made:
        await session.ask("one")
    await deployed.start("v2")
    await deployed.make_current("v2")
    return made


async def test_idle_sessions_are_moved(server: EmbeddedServer) -> None:
    """B65: nobody speaks to them; a second time there is nothing left to do."""
    async with deploying(server) as deployed:
        sessions = await deploy(deployed, 3)
        await seen_as_old(deployed, 3)
        ended = await upgrade(deployed, "--rate", "100")
        assert (ended.code, ended.err) == (0, "")
        assert "about 3 sessions on other versions than" in ended.out
        assert "3 sessions moved, 0 will when what is in flight has ended, 0 could not be moved" in ended.out
        for session in sessions:
            await until(lambda session=session: _is_on(session, "v2"))
            assert (await session.ask("two")).output == "v2 heard two"
        await seen_as_old(deployed, 0)
        again = await upgrade(deployed, "--json")
        assert again.json() == {"moved": 0, "asked": 0, "stays": 0, "sessions": []}


async def _is_on(session: SessionHandle, version: str) -> bool:
    return await version_of(session) == version


async def test_a_session_that_acts_is_asked_and_moves_later(server: EmbeddedServer) -> None:
    """B65: between two steps, not in the middle of one."""
    async with deploying(server) as deployed:
        (session,) = await deploy(deployed, 1)
        await seen_as_old(deployed, 1)
        assert (await upgrade(deployed, "--json")).json()["moved"] == 1
        await until(lambda: _is_on(session, "v2"))
        receipt = await session.submit("work")
        await deployed.acts.working.wait()
        await deployed.make_current("v1")
        await seen_as_old(deployed, 1)
        asked = (await upgrade(deployed, "--json")).json()
        assert (asked["moved"], asked["asked"], asked["stays"]) == (0, 1, 0)
        assert asked["sessions"][0]["workflow_id"] == session.workflow_id
        deployed.acts.work_ends.set()
        assert (await session.result(receipt.turn_id)).output == "v1 heard worked on v2"


async def test_what_can_not_be_moved_is_named_with_the_reason(server: EmbeddedServer) -> None:
    """B65: held by an override, and on a version whose workers are gone."""
    async with deploying(server) as deployed:
        held, lost = await deploy(deployed, 2)
        await _hold(held, deployed.name, "v1")
        await deployed.served.stop_worker("worker-1")
        await seen_as_old(deployed, 2)
        ended = await upgrade(deployed, "--patience", "0.5")
        assert ended.code == 1
        assert f"{held.workflow_id} stays on {deployed.name}:v1: it is held on its version by an override" in ended.err
        assert f"{lost.workflow_id} stays on {deployed.name}:v1: nobody answers in 0.5 seconds" in ended.err
        assert "0 sessions moved, 0 will when what is in flight has ended, 2 could not be moved" in ended.out
        await deployed.start("v1")
        await upgrade(deployed)
        await until(lambda: _is_on(lost, "v2"))
        assert await _is_on(held, "v1")


async def test_a_session_that_nobody_takes_up_is_named(server: EmbeddedServer) -> None:
    """B65: no worker of the current version runs; it goes on when one comes, and has lost nothing."""
    async with deploying(server) as deployed:
        (session,) = await deploy(deployed, 1)
        await deployed.served.stop_worker("worker-2")
        await seen_as_old(deployed, 1)
        ended = await upgrade(deployed, "--patience", "4")
        assert ended.code == 1
        assert f"{session.workflow_id} stays on {deployed.name}:v1: it was asked, and no worker has begun" in ended.err
        await deployed.start("v2")
        assert (await session.ask("two")).output == "v2 heard two"


async def _hold(session: SessionHandle, deployment: str, version: str) -> None:
    pinned = VersioningOverride.PinnedOverride(
        behavior=VersioningOverride.PINNED_OVERRIDE_BEHAVIOR_PINNED,
        version=WorkerDeploymentVersion(deployment_name=deployment, build_id=version),
    )
    await session.client.workflow_service.update_workflow_execution_options(
        UpdateWorkflowExecutionOptionsRequest(
            namespace=session.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=session.workflow_id),
            workflow_execution_options=WorkflowExecutionOptions(versioning_override=VersioningOverride(pinned=pinned)),
            update_mask=FieldMask(paths=["versioning_override"]),
        )
    )


async def test_a_version_that_does_not_know_how_to_move_is_left_alone(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the command, which leaves no trace in the session."""
    async with deploying(server) as deployed:
        (session,) = await deploy(deployed, 1)
        await seen_as_old(deployed, 1)
        first = await run_of(session)
        before = len(await events(session))
        monkeypatch.setattr(commands, "BY_NAME", {n: c for n, c in commands.BY_NAME.items() if n != commands.RENEW})
        ended = await upgrade(deployed)
        assert (ended.code, ended.err.count("there is no command 'renew'")) == (1, 1)
        assert (await run_of(session), len(await events(session))) == (first, before)
        assert (await session.view()).rejected_count == 0


async def test_a_deployment_that_is_not_there_is_wrong_usage(server: EmbeddedServer) -> None:
    """Its name may be mistyped."""
    async with deploying(server) as deployed:
        ended = await upgrade(deployed)
        assert ended.code == 1
        assert f"there is no worker deployment '{deployed.name}'" in ended.err
