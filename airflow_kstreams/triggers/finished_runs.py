"""Watches for finished runs, for DAGs that an asset schedules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Sequence
from contextlib import ExitStack
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from airflow_kstreams.hooks.asset_events import event_extra
from airflow_kstreams.hooks.finished_runs import FinishedRuns
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID
from airflow_kstreams.triggers.connection import client_config_of, cluster_of

__all__ = ["FinishedRunsTrigger"]

_POLL_SECONDS = 1.0
#: Between two looks for the ledger of an application that has not run yet.
_LEDGER_SECONDS = 5.0

log = logging.getLogger(__name__)


class FinishedRunsProducer(SharedStreamProducer):
    """The broker's side of the watch: one reader per application and connection, however many watch.

    The cursor moves once Airflow has stored the events, and goes back where it has not, so a run is told at
    least once.

    :param application_id: the application.
    :param kafka_conn_id: connection to Kafka.
    :param name: of the cursor.
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
        self._runs: FinishedRuns | None = None
        #: Clients are one thread's at a time.
        self._lock = asyncio.Lock()

    async def open_stream(self) -> AsyncGenerator[tuple[dict[str, Any], int], None]:
        """Yield the extra of every run that finishes, with its offset in the ledger."""
        config = await client_config_of(self.kafka_conn_id)
        cluster = await asyncio.to_thread(cluster_of, config)
        runs = FinishedRuns(cluster, self.application_id, name=self.name, from_start=self.from_start)
        while not await asyncio.to_thread(runs.has_ledger):
            log.info("Application %s has not run yet: waiting for its ledger", self.application_id)
            await asyncio.sleep(_LEDGER_SECONDS)
        await asyncio.to_thread(self._clients.enter_context, runs)
        self._runs = runs
        while True:
            async with self._lock:
                found = await asyncio.to_thread(runs.poll, _POLL_SECONDS)
            for offset, summary in found:
                yield event_extra(summary), offset
            # Whoever moves the cursor must get a turn at the lock.
            await asyncio.sleep(0)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the cursor past what Airflow has stored; tell again from the first that it has not."""
        if self._runs is None:
            raise RuntimeError("the ledger is not open")
        stored: int | None = None
        for item in batch:
            if item.outcome.failed or not (item.outcome.acked or item.outcome.rejected):
                async with self._lock:
                    await asyncio.to_thread(self._runs.rewind, item.broker_payload)
                break
            stored = item.broker_payload
        if stored is not None:
            async with self._lock:
                await asyncio.to_thread(self._runs.take, stored + 1)

    async def aclose(self) -> None:
        """Close the reader."""
        async with self._lock:
            self._runs = None
            await asyncio.to_thread(self._clients.close)


class FinishedRunsTrigger(BaseEventTrigger):
    """Fires for every run of an application that finishes; for an ``AssetWatcher``.

    Each event's payload says which run, and which offsets it processed
    (:func:`~airflow_kstreams.hooks.asset_events.event_extra`). No run is missed while the triggerer is down:
    a cursor in Kafka remembers what Airflow has stored. After a crash a run may be told twice, with the same
    run id and offsets. The watch of a new name begins with the next run that finishes, unless ``from_start``.

    :param application_id: the application.
    :param kafka_conn_id: connection to Kafka.
    :param name: of the cursor; watchers of one name share it.
    :param from_start: whether a new name is first told of the runs that have finished already.

    >>> from airflow.sdk import DAG, Asset, AssetWatcher
    >>> from airflow_kstreams.triggers.finished_runs import FinishedRunsTrigger
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
            "airflow_kstreams.triggers.finished_runs.FinishedRunsTrigger",
            {
                "application_id": self.application_id,
                "kafka_conn_id": self.kafka_conn_id,
                "name": self.name,
                "from_start": self.from_start,
            },
        )

    def shared_stream_key(self) -> Hashable:
        """Watchers with the same cursor share one reader."""
        return ("kstreams-finished-runs", self.application_id, self.kafka_conn_id, self.name)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> FinishedRunsProducer:
        """Make the reader that all watchers share.

        :param kwargs: as :meth:`serialize` gives them.
        """
        return FinishedRunsProducer(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire once for every run.

        :param shared_stream: what the reader yields: the extra of each run.
        """
        async for extra in shared_stream:
            yield TriggerEvent(extra)  # type: ignore[no-untyped-call]

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Not used: the triggerer's shared streams drive this trigger."""
        raise NotImplementedError("FinishedRunsTrigger runs in the triggerer's shared streams only")
