"""Sessions and worker versions, on a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.testing import record_history, replay
from tests.support.world import until
from tests.versions.deploying import deploying, run_of, version_of

if TYPE_CHECKING:
    from pathlib import Path

    from perdure import SessionHandle
    from worker.embedded import EmbeddedServer


async def on(session: SessionHandle, version: str | None) -> bool:
    return await version_of(session) == version


async def said(session: SessionHandle) -> list[str]:
    return [message.text for message in (await session.state()).context if message.role == "user"]


async def test_a_session_goes_on_on_its_version_until_it_is_at_rest(server: EmbeddedServer, tmp_path: Path) -> None:
    """B65: the turn that comes after the deploy is still the old version's; then the session continues as new."""
    async with deploying(server) as deployed:
        await deployed.start("v1")
        await deployed.make_current("v1")
        session = deployed.session()
        assert (await session.ask("one")).output == "v1 heard one"
        first = await run_of(session)
        await deployed.start("v2")
        await deployed.make_current("v2")
        assert (await session.ask("two")).output == "v1 heard two"
        await until(lambda: on(session, "v2"))
        assert (await session.ask("three")).output == "v2 heard three"
        assert await said(session) == ["one", "two", "three"]
        await record_history(session, tmp_path / "left.json", run_id=first)
    assert await replay(tmp_path) == 1


async def test_a_session_that_works_goes_on_where_it_is(server: EmbeddedServer) -> None:
    """B65, B45: asked before the deploy and answered behind it: the call runs once, on the version that asked."""
    async with deploying(server) as deployed:
        await deployed.start("v1")
        await deployed.make_current("v1")
        session = deployed.session()
        await session.ask("pay")
        (request,) = (await session.view()).interactions
        first = await run_of(session)
        await deployed.start("v2")
        await deployed.make_current("v2")
        await session.pause()  # a decision of the session, of which the server tells it that another version is current
        await session.unpause()
        assert await run_of(session) == first
        receipt = await session.respond(request.request_id, approve=True)
        result = await session.result(receipt.turn_id)
        assert (result.status, deployed.acts.paid) == ("completed", ["v1"])
        await until(lambda: on(session, "v2"))
        assert (await session.ask("more")).output == "v2 heard more"
        assert deployed.acts.paid == ["v1"]


async def test_a_session_that_waits_for_somebody_moves_when_it_is_asked_to(server: EmbeddedServer) -> None:
    """B65, B45: the question rides along, and is answered on the new version, when the old one is gone."""
    async with deploying(server) as deployed:
        old = await deployed.start("v1")
        await deployed.make_current("v1")
        session = deployed.session()
        await session.ask("pay")
        (request,) = (await session.view()).interactions
        await deployed.start("v2")
        await deployed.make_current("v2")
        assert not (await session.renew()).in_flight
        await until(lambda: on(session, "v2"))
        await deployed.served.stop_worker(old)
        receipt = await session.respond(request.request_id, approve=True)
        assert (await session.result(receipt.turn_id)).status == "completed"
        assert deployed.acts.paid == ["v2"]


async def test_versions_can_be_begun_with_and_given_up_again(server: EmbeddedServer) -> None:
    """B65: a session that began on a worker without a version goes on with one, and without one again."""
    async with deploying(server) as deployed:
        plain = await deployed.start(None)
        session = deployed.session()
        assert (await session.ask("one")).output == "none heard one"
        versioned = await deployed.start("v1")
        assert (await session.ask("two")).output == "none heard two"
        await deployed.make_current("v1")
        await deployed.served.stop_worker(plain)
        assert (await session.ask("three")).output == "v1 heard three"
        await deployed.start(None)
        await deployed.make_current(None)
        assert (await session.ask("four")).output == "v1 heard four"
        await until(lambda: on(session, None))
        await deployed.served.stop_worker(versioned)
        assert (await session.ask("five")).output == "none heard five"
        assert await said(session) == ["one", "two", "three", "four", "five"]


async def test_a_session_without_versions_can_be_asked_for_a_new_run(server: EmbeddedServer) -> None:
    """By signal too, as the temporal program sends it; whatever it knows stays."""
    async with deploying(server) as deployed:
        await deployed.start(None)
        session = deployed.session()
        await session.ask("one")
        first = await run_of(session)
        await session.client.get_workflow_handle(session.workflow_id).signal("renew")

        async def renewed() -> bool:
            return await run_of(session) != first

        await until(renewed)
        assert (await session.ask("two")).output == "none heard two"
        assert (await said(session), (await session.view()).rejected_count) == (["one", "two"], 0)


async def test_a_session_that_acts_moves_when_the_act_has_ended(server: EmbeddedServer) -> None:
    """B65: asked while a call is in flight, it goes on with the same turn on the new version."""
    async with deploying(server) as deployed:
        await deployed.start("v1")
        await deployed.make_current("v1")
        session = deployed.session()
        receipt = await session.submit("work")
        await deployed.acts.working.wait()
        await deployed.start("v2")
        await deployed.make_current("v2")
        assert (await session.renew()).in_flight
        assert await on(session, "v1")
        deployed.acts.work_ends.set()
        assert (await session.result(receipt.turn_id)).output == "v2 heard worked on v1"
        assert await version_of(session) == "v2"


async def test_a_closed_session_is_read_on_the_version_that_it_was_closed_on(server: EmbeddedServer) -> None:
    """B65, B20: when that one's workers are gone, others with the same build id will do."""
    async with deploying(server) as deployed:
        old = await deployed.start("v1")
        await deployed.make_current("v1")
        session = deployed.session()
        await session.ask("one")
        await session.close()
        await deployed.start("v2")
        await deployed.make_current("v2")
        await deployed.served.stop_worker(old)
        await deployed.start("v1")
        assert await said(session) == ["one"]
        assert (await session.ask("anew")).output == "v2 heard anew"
