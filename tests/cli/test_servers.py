"""Finding a server, doing without one, and preparing one."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from temporalio.client import Client

from perdure.cli.places import find_place, same_address
from tests.cli.programs import PATIENCE, inside, perdure, started
from tests.support.world import fresh, until
from worker.embedded import EmbeddedServer
from worker.server.process import LOOPBACK, find_binary, free_port
from worker.server.record import ServerRecord, try_lock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from perdure.testing import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSION = ("-a", "support", "-u", "alice", "-s")


@asynccontextmanager
async def bare_server() -> AsyncGenerator[str]:
    """Run a server that nobody has prepared for sessions."""
    port = free_port()
    command = (find_binary(), "server", "start-dev", "--headless", "--ip", LOOPBACK, "--port", str(port))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )

    async def answers() -> bool:
        try:
            await Client.connect(f"{LOOPBACK}:{port}")
        except RuntimeError:
            return False
        return True

    try:
        await until(answers, patience=PATIENCE)
        yield f"{LOOPBACK}:{port}"
    finally:
        process.kill()
        await process.wait()


async def test_without_a_server_a_command_exits_with_3_and_says_how_to_start_one() -> None:
    ended = await perdure("view", *SESSION, "s", "--address", f"{LOOPBACK}:{free_port()}")
    assert (ended.code, ended.out) == (3, "")
    assert "(Connection refused)" in ended.err
    assert "perdure dev" in ended.err
    assert "TEMPORAL_ADDRESS" in ended.err
    assert ended.err.count("\n") == 1


async def test_a_server_that_is_not_set_up_is_told_apart_and_mended_by_setup() -> None:
    async with bare_server() as address:
        env = {"TEMPORAL_ADDRESS": address}
        asked = await inside("ask", "hi", *SESSION, "s", env=env)
        served = await perdure("worker", "sample:app", env=env)
        assert [asked.code, served.code] == [3, 3]
        assert "perdure setup" in asked.err
        assert "perdure setup" in served.err
        assert "Traceback" not in asked.err + served.err

        done, again = await inside("setup", env=env), await inside("setup", env=env)
        assert (done.code, again.code) == (0, 0)
        assert "registered PerdureAgent" in done.out
        assert "has all that sessions need" in again.out


async def test_a_command_without_a_worker_says_so_and_goes_on_waiting(served: Served) -> None:
    env = served.env | {"PERDURE_TASK_QUEUE": fresh("nobody")}
    async with started("ask", "hi", *SESSION, fresh(), env=env) as asking:
        await asking.complains(f"no worker has answered on task queue '{env['PERDURE_TASK_QUEUE']}'")
        async with started("worker", "sample:app", env=env) as worker:
            ended = await asking.finish()
            assert (ended.code, ended.out) == (0, "you said hi\n")
            assert (await worker.stop(signal.SIGINT)).code == 0


async def test_a_worker_stops_in_order_on_sigterm(served: Served) -> None:
    env = served.env | {"PERDURE_TASK_QUEUE": fresh("queue")}
    async with started("worker", "sample:app", env=env) as worker:
        await worker.complains("worker started")
        ended = await worker.stop(signal.SIGTERM)
    assert ended.code == 0
    assert "Traceback" not in ended.err


async def test_a_worker_that_is_told_to_stop_while_it_starts_stops(served: Served) -> None:
    async with started("worker", "starting:app", env=served.env) as worker:
        await worker.says("starting")
        assert (await worker.stop(signal.SIGTERM)).code == 0


def place_with(home: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Let only these variables, and the home folder, say where a server is."""
    for name in [each for each in os.environ if each.startswith(("TEMPORAL_", "PERDURE_"))]:
        monkeypatch.delenv(name)
    given = {"TEMPORAL_CONFIG_FILE": os.devnull, "PERDURE_HOME": str(home)} | variables
    for name, value in given.items():
        monkeypatch.setenv(name, value)


async def test_the_server_of_the_home_folder_is_found_with_its_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_with(tmp_path, monkeypatch)
    record = ServerRecord(owner_pid=os.getpid(), server_pid=1, address=f"{LOOPBACK}:12345", namespace="ns")
    with try_lock(tmp_path) or pytest.fail("the folder is locked"):
        record.write(tmp_path)
        found = find_place(None, None, "q")
        assert (found.address, found.namespace) == (record.address, "ns")
        assert found.storage == tmp_path / "storage"

        elsewhere = find_place("temporal.example.com:7233", None, "q")
        assert (elsewhere.address, elsewhere.storage) == ("temporal.example.com:7233", None)

        monkeypatch.setenv("TEMPORAL_ADDRESS", "localhost:12345")
        assert find_place(None, None, "q").storage == tmp_path / "storage"
        monkeypatch.setenv("TEMPORAL_ADDRESS", "localhost:12346")
        assert find_place(None, None, "q").storage is None


async def test_the_record_of_a_server_that_has_ended_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_with(tmp_path, monkeypatch)
    ServerRecord(owner_pid=os.getpid(), server_pid=1, address=f"{LOOPBACK}:12345").write(tmp_path)
    assert find_place(None, None, "q").address is None


async def test_this_machine_has_many_names() -> None:
    assert same_address("localhost:7233", "127.0.0.1:7233")
    assert not same_address("localhost:7233", "localhost:7234")
    assert not same_address("example.com:7233", "localhost:7233")


async def test_commands_and_a_second_worker_find_an_embedded_server(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, headless=True):
        env = {"PERDURE_HOME": str(tmp_path)}
        async with started("worker", "sample:app", env=env) as worker:
            asked = await inside("ask", "large", *SESSION, "s", "--json", env=env)
            assert asked.json()["status"] == "completed"
            assert any((tmp_path / "storage").iterdir())
            replayed = await inside("replay", "--from-server", env=env)
            assert (replayed.code, replayed.err) == (0, "")
            assert (await worker.stop()).code == 0
