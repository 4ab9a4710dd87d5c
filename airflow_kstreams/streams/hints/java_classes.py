"""The public classes of Kafka Streams' DSL (4.3), and what stands for them and their methods here.

Three kinds: classes that we have, too, under the same name or another; classes whose objects are arguments
there (``Materialized``, ``Named``, ...), for which there are plain parameters here; and interfaces of one
method, for which any function does. ``docs/reference/from-java.md`` is drawn from this table, a test holds it
to the jar, and an import of such a class is answered by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

from airflow_kstreams.streams.hints.java_names import java_method, told
from airflow_kstreams.streams.hints.java_neighbours import NEIGHBOURS, STORE

T = TypeVar("T")

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
_TIME_WINDOW = "TumblingWindow(size_ms=...)"
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
        f"store='name', or store={STORE}",
        {
            "as": "store='name'; VersionedStoreSpec(history_ms=...) for a versioned store",
            "with": f"store={STORE}",
            "withKeySerde": STORE,
            "withValueSerde": f"{_VALUE}, or {STORE}",
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


def java_class(name: str) -> str:
    """Return what to write in place of a class of Kafka Streams, empty if it is none.

    >>> java_class("StreamsBuilder"), java_class("Named"), java_class("Nonsense")
    ('KStreamBuilder', 'name=', '')
    >>> java_class("VersionedBytesStoreSupplier")
    'VersionedStoreSpec(history_ms=...)'
    """
    return CLASSES[name].ours if name in CLASSES else NEIGHBOURS.get(name, "")


def ours_for(java: str, method: str) -> str:
    """Return what to write in place of a method of a class of Kafka Streams, empty if that is not known.

    >>> ours_for("KStream", "mapValues"), ours_for("KStream", "nonsense")
    ('map_values', '')
    >>> ours_for("Materialized", "withCachingDisabled")
    'StoreSpec(cached=False)'
    """
    found = CLASSES[java]
    if method in found.methods or ALL in found.methods:
        return found.methods.get(method) or found.methods[ALL]
    if method not in found.looked_up:
        return ""
    kind = getattr(import_module("airflow_kstreams.streams"), found.kind)
    return method if hasattr(kind, method) else java_method(kind, method)


class _Lacking:
    """Stands for a method of Kafka Streams that a class here lacks; asking for it says what to write.

    :param ours: what stands for it.
    """

    def __init__(self, name: str, ours: str) -> None:
        self._name = name
        self._ours = ours

    def __get__(self, asked: object, kind: type[Any]) -> NoReturn:
        raise AttributeError(
            f"{kind.__name__!r} has no attribute {self._name!r}: {told(self._ours)}",
            name=self._name,
            obj=kind if asked is None else asked,
        )


def answers_methods_of(*javas: str, **others: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class so that methods of classes of Kafka Streams are answered where they are asked of its
    objects or of itself. The attributes stay lacking: ``hasattr`` says so. To ask for one that is there takes
    no longer than before, unlike behind ``answers_java_names``.

    :param javas: classes of the table; what the first of them answers holds.
    :param others: method -> what to write, for those that are in no table.
    """

    def decorate(kind: type[T]) -> type[T]:
        answers = {name: ours for java in reversed(javas) for name, ours in CLASSES[java].methods.items()}
        for name, ours in {**answers, **others}.items():
            if name != ALL and not hasattr(kind, name):
                setattr(kind, name, _Lacking(name, ours))
        return kind

    return decorate
