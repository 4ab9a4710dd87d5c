from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.protocol.logs.data_loss import data_loss
from airflow_kstreams.batch.protocol.logs.log_read import LogBounds, any_record
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.run.begin.freeze import find_losses, freeze_inputs, start_of
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import CommittedOffset, Fetched, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings

if TYPE_CHECKING:
    from airflow_kstreams.streams.ports import ReaderPort

A0, A1 = TopicPartition("A", 0), TopicPartition("A", 1)
OURS = OffsetMetadata(run_id="run-0").encode()
IDS = {"A": "id-a"}


def freeze(
    bounds: LogBounds,
    *,
    committed: CommittedOffset | None = None,
    last_stops: dict[TopicPartition, int] | None = None,
    before: dict[str, str] | None = None,
    first: str = "earliest",
) -> tuple[int, int]:
    known = PriorRuns(
        committed={} if committed is None else {A0: committed},
        last_stops=last_stops or {},
        topic_ids=IDS if before is None else before,
    )
    settings = ApplicationSettings.parse("app", {"first.run.offsets": first})
    losses = find_losses({A0: bounds}, known, IDS)
    if losses:
        raise data_loss(losses, "app", run_id="run-1")
    (part,) = freeze_inputs({A0: bounds}, known, settings)
    return part.start_offset, part.stop_offset


def log(start: int, stable: int, high: int | None = None) -> LogBounds:
    return LogBounds(start=start, stable=stable, high=stable if high is None else high)


def test_slice_starts_at_the_committed_offset_when_there_is_one() -> None:
    assert freeze(log(0, 60), committed=CommittedOffset(55, OURS), last_stops={A0: 50}) == (55, 60)


def test_slice_starts_at_the_last_stop_when_the_committed_offset_expired() -> None:
    assert freeze(log(0, 60), last_stops={A0: 50}) == (50, 60)


@pytest.mark.parametrize(("policy", "expected"), [("earliest", (3, 60)), ("latest", (60, 60))])
def test_first_run_policy_decides_when_nothing_is_remembered(policy: str, expected: tuple[int, int]) -> None:
    assert freeze(log(3, 60), first=policy) == expected


def test_added_partition_starts_at_its_beginning_when_the_first_run_began_at_latest() -> None:
    assert freeze(log(0, 60), last_stops={A1: 9}, first="latest") == (0, 60)


def test_partition_starts_at_its_beginning_when_only_others_of_its_topic_have_committed_offsets() -> None:
    known = PriorRuns(committed={A1: CommittedOffset(9, OURS)}, last_stops={}, topic_ids=IDS)
    settings = ApplicationSettings.parse("app", {"first.run.offsets": "latest"})
    assert start_of(A0, log(3, 60), known, settings) == 3


def test_slice_stops_at_the_last_stable_offset_when_a_transaction_is_open() -> None:
    assert freeze(log(0, 40, high=60)) == (0, 40)


def test_slice_is_empty_when_an_open_transaction_begins_before_the_committed_offset() -> None:
    assert freeze(log(0, 40, high=60), committed=CommittedOffset(50, OURS)) == (50, 50)


@pytest.mark.promise("nothing-is-skipped")
@pytest.mark.parametrize(
    ("bounds", "text"),
    [(log(56, 60), "from offset 55 to 56 are gone"), (log(0, 54), "log ends at 54.*up to 55")],
)
def test_loss_is_an_error_when_the_start_lies_outside_the_log(bounds: LogBounds, text: str) -> None:
    with pytest.raises(DataLossError, match=text) as caught:
        freeze(bounds, committed=CommittedOffset(55, OURS))
    assert "--accept A:0" in caught.value.fix
    with pytest.raises(DataLossError, match=text):
        freeze(bounds, last_stops={A0: 55})


@pytest.mark.promise("nothing-is-skipped")
@pytest.mark.parametrize(
    ("bounds", "purged", "lost"),
    [(log(5, 5), "", True), (log(5, 5), "A", False), (log(5, 9), "A", True), (log(0, 0), "", False)],
    ids=["retention emptied the log", "runs emptied it", "unread records", "never written"],
)
def test_records_may_be_lost_when_nothing_says_how_far_a_partition_was_read(
    bounds: LogBounds, purged: str, lost: bool
) -> None:
    known = PriorRuns(
        committed={},
        last_stops={A0: 3},
        topic_ids=IDS,
        read={"A": 1},
        unfinished_run="c-1",
        continuous=True,
        purged={purged},
    )
    found = find_losses({A0: bounds}, known, IDS)
    assert [loss.partitions for loss in found] == ([(A0,)] if lost else [])
    assert not lost or "those before offset 5 are deleted" in found[0].text


@pytest.mark.promise("a-person-accepts-loss")
def test_loss_is_an_error_when_the_topic_was_created_again_even_if_offsets_would_fit() -> None:
    with pytest.raises(DataLossError, match=r"created again.*expected id-old"):
        freeze(log(0, 60), committed=CommittedOffset(55, OURS), before={"A": "id-old"})
    with pytest.raises(DataLossError, match="created again"):
        freeze(log(0, 60), last_stops={A0: 55}, before={"A": "id-old"})


@pytest.mark.promise("a-person-accepts-loss")
def test_recreated_topic_is_accepted_when_a_person_reset_the_offset() -> None:
    assert freeze(log(0, 60), committed=CommittedOffset(0, ""), before={"A": "id-old"}) == (0, 60)


class NoteReader:
    """Finds a record in partition 0 and nothing but markers elsewhere; notes what it was asked to read."""

    def __init__(self) -> None:
        self.assigned: list[dict[TopicPartition, int]] = []

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.assigned.append(dict(starts))

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        asked = self.assigned[-1]
        record = SimpleNamespace(offset=lambda: asked[A0])
        records: Any = {A0: [record]} if A0 in asked else {}
        return Fetched(records, {tp: 1_000 for tp in asked if tp != A0})


def test_few_partitions_are_fetched_from_when_the_widest_span_holds_a_record() -> None:
    reader = NoteReader()
    spans = {TopicPartition("A", number): (5, 100 - number) for number in reversed(range(100))}
    assert any_record(cast("ReaderPort", reader), spans, clock=SystemClock())
    assert [len(starts) for starts in reader.assigned] == [8, 0]
    assert reader.assigned[0][A0] == 5


def test_every_span_is_read_when_none_holds_a_record() -> None:
    reader = NoteReader()
    spans = {TopicPartition("A", number): (5, 9) for number in range(1, 21)}
    spans[A0] = (5, 5)
    assert not any_record(cast("ReaderPort", reader), spans, clock=SystemClock())
    assert {tp for starts in reader.assigned for tp in starts} == set(spans) - {A0}
