"""Tells Airflow what this provider offers. Named by the package's entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Kafka Streams on Spark"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the shape of Airflow's ``provider_info.schema.json``.

    No connection type is registered: the ``kafka`` type of Airflow's own Kafka provider serves.
    """
    return {
        "package-name": "airflow-kstreams",
        "name": "Kafka Streams on Spark",
        "description": "Incremental, exactly-once processing of Kafka topics, on Spark.",
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["apache"]}],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["airflow_kstreams.hooks.kafka", "airflow_kstreams.hooks.spark"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_kstreams.operators.capture_stop_offsets",
                    "airflow_kstreams.operators.run_topology",
                    "airflow_kstreams.operators.finish_run",
                ],
            }
        ],
        "sensors": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_kstreams.sensors.run_finished"]},
        ],
        "triggers": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_kstreams.triggers.run_finished"]},
        ],
    }
