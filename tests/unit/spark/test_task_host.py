from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.core.files import SparkFiles

from airflow_kstreams.spark.task_host import load_client_config, scratch_folder

if TYPE_CHECKING:
    import pytest


def test_drivers_own_file_is_read_when_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1", "queued.max.messages.kbytes": 7}))
    assert load_client_config(str(path)) == {"bootstrap.servers": "b:1", "queued.max.messages.kbytes": "7"}


def test_shipped_copy_is_read_when_the_drivers_file_is_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.json").write_text(json.dumps({"bootstrap.servers": "b:1"}))
    monkeypatch.setattr(SparkFiles, "get", staticmethod(lambda name: str(tmp_path / name)))
    assert load_client_config("/nowhere/on/this/machine/client.json") == {"bootstrap.servers": "b:1"}


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
