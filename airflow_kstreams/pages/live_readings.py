"""Reads Kafka while a page is waited for: bounded, one look at a time for each connection.

Rule: a look of one connection begins when the look before it has ended, on the connection's own thread, so a
process has the clients of one look per connection at most. A look makes its clients after the process was
forked, and closes them when it ends. Requests that ask for the same share a look, and the result serves for
some seconds more, also where it is that Kafka did not answer: a page that many people watch costs as much as
one that is watched by one.

Whoever waits for a look waits no longer than the bound, on the event loop and not on a thread of Airflow's
own pool. Where every request for a look has given up before its turn comes, the thread does not begin it.

Invariant: a waiter gets a value or the reason why there is none, after the bound at the latest. Crash
argument: nothing is kept but results; a process that dies leaves clients behind that end with it, and its
child processes end with their stdin.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from airflow_kstreams.pages.page_connections import NotReadError, PageSource, opened, reads_kafka
from airflow_kstreams.pages.read_only_cluster import ReadOnlyCluster
from airflow_kstreams.streams.errors import KafkaClientError, KStreamsError
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)
T = TypeVar("T")

#: Longest time that a page waits for Kafka, seconds.
BOUND_SECONDS = 10.0
#: Part of it that is left to start and end a look.
_MARGIN_SECONDS = 2.0
_LEAST_SECONDS = 1.0
#: Seconds for which a result serves further requests.
_SERVES_SECONDS = 3.0
#: Most connections for which a process has a thread.
_MOST_SOURCES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReading(Generic[T]):
    """The outcome of a look.

    :param value: what was read; None if Kafka was not read.
    :param at: time of the outcome.
    :param why_not: a clause that says why Kafka was not read; None if it was.
    """

    value: T | None
    at: datetime
    why_not: str | None = None


@dataclass(slots=True)
class _LookUnderWay:
    future: Future[Any]
    ended: float | None = None


@dataclass(slots=True)
class _OfProcess:
    """What one process has; another one, forked from it, begins anew."""

    pid: int
    threads: dict[PageSource, ThreadPoolExecutor] = field(default_factory=dict)
    looks: dict[tuple[PageSource, Hashable], _LookUnderWay] = field(default_factory=dict)


class LiveReadings:
    """Looks at Kafka.

    :param open_cluster: opens the cluster of a connection for a look of so many milliseconds.
    :param allowed: returns whether Kafka may be read at all.
    :param bound_seconds: longest time that a request waits.
    """

    def __init__(
        self,
        *,
        open_cluster: Callable[[PageSource, int], ClusterPort] = opened,
        allowed: Callable[[], bool] = reads_kafka,
        bound_seconds: float = BOUND_SECONDS,
    ) -> None:
        self._open_cluster = open_cluster
        self._allowed = allowed
        self._bound_seconds = bound_seconds
        self._lock = threading.Lock()
        self._own = _OfProcess(os.getpid())

    async def read(
        self, source: PageSource, what: Hashable, look: Callable[[ClusterPort], T]
    ) -> LiveReading[T]:
        """Look at the cluster of a connection.

        :param source: the connection, as the user's DAG has it: the user was found to be allowed to see it.
        :param what: names the look; looks with the same name give the same.
        :param look: reads the value.
        """
        if not self._allowed():
            return _not_read(
                "this deployment does not let the API server read Kafka ([kstreams] pages_read_kafka)"
            )
        try:
            future = self._future(source, what, look)
            waited = asyncio.wrap_future(future)
            # A look may fail after its request has given up; asyncio logs an error that nobody takes.
            waited.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            value = await asyncio.wait_for(asyncio.shield(waited), self._bound_seconds)
        except NotReadError as error:
            return _not_read(error.why)
        except KafkaClientError as error:
            log.warning("Kafka was not read for a page, by connection %s: %s", source.conn_id, error.cause)
            return _not_read(
                f"Kafka did not answer as it should by connection {source.conn_id!r} ({error.kafka_code}; "
                "the API server's log says more)"
            )
        except KStreamsError as error:
            log.warning("What Kafka has was not read for a page, by %s: %s", source.conn_id, error.cause)
            return _not_read(
                f"what it has cannot be read by connection {source.conn_id!r} ({type(error).__name__}; "
                "the API server's log says more)"
            )
        except TimeoutError:
            return _not_read(
                f"Kafka did not answer within {self._bound_seconds:g} s by connection {source.conn_id!r}"
            )
        return LiveReading(value=value, at=datetime.now(UTC))

    def close(self) -> None:
        """End the threads once their looks have ended."""
        with self._lock:
            own, self._own = self._own, _OfProcess(os.getpid())
        for thread in own.threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _future(
        self, source: PageSource, what: Hashable, look: Callable[[ClusterPort], object]
    ) -> Future[Any]:
        """Return the look of this name that is under way or has just ended, or a new one."""
        with self._lock:
            if self._own.pid != os.getpid():
                self._own = _OfProcess(os.getpid())
            own, now = self._own, time.monotonic()
            own.looks = {
                name: each
                for name, each in own.looks.items()
                if each.ended is None or now - each.ended < _SERVES_SECONDS
            }
            found = own.looks.get((source, what))
            if found is None:
                future = self._thread(source).submit(self._look, source, look, now + self._bound_seconds)
                found = own.looks[source, what] = _LookUnderWay(future)
                future.add_done_callback(lambda _: _note_end(found))
            return found.future

    def _thread(self, source: PageSource) -> ThreadPoolExecutor:
        """Return the one thread of a connection."""
        threads = self._own.threads
        if source not in threads:
            if len(threads) >= _MOST_SOURCES:
                self._end_idle()
            if len(threads) >= _MOST_SOURCES:
                raise NotReadError("the API server reads by as many connections as it can just now")
            threads[source] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kstreams-pages")
        return threads[source]

    def _end_idle(self) -> None:
        busy = {source for (source, _), each in self._own.looks.items() if each.ended is None}
        for source in [each for each in self._own.threads if each not in busy]:
            self._own.threads.pop(source).shutdown(wait=False)

    def _look(self, source: PageSource, look: Callable[[ClusterPort], T], deadline: float) -> T:
        left = deadline - time.monotonic() - min(_MARGIN_SECONDS, self._bound_seconds / 5)
        if left < min(_LEAST_SECONDS, self._bound_seconds / 10):
            raise NotReadError(f"connection {source.conn_id!r} is busy with other looks")
        with ReadOnlyCluster(self._open_cluster(source, round(left * 1000))) as cluster:
            return look(cluster)


def _note_end(look: _LookUnderWay) -> None:
    look.ended = time.monotonic()


def _not_read(why: str) -> LiveReading[Any]:
    return LiveReading(value=None, at=datetime.now(UTC), why_not=why)
