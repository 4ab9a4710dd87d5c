"""Every class of Kafka Streams' DSL is answered by ours, and what the answers name is there.

No class or method is missing, as ``tests/integration/java/test_public_names.py`` sees beside the jar.
"""

from __future__ import annotations

import builtins
import copy
import inspect
import re
from typing import Any

import pytest

import airflow_kstreams.streams as ours
import airflow_kstreams.testing as testing
from airflow_kstreams.streams.hints.java_names import ALL, CLASSES, NEIGHBOURS, java_class, ours_for, told
from airflow_kstreams.streams.records.record_context import RecordContext

OWN = {name: getattr(ours, name) for name in ours.__all__}
#: What answers name of other packages, each with the package's name.
OTHERS = {"run", "stored_state", "TopologyTestDriver"}
ANSWERS = sorted(
    {found.ours for found in CLASSES.values()}
    | {text for found in CLASSES.values() for text in found.methods.values()}
    | {ours_for(java, method) for java, found in CLASSES.items() for method in found.looked_up.split()}
    | {*NEIGHBOURS.values()}
)
#: What answers write that is the user's own: names of branches and of variables.
USERS = {"small", "large", "lambda"}


def functions() -> list[Any]:
    members = [
        member for found in OWN.values() for member in vars(found).values() if inspect.isfunction(member)
    ]
    return [*OWN.values(), *members, print]


def parameters() -> set[str]:
    found: set[str] = set()
    for function in functions():
        try:
            found |= {*inspect.signature(function).parameters}
        except (TypeError, ValueError):
            continue
    return found


@pytest.mark.parametrize("java", [*CLASSES])
def test_class_and_its_methods_are_answered(java: str) -> None:
    found = CLASSES[java]
    assert found.ours
    assert not found.kind or found.kind in ours.__all__
    assert all(ours_for(java, method) for method in (*found.looked_up.split(), *found.methods))


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_names_what_there_is(answer: str) -> None:
    called = {*re.findall(r"(?<!\w)([A-Za-z_]+)\(", answer)}
    known = {name for found in OWN.values() for name in dir(found)} | {*OWN} | {*dir(builtins)}
    known |= OTHERS | {*dir(testing.TopologyTestDriver)}
    assert called <= known
    assert {*re.findall(r"(?<!\w)([a-z_]+)=", answer)} - USERS <= parameters()


@pytest.mark.parametrize(
    "java", sorted(name for name in (*CLASSES, *NEIGHBOURS) if "." not in name and name not in OWN)
)
def test_import_of_a_class_of_java_is_answered(java: str) -> None:
    with pytest.raises(
        ImportError, match=re.escape(f"Kafka Streams' {java} is not here: {told(java_class(java))}")
    ):
        exec(f"from airflow_kstreams.streams import {java}")


def objects() -> dict[str, Any]:
    """What stands for classes of Java, by their names: objects, or classes that Java calls for theirs."""
    text = ours.serdes.string()
    builder = ours.KStreamBuilder(default_key_serde=text, default_value_serde=text)
    stream, table = builder.stream("in"), builder.table("table")
    grouped = stream.group_by_key()
    cogrouped = grouped.cogroup(lambda key, value, total: total)
    tumbling, sliding = ours.TumblingWindow(size_ms=3), ours.SlidingWindow(size_ms=3)
    session = ours.SessionWindow(gap_ms=3)
    windowed = ours.Windowed("a", 0, 3)
    return {
        "StreamsBuilder": builder,
        "Topology": ours.TopologyBuilder(),
        "KStream": stream,
        "BranchedKStream": stream.split(small=lambda key, value: True),
        "KGroupedStream": grouped,
        "TimeWindowedKStream": grouped.windowed_by(tumbling),
        "SessionWindowedKStream": grouped.windowed_by(session),
        "CogroupedKStream": cogrouped,
        "TimeWindowedCogroupedKStream": cogrouped.windowed_by(tumbling),
        "SessionWindowedCogroupedKStream": cogrouped.windowed_by(session),
        "KTable": table,
        "KGroupedTable": table.group_by(lambda key, value: (key, value)),
        "GlobalKTable": builder.global_table("all"),
        "Windowed": windowed,
        "Window": windowed,
        "Windows": tumbling,
        "TimeWindows": ours.HoppingWindow,
        "SlidingWindows": sliding,
        "SessionWindows": ours.SessionWindow,
        "JoinWindows": ours.SlidingWindow,
        "Materialized": ours.StoreSpec(name="store", key_serde=text, value_serde=text),
        "ValueTransformer": ours.ValueTransformer,
        "ValueTransformerWithKey": ours.ValueTransformer,
    }


OBJECTS = objects()


def test_every_class_that_has_one_of_ours_has_an_object_here() -> None:
    assert {java for java, found in CLASSES.items() if found.kind} <= {*OBJECTS}


@pytest.mark.parametrize("java", [*OBJECTS])
def test_object_answers_each_method_as_the_table_does(java: str) -> None:
    found, asked = CLASSES[java], OBJECTS[java]
    for method in (*found.looked_up.split(), *found.methods):
        if getattr(asked, method, None) is not None:
            continue
        both = java == "JoinWindows" and method in CLASSES["SlidingWindows"].methods
        answer = told(ours_for("SlidingWindows" if both else java, method))
        with pytest.raises(AttributeError, match=re.escape(answer)) as no:
            getattr(asked, method)
        assert (no.value.name, no.value.obj) == (method, asked)


@pytest.mark.parametrize(
    ("asked", "method", "answer"),
    [
        (ours.TumblingWindow, "of", "TumblingWindow(size_ms=...)"),
        (ours.TumblingWindow(size_ms=3), "grace", "TumblingWindow(size_ms=..., grace_ms=...)"),
        (ours.StoreSpec, "withCachingDisabled", "StoreSpec(cached=False)"),
        (ours.ProcessorRecord("a", 1, 0, []), "withValue", "context.forward(key, value, timestamp_ms=..."),
        (ours.ProcessorRecord("a", 1, 0, []), "timestamp", "timestamp_ms"),
        (RecordContext(None, 0, None), "recordMetadata", "topic, partition and offset"),
    ],
)
def test_method_that_no_table_has_is_answered(asked: Any, method: str, answer: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"no attribute {method!r}: write {answer}")):
        getattr(asked, method)
    assert not hasattr(asked, method)


def test_answers_leave_objects_as_they_are() -> None:
    window, record = ours.TumblingWindow(size_ms=3), ours.ProcessorRecord("a", 1, 0, [])
    assert copy.copy(window) == window
    assert copy.copy(record) == record
    assert repr({**OBJECTS["BranchedKStream"], "small": 1}) == "{'small': 1}"
    assert ours.Windowed("a", 0, 3)._asdict() == {"key": "a", "start_ms": 0, "end_ms": 3}


def test_other_names_stay_lacking() -> None:
    assert not hasattr(ours, "Nonsense")
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        from airflow_kstreams.streams import Nonsense  # noqa: F401


def test_method_that_no_class_has_is_not_answered() -> None:
    assert ours_for("KStream", "nonsense") == ""
    assert ALL in CLASSES["Reducer"].methods
