"""Makes the document of ``reset``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from airflow_kstreams.batch.protocol.offsets.parked import parked_total
from airflow_kstreams.batch.reset.reset_plan import ResetPlan


class ResetOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A committed offset that is set.

    :param topic: the topic.
    :param partition: the partition.
    :param before: offset at which the next run would have started; null if it is not known.
    :param asked: offset that was asked for, which the log may not hold.
    :param after: offset at which the next run starts.
    :param intermediate: whether records between subtopologies are skipped.
    """

    topic: str
    partition: int
    before: int | None
    asked: int
    after: int
    intermediate: bool


class ResetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A reset, or the plan of one.

    :param application_id: the application.
    :param dry_run: whether nothing was done.
    :param offsets: committed offsets that are set.
    :param deleted_topics: internal topics that are deleted -> their partition counts.
    :param gone_topics: internal topics that runs have recorded, and that do not exist.
    :param kept_topics: topics that the application reads and the reset leaves alone.
    :param ambiguous_topics: topics that are left alone because they may belong to another application -> its
        id.
    :param taken_back_runs: finished runs that may run again.
    :param rows_again: runs whose records are read again -> the tables that have their rows.
    :param rows_removed: whether these rows are taken out of the tables; else they come again.
    :param dropped_run: run whose unfinished slice is dropped, empty when another program wrote it; null if
        none is.
    :param finished_run: run that was to be dropped, and was finished instead, because its rows were in a
        table; empty if there is none.
    :param metadata_keys: number of markers and stop offsets that are deleted.
    :param partition_groups_dropped: whether partition groups go with their changelogs.
    :param unread_given_up: topic -> its records that no run has read and that are given up.
    :param parked_given_up: node -> its parked records that are given up; null where their number is not
        known.
    :param lease_owner: driver whose lease is taken away; null without one.
    :param group_members: members of the consumer group, which stay and may move the offsets again.
    :param interrupted: an earlier reset that is completed first; empty if there is none.
    :param ledger_repaired: whether the ledger is written anew.
    :param lost: what of the ledger is not known any more.
    """

    application_id: str
    dry_run: bool
    offsets: Sequence[ResetOffset]
    deleted_topics: Mapping[str, int]
    gone_topics: Sequence[str]
    kept_topics: Sequence[str]
    ambiguous_topics: Mapping[str, str]
    taken_back_runs: Sequence[str]
    rows_again: Mapping[str, Sequence[str]]
    rows_removed: bool
    dropped_run: str | None
    finished_run: str
    metadata_keys: int
    partition_groups_dropped: bool
    unread_given_up: Mapping[str, int]
    parked_given_up: Mapping[str, int | None]
    lease_owner: str | None
    group_members: Sequence[str]
    interrupted: str
    ledger_repaired: bool
    lost: Sequence[str]


def reset_document(plan: ResetPlan, *, dry_run: bool) -> ResetDocument:
    """Make the document of a reset."""
    return ResetDocument(
        application_id=plan.request.application_id,
        dry_run=dry_run,
        offsets=[
            ResetOffset(
                topic=change.partition.topic,
                partition=change.partition.partition,
                before=change.before,
                asked=change.asked,
                after=change.after,
                intermediate=change.intermediate,
            )
            for change in plan.offsets
        ],
        deleted_topics=plan.deleted,
        gone_topics=plan.gone,
        kept_topics=plan.kept,
        ambiguous_topics=plan.ambiguous,
        taken_back_runs=plan.taken_back,
        rows_again={run.run_id: sorted(run.tables) for run in plan.rows_again},
        rows_removed=plan.request.tables == "remove",
        dropped_run=plan.dropped_run,
        finished_run=plan.finished_run,
        metadata_keys=plan.metadata_keys,
        partition_groups_dropped=plan.groups_dropped,
        unread_given_up=plan.unread,
        parked_given_up=parked_total(plan.given_up),
        lease_owner=None if plan.lease is None else plan.lease.owner,
        group_members=[*map(str, plan.members)],
        interrupted=plan.interrupted,
        ledger_repaired=plan.repaired,
        lost=plan.lost,
    )
