"""Decides where each partition of a new slice starts and stops, and finds what is lost at its start.

Rule: ``[start, stop)`` with start = committed offset, else the stop offset of the last finished run, else the
first-run policy; stop = last stable offset, after a bounded wait for it to reach the high watermark read
first (a commit returns before its markers are written). Nothing is ever skipped silently: a start outside the
log is an error, and so is a partition that was read, if nothing says how far. What earlier runs left
is gathered in ``evidence/prior_runs.py``; ``data_loss.py`` words each loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set

from airflow_kstreams.batch.evidence.contradictions import find_rolled_back
from airflow_kstreams.batch.evidence.prior_runs import PriorRuns
from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.protocol.logs.data_loss import (
    Loss,
    deleted,
    forgotten,
    gone,
    moved_forward,
    recreated,
    slice_lost,
    truncated,
    vanished,
)
from airflow_kstreams.batch.protocol.logs.log_read import LogBounds
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicDescription, TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings


def freeze_inputs(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, settings: ApplicationSettings
) -> tuple[FrozenPartition, ...]:
    """Fix start and stop of every input partition, after :func:`find_losses` found none."""
    frozen: list[FrozenPartition] = []
    for tp, log_of in sorted(bounds.items()):
        start = start_of(tp, log_of, prior, settings)
        stop = max(start, log_of.stable)
        frozen.append(
            FrozenPartition(topic=tp.topic, partition=tp.partition, start_offset=start, stop_offset=stop)
        )
    return tuple(frozen)


def start_of(tp: TopicPartition, log_of: LogBounds, prior: PriorRuns, settings: ApplicationSettings) -> int:
    """Return where a partition's slice starts."""
    remembered = prior.remembered(tp)
    if remembered is not None:
        return remembered
    # A partition added to a topic that earlier runs read enters from its beginning, whatever the first-run
    # policy.
    added_later = prior.read.get(tp.topic, 0) or any(
        other.topic == tp.topic for other in (*prior.last_stops, *prior.committed)
    )
    if added_later or prior.foreign_run or settings.first_run_offsets == "earliest":
        return log_of.start
    return log_of.stable


def find_unfit(
    facts: RunFacts,
    bounds: Mapping[TopicPartition, LogBounds],
    prior: PriorRuns,
    topic_ids: Mapping[str, str],
    *,
    ahead: Sequence[Loss],
) -> list[Loss]:
    """Return where a new slice must not start: at offsets that ledger or changelogs contradict, or at what is
    gone.

    What would be lost at an offset that was rolled back does not matter: it was read. An offset beyond the
    log's end is named as what it is, truncation.

    :param bounds: of partitions whose slice starts at the committed offset.
    :param ahead: what changelogs know of later commits; where the ledger does, too, it says to which offsets.
    """
    inside = {tp: at for tp, at in prior.committed.items() if tp in bounds and at.offset <= bounds[tp].high}
    if prior.no_slice or prior.reset_by_hand:
        # What begun runs, whose slice is lost, have committed is refused as that, or was accepted by hand.
        inside = {tp: at for tp, at in inside.items() if facts.ledger.is_finished(prior.run_of(tp))}
    back = find_rolled_back(facts.application_id, facts.ledger, inside, {tp.topic for tp in bounds})
    named = {tp for loss in back for tp in loss.partitions}
    rest = {tp: log_of for tp, log_of in bounds.items() if tp not in named}
    return [*(back or ahead), *find_losses(rest, prior, topic_ids)]


def find_losses(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return what a new slice would have to read and that is gone, or not known to be unread.

    :param topic_ids: of the topics as they are now.
    """
    losses: list[Loss] = []
    for tp, log_of in sorted(bounds.items()):
        remembered = prior.remembered(tp)
        if _created_again(tp, prior, topic_ids):
            continue
        if remembered is None:
            if prior.was_read(tp) and log_of.start < log_of.high:
                losses.append(forgotten(tp, _evidence(tp, prior)))
        elif remembered < log_of.start:
            losses.append(deleted(tp, expected=remembered, log_start=log_of.start))
        elif remembered > log_of.high:
            why = "runs have processed it up to"
            losses.append(truncated(tp, expected=remembered, log_end=log_of.high, why=why))
    named = {tp for loss in losses for tp in loss.partitions}
    inside = {tp: log_of for tp, log_of in bounds.items() if tp not in named}
    losses += find_moved(inside, prior, topic_ids)
    return losses + find_recreated(bounds, prior, topic_ids)


def find_moved(
    bounds: Mapping[TopicPartition, LogBounds], prior: PriorRuns, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return the committed offsets that another program moved forward since the last run; see
    :mod:`airflow_kstreams.batch.evidence.moved_offsets`.

    :param bounds: of partitions whose slice starts at the committed offset, without those beyond the log.
    :param topic_ids: of the topics as they are now.
    """
    losses: list[Loss] = []
    for tp, log_of in sorted(bounds.items()):
        if tp not in prior.committed or prior.foreign_run or not prior.set_by_a_person(tp):
            continue
        last, by = _last_known(tp, prior, made_anew=_made_anew(tp, prior, topic_ids))
        at = prior.committed[tp].offset
        if last is not None and at > max(last, log_of.start):
            losses.append(moved_forward(tp, start=max(last, log_of.start), to=at, by=by))
    return losses


def find_lost_slice(prior: PriorRuns, application_id: str, *, finished: Callable[[str], bool]) -> list[Loss]:
    """Return the slice of a run that had begun, if nothing says any more where it stops.

    :param finished: says whether the ledger has a run as finished.
    """
    lost = prior.lost_slice(finished)
    return [slice_lost(lost, application_id, ProtocolTopics(application_id).metadata)] if lost else []


def find_recreated(
    partitions: Collection[TopicPartition], prior: PriorRuns, topic_ids: Mapping[str, str]
) -> list[Loss]:
    """Return the topics that runs have read and that are other ones now.

    :param topic_ids: of the topics as they are now.
    """
    again: dict[str, list[tuple[int, int]]] = {}
    for tp in sorted(partitions):
        if _created_again(tp, prior, topic_ids):
            read_to = prior.remembered(tp) or prior.last_stops.get(tp, 0)
            again.setdefault(tp.topic, []).append((tp.partition, read_to))
    return [
        recreated(topic, offsets, now=topic_ids[topic], before=prior.topic_ids[topic])
        for topic, offsets in again.items()
    ]


def find_vanished(topics: Set[str], found: Mapping[str, TopicDescription], prior: PriorRuns) -> list[Loss]:
    """Return the topics and partitions that runs have read and that are not there, unless a person accepted
    that by setting the offset of every partition that is there.

    :param topics: source topics that are not made by the engine.
    """
    losses: list[Loss] = []
    for topic in sorted(topics & prior.read.keys()):
        count = found[topic].partitions if topic in found else 0
        there = [TopicPartition(topic, number) for number in range(count)]
        missing = [TopicPartition(topic, number) for number in range(count, prior.read[topic])]
        if not missing or (there and all(map(prior.set_by_a_person, there))):
            continue
        offsets = [(tp.partition, prior.last_stops.get(tp)) for tp in missing]
        losses.append(vanished(topic, offsets, there) if there else gone(topic, offsets))
    return losses


def _created_again(tp: TopicPartition, prior: PriorRuns, topic_ids: Mapping[str, str]) -> bool:
    before = prior.topic_ids.get(tp.topic)
    accepted = prior.set_by_a_person(tp) or tp in prior.accepted
    if before is None or before == topic_ids[tp.topic] or accepted:
        return False
    return prior.remembered(tp) is not None or prior.was_read(tp)


def _evidence(tp: TopicPartition, prior: PriorRuns) -> str:
    if not prior.unfinished_run:
        return "runs have read it"
    if prior.continuous:
        return f"continuous run {prior.unfinished_run!r} had committed one"
    at_least = prior.last_stops.get(tp)
    return f"run {prior.unfinished_run!r} was under way when the metadata topic was lost" + (
        f", from offset {at_least} on" if at_least is not None else ""
    )


def _last_known(tp: TopicPartition, prior: PriorRuns, *, made_anew: bool) -> tuple[int | None, str]:
    """Return the last offset of a partition that is known to be of a run or an acceptance, and how it is
    known; None where no run has left a trace of the topic.
    """
    if tp in prior.accepted:
        return prior.accepted[tp].offset, "the ledger says that an operator had reading go on at"
    if made_anew:
        return 0, "the topic was created again since the last run, and its log starts at"
    if tp in prior.last_stops:
        endless = prior.unfinished_run if prior.continuous else ""
        by = f"continuous run {endless!r} started at" if endless else "runs have read the partition up to"
        return prior.last_stops[tp], by
    if prior.knows(tp.topic):
        return 0, "no run has read the partition, whose log starts at"
    return None, ""


def _made_anew(tp: TopicPartition, prior: PriorRuns, topic_ids: Mapping[str, str]) -> bool:
    before = prior.topic_ids.get(tp.topic)
    return before is not None and before != topic_ids[tp.topic]
