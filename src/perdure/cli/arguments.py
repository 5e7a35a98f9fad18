"""Arguments of commands, read as what they mean."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

from perdure.cli.failures import WrongUsage

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_text(text: str) -> str:
    """Return the text of an argument; `-` stands for standard input, whatever bytes come from there."""
    if text != "-":
        return text
    return sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")


def turn_name(turn_id: str | None) -> str:
    """Return the turn's name, so that it is known here whatever becomes of the answer."""
    return uuid.uuid4().hex if turn_id is None else turn_id


def pairs(attributes: list[str] | None) -> Mapping[str, str]:
    """Read `KEY=VALUE` arguments.

    Raises:
        WrongUsage: one has no `=`, or no key.
    """
    found: dict[str, str] = {}
    for item in attributes or ():
        key, equals, value = item.partition("=")
        if not (key and equals):
            msg = f"--attribute takes KEY=VALUE, not {item!r}"
            raise WrongUsage(msg)
        found[key] = value
    return found
