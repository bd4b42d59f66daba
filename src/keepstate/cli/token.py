"""`keepstate token`: who may use the server, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from keepstate.cli import options, output
from keepstate.cli.declared import Argument, Group, Option
from keepstate.cli.exit_codes import Stop
from keepstate.cli.stores import opened
from keepstate.clock import optional_datetime, to_datetime
from keepstate.errors import InvalidInputError
from keepstate.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

    from keepstate.backends.answers import StoredToken
    from keepstate.server.roles import Role
    from keepstate.server.tokens import Tokens
    from keepstate.store import StateStore


def token() -> None:
    """Make, list and revoke the tokens of `keepstate serve`.

    Tokens are kept, hashed, in the store that is served. So run this where KEEPSTATE_URL names that store, not the
    server.

    Examples:
      keepstate token create nightly --role worker --dags 'etl_*' --expires 90d
      keepstate token list
      keepstate token revoke nightly
    """


def create(
    name: Annotated[str, Argument("NAME", help="What the token is called in lists and logs.")],
    role: Annotated[str, Option("--role", metavar="ROLE", help="viewer, worker, editor or admin.")],
    dags: Annotated[
        str | None,
        Option(
            "--dags",
            metavar="PATTERN",
            help="Only matching dags, like 'etl_*'. * stands for any characters, ? for one.",
        ),
    ] = None,
    assets: Annotated[
        str | None,
        Option(
            "--assets",
            metavar="PATTERN",
            help="Only assets with a matching name or uri. With --dags and without --assets: none.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        Option("--expires", metavar="TIME", help="How long it lasts, like 90d.", default="for ever"),
    ] = None,
    url: options.Url = None,
) -> None:
    """Make a token and print it. It can't be shown again; what can't be printed is not made.

    A viewer may read. A worker may also write entries and run attempts: use it as KEEPSTATE_TOKEN where tasks run. An
    editor may read and write entries, and delete runs and assets. An admin may do everything.

    Examples:
      keepstate token create grafana --role viewer
      export KEEPSTATE_TOKEN=$(keepstate token create etl --role worker --dags 'etl_*' --expires 90d)
    """
    from keepstate.cli import times
    from keepstate.clock import SECOND

    settings = Settings.load()
    lasts = None
    if expires is not None:
        lasts = int(
            times.duration(expires, "--expires", longer_than_zero=True, longest=times.WAIT).total_seconds()
            * SECOND
        )
    chosen = _role(role)
    printed = False

    def hand_over(text: str) -> None:
        nonlocal printed
        if not printed:
            output.put(text)
            output.flush()
        printed = True

    with opened(url, settings) as store:
        _tokens(store).create(name, chosen, dags=dags, assets=assets, lasts=lasts, hand_over=hand_over)


def list_tokens(
    everything: Annotated[
        bool, Option("--all", help="Also those that have expired or were revoked.")
    ] = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> None:
    """List the tokens that are valid now, oldest first.

    It shows no secrets; only their hashes are stored.

    Examples:
      keepstate token list
      keepstate token list --all --json
    """
    from keepstate.cli import shapes, tables, times

    settings = Settings.load()
    with opened(url, settings, there=True) as store:
        tokens = _tokens(store)
        found = tokens.all() if everything else tokens.living()
        now = to_datetime(store.clock())
    if as_json:
        output.put_json([shapes.token(one) for one in found])
    elif not found:
        output.say(
            "there are no tokens yet; `keepstate token create` makes one, and so does the first `keepstate serve`"
        )
    else:
        tables.draw(
            (
                tables.Column("NAME"),
                tables.Column("ROLE"),
                tables.Column("DAGS"),
                tables.Column("ASSETS", rank=2),
                tables.Column("EXPIRES"),
                tables.Column("USED", rank=1),
            ),
            [
                (
                    one.name,
                    one.role,
                    "all" if one.dags is None else one.dags,
                    "all" if one.assets is None else one.assets or "none",
                    _ends(one, now),
                    "never" if one.used_at is None else times.ago(to_datetime(one.used_at), now),
                )
                for one in found
            ],
        )


def revoke(
    name: Annotated[str, Argument("NAME", help="The token's name, or its id.")],
    url: options.Url = None,
) -> None:
    """Revoke a token, and the logins made with it.

    It takes effect on a running server within a second.

    Examples:
      keepstate token revoke nightly
    """
    settings = Settings.load()
    with opened(url, settings, there=True) as store:
        tokens = _tokens(store)
        living = tokens.living()
        # a token may be named like another one's id
        found = [one for one in living if one.name == name] or [one for one in living if one.id == name]
        for one in found:
            tokens.revoke(one.id)
    if not found:
        raise Stop(f"there is no valid token {name!r}; `keepstate token list --all` shows all")


def _role(text: str) -> Role:
    from keepstate.server.roles import Role

    try:
        return Role(text)
    except ValueError:
        raise InvalidInputError(
            f"--role must be one of {', '.join(role.value for role in Role)}, not {text!r}"
        ) from None


def _tokens(store: StateStore) -> Tokens:
    from keepstate.connect import tokens_of
    from keepstate.server.tokens import Tokens

    return Tokens(tokens_of(store), store.clock)


def _ends(one: StoredToken, now: datetime) -> str:
    from keepstate.cli import times

    if one.revoked_at is not None:
        return "revoked"
    expires_at = optional_datetime(one.expires_at)
    return "expired" if expires_at is not None and expires_at <= now else times.ahead(expires_at, now)


token_ = Group(token, {"create": create, "list": list_tokens, "revoke": revoke}, callable_alone=False)
