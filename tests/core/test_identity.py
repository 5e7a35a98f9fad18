from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, example, given, strategies as st

from perdure.errors import InvalidSessionKey
from perdure.identity import MAX_WORKFLOW_ID, SessionKey, attribute_value
from tests.support.strategies import NAMES

UGLY = [
    "/",
    ":",
    "%",
    " a",
    "a ",
    "😀",
    "..",
    "~",
    "__anon__",
    "%7E",
    "%7e",
    "a:b",
    "a%3Ab",
    "é",
    "e\u0301",
    "session",
    "A",
    "a",
]

PARTS = (NAMES | st.sampled_from(UGLY)).filter(lambda part: part.strip() != "")
USERS = st.none() | PARTS
KEYS = st.tuples(PARTS, PARTS, USERS)


def make(parts: tuple[str, str, str | None]) -> SessionKey:
    return SessionKey(*parts)


@given(KEYS, KEYS)
@example(("a", "b", None), ("a", "b", "~"))
@example(("a", "b", None), ("a", "b", "__anon__"))
@example(("a:b", "c", "d"), ("a", "c", "b:d"))
@example(("a", "b", "c"), ("b", "a", "c"))
def test_two_keys_have_the_same_workflow_id_only_if_they_are_the_same_key(
    one: tuple[str, str, str | None], other: tuple[str, str, str | None]
) -> None:
    """B4: two sessions never share a workflow, whatever their names are made of."""
    assert (make(one).workflow_id == make(other).workflow_id) == (one == other)


def test_the_same_three_names_in_other_places_are_other_sessions() -> None:
    """B4: agent, user and session are told apart by place."""
    ids = {SessionKey(*order).workflow_id for order in permutations(["a", "b", "c"])}
    assert len(ids) == 6


@given(KEYS)
def test_a_key_can_be_read_back_from_its_workflow_id(parts: tuple[str, str, str | None]) -> None:
    """B4: parsing is the exact inverse of writing, and the id is plain ASCII of four parts."""
    key = make(parts)
    assert SessionKey.parse(key.workflow_id) == key
    assert key.workflow_id.isascii()
    assert key.workflow_id.count(":") == 3


@given(
    st.text(alphabet="session:%~aA0174Ee.-_ é\ud800", max_size=24).map(lambda rest: f"session:{rest}")
    | st.text(max_size=20)
)
@example("session:%61:~:b")
@example("session:%c3%a9:~:b")
@example("session:é:~:b")
@example("session:a:%7E:b")
@example("session:a:~:\ud800")
def test_a_workflow_id_is_parsed_only_if_it_is_what_the_key_would_have_written(text: str) -> None:
    """B4: nothing but the canonical spelling names a session, so no session has two names."""
    try:
        key = SessionKey.parse(text)
    except InvalidSessionKey:
        return
    assert key.workflow_id == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "session",
        "session:a:~",
        "session:a:~:b:c",
        "Session:a:~:b",
        "other:a:~:b",
        "session:%61:~:b",
        "session:a:%75ser:b",
        "session:%c3%a9:~:b",
        "session:é:~:b",
        "session:a b:~:b",
        "session:a:~:",
        "session::~:b",
        "session:a::b",
        "session:a:%20:b",
        "session:%20:~:b",
        "session:a:~:%",
        "session:a:~:%4",
        "session:a:~:%zz",
        "session:a:~:%FF",
        "session:a:~:%00",
        "session:a:~:%ED%A0%80",
        "session:a:~:~",
        "session:a:~:\ud800",
        " session:a:~:b",
        "session:a:~:b\n",
    ],
)
def test_what_no_key_would_have_written_names_no_session(text: str) -> None:
    """B4: letters that needed no encoding, lower-case hex, missing, blank and extra parts, bytes that are no UTF-8."""
    with pytest.raises(InvalidSessionKey):
        SessionKey.parse(text)


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u2003"])
def test_a_blank_agent_or_session_names_nothing_and_a_blank_user_is_nobody(blank: str) -> None:
    """B4: blank users are the anonymous one; the other parts must say something."""
    with pytest.raises(InvalidSessionKey, match="agent_id"):
        SessionKey(blank, "s")
    with pytest.raises(InvalidSessionKey, match="session_id"):
        SessionKey("a", blank)
    assert SessionKey("a", "s", blank) == SessionKey("a", "s")
    assert hash(SessionKey("a", "s", blank)) == hash(SessionKey("a", "s"))


@pytest.mark.parametrize("part", [None, 5, b"a", ["a"]])
def test_a_part_that_is_no_text_is_refused(part: object) -> None:
    """B4: also from callers without a type checker."""
    with pytest.raises(InvalidSessionKey):
        SessionKey(part, "s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidSessionKey):
        SessionKey("a", part)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    if part is not None:
        with pytest.raises(InvalidSessionKey):
            SessionKey("a", "s", part)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("part", ["a\0b", "\ud800", "x\udfff"])
def test_a_name_that_can_not_be_stored_names_nothing(part: str) -> None:
    """B4, B77: cleaning would change it, and the state would then belong to another session."""
    for parts in [(part, "s", None), ("a", part, None), ("a", "s", part)]:
        with pytest.raises(InvalidSessionKey):
            SessionKey(*parts)


def test_a_workflow_id_may_have_a_thousand_characters_and_no_more() -> None:
    """B4: 300 characters a part are fine; what Temporal would refuse is refused here, with the sizes."""
    assert len(SessionKey("a" * 300, "s" * 300, "u" * 300).workflow_id) < MAX_WORKFLOW_ID
    room = MAX_WORKFLOW_ID - len(SessionKey("a", "s").workflow_id) + 1
    assert len(SessionKey("a", "s" * room).workflow_id) == MAX_WORKFLOW_ID
    with pytest.raises(InvalidSessionKey, match="1001"):
        SessionKey("a", "s" * (room + 1))
    with pytest.raises(InvalidSessionKey):
        SessionKey("a", "😀" * 100)


@given(NAMES, NAMES)
def test_two_names_are_told_apart_in_search_attributes_too(one: str, other: str) -> None:
    """B4: searching for one user never finds another."""
    assume(one != other)
    assert attribute_value(one) != attribute_value(other)


@given(NAMES)
@example("a\"b'c\\d%e\x1f\x7f")
def test_a_name_in_search_attributes_has_nothing_that_a_query_trips_over(name: str) -> None:
    """B4: no quotes, backslashes or control characters; names without them stand as they are."""
    value = attribute_value(name)
    assert not [each for each in value if each in "\"'\\\x7f" or each < " "]
    if not [each for each in name if each in "\"'\\%\x7f" or each < " "]:
        assert value == name


@given(st.text(alphabet='%257E"\\a', max_size=6), st.text(alphabet='%257E"\\a', max_size=6))
def test_encoded_and_plain_names_never_meet_in_search_attributes(one: str, other: str) -> None:
    """B4: a name that looks encoded is not the name that it would be the encoding of."""
    assert (attribute_value(one) == attribute_value(other)) == (one == other)
    assert attribute_value("%22") != attribute_value('"')
