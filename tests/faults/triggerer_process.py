"""A triggerer in small, for the test of a broker that falls silent: this package's triggers and another's in
one event loop. A trigger that ends is started again, as Airflow's retries do.

It takes the address, the application and a topic, watches until its stdin ends and then until a look that
began after that has held, and prints JSON: how many looks failed and how many answers came, by trigger, and
how often the other trigger had its turn.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

from airflow_kstreams.batch.inspect.conditions import (
    CaughtUp,
    Condition,
    NewData,
    RunFinished,
    StopOffsetsReached,
    condition_to_json,
)
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.triggers import condition as condition_trigger
from airflow_kstreams.triggers import finished_run_watch
from airflow_kstreams.triggers.condition import ConditionTrigger
from airflow_kstreams.triggers.finished_run_watch import FinishedRunsProducer

#: Of one request; every look before a silent broker waits for it.
_CLIENT_TIMEOUT_MS = "1000"
_POLL_SECONDS = 0.05

#: What a look at the run that has finished counts as, once the broker answers.
_HOLDS = "RunFinished holds"

counts: Counter[str] = Counter()


def _conditions(application_id: str, topic: str) -> list[Condition]:
    return [
        RunFinished(application_id=application_id, run_id="first"),
        RunFinished(application_id=application_id, run_id="never"),
        NewData(application_id=application_id, topics=(topic,), min_records=10**9),
        CaughtUp(application_id=application_id),
        StopOffsetsReached(application_id=application_id, run_id="first", subtopology=0),
    ]


async def _wait(condition: Condition) -> None:
    name = type(condition).__name__
    while True:
        trigger = ConditionTrigger(
            condition=condition_to_json(condition),
            kafka_conn_id="any",
            poke_interval=_POLL_SECONDS,
            deadline=time.time() + 3600,
        )
        async for event in trigger.run():
            counts[f"{name} {event.payload['status']}"] += 1
        await asyncio.sleep(_POLL_SECONDS)


async def _announce(application_id: str) -> None:
    while True:
        producer = FinishedRunsProducer(
            application_id=application_id, kafka_conn_id="any", name="w", from_start=True
        )
        try:
            async for _ in producer.open_stream():
                counts["announced"] += 1
        except Exception as error:  # the triggerer logs it, and starts the stream again
            counts[f"announcing failed: {type(error).__name__}"] += 1
        await asyncio.sleep(_POLL_SECONDS)


async def _another() -> None:
    while True:
        counts["another trigger"] += 1
        await asyncio.sleep(_POLL_SECONDS)


async def _watch(bootstrap: str, application_id: str, topic: str) -> None:
    config = {"bootstrap.servers": bootstrap, "log_level": "2"}
    settings = ApplicationSettings.parse(application_id, {"client.timeout.ms": _CLIENT_TIMEOUT_MS})

    async def client_config_of(_: str) -> dict[str, str]:
        return config

    def cluster_of(_: Any) -> KafkaCluster:
        return KafkaCluster(config, settings=settings, in_child=True)

    for module in (condition_trigger, finished_run_watch):
        setattr(module, "client_config_of", client_config_of)  # noqa: B010 - mypy knows only its own names
        setattr(module, "cluster_of", cluster_of)  # noqa: B010
    tasks = [asyncio.create_task(_wait(one)) for one in _conditions(application_id, topic)]
    tasks += [asyncio.create_task(_announce(application_id)), asyncio.create_task(_another())]
    print("watching", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    # The first one to end may have begun before.
    seen = counts[_HOLDS]
    while counts[_HOLDS] < seen + 2:
        await asyncio.sleep(_POLL_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(_watch(*sys.argv[1:]))
