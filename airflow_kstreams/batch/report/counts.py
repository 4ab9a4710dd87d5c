"""Says in words what became of a run's records, and how fast its tasks were: for the driver's output,
Airflow's log and ``status``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.metrics import call_lines, speed_text
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport, by_subtopology
from airflow_kstreams.batch.protocol.offsets.parked import parked_text, sum_parked
from airflow_kstreams.batch.report.results import iso_of
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.figures.record_counts import shown_node
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.printable import printable

if TYPE_CHECKING:
    from airflow_kstreams.batch.ledger.ledger import Ledger

#: Name of each rule by which a record went no further.
_RULES = {
    "null": "dropped: no key or no value",
    "late": "dropped: late",
    "undated": "dropped: no timestamp",
    "unmatched": "not joined: not in the table",
    "skipped": "skipped after an error",
}


class CountRow(NamedTuple):
    """Records that had the same fate at one place.

    :param place: a topic or a node.
    :param what: fate of the records: ``read``, ``written``, or the rule by which they went no further.
    :param records: number of these records.
    """

    place: str
    what: str
    records: int

    def __str__(self) -> str:
        return f"{self.place}: {self.records:,} {self.what}"


def known(number: int | None) -> str:
    """Return a number as text, ``unknown`` where there is none."""
    return "unknown" if number is None else f"{number:,}"


def headline(summary: RunSummary) -> str:
    """Return the numbers of records read and written; topics between subtopologies count for neither."""
    return f"{counted(summary.records_in, 'record')} in, {known(summary.records_out)} out"


def finished_text(summary: RunSummary) -> str:
    """Return the text that a driver prints of the run that it has finished."""
    first = f"run {summary.run_id} finished: {headline(summary)}, {counted(summary.task_count, 'task')}"
    warnings = [f"  warning: {warning}" for warning in summary.warnings]
    rows = (
        *map(str, count_rows(summary)),
        *behind_lines(summary),
        *parked_lines(summary),
        *speed_lines(summary.tasks, summary.purposes),
    )
    return "\n".join(map(printable, [first, *(f"  {row}" for row in rows), *warnings]))


def outcome_text(summary: RunSummary, *, seconds: float) -> str:
    """Return the last line of an Airflow task's log: ``2,556 in, 1,317 out, 4 filtered, 36 s``.

    :param summary: summary of the run, or of what its tasks have committed so far; its counts are those of
        all attempts.
    :param seconds: the time that it took.
    """
    counts = summary.counts
    parts = [f"{known(summary.records_in)} in", f"{known(summary.records_out)} out"]
    if counts is not None:
        parts += [f"{records:,} {rule}" for rule, records in sorted(counts.by_rule.items())]
        if outside := sum(counts.outside.values()):
            parts.append(f"{outside:,} outside the interval")
    if summary.parked:
        parts.append(f"{known(sum_parked(summary.parked))} parked")
    return ", ".join([*parts, duration_text(seconds * 1000)])


def nothing_new_text(ledger: Ledger, *, now_ms: int) -> str:
    """Return the last line of the log of a run without records: ``nothing new since 14:55 UTC``, the time at
    which the last run with records froze what it read.

    :param ledger: the application's ledger.
    """
    new_ms = ledger.past.new_ms
    if not new_ms:
        return "nothing new: no run has had records yet"
    begun, now = (datetime.fromtimestamp(at / 1000, tz=UTC) for at in (new_ms, now_ms))
    day = "" if begun.date() == now.date() else f"{begun:%Y-%m-%d} "
    return f"nothing new since {day}{begun:%H:%M} UTC"


def behind_lines(summary: RunSummary) -> Iterator[str]:
    """Yield for each topic the number of records that lay behind the run's cut and are dated before it."""
    behind = summary.behind_cut
    if behind is None:
        return
    least = "" if behind.whole else "at least "
    for topic, records in sorted(behind.records.items()):
        yield f"{topic}: {least}{records:,} left to the next run, dated before the cut and behind it"
    if not behind.whole:
        yield "behind the cut lie more records than begin looks at: more of them may be dated before it"


def parked_lines(summary: RunSummary) -> Iterator[str]:
    """Yield one line with the state of a run that left records parked, and the time at which they are due;
    nothing for any other run.
    """
    if summary.parked:
        yield f"{summary.state}: {parked_text(summary.parked)}; {due_text(summary.parked_due_ms)}"


def due_text(due_ms: int | None) -> str:
    """Return a sentence on the time of the next attempt of parked records."""
    if due_ms is None:
        return "the next run makes their next attempt"
    return f"the first is due at {iso_of(due_ms)}, in the next run after that"


def speed_lines(tasks: Iterable[TaskReport], purposes: Mapping[str, str]) -> Iterator[str]:
    """Yield lines with the speed of each subtopology's tasks, and of their calls if a node makes calls.

    :param purposes: node -> what it does, and the user's line.
    """
    for subtopology, reports in by_subtopology(tasks).items():
        yield f"subtopology {subtopology}, {counted(len(reports), 'task')}: {speed_text(reports)}"
        for line in call_lines(reports, purposes):
            yield f"subtopology {subtopology}, {line}"


def count_rows(summary: RunSummary) -> Iterator[CountRow]:
    """Yield the fates of a run's records: inputs, records that went no further, topics in between, outputs;
    nothing where the counts are not known.
    """
    counts = summary.counts
    if counts is None:
        return
    inputs = summary.input_topics
    for topic, records in sorted(counts.read.items()):
        if topic in inputs:
            yield CountRow(topic, "read", records)
    for topic, records in sorted(counts.outside.items()):
        yield CountRow(topic, "left out, dated outside the interval", records)
    for entry in counts.left_out:
        node = shown_node(entry.node, summary.purposes)
        yield CountRow(node, _RULES.get(entry.rule, entry.rule), entry.records)
    # The engine's list of files is no output: what it lists counts as the rows of the tables.
    lists = ProtocolTopics(summary.application_id).table_files
    written = {topic: records for topic, records in counts.output.items() if topic != lists}
    for topic, records in sorted(counts.read.items()):
        if topic not in inputs:
            yield CountRow(topic, "written", written.get(topic, 0))
            yield CountRow(topic, "read", records)
    for topic, records in sorted(written.items()):
        if topic not in counts.read:
            yield CountRow(topic, "written", records)
