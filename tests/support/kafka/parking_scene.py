"""An application that leaves records parked from run to run, on the in-memory Kafka, with the real driver.

What parks is played: a processor calls the scene's service, and keeps what fails, and what comes behind it of
the same key, in a store whose changelog is named as a retry topic is; the task's progress counts its entries.
When a task opens, it calls the service again for what is parked. So the tests are about what runs do with the
number, whatever puts records there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_kstreams.batch.inspect.status import RunStatus, read_status
from airflow_kstreams.batch.ledger.facts import ContinuousRun
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskReport
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.launch.run_spec import RunSpec
from airflow_kstreams.spark.driver.driver import Driver
from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorRecord, StoreSpec, Topology
from airflow_kstreams.streams.calls.call import MakeCaller
from airflow_kstreams.streams.naming.topic_names import RETRY_ENDING, ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import PartitionGrouper
from airflow_kstreams.streams.ports import ClusterPort, TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    import pytest

APP = "app"
RETRY = f"{APP}-enrich{RETRY_ENDING}"
#: When the scene's parked records are due, epoch milliseconds.
DUE_MS = 1_800_000_000_000


def parking_scene(monkeypatch: pytest.MonkeyPatch) -> ParkingScene:
    """Make a fixture of this: an application whose service works, with nothing read yet."""
    named = Topology.changelog_topic
    progress: Callable[[StreamTask], TaskProgress] = vars(StreamTask)["progress"].fget

    def changelog_topic(topology: Topology, store: str, application_id: str) -> str:
        if store.endswith(RETRY_ENDING):
            return ProtocolTopics(application_id).internal(store)
        return named(topology, store, application_id)

    def with_parked(task: StreamTask) -> TaskProgress:
        counts = {
            name.removesuffix(RETRY_ENDING): sum(len(values) for _, values in store.all())
            for name, store in task.stores.items()
            if name.endswith(RETRY_ENDING)
        }
        parked = {node: count for node, count in counts.items() if count}
        return dataclasses.replace(progress(task), parked=parked, parked_due_ms=DUE_MS if parked else None)

    monkeypatch.setattr(Topology, "changelog_topic", changelog_topic)
    monkeypatch.setattr(StreamTask, "progress", property(with_parked))
    return ParkingScene()


@dataclass(kw_only=True)
class ParkingScene:
    """The application ``app``: ``in`` -> a call of the service -> ``out``.

    :param settings: of the application, by dotted name.
    :param make_caller: runs the calls of asynchronous nodes; a loop and threads unless given.
    :ivar down: values for which the service fails.
    :ivar launched: the tasks that were launched since the last run began.
    """

    down: set[str] = field(default_factory=set)
    node: str = "enrich"
    kafka: InMemoryKafka = field(default_factory=lambda: InMemoryKafka(clock=ManualClock(now_ms=10**12)))
    launched: list[str] = field(default_factory=list)
    settings: Mapping[str, object] = field(default_factory=dict)
    make_caller: MakeCaller | None = None

    def __post_init__(self) -> None:
        for topic in ("in", "other", "mid", "out"):
            self.kafka.create_topic(topic, partitions=2)

    # == topologies

    def topology(
        self,
        *,
        before: str = "",
        parks: bool = True,
        through: bool = False,
        grouper: PartitionGrouper | None = None,
    ) -> Topology:
        """Build it.

        :param before: a topic that a subtopology of its own reads, built before the rest.
        :param parks: whether the node with the retry topic is there.
        :param through: whether its results pass another subtopology.
        """
        grouping = {} if grouper is None else {"partition_grouper": grouper}
        builder = KStreamBuilder(
            default_key_serde=serdes.string(), default_value_serde=serdes.string(), **grouping
        )
        if before:
            builder.stream(before).send_to("mid")
        stream = builder.stream("in")
        if parks:
            store = StoreSpec(
                name=f"{self.node}{RETRY_ENDING}", key_serde=serdes.string(), value_serde=serdes.json()
            )
            stream = stream.process(self._calling, store)
        if through:
            stream = stream.through("mid")
        stream.send_to("out")
        return builder.build()

    def _calling(self) -> Processor:
        return _Calling(self)

    # == records

    def send(self, *values: str, key: str = "k", partition: int = 0) -> None:
        """Write records to the input."""
        for value in values:
            self.kafka.append("in", value.encode(), key.encode(), partition=partition)

    @property
    def out(self) -> list[str]:
        """All values of the output, partition by partition."""
        return [(record.value() or b"").decode() for record in self.kafka.records("out")]

    # == runs

    def application(self, topology: Topology | None = None, **settings: object) -> Application:
        return Application(
            application_id=APP,
            topology=topology or self.topology(),
            settings={"lease.ms": 3_600_000, **self.settings, **settings},
            on=self.kafka,
            clock=self.kafka.clock,
            make_caller=self.make_caller,
        )

    def run(
        self, run_id: str, topology: Topology | None = None, *, on: ClusterPort | None = None
    ) -> RunSummary:
        """Run as the driver does that Spark starts.

        :param on: the cluster as the tasks see it.
        """
        application = self.application(topology)
        executors = _Executors(dataclasses.replace(application, on=on or self.kafka), self)
        self.launched.clear()
        done = Driver(
            RunSpec(application_id=APP, run_id=run_id, order=(0, 1), finish=True),
            application.topology,
            settings=application.checked,
            cluster=self.kafka,
            executors=executors,
            clock=self.kafka.clock,
        ).run()
        assert done is not None
        return done

    def reset(self, **request: Any) -> ResetPlan:
        with ApplicationReset(
            self.kafka, ResetRequest(application_id=APP, **request), clock=self.kafka.clock
        ) as tool:
            return tool.run()

    # == what there is

    @property
    def ledger(self) -> Ledger:
        return read_ledger(self.kafka, APP, clock=self.kafka.clock)

    @property
    def status(self) -> RunStatus:
        return read_status(self.kafka, APP, clock=self.kafka.clock)

    @property
    def parked(self) -> Mapping[str, Mapping[int, int | None]]:
        """What the ledger says is parked."""
        return self.ledger.past.parked

    def beside_offset(self, partition: int = 0) -> dict[str, int] | None:
        """What stands beside a committed offset of the input."""
        tp = TopicPartition("in", partition)
        reader = self.kafka.reader(group_id=APP)
        return OffsetMetadata.decode(reader.committed([tp])[tp].metadata).parked


class _Calling(Processor):
    def __init__(self, scene: ParkingScene) -> None:
        self._scene = scene

    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.state_store(f"{self._scene.node}{RETRY_ENDING}")
        for key, values in sorted(self._store.all()):
            while values and values[0] not in self._scene.down:
                context.forward(key, values.pop(0))
            if values:
                self._store.put(key, values)
            else:
                self._store.delete(key)

    def process(self, record: ProcessorRecord) -> None:
        parked = self._store.get(record.key) or []
        if parked or record.value in self._scene.down:
            self._store.put(record.key, [*parked, record.value])
        else:
            self._context.forward(record.key, record.value)


class _Executors:
    """Runs tasks here, one after the other."""

    def __init__(self, application: Application, scene: ParkingScene) -> None:
        self._application, self._scene = application, scene

    def start(self) -> None: ...
    def slots(self) -> int:
        return 1

    def launch(self, slice_: Slice, tasks: Sequence[TaskShare]) -> list[TaskReport]:
        self._scene.launched += [f"{share.subtopology}_{share.group}" for share in tasks]
        return [self._application.launched(slice_, share) for share in tasks]

    def launch_continuous(self, run: ContinuousRun, tasks: Sequence[TaskId]) -> list[TaskReport]:
        raise NotImplementedError

    def cancel(self) -> None: ...
    def close(self) -> None: ...
