"""Turns SIGTERM and SIGINT into a request to stop cleanly."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Sets an event at the first signal; the second one ends the process at once.

    A context manager that restores the signals' handlers at its end. Outside the main thread, where Python
    handles no signals, it does nothing.

    :ivar requested: set by the first signal.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def install(self) -> None:
        """Set the signals' handlers, again if the start of a Spark context has replaced them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested.is_set():
            sys.exit(1)
        self.requested.set()
        log.info("%s: stopping", signal.Signals(number).name)
