"""The run protocol on the real broker: the tasks are played by hand, one transaction each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator import BeginResult, Coordinator
from airflow_kstreams.streams import ports
from airflow_kstreams.streams.errors import (
    ConfigError,
    DataLossError,
    KStreamsError,
    RunBusyError,
    RunError,
    RunSupersededError,
    TopologyError,
    UpstreamNotDoneError,
)
from tests.support.kafka.slice_tasks import SECONDS, TwoStageApplication
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("one-owner")

Produce = Callable[..., None]


@pytest.fixture
def app(
    kafka: str, application_id: str, topic_name: Callable[..., str], create_topic: Callable[..., str]
) -> TwoStageApplication:
    return TwoStageApplication(
        bootstrap=kafka,
        application_id=application_id,
        source=create_topic(topic_name("in"), 2),
        target=create_topic(topic_name("out"), 1),
    )


@pytest.fixture
def coordinators() -> Iterator[Callable[[TwoStageApplication], Coordinator]]:
    made: list[Coordinator] = []

    def make(application: TwoStageApplication) -> Coordinator:
        made.append(Coordinator(application.cluster, application.settings))
        return made[-1]

    yield make
    for coordinator in made:
        coordinator.close()


@pytest.fixture
def coordinator(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator]
) -> Coordinator:
    return coordinators(app)


def rows(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"key": "k", "value": "v", "partition": partition} for _ in range(count)]


def begin(coordinator: Coordinator, app: TwoStageApplication, run_id: str, **extra: Any) -> Slice:
    begun = coordinator.begin(run_id, app.plan, **{"hold_lease": False, **extra})
    assert begun.slice is not None
    return begun.slice


def spans(slice_: Slice) -> dict[int, tuple[int, int]]:
    return {part.partition: (part.start_offset, part.stop_offset) for part in slice_.inputs}


def test_metadata_topic_reads_as_in_the_spec_when_a_run_begins_and_finishes(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(5, 0) + rows(3, 1))
    slice_ = begin(coordinator, app, "run-1")
    assert app.metadata_log() == [
        (f"{app.source}_0", "5"),
        (f"{app.source}_1", "3"),
        (app.application_id, "0"),
    ]
    app.play(slice_)
    summary = coordinator.finish("run-1")
    log = app.metadata_log()
    assert log[-1] == (app.application_id, "1")
    assert log[3:5] == [(f"{app.application_id}-0_{group}", "done") for group in range(2)]
    assert [key for key, _ in log[5:-1]] == [f"{app.repartition}_{number}" for number in range(2)]
    # The epoch guards the slice while it is processed; the ledger does not keep it.
    assert summary.inputs == tuple(msgspec.structs.replace(part, end_epoch=-1) for part in slice_.inputs)
    assert [(task.task_id, task.records_in) for task in summary.tasks] == [
        ("0_0", 7),
        ("0_1", 7),
        ("1_0", 7),
        ("1_1", 7),
    ]


def test_committed_offsets_equal_the_log_end_when_a_run_has_finished(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(5, 0))
    app.play(begin(coordinator, app, "run-1"))
    coordinator.finish("run-1")
    committed = app.committed(app.source, app.repartition)
    for topic in (app.source, app.repartition):
        assert {number: committed[topic, number][0] for number in range(2)} == app.ends(topic)
    # Moved past transaction markers only: partition time and counters still travel with it.
    assert '"time":1000' in committed[app.repartition, 0][1]
    # Processed repartition records are gone, so the topic does not grow.
    admin = app.cluster.admin()
    starts = admin.start_offsets(_ports(app.repartition))
    assert starts == admin.end_offsets(_ports(app.repartition), isolation="read_committed")


def _ports(topic: str) -> list[Any]:
    return [ports.TopicPartition(topic, number) for number in range(2)]


def test_next_run_holds_only_what_is_new_when_the_last_one_finished(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(5, 0))
    app.play(begin(coordinator, app, "run-1"))
    coordinator.finish("run-1")
    produce(app.source, rows(2, 1))
    slice_ = begin(coordinator, app, "run-2")
    assert spans(slice_) == {0: (5, 5), 1: (0, 2)}
    assert not slice_.plan.empty
    assert set(app.metadata_values()) == {f"{app.source}_0", f"{app.source}_1", app.application_id}


def test_stop_offsets_stay_when_a_run_is_retried_after_more_data_arrived(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(5, 0))
    first = begin(coordinators(app), app, "run-1")
    produce(app.source, rows(9, 0))
    again = begin(coordinators(app), app, "run-1")
    driver = begin(coordinators(app), app, "run-1", hold_lease=True, order=(0, 1))
    assert again == first
    assert driver.inputs == first.inputs
    assert driver.plan == first.plan
    assert (first.generation, driver.generation) == (0, 1)


def test_summary_is_returned_and_nothing_changes_when_the_run_is_finished_already(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(1))
    coordinator = coordinators(app)
    app.play(begin(coordinator, app, "run-1"))
    summary = coordinator.finish("run-1")
    produce(app.source, rows(1))
    before = app.metadata_log()
    assert coordinators(app).finish("run-1") == summary
    for hold in (False, True):
        found = coordinators(app).begin("run-1", app.plan, hold_lease=hold)
        assert found == BeginResult(finished=summary)
    assert app.metadata_log() == before


def test_run_is_empty_and_commits_every_offset_again_when_nothing_is_new(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(1))
    app.play(begin(coordinator, app, "run-1"))
    coordinator.finish("run-1")
    before = app.committed(app.source, app.repartition)
    assert len(before) == 4
    admin = AdminClient({"bootstrap.servers": app.bootstrap})
    admin.delete_consumer_groups([app.application_id])[app.application_id].result(SECONDS)
    assert app.committed(app.source, app.repartition) == {}
    slice_ = begin(coordinator, app, "run-2")
    assert slice_.plan.empty
    assert spans(slice_) == {0: (1, 1), 1: (0, 0)}
    after = app.committed(app.source, app.repartition)
    assert {key: offset for key, (offset, _) in after.items()} == {
        key: offset for key, (offset, _) in before.items()
    }
    summary = coordinator.finish("run-2")
    assert summary.empty
    assert summary.tasks == ()


def test_run_is_not_empty_when_only_an_intermediate_topic_holds_records(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(1))
    app.play(begin(coordinator, app, "run-1"))
    coordinator.finish("run-1")
    produce(app.repartition, rows(1), transactional_id="outsider", abort=True)
    aborted = begin(coordinator, app, "run-2")
    assert aborted.plan.empty
    coordinator.finish("run-2")
    produce(app.repartition, rows(1))
    assert not begin(coordinator, app, "run-3").plan.empty


def test_slice_stops_past_markers_and_aborted_records_when_they_are_the_tail(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(2, 0), transactional_id="committer")
    produce(app.source, rows(4, 1), transactional_id="aborter", abort=True)
    assert spans(begin(coordinator, app, "run-1")) == {0: (0, 3), 1: (0, 5)}


def test_slice_stops_before_an_open_transaction_when_it_does_not_settle(
    app: TwoStageApplication,
    coordinator: Coordinator,
    produce: Produce,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce(app.source, rows(2, 0))
    producer = Producer({"bootstrap.servers": app.bootstrap, "transactional.id": f"open-{app.source}"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(app.source, b"hidden", b"k", 0)
    producer.flush(SECONDS)
    assert spans(begin(coordinator, app, "run-1"))[0] == (0, 2)
    assert "kafka-transactions.sh" in caplog.text
    producer.abort_transaction(SECONDS)


def test_second_run_is_refused_with_names_when_the_first_ones_lease_is_live(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(1))
    first = coordinators(app)
    slice_ = begin(first, app, "run-1", hold_lease=True, owner="driver one", order=(0, 1))
    other = Coordinator(app.cluster, app.settings, clock=WaitingClock(SystemClock(), first.lease.renew))
    for attempt in (
        lambda: other.begin("run-2", app.plan, hold_lease=False),
        lambda: other.begin("run-2", app.plan, hold_lease=True, order=(9, 9)),
        lambda: other.begin("run-1", app.plan, hold_lease=True, order=(0, 1)),
        lambda: other.finish("run-2"),
    ):
        with pytest.raises(RunBusyError, match="driver one works on run 'run-1'") as caught:
            attempt()
        assert caught.value.is_retriable
        assert caught.value.owner_run_id == "run-1"
    other.close()
    # The owner was not disturbed: it renews and finishes with the clients it has.
    with first.lease.keep() as lease:
        lease.check()
        app.play(slice_)
    assert first.finish("run-1").generation == 1


def test_slice_is_taken_over_when_the_same_run_comes_with_a_higher_try(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(1))
    old, new = coordinators(app), coordinators(app)
    superseded = threading.Event()
    taken_from = begin(old, app, "run-1", hold_lease=True, order=(0, 1))
    with old.lease.keep(on_superseded=superseded.set) as lease:
        taken = begin(new, app, "run-1", hold_lease=True, order=(0, 2))
        with pytest.raises(RunSupersededError, match="claimed by another driver"):
            lease.check()
    assert taken.generation == taken_from.generation + 1
    assert taken.inputs == taken_from.inputs
    assert read_status(app.cluster, app.application_id).lease is not None


def test_older_slice_is_handed_out_first_when_its_owner_is_gone(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(1))
    crashed = begin(coordinators(app), app, "run-1", hold_lease=True)
    left = read_status(app.cluster, app.application_id)
    assert left.lease is not None
    assert left.lease_renewed_ms > 0
    patient = WaitingClock(_Quick())
    expired = Coordinator(app.cluster, app.settings, clock=patient)
    try:
        produce(app.source, rows(4))
        found = begin(expired, app, "run-2", hold_lease=True)
        assert (found.run_id, found.inputs) == ("run-1", crashed.inputs)
        assert found.generation == crashed.generation + 1
        # The looks at the ledger in between take their time, too.
        assert patient.waited_seconds > app.settings.lease_ms / 1000 / 2
        app.play(found)
        assert expired.finish("run-1").run_id == "run-1"
        own = begin(expired, app, "run-2", hold_lease=True)
        assert (own.run_id, spans(own)[0]) == ("run-2", (1, 5))
    finally:
        expired.close()


class _Quick:
    """The machine's clock; a wait takes a tenth of its time."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._skipped = 0.0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_seconds(self) -> float:
        return self._clock.monotonic_seconds() + self._skipped

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds / 10)
        self._skipped += seconds * 9 / 10


def test_one_slice_exists_when_several_begins_race(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(3))
    outcomes: list[BeginResult | KStreamsError] = []
    barrier, ended = threading.Barrier(4), threading.Barrier(4)

    def contend(number: int, coordinator: Coordinator) -> None:
        barrier.wait(SECONDS)
        keeping: AbstractContextManager[object] = nullcontext()
        try:
            outcomes.append(coordinator.begin(f"run-{number}", app.plan, hold_lease=True))
            keeping = coordinator.lease.keep()
        except KStreamsError as error:
            outcomes.append(error)
        with keeping:
            ended.wait(2 * SECONDS)

    threads = [threading.Thread(target=contend, args=(n, coordinators(app))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * SECONDS)
    won = [outcome for outcome in outcomes if isinstance(outcome, BeginResult)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, KStreamsError)]
    assert len(outcomes) == 4
    # Whoever claims last cannot be fenced any more: it wins, unless it finds that another has won before.
    assert len(won) == 1
    assert all(isinstance(error, RunBusyError) for error in lost), lost
    markers = [value for key, value in app.metadata_log() if key == app.application_id]
    assert len(markers) == len(won)


def test_owner_keeps_its_lease_when_a_loser_of_a_race_fenced_it(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(1))
    owner = coordinators(app)
    begin(owner, app, "run-1", hold_lease=True)
    intruder = app.cluster.writer(transactional_id=f"{app.application_id}-coordinator")
    intruder.init_transactions()
    intruder.close()
    owner.lease.renew()
    owner.lease.renew()
    assert read_status(app.cluster, app.application_id).lease is not None


def test_unfinished_tasks_are_told_until_offsets_and_notifications_are_committed(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(2, 0) + rows(2, 1))
    slice_ = begin(coordinator, app, "run-1")

    def left(subtopology: int) -> list[int]:
        return [share.group for share in coordinator.unfinished(slice_, subtopology)]

    assert left(0) == [0, 1]
    app.upstream(slice_, 0, notify=False)
    assert left(0) == [0, 1]
    app.upstream(slice_, 0, records=0)
    assert left(0) == [1]
    with pytest.raises(UpstreamNotDoneError, match="no done notification of task 0_1"):
        coordinator.unfinished(slice_, 1)
    app.upstream(slice_, 1)
    assert left(0) == []
    assert left(1) == [0, 1]
    app.downstream(slice_, 1)
    assert left(1) == [0]


def test_finish_is_refused_with_positions_when_a_partition_is_not_at_its_stop(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(2, 0) + rows(2, 1))
    slice_ = begin(coordinator, app, "run-1")
    with pytest.raises(UpstreamNotDoneError):
        coordinator.finish("run-1")
    for group in range(2):
        app.upstream(slice_, group)
    app.freeze(slice_)
    app.downstream(slice_, 0)
    with pytest.raises(RunError, match=rf"{app.repartition}-1 is at 0, expected \d+"):
        coordinator.finish("run-1")
    app.downstream(slice_, 1)
    coordinator.finish("run-1")


def test_finish_is_refused_when_the_run_never_began(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(1))
    begin(coordinator, app, "run-1")
    with pytest.raises(RunError, match=r"'run-9'.*holds run 'run-1', running"):
        coordinator.finish("run-9")


def test_state_is_read_to_its_end_when_a_dead_task_left_a_transaction_open_on_the_metadata_topic(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    produce(app.source, rows(1))
    slice_ = begin(coordinator, app, "run-1")
    dead = Producer({"bootstrap.servers": app.bootstrap, "transactional.id": f"{app.application_id}-0_0"})
    dead.init_transactions(SECONDS)
    dead.begin_transaction()
    dead.produce(f"{app.application_id}-metadata", b"99", b"never committed", 0)
    dead.flush(SECONDS)
    taken = begin(coordinator, app, "run-1", hold_lease=True)
    assert taken.generation == slice_.generation + 1
    assert "never committed" not in app.metadata_values()


def test_foreign_stop_offsets_are_kept_when_another_writer_began_the_run(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce, create_topic: Callable[..., str]
) -> None:
    produce(app.source, rows(5, 0) + rows(5, 1))
    metadata = create_topic(f"{app.application_id}-metadata", 1, cleanup_policy="compact")
    produce(metadata, [(f"{app.source}_0", b"3"), (f"{app.source}_1", b"4"), (app.application_id, b"0")])
    slice_ = begin(coordinator, app, "run-1")
    assert spans(slice_) == {0: (0, 3), 1: (0, 4)}
    app.play(slice_)
    coordinator.finish("run-1")
    assert spans(begin(coordinator, app, "run-2")) == {0: (3, 5), 1: (4, 5)}


@pytest.mark.parametrize("written", range(3))
def test_run_begins_anew_when_a_foreign_begin_died_before_its_marker(
    app: TwoStageApplication,
    coordinator: Coordinator,
    produce: Produce,
    create_topic: Callable[..., str],
    written: int,
) -> None:
    produce(app.source, rows(5, 0))
    log: list[Any] = [(f"{app.source}_0", b"3"), (f"{app.source}_1", b"0")][:written]
    metadata = create_topic(f"{app.application_id}-metadata", 1, cleanup_policy="compact")
    produce(metadata, log)
    assert spans(begin(coordinator, app, "run-1"))[0] == (0, 5)


# == refusals


def test_missing_topics_are_named_and_nothing_is_begun_when_they_do_not_exist(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator]
) -> None:
    nowhere = replace(app, source="no-such-topic")
    with pytest.raises(TopologyError, match="input topic 'no-such-topic'") as caught:
        begin(coordinators(nowhere), nowhere, "run-1")
    assert not caught.value.is_retriable
    assert read_status(app.cluster, app.application_id).state is RunState.NEW


def test_other_topology_is_refused_when_a_slice_is_unfinished(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(1))
    slice_ = begin(coordinators(app), app, "run-1")
    changed = replace(app, hash="hash-2")
    for run_id, hold in (("run-1", False), ("run-1", True), ("run-2", True)):
        with pytest.raises(TopologyError, match=r"began with topology hash-1.*now builds hash-2"):
            begin(coordinators(changed), changed, run_id, hold_lease=hold)
    app.play(slice_)
    coordinators(app).finish("run-1")
    assert begin(coordinators(changed), changed, "run-2").run_id == "run-2"


def test_loss_is_an_error_when_an_input_topic_was_created_again(
    app: TwoStageApplication,
    coordinators: Callable[[TwoStageApplication], Coordinator],
    produce: Produce,
    create_topic: Callable[..., str],
) -> None:
    produce(app.source, rows(3))
    app.play(begin(coordinators(app), app, "run-1"))
    app.cluster.admin().delete_topics([app.source])
    create_topic(app.source, 2)
    produce(app.source, rows(9))
    with pytest.raises(DataLossError, match=f"topic {app.source} is not the one run 'run-1' began with"):
        coordinators(app).finish("run-1")


def test_next_run_is_refused_when_an_input_topic_was_created_again_between_runs(
    app: TwoStageApplication,
    coordinators: Callable[[TwoStageApplication], Coordinator],
    produce: Produce,
    create_topic: Callable[..., str],
) -> None:
    produce(app.source, rows(3))
    app.play(begin(coordinators(app), app, "run-1"))
    coordinators(app).finish("run-1")
    app.cluster.admin().delete_topics([app.source])
    create_topic(app.source, 2)
    produce(app.source, rows(9))
    with pytest.raises(DataLossError, match="was created again since the last run") as caught:
        begin(coordinators(app), app, "run-2")
    assert "--accept" in caught.value.fix
    consumer_commit(app, {0: 0, 1: 0})
    assert spans(begin(coordinators(app), app, "run-2")) == {0: (0, 9), 1: (0, 0)}


def consumer_commit(app: TwoStageApplication, offsets: dict[int, int]) -> None:
    """What ``kafka-consumer-groups --reset-offsets`` does."""
    admin = AdminClient({"bootstrap.servers": app.bootstrap})
    wanted = [TopicPartition(app.source, number, offset) for number, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(app.application_id, wanted)]
    admin.alter_consumer_group_offsets(request)[app.application_id].result(SECONDS)


def test_loss_is_an_error_when_unread_records_were_deleted(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(3))
    app.play(begin(coordinators(app), app, "run-1"))
    coordinators(app).finish("run-1")
    produce(app.source, rows(3))
    app.cluster.admin().delete_records({_ports(app.source)[0]: 5})
    with pytest.raises(DataLossError, match="from offset 3 to 5 are gone"):
        begin(coordinators(app), app, "run-2")


def test_reserved_run_id_is_refused_when_given(app: TwoStageApplication, coordinator: Coordinator) -> None:
    with pytest.raises(ConfigError, match="__lease__"):
        coordinator.begin("__lease__", app.plan, hold_lease=False)


def test_status_tells_state_lease_and_log_when_a_run_is_under_way(
    app: TwoStageApplication, coordinator: Coordinator, produce: Produce
) -> None:
    with pytest.raises(ConfigError, match=f"there is no application '{app.application_id}' on this cluster"):
        read_status(app.cluster, app.application_id)
    produce(app.source, rows(5, 0))
    begin(coordinator, app, "run-1", hold_lease=True, owner="driver one")
    status = read_status(app.cluster, app.application_id)
    assert status.state is RunState.RUNNING
    assert status.lease is not None
    assert status.lease.owner == "driver one"
    assert f"<{app.source}_0:5>" in status.metadata[0]
    assert "stop of run run-1" in status.metadata[0]
    coordinator.lease.release()
    assert read_status(app.cluster, app.application_id).lease is None


def test_new_owner_keeps_the_lease_when_the_superseded_one_leaves(
    app: TwoStageApplication, coordinators: Callable[[TwoStageApplication], Coordinator], produce: Produce
) -> None:
    produce(app.source, rows(3))
    old, new = coordinators(app), coordinators(app)
    begin(old, app, "run-1", order=(0, 1), hold_lease=True)
    begin(new, app, "run-1", order=(0, 2), hold_lease=True)
    with pytest.raises(RunSupersededError):
        old.lease.renew()
    old.close()
    new.lease.renew()
    lease = read_status(app.cluster, app.application_id).lease
    assert lease is not None
    assert lease.order == (0, 2)
    assert lease.expires_ms > 0
