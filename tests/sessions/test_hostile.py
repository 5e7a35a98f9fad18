"""What anybody may send to a session: nothing of it may be lost unseen, fail a workflow task or stop the session."""

from __future__ import annotations

import asyncio
import itertools
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import WorkflowFailureError, WorkflowQueryFailedError
from temporalio.converter import JSONProtoPayloadConverter
from temporalio.service import RPCError

from perdure import (
    Agent,
    App,
    Base64Source,
    DataBlock,
    Effect,
    ModelRequest,
    SessionHandle,
    ToolCall,
    ToolOutput,
    TurnStatus,
    tool,
)
from perdure.connection import connect, data_converter
from perdure.errors import ContextTooLarge, InvalidCommand, SessionNotFound, TurnNotFound
from perdure.storage.directories import Directory
from perdure.testing import ReplyLike, ScriptedModel
from tests.support.world import failed_tasks, fresh, until, update, world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.embedded import EmbeddedServer

KNOWN_SESSION, KNOWN_DATA = "somebody's session", b"\xff\xffno payload"
KNOWN_RESULT = f"{sha256(KNOWN_SESSION.encode()).hexdigest()[:32]}/{sha256(KNOWN_DATA).hexdigest()}"
BAD_QUESTIONS: list[object] = ["text", {"after": -1, "turn_id": {}, "context": "x"}, b"\xff"]
JSON = {"encoding": b"json/plain"}


def echo(request: ModelRequest) -> str:
    return f"heard {request.messages[-1].text}"


def malformed() -> Iterator[tuple[str, Sequence[Payload]]]:
    """Yield signals that no session can accept, of every kind that we know."""
    reference = ExternalStorageReference(driver_name="nobody", claim_data={"key": "value"})
    poisoned = JSONProtoPayloadConverter().to_payload(reference)
    assert poisoned is not None
    tools_result = ExternalStorageReference(driver_name="perdure-directory", claim_data={"name": KNOWN_RESULT})
    forged = JSONProtoPayloadConverter().to_payload(tools_result)
    assert forged is not None
    texts = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"{}",
        b'{"input": 1}',
        b'{"input": ""}',
        b'{"input": "   "}',
        b'{"input": []}',
        b'{"input": [{"type": "tool_use", "id": "1", "name": "t"}]}',
        b'{"input": "x", "unknown": 1}',
        b'{"input": "x", "turn_id": ""}',
        b'{"input": "x", "turn_id": "' + b"t" * 201 + b'"}',
        b'{"input": "x", "turn_id": "\\u0000"}',
        b'{"input": "x", "turn_id": {"a": 1}}',
        b'{"input": "x", "on_busy": "perhaps"}',
        b'{"input": "x", "attributes": {"a": {"b": 1}}}',
        b'{"input": "x", "wait": "for ever"}',
        b'{"input": "x", "input": "y"}',
        b'{"input": NaN}',
        b'{"input": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"input": ' + b"[" * 500 + b"]" * 500 + b"}",
        b"\xff\xfe\x00",
        "{'input': 'x'}".encode("utf-16"),
    ]
    for text in texts:
        yield "submit_turn", [Payload(metadata=JSON, data=text)]
    good = Payload(metadata=JSON, data=b'{"input": "x"}')
    yield "submit_turn", []
    yield "submit_turn", [good, good]
    yield "submit_turn", [good, Payload(metadata={"encoding": b"nonsense"}, data=b"\x00")]
    yield "submit_turn", [Payload(data=b'{"input": "x"}')]
    yield "submit_turn", [Payload(metadata={"encoding": b"binary/plain"}, data=b'{"input": "x"}')]
    yield "submit_turn", [Payload(metadata={"encoding": b"binary/encrypted"}, data=b"\x01")]
    yield "submit_turn", [Payload(metadata={"encoding": b"json/protobuf", "messageType": b"no.Such"}, data=b"{}")]
    yield "submit_turn", [poisoned]
    yield "submit_turn", [forged]
    yield "submit_turn", [Payload(metadata={"encoding": b"json/external-storage-reference"}, data=b"{")]
    yield "no_such_command", [good]
    yield "wait_turn", [Payload(metadata=JSON, data=b'{"turn_id": "t"}')]
    yield "interrupt", [Payload(metadata=JSON, data=b'{"run_id": "never-was"}')]
    yield "interrupt", [Payload(metadata=JSON, data=b'{"partial": "perhaps"}')]
    yield "close", [Payload(metadata=JSON, data=b'{"reason": 1}')]
    yield "x" * 900, [good]
    yield "🦀 \u202e", [good]


async def send(session: SessionHandle, name: str, payloads: Sequence[Payload]) -> None:
    """Send a signal as raw as the server takes it."""
    await session.client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=session.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=session.workflow_id),
            signal_name=name,
            input=Payloads(payloads=payloads),
        )
    )


@pytest.mark.parametrize("with_storage", [True, False])
async def test_a_thousand_malformed_signals_fail_no_workflow_task_and_each_is_counted(
    server: EmbeddedServer, *, with_storage: bool
) -> None:
    """B16, by signal."""
    settings: dict[str, Any] = {} if with_storage else {"storage": None}
    async with world(server, App([Agent("a", ScriptedModel(echo))]), **settings) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        for folder in ("payloads", "results"):  # what a reference can name, whoever wrote it
            if isinstance(served.settings.storage, Path):
                name = Directory(served.settings.storage / folder).put(KNOWN_SESSION, KNOWN_DATA)
                assert name == KNOWN_RESULT
        kinds = list(malformed())
        signals = list(itertools.islice(itertools.cycle(kinds), 1000 if with_storage else len(kinds)))
        room = asyncio.Semaphore(20)

        async def send_one(name: str, payloads: Sequence[Payload]) -> None:
            async with room:
                await send(session, name, payloads)

        await asyncio.gather(*(send_one(name, payloads) for name, payloads in signals))
        assert (await session.ask("still there?")).output == "heard still there?"

        async def all_counted() -> bool:
            return (await session.view()).rejected_count == len(signals)

        await until(all_counted)
        view = await session.view()
        assert len(view.rejections) == 20
        assert all(rejection.error in ("InvalidCommand", "StaleRun") for rejection in view.rejections)
        assert await failed_tasks(session) == 0


async def test_a_workflow_id_that_is_no_sessions_fails_the_start_and_shows_the_form(server: EmbeddedServer) -> None:
    """The error is the workflow's failure, not a task that is tried for ever."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        for workflow_id in (fresh("nonsense"), f"session:a:%61:{fresh()}", f"session::~:{fresh()}"):
            handle = await served.client.start_workflow(
                "AgentSession", {}, id=workflow_id, task_queue=served.settings.task_queue
            )
            with pytest.raises(WorkflowFailureError) as failure:
                await handle.result()
            assert "InvalidSessionKey" in str(failure.value.__cause__)


@pytest.mark.parametrize("start", [{}, None, "nothing"])
async def test_a_session_can_be_started_with_an_empty_input(server: EmbeddedServer, start: object) -> None:
    """By the UI's start button or the command line of Temporal, which send nothing, null or an empty object."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        args = [] if start == "nothing" else [start]
        await served.client.start_workflow(
            "AgentSession",
            args=args,
            id=session.workflow_id,
            task_queue=served.settings.task_queue,
            start_signal="submit_turn",
            start_signal_args=[{"input": "hello", "turn_id": "t"}],
        )
        assert (await session.result("t", timeout=30)).output == "heard hello"

        async def is_listed() -> bool:
            return [info.key async for info in served.sessions.list(user_id="alice")].count(session.key) == 1

        await until(is_listed)


async def test_an_unreadable_start_input_fails_the_workflow_with_a_clear_error(server: EmbeddedServer) -> None:
    """Nobody's session hangs in retries."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        for start in ({"carried": {"nonsense": 1}}, {"seed": 1}, "text"):
            session = served.sessions.session("a", fresh())
            handle = await served.client.start_workflow(
                "AgentSession", start, id=session.workflow_id, task_queue=served.settings.task_queue
            )
            with pytest.raises(WorkflowFailureError) as failure:
                await handle.result()
            assert "InvalidCommand" in str(failure.value.__cause__)


async def test_four_keys_are_four_sessions_and_none_sees_anothers_words(server: EmbeddedServer) -> None:
    """B4."""
    odd = "a/b:c%d ~é🦀..\\"
    async with world(server, App([Agent(odd, ScriptedModel(echo)), Agent("a", ScriptedModel(echo))])) as served:
        name = fresh(odd)
        keys = [
            (odd, name, "alice"),
            (odd, name, "bob"),
            (odd, name, None),
            (odd, name, "__anon__"),
            (odd, name, "~"),
            (odd, name, "x" * 300),
            (odd, f"{name}2", "alice"),
            ("a", name, "alice"),
        ]
        sessions = [served.sessions.session(*key) for key in keys]
        await asyncio.gather(*(session.ask(f"I am {key}") for session, key in zip(sessions, keys, strict=True)))
        for session, key in zip(sessions, keys, strict=True):
            state = await session.state()
            assert [message.text for message in state.context] == [f"I am {key}", f"heard I am {key}"]
            assert (state.agent_id, state.session_id, state.user_id) == key

        async def bobs_are_listed() -> bool:
            return [info.key.user_id async for info in served.sessions.list(odd, "bob")] == ["bob"]

        await until(bobs_are_listed)


async def test_bad_questions_get_answers_and_leave_the_session_alone(server: EmbeddedServer) -> None:
    """Queries are hostile input too."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        workflow = served.client.get_workflow_handle(session.workflow_id)
        for name in ("turn", "context_page", "transcript_page", "agent_state"):
            for bad in BAD_QUESTIONS:
                with pytest.raises(WorkflowQueryFailedError):
                    await workflow.query(name, bad)
        with pytest.raises(TurnNotFound):
            await session.turn("nobody's")
        with pytest.raises(TurnNotFound):
            await session.result("nobody's")
        with pytest.raises(SessionNotFound):
            await served.sessions.session("a", fresh()).interrupt()
        with pytest.raises(InvalidCommand, match="there is no status"):
            _ = [info async for info in served.sessions.list(status="odd")]
        assert (await session.ask("still there?")).status is TurnStatus.COMPLETED


async def test_what_is_too_large_without_external_storage_is_refused_and_the_session_lives(
    server: EmbeddedServer,
) -> None:
    """B77: megabytes in one line, from people, models and tools, where nothing can be stored outside."""

    @tool(effect=Effect.READ)
    def export() -> ToolOutput:
        """Return much."""
        source = Base64Source(media_type="image/png", data="x" * 3_000_000)
        return ToolOutput([DataBlock(source=source)])

    def answer(request: ModelRequest) -> ReplyLike:
        last = request.messages[-1]
        if last.results:
            return last.results[0].text
        return {"talk": "y" * 3_000_000, "export": ToolCall("export")}.get(last.text, "short")

    async with world(server, App([Agent("a", ScriptedModel(answer), tools=[export])]), storage=None) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        with pytest.raises(ContextTooLarge, match="set PERDURE_STORAGE"):
            await session.submit("x" * 3_000_000)
        with pytest.raises(RPCError):
            await update(session, "submit_turn", {"input": "x" * 3_000_000})
        talked = await session.ask("talk", timeout=30)
        assert talked.error is not None
        assert talked.error.type == "ContextTooLarge"
        exported = await session.ask("export", timeout=30)
        assert exported.output.startswith("export ran, but its result of 3000")
        assert (await session.ask("still there?")).output == "short"


async def test_megabytes_are_no_matter_with_external_storage(server: EmbeddedServer) -> None:
    """B77: megabytes in one line."""

    def answer(request: ModelRequest) -> str:
        return "y" * 3_000_000 if request.messages[-1].text == "talk" else f"{len(request.messages[-1].text)}"

    async with world(server, App([Agent("a", ScriptedModel(answer))])) as served:
        session = served.sessions.session("a", fresh())
        assert (await session.ask("x" * 3_000_000, timeout=30)).output == "3000000"
        assert len((await session.ask("talk", timeout=30)).output) == 3_000_000
        assert len((await session.state()).to_json()) > 6_000_000
        assert len([entry async for entry in session.transcript()]) == 8


async def test_megabytes_from_a_client_that_stores_nothing_do_not_stop_a_session_that_does(
    server: EmbeddedServer,
) -> None:
    """Whoever may send an update can't stop a session with it."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        other = SessionHandle(await connect(served.address, converter=data_converter(None)), session.key)
        with pytest.raises(ContextTooLarge):
            await other.submit("x" * 3_000_000)
        with pytest.raises(RPCError):
            await update(other, "submit_turn", {"input": "x" * 3_000_000})
        assert (await session.ask("still there?")).output == "heard still there?"


async def test_many_calls_with_much_in_them_do_not_end_the_workflow(server: EmbeddedServer) -> None:
    """A step's calls are handed out together, and Temporal bounds that."""

    @tool(effect=Effect.READ)
    async def look(text: str) -> str:
        """Look."""
        return f"{len(text)}"

    replies = iter(
        [[ToolCall("look", {"text": "x" * 100_000})] * 60, [ToolCall("look", {"text": "字" * 2_000})] * 60, "ok"]
    )
    model = ScriptedModel(lambda _: next(replies))
    async with world(server, App([Agent("a", model, tools=[look], model_attempts=1)])) as served:
        session = served.sessions.session("a", fresh())
        refused = await session.ask("go", attributes={"tenant": "t" * 2_000}, timeout=60)
        assert refused.error is not None
        assert "arguments of one step" in refused.error.message
        assert (await session.ask("go", attributes={"tenant": "t" * 2_000}, timeout=60)).output == "ok"
        with pytest.raises(InvalidCommand, match="8192 bytes"):
            await session.submit("go", attributes={f"{number}": "t" * 2_000 for number in range(5)})


async def test_a_workflow_under_a_wrong_id_does_not_break_the_list(server: EmbeddedServer) -> None:
    """One mistake is nobody else's trouble."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        wrong = fresh("nonsense")
        await served.client.start_workflow("AgentSession", {}, id=wrong, task_queue=served.settings.task_queue)
        session = served.sessions.session("a", fresh())
        await session.ask("hello")

        async def listed() -> bool:
            return [info.key async for info in served.sessions.list()].count(session.key) == 1

        await until(listed)
