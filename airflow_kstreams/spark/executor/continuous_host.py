"""What runs in a Spark slot in continuous mode: some tasks in ``num.stream.threads`` threads, and one reader
that watches the driver's lease.

The Spark task ends when the lease says so, and reports what each of its tasks did. It fails as soon as one of
them does: the others commit and leave, and start anew with it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_kstreams.batch.protocol.model import TaskReport
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.code_settings import AllowedSettings
from airflow_kstreams.spark.executor.local_files import load_client_config, scratch_folder
from airflow_kstreams.spark.executor.reports import HostReport, reported
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.runtime.stream_task import TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.outputs import with_outputs

if TYPE_CHECKING:
    from airflow_kstreams.batch.continuous.lease_watch import LeaseWatch
    from airflow_kstreams.batch.continuous.task import ContinuousTask
    from airflow_kstreams.batch.continuous.task_thread import TaskThread
    from airflow_kstreams.kafka.cluster import KafkaCluster

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousHost:
    """Everything an executor needs to run some tasks of a continuous run; plain data, no secret in it.

    :param source: the application file.
    :param settings: application settings.
    :param tasks: of any subtopology.
    :param run_id: the continuous run.
    :param generation: of its start.
    :param client_config_path: where the Kafka client's configuration lies, as for ``TaskHost``.
    :param allowed: settings that run code and that the driver's deployment allows, as text.
    """

    source: ApplicationFile
    settings: ApplicationSettings
    tasks: tuple[TaskId, ...]
    run_id: str
    generation: int
    client_config_path: str
    allowed: str = ""

    def run_partition(self, _: int) -> list[HostReport]:
        """Run the tasks: there is one Spark partition."""
        return self.run()

    def run(self) -> list[HostReport]:
        """Run the tasks until the lease says stop."""
        from airflow_kstreams.batch.clock import SystemClock
        from airflow_kstreams.batch.continuous.lease_watch import LeaseWatch
        from airflow_kstreams.kafka.cluster import KafkaCluster

        config = load_client_config(self.client_config_path)
        schema_registry.configure(config)
        cluster = KafkaCluster(config, settings=self.settings, allowed=AllowedSettings.parse(self.allowed))
        watch = LeaseWatch(
            cluster, self.settings, run_id=self.run_id, generation=self.generation, clock=SystemClock()
        )
        try:
            with _watching(watch):
                return [HostReport(report=report) for report in self._run_threads(cluster, watch)]
        except KStreamsError as error:
            return [reported(error)]

    def _run_threads(self, cluster: KafkaCluster, watch: LeaseWatch) -> list[TaskReport]:
        from airflow_kstreams.batch.continuous.task_thread import TaskThread

        count = min(self.settings.num_stream_threads, len(self.tasks))
        failed = threading.Event()
        with ThreadPoolExecutor(max_workers=count, thread_name_prefix="stream-thread") as pool:
            threads = [
                TaskThread(
                    [self._task(task_id, cluster) for task_id in self.tasks[index::count]],
                    verdict=lambda: watch.verdict,
                    run_id=self.run_id,
                )
                for index in range(count)
            ]
            futures = [pool.submit(_run, thread, failed) for thread in threads]
        return [report for future in futures for report in future.result()]

    def _task(self, task_id: TaskId, cluster: KafkaCluster) -> ContinuousTask:
        from airflow_kstreams.batch.clock import SystemClock
        from airflow_kstreams.batch.continuous.task import ContinuousTask
        from airflow_kstreams.batch.task.work import TaskAssignment, TaskSetup

        return ContinuousTask(
            TaskSetup(
                topology=with_outputs(self.source.topology(), self.settings),
                assignment=TaskAssignment(
                    task_id=task_id,
                    run_id=self.run_id,
                    generation=self.generation,
                ),
                cluster=cluster,
                settings=self.settings,
                clock=SystemClock(),
                scratch=scratch_folder(task_id.group),
            )
        )


@contextmanager
def _watching(watch: LeaseWatch) -> Iterator[None]:
    """Look at the lease in a thread of its own, so that slow functions of the topology delay no news."""
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            watch.look(timeout_seconds=_LOOK_SECONDS)

    with ExitStack() as stack:
        stack.callback(watch.close)
        thread = threading.Thread(target=look, name="lease-watch", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _run(thread: TaskThread, failed: threading.Event) -> list[TaskReport]:
    try:
        return thread.run(failed.is_set)
    except BaseException:
        failed.set()
        raise
    finally:
        thread.close()
