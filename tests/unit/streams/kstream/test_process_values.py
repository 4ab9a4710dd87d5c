from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Serde,
    StoreSpec,
    TopologyError,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())


LAST = StoreSpec(name="last", key_serde=serdes.json(), value_serde=serdes.json())


class Change(Processor):
    """Forwards by how much a value differs from the one before it."""

    def init(self, context: ProcessorContext) -> None:
        self._context, self._last = context, context.state_store("last")

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, record.value - (self._last.get(record.key) or 0))
        self._last.put(record.key, record.value)


def test_results_are_grouped_and_joined_without_a_repartition_topic() -> None:
    made = builder()
    changes = made.stream("in").process_values(Change, LAST)
    changes.group_by_key().count(store="n").to_stream().send_to("counts")
    changes.left_join(made.table("table"), lambda value, _: value).send_to("joined")
    topology = made.build()
    assert topology.internal_topics == ()
    with TopologyTestDriver(topology, application_id="app") as driver:
        for key, value in (("a", 5), ("b", 1), ("a", 7)):
            driver.pipe_input("in", key=key, value=value, timestamp_ms=3)
        assert [record.value for record in driver.read_output("joined")] == [5, 1, 2]
        assert [record.value for record in driver.read_output("counts")] == [1, 1, 2]


def test_results_are_repartitioned_all_the_same_when_a_key_changed_above() -> None:
    made = builder()
    changes = made.stream("in").select_key(lambda k, v: k).process_values(Change, LAST)
    changes.group_by_key(key_serde=serdes.json()).count(store="n")
    assert [topic.name for topic in made.build().internal_topics] == ["n-repartition"]


def test_kind_of_processor_is_part_of_the_topology_hash() -> None:
    def hashed(call: str) -> str:
        made = builder()
        getattr(made.stream("in"), call)(Change, LAST, name="p").send_to("out", key_serde=serdes.json())
        return made.build().topology_hash()

    assert hashed("process") != hashed("process_values")


def test_state_is_kept_when_runs_begin_anew_between_the_records() -> None:
    made = builder()
    made.stream("in").process_values(Change, LAST).send_to("out")
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    app = Application(application_id="app", topology=made.build(), on=kafka, settings={"settle.ms": 0})
    for number, value in enumerate((5, 7, 6)):
        kafka.append("in", b"%d" % value, b'"k"')
        app.run(f"run-{number}")
    assert [*kafka.values("out")] == [b"5", b"2", b"-1"]


class Forwarding(Processor):
    """Forwards keys at some moment."""

    def __init__(self, moment: str, make: Any = None) -> None:
        self._moment, self._make = moment, make

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.schedule(10)
        self._forward("init")

    def process(self, record: ProcessorRecord) -> None:
        if self._moment == "process":
            self._context.forward(self._make(record.key), record.value, **self._options)
        else:
            self._context.forward(record.key, record.value)

    def punctuate(self, stream_time_ms: int) -> None:
        self._forward("punctuate")

    def close(self) -> None:
        self._forward("close")

    @property
    def _options(self) -> dict[str, Any]:
        return {"timestamp_ms": 1, "headers": [], "to": "sink"}

    def _forward(self, moment: str) -> None:
        if moment == self._moment:
            self._context.forward(None, moment)


def changed_in_place(key: list[int]) -> list[int]:
    key.append(7)
    return key


@pytest.mark.parametrize(
    "make",
    [
        lambda key: [2],
        lambda key: [True],
        lambda key: [1.0],
        lambda key: None,
        lambda key: tuple(key),
        changed_in_place,
    ],
)
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_record_and_node_are_named_when_another_key_is_forwarded(make: Any, policy: str) -> None:
    made = builder()
    kept = made.stream("in").process_values(partial(Forwarding, "process", make), name="p")
    kept._known.graph.topology.add_sink("sink", "out", "p", key_serde=serdes.json())
    with TopologyTestDriver(
        made.build(), application_id="app", settings={"processing.exception.handler": policy}
    ) as driver:
        with pytest.raises(TopologyError, match=r"processor 'p' forwards another key than that of in-0@0"):
            driver.pipe_input("in", key=[1], value=1, timestamp_ms=3)
        assert driver.read_output("out") == []


class Town:
    """A key whose class compares objects by identity."""

    def __init__(self, name: str, *parts: Any) -> None:
        self.name, self.parts = name, list(parts)


class Hamlet(Town):
    pass


def renamed(key: Town) -> Town:
    key.parts[0].name += "!"
    return key


def stepping(key: Town) -> Iterator[int]:
    """A generator, which cannot be pickled."""
    yield 1


TOWNS: Serde = Serde(
    id="towns",
    serialize=lambda town: ",".join((town.name, *(part.name for part in town.parts))).encode(),
    deserialize=lambda data: Town(data.decode(), Town("centre")),
)


def by_town(make: Any) -> TopologyTestDriver:
    made = KStreamBuilder(default_key_serde=TOWNS, default_value_serde=serdes.int64())
    moved = made.stream("in").process_values(partial(Forwarding, "process", make), name="p")
    moved._known.graph.topology.add_sink("sink", "out", "p", key_serde=TOWNS, value_serde=serdes.int64())
    return TopologyTestDriver(made.build(), application_id="app")


@pytest.mark.parametrize(
    "make",
    [lambda key: key, copy.copy, copy.deepcopy, lambda key: Town(key.name, Town("centre"))],
    ids=["its own", "copied", "copied deeply", "an equal one"],
)
def test_unchanged_key_is_forwarded_when_its_class_compares_by_identity(make: Any) -> None:
    with by_town(make) as driver:
        driver.pipe_input("in", key=Town("a", Town("centre")), value=1, timestamp_ms=3)
        assert [record.value for record in driver.read_output("out")] == [1]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (renamed, "forwards another key than that of in-0@0"),
        (lambda key: Town("b", Town("centre")), "forwards another key"),
        (lambda key: Hamlet(key.name, Town("centre")), "forwards another key"),
        (lambda key: Town(key.name, stepping(key)), "objects of type Town cannot be compared"),
    ],
    ids=["changed in place", "another one", "another class", "one that tells nothing"],
)
def test_other_key_is_refused_when_its_class_compares_by_identity(make: Any, told: str) -> None:
    with by_town(make) as driver, pytest.raises(TopologyError, match=told):
        driver.pipe_input("in", key=Town("a", Town("centre")), value=1, timestamp_ms=3)


@pytest.mark.parametrize("moment", ["init", "punctuate", "close"])
def test_node_is_named_when_something_is_forwarded_while_no_record_is_processed(moment: str) -> None:
    made = builder()
    made.stream("in").process_values(partial(Forwarding, moment), name="p").send_to("out")
    with (
        pytest.raises(TopologyError, match="processor 'p' forwards while it processes no record"),
        TopologyTestDriver(made.build(), application_id="app") as driver,
    ):
        driver.pipe_input("in", key=[1], value=1, timestamp_ms=30)
        driver.restart()


class Stateless(Processor):
    threads = True

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward(record.key, record.value + 1)
        self._context.forward(record.key if record.value else "other", record.value)


def test_keys_are_held_to_when_the_task_has_threads() -> None:
    made = builder()
    made.stream("in").process_values(Stateless).send_to("out")
    settings = {"num.threads.per.task": 2, "num.stream.threads": 2}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="k", value=1, timestamp_ms=3)
        assert [record.value for record in driver.read_output("out")] == [2, 1]
        with pytest.raises(TopologyError, match="forwards another key"):
            driver.pipe_input("in", key="k", value=0, timestamp_ms=3)


def test_definition_is_refused_with_the_users_line() -> None:
    with pytest.raises(TopologyError, match=f"process_values at {__file__}:"):
        builder().stream("in").process_values(None)  # type: ignore[arg-type]
