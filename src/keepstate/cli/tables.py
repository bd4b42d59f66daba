"""Tables for people: coloured on a terminal, plain whole lines in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keepstate.cli.json_values import to_json
from keepstate.cli.output import put, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from keepstate.cli.presence import Sight
    from keepstate.scope import Entry, HistoryEntry, Writer

_SHOWN = 60
# so much of a cell that may be cut is shown, before other columns are left out for it
_WANTED = 40
_LEAST = 8

STATE_STYLES = {
    "running": "cyan",
    "success": "green",
    "failed": "red",
    "up_for_retry": "yellow",
    "lost": "magenta",
    "superseded": "dim",
}


def console() -> Console:
    """Return where tables are drawn. What is no terminal, and NO_COLOR, get plain text; a pipe gets whole lines."""
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False)
    if made.no_color or not made.is_terminal:
        width = made.width if made.is_terminal else 100_000
        made = Console(highlight=False, markup=False, emoji=False, color_system=None, width=width)
    return made


class Column(NamedTuple):
    """A column, and what becomes of it where a terminal is too narrow.

    ``cut``: its cells end in an ellipsis; ``fold``: they go on in the next line; else they stay whole, to be copied.
    Columns with a ``rank`` are left out, the highest first, until the others have room.
    """

    name: str
    rank: int = 0
    cut: bool = False
    fold: bool = False


def draw(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
    """Print a table. Cells that are ``str`` are made safe; of a ``Text`` only its style is trusted."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = console()
    cells = [
        [
            Text(visible(cell)) if isinstance(cell, str) else Text(visible(cell.plain), cell.style)
            for cell in row
        ]
        for row in rows
    ]
    widths = [
        max([len(column.name), *(row[place].cell_len for row in cells)])
        for place, column in enumerate(columns)
    ]
    shown = _shown(columns, widths, out.width)
    table = Table(
        box=SIMPLE_HEAD if out.is_terminal else None,
        pad_edge=False,
        header_style="bold",
        show_header=any(column.name for column in columns),
    )
    cut = [place for place in shown if columns[place].cut]
    room = out.width - _taken([widths[place] for place in shown if place not in cut], len(shown))
    for place in cut:
        widths[place] = max(min(widths[place], room // len(cut)), len(columns[place].name), _LEAST)
    for place in shown:
        column = columns[place]
        if column.fold:
            table.add_column(column.name, overflow="fold")
        else:
            table.add_column(column.name, overflow="ellipsis", no_wrap=True, width=widths[place])
    for row in cells:
        table.add_row(*(row[place] for place in shown))
    if not any(column.fold for column in columns):
        # where even ids have no room, the terminal breaks the lines, and joins them again when they are copied
        out.width = max(out.width, _taken([widths[place] for place in shown], len(shown)))
    if out.is_terminal:
        out.print(table)
    else:
        with out.capture() as drawn:
            out.print(table)
        put("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _shown(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the places of the columns for which there is room."""
    needed = [min(have, _WANTED) if columns[place].cut else have for place, have in enumerate(widths)]
    shown = list(range(len(columns)))
    while _taken([needed[place] for place in shown], len(shown)) > width:
        least = max(shown, key=lambda place: columns[place].rank)
        if not columns[least].rank:
            break
        shown.remove(least)
    return shown


def _taken(widths: Sequence[int], columns: int) -> int:
    """Return how wide a table is: three characters are between columns, and one at each edge."""
    return sum(widths) + 3 * (columns - 1) + 2


def styled(text: str, style: str) -> Text:
    """Return a cell with a style."""
    from rich.text import Text

    return Text(text, style)


def state_cell(state: str | None, sight: Sight | None = None) -> Text:
    """Return a state in its colour; ``lost?`` where it is running on record, and its process seems to be gone."""
    if sight is not None and sight.lost:
        return styled("lost?", STATE_STYLES["lost"])
    return styled(state or "-", STATE_STYLES.get(state or "", ""))


def value_cell(value: Any) -> str | Text:
    """Return a value in short: a checkpoint as a progress bar, anything else as the beginning of its JSON."""
    if is_checkpoint(value):
        return styled(progress(value), "green" if value.get("done") else "cyan")
    return shortened(to_json(value))


def entry_cell(entry: Entry) -> str | Text:
    """Return the value of an entry in short; of one that is damaged, what is stored."""
    return value_cell(entry.value) if entry.damaged is None else damaged_cell(entry.damaged)


def damaged_cell(stored: str) -> Text:
    """Return what is stored in place of a value, marked as such."""
    return styled(f"damaged: {shortened(stored)}", "red")


def version_cell(version: HistoryEntry) -> str | Text:
    """Return the value of a version in short, or what is known where it was not kept."""
    if version.damaged is not None:
        return damaged_cell(version.damaged)
    if version.value is not None:
        return value_cell(version.value)
    return f"not kept, sha256 {version.sha256[:12]}…" if version.sha256 else ""


def shortened(text: str, most: int = _SHOWN) -> str:
    """Return the beginning of ``text``, and how much there is of it where that is not all."""
    return text if len(text) <= most else f"{text[: most - 1]}… ({len(text):,} characters)"


def is_checkpoint(value: Any) -> bool:
    """Whether ``value`` is what ``checkpoint()`` stores."""
    return (
        isinstance(value, dict)
        and value.keys() >= {"position", "total", "done"}
        and type(value["position"]) is int
        and (value["total"] is None or type(value["total"]) is int)
    )


def progress(checkpoint: dict[str, Any], width: int = 20) -> str:
    """Return how far a checkpoint has come, as a bar where its total is known."""
    position, total = checkpoint["position"], checkpoint["total"]
    if checkpoint["done"] and total is None:
        return f"{'━' * width} {position:,} done"
    if not total or total < 0:
        return f"{position:,} done so far"
    share = min(max(position / total, 0.0), 1.0)
    full = int(share * width)
    return f"{'━' * full}{'╌' * (width - full)} {position:,}/{total:,} {int(share * 100)}%"


def progress_cell(checkpoints: dict[str, Any]) -> str | Text:
    """Return the progress of a task instance's checkpoints, which are named where there are several."""
    if not checkpoints:
        return ""
    if len(checkpoints) == 1:
        (only,) = checkpoints.values()
        return value_cell(only)
    return "; ".join(f"{key} {progress(value, 10)}" for key, value in checkpoints.items())


def writer_cell(writer: Writer | None) -> str:
    """Return who wrote something, in short."""
    if writer is None:
        return "-"
    if writer.kind == "task":
        attempt = f"attempt {writer.try_number}" if writer.try_number is not None else "task"
        return f"{writer.task_id} {attempt}" if writer.task_id else attempt
    return f"{writer.kind} {writer.name}" if writer.name else writer.kind
