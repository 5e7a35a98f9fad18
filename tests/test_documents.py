"""What README and docs show is what can be done: their programs compile, and README's run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import perdure

ROOT = Path(__file__).parents[1]
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
DOCUMENTS = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if PROGRAM.search(path.read_text(encoding="utf-8"))
]


def programs(document: Path) -> list[str]:
    """Return the Python programs of a document, in order."""
    return PROGRAM.findall(document.read_text())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_program_compiles_and_imports_what_there_is(document: Path) -> None:
    assert programs(document)
    for program in programs(document):
        tree = compile(program, document.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = __import__(node.module, fromlist=[""])
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_the_programs_of_the_readme_run_one_after_the_other() -> None:
    """As somebody would type them; what they define is right, what waits for a server is not called."""
    names: dict[str, object] = {name: getattr(perdure, name) for name in perdure.__all__}
    for program in programs(ROOT / "README.md"):
        exec(compile(program, "README.md", "exec"), names)  # noqa: S102  # our own document
    assert isinstance(names["app"], perdure.App)
    assert isinstance(names["ship"], perdure.Tool)
