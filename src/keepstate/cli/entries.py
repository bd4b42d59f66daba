"""`keepstate get`, `set`, `delete` and `clear`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from keepstate.cli import json_values, options, output
from keepstate.cli.declared import Argument, Option
from keepstate.cli.scopes import choose, known
from keepstate.cli.stores import nothing, opened
from keepstate.settings import Settings
from keepstate.values import check_key

if TYPE_CHECKING:
    from keepstate.cli.scopes import Target
    from keepstate.store import StateStore


def get_(
    key: options.Key,
    default: Annotated[
        str | None,
        Option(
            "--default",
            metavar="JSON",
            help="Print this if the key is absent: JSON, or plain text with --raw.",
        ),
    ] = None,
    raw: Annotated[bool, Option("--raw", help="Print a string as it is, without quotes.")] = False,
    as_json: options.AsJson = False,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """Print the value under KEY as JSON.

    If there is no such key and no --default, nothing is printed and the exit code is 1. With --json the whole entry
    is printed: key, value, version (0 for a default), times and writer.

    Examples:
      page=$(keepstate get page --default 0)
      job=$(keepstate get job_id --raw --default '')
      keepstate get page --json --dag-id etl --run-id 2026-11-29 --task-id load
    """
    settings = Settings.load()
    target = choose(settings, named)
    fallback = None if default is None else json_values.parse(default, raw=raw, what="--default")
    with opened(url, settings, there=True) as store:
        entry = target.accessor(store).entry(key)
    if entry is None and fallback is None:
        raise nothing(f"key {key!r} in {target.scope}", url, settings)
    value = entry.value if entry else fallback
    if as_json:
        from keepstate.cli import shapes

        output.put_json(shapes.entry(entry) if entry else shapes.absent(key, value))
    elif raw and isinstance(value, str):
        output.put_raw(value)
    else:
        output.put_json(value)


def set_(
    key: options.Key,
    value: Annotated[
        str,
        Argument("JSON", help="The value, as JSON, or - to read it from stdin."),
    ],
    raw: Annotated[bool, Option("--raw", help="Take the value as plain text, not JSON.")] = False,
    retention: Annotated[
        str | None,
        Option(
            "--retention",
            metavar="TIME",
            help="How long to keep it: 90s, 30m, 12h, 7d, or never. By default the configured retention.",
        ),
    ] = None,
    if_version: Annotated[
        int | None,
        Option(
            "--if-version",
            metavar="N",
            minimum=0,
            help="Write only if the entry has version N; 0 means only if the key is absent. Otherwise the exit code is 3.",
        ),
    ] = None,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """Write or overwrite the value under KEY. When this returns, the value survives a crash.

    With --raw, one newline at the end of stdin is dropped, as by $(...) in a shell, so that `set --raw` reads back
    what `get --raw` prints.

    Examples:
      keepstate set page 40
      keepstate set job_id --raw "$(submit)" --retention 7d
      curl -s https://example.org/offsets | keepstate set offsets -
      keepstate set owner --raw "$HOSTNAME" --if-version 0
    """
    settings = Settings.load()
    target = choose(settings, named)
    lasting = None
    if retention is not None:
        from keepstate.cli import times

        lasting = times.retention(retention)
    text = json_values.read_argument(value)
    if raw and value == "-":
        text = text.removesuffix("\n")
    what = "stdin" if value == "-" else "the value"
    parsed = json_values.parse(text, raw=raw, what=what, if_null=f"; to remove it: `keepstate delete {key}`")
    with opened(url, settings) as store:
        made = _what_is_made(store, target, key)
        target.set(store, key, parsed, retention=lasting, if_version=if_version)
    if made:
        output.note(made)


def _what_is_made(store: StateStore, target: Target, key: str) -> str | None:
    """Say what a person's `set` makes anew, as a mistyped name would; who is no person at a terminal does not ask."""
    if not target.by_person or not output.is_watched():
        return None
    if store.backend.read(target.scope, [check_key(key)], now=store.clock()).entries:
        return None
    if known(store, target.scope):
        return f"created key {key} in {target.scope}"
    return f"made a new {target.kind}: {target.name}"


def _what_is_missed(store: StateStore, target: Target, key: str | None = None) -> str | None:
    """Say what a person wants to delete that is not there, as under a mistyped name; as above, nobody else is told."""
    if not target.by_person or not output.is_watched():
        return None
    if not known(store, target.scope):
        return f"there is no {target.kind} {target.name}"
    keys = None if key is None else [check_key(key)]
    if key is None or store.backend.read(target.scope, keys, now=store.clock()).entries:
        return None
    return f"there is no key {key} in {target.scope}"


def delete_(
    key: options.Key,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """Delete the entry under KEY; an absent key is not an error.

    Its history is kept for KEEPSTATE_HISTORY_DAYS; during that time `keepstate restore` brings it back.

    Examples:
      keepstate delete job_id
      keepstate delete page --dag-id etl --run-id 2026-11-29 --task-id load
    """
    settings = Settings.load()
    target = choose(settings, named)
    with opened(url, settings, there=True) as store:
        missed = _what_is_missed(store, target, key)
        target.accessor(store).delete(key)
    if missed:
        output.note(f"{missed}, so nothing was deleted")


def clear_(
    forget: Annotated[bool, Option("--forget", help="Delete the history of all keys too.")] = False,
    yes: options.Yes = False,
    named: options.Named = options.NOTHING,
    url: options.Url = None,
) -> None:
    """Delete every entry of a task instance or asset; if there is none, that is not an error.

    On a terminal it asks for confirmation; under `keepstate run` and in scripts it does not. --forget can't be
    undone: in a script that is not under `keepstate run`, it needs --yes.

    Examples:
      keepstate clear
      keepstate clear --forget --yes --dag-id etl --run-id 2026-11-29 --task-id load
    """
    settings = Settings.load()
    target = choose(settings, named)
    if target.by_person and not yes:
        history = " and their history" if forget else ""
        output.ask(f"Delete all entries of {target.scope}{history}?", may_go_unasked=not forget)
    with opened(url, settings, there=True) as store:
        missed = _what_is_missed(store, target)
        target.accessor(store).clear(forget=forget)
    if missed:
        output.note(f"{missed}, so nothing was deleted")
