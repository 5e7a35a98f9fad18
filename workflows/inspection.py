"""What the Temporal UI shows of a session, beyond its history.

Nothing here costs an event but the search attributes, which change only when somebody must act.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.common import SearchAttributeKey, SearchAttributeUpdate, TypedSearchAttributes

from perdure import contract
from perdure.identity import SessionKey, attribute_value
from perdure.values import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.results import SessionStatus, SessionView

AGENT = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_AGENT)
USER = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_USER)
SESSION = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_SESSION)
STATUS = SearchAttributeKey.for_keyword(contract.ATTRIBUTE_STATUS)

SHOWN_TEXT = 200
"""Characters of foreign text in one place."""

SHOWN_QUEUE = 10
"""Waiting turns that are listed one by one."""


def attribute_updates(
    present: TypedSearchAttributes, key: SessionKey, status: SessionStatus
) -> Sequence[SearchAttributeUpdate[str]]:
    """Return what has to change in the search attributes; nothing on a plain turn."""
    wanted = {AGENT: attribute_value(key.agent_id), SESSION: attribute_value(key.session_id), STATUS: status.value}
    if key.user_id is not None:
        wanted[USER] = attribute_value(key.user_id)
    return [name.value_set(value) for name, value in wanted.items() if present.get(name) != value]


def current_details(key: SessionKey, view: SessionView) -> str:
    """Return the session at a glance, as Markdown."""
    return "\n".join(_lines(key, view))


def _lines(key: SessionKey, view: SessionView) -> Iterator[str]:
    yield " · ".join((f"**{view.status}**", *map(_code, (key.agent_id, key.user_id or "(anonymous)", key.session_id))))
    yield ""
    if view.active is not None:
        yield f"- running: turn {_code(view.active.turn_id)}, step {view.active.step}: {_code(view.active.doing)}"
    else:
        yield "- running: nothing"
    yield f"- waiting: {len(view.queue)} turn(s)"
    for entry in view.queue[:SHOWN_QUEUE]:
        yield f"- next: turn {_code(entry.turn_id)}: {_code(entry.text)}"
    for operation in view.uncertain[:SHOWN_QUEUE]:
        call = f"{operation.tool} {canonical_json(operation.arguments).decode()}"
        yield f"- **outcome unknown**: {_code(call)}, operation `{operation.operation_id}`"
    if view.unfinished is not None:
        yield f"- unfinished: turn {_code(view.unfinished)}"
    if view.rejected_count:
        yield f"- refused signals: {view.rejected_count}, the last: {_code(view.rejections[-1].message)}"
    yield f"- turns: {view.turns}, messages: {view.messages}"
    yield f"- tokens: {view.usage.input_tokens} in, {view.usage.output_tokens} out"


def _code(text: str) -> str:
    """Return foreign text, shortened, as a code span, which renders nothing that is in it."""
    shown = text if len(text) <= SHOWN_TEXT else f"{text[: SHOWN_TEXT - 1]}…"
    return "`" + shown.replace("`", "'").replace("\n", " ") + "`"
