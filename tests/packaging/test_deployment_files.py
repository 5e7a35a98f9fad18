"""docker-compose.yml and Dockerfile: what they name exists, fits together, and gives nothing away."""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from perdure.cli.root import make_app
from worker.loading import load_app
from worker.settings import PREFIX, WorkerSettings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

SECRET = re.compile("PASSWORD|PWD|KEY$|TOKEN|SECRET|_URL$")
FROM_ENVIRONMENT = re.compile(r"\$\{\w+(:?[-?][^}]*)?\}")
APP_VARIABLES = {"PERDURE_MODEL"}
"""Variables of the example, not of the worker."""


@dataclass(frozen=True)
class Instruction:
    """A line of a Dockerfile, its continuations joined."""

    word: str
    rest: str


def dockerfile() -> list[Instruction]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Instruction(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for instruction in dockerfile():
        if instruction.word == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def of(word: str, instructions: list[Instruction]) -> list[str]:
    return [instruction.rest for instruction in instructions if instruction.word == word]


def default_of(text: str) -> str:
    """Return what Compose puts for `${NAME:-default}` when the variable is not set."""
    match = re.fullmatch(r"\$\{\w+:-(.*)\}", text)
    assert match, text
    return match[1]


# ---- docker-compose.yml ----


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_it_needs_and_that_can_be_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other], other
        else:
            assert how["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"].startswith("on-failure"), f"{other} would never be complete"


@pytest.mark.parametrize("name", SERVICES)
def test_what_keeps_running_is_watched_and_restarted(name: str) -> None:
    service = SERVICES[name]
    runs_to_its_end = service["restart"].startswith("on-failure")
    assert runs_to_its_end or service["restart"] == "unless-stopped"
    assert runs_to_its_end != ("healthcheck" in service)


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" not in service])
def test_every_foreign_image_has_an_exact_version(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:\d+\.\d+(\.\d+)?(-[a-z]+)?", SERVICES[name]["image"])


def test_the_schema_is_made_by_the_version_that_uses_it() -> None:
    versions = {SERVICES[name]["image"].partition(":")[2] for name in ("schema", "namespace", "temporal")}
    assert len(versions) == 1


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name: str) -> None:
    for variable, value in SERVICES[name].get("environment", {}).items():
        assert isinstance(value, str), f"{variable} must be text for Compose"
        if SECRET.search(variable):
            assert FROM_ENVIRONMENT.search(value), variable
    assert "password" not in str(SERVICES[name].get("command", "")).lower()


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_open_to_other_machines(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_configurations_and_folders_exist(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        assert (ROOT / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"]
    for config in SERVICES[name].get("configs", []):
        assert yaml.safe_load(COMPOSE["configs"][config["source"]]["content"])
        assert config["target"] in SERVICES[name]["environment"].values()


@pytest.mark.parametrize("name", ["schema", "namespace"])
def test_the_shell_scripts_are_sound(name: str) -> None:
    (script,) = SERVICES[name]["command"]
    assert not re.search(r"(?<!\$)\$(?![${])", script), "Compose would take a single $ for a variable of its own"
    subprocess.run(["/bin/sh", "-n", "-c", script.replace("$$", "$")], check=True)


@pytest.mark.parametrize("name", ["setup", "worker"])
def test_our_own_services_use_variables_that_are_read(name: str) -> None:
    known = {PREFIX + field.upper() for field in WorkerSettings.model_fields} | APP_VARIABLES
    given = {variable for variable in SERVICES[name]["environment"] if variable.startswith(PREFIX)}
    assert given <= known


def test_what_our_services_run_are_commands_of_the_program() -> None:
    known = set(typer.main.get_group(make_app()).commands)
    ours = [service for service in SERVICES.values() if service["image"].startswith("perdure")]
    checks = [service["healthcheck"]["test"] for service in ours if "healthcheck" in service]
    used = {service["command"][0] for service in ours} | {check[check.index("perdure") + 1] for check in checks}
    assert len(used) > 1
    assert used <= known


def test_the_settings_of_the_worker_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in SERVICES["worker"]["environment"].items():
        monkeypatch.setenv(variable, FROM_ENVIRONMENT.sub("x", value))
    settings = WorkerSettings.load()
    stop = SERVICES["worker"]["stop_grace_period"]
    assert settings.graceful_shutdown.total_seconds() < int(stop.removesuffix("s"))


def test_the_app_that_the_worker_serves_by_default_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    command, app = SERVICES["worker"]["command"]
    assert command == "worker"
    monkeypatch.chdir(ROOT)
    assert load_app(default_of(app)).agents


# ---- Dockerfile ----


def test_what_is_copied_is_there_and_reaches_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    for copy in of("COPY", dockerfile()):
        if not copy.startswith("--from="):
            *sources, _ = copy.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source.split("/")[0] in allowed, source


def test_stages_are_named_before_they_are_used() -> None:
    names: set[str] = set()
    for stage in stages():
        for copy in of("COPY", stage):
            if copy.startswith("--from="):
                assert copy.split()[0].removeprefix("--from=") in names
        if " AS " in of("FROM", stage)[0]:
            names.add(of("FROM", stage)[0].partition(" AS ")[2])


def test_all_stages_have_the_python_that_we_support_at_least() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert {image.split()[0] for image in of("FROM", dockerfile())} == {f"python:{oldest}-slim"}


def test_the_worker_does_not_run_as_root() -> None:
    final = stages()[-1]
    (user,) = of("USER", final)
    assert user not in {"root", "0"}
    assert f" {user} " in " ".join([*of("RUN", final), ""]), "the user is made in the image"
    words = [instruction.word for instruction in final]
    assert words.index("RUN") < words.index("USER") < words.index("ENTRYPOINT")
    assert "RUN" not in words[words.index("USER") :]


def test_the_image_runs_the_command_that_the_wheel_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entrypoint,) = of("ENTRYPOINT", stages()[-1])
    assert yaml.safe_load(entrypoint) == ["perdure"]
    assert "perdure" in project["scripts"]
    (copied,) = (copy for copy in of("COPY", stages()[-1]) if copy.startswith("--from="))
    assert f"PATH={copied.split()[-1]}/bin:$PATH" in of("ENV", stages()[-1])[0]


def test_what_is_installed_is_pinned_and_reaches_the_archive() -> None:
    installs = [run for run in of("RUN", dockerfile()) if "pip install" in run]
    assert all("--require-hashes" in run or "--no-deps" in run for run in installs)
    pinned = (ROOT / "requirements" / "image.txt").read_text()
    driver = SERVICES["worker"]["environment"]["PERDURE_ARCHIVE_URL"].partition("://")[0].partition("+")[2]
    assert re.search(rf"^{driver}==", pinned, re.MULTILINE)
    assert re.search(r"^hatchling==", pinned, re.MULTILINE)


# ---- requirements ----


@pytest.mark.parametrize("name", ["base.txt", "dev.txt", "image.txt"])
def test_requirements_are_versions_and_hashes_and_nothing_else(name: str) -> None:
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        assert re.fullmatch(r"[\w.\[\]-]+==\S+( ; [^:/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


def test_what_the_project_needs_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in ("base.txt", "dev.txt", "image.txt"):
        pinned = (ROOT / "requirements" / name).read_text()
        for dependency in project["dependencies"]:
            wanted = re.split(r"[\[>=;]", dependency)[0]
            assert re.search(rf"^{re.escape(wanted)}==", pinned, re.MULTILINE), f"{wanted}: make requirements"
