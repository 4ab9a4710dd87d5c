from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.explore.node_records import Findings
from airflow_kstreams.explore.sample_run import OperatorTap
from airflow_kstreams.streams import KStreamBuilder, Serde, StoreSpec, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.graph.nodes import SinkNode, SourceNode, bound_operator, bound_to
from airflow_kstreams.streams.graph.store_specs import WindowStoreSpec
from airflow_kstreams.streams.kstream.operators.aggregation import KeyFold, counting
from airflow_kstreams.streams.kstream.operators.function_kinds import PEEK
from airflow_kstreams.streams.kstream.operators.stateless import Stateless
from airflow_kstreams.streams.serde.base import Side
from airflow_kstreams.testing import TopologyTestDriver


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
    for operator in (KeyFold(fold=counting(), store=plain), Stateless(kind=PEEK, function=print)):
        assert bound_operator(operator, {"n": bound_to("t", plain)}, str) is operator
