"""What Spark ships to executors, unpickled by other Pythons, as an executor's worker does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.kafka.metadata_log import a_slice

_APPLICATION = ApplicationFile(filename="app.py", text="")


def a_host(config: Path, *tasks: TaskShare) -> TaskHost:
    return TaskHost(
        source=_APPLICATION,
        settings=ApplicationSettings.parse("app", {"processing.guarantee": "exactly_once"}),
        tasks=(tasks,),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client_config_path=str(config),
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1"}))
    return path


def a_continuous_host(config: Path) -> TaskHost:
    return TaskHost(
        source=_APPLICATION,
        settings=ApplicationSettings.parse("app"),
        tasks=((TaskShare(1, 2),),),
        run_id="r",
        generation=1,
        slice=None,
        client_config_path=str(config),
    )


@pytest.mark.parametrize("make", [a_host, a_continuous_host])
def test_host_is_the_same_when_it_has_travelled(make: Callable[[Path], TaskHost], config: Path) -> None:
    import msgspec

    host = make(config)

    assert msgspec.json.decode(msgspec.json.encode(host), type=type(host)) == host
