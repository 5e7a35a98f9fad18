"""Immutable values: the base of every model here, JSON that can't be changed, and text that can be kept.

Nothing in this module knows what a session is.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, TypeAlias, TypeVar, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, PlainValidator
from pydantic_core import core_schema

V = TypeVar("V")

Json: TypeAlias = "bool | int | float | str | tuple[Json, ...] | FrozenDict | None"
"""A JSON value, deeply immutable and hashable."""

MAX_DEPTH = 64
"""Deeper JSON is refused: nobody nests a tool's arguments this far, and unbounded depth is a way to break parsers."""

MAX_WRAPPED_DEPTH = MAX_DEPTH + 32
"""What holds such JSON (a message, a transcript's entry, a whole session) is deeper by what stands around it."""

MAX_INTEGER_BITS = 14_000
"""Some 4,200 digits. Python itself neither reads nor writes numbers with more than 4,300."""


class Frozen(BaseModel):
    """Base of the models: immutable and hashable; unknown fields are ignored, aliases and names are both read."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)


class FrozenMap(dict[str, V]):
    """A mapping that can't be changed and can be hashed, as long as its values can."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        msg = "this mapping is a snapshot and can't be changed; copy it with dict(...) first"
        raise TypeError(msg)

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]  # a mutator that refuses
    update = pop = popitem = clear = setdefault = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]  # dict declares itself unhashable
        """Hash by content, which can't change."""
        return hash(frozenset(self.items()))

    def __copy__(self) -> Self:
        """Return itself: nothing can tell an immutable value from its copy."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Return itself: nothing can tell an immutable value from its copy."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, V]]]:
        """Pickle through the constructor, since items can't be set."""
        return (type(self), (dict(self),))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Validate as a dict of the value's type, then freeze."""
        (value_type,) = get_args(source) or (Any,)
        return core_schema.no_info_after_validator_function(cls, handler.generate_schema(dict[Text, value_type]))


FrozenDict: TypeAlias = FrozenMap["Json"]
"""A JSON object, deeply frozen. Made by `freeze_object`."""

EMPTY: FrozenDict = FrozenMap()


def clean_text(text: str) -> str:
    """Replace what can't be stored or sent (lone surrogates, NUL) by U+FFFD; everything else is kept as it is."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def freeze(value: object, *, depth: int = MAX_DEPTH) -> Json:
    """Return `value` as immutable JSON, its text cleaned.

    Raises:
        ValueError: it is not JSON (a set, a NaN, a key that is not a string), is nested deeper than `depth` levels, or
            has a number of thousands of digits.
    """
    if depth < 0:
        msg = "nested too deep"
        raise ValueError(msg)
    match value:
        case str():
            return clean_text(value)
        case None | bool():
            return value
        case int() | float():
            return _checked_number(value)
        case Mapping():
            return _freeze_mapping(cast("Mapping[object, object]", value), depth)
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return tuple(freeze(item, depth=depth - 1) for item in cast("Sequence[object]", value))
        case _:
            msg = f"a {type(value).__name__} is not JSON"
            raise ValueError(msg)


def _checked_number(value: float) -> float:
    if isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            msg = "a number has thousands of digits"
            raise ValueError(msg)
    elif not math.isfinite(value):
        msg = f"{value} is not a JSON number"
        raise ValueError(msg)
    return value


def _freeze_mapping(value: Mapping[object, object], depth: int) -> FrozenDict:
    items: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            msg = f"a JSON object's keys are strings, not {type(key).__name__}"
            raise ValueError(msg)  # noqa: TRY004  # pydantic turns only ValueError into a validation error
        items[clean_text(key)] = freeze(item, depth=depth - 1)
    return FrozenMap(items)


def freeze_object(value: object, *, depth: int = MAX_DEPTH) -> FrozenDict:
    """Like `freeze`, for what must be a JSON object."""
    frozen = freeze(value, depth=depth)
    if not isinstance(frozen, FrozenMap):
        msg = f"expected a JSON object, got {type(value).__name__}"
        raise ValueError(msg)  # noqa: TRY004  # pydantic turns only ValueError into a validation error
    return frozen


def thaw(value: object) -> object:
    """Return a mutable copy of frozen JSON: dicts and lists, as `json.loads` would give them."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in cast("Sequence[object]", value)]
    return value


def parse_json(data: bytes | str) -> object:
    """Read JSON from anywhere, hostile places included. Text is not cleaned yet: the fields of models do that.

    Python's own reader, since it takes lone surrogates where stricter ones give up.

    Raises:
        ValueError: not JSON; a NaN or infinity; the same key twice; nested too deep; a number of thousands of digits.
    """
    try:
        value: object = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
        freeze(value, depth=MAX_WRAPPED_DEPTH)
    except RecursionError:
        msg = "nested too deep"
        raise ValueError(msg) from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    items = dict(pairs)
    if len(items) != len(pairs):
        msg = "the same key stands twice in one object"
        raise ValueError(msg)
    return items


def freeze_record(value: object) -> FrozenDict:
    """Like `freeze_object`, for an object of our own that may hold JSON which is as deep as it may be."""
    return freeze_object(value, depth=MAX_WRAPPED_DEPTH)


def canonical_json(value: object) -> bytes:
    """Return the one spelling of a JSON value that digests are made of: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def json_bytes(model: BaseModel) -> int:
    """Return how many bytes a model has as JSON, which is what every bound of a payload counts."""
    return len(model.model_dump_json().encode())


def digest(data: bytes) -> str:
    """Return a digest of 32 hex characters, the same in every process and on every machine."""
    return hashlib.sha256(data).hexdigest()[:32]


def by_position(kind: type[BaseModel], given: tuple[object, ...]) -> dict[str, object]:
    """Return values that were given by position, by the names of a model's fields.

    Raises:
        TypeError: there are more of them than fields.
    """
    names = [field.alias or name for name, field in kind.model_fields.items()]
    if len(given) > len(names):
        msg = f"{kind.__name__} takes {len(names)} values, and {len(given)} came"
        raise TypeError(msg)
    return dict(zip(names, given, strict=False))


def _clean_if_text(value: object) -> object:
    return clean_text(value) if isinstance(value, str) else value


CLEAN = BeforeValidator(_clean_if_text)
"""Cleans a field that is a string. It stands last, so that what is before it speaks of characters."""

Text = Annotated[str, CLEAN]
"""A string from anywhere, cleaned by `clean_text` when a model is made from it."""

if TYPE_CHECKING:
    JsonValue: TypeAlias = Json
    JsonObject: TypeAlias = FrozenDict
    JsonRecord: TypeAlias = FrozenDict
else:
    # pydantic is given no recursive type to resolve: `freeze` does the whole validation.
    JsonValue = Annotated[Any, PlainValidator(freeze)]
    """A field that holds any JSON, frozen."""

    JsonObject = Annotated[Any, PlainValidator(freeze_object)]
    """A field that holds a JSON object, frozen."""

    JsonRecord = Annotated[Any, PlainValidator(freeze_record)]
    """A field that holds an object of our own with JSON in it, frozen."""
