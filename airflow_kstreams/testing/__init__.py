"""Tests users' topologies without broker and Spark.

::

    from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver

Users' tests, this package's own and ``explore`` use it. It runs the engine's own tasks on topics in memory,
so it may import ``streams`` and nothing else of this package. It is part of the release: code that only this
package's tests need belongs to ``tests/support``.
"""

from __future__ import annotations

from airflow_kstreams.testing.faults import FaultyCluster, Interceptor
from airflow_kstreams.testing.in_memory_kafka import InMemoryKafka, ManualClock
from airflow_kstreams.testing.output_topics import OutputRecord, StoreView
from airflow_kstreams.testing.topology_test_driver import TopologyTestDriver

__all__ = [
    "FaultyCluster",
    "InMemoryKafka",
    "Interceptor",
    "ManualClock",
    "OutputRecord",
    "StoreView",
    "TopologyTestDriver",
]
