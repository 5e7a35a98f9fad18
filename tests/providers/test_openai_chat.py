from __future__ import annotations

import asyncio
import gzip
import logging
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from perdure.errors import ConfigurationError
from perdure.messages import Message, Role, TextBlock, Usage
from perdure.models import Delta, ModelError, ModelRequest, ModelResponse, Purpose, ToolCall, ToolSpec
from perdure.providers import OpenAIChatModel, resolve_model
from perdure.providers.openai_stream import MAX_ANSWER
from perdure.values import EMPTY
from tests.providers.dialects import USAGE, Dialect, Said, call, calling, chunk, events
from tests.providers.raw_server import EVENT_STREAM, Reply, chunked, head, serving, streamed, whole
from tests.support.openai_validator import problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "sk-proj-abcdefgh12345678"
REQUEST = ModelRequest(
    Purpose.ANSWER,
    "Be kind.",
    (Message(id="m-1", role=Role.USER, content=(TextBlock("hi"),)),),
    (ToolSpec("orders.find", "Find an order.", EMPTY),),
    operation_id="5f0c6a3c-0000-5000-8000-000000000000",
)
HELLO = events(
    [chunk({"content": "hé"}), chunk({"content": "llo"}), chunk({}, "stop"), {"choices": [], "usage": USAGE}]
)
RESPONSE = ModelResponse("héllo", usage=Usage(11, 7))


class Shown(list[str]):
    """Keeps what is emitted."""

    def __init__(self) -> None:
        super().__init__()
        self.first = asyncio.Event()

    async def __call__(self, delta: Delta) -> None:
        self.append(delta.text)
        self.first.set()


async def ask(*replies: Reply, **options: Any) -> tuple[ModelResponse, Shown]:
    shown = Shown()
    async with serving(*replies) as server:
        model = OpenAIChatModel("m", server.url, KEY, **options)
        try:
            return await model.complete(REQUEST, shown), shown
        finally:
            await model.aclose()


async def failure(*replies: Reply, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(*replies, **options)
    assert "abcdefgh" not in f"{caught.value!r} {caught.value}"
    return caught.value


@pytest.fixture
async def closing() -> AsyncIterator[list[OpenAIChatModel]]:
    """Close the models that a test puts in."""
    models: list[OpenAIChatModel] = []
    yield models
    for model in models:
        await model.aclose()


async def test_a_streamed_answer_is_shown_as_it_comes_and_returned_whole() -> None:
    """B79: a tool call comes back under the tool's own name."""
    chunks = [chunk({"content": "I "}), chunk({"content": "look"}), calling(call(0, "c", "orders_find", '{"n":1}'))]
    response, shown = await ask(streamed([events([*chunks, chunk({}, "tool_calls")])]))
    assert response == ModelResponse("I look", (ToolCall("orders.find", {"n": 1}, "c"),), finish_reason="tool_calls")
    assert shown == ["I ", "look"]


async def test_the_request_is_one_that_the_provider_accepts() -> None:
    """B78: and it carries the operation's id, so that a provider that looks can tell a repetition."""
    async with serving(streamed([HELLO])) as server:
        model = OpenAIChatModel("gpt-5-mini", server.url + "/", KEY, extra_body={"temperature": 0})
        await model.complete(REQUEST, Shown())
        await model.aclose()
    (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/v1/chat/completions")
    assert received.headers["idempotency-key"] == REQUEST.operation_id
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert problems(received.json) == []
    assert (received.json["model"], received.json["temperature"]) == ("gpt-5-mini", 0)


async def test_what_is_shown_is_what_is_returned() -> None:
    """B77: also when half of a character stands at the end."""
    response, shown = await ask(streamed([events([chunk({"content": "a\ud83d"}), chunk({}, "stop")])]))
    assert "".join(shown) == response.text == "a\ufffd"


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_a_stream_that_comes_in_small_pieces_gives_the_same_answer(size: int) -> None:
    """B77, B79: characters, line ends and marks are cut over reads."""
    body = Dialect(line_end="\r\n", comments=True, byte_order_mark=True).write(Said(("hé", "llo"), ()))
    response, shown = await ask(streamed([body[at : at + size] for at in range(0, len(body), size)]))
    assert response == RESPONSE
    assert "".join(shown) == "héllo"


@pytest.mark.parametrize(
    "content_type", [EVENT_STREAM, "text/event-stream; charset=latin-1", "text/plain", "application/json"]
)
async def test_the_body_and_not_its_label_says_what_it_is(content_type: str) -> None:
    """B79."""
    response, _ = await ask(streamed([HELLO], content_type))
    assert response == RESPONSE


async def test_an_answer_in_one_json_body_is_read() -> None:
    """B79."""
    body = {"choices": [{"message": {"content": "héllo"}, "finish_reason": "stop"}], "usage": USAGE}
    assert await ask(whole(200, body)) == (RESPONSE, ["héllo"])


async def test_a_compressed_answer_is_read() -> None:
    """B79: some proxies compress without being asked."""
    response, _ = await ask(whole(200, gzip.compress(HELLO), EVENT_STREAM, content_encoding="gzip"))
    assert response == RESPONSE
    broken = await failure(whole(200, b"not gzip", EVENT_STREAM, content_encoding="gzip"))
    assert broken.retryable


async def test_a_finished_answer_is_kept_though_the_connection_breaks_behind_it() -> None:
    """B79: a server without `[DONE]` that drops the connection."""
    body = events([chunk({"content": "héllo"}), chunk({}, "stop", usage=USAGE)], done=False)
    response, _ = await ask(Reply(head(transfer_encoding="chunked") + chunked([body]), "end"))
    assert response == RESPONSE


async def test_a_finished_answer_is_returned_though_the_connection_stays_open() -> None:
    """B79: `[DONE]` is the end, whatever the server does then."""
    response, _ = await ask(Reply(head(transfer_encoding="chunked") + chunked([HELLO]), "silence"))
    assert response == RESPONSE


async def test_one_connection_serves_call_after_call(closing: list[OpenAIChatModel]) -> None:
    """B79: a handshake for each step would cost more than many an answer."""
    async with serving(streamed([HELLO])) as server:
        model = OpenAIChatModel("m", server.url, KEY)
        closing.append(model)
        for _ in range(3):
            assert await model.complete(REQUEST, Shown()) == RESPONSE
        await model.aclose()
        assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(head(content_length="999") + events([chunk({"content": "he"})], done=False), "end"),
        Reply(head(transfer_encoding="chunked") + chunked([HELLO[:40]]), "end"),
        Reply(b"", "end"),
        Reply(b"nonsense\r\n\r\n", "end"),
    ],
)
async def test_a_connection_that_breaks_is_a_transport_error(reply: Reply) -> None:
    """B76: which the worker tries again."""
    with pytest.raises(httpx.TransportError):
        await ask(reply)


@pytest.mark.parametrize("done", [True, False])
async def test_a_stream_that_ends_cleanly_without_a_finish_reason_is_cut_off(done: bool) -> None:  # noqa: FBT001  # a case
    """B76."""
    error = await failure(streamed([events([chunk({"content": "he"})], done=done)]))
    assert error.retryable


async def test_a_stream_that_goes_silent_is_a_timeout() -> None:
    """B76: the time-out counts from the last byte."""
    silent = Reply(
        head(transfer_encoding="chunked") + chunked([events([chunk({"content": "he"})], done=False)]), "silence"
    )
    with pytest.raises(httpx.ReadTimeout):
        await ask(silent, timeout=httpx.Timeout(5, read=0.05))


async def test_nobody_at_the_address_is_a_transport_error(closing: list[OpenAIChatModel]) -> None:
    """B76."""
    with socket.socket() as taken:  # bound and not listening, so that nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        model = OpenAIChatModel("m", f"http://127.0.0.1:{taken.getsockname()[1]}/v1", KEY)
        closing.append(model)
        with pytest.raises(httpx.ConnectError):
            await model.complete(REQUEST, Shown())


@pytest.mark.parametrize("begun", [True, False])
async def test_cancelling_closes_the_connection(begun: bool, closing: list[OpenAIChatModel]) -> None:  # noqa: FBT001  # a case
    """B23: before the first byte of the answer, and in the middle of it."""
    data = head(transfer_encoding="chunked") + chunked([events([chunk({"content": "he"})], done=False)])
    async with serving(Reply(data if begun else b"", "silence"), streamed([HELLO])) as server, asyncio.timeout(10):
        model = OpenAIChatModel("m", server.url, KEY)
        closing.append(model)
        shown = Shown()
        task = asyncio.create_task(model.complete(REQUEST, shown))
        await (shown.first if begun else server.asked).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.left.wait()
        assert await model.complete(REQUEST, Shown()) == RESPONSE
        await model.aclose()


async def test_an_error_in_who_listens_closes_the_connection() -> None:
    """B23: and is not taken for one of the provider."""

    async def fail(delta: Delta) -> None:
        raise LookupError(delta.text)

    data = head(transfer_encoding="chunked") + chunked([events([chunk({"content": "he"})], done=False)])
    async with serving(Reply(data, "silence")) as server, asyncio.timeout(10):
        model = OpenAIChatModel("m", server.url, KEY)
        with pytest.raises(LookupError, match="he"):
            await model.complete(REQUEST, fail)
        await server.left.wait()
        await model.aclose()


async def test_a_rate_limit_is_tried_again_after_the_time_that_the_provider_asks_for() -> None:
    """B83."""
    error = await failure(
        whole(429, {"error": {"message": "slow", "code": "rate_limit_exceeded"}}, **{"Retry-After": "7"})
    )
    assert (error.retryable, error.status, error.retry_after) == (True, 429, timedelta(seconds=7))
    assert "429 (rate_limit_exceeded): slow" in str(error)


async def test_a_refusal_is_final_and_shows_no_key() -> None:
    """B79."""
    error = await failure(whole(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}))
    assert (error.retryable, error.status) == (False, 401)
    assert "Incorrect API key provided: [redacted]" in str(error)


async def test_a_refusal_without_end_is_reported_by_its_beginning() -> None:
    """B77: neither read for ever, nor waited for when it goes silent."""
    start = head(400, "text/plain", transfer_encoding="chunked")
    async with asyncio.timeout(10):
        endless = await failure(Reply(start + chunked([b"no! " * 50_000]), "silence"))
    assert "answered 400: no! no!" in str(endless)
    silent = await failure(Reply(start + chunked([b"no! "]), "silence"), timeout=httpx.Timeout(5, read=0.05))
    assert silent.status == 400


async def test_a_page_in_place_of_an_answer_is_a_final_error_that_names_the_setting() -> None:
    """B79: retried when the status says that the server is down."""
    wrong = await failure(whole(200, b"<html>Welcome</html>", "text/html"))
    assert not wrong.retryable
    assert "OPENAI_BASE_URL" in str(wrong)
    assert (await failure(whole(502, b"<html>Bad gateway</html>", "text/html"))).retryable


async def test_a_redirect_is_not_followed() -> None:
    """B79: the key would go along."""
    async with serving(whole(200, {})) as other:
        error = await failure(whole(307, b"", location=other.url))
    assert (error.retryable, error.status, other.requests) == (False, 307, [])


async def test_an_answer_larger_than_any_model_writes_is_a_final_error() -> None:
    """B77."""
    megabyte = events([chunk({"content": "x" * 1024 * 1024})], done=False)
    error = await failure(streamed([megabyte] * (MAX_ANSWER // (1024 * 1024) + 1)))
    assert not error.retryable
    assert "16 MiB" in str(error)


async def test_the_key_and_the_address_are_read_from_the_environment_at_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B79: not at import, where a setting of a test or of a command comes too late."""
    model = resolve_model("openai:gpt-5-mini")
    assert isinstance(model, OpenAIChatModel)
    async with serving(streamed([HELLO])) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f" {server.url}\n")
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        assert await model.complete(REQUEST, Shown()) == RESPONSE
        await model.aclose()
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_a_server_that_needs_no_key_is_sent_none() -> None:
    """B79: nor one that a netrc file holds."""
    async with serving(streamed([HELLO])) as server:
        model = OpenAIChatModel("m", server.url, "")
        assert await model.complete(REQUEST, Shown()) == RESPONSE
        await model.aclose()
    assert "authorization" not in server.requests[0].headers


def test_one_model_serves_several_event_loops() -> None:
    """B79: it is made when a module is imported, and outlives the loops of tests. No loop gets another's connection."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(streamed([HELLO]))) as server,
        asyncio.Runner() as one,
        asyncio.Runner() as two,
    ):
        model = OpenAIChatModel("m", server.url, KEY)
        for runner in (one, two, one):
            assert runner.run(model.complete(REQUEST, Shown())) == RESPONSE
        for runner in (one, two):
            runner.run(model.aclose())
        assert server.connections == 2


async def test_the_key_is_in_no_repr_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """B79."""
    caplog.set_level(logging.DEBUG)
    async with serving(streamed([HELLO])) as server:
        model = OpenAIChatModel("m", server.url, KEY)
        await model.complete(REQUEST, Shown())
        seen = f"{model!r} {vars(model)!r} {caplog.text}"
        await model.aclose()
    assert "chat/completions" in seen
    assert "abcdefgh" not in seen


@pytest.mark.parametrize("key", ["sk-abc\ndefgh", "sk-äbcdefgh", "sk-abc defgh"])
async def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    """B79: httpx would show it in its own error."""
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
        await OpenAIChatModel("m", api_key=key).complete(REQUEST, Shown())
    assert "defgh" not in f"{caught.value}"


@pytest.mark.parametrize(
    "url",
    ["nonsense", "ftp://host/v1", "https://", "http://user:secret@host/v1", "http://[::1", "http://host:99999999/"],
)
def test_an_address_that_is_none_is_refused_without_being_shown(url: str) -> None:
    """B79."""
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL") as caught:
        OpenAIChatModel("m", url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "extra", [{"messages": []}, {"n": 2}, {"tools": None}, {"temperature": float("nan")}, {"stop": {1}}]
)
def test_extra_fields_that_can_not_go_out_are_refused(extra: dict[str, object]) -> None:
    """B78: before a worker starts."""
    with pytest.raises(ConfigurationError, match="extra_body"):
        OpenAIChatModel("m", extra_body=extra)


def test_a_model_is_named_by_its_provider_and_its_name() -> None:
    """B79."""
    named = resolve_model("openai:org/model:free")
    assert isinstance(named, OpenAIChatModel)
    assert named.name == "org/model:free"
    assert resolve_model(named) is named


@pytest.mark.parametrize("wrong", ["", "gpt-5-mini", "openai:", "openai: ", "other:model", 5])
def test_a_model_that_nobody_knows_is_refused_with_the_forms(wrong: Any) -> None:
    """B79."""
    with pytest.raises(ConfigurationError, match="openai:NAME"):
        resolve_model(wrong)
