"""Names of Kafka Streams are answered by ours, and what the answers name is there."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from airflow_kstreams.streams import (
    AsyncProcessorContext,
    CogroupedKStream,
    ConfigError,
    GlobalKTable,
    HoppingWindow,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KStreamBuilder,
    KTable,
    ProcessorContext,
    ProcessorRecord,
    SessionStore,
    SessionWindow,
    TopologyBuilder,
    TumblingWindow,
    WindowedCogroupedKStream,
    WindowedKGroupedStream,
    WindowStore,
    serdes,
)
from airflow_kstreams.streams.hints.java_names import (
    METHODS,
    METHODS_OF,
    VALUES_OF_SETTINGS,
    java_method,
    told,
)
from airflow_kstreams.streams.hints.java_names import SETTINGS as SETTINGS_OF_STREAMS
from airflow_kstreams.streams.records.record_context import RecordContext
from airflow_kstreams.streams.settings import SETTINGS, ApplicationSettings
from airflow_kstreams.streams.state.stores.memory.in_memory import InMemoryKeyValueStore
from airflow_kstreams.testing import StoreView, TopologyTestDriver

#: The public methods of Kafka Streams 4.3.0, and some that it had before, by the class that stands for it.
JAVA: dict[Any, str] = {
    KStreamBuilder: "addGlobalStore addStateStore build globalTable stream table",
    TopologyBuilder: "addGlobalStore addProcessor addReadOnlyStateStore addSink addSource addStateStore "
    "connectProcessorAndStateStores describe",
    KStream: "filter filterNot flatMap flatMapValues foreach groupBy groupByKey join leftJoin map mapValues "
    "merge outerJoin peek print process processValues repartition selectKey split to toTable branch "
    "defaultBranch noDefaultBranch through transform transformValues toStream suppress count "
    "reduce aggregate",
    KTable: "filter filterNot groupBy join leftJoin mapValues outerJoin queryableStoreName suppress toStream "
    "transformValues to print send_to foreach peek select_key groupByKey map toTable through flatMap process",
    KGroupedTable: "aggregate count reduce toStream",
    KGroupedStream: "aggregate cogroup count reduce windowedBy toStream suppress",
    CogroupedKStream: "aggregate cogroup windowedBy count reduce",
    WindowedCogroupedKStream: "aggregate count reduce",
    WindowedKGroupedStream: "aggregate count emitStrategy reduce toStream suppress",
    TopologyTestDriver: "createInputTopic createOutputTopic getKeyValueStore getWindowStore getSessionStore "
    "getVersionedKeyValueStore getAllStateStores getStateStore get_state_store advanceWallClockTime close",
    StoreView: "get all range approximateNumEntries fetch",
    AsyncProcessorContext: "forward currentSystemTimeMs taskId offset partition topic timestamp",
    ProcessorContext: "applicationId metrics stateDir appConfigs timestamp forward commit "
    "currentStreamTimeMs currentSystemTimeMs getStateStore recordMetadata schedule taskId offset partition "
    "topic",
    InMemoryKeyValueStore: "delete put putAll putIfAbsent all get prefixScan range reverseAll reverseRange "
    "approximateNumEntries",
    WindowStore: "backwardAll backwardFetch backwardFetchAll fetch fetchAll put all",
    SessionStore: "backwardFetch backwardFindSessions fetch fetchSession findSessions put remove",
}
#: Classes of values, which are asked themselves, too.
VALUES = (HoppingWindow, ProcessorRecord, RecordContext, SessionWindow, TumblingWindow)
WANTED = [(kind, name) for kind, names in JAVA.items() for name in names.split()]


WINDOW = TumblingWindow(size_ms=10)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


@pytest.mark.parametrize(("kind", "name"), WANTED)
def test_method_of_kafka_streams_is_there_or_answered(kind: Any, name: str) -> None:
    assert hasattr(kind, name) or java_method(kind, name)


ANSWERS = {*METHODS.values(), *(answer for answers in METHODS_OF.values() for answer in answers.values())}


@pytest.mark.parametrize("answer", sorted(ANSWERS))
def test_answer_names_what_there_is(answer: str) -> None:
    named = re.findall(r"(?<![\w.])(?:store\.|builder\.)?([a-z_]+)\(", answer)
    known = {*dir(__builtins__), *(name for kind in JAVA for name in dir(kind)), "reversed", "list"}
    assert {*named} <= known


@pytest.mark.parametrize(
    ("make", "java", "ours"),
    [
        (lambda: builder().stream("in"), "mapValues", "map_values"),
        (lambda: builder().stream("in"), "to", "send_to(topic)"),
        (lambda: builder().stream("in"), "groupByKey", "group_by_key"),
        (lambda: builder().stream("in"), "windowedBy", "stream.group_by_key().windowed_by(window)"),
        (lambda: builder().stream("in").group_by_key(), "windowedBy", "windowed_by"),
        (lambda: builder().table("in"), "toStream", "to_stream"),
        (lambda: builder().table("in"), "to", "to_stream().send_to(topic)"),
        (lambda: builder().table("in"), "send_to", "to_stream().send_to(topic)"),
        (lambda: builder().table("in"), "print", "to_stream().peek(print)"),
        (lambda: builder().stream("in").group_by_key().windowed_by(WINDOW).count(), "to", "to_stream().send"),
        (lambda: builder().stream("in"), "count", "group_by_key().count()"),
        (lambda: builder(), "addGlobalStore", "builder.global_table(topic), which streams join"),
        (lambda: TopologyBuilder(), "addSource", "add_source"),
    ],
)
def test_error_names_our_method_when_java_s_is_called(make: Any, java: str, ours: str) -> None:
    asked = make()
    with pytest.raises(AttributeError, match=re.escape(f"no attribute {java!r}: write {ours}")) as no:
        getattr(asked, java)
    assert (no.value.name, no.value.obj) == (java, asked)
    assert not hasattr(asked, java)


def test_name_of_a_store_is_answered_only_where_the_object_has_what_the_answer_names() -> None:
    kinds = (KTable, GlobalKTable, KStream, KGroupedStream)
    answers = {kind.__name__: java_method(kind, "queryableStoreName") for kind in kinds}
    assert answers == {"KTable": "spec.name", "GlobalKTable": "topic", "KStream": "", "KGroupedStream": ""}


@pytest.mark.parametrize(
    ("kind", "name"), [(KGroupedStream, "to"), (KGroupedTable, "print"), (KTable, "send")]
)
def test_answer_is_given_only_where_the_object_has_what_it_begins_with(kind: Any, name: str) -> None:
    assert java_method(kind, name) == ""


@pytest.mark.parametrize("name", sorted(METHODS_OF))
def test_answer_of_a_class_begins_with_what_that_has(name: str) -> None:
    (kind,) = (kind for kind in (*JAVA, *VALUES, GlobalKTable) if kind.__name__ == name)
    for answer in METHODS_OF[name].values():
        beginning = re.match(r"([a-z_]+)(?:\(|\Z)", answer)
        refused = name == "AsyncProcessorContext" and answer in ("state_store(name)", "stream_time_ms")
        assert beginning is None or refused or beginning[1] == "process" or hasattr(kind, beginning[1]), (
            answer
        )


def test_message_says_why_when_there_is_nothing_to_write() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'toStream': it is a stream\Z"):
        builder().stream("in").toStream()  # type: ignore[attr-defined]
    assert told("name=") == "pass name="


def test_other_names_stay_lacking() -> None:
    stream = builder().stream("in")
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'\Z"):
        stream.nonsense  # type: ignore[attr-defined]  # noqa: B018
    assert type(copy.copy(stream)) is KStream


@pytest.mark.parametrize("name", sorted(SETTINGS_OF_STREAMS))
def test_setting_of_kafka_streams_is_answered(name: str) -> None:
    assert name not in SETTINGS
    with pytest.raises(ConfigError, match=f"unknown setting '{re.escape(name)}'") as no:
        ApplicationSettings.parse("app", {name: "1"})
    assert no.value.fix == SETTINGS_OF_STREAMS[name]


def test_settings_that_answers_name_are_there() -> None:
    texts = SETTINGS_OF_STREAMS.values()
    named = {name for text in texts for name in re.findall(r"\bset ([a-z]+(?:\.[a-z]+)+)", text)}
    assert named
    assert named <= {*SETTINGS}


def test_value_of_kafka_streams_is_answered() -> None:
    for name, values in VALUES_OF_SETTINGS.items():
        for java, ours in values.items():
            with pytest.raises(ConfigError) as no:
                ApplicationSettings.parse("app", {name: java})
            assert no.value.fix.startswith(f"write {ours}, ")
            ApplicationSettings.parse("app", {name: ours})
