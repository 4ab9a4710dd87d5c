"""A dead letter is not brought back to a topic from which no task would read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.dead_letter_scene import DEAD, SETTINGS, Scene

pytestmark = pytest.mark.promise("dead-letters-come-back-to-readers")

APP = SETTINGS.application_id
REKEYED = f"{APP}-rekeyed-repartition"


def code(*between: str) -> Topology:
    """``in`` -> ``out``, and by way of topics between: ``rekeyed``, ``mid``."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream = builder.stream("in")
    stream.send_to("out")
    if "rekeyed" in between:
        stream.repartition(3, name="rekeyed").send_to("behind")
    if "mid" in between:
        stream.through("mid").send_to("behind")
    return builder.build()


def two_inputs(without: str = "") -> Topology:
    """``in`` -> ``out`` and ``mid`` -> ``behind``, less the one without."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    for topic, out in {"in": "out", "mid": "behind"}.items():
        if topic != without:
            builder.stream(topic).send_to(out)
    return builder.build()


#: A record, and the marker of its transaction.
DROPPED = (
    "no task reads topic in any more: records stay unread there, 2 at most, any dead letters that were "
    "brought back included; code that reads the topic again goes on with them"
)
OLD, NEW = code("rekeyed", "mid"), code()


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    for topic in ("out", "behind"):
        scene.kafka.create_topic(topic)
    return scene


def app(scene: Scene, topology: Topology) -> SwitchingApplication:
    return SwitchingApplication(topology=topology, cluster=scene.kafka, clock=scene.clock)


def behind(scene: Scene) -> list[bytes | None]:
    return scene.kafka.values("behind")


def refused(scene: Scene, replay_id: str = "r1") -> ConfigError:
    with pytest.raises(ConfigError, match="no task of application 'app' reads any more") as planned:
        scene.tool(replay_id).plan()
    with pytest.raises(ConfigError) as caught:
        scene.replay(replay_id)
    assert caught.value.cause == planned.value.cause
    return caught.value


@pytest.mark.parametrize("topic", [REKEYED, "mid"])
def test_letter_comes_back_when_the_last_run_reads_its_topic(scene: Scene, topic: str) -> None:
    app(scene, OLD).batch("run-1")
    scene.letter("a", topic, 0)
    assert scene.replay().records_per_topic == {topic: 1}
    app(scene, OLD).batch("run-2")
    assert behind(scene) == [b"a"]


@pytest.mark.parametrize("topic", [REKEYED, "mid"])
@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("under_way", [False, True])
def test_letter_is_refused_when_the_last_run_does_not_read_its_topic(
    scene: Scene, topic: str, endless: bool, under_way: bool
) -> None:
    app(scene, OLD).batch("run-1")
    scene.letter("a", "in", 0)
    scene.letter("b", topic, 0)
    scene.kafka.append("in", b"v", b"k")
    if endless:
        running = app(scene, NEW).run_continuously("run-2")
        running.close() if under_way else running.stop()
    elif under_way:
        app(scene, NEW).begin("run-2")
    else:
        app(scene, NEW).batch("run-2")

    error = refused(scene)
    assert f"{DEAD}-0@1 came from topic {topic!r}" in error.cause
    assert not scene.kafka.values(topic)


@pytest.mark.parametrize("topic", [REKEYED, "mid"])
@pytest.mark.remedy("destinations.Destinations.refuse_unread")
def test_both_ways_out_bring_each_letter_back_once(scene: Scene, topic: str) -> None:
    app(scene, OLD).batch("run-1")
    scene.letter("a", topic, 0)
    scene.letter("b", "in", 0)
    app(scene, NEW).batch("run-2")
    refused(scene)

    assert scene.replay("r2", where={"topic": "in"}).records_per_topic == {"in": 1}
    app(scene, NEW).batch("run-3")
    assert scene.kafka.values("out") == [b"b"]

    app(scene, OLD).batch("run-4")
    assert scene.replay("r3").records_per_topic == {topic: 1}
    app(scene, OLD).batch("run-5")
    assert behind(scene) == [b"a"]
    assert scene.kafka.values("out") == [b"b"]


def test_letter_of_an_input_that_was_dropped_is_refused(scene: Scene) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("mid").send_to("out")
    app(scene, NEW).batch("run-1")
    app(scene, builder.build()).batch("run-2")
    scene.letter("a", "in", 0)
    assert f"{DEAD}-0@0 came from topic 'in'" in refused(scene).cause


@pytest.mark.promise("dropped-topics-are-said")
@pytest.mark.remedy("run_checks._left_unread")
@pytest.mark.parametrize("endless", [False, True])
def test_first_run_that_drops_a_topic_says_what_a_replay_has_brought_back_there(
    scene: Scene, endless: bool
) -> None:
    app(scene, two_inputs()).batch("run-1")
    scene.letter("a", "in", 0)
    assert scene.replay().records_per_topic == {"in": 1}
    scene.kafka.append("mid", b"m", b"k")

    new = app(scene, two_inputs("in"))
    subject = Subject(plan=new.topology.plan(APP), settings=new.checked)
    (found,) = (one for one in diagnose(scene.kafka, subject, clock=scene.clock) if one.check == "inputs")
    assert (found.level, found.text) == (Level.WARNING, DROPPED)
    if endless:
        running = new.run_continuously("run-2")
        assert DROPPED in running.run.plan.warnings
        running.stop()
    else:
        assert DROPPED in new.begin("run-2").plan.warnings
        new.batch("run-2")
    assert not new.begin("run-3").plan.warnings, "said once"
    new.batch("run-3")
    app(scene, two_inputs()).batch("run-4")
    assert scene.kafka.values("out") == [b"a"]


class Hidden:
    """Lets this user not look at ``in``."""

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == "admin.describe_topics" and "in" in arguments[0]:
            raise AccessDeniedError(
                what="looking at in",
                where="b:1",
                permission=Permission(operation=Operation.DESCRIBE, resource=Resource.TOPIC, name="in"),
                principal="",
                kafka_code="TOPIC_AUTHORIZATION_FAILED",
            )
        return effect()


@pytest.mark.promise("dropped-topics-are-said")
def test_first_run_says_that_it_may_not_look_at_a_topic_that_it_drops(scene: Scene) -> None:
    app(scene, two_inputs()).batch("run-1")
    scene.letter("a", "in", 0)
    scene.replay()
    new = app(scene, two_inputs("in"))
    new.cluster = FaultyCluster(scene.kafka, Hidden())
    (warning,) = new.begin("run-2").plan.warnings
    assert warning.startswith("no task reads in any more; whether records stay unread there could not be")
    assert warning.endswith("this user needs the permission Describe on topic in")


def test_letter_of_a_repartition_topic_is_refused_when_the_only_run_that_read_it_was_dropped(
    scene: Scene,
) -> None:
    scene.kafka.append("in", b"v", b"k")
    old = app(scene, code("rekeyed"))
    old.batches.tasks(old.begin("run-1"))
    request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
    with ApplicationReset(scene.kafka, request, clock=scene.clock) as reset:
        reset.run()
    app(scene, NEW).batch("run-2")
    scene.letter("a", REKEYED, 0)
    assert f"{DEAD}-0@0 came from topic {REKEYED!r}" in refused(scene).cause


def test_letter_of_another_application_comes_back(scene: Scene) -> None:
    app(scene, NEW).batch("run-1")
    scene.letter("a", "mid", 0)
    assert scene.replay().records_per_topic == {"mid": 1}


def failing_branch(topic: str) -> Topology:
    """A topic -> ``app-rekeyed-repartition`` -> ``behind``, which takes no record whose value is ``bad``."""

    def taken(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return f"{topic}: {value}"

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(topic).repartition(3, name="rekeyed").map_values(taken).send_to("behind")
    return builder.build()


def run(scene: Scene, topology: Topology, run_id: str) -> None:
    SwitchingApplication(
        topology=topology,
        cluster=scene.kafka,
        clock=scene.clock,
        settings={"processing.exception.handler": "dead-letter"},
    ).batch(run_id)


@pytest.mark.remedy("destinations.Destinations.refuse_unread")
def test_letter_of_a_branch_is_refused_while_another_one_has_its_topic(scene: Scene) -> None:
    scene.kafka.append("in", b"bad", b"k")
    run(scene, failing_branch("in"), "run-1")
    scene.kafka.append("mid", b"good", b"k")
    run(scene, failing_branch("mid"), "run-2")

    with pytest.raises(ConfigError) as caught:
        scene.replay()
    assert "topic 'app-rekeyed-repartition' when that held what is made of in" in caught.value.cause
    assert "puts what is made of mid there now" in caught.value.cause

    run(scene, failing_branch("in"), "run-3")
    assert scene.replay().records_per_topic == {REKEYED: 1}
    run(scene, failing_branch("in"), "run-4")
    assert scene.replay("r2").records_per_topic == {REKEYED: 1}, "the letter that was made of it again"
    assert behind(scene) == [b"mid: good"]


@pytest.mark.remedy("destinations.Destinations.look_up")
def test_letter_of_a_repartition_topic_comes_back_when_a_run_has_made_that_again(scene: Scene) -> None:
    scene.kafka.append("in", b"bad", b"k")
    run(scene, failing_branch("in"), "run-1")
    scene.kafka.admin().delete_topics([REKEYED])
    with pytest.raises(ConfigError, match="which does not exist any more") as caught:
        scene.replay()
    assert caught.value.fix.startswith("let a run of the application make the topic, then run the replay")

    run(scene, failing_branch("in"), "run-2")
    assert scene.replay().records_per_topic == {REKEYED: 1}
