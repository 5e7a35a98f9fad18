"""`perdure upgrade`: moving sessions to the worker version that is current."""

# typer reads the annotations when the program runs, so they are no strings here.

import sys
from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from perdure import upgrades
from perdure.cli.failures import ExitCode
from perdure.cli.frame import CARE, command
from perdure.cli.options import Server, answering_server_options
from perdure.cli.terminal import compact, complain, say, say_json
from perdure.upgrades import Deployment, Outcome, Upgrade

EVERY = 100
"""Sessions after which a person is told how far it has come."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        answering_server_options,
        panel=CARE,
        examples=("perdure upgrade", "perdure upgrade --deployment support --rate 10 --json"),
    )(upgrade)


async def upgrade(
    server: Server,
    *,
    deployment: Annotated[
        str | None,
        typer.Option(
            "--deployment", metavar="NAME", envvar="PERDURE_DEPLOYMENT", help="Only of this deployment; all by default."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0.01, metavar="N", help="Sessions that are asked in a second, at most.")
    ] = 50,
    patience: Annotated[
        float, typer.Option("--patience", min=0.1, metavar="SECONDS", help="How long one session may take to answer.")
    ] = upgrades.PATIENCE,
) -> int | None:
    """Move open sessions to the worker version that is current.

    Each session that is pinned to another version is asked to go on in a new run: at once, or when what is in flight
    has ended. Run it when a version was made current, and again until nothing is left; repeating it is harmless. The
    workers of the old versions must still run. Exit code 1: some sessions stay where they are; each is named with the
    reason.
    """
    client = await server.place.connect()
    results: list[Upgrade] = []
    for each in await upgrades.deployments(client, deployment):
        total = await upgrades.count(client, each)
        if total and not server.as_json:
            say(_heading(each, total))
        async for result in upgrades.upgrade(client, each, rate=rate, patience=patience):
            results.append(result)
            if result.outcome is Outcome.STAYS and not server.as_json:
                complain(f"{result.workflow_id} stays on {result.version}: {result.why}")
            if len(results) % EVERY == 0 and sys.stderr.isatty():
                complain(f"{len(results)} sessions so far")
    counts = Counter(result.outcome for result in results)
    if server.as_json:
        say_json(_json(counts, results))
    else:
        say(_summary(counts))
    return ExitCode.REFUSED if counts[Outcome.STAYS] else None


def _heading(deployment: Deployment, total: int) -> str:
    where = " or ".join(deployment.wanted) or "workers without a version"
    return f"{deployment.name}: about {_sessions(total)} on other versions than {where}"


def _sessions(number: int) -> str:
    return f"{number:,} {'session' if number == 1 else 'sessions'}"


def _summary(counts: Counter[Outcome]) -> str:
    return (
        f"{_sessions(counts[Outcome.MOVED])} moved, {counts[Outcome.ASKED]:,} will when what is in flight has ended, "
        f"{counts[Outcome.STAYS]:,} could not be moved"
    )


def _json(counts: Counter[Outcome], results: list[Upgrade]) -> str:
    left = [asdict(result) for result in results if result.outcome is not Outcome.MOVED]
    return compact({**{outcome.value: counts[outcome] for outcome in Outcome}, "sessions": left})
