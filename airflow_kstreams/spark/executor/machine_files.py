"""Finds files on an executor's machine: the Kafka client's configuration, and scratch folders."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_kstreams.kafka.configuration.config_file import read_client_config


def scratch_folder(group: int) -> Path | None:
    """Return one of the executor's own scratch folders, which Spark removes with the executor; None if there
    is none.

    :param group: spreads tasks over several disks.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return Path(folders[group % len(folders)]) if folders else None


def load_client_config(path: str) -> dict[str, str]:
    """Read the Kafka client's configuration from the driver's own file, or the copy that Spark shipped.

    :raises ConfigError: as :func:`read_client_config`.
    """
    if not os.access(path, os.R_OK):  # on another machine, or as another user of this one
        from pyspark.core.files import SparkFiles

        path = SparkFiles.get(Path(path).name)
    return read_client_config(path)
