"""Reads one run in full (its slice, books, tasks and attempts), and compares two runs.

The ledger keeps tasks, partitions and attempts of the last runs only (``ledger.details.kept``); for an older
run ``not_seen`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import RunFacts, known_facts
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.inspect.runs.audit import RunAudit, audit_of
from airflow_kstreams.batch.inspect.runs.seen_runs import (
    SeenRun,
    refused_run,
    seen_run,
    seen_under_way,
    summary_under_way,
    unknown_run,
)
from airflow_kstreams.batch.inspect.runs.suspicions import COMPARED, of_run
from airflow_kstreams.batch.inspect.tables.listed_files import WaitingRows, waiting_of
from airflow_kstreams.batch.ledger.history import RunHistory
from airflow_kstreams.batch.ledger.run_summary import RunSummary, TopicRead
from airflow_kstreams.batch.metrics import slowest_first
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import Clock, ClusterPort
from airflow_kstreams.streams.settings import ApplicationSettings

#: Number of tasks that are shown one by one, the slowest.
TASKS = 20


class ReadOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets that a run read of an input topic, its partitions added up.

    :param topic: name of the topic.
    :param partitions: number of its partitions.
    :param start: sum of their start offsets.
    :param stop: sum of their stop offsets.
    """

    topic: str
    partitions: int
    start: int
    stop: int


class ReadAndWritten(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that one subtopology of a run reads and writes.

    :param id: id of the subtopology.
    :param reads: names of the topics that it reads.
    :param writes: names of the topics that it writes, changelogs excluded.
    """

    id: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class SeenTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a run.

    :param task: id of the task, ``<subtopology>_<group>``.
    :param seconds: wall time of the attempt that finished it.
    :param records_in: records consumed.
    :param records_out: records sent.
    :param restored: changelog records read at its start.
    :param commits: transactions committed.
    :param attempts: attempts within the Spark task that finished it.
    :param peak_memory_bytes: largest memory use of its Python worker.
    """

    task: str
    seconds: float
    records_in: int
    records_out: int
    restored: int
    commits: int
    attempts: int
    peak_memory_bytes: int


class RunInFull(ShownInNotebooks, frozen=True, kw_only=True):
    """One run with all that the ledger keeps of it, without keys and values of records.

    :param application_id: id of the application.
    :param run: the run, as a list shows it.
    :param topology: hash of the topology that ran.
    :param autostop_at: setting by which its stop offsets were frozen.
    :param read: the offsets that it read of each input topic.
    :param subtopologies: the topics of each subtopology; empty where they are not known.
    :param audit: its books; null where counts are not known.
    :param waiting: of a run under way, the rows that its tasks have listed for tables; null where it is not
        known.
    :param task_count: number of its tasks.
    :param tasks: the slowest tasks.
    :param history: its attempts, with failures and the times of their steps; null where they are not kept.
    :param not_seen: what could not be looked at, and why.
    """

    application_id: str
    run: SeenRun
    topology: str = ""
    autostop_at: str = ""
    read: tuple[ReadOffsets, ...] = ()
    subtopologies: tuple[ReadAndWritten, ...] = ()
    audit: RunAudit | None = None
    waiting: tuple[WaitingRows, ...] | None = ()
    task_count: int = 0
    tasks: tuple[SeenTask, ...] = ()
    history: RunHistory | None = None
    not_seen: tuple[str, ...] = ()


class ComparedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of two runs; null where it is not known.

    :param what: name of the figure.
    :param first: the figure of the first run.
    :param second: the figure of the second run.
    """

    what: str
    first: float | None
    second: float | None


class ComparedRuns(ShownInNotebooks, frozen=True, kw_only=True):
    """Two runs beside each other.

    :param first: the first run.
    :param second: the second run.
    :param other_topology: whether they ran different topologies.
    :param figures: their figures: totals, then records by topic, node and rule.
    """

    first: RunInFull
    second: RunInFull
    other_topology: bool
    figures: tuple[ComparedFigure, ...]


def read_run(
    cluster: ClusterPort, settings: ApplicationSettings, run_id: str | None, *, clock: Clock | None = None
) -> RunInFull:
    """Read one run.

    :param run_id: id of a run, finished or under way; None for the one that began last.
    :raises ConfigError: there is no such application, or no such run.
    """
    (found,) = _read(cluster, settings, [run_id], clock or SystemClock())
    return found


def compare_runs(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    first: str,
    second: str,
    *,
    clock: Clock | None = None,
) -> ComparedRuns:
    """Read two runs, and put their figures beside each other.

    :raises ConfigError: there is no such application, or no such run.
    """
    one, other = _read(cluster, settings, [first, second], clock or SystemClock())
    return ComparedRuns(
        first=one,
        second=other,
        other_topology=one.topology != other.topology,
        figures=tuple(_figures(one, other)),
    )


def _read(
    cluster: ClusterPort, settings: ApplicationSettings, run_ids: Sequence[str | None], clock: Clock
) -> list[RunInFull]:
    app = settings.application_id
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        facts = known_facts(cluster, app, admin, reader, clock)
        return [_one(cluster, facts, settings, run_id, clock) for run_id in run_ids]


def _one(
    cluster: ClusterPort, facts: RunFacts, settings: ApplicationSettings, run_id: str | None, clock: Clock
) -> RunInFull:
    ledger = facts.ledger
    now = summary_under_way(cluster, facts)
    if now is not None and run_id in (None, now.run_id):
        seen = seen_under_way(facts, now, now_ms=clock.now_ms())
        found = _in_full(now, seen, facts.histories.of(now.run_id))
        listed = waiting_of(cluster, facts, clock)
        return msgspec.structs.replace(
            found, waiting=listed.waiting, not_seen=(*found.not_seen, *listed.not_seen)
        )
    done = ledger.last() if run_id is None else ledger.find(run_id) or ledger.taken_back.get(run_id)
    history = None if run_id is None or done is not None else facts.histories.of(run_id)
    if history is not None:
        return RunInFull(application_id=settings.application_id, run=refused_run(history), history=history)
    if done is None and run_id is None:
        raise ConfigError(
            f"application {settings.application_id!r} has no run yet", fix="run it, then look again"
        )
    if done is None:
        raise unknown_run(settings.application_id, run_id or "")
    before = () if done.taken_back_ms else islice(ledger.newest_first(done), 2 * COMPARED)
    detailed = ledger.detailed(done)
    seen = seen_run(done, suspicions=of_run(done, [*before], settings))
    gone = detailed.without_details and not done.empty
    not_seen = ("tasks and attempts: the ledger keeps them of the last runs only (ledger.details.kept)",)
    return _in_full(detailed, seen, detailed.history, not_seen=not_seen if gone else ())


def _in_full(
    run: RunSummary, seen: SeenRun, history: RunHistory | None, *, not_seen: tuple[str, ...] = ()
) -> RunInFull:
    return RunInFull(
        application_id=run.application_id,
        run=seen,
        topology=run.topology_hash,
        autostop_at=run.autostop_at,
        read=tuple(map(_topic, run.reads)),
        subtopologies=tuple(
            ReadAndWritten(id=sub.id, reads=sub.sources, writes=sub.sinks) for sub in run.topics
        ),
        audit=audit_of(run),
        task_count=run.task_count,
        tasks=tuple(
            SeenTask(
                task=task.task_id,
                seconds=task.seconds,
                records_in=task.records_in,
                records_out=task.records_out,
                restored=task.restored,
                commits=task.commits,
                attempts=task.attempts,
                peak_memory_bytes=task.peak_memory_bytes,
            )
            for task in slowest_first(run.tasks)[:TASKS]
        ),
        history=history,
        not_seen=not_seen,
    )


def _topic(read: TopicRead) -> ReadOffsets:
    return ReadOffsets(topic=read.topic, partitions=read.partitions, start=read.start, stop=read.stop)


def _figures(one: RunInFull, other: RunInFull) -> Iterator[ComparedFigure]:
    totals = (
        ("records in", "records_in"),
        ("records out", "records_out"),
        ("late", "late"),
        ("dead-lettered", "dead_lettered"),
        ("skipped", "skipped"),
        ("parked", "parked"),
        ("seconds", "seconds"),
        ("drivers", "generation"),
    )
    for what, name in totals:
        yield ComparedFigure(what=what, first=getattr(one.run, name), second=getattr(other.run, name))
    yield ComparedFigure(what="records in per second", first=_rate(one.run), second=_rate(other.run))
    yield ComparedFigure(what="tasks", first=one.task_count, second=other.task_count)
    rows = [_rows(each) for each in (one, other)]
    for place in dict.fromkeys([*rows[0], *rows[1]]):
        known = (
            None if full.audit is None else of_run.get(place, 0)
            for full, of_run in zip((one, other), rows, strict=True)
        )
        first, second = known
        yield ComparedFigure(what=f"{place[0]}: {place[1]}", first=first, second=second)


def _rate(run: SeenRun) -> float | None:
    return None if run.records_in is None or run.seconds <= 0 else round(run.records_in / run.seconds, 3)


def _rows(full: RunInFull) -> dict[tuple[str, str], int]:
    return {} if full.audit is None else {(row.place, row.what): row.records for row in full.audit.rows}
