"""Small files of a run are merged before they land: in the driver, and as executors do it. DuckDB reads both
formats.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from unittest.mock import patch
from urllib.parse import unquote

import msgspec
import pytest

from airflow_kstreams.batch.inspect.tables.orphans import find_orphans
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.tables.merge_plan import Merge
from airflow_kstreams.spark.driver import merges
from airflow_kstreams.spark.driver.merges import DriverMerges
from airflow_kstreams.spark.executor.copy_host import CopyHost
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.merge_host import MergeHost
from airflow_kstreams.spark.executor.report_rows import HostReport
from airflow_kstreams.spark.executor.rewrite_host import RewriteHost
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.errors import TableUnavailableError
from airflow_kstreams.streams.plan import decode_json
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.tables.parquet.parquet_files import file_prefix
from airflow_kstreams.testing import InMemoryKafka
from tests.contract.test_runs_into_tables import APP, Lake, send

ROWS = 120


class WithTables(Protocol):
    """Tables in a folder."""

    folder: Path

    @property
    def settings(self) -> dict[str, str]: ...


class InThisProcess:
    """Runs what is shipped to executors here, after it has travelled as text.

    :ivar partitions: number of partitions of each job.
    """

    def __init__(self, lake: WithTables) -> None:
        file = lake.folder / "client.json"
        file.write_text(json.dumps({"bootstrap.servers": "none", **lake.settings}))
        self.client = ClientSettings(path=str(file))
        context = SimpleNamespace(defaultParallelism=2)
        self.session = SimpleNamespace(
            sparkContext=context, conf=SimpleNamespace(get=lambda name, default: default)
        )
        self.partitions: list[int] = []

    def run(self, host: Any, *, run_id: str) -> list[HostReport]:
        text = msgspec.json.encode(host).decode()
        self.partitions.append(len(host.names))
        reports = [
            report
            for index in range(len(host.names))
            for report in decode_json(text, TaskHost | CopyHost | MergeHost | RewriteHost).run_partition(
                index
            )
        ]
        return [decode_json(msgspec.json.encode(report).decode(), HostReport) for report in reversed(reports)]


def files_of(lake: Lake) -> list[str]:
    """Return the folders of the partitions of a table's files, once for each file."""
    look = lake.opened().table(lake.table.plan).look(APP)
    assert look is not None
    if lake.kind == "delta":
        paths = [unquote(path) for path in look.state.file_uris()]
    else:
        paths = [entry["file_path"] for entry in look.state.inspect.files().to_pylist()]
    return [path.removeprefix("file://") for path in paths]


@pytest.mark.parametrize(("kind", "place"), [("iceberg", "driver"), ("delta", "executors")])
def test_run_has_one_small_file_in_each_partition(kind: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    lake, kafka = Lake(kind, tmp_path), InMemoryKafka()
    kafka.create_topic("flights", partitions=2)
    send(kafka, 0, ROWS)
    app, hosts = lake.application(kafka), InThisProcess(lake)
    app.make_merges = DriverMerges(hosts, lake.opened()).make  # type: ignore[arg-type]
    with patch.object(merges, "_HERE_FILES", 0 if place == "executors" else 10_000):
        summary = app.run("r1")
    assert len(hosts.partitions) == (place == "executors")
    paths = files_of(lake)
    assert max(Counter(path.rpartition("/")[0] for path in paths).values()) == 1
    assert summary.tables[lake.table.name].files == len(paths)
    # What they replace is gone.
    assert {str(file) for file in tmp_path.rglob("rows-*.parquet")} == {*paths}
    rows = lake.rows('SELECT carrier, epoch("at"), delay, _offset FROM {table}')
    assert sorted(rows, key=lambda row: row[1]) == [
        (f"C{n % 7}", float(1_700_000_000 + n * 900), None if n % 3 == 0 else n, n // 2) for n in range(ROWS)
    ]
    # Partition and bounds tell a reader which files to leave out.
    (found,) = lake.rows(
        "SELECT count(*), min(delay) FROM {table} "
        "WHERE \"at\" >= '2023-11-15' AND \"at\" < '2023-11-15 02:00' AND carrier = 'C1'"
    )
    hours = [
        n for n in range(ROWS) if n % 7 == 1 and 1_700_006_400 <= 1_700_000_000 + n * 900 < 1_700_013_600
    ]
    assert found == (len(hours), min(n for n in hours if n % 3))


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_merged_files_that_no_seal_names_are_orphans(kind: str, tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    lake, kafka = Lake(kind, tmp_path), InMemoryKafka()
    kafka.create_topic("flights", partitions=2)
    send(kafka, 0, ROWS)
    app, made = lake.application(kafka), list[str]()
    driver = DriverMerges(InThisProcess(lake), lake.opened())  # type: ignore[arg-type]

    def lost(slice_: Slice, planned: Sequence[Merge]) -> list[FileFacts]:
        made.extend(file.path for file in driver.make(slice_, planned))
        raise TableUnavailableError("this driver does not seal what it has merged")

    app.make_merges = lost
    app.run("r1")
    found = find_orphans(
        kafka,
        app.topology.plan(APP),
        lake.opened(),
        beginning=file_prefix(APP),
        older_than_ms=0,
        clock=kafka.clock,
    )
    assert {each.path for each in found.files} == {*made} != set()
    assert found.looked_at == len(made) + len(files_of(lake))
