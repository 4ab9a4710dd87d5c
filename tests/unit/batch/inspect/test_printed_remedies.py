"""A look that was refused is asked for as the error says, and sees what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import RunFinished, condition_from_json, condition_to_json
from airflow_kstreams.batch.inspect.doctor import Level, Subject, diagnose
from airflow_kstreams.batch.inspect.finished_runs import RunFollower, last_values
from airflow_kstreams.batch.inspect.state import stored_state
from airflow_kstreams.streams import KStreamBuilder, SessionWindow, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, KStreamsError, StateStoreError
from airflow_kstreams.streams.ports import Fetched
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory
from tests.unit.batch.expand.test_processor_expansion import expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS
from tests.unit.batch.inspect.test_stored_state import (
    CHANGELOG,
    HOUR_MS,
    application,
    builder,
    opened,
    send,
    table,
)


@pytest.mark.remedy("cluster_view.ClusterView.partitions")
@pytest.mark.remedy("finished_runs.last_values")
@pytest.mark.parametrize("way", ["created", "corrected"])
def test_topic_is_read_when_it_was_created_or_its_name_corrected(way: str) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("orders")
    kafka.append("orders", b"v", b"k")
    with ClusterView(kafka, clock=kafka.clock) as view, pytest.raises(ConfigError):
        view.partitions(["order"])
    with pytest.raises(ConfigError):
        last_values(kafka, "order")
    if way == "created":
        kafka.create_topic("order")
        kafka.append("order", b"v", b"k")
    topic = "order" if way == "created" else "orders"
    with ClusterView(kafka, clock=kafka.clock) as view:
        assert view.partitions([topic]) == kafka.partitions(topic)
    assert last_values(kafka, topic) == {b"k": b"v"}


class Slow:
    """An interceptor under which the first look for records finds none."""

    left = 1

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "reader.poll" and self.left:
            self.left -= 1
            return Fetched({}, {})
        return effect()


@pytest.mark.remedy("finished_runs.last_values.too_long")
def test_whole_topic_is_read_when_more_time_is_allowed() -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("orders")
    kafka.append("orders", b"v", b"k")
    with pytest.raises(KafkaClientError, match="was not read to its end within 0 s"):
        last_values(FaultyCluster(kafka, Slow()), "orders", timeout_seconds=0)
    assert last_values(FaultyCluster(kafka, Slow()), "orders", timeout_seconds=60) == {b"k": b"v"}


@pytest.mark.remedy("finished_runs.RunFollower.__enter__")
@pytest.mark.parametrize("way", ["corrected", "run once"])
def test_finished_runs_are_told_when_the_id_was_corrected_or_the_application_has_run(way: str) -> None:
    app = application(table())
    if way == "corrected":
        app.run("one")
    asked = "ap" if way == "corrected" else "app"
    with pytest.raises(ConfigError, match=f"no ledger {asked}-runs"):
        RunFollower(app.cluster, asked, name="n").__enter__()
    if way == "run once":
        app.run("one")
    with RunFollower(app.cluster, "app", name="n", from_start=True) as runs:
        assert [summary.run_id for _, summary in runs.poll(0.1)] == ["one"]


@pytest.mark.remedy("conditions.condition_from_json")
def test_condition_is_read_when_both_sides_have_the_same_version() -> None:
    condition = RunFinished(application_id="app", run_id="one")
    sent: Any = condition_to_json(condition)
    with pytest.raises(ConfigError, match="cannot read what the deferred sensor waits for"):
        condition_from_json({**sent, "type": "OfALaterVersion"})
    assert condition_from_json(sent) == condition


# == stores


def counted() -> Application:
    """Return an application that has counted ``a`` by key and by session."""
    made = builder()
    grouped = made.stream("in").group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(SessionWindow(gap_ms=10)).count(store="visits")
    app = application(made.build())
    send(app, [("a", 0, 0), ("a", 0, 100)])
    app.run("one")
    return app


@pytest.mark.remedy("stored_state._found")
def test_store_is_read_by_a_name_that_the_error_lists() -> None:
    app = counted()
    with pytest.raises(ConfigError, match="no store 'count'") as refused:
        opened(app, "count")
    named = refused.value.fix.removeprefix("name one of its stores: ").split(", ")
    assert named == ["counts", "visits"]
    with opened(app, named[0]) as state:
        assert state.get("a") == 2


@pytest.mark.remedy("stored_state.StoredState.get: leave out what its entries do not have")
@pytest.mark.remedy("stored_state.StoredState.get: name the window")
@pytest.mark.remedy("stored_state.StoredState.find")
def test_entry_is_found_when_it_is_named_as_the_error_says() -> None:
    app = counted()
    with opened(app, "counts") as state:
        with pytest.raises(ConfigError):
            state.get("a", 0)
        assert state.get("a") == 2
        with pytest.raises(StateStoreError):
            state.find(7)
        assert [entry.value for entry in state.find("a")] == [2]
    with opened(app, "visits") as state:
        with pytest.raises(ConfigError, match="holds 2 entries"):
            state.get("a")
        assert state.get("a", HOUR_MS) == state.get("a", HOUR_MS, HOUR_MS) == 1
        assert [entry.value for entry in state.find("a")] == [1, 1]


@pytest.mark.remedy("entry_form.key_bytes_of_text")
def test_key_is_found_when_it_is_written_as_the_error_says() -> None:
    made = KStreamBuilder(default_key_serde=serdes.int64(), default_value_serde=serdes.json())
    made.table("in", store="newest")
    app = application(made.build())
    assert isinstance(app.on, InMemoryKafka)
    app.on.append("in", b"1", bytes(7) + b"\7")
    app.run("one")
    with opened(app, "newest") as state:
        with pytest.raises(ConfigError, match="'seven' is no key in the format int64"):
            state.find_text("seven")
        assert [entry.value for entry in state.find_text("7")] == [1]
        assert [entry.value for entry in state.find_serialized(bytes.fromhex("0000000000000007"))] == [1]


def other_version(serde: Any) -> Topology:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serde)
    made.table("in", store="newest")
    return made.build()


@pytest.mark.remedy("entry_form.read_entry")
@pytest.mark.remedy("stored_state.StoredState._written_groups: name the file")
def test_store_is_read_when_the_version_of_the_file_is_named_whose_runs_wrote_it() -> None:
    app = application(table())
    send(app, [("a", 1, 0)])
    app.run("one")
    same_id = serdes.Serde(id="json", serialize=serdes.json().serialize, deserialize=lambda data: data[9])
    for other in (serdes.string(), same_id):
        app.topology = other_version(other)
        with pytest.raises(StateStoreError) as refused, opened(app, "newest") as state:
            state.get("a")
        assert refused.value.fix == "name the file, and the version of it, whose runs wrote the store"
    app.topology = table()
    with opened(app, "newest") as state:
        assert state.get("a") == 1


@pytest.mark.remedy("stored_state.StoredState._written_groups: check the application id")
def test_store_is_read_when_a_run_has_had_records() -> None:
    app = application(table())
    assert isinstance(app.on, InMemoryKafka)
    app.on.create_topic("app-dead-letter")
    with pytest.raises(ConfigError, match="does not exist"):
        opened(app, "newest")
    send(app, [("a", 1, 0)])
    app.run("one")
    with opened(app, "newest") as state:
        assert state.get("a") == 1


@pytest.mark.remedy("stored_state.StoredState._written_groups: see airflow-kstreams doctor")
def test_store_is_read_when_a_way_out_of_the_doctor_was_taken() -> None:
    app = application(table())
    kafka = app.on
    assert isinstance(kafka, InMemoryKafka)
    send(app, [("a", 1, 0)])
    app.run("one")
    kafka.admin().delete_topics([CHANGELOG.topic])
    kafka.create_topic(CHANGELOG.topic, cleanup_policy="compact")
    with pytest.raises(StateStoreError, match="was deleted and created again"), opened(app, "newest"):
        pass
    subject = Subject(plan=app.topology.plan("app"), settings=app.checked)
    (found,) = (each for each in diagnose(kafka, subject, clock=kafka.clock) if each.check == "data loss")
    assert found.level is Level.ERROR
    accept_in_memory(KStreamsError(found.text, fix=found.fix), kafka)
    send(app, [("a", 2, 0)])
    app.run("two")
    with opened(app, "newest") as state:
        assert state.get("a") == 2


@pytest.mark.remedy("stored_state.StoredState.as_of")
def test_store_is_whole_when_it_is_read_again() -> None:
    scene = grown()
    with opened(scene.app, "listed") as state:
        assert state.get(KEYS[0]) is not None
        expand(scene, 4)
        scene.run()
        with pytest.raises(StateStoreError, match="got other tasks while the store was read"):
            state.as_of()
    with opened(scene.app, "listed") as state:
        assert {entry.key: entry.value for entry in state.all()} == scene.sent
        assert state.as_of().whole


@pytest.mark.remedy("stored_state._no_room")
def test_store_is_read_when_the_temporary_folder_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application(table())
    send(app, [(f"k{number}", "x" * 50_000, 0) for number in range(20)])
    app.run("one")
    add = stored_state.LogFold.add

    def full(self: stored_state.LogFold, *arguments: Any, **named: Any) -> Any:
        self._database.execute("PRAGMA max_page_count = 1")
        return add(self, *arguments, **named)

    with monkeypatch.context() as small:
        small.setattr(stored_state.LogFold, "add", full)
        with opened(app, "newest") as state, pytest.raises(StateStoreError, match="temporary folder"):
            list(state.all())
    with opened(app, "newest") as state:
        assert len(list(state.all())) == 20
