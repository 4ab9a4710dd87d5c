"""Checks the application's own state: lease, slice, and everything that the next begin would refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from airflow_kstreams.batch.evidence.complete_logs import ChangelogLogs, find_lost_state
from airflow_kstreams.batch.evidence.contradictions import refuse_unfit_progress
from airflow_kstreams.batch.evidence.known_applications import has_topics, ids_alike
from airflow_kstreams.batch.evidence.moved_offsets import say_members
from airflow_kstreams.batch.evidence.prior_runs import find_rewritten, recall, with_committed
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.evidence.topic_owners import Neighbours, known_topics, refuse_foreign
from airflow_kstreams.batch.inspect.doctor.findings import DoctorView
from airflow_kstreams.batch.inspect.doctor.looks import Finding, Level, error, not_permitted, ok, warning
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.protocol.logs.data_loss import Loss, data_loss
from airflow_kstreams.batch.protocol.logs.log_read import OpenTransactionError, log_bounds, warnings_of
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.protocol.slice.stops import partitions_of, slice_starts
from airflow_kstreams.batch.protocol.topics import internal_settings, refuse_other_topics
from airflow_kstreams.batch.report.results import iso_of
from airflow_kstreams.batch.run.begin.freeze import find_lost_slice, find_unfit
from airflow_kstreams.batch.run.begin.groundwork import find_vanished
from airflow_kstreams.batch.run.begin.left_unread import dropped_inputs, refuse_unread
from airflow_kstreams.batch.run.coordinator_session import CoordinatorSession
from airflow_kstreams.batch.task.work import refuse_slice_loss
from airflow_kstreams.streams.errors import DataLossError, KafkaClientError, TopologyError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.partitioning.partition_groups import described_partitions
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, ReaderPort


def check(seen: DoctorView) -> Iterator[Finding]:
    """Check the run that is under way, and everything that the next begin would check."""
    yield from _open_transactions(seen)
    app, sources = seen.plan.application_id, seen.plan.sources
    with closing(seen.cluster.reader(group_id=app)) as reader:
        read = partial(
            RunFacts.read,
            seen.cluster,
            app,
            admin=seen.admin,
            reader=reader,
            sources=sources,
            clock=seen.clock,
        )
        # Read again, after all that may have taken its time.
        try:
            facts = read(metadata_wait_ms=1)
        except OpenTransactionError as hidden:
            yield warning("metadata topic", "metadata-hidden", hidden.cause, hidden.fix)
            facts = read()
        yield from _known(seen, facts)
        yield from _state(facts, now_ms=seen.clock.now_ms())
        yield from _members(seen)
        yield from _foreign_topics(seen, reader, facts)
        yield from _left_unread(seen, facts)
        found = _losses(seen, reader, facts)
        again = read()
        if found.level is Level.ERROR and again != facts:
            # Runs went on between the looks, so the facts that were compared are not of one moment.
            found = _losses(seen, reader, again)
        yield found


def _known(seen: DoctorView, facts: RunFacts) -> Iterator[Finding]:
    """Look whether the cluster knows the application, or its id may be misspelt."""
    app, topics = seen.plan.application_id, seen.admin.topic_names()
    if facts.last_work is not None or has_topics(app, topics):
        return
    text = f"no run of application {app!r} has begun on this cluster"
    if seen.subject.first_run:
        yield ok("application", f"{text}: its first one begins without state")
    else:
        yield error(
            "application",
            "application-unknown",
            text,
            f"correct --application-id{ids_alike(app, topics)} or --bootstrap-server; before its first run "
            "say --first-run",
        )


def _state(facts: RunFacts, *, now_ms: int) -> Iterator[Finding]:
    """Report the driver that works on the application, and the run that is unfinished."""
    ledger = facts.ledger
    lease = ledger.held_lease
    if lease is not None:
        yield ok(
            "lease",
            f"{lease.owner} holds it for run {lease.owner_run_id!r} and renewed it last at "
            f"{iso_of(ledger.lease_written_ms)}; if it is dead, the next run waits as long as a lease lasts",
        )
    else:
        yield ok("lease", "no driver holds it")
    slice_ = facts.under_way
    if slice_ is not None:
        age = duration_text(max(0, now_ms - slice_.plan.begun_ms))
        yield warning(
            "slice",
            "run-unfinished",
            f"run {slice_.run_id!r} began {age} ago and is not finished",
            "run it again: it goes on with the same stop offsets; the next run finishes it first in any case",
        )
    else:
        yield ok("slice", f"{facts.state.value}; finished runs in the ledger: {ledger.past.finished}")


def _members(seen: DoctorView) -> Iterator[Finding]:
    """Look for other programs that use the group."""
    app = seen.plan.application_id
    try:
        members = seen.admin.group_members(app)
    except KafkaClientError as refused:
        yield not_permitted(f"the members of consumer group {app}", refused)
        return
    if members:
        yield warning(
            "group members",
            "group-has-members",
            say_members(members, app),
            "stop them, or give them another group.id",
        )
    else:
        yield ok("group members", "none: no other program uses the consumer group")


def _foreign_topics(seen: DoctorView, reader: ReaderPort, facts: RunFacts) -> Iterator[Finding]:
    """Find internal topics that are another application's."""
    neighbours = Neighbours(cluster=seen.cluster, admin=seen.admin, reader=reader, clock=seen.clock)
    found = seen.admin.describe_topics(internal_settings(seen.plan))
    try:
        refuse_foreign(neighbours, seen.plan, found, known_topics(facts))
    except TopologyError as refused:
        yield error("topics", "topic-of-another", refused.cause, refused.fix)


def _left_unread(seen: DoctorView, facts: RunFacts) -> Iterator[Finding]:
    """Find records between subtopologies that the topology would leave behind. A slice under way is worked on
    to its end first, and a continuous run that still works reads them itself.
    """
    check = "records between subtopologies"
    if facts.under_way is not None:
        return
    with closing(CoordinatorSession(seen.cluster, seen.subject.settings, clock=seen.clock)) as session:
        try:
            refuse_unread(session, seen.plan, facts)
        except TopologyError as refused:
            found = error if facts.ledger.held_lease is None else warning
            yield found(check, "records-left-behind", refused.cause, refused.fix)
        else:
            yield ok(check, "each topic that holds unread ones is read by the topology")
        for text in dropped_inputs(session, seen.plan, facts):
            yield warning(
                "inputs",
                "input-dropped",
                text,
                "let the code of before run once more if they are to be processed",
            )


def _losses(seen: DoctorView, reader: ReaderPort, facts: RunFacts) -> Finding:
    """Find losses that the next begin, or the next attempt of the slice under way, would refuse."""
    try:
        losses = facts.disagreements()
        if facts.under_way is not None:
            if not losses:
                _refuse_in_slice(seen.admin, reader, facts.under_way)
        else:
            logs, lost = _state_logs(seen, facts.ledger)
            losses += lost
            losses += _between_runs(seen, reader, facts, _ahead(seen, reader, facts.ledger, logs))
        if losses:
            raise data_loss(losses, seen.plan.application_id, run_id="")
    except DataLossError as loss:
        return error("data loss", "data-lost", loss.cause, loss.fix)
    return ok(
        "data loss", "every position that is to be read is in its log, topics are those of the last run"
    )


def _state_logs(seen: DoctorView, ledger: Ledger) -> tuple[ChangelogLogs, list[Loss]]:
    """Check by starts and ends that changelogs are whole."""
    found = seen.admin.describe_topics(seen.plan.changelogs)
    ids = {topic: description.topic_id for topic, description in found.items()}
    counts = {topic: description.partitions for topic, description in found.items()}
    logs = ChangelogLogs.read(seen.admin, ids, counts)
    return logs, find_lost_state(seen.plan, ledger, found) or logs.find_truncated(seen.plan, ledger)


def _ahead(seen: DoctorView, reader: ReaderPort, ledger: Ledger, logs: ChangelogLogs) -> list[Loss]:
    """Check that changelogs hold no later commit than the offsets, which are read after them."""
    committed = reader.committed(described_partitions(seen.topics, seen.plan.sources))
    return logs.find_ahead(ledger, committed, seen.admin, reader, clock=seen.clock)


def _refuse_in_slice(admin: AdminPort, reader: ReaderPort, slice_: Slice) -> None:
    """Check the inputs; the stops of intermediates are not known before their writers are done."""
    partitions = partitions_of(slice_, slice_.plan.topology.inputs)
    committed = reader.committed(partitions)
    starts = slice_starts(slice_)
    spans = {
        part.topic_partition: (
            committed.get(part.topic_partition, CommittedOffset(starts[part.topic_partition])).offset,
            part.stop_offset,
        )
        for part in slice_.inputs
    }
    refuse_other_topics(admin, slice_, slice_.plan.changelog_ids)
    refuse_slice_loss(admin, slice_, spans)
    to_read = {tp: (at, stop) for tp, (at, stop) in spans.items() if at < stop}
    refuse_unfit_progress(slice_, to_read, committed, admin)


def _between_runs(
    seen: DoctorView, reader: ReaderPort, facts: RunFacts, ahead: Sequence[Loss]
) -> Sequence[Loss]:
    plan, admin = seen.plan, seen.admin
    prior = recall(plan, facts)
    found = admin.describe_topics(plan.sources)
    partitions = described_partitions(found, plan.sources)
    committed = reader.committed(partitions)
    vanished = find_vanished(
        {*plan.sources} - {*plan.repartition_topics}, found, dataclasses.replace(prior, committed=committed)
    )
    if vanished:
        return vanished
    ids = {topic: description.topic_id for topic, description in found.items()}
    # A topic that does not exist is created by begin; it has no partitions to look at.
    topic_ids = {topic: ids.get(topic, "") for topic in plan.sources}
    prior = with_committed(prior, committed, plan, topic_ids, partitions=partitions)
    losses = find_lost_slice(prior, plan.application_id, finished=facts.ledger.is_finished)
    bounds = log_bounds(admin, partitions, settle_ms=0, clock=seen.clock)
    losses += find_unfit(facts, bounds, prior, ids, ahead=ahead)
    return losses or find_rewritten(admin, reader, bounds, prior, clock=seen.clock)


def _open_transactions(seen: DoctorView) -> Iterator[Finding]:
    """Find transactions that hold the last stable offset of a source back."""
    partitions = described_partitions(seen.topics, seen.plan.sources)
    bounds = log_bounds(seen.admin, partitions, settle_ms=0, clock=seen.clock)
    held = {tp: (log_of.stable, log_of.high) for tp, log_of in bounds.items() if log_of.stable < log_of.high}
    for text in warnings_of(seen.cluster, held, group_id=seen.plan.application_id, clock=seen.clock):
        what, _, remedy = text.partition(" (find the producer")
        yield warning(
            "open transactions",
            "transaction-open",
            what,
            f"nothing if it is young; else find the producer{remedy[:-1]}",
        )
    if not held:
        yield ok("open transactions", f"none on {counted(len(bounds), 'partition')}")
