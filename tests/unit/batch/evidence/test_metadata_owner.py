"""A topic of somebody else's that has the name of one of the engine's protocol topics is left as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from airflow_kstreams.batch.evidence.metadata_owner import refuse_others_metadata
from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, DataLossError, KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("protocol-topics-of-others-stay")

APP = "app"
METADATA, LEDGER = f"{APP}-metadata", f"{APP}-runs"
Written = tuple[bytes | None, bytes | None]


def copying(source: str = "in") -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(source).send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("in", "other", "out"):
        kafka.create_topic(topic)
    kafka.append("in", b"v", b"k")
    return kafka


def app(kafka: InMemoryKafka, topology: Topology | None = None) -> SwitchingApplication:
    return SwitchingApplication(topology=topology or copying(), cluster=kafka, clock=kafka.clock)


def reset(kafka: InMemoryKafka) -> None:
    request = ResetRequest(application_id=APP, input_topics=("in",), delete_stop_offsets=True, force=True)
    with ApplicationReset(kafka, request, clock=kafka.clock) as tool:
        tool.run()


ACTIONS: dict[str, Callable[[InMemoryKafka], object]] = {
    "begin": lambda kafka: app(kafka).begin("r1"),
    "a continuous run": lambda kafka: app(kafka).run_continuously("r1"),
    "a reset": reset,
}
THEIRS: dict[str, Sequence[Written]] = {
    "text": [(b"customer", b"{}")],
    "text and a deletion": [(b"customer", b"{}"), (b"customer", None)],
    "a deletion": [(b"customer", None)],
    "no key": [(None, b"{}")],
    "no text": [(b"\xff\x00", b"\xfe")],
    "ours, then theirs": [(b"in_0", b"1"), (b"customer", b"{}")],
    "the key of a stop, and no number": [(b"in_0", b"{}")],
    "the key of a marker, and no marker": [(b"app", b"{}")],
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
@pytest.mark.parametrize("records", THEIRS.values(), ids=THEIRS.keys())
@pytest.mark.parametrize("cleanup", ["compact", "delete"])
def test_metadata_topic_of_another_program_is_left_as_it_is(
    kafka: InMemoryKafka, action: Callable[[InMemoryKafka], object], records: Sequence[Written], cleanup: str
) -> None:
    kafka.create_topic(METADATA, cleanup_policy=cleanup)
    for key, value in records:
        kafka.append(METADATA, value, key)
    with pytest.raises(ConfigError, match=f"topic {METADATA} holds records of another program") as caught:
        action(kafka)
    assert "choose another application id" in caught.value.fix
    assert [(r.key(), r.value()) for r in kafka.records(METADATA)] == list(records)
    assert not kafka.values("out")


@pytest.mark.parametrize("topic", [METADATA, LEDGER])
def test_doctor_says_so_and_does_not_ask_the_owner_to_change_the_topic(
    kafka: InMemoryKafka, topic: str
) -> None:
    kafka.create_topic(topic, cleanup_policy="delete")
    kafka.append(topic, b"{}", b"customer")
    subject = Subject(plan=copying().plan(APP), settings=app(kafka).checked)
    errors = [found for found in diagnose(kafka, subject, clock=kafka.clock) if found.level is Level.ERROR]
    assert [found.text.split(",")[0] for found in errors] == [
        f"topic {topic} holds records of another program"
    ]
    assert "choose another application id" in errors[0].fix


@pytest.mark.remedy("topics.others_protocol_topic")
def test_application_of_another_id_runs_as_the_error_proposes(kafka: InMemoryKafka) -> None:
    kafka.create_topic(METADATA, cleanup_policy="compact")
    kafka.append(METADATA, b"{}", b"customer")
    with pytest.raises(ConfigError, match="another program"):
        app(kafka).begin("r1")
    other = SwitchingApplication(
        topology=copying(), cluster=kafka, clock=kafka.clock, application_id="app-streams"
    )
    other.batch("r1")
    assert kafka.values("out") == [b"v"]
    assert kafka.values(METADATA) == [b"{}"]


def test_stops_of_another_application_are_not_taken_for_ones_own(kafka: InMemoryKafka) -> None:
    kafka.create_topic(METADATA, cleanup_policy="compact")
    for key, value in ((b"other_0", b"1"), (b"app", b"0")):
        kafka.append(METADATA, value, key)
    with pytest.raises(ConfigError, match=f"{METADATA}-0@0"):
        app(kafka).begin("r1")
    kafka.append("other", b"v", b"k")
    app(kafka, copying("other")).batch("r1")
    assert kafka.values("out") == [b"v"]


def test_empty_topic_of_an_administrator_is_used(kafka: InMemoryKafka) -> None:
    kafka.create_topic(METADATA, cleanup_policy="compact")
    kafka.create_topic(LEDGER, cleanup_policy="compact")
    app(kafka).batch("r1")
    assert kafka.values("out") == [b"v"]


@pytest.mark.parametrize("pair", [b"in_0-mid_1", b"in_0-mid_0"])
def test_records_of_a_program_that_follows_kip_95_are_welcome(kafka: InMemoryKafka, pair: bytes) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").through("mid").send_to("out")
    kafka.create_topic("mid", partitions=2)
    kafka.create_topic(METADATA, cleanup_policy="compact")
    for key, value in ((b"in_0", None), (b"in_0", b"1"), (b"app", b"0"), (pair, b"0"), (pair, None)):
        kafka.append(METADATA, value, key)
    app(kafka, builder.build()).batch("r1")
    assert kafka.values("out") == [b"v"]


def test_own_topic_is_gone_on_with_whatever_others_write_to_it(kafka: InMemoryKafka) -> None:
    app(kafka).batch("r1")
    kafka.append(METADATA, b"{}", b"customer")
    kafka.append("in", b"w", b"k")
    app(kafka).batch("r2")
    assert kafka.values("out") == [b"v", b"w"]


def test_own_topic_is_known_when_the_ledger_was_lost_and_the_topology_changed(kafka: InMemoryKafka) -> None:
    app(kafka).batch("r1")
    kafka.admin().delete_topics([LEDGER])
    changed = app(kafka, copying("other"))
    with pytest.raises(DataLossError) as caught:
        changed.begin("r2")
    accept_in_memory(caught.value, kafka)
    changed.batch("r2")


def test_own_topic_is_known_after_a_reset_with_another_topology(kafka: InMemoryKafka) -> None:
    app(kafka).batch("r1")
    reset(kafka)
    kafka.compact(METADATA)
    app(kafka, copying("other")).batch("r2")


def test_own_topic_is_known_after_a_continuous_run_that_died_before_it_deleted_it(
    kafka: InMemoryKafka,
) -> None:
    app(kafka).batch("r1")
    running = app(kafka).run_continuously("r2")
    running.close()
    app(kafka).batch("r3")
    running = app(kafka).run_continuously("r4")
    running.stop()


def test_known_topic_is_not_read_to_find_out(kafka: InMemoryKafka) -> None:
    app(kafka).batch("r1")
    ledger = read_ledger(kafka, APP, clock=kafka.clock)
    assert ledger.own_topics is not None

    def asked() -> Sequence[str]:
        raise LookupError

    def look(known: Ledger) -> None:
        with closing(kafka.admin()) as admin, closing(kafka.reader(group_id=APP)) as reader:
            refuse_others_metadata(
                kafka, known, APP, topics=asked, admin=admin, reader=reader, clock=kafka.clock
            )

    look(ledger)
    with pytest.raises(LookupError):
        look(Ledger())


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
@pytest.mark.parametrize("records", [*THEIRS.values(), [(b"__customer__", b"{}")], [(b"r1", b"{}")] * 40])
def test_ledger_topic_of_another_program_is_left_as_it_is(
    kafka: InMemoryKafka, action: Callable[[InMemoryKafka], object], records: Sequence[Written]
) -> None:
    kafka.create_topic(LEDGER, cleanup_policy="delete")
    for key, value in records:
        kafka.append(LEDGER, value, key)
    with pytest.raises(ConfigError, match=f"topic {LEDGER} holds records of another program") as caught:
        action(kafka)
    assert not caught.value.is_retriable
    assert "choose another application id" in caught.value.fix
    assert [(r.key(), r.value()) for r in kafka.records(LEDGER)] == list(records)


def test_record_of_another_version_in_an_own_ledger_is_called_so(kafka: InMemoryKafka) -> None:
    app(kafka).batch("r1")
    kafka.append(LEDGER, b"{}", b"r2")
    with pytest.raises(KafkaClientError, match="is not a ledger record that this version reads") as caught:
        read_ledger(kafka, APP, clock=kafka.clock)
    assert "choose another application id" not in caught.value.fix


@pytest.mark.parametrize("records", THEIRS.values(), ids=THEIRS.keys())
def test_replays_topic_of_another_program_is_left_as_it_is(
    kafka: InMemoryKafka, records: Sequence[Written]
) -> None:
    settings = app(kafka).checked
    dead = settings.dead_letter_topic
    kafka.create_topic(dead)
    kafka.create_topic(f"{dead}-replays", cleanup_policy="compact")
    for key, value in records:
        kafka.append(f"{dead}-replays", value, key)
    with pytest.raises(ConfigError, match=f"topic {dead}-replays holds records of another program") as found:
        DeadLetterReplay(kafka, settings, replay_id="r1", clock=kafka.clock).run()
    assert "errors.dead.letter.queue.topic.name" in found.value.fix
    assert [(r.key(), r.value()) for r in kafka.records(f"{dead}-replays")] == list(records)
    assert TopicPartition(dead, 0) not in kafka.reader(group_id=f"{dead}-replay").committed(
        [TopicPartition(dead, 0)]
    )
