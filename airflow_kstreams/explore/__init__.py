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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_kstreams.explore.difference import Change, Difference, NodeDifference, Result, Seen
from airflow_kstreams.explore.exploration import Exploration, explore
from airflow_kstreams.explore.node_records import NodeCounts, NodeRecord, RecordFailure
from airflow_kstreams.explore.record_table import RecordTable
from airflow_kstreams.explore.sample import Sample, SampleRecord
from airflow_kstreams.explore.tables import Table

if TYPE_CHECKING:
    from airflow_kstreams.batch.inspect.state import AsOf, StateEntry, StoredState
    from airflow_kstreams.explore.application_state import stored_state

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

#: Names for reading an application's stores, imported on first use: commands print tables without them.
_HOMES = {
    "AsOf": "batch.inspect.state.moment",
    "StateEntry": "batch.inspect.state.entry_form",
    "StoredState": "batch.inspect.state.stored_state",
    "stored_state": "explore.application_state",
}


def __getattr__(name: str) -> Any:
    """Import a name of this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"airflow_kstreams.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
