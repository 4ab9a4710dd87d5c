"""Resets an application: offsets, internal topics, an unfinished slice.

A reset changes this, and leaves this alone::

    committed offsets   inputs that are named: set by the scenario, without our metadata, so that partition
                        times begin anew and the topic counts as accepted the way it is
                        intermediate topics that are named: set to their ends
    internal topics     deleted, and with them their committed offsets and partition groups, and what is
                        parked in retry topics among them; what is parked in others stays, and the next run
                        goes on with it
    metadata topic      every key is deleted: no slice is left. Of an unfinished one only if that is asked for
    ledger              the lease ends; the reset's record takes the place of the last run's stop offsets; a
                        run of whose records some will be read again is marked as taken back, and may run
                        again under its id; every summary stays
    local state         is not looked at: a checkpoint names the id of its changelog, and a deleted changelog
                        never comes back under the same id
    output topics, the user's own topics, the dead-letter topic: untouched

Deleting topics is no part of a transaction, so the reset is a small state machine in the ledger's record
``__reset__``. Each line is one step, in this order; transactions are the coordinator's::

    claim               the coordinator's transactional id; the coordinator that held it cannot write any more
    STOPPING            transaction: no slice, no lease, the record with positions and task ids
    fence               every transactional id of the dropped slice, or of the last run
    land                what the dropped run has listed for tables, in them and in the ledger: dropped_tables
    DELETING            transaction: offsets, partition groups, runs taken back, the record with the topics
    remove              rows of runs that are taken back, out of tables, if the request says so: removed_rows
    delete              the topics, and wait until they and their offsets are gone
    DONE                transaction: the record alone

Invariant: while the record says STOPPING or DELETING, no run begins. So no run sees offsets that were moved
beside state that was not deleted, or the other way round.

Tasks: a new attempt reads the metadata topic after it has claimed its id. After STOPPING it finds no slice,
and stops. An attempt that had read before is fenced. So when offsets are read and set no task moves them.

Crash argument: before STOPPING nothing has changed. After it, positions and task ids are in the record, so
that the next reset, the same command or another, goes on from there: it fences again, and works out the
offsets from the committed ones. After DELETING it deletes the topics that are left; the same command is then
done, and another one begins from the state that the first has left. After DONE nothing is left to do, and a
call with the same name finds the reset done. A lost answer is a crash after the step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Self

import msgspec

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.ledger.facts import (
    NOTHING_RECORDED,
    Assignment,
    GroupedPartitions,
    OwnTopics,
    ResetRecord,
    ResetStage,
)
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.writes import LedgerChange
from airflow_kstreams.batch.protocol.logs.fence import fence, written_topics
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata_records import tombstone
from airflow_kstreams.batch.protocol.topics import ensure_protocol_topics
from airflow_kstreams.batch.reset.acceptance import plan_acceptance, write_acceptance
from airflow_kstreams.batch.reset.dropped_tables import TableDrop, dropping, with_tables
from airflow_kstreams.batch.reset.ledger_repair import plan_repair, refuse_repair, repair
from airflow_kstreams.batch.reset.removed_rows import RowRemoval, removals
from airflow_kstreams.batch.reset.reset_plan import Look, ResetPlan, ResetRequest, Survey, plan_reset, survey
from airflow_kstreams.batch.reset.scenario import to_offset
from airflow_kstreams.batch.run.begin.left_unread import written_to
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.run.lease.lease_observation import LeaseObservation
from airflow_kstreams.streams.errors import RunBusyError, RunError, SuspectWriterError, TaskFencedError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import accept_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.partitioning.partition_groups import all_partitions, described_partitions
from airflow_kstreams.streams.ports import Clock, ClusterPort, CommittedOffset, TopicPartition
from airflow_kstreams.streams.printable import package_log
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.table_port import TablesPort

log = package_log(__name__)

#: A superseded driver claims the coordinator's id once more to learn that it was superseded, and so do its
#: jobs' checks; each costs at most one claim.
_CLAIMS = 10
#: Longest time for the group's coordinator to forget the offsets of deleted topics.
_FORGET_SECONDS = 10.0
_POLL_SECONDS = 0.05


class ApplicationReset:
    """One reset; a context manager that closes its clients.

    :param cluster: the cluster where the application runs.
    :param request: the reset to make.
    :param settings: settings of the application; only needed where its ledger does not exist yet.
    :param tables: opens the tables that the application writes to; None if it was not said where they are.
    :raises ConfigError: the request contradicts itself.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        request: ResetRequest,
        *,
        settings: ApplicationSettings | None = None,
        clock: Clock | None = None,
        tables: TablesPort | None = None,
    ) -> None:
        request.check()
        self._settings = settings or ApplicationSettings.parse(request.application_id)
        self._request = request
        self._app = request.application_id
        self._clock = clock or SystemClock()
        self._session = CoordinatorSession(cluster, self._settings, clock=clock)
        self._leases = LeaseObservation(self._session)
        self._of_tables = TableDrop(self._session, tables)
        self._rows = RowRemoval(self._session, tables)
        self._written: ResetRecord | None = None
        self._done = ResetPlan(request=request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def plan(self) -> ResetPlan:
        """Return the plan that :meth:`run` would follow. Changes nothing, claims nothing, disturbs no run.

        :raises ConfigError: there is no such application or topic, or the request does not fit it.
        :raises KafkaClientError: the broker does not answer.
        """
        if self._request.repair_ledger:
            return plan_repair(self._session, self._request)
        seen = self._survey(Look.ASIDE)
        if self._request.accept and seen.ledger.unfinished_reset is not None:
            # An open transaction may hide that the reset is done: this read waits for its end.
            self._session.read_ledger()
            seen = self._survey(Look.ASIDE)
        return self._planned(seen)

    def refuse(self, plan: ResetPlan) -> None:
        """Refuse a reset that must not be made now. A lease that is held is watched first, for as long as it
        lasts: only its renewals show whether a driver is alive.

        :raises RunBusyError: the application is at work, and force was not asked for.
        :raises RunError: a slice is unfinished, and the request does not drop it.
        """
        if self._request.repair_ledger:
            refuse_repair(plan)
            return
        ledger = Ledger()
        if plan.lease is not None and not self._request.force:
            ledger = self._leases.watch(self._session.read_ledger(wait_ms=0), waiting="a reset")
        self._refuse(plan, ledger)

    def _refuse(self, plan: ResetPlan, ledger: Ledger) -> None:
        """Refuse a reset that must not be made now.

        :param ledger: the ledger as it is now.
        """
        force = self._request.force
        lease = ledger.held_lease
        if lease is not None and not force and not self._leases.is_free(ledger):
            raise self._busy(
                f"{lease.owner} works on run {lease.owner_run_id!r} and has just renewed its lease",
                fix="stop it first, or take the application from it with --force",
            )
        if plan.members and not force:
            raise self._busy(
                f"its consumer group has {counted(len(plan.members), 'member')}: "
                f"{', '.join(map(str, plan.members[:3]))}" + (", ..." if plan.members[3:] else ""),
                fix="stop them first; --force goes on in spite of them, but cannot remove them",
            )
        if plan.dropped_run is not None and not self._request.delete_stop_offsets:
            whose = f"run {plan.dropped_run!r}" if plan.dropped_run else "the run of another program"
            raise RunError(
                f"{whose} of application {self._app!r} is unfinished: its stop offsets, and what its tasks "
                "have done so far, would not fit what the reset leaves",
                fix="finish the run first, or drop its slice, too: add --delete-stopoffsets",
                run_id=plan.dropped_run,
            )
        self._refuse_rows(plan)
        if plan.lands is not None:
            self._of_tables.refuse_unfit(plan.lands)

    def _refuse_rows(self, plan: ResetPlan) -> None:
        """Refuse to read records again whose rows are in tables, unless it is said what becomes of these."""
        if plan.rows_again and not self._request.tables:
            run = plan.rows_again[0]
            more = counted(len(plan.rows_again) - 1, "other run")
            raise RunError(
                f"run {run.run_id!r} has rows in {', '.join(sorted(run.tables))}"
                + (f", and so have {more}" if plan.rows_again[1:] else "")
                + ": their records would be read again, and their rows come again",
                fix="add --tables remove, and the reset takes them out, or --tables keep if they may come "
                "again",
                run_id=run.run_id,
            )
        if self._request.tables == "remove":
            self._rows.refuse_unfit(plan.rows_again)

    def run(self) -> ResetPlan:
        """Reset the application and return the plan that was followed.

        :raises ConfigError: there is no such application or topic, or the request does not fit it.
        :raises RunBusyError: the application is at work, and force was not asked for.
        :raises RunError: a slice is unfinished, and the request does not drop it.
        :raises TableUnavailableError: a table of the dropped run did not answer; the same reset may be run
            again.
        :raises TableRefusedError: a table is not the one that the dropped run began with.
        :raises KafkaClientError: the broker does not answer, or refuses; the same reset may be run again.
        """
        if not self._request.repair_ledger and self._done_before():
            return ResetPlan(request=self._request, done_before=True)
        self.refuse(self.plan())
        if self._request.repair_ledger:
            return self._claiming(partial(repair, self._session, self._request))
        ensure_protocol_topics(self._session.admin, self._settings)
        done = self._claiming(self._accept if self._request.accept else self._go_on)
        self._refuse_overwritten(done)
        return done

    def _claiming(self, reset: Callable[[], ResetPlan]) -> ResetPlan:
        """Claim the coordinator's id and reset; do both again when the claim is lost before a transaction.

        :raises RunBusyError: another coordinator claims the id as often.
        """
        for left in reversed(range(_CLAIMS)):
            try:
                self._session.claim()
                return reset()
            except TaskFencedError:
                log.info("application %s: another coordinator claimed the id, claiming it again", self._app)
            except SuspectWriterError as error:
                if not left:
                    raise
                log.info("application %s: %s; claiming the id again", self._app, error.cause)
        raise self._busy("another coordinator claims its id again and again", fix="stop it, then retry")

    def _done_before(self) -> bool:
        """Return whether a reset of this name is done; a repetition that shifts offsets would shift them
        twice.

        :raises RunBusyError: another program has moved its offsets since.
        """
        if not self._request.reset_id:
            return False
        record = self._session.read_ledger().reset
        if record is None or record.stage is not ResetStage.DONE:
            return False
        done = (record.reset_id, record.command) == (self._request.reset_id, self._request.command)
        if done:
            named = {*self._request.input_topics, *self._request.intermediate_topics}
            self._refuse_others_offsets({tp: at for tp, at in record.stops.items() if tp.topic in named})
        return done

    def _accept(self) -> ResetPlan:
        """Let reading go on at other offsets, once no task can move offsets any more."""
        self._fence(self._survey())
        seen = self._survey(Look.FENCED)
        plan = plan_acceptance(self._session, self._request, seen)
        self._refuse(plan, seen.ledger)
        write_acceptance(self._session, plan, seen)
        return plan

    def _fence(self, seen: Survey) -> None:
        last = seen.facts.last_tasks
        topics = written_topics(*last.topologies)
        fence(self._session.cluster, last.transactional_ids or (), admin=self._session.admin, topics=topics)

    def _go_on(self) -> ResetPlan:
        """Go on from the step that the ledger names, which is the first one unless this is a repetition."""
        seen = self._survey()
        record = seen.ledger.reset
        if record is None or self._written is None or record.begun_ms != self._written.begun_ms:
            if self._completed(seen):
                return self._done
            record = self._stop(self._survey())
        if record.stage is ResetStage.STOPPING:
            dropped = () if record.dropping is None else (record.dropping.slice.plan.topology,)
            fence(
                self._session.cluster,
                record.transactional_ids,
                admin=self._session.admin,
                topics=written_topics(*seen.facts.last_tasks.topologies, *dropped),
            )
            record = self._written = self._of_tables.land(record)
            record = self._move(record, self._survey(Look.FENCED))
        if record.stage is ResetStage.DELETING:
            self._delete(record)
        return self._done

    def _completed(self, seen: Survey) -> bool:
        """Complete an earlier reset that was interrupted, and return whether nothing is left to do then."""
        pending = seen.ledger.unfinished_reset
        if pending is None or pending.stage is not ResetStage.DELETING:
            return False
        self._done = self._planned(seen)
        self._delete(pending)
        self._written = None
        return pending.command == self._request.command

    def _stop(self, seen: Survey) -> ResetRecord:
        """Delete the slice and the lease, and write the stage STOPPING."""
        pending = seen.ledger.unfinished_reset
        self._done = dataclasses.replace(self._planned(seen), interrupted=self._done.interrupted)
        self._refuse(self._done, seen.ledger)
        under_way = with_tables(seen.facts.under_way)
        if under_way is not None and self._of_tables.finished(under_way):
            seen = self._survey()
            self._done = dataclasses.replace(
                self._planned(seen), interrupted=self._done.interrupted, finished_run=under_way.run_id
            )
            self._refuse(self._done, seen.ledger)
        ids = seen.facts.last_tasks.transactional_ids or ()
        last = seen.facts.last_work
        record = ResetRecord(
            stage=ResetStage.STOPPING,
            begun_ms=self._clock.now_ms(),
            command=self._request.command,
            positions=_named(seen.positions),
            topic_ids=dict(seen.topic_ids),
            read=dict(last.plan.partitions) if last is not None else {} if pending is None else pending.read,
            transactional_ids=ids if pending is None else pending.transactional_ids,
            reset_id=self._request.reset_id,
            written_to={str(tp): to for tp, to in sorted(written_to(seen.facts).items())},
            dropping=dropping(seen.facts.under_way, seen.facts.metadata)
            if pending is None
            else pending.dropping,
        )
        ledger = dataclasses.replace(seen.ledger, lease=None).with_reset(record)
        records = [tombstone(self._app, key) for key in seen.metadata_keys]
        self._session.write(records, ledger=LedgerChange(ledger=ledger))
        self._written = record
        return record

    def _move(self, stopping: ResetRecord, seen: Survey) -> ResetRecord:
        """Set the offsets, and write the names of the topics that are to be deleted."""
        plan = self._planned(seen)
        self._refuse_rows(plan)
        removing = removals(plan.rows_again, seen.ledger.tables) if self._request.tables == "remove" else {}
        self._done = dataclasses.replace(
            self._done,
            rows_again=plan.rows_again,
            offsets=plan.offsets,
            deleted=plan.deleted,
            taken_back=plan.taken_back,
            given_up=plan.given_up,
            unread=plan.unread,
        )
        named = {change.partition.topic for change in plan.offsets}
        positions = {tp: at for tp, at in seen.positions.items() if tp.topic not in plan.deleted}
        positions |= {change.partition: change.after for change in plan.offsets}
        offsets = {change.partition: CommittedOffset(change.after) for change in plan.offsets}
        topic_ids = {
            topic: topic_id
            for topic, topic_id in seen.topic_ids.items()
            if topic not in named and topic not in plan.deleted
        }
        record = msgspec.structs.replace(
            stopping,
            stage=ResetStage.DELETING if plan.deleted or removing else ResetStage.DONE,
            positions=_named(positions),
            topic_ids=topic_ids,
            read={topic: count for topic, count in stopping.read.items() if topic in topic_ids},
            transactional_ids=(),
            deleting=dict(plan.deleted),
            removing=removing,
            written_to=self._left_unread(seen, named),
        )
        change = LedgerChange(
            ledger=_after_changes(seen, plan).with_reset(record),
            taken_back=plan.taken_back,
            taken_back_ms=seen.now_ms,
        )
        self._session.write((), ledger=change, offsets=offsets)
        self._written = record
        return record

    def _left_unread(self, seen: Survey, skipped: Collection[str]) -> dict[str, int | None]:
        """Return the offsets up to which fenced tasks have written the user's topics between subtopologies.

        :param skipped: topics whose offsets are set, so that no record of them is left to be read.
        """
        admin = self._session.admin
        left = {tp: to for tp, to in written_to(seen.facts).items() if tp.topic not in skipped}
        if not left:
            return {}
        topics = {tp.topic for tp in left}
        there = described_partitions(admin.describe_topics(topics), topics)
        ends = admin.end_offsets([tp for tp in there if tp in left], isolation="read_uncommitted")
        return {str(tp): ends[tp] if left[tp] is None else left[tp] for tp in sorted(ends)}

    def _delete(self, record: ResetRecord) -> None:
        """Take rows out of tables, delete internal topics, wait until they are forgotten, and write that the
        reset is done.

        The group's coordinator forgets their offsets a moment later than the topics are gone. It must not
        forget what the next run commits for new topics of the same names.
        """
        tables = self._rows.remove(record.removing, keep=self._request.tables == "keep")
        self._session.admin.delete_topics(record.deleting)
        gone = all_partitions(record.deleting)
        deadline = self._clock.monotonic_seconds() + _FORGET_SECONDS
        while self._committed(gone) and self._clock.monotonic_seconds() < deadline:
            self._clock.sleep(_POLL_SECONDS)
        done = msgspec.structs.replace(record, stage=ResetStage.DONE, deleting={}, removing={})
        ledger = self._session.read_ledger().with_reset(done)
        ledger = dataclasses.replace(ledger, tables={**ledger.tables, **tables})
        self._session.write((), ledger=LedgerChange(ledger=ledger))
        self._written = done

    def _planned(self, seen: Survey) -> ResetPlan:
        if self._request.accept:
            return plan_acceptance(self._session, self._request, seen)
        pending = seen.ledger.unfinished_reset
        if (
            pending is None
            or pending.stage is ResetStage.STOPPING
            or pending.command != self._request.command
        ):
            return plan_reset(self._session, self._request, seen)
        return ResetPlan(request=self._request, deleted=pending.deleting, interrupted=pending.command)

    def _survey(self, look: Look = Look.CLAIMED) -> Survey:
        return survey(self._session, self._request, look)

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        with self._session.reading:
            return self._session.reader.committed(partitions) if partitions else {}

    def _refuse_overwritten(self, done: ResetPlan) -> None:
        """Raise if a member of the group, which cannot be removed, has committed its own offsets since."""
        if done.members:
            self._refuse_others_offsets({change.partition: change.after for change in done.offsets})

    def _refuse_others_offsets(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Raise if another program has committed other offsets than the reset.

        The same reset again is no way out: one that shifts offsets would shift the other program's.

        :raises RunBusyError: another program has.
        """
        moved = {
            tp: found.offset
            for tp, found in sorted(self._committed(sorted(wanted)).items())
            if found.offset != wanted[tp] and OffsetMetadata.decode(found.metadata).foreign
        }
        if not moved:
            return
        back: dict[int, list[TopicPartition]] = {}
        for tp in moved:
            back.setdefault(wanted[tp], []).append(tp)
        commands = [accept_command(self._app, tps, to_offset(at).option) for at, tps in sorted(back.items())]
        tp, at = next(iter(moved.items()))
        raise self._busy(
            f"a member of its consumer group has moved {tp} from {wanted[tp]} to {at}",
            fix="stop the members of the group, then let reading go on where the reset said: "
            + "; then ".join(commands),
        )

    def _busy(self, cause: str, *, fix: str) -> RunBusyError:
        return RunBusyError(f"application {self._app!r} cannot be reset: {cause}", fix=fix)


def _named(positions: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(tp): offset for tp, offset in sorted(positions.items())}


def _after_changes(seen: Survey, plan: ResetPlan) -> Ledger:
    """Return the ledger without what the new offsets and the end of changelogs make untrue, and with what is
    parked: offsets that are set say nothing of it any more.
    """
    ledger, forgotten = seen.ledger, {*plan.deleted, *plan.gone, *plan.released}
    again = {run.run_id for run in plan.rows_again}
    dropped = tuple(run for run in ledger.dropped if run.run_id not in again)
    ledger = dataclasses.replace(ledger, past=ledger.past.with_parked(plan.parked), dropped=dropped)
    if plan.groups_dropped:
        ledger = dataclasses.replace(ledger, assignment=_without(ledger.assignment, forgotten))
    if ledger.own_topics is not None:
        # The metadata topic holds nothing any more: the next run takes whichever there is.
        forgotten.add(ProtocolTopics(plan.request.application_id).metadata)
        kept = {t: own for t, own in ledger.own_topics.topics.items() if t not in forgotten}
        ledger = dataclasses.replace(ledger, own_topics=OwnTopics(topics=kept))
    return ledger


def _without(recorded: Assignment, deleted: Collection[str]) -> Assignment:
    """Return the partition groups without those of deleted changelogs; none when no changelog is left. The
    counts of topics stay.
    """

    def kept(entry: GroupedPartitions) -> GroupedPartitions:
        changelogs = {topic: topic_id for topic, topic_id in entry.changelogs.items() if topic not in deleted}
        return msgspec.structs.replace(entry, changelogs=changelogs)

    left = msgspec.structs.replace(
        recorded,
        version=recorded.version + 1,
        subtopologies={sub: kept(entry) for sub, entry in recorded.subtopologies.items()},
        former=tuple(entry for entry in map(kept, recorded.former) if entry.changelogs),
    )
    if any(entry.changelogs for entry in left.entries):
        return left
    return msgspec.structs.replace(NOTHING_RECORDED, topics=recorded.topics)
