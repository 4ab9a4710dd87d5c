"""Looks at the Airflow of this environment: the DAGs of an application, their retries, their connections.

Airflow is asked in a process of its own, and only where it was set up: its first import writes a
configuration, and without its database it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, ok, unseen, warning
from airflow_kstreams.inspect.surroundings.other_process import Unanswered, ask
from airflow_kstreams.launch.installation import version_of
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.partitioning.partition_groups import first_few

_CHECK = "Airflow"
_MODULE = "airflow_kstreams.hooks.print_dags"
#: Variables by which an Airflow is set up without a file.
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
#: Left of the time of all looks, to end the process.
_MARGIN_SECONDS = 1.0


def look_at_airflow(
    application_id: str, environment: Mapping[str, str], *, seconds: float
) -> Iterator[Finding]:
    """Look whether a DAG runs the application, is on, retries its tasks, and finds its connections.

    :param seconds: time for all looks together.
    """
    release = version_of("apache-airflow-core")
    if release is None:
        yield unseen(_CHECK, "Airflow is not installed here")
        return
    home = Path(environment.get("AIRFLOW_HOME") or Path.home() / "airflow")
    if not (home / "airflow.cfg").exists() and not environment.get(_DATABASE):
        yield unseen(
            _CHECK,
            f"Airflow {release} is installed and not set up here: {home} holds no airflow.cfg (AIRFLOW_HOME)",
        )
        return
    try:
        found = ask(_MODULE, application_id, environment=environment, seconds=seconds - _MARGIN_SECONDS)
    except (Unanswered, KStreamsError) as fault:
        yield unseen(_CHECK, f"Airflow {release} could not be asked: {fault}")
        return
    yield from _judged(application_id, found)


def _judged(application_id: str, found: Mapping[str, Any]) -> Iterator[Finding]:
    dags, faults = found["dags"], found["faults"]
    if not dags:
        yield warning(
            _CHECK,
            "dag-missing",
            f"Airflow knows no DAG with a task whose application_id is {application_id!r}",
            "look for errors of its file: airflow dags list-import-errors; a new file is read within minutes",
        )
        return
    listed = first_few([dag["dag_id"] for dag in dags])
    paused = all(dag["paused"] for dag in dags)
    if paused:
        yield warning(
            _CHECK,
            "dag-paused",
            f"every DAG of the application is paused, so no run comes by itself: {listed}",
            f"airflow dags unpause {dags[0]['dag_id']}",
        )
    once = [
        f"{dag['dag_id']}.{task['task_id']}" for dag in dags for task in dag["tasks"] if not task["retries"]
    ]
    if once:
        yield warning(
            _CHECK,
            "tasks-without-retries",
            f"no retries: {first_few(once)}; a broker that is away for a moment fails the run until a person "
            "clears it",
            'give the DAG default_args={"retries": 3, "retry_delay": timedelta(minutes=1)}',
        )
    for fault in faults:
        yield error(_CHECK, "connection-unfit", fault["cause"], fault.get("fix", ""))
    if not (paused or once or faults):
        yield ok(
            _CHECK,
            f"DAGs of the application: {listed}; their connections can be used: "
            f"{first_few(found['connections'])}",
        )
