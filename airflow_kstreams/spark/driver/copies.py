"""Copies the state of new processors on Spark: one job a round, one share a Spark task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_kstreams.batch.growing.state_copy import CopyWork, Ended
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings
from airflow_kstreams.launch.client_config_file import client_config_file
from airflow_kstreams.spark.driver.hosts import SparkHosts
from airflow_kstreams.spark.executor.copy_host import CopyHost
from airflow_kstreams.streams.errors import require
from airflow_kstreams.streams.naming.topic_names import catch_up_group
from airflow_kstreams.streams.settings import ApplicationSettings


class SparkCopies:
    """Copies on executors; see :class:`~airflow_kstreams.batch.growing.state_copy.Copies`.

    :param hosts: an open session.
    """

    def __init__(self, hosts: SparkHosts, settings: ApplicationSettings) -> None:
        self._hosts = hosts
        self._settings = settings
        self.cancel = hosts.cancel

    def copy(self, shares: Sequence[Sequence[CopyWork]], rate: float | None) -> Sequence[Ended]:
        """Copy each share in a Spark task.

        :raises SparkSessionError: the session's JVM is gone, or its jobs were cancelled.
        """
        host = CopyHost(
            settings=self._settings,
            works=tuple(map(tuple, shares)),
            rate=rate,
            client=self._hosts.client,
            allowed=AllowedSettings.of_environment().to_text(),
        )
        outcomes = self._hosts.run(host, run_id=catch_up_group(self._settings.application_id))
        return [outcome.copied for outcome in outcomes if outcome.copied is not None]


@contextmanager
def copies_on_spark(
    config: Mapping[str, str], settings: ApplicationSettings, master: str | None
) -> Iterator[SparkCopies]:
    """Open a Spark session on which state is copied.

    :param config: client settings by librdkafka's names.
    :param master: Spark's master; that of spark-submit or ``MASTER`` if None.
    :raises SparkSessionError: Spark did not start.
    """
    require("spark", "pyspark", "pandas", "pyarrow", what="copying on Spark")
    with client_config_file(config) as file:
        name = f"{settings.application_id} more processors"
        hosts = SparkHosts(name, client_config_path=file.path, master=master)
        try:
            hosts.start()
            yield SparkCopies(hosts, settings)
        finally:
            hosts.close()
