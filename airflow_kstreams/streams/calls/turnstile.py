"""Which of a node's calls may run next.

Rule: at most ``max_in_flight`` calls run at once; those that wait begin in the order in which they came. With
order ``key``, a call begins only when those of its key before it have ended; then it goes before all others,
because its record came before theirs.

Not safe for threads: whoever runs the calls keeps it to one of them, or behind a lock.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from airflow_kstreams.streams.calls.call import Call, Station


class Turnstile:
    """The calls of one node that wait or run.

    :param station: the node.
    :ivar running: how many run.
    """

    __slots__ = ("_by_key", "_most", "_ready", "_waiting", "running")

    def __init__(self, station: Station) -> None:
        self._most = station.max_in_flight
        self._by_key = station.options.order == "key"
        self._ready: deque[Call] = deque()
        #: Key with a call that runs or is ready -> its calls behind that one.
        self._waiting: dict[Any, deque[Call]] = {}
        self.running = 0

    def add(self, call: Call) -> None:
        """Let a call wait for its turn."""
        if self._by_key:
            name = key_name(call.key)
            behind = self._waiting.get(name)
            if behind is not None:
                behind.append(call)
                return
            self._waiting[name] = deque()
        self._ready.append(call)

    def next(self) -> Call | None:
        """Return the call to begin now, which then counts as running; None if there is none."""
        if self.running >= self._most or not self._ready:
            return None
        self.running += 1
        return self._ready.popleft()

    def ended(self, call: Call) -> None:
        """Take note that a call does not run any more."""
        self.running -= 1
        if self._by_key:
            name = key_name(call.key)
            behind = self._waiting[name]
            if behind:
                self._ready.appendleft(behind.popleft())
            else:
                del self._waiting[name]


def key_name(key: Any) -> Any:
    """Return what two records have in common if and only if their keys are equal, for any key.

    :raises TypeError: the key can neither be hashed nor written as MessagePack.
    """
    try:
        hash(key)
    except TypeError:
        return msgspec.msgpack.encode(key)
    return key
