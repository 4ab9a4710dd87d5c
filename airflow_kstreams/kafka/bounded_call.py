"""Bounds calls of the client that may never return.

``send_offsets_to_transaction`` looks for the group's coordinator in the middle of the call, and its time
limit does not hold for that part: with a connection lost at the wrong moment it blocks for ever (librdkafka
issue 5456, seen with 2.16 when the proxy of ``dev/chaos`` closed one side of a connection). A consumer's
synchronous commit takes no limit at all. Neither can be interrupted, so both run on a thread of their own,
for which the caller waits no longer than a limit. A thread that never returns from the client keeps the
client alive until the process ends.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from airflow_kstreams.kafka.client_errors import CallOverdueError, attempt

#: Time that a call may take beyond the client's own limit.
_OVERDUE_SECONDS = 2.0
_INTERRUPTS = (KeyboardInterrupt, SystemExit)


class BoundedCaller:
    """Makes calls on one thread that is started with the first of them and ends with :meth:`close`, or when
    no reference to this object is left.

    :param name: the thread's name.
    :param timeout_seconds: the client's own limit for a call.
    """

    def __init__(self, name: str, *, timeout_seconds: float) -> None:
        self._name = name
        self._timeout_seconds = timeout_seconds
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ended: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._end = weakref.finalize(self, self._calls.put, None)
        self.stuck = False

    def attempt(self, call: Callable[..., object], *args: object) -> Any:
        """Make a call and return the error that it raised, None if it succeeded.

        :return: a ``CallOverdueError`` when the call did not end in time; every further call then returns it,
            too.
        """
        if self.stuck:
            return CallOverdueError(self._timeout_seconds)
        if self._thread is None:
            self._thread = threading.Thread(
                target=_serve, args=(self._calls, self._ended), name=self._name, daemon=True
            )
            self._thread.start()
        self._calls.put(lambda: call(*args))
        try:
            error = self._ended.get(timeout=self._timeout_seconds + _OVERDUE_SECONDS)
        except Empty:
            self.stuck = True
            return CallOverdueError(self._timeout_seconds)
        if isinstance(error, _INTERRUPTS):
            raise error
        return error

    def close(self) -> None:
        """End the thread once its call has ended; closing twice is harmless."""
        self._end()


def _serve(calls: SimpleQueue[Callable[[], object] | None], ended: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        try:
            error = attempt(call)
        except _INTERRUPTS as interrupt:
            error = interrupt
        ended.put(error)
        del call, error  # they hold the client
