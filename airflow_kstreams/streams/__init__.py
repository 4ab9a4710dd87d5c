"""The engine: topologies, their operators, and the tasks that run them. Knows nothing of Airflow, Spark or a
Kafka client.

Application files import what they need from here::

    from airflow_kstreams.streams import KStreamBuilder, serdes
"""

from __future__ import annotations

from airflow_kstreams.streams.errors import (
    ConfigError,
    KStreamsError,
    RecordError,
    StateStoreError,
    TopologyError,
)
from airflow_kstreams.streams.kstream.builder import KStreamBuilder
from airflow_kstreams.streams.kstream.grouped import KGroupedStream
from airflow_kstreams.streams.kstream.kstream import KStream
from airflow_kstreams.streams.kstream.table import KTable
from airflow_kstreams.streams.kstream.windowed_grouped import WindowedKGroupedStream
from airflow_kstreams.streams.kstream.windowed_stream import WindowedKStream
from airflow_kstreams.streams.kstream.windowed_table import WindowedKTable
from airflow_kstreams.streams.kstream.windows import (
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Windowed,
)
from airflow_kstreams.streams.partitioning.partition_grouper import EqualIds, FixedGroups, PartitionGrouper
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.processor import timestamps
from airflow_kstreams.streams.processor.context import ProcessorContext
from airflow_kstreams.streams.processor.processor import Processor, ProcessorRecord
from airflow_kstreams.streams.processor.punctuation import Punctuation
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.key_value_store import KeyValueStore
from airflow_kstreams.streams.state.session_store import SessionStore
from airflow_kstreams.streams.state.window_store import WindowStore
from airflow_kstreams.streams.topology.builder import TopologyBuilder
from airflow_kstreams.streams.topology.nodes import SessionStoreSpec, StoreSpec, WindowStoreSpec
from airflow_kstreams.streams.topology.topology import Topology

__all__ = [
    "ConfigError",
    "EqualIds",
    "FixedGroups",
    "HoppingWindow",
    "KGroupedStream",
    "KStream",
    "KStreamBuilder",
    "KStreamsError",
    "KTable",
    "KeyValueStore",
    "PartitionGrouper",
    "Processor",
    "ProcessorContext",
    "ProcessorRecord",
    "Punctuation",
    "RecordError",
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
    "WindowStore",
    "WindowStoreSpec",
    "Windowed",
    "WindowedKGroupedStream",
    "WindowedKStream",
    "WindowedKTable",
    "serdes",
    "timestamps",
]
