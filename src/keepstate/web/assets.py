"""Assets: the list, and the entries of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.web.addresses import ASSET, ASSETS
from keepstate.web.asked import page
from keepstate.web.entries import Entries, entries_of
from keepstate.web.frame import Crumb
from keepstate.web.paging import PER_PAGE, Pager, pager
from keepstate.web.place import Place, place_of
from keepstate.web.removed import Removed, removed_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from keepstate.scope import AssetInfo
    from keepstate.web.asked import Asked
    from keepstate.web.frame import Frame


@dataclass(frozen=True)
class Assets:
    """The assets that have entries or had some."""

    frame: Frame
    assets: tuple[AssetInfo, ...]
    pager: Pager


@dataclass(frozen=True)
class Asset:
    """An asset. ``tab`` says which of ``entries`` and ``removed`` is shown."""

    frame: Frame
    place: Place
    info: AssetInfo
    tab: str
    entries: Entries | None
    removed: Removed | None


def show_all(asked: Asked) -> Response:
    """Show the assets."""
    number, pattern, backend = asked.page_number(), asked.caller.assets, asked.backend
    found = backend.assets(
        now=asked.store.clock(), pattern=pattern, limit=PER_PAGE, offset=(number - 1) * PER_PAGE
    )
    context = Assets(
        asked.frame("Assets", "assets", Crumb("Assets")),
        tuple(found),
        pager(asked.addresses.assets(), number, backend.count_assets(pattern=pattern)),
    )
    return asked.answer(context, "assets.html", "_assets.html")


def show(asked: Asked) -> Response:
    """Show an asset."""
    place = place_of(asked)
    assert place.asset is not None  # noqa: S101 - the path names one
    tab = "removed" if asked.query("tab") == "removed" else "storage"
    context = Asset(
        asked.frame(place.title, "assets", *place.crumbs[:-1], Crumb(place.title)),
        place,
        place.asset,
        tab,
        entries_of(asked, place) if tab == "storage" else None,
        removed_of(asked, place) if tab == "removed" else None,
    )
    return asked.answer(context, "asset.html", "_asset.html")


routes = [page(ASSETS, show_all), page(ASSET, show)]
