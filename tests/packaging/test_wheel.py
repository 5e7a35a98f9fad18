"""What we publish: one import name, with the deployment folders as files below it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("workflows", "activities", "worker")
SOURCES = ("src", *FOLDERS, "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, without the network, once for all tests here."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        else:
            shutil.copy(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=copy, check=True)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_one_import_name(files: set[str]) -> None:
    assert {name for name in {file.split("/")[0] for file in files} if not name.endswith(".dist-info")} == {"perdure"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_deployment_folder_is_there_whole(files: set[str], folder: str) -> None:
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py")}
    assert written
    assert {f"perdure/_deploy/{path}" for path in written} <= files


def test_the_archive_brings_its_migrations(files: set[str]) -> None:
    scripts = ROOT / "src" / "perdure" / "archive" / "migrations"
    written = {
        path.relative_to(ROOT / "src").as_posix() for path in scripts.rglob("*.*") if path.suffix in (".py", ".mako")
    }
    assert len(written) > 3
    assert written <= files


def test_what_is_not_for_users_is_left_out(files: set[str]) -> None:
    assert not [file for file in files if "test_" in file or "/tests/" in file or "__pycache__" in file]


def test_type_checkers_license_and_command_find_what_they_look_for(wheel: Path, files: set[str]) -> None:
    (metadata,) = {file.split("/")[0] for file in files if file.endswith(".dist-info/METADATA")}
    assert {"perdure/py.typed", f"{metadata}/licenses/LICENSE"} <= files
    scripts = ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        scripts.read_string(archive.read(f"{metadata}/entry_points.txt").decode())
    assert scripts["console_scripts"]["perdure"] == "perdure.cli:main"


USE = """
import sys
import perdure
from perdure.deployment import deployment_root, make_importable

from perdure.archive import Archive
import asyncio, pathlib, tempfile

with tempfile.TemporaryDirectory() as folder:
    archive = Archive.at(f"sqlite:///{folder}/archive.db")
    asyncio.run(archive.prepare())
    assert asyncio.run(archive.sessions(user_id=None)) == ()
    asyncio.run(archive.aclose())

make_importable()
import activities.model, worker.settings, workflows.session

for module in (perdure, activities.model, worker.settings, workflows.session):
    assert module.__file__.startswith(sys.argv[1]), module.__file__
"""


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--no-index")
    _run(*install, "--target", folder, wheel)
    return folder


@pytest.mark.slow
def test_the_installed_wheel_brings_its_deployment_folders(site: Path) -> None:
    _run(sys.executable, "-c", USE, site, folder=site)


@pytest.mark.slow
def test_a_package_of_the_same_name_from_another_distribution_does_no_harm(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "workflows"
    other.mkdir()
    (other / "__init__.py").write_text("THEIRS = True\n")
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(site)!r}]"
    _run(sys.executable, "-c", f"{path}\n{USE}\nassert workflows.THEIRS", site, folder=tmp_path)


def _run(*command: str | Path, folder: Path = ROOT) -> None:
    subprocess.run(command, cwd=folder, check=True)
