"""Compares the statements of the metadata topic, the ledger and the committed offsets on the same fact.

Rule: begin, finish and reset write each fact to all of its places in one transaction. So the places agree
whenever no transaction is open, whichever line a process died at. Where two disagree one of them is not as it
was written: truncated, restored from a backup, or set by a tool that copied our metadata, too. Begin trusts
none of them: it refuses and names both. A fact that a place does not hold, because it expired or because a
person set an offset (without our metadata), is unknown there and contradicts nothing.

====================  ===============================  ===============================  =====================
fact                  stands in                        disagreement, all refused        found by
====================  ===============================  ===============================  =====================
run is finished       metadata: finished marker;       marker without summary: ledger   contradictions
                      ledger: summary                  lost; summary without marker:
                                                       metadata truncated
which run is last     metadata: marker's run; ledger:  metadata names an older one:     contradictions
                      last summary, reset after it,    truncated; or ledger is
                      lease
its slice             metadata: stop set, plan;        same run id, other begin,        contradictions
                      ledger: summary                  starts, or earlier stops
some run has begun    metadata: marker; ledger: id of  nothing in the metadata topic    ``complete_logs``
                      the metadata topic, lease;       though it was written; begun     ``find_lost_slice``
                      offsets: run id                  and not finished: slice lost     rolled back
slice under way       metadata: stop set; offsets:     offset of another run, of        foreign progress
                      run id, stop set, position       another stop set, outside of
                                                       ``[start, stop)``
where it starts       metadata: starts, and which      start is neither where the       contradictions
                      of them were moved on purpose;   ledger was nor known as moved
                      ledger: last stops or reset
where the next one    offsets: position, run id;       offset of an older run, or not   rolled back
starts                ledger: last stops or reset      where its own run ended
what state goes with  offsets, ledger: ends of         changelog holds a record behind  ``find_ahead``,
an offset             changelogs; the changelogs       them, or ends before them        ``complete_logs``,
                                                                                        ``ChangelogEvidence``
generation            metadata: marker; ledger: lease  other number, or no lease        contradictions
partition groups and  metadata: plan; ledger:          other groups, other ids          contradictions
ids of changelogs     checkpoint
ids of other topics   metadata: plan; ledger:          other id                         ``find_losses``,
                      checkpoint; broker                                                ``refuse_foreign``,
                                                                                        ``complete_logs``
id and end of the     metadata: plan; broker           other id, earlier end            ``complete_logs``
ledger
====================  ===============================  ===============================  =====================

Legal, because it is on purpose or because nothing is known:

- a person, or another tool, sets offsets between two runs, back, or forward over records that are gone: they
  carry no metadata of ours. The run's warnings say of those that were set back. Over records, and within a
  slice, only ``reset --accept`` sets them (:mod:`airflow_kstreams.batch.evidence.moved_offsets`);
- ``airflow-kstreams reset``: its record in the ledger takes the place of the last stops, and the metadata
  topic is empty. Runs that it took back are not finished. A slice that it dropped leaves offsets of a run
  that the ledger does not know, at or past the last stop;
- a continuous run: the metadata topic is void, and offsets are the only place of its progress;
- offsets that expired: the ledger takes their place;
- a slice that another program wrote in the bare format carries none of this;
- a crash in a reset or in a continuous start, whose transactions leave the metadata topic empty or void.

Each row, and each of these, has its test in ``tests/unit/batch/evidence/test_contradictions.py``; topics that
are not whole or are other ones, in ``test_complete_logs.py`` beside it and in
``tests/unit/batch/run/test_losses_between_runs.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.logs.data_loss import (
    Loss,
    cut_before_slice,
    data_loss,
    drop_slice,
    moved_forward,
    not_whole,
    progress_lost,
    rolled_back,
    taken_back,
)
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition, Slice
from airflow_kstreams.batch.protocol.slice.stops import slice_starts
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import AdminPort, CommittedOffset, TopicPartition


def find_contradictions(application_id: str, ledger: Ledger, folded: Folded) -> list[Loss]:
    """Return the facts in which the metadata topic and the ledger disagree; the first one stands for all.

    :param folded: content of the metadata topic; NEW where a continuous run has made it void.
    """
    if folded.slice is None:
        return []
    said = _of_running(ledger, folded.slice) if folded.state is RunState.RUNNING else None
    said = _of_finished(ledger, folded, folded.slice) if said is None else said
    topic = ProtocolTopics(application_id).metadata
    # The first contradiction is named alone: the others only follow from it.
    text = next(said, None) or next(_of_both(ledger, folded.slice), None)
    return [] if text is None else [not_whole(topic, f" says that run {text}", application_id=application_id)]


def find_foreign_progress(
    slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset], admin: AdminPort
) -> list[Loss]:
    """Return the committed offsets that cannot be of a slice that is under way.

    :param committed: committed offsets of the slice's partitions.
    :param admin: gives the bounds of logs, where an offset does not fit.
    """
    starts = slice_starts(slice_)
    stops = {part.topic_partition: part.stop_offset for part in slice_.inputs}
    losses: list[Loss] = []
    for tp, offset in sorted(committed.items()):
        found = OffsetMetadata.decode(offset.metadata)
        at, start, stop = offset.offset, starts.get(tp, 0), stops.get(tp)
        reads = f"from {start} on" if stop is None else f"[{start}, {stop})"
        under_way = f"the metadata topic says that run {slice_.run_id!r} is under way, which reads {reads}"
        beyond = stop is not None and at > stop
        if found.run_id not in ("", slice_.run_id):
            text = f"{tp}: run {found.run_id!r} has committed its offset {at}, but {under_way}"
        elif found.stop_set and slice_.stop_set and found.stop_set != slice_.stop_set:
            text = f"{tp}: its offset {at} was committed with other stop offsets of the run, but {under_way}"
            beyond = True
        elif at < start or (beyond and found.run_id):
            text = f"{tp}: its committed offset is {at}, but {under_way}"
        else:
            continue
        if beyond:
            losses.append(drop_slice(text, slice_.plan.topology.application_id))
        elif (log_end := admin.end_offsets([tp], isolation="read_committed")[tp]) < start:
            losses.append(
                cut_before_slice(
                    tp, application_id=slice_.plan.topology.application_id, log_end=log_end, text=text
                )
            )
        else:
            losses.append(taken_back(tp, to=max(at, start), text=text))
    # Begin commits no start of an empty slice, but its end.
    begun = starts | (stops if slice_.plan.empty else {})
    return losses + find_moved_under_way(begun, committed, admin, run_id=slice_.run_id)


def find_moved_under_way(
    starts: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommittedOffset],
    admin: AdminPort,
    *,
    run_id: str,
) -> list[Loss]:
    """Return the committed offsets that another program moved forward while a run is under way.

    :param starts: partition -> the offset at which the run started.
    :param run_id: id of the slice's run, or of the continuous run.
    """
    ahead = {
        tp: offset.offset
        for tp, offset in sorted(committed.items())
        if offset.offset > starts.get(tp, 0) and OffsetMetadata.decode(offset.metadata).foreign
    }
    log_starts = admin.start_offsets(ahead) if ahead else {}
    return [
        moved_forward(
            tp,
            start=max(starts.get(tp, 0), log_starts[tp]),
            to=at,
            by=f"run {run_id!r} is under way, and reads from",
            run=run_id,
        )
        for tp, at in ahead.items()
        if at > log_starts[tp]
    ]


def refuse_unfit_progress(
    slice_: Slice,
    to_read: Mapping[TopicPartition, tuple[int, int | None]],
    committed: Mapping[TopicPartition, CommittedOffset],
    admin: AdminPort,
) -> None:
    """Refuse to go on with a slice whose committed offsets are gone, or are not of it.

    Begin commits the start of every partition, so that an offset that is not there was there.

    :param to_read: partition -> start and stop of what the slice still has to read, the stop None where it is
        not known yet. A lost offset of any other partition loses nothing.
    :param committed: committed offsets of the slice's partitions.
    :param admin: gives the starts of logs, as for :func:`find_foreign_progress`.
    :raises DataLossError: an offset is gone, or cannot be of the slice.
    """
    lost = [
        progress_lost(tp, start=start, stop=stop, run_id=slice_.run_id)
        for tp, (start, stop) in sorted(to_read.items())
        if tp not in committed
    ]
    losses = lost or find_foreign_progress(slice_, committed, admin)
    if losses:
        raise data_loss(losses, slice_.plan.topology.application_id, run_id=slice_.run_id)


def find_rolled_back(
    application_id: str,
    ledger: Ledger,
    committed: Mapping[TopicPartition, CommittedOffset],
    topics: Collection[str],
) -> list[Loss]:
    """Return the committed offsets that are not those with which the last run ended; between two runs.

    :param committed: committed offsets, without those of topics that were created again since.
    :param topics: names of the source topics.
    """
    newest, left_at = ledger.left(topics), ledger.left_at(topics)
    losses: list[Loss] = []
    for tp, offset in sorted(committed.items()):
        run_id, at, left = OffsetMetadata.decode(offset.metadata).run_id, offset.offset, left_at.get(tp)
        if not run_id or left is None:
            continue
        if ledger.reset is not None:
            if at != left:
                losses.append(rolled_back(tp, at=at, run_id=run_id, left=left, by="a reset left it"))
            continue
        last_id, last = newest[tp.topic].run_id, ledger.last()
        is_last = last is not None and last.run_id == last_id
        if not ledger.is_finished(run_id) and is_last and ledger.current_continuous is None:
            # Finish has committed every offset of its run again.
            text = (
                f"{tp}: run {run_id!r} has committed its offset {at}, but the metadata topic and the ledger "
                f"say that run {last_id!r} was finished last"
            )
            losses.append(drop_slice(text, application_id))
        elif _is_rolled_back(ledger, last_id, run_id, at=at, left=left):
            by = f"run {last_id!r}, which read it last, stopped"
            losses.append(rolled_back(tp, at=at, run_id=run_id, left=left, by=by))
    return losses


def _is_rolled_back(ledger: Ledger, last_id: str, run_id: str, *, at: int, left: int) -> bool:
    """Whether an offset is not the one with which the last run that read its topic ended."""
    if run_id != last_id and ledger.is_finished(run_id):
        return True
    if ledger.current_continuous is not None:
        # How far it came stands in the offsets alone.
        return False
    # A topic that the topology left out may have the offset of a run that was dropped, never a smaller one.
    return at != left if run_id == last_id else at < left


def _of_running(ledger: Ledger, slice_: Slice) -> Iterator[str]:
    """Return the facts that contradict a run's being under way."""
    run = f"{slice_.run_id!r} is under way, but the ledger says that"
    if ledger.is_finished(slice_.run_id):
        yield f"{run} it is finished"
    lease = ledger.lease
    if lease is None and slice_.generation:
        # It was written with the marker, and only a reset, which leaves no slice, takes it away.
        yield f"{slice_.run_id!r} was claimed by a driver, but the ledger has no lease"
    if slice_.plan.kept_ms is not None:
        return
    moved = slice_.plan.moved_starts
    left_at = ledger.left_at({part.topic for part in slice_.inputs})
    for part in slice_.inputs:
        tp = part.topic_partition
        known, expected = left_at.get(tp), moved.get(str(tp), part.start_offset)
        if (known is not None and known != expected) or (known is None and str(tp) in moved):
            was = "" if expected == part.start_offset else f", when {expected} was where runs had stopped"
            last = ledger.last()
            by = "a reset" if ledger.reset is not None else f"run {'' if last is None else last.run_id!r}"
            yield (
                f"{slice_.run_id!r} starts at {part.start_offset} in {tp}{was}, but the ledger says "
                f"{'nothing of it' if known is None else f'that {by} left it at {known}'}"
            )


def _of_finished(ledger: Ledger, folded: Folded, slice_: Slice) -> Iterator[str]:
    """Return the facts that contradict a run's being the one that finished last."""
    run = f"{slice_.run_id!r} was finished last, but the ledger"
    last, summary = ledger.last(), ledger.find(slice_.run_id)
    if summary is None:
        if ledger.is_taken_back(slice_.run_id):
            yield f"{run} says that a reset took it back"
        yield f"{run} does not know it" + ("" if last is None else f", its last run is {last.run_id!r}")
    elif last is not None and last.run_id != slice_.run_id:
        yield f"{run} says that run {last.run_id!r} was finished after it"
    elif ledger.reset is not None:
        yield f"{run} says that the application was reset after it"
    elif ledger.lease is not None and not _is_over(ledger, ledger.lease.slice_run_id):
        yield f"{run} says that a driver works on run {ledger.lease.slice_run_id!r}, which is not finished"
    else:
        yield from _of_other_slice(ledger, folded, slice_, summary)


def _is_over(ledger: Ledger, slice_run_id: str) -> bool:
    return not slice_run_id or ledger.is_finished(slice_run_id)


def _of_other_slice(ledger: Ledger, folded: Folded, slice_: Slice, summary: RunSummary) -> Iterator[str]:
    run = f"{slice_.run_id!r}"
    begun, known_begun = slice_.plan.begun_ms, summary.begun_ms
    if begun != known_begun:
        yield f"{run} began at {begun} (epoch ms), but the ledger says at {known_begun}"
    if folded.torn:
        return
    known = {
        part.topic_partition: part
        for topic, left in ledger.left({part.topic for part in slice_.inputs}).items()
        if left.run_id == summary.run_id
        for part in left.read(topic)
    }
    for part in slice_.inputs:
        other = known.get(part.topic_partition)
        # A person may have moved it past its stop, which is its stop then.
        if other is None or other.start_offset != part.start_offset or other.stop_offset < part.stop_offset:
            yield f"{run} read {_span(part)} of {part.topic_partition}, but the ledger says {_span(other)}"


def _of_both(ledger: Ledger, slice_: Slice) -> Iterator[str]:
    """Return the facts that contradict a slice, finished or not."""
    run, plan, lease = f"{slice_.run_id!r}", slice_.plan, ledger.lease
    if lease is not None and lease.slice_run_id == slice_.run_id and lease.generation != slice_.generation:
        yield f"{run} has generation {slice_.generation}, but the ledger's lease has {lease.generation}"
    if plan.empty or not ledger.assignment.version:
        return
    recorded = ledger.assignment.subtopologies
    for sub in plan.topology.subtopologies:
        changelogs = {topic: plan.changelog_ids.get(topic) for topic in sub.changelogs.values()}
        entry = recorded.get(str(sub.id))
        if changelogs and (entry is None or entry.changelogs != changelogs):
            found = "none" if entry is None else dict(sorted(entry.changelogs.items()))
            yield f"{run} has changelogs {dict(sorted(changelogs.items()))}, but the ledger has {found}"
        elif changelogs and entry is not None and entry.groups != plan.groups.get(str(sub.id), ()):
            yield f"{run} has other partition groups of subtopology {sub.id} than the ledger"


def _span(part: FrozenPartition | None) -> str:
    return "nothing" if part is None else f"[{part.start_offset}, {part.stop_offset})"
