"""Commands that answer what a session asks of people, and find the sessions that ask."""

# typer reads the annotations when the program runs, so they are no strings here.

import json
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import typer

from perdure.cli.asked import answerer, confirmed, one_request, request_lines, rule_line
from perdure.cli.call import Call, connected
from perdure.cli.failures import ExitCode, WrongUsage
from perdure.cli.frame import PEOPLE, command
from perdure.cli.options import Actor, Reason, Server, Target, Timeout, answering_server_options, session_options
from perdure.cli.receipts import answered, tell_receipt
from perdure.cli.terminal import say, say_json
from perdure.cli.turns import check_wait, fetch
from perdure.cli.waiting_sessions import named, waiting
from perdure.client import Sessions
from perdure.commands import Decision
from perdure.results import Interaction, InteractionCall, SessionStatus
from perdure.tools import ToolError

Request: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[REQUEST_ID]", help="The request; not needed when there is only one.")
]
Calls: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--call", metavar="CALL_ID", help="Only this call; the others are asked again. Repeatable."),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether it is meant.")]
Wait: TypeAlias = Annotated[bool, typer.Option("--wait", help="Wait until the turn is settled, and print the answer.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    about = "-a support -u alice -s orders"
    command(app, answering_server_options, panel=PEOPLE, examples=("perdure approvals --agent support",))(approvals)
    command(
        app,
        session_options,
        panel=PEOPLE,
        examples=(f"perdure approve {about}", f"perdure approve {about} --remember --yes --wait"),
    )(approve)
    command(app, session_options, panel=PEOPLE, examples=(f'perdure deny {about} --reason "Not this month"',))(deny)
    command(
        app,
        session_options,
        panel=PEOPLE,
        examples=(f"perdure respond {about} --result 'call_1={{\"tracking\": 5}}'",),
    )(respond)


async def approvals(
    server: Server,
    *,
    agent: Annotated[str | None, typer.Option("--agent", "-a", help="Only this agent's.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only this user's.")] = None,
) -> None:
    """List all sessions that wait for somebody's approval, with what would be run.

    They are found as far as Temporal's visibility has heard of them: up to a moment ago.
    """
    sessions = Sessions(await server.place.connect())
    found = [
        (handle, request)
        for handle, view in await waiting(sessions, SessionStatus.NEEDS_APPROVAL, agent=agent, user=user)
        for request in view.interactions
        if request.kind == "approval"
    ]
    if server.as_json:
        listed = [{"workflow_id": handle.workflow_id, **_plain(request)} for handle, request in found]
        say_json(json.dumps(listed, ensure_ascii=False))
        return
    for handle, request in found:
        say(named(handle))
        for line in request_lines(request):
            say(f"  {line}")
    if not found:
        say("no session waits for an approval")


def _plain(request: Interaction) -> Mapping[str, object]:
    return request.model_dump(mode="json")


async def approve(
    target: Target,
    *,
    request: Request = None,
    call: Calls = None,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="Other arguments, for a single call. They are checked again."),
    ] = None,
    remember: Annotated[
        bool, typer.Option("--remember", help="Write the rules that are shown, so that such calls do not ask again.")
    ] = False,
    reason: Reason = None,
    actor: Actor = None,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,  # an option of the command
) -> ExitCode:
    """Let calls run that a session asks about. What would be run is shown first."""
    check_wait(wait=wait, timeout=timeout)
    edited = None if arguments is None else _object(arguments)
    if edited is not None and remember:
        msg = "--remember is about the arguments that are shown, and --arguments are others; say one of the two"
        raise WrongUsage(msg)
    talk = await connected(target)
    asked = one_request((await talk.patiently(talk.handle.view)), "approval", request)
    chosen = _chosen(asked, call)
    if edited is not None and len(chosen) != 1:
        msg = f"--arguments are for a single call, and {len(chosen)} are asked about; name one by --call"
        raise WrongUsage(msg)
    lines = [*request_lines(asked, chosen)]
    if edited is not None:
        lines.append(f"  with these arguments: {json.dumps(edited, ensure_ascii=False)}")
    if remember:
        lines += [f"  from now on allowed: {rule_line(rule)}" for each in chosen for rule in each.suggested_rules]
    if not confirmed(lines, "Run it?", yes=yes):
        return ExitCode.REFUSED
    decision = Decision(approve=True, arguments=edited, reason=reason)
    whole = call is None and edited is None
    decisions = True if whole else {each.call_id: decision for each in chosen}
    return await _answer(
        talk, asked, decisions, remember=remember, reason=reason, actor=answerer(actor), wait=wait, timeout=timeout
    )


async def deny(
    target: Target,
    *,
    request: Request = None,
    call: Calls = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; the model is told.")] = None,
    actor: Actor = None,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,  # an option of the command
) -> ExitCode:
    """Forbid calls that a session asks about. The model is told, with the reason, and the turn goes on."""
    check_wait(wait=wait, timeout=timeout)
    talk = await connected(target)
    asked = one_request((await talk.patiently(talk.handle.view)), "approval", request)
    chosen = _chosen(asked, call)
    if not confirmed([*request_lines(asked, chosen)], "Deny it?", yes=yes):
        return ExitCode.REFUSED
    decision = Decision(approve=False, reason=reason)
    decisions = False if call is None else {each.call_id: decision for each in chosen}
    return await _answer(
        talk, asked, decisions, remember=False, reason=reason, actor=answerer(actor), wait=wait, timeout=timeout
    )


async def respond(
    target: Target,
    *,
    request: Request = None,
    result: Annotated[
        list[str] | None,
        typer.Option("--result", metavar="CALL_ID=JSON", help="What came of a call. Text may do without quotes."),
    ] = None,
    error: Annotated[
        list[str] | None, typer.Option("--error", metavar="CALL_ID=TEXT", help="Why a call failed. Repeatable.")
    ] = None,
    reason: Reason = None,
    actor: Actor = None,
    wait: Wait = False,
    timeout: Timeout = None,  # an option of the command
) -> ExitCode:
    """Give the results of calls that were carried out outside. `perdure view` shows which are waited for."""
    check_wait(wait=wait, timeout=timeout)
    results: dict[str, object] = {name: _json_or_text(value) for name, value in _pairs("--result", result)}
    results |= {name: ToolError(value) for name, value in _pairs("--error", error)}
    if not results:
        msg = "what came of it? Say --result CALL_ID=JSON, or --error CALL_ID=TEXT"
        raise WrongUsage(msg)
    talk = await connected(target)
    asked = one_request((await talk.patiently(talk.handle.view)), "external", request)
    receipt = await talk.once(
        lambda: talk.handle.respond(asked.request_id, result=results, reason=reason, actor=answerer(actor))
    )
    if wait:
        return await fetch(talk, receipt.turn_id, timeout)
    tell_receipt(receipt, answered, as_json=target.as_json)
    return ExitCode.DONE


async def _answer(
    talk: Call,
    asked: Interaction,
    decisions: bool | Mapping[str, Decision],  # noqa: FBT001  # the answer itself
    *,
    remember: bool,
    reason: str | None,
    actor: str | None,
    wait: bool,
    timeout: float | None,  # an option of the commands
) -> ExitCode:
    receipt = await talk.once(
        lambda: talk.handle.respond(asked.request_id, decisions, remember=remember, reason=reason, actor=actor)
    )
    if wait:
        return await fetch(talk, receipt.turn_id, timeout)
    tell_receipt(receipt, answered, as_json=talk.target.as_json)
    return ExitCode.DONE


def _chosen(asked: Interaction, wanted: list[str] | None) -> tuple[InteractionCall, ...]:
    if not wanted:
        return asked.calls
    unknown = set(wanted) - {call.call_id for call in asked.calls}
    if unknown and asked.calls:
        msg = f"--call: {', '.join(sorted(unknown))} is not asked about; these are: " + ", ".join(
            call.call_id for call in asked.calls
        )
        raise WrongUsage(msg)
    return tuple(call for call in asked.calls if call.call_id in wanted)


def _pairs(option: str, items: list[str] | None) -> list[tuple[str, str]]:
    found = [item.partition("=") for item in items or ()]
    if any(not (name and equals) for name, equals, _ in found):
        msg = f"{option} takes CALL_ID=VALUE"
        raise WrongUsage(msg)
    return [(name, value) for name, _, value in found]


def _json_or_text(value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _object(text: str) -> dict[str, object]:
    value = _json_or_text(text)
    if not isinstance(value, dict):
        msg = "--arguments takes a JSON object"
        raise WrongUsage(msg)
    return value  # pyright: ignore[reportUnknownVariableType]  # JSON
