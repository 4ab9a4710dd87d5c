"""What runs on executors when processors are added: copies the state of some sources."""

from __future__ import annotations

import msgspec

from airflow_kstreams.batch.growing.state_copy import CopyWork
from airflow_kstreams.spark.executor.local_files import load_client_config
from airflow_kstreams.spark.executor.reports import HostReport, reported
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings


class CopyHost(msgspec.Struct, frozen=True, kw_only=True, tag="copies"):
    """Everything an executor needs to copy state; plain data, no secret in it.

    :param settings: application settings.
    :param works: what each Spark partition copies, one after the other.
    :param rate: changelog records per second that each of them reads; None for as fast as it goes.
    :param client_config_path: as of a :class:`~airflow_kstreams.spark.executor.task_host.TaskHost`.
    :param allowed: as of a :class:`~airflow_kstreams.spark.executor.task_host.TaskHost`.
    """

    settings: ApplicationSettings
    works: tuple[tuple[CopyWork, ...], ...]
    rate: float | None
    client_config_path: str
    allowed: str = ""

    @property
    def names(self) -> list[list[str]]:
        """Of what each Spark partition copies, for messages."""
        return [
            [str(TaskId(subtopology=work.sub.id, group=work.source)) for work in works]
            for works in self.works
        ]

    def run_partition(self, index: int) -> list[HostReport]:
        """Copy what one Spark partition is to copy."""
        from airflow_kstreams.batch.clock import SystemClock
        from airflow_kstreams.batch.growing.copying import copy_source
        from airflow_kstreams.kafka.cluster import KafkaCluster
        from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings

        config = load_client_config(self.client_config_path)
        cluster = KafkaCluster(config, settings=self.settings, allowed=AllowedSettings.parse(self.allowed))
        reports: list[HostReport] = []
        for work in self.works[index]:
            try:
                ended = copy_source(cluster, self.settings, work, rate=self.rate, clock=SystemClock())
                reports.append(HostReport(copied=ended))
            except KStreamsError as error:
                return [*reports, reported(error)]
        return reports
