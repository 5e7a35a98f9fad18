"""Where the archive is: `PERDURE_ARCHIVE_URL`, or a SQLite file in the home folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.archive.store import Archive

if TYPE_CHECKING:
    from collections.abc import Mapping

ARCHIVE_URL = "PERDURE_ARCHIVE_URL"
HOME = "PERDURE_HOME"

NO_ARCHIVE = "none"
"""What stands in the place of a URL where there is to be no archive."""

FILE = "archive.db"


def default_home(platform: str = sys.platform, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for one user's data: by the XDG rules, or as macOS has it."""
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "perdure"
    data = environ.get("XDG_DATA_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    base = Path(data) if Path(data).is_absolute() else Path.home() / ".local" / "share"
    return base / "perdure"


def archive_url(given: str | None, home: Path) -> str | None:
    """Return the URL of the archive from a setting; None for no archive."""
    given = (given or "").strip()
    if given.lower() == NO_ARCHIVE:
        return None
    return given or f"sqlite:///{home / FILE}"


def archive_from_environment(given: str | None = None) -> Archive | None:
    """Return the archive as a client reads it, by a URL or by the environment. Nothing is made where none is.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    home = os.environ.get(HOME, "").strip()
    url = archive_url(given or os.environ.get(ARCHIVE_URL), Path(home).expanduser() if home else default_home())
    return None if url is None else Archive.at(url, create=False)
