"""Permissions: rules, modes, and what they are in the state's JSON."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from perdure.values import Frozen, FrozenMap, Text


class PermissionMode(StrEnum):
    """How calls are treated that no deny or ask rule covers."""

    DEFAULT = "default"
    ACCEPT_EDITS = "accept_edits"
    EXPLORE = "explore"
    BYPASS = "bypass"
    DONT_ASK = "dont_ask"


class PermissionBehavior(StrEnum):
    """What a rule says."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"
    PASSTHROUGH = "passthrough"


class PermissionRule(Frozen):
    """One rule. `rule_content` is a glob over the call's subject; None covers every call of the tool."""

    tool_name: Text
    rule_content: Text | None = None
    behavior: PermissionBehavior
    source: Text | None = None


class WorkingDirectory(Frozen):
    """A directory that tools may work in."""

    path: Text
    source: Text | None = None


Rules = FrozenMap[tuple[PermissionRule, ...]]


class PermissionContext(Frozen):
    """The permissions of one session: a mode, and rules by tool."""

    mode: PermissionMode = PermissionMode.DEFAULT
    working_directories: FrozenMap[WorkingDirectory] = Field(default_factory=FrozenMap)
    allow_rules: Rules = Field(default_factory=FrozenMap)
    deny_rules: Rules = Field(default_factory=FrozenMap)
    ask_rules: Rules = Field(default_factory=FrozenMap)
