"""A topic that the application itself is told to grow: what is said before, what is refused, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.expand.growth import GrowthPlan, grow_topic
from airflow_kstreams.streams import FixedGroups, KStreamBuilder, Topology
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, KStreamsError, TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.topic_growth import LINEAR, GrownTopic
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import FaultyCluster
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("keys-stay-when-topics-grow", "growth-is-refused-before-it-happens")


def grown(scene: Scene, count: int | str, *, on: ClusterPort) -> GrowthPlan:
    return grow_topic(on, scene.app.checked, topic="in", count=count)


def planned(scene: Scene, count: int, topic: str = "in") -> GrowthPlan:
    return grow_topic(scene.kafka, scene.app.checked, topic=topic, count=count, dry_run=True)


def expanded(scene: Scene, count: int | str, topic: str = "in") -> GrowthPlan:
    done = grow_topic(scene.kafka, scene.app.checked, topic=topic, count=count)
    scene.count = has(scene)
    return done


def has(scene: Scene, topic: str = "in") -> int:
    return len(scene.kafka.partitions(topic))


def begun(first: int, topology: Topology | None = None, **more: Any) -> Scene:
    """A scene with a run behind it."""
    scene = Scene(first, topology, **more)
    scene.send(KEYS, 0)
    scene.run()
    return scene


def test_keys_stay_with_their_state_when_the_command_grows_the_topic() -> None:
    scene = begun(2)
    for value, count in enumerate([3, 5], start=1):
        assert expanded(scene, count).before < count
        scene.send(KEYS, value)
        scene.run()
    scene.run()
    scene.run()
    assert scene.listed == scene.sent
    assert scene.recorded.grown["in"].history == (2, 3, 5)
    assert len(scene.recorded.by_group) == 2


def test_plan_says_what_begin_will_make_of_the_new_count() -> None:
    scene = begun(2)
    scene.send(KEYS, 1)
    plan = planned(scene, 5)
    assert has(scene) == 2
    assert (plan.before, plan.count, plan.tasks, plan.done, plan.continuous) == (2, 5, 2, False, False)
    assert plan.grown is not None
    assert (plan.grown.history, plan.grown.kinds) == ((2, 5), ("linear",))
    assert [(new.partition.partition, new.group, new.ancestors) for new in plan.new] == [
        (2, 0, (0,)),
        (3, 1, (1,)),
        (4, 0, (0,)),
    ]
    expanded(scene, 5)
    scene.send([key for key in KEYS if partition_of_key(key.encode(), 2, 5) >= 2], 2)
    scene.run()
    recorded = scene.recorded
    assert recorded.grown["in"] == plan.grown
    assert {
        str(wait.partition): {at.partition.partition: at.boundary for at in wait.ancestors}
        for wait in plan.waits
    } == recorded.boundaries
    assert all(wait.ahead for wait in plan.waits)


def test_nothing_would_wait_when_all_is_processed() -> None:
    plan = planned(begun(2), 4)
    assert (plan.grown and plan.grown.kinds, plan.waits) == (("linear", "modulo"), ())


@pytest.mark.promise("topics-grow-once-by-the-operator")
def test_nothing_is_done_when_the_topic_has_so_many_partitions() -> None:
    scene = begun(2)
    calls: list[str] = []

    class Calls:
        def call(self, name: str, client: object, effect: Callable[[], Any], arguments: object) -> Any:
            calls.append(name)
            return effect()

    assert not grown(scene, 3, on=FaultyCluster(scene.kafka, Calls())).done
    assert calls.count("admin.create_partitions") == 1
    assert grown(scene, 3, on=FaultyCluster(scene.kafka, Calls())).done
    assert calls.count("admin.create_partitions") == 1
    assert not [name for name in calls if name.startswith(("writer.", "cluster.writer"))]


@pytest.mark.promise("topics-grow-once-by-the-operator")
def test_same_command_goes_on_when_the_answer_was_lost() -> None:
    scene = begun(2)

    class Lost:
        def call(self, name: str, client: object, effect: Callable[[], Any], arguments: object) -> Any:
            result = effect()
            if name == "admin.create_partitions":
                raise KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
            return result

    with pytest.raises(KafkaClientError):
        grown(scene, 3, on=FaultyCluster(scene.kafka, Lost()))
    assert has(scene) == 3
    assert expanded(scene, 3).done
    scene.send(KEYS, 1)
    scene.run()
    scene.run()
    assert scene.listed == scene.sent


def test_growth_is_said_to_be_free_when_no_state_depends_on_it() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").send_to("out")
    scene = begun(4, builder.build())
    plan = expanded(scene, 5)
    assert (plan.grown, plan.new, plan.waits, plan.tasks) == (None, (), (), 5)
    assert has(scene) == 5


def joined() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    table = builder.table("rates", store="rates")
    builder.stream("in").join(table, lambda left, right: [left, right]).send_to("out")
    return builder.build()


def grouped() -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.string(),
        default_value_serde=serdes.json(),
        partition_grouper=FixedGroups(2),
    )
    builder.stream("in").group_by_key().count(store="counted").to_stream().send_to("out")
    return builder.build()


def repartitioned() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    again = builder.stream("in").group_by(lambda key, value: key, name="again")
    again.count(store="counted").to_stream().send_to("out")
    return builder.build()


def modulo() -> Scene:
    """A topic whose keys have told that it grows by Kafka's default partitioner."""
    scene = begun(2)
    scene.grow(6)
    for value in (1, 2, 3):
        scene.send(KEYS, value, modulo=True)
        scene.run()
    assert scene.recorded.grown["in"].kinds == ("modulo",)
    return scene


def not_run() -> Scene:
    """The cluster knows the application, of which no run has begun."""
    scene = Scene(4)
    scene.kafka.create_topic("app-dead-letter")
    return scene


@pytest.mark.parametrize(
    ("make", "topic", "count", "error", "message"),
    [
        (lambda: begun(4), "in", 3, TopologyError, "has 4 partitions, and a topic never loses any: 3"),
        (lambda: begun(4), "in", 0, ConfigError, "cannot have 0 partitions"),
        (lambda: begun(4), "in", "many", ConfigError, "cannot have 'many' partitions"),
        (modulo, "in", 8, TopologyError, "2 -> 6 partitions with Kafka's default.*8 is no multiple of 6"),
        (lambda: begun(4), "elsewhere", 8, ConfigError, r"does not read topic 'elsewhere' \[KS-APP-001\]\n"),
        (lambda: begun(4), "out", 8, ConfigError, "does not read topic 'out', it only writes it"),
        (lambda: begun(4), "app-listed-changelog", 8, ConfigError, "is an internal one"),
        (lambda: begun(4), "app-runs", 8, ConfigError, "is an internal one"),
        (lambda: begun(2, repartitioned()), "app-again-repartition", 4, ConfigError, "is an internal one"),
        (lambda: begun(2, grouped()), "in", 4, ConfigError, "partition grouper 'fixed-groups-2'"),
        (not_run, "in", 8, ConfigError, "has no run yet"),
        (lambda: Scene(4), "in", 8, ConfigError, "there is no application 'app'"),
    ],
)
def test_growth_is_refused_before_anything_changes(
    make: Callable[[], Scene], topic: str, count: int | str, error: type[KStreamsError], message: str
) -> None:
    scene = make()
    before = {name: len(scene.kafka.partitions(name)) for name in scene.kafka.topics()}
    with pytest.raises(error, match=message) as caught:
        expanded(scene, count, topic)
    assert caught.value.fix
    assert {name: len(scene.kafka.partitions(name)) for name in scene.kafka.topics()} == before


def test_growth_is_refused_when_keys_of_this_run_have_told_the_kind() -> None:
    """What tasks rule out stands beside offsets first, and is recorded by the next begin."""
    scene = begun(2)
    scene.grow(6)
    scene.send(KEYS, 1, modulo=True)
    scene.run()
    scene.run()
    assert scene.recorded.grown["in"].kinds == ("linear", "modulo")
    with pytest.raises(TopologyError, match="8 is no multiple of 6"):
        planned(scene, 8)
    assert planned(scene, 12).grown is not None


def joined_scene(partners: int, **more: Any) -> Scene:
    scene = Scene(2, joined(), **more)
    scene.kafka.create_topic("rates", partitions=partners)
    return scene


def test_growth_is_refused_when_partners_would_not_have_begun_alike() -> None:
    scene = joined_scene(2)
    scene.send(KEYS, 0)
    scene.run()
    assert planned(scene, 4).tasks == 2
    # Its state goes, and the topic is another one: nothing is known of its first count.
    scene.kafka.admin().delete_topics(["app-rates-changelog", "in"])
    scene.kafka.create_topic("in", partitions=2)
    with pytest.raises(TopologyError, match="joins topics that need equal partition counts, but 'in' has 4"):
        expanded(scene, 4)
    assert has(scene) == 2


def test_growth_is_refused_when_nothing_says_with_how_many_partitions_the_topic_began() -> None:
    scene = begun(2)
    scene.kafka.admin().delete_topics(["app-listed-changelog"])
    assert planned(scene, 3).grown == GrownTopic((2, 3), (LINEAR,)), "the first count outlives state"
    scene.kafka.admin().delete_topics(["in"])
    scene.kafka.create_topic("in", partitions=2)
    scene.send(KEYS, 1)
    with pytest.raises(ConfigError, match=r"no run .* has recorded how many partitions") as caught:
        expanded(scene, 3)
    assert "initial.partitions=in=2" in caught.value.fix
    assert has(scene) == 2
    scene.app.settings = {**scene.app.settings, "initial.partitions": "in=2"}
    plan = expanded(scene, 3)
    assert plan.grown is not None and plan.grown.history == (2, 3)


def test_moved_keys_lie_where_the_plan_says() -> None:
    scene = begun(2)
    plan = planned(scene, 7)
    parents = {new.partition.partition: new.ancestors for new in plan.new}
    for key in (f"other-{n}".encode() for n in range(300)):
        now, then = partition_of_key(key, 2, 2), partition_of_key(key, 2, 7)
        assert then == now or now in parents[then]


def test_run_under_way_goes_on_when_the_topic_grows() -> None:
    scene = begun(2)
    scene.send(KEYS, 1)
    slice_ = scene.app.begin("under-way")
    assert expanded(scene, 3).before == 2
    scene.send(KEYS, 2)
    scene.app.tasks(slice_)
    scene.app.finish("under-way")
    assert {tuple(values) for values in scene.listed.values()} == {(0, 1)}
    for _ in range(2):
        scene.run()
    assert scene.listed == scene.sent
