"""`AgentState`: the snapshot of a session that the outside sees, in the JSON of AgentScope 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Self, cast

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from perdure.agentscope import is_foreign, translated
from perdure.errors import InvalidCommand
from perdure.messages import Message
from perdure.permissions import PermissionContext
from perdure.plan import PlanModeContext
from perdure.tasks import TasksContext
from perdure.toolgroups import ToolContextState
from perdure.values import Frozen, Text, parse_json

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SCHEMA_VERSION = 1
"""The version of the snapshot's form. Older ones are read; a newer one is refused, since it may mean something else."""


def _summary_text(value: object) -> object:
    return "" if value is None else value


class AgentState(Frozen):
    """The state of one session, whole and immutable. `revision` goes up by one with each change.

    Its JSON is AgentScope 2's eleven fields in their order; `agent_id`, `revision` and `schema_version` follow.
    """

    session_id: Text
    user_id: Text | None = None
    summary: Annotated[Text, BeforeValidator(_summary_text)] = ""
    context: tuple[Message, ...] = ()
    reply_id: Text = ""
    cur_iter: int = 0
    shutdown_interrupted: bool = False
    permission_context: PermissionContext = Field(default_factory=PermissionContext)
    tool_context: ToolContextState = Field(default_factory=ToolContextState)
    tasks_context: TasksContext = Field(default_factory=TasksContext)
    plan_mode_context: PlanModeContext = Field(default_factory=PlanModeContext)
    agent_id: Text = ""
    revision: int = Field(default=0, ge=0)
    schema_version: int = SCHEMA_VERSION

    @model_validator(mode="before")
    @classmethod
    def _not_newer(cls, data: object) -> object:
        # Before the fields, which a newer version may have in other forms.
        if isinstance(data, Mapping):
            version = cast("Mapping[str, object]", data).get("schema_version")
            if isinstance(version, int):
                _refuse_newer(version)
        return cast("object", data)

    @model_validator(mode="after")
    def _present_version(self) -> Self:
        _refuse_newer(self.schema_version)
        if self.schema_version != SCHEMA_VERSION:
            object.__setattr__(self, "schema_version", SCHEMA_VERSION)
        return self

    def to_json(self) -> str:
        """Return the snapshot's JSON."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a snapshot: of ours, of AgentScope 2 for Java, or of AgentScope 2 for Python.

        Raises:
            InvalidCommand: not JSON, not a state, or a state of a newer schema version.
        """
        try:
            return cls.model_validate(_ours(parse_json(text)))
        except ValidationError as error:
            msg = f"not an AgentState: {explain(error)}"
            raise InvalidCommand(msg) from None
        except ValueError as error:
            msg = f"not an AgentState: {error}"
            raise InvalidCommand(msg) from None


def _ours(data: object) -> object:
    """Return what was read in our form, whoever has written it."""
    if not isinstance(data, Mapping):
        return data
    fields = cast("Mapping[str, object]", data)
    return translated(fields) if is_foreign(fields) else fields


def _refuse_newer(version: int) -> None:
    if version > SCHEMA_VERSION:
        msg = (
            f"the state has schema version {version}, and this perdure reads up to {SCHEMA_VERSION}; "
            "upgrade perdure to read it"
        )
        raise ValueError(msg)


def explain(error: ValidationError) -> str:
    """Return what is wrong in one line, without the input, which may be private or huge.

    The only words of the input in it are names of fields, and only those that look like one.
    """
    return "; ".join(
        f"{'.'.join(_shown(part) for part in item['loc']) or 'value'}: {_said(item)}"
        for item in error.errors(include_url=False, include_input=False)[:5]
    )


def _shown(part: int | str) -> str:
    return str(part) if isinstance(part, int) or _FIELD.fullmatch(part) else "(a name)"


_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


def _said(item: ErrorDetails) -> str:
    if item["type"] == "union_tag_invalid":  # pydantic's own words repeat the tag
        return f"the type must be one of {item.get('ctx', {}).get('expected_tags')}"
    return item["msg"]
