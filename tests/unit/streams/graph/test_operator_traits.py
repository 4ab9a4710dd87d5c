"""Every operator is written the one way, and none may do what its traits do not say."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import pytest

import airflow_kstreams.explore
import airflow_kstreams.streams
from airflow_kstreams.streams import KStreamBuilder, TopologyBuilder, TopologyError, TumblingWindow, serdes
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec
from airflow_kstreams.streams.graph.nodes import OperatorTraits, ProcessorNode
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.testing import TopologyTestDriver


def _operators() -> Iterator[type]:
    """Find every class of the engine that binds a node."""
    for package in (airflow_kstreams.streams, airflow_kstreams.explore):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for kind in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(kind) and kind.__module__ == module.name and "bind" in vars(kind):
                    yield kind


OPERATORS = sorted(set(_operators()), key=lambda kind: kind.__qualname__)
PROTOCOL = "Operator"


def test_operators_are_found() -> None:
    names = {kind.__name__ for kind in OPERATORS}
    assert {PROTOCOL, "Stateless", "TimeWindowFold", "ProcessorOperator", "OperatorTap"} <= names


@pytest.mark.parametrize("kind", [kind for kind in OPERATORS if kind.__name__ != PROTOCOL])
def test_operator_is_written_the_one_way(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen
    assert [*inspect.signature(kind.bind).parameters] == ["self", "forward", "context", "children"]
    # A field that every instance is given, a constant of the class, or made of the fields.
    fields = {field.name for field in dataclasses.fields(kind)}
    assert "type" in fields or isinstance(kind.type, str | property)
    if isinstance(kind.traits, property):
        assert get_type_hints(kind.traits.fget)["return"] is OperatorTraits
    else:
        assert isinstance(kind.traits, OperatorTraits)
    known = {"bind", "type", "traits", *fields}
    more = {name for name in vars(kind) if not name.startswith("_")} - known
    assert not more, f"the engine reads type, traits and bind alone: {more}"


def test_engine_reads_no_other_member_of_an_operator() -> None:
    """A member that is read by its name as a text is one of which no type says that it is there."""
    root = Path(airflow_kstreams.streams.__file__).parents[1]
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id not in ("getattr", "hasattr") or len(node.args) < 2:
                continue
            of, name = node.args[0], node.args[1]
            if "operator" in ast.unparse(of) and isinstance(name, ast.Constant):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """An operator that does what ``does`` names, and whose traits are given."""

    does: str
    traits: OperatorTraits

    type: ClassVar[str] = "untold"

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        match self.does:
            case "timer":
                context.stream_timer(lambda now_ms: forward("late", now_ms))
            case "stream time":
                context.stream_time()
            case "commits":
                context.allow_commit_requests()
            case "calls":
                spec = CallSpec(
                    function=print, arguments=lambda *both: both, options=CallOptions(threads=True)
                )
                return context.calls(spec, lambda key, value, answer: None)
            case "global table":
                context.global_entries("rates")
        return forward


def _bind(operator: Any) -> None:
    builder = TopologyBuilder().add_source("in", "in").add_operator("held", operator, "in")
    with TopologyTestDriver(builder.add_sink("out", "out", "held").build(), application_id="app"):
        pass


@pytest.mark.parametrize(
    ("does", "traits", "said"),
    [
        ("timer", OperatorTraits(), "goes by stream time.*held_back_ms is None"),
        ("stream time", OperatorTraits(), "goes by stream time.*held_back_ms is None"),
        ("commits", OperatorTraits(), "asks for commits.*asks_for_commits is False"),
        ("calls", OperatorTraits(), "makes calls.*calls does not hold"),
        ("calls", OperatorTraits(calls=CallOptions()), "makes calls.*calls does not hold"),
        ("nothing", OperatorTraits(calls=CallOptions()), "makes no calls.*calls is set"),
        ("global table", OperatorTraits(), "reads the global table of 'rates'.*global_table"),
    ],
)
def test_operator_is_refused_that_does_what_its_traits_do_not_say(
    does: str, traits: OperatorTraits, said: str
) -> None:
    with pytest.raises(TopologyError, match=f"node 'held': operator Untold {said}"):
        _bind(Untold(does=does, traits=traits))


@pytest.mark.parametrize(
    ("does", "traits"),
    [
        ("nothing", OperatorTraits()),
        ("timer", OperatorTraits(held_back_ms=0)),
        ("stream time", OperatorTraits(free_times=True)),
        ("commits", OperatorTraits(asks_for_commits=True)),
    ],
)
def test_operator_is_bound_that_does_what_its_traits_say(does: str, traits: OperatorTraits) -> None:
    _bind(Untold(does=does, traits=traits))


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeAndBindOnly:
    type: ClassVar[str] = "untold"

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        return forward


def test_operator_without_traits_is_refused_when_it_is_added() -> None:
    with pytest.raises(TopologyError, match="TypeAndBindOnly as operator, which lacks type, traits or bind"):
        _bind(TypeAndBindOnly())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldByRecipe:
    """A fold by windows that passes nothing on but its type and ``bind``."""

    inner: Any
    traits: OperatorTraits

    @property
    def type(self) -> str:
        return str(self.inner.type)

    def bind(self, forward: Forward, context: ProcessorServices, children: dict[str, Forward]) -> Forward:
        bound: Forward = self.inner.bind(forward, context, children)
        return bound


def test_fold_that_holds_records_back_is_not_taken_for_one_that_does_not() -> None:
    """The end of a run would advance what lies below it by size and grace too far."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    window = TumblingWindow(size_ms=3_600_000)
    counts = builder.stream("in").group_by_key().windowed_by(window).count(store="counts")
    counts.suppress().to_stream(lambda window, _: window.key).through(
        "between", value_serde=serdes.int64()
    ).send_to("out")
    topology = builder.build()

    def with_traits(traits: OperatorTraits) -> Any:
        nodes = tuple(
            dataclasses.replace(node, operator=FoldByRecipe(inner=node.operator, traits=traits))
            if isinstance(node, ProcessorNode) and node.name.startswith("KSTREAM-AGGREGATE")
            else node
            for node in topology.nodes
        )
        return dataclasses.replace(topology, nodes=nodes)

    expected = topology.plan("app").subtopologies[-1].stream_time
    told = with_traits(OperatorTraits(held_back_ms=window.size_ms + window.grace_ms))
    assert told.plan("app").subtopologies[-1].stream_time == expected
    with TopologyTestDriver(told, application_id="app") as driver:
        driver.pipe_input("in", key="a", value="1", timestamp_ms=0)
    untold = with_traits(OperatorTraits())
    with pytest.raises(TopologyError, match="FoldByRecipe goes by stream time"):
        TopologyTestDriver(untold, application_id="app")
