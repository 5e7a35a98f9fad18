"""Tool groups: which of an agent's tools are on in a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from perdure.values import Frozen, FrozenMap, JsonValue, Text

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """A group of tools. A `meta` group is switched by the model, an `external` one only by the application."""

    name: str
    description: str = ""
    scope: Literal["meta", "external"] = "meta"
    active: bool = False


class ToolContextState(Frozen):
    """The session's tool settings. A persisted empty `activated_groups` means that no group is on."""

    max_cache_files: int = Field(default=100, gt=1)
    max_cache_bytes: int = Field(default=25_000, gt=10_000)
    activated_groups: tuple[Text, ...] = ()
    spawn_registry: FrozenMap[JsonValue] = Field(default_factory=FrozenMap)


def is_active(group: str | None, activated: Iterable[str]) -> bool:
    """Tell whether a tool of this group may be seen: ungrouped tools always may."""
    return group is None or group in activated
