"""`keepstate copy`, `export` and `import`: a store, or a part of it, on its way to another place."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from keepstate import copies, exports
from keepstate.backends.images import Fate, Selection, Tally
from keepstate.cli import options, output, progress
from keepstate.cli.declared import Argument, Option
from keepstate.cli.exit_codes import ExitCode, Stop
from keepstate.cli.stores import opened, sqlite_file, store_file
from keepstate.cli.wording import Names, counted
from keepstate.errors import InvalidInputError
from keepstate.scope import RunScope
from keepstate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from keepstate.backends.images import Image
    from keepstate.store import StateStore

_NOT_KEPT = {("/", "dev"), ("/", "proc")}
_SAME = "source and target are the same store"
_PARTS = "Which part (default: everything)"

Dag = Annotated[str | None, Option("--dag-id", metavar="ID", help="Runs of this dag.", panel=_PARTS)]
Run = Annotated[str | None, Option("--run-id", metavar="ID", help="Runs with this id.", panel=_PARTS)]
Dags = Annotated[
    str | None, Option("--dags", metavar="PATTERN", help="Runs of matching dags, like 'etl_*'.", panel=_PARTS)
]
Assets = Annotated[
    str | None,
    Option("--assets", metavar="PATTERN", help="Assets with a matching name or uri, like '*'.", panel=_PARTS),
]
Overwrite = Annotated[
    bool,
    Option(
        "--overwrite", help="Also replace what was changed independently in the target, which is lost then."
    ),
]


def copy_(
    source: Annotated[str, Argument("SOURCE_URL", help="The store to copy from.")],
    target: Annotated[str, Argument("TARGET_URL", help="The store to copy to.")],
    overwrite: Overwrite = False,
    as_json: options.AsJson = False,
) -> int:
    """Copy a store into another: entries, history, attempts, runs and assets.

    Both must be SQLite files or databases. You can stop it at any time, run it while the source is in use, and run it
    again: then only what has changed since is copied. What was changed independently in the target is left alone, and
    the exit code is 3. Expired entries, tokens and logins are not copied. Leave passwords out of the URLs, because
    other users can see them in the list of processes; for PostgreSQL use PGPASSWORD or ~/.pgpass.

    Examples:
      keepstate copy sqlite:///keepstate.db postgresql://etl@db/state
      keepstate copy sqlite:///old.db sqlite:///new.db --overwrite --json
    """
    gc.enable()
    settings = Settings.load()
    everything = Selection()
    _refuse_same(source, target)
    with _lasting(source, settings, there=True) as giver, _lasting(target, settings) as taker:
        if giver.backend.address == taker.backend.address:
            raise InvalidInputError(_SAME)
        damaged = Names()
        with _watched("Copying", giver, everything) as told:
            batches = copies.as_carried(copies.images_of(giver, everything), damaged.add)
            done = copies.take_in(taker, batches, overwrite=overwrite, on_progress=told)
        here = copies.copyable(giver).tally(everything, now=giver.clock())
        there = copies.copyable(taker).tally(everything, now=giver.clock())
    behind = {
        kind: count - getattr(there, kind)
        for kind, count in vars(here).items()
        if count > getattr(there, kind)
    }
    if as_json:
        output.put_json(
            {**_counts(done), "damaged": len(damaged), "source": vars(here), "target": vars(there)}
        )
    else:
        output.put(_sentence(done, "copied"))
        output.put(f"the source has {_content(here)}; the target has {_content(there)}")
    _say_what_is_more(here, there)
    if damaged:
        output.say(f"the source has damaged values, which stay so in the target: {damaged}")
    # where nothing was copied, all of it had been before, and the difference is the target's own doing
    return _code(done, behind if done.copied else {})


def export_(
    to: Annotated[
        str | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to this file, which only you can read; it is replaced only by a complete export.",
        ),
    ] = None,
    dag_id: Dag = None,
    run_id: Run = None,
    dags: Dags = None,
    assets: Assets = None,
    skip_damaged: Annotated[
        bool,
        Option("--skip-damaged", help="Leave out damaged values and report them, instead of stopping."),
    ] = False,
    url: options.Url = None,
) -> None:
    """Print a store, or a part of it, as JSON Lines: a header, a line for each scope, and a last line.

    Entries are exported with their history and attempts, and values as JSON text. Expired entries, tokens and logins
    are not exported. A damaged value stops the export, unless --skip-damaged is given.

    With --output FILE it prints how much that was. The exit code is 1 if nothing matches the options.

    Examples:
      keepstate export --output state.jsonl
      keepstate export --dags 'etl_*' --assets '*' | gzip > etl.jsonl.gz
      keepstate export --dag-id etl --run-id 2026-11-29
    """
    gc.enable()
    selection = _selection(dag_id, run_id, dags, assets)
    if to is None and sys.stdout is None:
        raise Stop("stdout is closed, so nothing can be printed", ExitCode.IO)
    damaged = Names()
    left_out = damaged.add if skip_damaged else None
    with _lasting(url, Settings.load(), there=True) as store:
        if to is None:
            sys.stdout.flush()
            done = _write(store, selection, sys.stdout.buffer, lambda _: None, left_out)
        else:
            with _writing(to) as file, _watched("Exporting", store, selection) as told:
                done = _write(store, selection, file, told, left_out)
    if damaged:
        output.say(f"left out, as damaged: {damaged}")
    if to is not None and _is_replaced(to):
        output.put(_sentence(done, "exported"))


def import_(
    file: Annotated[str, Argument("FILE", help="What `keepstate export` wrote; - reads stdin.")],
    overwrite: Overwrite = False,
    as_json: options.AsJson = False,
    url: options.Url = None,
) -> int:
    """Import what `keepstate export` wrote, each scope as a whole.

    An existing scope is replaced only if it has not been changed since an earlier import or copy of it; otherwise it
    is left alone, and the exit code is 3. An invalid line stops the import, and its number is reported. You can run
    it again.

    Examples:
      keepstate import state.jsonl
      gunzip -c etl.jsonl.gz | keepstate import - --json
    """
    gc.enable()
    with _lasting(url, Settings.load()) as store, _reading(file) as lines:
        images = exports.images_in(lines)
        done = copies.take_in(store, copies.in_batches(images), overwrite=overwrite)
    if as_json:
        output.put_json(_counts(done))
    else:
        output.put(_sentence(done, "imported"))
    return _code(done, {})


def _refuse_same(source: str, target: str) -> None:
    """Refuse what is surely a mistake before anything is opened: two names of one SQLite file would each have a log."""
    for name, url in (("SOURCE_URL", source), ("TARGET_URL", target)):
        if not url.strip():
            raise InvalidInputError(f"{name} is empty: name the store, as sqlite:///keepstate.db")
    one, other = sqlite_file(source), sqlite_file(target)
    if one and other and one.exists() and other.exists() and one.samefile(other):
        raise InvalidInputError(_SAME)


@contextlib.contextmanager
def _lasting(url: str | None, settings: Settings, *, there: bool = False) -> Iterator[StateStore]:
    """Open a store that can be copied and outlives this command; with ``there``, one that is there already."""
    if there and (file := store_file(url, settings)) is not None and not file.exists():
        raise InvalidInputError(f"there is no store at {file}")
    with opened(url, settings) as store:
        copies.copyable(store)
        if store.backend.address == "memory:":
            raise InvalidInputError("memory: ends with this command, so nothing can be copied from or to it")
        yield store


def _selection(dag_id: str | None, run_id: str | None, dags: str | None, assets: str | None) -> Selection:
    RunScope(dag_id or "any", run_id or "any")
    return Selection(dag_id, run_id, dags, assets)


def _write(
    store: StateStore,
    selection: Selection,
    file: BinaryIO,
    told: Callable[[copies.Progress], None],
    left_out: Callable[[str], None] | None,
) -> copies.Progress:
    """Write an export, and return what was in it; raise ``Stop`` where a part was named and there is nothing of it."""
    done = copies.Progress()

    def batches() -> Iterator[list[Image]]:
        nonlocal done
        for batch in copies.images_of(store, selection):
            yield batch
            done = done.after(batch, [Fate.COPIED] * len(batch))
            told(done)

    lines = exports.lines_of(batches(), version=version("keepstate"), now=store.clock(), left_out=left_out)
    file.writelines(f"{line}\n".encode() for line in lines)
    file.flush()
    if not done.scopes and selection != Selection():
        raise Stop("nothing in the store matches that, so nothing was exported")
    return done


@contextlib.contextmanager
def _writing(name: str) -> Iterator[BinaryIO]:
    """Give a file to write to. A regular one takes its place once all of it is on the disk; others are written into."""
    try:
        path = Path(name).resolve()
        if not _is_replaced(name):
            with Path(name).open("ab") as file:
                yield file
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                yield file  # type: ignore[misc]
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as exc:
        raise Stop(f"{name} can't be written: {exc.strerror or exc}", ExitCode.IO) from exc


def _is_replaced(name: str) -> bool:
    """Whether a name is that of a file, there or not: /dev/stdout may lead to one, which others hold open."""
    given = Path(name)
    return (not given.exists() or given.is_file()) and given.absolute().parts[:2] not in _NOT_KEPT


@contextlib.contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        if sys.stdin is None:
            raise Stop("stdin is closed, so nothing can be read", ExitCode.IO)
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(name).open("rb"))
        except OSError as exc:
            raise Stop(f"{name} can't be read: {exc.strerror or exc}", ExitCode.IO) from exc
        yield file


@contextlib.contextmanager
def _watched(
    title: str, store: StateStore, selection: Selection
) -> Iterator[Callable[[copies.Progress], None]]:
    """Give what shows a progress bar to a person at a terminal, and nothing to anybody else."""
    with progress.shown(title) as told:
        if told is None:
            yield lambda _: None
            return
        due = _scopes(copies.copyable(store).tally(selection, now=store.clock()))
        yield lambda sofar: told(sofar.scopes, due)


def _scopes(tally: Tally) -> int:
    return tally.task_instances + tally.runs + tally.assets


def _counts(done: copies.Progress) -> dict[str, object]:
    return {
        "scopes": done.scopes,
        "copied": done.copied,
        "unchanged": done.unchanged,
        "conflicts": done.left_alone,
        "entries": done.entries,
        "versions": done.versions,
        "attempts": done.attempts,
    }


def _sentence(done: copies.Progress, verb: str) -> str:
    if not done.scopes:
        return f"nothing {verb}: there is nothing"
    if not done.copied:
        return f"nothing {verb}: {counted(done.scopes, 'scope')} looked at" + (
            "" if done.left_alone else ", and none has changed"
        )
    kinds = ((done.entries, "entry", "entries"), (done.versions, "version"), (done.attempts, "attempt"))
    some = "" if done.copied == done.scopes else f"{done.copied:,} of "
    return f"{verb} {some}{counted(done.scopes, 'scope')}, with {_listed(kinds)}"


def _content(tally: Tally) -> str:
    return _listed(
        (
            (tally.task_instances, "task instance"),
            (tally.runs, "run"),
            (tally.assets, "asset"),
            (tally.entries, "entry", "entries"),
            (tally.attempts, "attempt"),
        )
    )


def _listed(kinds: Sequence[tuple[int, str] | tuple[int, str, str]]) -> str:
    *most, last = (counted(*kind) for kind in kinds)
    return f"{', '.join(most)} and {last}"


def _say_what_is_more(here: Tally, there: Tally) -> None:
    kinds = ("task_instances", "task instance"), ("runs", "run"), ("assets", "asset")
    more = [
        counted(count, one)
        for name, one in kinds
        if (count := getattr(there, name) - getattr(here, name)) > 0
    ]
    if more:
        output.say(
            f"the target has {', '.join(more)} more than the source: they were made there, or have been deleted in the source "
            "since they were copied, and stayed"
        )


def _code(done: copies.Progress, behind: dict[str, int]) -> int:
    """Tell what is not as it should be, and return the exit code that says so."""
    if done.left_alone:
        shown = ", ".join(done.conflicts) + (", …" if done.left_alone > len(done.conflicts) else "")
        output.say(
            f"{counted(done.left_alone, 'scope')} of the target had been changed there, or came from elsewhere or a later "
            f"time, and stayed as before: {shown}; --overwrite replaces that"
        )
        return ExitCode.CONFLICT
    if behind:
        missing = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in behind.items())
        output.say(f"the target still lacks {missing}, as the source is in use: run it again")
        return ExitCode.FAILED
    return ExitCode.OK
