"""The plan of the next run is the slice that a begin freezes right after it, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.inspect.ahead.next_run import NextRun, expected_time, plan_next
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.ledger.run_summary import RunSummary, TopicRead
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError
from airflow_kstreams.streams.naming import permissions
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

T = TypeVar("T")
NOW_MS = 1_700_000_000_000
_WRITES = {
    "cluster.writer",
    "reader.commit",
    "admin.create_topics",
    "admin.create_partitions",
    "admin.delete_topics",
    "admin.delete_records",
}


class ReadOnly:
    """A cluster that refuses each write."""

    def __init__(self, kafka: InMemoryKafka) -> None:
        self.cluster = FaultyCluster(kafka, self)

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        assert name not in _WRITES, (name, arguments)
        return effect()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
    for topic in ("in", "out"):
        kafka.create_topic(topic, partitions=3)
    return kafka


def counting(*, renamed: str = "totals") -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    grouped = builder.stream("in").group_by_key()
    grouped.count(store=renamed)
    windows = grouped.windowed_by(TumblingWindow(size_ms=60_000, grace_ms=0)).count(store="minutes")
    windows.suppress().to_stream().map(lambda key, count: (str(key), str(count))).send_to("out")
    return builder.build()


def application(kafka: InMemoryKafka, topology: Topology | None = None, **settings: object) -> Application:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=topology or counting(),
        settings={"autostop.at": "eol", "stream.time.advance": "wall_clock_of_begin", **given},
    )


def feed(kafka: InMemoryKafka, count: int, partition: int = 0) -> None:
    for _ in range(count):
        kafka.append("in", b"v", b"k%d" % partition, partition=partition, timestamp_ms=kafka.clock.now_ms())


def ends(kafka: InMemoryKafka) -> dict[str, int]:
    return {topic: len(kafka.records(topic)) for topic in sorted(kafka.admin().topic_names())}


def planned(kafka: InMemoryKafka, ours: Application, **given: Any) -> NextRun:
    """Return the plan, after a look at each log's end, before and behind it."""
    before = ends(kafka)
    found = plan_next(ReadOnly(kafka).cluster, ours.checked, clock=kafka.clock, **given)
    assert ends(kafka) == before
    return found


@pytest.mark.promise("inspect-writes-nothing")
def test_first_run_is_planned_and_nothing_is_made(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 4, partition=1)

    found = planned(kafka, ours, topology=ours.topology.plan("app"))

    assert (found.kind, found.records, found.tasks, found.run_id) == ("new", 4, 3, None)
    assert [(p.partition, p.start, p.stop) for p in found.partitions] == [(1, 0, 4)]
    assert found.creates == ("app-metadata", "app-minutes-changelog", "app-runs", "app-totals-changelog")
    assert (found.state, found.expected, found.refused) == ((), None, None)


@pytest.mark.promise("inspect-writes-nothing")
def test_plan_is_the_slice_that_the_next_begin_freezes(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    for number in range(3):
        feed(kafka, 10)
        slice_ = ours.begin(f"r{number}")
        ours.tasks(slice_)
        kafka.clock.sleep(20)
        ours.finish(f"r{number}")
        kafka.clock.sleep(60)
    feed(kafka, 7, partition=2)
    feed(kafka, 2)

    found = planned(kafka, ours, partitions=1)
    slice_ = ours.begin("next")

    assert found.kind == "new"
    assert found.records == slice_.record_span == 9
    frozen = [part for part in slice_.inputs if part.topic_partition == ("in", 2)]
    (shown,) = found.partitions
    assert (shown.start, shown.stop) == (frozen[0].start_offset, frozen[0].stop_offset) == (0, 7)
    assert found.more_partitions == 1
    assert {each.store for each in found.state} == {"totals", "minutes"}
    (windows,) = found.windows
    assert windows.to_ms == slice_.plan.moment_of(windows.subtopology)
    assert windows.tasks_due == 1, "the window of the last run ends"
    assert found.expected is not None
    assert (found.expected.seconds, found.expected.runs) == (20, 3)


@pytest.mark.promise("inspect-writes-nothing")
def test_unfinished_run_is_gone_on_with_where_its_tasks_have_committed(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 3, partition=0)
    feed(kafka, 5, partition=1)
    slice_ = ours.begin("one")
    ours.task(slice_, 0, 0)

    found = planned(kafka, ours)

    assert (found.kind, found.run_id, found.records) == ("resume", "one", 5)
    assert [(p.partition, p.start, p.stop) for p in found.partitions] == [(1, 0, 5)]


@pytest.mark.promise("inspect-writes-nothing")
def test_records_between_subtopologies_stay_when_a_plan_is_made(kafka: InMemoryKafka) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").select_key(lambda key, value: value).group_by_key().count(store="values")
    ours = application(kafka, builder.build(), stream_time_advance="none")
    feed(kafka, 4)
    ours.run("one")
    feed(kafka, 2)

    assert planned(kafka, ours).records == 2


def test_refusal_is_that_of_the_begin(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 3)
    ours.run("one")
    feed(kafka, 3)
    kafka.admin().delete_topics(["app-totals-changelog"])

    found = planned(kafka, ours)

    assert (found.kind, found.records) == ("refused", 0)
    assert found.refused is not None
    assert found.refused.kind == "DataLossError"
    assert "changelog app-totals-changelog is not the one that earlier runs wrote" in found.refused.cause
    assert found.refused.remedy


def test_what_this_user_may_not_look_at_is_no_refusal_of_the_run(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 3)

    class Refusing:
        def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
            if name == "admin.topic_configs":
                permission = permissions.Permission(
                    operation=permissions.Operation.DESCRIBE_CONFIGS,
                    resource=permissions.Resource.TOPIC,
                    name="in",
                )
                raise AccessDeniedError(
                    what="topic settings",
                    where="k:1",
                    permission=permission,
                    principal="User:me",
                    kafka_code="_X",
                )
            return effect()

    cluster = FaultyCluster(kafka, Refusing())
    with pytest.raises(AccessDeniedError, match="User:me needs the permission"):
        plan_next(cluster, ours.checked, topology=ours.topology.plan("app"), clock=kafka.clock)


def test_warnings_are_shown_and_not_logged(kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture) -> None:
    ours = application(kafka)
    feed(kafka, 3)
    ours.run("one")
    back = kafka.reader(group_id="app")
    back.commit({TopicPartition("in", 0): CommittedOffset(1)})
    caplog.clear()

    found = planned(kafka, ours)

    assert [text[:36] for text in found.warnings] == ["committed offsets were set back since"[:36]]
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_no_begin_is_rehearsed_while_a_driver_holds_the_lease(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 3)
    coordinator = ours.coordinator()
    ours.begin("one", coordinator=coordinator)

    found = planned(kafka, ours)
    coordinator.close()

    assert (found.kind, found.run_id, found.records) == ("busy", "one", 3)
    (why,) = found.not_seen
    assert why.startswith("driver of one holds the lease")


@pytest.mark.promise("inspect-writes-nothing")
def test_slice_of_a_driver_that_has_been_silent_for_a_lease_would_be_taken(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 3)
    dead = ours.coordinator()
    ours.begin("one", coordinator=dead)
    kafka.clock.sleep(31)

    found = planned(kafka, ours)
    status = read_status(kafka, "app", clock=kafka.clock)

    assert (found.kind, found.run_id, found.records, found.refused) == ("resume", "one", 3, None)
    assert found.not_seen == (
        "driver of one holds the lease and renewed it 31 s ago: a begin waits 30 s to see if it is alive",
    )
    assert status.standing is not None
    assert status.standing.text.startswith("went silent 31 s ago, no driver works on it")
    dead.close()


def test_nothing_new_takes_no_time(kafka: InMemoryKafka) -> None:
    ours = application(kafka, stream_time_advance="none")
    for number in range(2):
        feed(kafka, 1)
        ours.run(f"r{number}")
    found = planned(kafka, ours)
    assert (found.kind, found.records, found.tasks, found.expected) == ("nothing new", 0, 0, None)


def test_open_transaction_of_a_dead_task_is_passed_over_as_its_fence_would(kafka: InMemoryKafka) -> None:
    ours = application(kafka)
    feed(kafka, 3)
    slice_ = ours.begin("one")
    dead = kafka.writer(transactional_id="app-0_0")
    dead.init_transactions()
    dead.begin()
    dead.produce("app-metadata", b"done", b"app-0_0", 0, None, None)
    dead.flush()

    found = planned(kafka, ours)

    assert (found.kind, found.run_id) == ("resume", slice_.run_id)


def test_topology_is_asked_for_where_no_run_tells_it(kafka: InMemoryKafka) -> None:
    with pytest.raises(ConfigError, match="no application 'app'"):
        planned(kafka, application(kafka))


@pytest.mark.remedy("next_run._last_topology")
def test_topology_of_a_pattern_is_taken_from_the_file(kafka: InMemoryKafka) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(pattern="in.*").send_to("out")
    ours = application(kafka, builder.build())
    feed(kafka, 1)
    ours.run("one")
    kafka.create_topic("in-2")
    kafka.append("in-2", b"v", b"k")
    with pytest.raises(ConfigError, match="patterns of topics, which only its file has") as refused:
        planned(kafka, ours)
    assert refused.value.fix == "name the application file"

    found = planned(kafka, ours, topology=ours.topology.plan("app"))

    assert [(each.topic, each.records) for each in found.topics] == [("in-2", 1), ("in", 0)]


def test_time_is_taken_from_runs_of_other_sizes() -> None:
    def took(records: int, seconds: int) -> RunSummary:
        return RunSummary(
            run_id="r",
            application_id="app",
            begun_ms=0,
            finished_ms=1000 * seconds,
            generation=1,
            empty=False,
            inputs=(),
            read=(TopicRead(topic="in", partitions=1, start=0, stop=records),),
        )

    history = [took(0, 30), took(1000, 40), took(2000, 50), took(3000, 90)]

    assert expected_time(history[:1], 10) is None
    assert expected_time(history[:3], 4000) == expected_time(history[:3][::-1], 4000)
    found = expected_time(history[:3], 4000)
    assert found is not None
    assert (found.seconds, found.least, found.most) == (70, 70, 70)
    slow = expected_time(history, 3000)
    assert slow is not None
    assert slow.least < slow.seconds < slow.most


def test_settings_of_the_last_run_count_where_none_are_given(kafka: InMemoryKafka) -> None:
    ours = application(kafka, autostop_at="interval_end", stream_time_advance="")
    feed(kafka, 3)
    kafka.clock.sleep(1)
    ours.run("one", interval_ms=(NOW_MS - 3_600_000, NOW_MS + 1))
    feed(kafka, 2)
    kafka.clock.sleep(60)

    found = plan_next(kafka, ApplicationSettings.parse("app"), clock=kafka.clock)

    assert (found.autostop_at, found.interval_ms) == (
        "interval_end",
        (NOW_MS + 1, kafka.clock.now_ms()),
    )
    assert (found.kind, found.records) == ("new", 2)
