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
    from airflow_kstreams.streams.partitioning.partition_groups import (
        EqualIds,
        FixedGroups,
        PartitionGrouper,
    )
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
    "EqualIds",
    "FixedGroups",
    "GlobalKTable",
    "HoppingWindow",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KStreamBuilder",
    "KStreamsError",
    "KTable",
    "KeyValueStore",
    "LinearHashPartitioner",
    "PartitionGrouper",
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

#: Where each name lives, below this package; a module stands for itself.
_HOMES = {
    "AsyncProcessor": "processor.processor",
    "AsyncProcessorContext": "processor.async_context",
    "CallContext": "calls.call",
    "CallTimeoutError": "calls.call",
    "CogroupedKStream": "kstream.grouped",
    "ConfigError": "errors",
    "EqualIds": "partitioning.partition_groups",
    "FixedGroups": "partitioning.partition_groups",
    "HoppingWindow": "windows",
    "KGroupedStream": "kstream.grouped",
    "GlobalKTable": "kstream.tables.global_table",
    "KGroupedTable": "kstream.ktable",
    "KStream": "kstream.kstream",
    "KStreamBuilder": "kstream.builder",
    "KStreamsError": "errors",
    "KTable": "kstream.ktable",
    "KeyValueStore": "state.stores.state_store",
    "LinearHashPartitioner": "partitioning.linear_hash_partitioner",
    "PartitionGrouper": "partitioning.partition_groups",
    "Processor": "processor.processor",
    "ProcessorContext": "processor.context",
    "ProcessorRecord": "processor.processor",
    "ProducerClient": "partitioning.linear_hash_partitioner",
    "Punctuation": "processor.punctuation",
    "RecordContext": "records.record_context",
    "RecordError": "errors",
    "RetryPolicy": "graph.calls",
    "Serde": "serde.base",
    "SessionStore": "state.stores.expiring_store",
    "SessionStoreSpec": "graph.store_specs",
    "SessionWindow": "windows",
    "SlidingWindow": "windows",
    "StateStoreError": "errors",
    "StoreSpec": "graph.store_specs",
    "TopicPartition": "ports",
    "Topology": "topology.topology",
    "TopologyBuilder": "topology.topology_builder",
    "TopologyError": "errors",
    "TumblingWindow": "windows",
    "ValueTransformer": "processor.processor",
    "VersionedRecord": "state.stores.versioned_store",
    "VersionedStore": "state.stores.versioned_store",
    "VersionedStoreSpec": "graph.store_specs",
    "WindowStore": "state.stores.expiring_store",
    "WindowStoreSpec": "graph.store_specs",
    "Windowed": "windows",
    "WindowedCogroupedKStream": "kstream.grouped",
    "WindowedKGroupedStream": "kstream.grouped",
    "WindowedKStream": "kstream.kstream",
    "WindowedKTable": "kstream.ktable",
    "partition_of_key": "partitioning.linear_hashing",
    "serdes": "serde.serdes",
    "timestamps": "timestamps",
}

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
