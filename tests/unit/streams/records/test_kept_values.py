"""What a call and a sink beside it are given: the value as it is where the record reached them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Topology,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.graph.nodes import SinkNode
from airflow_kstreams.streams.runtime.value_sizes import size_of
from airflow_kstreams.streams.state.stores.value_copies import kept
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("calls-see-the-value-as-it-was")

SERDES: dict[str, Any] = {"key_serde": serdes.string(), "value_serde": serdes.json()}
THREADS = {"num.threads.per.task": 2, "num.stream.threads": 2}
RECORDS = [("a", {"n": n}, n) for n in range(6)]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


class Frozen(msgspec.Struct, frozen=True):
    held: Any


class Open(msgspec.Struct):
    held: Any


@dataclass(frozen=True)
class FrozenData:
    held: Any


class Below(FrozenData):
    """Has attributes of its own."""


@pytest.mark.parametrize(
    "value", [None, 1, "a", (1, ("a", 2.5)), Frozen((1, Frozen("a"))), FrozenData(Frozen(1)), ()]
)
def test_value_is_kept_itself_when_no_one_can_change_it(value: Any) -> None:
    assert kept(value) is value


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": (1, 2)},
        {"a": [1]},
        {FrozenData(1): {}},
        [1, "a"],
        [[1]],
        ([1],),
        {1, 2},
        Frozen([1]),
        Open(1),
        FrozenData([1]),
    ],
)
def test_value_is_copied_to_its_depth_when_it_can_be_changed(value: Any) -> None:
    found = kept(value)
    assert found == value
    assert found is not value
    for ours, theirs in ((found, value), (getattr(found, "held", 0), getattr(value, "held", 0))):
        assert ours is not theirs or type(ours) is int
    if isinstance(value, dict):
        assert all(found[key] is not held for key, held in value.items() if isinstance(held, list | dict))
    elif isinstance(value, list | tuple):
        assert all(a is not b for a, b in zip(found, value, strict=True) if isinstance(a, list))


def test_value_is_copied_when_its_class_lets_it_have_more_than_its_fields() -> None:
    value = Below(1)
    vars(value)["more"] = [1]
    assert kept(value) is not value
    assert vars(kept(value))["more"] is not vars(value)["more"]


def outputs(
    topology: Topology, records: list[Any] = RECORDS, settings: dict[str, Any] | None = None, seed: int = 0
) -> dict[str, list[Any]]:
    with TopologyTestDriver(topology, application_id="app", settings=settings, async_seed=seed) as driver:
        driver.pipe_records("in", records)
        sinks = [node.topic for node in topology.subtopologies()[0].nodes if isinstance(node, SinkNode)]
        return {topic: [record.value for record in driver.read_output(topic)] for topic in sinks}


def in_place(value: Any) -> Any:
    value["price"] = 7
    return value


async def in_place_async(value: Any) -> Any:
    await asyncio.sleep(value["n"] % 3)
    return in_place(value)


def beside(*, calls: bool) -> Topology:
    made = builder()
    stream = made.stream("in")
    stream.send_to("raw")
    kept = stream.filter(lambda key, value: value["n"] != 2)
    (kept.map_values_async(in_place_async) if calls else kept.map_values(in_place)).send_to("out")
    return made.build()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("calls", "settings"), [(True, None), (False, THREADS), (True, THREADS)])
def test_sink_beside_writes_the_value_as_it_reached_it_when_a_function_changes_its_argument(
    calls: bool, settings: dict[str, Any] | None, seed: int
) -> None:
    assert outputs(beside(calls=calls), settings=settings, seed=seed) == outputs(beside(calls=False))


@pytest.mark.parametrize("seed", range(4))
def test_call_sees_its_argument_as_it_was_when_a_node_beside_changes_it_meanwhile(seed: int) -> None:
    async def see(value: Any) -> Any:
        await asyncio.sleep(value["n"])
        return value.get("price")

    async def same(value: Any) -> Any:
        return value

    made = builder()
    stream = made.stream("in")
    stream.map_values_async(see).send_to("seen")
    stream.map_values(in_place).map_values_async(same).send_to("out")
    assert outputs(made.build(), seed=seed)["seen"] == [None] * len(RECORDS)


def test_value_that_a_function_keeps_reaches_later_nodes_as_it_was() -> None:
    total = {"n": 0}

    def add(value: Any) -> Any:
        total["n"] += value["n"]
        return total

    made = builder()
    stream = made.stream("in").map_values(add)
    stream.send_to("totals")
    stream.map_values_async(in_place_async).send_to("out")
    written = outputs(made.build())
    assert written["totals"] == [{"n": n} for n in (0, 1, 3, 6, 10, 15)]
    assert written["out"] == [{"n": n, "price": 7} for n in (0, 1, 3, 6, 10, 15)]


class Locked:
    """An object that cannot be copied."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.Lock()


class Locking(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        held = Locked(record.value["n"])
        self.context.forward(record.key, held)
        held.number = -1


def test_plain_function_is_called_where_the_record_is_when_its_argument_cannot_be_copied() -> None:
    threads = []

    def number(value: Any) -> Any:
        threads.append(threading.current_thread())
        return value.number

    made = builder()
    made.stream("in").process(Locking).map_values(number).send_to("out", **SERDES)
    assert outputs(made.build(), settings=THREADS)["out"] == [*range(6)]
    assert {*threads} == {threading.current_thread()}


class Numbering(Processor):
    threads = True
    seen: ClassVar[set[threading.Thread]] = set()

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.seen.add(threading.current_thread())
        self.context.forward(record.key, record.value.number)
        self.context.forward(record.key, -record.value.number)


def test_processor_is_called_where_the_record_is_when_its_argument_cannot_be_copied() -> None:
    made = builder()
    made.stream("in").process(Locking).process(Numbering).send_to("out", **SERDES)
    assert outputs(made.build(), settings=THREADS)["out"] == [n for i in range(6) for n in (i, -i)]
    assert {threading.current_thread()} == Numbering.seen


def test_error_comes_at_its_record_when_a_function_is_called_where_the_record_is() -> None:
    def number(value: Any) -> Any:
        if value.number == 2:
            raise ValueError("two")
        return value.number

    made = builder()
    made.stream("in").process(Locking).map_values(number).send_to("out", **SERDES)
    settings = {**THREADS, "processing.exception.handler": "skip"}
    assert outputs(made.build(), settings=settings)["out"] == [0, 1, 3, 4, 5]


def passed_on(stream: Any) -> Any:
    return stream.filter(lambda key, value: True)


def called(stream: Any) -> Any:
    async def number(value: Any) -> Any:
        return value.number

    return stream.map_values_async(number, name="ask")


def beside_a_call(stream: Any) -> Any:
    other = stream.map_values(lambda value: value.number)

    async def same(value: Any) -> Any:
        return value

    other.map_values_async(same).send_to("other", **SERDES)
    return stream.map_values(lambda value: value.number)


@pytest.mark.parametrize(
    ("below", "settings", "fix"),
    [
        (passed_on, THREADS, "num.threads.per.task=1"),
        (called, None, "__deepcopy__$"),
        (beside_a_call, None, "__deepcopy__$"),
    ],
)
def test_value_is_refused_by_name_when_it_must_wait_and_cannot_be_copied(
    below: Any, settings: dict[str, Any] | None, fix: str
) -> None:
    made = builder()
    below(made.stream("in").process(Locking)).send_to("out", **SERDES)
    with pytest.raises(TopologyError, match="type Locked cannot be copied") as found:
        outputs(made.build(), settings=settings)
    assert found.match(fix)


class Detached(dict[str, Any]):
    """Cannot be read by its own methods."""

    def items(self) -> Any:
        raise RuntimeError("detached")

    def __sizeof__(self) -> int:
        raise RuntimeError("detached")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("detached")


class Slotted:
    __slots__ = ("kept",)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("detached")


def test_size_is_taken_without_running_code_of_the_object() -> None:
    assert size_of(Detached(text="x" * 10_000)) > 10_000
    assert 0 < size_of(Slotted()) < 1_000
    assert size_of({"text": "x" * 10_000, "rest": [1, None, (2.5, b"y" * 1_000)]}) > 11_000
