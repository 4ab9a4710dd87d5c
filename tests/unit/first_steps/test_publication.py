"""Files become records, or their bad lines are named; topics that are made keep old records."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from airflow_kstreams.first_steps.publication import (
    PublicationError,
    look,
    make_topic,
    publish,
    warning_of_dates,
)
from airflow_kstreams.first_steps.record_file import BadLineError, FileRecord, Format, RecordFormat
from airflow_kstreams.streams.ports import TopicSpec
from airflow_kstreams.testing import InMemoryKafka, ManualClock

NOON_MS = 1_767_614_400_000  # 2026-01-05 12:00 UTC


def read(text: str | bytes, form: Format = "jsonl", **layout: Any) -> list[FileRecord | str]:
    data = text.encode() if isinstance(text, str) else text
    found = RecordFormat(format=form, **layout).records(io.BytesIO(data), "f")
    return [each.cause if isinstance(each, BadLineError) else each for each in found]


def good(text: str | bytes, form: Format = "jsonl", **layout: Any) -> list[FileRecord]:
    found = read(text, form, **layout)
    assert all(isinstance(each, FileRecord) for each in found), found
    return [each for each in found if isinstance(each, FileRecord)]


def test_value_is_the_line_as_it_stands_when_the_file_is_json() -> None:
    text = '\ufeff {"id": 7, "b":1.10}\r\n\n{"id": null}\n{"id": "ü"}'
    assert [(each.line, each.key, each.value) for each in good(text, key="id")] == [
        (1, b"7", b'{"id": 7, "b":1.10}'),
        (3, None, b'{"id": null}'),
        (4, "ü".encode(), '{"id": "ü"}'.encode()),
    ]


def test_row_becomes_an_object_when_the_file_is_csv() -> None:
    text = '\n \nid,n,t\n007,1.10,"two\n\nlines, ü"\n\n12,-3,\n'
    records = good(text, "csv", key="id", texts=frozenset({"id"}))
    assert [(each.key, each.value.decode()) for each in records] == [
        (b"007", '{"id": "007", "n": 1.10, "t": "two\\n\\nlines, ü"}'),
        (b"12", '{"id": "12", "n": -3, "t": null}'),
    ]


@pytest.mark.parametrize(
    "time",
    [
        '"2026-01-05T12:00:00Z"',
        '"2026-01-05 12:00"',
        '"2026-01-05T13:00:00+01:00"',
        str(NOON_MS),
        f'"{NOON_MS}"',
    ],
)
def test_time_is_read_in_each_form_that_the_help_names(time: str) -> None:
    assert [each.timestamp_ms for each in good(f'{{"at": {time}}}', time="at")] == [NOON_MS]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"at": 1}\n{"a', "f:2 is no JSON: Unterminated string"),
        ("[1]", "f:1 is no JSON object"),
        ('{"at": NaN}', "f:1 is no JSON: it holds NaN"),
        ('{"at": ' + "[" * 100_000 + "]" * 100_000 + "}", "f:1 is nested too deeply"),
        (b'{"at": 1}\n\xff\n', "f:2 is no UTF-8: invalid start byte at its byte 0"),
        ('{"a": 1, "b": 2}', "f:1 has no field 'at', only a, b"),
        ('{"at": "yesterday"}', "f:1 has a time that cannot be read: 'yesterday' is neither ISO 8601 nor"),
        ('{"at": true}', "f:1 has a time that cannot be read: 'True' is neither"),
        ('{"at": -5}', "f:1 has a time that cannot be read: '-5' is neither"),
    ],
)
def test_line_of_json_is_named_when_it_is_bad(text: str | bytes, said: str) -> None:
    bad = [each for each in read(text, time="at") if isinstance(each, str)]
    assert len(bad) == 1
    assert bad[0].startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1\n2,3\n", "f:2 has 1 cell, the heading has 2"),
        ("a,a\n1,2\n", "f:1 names a column twice: a"),
        ('a,b\n"1"x,2\n', "f:2 is no CSV: "),
        (b"a,b\n\xff,2\n", "f:2 is no UTF-8"),
    ],
)
def test_row_of_csv_is_named_when_it_is_bad(text: str | bytes, said: str) -> None:
    bad = [each for each in read(text, "csv") if isinstance(each, str)]
    assert len(bad) == 1
    assert bad[0].startswith(said)


@pytest.mark.error_example("KS-FIRST-001")
@pytest.mark.remedy("publication.look")
def test_nothing_is_published_and_lines_are_named_when_a_file_has_bad_ones() -> None:
    text = "".join(f'{{"n": {n}}}\n' if n % 2 else "x\n" for n in range(30)) + "[]\n"
    with pytest.raises(PublicationError) as refused:
        look(RecordFormat(format="jsonl"), io.BytesIO(text.encode()), "f")

    cause = refused.value.cause
    assert cause.startswith("nothing was published: f:1 is no JSON: Expecting value")
    assert cause.endswith(" (15 such lines: 1, 3, 5, 7, 9, ...); f:31 is no JSON object")
    mended = text.replace("x\n", "\n").replace("[]", "").encode()
    assert look(RecordFormat(format="jsonl"), io.BytesIO(mended), "f").records == 15


@pytest.fixture
def kafka() -> InMemoryKafka:
    return InMemoryKafka(clock=ManualClock(now_ms=NOON_MS))


def sent(kafka: InMemoryKafka, text: str, **layout: Any) -> int:
    records = RecordFormat(format="jsonl", **layout).records(io.BytesIO(text.encode()), "stdin")
    return publish(kafka, "t", records)


def test_topic_keeps_old_records_when_it_is_made(kafka: InMemoryKafka) -> None:
    admin = kafka.admin()
    assert make_topic(admin, "t", 3)
    assert not make_topic(admin, "t", 5)

    assert admin.describe_topics(["t"])["t"].partitions == 3
    configs = admin.topic_configs(["t"]).found["t"]
    assert (configs["retention.ms"], configs["message.timestamp.before.max.ms"]) == ("-1", str(2**63 - 1))
    assert configs["message.timestamp.after.max.ms"] == "3600000", "as outputs have it"
    assert warning_of_dates(admin, "t", 0) is None
    assert sent(kafka, '{"k": "a", "at": "2013-01-01"}\n', key="k", time="at") == 1
    (record,) = kafka.records("t")
    assert (record.key(), record.timestamp()[1]) == (b"a", 1_356_998_400_000)


def test_dates_are_warned_of_when_the_topic_does_not_keep_them(kafka: InMemoryKafka) -> None:
    admin = kafka.admin()
    for topic, policy in (("week", "delete"), ("compacted", "compact")):
        configs = {"retention.ms": "604800000", "cleanup.policy": policy}
        admin.create_topics([TopicSpec(name=topic, partitions=1, configs=configs)])

    assert "keeps records for 7 days by their date" in str(warning_of_dates(admin, "week", 0))
    assert warning_of_dates(admin, "week", 2**62) is None
    assert warning_of_dates(admin, "compacted", 0) is None


@pytest.mark.error_example("KS-FIRST-003")
@pytest.mark.remedy("publication.publish")
def test_what_is_published_is_said_when_a_pipe_brings_a_bad_line(kafka: InMemoryKafka) -> None:
    make_topic(kafka.admin(), "t", 1)
    lines = [json.dumps({"n": n}) for n in range(6)]
    with pytest.raises(PublicationError) as refused:
        sent(kafka, "\n".join([*lines[:3], "x", *lines[4:]]))

    assert refused.value.cause.startswith(
        "published for certain: 3 records (up to line 3); stdin:4 is no JSON"
    )
    assert refused.value.fix == "mend the line, and publish what begins with line 4"
    assert len(kafka.records("t")) == 3
    assert sent(kafka, "\n".join(lines[3:])) == 3
    assert [json.loads(record.value() or b"")["n"] for record in kafka.records("t")] == [*range(6)]
