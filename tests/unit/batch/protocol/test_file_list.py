"""Facts of a file are the same after they have travelled, whatever the columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from airflow_kstreams.batch.protocol.file_list import (
    FileListReading,
    ListedFile,
    MergedFile,
    list_file,
    merged_record,
    packed_file,
    unpacked_file,
)
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.table_plan import Column, DecimalType, ListType, StructType, TablePlan
from airflow_kstreams.streams.tables.table_port import ColumnFacts, FileFacts
from airflow_kstreams.testing import InMemoryKafka

AT = datetime(2024, 1, 1, 5, 30, 0, 7, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any]] = {
    "text": ("text", "é"),
    "long": ("long", 2**63 - 1),
    "double": ("double", -0.5),
    "boolean": ("boolean", True),
    "binary": ("binary", b"\x00\xff"),
    "date": ("date", date(1, 1, 1)),
    "instant": ("instant", AT),
    "uuid": ("uuid", UUID(int=7)),
    "fare": (DecimalType(38, 2), Decimal("123456789012345678901234567890123456.78")),
}
COLUMNS = tuple(Column(name, kind, required=False) for name, (kind, _) in VALUES.items())
PLACE = Column("place", StructType((Column("at", StructType(COLUMNS)), Column("tags", ListType("text")))))
TABLE = TablePlan(
    name="lake.places",
    format="iceberg",
    location="lake.places",
    columns=(*COLUMNS, PLACE),
    partition_by=("fare", "hour(instant)", "truncate(4, text)", "place.at.date", "bucket(4, uuid)", "binary"),
)
FACTS = {
    f"{path}{name}": ColumnFacts(1, value, value)
    for path in ("", "place.at.")
    for name, (_, value) in VALUES.items()
}
FILE = FileFacts(
    path="s3://lake/places/file.parquet",
    size=7,
    rows=3,
    partition=(VALUES["fare"][1], 5, "é", None, 3, b"\xff"),
    columns={**FACTS, "text": ColumnFacts(3)},
    row_groups=(4, 900),
)


@pytest.mark.parametrize(
    "each",
    [ListedFile("r1", "0_0", 1, FILE), MergedFile("r1", 2, (0, 70_000), FILE)],
    ids=["listed", "merged"],
)
def test_file_is_the_same_once_it_is_read_from_the_list(each: ListedFile | MergedFile) -> None:
    kafka, topic = InMemoryKafka(), ProtocolTopics("app").table_files
    kafka.create_topic(topic)
    writer = kafka.writer(transactional_id=None)
    if isinstance(each, ListedFile):
        list_file(writer, "app", TABLE.name, each)
    else:
        record = merged_record("app", TABLE.name, each)
        writer.produce(record.topic, record.value, record.key, 0, None, record.headers)
    writer.flush()
    reader, partition = kafka.reader(group_id="app"), TopicPartition(topic, 0)
    reader.assign({partition: 0})
    (found,) = reader.poll(max_records=10, timeout_seconds=0.1).records[partition]
    assert FileListReading((TABLE,)).read(found, run_id="r1") == (TABLE.name, each)


def test_file_is_the_same_once_another_process_has_it() -> None:
    assert unpacked_file(packed_file(FILE), TABLE) == FILE
