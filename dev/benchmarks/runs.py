"""Times one run of each kind inside a warm Spark session."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.spark.driver.driver import RunJobs
from airflow_kstreams.spark.driver.executors import SparkExecutors
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one run took.

    :param seconds: wall time of the Spark jobs alone.
    :param run_seconds: from Spark session ready to the finished marker, begin included.
    :param begin_seconds: of that, the begin.
    :param peak_memory_mb: of the largest Python worker.
    """

    seconds: float
    run_seconds: float
    begin_seconds: float
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
    codec: str = "lz4",
) -> Timing:
    """Time a whole run, as a driver makes it."""
    settings = ApplicationSettings.parse(application_id, {"processing.guarantee": guarantee})
    config = {"bootstrap.servers": bootstrap}
    if codec != "lz4":  # which is this engine's own default
        config["compression.type"] = codec
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        cluster = KafkaCluster(config, settings=settings)
        ready = time.monotonic()
        coordinator = Coordinator(cluster, settings)
        begun = coordinator.begin(run_id, source.topology().plan(settings.application_id), hold_lease=True)
        begin_seconds = time.monotonic() - ready
        slice_ = begun.slice
        if slice_ is None:
            raise RuntimeError("the benchmark's run is already finished")
        with coordinator.lease.keep(on_superseded=lambda: None) as lease:
            executors = SparkExecutors(
                "bench", source, settings=settings, client_config_path=str(path), session=session
            )
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
        coordinator.finish(run_id)
        total = time.monotonic() - ready
        coordinator.close()
    return Timing(
        seconds=seconds,
        run_seconds=total,
        begin_seconds=begin_seconds,
        peak_memory_mb=max((report.peak_memory_bytes for report in reports), default=0) / 1e6,
    )
