"""An application on the in-memory Kafka that can be run, reset and looked at whole.

For tests of resets, and of operators and sensors that need an application with runs behind it. Crashes at
its port calls: ``interception``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport
from airflow_kstreams.batch.protocol.slice.metadata import RunState, read_metadata
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.batch.reset.scenario import DEFAULT, Scenario
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology
from airflow_kstreams.streams.ports import ClusterPort, CommittedOffset, TopicPartition
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

APP = "app"
METADATA, LEDGER = f"{APP}-metadata", f"{APP}-runs"
REPARTITION = f"{APP}-counts-repartition"
CHANGELOG = f"{APP}-counts-changelog"


def counting(store: str | StoreSpec = "counts") -> Topology:
    """``in`` -> through ``mid`` -> counted by value -> ``out``: three subtopologies, one store."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    grouped = builder.stream("in").through("mid").group_by(lambda key, value: value)
    grouped.count(store=store).to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


@dataclass(kw_only=True)
class ResetScene:
    """The application ``app`` on an in-memory Kafka.

    :param settings: by dotted name.
    :param partitions: of the input and the intermediate topics.
    """

    partitions: int = 2
    topology: Topology = field(default_factory=counting)
    settings: Mapping[str, object] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=lambda: ManualClock(now_ms=1_700_000_000_000))
    kafka: InMemoryKafka = field(init=False)
    _values: int = 0

    def __post_init__(self) -> None:
        self.kafka = InMemoryKafka(clock=self.clock)
        for topic in ("in", "mid"):
            self.kafka.create_topic(topic, partitions=self.partitions)
        self.kafka.create_topic("out")

    def application(self, cluster: ClusterPort | None = None) -> Application:
        """The application, on the scene's Kafka unless given another."""
        return Application(
            application_id=APP,
            topology=self.topology,
            settings={"commit.every.records": 1, **self.settings},
            on=cluster or self.kafka,
            clock=self.clock,
            launching=self.kafka,
        )

    @property
    def checked(self) -> ApplicationSettings:
        return self.application().checked

    # == records

    def send(self, *values: str) -> None:
        """Write values to the input, to its partitions in turn, a second apart."""
        for value in values:
            self.clock.sleep(1.0)
            self.kafka.append("in", value.encode(), b"k", partition=self._values % self.partitions)
            self._values += 1

    def counts(self) -> list[tuple[str, int]]:
        """What the output says of each value, in the order it was said, since the last call."""
        records = self.kafka.records("out")
        told = [((r.key() or b"").decode(), int.from_bytes(r.value() or b"", "big")) for r in records]
        self.kafka.expire({TopicPartition("out", 0): records[-1].offset() + 1} if records else {})
        return told

    # == runs

    def coordinator(self, cluster: ClusterPort | None = None) -> Coordinator:
        return self.application(cluster).coordinator()

    def begin(self, run_id: str, *, coordinator: Coordinator | None = None, order: int = 1) -> Slice:
        """Begin a run as a driver does; without a coordinator of one's own the lease is let go."""
        return self.application().begin(run_id, (0, order), coordinator=coordinator)

    def task(self, slice_: Slice, sub: int, group: int, *, cluster: ClusterPort | None = None) -> TaskReport:
        return self.application(cluster).task(slice_, sub, group)

    def tasks(self, slice_: Slice, subs: Iterable[int] | None = None) -> list[TaskReport]:
        return self.application().tasks(slice_, subs)

    def finish(self, run_id: str) -> RunSummary:
        return self.application().finish(run_id)

    def run(self, run_id: str) -> RunSummary:
        return self.application().run(run_id)

    # == resets

    def request(
        self,
        *,
        inputs: str = "",
        intermediates: str = "",
        internal: str = "",
        scenario: Scenario | None = None,
        delete_stop_offsets: bool = False,
        force: bool = False,
        reset_id: str = "",
        repair_ledger: bool = False,
    ) -> ResetRequest:
        return ResetRequest(
            application_id=APP,
            input_topics=tuple(inputs.split()),
            intermediate_topics=tuple(intermediates.split()),
            internal_topics=tuple(internal.split()),
            scenario=scenario or DEFAULT,
            delete_stop_offsets=delete_stop_offsets,
            force=force,
            reset_id=reset_id,
            repair_ledger=repair_ledger,
        )

    def reset(self, cluster: ClusterPort | None = None, **request: Any) -> ResetPlan:
        with ApplicationReset(cluster or self.kafka, self.request(**request), clock=self.clock) as tool:
            return tool.run()

    def plan_reset(self, **request: Any) -> ResetPlan:
        with ApplicationReset(self.kafka, self.request(**request), clock=self.clock) as tool:
            return tool.plan()

    # == what there is

    @property
    def ledger(self) -> Ledger:
        return read_ledger(self.kafka, APP, clock=self.clock)

    @property
    def state(self) -> RunState:
        return read_metadata(self.kafka, APP, clock=self.clock).state

    def committed(self) -> dict[str, CommittedOffset]:
        reader = self.kafka.reader(group_id=APP)
        found = reader.committed([tp for topic in self.kafka.topics() for tp in self.kafka.partitions(topic)])
        return {str(tp): offset for tp, offset in found.items()}

    def offsets(self, topic: str) -> list[int | None]:
        """The committed offset of each partition of a topic."""
        committed = self.committed()
        return [
            committed[str(tp)].offset if str(tp) in committed else None for tp in self.kafka.partitions(topic)
        ]

    def dump(self, *, without: Iterable[str] = ()) -> dict[str, Any]:
        """Everything: topic ids, settings, logs to the last byte, committed offsets, open transactions.

        :param without: topics to leave out.
        """
        admin = self.kafka.admin()
        names = sorted({*self.kafka.topics()} - {*without})
        return {
            "topics": admin.describe_topics(names),
            "configs": admin.topic_configs(names).found,
            "logs": {
                name: [
                    (r.partition(), r.offset(), r.key(), r.value(), r.timestamp(), r.headers())
                    for r in self.kafka.records(name, isolation="read_uncommitted")
                ]
                for name in names
            },
            "ends": {
                tp: admin.end_offsets([tp], isolation="read_uncommitted")
                for name in names
                for tp in self.kafka.partitions(name)
            },
            "committed": self.committed(),
            "groups": admin.group_ids(),
            "hanging": self.kafka.hanging_transactions(),
        }

    def meaning(self) -> dict[str, Any]:
        """What a reset leaves, as far as it must not depend on how often it was tried."""
        ledger = self.ledger
        reset = ledger.reset
        return {
            "topics": sorted(self.kafka.topics()),
            "committed": {
                # Less the memory of this process.
                tp: (offset.offset, OffsetMetadata.decode(offset.metadata).times)
                for tp, offset in self.committed().items()
            },
            "state": self.state,
            "lease": ledger.lease,
            "assignment": ledger.assignment,
            "runs": sorted(ledger.all_runs()),
            "taken back": sorted(ledger.taken_back),
            "reset": reset and msgspec.structs.replace(reset, begun_ms=0),
        }
