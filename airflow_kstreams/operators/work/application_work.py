"""Gives an Airflow task its work: one application, with checked settings, on the cluster of its connection.

Operators keep their arguments as Airflow's templates need them, in attributes. Here they are read, once the
task is executed and the templates are rendered.

Airflow calls ``on_kill`` out of a signal handler and the task goes on; what is still alive a few seconds
later is killed. So ``on_kill`` only sets a mark, and all code that starts a process, or waits for one, checks
it before and after (:class:`Killable`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.operators.work.application_loader import ApplicationLoader
from airflow_kstreams.operators.work.identity import RunIdentity
from airflow_kstreams.operators.work.run_settings import batch_settings, settings_of_run
from airflow_kstreams.streams.errors import KilledError
from airflow_kstreams.streams.settings import ApplicationSettings

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from airflow_kstreams.kafka.cluster import KafkaCluster

#: An application file only builds objects; one that takes longer connects to something.
LOAD_TIMEOUT_SECONDS = 60.0


class ApplicationArguments(Protocol):
    """The arguments that say which application an operator works on."""

    application_id: str
    kafka_conn_id: str
    settings: Mapping[str, Any] | str | None


class RunArguments(ApplicationArguments, Protocol):
    """The arguments that the operators of a run have in common."""

    backfill_outputs: Mapping[str, str] | str | None
    backfill_in_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationWork:
    """The application that an Airflow task works on, and what it takes to do so.

    :param identity: of the dag run.
    :param settings: of the application; in a backfill they have an application id of their own.
    :param hook: of the Kafka connection.
    """

    identity: RunIdentity
    settings: ApplicationSettings
    hook: KafkaHook

    @classmethod
    def on_run(cls, operator: RunArguments, identity: RunIdentity) -> ApplicationWork:
        """Return the work on a run.

        :raises ConfigError: as :func:`settings_of_run`.
        :raises AirflowSkipException: the DAG is there for backfills, and the run is none.
        """
        settings = settings_of_run(
            identity,
            operator.application_id,
            operator.settings,
            outputs=operator.backfill_outputs,
            in_order=operator.backfill_in_order,
        )
        return cls(identity=identity, settings=settings, hook=KafkaHook(operator.kafka_conn_id))

    @classmethod
    def on_live(cls, operator: ApplicationArguments, context: Context, what: str) -> ApplicationWork:
        """Return the work on the live application, beside its runs.

        :param what: the task does.
        :raises ConfigError: a setting is wrong, or the dag run belongs to a backfill.
        """
        identity = RunIdentity.of(context)
        identity.refuse_backfill(what)
        settings = batch_settings(operator.application_id, operator.settings)
        return cls(identity=identity, settings=settings, hook=KafkaHook(operator.kafka_conn_id))

    def cluster(self) -> KafkaCluster:
        """Return the cluster; touches no network yet.

        :raises ConfigError: the connection is not defined, or cannot be used.
        """
        return self.hook.cluster(self.settings)

    def loader(
        self, application: str, *, log: Logger | logging.Logger, was_killed: Callable[[], bool]
    ) -> ApplicationLoader:
        """Return the loader of the application file.

        :param application: path of the file.
        :param log: gets what the file prints.
        :param was_killed: says whether to give up, because the Airflow task was killed.
        """
        return ApplicationLoader(
            application=application,
            log=log,
            timeout_seconds=LOAD_TIMEOUT_SECONDS,
            settings=self.settings,
            was_killed=was_killed,
        )


class Killable:
    """An operator that starts nothing once its Airflow task was killed."""

    _killed: bool = False

    def on_kill(self) -> None:
        """Remember that the task was killed."""
        self._killed = True

    def was_killed(self) -> bool:
        """Say whether the task was killed."""
        return self._killed

    def refuse_when_killed(self, what: str) -> None:
        """Refuse to go on if the task was killed.

        :param what: was about to happen.
        :raises KilledError: the task was killed; a retry goes on.
        """
        if self._killed:
            raise KilledError(f"the Airflow task was killed before {what}")
