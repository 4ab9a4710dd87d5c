"""Reads a page of an application's runs, the newest first.

Rule: a page costs one read of the ledger's end, and one of each entry that it looks at. It ends when it has
as many runs as it was asked for, when it has looked at ``_MOST_ENTRIES``, or when its time is over, and says
which of these; ``next_before`` is where the next page begins. The ledger is never read as a whole, so memory
and time do not grow with the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Literal

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.run_facts import RunFacts, known_facts
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.inspect.runs.suspicions import COMPARED, Suspicion, of_run
from airflow_kstreams.batch.inspect.standing import failed_since
from airflow_kstreams.batch.inspect.tables.listed_files import LandedRows, landed_by
from airflow_kstreams.batch.ledger.history import Failure, RunHistory
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary, summary_so_far
from airflow_kstreams.batch.protocol.offsets.parked import sum_parked
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import partitions_of
from airflow_kstreams.batch.run.finish import counts_of, task_metadata
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import (
    Clock,
    ClusterPort,
    CommittedOffset,
    TopicPartition,
)
from airflow_kstreams.streams.settings import ApplicationSettings

#: Runs of a page, unless asked for otherwise.
PAGE = 50
_MOST_ENTRIES = 1_000
#: It leaves a part of 10 s to the ledger's end and to what shows the page.
_SECONDS = 5.0

RunStateSeen = Literal[
    "finished", "nothing new", "taken back", "under way", "unfinished", "failed", "continuous"
]


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a list shows it; numbers are null where they are not known.

    :param run_id: id of the run.
    :param state: ``finished``; ``nothing new``, finished without records; ``taken back`` by a reset;
        ``under way``, a driver holds the lease for it; ``failed``, or ``unfinished`` without a known failure,
        none does; or ``continuous``.
    :param dag_id: the DAG that started it; empty if none.
    :param begun_ms: time at which its slice was frozen, epoch milliseconds.
    :param finished_ms: time at which it finished, epoch milliseconds.
    :param seconds: time from begin to finish, or until now.
    :param generation: number of drivers that have claimed it.
    :param attempts: number of its attempts; 0 where it is not known.
    :param interval_ms: its data interval, epoch milliseconds.
    :param records_in: records read from inputs; of an unfinished run, as its tasks have committed.
    :param records_out: records written to topics that it does not read.
    :param late: records dropped because their windows had closed.
    :param dead_lettered: records sent to the dead-letter topic.
    :param skipped: records that an error handler left out.
    :param parked: records left parked for their next attempt.
    :param warnings: its warnings for an operator.
    :param tables: the snapshots that it has made of tables.
    :param failure: what ended its last attempt; null if that has not failed, and of finished runs.
    :param suspicions: what is odd about it.
    """

    run_id: str
    state: RunStateSeen
    dag_id: str = ""
    begun_ms: int = 0
    finished_ms: int | None = None
    seconds: float = 0.0
    generation: int = 0
    attempts: int = 0
    interval_ms: tuple[int, int] | None = None
    records_in: int | None = None
    records_out: int | None = None
    late: int | None = None
    dead_lettered: int | None = None
    skipped: int | None = None
    parked: int | None = 0
    warnings: tuple[str, ...] = ()
    tables: tuple[LandedRows, ...] = ()
    failure: Failure | None = None
    suspicions: tuple[Suspicion, ...] = ()


class SeenRuns(ShownInNotebooks, frozen=True, kw_only=True):
    """A page of an application's runs, the newest first.

    :param application_id: id of the application.
    :param finished: number of all its finished runs.
    :param runs: the runs that fit the filter.
    :param looked_at: number of finished runs that were looked at for this page.
    :param next_before: id of the run behind which the next page begins; null at the first run.
    :param not_seen: what could not be looked at, and why.
    """

    application_id: str
    finished: int
    runs: tuple[SeenRun, ...]
    looked_at: int
    next_before: str | None = None
    not_seen: tuple[str, ...] = ()


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that a page is to show: those that fit all of it.

    :param states: their states; empty for any.
    :param dag_id: the DAG that started them; empty for any.
    :param since_ms: earliest begin, epoch milliseconds.
    :param until_ms: begin before this, epoch milliseconds; None for any.
    :param suspicious: only runs with a suspicion.
    """

    states: frozenset[RunStateSeen] = frozenset()
    dag_id: str = ""
    since_ms: int = 0
    until_ms: int | None = None
    suspicious: bool = False

    def fits(self, run: SeenRun) -> bool:
        """Whether the page shows a run."""
        return (
            (not self.states or run.state in self.states)
            and self.dag_id in ("", run.dag_id)
            and run.begun_ms >= self.since_ms
            and (self.until_ms is None or run.begun_ms < self.until_ms)
            and (bool(run.suspicions) or not self.suspicious)
        )


def read_runs(
    cluster: ClusterPort,
    settings: ApplicationSettings,
    *,
    count: int = PAGE,
    before: str | None = None,
    only: RunFilter | None = None,
    clock: Clock | None = None,
) -> SeenRuns:
    """Read a page of runs.

    :param settings: of the look, which may give other thresholds than the runs began with.
    :param count: largest number of runs.
    :param before: id of a finished run; the page begins behind it. None begins with the newest run.
    :raises ConfigError: there is no such application, or no such run.
    """
    clock, only, app = clock or SystemClock(), only or RunFilter(), settings.application_id
    end = clock.monotonic_seconds() + _SECONDS
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        facts = known_facts(cluster, app, admin, reader, clock)
        ledger = facts.ledger
        begin_behind = None if before is None else _known(ledger, app, before)
        found = [] if begin_behind else [run for run in _newest(cluster, facts, clock) if only.fits(run)]
        walk, looked = _Walk(ledger.newest_first(begin_behind)), 0
        last, not_seen = begin_behind, list[str]()
        while len(found) < count and (run := walk.next()) is not None:
            seen = seen_run(run, suspicions=of_run(run, walk.after(COMPARED * 2), settings))
            looked, last = looked + 1, run
            if run.finished_ms < only.since_ms:
                break
            if only.fits(seen):
                found.append(seen)
            if looked >= _MOST_ENTRIES or clock.monotonic_seconds() >= end:
                why = "" if looked >= _MOST_ENTRIES else "the time was over: "
                not_seen.append(
                    f"{why}only {counted(looked, 'run')} could be looked at, down to {run.run_id}"
                )
                break
        more = last is not None and bool(walk.after(1)) and last.finished_ms >= only.since_ms
    return SeenRuns(
        application_id=app,
        finished=ledger.past.finished,
        runs=tuple(found[:count]),
        looked_at=looked,
        next_before=last.run_id if more and last is not None else None,
        not_seen=tuple(not_seen),
    )


class _Walk:
    """Takes runs one after another, and looks at those to come."""

    def __init__(self, runs: Iterator[RunSummary]) -> None:
        self._runs = runs
        self._ahead: list[RunSummary] = []

    def next(self) -> RunSummary | None:
        """Return the next run, None behind the last one."""
        return self._ahead.pop(0) if self.after(1) else None

    def after(self, count: int) -> Sequence[RunSummary]:
        """Return the runs that come next, as many as there are."""
        self._ahead += islice(self._runs, max(0, count - len(self._ahead)))
        return self._ahead[:count]


def seen_run(
    run: RunSummary,
    *,
    state: RunStateSeen | None = None,
    now_ms: int = 0,
    suspicions: tuple[Suspicion, ...] = (),
) -> SeenRun:
    """Return a run as a list shows it.

    :param state: its state, if it is not finished.
    :param now_ms: present time, for a run that is not finished, epoch milliseconds.
    """
    finished = state is None
    if state is None:
        state = "taken back" if run.taken_back_ms else "nothing new" if run.empty else "finished"
    counts = run.counts
    return SeenRun(
        run_id=run.run_id,
        state=state,
        dag_id=run.dag_id,
        begun_ms=run.begun_ms,
        finished_ms=run.finished_ms if finished else None,
        seconds=max(0, (run.finished_ms if finished else now_ms) - run.begun_ms) / 1000,
        generation=run.generation,
        attempts=run.attempts,
        interval_ms=run.interval_ms,
        records_in=run.records_in,
        records_out=run.records_out,
        late=None if counts is None else counts.by("late"),
        dead_lettered=None if counts is None else counts.by("dead-lettered"),
        skipped=None if counts is None else counts.by("skipped"),
        parked=sum_parked(run.parked) if run.parked else 0,
        warnings=run.warnings,
        tables=landed_by(run),
        suspicions=suspicions,
    )


def seen_under_way(facts: RunFacts, run: RunSummary, *, now_ms: int) -> SeenRun:
    """Return the run that is not finished, as a list shows it.

    :param run: its summary so far.
    """
    history = facts.histories.of(run.run_id)
    failure = None if history is None else history.failure
    last = None if history is None else history.last
    state: RunStateSeen = "unfinished" if failure is None else "failed"
    if facts.ledger.current_continuous is not None:
        state = "continuous"
    elif facts.ledger.held_lease is not None and not failed_since(last, facts.ledger.lease_written_ms):
        state, failure = "under way", None
    seen = seen_run(run, state=state, now_ms=now_ms)
    attempts = 0 if history is None else history.number
    return msgspec.structs.replace(seen, failure=failure, attempts=attempts)


def refused_run(history: RunHistory) -> SeenRun:
    """Return a run whose begin has failed, so that it has no slice."""
    return SeenRun(
        run_id=history.run_id,
        state="failed",
        begun_ms=history.attempts[0].begun_ms if history.attempts else 0,
        attempts=history.number,
        parked=None,
        failure=history.failure,
    )


def summary_under_way(cluster: ClusterPort, facts: RunFacts) -> RunSummary | None:
    """Return the summary so far of the run that is not finished; None if there is none.

    Its counts are those of the tasks' last commits.
    """
    slice_ = facts.under_way if facts.ledger.current_continuous is None else facts.last_work
    if slice_ is None:
        return None
    tasks = task_metadata(slice_, committed_so_far(cluster, slice_))
    reports = [metadata.report() for metadata in tasks.values()]
    return summary_so_far(slice_, reports, counts_of(slice_.plan.topology, tasks))


def committed_so_far(cluster: ClusterPort, slice_: Slice) -> Mapping[TopicPartition, CommittedOffset]:
    """Return the offsets that a slice's tasks have committed, without those in open transactions: a look does
    not wait for their ends.
    """
    app = slice_.plan.topology.application_id
    with closing(cluster.reader(group_id=app, isolation="read_uncommitted")) as reader:
        return reader.committed(partitions_of(slice_))


def _newest(cluster: ClusterPort, facts: RunFacts, clock: Clock) -> Iterator[SeenRun]:
    """Yield runs that have not finished, the last one first, then those that a reset took back."""
    now, ledger = summary_under_way(cluster, facts), facts.ledger
    for history in reversed(facts.histories.runs):
        sliced = now is not None and history.run_id == now.run_id
        if history.failure is not None and not sliced and not ledger.is_finished(history.run_id):
            yield refused_run(history)
    if now is not None:
        yield seen_under_way(facts, now, now_ms=clock.now_ms())
    yield from (seen_run(run) for run in reversed(ledger.past.taken_back))


def _known(ledger: Ledger, application_id: str, run_id: str) -> RunSummary:
    """Return a finished run.

    :raises ConfigError: there is no such run.
    """
    found = ledger.find(run_id)
    if found is None:
        raise unknown_run(application_id, run_id)
    return found


def unknown_run(application_id: str, run_id: str) -> ConfigError:
    """Return the error of a run id that the ledger does not have."""
    return ConfigError(
        f"application {application_id!r} has no run {run_id!r}",
        fix=f"take an id from: airflow-kstreams runs --application-id {application_id}",
    )
