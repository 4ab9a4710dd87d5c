"""Copies the state of some processors on executors, when processors are added."""

from __future__ import annotations

import msgspec

from airflow_kstreams.batch.growing.state_copy import CopyWork
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.spark.executor.report_rows import HostReport, reported
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings


class CopyHost(msgspec.Struct, frozen=True, kw_only=True, tag="copies"):
    """All that an executor needs to copy state: plain data without secrets.

    :param settings: application settings.
    :param works: the copies of each Spark partition, made one after the other.
    :param rate: changelog records per second that each partition reads; None for no limit.
    :param client: as for a :class:`~airflow_kstreams.spark.executor.task_host.TaskHost`.
    :param allowed: as for a :class:`~airflow_kstreams.spark.executor.task_host.TaskHost`.
    """

    settings: ApplicationSettings
    works: tuple[tuple[CopyWork, ...], ...]
    rate: float | None
    client: ClientSettings
    allowed: str = ""

    @property
    def names(self) -> list[list[str]]:
        """The names of each Spark partition's copies, for messages."""
        return [
            [str(TaskId(subtopology=work.sub.id, group=work.source)) for work in works]
            for works in self.works
        ]

    def run_partition(self, index: int) -> list[HostReport]:
        """Make the copies of one Spark partition."""
        from airflow_kstreams.batch.clock import SystemClock
        from airflow_kstreams.batch.growing.state_copy import copy_source
        from airflow_kstreams.kafka.cluster import KafkaCluster
        from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings

        config = self.client.read()
        cluster = KafkaCluster(config, settings=self.settings, allowed=AllowedSettings.parse(self.allowed))
        reports: list[HostReport] = []
        for work in self.works[index]:
            try:
                ended = copy_source(cluster, self.settings, work, rate=self.rate, clock=SystemClock())
                reports.append(HostReport(copied=ended))
            except KStreamsError as error:
                return [*reports, reported(error)]
        return reports
