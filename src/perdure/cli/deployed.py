"""The modules of the deployment's `worker` folder, imported when they are first used.

`perdure` can't import them at the top: they become importable only when `perdure.deployment` has found their folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.deployment import worker_module

if TYPE_CHECKING:
    from worker import embedded, loading, logs, running, settings, setup
    from worker.server import process

__all__ = ["embedded", "loading", "logs", "process", "running", "settings", "setup"]

PATHS = {"process": "server.process"}
"""Where a module lies that is not at the top of the folder."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a module by its name in `__all__`."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return worker_module(PATHS.get(name, name))
