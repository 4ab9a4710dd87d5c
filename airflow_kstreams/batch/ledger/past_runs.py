"""Holds the facts of earlier runs that a run must know; each run updates them, so that no run reads history.

For every topic that was ever read: where the run that read it last left it. Of the runs: how many have
finished, the last one, the last few that a reset took back, and the index by which any other is found.

The index is a tree by the hash of the run id, whose pages hold offsets of entries in the ledger. A page is a
leaf, which gives offsets of entries by hash, or has a page for each next digit of the hash. A leaf that grows
beyond what it may hold becomes a page of leaves. Each page is a record of the ledger under the digits that
lead to it; the root is in the checkpoint. An insertion writes the pages on its path anew, each after those
that it points to.

A hash is no proof, and neither is an offset: a reader that looks up an entry compares its key, and one that
follows a pointer to a page compares the digits.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from airflow_kstreams.batch.ledger.run_summary import RunSummary, by_topic, times_by_topic
from airflow_kstreams.batch.protocol.offsets.offset_metadata import group_of
from airflow_kstreams.batch.protocol.offsets.parked import Parked
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.streams.plan import PartitionCount
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import PartitionTimes

INDEX_KEY = "__index__/"

#: Entries of a leaf; 64 leaves make a page full, too: one digit has 64 values.
LEAF_ENTRIES = 64
_HASH_BYTES = 9


class IndexPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of the index.

    :param runs: of a leaf: hash -> offsets of the entries with this hash; more than one only where hashes are
        equal.
    :param pages: of any other page: next digit of the hash -> offset of that page's record.
    """

    runs: dict[str, tuple[int, ...]] = {}
    pages: dict[str, int] = {}


class IndexChange(NamedTuple):
    """An entry that was written.

    :param digest: hash of the run id, or of the data interval, by which the entry is found.
    :param offset: offset of the entry's record.
    :param replaced: offset of the entry that it replaces, -1 if there was none.
    """

    digest: str
    offset: int
    replaced: int = -1


class WrongHintError(Exception):
    """An offset has no record, one with another key, or one that does not fit what points to it."""


#: Returns the page whose key is some digits, given the offset that points to it.
LoadPage = Callable[[str, int], IndexPage]


def digest_of(text: str) -> str:
    """Return the hash of the text by which an entry is found, as digits."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).digest()).decode()


def digest_of_interval(interval_ms: tuple[int, int]) -> str:
    """Return the hash of a data interval; no run id is like its text."""
    return digest_of("__interval__/{}/{}".format(*interval_ms))


def look_up(root: IndexPage, digest: str, load: LoadPage) -> tuple[int, ...]:
    """Return the offsets of the entries whose run id or data interval may have this hash.

    :raises WrongHintError: pages follow one another beyond the hash.
    """
    page, depth = root, 0
    while page.pages:
        depth += 1
        if depth > len(digest):
            raise WrongHintError
        if digest[depth - 1] not in page.pages:
            return ()
        page = load(digest[:depth], page.pages[digest[depth - 1]])
    return page.runs.get(digest, ())


def updated(
    root: IndexPage, changes: Iterable[IndexChange], load: LoadPage, *, first_offset: int
) -> tuple[IndexPage, list[tuple[str, IndexPage]]]:
    """Return the index with entries inserted.

    :param first_offset: offset that the first written page will get.
    :return: the new root, and the pages to write, in order, with the digits that lead to them.
    """
    written: list[tuple[str, IndexPage]] = []

    def write(digits: str, page: IndexPage) -> int:
        written.append((digits, page))
        return first_offset + len(written) - 1

    ordered = sorted(changes, key=attrgetter("digest"))
    return _updated(root, "", ordered, load, write), written


def _updated(
    page: IndexPage,
    digits: str,
    changes: list[IndexChange],
    load: LoadPage,
    write: Callable[[str, IndexPage], int],
) -> IndexPage:
    if not page.pages:
        return _split(_inserted(page.runs, changes), digits, write)
    pages = dict(page.pages)
    for digit, of_digit in groupby(changes, key=lambda change: change.digest[len(digits)]):
        found = load(digits + digit, pages[digit]) if digit in pages else IndexPage()
        pages[digit] = write(digits + digit, _updated(found, digits + digit, list(of_digit), load, write))
    return IndexPage(pages=pages)


def _inserted(
    runs: Mapping[str, tuple[int, ...]], changes: Iterable[IndexChange]
) -> dict[str, tuple[int, ...]]:
    found = dict(runs)
    for change in changes:
        others = tuple(at for at in found.get(change.digest, ()) if at != change.replaced)
        found[change.digest] = (*others, change.offset)
    return found


def _split(
    runs: dict[str, tuple[int, ...]], digits: str, write: Callable[[str, IndexPage], int]
) -> IndexPage:
    if len(runs) <= LEAF_ENTRIES:
        return IndexPage(runs=runs)
    pages: dict[str, int] = {}
    for digit, of_digit in groupby(sorted(runs), key=lambda digest: digest[len(digits)]):
        leaf = {digest: runs[digest] for digest in of_digit}
        pages[digit] = write(digits + digit, _split(leaf, digits + digit, write))
    return IndexPage(pages=pages)


#: How many of the runs that a reset took back are kept to be shown.
TAKEN_BACK_SHOWN = 10
_UNKNOWN = -1


class TopicLeft(msgspec.Struct, frozen=True, array_like=True):
    """A topic as the run that read it last left it.

    :param run_id: the run that read the topic last.
    :param id: the topic's id at that time; empty if the run did not record it.
    :param stops: stop offset by partition, -1 where it is not known; empty if runs that read the topic were
        all taken back.
    :param times: partition times at the stop offsets, by partition number; may end before the last partition.
    :param starts: start offset of the run by partition number; empty for intermediate topics.
    """

    run_id: str
    id: str
    stops: tuple[int, ...] = ()
    times: tuple[PartitionTimes, ...] = ()
    starts: tuple[int, ...] = ()

    def stops_of(self, topic: str) -> dict[TopicPartition, int]:
        """Return the stops that are known, by partition."""
        return {
            TopicPartition(topic, number): stop for number, stop in enumerate(self.stops) if stop != _UNKNOWN
        }

    def read(self, topic: str) -> list[FrozenPartition]:
        """Return the offsets that the run read of each partition, if the topic was an input."""
        return [
            FrozenPartition(topic=topic, partition=number, start_offset=start, stop_offset=stop)
            for number, (start, stop) in enumerate(zip(self.starts, self.stops, strict=False))
            if start != _UNKNOWN
        ]

    def times_of(self, partition: TopicPartition) -> PartitionTimes | None:
        """Return the times of a partition, None where there are none."""
        found = self.times[partition.partition : partition.partition + 1]
        return found[0] if found and found[0] != PartitionTimes() else None


class PastRuns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The runs before, as the checkpoint describes them.

    :param finished: number of runs that have finished and were not taken back.
    :param last: entry of the run that finished last.
    :param last_at: offset of that entry, -1 without one.
    :param chained_from: offset below which an entry may name a run that was taken back as the run before it.
    :param taken_back: entries of runs that a reset took back and that have not finished again, the last few,
        oldest first.
    :param left: topic -> how the run that read it last left it.
    :param index: root of the index of all entries.
    :param details_written: number of times that details were written; decides the slot that the next run
        uses.
    :param details_pieces: the most pieces that details were split into.
    :param parked: records that the last run left parked, less those that a reset gave up, see
        :data:`~airflow_kstreams.batch.protocol.offsets.offset_metadata.Parked`.
    :param none_parked_at: offset of the entry of the last run that left nothing parked, -1 if there is none.
        Records parked by that run or an earlier one are all processed.
    :param new_ms: time at which the last run that had records froze what it read, in milliseconds; 0 if none
        has had any.
    """

    finished: int = 0
    last: RunSummary | None = None
    last_at: int = -1
    chained_from: int = 0
    taken_back: tuple[RunSummary, ...] = ()
    left: dict[str, TopicLeft] = {}
    index: IndexPage = IndexPage()
    details_written: int = 0
    details_pieces: PartitionCount = 0
    parked: dict[str, dict[int, int | None]] = {}
    none_parked_at: int = -1
    new_ms: int = 0

    def with_finished(self, summary: RunSummary, entry: RunSummary, at: int) -> PastRuns:
        """Return these facts after one more run has finished.

        :param summary: the run's summary, with its details.
        :param entry: the run's entry in the ledger, without details.
        :param at: offset of the entry.
        """
        parked: dict[str, dict[int, int | None]] = {}
        for task in summary.tasks:
            for node, count in task.parked.items():
                parked.setdefault(node, {})[group_of(task.task_id)] = count
        return msgspec.structs.replace(
            self,
            finished=self.finished + 1,
            last=entry,
            last_at=at,
            taken_back=tuple(run for run in self.taken_back if run.run_id != summary.run_id),
            left={**self.left, **topics_left(summary)},
            parked=parked,
            none_parked_at=self.none_parked_at if parked else at,
            new_ms=self.new_ms if summary.empty else summary.begun_ms,
        )

    def with_parked(self, parked: Parked) -> PastRuns:
        """Return these facts after a reset has given up all that was parked, or a part of it."""
        return msgspec.structs.replace(
            self,
            parked={node: dict(by_group) for node, by_group in sorted(parked.items())},
            none_parked_at=self.none_parked_at if parked else self.last_at,
        )


def last_new_ms(newest_first: Iterable[RunSummary]) -> int:
    """Return the time at which the last run that had records froze what it read, 0 if none had any."""
    return next((run.begun_ms for run in newest_first if not run.empty), 0)


def topics_left(summary: RunSummary) -> dict[str, TopicLeft]:
    """Return the stops, times and starts of the topics that a run read.

    :param summary: the run's summary, with its details.
    """
    times = times_by_topic(summary)
    starts = by_topic({part.topic_partition: part.start_offset for part in summary.inputs}, _UNKNOWN)
    return {
        topic: TopicLeft(
            summary.run_id,
            summary.topic_ids.get(topic, ""),
            stops,
            times.get(topic, ()),
            starts.get(topic, ()),
        )
        for topic, stops in by_topic(summary.stops, _UNKNOWN).items()
    }


def shown(taken_back: Sequence[RunSummary]) -> tuple[RunSummary, ...]:
    """Return the last few of the runs that were taken back, in the order in which they had finished."""
    return tuple(sorted(taken_back, key=lambda run: run.finished_ms)[-TAKEN_BACK_SHOWN:])


def left_without(
    left: Mapping[str, TopicLeft], taken_back: Collection[str], others: Iterable[RunSummary]
) -> dict[str, TopicLeft]:
    """Return the state of topics once runs were taken back: each as the run before those left it.

    :param left: topic -> its entry before the reset.
    :param taken_back: ids of the runs that are taken back.
    :param others: runs that stay, newest first; with their details, as far as those have not expired.
    """
    found = dict(left)
    wanted = {topic for topic, entry in left.items() if entry.run_id in taken_back}
    for topic in wanted:
        found[topic] = TopicLeft("", left[topic].id)
    for run in others:
        if not wanted:
            break
        known = topics_left(run)
        counts = {read.topic: read.partitions for read in run.reads}
        for topic in wanted & run.source_topics:
            unknown = TopicLeft(run.run_id, left[topic].id, (_UNKNOWN,) * counts.get(topic, 0))
            found[topic] = known.get(topic, unknown)
        wanted -= run.source_topics
    return found
