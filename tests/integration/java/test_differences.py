"""Where this engine differs from Java's Kafka Streams, and how: one small case for each line of the tables in
``docs/explanation/kafka-streams.md``, which says why.

If a newer Kafka Streams fails one of these, its behaviour changed: look whether ours should, and mend the
page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.java.cases import Case, Input, without_headers, written
from tests.integration.java.peer import KafkaStreamsPeer
from tests.integration.java.topologies import NAMES
from tests.support.programs.comparing import Result

pytestmark = pytest.mark.promise("same-as-kafka-streams")

_DOCS = Path(__file__).parents[3] / "docs"

#: (index of the record it came after, key, value, timestamp_ms); of windows, the key is (key, start), of
#: sessions (key, start, end).
Row = tuple[int, Any, str | int | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A case with the results of both engines."""

    case: Case
    java: Sequence[Row]
    python: Sequence[Row]


def _difference(
    topology: str, records: list[Input], java: Sequence[Row], python: Sequence[Row], **parameters: Any
) -> Difference:
    return Difference(
        case=Case(topology=topology, records=records, parameters=parameters), java=java, python=python
    )


def _result(row: Row) -> Result:
    after, key, value, time_ms = row
    data = value.to_bytes(8, "big") if isinstance(value, int) else None if value is None else value.encode()
    return Result(after, "out", written(key), data, time_ms)


DIFFERENCES = {
    "vain-deletion": _difference(
        "table",
        [("in", "a", None, 5), ("in", "a", "v1", 6), ("in", "a", None, 7)],
        java=[(0, "a", None, 5), (1, "a", "v1", 6), (2, "a", None, 7)],
        python=[(1, "a", "v1", 6), (2, "a", None, 7)],
    ),
    "versioned-deletion": _difference(
        "versioned_left_join",
        [("other", "a", "v1", 10), ("other", "a", None, 10), ("other", "a", "v2", 5), ("in", "a", "v3", 12)],
        java=[(3, "a", "v3+v2", 12)],
        python=[(3, "a", "v3+null", 12)],
        history=30,
    ),
    "tables-of-one-table": _difference(
        "tables_of_one_table",
        [("in", "a", "v1", 5), ("in", "a", "v3", 6), ("in", "a", None, 7)],
        java=[
            (0, "a", "v1+v1!", 5),
            (0, "a", "v1+v1!", 5),
            (1, "a", "v3+v3!", 6),
            (1, "a", "v3+v3!", 6),
        ],
        python=[
            (0, "a", "v1+v1!", 5),
            (1, "a", "v3+v1!", 6),
            (1, "a", "v3+v3!", 6),
            (2, "a", None, 7),
        ],
    ),
    "foreign-key-order": _difference(
        "foreign_key_left_join_twice",
        [("in", "b", "v4", 5), ("in", "c", "v12", 6), ("other", "a", "v1", 7)],
        java=[(2, "b", "v4+null", 7), (2, "c", "v12+null", 7)],
        python=[(2, "c", "v12+null", 7), (2, "b", "v4+null", 7)],
    ),
    "first-old-value": _difference(
        "count_group",
        [("in", "a", "v1", 5), ("in", "a", "v2", 6), ("in", "b", "v3", 7)],
        java=[
            (0, "even", None, 5),
            (0, "odd", 1, 5),
            (1, "odd", 0, 6),
            (1, "even", 1, 6),
            (2, "even", 0, 7),
            (2, "odd", 1, 7),
        ],
        python=[(0, "odd", 1, 5), (1, "odd", 0, 6), (1, "even", 1, 6), (2, "odd", 1, 7)],
    ),
    "suppressed-old-value": _difference(
        "suppress_group",
        [
            ("in", "a", "v0", 1),
            ("in", "b", "v1", 2),
            ("in", "b", "v2", 3),
            ("in", "c", "v3", 9),
        ],
        java=[(3, "g", ",v0", 1), (3, "g", ",v0-,v1+,v1,v2", 3)],
        python=[(3, "g", ",v0", 1), (3, "g", ",v0+,v1,v2", 3)],
        size=5,
        grace=0,
    ),
    "sliding-old-value": _difference(
        "sliding_group",
        [("in", "a", "v0", 95), ("in", "a", "v1", 100), ("in", "a", "v2", 111)],
        java=[
            (0, "g", ",v0", 95),
            (1, "g", ",v0-+,v1", 100),
            (1, "g", ",v0-+,v1-,v0+,v0,v1", 100),
            (2, "g", ",v0-+,v1-,v0+,v0,v1-+,v2", 111),
            (2, "g", ",v0-+,v1-,v0+,v0,v1-+,v2-+,v2", 111),
        ],
        python=[
            (0, "g", ",v0", 95),
            (1, "g", ",v0+,v1", 100),
            (1, "g", ",v0+,v1+,v0,v1", 100),
            (2, "g", ",v0+,v1+,v0,v1+,v2", 111),
            (2, "g", ",v0+,v1+,v0,v1+,v2-,v2+,v2", 111),
        ],
        size=10,
        grace=0,
    ),
    "session-old-value": _difference(
        "session_group",
        [("in", "a", "v0", 3), ("in", "a", "v1", 3)],
        java=[(0, "g", ",v0", 3), (1, "g", ",v0+(|,v0),v1", 3)],
        python=[(0, "g", ",v0", 3), (1, "g", ",v0-,v0+(|,v0),v1", 3)],
        gap=5,
        grace=10,
    ),
    "window-null-value": _difference(
        "tumbling_count",
        [("in", "a", "v0", 1), ("in", "a", None, 2)],
        java=[(0, ("a", 0), 1, 1), (1, ("a", 0), 2, 2)],
        python=[(0, ("a", 0), 1, 1)],
        size=5,
        grace=0,
    ),
    "stream-time-of-filtered": _difference(
        "filtered_tumbling_count",
        [("in", "a", "v1", 1), ("in", "a", "v2", 20), ("in", "a", "v3", 2)],
        java=[(0, ("a", 0), 1, 1), (2, ("a", 0), 2, 2)],
        python=[(0, ("a", 0), 1, 1)],
        size=5,
        grace=0,
    ),
    "suppress-by-any-record": _difference(
        "tumbling_suppress",
        [("in", "a", "v0", 1), ("in", None, "v1", 20), ("in", "b", "v2", 21)],
        java=[(2, ("a", 0), ",v0", 1)],
        python=[(1, ("a", 0), ",v0", 1)],
        size=5,
        grace=0,
    ),
    "session-same-bounds": _difference(
        "session_count",
        [("in", "a", "v0", 0), ("in", "a", "v1", 3), ("in", "a", "v2", 1)],
        java=[
            (0, ("a", 0, 0), 1, 0),
            (1, ("a", 0, 0), None, 0),
            (1, ("a", 0, 3), 2, 3),
            (2, ("a", 0, 3), None, 3),
            (2, ("a", 0, 3), 3, 3),
        ],
        python=[
            (0, ("a", 0, 0), 1, 0),
            (1, ("a", 0, 0), None, 0),
            (1, ("a", 0, 3), 2, 3),
            (2, ("a", 0, 3), 3, 3),
        ],
        gap=5,
        grace=10,
    ),
    "session-last-moment": _difference(
        "session_suppress",
        [("in", "a", "v0", 0), ("in", "b", "v1", 5), ("in", "a", "v2", 5), ("in", "c", "v3", 99)],
        java=[
            (1, ("a", 0, 0), ",v0", 0),
            (3, ("a", 5, 5), ",v2", 5),
            (3, ("b", 5, 5), ",v1", 5),
        ],
        python=[(3, ("a", 0, 5), "(|,v0),v2", 5), (3, ("b", 5, 5), ",v1", 5)],
        gap=5,
        grace=0,
    ),
    "jump-past-retention": _difference(
        "tumbling_emitted",
        [("in", "a", "v0", 1), ("in", "a", "v1", 6), ("in", "b", "v2", 99)],
        java=[(1, ("a", 0), ",v0", 1)],
        python=[(1, ("a", 0), ",v0", 1), (2, ("a", 5), ",v1", 6)],
        size=5,
        grace=0,
        retention=20,
    ),
    "session-longer-retention": _difference(
        "session_retained",
        [("in", "a", "v0", 0), ("in", "b", "v1", 6), ("in", "a", "v2", 5)],
        java=[
            (0, ("a", 0, 0), ",v0", 0),
            (1, ("b", 6, 6), ",v1", 6),
            (2, ("a", 0, 0), None, 0),
            (2, ("a", 0, 5), "(|,v0),v2", 5),
        ],
        python=[(0, ("a", 0, 0), ",v0", 0), (1, ("b", 6, 6), ",v1", 6), (2, ("a", 5, 5), ",v2", 5)],
        gap=5,
        grace=0,
        retention=100,
    ),
    "sliding-late": _difference(
        "sliding_aggregate",
        [("in", "a", "v0", 4), ("in", "b", "v1", 6), ("in", "a", "v2", 5)],
        java=[(0, ("a", 3), ",v0", 4), (1, ("b", 5), ",v1", 6)],
        python=[(0, ("a", 3), ",v0", 4), (1, ("b", 5), ",v1", 6), (2, ("a", 5), ",v2", 5)],
        size=1,
        grace=0,
    ),
    "sliding-deleted": _difference(
        "sliding_reduce",
        [("in", "a", "v0", 3), ("in", "a", "v4", 11), ("in", "a", "v7", 14)],
        java=[
            (0, ("a", 0), "v0", 3),
            (1, ("a", 4), "v4", 11),
            (1, ("a", 1), None, 11),
            (2, ("a", 4), "v4,v7", 14),
        ],
        python=[
            (0, ("a", 0), "v0", 3),
            (1, ("a", 4), "v4", 11),
            (2, ("a", 4), "v4,v7", 14),
            (2, ("a", 12), "v7", 14),
        ],
        size=10,
        grace=1,
        deletes=True,
    ),
    "sliding-last-moment": _difference(
        "sliding_suppress",
        [("in", "a", "v0", 20), ("in", "b", "v1", 22), ("in", "a", "v2", 20), ("in", "c", "v3", 99)],
        java=[
            (1, ("a", 15), ",v0", 20),
            (2, ("a", 15), ",v0,v2", 20),
            (3, ("b", 17), ",v1", 22),
        ],
        python=[(3, ("a", 15), ",v0,v2", 20), (3, ("b", 17), ",v1", 22)],
        size=5,
        grace=2,
    ),
    "cogroup-stream-time": _difference(
        "cogroup_tumbling",
        [("in", "a", "v0", 1), ("other", "a", "v1", 20), ("in", "a", "v2", 2)],
        java=[(0, ("a", 0), ",v0", 1), (1, ("a", 20), ",v1'", 20), (2, ("a", 0), ",v2", 2)],
        python=[(0, ("a", 0), ",v0", 1), (1, ("a", 20), ",v1'", 20)],
        size=5,
        grace=0,
    ),
    "session-order": _difference(
        "session_suppress",
        [("in", "b", "v0", 5), ("in", "b", "v1", 10), ("in", "a", "v2", 10), ("in", "c", "v3", 99)],
        java=[(3, ("a", 10, 10), ",v2", 10), (3, ("b", 5, 10), "(|,v0),v1", 10)],
        python=[(3, ("b", 5, 10), "(|,v0),v1", 10), (3, ("a", 10, 10), ",v2", 10)],
        gap=5,
        grace=0,
    ),
    "join-equal-times": _difference(
        "join",
        [("in", "a", "v0", 5), ("other", "a", "v1", 5)],
        java=[],
        python=[(1, "a", "v0+v1", 5)],
        left=0,
        right=0,
        grace=0,
    ),
    "join-late": _difference(
        "join",
        [("other", "a", "v0", 21), ("in", "a", "v1", 11), ("other", "a", "v2", 12)],
        java=[(2, "a", "v1+v2", 12)],
        python=[],
        left=5,
        right=20,
        grace=3,
    ),
    "left-join-late": _difference(
        "left_join",
        [("other", "b", "v0", 90), ("in", "a", "v1", 1)],
        java=[(1, "a", "v1+null", 1)],
        python=[],
        left=5,
        right=5,
        grace=10,
    ),
    "left-join-too-early": _difference(
        "left_join",
        [("other", "b", "v0", 5), ("in", "a", "v1", 3), ("other", "a", "v2", 3)],
        java=[(1, "a", "v1+null", 3), (2, "a", "v1+v2", 3)],
        python=[(2, "a", "v1+v2", 3)],
        left=1,
        right=1,
        grace=10,
    ),
    "outer-join-moment": _difference(
        "outer_join",
        [("in", "a", "v0", 0), ("other", "b", "v1", 13), ("other", "b", "v2", 21), ("other", "b", "v3", 33)],
        java=[(2, "a", "v0+null", 0)],
        python=[(3, "a", "v0+null", 0)],
        left=12,
        right=20,
        grace=0,
    ),
    "left-join-and-again": _difference(
        "left_join",
        [("in", "a", "v0", 1_000), ("in", "b", "v1", 1_150), ("other", "a", "v2", 1_090)],
        java=[(1, "a", "v0+null", 1_000), (2, "a", "v0+v2", 1_090)],
        python=[(2, "a", "v0+v2", 1_090)],
        left=100,
        right=100,
        grace=0,
    ),
    "punctuation": _difference(
        "punctuated",
        [("in", "a", "v0", 5), ("in", "a", "v1", 12), ("in", "a", "v2", 35)],
        java=[
            (0, "a", "v0", 5),
            (0, "time", "5", 5),
            (1, "a", "v1", 12),
            (1, "time", "12", 12),
            (2, "a", "v2", 35),
            (2, "time", "35", 35),
        ],
        python=[
            (0, "a", "v0", 5),
            (1, "a", "v1", 12),
            (1, "time", "10", 10),
            (2, "a", "v2", 35),
            (2, "time", "20", 20),
            (2, "time", "30", 30),
        ],
        interval=10,
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_results_differ_from_kafka_streams_as_documented_when(
    name: str, kafka_streams: KafkaStreamsPeer
) -> None:
    difference = DIFFERENCES[name]
    case = difference.case
    assert without_headers(case.in_java(kafka_streams)) == [*map(_result, difference.java)]
    assert without_headers(case.in_python()) == [*map(_result, difference.python)]


def test_headers_differ_from_kafka_streams_as_documented_when_time_brings_a_result(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    suppressed = Case(
        topology="tumbling_suppress",
        records=[("in", "a", "v0", 1), ("in", "a", "v1", 2), ("in", "b", "v2", 9)],
        parameters={"size": 5, "grace": 0},
    )
    alone = Case(
        topology="left_join",
        records=[("in", "a", "v0", 1), ("in", "b", "v1", 99)],
        parameters={"left": 5, "right": 5, "grace": 0},
    )
    for case, header in ((suppressed, ("n", "1")), (alone, ("n", "1"))):
        (java,), (python,) = case.in_java(kafka_streams), case.in_python()
        assert java.headers == (header,)
        assert python == java._replace(headers=())


def test_dead_letters_differ_from_kafka_streams_as_documented_when_time_and_headers_were_changed(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    case = Case(topology="changed_dead_letter", records=[("in", "a", "v3", 5)])
    (java,), (python,) = case.in_java(kafka_streams), case.in_python()
    assert (java.topic, java.key, java.value) == (python.topic, python.key, python.value)
    assert (java.timestamp_ms, java.headers[:2]) == (14, (("n", "0"), ("number", "3")))
    assert (python.timestamp_ms, python.headers[0]) == (5, ("n", "0"))
    assert ("number", "3") not in python.headers


def test_dead_letters_differ_from_kafka_streams_as_documented_when_their_record_was_written_before(
    kafka_streams: KafkaStreamsPeer,
) -> None:
    case = Case(topology="written_dead_letter", records=[("in", "a", "v3", 5)])
    (java,), (python,) = case.in_java(kafka_streams), case.in_python()
    assert (java.topic, java.key, java.value) == ("dead-letters", None, None)
    assert (python.topic, python.key, python.value) == ("dead-letters", b"a", b"v3")


def test_page_has_a_line_for_every_case_and_a_case_for_every_line() -> None:
    same = (_DOCS / "internals" / "kafka-streams.md").read_text()
    _, _, different = (_DOCS / "explanation" / "kafka-streams.md").read_text().partition("\n## What differs")
    rows = [line.split("|") for line in same.splitlines() if line.startswith("| ")]
    listed = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row[2])]
    elsewhere = {"punctuated", "tables_of_one_table", "count_group", "suppress_group", "session_group"}
    elsewhere |= {
        "sliding_group",
        "foreign_key_left_join_twice",
        "changed_dead_letter",
        "written_dead_letter",
        "tumbling_emitted",
        "session_retained",
    }
    assert sorted(listed) == sorted({*NAMES} - elsewhere)
    assert sorted(re.findall(r"\| `([a-z-]+)` \|$", different, re.MULTILINE)) == sorted(
        [*DIFFERENCES, "headers", "letters-as-consumed", "letters-as-written"]
    )
