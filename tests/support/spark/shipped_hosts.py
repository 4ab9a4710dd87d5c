"""Hosts of tasks as a driver ships them, for tests that unpickle them elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from airflow_kstreams.batch.protocol.slice.stops import TaskShare, without_partitions
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.task_host import TaskHost
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from tests.support.kafka.metadata_log import a_slice

_APPLICATION = ApplicationFile(filename="app.py", text="")


def written_config(folder: Path) -> Path:
    """Write the client settings that a host reads."""
    path = folder / "client.json"
    path.write_text(json.dumps({"bootstrap.servers": "b:1"}))
    return path


def a_host(config: Path, *tasks: TaskShare) -> TaskHost:
    """Return the host of a run's tasks."""
    return TaskHost(
        source=_APPLICATION,
        settings=ApplicationSettings.parse("app", {"processing.guarantee": "exactly_once"}),
        tasks=(tasks,),
        run_id="r",
        generation=1,
        slice=without_partitions(a_slice()),
        client=ClientSettings(path=str(config)),
    )


def a_continuous_host(config: Path) -> TaskHost:
    """Return the host of a task that runs for ever."""
    return TaskHost(
        source=_APPLICATION,
        settings=ApplicationSettings.parse("app"),
        tasks=((TaskShare(1, 2),),),
        run_id="r",
        generation=1,
        slice=None,
        client=ClientSettings(path=str(config)),
    )
