"""What people are asked, shown before they answer: and the question whether they mean it."""

from __future__ import annotations

import getpass
import json
import sys
from typing import TYPE_CHECKING

import typer

from perdure.cli.failures import WrongUsage
from perdure.cli.shapes import because, moment
from perdure.cli.terminal import complain, one_line, printable
from perdure.errors import InteractionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perdure.permissions import PermissionRule
    from perdure.results import Interaction, InteractionCall, InteractionKind, SessionView


MAX_ARGUMENT = 4_000
"""Characters of one argument that are shown."""


def answerer(actor: str | None) -> str | None:
    """Return who answers: the name that is given, or the one that this machine knows the person by."""
    if actor is not None:
        return actor
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # nobody that this machine knows
        return None


def one_request(view: SessionView, kind: InteractionKind, named: str | None) -> Interaction:
    """Return the request that is meant: the named one, or the only one of its kind.

    Raises:
        InteractionNotFound: there is none, or not any more, or several and none is named.
    """
    found = [one for one in view.interactions if one.kind == kind and named in (None, one.request_id)]
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"several are asked; name one: {', '.join(one.request_id for one in found)}"
        raise InteractionNotFound(msg)
    answered = next((one for one in view.answered if one.request_id == named), None)
    what = f"the session asks for no {kind}" if named is None else f"nothing is asked under the request id {named!r}"
    raise InteractionNotFound(f"{what}; `perdure view` shows what it needs" if answered is None else str(answered))


def request_lines(request: Interaction, calls: tuple[InteractionCall, ...] | None = None) -> Iterator[str]:
    """Yield what a request is about, a line each: which calls, with what, and why they are asked about."""
    yield f"request {request.request_id}, turn {request.turn_id}, asked {moment(request.asked_at)}{_expiry(request)}"
    for call in request.calls if calls is None else calls:
        subject = "" if call.subject is None else f", about {one_line(call.subject, 200)}"
        yield f"  {call.call_id}  {call.tool}{subject}{because(call.reason)}"
        yield from argument_lines(call.arguments)
        for rule in call.suggested_rules:
            yield f"      to remember: {rule_line(rule)}"


def argument_lines(arguments: Mapping[str, object]) -> Iterator[str]:
    """Yield all arguments of a call, a line each: nothing of what would be run may be hidden behind the rest of it."""
    for name, value in arguments.items():
        text = json.dumps(value, ensure_ascii=False, default=str)
        left = len(text) - MAX_ARGUMENT
        rest = f" … and {left} characters more: see `perdure view --json`" if left > 0 else ""
        yield f"      {one_line(name, 80)}: {text[:MAX_ARGUMENT]}{rest}"


def _expiry(request: Interaction) -> str:
    return "" if request.expires_at is None else f", counts as denied {moment(request.expires_at)}"


def rule_line(rule: PermissionRule) -> str:
    """Return what a rule allows."""
    return (
        f"{rule.tool_name}, every call" if rule.rule_content is None else f"{rule.tool_name} about {rule.rule_content}"
    )


def confirmed(lines: list[str], question: str, *, yes: bool, otherwise: str = "nothing was answered") -> bool:
    """Show what is about to happen, and ask whether it is meant; with `yes` it is shown, and nobody is asked.

    `otherwise` is said when it is not.

    Raises:
        WrongUsage: nobody is there to be asked.
    """
    for line in lines:
        typer.echo(printable(line), err=True)
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        msg = "nobody is here to confirm it; say --yes if it is meant"
        raise WrongUsage(msg)
    if typer.confirm(question, err=True):
        return True
    complain(otherwise)
    return False
