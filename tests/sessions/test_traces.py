"""What spans say of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure import Agent, App, Effect, ModelError, ToolCall, Usage, tool
from perdure.testing import Reply, ScriptedModel
from tests.support.world import fresh, world

if TYPE_CHECKING:
    from worker.embedded import EmbeddedServer


@tool(effect=Effect.READ)
async def look(what: str) -> str:
    """Look."""
    return f"secret of {what}"


async def test_each_span_carries_run_and_attributes_and_nothing_that_was_said(server: EmbeddedServer) -> None:
    """B66 and B67, for traces."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    replies = [
        ToolCall("look", {"what": "the vault"}),
        Reply("the secret is out", usage=Usage(5, 3)),
        ModelError("a secret refusal"),
    ]
    async with world(server, App([Agent("a", ScriptedModel(replies), tools=[look])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("tell me the secret", run_id="run-1", attributes={"tenant": "acme"})
        await session.ask("another secret", run_id="run-2")
    spans = {(span.name, (span.attributes or {})["perdure.run_id"]): span for span in exporter.get_finished_spans()}
    assert set(spans) == {("chat a", "run-1"), ("execute_tool look", "run-1"), ("chat a", "run-2")}
    answered = spans["chat a", "run-1"].attributes or {}
    looked = spans["execute_tool look", "run-1"].attributes or {}
    refused = spans["chat a", "run-2"].attributes or {}
    assert answered["perdure.attribute.tenant"] == looked["perdure.attribute.tenant"] == "acme"
    assert answered["gen_ai.usage.output_tokens"] == 3
    assert looked["gen_ai.tool.name"] == "look"
    assert refused["error.type"] == "ModelError"
    assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())
