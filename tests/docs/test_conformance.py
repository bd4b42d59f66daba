from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from keepstate.testing import contract
from tests.docs.pages import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = DOCS / "reference" / "guide-conformance.md"
_NODE = re.compile(r"`(tests/[^`]+\.py::[^`]+)`")


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yield promise, verdict and what shows it."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| promise |"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            assert len(cells) == 3, f"this row has {len(cells)} cells: {line}"
            promise, verdict, shown = (cell.strip() for cell in cells)
            yield promise, verdict, shown


ROWS = list(_rows())
NODES = sorted({node for _, _, shown in ROWS for node in _NODE.findall(shown)})


@cache
def _names(path: str) -> frozenset[str]:
    """Return the tests of a file: ``test_a``, and ``TestB::test_c`` also where it comes from the contract suite."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            own = [
                item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            inherited = [name for base in bases for name in dir(getattr(contract, base, object))]
            found |= {f"{node.name}::{name}" for name in own + inherited}
    return frozenset(name for name in found if "test_" in name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_row_has_a_verdict_and_its_reason(row: tuple[str, str, str]) -> None:
    """A promise is kept, and a test is named that shows it; or it is not yet, and it is said with what it comes."""
    promise, verdict, shown = row
    assert promise
    assert verdict in {"kept", "not yet"}
    if verdict == "kept":
        assert _NODE.search(shown), f"{promise}: no test is named"
    else:
        assert shown.startswith("comes with "), f"{promise}: say with what it comes"


@pytest.mark.parametrize("node", NODES)
def test_named_test_exists(node: str) -> None:
    """Every test that the page names is there, under that very name."""
    path, _, name = node.partition("::")
    assert (ROOT / path).is_file(), path
    assert name in _names(path), f"{path} has no test {name}"


def test_page_is_about_the_guide() -> None:
    """The page has rows for every part of the guide."""
    headings = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(ROWS) > 80
    assert {
        "The four methods",
        "The examples",
        "In the pages",
        "REST API",
        "ResumableJobMixin",
        "Configuration",
    } <= set(headings)
