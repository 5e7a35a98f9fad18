"""Tool results of any kind and size, as content blocks.

The rule for size: up to `MAX_TEXT` characters a result stands in the conversation whole. A longer one stands there
with its beginning and its end, and says how much is missing; the whole of it goes to the results store, if there is
one.
"""

from __future__ import annotations

from typing import Protocol, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from perdure.messages import OutputBlock, ResultState, TextBlock, ToolResultBlock
from perdure.tools import ToolOutput
from perdure.values import EMPTY, FrozenDict, clean_text, digest, freeze_object

MAX_TEXT = 128 * 1024
"""Characters; some 32,000 tokens, above which a result is no longer read but drowned in."""

HEAD = 16 * 1024
TAIL = 2 * 1024


class ResultStore(Protocol):
    """Keeps what is too long for a conversation."""

    def put(self, workflow_id: str, data: bytes) -> str:
        """Store data, and return the name that it can be found by."""
        ...


class UnusableResultError(Exception):
    """A tool returned something that has no JSON form."""


def blocks(value: object) -> tuple[OutputBlock, ...]:
    """Return a tool's value as content blocks.

    Raises:
        UnusableResultError: it is neither text nor JSON-able.
    """
    match value:
        case ToolOutput():
            return tuple(value.blocks)
        case str():
            return (TextBlock(value),)
        case BaseModel():
            return (TextBlock(value.model_dump_json()),)
        case _:
            return (TextBlock(_json(value)),)


def _json(value: object) -> str:
    try:
        return to_json(_cleaned(value), inf_nan_mode="strings").decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        msg = f"the tool returned a {type(value).__name__}, which has no JSON form: {error}"
        raise UnusableResultError(msg) from None


def _cleaned(value: object) -> object:
    # Text inside containers may hold lone surrogates, which no JSON writer takes.
    match value:
        case str():
            return clean_text(value)
        case dict():
            items = cast("dict[object, object]", value).items()
            return {_cleaned(key): _cleaned(item) for key, item in items}
        case list() | tuple() | set() | frozenset():
            return [_cleaned(item) for item in cast("list[object]", value)]
        case _:
            return value


def result(
    call_id: str,
    tool: str,
    output: tuple[OutputBlock, ...],
    *,
    state: ResultState = ResultState.SUCCESS,
    workflow_id: str = "",
    store: ResultStore | None = None,
) -> ToolResultBlock:
    """Return a result as it will stand in the conversation."""
    shortened: list[OutputBlock] = []
    metadata = EMPTY
    for block in output:
        if isinstance(block, TextBlock) and len(block.text) > MAX_TEXT:
            text, metadata = _shortened(block.text, workflow_id, store)
            shortened.append(TextBlock(text))
        else:
            shortened.append(block)
    return ToolResultBlock(id=call_id, name=tool, output=tuple(shortened), state=state, metadata=metadata)


def _shortened(text: str, workflow_id: str, store: ResultStore | None) -> tuple[str, FrozenDict]:
    data = text.encode()
    kept = None if store is None else store.put(workflow_id, data)
    missing = len(text) - HEAD - TAIL
    where = "the rest was not kept" if kept is None else "the whole result is kept outside of the conversation"
    note = f"\n[… {missing} of {len(text)} characters left out here; {where} …]\n"
    facts = {"full_bytes": len(data), "digest": digest(data), "stored": kept}
    return f"{text[:HEAD]}{note}{text[-TAIL:]}", freeze_object({"offloaded": facts})
