"""A log that is truncated while a run is under way and has grown past the stop again: other records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.protocol.slice.metadata import read_metadata
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.copies import APP, copying, kafka_with_topics, publish, results
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("rewritten-logs-are-refused")

IN, MIDDLE = TopicPartition("in", 0), TopicPartition("middle", 0)


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    # A commit after each record, and fetches of one: each place in the slice can be met.
    return copying(kafka, {"commit.every.records": 1, "commit.interval.ms": 1})


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.task.loop._FETCH_RECORDS", 1)


def rewrite(kafka: InMemoryKafka, at: TopicPartition, end: int, count: int) -> None:
    """Lose what lies at or past an offset, and let a producer write other records there."""
    kafka.truncate(at, end)
    for number in range(count):
        value = f"new-{number}".encode()
        kafka.append(at.topic, value, value, partition=at.partition)


class At(Once):
    """Does something before a fetch; time passes from one fetch to the next, so that commits are due."""

    def __init__(self, kafka: InMemoryKafka, fetch: int, action: Callable[[], object]) -> None:
        super().__init__("reader.poll", fetch, action, about="")
        self._kafka = kafka

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "reader.poll":
            self._kafka.clock.sleep(0.01)
        return super().call(name, client, effect, arguments)


def refused(run: Callable[[], object]) -> DataLossError:
    with pytest.raises(DataLossError) as caught:
        run()
    return caught.value


def begun(app: Application, kafka: InMemoryKafka) -> Any:
    publish(kafka, *range(6))
    return app.begin("run-1")


#: Where the log is cut to, and before which fetch: one record has been fetched by each one before.
MOMENTS = {
    "before the task reads": (3, 0),
    "behind where the task reads": (4, 3),
    "where the task reads": (2, 3),
    "before where the task reads": (1, 4),
    "all of it": (0, 4),
}


@pytest.mark.parametrize(("end", "fetch"), MOMENTS.values(), ids=MOMENTS.keys())
@pytest.mark.parametrize("grown", ["to the stop", "past it"])
def test_both_facts_are_named_when_a_slice_is_rewritten_while_it_is_read(
    app: Application, kafka: InMemoryKafka, end: int, fetch: int, grown: str
) -> None:
    slice_ = begun(app, kafka)
    count = 6 - end + (2 if grown == "past it" else 0)
    if fetch:
        app.interceptor = At(kafka, fetch, lambda: rewrite(kafka, IN, end, count))
    else:
        rewrite(kafka, IN, end, count)
    error = refused(lambda: app.task(slice_, 0, 0))
    assert "in-0: run 'run-1' stops at 6, where the log was of leader epoch 0" in error.cause
    assert "is of leader epoch 1" in error.cause
    # Nothing of the other records has become visible, and none that was committed is written again.
    written = [value.decode() for value in kafka.values("middle") if value]
    assert len(written) == len(set(written)) and not any(value.startswith("new") for value in written)

    app.interceptor = None
    commands = accept_in_memory(error, kafka)
    assert "--delete-stopoffsets" in " ".join(map(str, commands))


@pytest.mark.remedy("data_loss.rewritten_under_way")
def test_next_run_goes_on_where_this_one_has_committed_when_the_slice_is_dropped(
    app: Application, kafka: InMemoryKafka
) -> None:
    slice_ = begun(app, kafka)
    app.interceptor = At(kafka, 5, lambda: rewrite(kafka, IN, 4, 3))
    error = refused(lambda: app.task(slice_, 0, 0))
    app.interceptor = None
    accept_in_memory(error, kafka)
    app.run("run-2")
    assert results(kafka) == ["0", "1", "2", "3", "new-0", "new-1", "new-2"]


def test_rewritten_intermediate_topic_is_refused_when_its_stop_is_frozen(
    app: Application, kafka: InMemoryKafka
) -> None:
    slice_ = begun(app, kafka)
    for group in range(2):
        app.task(slice_, 0, group)
    app.interceptor = At(kafka, 3, lambda: rewrite(kafka, MIDDLE, 1, 20))
    error = refused(lambda: app.task(slice_, 1, 0))
    assert "middle-0: run 'run-1' stops at" in error.cause
    assert results(kafka) == ["0"]


def test_run_goes_on_when_another_leader_has_lost_nothing(app: Application, kafka: InMemoryKafka) -> None:
    slice_ = begun(app, kafka)

    def elect() -> None:
        kafka.truncate(IN, 6)  # the epoch is another one from here on
        publish(kafka, 6, 7)

    app.interceptor = At(kafka, 3, elect)
    app.tasks(slice_)
    app.finish("run-1")
    app.interceptor = None
    assert results(kafka) == list("012345")
    app.run("run-2")
    assert results(kafka) == list("01234567")


def test_epochs_are_kept_with_the_stops_of_inputs_and_intermediate_topics(
    app: Application, kafka: InMemoryKafka
) -> None:
    kafka.truncate(IN, 0)
    slice_ = begun(app, kafka)
    for group in range(2):
        app.task(slice_, 0, group)
    kafka.truncate(MIDDLE, 100)
    app.task(slice_, 1, 0)
    folded = read_metadata(kafka, APP, clock=kafka.clock)
    assert folded.slice is not None
    assert {p.topic_partition: p.end_epoch for p in folded.slice.inputs}[IN] == 1
    assert folded.intermediate_epochs[MIDDLE] == 1
    assert msgspec.structs.replace(folded.slice, inputs=()).plan == slice_.plan
