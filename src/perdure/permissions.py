"""Permissions: rules, modes, what they are in the state's JSON, and how they are changed. `judging` applies them."""

from __future__ import annotations

from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from pydantic import Field

from perdure.values import Frozen, FrozenMap, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CONTENT = 2000
"""Characters of a rule's glob, as far as globs are matched at all: a hostile one must not keep a worker busy."""

REMEMBERED = "remembered"
"""The source of rules that "approve and remember" writes."""


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


LISTS = {
    PermissionBehavior.ALLOW: "allow_rules",
    PermissionBehavior.DENY: "deny_rules",
    PermissionBehavior.ASK: "ask_rules",
}
"""The list of a context in which a rule of this behavior belongs."""


def with_rule(permissions: PermissionContext, rule: PermissionRule) -> PermissionContext:
    """Return the permissions with one more rule, in the list that its behavior names.

    A rule that is there already, whatever its source, changes nothing; only a remembered one takes the new source.

    Raises:
        ValueError: the rule says nothing (passthrough), or its glob is too long to be matched.
    """
    name = LISTS.get(rule.behavior)
    if name is None:
        msg = "a passthrough rule says nothing, so it can't be added; its behavior must be allow, deny or ask"
        raise ValueError(msg)
    if len(rule.rule_content or "") > MAX_CONTENT:
        msg = f"rule_content must have at most {MAX_CONTENT} characters; shorten it by a `*`"
        raise ValueError(msg)
    rules = _rules(permissions, name)
    united = _united((*rules.get(rule.tool_name, ()), rule))
    return permissions.model_copy(update={name: FrozenMap({**rules, rule.tool_name: united})})


def without_rule(permissions: PermissionContext, rule: PermissionRule) -> PermissionContext:
    """Return the permissions without the rules that say the same as this one, whatever their source.

    A passthrough rule, which says nothing in any list, is removed from all of them.

    Raises:
        ValueError: there is no such rule.
    """
    named = LISTS.get(rule.behavior)
    changed: dict[str, Rules] = {}
    for name in LISTS.values() if named is None else (named,):
        rules = _rules(permissions, name)
        there = rules.get(rule.tool_name, ())
        left = tuple(other for other in there if _saying(other) != _saying(rule))
        if len(left) < len(there):
            others = {tool: listed for tool, listed in rules.items() if tool != rule.tool_name}
            changed[name] = FrozenMap({**others, rule.tool_name: left} if left else others)
    if not changed:
        msg = "there is no such rule; give tool_name, rule_content and behavior as the session's state has them"
        raise ValueError(msg)
    return permissions.model_copy(update=changed)


def merged(own: PermissionContext, defaults: PermissionContext) -> PermissionContext:
    """Return a session's own permissions on top of its agent's.

    Both have their rules, none of them twice. The own mode counts unless it is `default`, and an own working directory
    instead of a default one of the same name.
    """
    changed: dict[str, object] = {
        "mode": defaults.mode if own.mode is PermissionMode.DEFAULT else own.mode,
        "working_directories": FrozenMap({**defaults.working_directories, **own.working_directories}),
    }
    for name in LISTS.values():
        mine, given = _rules(own, name), _rules(defaults, name)
        changed[name] = FrozenMap(
            {tool: _united((*mine.get(tool, ()), *given.get(tool, ()))) for tool in chain(mine, given)}
        )
    return own.model_copy(update=changed)


def _rules(permissions: PermissionContext, name: str) -> Rules:
    rules: Rules = getattr(permissions, name)
    return rules


def _saying(rule: PermissionRule) -> tuple[str | None, bool]:
    """Return what a rule says where it stands: the list says the rest, and the source is a note."""
    return rule.rule_content, rule.behavior is PermissionBehavior.PASSTHROUGH


def _united(rules: Iterable[PermissionRule]) -> tuple[PermissionRule, ...]:
    """Return the rules of one tool in one list, each once."""
    kept: dict[tuple[str | None, bool], PermissionRule] = {}
    for rule in rules:
        there = kept.get(_saying(rule))
        # Somebody's rule counts for more than a remembered answer (`judging.is_default`), so it isn't lost to one.
        if there is None or there.source == REMEMBERED != rule.source:
            kept[_saying(rule)] = rule
    return tuple(kept.values())
