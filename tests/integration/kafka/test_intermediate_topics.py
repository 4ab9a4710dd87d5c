"""Intermediate topics on the real broker: the spec's examples, and shapes of DAGs, on one to four slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.slice.metadata_records import done_record
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.in_process import Application
from tests.support.spark.slots import run_on_slots

pytestmark = pytest.mark.promise("intermediate-topics-are-drained", "repartition-fixes-the-count")

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
Counts = dict[str, int]


@dataclass(kw_only=True)
class Bench:
    """Topics under short names, and applications on them."""

    bootstrap: str
    application_id: str
    produce: Produce
    consume_all: Consume
    create_topic: Callable[..., str]
    topic_name: Callable[..., str]
    topics: dict[str, str] = field(default_factory=dict)

    def topic(self, short: str, partitions: int = 1) -> str:
        """A topic that the tests call by a short name."""
        self.topics[short] = self.create_topic(self.topic_name(short), partitions)
        return self.topics[short]

    def application(self, topology: Topology, **settings: object) -> Application:
        """The application with a topology."""
        return Application(
            bootstrap=self.bootstrap,
            application_id=self.application_id,
            topology=topology,
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )

    def send(self, short: str, partition: int, values: Iterable[str], key: str = "k") -> None:
        """Let records arrive on a partition of a topic."""
        rows = [{"key": key, "value": value, "partition": partition} for value in values]
        self.produce(self.topics[short], rows)

    def values(self, short: str) -> Counter[str]:
        """All committed values of a topic."""
        return Counter(row.value.decode() for row in self.consume_all(self.topics[short]))

    def metadata(self) -> list[str]:
        """The metadata topic in the spec's notation, short names in place of long ones, ``app`` for the
        application.
        """
        lines = []
        for row in self.consume_all(f"{self.application_id}-metadata"):
            key = row.key.decode()
            for short, name in self.topics.items():
                key = key.replace(name, short)
            key = key.replace(self.application_id, "app")
            lines.append(f"<{key}:{'null' if row.value is None else row.value.decode()}>")
        return lines

    def lag(self) -> dict[str, tuple[int, int]]:
        """Partitions whose committed offset is not the end of the log: (committed, end)."""
        application = self.application(self.topology)
        sources = self.topology.plan(self.application_id).sources
        admin = application.cluster.admin()
        reader = application.cluster.reader(group_id=self.application_id)
        try:
            counts = admin.describe_topics(sources)
            partitions = [TopicPartition(t, n) for t in sources for n in range(counts[t].partitions)]
            committed = reader.committed(partitions)
            ends = admin.end_offsets(partitions, isolation="read_uncommitted")
            return {
                str(tp): (committed[tp].offset, ends[tp])
                for tp in partitions
                if committed[tp].offset != ends[tp]
            }
        finally:
            reader.close()
            admin.close()

    topology: Topology = field(init=False)

    def run(self, topology: Topology, run_id: str, slots: int) -> None:
        """Run a topology, after which nothing lags."""
        self.topology = topology
        run_on_slots(self.application(topology), run_id, slots)
        assert self.lag() == {}


@pytest.fixture
def bench(
    kafka: str,
    application_id: str,
    produce: Produce,
    consume_all: Consume,
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
) -> Bench:
    return Bench(
        bootstrap=kafka,
        application_id=application_id,
        produce=produce,
        consume_all=consume_all,
        create_topic=create_topic,
        topic_name=topic_name,
    )


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def key_for(partition: int, count: int) -> str:
    """A key that Java's partitioner puts on a partition."""
    return next(
        key for key in map(str, range(1_000)) if partition_of_key(key.encode(), count, count) == partition
    )


def numbers(count: int, *, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


# == the spec's examples, whose pictures count partitions from 1


def test_metadata_topic_reads_as_in_the_spec_when_a_run_follows_another(bench: Bench) -> None:
    made = builder()
    made.stream(bench.topic("A", 2), bench.topic("B", 3)).send_to(bench.topic("O"))
    application = bench.application(made.build())
    offsets = {("A", 0): 55, ("A", 1): 46, ("B", 0): 75, ("B", 1): 39, ("B", 2): 68}

    def everywhere(counts: dict[tuple[str, int], int]) -> None:
        for (short, partition), count in counts.items():
            bench.send(short, partition, numbers(count))

    everywhere(offsets)
    application.run("run-1")
    first = ["<A_0:55>", "<A_1:46>", "<B_0:75>", "<B_1:39>", "<B_2:68>", "<app:0>", "<app:1>"]
    assert bench.metadata() == first
    everywhere(dict.fromkeys(offsets, 100))
    application.begin("run-2")
    tombstones = [f"<{key}:null>" for key in ("A_0", "A_1", "B_0", "B_1", "B_2", "app")]
    second = ["<A_0:155>", "<A_1:146>", "<B_0:175>", "<B_1:139>", "<B_2:168>", "<app:0>"]
    assert bench.metadata() == [*first, *tombstones, *second]


def test_simple_example_stops_where_the_spec_says_when_records_go_through_a_topic(bench: Bench) -> None:
    """Input A reaches 100, then 200; subtopology A writes 60 records to I in each run. The outputs of
    at_least_once carry no markers, so that the offsets of I are the spec's, too.
    """
    made = builder()
    kept = made.stream(bench.topic("A")).filter(lambda key, value: int(value) % 100 < 60)
    kept.through(bench.topic("I")).send_to(bench.topic("O"))
    application = bench.application(made.build(), processing_guarantee="at_least_once")
    bench.send("A", 0, numbers(100))
    application.run("run-1")
    assert bench.metadata() == ["<A_0:100>", "<app:0>", "<app-0_0:done>", "<I_0:60>", "<app:1>"]
    assert bench.values("O") == Counter(numbers(60)), "of this run, not of the run before"
    bench.send("A", 0, numbers(100, first=100))
    summary = application.run("run-2")
    assert bench.metadata()[5:] == [
        *("<A_0:null>", "<app-0_0:null>", "<I_0:null>", "<app:null>"),
        *("<A_0:200>", "<app:0>", "<app-0_0:done>", "<I_0:120>", "<app:1>"),
    ]
    assert bench.values("O") == Counter([*numbers(60), *numbers(60, first=100)])
    assert summary.intermediate_stops == {f"{bench.topics['I']}-0": 120}


@pytest.mark.parametrize("slots", [1, 2])
def test_deadlock_example_ends_when_there_is_one_slot_or_two(bench: Bench, slots: int) -> None:
    """X#1 writes 24 records to I's first partition and 56 to its second; X#2 brings the first to 34.

    With one slot X#2 comes second. The spec's picture has it report its own last write to the second
    partition, 12; ours report how far that partition is written by then. The largest report is the same.
    """
    made = builder()
    made.stream(bench.topic("A", 2)).through(bench.topic("I", 2)).send_to(bench.topic("O"))
    first, second = key_for(0, 2), key_for(1, 2)
    bench.send("A", 0, numbers(24), first)
    bench.send("A", 0, numbers(56, first=24), second)
    bench.send("A", 1, numbers(10, first=80), first)
    application = bench.application(made.build(), processing_guarantee="at_least_once")
    summary = run_on_slots(application, "run-1", slots)
    assert summary.intermediate_stops == {f"{bench.topics['I']}-0": 34, f"{bench.topics['I']}-1": 56}
    assert bench.values("O") == Counter(numbers(90))
    told = bench.metadata()[3:-1]
    assert {*told[:2]} == {"<app-0_0:done>", "<app-0_1:done>"}, "then come the stops"
    assert told[2:] == ["<I_0:34>", "<I_1:56>"]


# == shapes


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.prove), 3])
def test_every_record_comes_once_when_four_subtopologies_follow_each_other(bench: Bench, slots: int) -> None:
    """12 partitions, then 1, then 5, then a repartition topic of 5."""
    made = builder()
    stream = made.stream(bench.topic("in", 12)).map_values(lambda value: value + "m")
    stream = stream.through(bench.topic("one", 1)).map_values(lambda value: value + "n")
    stream = stream.through(bench.topic("five", 5))
    counted = stream.group_by(lambda key, value: f"{int(value.strip('mn')) % 7}").count(store="counts")
    counted.to_stream().send_to(bench.topic("out", 2), value_serde=serdes.json())
    topology = made.build()
    assert len(topology.subtopologies()) == 4
    for partition in range(12):
        bench.send("in", partition, numbers(3, first=3 * partition), f"k{partition}")
    bench.run(topology, "run-1", slots)
    # Only one of the twelve gets anything now; the others notify all the same.
    bench.send("in", 5, numbers(4, first=36))
    bench.run(topology, "run-2", slots)
    newest = {row.key.decode(): row.json() for row in bench.consume_all(bench.topics["out"])}
    assert newest == Counter(f"{number % 7}" for number in range(40))
    assert sum(line.startswith("<app-0_") and ":done" in line for line in bench.metadata()) == 12 * 2


def test_state_stays_where_it_is_when_an_input_grows_ahead_of_a_repartition_topic(
    bench: Bench, grow: Callable[[str, int], None]
) -> None:
    """An input of 3 partitions, which the producers' keys leave as it grows to 4, ahead of 5 with state."""
    made = builder()
    spread = made.stream(bench.topic("in", 3)).repartition(5, name="spread")
    counted = spread.group_by_key().count(store="counts")
    counted.to_stream().send_to(bench.topic("out", 2), value_serde=serdes.json())
    topology = made.build()
    keys = [f"{number}" for number in range(30)]
    bench.produce(bench.topics["in"], [{"key": key, "value": "1"} for key in keys])
    bench.run(topology, "run-1", 2)
    grow(bench.topics["in"], 4)
    rows = [{"key": key, "value": "2", "partition": partition_of_key(key.encode(), 4, 4)} for key in keys]
    bench.produce(bench.topics["in"], rows)
    bench.run(topology, "run-2", 2)
    newest = {row.key.decode(): row.json() for row in bench.consume_all(bench.topics["out"])}
    assert newest == dict.fromkeys(keys, 2)
    changes = bench.consume_all(f"{bench.application_id}-counts-changelog")
    places = {(row.key.decode(), row.partition) for row in changes}
    assert places == {(key, partition_of_key(key.encode(), 5, 5)) for key in keys}


@pytest.mark.parametrize("slots", [2, pytest.param(4, marks=pytest.mark.prove)])
def test_every_record_comes_once_when_a_diamond_has_several_producers_and_outsiders(
    bench: Bench, slots: int
) -> None:
    """Two subtopologies write c (4 partitions), one of them d (1) as well; both are read by one."""
    made = builder()
    middle = made.stream(bench.topic("in", 3)).through(bench.topic("b", 2))
    bench.topic("c", 4), bench.topic("d", 1), bench.topic("out", 2)
    middle.map_values(lambda value: value + "l").send_to(bench.topics["c"])
    middle.map_values(lambda value: value + "r").send_to(bench.topics["d"])
    made.stream(bench.topic("other", 2)).map_values(lambda value: value + "o").send_to(bench.topics["c"])
    made.stream(bench.topics["c"], bench.topics["d"]).send_to(bench.topics["out"])
    topology = made.build()
    assert len(topology.subtopologies()) == 4
    expected: Counter[str] = Counter()
    for run in range(2):
        values = numbers(6, first=10 * run)
        for partition in range(3):
            bench.send("in", partition, values[2 * partition : 2 * partition + 2], f"k{partition}")
        bench.send("other", run, [f"x{run}"])
        bench.send("c", 3, [f"outsider{run}"])
        expected.update([f"x{run}o", f"outsider{run}"])
        expected.update(f"{value}{mark}" for value in values for mark in "lr")
        bench.run(topology, f"run-{run}", slots)
        assert bench.values("out") == expected


def test_reports_of_an_earlier_run_do_not_count_when_the_next_has_begun(bench: Bench) -> None:
    made = builder()
    made.stream(bench.topic("A", 2)).through(bench.topic("I", 2)).send_to(bench.topic("O"))
    application = bench.application(made.build())
    bench.send("A", 0, ["1"])
    first = application.begin("run-1")
    application.tasks(first)
    application.finish("run-1")
    bench.send("A", 1, ["2"])
    second = application.begin("run-2")
    # A task of the first run that nobody fenced could not have put it otherwise.
    for group in range(2):
        record = done_record(first, 0, group)
        late = {"key": record.key, "value": record.value, "headers": record.headers, "partition": 0}
        bench.produce(record.topic, [late])
    with pytest.raises(UpstreamNotDoneError, match="no done notification"):
        application.task(second, 1, 0)
    application.tasks(second)
    application.finish("run-2")
    assert bench.values("O") == Counter(["1", "2"])
