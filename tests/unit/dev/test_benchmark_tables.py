"""The lines of tables: what both sides of each write, what is read back, and who is asked for what."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from deltalake import DeltaTable

from airflow_kstreams.streams import Topology
from airflow_kstreams.tables.parquet.opening import rows_opener
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from dev.benchmarks import __main__ as command
from dev.benchmarks import outputs
from dev.benchmarks.hosts import Answer
from dev.benchmarks.inputs import Inputs, events
from dev.benchmarks.outputs import Digest
from dev.benchmarks.spark_host import application_of
from dev.benchmarks.suite import Suite
from dev.benchmarks.suite_topologies import EVENTS, OUTPUT, TOPOLOGIES, Event
from dev.benchmarks.systems import (
    AVAILABLE_NOW_TO_PARQUET,
    BARE_DELTA,
    BARE_ICEBERG,
    FEW_DAYS,
    FEW_FILES,
    FEW_FILES_DELTA,
    FEW_SNAPSHOTS,
    KEPT_SNAPSHOTS,
    OURS,
    OURS_TO_DELTA,
    OURS_TO_ICEBERG,
    System,
)
from dev.benchmarks.tables import delta_merge, long_history, many_files, one_task, rounds, table_rows
from dev.benchmarks.tables.long_history import Histories
from dev.benchmarks.tables.places import Format, Place
from dev.benchmarks.tables.table_topologies import TABLE_TOPOLOGIES
from dev.benchmarks.workloads import WORKLOADS, Workload
from tests.support.kafka.in_process import Application

FORMATS: tuple[Format, ...] = ("iceberg", "delta")


def happened(count: int = 200) -> list[tuple[int, Event]]:
    """Events of 20 users, with their times, as ``table-append`` reads them."""
    some = dataclasses.replace(WORKLOADS["table-append"], keys=20)
    return [
        (each.timestamp_ms, msgspec.json.decode(each.value, type=Event))
        for each in events(some, EVENTS, 0, count)
    ]


def to_table(name: str, place: Place) -> Topology:
    """Return a topology as a host gets it for a run."""
    request = {"topology": f"{name}_{place.format}", "inputs": {"events": "in"}, "output": place.location}
    return application_of(request).topology()


def given_to_topic(name: str, pieces: list[tuple[int, Event]]) -> list[outputs.Record]:
    """What a topology writes to a topic."""
    with TopologyTestDriver(TOPOLOGIES[name](), application_id="bench") as driver:
        for time_ms, event in pieces:
            driver.pipe_input(EVENTS, key=event.user, value=event, timestamp_ms=time_ms)
        written = driver.read_output(OUTPUT)
    return [(0, record.key.encode(), msgspec.json.encode(record.value)) for record in written]


def landed(name: str, place: Place, *runs: list[tuple[int, Event]]) -> Application:
    """Let runs of a topology write to a table."""
    kafka, tables = InMemoryKafka(), place.opened()
    kafka.create_topic("in")
    application = Application(
        application_id="bench",
        topology=to_table(name, place),
        on=kafka,
        clock=kafka.clock,
        tables=tables,
        open_rows=rows_opener(tables),
    )
    for number, pieces in enumerate(runs):
        for _, event in pieces:
            kafka.append("in", msgspec.json.encode(event), event.user.encode())
        application.run(f"run-{number}")
    return application


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", ["stateless", "two_stage", "newest"])
def test_table_has_what_the_topic_has_when_the_topology_is_the_same(
    name: str, format_: Format, tmp_path: Path
) -> None:
    place = Place(format=format_, folder=str(tmp_path), name="rows")
    landed(name, place, happened()[:150], happened()[150:])
    found = list(table_rows.read(format_, place.location, tmp_path, name))
    table = name != "stateless"
    expected = outputs.digest([given_to_topic(name, happened())], table=table)
    assert outputs.digest(found, table=table) == expected
    assert expected.records > 15


@pytest.mark.parametrize("name", sorted(TABLE_TOPOLOGIES))
def test_table_of_a_run_stands_in_the_topology(name: str) -> None:
    plain, _, format_ = name.rpartition("_")
    assert plain in {measured.topology for measured in WORKLOADS.values()}
    location = {"iceberg": "bench.rows-7", "delta": "/lake/rows-7"}[format_]
    request = {"topology": name, "inputs": {"events": "events-7"}, "output": location}
    (table,) = application_of(request).topology().plan("bench").tables
    assert (table.format, table.location) == (format_, location)


@pytest.mark.parametrize("format_", FORMATS)
def test_rewritten_bytes_are_those_of_the_files_that_the_last_run_took_out(
    format_: Format, tmp_path: Path
) -> None:
    place = Place(format=format_, folder=str(tmp_path), name="rows")
    landed("newest", place, happened()[:150])
    assert table_rows.rewritten_bytes(format_, place.location, tmp_path) == 0
    before = table_rows.files_of(format_, place.location, tmp_path)
    sizes = {file: Path(file).stat().st_size for file in before}
    other = Place(format=format_, folder=str(tmp_path), name="others")
    landed("newest", other, happened()[:150], happened()[150:151])
    rewritten = table_rows.rewritten_bytes(format_, other.location, tmp_path)
    assert 0 < rewritten <= sum(sizes.values()) * 1.1


def test_rows_of_parquet_files_are_read_where_spark_has_written_them(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "_spark_metadata").mkdir()
    pq.write_table(pa.table({"id": [1], "user": ["a"], "cents": [500]}), tmp_path / "part-0.snappy.parquet")
    assert list(table_rows.read("parquet", str(tmp_path), tmp_path, "stateless")) == [
        [(0, b"a", b'{"id":1,"user":"a","cents":500}')]
    ]


# == the merge that an upsert is compared with


def test_merge_of_the_library_makes_the_rows_that_the_topic_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [msgspec.json.encode(event) for _, event in happened()]
    parts = iter((pieces[:150], pieces[150:]))
    monkeypatch.setattr(delta_merge, "new_values", lambda *_: next(parts))
    location = str(tmp_path / "table")
    request = {"output": location, "inputs": {"events": "in"}, "bootstrap": ""}
    merges = delta_merge.Merges()
    first, second = merges.merge(request), merges.merge(request)
    assert (first["rows"], second["rows"]) == (20, len({event.user for _, event in happened()[150:]}))
    found = list(table_rows.read("delta", location, tmp_path, "newest"))
    expected = outputs.digest([given_to_topic("newest", happened())], table=True)
    assert outputs.digest(found, table=True) == expected


# == many files


def work_of(format_: Format, folder: Path, files: int) -> tuple[many_files.Work, InMemoryKafka]:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    for number in range(files):
        kafka.append("in", many_files.record_of(number), b"k")
    place = Place(format=format_, folder=str(folder), name="rows")
    work = many_files.Work(bootstrap="", application_id="bench", source="in", files=files, place=place)
    return work, kafka


@pytest.mark.parametrize("format_", FORMATS)
def test_finish_and_bare_commit_have_the_same_files(format_: Format, tmp_path: Path) -> None:
    work, kafka = work_of(format_, tmp_path, 7)
    many_files.write(work, kafka)
    bare, finish = many_files.commit_bare(work), many_files.finish(work, kafka)
    assert min(bare["process_peak_mb"], finish["process_peak_mb"]) > 10
    if format_ == "delta":
        tables = [
            {Path(file).name for file in DeltaTable(f"{work.place.location}{end}").file_uris()}
            for end in ("", "-bare")
        ]
    else:
        tables = [
            {
                task.file.file_path
                for task in msgspec.structs.replace(work.place, name=f"rows{end}")
                .by_pyiceberg()
                .scan()
                .plan_files()
            }
            for end in ("", "-bare")
        ]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 7


def test_run_has_no_figure_when_its_files_are_others(tmp_path: Path) -> None:
    work, kafka = work_of("delta", tmp_path, 3)
    with pytest.raises(SystemExit, match="3 files, not 4"):
        many_files.write(msgspec.structs.replace(work, files=4), kafka)


# == a long history


def test_history_has_as_many_snapshots_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KEPT", 3), ("_FEW", 2), ("_EVERY", 2)):
        monkeypatch.setattr(long_history, name, value)
    histories = Histories(tmp_path)
    expiring = [histories.commit(9, expiring=True)["snapshots"] for _ in range(2)]
    kept = [histories.commit(9, expiring=False)["snapshots"] for _ in range(2)]
    assert (expiring, kept) == ([3, 3], [10, 11])
    # Made commit by commit, and those that are repeated add no files.
    place = Place(format="iceberg", folder=str(tmp_path), name="expiring-9")
    head = place.by_pyiceberg().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-data-files"] == "11"


# == a task


def test_rows_of_a_task_lie_in_so_many_days_and_come_almost_in_order(tmp_path: Path) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    rows = [message.value for message in one_task.messages("in", 400, 24)]
    for value in rows:
        kafka.append("in", value, b"k")
    days = [msgspec.json.decode(value, type=one_task.Reading).at for value in rows]
    assert len(set(days)) == 24
    assert min(days) == datetime(2016, 1, 1, 12, tzinfo=UTC)
    assert days != sorted(days)
    place = Place(format="iceberg", folder=str(tmp_path), name="rows")
    work = one_task.Work(bootstrap="", application_id="bench", source="in", records=400, place=place)
    found = one_task.run(work, kafka)
    assert found["files"] == 24
    assert found["worker_peak_memory_mb"] > 10


# == who is asked for what


class PretendedHost:
    """A process that notes what it is asked for."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, kind: str, folder: Path) -> None:
        assert kind == "tables"

    def __enter__(self) -> PretendedHost:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, request: Mapping[str, Any]) -> Answer:
        self.asked.append(dict(request))
        return Answer(seconds=2.0, peak_memory_mb=1.0, processor_seconds=1.0, details={"snapshots": 3.0})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, int], list[dict[str, Any]]]:
    """Returns what is asked for when a workload is measured once."""
    published: dict[str, int] = {}
    monkeypatch.setattr(rounds, "Host", PretendedHost)
    monkeypatch.setattr(rounds, "create_topics", lambda *_: None)
    monkeypatch.setattr(
        rounds, "publish", lambda _, messages, count, progress: published.update({str(count): count})
    )
    monkeypatch.setattr(PretendedHost, "asked", [])

    def measure(name: str, records: int) -> list[dict[str, Any]]:
        inputs = Inputs(bootstrap="", show=lambda *_: lambda _done: None)
        suite = Suite(bootstrap="", folder=tmp_path, inputs=inputs, say=lambda _: None, machine="m")
        found = suite.measure(dataclasses.replace(WORKLOADS[name], records=records, rounds=1))
        assert [line.system for line in found] == [system.name for system in WORKLOADS[name].systems]
        assert not suite.failures
        return PretendedHost.asked

    return measure


def test_each_finish_has_a_process_of_its_own_and_a_run_that_another_one_has_prepared(
    measured: Callable[[str, int], list[dict[str, Any]]],
) -> None:
    asked = measured("table-files", 300)
    assert [(each["system"], each["place"]["format"], each["files"]) for each in asked] == [
        *(("write-files", "iceberg", 300), ("finish", "iceberg", 300)),
        *(("write-files", "iceberg", 300), ("bare-commit", "iceberg", 300)),
        *(("write-files", "iceberg", 3), ("finish", "iceberg", 3)),
        *(("write-files", "delta", 300), ("finish", "delta", 300)),
        *(("write-files", "delta", 300), ("bare-commit", "delta", 300)),
        *(("write-files", "delta", 3), ("finish", "delta", 3)),
    ]
    assert WORKLOADS["table-files"].systems == (
        *(OURS, BARE_ICEBERG, FEW_FILES, OURS_TO_DELTA, BARE_DELTA, FEW_FILES_DELTA),
    )
    assert len({each["application_id"] for each in asked}) == 6


def test_commits_are_made_behind_so_many_snapshots(
    measured: Callable[[str, int], list[dict[str, Any]]],
) -> None:
    asked = measured("table-snapshots", 700)
    assert [(each["snapshots"], each["expiring"]) for each in asked] == [
        *((700, True), (100, True), (700, False)),
    ]
    assert WORKLOADS["table-snapshots"].systems == (OURS, FEW_SNAPSHOTS, KEPT_SNAPSHOTS)


def test_task_of_few_days_has_a_sixteenth_of_the_rows(
    measured: Callable[[str, int], list[dict[str, Any]]],
) -> None:
    asked = measured("table-days", 1_600)
    assert [(each["source"], each["records"]) for each in asked] == [
        *(("bench-3650-days", 1_600), ("bench-24-days", 100)),
    ]
    assert WORKLOADS["table-days"].systems == (OURS, FEW_DAYS)


def test_workload_is_measured_with_its_parts() -> None:
    assert command.with_parts(["table-files", "stateless", "table-days"]) == [
        *("table-files", "table-snapshots", "table-days", "stateless"),
    ]
    assert command.with_parts(["table-days"]) == ["table-days"]


def test_keys_of_a_smaller_run_are_those_that_the_run_before_has_had() -> None:
    options = argparse.Namespace(system=None, records=500, rounds=None)
    upsert = command._chosen(WORKLOADS["table-upsert"], options)
    assert (upsert.records, upsert.before, upsert.keys) == (500, 500, 500)
    append = command._chosen(WORKLOADS["table-append"], options)
    assert append.keys == WORKLOADS["table-append"].keys


@pytest.mark.parametrize(
    ("system", "output", "topics"),
    [
        (OURS, "{name}-output", 1),
        (OURS_TO_ICEBERG, "bench.{name}", 0),
        (OURS_TO_DELTA, "{folder}/{name}/table", 0),
        (AVAILABLE_NOW_TO_PARQUET, "{folder}/{name}/table", 0),
    ],
)
def test_results_go_where_the_system_writes_them(
    system: System, output: str, topics: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[str] = []
    monkeypatch.setattr("dev.benchmarks.suite.create_topics", lambda _, topics: created.extend(topics))
    read: list[str] = []

    def of_topic(_bootstrap: str, topic: str) -> Iterator[list[outputs.Record]]:
        read.append(topic)
        return iter([[(0, b"a", b"1")]])

    def of_table(target: str, location: str, folder: Path, topology: str) -> Iterator[list[outputs.Record]]:
        assert (target, folder.parent, topology) == (system.target, tmp_path, "stateless")
        return of_topic("", location)

    monkeypatch.setattr(outputs, "read", of_topic)
    monkeypatch.setattr(table_rows, "read", of_table)
    inputs = Inputs(bootstrap="", show=lambda *_: lambda _done: None)
    suite = Suite(bootstrap="", folder=tmp_path, inputs=inputs, say=lambda _: None, machine="m")
    workload: Workload = WORKLOADS["table-append"]
    application = suite._new_application(workload, system, {"events": "in"})
    suite._expected = Digest(records=0, checksum=0)
    with pytest.raises(Exception, match="1 records, ours has 0"):
        suite._check(workload, system, application, 1)
    assert read == [output.format(name=application.application_id, folder=tmp_path)]
    assert len(created) == topics
    assert suite._request(workload, system, application, 1)["target"] == system.target
