from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.protocol.logs.log_read import OpenTransactionError
from airflow_kstreams.batch.protocol.slice.metadata import Folded, MetadataView, RunState, fold, read_metadata
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    MetadataRecord,
    completed_record,
    done_record,
    finished_record,
)
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.property.test_metadata_fold import Writers
from tests.support.kafka.metadata_log import (
    APP,
    INPUTS,
    a_slice,
    bare,
    compacted,
    log_of,
    records_of,
    second_run,
    stop_record,
    tombstones,
)

pytestmark = pytest.mark.promise("foreign-runs-are-claimed")

TOPICS = ("A", "B", "I")
A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
I0, I1 = TopicPartition("I", 0), TopicPartition("I", 1)


def folded(records: list[MetadataRecord], topics: tuple[str, ...] = ()) -> Folded:
    return fold(log_of(records), APP, topics=topics)


def test_state_is_new_when_the_topic_is_empty() -> None:
    assert folded([]) == Folded(state=RunState.NEW)


def test_slice_is_found_whole_when_the_completed_marker_is_there() -> None:
    found = folded(records_of(a_slice()))
    assert found.state is RunState.RUNNING
    assert found.slice == a_slice()
    assert found.owner == "the test"
    assert not found.torn


@pytest.mark.parametrize("written", range(len(INPUTS) + 1))
def test_state_is_new_when_begin_died_before_its_completed_marker(written: int) -> None:
    assert folded(records_of(a_slice())[:written]).state is RunState.NEW


def test_finished_marker_alone_is_enough_when_compaction_dropped_the_rest() -> None:
    found = folded([finished_record(a_slice(), owner="x")])
    assert found.state is RunState.FINISHED
    assert found.slice is not None
    assert found.slice.plan == a_slice().plan


def test_state_never_mixes_runs_when_a_writer_without_transactions_dies_anywhere_in_begin() -> None:
    first, begin = second_run()
    for written in range(len(begin) + 1):
        found = folded(first + begin[:written])
        marker_gone = any(r.key == APP.encode() for r in begin[:written])
        if written == len(begin):
            assert found.state is RunState.RUNNING
            assert found.slice is not None
            assert found.slice.run_id == "run-2"
            assert [p.stop_offset for p in found.slice.inputs] == [155, 46, 9]
            assert (found.notifications, found.done, found.intermediate_stops) == ({}, frozenset(), {})
        elif marker_gone:
            assert found.state is RunState.NEW, written
        else:
            assert found.state is RunState.FINISHED, written


def test_fold_is_unchanged_when_the_log_is_compacted_at_any_point() -> None:
    first, begin = second_run()
    log = first + begin
    for cut in range(len(log) + 1):
        assert folded(compacted(log[:cut]) + log[cut:]) == folded(log), cut


def test_live_keys_are_all_keys_with_a_value_when_a_run_has_finished() -> None:
    first, _ = second_run()
    keys = {b"A_0", b"A_1", b"B_0", b"app-0_0", b"I_0", b"app"}
    assert set(folded(first).live_keys) == keys
    assert folded(first + tombstones(first)).live_keys == ()


def test_generation_is_the_rewritten_one_when_a_driver_took_over() -> None:
    taken = msgspec.structs.replace(a_slice(), generation=4)
    found = folded([*records_of(a_slice()), completed_record(taken, owner="second driver")])
    assert found.slice == taken
    assert found.owner == "second driver"


def test_notifications_of_an_older_generation_count_when_the_run_is_the_same() -> None:
    older = [done_record(a_slice(generation=1), 0, 0)]
    taken = completed_record(a_slice(generation=2), owner="x")
    found = folded([*records_of(a_slice()), *older, taken])
    assert found.done == {(0, 0)}


def test_frozen_stops_stay_when_another_driver_takes_the_run_over() -> None:
    stop = stop_record(a_slice(generation=1), "I", 0, 24)
    taken = completed_record(a_slice(generation=2), owner="x")
    found = folded([*records_of(a_slice()), stop, taken])
    assert (found.intermediate_stops, found.torn) == ({I0: 24}, False)
    assert found.slice is not None
    assert found.slice.inputs == a_slice().inputs, "they are no input's"


def test_notifications_are_ignored_when_another_run_wrote_them() -> None:
    other = a_slice("run-0")
    strays = [done_record(other, 0, 0), stop_record(other, "I", 0, 24), bare("A_0-I_0", "24")]
    found = folded([*records_of(a_slice()), *strays])
    assert (found.notifications, found.done, found.intermediate_stops) == ({}, frozenset(), {})


def test_stop_set_is_torn_when_one_stop_is_missing_or_changed() -> None:
    whole = records_of(a_slice())
    assert folded(whole[1:]).torn
    changed = whole[0]._replace(value=b"54")
    assert folded([changed, *whole[1:]]).torn
    assert not folded(whole).torn


def test_plan_that_cannot_be_read_is_an_error_when_the_marker_is_ours() -> None:
    marker = completed_record(a_slice(), owner="x")
    headers = [(n, b"{" if n == "kstreams.plan" else v) for n, v in marker.headers or ()]
    with pytest.raises(KafkaClientError, match="cannot be read"):
        folded([marker._replace(headers=headers)])


def test_marker_of_another_format_is_an_error_and_never_taken_for_a_bare_one() -> None:
    marker = completed_record(a_slice(), owner="x")
    headers = [(n, b"2" if n == "kstreams.version" else v) for n, v in marker.headers or ()]
    with pytest.raises(KafkaClientError, match="written in format '2', expected '3'"):
        folded([*records_of(a_slice())[:-1], marker._replace(headers=headers)], TOPICS)


# == the spec's own pictures, written by someone else


def test_stops_are_kept_when_a_foreign_writer_began_the_run() -> None:
    log = [bare("A_1", "55"), bare("A_0", "46"), bare("B_0", "75"), bare(APP, "0")]
    found = folded(log, TOPICS)
    assert found.state is RunState.RUNNING
    assert found.slice is None
    assert found.foreign_stops == {A1: 55, A0: 46, B0: 75}


def test_done_notifications_are_read_when_a_foreign_writer_wrote_them() -> None:
    log = [bare("A_1", "55"), bare(APP, "0"), bare("A_1-I_1", "24"), bare("A_1-I_0", "56")]
    assert folded(log, TOPICS).notifications == {(A1, I1): 24, (A1, I0): 56}


def test_state_is_finished_when_a_foreign_finished_marker_is_last() -> None:
    log = [bare("A_1", "55"), bare(APP, "0"), bare(APP, "1")]
    assert folded(log, TOPICS).state is RunState.FINISHED


def test_stops_are_gone_when_a_foreign_writer_tombstoned_them() -> None:
    log = [
        bare("A_1", "55"),
        bare(APP, "0"),
        bare(APP, "1"),
        bare("A_1", None),
        bare(APP, None),
        bare("A_1", "155"),
    ]
    found = folded(log, TOPICS)
    assert found.state is RunState.NEW
    assert found.live_keys == (b"A_1",)


def test_keys_are_parsed_by_whole_names_when_topic_names_hold_dashes_and_digits() -> None:
    topics = ("a-1", "a-1_0", "b_2-c")
    log = [bare("a-1_0", "5"), bare("a-1_0_1", "6"), bare(APP, "0"), bare("a-1_0_1-b_2-c_3", "9")]
    found = folded(log, topics)
    assert found.foreign_stops == {TopicPartition("a-1", 0): 5, TopicPartition("a-1_0", 1): 6}
    assert found.notifications == {(TopicPartition("a-1_0", 1), TopicPartition("b_2-c", 3)): 9}


def test_strange_records_are_kept_out_of_the_state_when_the_topic_holds_some() -> None:
    log = [bare("\u00e9_x", "y"), bare("A_-1", "5"), bare("A_0", "five"), bare("Z_0", "5"), bare(APP, "0")]
    found = folded(log, TOPICS)
    assert found.foreign_stops == {}
    assert len(found.live_keys) == 5


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
