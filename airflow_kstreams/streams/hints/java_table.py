"""Kafka Streams' names (4.3) and what is written here instead: the one table of all answers.

It holds methods of objects, classes of the DSL with their methods, classes beside the DSL, and settings. What
asks it stands in :mod:`.java_names`; ``docs/reference/from-java.md`` is drawn from it, and a test holds it to
the jar.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

#: An answer that begins so says why there is nothing to write.
NOTHING = "nothing: "

# == methods, by their names in small letters with underscores

#: Methods that are not called the same in small letters with underscores -> what to write. Those that stand
#: for one method here are followed by "(". An answer is given where the object has what it begins with.
METHODS: Mapping[str, str] = {
    "to": "send_to(topic)",
    "print": "peek(print)",
    "default_branch": "split(small=predicate, default='other')",
    "no_default_branch": "split(small=predicate), which drops the records that no predicate takes",
    "transform": "process(definition)",
    "transform_values": "process_values(definition)",
    "flat_transform": "process(definition)",
    "flat_transform_values": "process_values(definition)",
    "windowed_by": "stream.group_by_key().windowed_by(window)",
    "emit_strategy": "count(), reduce() or aggregate(), and suppress() on the table, which emits on close",
    "describe": "build().describe()",
    "add_global_store": "builder.global_table(topic), which streams join; processors see no global table: "
    "join the stream ahead of them",
    "persistent_versioned_key_value_store": "VersionedStoreSpec(history_ms=...)",
    "versioned_key_value_store_builder": "VersionedStoreSpec(history_ms=...)",
    "add_read_only_state_store": "builder.table(topic)",
    "connect_processor_and_state_stores": "add_processor(stores=...), or a stream's "
    "process(definition, 'store', ...)",
    "get_state_store": "state_store(name)",
    "current_stream_time_ms": "stream_time_ms",
    "current_system_time_ms": "wall_clock_ms",
    "timestamp": "timestamp_ms",
    "record_metadata": "topic, partition and offset",
    "approximate_num_entries": "approximate_count()",
    "put_all": "put(key, value) for each",
    "prefix_scan": "range(first, last)",
    "reverse_range": "reversed(list(store.range(first, last)))",
    "reverse_all": "reversed(list(store.all()))",
    "fetch": "get(key, start_ms), or range(key, from_ms, to_ms)",
    "fetch_all": "all()",
    "find_sessions": "range(key, from_ms, to_ms)",
    "fetch_session": "get(key, start_ms, end_ms)",
    "remove": "delete(key, start_ms, end_ms)",
    "find": "range(key, from_ms, to_ms)",
    "backward_fetch": "reversed(list(store.range(key, from_ms, to_ms)))",
    "backward_fetch_all": "reversed(list(store.all()))",
    "backward_all": "reversed(list(store.all()))",
    "backward_find_sessions": "reversed(list(store.range(key, from_ms, to_ms)))",
}

_FOLDED = "count(), reduce() or aggregate() first, whose table has it"
_COGROUPED = "aggregate(initializer), with what the functions of cogroup(aggregator) make of each record"
_WINDOWED_TABLE = (
    "group_by_key().windowed_by(window).count(), reduce() or aggregate() first, whose table has it"
)
_OF_ITS_DEFINITION = "process(lambda: Mine(...)): a definition may give the processor what it needs"
_PIPED = "pipe_input(topic, key=..., value=..., timestamp_ms=...)"

#: Answers that hold for one class here and those that inherit from it, by its name.
METHODS_OF: Mapping[str, Mapping[str, str]] = {
    "KStream": {
        "to_stream": f"{NOTHING}it is a stream",
        "count": "group_by_key().count()",
        "reduce": "group_by_key().reduce(reducer)",
        "aggregate": "group_by_key().aggregate(initializer, aggregator)",
        "cogroup": "group_by_key().cogroup(aggregator)",
        "suppress": _WINDOWED_TABLE,
    },
    "KTable": {
        "queryable_store_name": "spec.name",
        "to": "to_stream().send_to(topic)",
        "send_to": "to_stream().send_to(topic)",
        "through": "to_stream().through(topic)",
        "print": "to_stream().peek(print)",
        "peek": "to_stream().peek(action)",
        "foreach": "to_stream().foreach(action)",
        "select_key": "to_stream().select_key(selector)",
        "map": "map_values(mapper), or to_stream().map(mapper)",
        "flat_map": "to_stream().flat_map(mapper)",
        "flat_map_values": "to_stream().flat_map_values(mapper)",
        "merge": "to_stream().merge(stream)",
        "branch": "to_stream().branch(predicate)",
        "split": "to_stream().split(small=predicate)",
        "repartition": "to_stream().repartition(partitions)",
        "process": "to_stream().process(definition)",
        "process_values": "transform_values(definition), or to_stream().process_values(definition)",
        "transform": "to_stream().process(definition)",
        "to_table": f"{NOTHING}it is a table",
        "group_by_key": "group_by(selector), or to_stream().group_by_key()",
        "windowed_by": "to_stream().group_by_key().windowed_by(window)",
        "cogroup": "to_stream().group_by_key().cogroup(aggregator)",
        "count": "group_by(selector).count()",
        "reduce": "group_by(selector).reduce(adder, subtractor)",
        "aggregate": "group_by(selector).aggregate(initializer, adder, subtractor)",
    },
    "GlobalKTable": {"queryable_store_name": "topic"},
    "KGroupedStream": {"to_stream": _FOLDED, "suppress": _WINDOWED_TABLE.removeprefix("group_by_key().")},
    "WindowedKGroupedStream": {"to_stream": _FOLDED, "suppress": _FOLDED},
    "KGroupedTable": {"to_stream": _FOLDED},
    "CogroupedKStream": {"count": _COGROUPED, "reduce": _COGROUPED},
    "WindowedCogroupedKStream": {"count": _COGROUPED, "reduce": _COGROUPED},
    "ProcessorContext": {
        "application_id": _OF_ITS_DEFINITION,
        "app_configs": _OF_ITS_DEFINITION,
        "app_configs_with_prefix": _OF_ITS_DEFINITION,
        "state_dir": "state_store(name): what a processor keeps belongs into a store",
        "metrics": f"{NOTHING}a run counts its records by itself, at every node",
    },
    # What it refuses by its own name.
    "AsyncProcessorContext": {
        "get_state_store": "state_store(name)",
        "current_stream_time_ms": "stream_time_ms",
        "application_id": _OF_ITS_DEFINITION,
        "app_configs": _OF_ITS_DEFINITION,
    },
    "TopologyTestDriver": {
        "create_input_topic": _PIPED,
        "create_output_topic": "read_output(topic)",
        "read_record": "read_output(topic)",
        "advance_wall_clock_time": "advance_wall_clock(by_ms)",
        "metrics": "counts",
        **dict.fromkeys(
            [
                "state_store",
                "get_state_store",
                "get_all_state_stores",
                "get_key_value_store",
                "get_timestamped_key_value_store",
                "get_versioned_key_value_store",
                "get_window_store",
                "get_timestamped_window_store",
                "get_session_store",
            ],
            "store(name)",
        ),
    },
}

# == classes of the DSL

_STORE = "StoreSpec(name=..., key_serde=..., value_serde=...)"

#: For methods of a class of which none is named.
ALL = "*"

_NO_METHODS: Mapping[str, str] = MappingProxyType({})


class JavaClass(NamedTuple):
    """What stands for a class.

    :ivar ours: what to write.
    :ivar methods: the same for its methods, by their names in Java; ``ALL`` for all that are not there.
    :ivar kind: the name of our class; empty if we have none.
    :ivar looked_up: methods whose answers are those of our class.
    """

    ours: str
    methods: Mapping[str, str] = _NO_METHODS
    kind: str = ""
    looked_up: tuple[str, ...] = ()


def _same(kind: str, looked_up: str, **methods: str) -> JavaClass:
    return JavaClass(kind, methods, kind, tuple(looked_up.split()))


def _function(signature: str) -> JavaClass:
    text = f"a function or lambda: {signature}"
    return JavaClass(text, {ALL: text})


def _serde_of_windows(maker: str) -> JavaClass:
    return JavaClass(maker, {ALL: f"{maker}, which both serializes and deserializes"})


_KEY, _VALUE = "key_serde=", "value_serde="
_NAME = "name="
_STORAGE = "StoreSpec(storage='memory') or StoreSpec(storage='rocksdb')"
_DONE_ONCE = "nothing: a window's size and grace are given once, to its constructor"
_JOIN_WINDOW = "SlidingWindow(size_ms=...) of each stream: with_window(window) before the join"
_UNBOUNDED = "nothing: fold without windows, group_by_key().aggregate(initializer, aggregator)"
_HELD_IN_STORE = "nothing: suppress() holds windows in the table's own store, which may be on disk"
_MET_AS_OF = "VersionedStoreSpec(history_ms=...) for the table; a record that comes early does not wait"
_TRANSFORMER = "process(definition), with a Processor"
_VALUE_TRANSFORMER = "process_values(definition) of a stream, transform_values(definition) of a table"
_LOGGED = {
    "withLoggingEnabled": "StoreSpec(changelog_configs={...}); stores are logged unless logged=False",
    "withLoggingDisabled": "StoreSpec(logged=False)",
}
_WINDOW_OF_TIME = {
    "size": "window.size_ms",
    "gracePeriodMs": "window.grace_ms",
    "windowsFor": "nothing: which windows a record is in is the fold's business",
}

#: By their names in Java, an inner class behind its outer one and a dot.
CLASSES: Mapping[str, JavaClass] = {
    "StreamsBuilder": _same("KStreamBuilder", "addGlobalStore addStateStore build globalTable stream table"),
    "Topology": _same(
        "TopologyBuilder",
        "addGlobalStore addProcessor addReadOnlyStateStore addSink addSource addStateStore "
        "connectProcessorAndStateStores describe",
    ),
    "KStream": _same(
        "KStream",
        "filter filterNot flatMap flatMapValues foreach groupBy groupByKey join leftJoin map mapValues merge "
        "outerJoin peek print process processValues repartition selectKey split to toTable",
    ),
    "BranchedKStream": JavaClass(
        "the dict that split(small=predicate, default='other') returns",
        {
            "branch": "split(small=predicate, large=predicate): one keyword for each branch",
            "defaultBranch": "split(small=predicate, default='other')",
            "noDefaultBranch": "split(small=predicate), which drops the records that no predicate takes",
        },
    ),
    "KGroupedStream": _same("KGroupedStream", "aggregate cogroup count reduce windowedBy"),
    "TimeWindowedKStream": _same("WindowedKGroupedStream", "aggregate count emitStrategy reduce"),
    "SessionWindowedKStream": _same("WindowedKGroupedStream", "aggregate count emitStrategy reduce"),
    "CogroupedKStream": _same("CogroupedKStream", "aggregate cogroup windowedBy"),
    "TimeWindowedCogroupedKStream": _same("WindowedCogroupedKStream", "aggregate"),
    "SessionWindowedCogroupedKStream": _same("WindowedCogroupedKStream", "aggregate"),
    "KTable": _same(
        "KTable",
        "filter filterNot groupBy join leftJoin mapValues outerJoin queryableStoreName suppress toStream "
        "transformValues",
    ),
    "KGroupedTable": _same("KGroupedTable", "aggregate count reduce"),
    "GlobalKTable": _same("GlobalKTable", "", queryableStoreName="topic"),
    # Windows.
    "Windowed": _same("Windowed", "key", window="start_ms and end_ms"),
    "Window": JavaClass(
        "Windowed: its start_ms and end_ms, epoch milliseconds",
        {
            "start": "start_ms",
            "end": "end_ms",
            "startTime": "start_ms",
            "endTime": "end_ms",
            "overlap": "a.start_ms < b.end_ms and b.start_ms < a.end_ms",
        },
    ),
    "Windows": JavaClass("TumblingWindow, HoppingWindow, SlidingWindow or SessionWindow", _WINDOW_OF_TIME),
    "TimeWindows": JavaClass(
        "TumblingWindow or HoppingWindow",
        {
            "ofSizeWithNoGrace": "TumblingWindow(size_ms=..., grace_ms=0)",
            "ofSizeAndGrace": "TumblingWindow(size_ms=..., grace_ms=...)",
            "advanceBy": "HoppingWindow(size_ms=..., advance_ms=...)",
            **_WINDOW_OF_TIME,
        },
    ),
    "SlidingWindows": JavaClass(
        "SlidingWindow",
        {
            "ofTimeDifferenceWithNoGrace": "SlidingWindow(size_ms=..., grace_ms=0)",
            "ofTimeDifferenceAndGrace": "SlidingWindow(size_ms=..., grace_ms=...)",
            "timeDifferenceMs": "window.size_ms",
            "gracePeriodMs": "window.grace_ms",
        },
    ),
    "SessionWindows": JavaClass(
        "SessionWindow",
        {
            "ofInactivityGapWithNoGrace": "SessionWindow(gap_ms=..., grace_ms=0)",
            "ofInactivityGapAndGrace": "SessionWindow(gap_ms=..., grace_ms=...)",
            "inactivityGap": "window.gap_ms",
            "gracePeriodMs": "window.grace_ms",
        },
    ),
    "JoinWindows": JavaClass(
        "SlidingWindow, one of each stream",
        {
            "ofTimeDifferenceAndGrace": _JOIN_WINDOW,
            "ofTimeDifferenceWithNoGrace": f"{_JOIN_WINDOW}; grace_ms=0",
            "of": _JOIN_WINDOW,
            "grace": "SlidingWindow(size_ms=..., grace_ms=...)",
            "before": "the right stream's SlidingWindow(size_ms=...)",
            "after": "the left stream's SlidingWindow(size_ms=...)",
            **_WINDOW_OF_TIME,
        },
    ),
    "UnlimitedWindows": JavaClass(_UNBOUNDED, {ALL: _UNBOUNDED}),
    "EmitStrategy": JavaClass(
        "suppress() on the table, which emits on close",
        {
            "onWindowClose": "suppress() on the table",
            "onWindowUpdate": "nothing: that is what a table does",
            "type": _DONE_ONCE,
        },
    ),
    "EmitStrategy.StrategyType": JavaClass(
        "suppress() on the table, or not", {ALL: "suppress() on the table emits on close, a table on update"}
    ),
    "Suppressed": JavaClass(
        "suppress() on the table",
        {
            "untilWindowCloses": "suppress()",
            "untilTimeLimit": "StoreSpec(cached=True): a cached table emits a key once per commit point",
            "withName": "suppress(name=...)",
        },
    ),
    "Suppressed.BufferConfig": JavaClass(_HELD_IN_STORE, {ALL: _HELD_IN_STORE}),
    "Suppressed.EagerBufferConfig": JavaClass(_HELD_IN_STORE, {ALL: _HELD_IN_STORE}),
    "Suppressed.StrictBufferConfig": JavaClass(_HELD_IN_STORE, {ALL: _HELD_IN_STORE}),
    # Objects that are parameters here.
    "Materialized": JavaClass(
        f"store='name', or store={_STORE}",
        {
            "as": "store='name'; VersionedStoreSpec(history_ms=...) for a versioned store",
            "with": f"store={_STORE}",
            "withKeySerde": _STORE,
            "withValueSerde": f"{_VALUE}, or {_STORE}",
            "withCachingEnabled": "StoreSpec(cached=True)",
            "withCachingDisabled": "StoreSpec(cached=False)",
            "withRetention": "WindowStoreSpec(retention_ms=...) or SessionStoreSpec(retention_ms=...)",
            "withStoreType": _STORAGE,
            **_LOGGED,
        },
    ),
    "Materialized.StoreType": JavaClass(_STORAGE, {ALL: _STORAGE}),
    "Consumed": JavaClass(
        "parameters of stream(topic) and table(topic)",
        {
            "with": f"{_KEY}, {_VALUE}, timestamps=",
            "as": _NAME,
            "withKeySerde": _KEY,
            "withValueSerde": _VALUE,
            "withTimestampExtractor": "timestamps=timestamps.extract(function)",
            "withOffsetResetPolicy": "the setting first.run.offsets, earliest or latest",
            "withName": _NAME,
        },
    ),
    "Produced": JavaClass(
        "parameters of send_to(topic)",
        {
            "with": f"{_KEY}, {_VALUE}",
            "as": _NAME,
            "keySerde": _KEY,
            "valueSerde": _VALUE,
            "streamPartitioner": "partitioner=function",
            "withKeySerde": _KEY,
            "withValueSerde": _VALUE,
            "withStreamPartitioner": "partitioner=function",
            "withName": _NAME,
        },
    ),
    "Repartitioned": JavaClass(
        "parameters of repartition(partitions)",
        {
            "as": _NAME,
            "with": f"{_KEY}, {_VALUE}",
            "streamPartitioner": "nothing: a key finds its state by its bytes",
            "withStreamPartitioner": "nothing: a key finds its state by its bytes",
            "numberOfPartitions": "repartition(partitions)",
            "withNumberOfPartitions": "repartition(partitions)",
            "withKeySerde": _KEY,
            "withValueSerde": _VALUE,
            "withName": _NAME,
        },
    ),
    "Grouped": JavaClass(
        "parameters of group_by(selector) and group_by_key()",
        {
            "as": f"{_NAME}, of the repartition topic",
            "with": f"{_KEY}, {_VALUE}",
            "keySerde": _KEY,
            "valueSerde": _VALUE,
            "withKeySerde": _KEY,
            "withValueSerde": _VALUE,
            "withName": f"{_NAME}, of the repartition topic",
        },
    ),
    "Joined": JavaClass(
        "parameters of join(table, joiner)",
        {
            "with": f"{_VALUE}; keys have the table's serde",
            "as": f"{_NAME}, of the repartition topic",
            "keySerde": "nothing: keys have the table's serde",
            "valueSerde": _VALUE,
            "otherValueSerde": "nothing: the table has its own",
            "withKeySerde": "nothing: keys have the table's serde",
            "withValueSerde": _VALUE,
            "withOtherValueSerde": "nothing: the table has its own",
            "withName": f"{_NAME}, of the repartition topic",
            "withGracePeriod": _MET_AS_OF,
            "gracePeriod": _MET_AS_OF,
        },
    ),
    "StreamJoined": JavaClass(
        "parameters of join(stream, joiner), and with_window(window, storage=...)",
        {
            "with": f"{_KEY}, {_VALUE}, other_value_serde=",
            "as": f"{_NAME}, of the stores and repartition topics",
            "withName": f"{_NAME}, of the stores and repartition topics",
            "withStoreName": f"{_NAME}, of the stores and repartition topics",
            "withKeySerde": _KEY,
            "withValueSerde": _VALUE,
            "withOtherValueSerde": "other_value_serde=",
            "withDslStoreSuppliers": "with_window(window, storage='rocksdb')",
            "withThisStoreSupplier": "with_window(window, storage='rocksdb')",
            "withOtherStoreSupplier": "with_window(window, storage='rocksdb')",
            "withLoggingEnabled": "nothing: stores of joins are always logged",
            "withLoggingDisabled": "nothing: stores of joins are always logged",
        },
    ),
    "TableJoined": JavaClass(
        "parameters of a table's join(table, joiner)",
        {
            "with": "nothing: a key finds its entry by its bytes",
            "withPartitioner": "nothing: a key finds its entry by its bytes",
            "withOtherPartitioner": "nothing: a key finds its entry by its bytes",
            "as": _NAME,
            "withName": _NAME,
        },
    ),
    "Branched": JavaClass(
        "keywords of split(small=predicate, default='other')",
        {
            "as": "the keyword: split(small=predicate)",
            "withFunction": "the branch itself: split(small=predicate)['small']",
            "withConsumer": "the branch itself: split(small=predicate)['small']",
            "withName": "the keyword: split(small=predicate)",
        },
    ),
    "Named": JavaClass(_NAME, {"as": _NAME, "withName": _NAME}),
    "Printed": JavaClass(
        "peek(print)",
        {
            "toFile": "peek(function), with a function that writes",
            "toSysOut": "peek(print)",
            "withLabel": "peek(lambda key, value: print('label', key, value))",
            "withKeyValueMapper": "peek(lambda key, value: print(value))",
            "withName": "peek(print, name=...)",
        },
    ),
    # Functions.
    "Aggregator": _function("lambda key, value, aggregate: ..."),
    "ForeachAction": _function("lambda key, value: ..."),
    "ForeachProcessor": JavaClass("foreach(action)", {"process": "foreach(action)"}),
    "Initializer": _function("lambda: ..., or a class such as list"),
    "KeyValueMapper": _function("lambda key, value: ...; for map it returns a pair, (key, value)"),
    "Merger": _function("lambda key, left, right: ..."),
    "Predicate": _function("lambda key, value: ..."),
    "Reducer": _function("lambda one, other: ..."),
    "ValueJoiner": _function("lambda value, other: ..."),
    "ValueJoinerWithKey": JavaClass(
        "a function of two values; map(function) behind the join has the key, too",
        {ALL: "a function of two values; map(function) behind the join has the key, too"},
    ),
    "ValueMapper": _function("lambda value: ..."),
    "ValueMapperWithKey": JavaClass(
        "map(lambda key, value: (key, ...)), or process_values(definition), which keeps keys",
        {ALL: "map(lambda key, value: (key, ...)), or process_values(definition), which keeps keys"},
    ),
    "Transformer": JavaClass(_TRANSFORMER, {ALL: _TRANSFORMER}),
    "TransformerSupplier": JavaClass(_TRANSFORMER, {ALL: "the class itself: process(definition)"}),
    "ValueTransformer": _same("ValueTransformer", "init transform close"),
    "ValueTransformerSupplier": JavaClass(
        _VALUE_TRANSFORMER, {ALL: "the class itself: transform_values(definition)"}
    ),
    "ValueTransformerWithKey": _same("ValueTransformer", "init transform close"),
    "ValueTransformerWithKeySupplier": JavaClass(
        _VALUE_TRANSFORMER, {ALL: "the class itself: transform_values(definition)"}
    ),
    # Serdes.
    "WindowedSerdes": JavaClass(
        "serdes.time_windowed(serde, size_ms) and serdes.session_windowed(serde)",
        {
            "timeWindowedSerdeFrom": "serdes.time_windowed(serde, size_ms)",
            "sessionWindowedSerdeFrom": "serdes.session_windowed(serde)",
        },
    ),
    "WindowedSerdes.TimeWindowedSerde": _serde_of_windows("serdes.time_windowed(serde, size_ms)"),
    "WindowedSerdes.SessionWindowedSerde": _serde_of_windows("serdes.session_windowed(serde)"),
    "TimeWindowedSerializer": _serde_of_windows("serdes.time_windowed(serde, size_ms)"),
    "TimeWindowedDeserializer": _serde_of_windows("serdes.time_windowed(serde, size_ms)"),
    "SessionWindowedSerializer": _serde_of_windows("serdes.session_windowed(serde)"),
    "SessionWindowedDeserializer": _serde_of_windows("serdes.session_windowed(serde)"),
}


class OwnValues(NamedTuple):
    """What a class of ours answers, of which objects are values and the class itself is asked, too.

    :ivar javas: classes of Java whose methods it answers; what the first of them answers holds.
    :ivar others: method -> what to write, for those that are in no table.
    """

    javas: tuple[str, ...] = ()
    others: Mapping[str, str] = _NO_METHODS


#: By the names of our classes.
OWN_VALUES: Mapping[str, OwnValues] = {
    "Branches": OwnValues(("BranchedKStream",)),
    "HoppingWindow": OwnValues(
        ("TimeWindows",),
        {
            "of": "HoppingWindow(size_ms=..., advance_ms=...)",
            "grace": "HoppingWindow(size_ms=..., advance_ms=..., grace_ms=...)",
        },
    ),
    "ProcessorRecord": OwnValues(
        others={
            "timestamp": "timestamp_ms",
            **dict.fromkeys(
                ("withKey", "withValue", "withTimestamp", "withHeaders"),
                "context.forward(key, value, timestamp_ms=..., headers=...)",
            ),
        }
    ),
    "RecordContext": OwnValues(
        others={
            "timestamp": "timestamp_ms",
            **dict.fromkeys(("recordMetadata", "record_metadata"), "topic, partition and offset"),
        }
    ),
    "SessionWindow": OwnValues(
        ("SessionWindows",),
        {"with_": "SessionWindow(gap_ms=...)", "grace": "SessionWindow(gap_ms=..., grace_ms=...)"},
    ),
    "SlidingWindow": OwnValues(("SlidingWindows", "JoinWindows")),
    "StoreSpec": OwnValues(("Materialized",)),
    "TumblingWindow": OwnValues(
        ("TimeWindows",),
        {"of": "TumblingWindow(size_ms=...)", "grace": "TumblingWindow(size_ms=..., grace_ms=...)"},
    ),
    "Windowed": OwnValues(("Windowed", "Window")),
}

# == classes beside the DSL: the Processor API, stores, time, errors, settings and the test driver

_ANY_STORE = f"{_STORE}, or a WindowStoreSpec, SessionStoreSpec or VersionedStoreSpec"
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
    "KeyValueBytesStoreSupplier": _STORE,
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

# == settings

_CLIENT = "it is a Kafka client's setting: put it into the Kafka connection, or the file of --client-config"
_NO_GROUP = "no consumer group is joined, each run assigns partitions itself; leave it out"
_NO_STANDBY = "tasks run on Spark's executors, which hold no state between runs; leave it out"

#: Settings of Kafka Streams and its clients that are none here -> what to do.
SETTINGS_OF_STREAMS: Mapping[str, str] = {
    "application.id": "it is given beside the settings: application_id, or --application-id",
    "application.server": "there are no interactive queries; leave it out",
    "bootstrap.servers": _CLIENT,
    "client.id": _CLIENT,
    "security.protocol": _CLIENT,
    "group.id": "it is the application id; choose another application_id",
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "enable.auto.commit": "offsets are committed with the results; set commit.interval.ms",
    "auto.offset.reset": "set first.run.offsets=earliest or latest",
    "isolation.level": "it follows processing.guarantee",
    "transactional.id": "it is made of the application id and the task",
    "default.key.serde": "give KStreamBuilder(default_key_serde=...)",
    "default.value.serde": "give KStreamBuilder(default_value_serde=...)",
    "default.timestamp.extractor": "give builder.stream(topic, timestamps=...)",
    "default.deserialization.exception.handler": "set deserialization.exception.handler to fail, skip or "
    "dead-letter",
    "default.production.exception.handler": "set production.exception.handler to fail, skip or dead-letter",
    "default.dsl.store": "give StoreSpec(storage='memory' or 'rocksdb'), for joins with_window(storage=...)",
    "dsl.store.suppliers.class": "give StoreSpec(storage='memory' or 'rocksdb')",
    "cache.max.bytes.buffering": "give StoreSpec(cached=...); what is cached is emitted at commit points",
    "statestore.cache.max.bytes": "give StoreSpec(cached=...); what is cached is emitted at commit points",
    "replication.factor": "set internal.replication.factor",
    "num.standby.replicas": _NO_STANDBY,
    "max.warmup.replicas": _NO_STANDBY,
    "probing.rebalance.interval.ms": _NO_STANDBY,
    "max.task.idle.ms": "a task waits for every input until its stop offset; leave it out",
    "poll.ms": "leave it out",
    "repartition.purge.interval.ms": "every finished run purges the repartition topics; leave it out",
    "request.timeout.ms": "set client.timeout.ms",
    "task.timeout.ms": "set run.stall.timeout.ms",
    "topology.optimization": "source topics are never changelogs here; leave it out",
    "upgrade.from": "there are no rolling upgrades, runs begin and end; leave it out",
    "window.size.ms": "give TumblingWindow(size_ms=...)",
    "windowstore.changelog.additional.retention.ms": "a window's deletion is in its changelog; leave it out",
    "rocksdb.config.setter": "leave it out",
    "state.cleanup.delay.ms": "local files that no run can use are removed by the next one; leave it out",
}

#: What a handler of Kafka Streams answers, and what that is called here.
_CONTINUE = {"continue": "skip", "resume": "skip"}


def _handlers(failing: str, skipping: str) -> dict[str, str]:
    """Return the classes of Kafka Streams that fail and go on, with and without their package."""
    package = "org.apache.kafka.streams.errors."
    ours = {failing: "fail", skipping: "skip"}
    known = {f"{java}ExceptionHandler": policy for java, policy in ours.items() if java}
    return {**known, **{f"{package}{java}": policy for java, policy in known.items()}}


#: Values that Kafka Streams has for settings of the same name -> ours.
VALUES_OF_STREAMS: Mapping[str, Mapping[str, str]] = {
    "processing.guarantee": {"exactly_once_v2": "exactly_once", "exactly_once_beta": "exactly_once"},
    "deserialization.exception.handler": {**_CONTINUE, **_handlers("LogAndFail", "LogAndContinue")},
    "processing.exception.handler": {
        **_CONTINUE,
        **_handlers("LogAndFailProcessing", "LogAndContinueProcessing"),
    },
    "production.exception.handler": {**_CONTINUE, **_handlers("DefaultProduction", "")},
}
