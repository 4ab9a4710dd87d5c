"""What is known of runs, read while they go on: in which order, at which cost, and what is void."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import NewData, StopOffsetsReached
from airflow_kstreams.batch.protocol.slice.metadata import RunState
from airflow_kstreams.operators.work.run_state import FoundRun
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application

APP = "app"
METADATA = ProtocolTopics(APP).metadata
LEDGER = ProtocolTopics(APP).ledger


class Looks:
    """Notes which port call asks for which log, and lets something happen before the first for the second."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self._meanwhile: Callable[[], object] | None = meanwhile

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        self.calls[name] += 1
        asked = [topic for topic in (LEDGER, METADATA) if topic in repr(arguments)]
        self.order += [topic for topic in asked if topic not in self.order]
        if METADATA in asked and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return effect()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    return kafka


@pytest.fixture
def application(kafka: InMemoryKafka) -> Application:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    return Application(on=kafka, clock=kafka.clock, application_id=APP, topology=builder.build())


def seen(kafka: InMemoryKafka, looks: Looks | None = None, **how: Any) -> RunFacts:
    cluster = FaultyCluster(kafka, looks or Looks())
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=APP)) as reader:
        return RunFacts.read(cluster, APP, admin=admin, reader=reader, clock=kafka.clock, **how)


def test_nothing_is_known_when_no_run_has_begun(kafka: InMemoryKafka) -> None:
    facts = seen(kafka)
    assert (facts.state, facts.run_id, facts.under_way, facts.last_work) == (RunState.NEW, "", None, None)
    assert (facts.lost_run, facts.begun_since, facts.last_tasks.transactional_ids) == ("", False, None)
    assert facts.disagreements() == []


def test_run_is_under_way_when_it_began_between_the_two_reads(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.run("one")
    kafka.append("in", b"x", b"x")

    looks = Looks(lambda: application.begin("two"))
    facts = seen(kafka, looks)

    assert looks.order == [LEDGER, METADATA], "the metadata topic must never be the older of the two"
    assert facts.under_way is not None
    assert facts.under_way.run_id == "two"
    assert facts.begun_since


def test_run_is_not_under_way_when_it_finished_between_the_two_reads(
    kafka: InMemoryKafka, application: Application
) -> None:
    kafka.append("in", b"x", b"x")
    slice_ = application.begin("one")
    application.tasks(slice_)

    facts = seen(kafka, Looks(lambda: application.finish("one")))

    assert (facts.state, facts.run_id, facts.under_way) == (RunState.FINISHED, "one", None)
    assert not facts.ledger.is_finished("one"), "the ledger was read before"
    assert seen(kafka).disagreements() == []


def test_second_look_equals_the_first_only_when_no_run_went_on(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.run("one")
    first = seen(kafka)
    assert seen(kafka) == first
    kafka.append("in", b"x", b"x")
    application.begin("two")
    assert seen(kafka) != first


def test_metadata_topic_is_not_asked_when_the_ledger_has_the_run(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.run("one")
    looks = Looks()
    facts = seen(kafka, looks, unless_finished="one")
    assert (looks.order, facts.state) == ([LEDGER], RunState.FINISHED)
    looks = Looks()
    with ClusterView(FaultyCluster(kafka, looks), clock=kafka.clock) as view:
        assert StopOffsetsReached(application_id=APP, run_id="one", subtopology=0).evaluate(view)
    assert looks.order == [LEDGER]


def test_each_log_is_read_once_when_a_sensor_looks(kafka: InMemoryKafka, application: Application) -> None:
    kafka.append("in", b"x", b"x")
    application.begin("one")
    looks = Looks()
    with ClusterView(FaultyCluster(kafka, looks), clock=kafka.clock) as view:
        NewData(application_id=APP).evaluate(view)
        polls = looks.calls["reader.poll"]
        NewData(application_id=APP).evaluate(view)
    # One for each of the two logs; in the same round nothing is read again.
    assert (polls, looks.calls["reader.poll"]) == (2, 2)


def test_empty_run_asks_no_more_of_kafka_than_it_needs(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.run("one")
    looks = Looks()
    cost = Application(
        on=FaultyCluster(kafka, looks),
        clock=kafka.clock,
        application_id=APP,
        topology=application.topology,
    )
    cost.run("two")
    # Begin reads the ledger, claims, reads the ledger and the metadata topic; so does finish.
    assert looks.calls["reader.poll"] == 6
    # A record that is handed to a writer asks for nothing by itself: the attempt's go with the others.
    assert sum(looks.calls.values()) - looks.calls["writer.produce"] <= 87


def test_operator_has_the_summary_when_the_run_finishes_between_its_two_reads(
    kafka: InMemoryKafka, application: Application
) -> None:
    kafka.append("in", b"v", b"k")
    application.tasks(application.begin("r1"))
    looks = Looks(lambda: application.finish("r1"))
    cluster: Any = FaultyCluster(kafka, looks)

    assert FoundRun.read(cluster, APP, "r1", certain=True).finished is not None


def test_next_run_is_refused_when_the_ledger_ends_between_an_entry_and_its_checkpoint(
    kafka: InMemoryKafka, application: Application
) -> None:
    for run_id in ("r1", "r2", "r3"):
        kafka.append("in", run_id.encode(), b"k")
        if run_id == "r3":
            before = len(kafka.records(METADATA))
        application.run(run_id)
    (entry, *_) = (r.offset() for r in reversed(kafka.records(LEDGER)) if r.key() == b"r3")
    kafka.truncate(TopicPartition(LEDGER, 0), entry + 1)
    kafka.truncate(TopicPartition(METADATA, 0), kafka.records(METADATA)[before].offset())
    kafka.expire_offsets(APP)

    with pytest.raises(KStreamsError):
        application.run("r4")
    assert kafka.values("out") == [b"r1", b"r2", b"r3"]
