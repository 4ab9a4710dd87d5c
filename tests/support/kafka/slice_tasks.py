"""Plays the tasks of a slice by hand, so that the coordinator can be tested without the engine.

Each step is one transaction of a plain client: outputs, done notification, offsets. Only record texts come
from the package; which ones are due is worked out here from the plan's definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata_records import done_record, intermediate_stop_record
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, Slice
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from airflow_kstreams.streams.settings import ApplicationSettings

SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStageApplication:
    """Input (2 partitions) -> repartition topic -> output, with a store in the second stage."""

    bootstrap: str
    application_id: str
    source: str
    target: str
    hash: str = "hash-1"
    overrides: tuple[tuple[str, object], ...] = ()

    @property
    def repartition(self) -> str:
        return f"{self.application_id}-by-carrier-repartition"

    @property
    def changelog(self) -> str:
        return f"{self.application_id}-counts-changelog"

    @property
    def settings(self) -> ApplicationSettings:
        values = {"processing.guarantee": "exactly_once", "settle.ms": 300, **dict(self.overrides)}
        return ApplicationSettings.parse(self.application_id, values)

    @property
    def cluster(self) -> KafkaCluster:
        return KafkaCluster({"bootstrap.servers": self.bootstrap}, settings=self.settings)

    @property
    def plan(self) -> TopologyPlan:
        return TopologyPlan(
            application_id=self.application_id,
            topology_hash=self.hash,
            subtopologies=(
                SubtopologyPlan(id=0, sources=(self.source,), sinks=(self.repartition,)),
                SubtopologyPlan(
                    id=1,
                    sources=(self.repartition,),
                    sinks=(self.target,),
                    stores=("counts",),
                    changelogs={"counts": self.changelog},
                ),
            ),
            repartition_topics={self.repartition: None},
        )

    def upstream(self, slice_: Slice, group: int, *, records: int = 3, notify: bool = True) -> None:
        """Play task ``0_<group>``: write records per intermediate partition, notify, commit the stop
        offset."""
        producer = self._producer(f"{self.application_id}-0_{group}")
        for partition in range(2):
            for number in range(records):
                producer.produce(self.repartition, f"{number}", b"k", partition)
        producer.flush(SECONDS)
        if notify:
            record = done_record(slice_, 0, group)
            producer.produce(record.topic, record.value, record.key, 0, headers=record.headers)  # type: ignore[arg-type]
        (stop,) = (p.stop_offset for p in slice_.inputs if p.partition == group)
        self._commit(producer, slice_, f"0_{group}", {(self.source, group): stop})

    def downstream(self, slice_: Slice, group: int) -> None:
        """Play task ``1_<group>``: read nothing, write one output, commit the stop of its partition."""
        producer = self._producer(f"{self.application_id}-1_{group}")
        producer.produce(self.target, b"1", b"k", 0)
        stop = int(self.metadata_values()[f"{self.repartition}_{group}"])
        self._commit(producer, slice_, f"1_{group}", {(self.repartition, group): stop})

    def freeze(self, slice_: Slice) -> None:
        """Play the driver between the two: the ends of the repartition topic are its stops."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition, end in self.ends(self.repartition, IsolationLevel.READ_UNCOMMITTED).items():
            part = FrozenPartition(
                topic=self.repartition, partition=partition, start_offset=0, stop_offset=end
            )
            record = intermediate_stop_record(slice_, part)
            producer.produce(record.topic, record.value, record.key, 0, headers=record.headers)  # type: ignore[arg-type]
        producer.flush(SECONDS)

    def play(self, slice_: Slice) -> None:
        """Play every task of the slice."""
        for group in range(2):
            self.upstream(slice_, group)
        self.freeze(slice_)
        for group in range(2):
            self.downstream(slice_, group)

    def metadata_values(self) -> dict[str, str]:
        """The metadata topic's live keys and values, read by a plain client."""
        last = dict(self.metadata_log())
        return {key: value for key, value in last.items() if value is not None}

    def metadata_log(self) -> list[tuple[str, str | None]]:
        """The metadata topic's committed records, in log order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "metadata-reader",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        log: list[tuple[str, str | None]] = []
        try:
            topic = f"{self.application_id}-metadata"
            high = self.ends(topic, IsolationLevel.READ_UNCOMMITTED)[0]
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                message = consumer.poll(SECONDS)
                if message is None:
                    raise TimeoutError("the metadata topic cannot be read")
                if message.error():
                    # A commit returns before its markers are written: until then the end lies below the high
                    # watermark.
                    if (message.offset() or 0) >= high:
                        return log
                    continue
                value = message.value()
                log.append(((message.key() or b"").decode(), None if value is None else value.decode()))
        finally:
            consumer.close()

    def ends(self, topic: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[int, int]:
        """The topic's last offsets by partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): latest for number in partitions}
        found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=SECONDS)
        return {tp.partition: future.result(SECONDS).offset for tp, future in found.items()}

    def committed(self, *topics: str) -> Mapping[tuple[str, int], tuple[int, str]]:
        """Committed offset and metadata by topic and partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.application_id})
        try:
            wanted = [TopicPartition(topic, number) for topic in topics for number in range(2)]
            return {
                (tp.topic, tp.partition): (tp.offset, tp.metadata or "")
                for tp in consumer.committed(wanted, timeout=SECONDS)
                if tp.offset >= 0
            }
        finally:
            consumer.close()

    def _producer(self, transactional_id: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        return producer

    def _commit(
        self, producer: Producer, slice_: Slice, task_id: str, offsets: Mapping[tuple[str, int], int]
    ) -> None:
        metadata = OffsetMetadata(
            run_id=slice_.run_id, task_id=task_id, records_in=7, partition_time_ms=1_000
        ).encode()
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.application_id})
        try:
            producer.send_offsets_to_transaction(
                [
                    TopicPartition(topic, number, offset, metadata)
                    for (topic, number), offset in offsets.items()
                ],
                consumer.consumer_group_metadata(),
                SECONDS,
            )
            producer.commit_transaction(SECONDS)
        finally:
            consumer.close()


#: Makes an application on fresh topics; keyword arguments are TwoStageApplication's.
MakeApplication = Callable[..., TwoStageApplication]
