"""Times one run of each kind inside a warm Spark session."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.spark.driver.driver import RunJobs
from airflow_kstreams.spark.driver.executors import SparkExecutors
from airflow_kstreams.spark.driver.merges import DriverMerges
from airflow_kstreams.spark.driver.rewrites import DriverRewrites
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.tables.connections import open_tables, parted


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one run took.

    :param seconds: wall time of the Spark jobs alone.
    :param run_seconds: from Spark session ready to the finished marker, begin included.
    :param begin_seconds: of that, the begin.
    :param finish_seconds: of that, the finish.
    :param peak_memory_mb: of the largest Python worker.
    """

    seconds: float
    run_seconds: float
    begin_seconds: float
    finish_seconds: float
    peak_memory_mb: float


def stops_of(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Return the end offset of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-ends"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in range(partitions)
        ]
    finally:
        consumer.close()


def run_topology(
    session: Any,
    bootstrap: str,
    source: ApplicationFile,
    *,
    application_id: str,
    run_id: str = "bench",
    guarantee: str = "exactly_once",
    config: Mapping[str, str] = MappingProxyType({}),
) -> Timing:
    """Time a whole run, as a driver makes it.

    :param config: further settings of Kafka's client, and those of tables, as a driver's file has them.
    """
    settings = ApplicationSettings.parse(application_id, {"processing.guarantee": guarantee})
    client, tables = parted({"bootstrap.servers": bootstrap, **config})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.json"
        path.write_text(json.dumps({**client, **tables}), encoding="utf-8")
        cluster = KafkaCluster(client, settings=settings)
        ready = time.monotonic()
        executors = SparkExecutors(
            "bench", source, settings=settings, client_config_path=str(path), session=session
        )
        opened = open_tables(tables, rewriter=DriverRewrites(executors.hosts).rewrite)
        coordinator = Coordinator(
            cluster, settings, tables=opened, make_merges=DriverMerges(executors.hosts, opened).make
        )
        begun = coordinator.begin(run_id, source.topology().plan(settings.application_id), hold_lease=True)
        begin_seconds = time.monotonic() - ready
        slice_ = begun.slice
        if slice_ is None:
            raise RuntimeError("the benchmark's run is already finished")
        with coordinator.lease.keep(on_superseded=lambda: None) as lease:
            jobs = RunJobs(
                slice_=slice_,
                launch=partial(executors.launch, slice_),
                cancel=executors.cancel,
                unfinished=lambda subtopology: coordinator.unfinished(slice_, subtopology),
                check=lease.check_before_launch,
            )
            started = time.monotonic()
            reports = jobs.run()
            seconds = time.monotonic() - started
        processed = time.monotonic()
        coordinator.finish(run_id)
        total = time.monotonic() - ready
        finish_seconds = time.monotonic() - processed
        coordinator.close()
    return Timing(
        seconds=seconds,
        run_seconds=total,
        begin_seconds=begin_seconds,
        finish_seconds=finish_seconds,
        peak_memory_mb=max((report.peak_memory_bytes for report in reports), default=0) / 1e6,
    )
