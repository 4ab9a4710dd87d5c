from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState, fold
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    H_PLAN,
    PIECE_BYTES,
    MetadataRecord,
    check_keys,
    completed_record,
    done_record,
    finished_record,
    joined,
    piece_key,
    plan_pieces,
    slice_records,
    split,
    stop_hash,
    tombstone,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from tests.support.kafka.metadata_log import (
    APP,
    INPUTS,
    a_slice,
    compacted,
    frozen,
    log_of,
    records_of,
    stop_record,
)


def test_keys_and_values_are_the_specs_text_when_a_run_is_written() -> None:
    written = [(r.key, r.value) for r in records_of(a_slice())]
    assert written == [(b"A_0", b"55"), (b"A_1", b"46"), (b"B_0", b"7"), (b"app", b"0")]
    done = done_record(a_slice(), 0, 1)
    assert (done.topic, done.key, done.value) == ("app-metadata", b"app-0_1", b"done")
    stop = stop_record(a_slice(), "I", 0, 60)
    assert (stop.topic, stop.key, stop.value) == ("app-metadata", b"I_0", b"60")
    assert (finished_record(a_slice(), owner="x").key, finished_record(a_slice(), owner="x").value) == (
        b"app",
        b"1",
    )
    assert tombstone(APP, b"A_0")[1:] == (None, b"A_0", None)


def test_both_markers_hold_the_whole_plan_when_compaction_may_keep_one_only() -> None:
    plans = [
        dict(make(a_slice(), owner="x").headers or ())["kstreams.plan"]
        for make in (completed_record, finished_record)
    ]
    assert plans[0] == plans[1] != b""


def test_transactional_ids_follow_from_the_tasks() -> None:
    plan = a_slice().plan
    assert b"app-0_0" not in msgspec.json.encode(plan)
    assert plan.task_ids == ("app-0_0", "app-0_1", "app-1_0", "app-1_1")


def test_hash_does_not_depend_on_order_when_the_set_is_the_same() -> None:
    assert stop_hash(INPUTS) == stop_hash(reversed(INPUTS))
    assert stop_hash(INPUTS) != stop_hash(INPUTS[1:])
    assert stop_hash((frozen("A", 0, 0, 5),)) != stop_hash((frozen("A", 0, 1, 5),))


def plan(application_id: str, *subtopologies: SubtopologyPlan) -> TopologyPlan:
    return TopologyPlan(application_id=application_id, topology_hash="h", subtopologies=subtopologies)


def test_application_id_is_refused_when_it_equals_a_stop_key() -> None:
    topology = plan("flights_1", SubtopologyPlan(id=0, sources=("flights",), sinks=("out",)))
    check_keys(topology, {"flights": 1}, {0: 1})
    with pytest.raises(TopologyError, match=r"'flights_1'.*markers.*flights-1"):
        check_keys(topology, {"flights": 2}, {0: 2})


def test_topics_are_refused_when_a_notification_key_equals_a_stop_key() -> None:
    topology = plan(
        "app",
        SubtopologyPlan(id=0, sources=("A", "A_0-I"), sinks=("I",)),
        SubtopologyPlan(id=1, sources=("I",), sinks=("O",)),
    )
    with pytest.raises(TopologyError, match=r"A_0-I_0.*rename|A_0-I_0"):
        check_keys(topology, {"A": 1, "A_0-I": 1, "I": 1}, {0: 1, 1: 1})


def test_topic_is_refused_when_its_stop_key_equals_a_tasks_notification() -> None:
    topology = plan(
        "app",
        SubtopologyPlan(id=0, sources=("A",), sinks=("app-0",)),
        SubtopologyPlan(id=1, sources=("app-0",), sinks=("O",)),
    )
    with pytest.raises(TopologyError, match=r"'app-0_0'.*stop offset of app-0-0 .*task 0_0"):
        check_keys(topology, {"A": 2, "app-0": 2}, {0: 2, 1: 2})


@pytest.mark.parametrize("application_id", ["A_0-I_1", "A_0"])
def test_application_id_is_refused_when_another_programs_notification_would_have_a_key_of_ours(
    application_id: str,
) -> None:
    topology = plan(
        application_id,
        SubtopologyPlan(id=0, sources=("A",), sinks=("I", "0")),
        SubtopologyPlan(id=1, sources=("I", "0"), sinks=("O",)),
    )
    with pytest.raises(TopologyError, match=r"notification of A_0 for (I_1|0_0)|stop offset of A-0"):
        check_keys(topology, {"A": 1, "I": 2, "0": 1}, {0: 1, 1: 2})


def test_topics_pass_when_names_are_odd_but_keys_differ() -> None:
    topology = plan(
        "app",
        SubtopologyPlan(id=0, sources=("a-1", "a_1"), sinks=("i-1",)),
        SubtopologyPlan(id=1, sources=("i-1",), sinks=("o",)),
    )
    check_keys(topology, {"a-1": 12, "a_1": 12, "i-1": 12}, {0: 12, 1: 12})


def large_slice(run_id: str = "run-1", *, partitions: int = 30_000) -> Slice:
    """A slice whose plan fits into no record."""
    small = a_slice(run_id)
    starts = {f"I-{number}": number for number in range(partitions)}
    return msgspec.structs.replace(
        small, plan=msgspec.structs.replace(small.plan, intermediate_starts=starts)
    )


def folded(records: list[MetadataRecord]) -> Folded:
    return fold(log_of(records), APP)


@pytest.mark.promise("pieces-are-whole")
def test_value_is_not_cut_when_it_fits() -> None:
    assert split(b"key", b"x" * PIECE_BYTES) is None
    assert plan_pieces(a_slice()) == []
    assert H_PLAN in dict(completed_record(a_slice(), owner="x").headers or ())


@pytest.mark.promise("pieces-are-whole")
@pytest.mark.parametrize("size", [PIECE_BYTES + 1, 2 * PIECE_BYTES, 5 * PIECE_BYTES + 7])
def test_value_is_whole_again_when_it_was_cut(size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    large = split(b"key", content)
    assert large is not None
    assert max(len(part) for _, part in large.pieces) <= PIECE_BYTES
    headers = {name: value or b"" for name, value in large.headers}
    assert joined(b"key", headers, dict(large.pieces).get) == content
    longer = {**dict(large.pieces), piece_key(b"key", 99): b"of an older value"}
    assert joined(b"key", headers, longer.get) == content


@pytest.mark.promise("pieces-are-whole")
@pytest.mark.parametrize("lost", range(3))
def test_value_is_torn_when_a_piece_is_missing_or_another_values(lost: int) -> None:
    large = split(b"key", b"a" * (3 * PIECE_BYTES))
    assert large is not None
    headers = {name: value or b"" for name, value in large.headers}
    pieces = dict(large.pieces)
    key = piece_key(b"key", lost)
    assert joined(b"key", headers, {**pieces, key: b"b" * PIECE_BYTES}.get) is None
    del pieces[key]
    assert joined(b"key", headers, pieces.get) is None


@pytest.mark.promise("pieces-are-whole")
def test_no_record_is_larger_than_a_piece_when_the_plan_is() -> None:
    written = slice_records(large_slice(), owner="x")
    headers = [value or b"" for record in written for _, value in record.headers or ()]
    assert max(map(len, headers)) < PIECE_BYTES
    assert max(len(record.value or b"") for record in written) <= PIECE_BYTES
    assert len(written) > len(records_of(a_slice())) + 1


@pytest.mark.promise("pieces-are-whole")
@pytest.mark.parametrize("clean", [False, True])
def test_plan_is_read_from_its_pieces_when_a_run_began_and_finished(clean: bool) -> None:
    log = slice_records(large_slice(), owner="x")
    found = folded(compacted(log) if clean else log)
    assert (found.state, found.slice) == (RunState.RUNNING, large_slice())
    log += [*plan_pieces(large_slice()), finished_record(large_slice(), owner="x")]
    found = folded(compacted(log) if clean else log)
    assert (found.state, found.slice) == (RunState.FINISHED, large_slice())


@pytest.mark.promise("pieces-are-whole")
def test_plan_is_torn_when_the_cleaner_took_a_piece_meanwhile() -> None:
    log = slice_records(large_slice(), owner="x")
    without = [record for record in log if record.key != piece_key(APP.encode(), 1)]
    found = folded(without)
    assert (found.torn, found.slice, found.state) == (True, None, RunState.RUNNING)


@pytest.mark.promise("pieces-are-whole")
@pytest.mark.parametrize("clean", [False, True])
def test_longer_plans_pieces_are_deleted_when_a_shorter_one_follows(clean: bool) -> None:
    log = slice_records(large_slice(partitions=60_000), owner="x")
    shorter = large_slice("run-2")
    log += [tombstone(APP, key) for key in folded(log).live_keys]
    log += slice_records(shorter, owner="x")
    found = folded(compacted(log) if clean else log)
    assert found.slice == shorter
    live = {key for key in found.live_keys if b"#" in key}
    assert live == {key for _, _, key, _ in plan_pieces(shorter)}
