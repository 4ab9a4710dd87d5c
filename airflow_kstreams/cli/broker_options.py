"""Finds the broker of a command and the settings to log in.

Both come from options, or from the file that the environment names for Spark drivers too. Only files hold
secrets, which are never printed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kstreams.kafka.cluster import KafkaCluster
    from airflow_kstreams.streams.settings import ApplicationSettings


def client_config(bootstrap: str | None, file: Path | None) -> dict[str, object] | None:
    """Return the client settings of the options or the environment, None if neither gives any.

    :raises ConfigError: the file cannot be read or understood.
    """
    from airflow_kstreams.kafka.configuration.config_file import read_client_config
    from airflow_kstreams.launch.run_spec import CLIENT_CONFIG_FILE

    named = os.environ.get(CLIENT_CONFIG_FILE)
    path = file or (Path(named) if named else None)
    config: dict[str, object] = dict(read_client_config(path)) if path is not None else {}
    if bootstrap is not None:
        config["bootstrap.servers"] = bootstrap
    return config or None


def cluster(
    bootstrap: str | None,
    file: Path | None,
    settings: ApplicationSettings | None = None,
    *,
    look_ms: int | None = None,
) -> KafkaCluster:
    """Return the cluster that options or environment name, without contacting it.

    :param settings: the application's settings, as for ``KafkaCluster``.
    :param look_ms: as for ``KafkaCluster``.
    :raises ConfigError: as :func:`client_config`, or no broker is named.
    """
    from airflow_kstreams.kafka.cluster import KafkaCluster

    return KafkaCluster(client_config(bootstrap, file) or {}, settings=settings, look_ms=look_ms)
