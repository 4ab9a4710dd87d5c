from __future__ import annotations

from airflow_kstreams.batch.protocol.offsets.offset_metadata import LIMIT_BYTES, OffsetMetadata, PackedCounts
from airflow_kstreams.streams.figures.record_counts import LeftOut, RecordCounts
from airflow_kstreams.streams.plan import SubtopologyPlan

PLAN = SubtopologyPlan(id=0, sources=("a", "b"), sinks=("x", "y"))
COUNTS = RecordCounts(
    read={"a": 3, "b": 0},
    outside={"b": 2},
    written={"x": 1, "y": 0},
    sent={"z": 1},
    left_out=(LeftOut("f", "filtered", 2),),
)


def _metadata(packed: PackedCounts, **others: int | str | tuple[int, ...]) -> OffsetMetadata:
    return OffsetMetadata(run_id="r", task_id="0_0", records_in=7, counts=packed, **others)  # type: ignore[arg-type]


def test_counts_are_read_back_as_they_were_when_they_fit() -> None:
    text = _metadata(PackedCounts.of(COUNTS, PLAN)).encode()
    assert OffsetMetadata.decode(text).counts_so_far(PLAN) == COUNTS


def test_largest_nodes_stay_and_every_rule_keeps_its_total_when_there_are_too_many() -> None:
    nodes = [LeftOut(f"node-{number:04}", "late", 10_000 - number) for number in range(500)]
    nodes += [LeftOut(f"node-{number:04}", "filtered", 1) for number in range(500)]
    many = RecordCounts(read={"a": 1, "b": 1}, written={"x": 0, "y": 0}, left_out=tuple(nodes))
    text = _metadata(PackedCounts.of(many, PLAN)).encode()
    found = OffsetMetadata.decode(text).counts_so_far(PLAN)
    assert len(text) <= LIMIT_BYTES
    assert found is not None
    assert found.by_rule == many.by_rule
    named = [entry for entry in found.left_out if entry.node]
    assert len(named) > 10
    assert named == nodes[: len(named)]


def test_counts_go_before_the_ends_of_changelogs_when_both_do_not_fit() -> None:
    wide = SubtopologyPlan(id=0, sources=tuple(f"t{n:04}" for n in range(400)), sinks=())
    counts = RecordCounts(read=dict.fromkeys(wide.sources, 10**9))
    ends = tuple(range(10**17, 10**17 + 100))
    found = OffsetMetadata.decode(_metadata(PackedCounts.of(counts, wide), changelog_ends=ends).encode())
    assert (found.counts, found.changelog_ends, found.records_in) == (None, ends, 7)
    assert found.counts_so_far(wide) is None, "unknown, never 0"


def test_counts_stay_when_the_ends_of_changelogs_alone_are_too_many() -> None:
    ends = tuple(range(10**17, 10**17 + 300))
    found = OffsetMetadata.decode(_metadata(PackedCounts.of(COUNTS, PLAN), changelog_ends=ends).encode())
    assert (found.counts_so_far(PLAN), found.changelog_ends) == (COUNTS, ())
