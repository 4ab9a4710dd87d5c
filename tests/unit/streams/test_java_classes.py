"""Every class of Kafka Streams' DSL is answered by ours, and what the answers name is there.

No class or method is missing, as ``tests/integration/java/test_public_names.py`` sees beside the jar.
"""

from __future__ import annotations

import builtins
import inspect
import re
from typing import Any

import pytest

import airflow_kstreams.streams as ours
import airflow_kstreams.testing as testing
from airflow_kstreams.streams.java_classes import ALL, CLASSES, java_class, ours_for
from airflow_kstreams.streams.java_neighbours import NEIGHBOURS

OWN = {name: getattr(ours, name) for name in ours.__all__}
#: What answers name of other packages, each with the package's name.
OTHERS = {"run", "stored_state", "TopologyTestDriver"}
ANSWERS = sorted(
    {found.ours for found in CLASSES.values()}
    | {text for found in CLASSES.values() for text in found.methods.values()}
    | {ours_for(java, method) for java, found in CLASSES.items() for method in found.looked_up}
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
    assert all(ours_for(java, method) for method in (*found.looked_up, *found.methods))


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
        ImportError, match=re.escape(f"Kafka Streams' {java} is not here: write {java_class(java)}")
    ):
        exec(f"from airflow_kstreams.streams import {java}")


def test_other_names_stay_lacking() -> None:
    assert not hasattr(ours, "Nonsense")
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        from airflow_kstreams.streams import Nonsense  # noqa: F401


def test_method_that_no_class_has_is_not_answered() -> None:
    assert ours_for("KStream", "nonsense") == ""
    assert ALL in CLASSES["Reducer"].methods
