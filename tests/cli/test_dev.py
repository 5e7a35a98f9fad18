"""`perdure dev`: a whole setup in one process."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from perdure import Sessions
from tests.cli.programs import Program, inside, started
from worker.embedded import running_server
from worker.server.process import LOOPBACK, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from perdure.testing import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

READY = "Ctrl-C stops"
SESSION = ("-a", "support", "-s", "s")


@asynccontextmanager
async def developing(home: Path, *options: str, env: dict[str, str] | None = None) -> AsyncGenerator[Program]:
    """Run `perdure dev` on a folder, at free ports, until it is ready."""
    ports = ("--port", str(free_port()), "--ui-port", str(free_port()))
    arguments = ("dev", "sample:app", *(ports if "--port" not in options else ()), *options)
    async with started(*arguments, env={"PERDURE_HOME": str(home)} | (env or {})) as program:
        await program.says(READY)
        yield program


async def test_dev_serves_says_where_everything_is_and_stops_all_of_it_on_sigterm(tmp_path: Path) -> None:
    async with developing(tmp_path / "a home") as dev:
        ui = re.search(r"http://\S+", dev.out)
        assert ui
        async with httpx.AsyncClient() as http:
            assert (await http.get(ui.group())).status_code < 400
        command = next(line for line in dev.out.splitlines() if "perdure chat" in line)
        words = shlex.split(command)
        assert words[0] == f"PERDURE_HOME={tmp_path / 'a home'}"
        assert words[1:5] == ["perdure", "chat", "--agent", "support"]

        env = {"PERDURE_HOME": str(tmp_path / "a home")}
        asked = await inside("ask", "large", *SESSION, "--json", env=env)
        assert (asked.code, asked.json()["status"]) == (0, "completed")
        ended = await dev.stop(signal.SIGTERM)
    assert ended.code == 0
    assert "Traceback" not in ended.err
    assert running_server(tmp_path / "a home") is None


async def test_dev_starts_its_server_again_when_it_dies_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    env = {"PERDURE_HOME": str(tmp_path)}
    async with developing(tmp_path) as dev:
        assert (await inside("ask", "before", *SESSION, env=env)).code == 0
        before = running_server(tmp_path)
        assert before
        os.kill(before.server_pid, signal.SIGKILL)
        await dev.complains("the Temporal server is back")
        after = running_server(tmp_path)
        assert after
        assert after.address == before.address
        assert after.server_pid != before.server_pid
        asked = await inside("ask", "after", *SESSION, env=env)
        assert (asked.code, asked.out) == (0, "you said after\n")
        state = await inside("state", *SESSION, "--json", env=env)
        assert len(json.loads(state.out)["context"]) == 4
        assert (await dev.stop(signal.SIGINT)).code == 0


async def test_a_second_dev_uses_the_server_and_takes_it_over_when_the_first_ends(tmp_path: Path) -> None:
    async with developing(tmp_path) as first:
        address = running_server(tmp_path)
        async with developing(tmp_path) as second:
            assert "Ctrl-C stops the worker." in second.out
            assert (await first.stop()).code == 0
            await second.complains("the Temporal server is back")
            assert running_server(tmp_path) is not None
            assert address
            assert address.address in second.out
            asked = await inside("ask", "hi", *SESSION, env={"PERDURE_HOME": str(tmp_path)})
            assert asked.code == 0
            assert (await second.stop()).code == 0


async def test_dev_uses_the_server_that_temporals_variables_name(tmp_path: Path, served: Served) -> None:
    env = {"TEMPORAL_ADDRESS": served.address, "PERDURE_TASK_QUEUE": f"{tmp_path.name}-queue"}
    async with started("dev", "sample:app", env={"PERDURE_HOME": str(tmp_path)} | env) as dev:
        out = await dev.says(READY)
        assert f"--address {served.address} --task-queue {tmp_path.name}-queue" in out
        assert running_server(tmp_path) is None
        assert (await dev.stop()).code == 0


async def test_dev_with_a_port_of_its_own_starts_a_server_and_says_how_to_reach_it_past_the_variables(
    tmp_path: Path, served: Served
) -> None:
    async with developing(tmp_path, env={"TEMPORAL_ADDRESS": served.address}) as dev:
        record = running_server(tmp_path)
        assert record
        assert f"--address {record.address}" in dev.out
        assert (await dev.stop()).code == 0


async def test_dev_starts_a_server_at_a_local_address_where_nobody_answers(tmp_path: Path) -> None:
    address = f"{LOOPBACK}:{free_port()}"
    async with started("dev", "sample:app", env={"PERDURE_HOME": str(tmp_path), "TEMPORAL_ADDRESS": address}) as dev:
        await dev.says(READY)
        async with Sessions.connect(address) as sessions:
            assert (await sessions.session("support", "s").ask("hi")).output == "you said hi"
        assert (await dev.stop()).code == 0


async def test_dev_does_not_start_a_server_in_place_of_one_elsewhere_that_does_not_answer(tmp_path: Path) -> None:
    async with started(
        "dev", "sample:app", "--address", "temporal.invalid:7233", env={"PERDURE_HOME": str(tmp_path)}
    ) as dev:
        ended = await dev.finish()
    assert ended.code == 3
    assert "perdure: no Temporal server at temporal.invalid:7233" in ended.err
    assert "Traceback" not in ended.err


async def test_a_taken_port_is_said_in_a_line(tmp_path: Path, served: Served) -> None:
    port = served.address.rpartition(":")[2]
    async with started("dev", "sample:app", "--port", port, env={"PERDURE_HOME": str(tmp_path)}) as dev:
        ended = await dev.finish()
    assert ended.code == 2
    assert f"port {port}" in ended.err
    assert "Traceback" not in ended.err
