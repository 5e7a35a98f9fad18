"""Where large payloads can go: a folder that all machines see, or a bucket of S3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

SCHEME = "s3://"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/-]{0,200}")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of S3, or a part of it; its keys begin with `prefix`, which is empty or ends in a slash."""

    name: str
    prefix: str = ""

    def __str__(self) -> str:
        """Return it as it is written in `PERDURE_STORAGE`."""
        return f"{SCHEME}{self.name}/{self.prefix}".rstrip("/")


StoragePlace: TypeAlias = Path | Bucket


def storage_place(text: str) -> StoragePlace:
    """Read where payloads go: a folder, or `s3://BUCKET` or `s3://BUCKET/PREFIX`.

    Raises:
        ValueError: it begins like a bucket, and is none.
    """
    if not text.startswith(SCHEME):
        if "://" in text:
            msg = "must be a folder or s3://BUCKET/PREFIX"
            raise ValueError(msg)
        return Path(text).expanduser()
    name, _, prefix = text.removeprefix(SCHEME).partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(name) or not _PREFIX.fullmatch(prefix):
        msg = "must name a bucket and a prefix of letters, digits, / and -_.: s3://BUCKET/PREFIX"
        raise ValueError(msg)
    return Bucket(name, f"{prefix}/" if prefix else "")
