"""Asks the ledger of the live application for facts that one of its backfills cannot know by itself: the
partition counts by which keys are placed, and the offsets at which a data interval began.

Rule: no record of an interval lies before the stop offset of a run that began before the interval did, for it
was not written then, nor before the stop of one that was cut by time no later than that. Everything behind
the stop of a run that began after the interval did, or was cut by time no earlier, came with the interval or
later. A topic that was made anew since is another one, and nothing is known of it.

The offsets of a run are details, which a ledger keeps for a while only; of older runs nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from airflow_kstreams.batch.ledger.facts import Assignment
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.streams.ports import TopicPartition

#: Entries that a search for the run before an interval reads, at most: each is a fetch.
_LOOKED_AT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInterval:
    """The place of a data interval in the logs, as the live application's runs have read it.

    :param run_id: the live run of exactly that interval; empty if none has finished, or its offsets are not
        kept.
    :param ended: partition -> the stop offset of that run.
    :param made_anew: topic that was created again since that run -> the id it had then.
    :param before: partition -> an offset before which lies no record of the interval, where one is known.
    :param begun: partition -> an offset from which on every record came with the interval or later, where one
        is known.
    """

    run_id: str = ""
    ended: Mapping[TopicPartition, int] = field(default_factory=dict)
    made_anew: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[TopicPartition, int] = field(default_factory=dict)
    begun: Mapping[TopicPartition, int] = field(default_factory=dict)


def find_live_interval(
    live: Ledger, interval_ms: tuple[int, int], topic_ids: Mapping[str, str]
) -> LiveInterval:
    """Return the place of a data interval in the logs, by the ledger of a live application.

    :param topic_ids: topic -> its id now.
    """
    start_ms = interval_ms[0]
    of_interval = live.find_interval(interval_ms)
    run = None if of_interval is None else live.detailed(of_interval)
    before: RunSummary | None = None
    begun: RunSummary | None = None
    for each in islice(_backwards(live, of_interval or live.last()), _LOOKED_AT):
        if _reached(each, start_ms):
            begun = each
        if _ended_by(each, start_ms):
            before = each
            break
    return LiveInterval(
        run_id="" if run is None or not run.inputs else run.run_id,
        ended=_stops(live, run, topic_ids),
        made_anew={
            topic: id_
            for topic, id_ in ({} if run is None else run.topic_ids).items()
            if topic_ids.get(topic, id_) != id_
        },
        before=_stops(live, before, topic_ids),
        begun=_stops(live, begun, topic_ids),
    )


def with_live_counts(recorded: Assignment, live: Ledger) -> Assignment:
    """Return an assignment with the counts of topics that the live application's runs have read, where the
    own ones have not.
    """
    return msgspec.structs.replace(recorded, topics={**live.assignment.topics, **recorded.topics})


def _backwards(live: Ledger, run: RunSummary | None) -> Iterator[RunSummary]:
    if run is not None:
        yield run
        yield from live.before(run)


def _ended_by(run: RunSummary, moment_ms: int) -> bool:
    """Whether all records that a run read were written, or are dated, before a moment."""
    return run.begun_ms <= moment_ms or _read_up_to(run) <= moment_ms


def _reached(run: RunSummary, moment_ms: int) -> bool:
    """Whether the records that a run left for the next were written, or are dated, after a moment."""
    return _read_up_to(run) >= moment_ms


def _read_up_to(run: RunSummary) -> int:
    """Return the moment that divides the records that a run read from those that it left."""
    if run.autostop_at == "interval_end" and run.interval_ms is not None:
        return run.interval_ms[1]
    return run.begun_ms


def _stops(live: Ledger, run: RunSummary | None, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    if run is None:
        return {}
    detailed = live.detailed(run)
    return {
        part.topic_partition: part.stop_offset
        for part in detailed.inputs
        if detailed.topic_ids.get(part.topic) == topic_ids.get(part.topic)
    }
