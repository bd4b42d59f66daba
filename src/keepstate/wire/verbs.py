"""Each verb of the protocol as a request and an answer, made from its signature in `Backend`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from keepstate.backends.base import Backend
from keepstate.errors import UnsupportedError
from keepstate.wire import codec
from keepstate.wire.annotations import NAMES, codec_of
from keepstate.wire.bounds import bounds_of
from keepstate.wire.rules import RULES, RULES_OF_ANSWERS, argument_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

VERBS: tuple[str, ...] = tuple(
    name
    for name, member in vars(Backend).items()
    if inspect.isfunction(member) and name[0] != "_" and name != "close"
)
"""The verbs that travel: all of the protocol but `close`, which concerns one side only."""

_AS_OF = "as_of"


@dataclass(frozen=True)
class Verb:
    """How one verb travels. ``timed``: it takes the time of the request, which the receiving side stamps."""

    name: str
    arguments: codec.Record
    answer: codec.Codec
    timed: bool


@lru_cache(maxsize=64)
def verb_of(name: str) -> Verb:
    """Return a verb by its name. Raises ``UnsupportedError`` for one that the protocol does not have."""
    if name not in VERBS:
        raise UnsupportedError(f"this version of keepstate does not know the verb {name!r:.60}")
    function = vars(Backend)[name]
    hints = get_type_hints(function, localns=NAMES)
    given = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    parts = [
        codec.Part(
            one.name,
            codec_of(hints[one.name]),
            codec.REQUIRED if one.default is one.empty else one.default,
            bounds_of(name, one.name),
        )
        for one in given
        if one.name != "now"
    ]
    timed = len(parts) != len(given)
    if name == "purge":
        parts.append(codec.Part(_AS_OF, codec_of(int | None), None, bounds_of(name, _AS_OF)))
    return Verb(name, codec.Record(name, parts, dict, stamped=timed), _answer_of(hints["return"]), timed)


def _answer_of(hint: Any) -> codec.Codec:
    if get_origin(hint) is Iterator:
        # one step at a time: null once there is no more
        return codec_of(get_args(hint)[0] | None)
    return codec_of(hint)


def encode_request(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as what `json.dumps` takes. ``arguments`` are those of the verb, by name; ``now`` is left out.

    `purge` may have ``as_of`` besides: the time at which the cleanup began, by the clock of whoever keeps the state.
    """
    return verb_of(verb).arguments.encode(dict(arguments))


def decode_request(verb: str, data: object, *, now: int) -> dict[str, Any]:
    """Return the arguments of a request, with the time ``now`` wherever the verb has one.

    All that the types and `keepstate.wire.rules` ask for is so. Raises ``InvalidInputError`` naming the path where it is
    not, or the error that an accessor raises for the same mistake; ``UnsupportedError`` for an unknown verb.
    """
    asked = verb_of(verb)
    reader = codec.Reader(now, strict=True, rules=RULES)
    arguments: dict[str, Any] = codec.reading(asked.arguments, data, reader, "request")
    argument_rules(arguments)
    as_of = arguments.pop(_AS_OF, None)
    if as_of is not None:
        # never in the future: it would remove what has not expired
        arguments["now"] = min(as_of, now)
    return arguments


def encode_answer(verb: str, answer: object) -> Any:
    """Return an answer as what `json.dumps` takes. That of `purge` is one batch, or ``None`` after the last."""
    return verb_of(verb).answer.encode(answer)


def takeable(answer: Any) -> Any:
    """Return what `encode_answer` returned, as every client takes it.

    Where somebody else has written into a table, a text may be bytes, or have a NUL character. As Python shows it, it is no value
    either: so the client names its key, and reads what stands beside it.
    """
    if isinstance(answer, dict):
        return {name: takeable(member) for name, member in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [takeable(member) for member in answer]
    odd = isinstance(answer, bytes) or (isinstance(answer, str) and "\0" in answer)
    return repr(answer) if odd else answer


def decode_answer(verb: str, data: object) -> Any:
    """Return what the verb returns. Raises ``InvalidInputError`` for what is no answer to it."""
    return codec.reading(verb_of(verb).answer, data, codec.Reader(rules=RULES_OF_ANSWERS), "answer")


def request_schema(verb: str) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a verb's request."""
    parts: dict[str, Any] = {}
    schema = verb_of(verb).arguments.inline_schema(parts)
    return {**schema, "$defs": parts} if parts else schema


def answer_schema(verb: str) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a verb's answer."""
    parts: dict[str, Any] = {}
    schema = verb_of(verb).answer.schema(parts)
    return {**schema, "$defs": parts} if parts else schema
