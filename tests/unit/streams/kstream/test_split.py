from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStream, KStreamBuilder, SlidingWindow, TopologyError, serdes
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application
from tests.support.topology.bound_topology import BoundTopology

#: What every test pipes, and which branch of `sized` takes it.
VALUES = (1, 12, 150, 2, 99)


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def sized(stream: KStream, **options: Any) -> dict[str, KStream]:
    return stream.split(small=lambda key, value: value < 10, medium=lambda key, value: value < 100, **options)


def test_first_predicate_that_holds_takes_the_record_and_default_takes_the_others() -> None:
    made = builder()
    branches = sized(made.stream("in"), default="large")
    assert [*branches] == ["small", "medium", "large"]
    for name, branch in branches.items():
        branch.send_to(name)
    bound = BoundTopology(made.build())
    for value in VALUES:
        bound.pipe("in", "k", value)
    assert {name: [each.value for each in bound.read(name)] for name in branches} == {
        "small": [1, 2],
        "medium": [12, 99],
        "large": [150],
    }


def test_records_that_no_predicate_takes_are_dropped_and_counted_without_default() -> None:
    made = builder()
    for name, branch in sized(made.stream("in")).items():
        branch.send_to(name)
    with TopologyTestDriver(made.build(), application_id="app") as driver:
        for value in VALUES:
            driver.pipe_input("in", key="k", value=value, timestamp_ms=0)
        assert [each.value for each in driver.read_output("small")] == [1, 2]
        left_out = {(each.rule, each.records) for each in driver.counts.left_out}
    assert left_out == {("filtered", 1)}


@pytest.mark.parametrize("used", ["small", "large"])
def test_branch_that_nobody_uses_takes_its_records_all_the_same(used: str) -> None:
    made = builder()
    sized(made.stream("in"), default="large")[used].send_to("out")
    bound = BoundTopology(made.build())
    for value in VALUES:
        bound.pipe("in", "k", value)
    assert [each.value for each in bound.read("out")] == {"small": [1, 2], "large": [150]}[used]


def test_branches_keep_serdes_and_keys() -> None:
    made = builder()
    stream = made.stream("in", value_serde=serdes.int64())
    branches = stream.split(small=lambda key, value: value < 10, default="rest").values()
    small, rest = (branch.with_window(SlidingWindow(size_ms=5)) for branch in branches)
    small.join(rest, lambda left, right: left + right).send_to("out", value_serde=serdes.int64())
    topology = made.build()
    assert topology.internal_topics == (), "no branch changes keys"


def test_what_a_default_takes_changes_the_topology_hash() -> None:
    def hashed(**options: Any) -> str:
        made = builder()
        sized(made.stream("in"), **options)["small"].send_to("out")
        return made.build().topology_hash()

    assert hashed() != hashed(default="large")
    assert hashed() == hashed()


def test_counts_add_up_when_runs_begin_anew_between_the_records() -> None:
    made = builder()
    branches = sized(made.stream("in"), default="large")
    branches["small"].send_to("small")
    branches["large"].group_by_key().count(store="n").to_stream().send_to("large")
    kafka = InMemoryKafka()
    for topic in ("in", "small", "large"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=made.build(), on=kafka, settings={"settle.ms": 0})
    for number, value in enumerate((*VALUES, 200)):
        kafka.append("in", b"%d" % value, b"k")
        app.run(f"run-{number}")
    assert [*kafka.values("small")] == [b"1", b"2"]
    assert [serdes.int64().deserialize(value or b"") for value in kafka.values("large")] == [1, 2]


@pytest.mark.parametrize("threads", [1, 3])
def test_branches_are_the_same_when_predicates_run_on_threads(threads: int) -> None:
    made = builder()
    for name, branch in sized(made.stream("in"), default="large").items():
        branch.send_to(name)
    settings = {"num.threads.per.task": threads, "num.stream.threads": threads}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        for value in VALUES:
            driver.pipe_input("in", key="k", value=value, timestamp_ms=0)
        found = {name: [each.value for each in driver.read_output(name)] for name in ("small", "large")}
    assert found == {"small": [1, 2], "large": [150]}


def test_branch_may_have_the_name_of_any_parameter_but_the_options() -> None:
    predicates: dict[str, Any] = dict.fromkeys(("self", "call", "fix", "two words"), lambda key, value: value)
    branches = builder().stream("in").split(**predicates)
    assert [*branches] == ["self", "call", "fix", "two words"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has no predicate"),
        ({"default": "rest"}, "has no predicate"),
        ({"small": 1}, "split(small=)"),
        ({"name": lambda key, value: True, "small": bool}, "has name="),
        ({"default": lambda key, value: True, "small": bool}, "has default="),
        ({"default": "", "small": bool}, "has default=''"),
        ({"default": "small", "small": bool}, "has default='small'"),
    ],
)
def test_mistake_is_refused_with_the_users_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        builder().stream("in").split(**options)
    assert said in caught.value.cause
    assert f" at {__file__}:" in caught.value.cause
    assert caught.value.fix
