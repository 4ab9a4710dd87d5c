"""Prints the DAGs that run an application, as a line of JSON, for doctor, which imports no Airflow:
``python -m airflow_kstreams.hooks.print_dags APPLICATION_ID``.

It reads what Airflow has stored of its DAGs, and runs no DAG file. An ``application_id`` that is a template
is none before it is rendered, so its DAG is not found. Of connections only their names and faults are
printed, never what they hold.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel

from airflow_kstreams.hooks.airflow_versions import AirflowNotFoundException
from airflow_kstreams.hooks.kafka import checked_settings, settings_in, undefined_connection
from airflow_kstreams.streams.errors import ConfigError


def main(application_id: str) -> None:
    """Print the DAGs, and the faults of their connections."""
    dags = []
    connections: dict[str, str] = {}
    for dag_id, dag in sorted(SerializedDagModel.read_all_dags().items()):
        tasks = [task for task in dag.tasks if getattr(task, "application_id", None) == application_id]
        model = DagModel.get_dagmodel(dag_id) if tasks else None
        if model is None or model.is_stale:
            continue
        for task in tasks:
            for kind in ("kafka", "spark"):
                if conn_id := getattr(task, f"{kind}_conn_id", None):
                    connections[conn_id] = kind
        dags.append(
            {
                "dag_id": dag_id,
                "paused": bool(model.is_paused),
                "tasks": [{"task_id": task.task_id, "retries": int(task.retries or 0)} for task in tasks],
            }
        )
    faults = [fault for conn_id, kind in connections.items() if (fault := _fault(conn_id, kind)) is not None]
    sys.stdout.write(f"\n{json.dumps({'dags': dags, 'connections': [*connections], 'faults': faults})}\n")


def _fault(conn_id: str, kind: str) -> dict[str, Any] | None:
    """Return the error of a connection, None if it can be used."""
    try:
        try:
            found = Connection.get_connection_from_secrets(conn_id)
        except AirflowNotFoundException:
            raise undefined_connection(conn_id) if kind == "kafka" else _no_spark(conn_id) from None
        if kind == "kafka":
            checked_settings(settings_in(found), conn_id=conn_id)
    except ConfigError as error:
        return error.to_dict()
    return None


def _no_spark(conn_id: str) -> ConfigError:
    return ConfigError(
        f"connection {conn_id!r} is not defined in Airflow",
        fix=f"add it, with Spark's master: airflow connections add {conn_id} --conn-type spark "
        "--conn-host spark://HOST --conn-port 7077",
    )


if __name__ == "__main__":
    main(sys.argv[1])
