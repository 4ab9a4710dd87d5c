"""Applications whose names and stores name one topic: each keeps to its own topics."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import pytest

from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import AccessDeniedError, TopologyError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("internal-topics-are-not-shared")

SHARED = "orders-eu-totals-changelog"
T = TypeVar("T")
REPARTITION = "orders-eu-totals-repartition"


def counting(source: str, store: str, target: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    grouped = builder.stream(source).group_by(lambda _, value: value, name=store)
    grouped.count(store=store).to_stream().send_to(target, value_serde=serdes.int64())
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("all", "all-out", "eu", "eu-out"):
        kafka.create_topic(topic)
    return kafka


@pytest.fixture
def orders(kafka: InMemoryKafka) -> Application:
    topology = counting("all", "eu-totals", "all-out")
    return Application(application_id="orders", topology=topology, on=kafka, clock=kafka.clock)


@pytest.fixture
def orders_eu(kafka: InMemoryKafka) -> Application:
    topology = counting("eu", "totals", "eu-out")
    return Application(application_id="orders-eu", topology=topology, on=kafka, clock=kafka.clock)


def publish(kafka: InMemoryKafka, topic: str, *values: str) -> None:
    for value in values:
        kafka.append(topic, value.encode(), b"k")


def counts(kafka: InMemoryKafka, topic: str) -> list[int]:
    return [int.from_bytes(value or b"", "big") for value in kafka.values(topic)]


def refused(app: Application, run_id: str = "run") -> TopologyError:
    with pytest.raises(TopologyError) as caught:
        app.begin(run_id)
    assert not caught.value.is_retriable
    return caught.value


def topic_id(kafka: InMemoryKafka, topic: str) -> str:
    return kafka.admin().describe_topics([topic])[topic].topic_id


def rewrite(kafka: InMemoryKafka, topic: str, *, written: bool) -> None:
    """Make the topic anew, by another program."""
    kafka.admin().delete_topics([topic])
    policy = "compact" if topic.endswith("-changelog") else "delete"
    kafka.create_topic(topic, cleanup_policy=policy, retention_ms="-1", retention_bytes="-1")
    if written:
        kafka.append(topic, b"\0\0\0\0\0\0\0\x07", b"a")


@pytest.mark.remedy("topic_owners.refuse_foreign")
def test_second_application_is_refused_and_the_first_is_named_when_names_coincide(
    kafka: InMemoryKafka, orders: Application, orders_eu: Application
) -> None:
    publish(kafka, "all", "a", "a")
    publish(kafka, "eu", "a", "a")
    orders.run("run-1")
    error = refused(orders_eu)
    assert f"topic {SHARED} of application 'orders-eu' also belongs to application 'orders'" in error.cause
    assert f"topic {REPARTITION}" in error.cause
    assert "another id" in error.fix and "another name" in error.fix
    assert "orders-eu-metadata" in kafka.topics() and kafka.records("orders-eu-metadata") == []
    publish(kafka, "all", "a")
    orders.run("run-2")
    assert (counts(kafka, "all-out"), counts(kafka, "eu-out")) == ([2, 3], [])
    dataclasses.replace(orders_eu, application_id="eu").run("run-1")
    assert counts(kafka, "eu-out") == [2], "under another id, with state of its own"


def test_second_application_is_refused_when_the_first_has_only_begun(
    kafka: InMemoryKafka, orders: Application, orders_eu: Application
) -> None:
    publish(kafka, "all", "a")
    publish(kafka, "eu", "a")
    slice_ = orders.begin("run-1")
    assert "also belongs to application 'orders'" in refused(orders_eu).cause
    orders.tasks(slice_)
    orders.finish("run-1")
    assert counts(kafka, "all-out") == [1]


@pytest.mark.remedy("topic_owners.refuse_shared")
def test_applications_that_begin_at_one_moment_do_not_both_go_on(
    kafka: InMemoryKafka, orders: Application, orders_eu: Application
) -> None:
    publish(kafka, "all", "a", "a")
    publish(kafka, "eu", "a", "a")
    # The topics are made and looked at; nothing is written yet.
    orders_eu.interceptor = Once("writer.begin", 1, lambda: orders.begin("run-1"))
    error = refused(orders_eu)
    assert f"topic {SHARED} of application 'orders-eu' also belongs to application 'orders'" in error.cause
    assert "--application-id orders-eu --delete-stopoffsets" in error.fix
    orders_eu.interceptor = None
    assert "also belongs to application 'orders'" in refused(orders_eu).cause, "whatever becomes of it"
    accept_in_memory(error, kafka)
    orders.run("run-1", (0, 2))
    dataclasses.replace(orders_eu, application_id="eu").run("run-1")
    assert (counts(kafka, "all-out"), counts(kafka, "eu-out")) == ([2], [2])


@pytest.mark.remedy("topic_owners.refuse_foreign")
def test_application_is_refused_when_another_program_has_written_its_topic(
    kafka: InMemoryKafka, orders: Application
) -> None:
    rewrite(kafka, SHARED, written=True)
    publish(kafka, "all", "a")
    error = refused(orders)
    assert f"topic {SHARED} of application 'orders' holds records of other producers" in error.cause
    assert f"airflow-kstreams topics delete {SHARED} --bootstrap-server <broker>" in error.fix
    subject = Subject(plan=orders.topology.plan("orders"), settings=orders.checked)
    found = [f.text for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "topics"]
    assert any("holds records of other producers" in text for text in found)
    accept_in_memory(error, kafka)
    orders.run("run-1")
    assert counts(kafka, "all-out") == [1]


@pytest.mark.parametrize("written", [True, False])
def test_repartition_topic_of_another_id_is_taken_over_unless_it_was_written(
    kafka: InMemoryKafka, orders: Application, written: bool
) -> None:
    publish(kafka, "all", "a")
    orders.run("run-1")
    before = topic_id(kafka, REPARTITION)
    rewrite(kafka, REPARTITION, written=written)
    publish(kafka, "all", "a")
    if written:
        error = refused(orders, "run-2")
        assert f"its id is {topic_id(kafka, REPARTITION)}, expected {before}" in error.cause
        kafka.admin().delete_topics([REPARTITION])
    orders.run("run-2")
    publish(kafka, "all", "a")
    orders.run("run-3")
    assert counts(kafka, "all-out") == [1, 2, 3]


def test_topics_are_taken_over_when_begin_died_after_it_had_made_them(
    kafka: InMemoryKafka, orders: Application
) -> None:
    class DiedError(Exception):
        pass

    def die() -> None:
        raise DiedError

    publish(kafka, "all", "a")
    orders.interceptor = Once("writer.begin", 1, die)
    with pytest.raises(DiedError):
        orders.begin("run-1")
    made = topic_id(kafka, SHARED)
    orders.interceptor = None
    orders.run("run-1")
    own = read_ledger(kafka, "orders", clock=kafka.clock).own_topics
    assert own is not None
    assert own.ids[SHARED] == made
    assert counts(kafka, "all-out") == [1]


def test_other_application_need_not_be_visible(kafka: InMemoryKafka, orders: Application) -> None:
    permission = Permission(operation=Operation.DESCRIBE, resource=Resource.TOPIC, name="orders-eu-runs")

    def refuse() -> None:
        raise AccessDeniedError(
            what="describing",
            where="b:1",
            permission=permission,
            principal="",
            kafka_code="TOPIC_AUTHORIZATION_FAILED",
        )

    class Denying:
        def call(self, name: str, client: object, effect, arguments):  # type: ignore[no-untyped-def]
            if name == "admin.describe_topics" and "orders-eu-runs" in str(arguments):
                refuse()
            return effect()

    publish(kafka, "all", "a")
    orders.interceptor = Denying()
    orders.run("run-1")
    assert counts(kafka, "all-out") == [1]


def test_reset_ends_what_was_known_of_the_topics_that_it_deletes(
    kafka: InMemoryKafka, orders: Application
) -> None:
    publish(kafka, "all", "a", "a")
    orders.run("run-1")
    request = ResetRequest(application_id="orders", input_topics=("all",), force=True)
    with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
        reset.run()
    own = read_ledger(kafka, "orders", clock=kafka.clock).own_topics
    assert own is not None
    assert own.ids == {}
    assert orders.run("run-2").warnings == ()
    assert counts(kafka, "all-out") == [2, 2]


def test_continuous_run_is_refused_a_topic_of_another_application(
    kafka: InMemoryKafka, orders: Application, orders_eu: Application
) -> None:
    publish(kafka, "all", "a")
    orders.run("run-1")
    endless = SwitchingApplication(
        topology=orders_eu.topology, cluster=kafka, clock=kafka.clock, application_id="orders-eu"
    )
    with pytest.raises(TopologyError, match="also belongs to application 'orders'"):
        endless.run_continuously("c-1")


@pytest.mark.parametrize(
    "topic", ["orders-runs", "orders-metadata", "orders-eu-totals-changelog", "orders-eu-totals-repartition"]
)
@pytest.mark.remedy("topic_owners.refuse_output_of_another")
def test_results_are_not_written_into_topics_that_another_application_keeps_for_itself(
    kafka: InMemoryKafka, orders: Application, topic: str
) -> None:
    def copying(target: str) -> Application:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        builder.stream("eu").send_to(target)
        return Application(application_id="copy", topology=builder.build(), on=kafka, clock=kafka.clock)

    publish(kafka, "all", "a")
    publish(kafka, "eu", "a")
    orders.run("o1")
    error = refused(copying(topic))
    assert f"would write into topic {topic}, which application 'orders' keeps for itself" in error.cause
    assert "give send_to, through, or errors.dead.letter.queue.topic.name a topic of your own" in error.fix
    publish(kafka, "all", "a")
    orders.run("o2")
    assert counts(kafka, "all-out") == [1, 2]
    with_letters = copying("eu-out")
    with_letters.settings = {
        "processing.exception.handler": "dead-letter",
        "errors.dead.letter.queue.topic.name": "orders-runs",
    }
    assert "would write into topic orders-runs" in refused(with_letters).cause
    copying("eu-out").run("c1")
    assert kafka.values("eu-out") == [b"a"]


@pytest.mark.parametrize("topic", ["orders-runs", "orders-metadata", "orders-changelog"])
def test_topics_of_no_application_take_results_whatever_their_names(kafka: InMemoryKafka, topic: str) -> None:
    kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("eu").send_to(topic)
    copying = Application(application_id="copy", topology=builder.build(), on=kafka, clock=kafka.clock)
    for run_id in ("c1", "c2"):
        publish(kafka, "eu", "a")
        copying.run(run_id)
    assert kafka.values(topic) == [b"a", b"a"]
