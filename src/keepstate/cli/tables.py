"""Tables for people: coloured on a terminal, plain whole lines in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepstate.cli.json_values import to_json
from keepstate.cli.output import put, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from keepstate.scope import HistoryEntry, Writer

_SHOWN = 60

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


def draw(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Print a table. Cells that are ``str`` are made safe; of a ``Text`` only its style is trusted."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    out = console()
    table = Table(
        box=SIMPLE_HEAD if out.is_terminal else None,
        pad_edge=False,
        header_style="bold",
        show_header=any(columns),
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            *(
                Text(visible(cell)) if isinstance(cell, str) else Text(visible(cell.plain), cell.style)
                for cell in row
            )
        )
    if out.is_terminal:
        out.print(table)
    else:
        with out.capture() as drawn:
            out.print(table)
        put("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def styled(text: str, style: str) -> Text:
    """Return a cell with a style."""
    from rich.text import Text

    return Text(text, style)


def state_cell(state: str | None) -> Text:
    """Return a state in its colour."""
    return styled(state or "-", STATE_STYLES.get(state or "", ""))


def value_cell(value: Any) -> str | Text:
    """Return a value in short: a checkpoint as a progress bar, anything else as the beginning of its JSON."""
    if is_checkpoint(value):
        return styled(progress(value), "green" if value.get("done") else "cyan")
    return shortened(to_json(value))


def version_cell(version: HistoryEntry) -> str | Text:
    """Return the value of a version in short, or what is known where it was not kept."""
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
