"""Progress bars on stderr, for people at a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from keepstate.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator


class Told(Protocol):
    """Moves a bar on."""

    def __call__(self, done: int, due: int) -> None:
        """Show how much is done, of how much."""
        ...


@contextmanager
def shown(title: str) -> Iterator[Told | None]:
    """Show a bar, at first without an end, and give what moves it on; ``None`` where nobody watches."""
    if not output.is_watched():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        # what was counted first may have grown since
        yield lambda done, due: bar.update(task, total=due, completed=min(done, due))
