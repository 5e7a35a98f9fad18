"""What may reach a terminal."""

from __future__ import annotations

import io
import json
import shlex
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, strategies as st

from perdure import SessionHandle, SessionKey
from perdure.cli import terminal
from perdure.cli.terminal import CONTROLS, columns, one_line, printable
from perdure.cli.waiting_sessions import named
from perdure.client import list_query
from tests.cli.sample import HOSTILE
from workflows.inspection import as_code as code

if TYPE_CHECKING:
    from temporalio.client import Client


@given(st.text())
def test_printable_text_has_no_control_characters_but_line_ends_and_tabs(text: str) -> None:
    assert not CONTROLS.search(printable(text))
    assert printable(printable(text)) == printable(text)


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Z"])))
def test_ordinary_text_is_printed_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_escapes_and_reordering_characters_become_signs() -> None:
    shown = printable(HOSTILE)
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "␛[2J" in shown
    assert "[bold]not bold[/bold] :smile:" in shown


def test_a_line_is_one_line_however_long_its_text() -> None:
    assert one_line("a\nb\tc") == "a b c"
    assert len(one_line("x" * 10_000, limit=50)) == 50


def test_a_table_takes_markup_for_text() -> None:
    stream = io.StringIO()
    terminal.console(stream).print(columns(["[red]name"], [["[bold]x[/bold] :smile:"]]), "[i]y[/i] :smile:")
    assert "[bold]x[/bold] :smile:" in stream.getvalue()
    assert "[RED]NAME" in stream.getvalue()
    assert "[i]y[/i] :smile:" in stream.getvalue()


@pytest.mark.parametrize("width", ["20", "80"])
def test_a_list_keeps_its_ids_whole_on_a_terminal_that_is_narrow(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    ids = "s" * 60, "日本" * 10, "short"
    terminal.show(columns(["agent", "session", "status"], [["a", each, "active"] for each in ids]))
    heading, *lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["a", each, "active"] for each in ids]
    assert heading.split() == ["AGENT", "SESSION", "STATUS"]


@given(value=st.text())
def test_json_reads_the_same_though_its_dangerous_characters_are_escaped(value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream := io.StringIO())
        terminal.say_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(stream.getvalue()) == value
    assert not CONTROLS.search(stream.getvalue())


def test_the_options_that_name_a_session_are_safe_to_paste() -> None:
    """B4: names are anybody's, and a shell reads them."""
    key = SessionKey("a", "x; touch /tmp/owned #", "al ice")
    handle = SessionHandle(cast("Client", FakeClient()), key)
    assert shlex.split(named(handle)) == ["-a", "a", "-u", "al ice", "-s", "x; touch /tmp/owned #"]


class FakeClient:
    """A client of which a handle asks nothing but another handle."""

    def get_workflow_handle(self, workflow_id: str) -> str:
        return workflow_id


def test_what_is_shown_of_others_is_one_code_span_whatever_is_in_it() -> None:
    """B77: no line end of any kind gets out of it, and no other sign that a reader would obey."""
    shown = code("x\r\r[click](http://evil)\n`\u2028`\x1b[2J")
    assert shown.count("`") == 2
    assert not set(shown) & set("\r\n\u2028\x1b")


def test_only_sessions_that_can_still_be_answered_wait_for_somebody() -> None:
    """B44: one that was ended by force shows what it needed then."""
    assert "ExecutionStatus = 'Running'" in list_query(None, None, "needs_approval")
    assert "ExecutionStatus = 'Running'" not in list_query(None, None, "closed")
