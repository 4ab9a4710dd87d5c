"""The engine: topologies, their operators, and the tasks that run them.

Application files import what they need from here, e.g. ``from airflow_kstreams.streams import
KStreamBuilder``; ``batch``, ``kafka``, ``spark`` and ``testing`` import the folders below. Imports the
standard library and msgspec; nothing here may know Airflow, Spark or a Kafka client. Modules at this level
are what all folders stand on: errors, settings, ports, windows, timestamps.

A name is imported when it is asked for: triggerers and DAG files need errors and settings from below here,
and must not wait for the whole DSL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kstreams.streams import timestamps
    from airflow_kstreams.streams.calls.call import CallContext, CallTimeoutError
    from airflow_kstreams.streams.errors import (
        ConfigError,
        KStreamsError,
        RecordError,
        StateStoreError,
        TopologyError,
    )
    from airflow_kstreams.streams.graph.calls import RetryPolicy
    from airflow_kstreams.streams.graph.store_specs import (
        SessionStoreSpec,
        StoreSpec,
        VersionedStoreSpec,
        WindowStoreSpec,
    )
    from airflow_kstreams.streams.kstream.builder import KStreamBuilder
    from airflow_kstreams.streams.kstream.grouped import (
        CogroupedKStream,
        KGroupedStream,
        WindowedCogroupedKStream,
        WindowedKGroupedStream,
    )
    from airflow_kstreams.streams.kstream.kstream import KStream, WindowedKStream
    from airflow_kstreams.streams.kstream.ktable import KGroupedTable, KTable, WindowedKTable
    from airflow_kstreams.streams.kstream.tables.global_table import GlobalKTable
    from airflow_kstreams.streams.partitioning.linear_hash_partitioner import (
        LinearHashPartitioner,
        ProducerClient,
    )
    from airflow_kstreams.streams.partitioning.linear_hashing import partition_of_key
    from airflow_kstreams.streams.partitioning.partition_groups import EqualIds, FixedGroups, PartitionGrouper
    from airflow_kstreams.streams.ports import TopicPartition
    from airflow_kstreams.streams.processor.async_context import AsyncProcessorContext
    from airflow_kstreams.streams.processor.context import ProcessorContext
    from airflow_kstreams.streams.processor.processor import (
        AsyncProcessor,
        Processor,
        ProcessorRecord,
        ValueTransformer,
    )
    from airflow_kstreams.streams.processor.punctuation import Punctuation
    from airflow_kstreams.streams.records.record_context import RecordContext
    from airflow_kstreams.streams.serde import serdes
    from airflow_kstreams.streams.serde.base import Serde
    from airflow_kstreams.streams.state.stores.expiring_store import SessionStore, WindowStore
    from airflow_kstreams.streams.state.stores.state_store import KeyValueStore
    from airflow_kstreams.streams.state.stores.versioned_store import VersionedRecord, VersionedStore
    from airflow_kstreams.streams.tables.row_types import Precision
    from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
    from airflow_kstreams.streams.topology.topology import Topology
    from airflow_kstreams.streams.topology.topology_builder import TopologyBuilder
    from airflow_kstreams.streams.windows import (
        HoppingWindow,
        SessionWindow,
        SlidingWindow,
        TumblingWindow,
        Windowed,
    )

__all__ = [
    "AsyncProcessor",
    "AsyncProcessorContext",
    "CallContext",
    "CallTimeoutError",
    "CogroupedKStream",
    "ConfigError",
    "DeltaTable",
    "EqualIds",
    "FixedGroups",
    "GlobalKTable",
    "HoppingWindow",
    "IcebergTable",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KStreamBuilder",
    "KStreamsError",
    "KTable",
    "KeyValueStore",
    "LinearHashPartitioner",
    "PartitionGrouper",
    "Precision",
    "Processor",
    "ProcessorContext",
    "ProcessorRecord",
    "ProducerClient",
    "Punctuation",
    "RecordContext",
    "RecordError",
    "RetryPolicy",
    "Serde",
    "SessionStore",
    "SessionStoreSpec",
    "SessionWindow",
    "SlidingWindow",
    "StateStoreError",
    "StoreSpec",
    "TopicPartition",
    "Topology",
    "TopologyBuilder",
    "TopologyError",
    "TumblingWindow",
    "ValueTransformer",
    "VersionedRecord",
    "VersionedStore",
    "VersionedStoreSpec",
    "WindowStore",
    "WindowStoreSpec",
    "Windowed",
    "WindowedCogroupedKStream",
    "WindowedKGroupedStream",
    "WindowedKStream",
    "WindowedKTable",
    "partition_of_key",
    "serdes",
    "timestamps",
]

#: Module below this package -> the names that live there; a module stands for itself.
_NAMES = {
    "calls.call": "CallContext CallTimeoutError",
    "errors": "ConfigError KStreamsError RecordError StateStoreError TopologyError",
    "graph.calls": "RetryPolicy",
    "graph.store_specs": "SessionStoreSpec StoreSpec VersionedStoreSpec WindowStoreSpec",
    "kstream.builder": "KStreamBuilder",
    "kstream.grouped": "CogroupedKStream KGroupedStream WindowedCogroupedKStream WindowedKGroupedStream",
    "kstream.kstream": "KStream WindowedKStream",
    "kstream.ktable": "KGroupedTable KTable WindowedKTable",
    "kstream.tables.global_table": "GlobalKTable",
    "partitioning.linear_hash_partitioner": "LinearHashPartitioner ProducerClient",
    "partitioning.linear_hashing": "partition_of_key",
    "partitioning.partition_groups": "EqualIds FixedGroups PartitionGrouper",
    "ports": "TopicPartition",
    "processor.async_context": "AsyncProcessorContext",
    "processor.context": "ProcessorContext",
    "processor.processor": "AsyncProcessor Processor ProcessorRecord ValueTransformer",
    "processor.punctuation": "Punctuation",
    "records.record_context": "RecordContext",
    "serde.base": "Serde",
    "serde.serdes": "serdes",
    "state.stores.expiring_store": "SessionStore WindowStore",
    "state.stores.state_store": "KeyValueStore",
    "state.stores.versioned_store": "VersionedRecord VersionedStore",
    "tables.row_types": "Precision",
    "tables.specs": "DeltaTable IcebergTable",
    "timestamps": "timestamps",
    "topology.topology": "Topology",
    "topology.topology_builder": "TopologyBuilder",
    "windows": "HoppingWindow SessionWindow SlidingWindow TumblingWindow Windowed",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

#: What users look for here and find in ``airflow_kstreams.testing``.
_OF_TESTING = (
    "FaultyCluster",
    "InMemoryKafka",
    "Interceptor",
    "ManualClock",
    "OutputRecord",
    "StoreView",
    "TopologyTestDriver",
)


def __getattr__(name: str) -> Any:
    """Import a name of this package.

    :raises ImportError: Kafka Streams has a class of the name; says what stands for it here. An import
        statement would hide what an AttributeError says.
    """
    if name not in _HOMES:
        java = import_module(f"{__name__}.hints.java_names")
        ours = java.java_class(name)
        if ours:
            raise ImportError(f"Kafka Streams' {name} is not here: {java.told(ours)}", name=__name__)
        if name in _OF_TESTING:
            raise ImportError(
                f"{name} is not here: write from airflow_kstreams.testing import {name}", name=__name__
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES[name]}")
    found = home if home.__name__.endswith(f".{name}") else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the names of this package, imported or not."""
    return sorted({*globals(), *__all__})
