"""The middle step of a run: the topology on Spark, until the stop offsets."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_kstreams.batch.model import RunState, RunSummary, Slice
from airflow_kstreams.batch.run_spec import CLIENT_CONFIG_FILE, RunSpec
from airflow_kstreams.hooks.kafka import DEFAULT_KAFKA_CONN_ID, KafkaHook
from airflow_kstreams.hooks.ledger import finished_run
from airflow_kstreams.hooks.outcomes import airflow_outcomes
from airflow_kstreams.hooks.results import RunResult, result_of_slice, result_of_summary
from airflow_kstreams.operators.identity import RunIdentity
from airflow_kstreams.streams.errors import ConfigError, RunError
from airflow_kstreams.streams.settings import ApplicationSettings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kstreams.hooks.spark import TopologySubmitHook
    from airflow_kstreams.kafka.cluster import KafkaCluster

__all__ = ["RunTopologyOperator"]

#: The connection that Airflow's own Spark provider uses by default, too.
DEFAULT_SPARK_CONN_ID = "spark_default"


class RunTopologyOperator(SparkSubmitOperator):
    """Runs a topology on Spark until the run's stop offsets; a retry resumes where the last attempt
    committed.

    Kafka decides what there is to do, never XCom: a run that is finished, or that has nothing new, returns
    without starting Spark. An attempt with a higher try number takes the run over from one that may still be
    alive.

    Secrets of the Kafka connection reach the driver in a file that only this user can read and that is
    removed when the driver ends. A driver on another machine (deploy mode ``cluster``) cannot read it: mount
    a JSON file of client settings there and name it in ``env_vars={"KSTREAMS_KAFKA_CONFIG_FILE": ...}``.

    A plain ``local[N]`` master gives up at the first failed task; ``local[N,4]`` retries as a cluster does.

    :param application_id: names the consumer group and the internal topics. (templated)
    :param application: path of the application file, which defines ``topology()``. (templated)
    :param kafka_conn_id: connection to Kafka. (templated)
    :param spark_conn_id: connection to Spark.
    :param settings: application settings by their dotted names. (templated)
    :param finish: whether the driver also finishes the run, when no :class:`FinishRunOperator` follows.
    :param kwargs: as for ``SparkSubmitOperator``, without ``application_args``, which tell the driver what to
        run.
    :return: a :class:`~airflow_kstreams.hooks.results.RunResult`.
    """

    template_fields: Sequence[str] = (
        "application_id",
        "kafka_conn_id",
        "settings",
        *(name for name in SparkSubmitOperator.template_fields if name != "application_args"),
    )
    template_fields_renderers = {"settings": "json", "conf": "json", "env_vars": "json"}
    ui_color = "#f7e3d5"

    def __init__(
        self,
        *,
        application_id: str,
        application: str,
        kafka_conn_id: str = DEFAULT_KAFKA_CONN_ID,
        spark_conn_id: str = DEFAULT_SPARK_CONN_ID,
        settings: Mapping[str, Any] | None = None,
        finish: bool = False,
        **kwargs: Any,
    ) -> None:
        if "application_args" in kwargs:
            raise TypeError("RunTopologyOperator takes no application_args: they tell the driver what to run")
        # In Spark's pages an application stands under its own name, unless the user says otherwise.
        kwargs.setdefault("name", application_id)
        super().__init__(application=application, conn_id=spark_conn_id, **kwargs)
        self.application_id = application_id
        self.kafka_conn_id = kafka_conn_id
        self.settings = settings
        self.finish = finish

    def execute(self, context: Context) -> RunResult:  # type: ignore[override]  # the provider's operator returns None
        """Run the topology, unless Kafka says that there is nothing to do."""
        with airflow_outcomes():
            identity = RunIdentity.of(context)
            settings = ApplicationSettings.parse(self.application_id, self.settings)
            hook = KafkaHook(self.kafka_conn_id)
            cluster = hook.cluster(settings)
            finished, slice_ = read_run(cluster, self.application_id, identity.run_id)
            if finished is not None:
                self.log.info("Run %s is already finished: Spark is not started", identity.run_id)
                return result_of_summary(finished)
            if slice_ is not None and slice_.plan.empty and not self.finish:
                self.log.info("Run %s has nothing new: Spark is not started", identity.run_id)
                return result_of_slice(slice_)
            spec = RunSpec(
                application_id=self.application_id,
                run_id=identity.run_id,
                order=identity.order,
                owner=identity.owner,
                settings=settings.to_dict(),
                topology_hash=slice_.plan.topology.topology_hash if slice_ is not None else "",
                finish=self.finish,
            )
            self._submit(context, spec, hook.client_config())
            return self._result(cluster, settings, identity.run_id)

    def on_kill(self) -> None:
        """End the Spark application: driver and workers included."""
        # Before the hook is made nothing runs yet, and a signal handler is no place to look up connections.
        if self._hook is not None:
            super().on_kill()

    def _submit(self, context: Context, spec: RunSpec, client_config: Mapping[str, str]) -> None:
        self._check_spark_connection()
        self.application_args = ["--run-spec", spec.to_json()]
        with _driver_environment(self.env_vars or {}, client_config) as env_vars:
            shared = CLIENT_CONFIG_FILE in (self.env_vars or {})
            self.env_vars = env_vars
            self._hook = hook = self._get_hook()
            if hook.deploy_mode != "client" and not shared:
                raise ConfigError(
                    f"deploy mode {hook.deploy_mode!r} starts the driver on another machine, "
                    "which cannot read the Kafka connection",
                    fix="mount a JSON file of client settings there and name it in "
                    f"env_vars={{{CLIENT_CONFIG_FILE!r}: ...}}",
                )
            super().execute(context)

    def _check_spark_connection(self) -> None:
        """Refuse a connection that does not exist; the provider would quietly submit to YARN instead."""
        try:
            BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException:
            raise ConfigError(
                f"connection {self._conn_id!r} is not defined in Airflow",
                fix=f"add it: airflow connections add {self._conn_id} --conn-type spark "
                "--conn-host 'local[2,4]'",
            ) from None

    def _result(self, cluster: KafkaCluster, settings: ApplicationSettings, run_id: str) -> RunResult:
        finished, slice_ = read_run(cluster, self.application_id, run_id)
        if finished is not None:
            return result_of_summary(finished)
        if slice_ is not None:
            refuse_unfinished(cluster, settings, slice_)
            return result_of_slice(slice_)
        raise ConfigError(
            f"Spark ended well, but run {run_id} of application {self.application_id!r} never began in Kafka",
            fix="check that the driver reads the same Kafka cluster as the connection of this operator",
        )

    def _get_hook(self) -> TopologySubmitHook:
        from airflow_kstreams.hooks.spark import TopologySubmitHook

        return TopologySubmitHook.adopt(super()._get_hook())


def read_run(
    cluster: KafkaCluster, application_id: str, run_id: str
) -> tuple[RunSummary | None, Slice | None]:
    """Read from Kafka how far a run is.

    :return: its summary if it is finished, else its slice if it has begun.
    """
    from airflow_kstreams.batch.metadata import read_metadata

    finished = finished_run(cluster, application_id, run_id)
    if finished is not None:
        return finished, None
    # Without waiting for what open transactions hide: a slice overlooked here is found by the driver.
    folded = read_metadata(cluster, application_id, wait_ms=0)
    if folded.state is RunState.RUNNING and folded.slice is not None and folded.slice.run_id == run_id:
        return None, folded.slice
    return None, None


def refuse_unfinished(cluster: KafkaCluster, settings: ApplicationSettings, slice_: Slice) -> None:
    """Refuse to call a run processed that is not, whatever Spark's exit code says.

    :raises RunError: Kafka says that tasks are not at their stop offsets.
    """
    from airflow_kstreams.batch.coordinator import Coordinator

    coordinator = Coordinator(cluster, settings)
    try:
        for subtopology in slice_.plan.topology.subtopologies if not slice_.plan.empty else ():
            left = coordinator.unfinished(slice_, subtopology.id)
            if left:
                names = ", ".join(f"{subtopology.id}_{group}" for group in left)
                raise RunError(
                    f"Spark ended well, but tasks {names} of run {slice_.run_id!r} are not at their stop "
                    "offsets",
                    fix="read the driver's log for what ended it early; the retry resumes the run",
                    run_id=slice_.run_id,
                )
    finally:
        coordinator.close()


@contextmanager
def _driver_environment(given: dict[str, Any], client_config: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the environment that names the file of client settings to the driver.

    It is the user's own file if the environment names one, else one that only this user can read and that
    lasts as long as the block.
    """
    if CLIENT_CONFIG_FILE in given:
        yield given
        return
    handle, path = tempfile.mkstemp(prefix="kstreams-kafka-", suffix=".json")  # made with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(dict(client_config), file)
        yield {**given, CLIENT_CONFIG_FILE: path}
    finally:
        Path(path).unlink(missing_ok=True)
