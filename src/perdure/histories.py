"""Recorded histories: what a session lived through, kept as a file, and lived through again on today's code.

A session that was started on older code is replayed by newer code when it wakes. If that would not take the same
decisions, the session is stuck; replaying before a deploy shows it while it is harmless.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from perdure.client import SessionHandle, list_query
from perdure.connection import data_converter, storage_from_environment, threshold_from_environment
from perdure.deployment import make_importable
from perdure.errors import ConfigurationError, PerdureError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.client import WorkflowExecution
    from temporalio.converter import DataConverter

SUFFIX = ".json"
HOST = re.compile(r"\d+@\S+")
"""How the SDK names a worker, and the task queue of its own: process id and host."""

PLACES = frozenset({"stackTrace", "identity"})


class ReplayFailed(PerdureError):  # named like the other errors of perdure
    """Today's code does not live through a recorded history as it was. Deploying it would leave such sessions stuck.

    Use `workflow.patched`, or a new worker version that leaves running sessions on the old one.
    """


async def record_history(handle: SessionHandle, path: Path | str, *, run_id: str | None = None) -> Path:
    """Write the history of a session to a file, as JSON, and return the file's path.

    A session that continued as new has several; `run_id` is Temporal's id of the run that is meant, by default the
    present one.
    """
    workflow = handle.client.get_workflow_handle(handle.workflow_id, run_id=run_id)
    history = await workflow.fetch_history()
    target = Path(path)
    await asyncio.to_thread(_write, target, json.dumps(_impersonal(json.loads(history.to_json())), indent=2))
    return target


def _impersonal(value: object) -> object:
    """Take out what says where a history was lived: paths in stack traces and names of hosts. Replay needs neither."""
    match value:
        case dict():
            items = cast("dict[str, object]", value).items()
            return {name: "" if name in PLACES else _impersonal(item) for name, item in items}
        case list():
            return [_impersonal(item) for item in cast("list[object]", value)]
        case str() if HOST.fullmatch(value):
            return "worker"
        case _:
            return value


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text + "\n", encoding="utf-8")


async def replay(path: Path | str, *, converter: DataConverter | None = None) -> int:
    """Replay a recorded history, or all in a folder, on today's code; return how many there were.

    Large payloads are not in a history: `converter` finds them, by default where `PERDURE_STORAGE` says.

    Raises:
        ReplayFailed: one of them would not go the same way; the message names it and the first difference.
        ConfigurationError: there is nothing to replay, or a file is no history.
    """
    files = await asyncio.to_thread(_files, Path(path))
    converter = converter or data_converter(storage_from_environment(), threshold_from_environment())
    for file in files:
        await _replay(await asyncio.to_thread(_read, file), str(file), converter)
    return len(files)


async def replay_from_server(client: Client, limit: int | None = None) -> int:
    """Replay the sessions that are open on a server, the newest first, at most `limit`; return how many there were.

    Raises:
        ReplayFailed: one of them would not go the same way.
    """
    count = 0
    async for found in _open_sessions(client, limit):
        handle = client.get_workflow_handle(found.id, run_id=found.run_id)
        await _replay(await handle.fetch_history(), found.id, client.data_converter)
        count += 1
    return count


def _open_sessions(client: Client, limit: int | None) -> AsyncIterator[WorkflowExecution]:
    return client.list_workflows(f"{list_query(None, None, None)} AND ExecutionStatus = 'Running'", limit=limit)


async def _replay(history: WorkflowHistory, name: str, converter: DataConverter) -> None:
    make_importable()
    from worker.assembly import workflow_runner  # noqa: PLC0415  # importable only after make_importable
    from workflows.session import AgentSession  # noqa: PLC0415  # importable only after make_importable

    replayer = Replayer(workflows=[AgentSession], workflow_runner=workflow_runner(), data_converter=converter)
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if result.replay_failure is not None:
        msg = f"{name} does not replay on this code: {result.replay_failure}"
        raise ReplayFailed(msg) from result.replay_failure


def _files(path: Path) -> list[Path]:
    files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        msg = f"there is no recorded history at {path}"
        raise ConfigurationError(msg)
    return files


def _read(file: Path) -> WorkflowHistory:
    try:
        history = WorkflowHistory.from_json(file.stem, file.read_text(encoding="utf-8"))
        # A session reads its key from its workflow id, so that the replay must have the id that was recorded.
        started = history.events[0].workflow_execution_started_event_attributes
        return WorkflowHistory(started.workflow_id or file.stem, history.events)
    except Exception as error:
        msg = f"{file} is not a recorded history: {type(error).__name__}"
        raise ConfigurationError(msg) from error
