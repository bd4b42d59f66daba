"""Waiting for signals without missing one.

A signal that arrives just before a blocking call does not end it: Python's handler would run when the call is over, which
may be never. So whoever waits here waits for a pipe, into which the interpreter writes at each signal.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType

    from typing_extensions import Self


class SignalWatch:
    """Calls ``on_signal`` for signals, while its block lasts, on the main thread; on another it does nothing.

    A signal that is ignored at the beginning (`nohup`) stays ignored.
    """

    def __init__(self, numbers: Sequence[signal.Signals], on_signal: Callable[[int], None]) -> None:
        self._numbers = numbers
        self._on_signal = on_signal
        self._before: dict[int, object] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup_before = -1

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for number in self._numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe is None:
            return
        for number, handler in self._before.items():
            # None stands for a handler that Python did not install, and can't put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup_before)
        for end in self._pipe:
            os.close(end)
        self._pipe = None

    @property
    def idle(self) -> Callable[[float | None], None] | None:
        """Wait until a signal arrives or a child ends, or so many seconds. ``None`` where signals are not watched."""
        return self._idle if self._pipe is not None else None

    def _idle(self, seconds: float | None) -> None:
        assert self._pipe is not None  # noqa: S101 - see `idle`
        receiver = self._pipe[0]
        if select.select([receiver], [], [], seconds)[0]:
            os.read(receiver, 512)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._on_signal(number)


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing: that there is a handler makes the interpreter write into the pipe."""
    del number, frame
