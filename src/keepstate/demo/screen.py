"""What a person sees of the demo: a line for what happens, a bar for progress, a table for the figures."""

from __future__ import annotations

import io
import re
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence

    from keepstate.demo.stories import Outcome

_ACCENT = "cyan"


class Screen:
    """Prints the demo as it goes. ``pages`` remembers where each attempt's bar began and ended, for the picture."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.pages: list[tuple[int, int, int]] = []

    def opening(self) -> None:
        """Say what is coming."""
        self.console.print()
        self.console.print(
            "[bold]keepstate[/]  three tasks, each killed with SIGKILL in the middle and started again"
        )

    def story(self, number: int, title: str, about: str) -> None:
        """Begin a story."""
        self.console.print()
        self.console.print(f"[bold {_ACCENT}]{number}[/] [bold]{title}[/]  [dim]{about}[/]")

    def line(self, text: str) -> None:
        """Say what happened."""
        self.console.print(f"  [dim]·[/] {text}")

    def killed(self, text: str) -> None:
        """Say that a worker was killed."""
        self.console.print(f"  [bold red]✗ kill -9[/] {text}")

    def good(self, text: str) -> None:
        """Say how a story ended."""
        self.console.print(f"  [bold green]✓[/] {text}")

    def waiting(self, text: str, process: subprocess.Popen[bytes], patience: float) -> None:
        """Turn a wheel until a process has ended; `patience` is in seconds."""
        self.line(text)
        end = time.monotonic() + patience
        with self.console.status("[dim]waiting[/]"):
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.03)

    @contextmanager
    def progress(self, attempt: int, total: int, *, resumed_at: int = 0) -> Iterator[Callable[[int], None]]:
        """Show an attempt's bar, which begins where the attempt before ended; yields what moves it."""
        reached = resumed_at
        columns = (
            TextColumn("  [dim]·[/] attempt {task.fields[attempt]}"),
            BarColumn(bar_width=30, complete_style=_ACCENT, finished_style="green"),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.description}[/]"),
        )
        about = f"resumed after page {resumed_at}" if resumed_at else ""
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task(about, total=total, completed=resumed_at, attempt=attempt)

            def advance(position: int) -> None:
                nonlocal reached
                reached = max(reached, position)
                progress.update(bar, completed=reached)

            yield advance
        self.pages.append((attempt, resumed_at, reached))

    def closing(self, outcomes: Sequence[Outcome], url: str, folder: Path) -> None:
        """Show the figures, and where to look next."""
        self.console.print()
        self.console.print(_table(outcomes))
        self.console.print()
        command = _command()
        task = "--dag-id pages --run-id night --task-id read_pages"
        self.console.print("Look around in what the three tasks left behind:")
        self._commands(
            f"export KEEPSTATE_URL={url}",
            f"{command} runs",
            f"{command} list {task}",
            f"{command} history pages {task}",
            f"rm -r {folder}",
        )
        self.console.print("Then try it on a job of yours:")
        self._commands(f"{command} run --retries 3 -- python your_job.py")
        self.console.print()

    def served(self, link: str) -> None:
        """Say where the pages are."""
        self.console.print("See it all in a browser (the link serves once; Ctrl-C ends the server):")
        self._commands(link)

    def _commands(self, *lines: str) -> None:
        for line in lines:
            self.console.print(Text(f"  {line}", style=_ACCENT), soft_wrap=True)


def _command() -> str:
    """Return how to call keepstate from where the person is: by its name, or by its path where it is not on PATH."""
    if shutil.which("keepstate"):
        return "keepstate"
    script = Path(sys.executable).with_name("keepstate")
    try:
        return str(script.relative_to(Path.cwd()))
    except ValueError:
        return str(script)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(
        title="What happened",
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("story")
    for heading in ("attempts", "submissions", "pages", "read twice", "kept"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        verdict = Text("✓", style="bold green") if outcome.kept else Text("✗", style="bold red")
        figures = (outcome.attempts, outcome.submissions, outcome.pages, outcome.read_twice)
        table.add_row(outcome.story, *("-" if figure is None else str(figure) for figure in figures), verdict)
    return table


def picture(outcomes: Sequence[Outcome], pages: Sequence[tuple[int, int, int]], path: Path) -> None:
    """Save what the demo showed as an SVG, without the parts that move."""
    console = Console(record=True, width=92, highlight=False, file=io.StringIO(), force_terminal=True)
    console.print("[dim]$[/] [bold]keepstate demo[/]\n")
    total = pages[-1][2]
    for attempt, begin, end in pages:
        bar = ProgressBar(
            total=total, completed=end, width=44, complete_style=_ACCENT, finished_style="green"
        )
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(f"  attempt {attempt}"), bar, Text(f"{end}/{total}"), _remark(begin, end, total))
        console.print(grid)
    console.print()
    console.print(_table(outcomes))
    svg = console.export_svg(title="a task that is killed and carries on")
    # Rich's template asks a font server; the reader's own monospace does as well, without a network
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    path.write_text(svg, encoding="utf-8")


def _remark(begin: int, end: int, total: int) -> Text:
    if end < total:
        return Text("✗ kill -9", style="bold red")
    return Text(f"resumed after page {begin}", style="dim")
