"""Fingerprints: equal arguments have the same one in every process, and others another."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import subprocess
import sys
import threading
import types
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from keepstate import BaseOperator, InvalidTypeError, StateStore, TaskArgumentsChangedError, dag_run, task
from keepstate.runtime.arguments import fingerprint
from keepstate.runtime.fingerprints import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable


def of(value: Any) -> str:
    """Return the fingerprint of one argument."""
    return fingerprint_of({"x": value})


@dataclasses.dataclass
class Config:
    """A value with an equality of its own."""

    name: str
    tags: set[str]
    made: float = dataclasses.field(default=0.0, compare=False)
    rows: int = dataclasses.field(init=False)


class Model(BaseModel):
    """Keeps a set of the names of its fields."""

    host: str
    port: int
    user: str
    table: str


class Colour(enum.Enum):
    """Members compare by name."""

    RED = 1
    BLUE = 2


class Rights(enum.Flag):
    """Several at once have no name in Python 3.10."""

    READ = 1
    WRITE = 2
    ERASE = 4


class Client:
    """Something that is equal to itself alone."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lock = threading.Lock()

    def fetch(self) -> None:
        """Do nothing."""

    def send(self) -> None:
        """Do nothing."""


class Equal:
    """Has the equality that people write."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)


class Tags(set[str]):
    """A set of its own kind."""


class Attrs:
    """Made as attrs makes them."""

    __attrs_attrs__ = (types.SimpleNamespace(name="a", eq=True), types.SimpleNamespace(name="b", eq=False))
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and other.a == self.a


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the plain kind


def text(*letters: str) -> str:
    """Return a string that is no other one's object."""
    return "".join(letters)


def ring(name: str) -> Equal:
    """Return two that refer to each other."""
    one, other = Equal(name), Equal("other")
    one.next, other.next = other, one  # type: ignore[attr-defined]
    return one


def strange_path() -> pathlib.PurePath:
    """Return /a/b in pieces."""
    return pathlib.PurePosixPath("/a", "b")


SHARED = text("a", "b")
SAME: list[tuple[Any, Any]] = [
    ([1, (2,)], (1, [2])),
    ({"a": 1, "b": {2: "x"}}, {"b": {2: "x"}, "a": 1}),
    ({"x", "y", "z"}, {"z", "y", "x"}),
    (Config("a", {"x", "y"}), Config("a", {"y", "x"}, made=1.0)),
    (Attrs(1, 2), Attrs(1, 3)),
    (Client(), Client()),
    (Client("a").fetch, Client("b").fetch),
    (Colour.RED, Colour(1)),
    (Rights.READ | Rights.WRITE, Rights(3)),
    (dt.date(2026, 11, 29), dt.date(2026, 11, 29)),
    (b"x", b"x"),
    (print, print),
    (Equal(SHARED, SHARED), Equal(text("a", "b"), text("a", "b"))),
    (Equal(*[Equal("a")] * 2), Equal(Equal("a"), Equal("a"))),
    (Counter("ab"), Counter("ba")),
    (defaultdict(set, x={"b", "a"}, y=set()), defaultdict(set, y=set(), x={"a", "b"})),
    ({"a": 1, "b": 2}.keys(), {"b": 1, "a": 2}.keys()),
    (Tags({"a", "b", "c"}), Tags({"c", "b", "a"})),
    (types.MappingProxyType({"a": 1, "b": 2}), types.MappingProxyType({"b": 2, "a": 1})),
    (pathlib.PurePosixPath("/a/b"), strange_path()),
    (Equal(Client("a")), Equal(Client("a"))),
    (ring("a"), ring("a")),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2),
    (1, 1.5),
    (1, "1"),
    (None, "None"),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"a": 2}),
    ({"1": 1}, {1: 1}),
    ({1}, [1]),
    (10**5000, 10**5000 + 1),
    (Config("a", {"x"}), Config("a", {"y"})),
    (Attrs(1, 2), Attrs(2, 2)),
    (Client(), Colour.RED),
    (Client().fetch, Client().send),
    (Colour.RED, Colour.BLUE),
    (Rights.READ | Rights.WRITE, Rights.READ | Rights.ERASE),
    (dt.date(2026, 11, 29), dt.date(2026, 11, 30)),
    (dt.timedelta(1), dt.timedelta(2)),
    (
        dt.datetime(2026, 11, 29, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        dt.datetime(2026, 11, 29, tzinfo=zoneinfo.ZoneInfo("Europe/Rome")),
    ),
    (decimal.Decimal("1.0"), decimal.Decimal("1.5")),
    (pathlib.Path("/a"), pathlib.Path("/b")),
    (b"x", b"y"),
    (bytearray(b"x"), bytearray(b"y")),
    (print, len),
    (Config, Client),
    (Point(1, 2), Point(2, 1)),
    (deque([1, 2]), deque([2, 1])),
    (Counter("ab"), Counter("abb")),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    (defaultdict(set, x={"a"}), defaultdict(set, x={"b"})),
    ({"a": 1}.keys(), {"b": 1}.keys()),
    ({"a": 1}.items(), {"a": 2}.items()),
    (Tags({"a"}), Tags({"b"})),
    (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    (Equal("a"), Equal("b")),
    # its equality may well look into them
    (Equal(Client("a")), Equal(Client("b"))),
    (ring("a"), ring("b")),
    (Model(host="h", port=1, user="u", table="t"), Model(host="h", port=2, user="u", table="t")),
]


def test_fingerprints() -> None:
    """Equal values have the same one, others another; of objects without an equality only the type counts."""
    for one, other in SAME:
        assert of(one) == of(other), (one, other)
    for one, other in DIFFERENT:
        assert of(one) != of(other), (one, other)


def test_stored_fingerprints_stay() -> None:
    """A run that was begun by an earlier keepstate goes on: what most arguments are made of is told as ever."""
    assert {
        of(value)
        for value in (
            [1, (2,)],
            {"a": {1: 2}},
            {"a", "b"},
            b"x",
            dt.date(2026, 11, 29),
            dt.datetime(2026, 11, 29, 3, tzinfo=dt.timezone.utc),
            decimal.Decimal("1.50"),
            uuid.UUID(int=7),
            print,
        )
    } == {
        "0c27ef45a94c5a6e0c89ea3d5874a3ed",
        "10c1f3e4548c15e8aa292972046ecbdb",
        "d3478485ca78545ec710d71e9a034be9",
        "7a2540b85c8ca5c0ecfb6620b902b7fd",
        "e9b675166626e43d1ee120ec1e416db9",
        "8a45f54db0bc896aad6c65b527c794d5",
        "820eeecc1af99f19a37c957ff71a0849",
        "d22b951d07f35ad988d801e8a0289939",
        "94eeb3f4d212736dfb1404ad89e39e7a",
    }


# values with the same content, filled in another order, and of other objects
_HASHABLE = st.one_of(
    st.integers(),
    st.text(max_size=5),
    st.dates(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.binary(max_size=3),
    st.frozensets(st.text(max_size=3), max_size=4),
)


def _collections(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.sets(_HASHABLE, max_size=4),
        st.lists(inner, max_size=3).map(lambda parts: Equal(*parts)),
        st.dictionaries(st.text(max_size=3), inner, max_size=4).map(lambda kept: defaultdict(list, kept)),
    )


def _again(value: Any) -> Any:
    """Make it anew, the other way round where that makes no difference."""
    made: Any = value
    if isinstance(value, defaultdict):
        made = defaultdict(list, _again(dict(value)))
    elif isinstance(value, dict):
        made = {_again(key): _again(member) for key, member in reversed(value.items())}
    elif isinstance(value, set):
        made = {_again(member) for member in list(value)[::-1]}
    elif isinstance(value, list):
        made = [_again(member) for member in value]
    elif isinstance(value, Equal):
        made = Equal(*map(_again, value.parts))
    elif isinstance(value, str):
        made = text(*value)
    elif isinstance(value, (decimal.Decimal, fractions.Fraction)):
        made = type(value)(str(value))
    return made


@settings(max_examples=200, deadline=None)
@given(value=st.recursive(_HASHABLE | st.floats(allow_nan=False) | st.none(), _collections, max_leaves=12))
def test_the_same_content_has_the_same_fingerprint(value: Any) -> None:
    """However it was filled, and whichever of its parts are one object."""
    again = _again(value)
    assert again == value
    assert of(again) == of(value)
    assert of([value, "more"]) != of([again, "less"])


def test_fingerprints_of_what_is_hard() -> None:
    """What contains itself, is no valid text, or lies about everything has one too."""
    endless: list[Any] = []
    endless.extend([endless, endless])
    wide: Any = Equal()
    for _ in range(100):
        wide = Equal(wide, wide)
    for value in (
        endless,
        wide,
        "\ud800",
        float("nan"),
        lambda: 1,
        mock.MagicMock(),
        mock.MagicMock(spec=of),
    ):
        assert of(value) == of(value)
    assert fingerprint(lambda *a, **k: 0, (1,), {"b": 2}) != fingerprint(lambda *a, **k: 0, (1,), {"b": 3})
    assert fingerprint(max, (1, 2), {}) != fingerprint(max, (1, 3), {})


def test_a_web_of_objects_is_told_once_each() -> None:
    """Each of many knows every other one: the ways through them are more than anybody can go."""

    def web(last: str) -> list[Equal]:
        nodes = [Equal(number) for number in range(30)]
        for node in nodes:
            node.nodes = nodes  # type: ignore[attr-defined]
        nodes[-1].last = last  # type: ignore[attr-defined]
        return nodes

    assert of(web("a")) == of(web("a")) != of(web("b"))


_CHILD = """
import datetime as dt
from collections import Counter, defaultdict
from tests.runtime.test_fingerprints import Config, Equal, Model, Tags, of
found = defaultdict(set, x={"a", "b", "c"})
for value in (
    [{"a", "b", "c"}, {"k": (1, 2.5)}, dt.date(2026, 11, 29)],
    Model(host="h", port=1, user="u", table="t"),
    found, Config("a", {"a", "b", "c"}), Equal({"a", "b", "c"}), Tags("abc"), {"a": 1, "b": 2, "c": 3}.keys(),
    Counter("abc"), {Tags: 1, str: 2}.keys(),
):
    print(of(value))
"""


def test_fingerprints_are_the_same_in_every_process() -> None:
    """Whatever seed the hashes of that process have."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _CHILD],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3", "6")
    }
    assert len(found) == 1
    assert len(set(found.pop().split())) == 9


# ------------------------------------------------------------------------------------------ what tasks do


def table_class() -> Callable[[str], Any]:
    """Return a class that pickle can't find by its name."""

    class Table:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Table) and other.name == self.name

    return Table


def test_a_class_made_in_a_function_is_told_by_its_content(store: StateStore) -> None:
    """Its objects can't be pickled, and are no reason to return the result of other arguments."""
    table = table_class()

    @task
    def load(it: Any) -> str:
        return f"rows of {it.name}"

    for _ in range(2):
        with dag_run("nightly", "1", store=store):
            assert load(table("orders")) == "rows of orders"
    with pytest.raises(TaskArgumentsChangedError), dag_run("nightly", "1", store=store):
        load(table("customers"))


class Secretive:
    """Has an equality of its own, and no content that could be told."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __reduce__(self) -> Any:
        raise RuntimeError("no")


def test_what_tells_nothing_of_itself_is_refused_by_name(store: StateStore) -> None:
    """Rather than taken for any other of its type; alone in a client it hides nothing but itself."""

    @task
    def load(first: Any, second: Any) -> None: ...

    class Operator(BaseOperator):
        template_fields = ("fields",)

        def __init__(self, fields: Any, **declared: Any) -> None:
            super().__init__(**declared)
            self.fields = fields

    with dag_run("nightly", "1", store=store):
        with pytest.raises(InvalidTypeError, match=r"'second'.*Secretive has an equality.*no") as refused:
            load(1, [Secretive()])
        assert refused.value.path == "second"
        with pytest.raises(InvalidTypeError, match="'fields'"):
            Operator(Equal(Secretive()), task_id="op")
        with pytest.raises(InvalidTypeError, match="'first'"):
            load(memoryview(b"x"), 1)
        load(Client(), Equal("a", threading.Lock()))


def test_what_is_nested_too_deeply_is_refused_by_name() -> None:
    """And not compared as far as the stack reaches, which is further in one place than in another."""
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    chain: Any = Client()
    for _ in range(5000):
        chain = Equal(chain)
    for value in (deep, chain):
        with pytest.raises(InvalidTypeError, match=r"'x'.*nested too deeply"):
            of(value)
