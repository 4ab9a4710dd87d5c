"""Tells Airflow what this provider offers. Named by the package's entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Kafka Streams on Spark"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the shape of Airflow's ``provider_info.schema.json``, which is what
    Airflow holds it against (``provider.yaml.schema.json`` is for files in Airflow's own tree).

    No connection type is registered: the ``kafka`` type of Airflow's own Kafka provider serves.
    """
    return {
        "package-name": "airflow-kstreams",
        "name": "Kafka Streams on Spark",
        "description": "Incremental, exactly-once processing of Kafka topics, on Spark.",
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["apache", "kafka"]}],
        "config": {
            "kstreams": {
                "description": "Options of airflow-kstreams.",
                "options": {
                    "allowed_client_settings": {
                        "description": "Settings of the Kafka client that run code (they load libraries, "
                        "start commands or call Python functions) and that connections may hold all the "
                        "same: names with commas between, or a JSON object of names and the one value that "
                        "is allowed. Empty allows none.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": '{"sasl.kerberos.kinit.cmd": "kinit -k -t /etc/kafka.keytab airflow"}',
                        "default": "",
                    }
                },
            }
        },
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
                    "airflow_kstreams.operators.backfill",
                    "airflow_kstreams.operators.reset_application",
                    "airflow_kstreams.operators.replay_dead_letters",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_kstreams.sensors.condition_sensor",
                    "airflow_kstreams.sensors.run_finished",
                    "airflow_kstreams.sensors.new_data",
                    "airflow_kstreams.sensors.stop_offsets_reached",
                ],
            },
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_kstreams.triggers.condition",
                    "airflow_kstreams.triggers.finished_runs",
                ],
            },
        ],
        "task-decorators": [
            {"name": "kstreams", "class-name": "airflow_kstreams.decorators.kstreams.kstreams_task"},
        ],
    }
