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

if TYPE_CHECKING:
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

#: Modules that define the names, in the order in which a name is looked for. Commands need tables only, and a
#: help text does not wait for the engine.
_HOMES = (
    "airflow_kstreams.explore.exploration",
    "airflow_kstreams.explore.difference",
    "airflow_kstreams.explore.node_records",
    "airflow_kstreams.explore.record_table",
    "airflow_kstreams.explore.sample",
    "airflow_kstreams.explore.tables",
    "airflow_kstreams.batch.inspect.state",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(import_module, _HOMES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
