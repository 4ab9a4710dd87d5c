"""Spark's own two bounded reads of Kafka, through its JVM connector."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dev.bounded_reads.once import Once
from tests.conformance.playing import Reading
from tests.conformance.scene import Pair, Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A read that has not ended by then is stopped; the connector itself waits 120 s for a silent broker.
BOUND_SECONDS = 180
#: Both readers have these; the rest are the connector's defaults, among them failOnDataLoss=true.
OPTIONS = {"kafka.isolation.level": "read_committed"}

#: A line that names an exception of Java or a condition of Spark.
_NAMED = re.compile(r"Exception: |\[[A-Z_.]+\]|Some data may have been lost")


@contextmanager
def spark(folder: Path) -> Iterator[SparkSession]:
    """A local Spark with the connector's jars, which ``dev/setup --spark-kafka`` fetches.

    :param folder: for whatever Spark writes.
    """
    jars = sorted(Path(os.environ["KSTREAMS_DEV_SPARK_KAFKA_LIBS"]).glob("*.jar"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("bounded-reads")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


@dataclass(kw_only=True)
class AvailableNow:
    """Structured Streaming with ``Trigger.AvailableNow``; its checkpoint holds the position.

    :param folder: of the checkpoint.
    """

    session: SparkSession
    scene: Scene
    folder: Path

    def read(self, during: Callable[[], None]) -> Reading:
        """Run the query until it ends by itself."""
        once, records = Once(during), list[Pair]()

        def take(batch: DataFrame, _: int) -> None:
            # The batch's end is in the checkpoint by now; its records are fetched below.
            once()
            records.extend(_pairs(batch))

        stream = (
            self.session.readStream.format("kafka")
            .options(**OPTIONS)
            .option("kafka.bootstrap.servers", self.scene.bootstrap)
            .option("subscribe", self.scene.topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            stream.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(self.folder))
            .foreachBatch(take)
            .start()
        )
        try:
            ended = query.awaitTermination(BOUND_SECONDS)
        except Exception as error:
            once()
            return Reading(records=records, error=_said(error))
        if not ended:
            query.stop()
            return Reading(records=records, hung_seconds=BOUND_SECONDS)
        once()
        return Reading(records=records, committed=self._committed())

    def _committed(self) -> Mapping[int, int]:
        done = [int(file.name) for file in (self.folder / "commits").glob("[0-9]*")]
        if not done:
            return {}
        text = (self.folder / "offsets" / str(max(done))).read_text().splitlines()[-1]
        return {int(number): offset for number, offset in json.loads(text)[self.scene.topic].items()}


@dataclass(kw_only=True)
class BatchRead:
    """``spark.read.format("kafka")`` up to ``latest``; it keeps no position, so its caller does.

    The next read starts behind the last record that was read of each partition, or earliest.
    """

    session: SparkSession
    scene: Scene
    _next: dict[int, int] = field(default_factory=dict)

    def read(self, during: Callable[[], None]) -> Reading:
        """Read once."""
        starts: Any = "earliest"
        if self._next:
            # Every partition must be named; -2 is the earliest offset.
            starts = json.dumps(
                {self.scene.topic: {p: self._next.get(p, -2) for p in self.scene.stable_ends()}}
            )
        once = Once(during)
        try:
            frame = (
                self.session.read.format("kafka")
                .options(**OPTIONS)
                .option("kafka.bootstrap.servers", self.scene.bootstrap)
                .option("subscribe", self.scene.topic)
                .option("startingOffsets", starts)
                .option("endingOffsets", "latest")
                .load()
            ).select("key", "value", "partition", "offset")
            planned = frame.rdd
            planned.getNumPartitions()  # the ends are fixed when Spark makes partitions of the read
            once()
            rows = planned.collect()
        except Exception as error:
            once()
            return Reading(error=_said(error))
        for row in rows:
            self._next[row.partition] = max(self._next.get(row.partition, 0), row.offset + 1)
        return Reading(records=[_pair(row) for row in rows])


def _pairs(frame: DataFrame) -> list[Pair]:
    return [_pair(row) for row in frame.select("key", "value", "partition", "offset").collect()]


def _pair(row: Any) -> Pair:
    return (
        None if row.key is None else bytes(row.key),
        None if row.value is None else bytes(row.value),
    )


def _said(error: Exception) -> str:
    """Return the line that tells why, of all that Spark says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    named = [line for line in lines if _NAMED.search(line) and not line.startswith("at ")]
    return (causes[-1:] or named[-1:] or lines or [type(error).__name__])[0]
