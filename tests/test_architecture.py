"""The rooms of the house, and who may look into which: pyproject.toml says it, import-linter holds it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "perdure"
FOLDERS = ("workflows", "activities", "worker")

EDGE = {
    "archive",
    "agents",  # names models and tools, whose contexts have an HTTP client
    "calls",
    "cli",
    "client",
    "connection",
    "deployment",
    "histories",
    "planning",  # reads agents and tools
    "providers",
    "storage",
    "testing",
    "tools",  # a tool's context has an HTTP client
    "upgrades",
}
"""What of perdure touches the world. Every other module is pure, and must be among the pure ones of pyproject.toml."""


def test_no_room_looks_where_it_must_not(capsys: pytest.CaptureFixture[str]) -> None:
    broken = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert not broken, capsys.readouterr().out


def test_every_module_of_the_library_is_either_pure_or_edge() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (pure,) = (contract["source_modules"] for contract in contracts if "never awaits" in contract["name"])
    modules = {path.stem for path in SOURCES.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules - {"__init__", "__main__"} - EDGE == {name.removeprefix("perdure.") for name in pure}


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_we_deploy_is_folders_and_not_packages(folder: str) -> None:
    assert list((ROOT / folder).rglob("*.py"))
    assert not list((ROOT / folder).rglob("__init__.py"))
