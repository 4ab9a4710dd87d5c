"""The memory of one task that writes to a table of days: rows of few days, and of ten years.

Rows come in the order of their days, as a topic has them, with some disorder. The process is a task's worker
without Spark: Kafka's client, the engine, the writer of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.tables.parquet.opening import rows_opener
from dev.benchmarks.publish import Message
from dev.benchmarks.tables.places import Place, described
from tests.support.kafka.in_process import Application

_FIRST_DAY = datetime(2016, 1, 1, tzinfo=UTC)
#: A row belongs to a day that is up to so many places away from its own, so that days overlap.
_DISORDER = 25
#: Spreads rows within that.
_STRIDE = 7_368_787


class Reading(msgspec.Struct):
    """A row."""

    id: int
    at: datetime
    amount: int
    note: str


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one task.

    :param source: input topic, which has one partition.
    """

    bootstrap: str
    application_id: str
    source: str
    records: int
    place: Place


def messages(topic: str, records: int, days: int) -> Iterator[Message]:
    """Make records whose rows lie in so many days."""
    texts = [f"{_FIRST_DAY + timedelta(days=day):%Y-%m-%d}" for day in range(days)]
    for number in range(records):
        place = min(number + number * _STRIDE % _DISORDER, records - 1)
        day = texts[place * days // records]
        value = b'{"id":%d,"at":"%bT12:00:00Z","amount":%d,"note":"lorem ipsum dolor sit"}'
        yield Message(topic, value % (number, day.encode(), number * _STRIDE % 1_000), b"k")


def topology_of(work: Work) -> Topology:
    """Return the topology of a run."""
    builder = KStreamBuilder(default_key_serde=serdes.string())
    readings = builder.stream(work.source, value_serde=serdes.json(Reading))
    day = "day(at)" if work.place.format == "iceberg" else "date(at)"
    readings.send_to_table(described(work.place, Reading, partition_by=[day]))
    return builder.build()


def run(work: Work, on: ClusterPort | None = None) -> Mapping[str, float]:
    """Run the task, and finish its run.

    :return: ``seconds`` of the task, and the highest memory of its process up to its end, as a worker has it.
    """
    tables = work.place.opened()
    app = Application(
        application_id=work.application_id,
        topology=topology_of(work),
        bootstrap=work.bootstrap,
        on=on,
        tables=tables,
        open_rows=rows_opener(tables),
    )
    (report,) = app.tasks(app.begin("bench"))
    (landed,) = app.finish("bench").tables.values()
    if landed.rows != work.records:
        raise SystemExit(f"{landed.rows:,} rows have landed, not {work.records:,}")
    return {
        "seconds": report.seconds,
        "worker_peak_memory_mb": report.peak_memory_bytes / 1e6,
        "files": landed.files,
    }
