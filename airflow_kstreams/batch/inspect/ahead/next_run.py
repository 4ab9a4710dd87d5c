"""Plans the run that would begin now: its slice, its state, its windows, its time, and what would refuse it.

Rule: the plan is the begin itself, on a cluster where nothing is written
(:mod:`airflow_kstreams.batch.inspect.ahead.rehearsal`). So it makes every check that a begin makes, and the
slice is the one that a begin would freeze at this moment. While a driver holds the lease no begin is
rehearsed: it would wait for that driver. A driver that has not renewed its lease for longer than that lasts
counts as dead; its slice is planned as a later try of the run would claim it after watching the lease.

The time is taken from the last finished runs that had records: the line through the seconds that they took by
the records that they read, by the median of all slopes (Theil and Sen), with the largest distances of these
runs from it. It covers begin to finish, as these runs did, with their waits for Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import combinations, groupby, islice
from operator import attrgetter
from statistics import median
from typing import Literal

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.evidence.known_applications import refuse_unknown_application
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.inspect.ahead.lag import PARTITIONS
from airflow_kstreams.batch.inspect.ahead.rehearsal import Rehearsal
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.batch.inspect.runs.seen_runs import committed_so_far
from airflow_kstreams.batch.inspect.tables.rehearsed_tables import RehearsedTables
from airflow_kstreams.batch.inspect.tables.seen_tables import TableState, state_of
from airflow_kstreams.batch.ledger.facts import Lease
from airflow_kstreams.batch.ledger.history import Failure
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import NOTHING_DUE, OffsetMetadata
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import slice_starts, task_partitions
from airflow_kstreams.batch.run.assignment import AskGroups
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams.errors import AccessDeniedError, ConfigError, KafkaClientError, KStreamsError
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import AdminPort, Clock, ClusterPort, CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import without_log_lines
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort

_HISTORY = 10
_FEWEST = 2

NextKind = Literal["new", "resume", "nothing new", "refused", "busy"]


class PlannedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one input partition in the next run.

    :param topic: name of the topic.
    :param partition: number of the partition.
    :param start: offset at which it begins, or goes on.
    :param stop: offset at which it stops.
    """

    topic: str
    partition: int
    start: int
    stop: int


class PlannedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one input topic in the next run.

    :param topic: name of the topic.
    :param partitions: number of its partitions.
    :param records: number of offsets to read, at least as many as records.
    """

    topic: str
    partitions: int
    records: int


class StateToRestore(msgspec.Struct, frozen=True, kw_only=True):
    """The changelog of one store, which tasks read before they go on, unless they find local files.

    :param store: name of the store.
    :param changelog: its changelog topic.
    :param partitions: number of its partitions that hold something.
    :param records: number of offsets in them, at least as many as entries.
    """

    store: str
    changelog: str
    partitions: int
    records: int


class WindowsToClose(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of one subtopology.

    :param subtopology: id of the subtopology.
    :param stream_time_ms: largest stream time that runs have left there, epoch milliseconds; null before the
        first record.
    :param to_ms: stream time that the end of the run brings it to at least, epoch milliseconds; null where
        only new records bring it on: then they decide which windows close.
    :param tasks: number of its tasks.
    :param tasks_due: number of tasks that wait to publish windows which close by that moment; null where it
        is not known.
    """

    subtopology: int
    stream_time_ms: int | None
    to_ms: int | None
    tasks: int
    tasks_due: int | None


class PlannedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that the next run writes to.

    :param name: name of its sink.
    :param format: ``iceberg`` or ``delta``.
    :param sequence: number of the application's commit that the run will make; 0 where it makes none.
    :param state: what the begin would do with it; null where it was not looked at.
    """

    name: str
    format: str
    sequence: int
    state: TableState | None


class ExpectedTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time that a run is expected to take, from begin to finish.

    :param seconds: seconds that a run of so many records took.
    :param least: the same, less the largest distance of a run below that.
    :param most: the same, and the largest distance of a run above that.
    :param runs: number of runs that it was taken from.
    """

    seconds: float
    least: float
    most: float
    runs: int


class NextRun(ShownInNotebooks, frozen=True, kw_only=True):
    """The run that would begin now.

    :param application_id: id of the application.
    :param now_ms: time of the look, epoch milliseconds.
    :param kind: ``new``, a slice would be frozen; ``resume``, an unfinished one would be resumed;
        ``nothing new``; ``refused``; or ``busy``, a driver holds the lease.
    :param run_id: the unfinished run; null without one.
    :param autostop_at: setting by which the stop offsets would be frozen.
    :param interval_ms: data interval that was assumed, epoch milliseconds; null without one.
    :param records: number of offsets to read in inputs, at least as many as records.
    :param tasks: number of tasks.
    :param parked: node -> number of parked records that would be tried again; null where it is not known.
    :param topics: the inputs, the largest first.
    :param partitions: the partitions with the largest shares.
    :param more_partitions: number of further partitions with a share.
    :param state: the state to restore, the largest first.
    :param windows: the windows of each subtopology that has some.
    :param tables: the tables that it writes to.
    :param refused: the error that the begin would raise; null if it would raise none.
    :param creates: topics that the begin would create.
    :param warnings: warnings that the run would have.
    :param expected: the time that it is expected to take; null without history.
    :param not_seen: what could not be looked at, and why.
    """

    application_id: str
    now_ms: int
    kind: NextKind
    run_id: str | None = None
    autostop_at: str = ""
    interval_ms: tuple[int, int] | None = None
    records: int = 0
    tasks: int = 0
    parked: dict[str, int | None] = {}
    topics: tuple[PlannedTopic, ...] = ()
    partitions: tuple[PlannedPartition, ...] = ()
    more_partitions: int = 0
    state: tuple[StateToRestore, ...] = ()
    windows: tuple[WindowsToClose, ...] = ()
    tables: tuple[PlannedTable, ...] = ()
    refused: Failure | None = None
    creates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    expected: ExpectedTime | None = None
    not_seen: tuple[str, ...] = ()


def plan_next(  # noqa: PLR0913 - all but two have defaults
    cluster: ClusterPort,
    settings: ApplicationSettings,
    *,
    topology: TopologyPlan | None = None,
    groups: AskGroups | None = None,
    interval_ms: tuple[int, int] | None = None,
    partitions: int = PARTITIONS,
    tables: TablesPort | None = None,
    clock: Clock | None = None,
) -> NextRun:
    """Plan the run that would begin now. Nothing is written.

    :param settings: settings of the application, as its runs have them; without ``autostop.at`` the last
        run's, or ``eol``.
    :param topology: plan of the topology; that of the last run unless given.
    :param groups: calls the topology's own partition grouper; needed only by a plan that names one.
    :param interval_ms: data interval of the run, epoch milliseconds; from the end of the last run's until now
        unless given, where the settings go by it.
    :param partitions: number of partitions to show one by one.
    :param tables: opens the tables that it writes to; None if it was not said where they are.
    :raises ConfigError: the application is unknown, or its topology is not known without its file.
    :raises KafkaClientError: the broker does not answer, or this user may not look at what a begin looks at.
    """
    clock, app = clock or SystemClock(), settings.application_id
    with closing(cluster.admin()) as admin, closing(cluster.reader(group_id=app)) as reader:
        facts = RunFacts.read(cluster, app, admin=admin, reader=reader, clock=clock)
        history = [run for run in islice(facts.ledger.newest_first(), 3 * _HISTORY) if not run.empty]
        topology = topology or _last_topology(admin, facts)
        settings = _as_runs_have_them(settings, facts.ledger.last())
        if settings.by_interval and interval_ms is None:
            interval_ms = _interval_until_now(facts.ledger.last(), clock.now_ms())
        lake = RehearsedTables(tables=tables, ledger=facts.ledger.tables)
        found = _Rehearsed(cluster, settings, topology, groups, interval_ms, clock, lake)
        busy, not_seen = _driver_at_work(facts.ledger, clock.now_ms())
        if busy:
            found.slice = facts.under_way
        else:
            found.begin(facts.ledger.held_lease)
        committed = {} if found.slice is None else committed_so_far(cluster, found.slice)
        inputs = list(_inputs(found.slice, committed, resumed=found.resumed))
        records = sum(part.stop - part.start for part in inputs)
        largest = sorted((part for part in inputs if part.stop > part.start), key=_by_size)
        slice_ = found.slice
        has_tasks = slice_ is not None and not slice_.plan.empty
        state = tuple(_state(admin, slice_.plan.topology if slice_ is not None else topology))
    return NextRun(
        application_id=app,
        now_ms=clock.now_ms(),
        kind="busy" if busy else found.kind,
        run_id=slice_.run_id if slice_ is not None and (found.resumed or busy) else None,
        autostop_at=slice_.plan.autostop_at if slice_ is not None else settings.autostop_at,
        interval_ms=slice_.plan.interval_ms if slice_ is not None else interval_ms,
        records=records,
        tasks=sum(slice_.plan.tasks.values()) if slice_ is not None and has_tasks else 0,
        parked=dict(_parked(facts)),
        topics=tuple(_topics(inputs)),
        partitions=tuple(largest[:partitions]),
        more_partitions=max(0, len(largest) - partitions),
        state=state,
        windows=tuple(_windows(slice_, committed, facts)) if slice_ is not None and has_tasks else (),
        tables=tuple(_tables(topology, slice_, lake)),
        refused=found.refused,
        creates=tuple(sorted(found.creates)),
        warnings=slice_.plan.warnings if slice_ is not None else (),
        expected=expected_time(history[:_HISTORY], records) if has_tasks else None,
        not_seen=(*not_seen, *_unseen_tables(topology, lake)),
    )


def _tables(topology: TopologyPlan, slice_: Slice | None, lake: RehearsedTables) -> Iterator[PlannedTable]:
    targets = {} if slice_ is None else slice_.plan.targets
    for table in topology.tables:
        yield PlannedTable(
            name=table.name,
            format=table.format,
            sequence=targets[table.name].sequence if table.name in targets else 0,
            state=None if lake.tables is None or table.name not in targets else state_of(lake, table),
        )


def _unseen_tables(topology: TopologyPlan, lake: RehearsedTables) -> Iterator[str]:
    if topology.tables and lake.tables is None:
        names = ", ".join(table.name for table in topology.tables)
        yield f"the tables {names}, for it is not said where they are (--tables-config FILE)"


class _Rehearsed:
    """The begin of a run on a cluster where nothing is written.

    :ivar slice: the slice that it gave; None before it, and where it was refused.
    :ivar resumed: whether an unfinished run has that slice.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        settings: ApplicationSettings,
        topology: TopologyPlan,
        groups: AskGroups | None,
        interval_ms: tuple[int, int] | None,
        clock: Clock,
        lake: RehearsedTables,
    ) -> None:
        self._lake = lake
        self._cluster = Rehearsal(cluster, settings.application_id)
        # A look does not wait for markers that are about to be written.
        self._settings = replace(settings, settle_ms=0)
        self._begin = (topology, groups, interval_ms, clock)
        self.slice: Slice | None = None
        self.resumed = False
        self.refused: Failure | None = None

    @property
    def creates(self) -> Collection[str]:
        """Names of the topics that it would create."""
        return self._cluster.created.keys()

    @property
    def kind(self) -> NextKind:
        """The way it ended."""
        if self.refused is not None or self.slice is None:
            return "refused"
        if self.resumed:
            return "resume"
        return "nothing new" if self.slice.plan.empty else "new"

    def begin(self, dead: Lease | None) -> None:
        """Begin.

        :param dead: lease of a driver that is taken for dead; None where none is held.
        :raises KafkaClientError: the broker does not answer, or not for now, or this user may not look.
        """
        topology, groups, interval_ms, clock = self._begin
        coordinator = Coordinator(self._cluster, self._settings, clock=clock, tables=self._lake)
        try:
            with closing(coordinator), without_log_lines():
                begun = coordinator.begin(
                    f"plan of {clock.now_ms()}" if dead is None else dead.owner_run_id,
                    topology,
                    order=(0, 0) if dead is None else (dead.order[0] + 1, 0),
                    hold_lease=dead is not None,
                    groups=groups,
                    interval_ms=interval_ms,
                )
        except KStreamsError as error:
            # What this user may not look at says nothing of the user that runs the application.
            if isinstance(error, AccessDeniedError) or (
                isinstance(error, KafkaClientError) and error.is_retriable
            ):
                raise
            # The ledger keeps texts of a bounded length; a plan is not kept.
            self.refused = msgspec.structs.replace(Failure.of(error), cause=error.cause, remedy=error.fix)
        else:
            self.slice, self.resumed = begun.slice, not begun.created


def _driver_at_work(ledger: Ledger, now_ms: int) -> tuple[bool, tuple[str, ...]]:
    """Return whether a driver may be at work, and what a plan cannot know because of its lease."""
    lease = ledger.held_lease
    if lease is None:
        return False, ()
    renewed_ms = ledger.lease_written_ms
    held = f"{lease.owner} holds the lease and renewed it {duration_text(max(0, now_ms - renewed_ms))} ago"
    silent = lease.is_silent(renewed_ms, now_ms) and not lease.continuous
    if silent and not ledger.is_finished(lease.owner_run_id):
        return False, (f"{held}: a begin waits {duration_text(lease.lease_ms)} to see if it is alive",)
    return True, (f"{held}: a begin waits for it, and what would refuse it is not known",)


def _last_topology(admin: AdminPort, facts: RunFacts) -> TopologyPlan:
    """Return the plan of the last run's topology.

    :raises ConfigError: it is not known, or only the application file has all of it.
    """
    app, last = facts.application_id, facts.last_work
    if last is None:
        refuse_unknown_application(admin, app)
        raise ConfigError(
            f"the topology of application {app!r} is not known: its metadata topic holds no run of ours",
            fix="name the application file",
        )
    plan = last.plan.topology
    if facts.under_way is None and (plan.patterns or plan.partition_grouper):
        needs = "patterns of topics" if plan.patterns else "a partition grouper of its own"
        raise ConfigError(
            f"the topology of application {app!r} has {needs}, which only its file has",
            fix="name the application file",
        )
    return plan


def _as_runs_have_them(settings: ApplicationSettings, last: RunSummary | None) -> ApplicationSettings:
    if settings.autostop_at:
        return settings
    given = {**settings.to_dict(), "autostop.at": (last.autostop_at if last is not None else "") or "eol"}
    return ApplicationSettings.parse(settings.application_id, given)


def _interval_until_now(last: RunSummary | None, now_ms: int) -> tuple[int, int]:
    start_ms = 0 if last is None else last.interval_ms[1] if last.interval_ms is not None else last.begun_ms
    return min(start_ms, now_ms - 1), now_ms


def _inputs(
    slice_: Slice | None, committed: Mapping[TopicPartition, CommittedOffset], *, resumed: bool
) -> Iterator[PlannedPartition]:
    """Yield what is left to read of every input partition of a slice."""
    starts = {} if slice_ is None else slice_starts(slice_)
    for part in slice_.inputs if slice_ is not None else ():
        tp, at = part.topic_partition, committed.get(part.topic_partition)
        start = at.offset if resumed and at is not None else starts.get(tp, part.start_offset)
        yield PlannedPartition(
            topic=tp.topic,
            partition=tp.partition,
            start=min(start, part.stop_offset),
            stop=part.stop_offset,
        )


def _by_size(part: PlannedPartition) -> tuple[int, str, int]:
    return part.start - part.stop, part.topic, part.partition


def _topics(inputs: Sequence[PlannedPartition]) -> list[PlannedTopic]:
    found = [
        PlannedTopic(
            topic=topic, partitions=len(parts := list(of_topic)), records=sum(p.stop - p.start for p in parts)
        )
        for topic, of_topic in groupby(sorted(inputs, key=attrgetter("topic")), key=attrgetter("topic"))
    ]
    return sorted(found, key=lambda each: (-each.records, each.topic))


def _parked(facts: RunFacts) -> Iterator[tuple[str, int | None]]:
    for node, by_group in sorted(facts.ledger.past.parked.items()):
        counts = [count for count in by_group.values() if count is not None]
        yield node, sum(counts) if len(counts) == len(by_group) else None


def _state(admin: AdminPort, plan: TopologyPlan) -> list[StateToRestore]:
    """Return the logged stores of a plan that hold something."""
    stores = {changelog: store for sub in plan.subtopologies for store, changelog in sub.changelogs.items()}
    described = admin.describe_topics(stores)
    partitions = described_partitions(described, sorted(described))
    if not partitions:
        return []
    starts, ends = admin.start_offsets(partitions), admin.end_offsets(partitions, isolation="read_committed")
    sizes: dict[str, list[int]] = {}
    for tp in partitions:
        sizes.setdefault(tp.topic, []).append(max(0, ends[tp] - starts[tp]))
    found = [
        StateToRestore(
            store=stores[topic], changelog=topic, partitions=sum(map(bool, of_topic)), records=sum(of_topic)
        )
        for topic, of_topic in sizes.items()
    ]
    return sorted(found, key=lambda each: (-each.records, each.changelog))


def _windows(
    slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset], facts: RunFacts
) -> Iterator[WindowsToClose]:
    last = facts.ledger.last()
    # Tasks of another topology, or of none, have not said what they have to do next.
    alike = last is not None and last.topology_hash == slice_.plan.topology.topology_hash
    told = {tp: OffsetMetadata.decode(at.metadata) for tp, at in committed.items()}
    for sub in slice_.plan.topology.subtopologies:
        if not sub.stream_time.windowed:
            continue
        to_ms, due, known, stream_ms = slice_.plan.moment_of(sub.id), 0, alike, -1
        for group in range(slice_.plan.tasks[str(sub.id)]):
            of_task = [told[tp] for tp in task_partitions(slice_, sub.id, group) if tp in told]
            stream_ms = max((stream_ms, *(each.stream_time_ms for each in of_task)))
            if to_ms is None:
                continue
            next_ms = [each.next_due_ms for each in of_task if each.stream_time_ms >= 0]
            known &= None not in next_ms
            due += any(at is not None and NOTHING_DUE < at <= to_ms for at in next_ms)
        yield WindowsToClose(
            subtopology=sub.id,
            stream_time_ms=stream_ms if stream_ms >= 0 else None,
            to_ms=to_ms,
            tasks=slice_.plan.tasks[str(sub.id)],
            tasks_due=due if to_ms is not None and known else None,
        )


def expected_time(history: Sequence[RunSummary], records: int) -> ExpectedTime | None:
    """Return the time that a run of so many records is expected to take; None of too few runs.

    :param history: finished runs that had records.
    """
    known = [
        (sum(read.stop - read.start for read in run.reads), (run.finished_ms - run.begun_ms) / 1000)
        for run in history
    ]
    if len(known) < _FEWEST:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(known, 2) if a[0] != b[0]]
    # A run of more records takes no less time, whatever chance says of runs that are alike.
    slope = max(0.0, median(slopes)) if slopes else 0.0
    base = max(0.0, median(seconds - slope * read for read, seconds in known))
    seconds = base + slope * records
    off = [took - base - slope * read for read, took in known]
    return ExpectedTime(
        seconds=round(seconds, 3),
        least=round(max(0.0, seconds + min(0.0, *off)), 3),
        most=round(seconds + max(0.0, *off), 3),
        runs=len(known),
    )
