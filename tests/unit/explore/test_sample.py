from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.explore import Sample, SampleRecord, explore
from airflow_kstreams.explore.sampling import take_sample
from airflow_kstreams.streams import ConfigError, KStreamBuilder, serdes
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from spark_apps.flight_delays import topology

RECORDS = (
    SampleRecord(
        topic="a", offset=3, key=b"\x00\xff", value=None, timestamp_ms=7, headers=[("h", b"1"), ("h", None)]
    ),
    SampleRecord(topic="a", offset=4, key=None, value=b"", timestamp_ms=-1),
    SampleRecord(topic="b", partition=2, offset=0, key=b"k", value=b"v\n", timestamp_ms=1),
)
SAMPLE = Sample(records=RECORDS, partitions={"a": 1, "b": 3, "none": 2}, taken_ms=99)


def test_sample_is_the_same_when_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "sample"
    SAMPLE.save(path)
    loaded = Sample.load(path)
    assert loaded == SAMPLE
    assert loaded.digest() == SAMPLE.digest()
    assert loaded.topics() == {"a": 2, "b": 1, "none": 0}


@pytest.mark.promise("samples-are-private")
def test_only_the_owner_may_read_when_a_sample_is_saved(tmp_path: Path) -> None:
    SAMPLE.save(tmp_path / "sample")
    assert (tmp_path / "sample").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["sample"]


def test_digest_differs_when_a_record_does() -> None:
    assert Sample(records=RECORDS[:2]).digest() != SAMPLE.digest()


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format":"other","version":1,"taken_ms":0,"partitions":{}}', "no json\n"]
)
def test_file_is_refused_when_it_is_no_sample(tmp_path: Path, content: str) -> None:
    (tmp_path / "sample").write_text(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        Sample.load(tmp_path / "sample")


def test_version_is_named_when_it_is_another(tmp_path: Path) -> None:
    SAMPLE.save(tmp_path / "sample")
    text = (tmp_path / "sample").read_text()
    (tmp_path / "sample").write_text(text.replace('"version":1', '"version":2'))
    with pytest.raises(ConfigError, match="version 2, expected 1"):
        Sample.load(tmp_path / "sample")


def test_saving_is_refused_when_the_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        SAMPLE.save(tmp_path / "nowhere" / "sample")


def test_sample_file_is_read_instead_of_kafka_when_it_exists(tmp_path: Path) -> None:
    flight = b'{"carrier":"UA","dep_time":517,"dep_delay":2}'
    records = (
        SampleRecord(topic="weather", offset=0, key=b"EWR", value=b'{"visib":10}', timestamp_ms=0),
        SampleRecord(topic="flights", offset=0, key=b"EWR", value=flight, timestamp_ms=1),
    )
    Sample(records=records).save(tmp_path / "sample")
    seen = explore(topology(), sample=tmp_path / "sample")
    assert [one.key for one in seen.outputs("carrier-delays")] == ["UA"]


def test_records_come_by_timestamp_and_each_partition_in_offset_order_when_they_are_out_of_order() -> None:
    def one(partition: int, offset: int, timestamp_ms: int) -> SampleRecord:
        return SampleRecord(topic="t", partition=partition, offset=offset, timestamp_ms=timestamp_ms)

    sample = Sample(records=(one(1, 0, 5), one(1, 1, 1), one(0, 0, 5), one(0, 1, 9)))
    order = [(record.partition, record.offset) for record in sample.in_run_order()]
    assert order == [(0, 0), (1, 0), (1, 1), (0, 1)]


class Asked:
    """Notes what every client is asked."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.names.add(name)
        return effect()


@pytest.mark.promise("exploring-writes-nothing")
def test_kafka_is_only_read_when_a_sample_is_taken() -> None:
    kafka, asked = InMemoryKafka(), Asked()
    plan = topology().plan("explore")
    for topic in plan.inputs:
        kafka.create_topic(topic, partitions=2)
        kafka.append(topic, b"{}", b"k")
    before = set(kafka.topics())

    sample = take_sample(FaultyCluster(kafka, asked), plan, 10, lambda *_: None)

    assert len(sample.records) == len(plan.inputs)
    assert set(kafka.topics()) == before
    assert asked.names <= {
        "cluster.admin",
        "admin.describe_topics",
        "admin.start_offsets",
        "admin.end_offsets",
        "admin.close",
        "cluster.reader",
        "reader.assign",
        "reader.poll",
        "reader.pause",
        "reader.close",
    }


def test_global_tables_are_sampled_whole() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names")
    joined = builder.stream("codes").join(names, lambda code, name: name, key=lambda key, code: code)
    joined.send_to("out")
    kafka = InMemoryKafka()
    for topic in ("names", "codes"):
        kafka.create_topic(topic, partitions=2)
        for number in range(20):
            kafka.append(topic, b"v", str(number).encode(), partition=number % 2)
    sample = take_sample(kafka, builder.build().plan("explore"), 5, lambda *_: None)
    assert sample.topics() == {"codes": 5, "names": 20}
