"""What a worker reads from its environment."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.errors import ConfigurationError
from worker.settings import PREFIX, WorkerSettings, default_home


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


def test_the_environment_is_read_and_arguments_win_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TASK_QUEUE", "from the environment")
    monkeypatch.setenv("PERDURE_TOOL_THREADS", "7")
    settings = WorkerSettings.load(task_queue="given")
    assert (settings.task_queue, settings.tool_threads) == ("given", 7)


def test_an_empty_variable_is_the_same_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TASK_QUEUE", "")
    assert WorkerSettings.load().task_queue == "perdure"


@pytest.mark.parametrize(
    ("text", "seconds"), [("45", 45), ("1.5", 1.5), ("00:01:00", 60), ("PT2M", 120), ("P1DT1S", 86_401)]
)
def test_a_duration_is_seconds_or_a_usual_form(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("PERDURE_HEARTBEAT_TIMEOUT", text)
    assert WorkerSettings.load().heartbeat_timeout == timedelta(seconds=seconds)


@pytest.mark.parametrize("level", ["WARNING", "warning"])
def test_the_log_level_may_be_in_capitals(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv("PERDURE_LOG_LEVEL", level)
    assert WorkerSettings.load().log_level == "warning"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PERDURE_HEARTBEAT_TIMEOUT", "-3"),
        ("PERDURE_HEARTBEAT_TIMEOUT", "nan"),
        ("PERDURE_GRACEFUL_SHUTDOWN", "soon"),
        ("PERDURE_MAX_CACHED_SESSIONS", "0"),
        ("PERDURE_CONTEXT_CACHE_BYTES", "-1"),
        ("PERDURE_LOG_FORMAT", "xml"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_variable_and_the_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"{variable} can't be '{value}'"):
        WorkerSettings.load()


def test_all_wrong_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TOOL_THREADS", "many")
    with pytest.raises(ConfigurationError, match=r"PERDURE_TOOL_THREADS .*; the setting log_format can't be 'xml'"):
        WorkerSettings.load(log_format="xml")


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="colour"):
        WorkerSettings.load(colour="blue")


def test_the_home_is_where_each_system_keeps_a_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_home("linux", {}) == tmp_path / ".local" / "share" / "perdure"
    assert default_home("linux", {"XDG_DATA_HOME": "/data"}) == Path("/data/perdure")
    assert default_home("linux", {"XDG_DATA_HOME": "relative"}) == tmp_path / ".local" / "share" / "perdure"
    assert default_home("darwin", {}) == tmp_path / "Library" / "Application Support" / "perdure"


def test_a_tilde_in_a_folder_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PERDURE_HOME", "~/there")
    monkeypatch.setenv("PERDURE_STORAGE", "~/payloads")
    settings = WorkerSettings.load()
    assert (settings.home, settings.storage) == (tmp_path / "there", tmp_path / "payloads")


def test_every_setting_says_what_it_is_for() -> None:
    for name, field in WorkerSettings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_a_worker_has_a_version_when_both_halves_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """B65: without them it has none, as ever."""
    assert WorkerSettings.load().version is None
    monkeypatch.setenv("PERDURE_DEPLOYMENT", "support")
    with pytest.raises(ConfigurationError, match="set PERDURE_BUILD_ID or give --build-id"):
        _ = WorkerSettings.load().version
    assert WorkerSettings.load(build_id="2f9c1e0").version == ("support", "2f9c1e0")
    monkeypatch.delenv("PERDURE_DEPLOYMENT")
    monkeypatch.setenv("PERDURE_BUILD_ID", "ghcr.io/acme/support@sha256:2f9c1e0")
    with pytest.raises(ConfigurationError, match="only the build id is there: set PERDURE_DEPLOYMENT"):
        _ = WorkerSettings.load().version


@pytest.mark.parametrize("name", ["a.b", "a:b", "__a", " a", "a'b", "", "a\n", "ü", "a" * 101])
def test_a_deployment_has_a_name_that_the_server_takes(name: str) -> None:
    """A worker with another one gets no work, and nobody says so."""
    with pytest.raises(ConfigurationError, match="deployment can't be"):
        WorkerSettings.load(deployment=name)


@pytest.mark.parametrize("build_id", ["__a", " a", "a'b", "", "a\n", "a b", "a" * 129])
def test_a_build_id_is_one_that_the_server_takes(build_id: str) -> None:
    """It stands in queries and commands."""
    with pytest.raises(ConfigurationError, match="build_id can't be"):
        WorkerSettings.load(build_id=build_id)
