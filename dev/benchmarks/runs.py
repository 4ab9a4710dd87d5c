"""Times one run of each kind inside a warm Spark session."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from airflow_kstreams.batch.coordinator import Coordinator
from airflow_kstreams.batch.model import RunSummary
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.spark.jobs import RunJobs
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from dev.benchmarks.hand_written import hand_written


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one run took.

    :param records: input records.
    :param seconds: wall time of the Spark jobs alone: both sides are measured from a warm session.
    :param run_seconds: from Spark session ready to the finished marker, begin included; -1 if there is none.
    :param peak_memory_mb: of the largest Python worker; -1 if not known.
    """

    records: int
    seconds: float
    run_seconds: float = -1.0
    peak_memory_mb: float = -1.0
    summary: RunSummary | None = None

    @property
    def records_per_second(self) -> float:
        """Input records per second."""
        return self.records / self.seconds


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


def time_hand_written(session: Any, bootstrap: str, partitions: int) -> Timing:
    """Time the hand-written loop."""
    stops = stops_of(bootstrap, "bench-events", partitions)
    started = time.monotonic()
    rows = (
        session.range(0, partitions, 1, partitions)
        .mapInArrow(hand_written(bootstrap, stops), "report string")
        .collect()
    )
    seconds = time.monotonic() - started
    return Timing(records=sum(int(row.report) for row in rows), seconds=seconds)


def time_topology(session: Any, bootstrap: str, factory: Callable[[], Topology]) -> Timing:
    """Time a whole run of a topology under a fresh application id, exactly once."""
    source = ApplicationFile.of(factory)
    settings = ApplicationSettings.parse(
        f"bench-{factory.__name__}-{uuid.uuid4().hex[:8]}", {"processing.guarantee": "exactly_once"}
    )
    config = {"bootstrap.servers": bootstrap}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        cluster = KafkaCluster(config, settings=settings)
        coordinator = Coordinator(cluster, settings)
        ready = time.monotonic()
        begun = coordinator.begin("bench", source.topology().plan(settings.application_id), hold_lease=True)
        slice_ = begun.slice
        if slice_ is None:
            raise RuntimeError("the benchmark's run is already finished")
        with coordinator.keep_lease(on_superseded=lambda: None) as lease:
            jobs = RunJobs(
                session=session,
                source=source,
                settings=settings,
                slice_=slice_,
                client_config_path=str(path),
                unfinished=lambda subtopology: coordinator.unfinished(slice_, subtopology),
                check=lease.check,
            )
            started = time.monotonic()
            reports = jobs.run()
            seconds = time.monotonic() - started
        summary = coordinator.finish("bench")
        total = time.monotonic() - ready
        coordinator.close()
    return Timing(
        records=slice_.record_span,
        seconds=seconds,
        run_seconds=total,
        peak_memory_mb=max((report.peak_memory_bytes for report in reports), default=0) / 1e6,
        summary=summary,
    )
