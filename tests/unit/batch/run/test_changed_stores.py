"""A store that was away, or whose serde changed, does not go on with the state that it left."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.streams import (
    KStreamBuilder,
    Serde,
    StoreSpec,
    Topology,
    TumblingWindow,
    VersionedStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory, other_way

pytestmark = pytest.mark.promise("changed-stores-are-refused")

APP = "app"
CHANGELOG = f"{APP}-counts-changelog"
GIVE_UP = (
    f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} --internal-topics {CHANGELOG}"
)
TEXT, LONG = serdes.string(), serdes.int64()


def topology(
    *, counted: bool = True, logged: bool = True, keys: Serde = TEXT, values: Serde = LONG
) -> Topology:
    """``in`` -> ``copied``, and counted by key -> ``out``."""
    builder = KStreamBuilder(default_key_serde=keys, default_value_serde=TEXT)
    stream = builder.stream("in")
    stream.send_to("copied")
    if counted:
        spec = StoreSpec(name="counts", key_serde=keys, value_serde=values, logged=logged)
        stream.group_by_key().count(store=spec).to_stream().send_to("out", value_serde=LONG)
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("in", "copied", "out"):
        kafka.create_topic(topic)
    return kafka


def app(kafka: InMemoryKafka, built: Topology) -> Application:
    return Application(application_id=APP, topology=built, on=kafka, clock=kafka.clock)


def publish(kafka: InMemoryKafka, *keys: str) -> None:
    for key in keys:
        kafka.append("in", b"v", key.encode())


def counts(kafka: InMemoryKafka) -> list[int]:
    return [int.from_bytes(value or b"", "big") for value in kafka.values("out")]


def refused(application: Application, run_id: str) -> TopologyError:
    with pytest.raises(TopologyError) as caught:
        application.begin(run_id)
    assert not caught.value.is_retriable
    return caught.value


def accept(error: TopologyError, kafka: InMemoryKafka) -> list[str]:
    return [" ".join(command) for command in accept_in_memory(error, kafka)]


@pytest.mark.remedy("state_left.refuse_returned")
def test_store_that_was_away_is_refused_and_begins_empty_after_the_command(kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app(kafka, topology()).run("run-1")
    publish(kafka, "a")
    app(kafka, topology(counted=False)).run("run-2")
    before = len(counts(kafka))
    publish(kafka, "a")
    back = app(kafka, topology())
    error = refused(back, "run-3")
    assert f"store 'counts' of application '{APP}' was not in the topology of run 'run-2'" in error.cause
    assert f"{CHANGELOG} holds its state of before" in error.cause
    subject = Subject(plan=back.topology.plan(APP), settings=back.checked)
    said = [f.text for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "topics"]
    assert any(f"{CHANGELOG} holds its state of before" in text for text in said)
    assert f"(or --input-topics in in place of --internal-topics {CHANGELOG}: everything" in error.fix
    assert accept(error, kafka) == [GIVE_UP]
    back.run("run-3")
    publish(kafka, "a")
    back.run("run-4")
    assert counts(kafka)[before:] == [1, 2]


@pytest.mark.remedy("state_left.refuse_left_behind")
def test_store_that_is_not_logged_any_more_is_refused_and_goes_on_when_it_is(kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app(kafka, topology()).run("run-1")
    publish(kafka, "a")
    error = refused(app(kafka, topology(logged=False)), "run-2")
    assert f"has state in {CHANGELOG} (count of in)" in error.cause
    assert "would begin empty with 'counts'" in error.cause
    assert "to go on with the state, write logged=True where it is to go on" in error.fix
    app(kafka, topology()).run("run-2")
    assert counts(kafka) == [2, 3]


def test_store_without_changelog_begins_empty_in_every_run_once_its_state_is_given_up(
    kafka: InMemoryKafka,
) -> None:
    publish(kafka, "a", "a")
    app(kafka, topology()).run("run-1")
    publish(kafka, "a")
    assert accept(refused(app(kafka, topology(logged=False)), "run-2"), kafka) == [GIVE_UP]
    for run in (2, 3):
        app(kafka, topology(logged=False)).run(f"run-{run}")
        publish(kafka, "a")
    app(kafka, topology()).run("run-4")
    assert counts(kafka) == [2, 1, 1, 1]


def behind_a_topic_of_the_users(*, counted: bool = True) -> Topology:
    """``in`` -> counted -> ``mid`` -> a window's count -> ``out``; and another count of ``in``."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    stream = builder.stream("in")
    if counted:
        stream.group_by_key().count(store="counts").to_stream().send_to("copied", value_serde=LONG)
    window = TumblingWindow(size_ms=10, grace_ms=0)
    through = stream.through("mid")
    windowed = through.group_by_key().windowed_by(window).count(store="windowed")
    windowed.to_stream(lambda window, count: window.key).send_to("out", value_serde=LONG)
    stream.group_by_key().count(store="others").to_stream().send_to("others", value_serde=LONG)
    return builder.build()


def test_everything_comes_out_again_when_all_state_is_built_anew(kafka: InMemoryKafka) -> None:
    for topic in ("mid", "others"):
        kafka.create_topic(topic)
    back = app(kafka, behind_a_topic_of_the_users())
    for number, without in enumerate((back, app(kafka, behind_a_topic_of_the_users(counted=False)))):
        kafka.append("in", b"v", b"a", timestamp_ms=number)
        kafka.append("in", b"v", b"a", timestamp_ms=1_000 + number)
        without.run(f"run-{number}")
    error = refused(back, "run-3")
    before = {topic: len(kafka.values(topic)) for topic in ("copied", "out", "others")}

    accept(TopologyError("", fix=other_way(error)), kafka)
    back.run("run-3")

    written = {topic: kafka.values(topic)[count:] for topic, count in before.items()}
    numbers = {topic: [int.from_bytes(value or b"", "big") for value in written[topic]] for topic in before}
    assert numbers["copied"] == numbers["others"] == [4]
    assert numbers["out"] == [2, 2], "no window behind the topic between them is late"


def test_store_that_comes_back_to_a_continuous_run_is_refused(kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app(kafka, topology()).run("run-1")
    publish(kafka, "a")
    app(kafka, topology(counted=False)).run("run-2")
    endless = SwitchingApplication(topology=topology(), cluster=kafka, clock=kafka.clock)
    with pytest.raises(TopologyError, match="holds its state of before"):
        endless.run_continuously("c-1")


def test_store_goes_on_when_nothing_was_processed_without_it(kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app(kafka, topology()).run("run-1")
    app(kafka, topology(counted=False)).run("run-2")
    publish(kafka, "a")
    app(kafka, topology()).run("run-3")
    assert counts(kafka) == [2, 3]


@pytest.mark.parametrize("left", ["nothing", "no topic"])
def test_store_that_left_nothing_may_come_back(kafka: InMemoryKafka, left: str) -> None:
    if left == "no topic":
        publish(kafka, "a")
    app(kafka, topology()).run("run-1")
    publish(kafka, "a")
    app(kafka, topology(counted=False)).run("run-2")
    if left == "no topic":
        kafka.admin().delete_topics([CHANGELOG])
    publish(kafka, "a")
    app(kafka, topology()).run("run-3")
    assert counts(kafka)[-1] == 1


@pytest.mark.parametrize(
    ("changed", "now"),
    [
        (topology(values=serdes.json(int)), "string -> json(int)"),
        (topology(keys=serdes.bytes()), "bytes -> int64"),
    ],
    ids=["value", "key"],
)
@pytest.mark.remedy("assignment._refuse_other_state")
def test_changed_serde_of_a_store_is_refused_and_begins_empty_after_the_command(
    kafka: InMemoryKafka, changed: Topology, now: str
) -> None:
    publish(kafka, "a", "a")
    app(kafka, topology()).run("run-1")
    publish(kafka, "a")
    error = refused(app(kafka, changed), "run-2")
    assert f"has state in {CHANGELOG} that was written by the serdes string -> int64" in error.cause
    assert f"its topology would read it by {now}" in error.cause
    assert accept(error, kafka) == [GIVE_UP]
    app(kafka, changed).run("run-2")
    assert counts(kafka) == [2, 1]


def priced(*, history_ms: int) -> Topology:
    """``copied`` joined with the table ``in``, each as of its time -> ``out``."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    spec = VersionedStoreSpec(name="counts", key_serde=TEXT, value_serde=TEXT, history_ms=history_ms)
    prices = builder.table("in", store=spec)
    builder.stream("copied").left_join(prices, lambda order, price: f"{order} {price}").send_to("out")
    return builder.build()


def test_longer_history_is_refused_and_no_key_that_was_deleted_comes_back(kafka: InMemoryKafka) -> None:
    """The deletion has left the shorter history: a late version would be the latest one."""
    for key, value, time_ms in ((b"a", b"old", 1), (b"a", None, 5), (b"b", b"1", 1_000)):
        kafka.append("in", value, key, timestamp_ms=time_ms)
    app(kafka, priced(history_ms=10)).run("run-1")
    kafka.append("in", b"late", b"a", timestamp_ms=3)
    kafka.append("copied", b"order", b"a", timestamp_ms=1_000)
    longer = app(kafka, priced(history_ms=10_000))

    error = refused(longer, "run-2")

    assert f"{CHANGELOG} that was made by versioned history_ms=10, and" in error.cause
    assert "read it as versioned history_ms=10000" in error.cause
    accept(TopologyError("", fix=other_way(error)), kafka)
    longer.run("run-2")
    assert kafka.values("out") == [b"order None"]


def test_serde_whose_bytes_name_their_schema_may_get_another_one(kafka: InMemoryKafka) -> None:
    def long(schema: str) -> Serde:
        return Serde(
            id=f"avro({schema})",
            written_as="avro",
            serialize=LONG.serialize,
            deserialize=LONG.deserialize,
        )

    publish(kafka, "a")
    app(kafka, topology(values=long("Count, 1"))).run("run-1")
    publish(kafka, "a")
    app(kafka, topology(values=long("Count, 2"))).run("run-2")
    assert counts(kafka) == [1, 2]
    windowed = [serdes.time_windowed(long(schema), size_ms=1_000) for schema in ("1", "2")]
    assert windowed[0].id != windowed[1].id
    assert {serde.stored_as for serde in windowed} == {"time_windowed(avro,1000)"}
    assert {serdes.session_windowed(long(schema)).stored_as for schema in ("1", "2")} == {
        "session_windowed(avro)"
    }
