"""A batched function gives what the same function gives row by row, wherever the batches are cut."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, serdes
from tests.support.topology.bound_topology import BoundTopology, Output

KEYS = st.one_of(st.none(), st.text(alphabet="ab", max_size=2))
NUMBERS = st.integers(-(2**40), 2**40)
#: (key, value, timestamp_ms) of each record, and whether a commit point follows it.
RECORDS = st.lists(st.tuples(st.tuples(KEYS, NUMBERS, st.integers(0, 50)), st.booleans()), max_size=40)


def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.negate(batch.column("value"))], names=["value"])


def positive_by_parity(batch: pa.RecordBatch) -> pa.RecordBatch:
    kept = batch.filter(pc.greater(batch.column("value"), 0))
    parity = pc.bit_wise_and(kept.column("value"), 1).cast(pa.string())
    return pa.RecordBatch.from_arrays(
        [parity, kept.column("value"), kept.column("timestamp_ms")], names=["key", "value", "timestamp_ms"]
    )


def output(records: list[tuple[tuple[Any, int, int], bool]], build: Any) -> list[Output]:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    build(builder.stream("in")).send_to("out")
    bound = BoundTopology(builder.build())
    for (key, value, timestamp_ms), commit in records:
        bound.pipe("in", key, value, timestamp_ms=timestamp_ms)
        if commit:
            bound.flush()
    bound.flush()
    return bound.read("out")


@settings(deadline=None)  # the first conversion of a process imports pandas, which takes seconds
@given(records=RECORDS, batch_size=st.integers(1, 12))
def test_batches_equal_map_values_when_every_row_stays(records: Any, batch_size: int) -> None:
    assert output(records, lambda stream: stream.map_batches(negated, batch_size=batch_size)) == [
        Output(key, -value, timestamp_ms) for (key, value, timestamp_ms), _ in records
    ]
    assert output(records, lambda stream: stream.map_batches(negated, batch_size=batch_size)) == (
        output(records, lambda stream: stream.map_values(lambda value: -value))
    )


@settings(deadline=None)  # the first conversion of a process imports pandas, which takes seconds
@given(records=RECORDS, batch_size=st.integers(1, 12))
def test_batches_equal_filter_and_map_when_rows_vanish_and_keys_change(records: Any, batch_size: int) -> None:
    assert output(records, lambda stream: stream.map_batches(positive_by_parity, batch_size=batch_size)) == (
        output(
            records,
            lambda stream: stream.filter(lambda key, value: value > 0).map(
                lambda key, value: (str(value % 2), value)
            ),
        )
    )
