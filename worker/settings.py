"""What a worker can be told from outside: environment variables with the prefix `PERDURE_`.

The connection to Temporal is not here: it is read as every Temporal program reads it, from `TEMPORAL_ADDRESS`,
`TEMPORAL_NAMESPACE`, `TEMPORAL_PROFILE` and their like.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from perdure.archive import archive_url, default_home
from perdure.contract import TASK_QUEUE, Renewal
from perdure.errors import ConfigurationError
from perdure.storage.places import StoragePlace, storage_place

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "PERDURE_"

DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/@+-]{0,99}")
BUILD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
"""What may name a worker version. A worker whose names the server refuses gets no work and hears of no error; and a
search attribute, which holds both, has 255 characters in some databases."""

KIB = 1024
MIB = 1024 * KIB


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta():
        msg = "must be longer than nothing"
        raise ValueError(msg)
    return value


def _seconds(value: object) -> object:
    """Take a number in a string for seconds; pydantic does so only for numbers."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _deployment(value: str) -> str:
    if not DEPLOYMENT.fullmatch(value):
        msg = "it has at most 100 letters, digits and any of _ - / @ +, and begins with one of the former"
        raise ValueError(msg)
    return value


def _build_id(value: str) -> str:
    if not BUILD_ID.fullmatch(value):
        msg = "it has at most 128 letters, digits and any of . : _ - / @ +, and begins with one of the former"
        raise ValueError(msg)
    return value


Duration = Annotated[timedelta, BeforeValidator(_seconds), AfterValidator(_positive)]
"""Given as seconds (`30`, `1.5`), as `00:00:30`, or in the ISO 8601 form `PT30S`."""

Folder = Annotated[Path, AfterValidator(Path.expanduser)]


def _place(value: object) -> object:
    return storage_place(str(value)) if isinstance(value, str | Path) else value


Storage = Annotated[StoragePlace, BeforeValidator(_place)]


class WorkerSettings(BaseSettings):
    """The settings of one worker process. Arguments win over the environment, and that over the defaults.

    Make it with `load`, whose error names the variable to mend.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, validate_default=False
    )

    home: Folder = Field(
        default_factory=default_home,
        description="Folder for the data of the embedded server, the archive and stored payloads.",
    )
    task_queue: str = Field(
        default=TASK_QUEUE,
        min_length=1,
        description="Temporal task queue that the worker serves; clients must use the same.",
    )
    deployment: Annotated[str, AfterValidator(_deployment)] | None = Field(
        default=None,
        description="Name of the Temporal worker deployment that the worker is a version of; goes with the build id. "
        "Unset: the worker has no version.",
    )
    build_id: Annotated[str, AfterValidator(_build_id)] | None = Field(
        default=None,
        description="What names the worker's version in its deployment, such as a commit. Sessions stay on the version "
        "that they began on until they go on in a new run; docs/upgrades.md says how to move them.",
    )
    heartbeat_timeout: Duration = Field(
        default=timedelta(seconds=30),
        description="How long a tool or model call may be silent before its worker counts as lost. Waiting tools are "
        "heard automatically; the time bounds how late the loss of a machine is noticed.",
    )
    graceful_shutdown: Duration = Field(
        default=timedelta(seconds=30),
        description="How long calls in flight may go on when the worker is asked to stop, before they are cancelled.",
    )
    max_cached_sessions: PositiveInt = Field(
        default=1000,
        description="Sessions kept in memory between their turns; others are replayed from history when they wake.",
    )
    max_concurrent_sessions: PositiveInt = Field(
        default=100,
        description="Sessions that may take a decision at the same moment. Decisions take milliseconds.",
    )
    max_concurrent_models: PositiveInt = Field(
        default=100,
        description="Model calls that may be in flight in this process.",
    )
    max_concurrent_tools: PositiveInt = Field(
        default=100,
        description="Tool calls that may be in flight in this process.",
    )
    tool_threads: PositiveInt = Field(
        default=32,
        description="Threads for tools that are plain functions (`def`, not `async def`).",
    )
    context_cache_bytes: int = Field(
        default=256 * MIB,
        ge=0,
        description="Memory for the contexts of recent sessions, in bytes. A context that is not there is read from "
        "its session again. 0 keeps none.",
    )
    archive_url: str | None = Field(
        default=None,
        description="SQLAlchemy URL of the transcript archive, one for all workers. Unset: SQLite in the home folder, "
        "for workers on one machine. `none`: no archive.",
    )
    storage: Storage | None = Field(
        default=None,
        description="Where payloads go that are too large for history: a folder that all workers and clients see, or "
        "`s3://BUCKET/PREFIX` (`pip install 'perdure[s3]'`, and AWS's own variables or profile); the same for all. "
        "In a folder, `perdure sweep` takes away what nothing refers to any more, and tool results above 128 Ki "
        "characters are kept whole, beside their shortened form; in a bucket neither. Unset: large payloads stay in "
        "history, which takes 1.9 MB of each.",
    )
    storage_threshold: PositiveInt = Field(
        default=128 * KIB,
        description="Payloads from this size on, in bytes, go to the storage, if there is one. Clients may have "
        "another one than workers.",
    )
    renew_events: PositiveInt = Field(
        default=2_000,
        description="Events of history from which a session begins a new run at its next step, with all that it is. "
        "Temporal ends a workflow at 51,200; less makes waking cheaper, and carries the session more often.",
    )
    renew_bytes: PositiveInt = Field(
        default=8 * MIB,
        description="The same in bytes, beyond what the run began with. Temporal ends a workflow at 50 MB.",
    )
    renew_idle_events: PositiveInt = Field(
        default=250,
        description="Events from which a session that falls idle begins a new run, so that a worker that wakes it up "
        "later has little to replay; later if what it carries is large beside them, at twice as many in any case.",
    )
    log_format: Annotated[Literal["json", "console"], BeforeValidator(_lower)] = Field(
        default="console",
        description="How log lines are written: `json` for machines, `console` for people.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info",
        description="The least severe log lines that are written.",
    )

    @property
    def archive(self) -> str | None:
        """The archive's URL; None for no archive."""
        return archive_url(self.archive_url, self.home)

    @property
    def renewal(self) -> Renewal:
        """When sessions begin a new run."""
        idle = min(self.renew_idle_events, self.renew_events)
        return Renewal(events=self.renew_events, size=self.renew_bytes, idle_events=idle, idle_most=2 * idle)

    @property
    def version(self) -> tuple[str, str] | None:
        """The worker's version, as deployment and build id; None for a worker without one.

        Raises:
            ConfigurationError: one of the two is missing.
        """
        if self.deployment is None and self.build_id is None:
            return None
        if self.deployment is None or self.build_id is None:
            given, missing = ("build id", "DEPLOYMENT") if self.deployment is None else ("deployment", "BUILD_ID")
            msg = (
                f"a worker version has a deployment and a build id, and only the {given} is there: set "
                f"{PREFIX}{missing} or give --{missing.lower().replace('_', '-')}"
            )
            raise ConfigurationError(msg)
        return self.deployment, self.build_id

    @classmethod
    def load(cls, **given: Any) -> Self:  # noqa: ANN401  # the fields check what they get
        """Read the settings; `given` wins over the environment.

        Raises:
            ConfigurationError: a value can't be used. The message names the variable, or the argument.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            msg = "; ".join(_explain(str(part["loc"][0]), part["msg"], given) for part in error.errors())
            raise ConfigurationError(msg) from None


def _explain(name: str, problem: str, given: Mapping[str, object]) -> str:
    problem = problem.removeprefix("Value error, ")
    if name in given:
        return f"the setting {name} can't be {given[name]!r}: {problem}"
    variable = PREFIX + name.upper()
    return f"{variable} can't be {os.environ.get(variable, '')!r}: {problem}"
