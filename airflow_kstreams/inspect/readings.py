"""Reads values of one application from a Kafka cluster, each within ten seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from airflow_kstreams.batch.inspect.ahead.lag import PARTITIONS, SeenLag, read_lag
from airflow_kstreams.batch.inspect.ahead.next_run import NextRun, plan_next
from airflow_kstreams.batch.inspect.applications import SeenApplications, read_applications
from airflow_kstreams.batch.inspect.dead_letters import DeadLetterTopic, SeenLetters
from airflow_kstreams.batch.inspect.diagnosis import Diagnosis
from airflow_kstreams.batch.inspect.doctor import Subject
from airflow_kstreams.batch.inspect.runs.run_in_full import ComparedRuns, RunInFull, compare_runs, read_run
from airflow_kstreams.batch.inspect.runs.seen_runs import PAGE, RunFilter, SeenRuns, read_runs
from airflow_kstreams.batch.inspect.tables.seen_tables import SeenTables, read_tables
from airflow_kstreams.batch.inspect.tables.table_check import TablesCheck, compare_tables
from airflow_kstreams.batch.replay.selection import Selection
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.inspect.surroundings import Surroundings, examine
from airflow_kstreams.streams.ports import ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort
from airflow_kstreams.streams.topology.topology import Topology

#: Longest time for all requests of a look, milliseconds. It leaves a part of 10 s to what shows the values.
LOOK_MS = 8_000

#: Where tables are: settings by the names ``iceberg.*`` and ``delta.*``, or what opens tables.
Lakehouse = Mapping[str, str] | TablesPort
#: A cluster: its address ``host:port``, client settings by librdkafka's names, or a cluster itself.
Kafka = str | Mapping[str, object] | ClusterPort


def applications(kafka: Kafka, *, only: Collection[str] | None = None) -> SeenApplications:
    """List the applications of a cluster, each with the run that finished last.

    :param kafka: Kafka's address, ``host:port[,host:port]``, or client settings by librdkafka's names.
    :param only: ids of the applications to list; None for all.
    :raises KafkaClientError: the broker does not answer.
    """
    return read_applications(_cluster(kafka, ApplicationSettings.parse("inspect")), only=only)


def runs(
    application_id: str,
    kafka: Kafka,
    *,
    count: int = PAGE,
    before: str | None = None,
    only: RunFilter | None = None,
    settings: Mapping[str, object] | None = None,
) -> SeenRuns:
    """Read a page of an application's runs, the newest first.

    :param kafka: Kafka's address, ``host:port[,host:port]``, or client settings by librdkafka's names.
    :param count: largest number of runs.
    :param before: id of a finished run: the page begins behind it. The next page begins behind
        ``next_before`` of this one.
    :param only: the runs to show.
    :param settings: by dotted name: ``suspicion.*``, to judge by others than those that the runs began with.
    :raises ConfigError: there is no such application, or no such run.
    :raises KafkaClientError: the broker does not answer.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    return read_runs(_cluster(kafka, checked), checked, count=count, before=before, only=only)


def run(
    application_id: str,
    run_id: str | None,
    kafka: Kafka,
    *,
    settings: Mapping[str, object] | None = None,
) -> RunInFull:
    """Read one run in full: its books by node and rule, its attempts and steps, its slowest tasks.

    :param run_id: id of a run, finished or under way; None for the one that began last.
    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param settings: by dotted name: ``suspicion.*``, to judge by others than those that the runs began with.
    :raises ConfigError: there is no such application, or no such run.
    :raises KafkaClientError: the broker does not answer.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    return read_run(_cluster(kafka, checked), checked, run_id)


def compare(
    application_id: str,
    first: str,
    second: str,
    kafka: Kafka,
    *,
    settings: Mapping[str, object] | None = None,
) -> ComparedRuns:
    """Read two runs, and put their figures beside each other.

    :param first: id of a run.
    :param second: id of another run.
    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param settings: by dotted name: ``suspicion.*``, to judge by others than those that the runs began with.
    :raises ConfigError: there is no such application, or no such run.
    :raises KafkaClientError: the broker does not answer.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    return compare_runs(_cluster(kafka, checked), checked, first, second)


def lag(
    application_id: str,
    kafka: Kafka,
    *,
    partitions: int = PARTITIONS,
    settings: Mapping[str, object] | None = None,
) -> SeenLag:
    """Read the offsets that wait for an application's next run.

    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param partitions: number of partitions to show one by one, those with the largest lags.
    :param settings: by dotted name: ``suspicion.*``, to judge by others than those that the runs began with.
    :raises ConfigError: there is no such application.
    :raises KafkaClientError: the broker does not answer.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    return read_lag(_cluster(kafka, checked), checked, partitions=partitions)


def letters(
    application_id: str, kafka: Kafka, *, newest: int = 20, settings: Mapping[str, object] | None = None
) -> SeenLetters:
    """Count an application's dead letters by source topic, node and exception, and give the newest.

    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param newest: number of letters to give one by one.
    :param settings: settings of the application by dotted name, which may name the dead-letter topic.
    :raises ConfigError: there is no such topic.
    :raises KafkaClientError: the broker does not answer, or the topic was not read to its end in time.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    return DeadLetterTopic(_cluster(kafka, checked), checked).survey(Selection.parse({}, None), newest=newest)


def plan(
    application_id: str,
    kafka: Kafka,
    *,
    topology: Topology | None = None,
    interval_ms: tuple[int, int] | None = None,
    partitions: int = PARTITIONS,
    settings: Mapping[str, object] | None = None,
    tables: Lakehouse | None = None,
) -> NextRun:
    """Plan the run that would begin now: the begin itself, on a cluster where nothing is written.

    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param topology: the topology; that of the last run unless given.
    :param interval_ms: data interval of the run, epoch milliseconds; from the end of the last run's until now
        unless given, where the settings go by it.
    :param partitions: number of partitions to show one by one, those with the largest shares.
    :param settings: settings of the application by dotted name, as its runs have them.
    :param tables: where the tables are that it writes to, by the names ``iceberg.*`` and ``delta.*``; without
        it tables are not looked at.
    :raises ConfigError: there is no such application, or its topology is not known without its file.
    :raises KafkaClientError: the broker does not answer.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    return plan_next(
        _cluster(kafka, checked),
        checked,
        topology=None if topology is None else topology.plan(application_id),
        groups=None if topology is None else _own_groups(topology, application_id),
        interval_ms=interval_ms,
        partitions=partitions,
        tables=opened_tables(tables),
    )


def doctor(
    application_id: str,
    topology: Topology,
    kafka: Kafka,
    *,
    settings: Mapping[str, object] | None = None,
    tables: Lakehouse | None = None,
) -> Diagnosis:
    """Find what may go wrong in the cluster, the topics, the application's own state and what surrounds it.

    :param topology: the topology that the next run is to have.
    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param settings: settings of the application by dotted name, as its runs have them.
    :param tables: where the tables are that it writes to, by the names ``iceberg.*`` and ``delta.*``.
    :raises KafkaClientError: no broker answers, or they refuse the login.
    """
    checked = ApplicationSettings.parse(application_id, settings)
    subject = Subject(
        plan=topology.plan(application_id),
        settings=checked,
        groups=_own_groups(topology, application_id),
        tables=opened_tables(tables),
    )
    config = {"bootstrap.servers": kafka} if isinstance(kafka, str) else kafka
    around = Surroundings(client_config=config if isinstance(config, Mapping) else None)
    return examine(_cluster(kafka, checked), subject, around)


def tables(
    application_id: str, topology: Topology, kafka: Kafka, tables: Lakehouse | None = None
) -> SeenTables:
    """Read where each table of a topology stands beside the ledger, and what the next begin would do with it.

    :param topology: the topology that the next run is to have.
    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param tables: where the tables are, by the names ``iceberg.*`` and ``delta.*``.
    :raises ConfigError: there is no such application, or nothing says where tables are.
    :raises TableUnavailableError: a catalogue does not answer.
    :raises KafkaClientError: the broker does not answer.
    """
    settings = ApplicationSettings.parse(application_id)
    return read_tables(_cluster(kafka, settings), topology.plan(application_id), opened_tables(tables))


def check_tables(
    application_id: str,
    topology: Topology,
    kafka: Kafka,
    tables: Lakehouse | None = None,
    *,
    allow_others: bool = False,
) -> TablesCheck:
    """Compare the rows of each run in the tables of a topology with the ledger.

    :param topology: the topology of the runs.
    :param kafka: Kafka's address, or client settings, as for :func:`runs`.
    :param tables: where the tables are, by the names ``iceberg.*`` and ``delta.*``.
    :param allow_others: whether other programs may write to the tables, too.
    :raises ConfigError: there is no such application, or nothing says where tables are.
    :raises TableUnavailableError: a catalogue does not answer.
    :raises KafkaClientError: the broker does not answer.
    """
    settings = ApplicationSettings.parse(application_id)
    cluster, plan = _cluster(kafka, settings), topology.plan(application_id)
    return compare_tables(cluster, plan, opened_tables(tables), allow_others=allow_others)


def opened_tables(tables: Lakehouse | None) -> TablesPort | None:
    """Return what opens tables; None if nothing says where they are.

    :param tables: settings, or what opens tables.
    :raises ConfigError: a setting is unknown.
    """
    if not tables:
        return None
    if not isinstance(tables, Mapping):
        return tables
    # Imported here: most applications write to no table.
    from airflow_kstreams.tables.connections import open_tables

    return open_tables(tables)


def _own_groups(topology: Topology, application_id: str) -> AskGroups | None:
    """Return what calls the topology's own partition grouper, None if it has none."""
    if not topology.plan(application_id).partition_grouper:
        return None
    return partial(topology.partition_groups, application_id)


def _cluster(kafka: Kafka, settings: ApplicationSettings) -> ClusterPort:
    if not isinstance(kafka, str | Mapping):
        return kafka
    # Imported here: a cluster that is given needs no Kafka client.
    from airflow_kstreams.kafka.cluster import KafkaCluster

    config = {"bootstrap.servers": kafka} if isinstance(kafka, str) else kafka
    return KafkaCluster(config, settings=settings.of_look(LOOK_MS), look_ms=LOOK_MS, in_child=True)
