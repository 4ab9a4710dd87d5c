"""Watches for finished runs, for DAGs that an asset schedules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_kstreams.batch.inspect.finished_runs import RunFollower
from airflow_kstreams.batch.report.lineage import event_extra
from airflow_kstreams.hooks.airflow_versions import refuse_before
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, client_config_of, cluster_of
from airflow_kstreams.streams.printable import package_log

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
else:
    refuse_before(
        "3.3",
        what="FinishedRunsTrigger",
        needs="its triggerer says when an event is stored, which moves the trigger's cursor",
        instead="schedule the DAG on the asset in outlets= of the task that finishes the run, or wait with "
        "RunFinishedSensor",
    )
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

__all__ = ["FinishedRunsTrigger"]

_POLL_SECONDS = 1.0
#: Between two looks for the ledger of an application that has not run yet.
_LEDGER_SECONDS = 5.0

log = package_log(__name__)

T = TypeVar("T")


class FinishedRunsProducer(SharedStreamProducer):
    """Reads the finished runs of an application for all its watchers of one cursor.

    The cursor moves once Airflow has stored the events, and goes back to the first event that Airflow has not
    stored, so each run is announced at least once. One thread makes all client calls, one after the other: a
    call whose watch was cancelled ends before the reader is closed.

    :param application_id: the application.
    :param kafka_conn_id: connection to Kafka.
    :param name: name of the cursor.
    :param from_start: whether a new cursor begins before the first finished run.
    """

    def __init__(
        self, *, application_id: str, kafka_conn_id: str, name: str, from_start: bool = False
    ) -> None:
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.name = name
        self.from_start = from_start
        self._clients = ExitStack()
        self._runs: RunFollower | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kstreams-finished-runs")
        #: The first run that was announced and not stored; it is announced again, and so are all after it.
        self._owed: int | None = None

    async def open_stream(self) -> AsyncGenerator[tuple[dict[str, Any], int], None]:
        """Yield the extra of every run that finishes, with its offset in the ledger."""
        config = await client_config_of(self.kafka_conn_id)
        cluster = await self._on_thread(cluster_of, config)
        runs = RunFollower(cluster, self.application_id, name=self.name, from_start=self.from_start)
        while not await self._on_thread(runs.has_ledger):
            log.info("Application %s has not run yet: waiting for its ledger", self.application_id)
            await asyncio.sleep(_LEDGER_SECONDS)
        await self._on_thread(self._clients.enter_context, runs)
        self._runs = runs
        while True:
            for offset, summary in await self._on_thread(runs.poll, _POLL_SECONDS):
                yield event_extra(summary), offset

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the cursor past the events that Airflow has stored, or back to the first that it has not."""
        if self._runs is None:
            raise RuntimeError("the ledger is not open")
        stored: int | None = None
        for item in batch:
            offset: int = item.broker_payload
            if self._owed is not None and offset > self._owed:
                continue
            if item.outcome.failed or not (item.outcome.acked or item.outcome.rejected):
                self._owed = offset
                await self._on_thread(self._runs.rewind, offset)
            else:
                self._owed = None
                stored = offset
        if stored is not None:
            await self._on_thread(self._runs.take, stored + 1)

    async def aclose(self) -> None:
        """Close the reader once its calls have ended."""
        self._runs = None
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._clients.close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(closing)

    async def _on_thread(self, call: Callable[..., T], *arguments: object) -> T:
        """Make a call on the clients' thread, after the calls before it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


class FinishedRunsTrigger(BaseEventTrigger):
    """Fires for every run of an application that finishes; for an ``AssetWatcher``.

    Each event's payload names the run and the offsets it processed
    (:func:`~airflow_kstreams.hooks.reports.event_extra`). No run is missed while the triggerer is down:
    a cursor in Kafka remembers what Airflow has stored. After a crash a run may be announced twice, with the
    same run id and offsets. A run that a reset took back is not announced; when it finishes anew it is, under
    its id, with another ``finished_ms``. The watch of a new name begins with the next run that finishes,
    unless ``from_start``. A watch that was down for longer than the broker's ``offsets.retention.minutes``
    (seven days by default) is new again: with ``from_start`` it announces all runs once more, without it what
    finished meanwhile is missed.

    :param application_id: the application.
    :param kafka_conn_id: connection to Kafka.
    :param name: name of the cursor; watchers of one name share it and one reader, which the first of them
        configures.
    :param from_start: whether a new name begins with the runs that have finished already.

    >>> from airflow.sdk import DAG, Asset, AssetWatcher
    >>> from airflow_kstreams.triggers.finished_run_watch import FinishedRunsTrigger
    >>> trigger = FinishedRunsTrigger(application_id="orders")
    >>> totals = Asset("customer_totals", watchers=[AssetWatcher(name="orders_runs", trigger=trigger)])
    >>> with DAG("orders_report", schedule=[totals]) as dag:
    ...     pass
    """

    def __init__(
        self,
        *,
        application_id: str,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        name: str = "airflow",
        from_start: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.name = name
        self.from_start = from_start

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments to make it again."""
        return (
            "airflow_kstreams.triggers.finished_run_watch.FinishedRunsTrigger",
            {
                "application_id": self.application_id,
                "kafka_conn_id": self.kafka_conn_id,
                "name": self.name,
                "from_start": self.from_start,
            },
        )

    def shared_stream_key(self) -> Hashable:
        """Return the key of the shared reader: watchers with the same cursor share one."""
        return ("kstreams-finished-runs", self.application_id, self.kafka_conn_id, self.name)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> FinishedRunsProducer:
        """Return the reader that all watchers share.

        :param kwargs: arguments of :meth:`serialize`.
        """
        return FinishedRunsProducer(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire once for every run.

        :param shared_stream: the reader's stream: the extra of each run.
        """
        async for extra in shared_stream:
            yield TriggerEvent(extra)  # type: ignore[no-untyped-call]

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Refuse to run: the triggerer's shared streams drive this trigger."""
        raise NotImplementedError("FinishedRunsTrigger runs in the triggerer's shared streams only")
