"""The demonstration, from its command to its exit code."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from examples.refunds.processes import ROOT, Program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_demonstration_shows_what_it_promises() -> None:
    """B70: the worker dies after the effect; one request, one payment, and the session says so."""
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.refunds.demo"), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )

    told = (await demo.communicate())[0].decode()

    assert demo.returncode == 0, told
    assert "killed with SIGKILL" in told
    assert told.count("✓") == 8
    assert "✗" not in told


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_told_to_end_the_demonstration_leaves_nothing_behind(tmp_path: Path) -> None:
    async with await Program.start(
        "the demonstration", "examples.refunds.demo", "--data-dir", str(tmp_path), env={}, speaks=True
    ) as demo:
        temporal, refunds = (await demo.line(60), await demo.line(60))
        while not (worker := re.search(r"worker (\d+) started", await demo.line(60))):
            pass
        demo.child.send_signal(signal.SIGTERM)
        await demo.child.communicate()

    with pytest.raises(ProcessLookupError):
        os.kill(int(worker[1]), 0)
    for line in (temporal, refunds):
        port = int(line.strip().rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
