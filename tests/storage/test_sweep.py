from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.converter import JSONProtoPayloadConverter
from temporalio.service import RPCError

from perdure import Agent, App, Effect, ModelRequest, ToolCall, tool
from perdure.errors import ConfigurationError
from perdure.storage import PAYLOADS, RESULTS
from perdure.storage.directories import Directory, stored
from perdure.storage.references import UnreadableReferenceError, names_in, references
from perdure.storage.sweeping import UNLABELLED, Swept, sweep
from perdure.storage.tenants import FOLDER, register
from perdure.testing import ReplyLike, ScriptedModel
from tests.support.world import failed_tasks, fresh, world

if TYPE_CHECKING:
    from perdure import SessionHandle
    from perdure.testing import Served
    from worker.embedded import EmbeddedServer

DAY = timedelta(days=1)
BIG = 200_000


@tool(effect=Effect.READ)
def much() -> str:
    """Return much."""
    return "r" * 300_000


def answer(request: ModelRequest) -> ReplyLike:
    last = request.messages[-1]
    if last.results:
        return "seen"
    return ToolCall("much") if last.text == "fetch" else f"{len(last.text)} of {len(request.messages)}"


def app() -> App:
    return App([Agent("a", ScriptedModel(answer), tools=[much])])


def root(served: Served) -> Path:
    place = served.settings.storage
    assert isinstance(place, Path)
    return place


def files(served: Served, part: str = PAYLOADS) -> set[Path]:
    directory = Directory(root(served) / part)
    return {file.path for folder in directory.folders("default") for file in stored(folder)}


def make_old(served: Served, days: float = 2) -> None:
    """Have two days pass for all that is stored."""
    then = time.time() - days * 86_400
    for path in root(served).rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


async def swept(served: Served, **options: object) -> Swept:
    return await sweep(served.client, root(served), older_than=DAY, **options)  # type: ignore[arg-type]


async def test_what_a_session_refers_to_stays_and_what_nobody_refers_to_goes(server: EmbeddedServer) -> None:
    """Answers of queries are stored too, and in no history."""
    async with world(server, app(), max_cached_sessions=1, archive_url="none") as served:
        session = served.sessions.session("a", fresh())
        assert (await session.ask("x" * BIG)).output == f"{BIG} of 1"
        await session.state()
        names = await references(served.client, session.workflow_id)
        wanted = {root(served) / PAYLOADS / name.decode() for name in names or ()}
        assert wanted
        garbage = files(served) - wanted
        assert garbage
        young = await swept(served)
        assert (young.removed.total(), young.folders) == (0, 1)
        make_old(served)
        would = await swept(served, dry_run=True)
        assert would.removed["payloads"] == len(garbage)
        assert files(served) == wanted | garbage
        did = await swept(served)
        assert did.removed == would.removed
        assert did.removed["payloads_bytes"] > BIG
        assert did.kept["payloads"] == len(wanted)
        assert files(served) == wanted
        await served.stop_worker()
        await served.start_worker()  # which has to read it all again
        assert (await session.ask("y" * BIG)).output == f"{BIG} of 3"
        assert await failed_tasks(session) == 0


async def test_all_runs_of_a_session_are_looked_into(server: EmbeddedServer) -> None:
    """Those before it was closed and opened again, those that it continued from, and those that were reset."""
    async with world(server, app()) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("x" * BIG)
        await session.close()
        await session.ask("y" * (BIG + 10_000))
        await reset(session)
        await session.ask("z" * (BIG + 20_000))
        names = await references(served.client, session.workflow_id)
        assert names is not None
        sizes = {(root(served) / PAYLOADS / name.decode()).stat().st_size for name in names}
        for number in range(3):
            least = BIG + number * 10_000
            assert any(least < size < least + 5_000 for size in sizes)
        make_old(served)
        await swept(served)
        assert all((root(served) / PAYLOADS / name.decode()).exists() for name in names)


async def reset(session: SessionHandle) -> None:
    """Set a session back to its first decision, as an operator does."""
    await session.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=session.client.namespace,
            workflow_execution={"workflow_id": session.workflow_id},  # type: ignore[arg-type]
            reason="a test",
            workflow_task_finish_event_id=4,
            request_id=fresh(),
        )
    )


async def test_of_a_session_that_temporal_does_not_know_any_more_no_payload_stays(server: EmbeddedServer) -> None:
    """But for what tools returned, which messages elsewhere may refer to: it goes when the session is forgotten."""
    async with world(server, app()) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("x" * BIG)
        await session.ask("fetch")
        assert len(files(served, RESULTS)) == 1
        await session.close()
        workflow = served.client.get_workflow_handle(session.workflow_id)
        await workflow.result()
        make_old(served)
        await delete(served, session)
        report = await swept(served)
        assert report.removed["payloads"] > 0
        assert report.removed["results"] == 0
        assert files(served) == set()
        assert not list(Directory(root(served) / PAYLOADS).folders("default"))
        assert len(files(served, RESULTS)) == 1


async def delete(served: Served, session: SessionHandle) -> None:
    """Delete all runs of a workflow, as their retention does."""
    async with asyncio.timeout(60):
        # One run after the other by their ids: a list may know a run no longer that is still there.
        while await references(served.client, session.workflow_id) is not None:
            with contextlib.suppress(RPCError):  # it is gone already
                run = await served.client.get_workflow_handle(session.workflow_id).describe()
                execution = WorkflowExecution(workflow_id=run.id, run_id=run.run_id)
                request = DeleteWorkflowExecutionRequest(namespace="default", workflow_execution=execution)
                await served.client.workflow_service.delete_workflow_execution(request)
            await asyncio.sleep(0.1)


async def test_sessions_go_on_while_sweeps_run_beside_them(server: EmbeddedServer) -> None:
    """With an age of nothing at all, but for what is on its way at this moment."""
    async with world(server, app(), max_cached_sessions=1, workers=2) as served:
        sessions = [served.sessions.session("a", fresh()) for _ in range(3)]
        done = asyncio.Event()

        async def sweep_on() -> int:
            removed = 0
            while not done.is_set():
                report = await sweep(served.client, root(served), older_than=timedelta(seconds=2))
                removed += report.removed["payloads"]
            return removed

        async def talk(session: SessionHandle) -> None:
            for number in range(8):
                assert (await session.ask("x" * BIG, timeout=60)).output == f"{BIG} of {2 * number + 1}"
                assert len((await session.state()).context) == 2 * number + 2

        sweeping = [asyncio.create_task(sweep_on()) for _ in range(2)]
        await asyncio.gather(*map(talk, sessions))
        await asyncio.sleep(2)  # until the last answers of queries are old
        done.set()
        assert sum(await asyncio.gather(*sweeping)) > 0
        assert [await failed_tasks(session) for session in sessions] == [0, 0, 0]


async def test_other_namespaces_and_folders_of_nobody_are_left_alone(server: EmbeddedServer) -> None:
    async with world(server, app()) as served:
        elsewhere = Directory(root(served) / PAYLOADS, "elsewhere")
        name = elsewhere.put("session:a:~:s", b"data")
        strange = Directory(root(served) / PAYLOADS, "default")
        unlabelled = strange.root / strange.put("session:a:~:s", b"data")
        (unlabelled.parent / ".session").unlink()
        odd = strange.put("no 'session'", b"data")
        make_old(served)
        report = await swept(served)
        assert report.removed.total() == 0
        assert report.left_alone[str(unlabelled.parent)] == UNLABELLED
        assert "can't be searched for" in report.left_alone[str((strange.root / odd).parent)]
        assert elsewhere.get(name) == b"data"


async def test_a_storage_that_two_servers_share_under_one_namespace_is_not_swept(server: EmbeddedServer) -> None:
    """Each would take the other's payloads for garbage. Workers write down where they come from."""
    async with world(server, app()) as served:
        ours = await register(served.client, root(served))
        (folder,) = (root(served) / FOLDER).iterdir()
        (folder / "of-another-server").write_text("{}")
        with pytest.raises(ConfigurationError, match="of-another-server"):
            await swept(served)
        (folder / "of-another-server").unlink()
        await swept(served)
        assert [path.name for path in folder.iterdir()] == [ours]


def event_with(payload: Payload) -> HistoryEvent:
    event = HistoryEvent()
    event.workflow_execution_signaled_event_attributes.input.payloads.append(payload)
    return event


def test_names_are_found_wherever_they_stand() -> None:
    name = f"{'a' * 16}/{'b' * 32}/{'c' * 64}"
    reference = ExternalStorageReference(driver_name="perdure-directory", claim_data={"name": name})
    referring = JSONProtoPayloadConverter().to_payload(reference)
    assert referring is not None
    spoken = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps({"stored": name}).encode())
    legacy = Payload(
        metadata={"encoding": b"json/external-storage-reference"},
        data=json.dumps({"driver_name": "perdure-directory", "driver_claim": {"claim_data": {"name": name}}}).encode(),
    )
    for payload in (referring, spoken, legacy):
        assert names_in(event_with(payload)) == {name.encode()}
    assert names_in(HistoryEvent()) == frozenset()


@pytest.mark.parametrize("data", [b"\xff", b"{}", b"[]", b"encrypted"])
def test_a_reference_that_cant_be_read_stops_the_sweep_of_its_session(data: bytes) -> None:
    """A codec of the user's may have encrypted it."""
    sized = Payload(metadata={"encoding": b"binary/encrypted"}, data=data)
    sized.external_payloads.add().size_bytes = BIG
    marked = Payload(metadata={"__temporal_external_storage_reference": b"true"}, data=data)
    for payload in (sized, marked):
        with pytest.raises(UnreadableReferenceError):
            names_in(event_with(payload))
