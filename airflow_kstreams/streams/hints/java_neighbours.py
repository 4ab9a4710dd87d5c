"""Classes of Kafka Streams (4.3) that people import beside those of its DSL, and what stands for them here.

The Processor API, stores, time, errors, settings and the test driver: what arguments of the DSL are made of.
Those of the DSL itself, method by method, are in :mod:`.java_classes`.
"""

from __future__ import annotations

from collections.abc import Mapping

STORE = "StoreSpec(name=..., key_serde=..., value_serde=...)"
_ANY_STORE = f"{STORE}, or a WindowStoreSpec, SessionStoreSpec or VersionedStoreSpec"
_WINDOWS = "WindowStoreSpec(retention_ms=...)"
_SESSIONS = "SessionStoreSpec(retention_ms=...)"
_VERSIONS = "VersionedStoreSpec(history_ms=...)"
_PROCESSOR = "Processor, whose class is the definition: process(definition), or process_values(definition)"
_OUTSIDE = "stored_state(topology, 'store', ...) of airflow_kstreams.explore, outside a run"
_BYTES = "Serde(id=..., serialize=..., deserialize=...), which does both"
_POLICIES = "fail, skip or dead-letter"
_DRIVER = "TopologyTestDriver of airflow_kstreams.testing"

#: By their names in Java.
NEIGHBOURS: Mapping[str, str] = {
    "KeyValue": "a pair: (key, value)",
    "Serdes": "serdes: serdes.string(), serdes.int64(), serdes.of(type)",
    "Serializer": _BYTES,
    "Deserializer": _BYTES,
    "TopicNameExtractor": "split(small=predicate), each branch with a send_to(topic) of its own; or a "
    "processor's context.send(topic, key, value)",
    "StreamPartitioner": "send_to(topic, partitioner=function)",
    "AutoOffsetReset": "the setting first.run.offsets, earliest or latest",
    # Time.
    "TimestampExtractor": "stream(topic, timestamps=timestamps.extract(function))",
    "FailOnInvalidTimestamp": "timestamps.record_time(invalid='fail')",
    "LogAndSkipOnInvalidTimestamp": "timestamps.record_time(invalid='skip')",
    "UsePartitionTimeOnInvalidTimestamp": "timestamps.record_time(invalid='partition_time')",
    "WallclockTimestampExtractor": "timestamps.wall_clock()",
    "Punctuator": "schedule(interval_ms, callback=function), or Processor.punctuate",
    "PunctuationType": "schedule(interval_ms, clock='stream_time' or 'wall_clock')",
    "Cancellable": "Punctuation, which schedule(interval_ms) returns",
    # The Processor API.
    "ContextualProcessor": _PROCESSOR,
    "ContextualFixedKeyProcessor": _PROCESSOR,
    "FixedKeyProcessor": _PROCESSOR,
    "ProcessorSupplier": _PROCESSOR,
    "FixedKeyProcessorSupplier": _PROCESSOR,
    "FixedKeyProcessorContext": "ProcessorContext",
    "Record": "ProcessorRecord",
    "FixedKeyRecord": "ProcessorRecord",
    "RecordMetadata": "topic, partition and offset of ProcessorContext or RecordContext",
    "To": "forward(key, value, to=..., timestamp_ms=...)",
    # Stores.
    "Stores": _ANY_STORE,
    "StoreBuilder": _ANY_STORE,
    "StateStore": "KeyValueStore, WindowStore, SessionStore or VersionedStore",
    "KeyValueBytesStoreSupplier": STORE,
    "WindowBytesStoreSupplier": _WINDOWS,
    "SessionBytesStoreSupplier": _SESSIONS,
    "VersionedBytesStoreSupplier": _VERSIONS,
    "VersionedKeyValueStore": f"VersionedStore, made by {_VERSIONS}",
    "TimestampedKeyValueStore": "KeyValueStore",
    "TimestampedWindowStore": "WindowStore",
    "KeyValueIterator": "a loop: for key, value in store.all()",
    "WindowStoreIterator": "a loop: for window, value in store.all()",
    "ReadOnlyKeyValueStore": _OUTSIDE,
    "ReadOnlyWindowStore": _OUTSIDE,
    "ReadOnlySessionStore": _OUTSIDE,
    "QueryableStoreTypes": _OUTSIDE,
    "StoreQueryParameters": _OUTSIDE,
    # Errors, settings, runs and tests.
    "DeserializationExceptionHandler": f"the setting deserialization.exception.handler: {_POLICIES}",
    "ProcessingExceptionHandler": f"the setting processing.exception.handler: {_POLICIES}",
    "ProductionExceptionHandler": f"the setting production.exception.handler: {_POLICIES}",
    "StreamsException": "KStreamsError",
    "StreamsConfig": "settings by their names, {'processing.guarantee': 'exactly_once'}, for the run",
    "KafkaStreams": "run(topology) of airflow_kstreams.spark, or a DAG with incremental_batch",
    "TestInputTopic": f"pipe_input(topic, key=..., value=...) of {_DRIVER}",
    "TestOutputTopic": f"read_output(topic) of {_DRIVER}",
    "TestRecord": "OutputRecord of airflow_kstreams.testing",
}
