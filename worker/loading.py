"""Finding the app that a worker serves, by `MODULE:APP`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from perdure.agents import App
from perdure.errors import ConfigurationError


def load_app(target: str) -> App:
    """Import an app: `package.module:attribute`. The current folder is put on the import path, first.

    Raises:
        ConfigurationError: the form, the module or the attribute is wrong; the message says which.
    """
    module_name, separator, attribute = target.partition(":")
    if not (module_name and separator and attribute):
        msg = f"{target!r} does not name an app; the form is MODULE:APP, for example my_module:app"
        raise ConfigurationError(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        msg = f"there is no module {module_name!r} in {here} or among the installed packages"
        raise ConfigurationError(msg) from error
    found: object = getattr(module, attribute, None)
    if not isinstance(found, App):
        what = "nothing of that name" if found is None else f"a {type(found).__name__}"
        msg = f"{target!r} is {what}, not an App; write {attribute} = App(agents=[...]) in {module_name}"
        raise ConfigurationError(msg)
    return found
