from __future__ import annotations

import pytest

from airflow_kstreams.batch.ledger.records import check_run_id
from airflow_kstreams.batch.protocol.offset_metadata import LIMIT_BYTES, OffsetMetadata
from airflow_kstreams.streams.errors import ConfigError


@pytest.mark.parametrize(
    "text", ["", "checkpoint 7", "{", "[]", "{}", '{"run":"x"}', '{"run":"x","v":99}', '{"v":1,"in":"x"}']
)
def test_defaults_are_read_when_the_text_is_not_ours(text: str) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()


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
        records_ahead=2**63 - 1,
    )
    assert len(largest.encode().encode()) <= LIMIT_BYTES


@pytest.mark.parametrize("run_id", ["", "__lease__", "__x", "r" * 2000, "\x01" * 700])
def test_run_id_is_refused_when_the_ledger_or_the_offset_metadata_could_not_hold_it(run_id: str) -> None:
    with pytest.raises(ConfigError, match="run id"):
        check_run_id(run_id)


def test_run_id_passes_when_it_is_airflows() -> None:
    check_run_id("scheduled__2026-11-21T07:00:00+00:00")
    check_run_id("manual__\u00fcbung")
