"""Keeps the classes of a Spark driver and of a Kafka broker for those that start later
(:mod:`dev.quick_java`); ``dev/setup`` runs it once.

Each is started once, does a little work, and writes what it has loaded as it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.embedded import Broker, free_port
from dev.quick_java import KAFKA_CLASSES, QUICK_START, SPARK_CLASSES

_SPARK_WORK = """
from pyspark.sql import SparkSession
local = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
builder = SparkSession.builder
for name, value in local.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert spark.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).sum() == 10
gateway = spark.sparkContext._gateway
spark.stop()
# Java ends with its standard input, and writes the archive as it ends.
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait(300)
"""


def main() -> None:
    """Make both archives; a file appears only once it is complete."""
    for path, keep in ((SPARK_CLASSES, _keep_spark), (KAFKA_CLASSES, _keep_kafka)):
        partial = path.with_suffix(".partial")
        for old in (path, partial):
            old.unlink(missing_ok=True)
        keep(f"-XX:ArchiveClassesAtExit={partial} -Xlog:cds=off -Xlog:cds+dynamic=off")
        partial.rename(path)


def _keep_spark(options: str) -> None:
    environment = os.environ | {"SPARK_SUBMIT_OPTS": f"{QUICK_START} {options}"}
    subprocess.run([sys.executable, "-c", _SPARK_WORK], check=True, env=environment)


def _keep_kafka(options: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    with tempfile.TemporaryDirectory(prefix="kstreams-classes-") as folder:
        broker = Broker(port=free_port(), folder=Path(folder) / "broker", java_options=tuple(options.split()))
        with broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            for created in admin.create_topics([NewTopic("any", 1, 1)]).values():
                created.result(timeout=30)


if __name__ == "__main__":
    main()
