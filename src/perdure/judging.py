"""Judging: whether a tool call may run, must not, or has to be asked for, under a session's permissions."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

from perdure.operations import Effect
from perdure.permissions import (
    MAX_CONTENT,
    REMEMBERED,
    PermissionBehavior,
    PermissionContext,
    PermissionMode,
    PermissionRule,
    Rules,
)
from perdure.values import Frozen, Text, clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MATCHING = 100_000_000
"""Characters of a glob times characters of a subject, which is what matching takes at worst: a tenth of a second."""

MAX_SHOWN = 100
"""Characters of a rule that a judgement's reason repeats."""

Behavior: TypeAlias = Literal["allow", "deny", "ask"]


class Opinion(Frozen):
    """A tool's own verdict on a call. `safety` makes an ask one that no rule and no mode `bypass` answers."""

    behavior: Behavior
    reason: Text = ""
    safety: bool = False


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What is judged of a call. Tool and subject are cleaned as the text of rules is, so that the two can meet."""

    tool: str
    effect: Effect
    subject: str | None = None
    opinion: Opinion | None = None

    def __post_init__(self) -> None:
        """Clean the text."""
        object.__setattr__(self, "tool", clean_text(self.tool))
        if self.subject is not None:
            object.__setattr__(self, "subject", clean_text(self.subject))


class Judgement(Frozen):
    """Whether a call may run, and a short sentence on what decided it, for the model and for people.

    With `safety`, a person must answer an ask, since no allow rule can. `suggested` are the rules that would have
    answered it, which "approve and remember" writes.
    """

    behavior: Behavior
    reason: Text
    safety: bool = False
    suggested: tuple[PermissionRule, ...] = ()


def judge(permissions: PermissionContext, call: CallFacts) -> Judgement:
    """Judge a call. The first of these that says something decides.

    A deny rule; an ask rule; the mode `explore`, which allows what only reads and denies the rest, or `accept_edits`,
    which allows what only reads; the tool's opinion, unless it is an ask without `safety`; an allow rule; the mode
    `bypass`, which allows. Else the call is asked for, but under default permissions (see `is_default`) only if the
    tool itself asks. The mode `dont_ask` denies whatever would be asked.
    """
    judgement = (
        denied_by_rule(permissions, call)
        or _asked_by_rule(permissions, call)
        or _decided_by_mode(permissions, call)
        or _decided_by_tool(call)
        or _allowed_by_rule(permissions, call)
        or _decided_by_none(permissions, call)
    )
    if judgement.behavior == "ask" and permissions.mode is PermissionMode.DONT_ASK:
        return Judgement(behavior="deny", reason=f"the mode dont_ask denies what would be asked: {judgement.reason}")
    return judgement


def denied_by_rule(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    """Return the denial if a deny rule covers the call, which is all that stands above a person's approval."""
    rule = _covering(permissions.deny_rules, call, if_unsure=True)
    return rule and Judgement(behavior="deny", reason=f"the rule {_shown(rule, call)} forbids this call")


def is_default(permissions: PermissionContext) -> bool:
    """Whether nobody has set anything: the mode is `default`, and no rule says anything but remembered answers.

    These don't count, because one remembered answer must not make every other tool ask.
    """
    rules = chain(
        (rule for rule in _all_of(permissions.allow_rules) if rule.source != REMEMBERED),
        _all_of(permissions.deny_rules),
        _all_of(permissions.ask_rules),
    )
    return permissions.mode is PermissionMode.DEFAULT and not any(_says_something(rule) for rule in rules)


# ---- the steps ----------------------------------------------------------------------------------------------------


def _asked_by_rule(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    rule = _covering(permissions.ask_rules, call, if_unsure=True)
    return rule and Judgement(behavior="ask", reason=f"the rule {_shown(rule, call)} has a person asked", safety=True)


def _decided_by_mode(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    mode, reads = permissions.mode, call.effect is Effect.READ
    if reads and mode in {PermissionMode.EXPLORE, PermissionMode.ACCEPT_EDITS}:
        return Judgement(behavior="allow", reason=f"the mode {mode} allows what only reads")
    if mode is PermissionMode.EXPLORE:
        return Judgement(behavior="deny", reason="the mode explore allows only what reads and changes nothing")
    return None


def _decided_by_tool(call: CallFacts) -> Judgement | None:
    opinion = call.opinion
    if opinion is None or (opinion.behavior == "ask" and not opinion.safety):
        return None
    return Judgement(behavior=opinion.behavior, reason=_words(opinion), safety=opinion.behavior == "ask")


def _allowed_by_rule(permissions: PermissionContext, call: CallFacts) -> Judgement | None:
    rule = _covering(permissions.allow_rules, call, if_unsure=False)
    return rule and Judgement(behavior="allow", reason=f"the rule {_shown(rule, call)} allows this call")


def _decided_by_none(permissions: PermissionContext, call: CallFacts) -> Judgement:
    if permissions.mode is PermissionMode.BYPASS:
        return Judgement(behavior="allow", reason="the mode bypass allows what no rule covers")
    if call.opinion is not None:
        reason = _words(call.opinion)
    elif is_default(permissions):
        return Judgement(behavior="allow", reason="there is no rule, and the tool has nothing against it")
    else:
        reason = "no rule covers this call"
    return Judgement(behavior="ask", reason=reason, suggested=_suggested(call))


def _words(opinion: Opinion) -> str:
    says = {"allow": "the tool allows this call", "deny": "the tool forbids this call", "ask": "the tool asks"}
    return opinion.reason or says[opinion.behavior]


# ---- rules and globs ----------------------------------------------------------------------------------------------


def _all_of(rules: Rules) -> Iterable[PermissionRule]:
    return chain.from_iterable(rules.values())


def _says_something(rule: PermissionRule) -> bool:
    return rule.behavior is not PermissionBehavior.PASSTHROUGH


def _covering(rules: Rules, call: CallFacts, *, if_unsure: bool) -> PermissionRule | None:
    """Return the first rule that covers the call, or, `if_unsure`, that may cover it."""
    listed = filter(_says_something, rules.get(call.tool, ()))
    return next((rule for rule in listed if _covers(rule.rule_content, call.subject or "", if_unsure)), None)


def _covers(glob: str | None, subject: str, if_unsure: bool) -> bool:  # noqa: FBT001  # an answer, not a switch
    if glob is None:
        return True
    if not any(sign in glob for sign in "*?["):
        return glob == subject  # as most remembered rules: they need no place in the cache of patterns
    if len(glob) > MAX_CONTENT or len(glob) * len(subject) > MAX_MATCHING:
        return if_unsure
    return fnmatch.fnmatchcase(subject, glob)


def _suggested(call: CallFacts) -> tuple[PermissionRule, ...]:
    """Return the rule that would allow this call: its subject and no other, or the tool if the call has none."""
    content = None
    if call.subject is not None:
        content = "".join(f"[{sign}]" if sign in "*?[" else sign for sign in call.subject)
        if len(content) > MAX_CONTENT:
            return ()
    rule = PermissionRule(
        tool_name=call.tool, rule_content=content, behavior=PermissionBehavior.ALLOW, source=REMEMBERED
    )
    return (rule,)


def _shown(rule: PermissionRule, call: CallFacts) -> str:
    name = call.tool if rule.rule_content is None else f"{call.tool}({rule.rule_content})"
    return name if len(name) <= MAX_SHOWN else f"{name[: MAX_SHOWN - 1]}…"
