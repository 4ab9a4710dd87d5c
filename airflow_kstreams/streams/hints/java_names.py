"""What Kafka Streams' users would write, and what it is called here.

Two kinds of names: methods of the DSL and of the Processor API (Kafka Streams 4.3), which are answered by the
AttributeError of an object that lacks them, and settings (its ``StreamsConfig``), which are answered by the
ConfigError of a name or value that is none of ours.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: What an answer begins with where it is an attribute of the object that was asked.
_BEGINNING = re.compile(r"([a-z_]+)(?:\(|\Z)")
#: An answer that is no code to write, but something to pass.
_PARAMETERS = re.compile(r"(?:parameters|keywords) of |[a-z_]+=")
_NOTHING = "nothing: "

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
        "to_stream": f"{_NOTHING}it is a stream",
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
        "to_table": f"{_NOTHING}it is a table",
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
        "metrics": f"{_NOTHING}a run counts its records by itself, at every node",
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


def answers_java_names(kind: type[T]) -> type[T]:
    """Decorate a class so that a method's name in Kafka Streams is answered by what stands for it here.

    The attribute stays lacking: ``hasattr`` says so. Type checkers see nothing of it.
    """

    def answer(self: T, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        ours = java_method(type(self), name)
        raise AttributeError(f"{message}: {told(ours)}" if ours else message, name=name, obj=self)

    kind.__getattr__ = answer  # type: ignore[attr-defined]
    return kind


def java_method(kind: type[Any], name: str) -> str:
    """Return what to write in place of a method of Kafka Streams, empty if it is none.

    >>> class Stream:
    ...     def map_values(self): ...
    ...     def send_to(self, topic): ...
    >>> java_method(Stream, "mapValues"), java_method(Stream, "to"), java_method(Stream, "nonsense")
    ('map_values', 'send_to(topic)', '')
    """
    ours = _CAPITAL.sub("_", name).lower()
    if name.startswith("_"):
        return ""
    if ours != name and hasattr(kind, ours):
        return ours
    for base in kind.__mro__:
        if ours in METHODS_OF.get(base.__name__, ()):
            return METHODS_OF[base.__name__][ours]
    answer = METHODS.get(ours, "")
    beginning = _BEGINNING.match(answer)
    known = beginning is None or hasattr(kind, beginning[1]) or hasattr(builtins, beginning[1])
    return answer if known else ""


def told(ours: str) -> str:
    """Return an answer as what a message says: to write or pass it, or why there is nothing to write.

    >>> told("peek(print)"), told("parameters of send_to(topic)"), told("nothing: it is a stream")
    ('write peek(print)', 'pass parameters of send_to(topic)', 'it is a stream')
    """
    if ours.startswith(_NOTHING):
        return ours.removeprefix(_NOTHING)
    return f"{'pass' if _PARAMETERS.match(ours) else 'write'} {ours}"
