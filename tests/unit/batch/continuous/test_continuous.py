"""Continuous runs and switching, on the in-memory Kafka: rounds are driven by hand, kills are exact."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.continuous import start
from airflow_kstreams.batch.continuous.start import begin_continuous
from airflow_kstreams.batch.continuous.task_thread import LeaseVerdict, LeaseWatch
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import TO_LATEST
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import (
    CallContext,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StoreSpec,
    Topology,
)
from airflow_kstreams.streams.calls.call import AsyncNode, MakeCaller
from airflow_kstreams.streams.errors import (
    DataLossError,
    KafkaClientError,
    KStreamsError,
    RunBusyError,
    RunSupersededError,
    TaskFencedError,
    TopologyError,
)
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import ReaderPort, TopicPartition
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.kafka.continuous_scene import APP, Running, SwitchingApplication
from tests.support.kafka.in_process import tasks_of
from tests.support.kafka.launches import share_of
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("modes-may-be-switched")

T = TypeVar("T")
WORDS = ("ant", "bee", "cat", "dog", "elk")
ROCKSDB = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
FIRST = TaskId(subtopology=0, group=0)


def counts_by_word() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").group_by(lambda key, value: value).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


class Calls:
    """A topology with calls above and below the counts, and what took effect by idempotency key.

    Calls end in drawn orders.
    """

    def __init__(self, seed: int) -> None:
        self.effects: dict[str, str] = {}
        self._drawn = random.Random(seed)
        self._callers: list[SeededCaller] = []

    def topology(self) -> Topology:
        async def paid(word: str, *, context: CallContext) -> str:
            await asyncio.sleep(0.01)
            assert self.effects.setdefault(context.idempotency_key, word) == word
            await asyncio.sleep(0.01)
            return word

        async def later(count: int) -> int:
            await asyncio.sleep(1 / count)
            return count

        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        words = builder.stream("in").map_values_async(paid, order="key", max_in_flight=3, name="paid")
        counts = words.group_by(lambda key, value: value).count(store="counts").to_stream()
        counts.map_values_async(later).send_to("out", value_serde=serdes.int64())
        return builder.build()

    def caller(self, async_nodes: Sequence[AsyncNode]) -> SeededCaller:
        made = SeededCaller(async_nodes, seed=self._drawn.getrandbits(32))
        self._callers.append(made)
        return made

    def close(self) -> None:
        """Let go of what dead tasks left behind."""
        for caller in self._callers:
            caller.close()


class Interceptor:
    """Makes every port call, after a test's own function had its say."""

    def __init__(self) -> None:
        self.before: Callable[[str, tuple[Any, ...]], object] = lambda name, arguments: None
        self.names: list[str] = []

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.names.append(name)
        self.before(name, arguments)
        return effect()


class Scene:
    """The application, its cluster, and the oracle."""

    def __init__(
        self, topology: Topology | None = None, *, make_caller: MakeCaller | None = None, **settings: Any
    ) -> None:
        self.kafka = InMemoryKafka()
        self.kafka.create_topic("in", partitions=2)
        self.kafka.create_topic("out", partitions=2)
        self.calls = Interceptor()
        self.sent: list[str] = []
        self.application = SwitchingApplication(
            topology=topology or counts_by_word(),
            cluster=FaultyCluster(self.kafka, self.calls),
            clock=self.kafka.clock,
            make_caller=make_caller,
            # One commit per record, so that no count of a word is folded into the next.
            settings={
                "settle.ms": 0,
                "commit.every.records": 1,
                "commit.interval.ms": 100,
                "client.timeout.ms": 1_000,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
        )

    def publish(self, count: int) -> None:
        for _ in range(count):
            number = len(self.sent)
            word = WORDS[number * number % len(WORDS)]
            self.sent.append(word)
            self.kafka.append("in", word.encode(), b"%d" % number, timestamp_ms=1 + number)

    def check(self) -> None:
        """Every count came exactly once, in order: 1, 2, 3, ... of each word."""
        seen: dict[bytes | None, list[int]] = {}
        for record in self.kafka.records("out"):
            value = record.value()
            assert value is not None
            seen.setdefault(record.key(), []).append(int.from_bytes(value, "big"))
        expected = Counter(self.sent)
        assert seen == {word.encode(): list(range(1, n + 1)) for word, n in expected.items()}

    def committed(self, topic: str) -> dict[TopicPartition, int]:
        reader = self.kafka.reader(group_id=APP)
        return {tp: found.offset for tp, found in reader.committed(self.kafka.partitions(topic)).items()}

    def wait(self, seconds: float) -> None:
        self.kafka.clock.sleep(seconds)

    @contextmanager
    def alive(self, owner: Coordinator) -> Iterator[None]:
        """Let a driver renew its lease while others wait."""
        self.application.clock = WaitingClock(self.kafka.clock, owner.lease.renew)
        yield
        self.application.clock = self.kafka.clock

    def outlive(self, running: Running) -> None:
        """Let the lease of a driver that was killed run out."""
        self.wait(self.application.checked.lease_ms / 1000 + 0.001)
        assert running.watch.verdict is LeaseVerdict.LOST

    def settle(self, running: Running) -> None:
        """Let a continuous run come to rest: everything processed and committed."""
        running.rounds(3)
        for _ in range(8):
            self.wait(self.application.checked.commit_interval_ms / 1000)
            running.rounds(2)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_records_are_processed_as_they_come_when_running_continuously(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    for count in (3, 0, 5, 1):
        scene.publish(count)
        scene.settle(running)
        scene.check()
    reports = running.stop()
    assert [report.outcome for report in reports] == ["stopped"] * 4
    for report in reports:
        assert report.metrics is not None
        assert report.metrics.process.count == report.records_in
        assert report.metrics.commit.count == report.commits
        assert report.metrics.lag is None, "there is no stop"
    assert sum(report.records_in for report in reports) == 2 * len(scene.sent)


def test_what_waits_for_records_to_come_asks_the_broker_less_often(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow: list[bool] = []

    class Kafka(InMemoryKafka):
        def reader(self, *, follows: bool = False, **given: Any) -> ReaderPort:
            follow.append(follows)
            return super().reader(**given)

    scene.kafka.__class__ = Kafka
    scene.application.batch("b-1")
    assert follow, "a batch reads, too"
    assert not any(follow)
    running = scene.application.run_continuously("c-1")
    running.rounds()
    running.stop()
    assert follow.count(True) == 5, "four tasks, and what watches the lease"


def test_offsets_are_at_the_end_when_everything_was_processed(scene: Scene) -> None:
    scene.publish(5)
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    running.stop()
    for topic in ("in", f"{APP}-counts-repartition"):
        ends = scene.kafka.admin().end_offsets(scene.kafka.partitions(topic), isolation="read_uncommitted")
        assert scene.committed(topic) == ends, "past transaction markers, too: tools show no lag"


def test_run_goes_on_without_a_result_that_the_broker_refuses_when_the_handler_skips_it() -> None:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    kafka.alter_topic("out", max_message_bytes="20000")
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("in").send_to("out")
    settings = {"processing.guarantee": "exactly_once", "production.exception.handler": "skip"}
    application = SwitchingApplication(
        topology=builder.build(), cluster=kafka, clock=kafka.clock, settings=settings
    )
    running = application.run_continuously("c-1")
    for value in (b"a", random.Random(0).randbytes(30_000), b"b"):
        kafka.append("in", value, b"k")
    for _ in range(5):
        running.rounds(2)
        kafka.clock.sleep(application.checked.commit_interval_ms / 1000)
    (report,) = running.stop()
    assert kafka.values("out") == [b"a", b"b"]
    assert report.records_dropped == 1


# == switching


def test_nothing_is_lost_or_doubled_when_modes_are_switched(scene: Scene) -> None:
    application = scene.application
    scene.publish(7)
    application.batch("b-1")
    scene.publish(5)
    running = application.run_continuously("c-1")
    scene.settle(running)
    scene.check()
    scene.publish(4)
    running.rounds(1)
    running.stop()
    application.batch("b-2")
    scene.check()
    scene.publish(6)
    application.run_continuously("c-2").stop()
    running = application.run_continuously("c-3")
    scene.settle(running)
    running.stop()
    scene.check()
    assert list(read_ledger(scene.kafka, APP).all_runs()) == ["b-1", "b-2"]


def test_metadata_topic_is_deleted_when_a_continuous_run_starts(scene: Scene) -> None:
    scene.publish(2)
    scene.application.batch("b-1")
    assert ProtocolTopics(APP).metadata in scene.kafka.topics()
    scene.application.run_continuously("c-1").stop()
    assert ProtocolTopics(APP).metadata not in scene.kafka.topics()


@pytest.mark.parametrize("done", range(5))
def test_what_a_batch_left_is_done_when_its_owner_never_comes_back(scene: Scene, done: int) -> None:
    scene.publish(9)
    slice_ = scene.application.begin("b-1")
    for task_id in tasks_of(slice_)[:done]:
        scene.application.task(slice_, task_id)
    scene.publish(2)
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    running.stop()
    scene.check()
    scene.publish(1)
    scene.application.batch("b-1")
    scene.check()


@pytest.mark.parametrize("done", [0, 2])
def test_nothing_a_batch_left_is_skipped_when_the_first_run_policy_says_latest(
    scene: Scene, done: int
) -> None:
    scene.publish(9)
    slice_ = scene.application.begin("b-1")
    for task_id in tasks_of(slice_)[:done]:
        scene.application.task(slice_, task_id)
    scene.application.settings = {**scene.application.settings, "first.run.offsets": "latest"}
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    running.stop()
    scene.check()


def test_unfinished_batch_of_another_topology_is_refused_when_switching(scene: Scene) -> None:
    scene.publish(1)
    scene.application.begin("b-1")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    scene.application.topology = builder.build()
    with pytest.raises(TopologyError, match="is not finished"):
        scene.application.run_continuously("c-1")


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_doubled_when_anything_ends_anywhere(seed: int) -> None:
    anything_ends_anywhere(seed)


@pytest.mark.parametrize("seed", range(30))
def test_each_record_takes_effect_once_when_anything_ends_anywhere_with_calls_under_way(seed: int) -> None:
    calls = Calls(seed)
    scene = anything_ends_anywhere(seed, calls.topology(), make_caller=calls.caller)
    calls.close()
    ends = scene.kafka.admin().end_offsets(scene.kafka.partitions("in"), isolation="read_committed")
    topic_id = scene.kafka.admin().describe_topics(["in"])["in"].topic_id
    assert calls.effects.keys() == {
        f"{APP}/{tp}@{offset}/{topic_id}/paid/0" for tp, end in ends.items() for offset in range(end)
    }


def anything_ends_anywhere(seed: int, topology: Topology | None = None, **named: Any) -> Scene:
    """Let batches and continuous runs follow each other: the one finished or left in the middle, the other
    stopped or killed in the middle.
    """
    drawn = random.Random(seed)
    scene = Scene(
        topology,
        commit_every_records=drawn.choice((1, 1, 3)),
        buffered_records_per_partition=drawn.choice((1, 1000)),
        **named,
    )
    for number in range(drawn.randint(3, 7)):
        scene.publish(drawn.randint(0, 8))
        run_id = f"r-{number}"
        kind = drawn.choice(("batch", "half a batch", "continuous", "killed"))
        if kind == "batch":
            scene.application.batch_and_what_was_left(run_id)
        elif kind == "half a batch":
            slice_ = scene.application.begin(run_id)
            left = tasks_of(slice_) if not slice_.plan.empty else []
            for task_id in left[: drawn.randint(0, len(left))]:
                scene.application.task(slice_, task_id)
        else:
            running = scene.application.run_continuously(run_id)
            for _ in range(drawn.randint(0, 6)):
                scene.publish(drawn.randint(0, 3))
                running.rounds(drawn.randint(0, 3))
                scene.wait(drawn.choice((0.0, 0.2)))
            if kind == "continuous":
                running.stop()
            else:
                scene.outlive(running)
    scene.application.batch_and_what_was_left("last")
    if scene.application.settings["commit.every.records"] == 1:
        scene.check()
    newest = {record.key(): record.value() for record in scene.kafka.records("out")}
    totals = {key: int.from_bytes(value or b"", "big") for key, value in newest.items()}
    assert totals == {word.encode(): count for word, count in Counter(scene.sent).items()}
    return scene


def test_slice_is_void_when_the_driver_died_before_it_deleted_the_metadata_topic(scene: Scene) -> None:
    scene.publish(3)
    stale = scene.application.begin("b-1")
    coordinator = scene.application.coordinator()
    begin_continuous(coordinator, "c-1", scene.application.topology.plan(APP))
    assert ProtocolTopics(APP).metadata in scene.kafka.topics()
    scene.wait(scene.application.checked.lease_ms / 1000 + 1)
    scene.publish(4)
    begun = scene.application.coordinator().begin(
        "b-1", scene.application.topology.plan(APP), hold_lease=False
    )
    assert begun.created, "capture does not find its old slice"
    slice_ = scene.application.begin("b-1")
    assert slice_.record_span == 7, "the switch was decided: the old stop offsets do not count"
    assert slice_.record_span > stale.record_span
    found = read_ledger(scene.kafka, APP).continuous
    assert found is not None and found.over
    for task_id in tasks_of(slice_):
        scene.application.task(slice_, task_id)
    scene.application.finish("b-1")
    scene.check()


def test_void_slice_cannot_be_finished_when_a_continuous_run_began(scene: Scene) -> None:
    scene.publish(3)
    slice_ = scene.application.begin("b-1")
    for task_id in tasks_of(slice_):
        scene.application.task(slice_, task_id)
    coordinator = scene.application.coordinator()
    begin_continuous(coordinator, "c-1", scene.application.topology.plan(APP))
    coordinator.close()
    with pytest.raises(Exception, match="it has no slice"):
        scene.application.finish("b-1")


def test_nothing_is_missing_when_a_run_without_transactions_is_killed() -> None:
    scene = Scene(processing_guarantee="at_least_once")
    running = scene.application.run_continuously("c-1")
    scene.publish(6)
    scene.settle(running)
    scene.check()
    scene.publish(6)
    running.rounds(1)
    scene.outlive(running)
    scene.application.batch("b-1")
    newest = {record.key(): record.value() for record in scene.kafka.records("out")}
    for word, count in Counter(scene.sent).items():
        assert int.from_bytes(newest[word.encode()] or b"", "big") >= count


# == who may work


@pytest.mark.promise("second-starts-are-refused")
def test_batch_is_refused_and_told_how_to_stop_the_owner_when_a_continuous_run_is_live(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    with scene.alive(running.coordinator):
        for hold_lease in (True, False):
            with pytest.raises(RunBusyError, match="runs it continuously as 'c-1'") as caught:
                scene.application.coordinator().begin(
                    "b-1", scene.application.topology.plan(APP), hold_lease=hold_lease
                )
            assert "SIGTERM to process of c-1" in caught.value.fix
        with pytest.raises(RunBusyError):
            scene.application.finish("b-1")
    scene.publish(1)
    scene.settle(running)
    scene.check()
    running.stop()


@pytest.mark.promise("second-starts-are-refused")
def test_batch_of_the_same_run_id_is_refused_when_a_continuous_run_is_live(scene: Scene) -> None:
    running = scene.application.run_continuously("same", order=(0, 1))
    with scene.alive(running.coordinator), pytest.raises(RunBusyError):
        scene.application.begin("same", order=(9, 9))
    running.stop()


@pytest.mark.error_example("KS-RUN-002")
def test_continuous_run_is_refused_when_a_batch_is_live(scene: Scene) -> None:
    scene.publish(1)
    driver = scene.application.coordinator()
    scene.application.batches.begin("b-1", coordinator=driver)
    for run_id in ("c-1", "b-1"):
        with scene.alive(driver), pytest.raises(RunBusyError, match="works on run 'b-1'"):
            scene.application.run_continuously(run_id, order=(9, 9))
    assert ProtocolTopics(APP).metadata in scene.kafka.topics(), "nothing was touched"


@pytest.mark.promise("second-starts-are-refused")
def test_second_continuous_run_is_refused_when_one_is_live(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    with scene.alive(running.coordinator), pytest.raises(RunBusyError):
        scene.application.run_continuously("c-2")
    running.stop()
    scene.application.run_continuously("c-2").stop()


@pytest.mark.remedy("lease.superseded")
@pytest.mark.remedy("task_thread.TaskThread.run")
def test_older_start_ends_when_a_newer_one_takes_the_run_over(scene: Scene) -> None:
    old = scene.application.run_continuously("c-1", order=(0, 1))
    scene.publish(3)
    old.rounds(2)
    new = scene.application.run_continuously("c-1", order=(0, 2))
    with pytest.raises(RunSupersededError):
        old.coordinator.lease.renew()
    old.watch.look(timeout_seconds=0)
    with pytest.raises(RunSupersededError, match="does not renew its lease"):
        old.thread.run()
    scene.settle(new)
    new.stop()
    scene.check()


@pytest.mark.error_example("KS-TASK-002")
@pytest.mark.promise("orphans-end")
def test_nothing_of_an_orphan_counts_when_a_batch_began_after_its_lease_ended(scene: Scene) -> None:
    scene.publish(6)
    orphan = scene.application.run_continuously("c-1")
    orphan.rounds(2, renew=False)
    scene.outlive(orphan)
    slice_ = scene.application.begin("b-1")
    scene.publish(5)
    with pytest.raises(TaskFencedError):
        for _ in range(10):
            orphan.rounds(1, renew=False)
    for task_id in tasks_of(slice_):
        scene.application.task(slice_, task_id)
    scene.application.finish("b-1")
    scene.application.batch("b-2")
    scene.check()


def test_offsets_do_not_move_behind_a_batch_that_began_when_an_orphan_is_alive(scene: Scene) -> None:
    """Without fencing at begin, the orphan would carry the offsets past the stops that are frozen by then."""
    orphan = scene.application.run_continuously("c-1")
    orphan.rounds(3)
    scene.outlive(orphan)
    scene.publish(4)
    slice_ = scene.application.begin("b-1")
    stops = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    scene.publish(4)
    with pytest.raises(TaskFencedError):
        for _ in range(10):
            orphan.rounds(1, renew=False)
    assert all(scene.committed("in")[tp] <= stop for tp, stop in stops.items())


def test_task_of_an_earlier_start_writes_nothing_when_it_comes_late(scene: Scene) -> None:
    first = scene.application.run_continuously("c-1", order=(0, 1))
    late = scene.application.continuous_task(first.run, FIRST)
    scene.publish(2)
    first.stop()
    with pytest.raises(TaskFencedError, match="was released by process of c-1"):
        late.step(0)
    second = scene.application.run_continuously("c-1", order=(0, 2))
    with pytest.raises(TaskFencedError, match="generation 1"):
        late.step(0)
    second.stop()


# == what is gone


@pytest.mark.promise("continuous-loss-ends-the-run")
def test_loss_is_told_when_the_offsets_of_a_continuous_run_are_gone(scene: Scene) -> None:
    scene.publish(5)
    scene.application.batch("b-1")
    running = scene.application.run_continuously("c-1")
    scene.publish(5)
    scene.settle(running)
    running.stop()
    reader = type(scene.kafka.reader(group_id=APP))
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(DataLossError, match="continuous run 'c-1' had committed one"),
    ):
        patch.setattr(reader, "committed", lambda self, partitions: {})
        scene.application.begin("b-2")


@pytest.mark.promise("continuous-loss-ends-the-run")
def test_loss_is_told_when_retention_overtook_a_continuous_run(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    scene.publish(8)
    running.stop()
    scene.kafka.expire(dict.fromkeys(scene.kafka.partitions("in"), 2))
    with pytest.raises(DataLossError, match="records from offset 0 to 2 are gone"):
        scene.application.run_continuously("c-2")


def between_look_and_write(scene: Scene, late: Callable[[], object]) -> list[BaseException | None]:
    """Let an attempt of the last driver's task start when the next start has read the committed offsets, and
    has yet to write what it made of them; return how that ended.
    """
    ended: list[BaseException | None] = []

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        if name != "writer.send_offsets" or ended:
            return
        ended.append(None)
        try:
            late()
        except KStreamsError as error:
            ended[0] = error

    scene.calls.before = before
    return ended


def test_attempt_of_a_dead_driver_commits_nothing_when_a_continuous_run_takes_its_batch_over(
    scene: Scene,
) -> None:
    scene.publish(8)
    slice_ = scene.application.begin("b-1", release=False)
    share = share_of(scene.kafka, slice_, 0, 0, scene.kafka.clock)
    late = dataclasses.replace(scene.application, cluster=scene.kafka).batches
    ended = between_look_and_write(scene, lambda: late.launched(slice_, share))
    running = scene.application.run_continuously("c-1")
    assert len(ended) == 1
    for _ in range(4):
        scene.wait(1)
        running.rounds(4)
    running.stop()
    scene.check()
    assert isinstance(ended[0], TaskFencedError)


@pytest.mark.remedy("work.TaskAssignment.refuse_unless_in_force: nothing: the next driver launches")
def test_attempt_of_a_dead_driver_commits_nothing_when_a_batch_follows_its_continuous_run(
    scene: Scene,
) -> None:
    scene.publish(4)
    running = scene.application.run_continuously("c-1")
    running.rounds(4, renew=False)
    scene.publish(8)

    def late() -> None:
        direct = dataclasses.replace(scene.application, cluster=scene.kafka)
        task = direct.continuous_task(running.run, FIRST)
        for _ in range(6):
            task.step(0)
            scene.wait(1)
        task.commit()
        task.close()

    ended = between_look_and_write(scene, late)
    scene.application.batch("b-1")
    assert len(ended) == 1
    scene.check()
    assert isinstance(ended[0], TaskFencedError)


@pytest.mark.promise("rewritten-logs-are-refused")
@pytest.mark.parametrize("grown", [0, 1, 5])
def test_task_is_refused_when_its_log_was_rewritten_before_it_starts_again(scene: Scene, grown: int) -> None:
    running = scene.application.run_continuously("c-1")
    scene.publish(8)
    running.rounds(6)
    scene.wait(1)
    running.rounds(6)
    at, committed = next((tp, at) for tp, at in scene.committed("in").items() if at > 1)
    scene.kafka.truncate(at, committed - 1)
    for _ in range(1 + grown):
        scene.kafka.append("in", b"other", b"0", partition=at.partition)
    again = scene.application.continuous_task(running.run, TaskId(subtopology=0, group=at.partition))
    with pytest.raises(DataLossError) as caught:
        again.step(0)
    assert f"{at}: runs have read the record at offset {committed - 1} under leader epoch 0" in (
        caught.value.cause
    )
    assert f"--to-offset {committed}" in caught.value.fix
    again.close()


@pytest.mark.promise("state-is-not-lost")
def test_run_is_refused_when_its_changelog_is_created_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    running = scene.application.run_continuously("c-1")
    scene.publish(8)
    scene.settle(running)
    scene.kafka.admin().delete_topics([f"{APP}-counts-changelog"])
    scene.kafka.create_topic(f"{APP}-counts-changelog", partitions=2, cleanup_policy="compact")
    scene.publish(8)
    with pytest.raises(DataLossError, match=f"changelog {APP}-counts-changelog is not the one") as caught:
        for _ in range(10):
            running.rounds()
            scene.wait(2)
    running.close()
    accept_in_memory(caught.value, scene.kafka)
    caplog.clear()
    running = scene.application.run_continuously("c-2")
    assert "is not the one" not in caplog.text, "it was given up by the command"
    running.rounds(4)
    running.stop()


# == turns, retries, time


def test_task_starts_over_and_nothing_doubles_when_a_commit_fails(scene: Scene) -> None:
    failures = [1, 5, 6, 14]
    commits = 0

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal commits
        if name == "writer.commit":
            commits += 1
            if commits in failures:
                raise KafkaClientError("injected", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)

    running = scene.application.run_continuously("c-1")
    scene.calls.before = fail
    for _ in range(4):
        scene.publish(3)
        running.rounds(4, renew=False)
        scene.wait(6)
        running.rounds(1, renew=False)
        scene.calls.before, before = (lambda name, arguments: None), scene.calls.before
        running.coordinator.lease.renew()
        scene.calls.before = before
    scene.calls.before = lambda name, arguments: None
    scene.settle(running)
    reports = running.stop()
    assert commits > max(failures)
    assert max(report.attempts for report in reports) > 1
    scene.check()


def test_run_fails_when_no_attempt_commits_anything(scene: Scene) -> None:
    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "writer.init_transactions":
            raise KafkaClientError("injected", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)

    running = scene.application.run_continuously("c-1")
    scene.calls.before = fail
    with pytest.raises(KafkaClientError, match="injected"):
        for _ in range(200):
            running.rounds(1, renew=False)
    attempts = scene.calls.names.count("writer.init_transactions")
    assert attempts <= 4 * scene.application.checked.task_max_attempts + 10


@pytest.mark.promise("no-task-starves")
def test_turn_ends_when_a_task_with_slow_functions_has_more_to_do() -> None:
    def slow(value: str) -> str:
        made.wait(0.1)
        return value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").map_values(slow).send_to("out")
    made = Scene(builder.build(), commit_every_records=0)
    running = made.application.run_continuously("c-1")
    running.rounds(1)
    for partition in (0, 1):
        for number in range(100):
            made.kafka.append("in", b"%d" % number, partition=partition)
    running.rounds(1)
    assert made.kafka.clock.monotonic_seconds() < 4, "two turns"
    running.rounds(1)
    assert all(0 < offset < 50 for offset in made.committed("in").values()), "both have turns, short ones"
    running.rounds(60)
    running.stop()
    assert len(made.kafka.values("out")) == 200


def reset(scene: Scene, **request: Any) -> None:
    wanted = ResetRequest(application_id=APP, **request)
    with ApplicationReset(scene.kafka, wanted, clock=scene.application.clock) as one:
        one.run()


def test_everything_comes_again_when_reset_after_a_continuous_run(scene: Scene) -> None:
    scene.publish(9)
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    running.stop()
    first = scene.kafka.values("out")

    reset(scene, input_topics=("in",))

    ledger = read_ledger(scene.kafka, APP)
    assert ledger.current_continuous is None, "the reset came after it"
    assert ledger.reset is not None
    scene.application.batch("b-1")
    assert Counter(scene.kafka.values("out")) == Counter(first * 2)
    assert read_ledger(scene.kafka, APP).reset is None


def test_continuous_run_starts_where_the_reset_before_it_says(scene: Scene) -> None:
    scene.publish(4)
    scene.application.batch("b-1")
    reset(scene, input_topics=("in",), scenario=TO_LATEST)
    scene.sent.clear()
    scene.publish(5)
    before = len(scene.kafka.values("out"))

    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    running.stop()

    ledger = read_ledger(scene.kafka, APP)
    assert ledger.reset is None, "the continuous run came after it"
    assert ledger.current_continuous is not None
    assert len(scene.kafka.values("out")) - before == 5, "what the reset skipped is skipped"
    scene.application.batch("b-2")
    ledger = read_ledger(scene.kafka, APP)
    assert (ledger.reset, ledger.current_continuous) == (None, None)
    assert len(scene.kafka.values("out")) - before == 5


@pytest.mark.remedy("reset.ApplicationReset._refuse: stop it first")
def test_live_continuous_run_is_refused_by_a_reset_and_its_zombie_writes_nothing_after_a_forced_one(
    scene: Scene,
) -> None:
    scene.publish(4)
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    with scene.alive(running.coordinator), pytest.raises(RunBusyError, match="c-1"):
        reset(scene, input_topics=("in",))
    scene.publish(3)

    reset(scene, input_topics=("in",), scenario=TO_LATEST, force=True)

    running.watch.look(timeout_seconds=0)
    assert running.watch.verdict is LeaseVerdict.LOST, "it hears of it at once"
    before = len(scene.kafka.values("out"))
    with pytest.raises((TaskFencedError, KafkaClientError)):
        scene.settle(running)
    assert len(scene.kafka.values("out")) == before
    running.close()


def test_unfinished_batch_that_a_continuous_run_made_void_is_no_slice_to_a_reset(scene: Scene) -> None:
    scene.publish(4)
    scene.application.begin("b-1")
    coordinator = scene.application.coordinator()
    begin_continuous(coordinator, "c-1", scene.application.topology.plan(APP))
    coordinator.close()  # it dies before it has deleted the metadata topic

    reset(scene, input_topics=("in",))

    scene.application.batch("b-2")
    scene.check()


def test_others_commit_first_when_a_task_is_about_to_restore(scene: Scene) -> None:
    scene = Scene(commit_every_records=0, commit_interval_ms=300_000, transaction_timeout_ms=600_000)
    running = scene.application.run_continuously("c-1")
    running.rounds(2)
    scene.publish(4)
    running.rounds(2)
    assert set(scene.committed("in").values()) == {0}, "nothing is due yet"
    last = running.thread._tasks[-1]
    last.close()
    running.rounds(1)
    assert sum(scene.committed("in").values()) >= 4
    running.stop()


@pytest.mark.promise("quiet-offsets-do-not-expire")
def test_quiet_partitions_are_committed_again_when_an_hour_has_passed(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    scene.settle(running)
    before = scene.calls.names.count("writer.send_offsets")
    running.rounds(5)
    assert scene.calls.names.count("writer.send_offsets") == before, "nothing to commit, nothing committed"
    scene.wait(3_600)
    running.rounds(2)
    assert scene.calls.names.count("writer.send_offsets") == before + 4
    running.stop()


def test_repartition_topics_are_purged_up_to_what_was_processed(scene: Scene) -> None:
    repartition = f"{APP}-counts-repartition"
    running = scene.application.run_continuously("c-1")
    scene.publish(6)
    scene.settle(running)
    running.housekeeping.purge_processed()
    starts = scene.kafka.admin().start_offsets(scene.kafka.partitions(repartition))
    assert starts == scene.committed(repartition)
    assert not scene.kafka.records(repartition)
    scene.publish(3)
    scene.settle(running)
    running.stop()
    scene.application.batch("b-1")
    scene.check()


@pytest.mark.remedy("start.Housekeeping.keep")
def test_added_partitions_are_told_and_read_from_their_beginning_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "_PAUSE_SECONDS", 0.0)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    scene = Scene(builder.build())
    running = scene.application.run_continuously("c-1")
    assert running.housekeeping.grown_topics() == {}
    scene.kafka.add_partitions("in", 3)
    scene.kafka.append("in", b"early", partition=2)
    assert running.housekeeping.grown_topics() == {"in": (2, 3)}
    running.housekeeping.keep()
    running.stop()
    again = scene.application.run_continuously("c-2")
    scene.settle(again)
    again.stop()
    assert scene.kafka.values("out") == [b"early"]


class Ticking(Processor):
    """Forwards ticks of either clock."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(1_000, clock="wall_clock", callback=lambda now: context.forward("wall", "tick"))
        context.schedule(10, clock="stream_time", callback=lambda now: context.forward("stream", str(now)))

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward("record", str(record.value))


def test_timers_of_either_clock_fire_when_running_continuously() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").process(Ticking).send_to("out")
    scene = Scene(builder.build())
    running = scene.application.run_continuously("c-1")
    running.rounds(2)
    for _ in range(5):
        scene.wait(1.0)
        running.rounds(1)
    assert scene.kafka.values("out").count(b"tick") >= 2 * 4, "without a single record, in both tasks"
    for timestamp_ms in (9, 12, 31):
        scene.kafka.append("in", b"r", partition=0, timestamp_ms=timestamp_ms)
    running.rounds(2)
    running.stop()
    streams = [r.value() for r in scene.kafka.records("out") if r.key() == b"stream"]
    assert streams == [b"10", b"20", b"30"]


def test_quiet_input_keeps_no_other_waiting_when_a_task_reads_two() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").merge(builder.stream("quiet")).send_to("out")
    scene = Scene(builder.build())
    scene.kafka.create_topic("quiet", partitions=2)
    running = scene.application.run_continuously("c-1")
    scene.publish(5)
    scene.settle(running)
    assert len(scene.kafka.values("out")) == 5
    scene.kafka.append("quiet", b"at last", partition=1)
    scene.settle(running)
    running.stop()
    assert sorted(scene.kafka.values("out")) == sorted([*(w.encode() for w in scene.sent), b"at last"])  # type: ignore[type-var]


def test_local_state_is_kept_for_either_mode_when_a_run_stops_cleanly(tmp_path: Path) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("in").group_by(lambda key, value: value).count(store=ROCKSDB)
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    scene = Scene(builder.build(), state_dir=str(tmp_path))
    running = scene.application.run_continuously("c-1")
    scene.publish(20)
    scene.settle(running)
    running.stop()
    scene.publish(2)
    again = scene.application.run_continuously("c-2")
    scene.settle(again)
    assert sum(report.restored for report in again.stop()) == 0, "the checkpoint covers the whole changelog"
    scene.publish(1)
    assert sum(task.restored for task in scene.application.batch("b-1").tasks) == 0
    scene.check()
    scene.publish(3)
    killed = scene.application.run_continuously("c-3")
    scene.settle(killed)
    scene.outlive(killed)
    killed.thread.close()
    scene.publish(1)
    assert sum(task.restored for task in scene.application.batch("b-2").tasks) > 0, "nothing else is trusted"
    scene.check()


# == what tasks see of the lease


@pytest.mark.promise("orphans-end")
def test_lease_is_lost_when_nothing_is_heard_of_it_for_as_long_as_it_lasts(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    lease_seconds = scene.application.checked.lease_ms / 1000
    for _ in range(5):
        scene.wait(lease_seconds * 0.9)
        running.coordinator.lease.renew()
        running.watch.look(timeout_seconds=0)
        assert running.watch.verdict is LeaseVerdict.GO_ON
    scene.wait(lease_seconds * 1.1)
    running.watch.look(timeout_seconds=0)
    assert running.watch.verdict is LeaseVerdict.LOST


def test_leases_of_earlier_runs_mean_nothing_when_a_host_starts(scene: Scene) -> None:
    for number in range(3):
        scene.application.run_continuously(f"c-{number}").stop()
    scene.publish(1)
    scene.application.batch("b-1")
    running = scene.application.run_continuously("c-1")
    running.watch.look(timeout_seconds=0)
    assert running.watch.verdict is LeaseVerdict.GO_ON
    running.stop()


def test_lease_is_watched_on_when_the_broker_does_not_answer_for_a_moment(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "reader.poll":
            raise KafkaClientError("injected", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)

    scene.calls.before = fail
    running.watch.look(timeout_seconds=1)
    assert running.watch.verdict is LeaseVerdict.GO_ON
    scene.calls.before = lambda name, arguments: None
    assert len(running.stop()) == 4


def test_tasks_end_when_the_driver_has_let_go_of_the_lease(scene: Scene) -> None:
    running = scene.application.run_continuously("c-1")
    running.coordinator.lease.release()
    running.watch.look(timeout_seconds=0)
    assert running.watch.verdict is LeaseVerdict.LOST
    watch = LeaseWatch(
        scene.kafka, scene.application.checked, run_id="c-1", generation=1, clock=scene.application.clock
    )
    watch.look(timeout_seconds=0)
    assert watch.verdict is LeaseVerdict.LOST
