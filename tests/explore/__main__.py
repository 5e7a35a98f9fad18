"""`python -m tests.explore`: every order of commands and outcomes of a small session, breadth first.

Ends with 1 when something that must hold does not, and prints the shortest life in which that happens.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.explore.search import Broken, Exploration, Found

STATES = 100_000


def main() -> int:
    """Explore, show how far it is, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--states", type=int, default=STATES, help=f"distinct states to visit (default {STATES})")
    limit = parser.parse_args().states
    console = Console()
    # Nothing that is kept is garbage, and looking through all of it again and again takes longer than the search.
    gc.disable()
    began = time.perf_counter()
    columns = (TextColumn("states"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=limit)
        found = Exploration(
            limit, lambda now: progress.update(task, completed=now.states, description=f"{now.depth} events deep")
        ).run()
        progress.update(task, completed=found.states)
    console.print(summary(found, time.perf_counter() - began))
    if found.broken is None:
        return 0
    show(console, found.broken)
    return 1


def summary(found: Found, seconds: float) -> str:
    """Return what was found in a line."""
    whole = "that is all there are" if found.whole else "there are more"
    return (
        f"{found.states:,} distinct states, up to {found.depth} events deep ({whole}); "
        f"{found.steps:,} steps and {found.refusals:,} refusals were looked at in {seconds:.0f} s"
    )


def show(console: Console, broken: Broken) -> None:
    """Print a life as a numbered list."""
    console.print(f"\nDoes not hold: {broken.why}", style="bold red", markup=False)
    console.print("The shortest way there:")
    for number, words in enumerate(broken.path, 1):
        console.print(f"{number:>4}  {words}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
