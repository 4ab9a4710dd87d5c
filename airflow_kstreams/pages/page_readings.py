"""Reads from Kafka what each page shows, by the looks of :mod:`airflow_kstreams.inspect`.

A page needs several looks, which share the time of one reading: the first must succeed, and what the others
cannot read is left out. Values and keys are not asked for: of dead letters the pages get counts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow_kstreams import inspect
from airflow_kstreams.inspect import (
    ComparedRuns,
    NextRun,
    RunInFull,
    SeenApplication,
    SeenLag,
    SeenLetters,
)
from airflow_kstreams.pages.views import ApplicationReadings
from airflow_kstreams.streams.errors import ConfigError, KStreamsError
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings

log = package_log(__name__)
T = TypeVar("T")

#: Number of runs of an application's page.
RUNS = 200
#: Number of partitions that it shows one by one.
_PARTITIONS = 1_000
#: Most applications of a list whose lag is read.
_LAGS = 20
_SUSPICION = "suspicion."
_LETTERS_TOPIC = "errors.dead.letter.queue.topic.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReading:
    """The applications of one cluster.

    :param seen: application id -> what its ledger says.
    :param lags: application id -> what waits for it.
    :param notes: what was not seen, and why.
    """

    seen: Mapping[str, SeenApplication] = field(default_factory=dict)
    lags: Mapping[str, SeenLag] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """One run.

    :param run: the run in full; None if there is none of this id.
    :param letters: the application's dead letters, counted; None if they could not be read.
    """

    run: RunInFull | None = None
    letters: SeenLetters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReading:
    """A plan of the next run.

    :param plan: the plan; None if none can be made.
    :param why_not: why none can be made; empty if there is one.
    """

    plan: NextRun | None = None
    why_not: str = ""


def read_list(cluster: ClusterPort, application_ids: Sequence[str]) -> ListReading:
    """Read the state of applications, and the lag of as many as there is time for.

    :raises KafkaClientError: the broker does not answer.
    """
    found = inspect.applications(cluster, only=application_ids)
    seen, lags = {each.application_id: each for each in found.applications}, dict[str, SeenLag]()
    for application_id in list(seen)[:_LAGS]:
        lag = _part(inspect.lag, application_id, cluster)
        if lag is None:
            break
        lags[application_id] = lag
    return ListReading(seen=seen, lags=lags, notes=found.not_seen)


def read_application(
    cluster: ClusterPort, application_id: str, settings: Mapping[str, Any], before: str | None
) -> ApplicationReadings:
    """Read one application; what could not be read is None.

    :param settings: settings of the application by their dotted names, as far as its DAG says them.
    :param before: id of a finished run, behind which the runs begin; None for the newest.
    :raises KafkaClientError: the broker does not answer.
    """
    looked = settings_of_looks(application_id, settings)
    try:
        runs = inspect.runs(application_id, cluster, count=RUNS, before=before, settings=looked)
    except ConfigError:
        return ApplicationReadings()
    return ApplicationReadings(
        runs=runs,
        older=before is not None,
        last=_part(inspect.run, application_id, None, cluster, settings=looked),
        lag=_part(inspect.lag, application_id, cluster, partitions=_PARTITIONS, settings=looked),
        letters=_letters(cluster, application_id, looked),
    )


def read_run(
    cluster: ClusterPort, application_id: str, settings: Mapping[str, Any], run_id: str
) -> RunReading:
    """Read one run.

    :raises KafkaClientError: the broker does not answer.
    """
    looked = settings_of_looks(application_id, settings)
    try:
        run = inspect.run(application_id, run_id, cluster, settings=looked)
    except ConfigError:
        return RunReading()
    return RunReading(run=run, letters=_letters(cluster, application_id, looked))


def read_comparison(
    cluster: ClusterPort, application_id: str, settings: Mapping[str, Any], first: str, second: str
) -> tuple[ComparedRuns | None]:
    """Read two runs beside each other; None in place of them if one does not exist.

    :raises KafkaClientError: the broker does not answer.
    """
    looked = settings_of_looks(application_id, settings)
    try:
        return (inspect.compare(application_id, first, second, cluster, settings=looked),)
    except ConfigError:
        return (None,)


def read_plan(cluster: ClusterPort, application_id: str, settings: Mapping[str, Any]) -> PlanReading:
    """Plan the run that would begin now.

    :raises KafkaClientError: the broker does not answer.
    """
    try:
        ApplicationSettings.parse(application_id, settings)
    except ConfigError:
        settings = {}
    try:
        return PlanReading(
            plan=inspect.plan(application_id, cluster, partitions=_PARTITIONS, settings=settings)
        )
    except ConfigError as error:
        return PlanReading(why_not=error.cause)


def settings_of_looks(application_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which a look judges, and by which it finds dead letters; none if they are wrong.

    :param settings: settings of the application by their dotted names.
    """
    chosen = {
        name: value
        for name, value in settings.items()
        if name.startswith(_SUSPICION) or name == _LETTERS_TOPIC
    }
    try:
        ApplicationSettings.parse(application_id, chosen)
    except ConfigError:
        return {}
    return chosen


def _letters(cluster: ClusterPort, application_id: str, settings: Mapping[str, Any]) -> SeenLetters | None:
    return _part(inspect.letters, application_id, cluster, newest=0, settings=settings)


def _part(look: Callable[..., T], *given: Any, **named: Any) -> T | None:
    """Make a look that a page can do without."""
    try:
        return look(*given, **named)
    except ConfigError:
        return None
    except KStreamsError as error:
        log.info("A part of a page was not read: %s", error.cause)
        return None
