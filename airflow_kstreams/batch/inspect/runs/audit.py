"""Audits a run by its own record: what its tasks read, less what they left out, went on.

Rule: all numbers are those that tasks committed with their offsets, so they cover exactly the committed
records. Read less left out equals written where each operator gives one record for one. Folds, joins and
flat maps give more, or fewer: ``made`` is that difference, of which the run's record does not say which
operator made it. It is checked per task, where the topology is known, when the run is finished
(:mod:`airflow_kstreams.batch.run.finish`); what did not add up there is a warning of the run.

Between subtopologies no operator stands, so what is read from a topic is at least what was written to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.report.counts import count_rows
from airflow_kstreams.streams.figures.record_counts import RecordCounts


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """Records that had the same fate at one place.

    :param place: a topic or a node.
    :param what: ``read``, ``written``, or the rule by which they went no further.
    :param records: number of these records.
    """

    place: str
    what: str
    records: int


class BetweenTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic between two subtopologies.

    :param topic: name of the topic.
    :param written: records that the run wrote to it.
    :param read: records that the run read from it; more where others write there, too.
    :param missing: records that were written and not read.
    """

    topic: str
    written: int
    read: int
    missing: int


class RunAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The books of a run: ``read - left_out + made = written``, over all subtopologies.

    :param read: records read from all topics, those between subtopologies among them.
    :param left_out: records that went no further, by any rule.
    :param made: records that operators made beyond one for one; negative where folds and joins took more in.
    :param written: records written to all topics.
    :param outside: records read and left out because they are dated outside the data interval; not in
        ``read``.
    :param rows: all of it by place.
    :param between: the topics between subtopologies.
    """

    read: int
    left_out: int
    made: int
    written: int
    outside: int
    rows: tuple[AuditRow, ...]
    between: tuple[BetweenTopic, ...] = ()

    @property
    def missing(self) -> int:
        """Records that were lost between subtopologies."""
        return sum(each.missing for each in self.between)


def audit_of(run: RunSummary) -> RunAudit | None:
    """Return the books of a run, None where its counts are not known."""
    counts = run.counts
    if counts is None:
        return None
    read, left_out = sum(counts.read.values()), sum(entry.records for entry in counts.left_out)
    written = sum(counts.output.values())
    return RunAudit(
        read=read,
        left_out=left_out,
        made=written - read + left_out,
        written=written,
        outside=sum(counts.outside.values()),
        rows=tuple(AuditRow(place=row.place, what=row.what, records=row.records) for row in count_rows(run)),
        between=tuple(_between_topics(run, counts)),
    )


def _between_topics(run: RunSummary, counts: RecordCounts) -> Iterator[BetweenTopic]:
    for topic in sorted(counts.read.keys() - run.input_topics):
        written, read = counts.output.get(topic, 0), counts.read[topic]
        yield BetweenTopic(topic=topic, written=written, read=read, missing=max(0, written - read))
