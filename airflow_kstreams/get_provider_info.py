"""Lists for Airflow what this provider offers; the entry point ``apache_airflow_provider`` names it.

The modules are found in their folders, so a new sensor needs no line here. Rule: a class that users name in a
DAG file ends in the suffix of its kind (:data:`_KINDS`). The texts are read, not imported: Airflow asks each
provider when any of its processes starts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_INTEGRATION = "Kafka Streams on Spark"

#: Folder, which has Airflow's name for what lies there, and how the names of its public classes end.
_KINDS = {"hooks": "Hook", "operators": "Operator", "sensors": "Sensor", "triggers": "Trigger"}


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
                        "start commands or call Python functions), or that send local files or the "
                        "machine's identity to servers, and that connections may hold all the same: names "
                        "with commas between, or a JSON object of names and the one value that is allowed. "
                        "Empty allows none.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": '{"sasl.kerberos.kinit.cmd": "kinit -k -t /etc/kafka.keytab airflow"}',
                        "default": "",
                    },
                    "pages_read_kafka": {
                        "description": "Whether the API server reads Kafka for the pages of applications "
                        "and runs. Without it they show what the tasks have left in XCom.",
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                    "spark_url": {
                        "description": "Address of Spark's own pages, to which tasks that run Spark get a "
                        "link: of the history server, or of the cluster manager. {driver} in it stands for "
                        "the application's id on YARN or Kubernetes. Empty: no link.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "https://history.example.com/history/{driver}",
                        "default": "",
                    },
                },
            }
        },
        **{kind: _modules(kind, suffix) for kind, suffix in _KINDS.items()},
        "task-decorators": [
            {"name": "kstreams", "class-name": "airflow_kstreams.decorators.kstreams.kstreams_task"},
        ],
        "extra-links": [
            "airflow_kstreams.hooks.operator_links.KafkaRunLink",
            "airflow_kstreams.hooks.operator_links.SparkLink",
        ],
    }


def _modules(kind: str, suffix: str) -> list[dict[str, Any]]:
    """Return the modules of a folder that define a public class of its kind."""
    public_class = re.compile(rf"^class [A-Z]\w*{suffix}\(", re.MULTILINE)
    found = [
        f"airflow_kstreams.{kind}.{file.stem}"
        for file in sorted((Path(__file__).parent / kind).glob("*.py"))
        if public_class.search(file.read_text(encoding="utf-8"))
    ]
    return [{"integration-name": _INTEGRATION, "python-modules": found}]
