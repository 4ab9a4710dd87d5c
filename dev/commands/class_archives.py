"""Keeps the classes of a Spark driver and of a Kafka broker for those that start later
(:mod:`dev.servers.quick_java`); ``dev/setup`` runs it once.

Each is started once, does a little work, and writes what it has loaded as it ends.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from airflow_kstreams.launch.jvm_options import keeping
from airflow_kstreams.spark.driver.class_archive import keep_classes
from dev.servers.embedded import Broker, free_port
from dev.servers.quick_java import KAFKA_CLASSES, SPARK_CLASSES


def main() -> None:
    """Make both archives; a file appears only once it is complete."""
    keep_classes(SPARK_CLASSES)
    partial = KAFKA_CLASSES.with_suffix(".partial")
    for old in (partial, KAFKA_CLASSES):  # a broker that takes its classes from an archive keeps none
        old.unlink(missing_ok=True)
    _keep_kafka(keeping(partial))
    partial.replace(KAFKA_CLASSES)


def _keep_kafka(options: tuple[str, ...]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    with tempfile.TemporaryDirectory(prefix="kstreams-classes-") as folder:
        broker = Broker(port=free_port(), folder=Path(folder) / "broker", java_options=options)
        with broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            for created in admin.create_topics([NewTopic("any", 1, 1)]).values():
                created.result(timeout=30)


if __name__ == "__main__":
    main()
