from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.protocol.slice.metadata import Folded, fold
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord, done_record
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import (
    all_stops,
    has_notified,
    intermediate_stops,
    task_partitions,
    to_freeze,
    unfinished_groups,
)
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.streams.ports import CommittedOffset, ReaderPort, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.metadata_log import APP, a_slice, log_of, records_of, stop_record

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
I0, I1 = TopicPartition("I", 0), TopicPartition("I", 1)


def told(*records: MetadataRecord) -> Folded:
    return fold(log_of([*records_of(a_slice()), *records]), APP)


DONE = [done_record(a_slice(), 0, group) for group in range(2)]
STOPS = [stop_record(a_slice(), "I", 0, 60), stop_record(a_slice(), "I", 1, 0)]


def test_stops_are_asked_for_when_every_task_has_notified() -> None:
    found = told(*DONE)
    assert to_freeze(found, a_slice(), 1) == [I0, I1]
    assert intermediate_stops(found, a_slice(), "I") is None
    with pytest.raises(UpstreamNotDoneError, match="no stop offset is frozen"):
        all_stops(found, a_slice())


@pytest.mark.parametrize("absent", [0, 1])
def test_missing_notification_is_named_when_one_task_has_not_notified(absent: int) -> None:
    found = told(DONE[1 - absent])
    with pytest.raises(
        UpstreamNotDoneError, match=rf"no done notification of task 0_{absent} \[KS-RUN-007\]\n"
    ) as caught:
        to_freeze(found, a_slice(), 1)
    assert caught.value.run_id == "run-1"
    assert has_notified(found, a_slice(), 0, 1 - absent)
    assert not has_notified(found, a_slice(), 0, absent)


def test_nothing_is_to_be_frozen_when_stops_are_frozen() -> None:
    found = told(*DONE, *STOPS)
    assert to_freeze(found, a_slice(), 1) == []
    assert intermediate_stops(found, a_slice(), "I") == {0: 60, 1: 0}
    assert all_stops(found, a_slice()) == {A0: 55, A1: 46, B0: 7, I0: 60, I1: 0}


def test_only_what_is_missing_is_frozen_when_somebody_deleted_a_stop() -> None:
    assert to_freeze(told(*DONE, STOPS[1]), a_slice(), 1) == [I0]


def test_inputs_need_no_stop_when_a_subtopology_reads_nothing_else() -> None:
    assert to_freeze(told(), a_slice(), 0) == []
    assert has_notified(told(), a_slice(), 1, 0), "it writes no intermediate topic"


# == tasks


def test_task_has_the_partitions_of_its_number_when_counts_are_unequal() -> None:
    assert task_partitions(a_slice(), 0, 0) == [A0, B0]
    assert task_partitions(a_slice(), 0, 1) == [A1]


def test_task_has_the_partitions_of_its_group_when_a_grouper_put_them_together() -> None:
    slice_ = a_slice()
    groups = {"0": ({"B": (0,)}, {"A": (0, 1)})}
    slice_ = msgspec.structs.replace(slice_, plan=msgspec.structs.replace(slice_.plan, groups=groups))
    assert task_partitions(slice_, 0, 0) == [B0]
    assert task_partitions(slice_, 0, 1) == [A0, A1]
    assert task_partitions(slice_, 1, 1) == [I1]


@pytest.mark.parametrize(
    ("records", "offsets", "left"),
    [
        ([], {A0: 55, A1: 46, B0: 7}, [0, 1]),
        (DONE[:1], {A0: 55, A1: 46, B0: 7}, [1]),
        (DONE, {A0: 55, A1: 45, B0: 7}, [1]),
        (DONE, {A0: 55, A1: 46}, [0]),
        (DONE, {A0: 56, A1: 46, B0: 7}, []),
    ],
)
def test_tasks_are_unfinished_until_they_are_at_their_stops_and_have_notified(
    records: list[MetadataRecord], offsets: dict[TopicPartition, int], left: list[int]
) -> None:
    assert unfinished_groups(a_slice(), 0, folded=told(*records), reader=group(a_slice(), offsets)) == left


def test_all_tasks_are_unfinished_when_what_they_read_is_not_frozen_yet() -> None:
    nothing = group(a_slice(), {})
    assert unfinished_groups(a_slice(), 1, folded=told(*DONE), reader=nothing) == [0, 1]
    with pytest.raises(UpstreamNotDoneError):
        unfinished_groups(a_slice(), 1, folded=told(), reader=nothing)


def group(slice_: Slice, offsets: dict[TopicPartition, int]) -> ReaderPort:
    kafka = InMemoryKafka()
    for topic, partitions in slice_.plan.partitions.items():
        kafka.create_topic(topic, partitions=partitions)
    reader = kafka.reader(group_id=APP)
    reader.commit({tp: CommittedOffset(offset) for tp, offset in offsets.items()})
    return reader
