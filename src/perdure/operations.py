"""Operations: single model and tool calls, how their ids are made, and what may be done when an outcome is unknown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from perdure.values import JsonValue, freeze

NAMESPACE = bytes.fromhex("5f0c6a3c2c0b5b0e9d6b6f2b8a7c41d5")
"""The UUID namespace of our ids. Changing it would make every operation in flight look new to the ledgers."""

MODEL = "model"
"""What stands in place of a tool's name in the readable id of a model call."""


class Effect(StrEnum):
    """What a tool does to the world, which decides what may happen when its outcome is unknown.

    A `read` changes nothing and is retried freely. An `idempotent` tool may be sent again with the same operation id.
    A `once` tool is never started again after it may have started: its outcome is uncertain until it is reconciled.
    """

    READ = "read"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


def derived_id(*parts: str) -> str:
    """Return a UUID, version 5 (RFC 9562), made of these parts: equal parts give equal ids, different ones different.

    Written out because the core may not import `uuid`, which brings a clock and randomness along.
    """
    name = "".join(f"{len(part)}:{part}" for part in parts)
    raw = bytearray(hashlib.sha1(NAMESPACE + name.encode(), usedforsecurity=False).digest()[:16])
    raw[6] = (raw[6] & 0x0F) | 0x50
    raw[8] = (raw[8] & 0x3F) | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def operation_id(workflow_id: str, turn_id: str, step: int, index: int | None, *, first_run_id: str = "") -> str:
    """Return the id of a step's model call (`index` None) or of its tool call number `index`, from 0.

    The same for every attempt, under replay and after continue-as-new; different for everything else. A turn is named
    by its id and by its first run, since an id may come again: after a session was closed, or forgot the turn.
    """
    return derived_id(
        "operation", workflow_id, turn_id, first_run_id, str(step), MODEL if index is None else str(index)
    )


def readable_id(turn_id: str, step: int, name: str, index: int) -> str:
    """Return the id that an operator sees on the activity, `{turn_id}/{step}/{tool or model}/{index}`."""
    return f"{turn_id}/{step}/{name}/{index}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of an operation whose answer was lost. Made by its class methods only."""

    kind: Literal["happened", "did_not_happen", "unknown", "unresolved"]
    result: JsonValue = None
    reason: str = ""

    @classmethod
    def happened(cls, result: object = None) -> Outcome:
        """It took effect, with this result (JSON)."""
        return cls("happened", result=freeze(result))

    @classmethod
    def did_not_happen(cls) -> Outcome:
        """It took no effect: it may be run, under the same id."""
        return cls("did_not_happen")

    @classmethod
    def unknown(cls) -> Outcome:
        """The system of record can't tell. Somebody must look."""
        return cls("unknown")

    @classmethod
    def unresolved(cls, why: str) -> Outcome:
        """Nobody can tell, and that is final: the model is told so."""
        return cls("unresolved", reason=why)
