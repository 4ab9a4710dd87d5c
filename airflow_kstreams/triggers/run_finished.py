"""Waits in the triggerer until a run is finished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import amask_secret
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kstreams.hooks.kafka import KafkaHook, client_config_of, secrets_of, undefined_connection
from airflow_kstreams.hooks.ledger import finished_run
from airflow_kstreams.hooks.results import result_of_summary
from airflow_kstreams.streams.errors import KStreamsError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kstreams.batch.model import RunSummary

__all__ = ["RunFinishedTrigger"]


class RunFinishedTrigger(BaseTrigger):
    """Looks into an application's ledger at intervals; fires once the run is in it.

    It carries the connection's id, never its content. Kafka is read in a worker thread with clients that live
    for one look, so the event loop is never blocked and nothing is left open between looks or when the
    trigger is cancelled.

    The event's payload is ``{"status": "finished", "result": {...}}`` with a ``RunResult``, ``{"status":
    "timeout"}``, or ``{"status": "error", "error": {...}}`` with the error as ``KStreamsError.to_dict`` gives
    it.

    :param application_id: the application.
    :param run_id: the run; None means any finished run, and the last one is reported.
    :param kafka_conn_id: connection to Kafka.
    :param poke_interval: seconds between two looks.
    :param deadline: seconds since the epoch after which it stops waiting; a restarted triggerer keeps it.
    :param silent_fail: whether an error that may pass is logged and the wait goes on.
    """

    def __init__(
        self,
        *,
        application_id: str,
        run_id: str | None,
        kafka_conn_id: str,
        poke_interval: float,
        deadline: float,
        silent_fail: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.application_id = application_id
        self.run_id = run_id
        self.kafka_conn_id = kafka_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.silent_fail = silent_fail

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments to make it again."""
        return (
            "airflow_kstreams.triggers.run_finished.RunFinishedTrigger",
            {
                "application_id": self.application_id,
                "run_id": self.run_id,
                "kafka_conn_id": self.kafka_conn_id,
                "poke_interval": self.poke_interval,
                "deadline": self.deadline,
                "silent_fail": self.silent_fail,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: finished, timeout or error."""
        while True:
            try:
                summary = await self._look()
            except KStreamsError as error:
                if not (self.silent_fail and error.is_retriable):
                    yield _event(status="error", error=error.to_dict())
                    return
                self.log.warning("Could not look into the ledger, trying again: %s", error)
                summary = None
            if summary is not None:
                yield _event(status="finished", result=result_of_summary(summary))
                return
            if time.time() > self.deadline:
                yield _event(status="timeout")
                return
            await asyncio.sleep(self.poke_interval)

    async def _look(self) -> RunSummary | None:
        connection = await self._connection()
        config = await asyncio.to_thread(client_config_of, connection)
        for secret in secrets_of(config):
            await amask_secret(secret)
        return await asyncio.to_thread(_finished_run, config, self.application_id, self.run_id)

    async def _connection(self) -> Connection:
        try:
            return await KafkaHook.aget_connection(self.kafka_conn_id)
        except AirflowNotFoundException:
            raise undefined_connection(self.kafka_conn_id) from None


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


def _finished_run(config: dict[str, str], application_id: str, run_id: str | None) -> RunSummary | None:
    from airflow_kstreams.kafka.cluster import KafkaCluster

    return finished_run(KafkaCluster(config), application_id, run_id)
