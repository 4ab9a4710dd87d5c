"""The offset metadata of any run is read back as it was written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata

COUNTS = st.integers(0, 2**62)


@given(st.text(min_size=1, max_size=250), st.integers(-1, 2**62), COUNTS, COUNTS)
def test_text_is_read_back_equal_when_it_is_ours(
    run_id: str, time_ms: int, records_in: int, dropped: int
) -> None:
    metadata = OffsetMetadata(
        run_id=run_id,
        partition_time_ms=time_ms,
        task_id="0_3",
        records_in=records_in,
        records_dropped=dropped,
        seconds=1.25,
    )
    decoded = OffsetMetadata.decode(metadata.encode())
    assert decoded.report() == metadata.report()
    assert (decoded.run_id, decoded.partition_time_ms) == (run_id, time_ms)
