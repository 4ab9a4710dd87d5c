"""Finds files on an executor's machine: the Kafka client's configuration, and scratch folders."""

from __future__ import annotations

import json
import os
from pathlib import Path

from airflow_kstreams.kafka.configuration.secrets import sealed
from airflow_kstreams.streams.errors import ConfigError


def scratch_folder(group: int) -> Path | None:
    """Return one of the executor's own scratch folders, which Spark removes with the executor; None if there
    is none.

    :param group: spreads tasks over several disks.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return Path(folders[group % len(folders)]) if folders else None


def load_client_config(path: str) -> dict[str, str]:
    """Read the Kafka client's configuration from the driver's own file, or the copy that Spark shipped.

    :raises ConfigError: the file holds no JSON object.
    """
    config = _parsed(path)
    if config is None:
        raise ConfigError(
            f"the Kafka client configuration {path!r} is not a JSON object",
            fix='write it as {"bootstrap.servers": "HOST:PORT", ...}',
        )
    return config


def _parsed(path: str) -> dict[str, str] | None:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, PermissionError):  # on another machine, or as another user of this one
        from pyspark.core.files import SparkFiles

        text = Path(SparkFiles.get(Path(path).name)).read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError:
        return None  # the decoder's error holds the document, secrets included
    if not isinstance(content, dict):
        return None
    return sealed({str(name): str(value) for name, value in content.items()})
