"""Looks at Kafka once for all triggers that wait in a triggerer process.

Rule: per Kafka cluster (equal client settings) there is one :class:`ClusterWatch` with one thread and one
:class:`ClusterView`. A round evaluates every distinct condition once and answers all triggers that wait for
it, so a thousand sensors on one ledger cost one consumer and one evaluation. The thread ends, and its clients
are closed, when the last trigger has left.

Invariant: every client call runs on the watch's own thread; the event loop only takes a lock for moments and
gets its answers through ``call_soon_threadsafe``. Conditions are level-triggered, so a process that dies
loses nothing: a trigger that starts again asks again.

An error of one condition goes only to the triggers that wait for that condition, and the round goes on with
new clients. If the cluster does not answer a plain question either, all triggers get the error, and the round
ends. No error of a look ends the thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import Condition
from airflow_kstreams.streams.errors import KafkaClientError, KStreamsError, ReportedError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)

#: A round is not worth beginning sooner after the last one.
_SHORTEST_SECONDS = 0.2

#: Outcome of a look: a result, None for not yet, or the error it ended in.
Seen = Mapping[str, Any] | KStreamsError | None


@dataclass(eq=False, slots=True, kw_only=True)
class PendingCondition:
    """A trigger that waits for a condition.

    :param condition: the condition.
    :param interval_seconds: longest time between two looks.
    :param loop: event loop of the trigger.
    :ivar news: set when ``seen`` has changed.
    :ivar seen: outcome of the last look; once it is a result, later looks do not replace it.
    """

    condition: Condition
    interval_seconds: float
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Seen = None

    def answer(self, seen: Seen) -> None:
        """Take the outcome of a look, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._take, seen)
        except RuntimeError:
            log.debug("the trigger that waited for %s is gone", self.condition)

    def _take(self, seen: Seen) -> None:
        if not isinstance(self.seen, Mapping):
            self.seen = seen
        self.news.set()


class ClusterWatch:
    """Looks at one cluster on behalf of all triggers in this process.

    :param cluster: makes the cluster's clients; called on the watch's thread.
    """

    def __init__(self, cluster: Callable[[], ClusterPort]) -> None:
        self._make_cluster = cluster
        self._lock = threading.Lock()
        self._waiting: set[PendingCondition] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, waiting: PendingCondition) -> None:
        """Look on behalf of a trigger, at once and then at intervals, until :meth:`remove`."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kstreams-watch", daemon=True)
                thread.start()
                self._thread = thread
            self._waiting.add(waiting)
        self._wake.set()

    def remove(self, waiting: PendingCondition) -> None:
        """Stop looking on behalf of a trigger."""
        with self._lock:
            self._waiting.discard(waiting)
        self._wake.set()

    def _run(self) -> None:
        view: ClusterView | None = None
        try:
            while (waiting := self._still_waiting()) is not None:
                began = time.monotonic()
                view = self._round(view, waiting)
                pause = min(one.interval_seconds for one in waiting)
                self._pause(max(pause, _SHORTEST_SECONDS) - (time.monotonic() - began))
        finally:
            _close(view)
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _round(self, view: ClusterView | None, waiting: set[PendingCondition]) -> ClusterView | None:
        """Evaluate every distinct condition once, and answer the triggers that wait for it.

        :return: the view for the next round; None if the cluster did not answer.
        """
        left: dict[Condition, list[PendingCondition]] = {}
        for one in waiting:
            left.setdefault(one.condition, []).append(one)
        try:
            view = view or ClusterView(self._make_cluster())
            view.refresh()
            while left:
                condition, interested = left.popitem()
                seen = _look(view, condition)
                _answer(interested, seen)
                if isinstance(seen, KafkaClientError):
                    view.refuse_lost_cluster(ProtocolTopics(condition.application_id).ledger)
        except Exception as error:
            # Any error of the cluster, or of making its clients: this thread must go on for other triggers.
            _close(view)
            lost = _reported(error, "the cluster")
            for interested in left.values():
                _answer(interested, lost)
            return None
        return view

    def _still_waiting(self) -> set[PendingCondition] | None:
        """Return the triggers that wait; a trigger added later wakes the thread.

        :return: None if there is none: the thread then ends, and the next trigger starts another.
        """
        with self._lock:
            self._wake.clear()
            if not self._waiting:
                self._thread = None
                return None
            return set(self._waiting)

    def _pause(self, seconds: float) -> None:
        """Sleep until the time is over or a trigger was added or removed: a new one gets its first look at
        once.
        """
        time.sleep(min(_SHORTEST_SECONDS, max(0.0, seconds)))
        self._wake.wait(max(0.0, seconds - _SHORTEST_SECONDS))


def _look(view: ClusterView, condition: Condition) -> Seen:
    """Evaluate a condition; a client that failed may be in any state, so the next one makes new ones."""
    try:
        return condition.evaluate(view)
    except Exception as error:
        found = _reported(error, condition)
        if found.is_retriable:
            _close(view)
        return found


def _reported(error: Exception, what: object) -> KStreamsError:
    """Return an error as one of this package. An unforeseen one is retriable, as it is in a worker."""
    if isinstance(error, KStreamsError):
        return error
    # Only this log holds its traceback: the worker gets no more than its text.
    log.error("Looking for %s failed", what, exc_info=error)
    return ReportedError(
        str(error) or "no text",
        fix="see the triggerer's log",
        error_type=type(error).__name__,
        retriable_there=True,
    )


def _answer(waiting: Collection[PendingCondition], seen: Seen) -> None:
    for one in waiting:
        one.answer(seen)


def _close(view: ClusterView | None) -> None:
    if view is not None:
        try:
            view.close()
        except KStreamsError as error:
            log.warning("a client could not be closed: %s", error.cause)


_registry: dict[tuple[tuple[str, str], ...], ClusterWatch] = {}
_registry_lock = threading.Lock()


def watch_of(config: Mapping[str, str], cluster: Callable[[], ClusterPort]) -> ClusterWatch:
    """Return this process's watch of the cluster that client settings name.

    :param config: client settings, as checked.
    :param cluster: makes the cluster, when there is no watch yet.
    """
    key = tuple(sorted(config.items()))
    with _registry_lock:
        if key not in _registry:
            _registry[key] = ClusterWatch(cluster)
        return _registry[key]
