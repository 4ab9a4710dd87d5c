"""Works out the changes of a reset from the state in Kafka. It writes nothing; once the coordinator's id is
claimed, it fences dead tasks whose open transactions hide the metadata topic.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from airflow_kstreams.batch.evidence.known_applications import unknown_application
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import ever_written
from airflow_kstreams.batch.ledger.facts import LandedTable, Lease
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.logs.fence import fence, written_topics
from airflow_kstreams.batch.protocol.logs.log_read import (
    OPEN_TRANSACTION_TIMEOUT_MS,
    LogContent,
    OpenTransactionError,
    read_log,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.offsets.parked import Parked, retry_topic
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState, fold, live_keys
from airflow_kstreams.batch.protocol.slice.slice import Slice, partition_named
from airflow_kstreams.batch.protocol.slice.stops import partitions_of
from airflow_kstreams.batch.reset.rows_again import (
    RowsAgain,
    dropped_run,
    rows_again,
    rows_of_slice,
    taken_back,
)
from airflow_kstreams.batch.reset.scenario import DEFAULT, Logs, Scenario, spans_of
from airflow_kstreams.batch.reset.touched_topics import (
    InternalTopics,
    RecordedTopics,
    chosen_topics,
    internal_topics,
    own_unread_topics,
    recorded_topics,
    refuse_unknown_topics,
)
from airflow_kstreams.batch.run.begin.left_unread import count_records, written_to
from airflow_kstreams.batch.run.begin.parked_before import parked_left, parking_partitions
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.naming.commands import reset_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.ports import CommittedOffset, GroupMember, TopicDescription, TopicPartition

TablesChoice = Literal["", "keep", "remove"]


def tables_choice(text: str | None) -> TablesChoice:
    """Return the choice that a text names.

    :raises ConfigError: it names none.
    """
    match text or "":
        case "keep" | "remove" | "" as choice:
            return choice
        case other:
            raise ConfigError(
                f"tables={other!r} is no choice for the rows of runs that are taken back",
                fix="write keep, and they come again, or remove, and they are taken out first",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """The request for a reset, in the words of Kafka's own application reset tool.

    :param application_id: id of the application.
    :param input_topics: topics whose committed offsets are set.
    :param scenario: the rule by which they are set.
    :param intermediate_topics: the user's own topics between subtopologies, whose unread records are skipped.
    :param internal_topics: internal topics to delete; all of them unless given, or unless there are
        ``unread_topics``.
    :param unread_topics: topics between subtopologies that the topology does not read any more, and whose
        unread records are given up.
    :param delete_stop_offsets: whether to drop an unfinished slice; alone, it drops the slice and nothing
        else.
    :param force: whether to go on although the application is at work.
    :param reset_id: name of this reset, so that a finished one is not made again; empty for no name.
    :param accept: partitions in which reading goes on at the scenario's offset; the reset does nothing else
        then.
    :param tables: what becomes of rows in tables whose records are read again: ``keep`` or ``remove``; empty
        refuses a reset by which there would be some.
    :param repair_ledger: whether to write the ledger anew from what can be read of it; the reset does nothing
        else then.
    """

    application_id: str
    input_topics: tuple[str, ...] = ()
    scenario: Scenario = DEFAULT
    intermediate_topics: tuple[str, ...] = ()
    internal_topics: tuple[str, ...] = ()
    unread_topics: tuple[str, ...] = ()
    delete_stop_offsets: bool = False
    force: bool = False
    reset_id: str = ""
    accept: tuple[TopicPartition, ...] = ()
    tables: TablesChoice = ""
    repair_ledger: bool = False

    @property
    def only_the_slice(self) -> bool:
        """Whether nothing but an unfinished slice is to be dropped."""
        return self.delete_stop_offsets and not self._topics

    @property
    def _topics(self) -> tuple[str, ...]:
        return (
            *self.input_topics,
            *self.intermediate_topics,
            *self.internal_topics,
            *self.unread_topics,
        )

    @property
    def command(self) -> str:
        """The request as a command line; ``--force`` does not change what is to be done."""
        lists = (
            ("--input-topics", self.input_topics),
            ("--intermediate-topics", self.intermediate_topics),
            ("--internal-topics", self.internal_topics),
            ("--unread-topics", self.unread_topics),
        )
        flags = [f"{option} {','.join(sorted(set(topics)))}" for option, topics in lists if topics]
        flags += [self.scenario.option] if self.scenario.option else []
        flags += ["--delete-stopoffsets"] if self.delete_stop_offsets else []
        flags += [f"--tables {self.tables}"] if self.tables else []
        return reset_command(self.application_id, *flags)

    def check(self) -> None:
        """Refuse a request that contradicts itself.

        :raises ConfigError: a scenario is given without topics, or partitions are with more than a scenario.
        """
        if self.repair_ledger:
            if self._topics or self.accept or self.delete_stop_offsets or self.scenario.option:
                raise ConfigError(
                    "--repair-ledger writes the ledger anew, and does nothing besides",
                    fix="give it alone, or with --force or --dry-run; reset in another call",
                )
            return
        if self.accept:
            if self.tables == "remove":
                raise ConfigError(
                    "--accept takes no run back, so the rows of runs cannot be taken out with it",
                    fix="reset by --input-topics and --from-file, or add --tables keep",
                )
            if self._topics or self.delete_stop_offsets or not self.scenario.option:
                raise ConfigError(
                    "--accept resets the offsets of the partitions that it names, and nothing besides",
                    fix="add to it where reading goes on, such as --to-earliest, and no topics or "
                    "--delete-stopoffsets",
                )
            return
        if self.scenario.option and not self.input_topics:
            raise ConfigError(
                f"{self.scenario.option} says where to set the offsets of input topics, and none is named",
                fix="name them by --input-topics",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The state of an application in Kafka.

    :param facts: the facts that ledger and metadata topic give.
    :param metadata_keys: live keys of the metadata topic.
    :param positions: partition -> the offset at which the next run would start: the committed offset, else
        the one at which an unfinished slice would go on, else the one at which the last run ended.
    :param topic_ids: topic -> the id that these positions refer to.
    :param parked: records that runs have left parked, the unfinished one included.
    :param described: the topics that the request names, as far as they exist.
    :param internal: topics whose names are those of internal ones.
    """

    facts: RunFacts
    metadata_keys: tuple[bytes, ...]
    members: tuple[GroupMember, ...]
    recorded: RecordedTopics
    internal: InternalTopics
    described: Mapping[str, TopicDescription]
    committed: Mapping[TopicPartition, CommittedOffset]
    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    parked: Parked
    now_ms: int

    @property
    def ledger(self) -> Ledger:
        """The content of the ledger."""
        return self.facts.ledger

    @property
    def ids(self) -> dict[str, str]:
        """The ids of the topics that the request names."""
        return {topic: found.topic_id for topic, found in self.described.items()}

    @property
    def unfinished_run(self) -> str | None:
        """Id of the run whose slice is unfinished; empty when another program wrote it; None if there is
        none.
        """
        if self.facts.foreign_run:
            return ""
        return None if self.facts.under_way is None else self.facts.under_way.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """An offset that is set.

    :param before: offset at which the next run would have started, None if that is not known.
    :param asked: the offset that the scenario asked for, which the log may not hold.
    """

    partition: TopicPartition
    before: int | None
    asked: int
    after: int
    intermediate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """The changes that a reset makes.

    :param offsets: committed offsets that are set.
    :param deleted: internal topics that are deleted -> partition count.
    :param gone: internal topics that runs have recorded and that do not exist; their records in the ledger
        are forgotten.
    :param released: internal topics that a dropped slice claimed and into which no record was ever written:
        they stay, and are not the application's any more.
    :param kept: topics that the application reads and this reset leaves alone.
    :param ambiguous: topic that may be an internal one of the application or of another -> the other
        application's id.
    :param taken_back: ids of finished runs that are not finished any more.
    :param dropped_run: id of the run whose unfinished slice is dropped; empty when another program wrote it.
    :param rows_again: runs that are taken back, or dropped, and have rows in tables.
    :param lands: the slice of a run that is dropped and whose files land in tables first; None if there is
        none.
    :param finished_run: id of a run that was to be dropped, and is finished instead, because its rows were in
        a table; empty if there is none.
    :param metadata_keys: number of keys of the metadata topic that are deleted.
    :param groups_dropped: whether recorded partition groups go with their changelogs.
    :param unread: topic -> number of its records that no run has read and that are given up.
    :param given_up: records that were parked in retry topics that are deleted, or are gone.
    :param parked: records that stay parked.
    :param lease: lease that a driver, at work or dead, has not released, and that is taken away; None without
        one.
    :param members: members of the consumer group; they stay, and may overwrite offsets.
    :param interrupted: command of an earlier reset that is completed first.
    :param done_before: whether the reset of this name was done already.
    :param repaired: whether the ledger is written anew.
    :param lost: what of the ledger is not known any more, one line each.
    """

    request: ResetRequest
    offsets: tuple[OffsetChange, ...] = ()
    deleted: Mapping[str, int] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    ambiguous: Mapping[str, str] = field(default_factory=dict)
    taken_back: tuple[str, ...] = ()
    rows_again: tuple[RowsAgain, ...] = field(default=(), repr=False)
    dropped_run: str | None = None
    lands: Slice | None = field(default=None, repr=False)
    finished_run: str = ""
    metadata_keys: int = 0
    groups_dropped: bool = False
    unread: Mapping[str, int] = field(default_factory=dict)
    given_up: Parked = field(default_factory=dict)
    parked: Parked = field(default_factory=dict)
    lease: Lease | None = None
    members: tuple[GroupMember, ...] = ()
    interrupted: str = ""
    done_before: bool = False
    repaired: bool = False
    lost: tuple[str, ...] = ()


class Look(enum.Enum):
    """The extent to which a look may end transactions and tasks that hide the application's state.

    ``ASIDE``: nothing. A driver at work goes on undisturbed, and what its open transactions hide is not
    waited for. ``CLAIMED``: the coordinator's id is claimed; dead tasks whose transactions hide the metadata
    topic are fenced. ``FENCED``: every task is fenced, too; committed offsets are stable, and no task moves
    them any more.
    """

    ASIDE = "aside"
    CLAIMED = "claimed"
    FENCED = "fenced"


def survey(session: CoordinatorSession, request: ResetRequest, look: Look) -> Survey:
    """Read the state of an application.

    :raises ConfigError: there is no such application, a named topic does not exist, or the metadata topic is
        somebody else's.
    """
    app, admin = request.application_id, session.admin
    ledger = session.read_ledger(wait_ms=0 if look is Look.ASIDE else OPEN_TRANSACTION_TIMEOUT_MS)
    session.refuse_others_topic(ledger, None)
    with session.reading:
        content = _read_metadata(session, app, look)
    topics, groups = admin.topic_names(), admin.group_ids()
    written, keys = _fold(content, request)
    facts = RunFacts(app, ledger, written)
    last = facts.last_work
    recorded = recorded_topics(last, ledger)
    left = {tp.topic for tp in written_to(facts)}
    named = {*request.input_topics, *request.intermediate_topics, *(left & {*request.unread_topics})}
    named |= {tp.topic for tp in request.accept}
    internal = internal_topics(app, recorded, topics=topics, groups=groups, user_topics=named)
    if app not in groups and not internal.own and not topics.intersection(ProtocolTopics(app).protocol):
        raise unknown_application(app, topics)
    described = admin.describe_topics({*named, *internal.own, *internal.ambiguous})
    for topic in sorted(named - set(described)):
        raise ConfigError(f"topic {topic!r} does not exist", fix="correct its name, or leave it out")
    resumed = _positions(facts)
    read = [] if last is None else partitions_of(last, last.plan.partitions)
    parking = parking_partitions(ledger.assignment, app)
    partitions = {*resumed, *described_partitions(described, described), *read, *parking}
    look_up = session.committed if look is Look.FENCED else session.committed_so_far
    committed = look_up(partitions)
    # Neither stop offsets nor a slice say how far a continuous run has read.
    all_unknown = facts.lost_run or ledger.current_continuous is not None
    unknown = {*resumed} if all_unknown else _unread(facts.under_way)
    lost = unknown - committed.keys()
    positions = {tp: offset for tp, offset in resumed.items() if tp not in lost}
    positions |= {tp: offset.offset for tp, offset in committed.items()}
    positions |= _before_moved(facts, committed, resumed)
    return Survey(
        facts=facts,
        metadata_keys=keys,
        members=admin.group_members(app),
        recorded=recorded,
        internal=internal,
        described=described,
        committed=committed,
        positions=positions,
        topic_ids=ledger.topic_ids if last is None else last.plan.topic_ids,
        parked=parked_left(facts, committed),
        now_ms=session.clock.now_ms(),
    )


def plan_reset(session: CoordinatorSession, request: ResetRequest, seen: Survey) -> ResetPlan:
    """Work out the changes of a reset.

    :raises ConfigError: the request does not fit the application, its topics, or its file of offsets.
    """
    chosen: tuple[str, ...] = ()
    own_unread: tuple[str, ...] = ()
    offsets: tuple[OffsetChange, ...] = ()
    if not request.only_the_slice:
        own_unread = own_unread_topics(
            request.application_id,
            request.unread_topics,
            own=seen.recorded.internal,
            users={tp.topic for tp in written_to(seen.facts)},
        )
        if request.internal_topics or not request.unread_topics:
            chosen = chosen_topics(
                request.application_id, seen.internal, seen.recorded.internal, request.internal_topics
            )
        chosen = tuple(sorted({*chosen, *own_unread}))
        refuse_unknown_topics(
            request.application_id,
            seen.recorded,
            inputs=request.input_topics,
            intermediates=request.intermediate_topics,
            committed={tp.topic for tp in seen.committed},
        )
        offsets = _offsets(session, request, seen)
    released = _released(session, seen) if request.only_the_slice else ()
    deleted = {topic: seen.described[topic].partitions for topic in chosen if topic in seen.described}
    after = {change.partition: change.after for change in offsets}
    named = {*request.input_topics, *request.intermediate_topics}
    pending = seen.ledger.unfinished_reset
    back = taken_back(seen.ledger, after)
    gone = {
        node: by_group
        for node, by_group in seen.parked.items()
        if retry_topic(request.application_id, node) in chosen
    }
    return ResetPlan(
        request=request,
        offsets=offsets,
        deleted=deleted,
        gone=tuple(topic for topic in chosen if topic not in deleted),
        released=released,
        kept=tuple(sorted((seen.recorded.inputs | seen.recorded.intermediates) - named)),
        ambiguous={
            topic: owner
            for topic, owner in seen.internal.ambiguous.items()
            if topic not in deleted and not request.only_the_slice
        },
        taken_back=tuple(run.run_id for run in back),
        rows_again=_rows_again(seen, back, after),
        dropped_run=seen.unfinished_run,
        lands=_landing(seen),
        metadata_keys=len(seen.metadata_keys),
        groups_dropped=_groups_depend(seen.ledger, (*chosen, *released)),
        unread=_given_up(
            session, seen, own_unread, [at for at in offsets if at.partition.topic in request.unread_topics]
        ),
        given_up=gone,
        parked={node: by_group for node, by_group in seen.parked.items() if node not in gone},
        lease=seen.ledger.held_lease,
        members=seen.members,
        interrupted="" if pending is None else pending.command,
    )


def _rows_again(
    seen: Survey, back: Collection[RunSummary], after: Mapping[TopicPartition, int]
) -> tuple[RowsAgain, ...]:
    """Return the runs whose rows in tables come again; the slice that is yet to be dropped among them."""
    ids = seen.ids
    found = tuple(rows_again(seen.ledger, back, after, ids))
    slice_ = _landing(seen)
    if slice_ is None:
        return found
    tables = {
        name: LandedTable(table_id=at.table_id, sequence=at.sequence)
        for name, at in slice_.plan.targets.items()
    }
    return (*found, *rows_of_slice(dropped_run(slice_, seen.committed, tables), after, ids))


def _landing(seen: Survey) -> Slice | None:
    """Return the slice whose files land in tables before it is dropped: one that an earlier reset has
    dropped, too, and has not landed yet.
    """
    pending = seen.ledger.unfinished_reset
    if pending is not None:
        return None if pending.dropping is None else pending.dropping.slice
    under_way = seen.facts.under_way
    return under_way if under_way is not None and under_way.plan.targets else None


def _read_metadata(session: CoordinatorSession, app: str, look: Look) -> LogContent:
    by_session = partial(read_log, admin=session.admin, reader=session.reader, clock=session.clock)
    read = partial(by_session, session.cluster, ProtocolTopics(app).metadata, group_id=app)
    if look is Look.ASIDE:
        return read(wait_ms=0)
    try:
        return read(wait_ms=1)
    except OpenTransactionError:
        stable = fold(read(wait_ms=0).records, app)
        if stable.slice is not None:
            fence(
                session.cluster,
                stable.slice.plan.task_ids,
                admin=session.admin,
                topics=written_topics(stable.slice.plan.topology),
            )
        return read(wait_ms=OPEN_TRANSACTION_TIMEOUT_MS)


def _fold(content: LogContent, request: ResetRequest) -> tuple[Folded, tuple[bytes, ...]]:
    """Fold the metadata topic; one that this version cannot read counts as an unfinished slice."""
    topics = {*request.input_topics, *request.intermediate_topics}
    keys = live_keys(content.records)
    try:
        folded = fold(content.records, request.application_id, topics=topics)
    except KafkaClientError:
        return Folded(state=RunState.RUNNING, live_keys=keys), keys
    if folded.torn and folded.slice is None:
        return Folded(state=RunState.RUNNING, live_keys=keys), keys
    return folded, keys


def _positions(facts: RunFacts) -> dict[TopicPartition, int]:
    """Return the positions of partitions without a committed offset: the starts of an unfinished slice, else
    the end of the last run. The ledger has better ones than the metadata topic, unless another program wrote
    the slice, or the ledger was lost.
    """
    ledger, folded = facts.ledger, facts.metadata
    slice_ = folded.slice
    if slice_ is None:
        return ledger.stops | dict(folded.foreign_stops if folded.state is RunState.FINISHED else {})
    ended = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    ended |= {partition_named(name): at for name, at in slice_.plan.intermediate_starts.items()}
    for intermediate, offset in folded.reached.items():
        ended[intermediate] = max(ended.get(intermediate, 0), offset)
    if folded.state is RunState.FINISHED or ledger.find(slice_.run_id) is not None:
        return ended | ledger.stops
    return ledger.stops | {part.topic_partition: part.start_offset for part in slice_.inputs}


def _before_moved(
    facts: RunFacts,
    committed: Mapping[TopicPartition, CommittedOffset],
    resumed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets of our runs before another program moved an offset forward: a reset that does not
    set it accepts nothing, so that the next begin refuses it.
    """
    if facts.last_work is None and facts.ledger.unfinished_reset is None:
        return {}
    continuous = facts.ledger.current_continuous
    starts = {} if continuous is None else continuous.starts
    known = {**resumed, **{partition_named(name): at for name, at in starts.items()}}
    return {
        tp: known[tp]
        for tp, offset in committed.items()
        if offset.offset > known.get(tp, offset.offset) and OffsetMetadata.decode(offset.metadata).foreign
    }


def _unread(slice_: Slice | None) -> set[TopicPartition]:
    """Return the partitions that an unfinished slice may have read in part.

    Begin commits where they start, so that an offset that is not there was there: how far the run got is not
    known, and the next one must not take a guess for it.

    :param slice_: the slice that is under way; None if there is none.
    """
    if slice_ is None or slice_.plan.empty:
        return set()
    inputs = {part.topic_partition for part in slice_.inputs if part.start_offset < part.stop_offset}
    return inputs | {partition_named(name) for name in slice_.plan.intermediate_starts}


def _offsets(session: CoordinatorSession, request: ResetRequest, seen: Survey) -> tuple[OffsetChange, ...]:
    topics = {*request.input_topics, *request.intermediate_topics}
    unread = {tp: to for tp, to in written_to(seen.facts).items() if tp.topic in request.unread_topics}
    partitions = {*described_partitions(seen.described, topics)}
    partitions |= unread.keys() & {*described_partitions(seen.described, request.unread_topics)}
    spans = spans_of(session.admin, partitions)
    inputs = {tp: span for tp, span in spans.items() if tp.topic in request.input_topics}
    logs = Logs(spans=inputs, positions=seen.positions, admin=session.admin, now_ms=seen.now_ms)
    asked = request.scenario.targets(logs) if inputs else {}
    for tp in spans.keys() - inputs.keys():
        # What others have written behind the last run is theirs, and stays.
        to = None if tp.topic in request.intermediate_topics else unread[tp]
        asked[tp] = spans[tp].end if to is None else max(to, seen.positions.get(tp, 0))
    return tuple(
        OffsetChange(
            partition=tp,
            before=seen.positions.get(tp),
            asked=asked[tp],
            after=span.clamp(asked[tp]),
            intermediate=tp not in inputs,
        )
        for tp, span in sorted(spans.items())
    )


def _given_up(
    session: CoordinatorSession, seen: Survey, own: Collection[str], offsets: Collection[OffsetChange]
) -> dict[str, int]:
    """Return the number of records that are given up, by topic.

    :param own: repartition topics whose unread records are given up.
    :param offsets: offsets that are set in the user's topics for the same reason.
    """
    skipped: dict[TopicPartition, int | None] = dict.fromkeys(described_partitions(seen.described, own))
    skipped |= {change.partition: change.after for change in offsets}
    return count_records(session, {tp: (seen.positions.get(tp, 0), to) for tp, to in skipped.items()})


def _released(session: CoordinatorSession, seen: Survey) -> tuple[str, ...]:
    """Return the internal topics into which no record of the application was ever written. The claim of a run
    whose slice is dropped ends, so that another application may take such a topic.
    """
    found = session.admin.describe_topics(seen.recorded.internal)
    return tuple(sorted(found.keys() - ever_written(session.admin, found, found)))


def _groups_depend(ledger: Ledger, deleted: Collection[str]) -> bool:
    return any(topic in deleted for entry in ledger.assignment.entries for topic in entry.changelogs)
