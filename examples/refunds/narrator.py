"""How the demonstration is told on a terminal."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perdure import AgentState, Interaction, SessionView, TurnResult

IN_ENGLISH = {
    "订单 A1042 需要申请退款": "Order A1042 needs a refund",
    "处理到哪里了": "How far is it?",
    "记一下已经退款了": "Note that it is refunded",
    "订单 A1044 也要退款": "Order A1044 needs a refund too",
}

LOG_LINES = 15
"""Lines of a log that are shown when something went wrong."""


class Narrator:
    """Tells each step, and shows what was said and what is on record."""

    def __init__(self, console: Console | None = None) -> None:
        """Tell it on this console."""
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._steps = count(1)

    def begin(self, temporal: str, refunds: str, ui: str) -> None:
        """Say what runs."""
        for name, where in (("Temporal server", temporal), ("Refund service", refunds), ("Session in the UI", ui)):
            self._console.print(f"{name:<18} [cyan]{escape(where)}[/]")

    def step(self, title: str) -> None:
        """Begin a chapter."""
        self._console.print(f"\n[bold]{next(self._steps)}. {title}[/]")

    def fact(self, text: str) -> None:
        """State something."""
        self._console.print(f"   [dim]{escape(text)}[/]")

    def process(self, name: str, pid: int, what: str) -> None:
        """Say what became of a process."""
        colour = "red" if "killed" in what else "green"
        self._console.print(f"   {name} {pid} [{colour}]{what}[/]")

    def say(self, who: str, text: str) -> None:
        """Show what somebody said; in English too, if it is one of the customer's sentences."""
        english = f"  [dim]({IN_ENGLISH[text]})[/]" if text in IN_ENGLISH else ""
        for number, line in enumerate(text.splitlines()):
            self._console.print(f"   [bold blue]{who if number == 0 else '':<8}[/] {escape(line)}{english}")

    def turn(self, text: str, result: TurnResult) -> None:
        """Show a question and its answer."""
        self.say("alice", text)
        self.say("support", result.output or f"({result.status}: {result.error})")

    def asked(self, interaction: Interaction) -> None:
        """Show what a person is asked."""
        for call in interaction.calls:
            self.say("asked", f"may {call.tool} run, with {dict(call.arguments)}?")

    def ledger(self, books: Mapping[str, Any]) -> None:
        """Show what the refund service has on record."""
        requests = ", ".join(f"{item['request_id']} {item['status']}" for item in books["requests"]) or "none"
        payments = ", ".join(f"{item['payment_id']} {item['amount']} EUR" for item in books["payments"]) or "none"
        self._console.print(f"   [magenta]ledger[/]   requests: {requests}; payments: {payments}")

    def session(self, view: SessionView, state: AgentState) -> None:
        """Show the session itself."""
        size = f"{view.history_length} events, {view.history_size / 1024:.0f} KiB of history"
        told = f"{view.status}, {view.turns} turns, {len(state.context)} messages in the context, {size}"
        self._console.print(f"   [magenta]session[/]  {told}")

    def verdict(self, checks: Mapping[str, bool]) -> bool:
        """Show what held; return whether everything did."""
        lines = [f"{'[green]✓[/]' if held else '[red]✗[/]'} {text}" for text, held in checks.items()]
        right = all(checks.values())
        title = "What this has shown" if right else "[red]This should not have happened[/]"
        self._console.print()
        self._console.print(Panel.fit("\n".join(lines), title=title, padding=(1, 2)))
        return right

    def failed(self, error: Exception, log: Path) -> None:
        """Say why the story ended early."""
        self._console.print(f"\n[red]{escape(str(error) or type(error).__name__)}[/]")
        if log.exists():
            self._console.print(f"[dim]The end of {log}:[/]")
            for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]:
                self._console.print(f"[dim]  {escape(line)}[/]")
