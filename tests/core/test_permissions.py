from __future__ import annotations

import fnmatch
from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random
from typing import Literal

import pytest
from hypothesis import assume, given, strategies as st

from perdure.judging import CallFacts, Judgement, Opinion, denied_by_rule, is_default, judge
from perdure.operations import Effect
from perdure.permissions import (
    LISTS,
    MAX_CONTENT,
    REMEMBERED,
    PermissionBehavior,
    PermissionContext,
    PermissionMode,
    PermissionRule,
    with_rule,
)
from perdure.values import FrozenMap
from tests.support.permission_table import ROWS, Known, glob_matches, outcome, rows_for, what_is_known
from tests.support.strategies import ANY_TEXT, CALL_FACTS, MEETING_PERMISSIONS, SUBJECTS

ALLOW, DENY, ASK, PASSTHROUGH = PermissionBehavior
DEFAULT, ACCEPT_EDITS, EXPLORE, BYPASS, DONT_ASK = PermissionMode
MODES = tuple(PermissionMode)

ASKS = Opinion(behavior="ask", reason="it is a lot of money")
SAFETY = Opinion(behavior="ask", reason="it can't be undone", safety=True)
REFUSES = Opinion(behavior="deny", reason="the account is closed")
AGREES = Opinion(behavior="allow")


def rule(behavior: PermissionBehavior, content: str | None = None, tool: str = "pay") -> PermissionRule:
    return PermissionRule(tool_name=tool, rule_content=content, behavior=behavior)


def context(*rules: PermissionRule, mode: PermissionMode = DEFAULT) -> PermissionContext:
    permissions = PermissionContext(mode=mode)
    for each in rules:
        permissions = with_rule(permissions, each)
    return permissions


def pay(subject: str | None = "invoice-1", *, opinion: Opinion | None = None) -> CallFacts:
    return CallFacts(tool="pay", effect=Effect.ONCE, subject=subject, opinion=opinion)


def look(*, opinion: Opinion | None = None) -> CallFacts:
    return CallFacts(tool="look", effect=Effect.READ, opinion=opinion)


def behavior(permissions: PermissionContext, call: CallFacts) -> Literal["allow", "deny", "ask"]:
    return judge(permissions, call).behavior


# ---- the order, by example (B41) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opinion", [None, AGREES, ASKS, SAFETY, REFUSES])
def test_a_deny_rule_beats_everything(mode: PermissionMode, opinion: Opinion | None) -> None:
    """B41: also what only reads, also under bypass."""
    permissions = context(rule(DENY, tool="look"), rule(ALLOW, tool="look"), rule(ASK, tool="look"), mode=mode)
    assert behavior(permissions, look(opinion=opinion)) == "deny"


@pytest.mark.parametrize("mode", [DEFAULT, ACCEPT_EDITS, EXPLORE, BYPASS])
@pytest.mark.parametrize("opinion", [None, AGREES, ASKS, SAFETY, REFUSES])
def test_an_ask_rule_beats_all_but_a_deny_rule(mode: PermissionMode, opinion: Opinion | None) -> None:
    """B41: allow rules, the modes and the tool's own opinion come after it."""
    permissions = context(rule(ASK, tool="look"), rule(ALLOW, tool="look"), mode=mode)
    judgement = judge(permissions, look(opinion=opinion))
    assert (judgement.behavior, judgement.safety, judgement.suggested) == ("ask", True, ())


@pytest.mark.parametrize("opinion", [None, AGREES, ASKS, SAFETY, REFUSES])
def test_explore_allows_what_only_reads_and_denies_the_rest(opinion: Opinion | None) -> None:
    """B41: whatever the tool says, and whatever allow rules say."""
    permissions = context(rule(ALLOW), mode=EXPLORE)
    assert behavior(permissions, look(opinion=opinion)) == "allow"
    assert behavior(permissions, pay(opinion=opinion)) == "deny"


def test_accept_edits_allows_what_only_reads_and_treats_the_rest_as_usual() -> None:
    """B41."""
    permissions = context(mode=ACCEPT_EDITS)
    assert behavior(permissions, look(opinion=SAFETY)) == "allow"
    assert behavior(permissions, pay()) == "ask"
    assert behavior(permissions, pay(opinion=AGREES)) == "allow"
    assert behavior(permissions, pay(opinion=REFUSES)) == "deny"
    assert behavior(context(rule(ALLOW), mode=ACCEPT_EDITS), pay()) == "allow"


@pytest.mark.parametrize("mode", [DEFAULT, ACCEPT_EDITS, BYPASS, DONT_ASK])
def test_what_the_tool_denies_is_denied_and_what_it_allows_is_allowed(mode: PermissionMode) -> None:
    """B41: before any allow rule or bypass."""
    assert behavior(context(rule(ALLOW), mode=mode), pay(opinion=REFUSES)) == "deny"
    assert behavior(context(rule(ALLOW, tool="other"), mode=mode), pay(opinion=AGREES)) == "allow"


@pytest.mark.parametrize("mode", [DEFAULT, ACCEPT_EDITS, BYPASS])
def test_an_ask_for_safety_is_answered_by_no_rule_and_by_no_bypass(mode: PermissionMode) -> None:
    """B41: a person must answer."""
    judgement = judge(context(rule(ALLOW), mode=mode), pay(opinion=SAFETY))
    assert judgement == Judgement(behavior="ask", reason="it can't be undone", safety=True)


def test_a_plain_ask_is_answered_by_an_allow_rule_and_by_bypass() -> None:
    """B41: only an ask for safety is final."""
    assert behavior(context(rule(ALLOW)), pay(opinion=ASKS)) == "allow"
    assert behavior(context(mode=BYPASS), pay(opinion=ASKS)) == "allow"
    assert behavior(context(), pay(opinion=ASKS)) == "ask"


def test_what_nothing_speaks_of_is_asked_and_under_bypass_allowed() -> None:
    """B41: the end of the order."""
    assert behavior(context(rule(ALLOW, tool="other")), pay()) == "ask"
    assert behavior(context(rule(ALLOW, tool="other")), look()) == "ask"
    assert behavior(context(mode=ACCEPT_EDITS), pay()) == "ask"
    assert behavior(context(mode=BYPASS), pay()) == "allow"


@pytest.mark.parametrize(
    ("rules", "opinion"), [((), None), ((rule(ASK), rule(ALLOW)), None), ((rule(ALLOW),), SAFETY), ((), ASKS)]
)
def test_dont_ask_denies_what_would_ask_from_whichever_step(
    rules: tuple[PermissionRule, ...], opinion: Opinion | None
) -> None:
    """B41: an ask rule, an ask for safety, a plain ask, or nothing that speaks of the call."""
    judgement = judge(context(*rules, mode=DONT_ASK), pay(opinion=opinion))
    assert (judgement.behavior, judgement.safety, judgement.suggested) == ("deny", False, ())
    assert "dont_ask" in judgement.reason


def test_dont_ask_allows_what_is_allowed() -> None:
    """B41."""
    assert behavior(context(rule(ALLOW), mode=DONT_ASK), pay(opinion=ASKS)) == "allow"
    assert behavior(context(mode=DONT_ASK), pay(opinion=AGREES)) == "allow"


# ---- default permissions (B42) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [pay(), pay(None), look()])
def test_under_default_permissions_a_tool_runs_unless_it_asks_or_denies_itself(call: CallFacts) -> None:
    """B42."""
    permissions = PermissionContext()
    assert behavior(permissions, call) == "allow"
    assert behavior(permissions, replace(call, opinion=AGREES)) == "allow"
    assert behavior(permissions, replace(call, opinion=REFUSES)) == "deny"
    assert behavior(permissions, replace(call, opinion=ASKS)) == "ask"
    assert behavior(permissions, replace(call, opinion=SAFETY)) == "ask"


@pytest.mark.parametrize("said", [ALLOW, DENY, ASK])
def test_any_rule_of_any_tool_ends_the_default(said: PermissionBehavior) -> None:
    """B42: whoever writes a rule wants to know of the rest."""
    assert behavior(context(rule(said, "never", tool="other")), pay()) == "ask"


@pytest.mark.parametrize("name", LISTS.values())
def test_a_passthrough_rule_says_nothing_in_any_list(name: str) -> None:
    """B42: it neither covers a call nor ends the default."""
    permissions = PermissionContext.model_validate({name: {"pay": [rule(PASSTHROUGH)], "look": []}})
    assert is_default(permissions)
    assert behavior(permissions, pay()) == "allow"
    assert behavior(permissions.model_copy(update={"mode": DONT_ASK}), pay()) == "deny"


def test_a_remembered_answer_does_not_make_other_tools_ask() -> None:
    """B42, B46: what was approved is allowed from now on, and nothing else changes."""
    (remembered,) = judge(PermissionContext(), pay(opinion=ASKS)).suggested
    permissions = with_rule(PermissionContext(), remembered)
    assert behavior(permissions, pay(opinion=ASKS)) == "allow"
    assert behavior(permissions, pay("invoice-2", opinion=ASKS)) == "ask"
    assert behavior(permissions, look()) == "allow"


def test_only_an_allow_rule_can_be_a_remembered_answer() -> None:
    """B42: a rule that denies is a policy, whatever its source says."""
    denies = PermissionRule(tool_name="other", behavior=DENY, source=REMEMBERED)
    assert not is_default(with_rule(PermissionContext(), denies))


# ---- what a rule covers (B43) -------------------------------------------------------------------------------------


def test_the_list_says_what_a_rule_says_and_the_key_whose_it_is() -> None:
    """B43: the fields of a rule that stands somewhere else are not asked."""
    permissions = PermissionContext.model_validate({"deny_rules": {"pay": [rule(ALLOW, tool="look")]}})
    assert behavior(permissions, pay()) == "deny"
    assert behavior(permissions, look()) == "ask"


@pytest.mark.parametrize(
    ("content", "subject", "covers"),
    [
        (None, "anything", True),
        (None, None, True),
        ("*", None, True),
        ("", None, True),
        ("a", None, False),
        ("invoice-*", "invoice-1", True),
        ("invoice-*", "Invoice-1", False),
        ("invoice", "invoice-1", False),
        ("invoice", "Invoice", False),
        ("voice", "invoice", False),
        ("rm *", "rm -r\n/tmp\r\nx", True),
        ("rm ?", "rm \n", True),
        ("ls", "ls\n", False),
        ("ls*", "ls\n", True),
        ("file[0-9]", "file7", True),
        ("file[!0-9]", "file7", False),
        ("a[*]", "ab", False),
        ("a.c", "abc", False),
        (r"a\*", r"a\b", True),
        ("[", "[", True),
        ("*é", "caf\N{COMBINING ACUTE ACCENT}é", True),
        ("a\ufffd", "a\ud800", True),
    ],
)
def test_a_rules_content_is_a_glob_over_the_whole_subject(
    content: str | None,
    subject: str | None,
    covers: bool,  # noqa: FBT001  # a column
) -> None:
    """B43: case counts, line ends don't, and text that can't be stored is what it is stored as."""
    call = pay(subject)
    assert (behavior(context(rule(DENY, content), mode=BYPASS), call) == "deny") is covers
    assert (behavior(context(rule(ASK, content), mode=BYPASS), call) == "ask") is covers
    assert (behavior(context(rule(ALLOW, content), mode=ACCEPT_EDITS), call) == "allow") is covers


def test_the_name_of_a_tool_is_what_it_is_stored_as() -> None:
    """B43: text that can't be stored must not slip past a rule."""
    assert behavior(context(rule(DENY, tool="pay\0")), replace(pay(), tool="pay\0")) == "deny"


def test_a_rule_covers_no_other_tool_and_no_other_session() -> None:
    """B43: permissions are values, each session has its own."""
    mine = PermissionContext()
    theirs = with_rule(mine, rule(DENY))
    assert behavior(theirs, pay()) == "deny"
    assert behavior(theirs, replace(pay(), tool="pay2")) == "ask"
    assert behavior(mine, pay()) == "allow"


@pytest.mark.parametrize(
    "glob", ["*a" * 50 + "*b", "*a" * 50 + "b", "*" + "?" * (MAX_CONTENT - 2) + "b", "[" * MAX_CONTENT]
)
def test_a_hostile_glob_is_judged_all_the_same(glob: str) -> None:
    """B43: this ends, where matching by trying all ways would not."""
    assert behavior(context(rule(ALLOW, glob)), pay("a" * 10_000)) == "ask"


@pytest.mark.parametrize(
    ("glob", "subject"), [("a*" * MAX_CONTENT, "b"), ("b" * 3_000_000 + "*", "b"), ("?*b" * 500, "a" * 1_000_000)]
)
def test_what_would_take_too_long_to_match_is_held_against_the_call(glob: str, subject: str) -> None:
    """B43: a deny or ask rule then covers it, an allow rule does not. Only an imported state can have such globs."""
    rules = FrozenMap({"pay": (rule(ALLOW, glob),)})
    assert behavior(PermissionContext(mode=BYPASS, deny_rules=rules), pay(subject)) == "deny"
    assert behavior(PermissionContext(mode=BYPASS, ask_rules=rules), pay(subject)) == "ask"
    assert behavior(PermissionContext(allow_rules=rules), pay(subject)) == "ask"


@given(SUBJECTS, SUBJECTS)
def test_globs_are_those_of_fnmatch(glob: str, subject: str) -> None:
    """B43."""
    stored = rule(ALLOW, glob)
    covers = fnmatch.fnmatchcase(pay(subject).subject or "", stored.rule_content or "")
    assert (behavior(context(stored), pay(subject)) == "allow") is covers


# ---- properties ---------------------------------------------------------------------------------------------------


@given(MEETING_PERMISSIONS, CALL_FACTS)
def test_a_deny_rule_that_covers_a_call_always_denies_it(permissions: PermissionContext, call: CallFacts) -> None:
    """B41."""
    everything = with_rule(permissions, rule(DENY, "*", tool=call.tool))
    assert behavior(everything, call) == "deny"
    assert denied_by_rule(everything, call) == judge(everything, call)


@given(MEETING_PERMISSIONS, CALL_FACTS)
def test_denied_by_rule_tells_of_deny_rules_only(permissions: PermissionContext, call: CallFacts) -> None:
    """B41, B45: what was approved is not judged anew, but a new deny rule stands above that."""
    only_deny = PermissionContext(mode=BYPASS, deny_rules=permissions.deny_rules)
    denied = denied_by_rule(permissions, call)
    assert (denied is not None) == (behavior(only_deny, replace(call, opinion=None)) == "deny")
    assert denied is None or denied == judge(permissions, call)


@given(MEETING_PERMISSIONS, CALL_FACTS)
def test_rules_of_other_tools_change_nothing(permissions: PermissionContext, call: CallFacts) -> None:
    """B43: except that permissions without any rule are default ones, under which what nothing speaks of may run."""
    alone = permissions.model_copy(
        update={name: FrozenMap({call.tool: getattr(permissions, name).get(call.tool, ())}) for name in LISTS.values()}
    )
    if is_default(alone) and not is_default(permissions):
        assert behavior(permissions, call) in {"ask", behavior(alone, call)}
    else:
        assert judge(alone, call) == judge(permissions, call)


@given(MEETING_PERMISSIONS, CALL_FACTS, CALL_FACTS)
def test_remembering_changes_nothing_for_any_other_call(
    permissions: PermissionContext, call: CallFacts, other: CallFacts
) -> None:
    """B46: the rule is for this tool and, if it has one, this subject."""
    assume(other.tool != call.tool or (call.subject is not None and (other.subject or "") != call.subject))
    (suggested,) = judge(PermissionContext(), replace(call, opinion=ASKS)).suggested
    assert judge(with_rule(permissions, suggested), other) == judge(permissions, other)


@given(MEETING_PERMISSIONS, CALL_FACTS)
def test_what_was_remembered_is_allowed_from_then_on(permissions: PermissionContext, call: CallFacts) -> None:
    """B46: something is suggested exactly for asks that an allow rule answers."""
    judgement = judge(permissions, call)
    assert bool(judgement.suggested) == (judgement.behavior == "ask" and not judgement.safety)
    for suggested in judgement.suggested:
        assert suggested.source == REMEMBERED
        assert judge(with_rule(permissions, suggested), call).behavior == "allow"


@given(MEETING_PERMISSIONS, CALL_FACTS)
def test_no_allow_rule_answers_what_a_person_must(permissions: PermissionContext, call: CallFacts) -> None:
    """B41: what an ask rule covers, and what the tool asks for safety's sake."""
    asked = with_rule(permissions, rule(ASK, tool=call.tool))
    safety = replace(call, opinion=SAFETY)
    assert judge(with_rule(asked, rule(ALLOW, tool=call.tool)), call) == judge(asked, call)
    assert judge(with_rule(permissions, rule(ALLOW, tool=call.tool)), safety) == judge(permissions, safety)


@given(SUBJECTS, SUBJECTS)
def test_a_remembered_rule_covers_the_subject_that_it_was_made_for_and_no_other(subject: str, other: str) -> None:
    """B46: whatever signs of globs, broken text or line ends there are in it."""
    (suggested,) = judge(PermissionContext(), pay(subject, opinion=ASKS)).suggested
    permissions = with_rule(PermissionContext(), suggested)
    assert behavior(permissions, pay(subject, opinion=ASKS)) == "allow"
    same = pay(subject).subject == pay(other).subject
    assert behavior(permissions, pay(other, opinion=ASKS)) == ("allow" if same else "ask")


def test_what_is_remembered_of_a_call_without_a_subject_is_the_tool() -> None:
    """B46."""
    (suggested,) = judge(PermissionContext(), pay(None, opinion=ASKS)).suggested
    assert suggested == PermissionRule(tool_name="pay", behavior=ALLOW, source=REMEMBERED)


def test_nothing_is_suggested_that_would_be_too_long_a_rule() -> None:
    """B46: such a call is asked each time."""
    judgement = judge(PermissionContext(), pay("[" * (MAX_CONTENT // 3 + 1), opinion=ASKS))
    assert (judgement.behavior, judgement.suggested) == ("ask", ())


@given(MEETING_PERMISSIONS, CALL_FACTS)
def test_every_judgement_gives_a_short_reason_and_can_be_stored(
    permissions: PermissionContext, call: CallFacts
) -> None:
    """B44: people and the model are told what decided."""
    judgement = judge(permissions, replace(call, opinion=None))
    assert 0 < len(judgement.reason) < 200
    stored = judge(permissions, call)
    assert Judgement.model_validate_json(stored.model_dump_json()) == stored


def test_a_reason_names_the_rule_and_does_not_repeat_a_long_one() -> None:
    """B44."""
    assert judge(context(rule(DENY)), pay()).reason == "the rule pay forbids this call"
    assert judge(context(rule(ASK, "in*")), pay()).reason == "the rule pay(in*) has a person asked"
    assert len(judge(context(rule(ALLOW, "*" * MAX_CONTENT)), pay()).reason) < 200


@given(ANY_TEXT)
def test_the_tools_words_are_the_reason_and_there_is_one_without_them(words: str) -> None:
    """B44."""
    opinion = Opinion(behavior="deny", reason=words)
    assert judge(PermissionContext(), pay(opinion=opinion)).reason == (opinion.reason or "the tool forbids this call")


# ---- the table ----------------------------------------------------------------------------------------------------

SIGNS = ("a", "b", "\n", "*", "?", "[a]", "[!a]", "[*]", "[ab]")


def words(judgement: Judgement) -> str:
    return "must_ask" if judgement.safety else judgement.behavior


def test_the_table_has_one_row_for_each_case() -> None:
    """B41: it leaves nothing open and contradicts itself nowhere."""
    yes_no = ("yes", "no")
    opinions = ("none", "allow", "deny", "ask", "safety")
    for case in product(yes_no, yes_no, [mode.value for mode in MODES], yes_no, opinions, yes_no, yes_no):
        assert len(rows_for(Known(*case))) == 1, case


def random_rule(random: Random, tool: str) -> PermissionRule:
    return PermissionRule(
        tool_name=tool,
        rule_content=random.choice((None, "".join(random.choices(SIGNS, k=random.randrange(4))))),
        behavior=random.choice((ALLOW, DENY, ASK, PASSTHROUGH)),
        source=random.choice((None, "policy", REMEMBERED)),
    )


def random_permissions(random: Random) -> PermissionContext:
    """Return permissions with few rules, most often, since many rules deny nearly everything."""
    lists = {
        name: FrozenMap(
            {
                tool: tuple(random_rule(random, tool) for _ in range(random.choice((0, 0, 1, 2))))
                for tool in ("pay", "look")
                if random.random() < 0.5
            }
        )
        for name in LISTS.values()
    }
    return PermissionContext.model_validate({"mode": random.choice(MODES), **lists})


def random_call(random: Random) -> CallFacts:
    return CallFacts(
        tool=random.choice(("pay", "look")),
        effect=random.choice(tuple(Effect)),
        subject=random.choice((None, "".join(random.choices("ab*\n", k=random.randrange(4))))),
        opinion=random.choice(
            (None, Opinion(behavior=random.choice(("allow", "deny", "ask")), safety=random.random() < 0.5))
        ),
    )


def test_ten_thousand_random_calls_are_judged_as_the_table_says() -> None:
    """B41, B42, B43: and each row of the table is met."""
    met: Counter[int] = Counter()
    for seed in range(10_000):
        random = Random(seed)  # noqa: S311  # cases, not secrets
        permissions, call = random_permissions(random), random_call(random)
        (row,) = rows_for(what_is_known(permissions, call))
        assert words(judge(permissions, call)) == outcome(row), f"seed {seed}: {permissions!r} {call!r}"
        met[row] += 1
    assert len(met) == len(ROWS), f"not met: {sorted(set(range(len(ROWS))) - set(met))}"


GLOBS = st.lists(st.sampled_from(SIGNS), max_size=4).map("".join)


@given(MEETING_PERMISSIONS, CALL_FACTS, st.data())
def test_any_call_is_judged_as_the_table_says(
    permissions: PermissionContext, call: CallFacts, data: st.DataObject
) -> None:
    """B41, B42, B43: the same, for hypothesis to find the smallest case that differs."""

    def with_simple_glob(each: PermissionRule) -> PermissionRule:
        return each.model_copy(update={"rule_content": data.draw(st.none() | GLOBS)})

    lists = {
        name: FrozenMap({tool: tuple(map(with_simple_glob, each)) for tool, each in getattr(permissions, name).items()})
        for name in LISTS.values()
    }
    permissions = permissions.model_copy(update=lists)
    (row,) = rows_for(what_is_known(permissions, call))
    assert words(judge(permissions, call)) == outcome(row)


@given(GLOBS, st.text(alphabet="ab*\n", max_size=5))
def test_the_tables_own_globs_are_those_of_fnmatch(glob: str, subject: str) -> None:
    assert glob_matches(glob, subject) == fnmatch.fnmatchcase(subject, glob)
