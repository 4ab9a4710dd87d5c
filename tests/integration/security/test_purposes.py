"""The lists of ACLs for everything but batch runs: enough, and nothing to spare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.cimpl import NewPartitions

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand.growth import grow_topic
from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion
from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import NewData, RunFinished, StopOffsetsReached
from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.inspect.state import StoredState
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.needed_permissions import (
    continuous_permissions,
    doctor_permissions,
    expand_permissions,
    expand_processors_permissions,
    replay_permissions,
    run_permissions,
    state_permissions,
    watch_permissions,
)
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams import KStreamBuilder, Topology, partition_of_key, serdes
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.servers.secured import SecuredBroker
from tests.conftest import Row
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Allow = Callable[[Iterable[Permission]], None]


def counts(app: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    words = builder.stream(f"in-{app}").group_by(lambda key, value: value)
    words.count(store="counts").to_stream().send_to(f"out-{app}", value_serde=serdes.int64())
    return builder.build()


@pytest.fixture
def topology(application_id: str, create_topic: Callable[..., str]) -> Topology:
    for name in ("in", "out"):
        create_topic(f"{name}-{application_id}", 1)
    return counts(application_id)


@pytest.fixture
def cluster(secured_broker: SecuredBroker) -> KafkaCluster:
    """As carol sees it."""
    return KafkaCluster(
        {"bootstrap.servers": secured_broker.scram_bootstrap, **secured_broker.scram_config("carol")}
    )


@pytest.fixture
def finished_and_waiting(
    kafka: str, application_id: str, topology: Topology, produce: Callable[..., None]
) -> Application:
    """By the super user: run-1 is finished, run-2 has begun, and something new has come since."""
    application = Application(bootstrap=kafka, application_id=application_id, topology=topology)
    source = f"in-{application_id}"
    produce(source, [("k", "ant"), ("k", "bee")])
    application.run("run-1")
    produce(source, [("k", "ant")])
    slice_ = application.begin("run-2")
    application.task(slice_, 0, 0)
    produce(source, [("k", "cat")])
    return application


def test_continuous_mode_needs_to_delete_the_metadata_topic(
    cluster: KafkaCluster,
    topology: Topology,
    application_id: str,
    allow: Allow,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
    wait_until: Callable[..., Any],
) -> None:
    application = SwitchingApplication(
        topology=topology,
        cluster=cluster,
        clock=SystemClock(),
        application_id=application_id,
        settings={"commit.every.records": 1, "commit.interval.ms": 50, "lease.ms": 3_000},
    )
    plan = topology.plan(application_id)
    allow(run_permissions(plan, application.checked))
    produce(f"in-{application_id}", [("k", "ant")])
    application.batch("run-1")
    (delete,) = continuous_permissions(application_id)

    with pytest.raises(AccessDeniedError) as refused:
        application.run_continuously("on-1")

    named = refused.value.permission
    assert (named.operation, named.name) == (Operation.DELETE, delete.name)
    allow([delete])
    running = application.run_continuously("on-1", order=(0, 2))
    produce(f"in-{application_id}", [("k", "ant")])

    def counted() -> bool:
        running.rounds()
        return len(consume_all(f"out-{application_id}")) == 2

    wait_until(counted, "the continuous run's result")
    running.housekeeping.purge_processed()
    running.stop()
    running.close()
    application.batch("run-2")


def watch_all(cluster: KafkaCluster, app: str) -> None:
    """Ask every question that sensors and ``status`` ask."""
    with ClusterView(cluster) as view:
        finished = RunFinished(application_id=app, run_id="run-1").evaluate(view)
        new = NewData(application_id=app).evaluate(view)
        at_stop = StopOffsetsReached(application_id=app, run_id="run-2", subtopology=0).evaluate(view)
        behind = StopOffsetsReached(application_id=app, run_id="run-2", subtopology=1).evaluate(view)
    assert finished is not None
    assert new is not None
    assert new["records"] == 1
    assert at_stop is not None
    assert behind is None
    status = read_status(cluster, app)
    assert [run.run_id for run in status.runs] == ["run-1"]
    assert sum(status.lag.values()) >= 2


def test_watching_needs_exactly_its_list(
    finished_and_waiting: Application, cluster: KafkaCluster, application_id: str, allow: Allow
) -> None:
    # What is optional matters once topics have grown.
    all_of_it = watch_permissions(finished_and_waiting.topology.plan(application_id))
    listed = [each for each in all_of_it if not each.without]
    assert {each.operation for each in listed} == {Operation.READ, Operation.DESCRIBE}
    given: list[Permission] = []
    for each in listed:
        with pytest.raises((AssertionError, AccessDeniedError)):
            watch_all(cluster, application_id)
        allow([each])
        given.append(each)
    watch_all(cluster, application_id)


def test_reading_stores_needs_exactly_its_list(
    finished_and_waiting: Application, cluster: KafkaCluster, application_id: str, allow: Allow
) -> None:
    topology = finished_and_waiting.topology

    def read() -> dict[str, int]:
        with StoredState(cluster, topology, application_id, "counts") as state:
            found = {entry.key: entry.value for entry in state.all()}
            assert state.as_of().run_id == "run-2"
        return found

    listed = state_permissions(topology.plan(application_id))
    for each in listed:
        with pytest.raises(AccessDeniedError) as refused:
            read()
        missing = refused.value.permission
        assert any(one.covers(missing.operation, missing.resource, missing.name) for one in listed), missing
        allow([each])
    assert read() == {"ant": 1, "bee": 1}


def test_growing_a_topic_needs_exactly_its_list(
    finished_and_waiting: Application, cluster: KafkaCluster, application_id: str, allow: Allow
) -> None:
    topic, settings = f"in-{application_id}", finished_and_waiting.checked

    def grow() -> None:
        grow_topic(cluster, settings, topic=topic, count=3)

    listed = expand_permissions(finished_and_waiting.topology.plan(application_id))
    for each in listed:
        with pytest.raises(AccessDeniedError) as refused:
            grow()
        missing = refused.value.permission
        assert any(one.covers(missing.operation, missing.resource, missing.name) for one in listed), missing
        allow([each])
    grow()
    assert grow_topic(cluster, settings, topic=topic, count=3, dry_run=True).done


def kept_by_key(app: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counted = builder.stream(f"in-{app}").group_by_key().count(store="counts").to_stream()
    counted.send_to(f"out-{app}", value_serde=serdes.int64())
    return builder.build()


@pytest.fixture
def grown(
    kafka: str,
    application_id: str,
    create_topic: Callable[..., str],
    kafka_admin: AdminClient,
    produce: Callable[..., None],
) -> Application:
    """By the super user: an application whose input has two partitions, of one at first, all of them read."""
    source = create_topic(f"in-{application_id}", 1)
    create_topic(f"out-{application_id}", 1)
    application = Application(
        bootstrap=kafka, application_id=application_id, topology=kept_by_key(application_id)
    )
    produce(source, [("a", "1"), ("b", "1")])
    application.run("run-1")
    for future in kafka_admin.create_partitions([NewPartitions(source, 2)]).values():
        future.result()
    produce(
        source, [Row(key=key, value="2", partition=partition_of_key(key.encode(), 1, 2)) for key in "abcd"]
    )
    application.run("run-2")
    application.run("run-3")
    return application


def copy(cluster: ClusterPort, settings: ApplicationSettings) -> None:
    with ProcessorExpansion(cluster, settings, subtopology=None, count=2) as tool:
        tool.run(CatchUpOptions(follow=False))


@pytest.mark.promise("catch-ups-need-what-is-listed")
def test_copying_state_for_more_processors_needs_exactly_its_list(
    grown: Application, cluster: KafkaCluster, application_id: str, allow: Allow
) -> None:
    listed = expand_processors_permissions(grown.topology.plan(application_id))
    for each in listed:
        with pytest.raises(AccessDeniedError) as refused:
            copy(cluster, grown.checked)
        missing = refused.value.permission
        # Of a group the client says Read, where Describe is enough.
        assert any(one.covers(one.operation, missing.resource, missing.name) for one in listed), missing
        allow([each])
    copy(cluster, grown.checked)


@pytest.mark.promise("catch-ups-need-what-is-listed")
def test_runs_take_over_once_their_user_may_see_what_is_copied_and_go_on_before(
    grown: Application, secured_broker: SecuredBroker, application_id: str, allow: Allow
) -> None:
    copy(grown.cluster, grown.checked)
    carols = Application(
        bootstrap=secured_broker.scram_bootstrap,
        client=secured_broker.scram_config("carol"),
        application_id=application_id,
        topology=grown.topology,
    )
    listed = run_permissions(grown.topology.plan(application_id), carols.checked)
    (optional,) = [each for each in listed if each.resource is Resource.GROUP and each.without]
    allow(each for each in listed if each != optional)
    warned = carols.run("run-4").warnings
    assert any("more processors is unknown" in line and str(optional.name) in line for line in warned), warned
    allow([optional])
    assert carols.begin("run-5").plan.tasks == {"0": 2}


def test_replay_of_dead_letters_needs_exactly_its_list(
    kafka: str,
    cluster: KafkaCluster,
    application_id: str,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
    allow: Allow,
) -> None:
    source, target = create_topic(f"in-{application_id}", 1), create_topic(f"out-{application_id}", 1)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    builder.stream(source).send_to(target)
    runs = Application(
        bootstrap=kafka,
        application_id=application_id,
        topology=builder.build(),
        settings={"deserialization.exception.handler": "dead-letter"},
    )
    produce(source, [("k", b"no number")])
    runs.run("run-1")
    listed = replay_permissions(runs.topology.plan(application_id), runs.checked)
    for number, each in enumerate(listed):
        with pytest.raises(AccessDeniedError):
            DeadLetterReplay(cluster, runs.checked, replay_id=f"replay-{number}").run()
        allow([each])
    assert [row.value for row in consume_all(source)] == [b"no number"]
    done = DeadLetterReplay(cluster, runs.checked, replay_id="replay").run()
    assert done.records_per_topic == {source: 1}
    assert [row.value for row in consume_all(source)] == [b"no number"] * 2


def test_doctor_sees_everything_with_its_list_and_says_what_it_may_not_see(
    finished_and_waiting: Application, cluster: KafkaCluster, application_id: str, allow: Allow
) -> None:
    plan = finished_and_waiting.topology.plan(application_id)
    settings = ApplicationSettings.parse(application_id, {})
    allow(run_permissions(plan, settings))

    def not_seen() -> list[str]:
        found = diagnose(cluster, Subject(plan=plan, settings=settings))
        return [each.text for each in found if each.check == "permissions"]

    listed = doctor_permissions()
    assert len(not_seen()) == 2, "the brokers' own topics, and their settings"
    for last, each in enumerate(listed, start=1):
        allow([each])
        if last < len(listed):
            assert not_seen(), dataclasses.asdict(each)
    assert not_seen() == []
