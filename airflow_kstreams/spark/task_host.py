"""What runs on executors: hosts the tasks of one Spark partition and reports what they did.

Errors that a retry cannot help (a bad record, lost data) are returned as rows, so that the driver raises them
as they are after one try. Everything else is raised, so that Spark retries the Spark task: never is success
returned for a task that is fenced and unfinished, because Spark would then kill the attempt that is alive.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_kstreams.batch.protocol.model import TaskReport
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.secrets import sealed
from airflow_kstreams.spark.gc_tuning import sparing_collector
from airflow_kstreams.spark.shipped import shipped
from airflow_kstreams.streams.errors import ERROR_MARKER, ConfigError, KStreamsError, RecordError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.outputs import with_outputs

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_kstreams.spark.shipped import ArrowFunction

#: Schema of the one column that travels back through Spark.
REPORT_SCHEMA = "report string"


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """One task's outcome: a report, or an error that a retry cannot help."""

    report: TaskReport | None = None
    error: dict[str, Any] | None = None


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

    def function(self) -> ArrowFunction:
        """Return the function for ``mapInArrow``: spark partition ids in, reports out."""
        return shipped(self)

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
        from airflow_kstreams.batch.task.attempt import TaskAssignment
        from airflow_kstreams.batch.task.runner import TaskRunner
        from airflow_kstreams.kafka.cluster import KafkaCluster
        from airflow_kstreams.kafka.code_settings import AllowedSettings
        from airflow_kstreams.streams.runtime.stream_task import TaskId

        try:
            runner = TaskRunner(
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
            return HostReport(report=runner.run())
        except KStreamsError as error:
            return reported(error)
        finally:
            # A bound topology refers to itself in circles. Its stores must not wait for the collector's own
            # time while the worker hosts the next task.
            gc.collect()


def in_arrow(run: Callable[[int], list[HostReport]]) -> ArrowFunction:
    """Return the function for ``mapInArrow``: Spark partition ids in, reports out.

    :param run: runs the tasks of one Spark partition.
    """

    def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for index in batch.column(0).to_pylist():
                # Not pa.array: converting a list imports pandas, two seconds and 80 MB in every worker.
                column = pa.lib.StringBuilder()
                with sparing_collector():
                    reports = run(index)
                for report in reports:
                    column.append(msgspec.json.encode(report).decode())
                yield pa.RecordBatch.from_arrays([column.finish()], names=["report"])

    return run_tasks


def reported(error: KStreamsError) -> HostReport:
    """Return an error that a retry cannot help as a row; raise every other one, noted for the driver.

    :raises KStreamsError: the error, so that Spark retries.
    """
    if isinstance(error, RecordError) or not error.is_retriable:
        return HostReport(error=error.to_dict())
    error.add_note(ERROR_MARKER + json.dumps(error.to_dict()))
    raise error


def scratch_folder(group: int) -> Path | None:
    """Return one of the executor's own scratch folders, which Spark removes with the executor; None if there
    is none.

    :param group: spreads tasks over several disks.
    """
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return Path(folders[group % len(folders)]) if folders else None


def load_client_config(path: str) -> dict[str, str]:
    """Read the Kafka client's configuration: the driver's own file, or the copy that Spark shipped.

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
    except (FileNotFoundError, PermissionError):  # another machine, or another user of this one
        from pyspark.core.files import SparkFiles

        text = Path(SparkFiles.get(Path(path).name)).read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError:
        return None  # the decoder's error holds the document, secrets included
    if not isinstance(content, dict):
        return None
    return sealed({str(name): str(value) for name, value in content.items()})
