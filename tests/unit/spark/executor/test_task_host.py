from __future__ import annotations

import base64
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkFiles, cloudpickle

from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.batch.task.global_table_read import OF_PROCESS
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.spark.driver.package_archive import shipped
from airflow_kstreams.spark.executor.machine_files import ClientSettings, masked, scratch_folder
from airflow_kstreams.spark.executor.report_rows import HostReport
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.calls import abandoned
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.kafka.metadata_log import a_slice
from tests.support.kafka.registries import new_registry

if TYPE_CHECKING:
    from airflow_kstreams.kafka.cluster import KafkaCluster


def test_drivers_own_file_is_read_when_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1", "queued.max.messages.kbytes": 7}))
    read = ClientSettings(path=str(path)).read()
    assert read == {"bootstrap.servers": "b:1", "queued.max.messages.kbytes": "7"}


def test_registry_is_known_to_the_process_when_a_host_starts_its_tasks(tmp_path: Path) -> None:
    registry = new_registry()
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1", "schema.registry.url": registry.url}))
    host = TaskHost(
        source=ApplicationFile(filename="app.py", text=""),
        settings=ApplicationSettings.parse("app"),
        tasks=((),),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client=ClientSettings(path=str(path)),
    )
    try:
        assert host.run_partition(0) == []
        assert SchemaRegistry().client() is registry.client()
    finally:
        schema_registry.configure({})


_APPLICATION = """
from airflow_kstreams.streams import TopologyBuilder

def topology():
    return TopologyBuilder().add_source("in", "words").add_sink("out", "copies", "in").build()
"""


@pytest.mark.promise("drivers-list-holds")
def test_executor_obeys_the_drivers_list_when_its_own_environment_allows_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSTREAMS_ALLOWED_CLIENT_SETTINGS", "sasl.kerberos.kinit.cmd")
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1", "sasl.kerberos.kinit.cmd": "canary"}))
    host = TaskHost(
        source=ApplicationFile(filename="copies_application.py", text=_APPLICATION),
        settings=ApplicationSettings.parse("app"),
        tasks=((TaskShare(0, 0),),),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client=ClientSettings(path=str(path)),
    )
    (report,) = host.run_partition(0)
    assert report.error is not None
    assert report.error["type"] == "ConfigError"
    assert "runs code in this process" in report.error["cause"]
    assert "canary" not in str(report.error)


def test_closure_holds_no_secret_when_spark_pickles_it(tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1", "sasl.password": "canary"}))
    assert ClientSettings(path=str(path)).read()["sasl.password"] == "canary"
    host = TaskHost(
        source=ApplicationFile(filename="copies_application.py", text=_APPLICATION),
        settings=ApplicationSettings.parse("app"),
        tasks=((TaskShare(0, 0),),),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client=ClientSettings(path=str(path)),
    )
    pickled: bytes = cloudpickle.dumps(shipped(host))  # type: ignore[no-untyped-call]
    assert b"client.json" in pickled
    assert b"canary" not in pickled


@pytest.mark.promise("no-secret-is-seen")
def test_each_half_of_shipped_settings_tells_nothing_and_both_are_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"bootstrap.servers": "b:1", "sasl.password": "canary ü"}
    tables = {"delta.aws_secret_access_key": "canary t", "iceberg.type": "sql"}
    half, mask = masked(config | tables)
    (tmp_path / "client.json").write_text(json.dumps(half))
    monkeypatch.setattr(SparkFiles, "get", staticmethod(lambda name: str(tmp_path / name)))
    client = ClientSettings(path="/nowhere/on/this/machine/client.json", mask=mask)
    assert (client.read(), dict(client.read_tables())) == (config, tables)
    assert "canary" not in repr((client.read(), client.read_tables()))
    assert mask not in repr(client)
    for one in (half["masked"], mask):
        assert not any(byte in base64.b64decode(one) for byte in (b"canary", b"sasl", b"delta"))
    again, another = masked(config | tables)
    assert another != mask, "no mask covers two files"
    assert again != half


@pytest.mark.remedy("machine_files.ClientSettings._whole")
def test_settings_are_read_when_the_disk_that_cut_the_shipped_file_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half, mask = masked({"bootstrap.servers": "b:1"})
    path = tmp_path / "client.json"
    path.touch()
    monkeypatch.setattr(SparkFiles, "get", staticmethod(lambda name: str(tmp_path / name)))
    client = ClientSettings(path="client.json", mask=mask)
    with pytest.raises(ConfigError, match=r"client\.json' are not whole"):
        client.read()
    path.write_text(json.dumps(half))
    assert client.read() == {"bootstrap.servers": "b:1"}


def test_tasks_are_spread_over_the_executors_scratch_folders_when_there_are_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/disk1/spark,/disk2/spark")
    assert [scratch_folder(group) for group in range(3)] == [
        Path("/disk1/spark"),
        Path("/disk2/spark"),
        Path("/disk1/spark"),
    ]
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert scratch_folder(0) is None


def host_of(tasks: int, path: Path, **settings: int) -> TaskHost:
    path.write_text(json.dumps({"bootstrap.servers": "b:1"}))
    return TaskHost(
        source=ApplicationFile(filename="copies_application.py", text=_APPLICATION),
        settings=ApplicationSettings.parse(
            "app", {name.replace("_", "."): value for name, value in settings.items()}
        ),
        tasks=(tuple(TaskShare(0, group) for group in range(tasks)),),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client=ClientSettings(path=str(path)),
    )


def test_slot_runs_as_many_tasks_at_once_as_its_threads_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, threads = threading.Barrier(2), {}
    lock, running, most = threading.Lock(), [0], [0]
    cluster: KafkaCluster | Any = None

    def run_to_stop(host: TaskHost, _: object, number: int, share: TaskShare, __: object) -> HostReport:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        at_once.wait(timeout=30)
        with lock:
            running[0] -= 1
        threads[share.group] = host._setup(number, share, cluster).settings.num_threads_per_task
        return HostReport(report=None)

    monkeypatch.setattr(TaskHost, "_run_to_stop", run_to_stop)
    # Seven threads, three for each task: two tasks at a time, the first of them with the one that is left.
    host = host_of(4, tmp_path / "client.json", num_stream_threads=7, num_threads_per_task=3)
    assert len(host.run_partition(0)) == 4
    assert (most[0], threads) == (2, {0: 4, 1: 3, 2: 3, 3: 3})


def test_tasks_of_a_process_share_the_global_tables_that_it_has_read(tmp_path: Path) -> None:
    cluster: KafkaCluster | Any = None
    hosts = [host_of(2, tmp_path / "client.json") for _ in range(2)]
    setups = [host._setup(n, TaskShare(0, n), cluster) for host in hosts for n in range(2)]
    assert {id(setup.global_tables) for setup in setups} == {id(OF_PROCESS)}


class Ended(BaseException):
    pass


def test_process_ends_before_it_takes_a_task_when_too_many_calls_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(TaskHost, "_run_to_stop", lambda *_: HostReport(report=None))
    monkeypatch.setattr(abandoned, "_left", [lambda: True] * abandoned.MOST)
    host = host_of(1, tmp_path / "client.json")
    assert len(host.run_partition(0)) == 1
    abandoned.add(lambda: True, "another call")
    with pytest.raises(Ended, match="1"):
        host.run_partition(0)
    assert "another call does not end, and the task goes on without it" in caplog.text


def test_task_opens_as_many_files_as_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1"}))
    host = TaskHost(
        source=ApplicationFile(filename="app.py", text=""),
        settings=ApplicationSettings.parse("app", {"table.open.files": 3}),
        tasks=((),),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client=ClientSettings(path=str(path)),
    )
    opened: list[int] = []

    def rows_opener(tables: Any, *, open_files: int) -> Any:
        return lambda table, target, writer: opened.append(open_files)

    monkeypatch.setattr("airflow_kstreams.tables.parquet.opening.rows_opener", rows_opener)
    rows: Any = None
    host._open_rows(rows, rows, rows)
    assert opened == [3]
