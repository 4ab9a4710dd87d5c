"""Two coordinators of one application at the same moment, on the in-memory Kafka."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

import pytest

from airflow_kstreams.batch.protocol.slice.metadata_records import FINISHED
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import without_partitions
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.batch.task.work import SliceWork, TaskAssignment, TaskSetup
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.errors import KafkaClientError, RunBusyError, RunError, RunSupersededError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.launches import share_of
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("one-owner", "orphans-write-nothing")

T = TypeVar("T")
APP = "app"
REPARTITION = f"{APP}-counts-repartition"
SETTINGS = ApplicationSettings.parse(APP, {"processing.guarantee": "exactly_once"})
EVERY_RECORD = dataclasses.replace(SETTINGS, commit_every_records=1)


class Step(NamedTuple):
    """What to do before the next call of a name whose arguments mention something."""

    call: str
    about: str
    action: Callable[[], object]


class Steps:
    """An interceptor that takes steps one after the other."""

    def __init__(self) -> None:
        self.left: list[Step] = []

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        if self.left and name == self.left[0].call and self.left[0].about in str(arguments):
            self.left.pop(0).action()
        return effect()


@pytest.fixture
def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").group_by(lambda key, value: value).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    kafka.append("in", b"v", b"k")
    return kafka


def run_tasks(
    kafka: ClusterPort,
    topology: Topology,
    slice_: Slice,
    clock: Clock,
    *,
    settings: ApplicationSettings = SETTINGS,
    subtopologies: Sequence[int] = (0, 1),
) -> None:
    launching = kafka._cluster if isinstance(kafka, FaultyCluster) else kafka
    for subtopology in subtopologies:
        setup = TaskSetup(
            topology=topology,
            assignment=TaskAssignment(
                task_id=TaskId(subtopology=subtopology, group=0),
                run_id=slice_.run_id,
                generation=slice_.generation,
            ),
            cluster=kafka,
            settings=settings,
            clock=clock,
        )
        share = share_of(launching, slice_, subtopology, 0, clock)
        TaskRunner(setup, SliceWork(without_partitions(slice_), share)).run()


def nothing_at_the_end(kafka: InMemoryKafka) -> None:
    """Leave behind the stop of the repartition topic what no reader sees."""
    writer = kafka.writer(transactional_id="stranger")
    writer.init_transactions()
    writer.begin()
    writer.produce(REPARTITION, b"never", b"k")
    writer.flush()
    writer.abort()
    writer.close()


@pytest.mark.parametrize(
    ("call", "about"),
    [("writer.commit", ""), ("reader.poll", ""), ("reader.assign", REPARTITION)],
    ids=["at the commit", "at the first read", "when repartitioned records are looked for"],
)
@pytest.mark.parametrize("holds_lease", [True, False])
def test_run_is_finished_once_when_somebody_else_finishes_it_meanwhile(
    kafka: InMemoryKafka, topology: Topology, call: str, about: str, holds_lease: bool
) -> None:
    steps = Steps()
    cluster = FaultyCluster(kafka, steps)
    owner = Coordinator(cluster, SETTINGS, clock=kafka.clock)
    begun = owner.begin("run", topology.plan(APP), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock)
    nothing_at_the_end(kafka)
    finisher = owner
    if not holds_lease:
        owner.close()
        finisher = Coordinator(cluster, SETTINGS, clock=kafka.clock)
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    steps.left.append(Step(call, about, lambda: other.finish("run")))
    summaries = []
    for _ in range(2):
        try:
            summaries.append(finisher.finish("run"))
        except RunBusyError:
            assert not holds_lease
    assert not steps.left
    assert {summary.finished_ms for summary in summaries} == {other.finish("run").finished_ms}
    markers = [
        r
        for r in kafka.records(ProtocolTopics(APP).metadata)
        if (r.key(), r.value()) == (APP.encode(), FINISHED)
    ]
    assert len(markers) == 1


class LateMarkers(Random):
    """Lets markers of transactions come at once, save some that come so much later."""

    def __init__(self) -> None:
        super().__init__()
        self.lags_ms: list[int] = []

    def choice(self, seq: Any) -> Any:
        lags = tuple(seq) == (0, 0, 1, 4, 25)
        return (self.lags_ms.pop(0) if self.lags_ms else 0) if lags else seq[-1]


def test_begin_takes_no_offsets_for_foreign_when_another_ones_begin_is_still_being_written(
    topology: Topology,
) -> None:
    late_markers = LateMarkers()
    kafka = InMemoryKafka(random=late_markers)
    kafka.create_topic("in")
    kafka.create_topic("out")
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    for run_id in ("first", "second"):
        kafka.append("in", b"v", b"k")
        begun = other.begin(run_id, topology.plan(APP), hold_lease=True)
        assert begun.slice is not None
        run_tasks(kafka, topology, begun.slice, kafka.clock)
        other.finish(run_id)
    other.lease.release()
    kafka.append("in", b"v", b"k")

    def begin() -> None:
        # Of the metadata topic at once, of the committed offsets later.
        late_markers.lags_ms = [0, 25]
        Coordinator(kafka, SETTINGS, clock=kafka.clock).begin("third", topology.plan(APP), hold_lease=False)

    steps = Steps()
    steps.left += [
        Step("writer.init_transactions", "", lambda: None),
        Step("reader.assign", ProtocolTopics(APP).metadata, begin),
    ]
    late = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)
    with pytest.raises(RunBusyError, match="began at the same moment"):
        late.begin("second again", topology.plan(APP), hold_lease=True)
    assert not steps.left
    begun = late.begin("second again", topology.plan(APP), hold_lease=True, order=(0, 2))
    assert begun.slice is not None and begun.slice.run_id == "third", "what has begun comes first"


def test_begin_is_told_to_wait_when_what_looks_like_lost_records_is_another_run_at_work(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)

    def process() -> None:
        begun = other.begin("other", topology.plan(APP), hold_lease=True)
        assert begun.slice is not None
        run_tasks(kafka, topology, begun.slice, kafka.clock)

    steps = Steps()
    steps.left += [
        Step("admin.end_offsets", REPARTITION, process),
        Step("reader.assign", REPARTITION, lambda: other.finish("other")),
    ]
    late = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)
    with pytest.raises(RunBusyError):
        late.begin("run", topology.plan(APP), hold_lease=False)
    assert not steps.left


@pytest.mark.parametrize("holds_lease", [True, False])
def test_finish_loses_no_record_when_the_next_run_has_moved_the_offsets_it_reads(
    kafka: InMemoryKafka, topology: Topology, holds_lease: bool
) -> None:
    steps = Steps()
    cluster = FaultyCluster(kafka, steps)
    stalled = Coordinator(cluster, SETTINGS, clock=kafka.clock)
    begun = stalled.begin("run", topology.plan(APP), order=(0, 1), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock)
    if not holds_lease:
        stalled.close()
        stalled = Coordinator(cluster, SETTINGS, clock=kafka.clock)
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)

    def overtake() -> None:
        other.begin("run", topology.plan(APP), order=(0, 2), hold_lease=True)
        other.finish("run")
        kafka.append("in", b"v", b"k")
        following = other.begin("next", topology.plan(APP), hold_lease=True)
        assert following.slice is not None
        run_tasks(kafka, topology, following.slice, kafka.clock)

    steps.left.append(Step("reader.committed", "in", overtake))

    assert stalled.finish("run").run_id == "run"

    assert not steps.left
    other.finish("next")


def test_driver_that_slept_is_told_who_took_its_run_over_when_a_reset_has_moved_the_offsets_it_reads(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    steps = Steps()
    stalled = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)
    begun = stalled.begin("run", topology.plan(APP), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock)
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)

    def overtake() -> None:
        request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
        with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
            reset.run()
        kafka.append("in", b"v", b"k")
        following = other.begin("next", topology.plan(APP), hold_lease=True)
        assert following.slice is not None
        run_tasks(kafka, topology, following.slice, kafka.clock)

    steps.left.append(Step("reader.committed", "in", overtake))

    with pytest.raises(RunSupersededError, match="next"):
        stalled.finish("run")

    assert not steps.left
    other.finish("next")


def test_begin_is_told_to_wait_when_the_slice_it_would_resume_was_finished_and_the_next_is_at_work(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    other = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    begun = other.begin("run", topology.plan(APP), order=(0, 1), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock)

    def overtake() -> None:
        other.lease.reclaim()
        other.finish("run")
        kafka.append("in", b"v", b"k")
        following = other.begin("next", topology.plan(APP), hold_lease=True)
        assert following.slice is not None
        run_tasks(kafka, topology, following.slice, kafka.clock)

    steps = Steps()
    steps.left.append(Step("reader.committed", "in", overtake))
    late = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)

    with pytest.raises(RunBusyError):
        late.begin("run", topology.plan(APP), order=(0, 2), hold_lease=True)

    assert not steps.left
    other.finish("next")


def test_lease_stays_with_its_new_owner_when_the_old_one_cannot_read_whose_it_is(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    def fail() -> None:
        raise KafkaClientError("no answer", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)

    steps = Steps()
    old = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)
    old.begin("run", topology.plan(APP), order=(0, 1), hold_lease=True)
    new = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    new.begin("run", topology.plan(APP), order=(0, 2), hold_lease=True)
    steps.left += [
        Step("writer.init_transactions", "", lambda: None),
        Step("admin.describe_topics", "", fail),
    ]
    with pytest.raises(KafkaClientError, match="no answer"):
        old.lease.renew()
    for _ in range(2):
        with pytest.raises(RunSupersededError):
            old.lease.renew()
    new.lease.renew()


@pytest.mark.error_example("KS-RUN-001")
@pytest.mark.promise("finish-refuses-early")
def test_run_is_not_finished_when_a_task_has_not_made_its_last_commit(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    coordinator = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    begun = coordinator.begin("run", topology.plan(APP), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock, subtopologies=[0])
    steps = Steps()

    def too_early() -> None:
        with pytest.raises(RunError, match="not finished"):
            coordinator.finish("run")

    # It pauses what it has read to the end; finishing now would let its last commit take offsets back.
    steps.left.append(Step("reader.pause", REPARTITION, too_early))
    run_tasks(
        FaultyCluster(kafka, steps),
        topology,
        begun.slice,
        kafka.clock,
        settings=EVERY_RECORD,
        subtopologies=[1],
    )
    assert not steps.left
    coordinator.finish("run")
    assert coordinator.begin("next", topology.plan(APP), hold_lease=True).created


def test_nobody_is_refused_when_the_lease_was_released_a_moment_ago(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    owner = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    begun = owner.begin("run", topology.plan(APP), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock)
    steps = Steps()
    # The first look sees the lease in force, as a reader does before the markers of the release are there.
    steps.left += [
        Step("reader.assign", ProtocolTopics(APP).ledger, lambda: None),
        Step("reader.assign", ProtocolTopics(APP).ledger, owner.lease.release),
    ]
    next_one = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)

    found = next_one.begin("next", topology.plan(APP), hold_lease=True).slice

    assert found is not None
    assert found.run_id == "run", "the unfinished run comes first"
    assert not steps.left
    waiting = WaitingClock(kafka.clock, next_one.lease.renew)
    with pytest.raises(RunBusyError):
        Coordinator(kafka, SETTINGS, clock=waiting).begin("third", topology.plan(APP), hold_lease=True)


def _lost() -> None:
    raise KafkaClientError("no answer", fix="retry", kafka_code="_TIMED_OUT", retriable_code=True)


def test_lease_is_released_when_its_owners_writer_may_not_be_used_again(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    steps = Steps()
    owner = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)
    owner.begin("run", topology.plan(APP), hold_lease=True)
    steps.left.append(Step("writer.commit", "", _lost))
    with pytest.raises(KafkaClientError):
        owner.lease.renew()

    owner.lease.release()

    next_one = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    assert next_one.begin("next", topology.plan(APP), hold_lease=True).slice is not None


def test_lease_of_a_new_owner_stays_when_the_old_one_releases_late(
    kafka: InMemoryKafka, topology: Topology
) -> None:
    steps = Steps()
    owner = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)
    owner.begin("run", topology.plan(APP), order=(0, 1), hold_lease=True)
    steps.left.append(Step("writer.commit", "", _lost))
    with pytest.raises(KafkaClientError):
        owner.lease.renew()
    retry = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    retry.begin("run", topology.plan(APP), order=(0, 2), hold_lease=True)

    owner.lease.release()

    waiting = WaitingClock(kafka.clock, retry.lease.renew)
    with pytest.raises(RunBusyError):
        Coordinator(kafka, SETTINGS, clock=waiting).begin("next", topology.plan(APP), hold_lease=True)
    retry.lease.renew()


@pytest.fixture
def left_behind(kafka: InMemoryKafka, topology: Topology) -> Coordinator:
    """The driver of a first attempt, whose tasks are done. It lives, and its worker does not."""
    driver = Coordinator(kafka, SETTINGS, clock=kafka.clock)
    begun = driver.begin("run", topology.plan(APP), order=(0, 1), hold_lease=True)
    assert begun.slice is not None
    run_tasks(kafka, topology, begun.slice, kafka.clock)
    return driver


def test_attempt_takes_over_from_a_living_one_that_renews_its_lease_in_between(
    kafka: InMemoryKafka, topology: Topology, left_behind: Coordinator
) -> None:
    # Fenced by the claim, it finds the lease still its own, and claims its id back.
    steps = Steps()
    steps.left += [Step("writer.commit", "", left_behind.lease.renew)] * 2
    retry = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)

    begun = retry.begin("run", topology.plan(APP), order=(0, 2), hold_lease=True)

    assert not steps.left
    assert begun.slice is not None
    assert begun.slice.generation == 2
    with pytest.raises(RunSupersededError):
        left_behind.lease.renew()


def test_run_is_finished_beside_a_living_driver_that_renews_its_lease_in_between(
    kafka: InMemoryKafka, left_behind: Coordinator
) -> None:
    steps = Steps()
    steps.left += [Step("writer.commit", "", left_behind.lease.renew)] * 2
    finisher = Coordinator(FaultyCluster(kafka, steps), SETTINGS, clock=kafka.clock)

    done = finisher.finish("run")

    assert not steps.left
    assert left_behind.finish("run").finished_ms == done.finished_ms
