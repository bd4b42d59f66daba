"""The pictures of the tab inside Airflow in the documentation: `make screenshots` takes them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.airflow.tabs import PATIENCE, browsing, running, visiting
from tests.docs.pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = DOCS / "images"


@pytest.mark.timeout(900)
def test_take_pictures(tmp_path: Path) -> None:
    """Of the tab on 3.1, light and dark, and of the one beside Airflow's own on 3.3."""
    for version, tab, themes in (
        ("3.1.8", "Storage", ("light", "dark")),
        ("3.3.2", "State History", ("light",)),
    ):
        home = tmp_path / version
        home.mkdir()
        with (
            running(version, "", tab, home) as inside,
            browsing() as browser,
            visiting(inside, browser) as visit,
        ):
            for theme in themes:
                page, frame = visit(
                    "admin", "load", color_scheme=theme, viewport={"width": 1280, "height": 720}
                )
                expect(frame.get_by_role("row", name="page")).to_be_visible(timeout=PATIENCE)
                if tab != "Storage":
                    frame.get_by_role("link", name="History of page").click()
                    expect(frame.get_by_role("heading", name="History of page")).to_be_visible()
                page.mouse.move(0, 0)
                name = f"airflow-{'storage' if tab == 'Storage' else 'history'}-{theme}"
                page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")
