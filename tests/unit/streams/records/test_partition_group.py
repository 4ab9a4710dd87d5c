from __future__ import annotations

import pytest

from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.partition_group import PartitionGroup
from airflow_kstreams.streams.records.record_queue import UNBOUNDED
from tests.support.topology.records import FakeRecord

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def records(partition: TopicPartition, *timed: tuple[int, int]) -> list[FakeRecord]:
    return [FakeRecord(at=at, timestamp_ms=time, in_topic=partition.topic) for at, time in timed]


def drain(group: PartitionGroup, limit: int = 1000) -> list[tuple[str, int]]:
    order: list[tuple[str, int]] = []
    while (chosen := group.choose(limit)) is not None:
        group.advance(chosen.partition, len(chosen.records))
        order.extend((chosen.partition.topic, record.offset()) for record in chosen.records)
    return order


def test_smallest_timestamp_goes_first_when_every_partition_is_complete() -> None:
    group = PartitionGroup({A: (0, 3), B: (0, 2)}, buffered=10)
    group.add(A, records(A, (0, 10), (1, 30), (2, 20)))
    group.add(B, records(B, (0, 15), (1, 25)))
    group.reached(A, 3)
    group.reached(B, 2)
    assert drain(group) == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2)]
    assert group.complete


def test_ties_go_by_topic_when_timestamps_are_equal() -> None:
    group = PartitionGroup({B: (0, 2), A: (0, 2)}, buffered=10)
    group.add(B, records(B, (0, 5), (1, 5)))
    group.add(A, records(A, (0, 5), (1, 5)))
    group.reached(A, 2)
    group.reached(B, 2)
    assert drain(group) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_nothing_is_chosen_when_an_unfinished_partition_holds_too_few() -> None:
    group = PartitionGroup({A: (0, 9), B: (0, 9)}, buffered=2)
    group.add(A, records(A, (0, 1), (1, 2), (2, 3)))
    group.add(B, records(B, (0, 9)))
    assert group.choose(100) is None
    group.add(B, records(B, (1, 9)))
    chosen = group.choose(100)
    assert chosen is not None
    assert [record.offset() for record in chosen.records] == [0, 1], (
        "a keeps fewer than two after its first two records"
    )


@pytest.mark.promise("ends-at-stop-offsets")
def test_records_past_the_stop_are_left_out_when_a_fetch_overshoots() -> None:
    group = PartitionGroup({A: (0, 2)}, buffered=10)
    group.add(A, records(A, (0, 1), (1, 1), (2, 1), (3, 1)))
    assert drain(group) == [("a", 0), ("a", 1)]
    assert group.positions() == {A: 2}
    assert group.complete


def test_stop_is_reached_when_only_markers_lie_before_it() -> None:
    group = PartitionGroup({A: (5, 9)}, buffered=10)
    group.add(A, records(A, (5, 1)))
    assert drain(group) == [("a", 5)]
    group.reached(A, 8)
    assert group.unfinished() == [A]
    group.reached(A, 9)
    assert group.complete
    assert group.positions() == {A: 9}, "the stop itself is committed, so that lag tools show zero"


def test_stop_is_reached_when_a_record_past_it_comes_after_a_gap() -> None:
    group = PartitionGroup({A: (5, 9)}, buffered=10)
    group.add(A, records(A, (5, 1), (12, 1)))
    assert drain(group) == [("a", 5)]
    assert group.complete
    assert group.positions() == {A: 9}


def test_group_is_complete_when_there_is_nothing_to_read() -> None:
    group = PartitionGroup({A: (4, 4)}, buffered=10)
    assert group.complete
    assert group.unfinished() == []
    assert group.positions() == {A: 4}


def test_runs_respect_the_limit_when_one_partition_is_left() -> None:
    group = PartitionGroup({A: (0, 5), B: (0, 0)}, buffered=10)
    group.add(A, records(A, *((n, 0) for n in range(5))))
    sizes = []
    while (chosen := group.choose(2)) is not None:
        group.advance(A, len(chosen.records))
        sizes.append(len(chosen.records))
    assert sizes == [2, 2, 1]


def test_position_is_the_offset_after_the_last_record_processed_when_more_is_buffered() -> None:
    group = PartitionGroup({A: (0, 9)}, buffered=10)
    group.add(A, records(A, (0, 1), (3, 1), (4, 1)))
    group.choose(3)
    assert group.positions() == {A: 0}, "chosen is not processed"
    group.advance(A, 2)
    assert group.positions() == {A: 4}
    assert drain(group) == [("a", 4)]


def test_group_goes_on_when_the_stop_moves_after_the_end_was_reached() -> None:
    group = PartitionGroup({A: (0, 0)}, buffered=10)
    group.extend(A, 2)
    assert group.unfinished() == [A]
    group.add(A, records(A, (0, 7)))
    group.reached(A, 1)
    assert drain(group) == [("a", 0)]
    assert group.unfinished() == [A]
    assert group.positions() == {A: 1}
    group.add(A, records(A, (1, 8)))
    group.reached(A, 2)
    assert drain(group) == [("a", 1)]
    assert group.complete
    assert group.stops() == {A: 2}


def test_stop_stays_when_it_would_move_back() -> None:
    group = PartitionGroup({A: (0, 3)}, buffered=10)
    group.reached(A, 3)
    group.extend(A, 2)
    assert group.complete
    assert group.stops() == {A: 3}


def test_quiet_partition_keeps_no_other_waiting_when_it_has_caught_up() -> None:
    group = PartitionGroup({A: (0, UNBOUNDED), B: (4, UNBOUNDED)}, buffered=2, timed=True)
    group.add_live(A, records(A, (0, 1)))
    assert group.choose(100) is None, "nothing is known of the other one yet"
    group.caught_up(B, 6)
    assert group.choose(100) is None, "more may be on its way: it has neither a full buffer nor an end"
    group.caught_up(A, 1)
    assert drain(group) == [("a", 0)]
    assert group.positions() == {A: 1, B: 6}, "past what readers do not see"
    assert group.complete, "for now"


def test_latest_times_are_of_all_records_when_the_last_ones_are_out_of_order() -> None:
    group = PartitionGroup({A: (0, 3), B: (0, 2)}, buffered=10, timed=True)
    group.add(A, records(A, (0, 10), (1, 30), (2, 20)))
    group.add(B, records(B, (0, 25), (1, 15)))
    assert group.latest_times() == {}, "records are left that may hold stream time back"
    drain(group)
    assert group.latest_times() == {"a": 30, "b": 25}


@pytest.mark.promise("slices-give-what-they-close")
def test_latest_times_go_no_further_than_what_waits_for_other_partitions() -> None:
    waiting = TopicPartition("a", 1)
    group = PartitionGroup({A: (0, 2), waiting: (0, 0)}, buffered=10, timed=True, looked_at={waiting: (0, 2)})
    group.add(A, records(A, (0, 30), (1, 5)))
    group.reached(A, 2)
    assert group.latest_times() == {}
    group.add(waiting, records(waiting, (0, 25), (1, 22)))
    drain(group)
    assert group.latest_times() == {"a": 22}


def test_partition_counts_again_when_a_record_comes_after_it_had_caught_up() -> None:
    group = PartitionGroup({A: (0, UNBOUNDED), B: (0, UNBOUNDED)}, buffered=2)
    group.caught_up(A, 0)
    group.caught_up(B, 0)
    group.add_live(B, records(B, (0, 9)))
    assert not group.complete
    group.add_live(A, records(A, (0, 1), (1, 5), (2, 10)))
    assert drain(group) == [], "of the other one, records with smaller timestamps may be on their way"
    group.caught_up(B, 1)
    assert drain(group) == [("a", 0), ("a", 1)]
    group.caught_up(A, 3)
    assert drain(group) == [("b", 0), ("a", 2)]
    assert group.positions() == {A: 3, B: 1}


def test_end_told_before_the_records_behind_it_came_does_not_count() -> None:
    group = PartitionGroup({A: (0, UNBOUNDED), B: (0, UNBOUNDED)}, buffered=5, timed=True)
    group.caught_up(B, 0)
    group.add_live(A, records(A, (0, 1), (1, 2)))
    group.caught_up(A, 1)
    assert group.choose(100) is None
    group.caught_up(A, 2)
    assert drain(group) == [("a", 0), ("a", 1)]


def test_partition_is_ahead_when_it_holds_ten_buffers_and_another_has_not_caught_up() -> None:
    group = PartitionGroup({A: (0, UNBOUNDED), B: (0, UNBOUNDED)}, buffered=2)
    group.add_live(A, records(A, *((at, at) for at in range(19))))
    assert group.ahead() == []
    group.add_live(A, records(A, (19, 19)))
    assert group.ahead() == [A]
    group.caught_up(B, 0)
    assert group.ahead() == []


@pytest.mark.parametrize(("taken", "ahead"), [(10, [A]), (11, [])])
def test_partition_stays_ahead_until_fewer_than_five_buffers_are_left(
    taken: int, ahead: list[TopicPartition]
) -> None:
    group = PartitionGroup({A: (0, 99), B: (0, 99)}, buffered=2)
    group.add(A, records(A, *((at, at) for at in range(20))))
    group.add(B, records(B, (0, taken - 1), (1, 99)))
    assert group.ahead([A]) == [], "nobody waits"
    assert drain(group) == [("a", at) for at in range(taken)] + [("b", 0)]
    assert group.ahead([A]) == ahead
    assert group.ahead() == []
