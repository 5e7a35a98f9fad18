"""Where the archive is: one answer for workers and clients."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Sessions
from perdure.archive import archive_from_environment
from perdure.errors import ConfigurationError
from perdure.testing import ScriptedModel, serve
from tests.cli.programs import inside
from tests.support.entries import fresh_key, numbers, said
from tests.support.world import fresh, world
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pathlib import Path

    from worker.embedded import EmbeddedServer


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "sqlite:///{home}/archive.db"),
        ("", "sqlite:///{home}/archive.db"),
        ("sqlite:////elsewhere/a.db", "sqlite:////elsewhere/a.db"),
        ("postgres://bob@db/perdure", "postgresql+psycopg://bob@db/perdure"),
    ],
)
def test_workers_and_clients_find_the_same_archive(
    given: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.delenv("PERDURE_ARCHIVE_URL", raising=False)
    if given is not None:
        monkeypatch.setenv("PERDURE_ARCHIVE_URL", given)
    archive, url = archive_from_environment(), WorkerSettings.load().archive
    assert url is not None
    assert str(archive) == expected.format(home=tmp_path)
    assert str(archive_from_environment(url)) == str(archive)


@pytest.mark.parametrize("none", ["none", " None "])
def test_no_archive_is_no_archive_for_both(none: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_ARCHIVE_URL", none)
    assert archive_from_environment() is None
    assert WorkerSettings.load().archive is None


async def test_an_argument_wins_over_the_environment(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_ARCHIVE_URL", "nonsense")
    async with Sessions.connect(server.address, archive_url=f"sqlite:///{tmp_path / 'a.db'}"):
        pass
    with pytest.raises(ConfigurationError, match="PERDURE_ARCHIVE_URL"):
        async with Sessions.connect(server.address):
            pass


async def test_the_command_line_reads_what_only_the_archive_has(server: EmbeddedServer) -> None:
    async with world(server, App([Agent("support", ScriptedModel([]))])) as served:
        key = fresh_key()
        archive = archive_from_environment(served.env["PERDURE_ARCHIVE_URL"])
        assert archive is not None
        assert served.archive is not None
        writer = type(archive).at(archive.url)
        await writer.append(key.workflow_id, [said(1, "long ago"), said(2)])
        await writer.aclose()
        named = ("-a", key.agent_id, "-u", "alice", "-s", key.session_id)
        shown = await inside("transcript", *named, env=served.env)
        assert shown.code == 0, shown.err
        assert "long ago" in shown.out
        plain = await inside("transcript", *named, "--json", "--after", "1", env=served.env)
        assert [json.loads(line)["seq"] for line in plain.out.splitlines()] == [2]
        gone = await inside("transcript", *named, env=served.env | {"PERDURE_ARCHIVE_URL": "none"})
        assert gone.code == 1
        assert numbers(await served.archive.entries(key.workflow_id)) == [1, 2]
        down = await inside(
            "transcript", *named, env=served.env | {"PERDURE_ARCHIVE_URL": "postgresql://h@127.0.0.1:1/d"}
        )
        assert down.code == 3
        assert "PERDURE_ARCHIVE_URL" in down.err
        await archive.aclose()


async def test_the_test_kit_never_uses_the_archive_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tests say has no place among what users said."""
    monkeypatch.setenv("PERDURE_ARCHIVE_URL", f"sqlite:///{tmp_path / 'production.db'}")
    async with serve(App([Agent("a", ScriptedModel(["hi"]))])) as served:
        session = served.sessions.session("a", "s")
        await session.ask("hello")
        await session.close()
        await served.client.get_workflow_handle(session.workflow_id).result()
    assert not (tmp_path / "production.db").exists()


async def test_a_worker_makes_the_tables_before_a_session_waits_for_them(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    file = tmp_path / "folder" / "archive.db"
    async with world(server, App([Agent("a", ScriptedModel(["hi"]))]), archive_url=f"sqlite:///{file}"):
        assert file.exists()


async def test_a_worker_that_can_not_reach_the_archive_says_so_and_serves(
    server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B61: nothing waits for the archive."""
    (tmp_path / "file").write_text("in the way")
    url = f"sqlite:///{tmp_path / 'file' / 'archive.db'}"
    async with world(server, App([Agent("a", ScriptedModel(["hi"]))]), archive_url=url) as served:
        log = logging.getLogger("perdure.worker")
        heard = (log.disabled, log.getEffectiveLevel(), logging.root.manager.disable, logging.root.handlers)
        assert "the archive can't be used now" in caplog.text, heard
        assert (await served.sessions.session("a", fresh()).ask("hello", timeout=60)).output == "hi"
