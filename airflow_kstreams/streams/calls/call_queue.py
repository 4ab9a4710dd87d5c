"""Holds the calls of one node that wait or run, and chooses the next one to begin.

Rule: at most ``max_in_flight`` calls run at once; those that wait begin in the order in which they came. With
order ``key``, a call begins only when those of its key before it have ended; then it goes before all others,
because its record came before theirs. If one fails and that ends the task, no further call of its key is
made: the next attempt begins with the failed one, and effects of a key would come out of order.

The queue notes when a call ended, and counts running calls at its node: on the event loop a call runs as soon
as it may, on a thread when a thread is free for it.

A key's name is taken when its call comes, and kept with the call: a function may change its key.

The queue is not safe for threads: the caller uses it on one thread, or behind a lock.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from airflow_kstreams.streams.calls.call import AsyncNode, Call, CallEndedError
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.graph.calls import calls_again_after


class CallQueue:
    """The calls of one node.

    :ivar running: the number of running calls.
    """

    __slots__ = ("_async_node", "_by_key", "_failed", "_most", "_on_loop", "_ready", "_waiting", "running")

    def __init__(self, async_node: AsyncNode) -> None:
        self._async_node = async_node
        self._on_loop = not async_node.options.threads
        self._most = async_node.max_in_flight
        self._by_key = async_node.options.order == "key"
        self._ready: deque[Call] = deque()
        #: Name of a key with a call that runs or is ready -> the calls of the key behind that one.
        self._waiting: dict[Any, deque[Call]] = {}
        #: Names of the keys of which no further call is made.
        self._failed: set[Any] = set()
        self.running = 0

    def add(self, call: Call) -> None:
        """Add a call, which waits for its turn.

        :raises TypeError: as :func:`key_name`.
        :raises CallEndedError: the call is not made.
        """
        if self._by_key:
            call.turn = key_name(call.key)
            if call.turn in self._failed:
                raise _not_made()
            behind = self._waiting.get(call.turn)
            if behind is not None:
                behind.append(call)
                return
            self._waiting[call.turn] = deque()
        self._ready.append(call)

    @property
    def free(self) -> bool:
        """True if fewer calls run than may."""
        return self.running < self._most

    @property
    def ready(self) -> bool:
        """True if a call might begin if fewer others ran."""
        return bool(self._ready)

    def next(self) -> Call | None:
        """Return the call to begin now, which then counts as running; None if there is none."""
        if not self._ready or self.running >= self._most:
            return None
        self.running += 1
        if self._on_loop:
            self._async_node.begun()
        return self._ready.popleft()

    def ended(self, call: Call) -> Sequence[Call]:
        """Free the place of a call that has ended.

        :return: calls that are not made, each with its error.
        """
        self.running -= 1
        async_node = self._async_node
        async_node.in_flight -= 1
        call.ended = async_node.now()
        if not self._by_key:
            return ()
        behind = self._waiting[call.turn]
        if call.error is not None and _ends_task(call.async_node, call.error):
            self._failed.add(call.turn)
            del self._waiting[call.turn]
            for each in behind:
                each.error = _not_made()
            return behind
        if behind:
            self._ready.appendleft(behind.popleft())
        else:
            del self._waiting[call.turn]
        return ()


def _ends_task(async_node: AsyncNode, error: Exception) -> bool:
    retry = async_node.options.retry
    if retry is not None and calls_again_after(retry, error):
        return False
    return async_node.failure_ends_task or isinstance(error, KStreamsError)


def _not_made() -> CallEndedError:
    return CallEndedError("the call was not made: an earlier call of its key failed, which ends the task")


def key_name(key: Any) -> Any:
    """Return an immutable object that is equal for equal keys, and for no others; lists and tuples of the
    same parts count as equal, and so do floats that are no number.

    :raises TypeError: the key's class compares by identity, or its equality cannot be found out.
    """
    kind: Any = type(key)
    if kind in (str, bytes, int, bool, type(None)):
        return key
    if kind is float:
        return _NAN if math.isnan(key) else key
    if isinstance(key, enum.Enum):
        return key
    if isinstance(key, (list, tuple)):
        return (_SEQUENCE, *map(key_name, key))
    if isinstance(key, dict):
        return (_MAPPING, frozenset((key_name(name), key_name(value)) for name, value in key.items()))
    if isinstance(key, (set, frozenset)):
        return (_SET, frozenset(map(key_name, key)))
    if isinstance(key, bytearray):
        return bytes(key)
    if kind.__eq__ is object.__eq__:
        raise TypeError(
            f"order='key' cannot tell keys of type {kind.__name__} apart: each is equal to itself alone; "
            "give the class an __eq__, a dataclass for example"
        )
    if dataclasses.is_dataclass(key):
        compared = [field.name for field in dataclasses.fields(key) if field.compare]
        return (kind, *(key_name(getattr(key, name)) for name in compared))
    if hasattr(kind, "__struct_fields__"):
        return (kind, *(key_name(getattr(key, name)) for name in kind.__struct_fields__))
    if kind.__hash__ is None:
        raise TypeError(
            f"order='key' cannot tell keys of type {kind.__name__} apart: they have no __hash__; "
            "make the class a dataclass, or rekey the stream to plain data"
        )
    return copy.deepcopy(key)


_NAN, _SEQUENCE, _MAPPING, _SET = (object() for _ in range(4))
