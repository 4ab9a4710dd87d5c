"""A view of the metadata topic reads only what is new, and says what a read of the whole would say."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.logs.log_read import OpenTransactionError
from airflow_kstreams.batch.protocol.slice.metadata import Folded, MetadataView, RunState, read_metadata
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord, done_record
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.property.test_metadata_fold import Writers
from tests.support.kafka.metadata_log import APP, a_slice, records_of

METADATA = f"{APP}-metadata"


class Watched:
    """A view of a topic, and how many records it has fetched."""

    def __init__(self, kafka: InMemoryKafka) -> None:
        self.fetched = 0
        self.kafka = kafka
        cluster = FaultyCluster(kafka, self)
        self.view = MetadataView(cluster, APP, clock=kafka.clock)
        self.admin, self.reader = cluster.admin(), cluster.reader(group_id=APP)

    def call(self, name: str, client: object, effect: Any, arguments: tuple[Any, ...]) -> Any:
        result = effect()
        if name == "reader.poll":
            self.fetched += sum(map(len, result.records.values()))
        return result

    def look(self, **how: Any) -> Folded:
        """Look, and compare with a read of the whole."""
        found = self.view.read(admin=self.admin, reader=self.reader, **how)
        assert found == read_metadata(self.kafka, APP, clock=self.kafka.clock, **how)
        return found


def append(kafka: InMemoryKafka, records: list[MetadataRecord]) -> None:
    for record in records:
        kafka.append(METADATA, record.value, record.key, headers=record.headers)


@pytest.fixture
def kafka() -> InMemoryKafka:
    made = InMemoryKafka()
    made.create_topic(METADATA, cleanup_policy="compact")
    append(made, records_of(a_slice()))
    return made


def test_only_what_is_new_is_fetched_when_it_looks_again(kafka: InMemoryKafka) -> None:
    watched = Watched(kafka)
    watched.look()
    whole = watched.fetched
    assert whole == len(kafka.records(METADATA))
    watched.look()
    assert watched.fetched == whole
    append(kafka, [done_record(a_slice(), 0, 1)])
    assert watched.look().done == {(0, 1)}
    assert watched.fetched == whole + 1


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_the_whole_says_when_writers_and_the_cleaner_are_at_work(seed: int) -> None:
    random = Random(seed)
    kafka = InMemoryKafka()
    kafka.create_topic(METADATA, cleanup_policy="compact")
    watched, written = Watched(kafka), 0
    log = [record for record in Writers(random).write(40) if record.headers or record.value is None]
    while written < len(log):
        count = random.randint(1, 6)
        append(kafka, log[written : written + count])
        written += count
        if random.random() < 0.3:
            kafka.compact(METADATA, drop_tombstones=False)
        try:
            watched.look(topics=("A", "B", "I"))
        except Exception as error:  # a torn stop set is an error of both
            assert "are not those that the marker names" in str(error)


def test_everything_is_read_again_when_the_topic_was_created_again(kafka: InMemoryKafka) -> None:
    watched = Watched(kafka)
    assert watched.look().state is RunState.RUNNING
    kafka.admin().delete_topics([METADATA])
    assert watched.look().state is RunState.NEW
    kafka.create_topic(METADATA, cleanup_policy="compact")
    append(kafka, records_of(a_slice("run-2")))
    found = watched.look().slice
    assert found is not None
    assert found.run_id == "run-2"


@pytest.mark.parametrize("how", ["expired", "truncated"])
def test_everything_is_read_again_when_the_log_is_another(kafka: InMemoryKafka, how: str) -> None:
    append(kafka, [done_record(a_slice(), 0, 0)])
    watched = Watched(kafka)
    assert watched.look().done == {(0, 0)}
    (tp,) = kafka.partitions(METADATA)
    end = len(kafka.records(METADATA))
    if how == "expired":
        kafka.expire({tp: end})
        assert watched.look().state is RunState.NEW
    else:
        kafka.truncate(tp, end - 1)
        assert watched.look().done == frozenset()


def test_tombstone_is_not_missed_when_it_came_and_went_between_two_looks(kafka: InMemoryKafka) -> None:
    watched = Watched(kafka)
    watched.look()
    kafka.append(METADATA, None, APP.encode())
    kafka.append(METADATA, b"x", b"something else")
    kafka.clock.sleep(2 * 24 * 3600)
    kafka.compact(METADATA, drop_tombstones=True)
    assert watched.look().state is RunState.NEW


def test_what_an_open_transaction_hides_is_read_later(kafka: InMemoryKafka) -> None:
    watched = Watched(kafka)
    watched.look()
    writer = kafka.writer(transactional_id=f"{APP}-0_0", transaction_timeout_ms=600_000)
    writer.init_transactions()
    writer.begin()
    record = done_record(a_slice(), 0, 0)
    writer.produce(METADATA, record.value, record.key, 0, None, record.headers)
    writer.flush()
    append(kafka, [done_record(a_slice(), 0, 1)])
    assert watched.look(wait_ms=0).done == frozenset()
    with pytest.raises(OpenTransactionError):
        watched.view.read(admin=watched.admin, reader=watched.reader)
    writer.commit()
    assert watched.look().done == {(0, 0), (0, 1)}
