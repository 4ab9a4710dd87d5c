"""Waits in the triggerer until a condition holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kstreams.batch.inspect.conditions import condition_from_json
from airflow_kstreams.hooks.kafka import client_config_of, cluster_of
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.triggers.cluster_watch import PendingCondition, watch_of

log = package_log(__name__)

__all__ = ["ConditionTrigger"]


class ConditionTrigger(BaseTrigger):
    """Fires once a condition of :mod:`airflow_kstreams.batch.inspect.conditions` holds.

    It holds the connection's id, never its content. The process's
    :class:`~airflow_kstreams.triggers.cluster_watch.ClusterWatch` looks at Kafka, on a thread of its own, for
    all triggers that wait for the same cluster.

    The event's payload is ``{"status": "holds", "result": {...}}``, ``{"status": "timeout"}``, or
    ``{"status": "error", "error": {...}}`` with the error as ``KStreamsError.to_dict`` gives it.

    :param condition: the result of :func:`~airflow_kstreams.batch.inspect.conditions.condition_to_json`.
    :param kafka_conn_id: connection to Kafka.
    :param poke_interval: seconds between two looks.
    :param deadline: time after which it stops waiting, in seconds since the epoch; it outlives a restart of
        the triggerer, which looks at least once more.
    :param silent_fail: whether a retriable error is only logged, and the wait goes on.
    """

    def __init__(
        self,
        *,
        condition: dict[str, Any],
        kafka_conn_id: str,
        poke_interval: float,
        deadline: float,
        silent_fail: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.condition = condition
        self.kafka_conn_id = kafka_conn_id
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.silent_fail = silent_fail

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments to make it again."""
        return (
            "airflow_kstreams.triggers.condition.ConditionTrigger",
            {
                "condition": self.condition,
                "kafka_conn_id": self.kafka_conn_id,
                "poke_interval": self.poke_interval,
                "deadline": self.deadline,
                "silent_fail": self.silent_fail,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: holds, timeout or error."""
        try:
            condition = condition_from_json(self.condition)
            config = await client_config_of(self.kafka_conn_id)
        except KStreamsError as error:
            yield _event(status="error", error=error.to_dict())
            return
        watch = watch_of(config, lambda: cluster_of(config))
        waiting = PendingCondition(
            condition=condition, interval_seconds=self.poke_interval, loop=asyncio.get_running_loop()
        )
        watch.add(waiting)
        try:
            yield await self._event(waiting)
        finally:
            watch.remove(waiting)

    async def _event(self, waiting: PendingCondition) -> TriggerEvent:
        await waiting.news.wait()  # the first look counts, however late it is
        # No asyncio.wait_for: up to Python 3.11 it loses a cancellation that comes together with news, and
        # the trigger goes on.
        over = asyncio.Event()
        timer = waiting.loop.call_later(self.deadline - time.time(), _end, over, waiting.news)
        try:
            while True:
                waiting.news.clear()
                seen = waiting.seen
                if isinstance(seen, KStreamsError):
                    if not (self.silent_fail and seen.is_retriable):
                        return _event(status="error", error=seen.to_dict())
                    log.warning("Could not look for %s, trying again: %s", waiting.condition, seen)
                elif seen is not None:
                    return _event(status="holds", result=dict(seen))
                if over.is_set():
                    return _event(status="timeout")
                await waiting.news.wait()
        finally:
            timer.cancel()


def _end(over: asyncio.Event, news: asyncio.Event) -> None:
    over.set()
    news.set()


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
