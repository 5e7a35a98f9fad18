"""From any older form of the database to the newest one, whoever else starts at the same time."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import insert, text

from perdure.archive import Archive
from perdure.archive.migrating import VERSION_TABLE, migrate
from perdure.archive.tables import METADATA, SESSIONS, engine_for, make_file, parsed
from perdure.errors import ConfigurationError
from tests.support.entries import fresh_key, numbers, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

PROCESSES = 3

STARTED = """
import asyncio, sys
from perdure.archive import Archive

async def main():
    archive = Archive.at(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    await archive.prepare()
    await archive.aclose()

asyncio.run(main())
"""


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = engine_for(parsed(url))
    make_file(engine)
    yield engine
    engine.dispose()


def migrated_to(engine: Engine, revision: str) -> None:
    """Bring a database to an older form."""
    config = Config()
    config.set_main_option("script_location", "perdure.archive:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def test_an_empty_database_becomes_what_the_code_knows(engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection)
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []


async def test_what_an_older_form_has_is_kept(engine: Engine, url: str) -> None:
    session = fresh_key("alice").workflow_id
    migrated_to(engine, "0001")
    with engine.begin() as connection:
        connection.execute(insert(SESSIONS).values(workflow_id=session, agent_id="a", user_id="alice", session_id="s"))
    archive = Archive.at(url)
    await archive.append(session, [said(1)])
    assert await archive.sessions(user_id="alice") == (session,)
    assert numbers(await archive.entries(session)) == [1]
    await archive.aclose()


async def test_an_older_form_is_read_as_it_is_and_changed_only_by_who_writes(engine: Engine, url: str) -> None:
    """B10."""
    migrated_to(engine, "0001")
    archive = Archive.at(url, create=False)
    assert await archive.entries(fresh_key().workflow_id) == ()
    assert await archive.forgotten(fresh_key().workflow_id) is None
    with engine.connect() as connection:
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == "0001"  # noqa: S608  # our own name
    await archive.forget([fresh_key().workflow_id])
    with engine.connect() as connection:
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() != "0001"  # noqa: S608  # our own name
    await archive.aclose()


async def test_preparing_again_does_nothing(url: str) -> None:
    archive = Archive.at(url)
    session = fresh_key().workflow_id
    await archive.prepare()
    await archive.append(session, [said(1)])
    await archive.prepare()
    other = Archive.at(url)
    await other.prepare()
    assert numbers(await other.entries(session)) == [1]
    await archive.aclose()
    await other.aclose()


async def test_a_database_of_a_newer_version_is_refused_and_stays_as_it_is(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        migrate(connection)
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))  # noqa: S608  # our own name
    archive = Archive.at(url)
    with pytest.raises(ConfigurationError, match=r"newer version of perdure.*9999"):
        await archive.append(fresh_key().workflow_id, [said(1)])
    reader = Archive.at(url, create=False)
    with pytest.raises(ConfigurationError, match="newer version of perdure"):
        await reader.entries(fresh_key().workflow_id)
    await reader.aclose()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM perdure_entries")).scalar_one() == 0
    await archive.aclose()


async def test_archives_of_one_process_that_start_at_once_all_work(url: str) -> None:
    archives = [Archive.at(url) for _ in range(PROCESSES)]
    session = fresh_key().workflow_id
    await asyncio.gather(*(each.append(session, [said(seq)]) for seq, each in enumerate(archives, 1)))
    assert numbers(await archives[0].entries(session)) == [1, 2, 3]
    for each in archives:
        await each.aclose()


async def test_processes_that_start_at_once_all_work(url: str) -> None:
    pipe = asyncio.subprocess.PIPE
    command_line = (sys.executable, "-c", STARTED, url)
    processes = [
        await asyncio.create_subprocess_exec(*command_line, stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout
        assert await process.stdout.readline() == b"ready\n"
    ended = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [(process.returncode, err) for process, (_, err) in zip(processes, ended, strict=True)] == [
        (0, b"")
    ] * PROCESSES
    archive = Archive.at(url)
    await archive.append(fresh_key().workflow_id, [said(1)])
    await archive.aclose()
