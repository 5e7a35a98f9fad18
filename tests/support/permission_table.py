"""What permissions say of a call, told anew as a table: no order of steps, one row for each case there is.

`judging` is held to this. Globs are matched by hand; of brackets it knows those with single characters in them.
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from perdure.operations import Effect

if TYPE_CHECKING:
    from perdure.judging import CallFacts
    from perdure.permissions import PermissionContext, Rules

TABLE = """
denied  asked  mode                                 reads  opinion         allowed  unset  outcome
yes     -      -                                    -      -               -        -      deny
no      yes    default|accept_edits|explore|bypass  -      -               -        -      must_ask
no      yes    dont_ask                             -      -               -        -      deny
no      no     explore                              yes    -               -        -      allow
no      no     explore                              no     -               -        -      deny
no      no     accept_edits                         yes    -               -        -      allow
no      no     accept_edits                         no     allow           -        -      allow
no      no     accept_edits                         no     deny            -        -      deny
no      no     accept_edits                         no     safety          -        -      must_ask
no      no     accept_edits                         no     ask|none        yes      -      allow
no      no     accept_edits                         no     ask|none        no       -      ask
no      no     default                              -      allow           -        -      allow
no      no     default                              -      deny            -        -      deny
no      no     default                              -      safety          -        -      must_ask
no      no     default                              -      ask|none        yes      -      allow
no      no     default                              -      ask             no       -      ask
no      no     default                              -      none            no       yes    allow
no      no     default                              -      none            no       no     ask
no      no     bypass                               -      allow|ask|none  -        -      allow
no      no     bypass                               -      deny            -        -      deny
no      no     bypass                               -      safety          -        -      must_ask
no      no     dont_ask                             -      allow           -        -      allow
no      no     dont_ask                             -      deny|safety     -        -      deny
no      no     dont_ask                             -      ask|none        yes      -      allow
no      no     dont_ask                             -      ask|none        no       -      deny
"""
"""`unset`: nobody has set anything, remembered answers aside. `must_ask`: an ask that no allow rule would answer."""

ROWS = tuple(tuple(line.split()) for line in TABLE.strip().splitlines()[1:])


@dataclass(frozen=True)
class Known:
    """A case: one word for each column of the table."""

    denied: str
    asked: str
    mode: str
    reads: str
    opinion: str
    allowed: str
    unset: str


def rows_for(known: Known) -> list[int]:
    """Return the numbers of the rows that are about this case: there must be one."""
    words = astuple(known)
    return [
        number
        for number, row in enumerate(ROWS)
        if all(cell == "-" or word in cell.split("|") for cell, word in zip(row, words, strict=False))
    ]


def outcome(row: int) -> str:
    """Return a row's outcome."""
    return ROWS[row][-1]


def what_is_known(permissions: PermissionContext, call: CallFacts) -> Known:
    """Return the case that permissions and a call are."""
    return Known(
        denied=_yes(_covered(permissions.deny_rules, call)),
        asked=_yes(_covered(permissions.ask_rules, call)),
        mode=permissions.mode.value,
        reads=_yes(call.effect is Effect.READ),
        opinion=_opinion(call),
        allowed=_yes(_covered(permissions.allow_rules, call)),
        unset=_yes(_unset(permissions)),
    )


def glob_matches(glob: str, text: str) -> bool:
    """Whether a glob matches a whole text, by the set of places in the text that its parts can lead to."""
    places = {0}
    for part in re.findall(r"\[!?.[^\]]*\]|.", glob, re.DOTALL):
        if part == "*":
            places = set(range(min(places), len(text) + 1))
        else:
            places = {place + 1 for place in places if place < len(text) and _fits(part, text[place])}
        if not places:
            return False
    return len(text) in places


def _fits(part: str, character: str) -> bool:
    if part.startswith("[!") and len(part) > 3:  # `[!]` holds one character, which is `!`
        return character not in part[2:-1]
    if part.startswith("[") and len(part) > 1:
        return character in part[1:-1]
    return part in {"?", character}


def _covered(rules: Rules, call: CallFacts) -> bool:
    return any(
        rule.rule_content is None or glob_matches(rule.rule_content, call.subject or "")
        for tool, listed in rules.items()
        for rule in listed
        if tool == call.tool and rule.behavior.value != "passthrough"
    )


def _unset(permissions: PermissionContext) -> bool:
    stored = permissions.model_dump(mode="json")
    said = [
        (name, rule["source"])
        for name in ("deny_rules", "ask_rules", "allow_rules")
        for listed in stored[name].values()
        for rule in listed
        if rule["behavior"] != "passthrough"
    ]
    return stored["mode"] == "default" and set(said) <= {("allow_rules", "remembered")}


def _opinion(call: CallFacts) -> str:
    if call.opinion is None:
        return "none"
    return "safety" if call.opinion.safety and call.opinion.behavior == "ask" else call.opinion.behavior


def _yes(true: bool) -> str:  # noqa: FBT001  # a word for it
    return "yes" if true else "no"
