"""Kinds of values as JSON, in both directions: texts, lists, objects, one of several."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from keepstate.clock import to_datetime, to_micros
from keepstate.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

# no text of the protocol has them: JSON text escapes a NUL, ids and keys refuse both, and PostgreSQL can hold neither
_REFUSED = re.compile("[\0\ud800-\udfff]")
_LARGEST = 2**63 - 1
_SHOWN = 40

REQUIRED = object()
"""The default of what has none."""
STAMPED = "now"
"""The part of a request that is its time: it never travels, and is put in where the request is read."""


@dataclass(frozen=True)
class Reader:
    """How JSON is read: strictly for requests, whose time it stamps; leniently for answers."""

    now: int = 0
    strict: bool = False
    rules: Mapping[Any, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    """What is asked beyond the type: by class, and by argument for the verb's own. Each returns what to take instead."""


class UnreadableError(Exception):
    """JSON that is not what the type says, with the path to it. Becomes an ``InvalidInputError`` in `reading`."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def at(self, place: str | int) -> UnreadableError:
        """Note a step of the path, from the inside out."""
        self.path.append(f"[{place}]" if isinstance(place, int) else f".{place}")
        return self


class Codec(Protocol):
    """One type, in both directions, and as a JSON schema whose named parts are put into ``parts``."""

    def encode(self, value: Any) -> Any:
        """Return what `json.dumps` takes."""
        ...

    def decode(self, data: Any, reader: Reader) -> Any:
        """Return what the JSON stands for, or raise ``UnreadableError``, or an error of keepstate's."""
        ...

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Return a JSON schema (2020-12)."""
        ...


def reading(codec: Codec, data: object, reader: Reader, what: str) -> Any:
    """Return what ``data`` stands for; raise ``InvalidInputError`` with the path where it is something else."""
    try:
        return codec.decode(data, reader)
    except UnreadableError as exc:
        raise InvalidInputError(f"{what}{''.join(reversed(exc.path))}: {exc.problem}") from None


def _shown(data: object) -> str:
    return f"{data!r:.{_SHOWN}}" if isinstance(data, (str, int, float, bool, type(None))) else _kind(data)


def _kind(data: object) -> str:
    return "an object" if type(data) is dict else "a list" if type(data) is list else type(data).__name__


class Plain:
    """A text, a whole number or a truth value, as itself."""

    _KINDS: typing.ClassVar[dict[type, tuple[str, dict[str, Any]]]] = {
        str: ("a text", {"type": "string"}),
        int: ("a whole number", {"type": "integer", "minimum": -_LARGEST - 1, "maximum": _LARGEST}),
        bool: ("true or false", {"type": "boolean"}),
    }

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.name, self._schema = self._KINDS[kind]

    def encode(self, value: Any) -> Any:
        """Return it."""
        return value

    def decode(self, data: Any, reader: Reader) -> Any:  # noqa: ARG002 - a codec's signature
        """Return it, if it is what it should be."""
        kind: Any = type(data)
        if kind is not self.kind:
            raise UnreadableError(f"must be {self.name}, not {_shown(data)}")
        if kind is str:
            if not (data.isascii() and "\0" not in data) and _REFUSED.search(data):
                raise UnreadableError("has a NUL character or a lone surrogate")
        elif kind is int and not -_LARGEST - 1 <= data <= _LARGEST:
            raise UnreadableError("is a number of more than 64 bits")
        return data

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        del parts
        return dict(self._schema)


class Moment:
    """A time, as microseconds since 1970 in UTC."""

    _number = Plain(int)

    def encode(self, value: datetime) -> int:
        """Return the microseconds."""
        return to_micros(value)

    def decode(self, data: Any, reader: Reader) -> datetime:
        """Return the aware datetime in UTC."""
        try:
            return to_datetime(self._number.decode(data, reader))
        except OverflowError:
            raise UnreadableError("is no time that a calendar has") from None

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        return {**self._number.schema(parts), "description": "microseconds since 1970-01-01 UTC"}


class Nothing:
    """No answer but that it was done: null."""

    def encode(self, value: Any) -> None:
        """Return null."""
        assert value is None  # noqa: S101 - the verb promises it

    def decode(self, data: Any, reader: Reader) -> None:
        """Return ``None``."""
        del reader
        if data is not None:
            raise UnreadableError(f"must be null, not {_shown(data)}")

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        del parts
        return {"type": "null"}


class Nullable:
    """Something or null."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner

    def encode(self, value: Any) -> Any:
        """Return it, or null."""
        return None if value is None else self._inner.encode(value)

    def decode(self, data: Any, reader: Reader) -> Any:
        """Return it, or ``None``."""
        return None if data is None else self._inner.decode(data, reader)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        return {"anyOf": [self._inner.schema(parts), {"type": "null"}]}


class Many:
    """A list of things of one kind."""

    def __init__(self, inner: Codec, make: Callable[[list[Any]], Any]) -> None:
        self._inner, self._make = inner, make

    def encode(self, value: Any) -> list[Any]:
        """Return the list."""
        encode = self._inner.encode
        return [encode(one) for one in value]

    def decode(self, data: Any, reader: Reader) -> Any:
        """Return the list, or the tuple that the type says."""
        if type(data) is not list:
            raise UnreadableError(f"must be a list, not {_shown(data)}")
        decode, found = self._inner.decode, []
        for place, one in enumerate(data):
            try:
                found.append(decode(one, reader))
            except UnreadableError as exc:
                raise exc.at(place) from None
        return self._make(found)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        return {"type": "array", "items": self._inner.schema(parts)}


class Several:
    """So many things, each of its own kind, in order."""

    def __init__(self, inners: Sequence[Codec]) -> None:
        self._inners = inners

    def encode(self, value: Any) -> list[Any]:
        """Return the list."""
        return [codec.encode(one) for codec, one in zip(self._inners, value, strict=True)]

    def decode(self, data: Any, reader: Reader) -> tuple[Any, ...]:
        """Return the tuple."""
        if type(data) is not list or len(data) != len(self._inners):
            raise UnreadableError(f"must be a list of {len(self._inners)}, not {_shown(data)}")
        return tuple(codec.decode(one, reader) for codec, one in zip(self._inners, data, strict=True))

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        count = len(self._inners)
        return {
            "type": "array",
            # not prefixItems, which many tools that read schemas do not know yet
            "items": {"anyOf": [codec.schema(parts) for codec in self._inners]},
            "minItems": count,
            "maxItems": count,
        }


@dataclass(frozen=True)
class Part:
    """A named part of an object: its type, and its default, without which it is required."""

    name: str
    codec: Codec
    default: Any = REQUIRED
    bounds: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What its schema says beside the type."""

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Return its schema, with its bounds in force wherever it is not null."""
        schema = self.codec.schema(parts)
        if not self.bounds:
            return schema
        inner, *null = schema.get("anyOf", [schema])
        bounded = {**inner, **self.bounds}
        return {"anyOf": [bounded, *null]} if null else bounded


class Record:
    """An object with named parts: a dataclass, or the arguments of a verb (as a dict)."""

    def __init__(self, name: str, parts: Sequence[Part], make: Any, *, stamped: bool) -> None:
        self.name = name
        self._parts, self._make, self._stamped = parts, make, stamped
        self._decoders = {part.name: part.codec.decode for part in parts}
        self._required = tuple(part.name for part in parts if part.default is REQUIRED)

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the object; what is at its default is left out."""
        facts = value if type(value) is dict else vars(value)
        found = {}
        for part in self._parts:
            fact = facts.get(part.name, part.default)
            if fact is part.default or (fact == part.default and type(fact) is type(part.default)):
                continue
            found[part.name] = part.codec.encode(fact)
        return found

    def decode(self, data: Any, reader: Reader) -> Any:
        """Return the dataclass, or the dict of arguments, that the object stands for."""
        if type(data) is not dict:
            raise UnreadableError(f"must be an object, not {_shown(data)}")
        facts = {}
        for name, fact in data.items():
            decode = self._decoders.get(name)
            if decode is not None:
                try:
                    facts[name] = decode(fact, reader)
                except UnreadableError as exc:
                    raise exc.at(name) from None
            elif reader.strict:
                raise UnreadableError(f"has {_shown(name)}, which is not known here")
        for name in self._required:
            if name not in facts:
                raise UnreadableError(f"lacks {name!r}")
        if self._stamped:
            facts[STAMPED] = reader.now
        made = self._make(**facts)
        rule = reader.rules.get(self._make)
        return made if rule is None else rule(made)

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        if self.name not in parts:
            parts[self.name] = {}
            parts[self.name] = self.inline_schema(parts)
        return {"$ref": f"#/$defs/{self.name}"}

    def inline_schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of this object itself, where `schema` names it."""
        return {
            "type": "object",
            "properties": {part.name: part.schema(parts) for part in self._parts},
            "required": [part.name for part in self._parts if part.default is REQUIRED],
            "additionalProperties": False,
        }


class OneOf:
    """One of several dataclasses, under the name of its kind: ``{"task": {…}}``. Other types stand for themselves."""

    def __init__(self, kinds: Mapping[type, Record], plain: Plain | None = None) -> None:
        self._tags = {kind: _tag(kind) for kind in kinds}
        self._records = {_tag(kind): record for kind, record in kinds.items()}
        self._plain = plain

    def encode(self, value: Any) -> Any:
        """Return it under its kind."""
        tag = self._tags.get(type(value))
        return value if tag is None else {tag: self._records[tag].encode(value)}

    def decode(self, data: Any, reader: Reader) -> Any:
        """Return what it is."""
        if self._plain is not None and type(data) is self._plain.kind:
            return self._plain.decode(data, reader)
        if type(data) is not dict or len(data) != 1:
            raise UnreadableError(f"must be an object with one of {self._names()}, not {_shown(data)}")
        ((tag, inner),) = data.items()
        record = self._records.get(tag)
        if record is None:
            raise UnreadableError(f"must be one of {self._names()}, not {_shown(tag)}")
        try:
            return record.decode(inner, reader)
        except UnreadableError as exc:
            raise exc.at(tag) from None

    def _names(self) -> str:
        return ", ".join(map(repr, self._records))

    def schema(self, parts: dict[str, Any]) -> dict[str, Any]:
        """See `Codec.schema`."""
        kinds: list[dict[str, Any]] = [
            {
                "type": "object",
                "properties": {tag: record.schema(parts)},
                "required": [tag],
                "additionalProperties": False,
            }
            for tag, record in self._records.items()
        ]
        return {"oneOf": [*kinds, *([self._plain.schema(parts)] if self._plain else [])]}


def _tag(kind: type) -> str:
    return kind.__name__.removesuffix("Scope").lower()
