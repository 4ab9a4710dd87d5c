"""Finds the runs that a reset takes back, and their rows in tables: their records are read again, and make
the rows again.

A run is taken back whole if the next run reads every record of it again; else in part, and then its rows
cannot be taken out: those of the other records would not come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airflow_kstreams.batch.ledger.facts import DroppedRun, LandedTable
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import Slice, partition_named
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAgain:
    """A run with rows in tables that is taken back.

    :param tables: name of a table's sink -> the commit that holds its rows.
    :param whole: whether all its records are read again.
    :param landed: whether its rows are in the tables; those of a run that is yet to be dropped are not.
    """

    run_id: str
    tables: Mapping[str, LandedTable]
    whole: bool
    landed: bool = True


def taken_back(ledger: Ledger, after: Mapping[TopicPartition, int]) -> tuple[RunSummary, ...]:
    """Return the finished runs that have read records which will be read again.

    Where the details of a run have expired, its inputs are judged by the sums over their partitions.

    :param after: partition -> the offset that it is set to.
    """
    if not after:
        return ()
    runs = (ledger.detailed(run) for run in ledger.all_runs().values())
    return tuple(run for run in runs if _reads_again(run, after))


def rows_again(
    ledger: Ledger,
    runs: Iterable[RunSummary],
    after: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
) -> Iterator[RowsAgain]:
    """Give the runs that are taken back and have rows in the tables that the application writes to.

    Records of a topic that was made anew since are others.

    :param runs: the finished runs among them.
    :param after: partition -> the offset that it is set to.
    :param ids: topic -> its id now.
    """
    for run in runs:
        spans = [(part.topic_partition, part.start_offset, part.stop_offset) for part in run.inputs]
        same = _of_same_topics(after, run.topic_ids, ids)
        if run.without_details or _some(spans, same):
            whole = not run.without_details and _whole(spans, same)
            yield from _with_rows(ledger, run.run_id, run.tables, whole=whole)
    for dropped in ledger.dropped:
        for found in rows_of_slice(dropped, after, ids):
            yield from _with_rows(ledger, found.run_id, found.tables, whole=found.whole)


def rows_of_slice(
    dropped: DroppedRun, after: Mapping[TopicPartition, int], ids: Mapping[str, str]
) -> tuple[RowsAgain, ...]:
    """Return a dropped run, or one that is yet to be, if it has read records which will be read again.

    :param after: partition -> the offset that it is set to.
    :param ids: topic -> its id now.
    """
    spans = [(partition_named(name), start, stop) for name, (start, stop) in dropped.read.items()]
    same = _of_same_topics(after, dropped.topic_ids, ids)
    if not _some(spans, same):
        return ()
    whole = _whole(spans, same)
    return (RowsAgain(run_id=dropped.run_id, tables=dropped.tables, whole=whole, landed=False),)


def _of_same_topics(
    after: Mapping[TopicPartition, int], then: Mapping[str, str], now: Mapping[str, str]
) -> dict[TopicPartition, int]:
    return {tp: at for tp, at in after.items() if then.get(tp.topic, "") in ("", now.get(tp.topic, ""))}


def dropped_run(
    slice_: Slice, committed: Mapping[TopicPartition, CommittedOffset], tables: Mapping[str, LandedTable]
) -> DroppedRun:
    """Return what the ledger keeps of a run that is dropped.

    :param committed: committed offsets of its inputs.
    :param tables: name of a table's sink -> the commit that holds its rows.
    """
    read = {
        str(part.topic_partition): (part.start_offset, committed[part.topic_partition].offset)
        for part in slice_.inputs
        if part.topic_partition in committed and committed[part.topic_partition].offset > part.start_offset
    }
    topics = {partition_named(name).topic for name in read}
    ids = {topic: id_ for topic, id_ in slice_.plan.topic_ids.items() if topic in topics}
    return DroppedRun(run_id=slice_.run_id, read=read, topic_ids=ids, tables=dict(tables))


def _with_rows(
    ledger: Ledger, run_id: str, tables: Mapping[str, LandedTable], *, whole: bool
) -> Iterator[RowsAgain]:
    """Give the run if tables of the application have rows of it: its own, in the tables that it has now."""
    own = {
        name: landed
        for name, landed in tables.items()
        if landed.run_id == run_id
        and landed.rows
        and (now := ledger.tables.get(name)) is not None
        and now.table_id == landed.table_id
    }
    if own:
        yield RowsAgain(run_id=run_id, tables=own, whole=whole)


def _reads_again(run: RunSummary, after: Mapping[TopicPartition, int]) -> bool:
    if not run.without_details:
        return _some(
            ((part.topic_partition, part.start_offset, part.stop_offset) for part in run.inputs), after
        )
    for read in run.reads:
        set_to = [after.get(TopicPartition(read.topic, number)) for number in range(read.partitions)]
        known = [offset for offset in set_to if offset is not None]
        if read.start < read.stop and len(known) == read.partitions and sum(known) < read.stop:
            return True
    return False


def _some(spans: Iterable[tuple[TopicPartition, int, int]], after: Mapping[TopicPartition, int]) -> bool:
    return any(start < stop and after.get(tp, stop) < stop for tp, start, stop in spans)


def _whole(spans: Iterable[tuple[TopicPartition, int, int]], after: Mapping[TopicPartition, int]) -> bool:
    return all(after.get(tp, stop) <= start for tp, start, stop in spans if start < stop)
