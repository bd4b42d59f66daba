"""Fingerprints of arguments: the same for equal ones, in every process."""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import hashlib
import json
import types
from collections import OrderedDict
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

from keepstate.errors import InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SIMPLE = frozenset({str, int, float, bool, type(None)})
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, enum.Enum)
# an int of so many bits is told in hexadecimal, as Python may refuse to write it in decimal
_LONGEST_INT = 2048
# of these, pickles of equal ones are the same bytes
_STEADY = frozenset(
    {
        "builtins.bytes",
        "builtins.complex",
        "builtins.range",
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "uuid.UUID",
    }
)
_STEADY_ZONES = frozenset({"NoneType", "timezone", "ZoneInfo"})
_PATHS = frozenset({"PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"})


def fingerprint_of(arguments: Mapping[str, Any]) -> str:
    """Return a short hash of named arguments.

    What JSON holds is compared by value, tuples, sets and bytes too; a dataclass by the fields that its equality looks at, and
    an enum, a date, an array, and whatever else has an equality of its own, by its content, as pickle would be told it. Of an
    object that is equal to itself alone (a client, a connection) only the type is compared.

    Raises ``InvalidTypeError`` naming the argument where an object has an equality of its own and tells no content: to take
    it for any other of its type would return the results of other arguments.
    """
    walk = _Walk()
    pairs = []
    for name, value in arguments.items():
        try:
            pairs.append([name, walk.plain(value)])
        except _UntoldError as exc:
            raise InvalidTypeError(
                f"the argument {name!r} can't be compared with that of another call: {exc.args[0]} has an equality of its "
                f"own, but pickle can't read its content ({exc.__cause__!r:.80}); pass the plain values that it is made "
                "from, or give its class a __reduce__",
                path=name,
            ) from exc
        except RecursionError:
            raise InvalidTypeError(
                f"the argument {name!r} can't be compared with that of another call: it is nested too deeply; "
                "pass something flatter",
                path=name,
            ) from None
    return hashlib.sha256(_text({"{}": _sorted(pairs)})).hexdigest()[:32]


class _UntoldError(Exception):
    """An object of the named type tells no content."""


class _Walk:
    """A way through values, from which comes something that JSON holds, and that is equal for equal values.

    Rejected: hashing their pickles. These tell sets in the order of hashes, which differs between processes, dicts in the
    order in which they were filled, and whether equal parts are one object or two.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        # with the objects themselves, as another object could have the id of one that is gone
        self._told: dict[int, tuple[object, str]] = {}

    def plain(self, value: Any, *, part: bool = False) -> Any:
        """Return what stands for a value. ``part``: of an object whose equality may look into it."""
        kind = type(value)
        if kind in _SIMPLE:
            return {"int": hex(value)} if kind is int and value.bit_length() > _LONGEST_INT else value
        if issubclass(kind, _NAMED):
            return _name_of(value)
        if id(value) in self._open:
            # it contains itself
            return {"…": kind.__qualname__}
        self._open.add(id(value))
        try:
            # one frame for each level of plain values, as the stack is what limits how deep they may be
            plain = partial(self.plain, part=part)
            if kind in {list, tuple}:
                return list(map(plain, value))
            if kind is dict:
                pairs = zip(map(plain, value), map(plain, value.values()), strict=True)
                return {"{}": _sorted(map(list, pairs))}
            return self._object(value, part=part)
        finally:
            self._open.discard(id(value))

    def _object(self, value: Any, *, part: bool) -> Any:
        kind: Any = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind in {set, frozenset}:
            return {"set": _sorted(map(partial(self.plain, part=part), value))}
        if kind is types.MethodType:
            return {"method": [value.__func__.__qualname__, self.plain(value.__self__, part=part)]}
        # looked up by hand: asked for it, a mock makes another mock
        owner = next(base for base in kind.__mro__ if "__eq__" in vars(base))
        if owner is object and not part:
            return {name: ""}
        fields = _compared_fields(owner, value)
        if fields is not None:
            return {name: self.plain(fields, part=part)}
        if id(value) not in self._told:
            try:
                content = self._content(value, name)
            except _UntoldError:
                if owner is not object:
                    raise
                content = ""
            self._told[id(value)] = value, content
        return {name: self._told[id(value)][1]}

    def _content(self, value: object, name: str) -> str:
        """Return a hash, as what several refer to would else be told as often, and in each of them again."""
        try:
            told = _pickled(value, name) or _parts(value)
        except RecursionError:
            raise
        except Exception as exc:
            raise _UntoldError(name) from exc
        if not isinstance(told, bytes):
            told = _text([self.plain(part, part=True) for part in told])
        return hashlib.sha256(told).hexdigest()


def _name_of(value: Any) -> dict[str, Any]:
    kind = type(value)
    if not issubclass(kind, enum.Enum):
        return {"named": f"{value.__module__}.{value.__qualname__}"}
    # several flags at once have no name in Python 3.10
    return {kind.__qualname__: repr(value.value) if value.name is None else value.name}


def _compared_fields(owner: Any, value: object) -> dict[str, Any] | None:
    """Return the fields that the equality of a dataclass, or of a class of attrs', looks at; some may not be set yet."""
    if "__dataclass_fields__" in vars(owner):
        names = [field.name for field in dataclasses.fields(owner) if field.compare]
    elif "__attrs_attrs__" in vars(owner):
        names = [field.name for field in owner.__attrs_attrs__ if field.eq]
    else:
        return None
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _pickled(value: Any, name: str) -> bytes | None:
    """Return the pickle of what has but one."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "pathlib" and kind.__name__ in _PATHS:
        # from Python 3.13 on, it remembers from which pieces it was put together
        value = kind(*value.parts)
    elif name not in _STEADY or type(getattr(value, "tzinfo", None)).__name__ not in _STEADY_ZONES:
        return None
    import pickle

    return pickle.dumps(value, protocol=4)


def _parts(value: Any) -> list[Any]:
    """Return what pickle would be told to make an object from, with its sets and dicts as such."""
    kind = type(value)
    if issubclass(kind, AbstractSet):
        return [frozenset(value)]
    if kind is types.MappingProxyType:
        return [dict(value)]
    reduce = copyreg.dispatch_table.get(kind)
    told = reduce(value) if reduce else value.__reduce_ex__(4)
    if isinstance(told, str):
        return [told]
    function, arguments, state, members, pairs = (*told, None, None, None)[:5]
    items = list(pairs or ())
    return [
        function,
        arguments,
        state,
        list(members or ()),
        items if issubclass(kind, OrderedDict) else dict(items),
    ]


def _sorted(members: Iterable[Any]) -> list[Any]:
    return sorted(members, key=json.dumps)


def _text(plain: Any) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
