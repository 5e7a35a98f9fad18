"""What reaches the terminal: text that can't drive it, lines for people, JSON for programs.

Whatever a model, a user or a server said goes through `printable` first. Nothing here interprets markup.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel

PIPE_WIDTH = 1000
"""Columns when nobody looks: wide enough that no table is folded."""

GAP = 2
"""Columns of nothing behind each column of a table."""

DIRECTIONS = "\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069"
"""Characters that reorder the text around them, so that a line reads as something else than it is."""

CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{DIRECTIONS}]")
NOT_IN_JSON = re.compile(rf"[\x7f-\x9f\u2028\u2029{DIRECTIONS}]")
"""Those of them that JSON leaves as they are."""

PICTURES = 0x2400
"""Where Unicode has its pictures of the control characters: ESC becomes the sign `␛`."""


def printable(text: str) -> str:
    """Return the text with each control character replaced by a sign for it; line ends and tabs stay."""
    return CONTROLS.sub(_sign, text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 200) -> str:
    """Return the text on one line, shortened."""
    line = " ".join(printable(text[: limit * 4]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _sign(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(PICTURES + code) if code < ord(" ") else "\N{REPLACEMENT CHARACTER}"


def console(stream: TextIO | None = None) -> Console:
    """Return a console on `stream`, standard output by default: text is text, and plain unless on a terminal."""
    file = sys.stdout if stream is None else stream
    terminal = file.isatty()
    width = None if terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=file, force_terminal=terminal, markup=False, highlight=False, emoji=False, width=width)


def say(text: str = "") -> None:
    """Print a line, or lines, to standard output."""
    sys.stdout.write(f"{printable(text)}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Print one line to standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"perdure: {one_line(text, limit=4000)}\n")
    sys.stderr.flush()


def show(what: RenderableType) -> None:
    """Print a table, or whatever rich can print, to standard output; what is wider than the terminal stays whole."""
    console().print(what, crop=False)


def say_json(text: str) -> None:
    """Print JSON, with what a terminal might obey written as escapes: it reads the same."""
    sys.stdout.write(f"{NOT_IN_JSON.sub(_escape, text)}\n")
    sys.stdout.flush()


def say_model(model: BaseModel) -> None:
    """Print a model as JSON on one line."""
    say_json(model.model_dump_json())


def compact(data: Mapping[str, object]) -> str:
    """Return a JSON object in little room."""
    return json.dumps(data, ensure_ascii=False, default=str)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def fields(rows: Iterable[tuple[str, object]]) -> Table:
    """Return names and values as two columns; what is None or empty is left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None and value != "":
            table.add_row(name, Text(printable(str(value))))
    return table


def columns(names: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """Return rows under headings, as wide as they are: an id in parts could be neither copied nor searched for."""
    lines = [
        [name.upper() for name in names],
        *([one_line("" if cell is None else str(cell)) for cell in row] for row in rows),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), width=sum(widths) + GAP * len(widths))
    for heading, width in zip(lines[0], widths, strict=True):
        table.add_column(heading, width=width)
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    return table
