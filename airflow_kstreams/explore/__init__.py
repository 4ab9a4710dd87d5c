"""Explores topologies: runs a sample of real input, shows the records at every node, and reads the stores of
an application that runs.

Notebooks and ``cli.explore`` use it; nothing is written to Kafka. It may import ``kafka`` (to read from it),
``testing`` (to run the sample), ``batch.inspect`` and ``streams``. Running an application belongs to
``batch``.

::

    from airflow_kstreams.explore import explore

    seen = explore(topology(), "localhost:9092", last=1000)
    seen  # counts per node; a table in a notebook
    seen["KSTREAM-MAP-0000000002"]
    again = seen.rerun(topology())  # after an edit, on the same sample
    again.diff(seen)
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.state import AsOf, StateEntry, StoredState
from airflow_kstreams.explore.difference import Change, Difference, NodeDifference, Result, Seen
from airflow_kstreams.explore.exploration import Exploration, explore, stored_state
from airflow_kstreams.explore.node_records import NodeCounts, NodeRecord, RecordFailure
from airflow_kstreams.explore.record_table import RecordTable
from airflow_kstreams.explore.sample import Sample, SampleRecord
from airflow_kstreams.explore.tables import Table

__all__ = [
    "AsOf",
    "Change",
    "Difference",
    "Exploration",
    "NodeCounts",
    "NodeDifference",
    "NodeRecord",
    "RecordFailure",
    "RecordTable",
    "Result",
    "Sample",
    "SampleRecord",
    "Seen",
    "StateEntry",
    "StoredState",
    "Table",
    "explore",
    "stored_state",
]
