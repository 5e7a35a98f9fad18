"""Tools: functions that an agent may call, what they do to the world, and what they know when they run."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypeVar, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from perdure.errors import ConfigurationError, PerdureError
from perdure.operations import Effect, Outcome
from perdure.toolnames import check_inside_name
from perdure.values import FrozenDict, freeze_object

if typing.TYPE_CHECKING:
    import httpx

    from perdure.messages import OutputBlock
    from perdure.state import AgentState

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RuntimeContext:
    """What a run knows about itself.

    `user_id` is who the session belongs to, never what a model says. `attributes` are of this turn only: they reach
    tools, logs and traces, and are in no prompt and no state.
    """

    agent_id: str
    session_id: str
    user_id: str | None = None
    turn_id: str
    run_id: str
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Mapping[type, object] = field(default_factory=dict[type, object], repr=False)

    def resource(self, kind: type[T]) -> T:
        """Return the worker's resource of this type, from `App(resources=...)`.

        Raises:
            ConfigurationError: the worker holds none.
        """
        found = self.resources.get(kind)
        if not isinstance(found, kind):
            msg = f"this worker holds no {kind.__qualname__}; give it one by App(resources=...)"
            raise ConfigurationError(msg)
        return found


@dataclass(frozen=True, kw_only=True)
class ToolContext(RuntimeContext):
    """What a tool knows when it runs.

    `operation_id` is the same for every attempt of this call and differs from every other call's; hand it to the
    system of record. `http` sends it as `Idempotency-Key` with each request. `attempt` counts from 1.
    """

    operation_id: str
    attempt: int = 1
    http: httpx.AsyncClient = field(repr=False)
    read_state: Callable[[], Awaitable[AgentState]] = field(repr=False)

    async def state(self) -> AgentState:
        """Read the session's present state. It may be newer than the state in which the call was made."""
        return await self.read_state()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A result made of content blocks, for tools that answer with more than text."""

    blocks: tuple[OutputBlock, ...] | list[OutputBlock]


class ToolError(PerdureError):
    """A definite error result that the model sees, raised by a tool.

    Args:
        message: What the model is told.
        retryable: Another attempt may succeed; made where the tool's effect and its attempts allow one.
        uncertain: The effect may have happened, and the tool can't tell.
    """

    def __init__(self, message: str, retryable: bool = False, uncertain: bool = False) -> None:  # noqa: FBT001, FBT002  # public signature
        """Make an error; see the class."""
        super().__init__(message)
        self.retryable = retryable
        self.uncertain = uncertain


@dataclass(frozen=True, slots=True)
class Verdict:
    """A tool's own opinion on a call. Made by its class methods only."""

    behavior: Literal["allow", "deny", "ask"]
    reason: str = ""
    safety: bool = False

    @classmethod
    def allow(cls) -> Verdict:
        """The call may run; only deny and ask rules and the mode stand above this."""
        return cls("allow")

    @classmethod
    def deny(cls, reason: str) -> Verdict:
        """The call must not run; the model is told why."""
        return cls("deny", reason)

    @classmethod
    def ask(cls, reason: str, safety: bool = False) -> Verdict:  # noqa: FBT001, FBT002  # public signature
        """A person should decide; with `safety`, no allow rule and no mode answers for them."""
        return cls("ask", reason, safety)


Approval: TypeAlias = Literal["ask", "safety"]
Subject: TypeAlias = Callable[[Mapping[str, Any]], str]
Check: TypeAlias = Callable[[RuntimeContext, Mapping[str, Any]], Verdict | None]
Reconcile: TypeAlias = Callable[[ToolContext], Awaitable[Outcome]]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool, made by `@tool`. Calling it calls the function."""

    name: str
    description: str
    function: Callable[..., Any] = field(repr=False)
    arguments: type[BaseModel] = field(repr=False)
    context_parameter: str | None
    effect: Effect
    timeout: timedelta
    attempts: int
    approval: Approval | None
    subject: Subject | None
    check: Check | None
    reconcile: Reconcile | None
    group: str | None
    external: bool
    task_queue: str | None
    parameters: FrozenDict = field(repr=False)

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401  # whatever the function returns
        """Call the function itself, as a test of the tool would."""
        return self.function(*args, **kwargs)

    def problem(self, arguments: Mapping[str, object]) -> str | None:
        """Return what is wrong with these arguments, in words for the model, or None."""
        try:
            self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            lines = (
                f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            )
            return f"the arguments of {self.name} do not fit: {'; '.join(lines)}"
        return None

    def bind(self, context: ToolContext, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the keyword arguments to call the function with: validated, typed, the context included."""
        given = self.arguments.model_validate(dict(arguments))
        bound = {name: getattr(given, _field_name(name)) for name in self._names}
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    @property
    def _names(self) -> list[str]:
        return [info.alias or name for name, info in self.arguments.model_fields.items()]


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = Effect.ONCE,
    timeout: timedelta = timedelta(minutes=1),
    attempts: int = 4,
    approval: Approval | None = None,
    subject: Subject | None = None,
    check: Check | None = None,
    reconcile: Reconcile | None = None,
    group: str | None = None,
    external: bool = False,
    task_queue: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect = Effect.ONCE,
    timeout: timedelta = timedelta(minutes=1),
    attempts: int = 4,
    approval: Approval | None = None,
    subject: Subject | None = None,
    check: Check | None = None,
    reconcile: Reconcile | None = None,
    group: str | None = None,
    external: bool = False,
    task_queue: str | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool. Its docstring is the description, its type hints are the JSON schema.

    A parameter annotated `ToolContext` is given the context and is not part of the schema. A plain `def` runs in a
    thread of the worker. What is returned may be a string, anything JSON-able, a pydantic model or a `ToolOutput`.

    Args:
        function: The function, when the decorator is used without parentheses.
        name: The tool's name; the function's by default.
        effect: What the tool does to the world; the cautious `Effect.ONCE` by default.
        timeout: How long one attempt may take.
        attempts: How often a `read` or `idempotent` tool is tried. A `once` tool is started once.
        approval: `ask` has a person decide on every call unless a rule allows it; `safety` even then.
        subject: What permission rules are matched against, made from the arguments.
        check: The tool's own opinion on a call; where it has one, `approval` does not count. A plain function, as
            `subject` is, called beside the model call. One that raises denies.
        reconcile: Reads in the system of record what became of an operation whose answer was lost.
        group: The tool group that the tool belongs to.
        external: The tool has no body: someone outside runs it and answers by id.
        task_queue: Where the tool runs, if not where the session runs.

    Raises:
        ConfigurationError: a name, a type hint or a number that can't be used.
    """

    def make(function: Callable[..., Any]) -> Tool:
        tool_name = name if name is not None else getattr(function, "__name__", "")
        check_inside_name(tool_name)
        if not isinstance(timeout, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without a type checker
            msg = f"tool {tool_name!r}: timeout is a timedelta, such as timedelta(seconds=30), not {timeout!r}"
            raise ConfigurationError(msg)
        if attempts < 1 or timeout <= timedelta():
            msg = f"tool {tool_name!r}: attempts must be at least 1 and timeout more than nothing"
            raise ConfigurationError(msg)
        if any(map(inspect.iscoroutinefunction, (subject, check))):
            msg = f"tool {tool_name!r}: subject and check are plain functions, which wait for nothing"
            raise ConfigurationError(msg)
        context_parameter, arguments = _signature(tool_name, function)
        schema = arguments.model_json_schema(by_alias=True)
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return Tool(
            name=tool_name,
            description=inspect.getdoc(function) or "",
            function=function,
            arguments=arguments,
            context_parameter=context_parameter,
            effect=Effect(effect),
            timeout=timeout,
            attempts=attempts,
            approval=approval,
            subject=subject,
            check=check,
            reconcile=reconcile,
            group=group,
            external=external,
            task_queue=task_queue,
            parameters=freeze_object(schema),
        )

    return make if function is None else make(function)


def _field_name(name: str) -> str:
    # A prefix keeps parameters such as `schema` or `json` away from the attributes of pydantic's models.
    return f"argument_{name}"


def _signature(tool_name: str, function: Callable[..., Any]) -> tuple[str | None, type[BaseModel]]:
    """Return the name of the context parameter, and a model of the others."""
    from pydantic import Field  # noqa: PLC0415

    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        msg = f"tool {tool_name!r}: a type hint can't be resolved ({error}); use types of the module's top level"
        raise ConfigurationError(msg) from error
    context: str | None = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if isinstance(hint, type) and issubclass(hint, RuntimeContext):
            context = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            msg = f"tool {tool_name!r}: {parameter} can't be in a JSON schema; use plain named parameters"
            raise ConfigurationError(msg)
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        fields[_field_name(parameter.name)] = (hint, Field(default, alias=parameter.name))
    try:
        made = create_model(f"{tool_name}_arguments", __config__=ConfigDict(extra="forbid", frozen=True), **fields)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation) as error:
        msg = f"tool {tool_name!r}: a parameter's type has no JSON form: {error}"
        raise ConfigurationError(msg) from error
    return context, made
