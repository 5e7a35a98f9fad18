"""What may reach a terminal."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, strategies as st

from perdure.cli import terminal
from perdure.cli.terminal import CONTROLS, columns, one_line, printable
from tests.cli.sample import HOSTILE


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


@given(value=st.text())
def test_json_reads_the_same_though_its_dangerous_characters_are_escaped(value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream := io.StringIO())
        terminal.say_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(stream.getvalue()) == value
    assert not CONTROLS.search(stream.getvalue())
