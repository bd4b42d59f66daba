"""Assets: the list, and the entries of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keepstate.web.addresses import ASSET, ASSETS
from keepstate.web.asked import page
from keepstate.web.entries import Entries, entries_of
from keepstate.web.frame import Crumb
from keepstate.web.live import events
from keepstate.web.paging import PER_PAGE, Pager, pager
from keepstate.web.place import Place, place_of, watch
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
    found = _assets(asked)
    context = Assets(
        asked.frame("Assets", "assets", Crumb("Assets")),
        tuple(found),
        pager(asked.addresses.assets(), number, backend.count_assets(pattern=pattern)),
    )
    return asked.answer(context, "assets.html", "_assets.html")


def watch_all(asked: Asked) -> object:
    """Return what changes when the list does."""
    return [(one.id, one.entries, one.updated_at) for one in _assets(asked)]


def _assets(asked: Asked) -> list[AssetInfo]:
    offset = (asked.page_number() - 1) * PER_PAGE
    pattern, now = asked.caller.assets, asked.store.clock()
    return asked.backend.assets(now=now, pattern=pattern, limit=PER_PAGE, offset=offset)


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


routes = [
    page(ASSETS, show_all, watch=watch_all),
    events(ASSETS, watch_all),
    page(ASSET, show, watch=watch),
    events(ASSET, watch),
]
