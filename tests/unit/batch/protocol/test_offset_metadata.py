from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.ledger.fold import check_run_id
from airflow_kstreams.batch.protocol.offsets.offset_metadata import (
    LIMIT_BYTES,
    MOST_BYTES,
    NOTHING_YET,
    OffsetMetadata,
    PackedCounts,
    TaskMetrics,
)
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.call_figures import (
    MOST_BUCKETS,
    MOST_NODES,
    UNKNOWN,
    CallFigures,
    Latencies,
    NodeCalls,
    ThreadFigures,
)
from airflow_kstreams.streams.figures.record_counts import OTHER_NODES, LeftOut, RecordCounts
from airflow_kstreams.streams.plan import SubtopologyPlan

pytestmark = pytest.mark.promise("parked-records-come-first")

#: So large that the sum over the nodes of a task still has 64 bits.
_LARGEST = (2**63 - 1) // MOST_NODES


@pytest.mark.parametrize(
    "text", ["", "checkpoint 7", "{", "[]", "{}", '{"run":"x"}', '{"run":"x","v":99}', '{"v":1,"in":"x"}']
)
def test_defaults_are_read_when_the_text_is_not_ours(text: str) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()


def largest_metrics() -> TaskMetrics:
    buckets = tuple(number for index in range(300, 300 + MOST_BUCKETS) for number in (index, _LARGEST))
    latencies = Latencies(_LARGEST, _LARGEST, -1, buckets)
    return TaskMetrics(latencies, latencies, _LARGEST, _LARGEST, _LARGEST)


def test_metrics_have_a_bound_whatever_was_measured() -> None:
    assert len(msgspec.json.encode(largest_metrics())) <= MOST_BYTES


@pytest.mark.promise("metrics-unknown-not-zero")
def test_metrics_go_first_when_there_is_no_room_for_all() -> None:
    nodes = tuple(LeftOut(f"node-{number:05}", "filtered", 10**6) for number in range(100))
    counts = PackedCounts(read=(1,), left_out=nodes)
    full = OffsetMetadata(run_id="r", task_id="0_0", counts=counts, changelog_ends=(5, 6))
    with_metrics = msgspec.structs.replace(full, metrics=largest_metrics())
    assert len(full.encode()) < LIMIT_BYTES < len(full.encode()) + MOST_BYTES

    read = OffsetMetadata.decode(with_metrics.encode())

    assert (read.counts, read.changelog_ends, read.metrics) == (counts, (5, 6), None)
    assert read.metrics_so_far is None, "unknown, not zero"
    assert read.report().metrics is None


def test_metrics_are_read_back_when_there_is_room_and_unknown_when_there_was_none() -> None:
    written = OffsetMetadata(run_id="r", task_id="0_0", metrics=largest_metrics())
    read = OffsetMetadata.decode(written.encode())
    assert read.metrics_so_far == read.report().metrics == largest_metrics()
    assert OffsetMetadata(run_id="r", task_id="0_0").metrics_so_far is None
    assert OffsetMetadata().metrics_so_far == NOTHING_YET, "no task has committed for the slice yet"


def metrics_of_calls(nodes: int, name_length: int = 20) -> TaskMetrics:
    latency = largest_metrics().process
    each = [
        NodeCalls(f"{number}".rjust(name_length, "n"), latency, *(_LARGEST,) * 5) for number in range(nodes)
    ]
    threads = ThreadFigures(*(_LARGEST,) * 8)
    calls = CallFigures(tuple(each), True, _LARGEST, _LARGEST, _LARGEST, threads)
    return msgspec.structs.replace(largest_metrics(), calls=calls)


def test_calls_are_cut_down_before_other_metrics_and_say_so_when_there_is_no_room() -> None:
    whole = metrics_of_calls(MOST_NODES)
    read = OffsetMetadata.decode(OffsetMetadata(run_id="r", task_id="0_0", metrics=whole).encode())
    assert read.metrics is not None
    assert read.metrics.calls is not None
    assert read.metrics.process == whole.process
    names = [each.node for each in read.metrics.calls.nodes]
    assert 0 < len(names) < MOST_NODES
    assert names[-1] == OTHER_NODES, "what has no name is not lost"
    assert read.metrics.calls.known

    tight = OffsetMetadata(run_id="r" * 2_000, task_id="0_0", metrics=metrics_of_calls(1, name_length=900))
    read = OffsetMetadata.decode(tight.encode())
    assert read.metrics == msgspec.structs.replace(largest_metrics(), calls=UNKNOWN)


@pytest.mark.parametrize("run_bytes", range(100, 4_000, 150))
def test_text_with_calls_fits_whatever_room_there_is(run_bytes: int) -> None:
    text = OffsetMetadata(run_id="r" * run_bytes, task_id="0_0", metrics=metrics_of_calls(5)).encode()
    assert len(text.encode()) <= LIMIT_BYTES
    assert OffsetMetadata.decode(text).run_id == "r" * run_bytes


def test_text_fits_the_brokers_limit_when_every_field_is_at_its_largest() -> None:
    run_id = "\x01" * 166
    check_run_id(run_id)
    largest = OffsetMetadata(
        run_id=run_id,
        partition_time_ms=2**63 - 1,
        latest_ms=2**63 - 1,
        stream_time_ms=2**63 - 1,
        task_id="9999_9999",
        records_in=2**63 - 1,
        records_out=2**63 - 1,
        records_dropped=2**63 - 1,
        records_dead_lettered=2**63 - 1,
        restored=2**63 - 1,
        commits=2**63 - 1,
        attempts=2**31,
        seconds=1e300,
        peak_memory_bytes=2**63 - 1,
        records_skipped=2**63 - 1,
        records_misdated=2**63 - 1,
        parked_due_ms=2**63 - 1,
    )
    assert len(largest.encode().encode()) <= LIMIT_BYTES
    crowded = msgspec.structs.replace(largest, parked={"n" * 200 + str(n): 2**63 - 1 for n in range(20)})
    assert len(crowded.encode().encode()) <= LIMIT_BYTES
    assert OffsetMetadata.decode(crowded.encode()).parked is None, "unknown, not none"


def test_what_is_parked_goes_last_when_there_is_no_room_for_all() -> None:
    parked = {"n" * 200 + str(number): number for number in range(15)}
    nodes = tuple(LeftOut(f"node-{number:05}", "filtered", 10**6) for number in range(100))
    full = OffsetMetadata(
        run_id="r", task_id="0_0", counts=PackedCounts(read=(1,), left_out=nodes), parked=parked
    )
    crowded = msgspec.structs.replace(full, metrics=largest_metrics(), changelog_ends=(10**9,) * 40)
    read = OffsetMetadata.decode(crowded.encode())
    assert (read.parked, read.metrics) == (parked, None)
    assert read.report().parked == parked


def test_text_grows_by_a_few_bytes_when_nothing_is_parked() -> None:
    unknown, nothing = OffsetMetadata(run_id="r"), OffsetMetadata(run_id="r", parked={})
    assert len(nothing.encode()) - len(unknown.encode()) == len(',"parked":{}')
    assert OffsetMetadata.decode(nothing.encode()).parked == {}
    assert OffsetMetadata.decode(unknown.encode()).parked is None


@pytest.mark.parametrize("run_id", ["", "__lease__", "__x", "r" * 2000, "\x01" * 700])
def test_run_id_is_refused_when_the_ledger_or_the_offset_metadata_could_not_hold_it(run_id: str) -> None:
    with pytest.raises(ConfigError, match="run id"):
        check_run_id(run_id)


def test_run_id_passes_when_it_is_airflows() -> None:
    check_run_id("scheduled__2026-11-21T07:00:00+00:00")
    check_run_id("manual__\u00fcbung")


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
