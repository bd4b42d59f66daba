"""Values: what is read equals what was written, in value and in type; what can't do so is refused with its path."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from keepstate.errors import InvalidTypeError, InvalidValueError, ValueTooLargeError
from keepstate.testing.contract.ground import Ground, attempt, short

if TYPE_CHECKING:
    from keepstate.store import StateStore


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class _Text(str):
    __slots__ = ()


class _Number(int):
    pass


class _Color(enum.Enum):
    RED = "red"


class _Level(enum.IntEnum):
    HIGH = 1


class _Word(str, enum.Enum):
    YES = "yes"


STORED: list[Any] = [
    "",
    "text",
    " trailing ",
    "ünïcödé 🚀 \u2028 \u200b",
    '\0 \x01 \x7f \x1b \r\n\t " \\ /',
    "\U0010ffff",
    "null",
    "line\n" * 2000,
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**64),
    10**4300 - 1,
    -(10**4300 - 1),
    0.0,
    -0.0,
    1.0,
    0.1,
    1e16,
    1e22,
    5e-324,
    1.7976931348623157e308,
    -2.5,
    True,
    False,
    [],
    {},
    [None],
    [True, 1, 1.0, "1", None, [], {}],
    [[1], [[2]], [[[3]]]],
    {"": None, "a": {"b": {"c": [1, {"d": None}]}}},
    {"z": 1, "a": 2, "Z": 3, "é": 4, "e\u0301": 5},
    {"$ref": "x", "__class__": "y", "py/object": "z", "__keepstate__": 1},
    {str(number): number for number in range(1000)},
    list(range(5000)),
    _nested(198),
]

NUMBERS_REFUSED = [
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    (float("-inf"), "-inf"),
    (10**4300, "4,300 digits"),
    (-(10**4300), "4,300 digits"),
]

TYPES_REFUSED = [
    ((1, 2), "list"),
    ({1, 2}, "sorted"),
    (frozenset({1}), "sorted"),
    (dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc), "isoformat"),
    (dt.date(2026, 1, 1), "isoformat"),
    (dt.time(1, 2), "isoformat"),
    (dt.timedelta(1), "total_seconds"),
    (b"bytes", "base64"),
    (bytearray(b"bytes"), "base64"),
    (decimal.Decimal("1.5"), "str"),
    (uuid.UUID(int=1), "str"),
    (pathlib.PurePosixPath("/tmp"), "made of"),  # noqa: S108 - a path as a value
    (pathlib.Path("relative"), "str"),
    (1j, "made of"),
    (object(), "made of"),
    (len, "made of"),
    (int, "made of"),
    (iter([1]), "made of"),
    (range(3), "made of"),
    ({"a": 1}.keys(), "made of"),
    (_Color.RED, "made of"),
    (_Level.HIGH, "int"),
    (_Word.YES, "str"),
    (_Text("text"), "str"),
    (_Number(1), "int"),
    (OrderedDict(a=1), "dict"),
    (defaultdict(list), "dict"),
]


class Values(Ground):
    """What may be stored, and what comes back."""

    @pytest.mark.parametrize("value", STORED, ids=short)
    def test_a_value_comes_back_equal_in_value_and_type(self, store: StateStore, value: Any) -> None:
        """Of every JSON type, at the top and nested, for this attempt and for the next."""
        attempt(store, 1).set("k", value)
        attempt(store, 1).set("nested", {"list": [value]})
        for tss in (attempt(store, 1), attempt(store, 2)):
            assert_same(tss.get("k"), value)
            assert_same(tss.get("nested"), {"list": [value]})

    def test_a_value_may_be_nested_two_hundred_deep(self, store: StateStore) -> None:
        """And not one level more."""
        tss = attempt(store, 1)
        tss.set("k", _nested(200))
        assert_same(tss.get("k"), _nested(200))
        with pytest.raises(InvalidValueError, match="200 levels"):
            tss.set("k", _nested(201))
        assert_same(tss.get("k"), _nested(200))

    def test_a_stored_value_is_a_copy(self, store: StateStore) -> None:
        """Changing what was written, or what was read, changes nothing that is stored."""
        tss = attempt(store, 1)
        value = {"pages": [1]}
        tss.set("k", value)
        value["pages"].append(2)
        found = tss.get("k")
        assert found == {"pages": [1]}
        found["pages"].append(3)
        assert tss.get("k") == {"pages": [1]}

    def test_none_is_no_value(self, store: StateStore) -> None:
        """``None`` can't be told from an absent key, so writing it is refused; inside a value it is fine."""
        tss = attempt(store, 1)
        tss.set("k", 1)
        with pytest.raises(InvalidValueError, match=r"value is None.*delete") as caught:
            tss.set("k", None)  # type: ignore[arg-type]
        assert caught.value.path == "value"
        assert tss.get("k") == 1

    @pytest.mark.parametrize(("value", "words"), NUMBERS_REFUSED, ids=short)
    @pytest.mark.parametrize("nested", [False, True], ids=["top", "nested"])
    def test_a_number_that_json_cannot_hold_is_refused(
        self, store: StateStore, value: Any, words: str, *, nested: bool
    ) -> None:
        """With its path, as an ``InvalidValueError``, which is a ``ValueError``; nothing is written."""
        assert_refused(store, value, InvalidValueError, ValueError, words, nested=nested)

    @pytest.mark.parametrize(("value", "words"), TYPES_REFUSED, ids=short)
    @pytest.mark.parametrize("nested", [False, True], ids=["top", "nested"])
    def test_a_type_that_json_would_change_is_refused(
        self, store: StateStore, value: Any, words: str, *, nested: bool
    ) -> None:
        """With its path and what to store instead, as an ``InvalidTypeError``, which is a ``TypeError``."""
        assert_refused(store, value, InvalidTypeError, TypeError, words, nested=nested)

    @pytest.mark.parametrize("name", [1, None, True, 1.5, ("a",), b"a", _Text("a")], ids=short)
    def test_a_dict_has_only_text_for_keys(self, store: StateStore, name: Any) -> None:
        """JSON would turn other keys into text, so they are refused with the path of the dict."""
        with pytest.raises(InvalidTypeError, match=r"value\['rows'\]\[1\] has the key") as caught:
            attempt(store, 1).set("k", {"rows": [0, {"good": 1, name: 2}]})
        assert caught.value.path == "value['rows'][1]"
        assert attempt(store, 1).get("k") is None

    @pytest.mark.parametrize(
        ("value", "path"),
        [
            ("\ud800", "value"),
            (["ok", "a\udc00b"], "value[1]"),
            ({"rows": [{"name": "\udfff"}]}, "value['rows'][0]['name']"),
            ({"rows": {"\ud800": 1}}, "value['rows']"),
        ],
        ids=short,
    )
    def test_text_that_is_no_unicode_is_refused(self, store: StateStore, value: Any, path: str) -> None:
        """A lone surrogate, in text or in a dict's key, is refused with its path."""
        with pytest.raises(InvalidValueError, match="surrogate") as caught:
            attempt(store, 1).set("k", value)
        assert caught.value.path == path

    @pytest.mark.parametrize(
        "value", [_nested(201), {"a": _nested(200)}, _nested(100_000), _endless()], ids=short
    )
    def test_nesting_is_bounded(self, store: StateStore, value: Any) -> None:
        """A value that is nested too deep, or contains itself, is refused and does not exhaust the stack."""
        with pytest.raises(InvalidValueError, match="200 levels, or contains itself") as caught:
            attempt(store, 1).set("k", value)
        assert caught.value.path.startswith("value[")

    def test_a_value_of_16_mib_is_stored_and_a_larger_one_refused(self, store: StateStore) -> None:
        """What counts is the UTF-8 bytes of the JSON text; the error has the size and the limit."""
        tss = attempt(store, 1)
        largest = "é" * (8 * 1024 * 1024 - 1)
        tss.set("k", largest)
        assert tss.get("k") == largest
        with pytest.raises(ValueTooLargeError, match=r"16,777,217 bytes.*16,777,216") as caught:
            tss.set("k", largest + "x")
        assert (caught.value.size, caught.value.limit) == (16 * 1024 * 1024 + 1, 16 * 1024 * 1024)
        assert tss.get("k") == largest

    def test_a_value_above_the_set_limit_is_written_with_a_warning(
        self, store: StateStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A task's write above ``max_value_storage_bytes`` warns, once per write, and proceeds (the guide's rule)."""
        tss = attempt(store, 1)
        tss.set("k", "x" * (65_535 - 2))
        assert caplog.records == []
        tss.set("k", "x" * (65_535 - 1))
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "65536 bytes" in caplog.text
        assert tss.get("k") == "x" * (65_535 - 1)


def assert_same(found: Any, written: Any) -> None:
    """Compare in value, in type, and in the order of dicts; ``-0.0`` and ``0.0`` differ."""
    pairs = [(found, written)]
    while pairs:
        one, other = pairs.pop()
        assert type(one) is type(other)
        if type(one) is list:
            assert len(one) == len(other)
            pairs += zip(one, other, strict=True)
        elif type(one) is dict:
            assert list(one) == list(other)
            pairs += [(one[name], other[name]) for name in one]
        elif type(one) is float:
            assert one.hex() == other.hex()
        else:
            assert one == other


def assert_refused(
    store: StateStore,
    value: Any,
    error: type[InvalidValueError | InvalidTypeError],
    builtin: type[Exception],
    words: str,
    *,
    nested: bool,
) -> None:
    """Write a value that can't be, at the top or deep inside, and see what is said about it."""
    path = "value['rows'][3]" if nested else "value"
    tss = attempt(store, 1)
    tss.set("k", "before")
    with pytest.raises(error) as caught:
        tss.set("k", {"rows": [0, 1, 2, value]} if nested else value)
    assert isinstance(caught.value, builtin)
    assert vars(caught.value)["path"] == path
    assert str(caught.value).startswith(f"{path} is ")
    assert words in str(caught.value)
    assert tss.get("k") == "before"
