"""Values that do not fit into a record: split, joined, and never mixed up."""

from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState, fold
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    H_PLAN,
    PIECE_BYTES,
    MetadataRecord,
    completed_record,
    finished_record,
    joined,
    piece_key,
    plan_pieces,
    slice_records,
    split,
    tombstone,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from tests.support.kafka.metadata_log import APP, a_slice, compacted, log_of, records_of

pytestmark = pytest.mark.promise("pieces-are-whole")


def large_slice(run_id: str = "run-1", *, partitions: int = 30_000) -> Slice:
    """A slice whose plan fits into no record."""
    small = a_slice(run_id)
    starts = {f"I-{number}": number for number in range(partitions)}
    return msgspec.structs.replace(
        small, plan=msgspec.structs.replace(small.plan, intermediate_starts=starts)
    )


def folded(records: list[MetadataRecord]) -> Folded:
    return fold(log_of(records), APP)


def test_value_is_not_cut_when_it_fits() -> None:
    assert split(b"key", b"x" * PIECE_BYTES) is None
    assert plan_pieces(a_slice()) == []
    assert H_PLAN in dict(completed_record(a_slice(), owner="x").headers or ())


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


def test_no_record_is_larger_than_a_piece_when_the_plan_is() -> None:
    written = slice_records(large_slice(), owner="x")
    headers = [value or b"" for record in written for _, value in record.headers or ()]
    assert max(map(len, headers)) < PIECE_BYTES
    assert max(len(record.value or b"") for record in written) <= PIECE_BYTES
    assert len(written) > len(records_of(a_slice())) + 1


@pytest.mark.parametrize("clean", [False, True])
def test_plan_is_read_from_its_pieces_when_a_run_began_and_finished(clean: bool) -> None:
    log = slice_records(large_slice(), owner="x")
    found = folded(compacted(log) if clean else log)
    assert (found.state, found.slice) == (RunState.RUNNING, large_slice())
    log += [*plan_pieces(large_slice()), finished_record(large_slice(), owner="x")]
    found = folded(compacted(log) if clean else log)
    assert (found.state, found.slice) == (RunState.FINISHED, large_slice())


def test_plan_is_torn_when_the_cleaner_took_a_piece_meanwhile() -> None:
    log = slice_records(large_slice(), owner="x")
    without = [record for record in log if record.key != piece_key(APP.encode(), 1)]
    found = folded(without)
    assert (found.torn, found.slice, found.state) == (True, None, RunState.RUNNING)


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
