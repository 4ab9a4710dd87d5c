"""Adds the node that writes the rows of a stream to a table of a lakehouse.

Rule: of a table with one row for each key, one task writes all rows of a key, in the order of its records. So
a stream whose key may have changed goes through a repartition topic first, as for a group.
"""

from __future__ import annotations

import dataclasses

from airflow_kstreams.streams.kstream.graph import Serdes, check_name
from airflow_kstreams.streams.kstream.known import KnownStream
from airflow_kstreams.streams.kstream.lasting_names import lasting_name
from airflow_kstreams.streams.kstream.operators.send_to_table import SendToTable
from airflow_kstreams.streams.kstream.operators.stateless import DropNulls
from airflow_kstreams.streams.tables.table_rows import TableSpec

#: Rows without key are refused one by one where they are made, not left out on the way.
_KEEP_ALL = DropNulls(keep_null_keys=True, keep_null_values=True)


def write_rows(stream: KnownStream, table: TableSpec, name: str | None) -> None:
    """Add the node that writes a row to a table for each record.

    :param name: the node's name given by the user; None for a numbered one.
    :raises TopologyError: the keys have no type for their column, or a serde is missing for the repartition
        topic.
    """
    if table.mode == "upsert" and stream.key_changed:
        stream = _by_key(stream, name or lasting_name((table.name,), "upsert"))
    keys = stream.serdes.known("key")
    stream.behind("KSTREAM-TABLE", SendToTable(table if keys is None else table.with_keys(keys)), name)


def _by_key(stream: KnownStream, topic: str) -> KnownStream:
    """Return the stream of the same records, each in the partition of its key.

    :param topic: part of the repartition topic's name.
    """
    check_name(topic)
    graph, call = stream.graph, "send_to_table"
    key = graph.serde("key", None, stream.serdes, call)
    value = graph.serde("value", None, stream.serdes, call)
    node = graph.repartition(topic, stream.node, key, value, drop=_KEEP_ALL)
    serdes = Serdes(key=key, value=value)
    return dataclasses.replace(stream, node=node, serdes=serdes, key_changed=False)
