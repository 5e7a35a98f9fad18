"""Histories that sessions have lived still replay on today's code."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, decide as module
from perdure.errors import ConfigurationError
from perdure.operations import readable_id
from perdure.testing import ReplayFailed, ScriptedModel, record_history, replay, serve
from tests.record_histories import FOLDER, LIVES
from tests.sessions.test_turns import echo
from tests.support.world import AT_ONCE, events, fresh, world

if TYPE_CHECKING:
    from pathlib import Path

    from worker.embedded import EmbeddedServer


@pytest.mark.parametrize("name", sorted(LIVES))
async def test_a_recorded_life_replays(name: str) -> None:
    """B63, B64: the agents that these lives were recorded with exist no more."""
    assert await replay(FOLDER / f"{name}.json") == 1


def test_every_history_in_the_folder_is_replayed() -> None:
    """A file that no test reads protects nobody."""
    assert {file.stem for file in FOLDER.iterdir()} == set(LIVES)


async def test_another_order_of_what_the_workflow_does_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """B63: the gate closes."""

    def backwards(turn_id: str, step: int, name: str, index: int) -> str:
        return readable_id(turn_id, step, name, index)[::-1]

    monkeypatch.setattr(module, "readable_id", backwards)
    with pytest.raises(ReplayFailed, match=r"tools\.json does not replay"):
        await replay(FOLDER / "tools.json")


async def test_a_session_can_be_recorded_and_replayed_by_anybody(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test kit's helpers, on a folder, and what they say of files that are no histories."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        await record_history(session, tmp_path / "deep" / "one.json")
    shutil.copy(tmp_path / "deep" / "one.json", tmp_path / "two.json")
    assert await replay(tmp_path) == 2
    (tmp_path / "three.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"three\.json is not a recorded history"):
        await replay(tmp_path)
    with pytest.raises(ConfigurationError, match="no recorded history at"):
        await replay(tmp_path / "nothing")


async def test_a_run_that_continues_another_asks_its_history_for_no_newer_way(tmp_path: Path) -> None:
    """B63: its input says them, since a run whose first task was lost would not replay a mark of its own."""
    config = AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 12}
    async with serve(App([Agent("a", ScriptedModel(echo))]), dynamic_config=config) as served:
        session = served.sessions.session("a", fresh())
        for number in range(6):
            await session.ask(f"hello {number}", timeout=30)
            await session.interrupt()
        first = (await events(session))[0].workflow_execution_started_event_attributes
        assert first.continued_execution_run_id
        assert not any(event.HasField("marker_recorded_event_attributes") for event in await events(session))
        await record_history(session, tmp_path / "continued.json")
    assert await replay(tmp_path) == 1
