from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.protocol.metadata import Folded
from airflow_kstreams.batch.protocol.model import RunState
from airflow_kstreams.batch.protocol.stops import (
    all_stops,
    intermediate_stops,
    notifications_for,
    task_partitions,
)
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.metadata_log import a_slice

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)
I0, I1 = TopicPartition("I", 0), TopicPartition("I", 1)
#: The spec's deadlock example (X#1 reports 24 and 56, X#2 34 and 12), with a second input topic.
TOLD = {(A0, I0): 24, (A0, I1): 56, (A1, I0): 34, (A1, I1): 12, (B0, I0): 0, (B0, I1): 0}


def told(notifications: dict[tuple[TopicPartition, TopicPartition], int]) -> Folded:
    return Folded(state=RunState.RUNNING, slice=a_slice(), notifications=notifications)


def test_stop_is_the_largest_report_when_every_input_partition_reported() -> None:
    assert intermediate_stops(told(TOLD), a_slice(), "I") == {0: 34, 1: 56}


@pytest.mark.parametrize("absent", list(TOLD))
def test_missing_report_is_named_when_one_input_partition_has_not_reported(
    absent: tuple[TopicPartition, TopicPartition],
) -> None:
    rest = {pair: offset for pair, offset in TOLD.items() if pair != absent}
    with pytest.raises(UpstreamNotDoneError, match=f"{absent[0]} for {absent[1]}") as caught:
        intermediate_stops(told(rest), a_slice(), "I")
    assert caught.value.run_id == "run-1"


def test_stops_cover_inputs_and_intermediates_when_all_is_reported() -> None:
    assert all_stops(told(TOLD), a_slice()) == {A0: 55, A1: 46, B0: 7, I0: 34, I1: 56}


def test_task_has_the_partitions_of_its_number_when_counts_are_unequal() -> None:
    assert task_partitions(a_slice(), 0, 0) == [A0, B0]
    assert task_partitions(a_slice(), 0, 1) == [A1]


def test_task_has_the_partitions_of_its_group_when_a_grouper_put_them_together() -> None:
    slice_ = a_slice()
    groups = {"0": ({"B": (0,)}, {"A": (0, 1)})}
    slice_ = msgspec.structs.replace(slice_, plan=msgspec.structs.replace(slice_.plan, groups=groups))
    assert task_partitions(slice_, 0, 0) == [B0]
    assert task_partitions(slice_, 0, 1) == [A0, A1]
    assert notifications_for(slice_, 0, 1) == [(A0, I0), (A0, I1), (A1, I0), (A1, I1)]
    assert task_partitions(slice_, 1, 1) == [I1]


def test_task_reports_each_pair_when_it_writes_an_intermediate_topic() -> None:
    assert notifications_for(a_slice(), 0, 1) == [(A1, I0), (A1, I1)]
    assert notifications_for(a_slice(), 1, 0) == []
