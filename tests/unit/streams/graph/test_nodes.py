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
from airflow_kstreams.explore.node_records import Findings
from airflow_kstreams.explore.sample_run import OperatorTap
from airflow_kstreams.streams import (
    KStreamBuilder,
    Serde,
    StoreSpec,
    TopologyBuilder,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.graph.calls import CallOptions, CallSpec
from airflow_kstreams.streams.graph.nodes import (
    OperatorTraits,
    ProcessorNode,
    SinkNode,
    SourceNode,
    bound_operator,
    bound_to,
)
from airflow_kstreams.streams.graph.services import Forward, ProcessorServices
from airflow_kstreams.streams.graph.store_specs import WindowStoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import KeyFold, counting
from airflow_kstreams.streams.kstream.operators.function_kinds import PEEK, FunctionOperator
from airflow_kstreams.streams.serde.base import Side
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked


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
    assert {PROTOCOL, "FunctionOperator", "TimeWindowFold", "ProcessorOperator", "OperatorTap"} <= names


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
    known = {"bind", "type", "traits", *fields, *(["with_table"] if "table" in fields else [])}
    more = {name for name in vars(kind) if not name.startswith("_")} - known
    assert not more, (
        f"the engine reads type, traits and bind alone, and with_table of one with a table: {more}"
    )


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


def addressed() -> Serde:
    """Return a serde whose bytes say which topic and side they were written for, and read no others."""

    def for_topic(topic: str, side: Side) -> Serde:
        prefix = f"{topic}/{side}/"

        def deserialize(data: bytes) -> str:
            text = data.decode()
            if not text.startswith(prefix):
                raise ValueError(f"{text} was not written for {prefix}")
            return text.removeprefix(prefix)

        return Serde(
            id="addressed", serialize=lambda text: f"{prefix}{text}".encode(), deserialize=deserialize
        )

    def unbound(_: Any) -> Any:
        raise ConfigError("used without a topic")

    return Serde(id="addressed", serialize=unbound, deserialize=unbound, for_topic=for_topic)


def test_sink_and_source_know_their_real_topics_when_a_topology_runs() -> None:
    builder = KStreamBuilder(default_key_serde=addressed(), default_value_serde=addressed())
    builder.stream("in").through("middle").send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="k", value="v", timestamp_ms=1)
        (written,) = driver.read_output("out", key_serde=serdes.bytes(), value_serde=serdes.bytes())
        assert (written.key, written.value) == (b"out/key/k", b"out/value/v")


def test_store_and_its_operator_know_the_changelog_when_a_topology_runs() -> None:
    builder = KStreamBuilder(default_key_serde=addressed(), default_value_serde=addressed())
    counts = builder.stream("in").group_by(lambda key, value: value).count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for timestamp_ms in (1, 2):
            driver.pipe_input("in", key="k", value="v", timestamp_ms=timestamp_ms)
        assert driver.store("counts").get("v") == 2
        log = driver.read_output("app-counts-changelog", key_serde=serdes.bytes())
        assert [record.key for record in log] == [b"app-counts-changelog/key/v"] * 2
        moved = driver.read_output("app-counts-repartition", key_serde=serdes.bytes())
        assert [record.key for record in moved] == [b"app-counts-repartition/key/v"] * 2


def test_each_topic_is_known_when_a_source_reads_several() -> None:
    builder = KStreamBuilder(default_key_serde=addressed(), default_value_serde=addressed())
    builder.stream("a", "b").send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("a", key="k", value="v", timestamp_ms=1)
        driver.pipe_input("b", key="k", value="v", timestamp_ms=1)
        assert [record.value for record in driver.read_output("out")] == ["v", "v"]


@pytest.mark.parametrize(
    "holder",
    [
        SourceNode(name="n", topics=("t",), key_serde=serdes.string(), value_serde=serdes.json()),
        SinkNode(name="n", parents=("p",), topic="t", key_serde=serdes.string(), value_serde=serdes.json()),
        StoreSpec(name="n", key_serde=serdes.string(), value_serde=serdes.json()),
    ],
)
def test_holder_is_returned_as_it_is_when_its_serdes_need_no_topic(
    holder: SourceNode | SinkNode | StoreSpec,
) -> None:
    assert bound_to("t", holder) is holder


def test_everything_else_is_kept_when_a_store_spec_is_bound() -> None:
    spec = WindowStoreSpec(
        name="n", key_serde=addressed(), value_serde=serdes.json(), cached=False, retention_ms=7
    )
    bound = bound_to("t", spec)
    assert bound == spec
    assert isinstance(bound, WindowStoreSpec)
    assert bound.key_serde.serialize("k") == b"t/key/k"
    assert bound.retention_ms == 7


def test_operator_gets_the_bound_spec_when_it_holds_one() -> None:
    spec = StoreSpec(name="n", key_serde=addressed(), value_serde=serdes.json())
    bound = bound_operator(KeyFold(fold=counting(), store=spec), {"n": bound_to("t", spec)}, str)
    assert isinstance(bound, KeyFold)
    assert bound.store.key_serde.serialize("k") == b"t/key/k"


def test_inner_operator_gets_the_bound_spec_when_another_one_runs_it() -> None:
    spec = StoreSpec(name="n", key_serde=addressed(), value_serde=serdes.json())
    tap = OperatorTap(node="p", findings=Findings(), operator=KeyFold(fold=counting(), store=spec))
    bound = bound_operator(tap, {"n": bound_to("t", spec)}, str)
    assert isinstance(bound, OperatorTap)
    assert isinstance(bound.operator, KeyFold)
    assert bound.operator.store.key_serde.serialize("k") == b"t/key/k"
    assert bound.findings is tap.findings


def test_operator_is_returned_as_it_is_when_there_is_nothing_to_bind() -> None:
    plain = StoreSpec(name="n", key_serde=serdes.string(), value_serde=serdes.json())
    for operator in (KeyFold(fold=counting(), store=plain), FunctionOperator(kind=PEEK, function=print)):
        assert bound_operator(operator, {"n": bound_to("t", plain)}, str) is operator


@pytest.mark.parametrize(
    ("does", "wrong", "right"),
    [
        walked(
            "node_context.BoundNodeContext._go_by_stream_time",
            "timer",
            OperatorTraits(),
            OperatorTraits(held_back_ms=0),
        ),
        walked(
            "node_context.BoundNodeContext._contradiction",
            "commits",
            OperatorTraits(),
            OperatorTraits(asks_for_commits=True),
        ),
        walked(
            "node_context.BoundNodeContext._contradiction",
            "nothing",
            OperatorTraits(calls=CallOptions()),
            OperatorTraits(),
        ),
    ],
)
def test_operator_is_bound_when_its_traits_are_corrected_as_the_error_says(
    does: str, wrong: OperatorTraits, right: OperatorTraits
) -> None:
    with pytest.raises(TopologyError):
        _bind(Untold(does=does, traits=wrong))
    _bind(Untold(does=does, traits=right))
