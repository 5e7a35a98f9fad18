"""`perdure sweep`, as a person and a timer run it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.storage import PAYLOADS
from perdure.storage.directories import Directory
from tests.cli.programs import inside

if TYPE_CHECKING:
    from perdure.testing import Served


async def test_a_sweep_tells_what_it_would_remove_and_what_it_removed(served: Served) -> None:
    root = served.settings.storage
    assert isinstance(root, Path)
    name = Directory(root / PAYLOADS, "default").put("session:support:~:gone", b"x" * 1500)
    two_days_ago = time.time() - 2 * 86_400
    os.utime(root / PAYLOADS / name, (two_days_ago, two_days_ago))
    told = await inside("sweep", "--dry-run", env=served.env)
    assert told.code == 0, told.err
    assert told.out.startswith("would remove\n")
    assert "1 (1.5 KB)" in told.out
    swept = await inside("sweep", "--older-than", "1d", "--json", env=served.env)
    assert swept.json()["removed"]["payloads"] == {"files": 1, "bytes": 1500}
    assert swept.json()["left_alone"] == {}
    assert not (root / PAYLOADS / name).exists()


async def test_without_a_folder_there_is_nothing_to_sweep(served: Served) -> None:
    for storage, reason in ({"": "PERDURE_STORAGE", "s3://bucket/prefix": "only folders"}).items():
        ended = await inside("sweep", env=served.env | {"PERDURE_STORAGE": storage})
        assert (ended.code, ended.out) == (2, "")
        assert reason in ended.err
