"""Something to do once, wherever a reader first gives a chance to."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Once:
    """Does it at the first call only; a later call waits for the first to end."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            action, self._action = self._action, None
            if action is not None:
                action()
