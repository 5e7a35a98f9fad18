"""`python -m benchmarks`: perdure beside a bare Temporal workflow, on one server, in one run.

Absolute times are of this machine at this moment; the ratios are what to compare.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cases import bench, events_per_turn, latency, long_turn, throughput
from benchmarks.drawing import draw
from benchmarks.interrupts import MOMENTS, interrupts
from benchmarks.long_life import history_ratio, wakings
from benchmarks.many import show_many

RESULTS = Path(__file__).parent / "results"
MAX_LATENCY_RATIO = 1.15
MIN_THROUGHPUT_RATIO = 0.85
MAX_LONG_BYTES = 2_500_000
MAX_DISCARD_MS = 100
MAX_KEEP_MS = 2000
MAX_HISTORY_SUBMIT = 2.5
MAX_HISTORY_ASK = 3
MAX_WAKING_MS = 300
EVENTS = 11
SESSIONS = 40


async def measure(turns: int, long_life: int) -> dict[str, float | str]:
    """Run all cases and return their numbers."""
    async with bench() as running:
        ours_events, bare_events = await events_per_turn(running)
        ours, bare = await latency(running, turns)
        ours_rate, bare_rate = await throughput(running, SESSIONS, max(turns // 20, 2))
        long = await long_turn(running)
    stopped = await interrupts()
    submitted, asked = await history_ratio(long_life, ask=False), await history_ratio(long_life, ask=True)
    waking = await wakings(long_life)
    return {
        "events_ours": ours_events,
        "events_bare": bare_events,
        "p50_ms_ours": statistics.median(ours) * 1000,
        "p50_ms_bare": statistics.median(bare) * 1000,
        "p50_ratio": statistics.median(ours) / statistics.median(bare),
        "turns_per_second_ours": ours_rate,
        "turns_per_second_bare": bare_rate,
        "throughput_ratio": ours_rate / bare_rate,
        "long_turn_status": long.status,
        "long_turn_model_calls": long.model_calls,
        "long_turn_history_bytes": long.history_bytes,
        "long_turn_seconds": long.seconds,
        "long_life_turns": long_life,
        "history_over_transcript_submit": submitted,
        "history_over_transcript_ask": asked,
        "waking_ms": waking,
        "interrupt_discard_p50_ms": stopped.discard_p50 * 1000,
        "interrupt_discard_p95_ms": stopped.discard_p95 * 1000,
        "interrupt_keep_p95_ms": stopped.keep_p95 * 1000,
        "interrupt_late_answers": stopped.late_answers,
        "interrupt_refused_contexts": stopped.refused_contexts,
        "interrupt_stuck_sessions": stopped.stuck,
    }


def table(numbers: dict[str, float | str]) -> Table:
    """Return the numbers as people read them."""
    shown = Table(title=f"perdure beside a bare workflow ({platform.machine()}, Python {platform.python_version()})")
    for column in ("what", "perdure", "bare", "ratio", "bar"):
        shown.add_column(column, justify="left" if column == "what" else "right")
    shown.add_row("history events of a text turn", f"{numbers['events_ours']}", f"{numbers['events_bare']}", "", "11")
    shown.add_row(
        "latency of a text turn, p50, ms",
        f"{numbers['p50_ms_ours']:.1f}",
        f"{numbers['p50_ms_bare']:.1f}",
        f"{numbers['p50_ratio']:.2f}",
        f"≤ {MAX_LATENCY_RATIO}",
    )
    shown.add_row(
        f"turns a second, {SESSIONS} sessions",
        f"{numbers['turns_per_second_ours']:.0f}",
        f"{numbers['turns_per_second_bare']:.0f}",
        f"{numbers['throughput_ratio']:.2f}",
        f"≥ {MIN_THROUGHPUT_RATIO}",
    )
    shown.add_row("long turn: model calls", f"{numbers['long_turn_model_calls']} of 100", "", "", "100")
    shown.add_row("long turn: history, MB", f"{float(numbers['long_turn_history_bytes']) / 1e6:.2f}", "", "", "< 2.5")
    shown.add_row("long turn: seconds", f"{numbers['long_turn_seconds']:.1f}", "", "", "")
    life = numbers["long_life_turns"]
    for what, number, bar in (
        (
            f"{life} turns of 2 + 2 KB by submit: history over transcript",
            f"{numbers['history_over_transcript_submit']:.2f}",
            f"≤ {MAX_HISTORY_SUBMIT}",
        ),
        (
            f"{life} turns of 2 + 2 KB by ask: history over transcript",
            f"{numbers['history_over_transcript_ask']:.2f}",
            f"≤ {MAX_HISTORY_ASK}",
        ),
        (f"first query when evicted, after {life} turns, ms", f"{numbers['waking_ms']:.0f}", f"< {MAX_WAKING_MS}"),
        ("interrupt to receipt, nothing kept, p50, ms", f"{numbers['interrupt_discard_p50_ms']:.0f}", ""),
        (
            "interrupt to receipt, nothing kept, p95, ms",
            f"{numbers['interrupt_discard_p95_ms']:.0f}",
            f"< {MAX_DISCARD_MS}",
        ),
        (
            "interrupt to receipt, half answer kept, p95, ms",
            f"{numbers['interrupt_keep_p95_ms']:.0f}",
            f"< {MAX_KEEP_MS}",
        ),
        (f"late answers after {MOMENTS} interrupts at random moments", f"{numbers['interrupt_late_answers']}", "0"),
        ("contexts that a strict validator refuses after them", f"{numbers['interrupt_refused_contexts']}", "0"),
        ("sessions that do not go on after them", f"{numbers['interrupt_stuck_sessions']}", "0"),
    ):
        shown.add_row(what, number, "", "", bar)
    return shown


def main() -> None:
    """Measure, print a table and keep the numbers as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--turns", type=int, default=200, help="text turns of the latency case (default 200)")
    parser.add_argument("--long-life", type=int, default=1_000, help="turns of the long-life cases (default 1000)")
    parser.add_argument(
        "--curve", type=int, metavar="TURNS", help="live so many turns instead, and draw docs/long-life.svg"
    )
    parser.add_argument(
        "--sessions", type=int, metavar="COUNT", help="open so many sessions instead, wake each, and watch the worker"
    )
    given = parser.parse_args()
    console = Console()
    if given.sessions:
        show_many(console, given.sessions)
        return
    if given.curve:
        draw(console, given.curve)
        return
    numbers = asyncio.run(measure(given.turns, given.long_life))
    console.print(table(numbers))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(numbers, indent=2) + "\n")
    console.print(f"kept as {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
