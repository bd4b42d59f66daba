"""Between a value and its JSON text, over values that nobody thought of."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepstate.errors import InvalidKeyError, InvalidTypeError, InvalidValueError, ValueTooLargeError
from keepstate.testing.contract.values import assert_same
from keepstate.values import HARD_VALUE_LIMIT, MAX_DEPTH, check_key, decode, encode, size_of

texts = st.text()
scalars = (
    texts
    | st.integers()
    | st.integers(min_value=-(10**4300) + 1, max_value=10**4300 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
)
values = st.recursive(
    scalars | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
).filter(lambda value: value is not None)

strangers = st.sampled_from(
    [b"x", (1,), {1}, 1j, object(), range(2), Exception("x"), type, float("nan"), float("inf"), "\ud800"]
)


@given(values)
@settings(max_examples=300)
def test_what_is_read_equals_what_was_written(value: Any) -> None:
    """In value and in type, whatever it is; and the text is what any JSON reader reads."""
    text = encode(value)
    assert_same(decode(text), value)
    assert_same(json.loads(text), value)
    text.encode()


@given(values)
def test_the_text_is_compact_and_one(value: Any) -> None:
    """No spaces between, no escapes that UTF-8 can do without; the same value has the same text."""
    text = encode(value)
    assert text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert encode(decode(text)) == text
    assert size_of(text) == len(text.encode())


def _paths(value: Any, path: str = "value") -> list[tuple[str, list[Any] | dict[str, Any]]]:
    """Return every container in a value, with the path to it."""
    found: list[tuple[str, list[Any] | dict[str, Any]]] = []
    if isinstance(value, (list, dict)):
        found.append((path, value))
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for place, member in members:
            found += _paths(member, f"{path}[{place!r}]")
    return found


@given(values, strangers, st.data())
def test_a_refusal_names_the_path_wherever_it_is(value: Any, stranger: Any, data: st.DataObject) -> None:
    """Something that can't be stored, put anywhere into something that can."""
    value = decode(encode(value))
    containers = _paths(value)
    if not containers:
        value = [value]
        containers = _paths(value)
    path, container = data.draw(st.sampled_from(containers))
    if isinstance(container, dict):
        container["bad"] = stranger
        path += "['bad']"
    else:
        container.append(stranger)
        path += f"[{len(container) - 1}]"
    with pytest.raises((InvalidTypeError, InvalidValueError)) as caught:
        encode(value)
    # a key of more than 60 characters is cut short in the path
    if len(path) < 60:
        assert vars(caught.value)["path"] == path


def test_a_long_key_is_cut_in_the_path() -> None:
    """A message stays readable, whatever the key."""
    with pytest.raises(InvalidTypeError) as caught:
        encode({"k" * 10_000: (1,)})
    assert len(str(caught.value)) < 300
    assert caught.value.path.startswith("value['kkk")


def test_deep_values_are_read_from_deep_calls() -> None:
    """The bound on nesting is far below the interpreter's, so that reading needs little room on the stack."""
    value: Any = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    text = encode(value)

    def deep(left: int) -> Any:
        return decode(text) if left == 0 else deep(left - 1)

    assert deep(sys.getrecursionlimit() - MAX_DEPTH - 150) == value


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("x" * (HARD_VALUE_LIMIT - 2), True),
        ("x" * (HARD_VALUE_LIMIT - 1), False),
        ("é" * (HARD_VALUE_LIMIT // 2 - 1), True),
        ("é" * (HARD_VALUE_LIMIT // 2), False),
        ("🚀" * (HARD_VALUE_LIMIT // 4), False),
        ("\x01" * (HARD_VALUE_LIMIT // 6), True),
        ("\x01" * (HARD_VALUE_LIMIT // 5), False),
    ],
    ids=["fits", "one more", "two bytes", "two bytes more", "four bytes", "escaped", "escaped more"],
)
def test_the_hard_limit_counts_bytes(text: str, fits: bool) -> None:
    """Of UTF-8, of the JSON text with its quotes and escapes; exactly."""
    if fits:
        assert size_of(encode(text)) <= HARD_VALUE_LIMIT
        return
    with pytest.raises(ValueTooLargeError) as caught:
        encode(text)
    assert caught.value.size == len(json.dumps(text, ensure_ascii=False).encode())


def test_a_value_that_unfolds_without_end_is_refused() -> None:
    """A few lists in memory may be gigabytes as text; they are refused before they are written out."""
    value: list[Any] = [0] * 100
    for _ in range(10):
        value = [value] * 100
    with pytest.raises(ValueTooLargeError, match="members"):
        encode({"k": value})


def test_numpy_scalars_are_told_how() -> None:
    """Without numpy being there: a class of that module is enough."""
    scalar = type("float32", (), {"__module__": "numpy"})()
    with pytest.raises(InvalidTypeError, match=r"value\['loss'\] is of type float32.*store value.item\(\)"):
        encode({"loss": scalar})
    array = type("ndarray", (), {"__module__": "numpy"})()
    with pytest.raises(InvalidTypeError, match="tolist"):
        encode(array)
    derived = type("float64", (float,), {"__module__": "numpy"})(1.5)
    with pytest.raises(InvalidTypeError, match=r"store float\(value\)|store value.item\(\)"):
        encode(derived)


@given(st.text(max_size=600) | st.text(alphabet="./ab", max_size=8))
@settings(max_examples=500)
def test_a_key_is_taken_exactly_within_the_rules(key: str) -> None:
    """Non-empty, at most 512 characters, no NUL, no segment of one or two dots; surrogates are no text here."""
    within = 1 <= len(key) <= 512 and "\0" not in key and not {".", ".."} & set(key.split("/"))
    if within:
        assert check_key(key) is key
    else:
        with pytest.raises(InvalidKeyError):
            check_key(key)


@given(st.text(), st.characters(categories=["Cs"]), st.text())
def test_a_key_has_no_lone_surrogate(before: str, surrogate: str, after: str) -> None:
    """It could not be sent as UTF-8."""
    with pytest.raises(InvalidKeyError):
        check_key(before + surrogate + after)
