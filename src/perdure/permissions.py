"""Permissions: rules and modes, as they stand in the state's JSON, and what they say of a call.

`judge` is the one place where that is decided. From the strongest to the weakest: a deny rule; an ask rule; the mode,
where it speaks of reading; the tool's own verdict, if it allows, denies, or asks for safety; an allow rule; the mode
`bypass`; else a person is asked. Under `dont_ask` nobody is ever asked: what would ask is denied.

Where nobody has ever set a permission, a tool runs unless it asks or denies by itself. A rule that was remembered from
an answer sets none: it only answers for its own calls.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from perdure.operations import Effect
from perdure.values import Frozen, FrozenMap, Text

if TYPE_CHECKING:
    from collections.abc import Iterator


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


Behavior = Literal["allow", "deny", "ask"]

REMEMBERED = "remembered"
"""The source of a rule that was written because somebody approved and remembered."""


class Opinion(Frozen):
    """A tool's own verdict on a call. An ask for `safety` is answered by a person, and by no rule and no mode."""

    behavior: Behavior
    reason: Text = ""
    safety: bool = False


class Judgement(Frozen):
    """Whether a call may run, and by what that was decided. `suggested` are rules that would allow it next time."""

    behavior: Behavior
    reason: Text = ""
    safety: bool = False
    suggested: tuple[PermissionRule, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What is judged of a call. `subject` is what a rule's content is matched against."""

    tool: str
    effect: Effect
    subject: str | None = None
    opinion: Opinion | None = None


def judge(permissions: PermissionContext, call: CallFacts) -> Judgement:
    """Tell whether a call may run, may not, or has to be asked about."""
    judgement = _judged(permissions, call)
    if judgement.behavior == "ask" and permissions.mode is PermissionMode.DONT_ASK:
        return Judgement(behavior="deny", reason=f"{judgement.reason}, and nobody is to be asked")
    return judgement


def _judged(permissions: PermissionContext, call: CallFacts) -> Judgement:
    """Go through what can decide, from the strongest to the weakest; the first that has something to say decides."""
    for judgement in (
        denied_by_rule(permissions, call),
        _asked_by_rule(permissions, call),
        _by_mode(permissions.mode, call),
        _by_opinion(call.opinion),
        _allowed_by_rule(permissions, call),
    ):
        if judgement is not None:
            return judgement
    if permissions.mode is PermissionMode.BYPASS:
        return Judgement(behavior="allow", reason="everything is allowed")
    if call.opinion is None and _says_nothing(permissions):
        return Judgement(behavior="allow", reason="no rule says otherwise")
    reason = call.opinion.reason if call.opinion is not None else f"no rule allows {call.tool}"
    return _with_suggestion(Judgement(behavior="ask", reason=reason), call)


def _says_nothing(permissions: PermissionContext) -> bool:
    """Tell whether nobody has ever set a permission."""
    lists = (permissions.deny_rules, permissions.ask_rules, permissions.allow_rules)
    rules = (rule for rules in lists for of_tool in rules.values() for rule in of_tool)
    return permissions.mode is PermissionMode.DEFAULT and all(
        rule.source == REMEMBERED or not _speaks(rule) for rule in rules
    )


def denied_by_rule(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    """Return what a deny rule says of a call, if one covers it."""
    if not _covered(permissions.deny_rules, call):
        return None
    return Judgement(behavior="deny", reason=f"a rule forbids this call of {call.tool}")


def _asked_by_rule(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    # As strong as an ask for safety: no rule that could be remembered would answer it.
    if not _covered(permissions.ask_rules, call):
        return None
    return Judgement(behavior="ask", reason=f"a rule has this call of {call.tool} asked about", safety=True)


def _allowed_by_rule(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    if not _covered(permissions.allow_rules, call):
        return None
    return Judgement(behavior="allow", reason=f"a rule allows this call of {call.tool}")


def _by_mode(mode: PermissionMode, call: CallFacts) -> Judgement | None:
    reads = call.effect is Effect.READ
    if reads and mode in (PermissionMode.EXPLORE, PermissionMode.ACCEPT_EDITS):
        return Judgement(behavior="allow", reason="reading is allowed")
    if mode is PermissionMode.EXPLORE:
        return Judgement(behavior="deny", reason=f"only reading is allowed, and {call.tool} does more")
    return None


def _by_opinion(opinion: Opinion | None) -> Judgement | None:
    """Return what the tool itself says, where that is final: a plain ask is not, since a rule may answer it."""
    if opinion is None or (opinion.behavior == "ask" and not opinion.safety):
        return None
    return Judgement(behavior=opinion.behavior, reason=opinion.reason, safety=opinion.safety)


def _with_suggestion(judgement: Judgement, call: CallFacts) -> Judgement:
    content = None if call.subject is None else _literally(call.subject)
    if content is not None and len(content) > MAX_CONTENT:
        return judgement
    rule = PermissionRule(
        tool_name=call.tool, rule_content=content, behavior=PermissionBehavior.ALLOW, source=REMEMBERED
    )
    return judgement.model_copy(update={"suggested": (rule,)})


def _literally(subject: str) -> str:
    """Return a glob that matches this subject and no other."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in subject)


def _covered(rules: Rules, call: CallFacts) -> bool:
    return any(_speaks(rule) and _matches(rule, call) for rule in rules.get(call.tool, ()))


def _speaks(rule: PermissionRule) -> bool:
    """The list in which a rule stands says what it means; one that passes through means nothing anywhere."""
    return rule.behavior is not PermissionBehavior.PASSTHROUGH


def _matches(rule: PermissionRule, call: CallFacts) -> bool:
    return rule.rule_content is None or fnmatch.fnmatchcase(call.subject or "", rule.rule_content)


# ---- how they are changed ---------------------------------------------------------------------------------------

MAX_CONTENT = 2000
"""Characters of a rule's content, where a rule comes in."""

_LISTS = {
    PermissionBehavior.ALLOW: "allow_rules",
    PermissionBehavior.DENY: "deny_rules",
    PermissionBehavior.ASK: "ask_rules",
}


def with_rule(permissions: PermissionContext, rule: PermissionRule) -> PermissionContext:
    """Add a rule to the list that its behavior names. The same rule twice is the same as once.

    Raises:
        ValueError: it passes through, and so would mean nothing.
    """
    name = _list_of(rule)
    rules: Rules = getattr(permissions, name)
    there = rules.get(rule.tool_name, ())
    if any(_same(rule, other) for other in there):
        return permissions
    return permissions.model_copy(update={name: FrozenMap({**rules, rule.tool_name: (*there, rule)})})


def without_rule(permissions: PermissionContext, rule: PermissionRule) -> PermissionContext:
    """Take a rule away, whatever its source.

    Raises:
        ValueError: it is not there.
    """
    name = _list_of(rule)
    rules: Rules = getattr(permissions, name)
    there = rules.get(rule.tool_name, ())
    left = tuple(other for other in there if not _same(rule, other))
    if len(left) == len(there):
        msg = "there is no such rule"
        raise ValueError(msg)
    kept = {tool: of_tool for tool, of_tool in rules.items() if tool != rule.tool_name}
    return permissions.model_copy(update={name: FrozenMap({**kept, **({rule.tool_name: left} if left else {})})})


def merged(own: PermissionContext, defaults: PermissionContext) -> PermissionContext:
    """Return a session's own permissions together with its agent's: all rules of both; the own mode if there is one."""
    both = defaults
    for rule in _rules(own):
        both = with_rule(both, rule)
    mode = defaults.mode if own.mode is PermissionMode.DEFAULT else own.mode
    directories = FrozenMap({**defaults.working_directories, **own.working_directories})
    return both.model_copy(update={"mode": mode, "working_directories": directories})


def _rules(permissions: PermissionContext) -> Iterator[PermissionRule]:
    """Yield the rules that say something, each with the behavior and the tool that its place gives it."""
    for behavior, name in _LISTS.items():
        rules: Rules = getattr(permissions, name)
        for tool, of_tool in rules.items():
            for rule in filter(_speaks, of_tool):
                yield rule.model_copy(update={"behavior": behavior, "tool_name": tool})


def _list_of(rule: PermissionRule) -> str:
    if rule.behavior not in _LISTS:
        msg = "a rule that passes through means nothing; give it another behavior, or leave it out"
        raise ValueError(msg)
    return _LISTS[rule.behavior]


def _same(one: PermissionRule, other: PermissionRule) -> bool:
    return one.rule_content == other.rule_content and _speaks(other)
