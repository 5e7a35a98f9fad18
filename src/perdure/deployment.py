"""Where the deployment folders (`workflows`, `activities`, `worker`) lie, and how they become importable.

They are folders, not a package of ours: a distribution that owned the name `workflows` would collide with others. In
a checkout they stand at its root; a wheel carries them below `perdure/_deploy`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

FOLDERS = frozenset({"workflows", "activities", "worker"})
HERE = Path(__file__).resolve().parent


def deployment_root() -> Path:
    """Return the folder that holds the deployment folders.

    Raises:
        ModuleNotFoundError: they were not installed with this package.
    """
    for root in (HERE / "_deploy", HERE.parent.parent):
        if (root / "workflows" / "session.py").is_file():
            return root
    msg = "perdure was installed without its deployment folders; install its wheel, or work in a checkout"
    raise ModuleNotFoundError(msg)


class _Beside(MetaPathFinder):
    """Finds our modules below a name that a package of somebody else's holds.

    LlamaIndex, for one, installs a package `workflows`, which hides every folder of that name further down the path.
    Asked last, this finder answers only for modules that nobody else has.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Look in the folder of ours that has the package's name."""
        del path
        package, dot, _ = fullname.rpartition(".")
        if not dot or package.split(".")[0] not in FOLDERS:
            return None
        return PathFinder.find_spec(fullname, [str(deployment_root().joinpath(*package.split(".")))], target)


def make_importable() -> None:
    """Make the deployment folders importable, so that nothing of them hides a package of somebody else's."""
    root = str(deployment_root())
    if root not in sys.path:
        sys.path.append(root)
    if not any(isinstance(finder, _Beside) for finder in sys.meta_path):
        sys.meta_path.append(_Beside())


def worker_module(name: str) -> object:
    """Import a module of the deployment's `worker` folder."""
    make_importable()
    return import_module(f"worker.{name}")
