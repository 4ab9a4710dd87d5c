"""The archive for executors: complete by itself, equal for equal content."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow
import pytest

from airflow_kstreams.spark.driver.package_archive import build_archive
from tests.unit.cli.test_app import invoke

#: What executors do: build a topology, make clients, open stores.
_EXECUTOR = """
import sys
sys.path[:0] = [{archive!r}]
import airflow_kstreams, confluent_kafka, rocksdict
from airflow_kstreams.batch.task.runner import TaskRunner
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams import KStreamBuilder, serdes
KafkaCluster({{"bootstrap.servers": "h:1"}})
builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
builder.stream("a").send_to("b")
print(builder.build().topology_hash()[:4], airflow_kstreams.__file__)
foreign = [name for name, module in sys.modules.items()
           if "site-packages" in (getattr(module, "__file__", None) or "")]
assert not foreign, foreign
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "kstreams.tar.gz"
    result = invoke("pack", "--output", str(path), "--extras", "rocksdb")
    assert result.exit_code == 0, result.output
    assert "spark.executorEnv.PYTHONPATH=./kstreams" in result.stdout
    return path


def test_tasks_can_be_imported_when_there_is_nothing_but_the_archive(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path)  # Debian's Python 3.11.2 knows no filter yet

    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", _EXECUTOR.format(archive=str(tmp_path))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout


def test_archive_holds_no_more_than_executors_need(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[0] for name in tar.getnames()}
    assert {"airflow_kstreams", "confluent_kafka", "msgspec", "rocksdict"} <= names
    assert not {"airflow", "pyspark", "pandas", pyarrow.__name__, "numpy"} & names


def test_archive_is_the_same_when_it_is_built_again(archive: Path, tmp_path: Path) -> None:
    again = build_archive(tmp_path / "again.tar.gz", extras=["rocksdb"])

    assert again.path.read_bytes() == archive.read_bytes()
