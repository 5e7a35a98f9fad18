"""Where the deployment folders (`workflows`, `activities`, `worker`) lie, and how they become importable.

They are folders, not a package of ours: a distribution that owned the name `workflows` would collide with others. In
a checkout they stand at its root; a wheel carries them below `perdure/_deploy`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

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


def make_importable() -> None:
    """Append the deployment root to the import path, so that nothing of it hides a package of somebody else's."""
    root = str(deployment_root())
    if root not in sys.path:
        sys.path.append(root)


def worker_module(name: str) -> object:
    """Import a module of the deployment's `worker` folder."""
    make_importable()
    return import_module(f"worker.{name}")
