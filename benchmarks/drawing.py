"""The picture in `docs/`: a session over thousands of turns, beside one that sends all of it each time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pygal  # pyright: ignore[reportMissingTypeStubs]
from rich.table import Table

from benchmarks.long_life import Point, curve, naive_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

DOCS = Path(__file__).parents[1] / "docs"


def draw(console: Console, turns: int) -> None:
    """Live both sessions, print what was measured, and draw it."""
    ours, naive = asyncio.run(curve(turns)), asyncio.run(naive_curve(turns))
    for name, points in (("perdure", ours), ("all of it each time", naive)):
        console.print(_table(name, points))
    (DOCS / "long-life.json").write_text(
        json.dumps({"perdure": list(map(asdict, ours)), "naive": list(map(asdict, naive))}, indent=2) + "\n"
    )
    _picture("History of the present run, KB", ours, naive, lambda point: point.run_bytes / 1_000, "history")
    _picture("First query of an evicted session, ms", ours, naive, lambda point: point.waking_ms, "waking")
    console.print(f"drawn: {DOCS / 'long-life-history.svg'}, {DOCS / 'long-life-waking.svg'}")


def _table(name: str, points: Sequence[Point]) -> Table:
    table = Table(title=name)
    for column in ("turns", "history of the run, KB", "carried, KB", "first query, ms", "turn, ms"):
        table.add_column(column, justify="right")
    for point in points:
        table.add_row(
            f"{point.turns}",
            f"{point.run_bytes / 1000:.0f}",
            f"{point.carried_bytes / 1000:.0f}",
            f"{point.waking_ms:.0f}",
            f"{point.turn_ms:.1f}",
        )
    return table


def _picture(
    title: str, ours: Sequence[Point], naive: Sequence[Point], value: Callable[[Point], float], name: str
) -> None:
    chart = cast("Any", pygal).XY(
        title=title, x_title="turns", logarithmic=True, show_dots=True, disable_xml_declaration=True, js=()
    )
    chart.add("perdure", [(point.turns, max(value(point), 1)) for point in ours])
    chart.add("all of it each time", [(point.turns, max(value(point), 1)) for point in naive])
    (DOCS / f"long-life-{name}.svg").write_text(cast("str", chart.render(is_unicode=True)))
