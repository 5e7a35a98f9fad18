from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import example, given, strategies as st
from pydantic import ValidationError

from perdure.commands import (
    BY_NAME,
    MAX_ID,
    MAX_NOTE,
    SIGNALS,
    AnyCommand,
    Close,
    Decision,
    Interrupt,
    OnBusy,
    Partial,
    SubmitTurn,
    WaitTurn,
    read_command,
)
from perdure.errors import InvalidCommand
from perdure.messages import DataBlock, TextBlock
from perdure.tasks import RequirementDecision
from perdure.values import freeze_object, thaw
from tests.support.strategies import ANY_TEXT, json_values

SECRET = "hunter2 is the password"  # noqa: S105  # of nothing

FIELDS = [
    "input",
    "turn_id",
    "on_busy",
    "run_id",
    "attributes",
    "wait",
    "actor",
    "message",
    "partial",
    "reason",
    "self",
    "type",
]

TEXT_FIELDS = st.dictionaries(
    st.sampled_from(["type", "text", "self", "source", "name", "cls", "data", "\ud800"]), json_values(max_leaves=3)
)

INPUTS = st.lists(
    TEXT_FIELDS
    | TEXT_FIELDS.map(lambda data: {**data, "type": "text"})
    | TEXT_FIELDS.map(lambda data: {**data, "type": "data"}),
    max_size=2,
)


def submit(**fields: object) -> SubmitTurn:
    return cast("SubmitTurn", read_command("submit_turn", json.dumps({"input": "hello", **fields})))


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("submit_turn", {}),
        ("submit_turn", {"input": None}),
        ("submit_turn", {"input": 5}),
        ("submit_turn", {"input": ""}),
        ("submit_turn", {"input": " \n\t"}),
        ("submit_turn", {"input": []}),
        ("submit_turn", {"input": [SECRET]}),
        ("submit_turn", {"input": {"text": SECRET}}),
        ("submit_turn", {"input": [{"type": "text"}]}),
        ("submit_turn", {"input": [{"type": "text", "text": ""}]}),
        ("submit_turn", {"input": [{"type": "text", "text": 5}]}),
        ("submit_turn", {"input": [{"type": SECRET, "text": SECRET}]}),
        ("submit_turn", {"input": [{"text": SECRET}]}),
        ("submit_turn", {"input": [{"type": "tool_use", "id": "1", "name": SECRET}]}),
        ("submit_turn", {"input": [{"type": "thinking", "thinking": SECRET}]}),
        ("submit_turn", {"input": [{"type": "data", "source": {"type": SECRET}}]}),
        ("submit_turn", {"input": [{"type": "data", "source": {"type": "url", "href": SECRET}}]}),
        ("submit_turn", {"input": SECRET, "turn_id": ""}),
        ("submit_turn", {"input": SECRET, "turn_id": "  "}),
        ("submit_turn", {"input": SECRET, "turn_id": 5}),
        ("submit_turn", {"input": SECRET, "turn_id": "hunter2" * 100}),
        ("submit_turn", {"input": SECRET, "turn_id": "hunter2\0"}),
        ("submit_turn", {"input": SECRET, "turn_id": "hunter2\ud800"}),
        ("submit_turn", {"input": SECRET, "run_id": "hunter2" * 100}),
        ("submit_turn", {"input": SECRET, "run_id": ["hunter2"]}),
        ("submit_turn", {"input": SECRET, "on_busy": SECRET}),
        ("submit_turn", {"input": SECRET, "after_interrupt": SECRET}),
        ("resume_turn", {}),
        ("resume_turn", {"turn_id": "t", "input": SECRET}),
        ("cancel_turn", {"turn_id": ""}),
        ("steer", {"input": []}),
        ("steer", {"input": SECRET, "turn_id": SECRET}),
        ("inject", {"input": " "}),
        ("pause", {"reason": SECRET * 200}),
        ("unpause", {"turn_id": SECRET}),
        ("submit_turn", {"input": SECRET, "wait": SECRET}),
        ("submit_turn", {"input": SECRET, "attributes": [SECRET]}),
        ("submit_turn", {"input": SECRET, "attributes": {"a": {"b": SECRET}}}),
        ("submit_turn", {"input": SECRET, "attributes": {SECRET: 5}}),
        ("submit_turn", {"input": SECRET, "attributes": {"a": SECRET * 200}}),
        ("submit_turn", {"input": SECRET, "actor": SECRET * 200}),
        ("submit_turn", {"input": SECRET, SECRET: SECRET}),
        ("submit_turn", {"input": SECRET, "hunter2" * 100_000: SECRET}),
        ("submit_turn", {"input": SECRET, "unknown_field": SECRET}),
        ("submit_turn", SECRET),
        ("submit_turn", [SECRET]),
        ("submit_turn", None),
        ("submit_turn", 5),
        ("interrupt", {"partial": SECRET}),
        ("interrupt", {"partial": None}),
        ("interrupt", {"message": [SECRET]}),
        ("interrupt", {"run_id": 5}),
        ("interrupt", {"turn_id": SECRET}),
        ("close", {"reason": SECRET * 200}),
        ("close", {"reason": 5}),
        ("wait_turn", {}),
        ("wait_turn", {"turn_id": None}),
        ("wait_turn", {"turn_id": " "}),
    ],
)
def test_a_malformed_command_is_refused_in_words_that_do_not_repeat_it(name: str, payload: object) -> None:
    """B16: a typed error, short, that names the command and keeps what people wrote to itself."""
    with pytest.raises(InvalidCommand, match=name) as caught:
        read_command(name, json.dumps(payload))
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(SECRET, id="no JSON"),
        pytest.param(f'{{"input": "{SECRET}"', id="half of it"),
        pytest.param(f'{{"input": "{SECRET}", "input": "{SECRET}"}}', id="twice the same key"),
        pytest.param(f'{{"input": NaN, "actor": "{SECRET}"}}', id="NaN"),
        pytest.param('{"input": ' + "[" * 100_000, id="bottomless"),
        pytest.param('{"input": ' + "7" * 5000 + "}", id="endless"),
        pytest.param(b"\xff\xfehunter2", id="no UTF-8"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_payload_that_is_no_json_is_refused_in_words_that_do_not_repeat_it(payload: str | bytes) -> None:
    """B16: for each command, by update and by signal."""
    for name in BY_NAME:
        with pytest.raises(InvalidCommand, match="not usable JSON") as caught:
            read_command(name, payload)
        assert "hunter2" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["", "submit", "SUBMIT_TURN", "x" * 10_000, "\0\ud800", "__init__"])
def test_a_command_that_does_not_exist_is_refused_with_the_names_of_those_that_do(name: str) -> None:
    """B16: and its own name is in the words shortened and in characters that can be stored."""
    with pytest.raises(InvalidCommand, match=", ".join(sorted(BY_NAME))) as caught:
        read_command(name, "{}")
    assert len(str(caught.value)) < 500
    str(caught.value).encode()


def test_waiting_is_no_signal_and_everything_else_is() -> None:
    """B16: a signal is never answered, so that there is nothing to wait for by one."""
    with pytest.raises(InvalidCommand, match="no command 'wait_turn'"):
        read_command("wait_turn", '{"turn_id": "t"}', by_signal=True)
    assert {"submit_turn", "interrupt", "close"} <= SIGNALS


@given(
    st.sampled_from([*BY_NAME, "other"]),
    st.binary(max_size=30)
    | ANY_TEXT
    | json_values().map(json.dumps)
    | st.dictionaries(st.sampled_from(FIELDS) | ANY_TEXT, json_values(max_leaves=3), max_size=4).map(json.dumps)
    | st.builds(json.dumps, st.fixed_dictionaries({"input": INPUTS}, optional={"turn_id": st.just("t")})),
    st.booleans(),
)
@example("submit_turn", '{"input": [{"type": "text", "text": "x", "self": 1}]}', False)
@example("submit_turn", '{"input": [{"type": "text", "text": "x", "\\ud800": 1}]}', False)
@example("submit_turn", '{"input": [{"type": "text"}]}', True)
@example("submit_turn", '{"input": "x", "\\ud800": 1}', True)
@example("submit_turn", '{"input": "x", "attributes": {"\\ud800": "\\ud800"}}', True)
def test_whatever_is_sent_is_a_command_or_a_typed_refusal(name: str, payload: str | bytes, by_signal: bool) -> None:  # noqa: FBT001
    """B16: no input makes reading a command raise anything else, so that no signal can fail a workflow task."""
    try:
        command = read_command(name, payload, by_signal=by_signal)
    except InvalidCommand as refusal:
        str(refusal).encode()
    else:
        assert isinstance(command, BY_NAME[name])
        command.model_dump_json().encode()


@given(json_values(max_leaves=10))
def test_a_command_given_as_frozen_json_is_read_like_its_bytes(value: Any) -> None:
    """B16: by whatever way a payload comes, the answer is the same."""
    payload = freeze_object({"input": value})

    def read(data: Any) -> AnyCommand | None:
        try:
            return read_command("submit_turn", data)
        except InvalidCommand:
            return None

    assert read(payload) == read(json.dumps(thaw(payload)))


def test_a_submit_has_sensible_defaults_and_reads_a_string_as_one_block() -> None:
    """B16: the smallest good submit."""
    command = submit()
    assert command.input == (TextBlock("hello"),)
    assert (command.turn_id, command.run_id, command.on_busy, command.wait) == (None, None, OnBusy.ENQUEUE, "accepted")
    blocks = [{"type": "text", "text": "see"}, {"type": "data", "source": {"type": "url", "url": "https://a/b.png"}}]
    kinds = [type(block) for block in submit(input=blocks).input]
    assert kinds == [TextBlock, DataBlock]
    picture = [{"type": "data", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]
    assert len(submit(input=picture).input) == 1


def test_input_text_is_cleaned_and_ids_are_refused_rather_than_changed() -> None:
    """B16, B77: text that can't be stored is kept as well as it can; an id that changed would be another id."""
    assert submit(input="a\ud800b\0").input == (TextBlock("a\ufffdb\ufffd"),)
    assert submit(actor="\0").actor == "\ufffd"
    for key in ("turn_id", "run_id"):
        with pytest.raises(InvalidCommand, match="no identifier may have"):
            submit(**{key: "a\0"})


def test_ids_and_notes_may_be_as_long_as_their_bounds_and_no_longer() -> None:
    """B16: a turn id of 200 characters is one; of 201 it is not."""
    assert submit(turn_id="t" * MAX_ID, run_id="r" * MAX_ID, actor="a" * MAX_NOTE).turn_id == "t" * 200
    for fields in (
        {"turn_id": "t" * 201},
        {"run_id": "r" * 201},
        {"actor": "a" * 2001},
        {"attributes": {"k": "v" * 2001}},
    ):
        with pytest.raises(InvalidCommand, match="at most"):
            submit(**fields)


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_blank_run_id_is_none_and_one_is_generated(blank: str) -> None:
    """B32: by submit and by interrupt."""
    assert submit(run_id=blank).run_id is None
    assert cast("Interrupt", read_command("interrupt", json.dumps({"run_id": blank}))).run_id is None


def test_the_other_commands_read_their_fields() -> None:
    """B16: and all may be empty but the one that names a turn."""
    assert read_command("interrupt", "{}") == Interrupt()
    assert read_command("interrupt", '{"partial": "discard", "message": "stop"}') == Interrupt(
        partial=Partial.DISCARD, message="stop"
    )
    assert read_command("close", '{"reason": "done", "actor": "ops"}') == Close(reason="done", actor="ops")
    assert read_command("wait_turn", '{"turn_id": "t"}') == WaitTurn(turn_id="t")


def test_commands_are_immutable_and_hashable() -> None:
    """B2: what was admitted is what is carried out."""
    command = submit(attributes={"k": "v"})
    with pytest.raises(TypeError):
        command.attributes["k"] = "w"
    assert hash(command) == hash(submit(attributes={"k": "v"}))


def test_what_people_decide_is_given_by_position_as_well() -> None:
    """B45, B52: as the interface is written down."""
    assert Decision(True, {"a": 1}, "why") == Decision(approve=True, arguments={"a": 1}, reason="why")
    assert Decision(False).arguments is None
    assert RequirementDecision("USER", "m-1").source_ref == "m-1"
    with pytest.raises(TypeError, match="takes 3 values"):
        Decision(True, None, None, "more")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        Decision()  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError):
        Decision(True, aproove=False)  # pyright: ignore[reportCallIssue]
