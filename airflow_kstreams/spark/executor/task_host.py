"""What runs on executors: hosts the tasks of one Spark partition and reports what they did."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.spark.executor.local_files import load_client_config, scratch_folder
from airflow_kstreams.spark.executor.reports import HostReport, reported
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.outputs import with_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHost:
    """Everything an executor needs to run tasks of one subtopology; plain data, no secret in it.

    :param source: the application file.
    :param settings: application settings.
    :param subtopology: id of the subtopology.
    :param assignment: groups that each Spark partition hosts.
    :param run_id: the run whose slice is processed.
    :param generation: of the slice when the driver launched the job.
    :param client_config_path: where the Kafka client's configuration lies; on another machine a file of the
        same name that Spark shipped.
    :param allowed: settings that run code and that the driver's deployment allows, as text.
    """

    source: ApplicationFile
    settings: ApplicationSettings
    subtopology: int
    assignment: tuple[tuple[int, ...], ...]
    run_id: str
    generation: int
    client_config_path: str
    allowed: str = ""

    def run_partition(self, index: int) -> list[HostReport]:
        """Run the tasks of one Spark partition."""
        return self.run(self.assignment[index])

    def run(self, groups: tuple[int, ...]) -> list[HostReport]:
        """Run tasks side by side, at most ``num.stream.threads`` at once."""
        config = load_client_config(self.client_config_path)
        schema_registry.configure(config)
        if len(groups) == 1:
            return [self._run_one(groups[0], config)]
        with ThreadPoolExecutor(max_workers=self.settings.num_stream_threads) as pool:
            return list(pool.map(lambda group: self._run_one(group, config), groups))

    def _run_one(self, group: int, config: dict[str, str]) -> HostReport:
        from airflow_kstreams.batch.task.runner import TaskRunner
        from airflow_kstreams.batch.task.work import TaskAssignment, TaskSetup
        from airflow_kstreams.kafka.cluster import KafkaCluster
        from airflow_kstreams.kafka.code_settings import AllowedSettings
        from airflow_kstreams.streams.runtime.stream_task import TaskId

        try:
            runner = TaskRunner(
                TaskSetup(
                    topology=with_outputs(self.source.topology(), self.settings),
                    assignment=TaskAssignment(
                        task_id=TaskId(subtopology=self.subtopology, group=group),
                        run_id=self.run_id,
                        generation=self.generation,
                    ),
                    cluster=KafkaCluster(
                        config, settings=self.settings, allowed=AllowedSettings.parse(self.allowed)
                    ),
                    settings=self.settings,
                    scratch=scratch_folder(group),
                )
            )
            return HostReport(report=runner.run())
        except KStreamsError as error:
            return reported(error)
        finally:
            # A bound topology refers to itself in circles. Its stores must not wait for the collector's own
            # time while the worker hosts the next task.
            gc.collect()
