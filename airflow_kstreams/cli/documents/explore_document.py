"""Makes the document of ``explore``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from airflow_kstreams.cli.json_output import plain_value
from airflow_kstreams.explore import Difference, Exploration
from airflow_kstreams.explore.record_table import RecordTable


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of records at a node.

    :param node: its name.
    :param purpose: what it does, and the line that made it.
    :param records_in: records that reached it.
    :param records_out: records that it forwarded, or wrote.
    :param dropped: records that it dropped by rule.
    :param failed: records at which it failed.
    """

    node: str
    purpose: str
    records_in: int
    records_out: int
    dropped: int
    failed: int


class FailedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was left out because a node failed at it.

    :param record: place of the input record.
    :param node: node that failed.
    :param error: the error.
    """

    record: str
    node: str
    error: str


class ExploredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record at a node, or in an output topic, or a row of a table; values that JSON cannot hold stand as
    Python prints them.

    :param record: place of the input record that led to it.
    :param key: its key.
    :param value: its value.
    :param timestamp_ms: its timestamp, epoch milliseconds.
    """

    record: str
    key: Any
    value: Any
    timestamp_ms: int


class RecordsAtPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The records at a node, or in an output topic, or the rows of a table.

    :param place: name of the node or topic; ``table:<name>`` of a table.
    :param count: number of all records.
    :param records: the first of them, as many as --rows says.
    """

    place: str
    count: int
    records: Sequence[ExploredRecord]


class NodeChanges(msgspec.Struct, frozen=True, kw_only=True):
    """How the records of a node differ from before.

    :param node: its name; null if it is gone.
    :param before: its name before; null if it is new.
    :param added: records that are new.
    :param removed: records that are gone.
    :param changed: records that differ.
    """

    node: str | None
    before: str | None
    added: int
    removed: int
    changed: int


class ExploreDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a sample of records did in a topology.

    :param nodes: numbers of records at each node.
    :param failed: records that were left out, as many as --rows says.
    :param shown: the records at the nodes that --node names, else those of the output topics and tables.
    :param difference: nodes that differ from the round before, or from --against; null without either.
    :param notes: what one must know of the sample.
    """

    nodes: Sequence[NodeFigures]
    failed: Sequence[FailedRecord]
    shown: Sequence[RecordsAtPlace]
    difference: Sequence[NodeChanges] | None
    notes: Sequence[str]


def explore_document(
    seen: Exploration, difference: Difference | None, nodes: Sequence[str], rows: int
) -> ExploreDocument:
    """Make the document of an exploration.

    :param difference: difference to the round before; None without one.
    :param nodes: nodes whose records to show; those of the output topics and tables if empty.
    :param rows: records to show of each.
    """
    written = [*map(seen.outputs, seen.output_topics), *map(seen.rows, seen.tables)]
    places = [*map(seen.at, nodes)] if nodes else written
    counts = {name: seen.counts(name) for name in seen.nodes}
    return ExploreDocument(
        nodes=[
            NodeFigures(
                node=name,
                purpose=seen.purpose(name),
                records_in=each.records_in,
                records_out=each.records_out,
                dropped=each.dropped,
                failed=each.failed,
            )
            for name, each in counts.items()
        ],
        failed=[
            FailedRecord(record=one.origin, node=one.node, error=f"{type(one.error).__name__}: {one.error}")
            for one in seen.errors[:rows]
        ],
        shown=[_at_place(place, rows) for place in places],
        difference=None
        if difference is None
        else [
            NodeChanges(
                node=each.name,
                before=each.before,
                added=len(each.of("added")),
                removed=len(each.of("removed")),
                changed=len(each.of("changed")),
            )
            for each in difference
        ],
        notes=seen.notes,
    )


def _at_place(records: RecordTable, rows: int) -> RecordsAtPlace:
    return RecordsAtPlace(
        place=records.title,
        count=len(records),
        records=[
            ExploredRecord(
                record=one.origin,
                key=plain_value(one.key),
                value=plain_value(one.value),
                timestamp_ms=one.timestamp_ms,
            )
            for one in records[:rows]
        ],
    )
