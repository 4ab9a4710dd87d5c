"""airflow_kstreams as a bounded reader: whole runs of a topology that copies the topic, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError
from tests.conformance.playing import Reading
from tests.conformance.scene import Scene, read_to_end
from tests.support.kafka.in_process import Application

_SECONDS = 30.0
#: An open transaction is waited for so long before a run freezes what is stable.
SETTLE_MS = 200


@dataclass(kw_only=True)
class Batches:
    """Begins a run, processes, finishes, for each read."""

    application: Application
    _runs: int = 0

    def run(self, during: Callable[[], None]) -> Slice:
        """Do one run, and return what it was to read.

        :raises KStreamsError: it failed.
        """
        self._runs += 1
        run_id = f"run-{self._runs}"
        slice_ = self.application.begin(run_id)
        during()
        self.application.tasks(slice_)
        self.application.finish(run_id)
        return slice_


@dataclass(kw_only=True)
class IncrementalBatch(Batches):
    """Such runs on a broker."""

    source: str
    target: str
    _next: int = 0

    def read(self, during: Callable[[], None]) -> Reading:
        """Do one run.

        :raises KStreamsError: anything but a loss of data, which the reading holds.
        """
        try:
            slice_ = self.run(during)
        except DataLossError as error:
            return Reading(error=f"DataLossError: {error}")
        new = read_to_end(self.application.bootstrap, self.target, {0: self._next})
        self._next = max([self._next, *((message.offset() or 0) + 1 for message in new)])
        committed = self._committed([part.partition for part in slice_.inputs])
        return Reading(records=[(message.key(), message.value()) for message in new], committed=committed)

    def _committed(self, partitions: list[int]) -> dict[int, int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.application.bootstrap,
                "group.id": self.application.application_id,
            }
        )
        try:
            asked = [TopicPartition(self.source, number) for number in partitions]
            return {tp.partition: tp.offset for tp in consumer.committed(asked, timeout=_SECONDS)}
        finally:
            consumer.close()


def incremental_batch(scene: Scene) -> IncrementalBatch:
    """Make the reader of a case, with an output topic of one partition beside the case's own."""
    target = f"{scene.topic}-out"
    admin = AdminClient({"bootstrap.servers": scene.bootstrap, "log_level": 2})
    configs = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
    topic = NewTopic(target, num_partitions=1, replication_factor=1, config=configs)
    admin.create_topics([topic])[target].result(_SECONDS)
    application = Application(
        bootstrap=scene.bootstrap,
        application_id=f"{scene.topic}-app",
        topology=copy(scene.topic, target),
        settings={"settle.ms": SETTLE_MS, "run.stall.timeout.ms": 30_000},
    )
    return IncrementalBatch(application=application, source=scene.topic, target=target)


def copy(source: str, target: str) -> Topology:
    """A topology that sends every record on as it is."""
    builder = KStreamBuilder()
    stream = builder.stream(source, key_serde=serdes.bytes(), value_serde=serdes.bytes())
    stream.send_to(target, key_serde=serdes.bytes(), value_serde=serdes.bytes())
    return builder.build()
