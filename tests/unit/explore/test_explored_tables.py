"""Rows that a topology would write to tables are shown as the records of topics are."""

from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.cli.documents.explore_document import explore_document
from airflow_kstreams.explore import Sample, SampleRecord, explore
from airflow_kstreams.streams.errors import TopologyError
from tests.support.tables.beside_topics import TABLE, topology

TOO_LARGE = 2**70


def sample(*counts: int) -> Sample:
    return Sample(
        records=tuple(
            SampleRecord(
                topic="in",
                offset=number,
                key=b"k",
                value=msgspec.json.encode({"text": f"line {number}", "count": count}),
                timestamp_ms=number,
            )
            for number, count in enumerate(counts)
        ),
        partitions={"in": 1},
    )


def test_rows_and_counts_of_a_table_are_shown_beside_those_of_topics() -> None:
    seen = explore(topology(timestamp_column="at"), sample=sample(5, TOO_LARGE, 7))
    assert seen.tables == (TABLE,)
    assert seen.output_topics == ("out",)
    rows = [(one.key, one.value["text"], one.value["count"], one.origin) for one in seen.rows(TABLE)]
    assert rows == [("k", "line 0", 5, "in-0@0"), ("k", "line 2", 7, "in-0@2")]
    assert [*seen.rows(TABLE)] == [*seen.at("to-table")]
    counts = seen.counts("to-table")
    assert (counts.records_in, counts.records_out, counts.failed) == (3, 2, 1)
    assert seen.counts("to-topic").records_out == 3
    assert f"writes to table {TABLE} at beside_topics.py" in str(seen.summary())
    assert seen.sinks(["out"]) == ("to-topic", "to-table")
    document = explore_document(seen, None, [], 20)
    assert [(place.place, place.count) for place in document.shown] == [("out", 3), (f"table:{TABLE}", 2)]


@pytest.mark.remedy("exploration.Exploration.rows")
def test_other_table_is_refused_with_those_that_there_are() -> None:
    seen = explore(topology(), sample=sample(1))
    with pytest.raises(TopologyError, match=f"tables it writes to: {TABLE}"):
        seen.rows("lake.other")
    assert len(seen.rows(TABLE)) == 1
