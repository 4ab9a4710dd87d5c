"""Sources that read topics by a pattern: which topics a run reads, and that it keeps to them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.needed_permissions import run_permissions
from airflow_kstreams.explore.sampling import take_sample
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, TopologyError
from airflow_kstreams.streams.naming.permissions import Operation
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("patterns-are-matched-by-begin")

APP = "app"
PATTERN = r"flights-\d+"


@pytest.fixture
def kafka() -> InMemoryKafka:
    made = InMemoryKafka()
    for topic in ("flights-1", "flights-2", "flights-old", "out"):
        made.create_topic(topic, partitions=2)
    return made


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def copied() -> Topology:
    made = builder()
    made.stream(pattern=PATTERN).send_to("out")
    return made.build()


def counted() -> Topology:
    made = builder()
    counts = made.stream(pattern=PATTERN).group_by_key().count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    return made.build()


def application(
    kafka: InMemoryKafka, topology: Topology, settings: Mapping[str, str] | None = None
) -> Application:
    return Application(application_id=APP, topology=topology, on=kafka, settings=settings or {})


def fill(kafka: InMemoryKafka, *values: str, topic: str, partition: int = 0) -> None:
    for value in values:
        kafka.append(topic, value.encode(), b"k", partition=partition)


def written(kafka: InMemoryKafka) -> list[bytes | None]:
    return sorted(kafka.values("out"), key=str)


def test_run_reads_every_partition_of_all_topics_that_match(kafka: InMemoryKafka) -> None:
    for topic in ("flights-1", "flights-2", "flights-old"):
        for partition in (0, 1):
            fill(kafka, f"{topic}.{partition}", topic=topic, partition=partition)

    slice_ = application(kafka, copied()).begin("run")
    summary = application(kafka, copied()).run("run")

    assert slice_.plan.topology.patterns == {f"/{PATTERN}/": ("flights-1", "flights-2")}
    assert slice_.plan.partitions == {"flights-1": 2, "flights-2": 2}
    assert written(kafka) == [b"flights-1.0", b"flights-1.1", b"flights-2.0", b"flights-2.1"]
    assert summary.input_topics == {"flights-1", "flights-2"}


def test_topic_that_is_created_while_a_run_is_under_way_enters_with_the_next(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    first = application(kafka, copied())
    first.begin("run-1")
    kafka.create_topic("flights-3", partitions=2)
    fill(kafka, "b", topic="flights-3")

    # The driver begins once more, and finds what was frozen.
    assert first.run("run-1", (0, 2)).input_topics == {"flights-1", "flights-2"}
    assert written(kafka) == [b"a"]

    assert application(kafka, copied()).run("run-2").input_topics == {"flights-1", "flights-2", "flights-3"}
    assert written(kafka) == [b"a", b"b"]


def test_run_that_is_asked_for_again_is_the_same_though_other_topics_match_now(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    done = application(kafka, copied()).run("run-1")
    kafka.create_topic("flights-3", partitions=2)

    with closing(application(kafka, copied()).coordinator()) as coordinator:
        begun = coordinator.begin("run-1", copied().plan(APP), order=(1, 1), owner="again", hold_lease=True)

    assert begun.finished is not None
    assert begun.finished.inputs == done.inputs


def test_run_that_is_asked_for_again_is_refused_when_its_inputs_do_not_match(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    application(kafka, copied()).run("run-1")
    made = builder()
    made.stream(pattern="flights-2").send_to("out")

    with pytest.raises(ConfigError, match="it read flights-1, flights-2, this one reads /flights-2/"):
        application(kafka, made.build()).run("run-1", (1, 1))


def test_hash_holds_the_pattern_and_not_the_matches(kafka: InMemoryKafka) -> None:
    topology = copied()
    matched = topology.matched(["flights-1"])
    other = builder()
    other.stream(pattern=r"flights-\d").send_to("out")
    assert topology.topology_hash() == matched.topology_hash() == topology.plan(APP).topology_hash
    assert other.build().topology_hash() != topology.topology_hash()


def test_state_is_kept_by_key_over_all_matches_and_over_runs(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    fill(kafka, "b", topic="flights-2")
    application(kafka, counted()).run("run-1")
    kafka.create_topic("flights-3", partitions=2)
    fill(kafka, "c", topic="flights-3")

    application(kafka, counted()).run("run-2")

    assert [int.from_bytes(value or b"", "big") for value in kafka.values("out")][-1] == 3


def test_match_is_refused_when_state_is_kept_and_its_partitions_are_others(kafka: InMemoryKafka) -> None:
    kafka.create_topic("flights-3", partitions=3)
    with pytest.raises(TopologyError, match="flights-3"):
        application(kafka, counted()).begin("run-1")
    application(kafka, copied()).begin("run-2")


def test_gone_topic_is_read_no_more_and_named_in_the_warnings(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    application(kafka, copied()).run("run-1")
    kafka.admin().delete_topics(["flights-2"])

    slice_ = application(kafka, copied()).begin("run-2")

    assert slice_.plan.topology.inputs == ("flights-1",)
    (warning,) = slice_.plan.warnings
    assert "topic flights-2 is gone, which matched a pattern of a source" in warning


def test_whole_name_must_match(kafka: InMemoryKafka) -> None:
    kafka.create_topic("flights-1-archive")
    slice_ = application(kafka, copied()).begin("run-1")
    assert slice_.plan.topology.inputs == ("flights-1", "flights-2")


def test_run_is_refused_when_no_topic_matches(kafka: InMemoryKafka) -> None:
    made = builder()
    made.stream(pattern="trains-.*").send_to("out")
    with pytest.raises(TopologyError, match=r"'app': no topic matches the pattern 'trains-\.\*'"):
        application(kafka, made.build()).begin("run")


def test_run_is_refused_when_two_patterns_match_one_topic(kafka: InMemoryKafka) -> None:
    made = builder()
    made.stream(pattern="flights-.*").send_to("out")
    made.stream(pattern=PATTERN).send_to("out")
    with pytest.raises(TopologyError, match="'flights-1' matches the patterns"):
        application(kafka, made.build()).begin("run")


def test_run_is_refused_when_a_pattern_matches_the_dead_letter_topic(kafka: InMemoryKafka) -> None:
    settings = {
        "processing.exception.handler": "dead-letter",
        "errors.dead.letter.queue.topic.name": "flights-2",
    }
    with pytest.raises(TopologyError, match="matches 'flights-2', which takes its dead letters"):
        application(kafka, copied(), settings).begin("run")


@pytest.mark.parametrize(
    ("pattern", "what"),
    [("o.*", "'out', which .* writes"), ("named|x", "'named', which .* reads")],
)
def test_topology_is_refused_when_a_pattern_matches_its_own_topics(pattern: str, what: str) -> None:
    made = builder()
    made.stream(pattern=pattern).merge(made.stream("named")).send_to("out")
    with pytest.raises(TopologyError, match=what):
        made.build()


@pytest.mark.parametrize("pattern", ["app-.*", ".*-changelog", "app-runs", ".*-repartition"])
def test_topology_is_refused_when_a_pattern_matches_topics_of_the_engine(pattern: str) -> None:
    made = builder()
    made.stream(pattern=pattern).group_by(lambda key, value: value, name="by").count(store="counts")
    with pytest.raises(TopologyError, match="which is the engine's"):
        made.build().plan(APP)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "("}, "no regular expression"),
        ({"pattern": 5}, "is given 5 as pattern"),
        ({"topics": "a", "pattern": "b"}, "'b' as pattern beside topics"),
    ],
)
def test_pattern_is_refused_where_it_stands(arguments: dict[str, Any], message: str) -> None:
    topics = arguments.pop("topics", "")
    with pytest.raises(TopologyError, match=message):
        builder().stream(*topics, **arguments)


def test_describe_status_doctor_and_acls_show_the_pattern(kafka: InMemoryKafka) -> None:
    topology = copied()
    assert rf"topics: [/{PATTERN}/]" in topology.describe()
    scene = application(kafka, topology)
    scene.run("run-1")
    status = read_status(kafka, APP)
    assert status.slice is not None
    assert status.slice.plan.topology.patterns == {f"/{PATTERN}/": ("flights-1", "flights-2")}
    plan = topology.plan(APP)
    found = diagnose(kafka, Subject(plan=plan, settings=scene.checked))
    assert (Level.OK, rf"/{PATTERN}/ matches flights-1, flights-2") in [(f.level, f.text) for f in found]
    reading = [p for p in run_permissions(plan, scene.checked) if p.reason == "input"]
    assert [(p.operation, p.name, p.prefixed) for p in reading] == [(Operation.READ, "flights-", True)]


def test_sample_is_of_all_topics_that_match(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    fill(kafka, "b", topic="flights-2")
    plan = copied().plan(APP)
    for last in (5, {f"/{PATTERN}/": 5}):
        sample = take_sample(kafka, plan, last, lambda done, total: None)
        assert [record.topic for record in sample.records] == ["flights-1", "flights-2"]


def test_continuous_run_reads_what_matches_when_it_starts(kafka: InMemoryKafka) -> None:
    scene = SwitchingApplication(topology=copied(), cluster=kafka, clock=kafka.clock)
    running = scene.run_continuously("c-1")
    fill(kafka, "a", topic="flights-1")
    fill(kafka, "b", topic="flights-2")
    for _ in range(4):
        running.rounds(2)
        kafka.clock.sleep(scene.checked.commit_interval_ms / 1000)
    running.stop()
    assert written(kafka) == [b"a", b"b"]


def test_ledger_says_which_topics_were_read(kafka: InMemoryKafka) -> None:
    fill(kafka, "a", topic="flights-1")
    application(kafka, copied()).run("run-1")
    ledger = read_ledger(
        kafka, APP, admin=kafka.admin(), reader=kafka.reader(group_id=APP), wait_ms=0, clock=kafka.clock
    )
    last = ledger.last()
    assert last is not None
    assert last.input_topics == {"flights-1", "flights-2"}


def test_partition_grouper_of_the_users_own_is_asked_with_the_matches(kafka: InMemoryKafka) -> None:
    from airflow_kstreams.streams import FixedGroups

    made = KStreamBuilder(
        default_key_serde=serdes.string(),
        default_value_serde=serdes.string(),
        partition_grouper=FixedGroups(1),
    )
    made.stream(pattern=PATTERN).send_to("out")
    fill(kafka, "a", topic="flights-1")
    fill(kafka, "b", topic="flights-2", partition=1)

    summary = application(kafka, made.build()).run("run")

    assert len(summary.tasks) == 1
    assert written(kafka) == [b"a", b"b"]


def test_error_crosses_processes(kafka: InMemoryKafka) -> None:
    with pytest.raises(KStreamsError) as refused:
        copied().matched(["trains"])
    assert refused.value.to_dict()["type"] == "TopologyError"
