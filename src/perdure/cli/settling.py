"""Commands for operations whose outcome nobody knows."""

# typer reads the annotations when the program runs, so they are no strings here.

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from perdure.cli.answering import Wait, Yes
from perdure.cli.asked import answerer, argument_lines, confirmed
from perdure.cli.call import connected
from perdure.cli.failures import ExitCode, WrongUsage
from perdure.cli.frame import PEOPLE, command
from perdure.cli.options import Actor, Server, Target, Timeout, answering_server_options, session_options
from perdure.cli.receipts import settled, tell_receipt
from perdure.cli.shapes import moment
from perdure.cli.terminal import say, say_json
from perdure.cli.turns import check_wait, fetch
from perdure.cli.waiting_sessions import named, waiting
from perdure.client import Sessions
from perdure.operations import Outcome
from perdure.results import Operation, SessionStatus


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(
        app, answering_server_options, panel=PEOPLE, examples=("perdure uncertain", "perdure uncertain -a support")
    )(uncertain)
    command(
        app,
        session_options,
        panel=PEOPLE,
        examples=(
            f'perdure reconcile {about} --happened \'1f2e…={{"paid": 500}}\' --reason "in the bank\'s list"',
            f'perdure reconcile {about} --did-not-happen 1f2e… --reason "not in the bank\'s list"',
        ),
    )(reconcile)


async def uncertain(
    server: Server,
    *,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Only this agent's.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only this user's.")] = None,
    session: Annotated[str | None, typer.Option("--session", "-s", help="Only the session of this name.")] = None,
) -> None:
    """List operations whose outcome nobody knows, in all sessions that need somebody to look.

    `perdure reconcile` says what became of them.
    """
    sessions = Sessions(await server.place.connect())
    status = SessionStatus.NEEDS_RECONCILIATION
    found = [
        (handle, operation)
        for handle, view in await waiting(sessions, status, agent=agent, user=user, session=session)
        for operation in view.uncertain
    ]
    if server.as_json:
        plain = [{"workflow_id": handle.workflow_id, **one.model_dump(mode="json")} for handle, one in found]
        say_json(json.dumps(plain, ensure_ascii=False))
        return
    for handle, one in found:
        say(named(handle))
        for line in _lines(one):
            say(f"  {line}")
    if not found:
        say("no operation's outcome is unknown, but for those that are still under way or being asked about")


def _lines(one: Operation) -> Iterator[str]:
    under_way = "" if one.over_by is None else f", may be under way until {moment(one.over_by)}"
    yield f"{one.operation_id}  {one.tool}, turn {one.turn_id}, begun {moment(one.started_at)}{under_way}"
    yield from argument_lines(one.arguments)


async def reconcile(
    target: Target,
    *,
    reason: Annotated[str, typer.Option("--reason", help="How that is known; for the record.")],
    happened: Annotated[
        list[str] | None,
        typer.Option("--happened", metavar="ID[=JSON]", help="It took effect, with this result. Repeatable."),
    ] = None,
    did_not_happen: Annotated[
        list[str] | None,
        typer.Option("--did-not-happen", metavar="ID", help="It did not: it is run, if its turn waits. Repeatable."),
    ] = None,
    unresolved: Annotated[
        list[str] | None,
        typer.Option("--unresolved", metavar="ID[=WHY]", help="Nobody can tell; the model is told so. Repeatable."),
    ] = None,
    actor: Actor = None,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,  # an option of the command
) -> ExitCode:
    """Say what became of the operations whose outcome is unknown: of all of a session at once.

    Look it up in the system of record first, by the operation's id. A turn that was suspended for it goes on; one that
    was interrupted can be resumed.
    """
    check_wait(wait=wait, timeout=timeout)
    outcomes = _outcomes(happened, did_not_happen, unresolved)
    call = await connected(target)
    known = {one.operation_id: one for one in (await call.patiently(call.handle.view)).uncertain}
    lines = [
        line
        for name, outcome in outcomes.items()
        for line in (f"{outcome.kind.replace('_', ' ')}:", *(_lines(known[name]) if name in known else (name,)))
    ]
    if not confirmed(lines, "Is that so?", yes=yes):
        return ExitCode.REFUSED
    receipt = await call.once(lambda: call.handle.reconcile(outcomes, reason=reason, actor=answerer(actor)))
    if wait:
        return await fetch(call, receipt.turn_id, timeout)
    tell_receipt(receipt, settled, as_json=target.as_json)
    return ExitCode.DONE


def _outcomes(
    happened: list[str] | None, did_not_happen: list[str] | None, unresolved: list[str] | None
) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for name, _, value in (item.partition("=") for item in happened or ()):
        outcomes[name] = Outcome.happened(_value(value))
    outcomes |= {name: Outcome.did_not_happen() for name in did_not_happen or ()}
    for name, _, why in (item.partition("=") for item in unresolved or ()):
        outcomes[name] = Outcome.unresolved(why)
    given = len(happened or ()) + len(did_not_happen or ()) + len(unresolved or ())
    if not outcomes or len(outcomes) != given:
        msg = "name each operation once, by --happened, --did-not-happen or --unresolved"
        raise WrongUsage(msg)
    return outcomes


def _value(text: str) -> object:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
