"""`keepstate assets` and `assets delete`."""

from __future__ import annotations

from typing import Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Argument, Group
from keepstate.cli.exit_codes import Stop
from keepstate.cli.stores import opened
from keepstate.clock import to_datetime
from keepstate.settings import Settings


def list_assets(
    limit: options.Limit = 200,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """List the assets, by name; `keepstate list --asset NAME` shows the entries of one.

    An asset exists from the first write to it until it is deleted.

    Examples:
      keepstate assets
      keepstate assets --json | jq '.[].name'
    """
    from keepstate.cli import shapes, tables, times

    settings = Settings.load()
    with opened(url, settings, there=True) as store:
        found = store.assets(limit=limit)
        now = to_datetime(store.clock())
    if as_json:
        output.put_json([shapes.asset(asset) for asset in found])
    elif not found:
        output.say("there are no assets yet")
    else:
        tables.draw(
            (
                tables.Column("NAME"),
                tables.Column("URI"),
                tables.Column("ENTRIES", rank=1),
                tables.Column("UPDATED", rank=2),
            ),
            [
                (
                    asset.name,
                    "" if asset.uri == asset.name else asset.uri,
                    str(asset.entries),
                    times.ago(asset.updated_at, now),
                )
                for asset in found
            ],
        )


def delete(
    name: Annotated[str, Argument("NAME", help="The asset's name, or its uri.")],
    yes: options.Yes = False,
    url: options.Url = None,
) -> None:
    """Delete an asset with its entries and their history.

    This can't be undone, so it asks for confirmation; without a terminal, it needs --yes.

    Examples:
      keepstate assets delete orders
      keepstate assets delete s3://lake/orders --yes
    """
    settings = Settings.load()
    if not yes:
        output.ask(f"Erase asset {name}, history included?", may_go_unasked=False)
    with opened(url, settings, there=True) as store:
        erased = store.delete_asset(name) or store.delete_asset(uri=name)
    if not erased:
        raise Stop(f"there is no asset {name!r}")


assets_ = Group(list_assets, {"delete": delete}, callable_alone=True)
