"""`AgentState`: the snapshot of a session that the outside sees, in the JSON of AgentScope 2."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from perdure.errors import InvalidCommand
from perdure.messages import Message
from perdure.permissions import PermissionContext
from perdure.plan import PlanModeContext
from perdure.tasks import TasksContext
from perdure.toolgroups import ToolContextState
from perdure.values import Frozen, Text, parse_json

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
    def _not_newer(cls, data: Any) -> Any:
        version: object = data.get("schema_version", 1) if isinstance(data, dict) else 1  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  # anything may come in
        if isinstance(version, int) and version > SCHEMA_VERSION:
            msg = (
                f"the state has schema version {version}, and this perdure reads up to {SCHEMA_VERSION}; "
                "upgrade perdure to read it"
            )
            raise ValueError(msg)
        return data  # pyright: ignore[reportUnknownVariableType]  # anything may come in

    @model_validator(mode="after")
    def _present_version(self) -> Self:
        if self.schema_version != SCHEMA_VERSION:
            object.__setattr__(self, "schema_version", SCHEMA_VERSION)
        return self

    def to_json(self) -> str:
        """Return the snapshot's JSON."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a snapshot.

        Raises:
            InvalidCommand: not JSON, not a state, or a state of a newer schema version.
        """
        try:
            return cls.model_validate(parse_json(text))
        except ValidationError as error:
            msg = f"not an AgentState: {explain(error)}"
            raise InvalidCommand(msg) from None
        except ValueError as error:
            msg = f"not an AgentState: {error}"
            raise InvalidCommand(msg) from None


def explain(error: ValidationError) -> str:
    """Return what is wrong in one line, without the input, which may be private or huge."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'value'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]
    )
