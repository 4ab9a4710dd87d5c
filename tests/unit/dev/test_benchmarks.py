"""The benchmark suite's own logic: what is compared, what is summed up, and what is written."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from dev.benchmarks import __main__ as command
from dev.benchmarks import against, charts, guard, outputs, page, results
from dev.benchmarks.hosts import Answer, HostError
from dev.benchmarks.inputs import Inputs, events, flights
from dev.benchmarks.outputs import Digest
from dev.benchmarks.results import Figure, Result
from dev.benchmarks.spark_host import application_of
from dev.benchmarks.suite import Application, Suite
from dev.benchmarks.suite_topologies import TOPOLOGIES, Event
from dev.benchmarks.systems import (
    AVAILABLE_NOW,
    EARLIER,
    HAND_WRITTEN,
    KAFKA_STREAMS,
    OURS,
    OURS_IN_THREE,
    OURS_IN_THREE_STARTED,
    QUIX,
    RAW_CONSUME,
    RAW_PRODUCE,
    System,
)
from dev.benchmarks.workloads import MATRIX, WORKLOADS, Kind, Workload


def figure(seconds: float, memory: float = 100.0, processor: float = 1.0, **details: float) -> Figure:
    return Figure(seconds=seconds, peak_memory_mb=memory, processor_seconds=processor, details=details)


def result(
    workload: str = "stateless",
    system: str = "airflow-kstreams",
    guarantee: str = "exactly_once",
    *,
    ours_ratio: float = 1.0,
    seconds: float = 2.0,
    **details: float,
) -> Result:
    return Result(
        workload=workload,
        system=system,
        guarantee=guarantee,
        records_per_second=1_000 / seconds,
        wall_seconds=seconds,
        peak_memory_mb=300.0,
        records=1_000,
        rounds=[seconds],
        ours_ratio=ours_ratio,
        processor_rounds=[0.00125],
        processor_seconds_per_million=1.25,
        details=details,
        machine="a machine",
    )


# == medians and ratios


def test_result_holds_the_median_of_the_rounds_and_the_highest_memory() -> None:
    summed = results.result_of(
        ("w", "s", "exactly_once"),
        [figure(4.0, 10), figure(2.0, 30), figure(3.0, 20)],
        [figure(1.0), figure(1.0), figure(1.0)],
        records=600,
        machine="m",
        measured="2026-11-23",
    )
    assert (summed.wall_seconds, summed.records_per_second, summed.peak_memory_mb) == (3.0, 200.0, 30)
    assert summed.rounds == [4.0, 2.0, 3.0]
    assert (summed.machine, summed.measured) == ("m", "2026-11-23")


def test_result_holds_the_median_of_the_processor_seconds_by_a_million_records() -> None:
    figures = [figure(1, processor=seconds) for seconds in (6.0, 2.0, 3.0)]
    some = results.result_of(
        ("w", "s", "exactly_once"), figures, figures, records=2_000_000, machine="", measured=""
    )
    assert (some.processor_seconds_per_million, some.processor_rounds) == (1.5, [6.0, 2.0, 3.0])
    none = results.result_of(("w", "s", "none"), figures, figures, records=0, machine="", measured="")
    assert (none.processor_seconds_per_million, none.processor_rounds) == (0.0, [6.0, 2.0, 3.0])


def test_details_are_medians_of_the_rounds_when_every_round_has_them() -> None:
    summed = results.result_of(
        ("w", "s", "none"),
        [figure(1, part=1.0), figure(1, part=5.0), figure(1, part=3.0)],
        [figure(1)] * 3,
        records=1,
        machine="",
        measured="",
    )
    assert summed.details == {"part": 3.0}


def test_ratio_is_the_median_of_ratios_within_rounds_not_the_ratio_of_medians() -> None:
    # The machine was slow in the second round, for both alike.
    assert results.ratio([2.0, 20.0, 3.0], [1.0, 10.0, 2.0]) == 2.0


def test_ratio_takes_the_common_rounds_when_a_peer_had_fewer() -> None:
    assert results.ratio([30.0], [1.0, 10.0, 2.0]) == 30.0


# == equal outputs


def batches(*rows: tuple[int, str, str | None]) -> list[list[outputs.Record]]:
    return [[(p, key.encode(), None if value is None else value.encode())] for p, key, value in rows]


def test_records_are_equal_in_any_order_and_any_partition() -> None:
    one = outputs.digest(batches((0, "a", "1"), (1, "b", "2"), (0, "a", "1")), table=False)
    other = outputs.digest(batches((0, "b", "2"), (1, "a", "1"), (1, "a", "1")), table=False)
    assert one == other
    assert one.records == 3
    assert outputs.differences(one, other) == ""


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param([(0, "a", "1")], id="one is missing"),
        pytest.param([(0, "a", "1"), (0, "b", "2"), (0, "b", "2")], id="one is doubled"),
        pytest.param([(0, "a", "1"), (0, "b", "3")], id="another value"),
        pytest.param([(0, "a", "2"), (0, "b", "1")], id="swapped values"),
    ],
)
def test_records_differ(theirs: list[tuple[int, str, str]]) -> None:
    ours = outputs.digest(batches((0, "a", "1"), (0, "b", "2")), table=False)
    assert outputs.differences(ours, outputs.digest(batches(*theirs), table=False))


def test_swapped_values_are_seen_whatever_the_values_are() -> None:
    # Sums of the hashes of (key, value) are equal for one such pair in a few.
    for number in range(200):
        one, other = f"{number}", f"{number + 1}"
        straight = outputs.digest(batches((0, "a", one), (0, "b", other)), table=False)
        crossed = outputs.digest(batches((0, "a", other), (0, "b", one)), table=False)
        assert outputs.differences(straight, crossed) == "other contents in 2 records"


def test_null_is_not_the_same_as_empty() -> None:
    null = outputs.digest(batches((0, "a", None)), table=False)
    assert outputs.differences(null, outputs.digest(batches((0, "a", "")), table=False))


def test_tables_are_equal_when_the_last_values_are() -> None:
    one = outputs.digest(batches((0, "a", "1"), (0, "a", "3"), (1, "b", "2")), table=True)
    other = outputs.digest(batches((1, "b", "2"), (0, "a", "3")), table=True)
    assert one == other
    assert one.records == 2
    earlier = outputs.digest(batches((0, "a", "3"), (0, "a", "1"), (1, "b", "2")), table=True)
    assert outputs.differences(one, earlier) == "other contents in 2 records"


def test_table_drops_a_key_whose_last_value_is_a_tombstone() -> None:
    assert outputs.digest(batches((0, "a", "1"), (0, "a", None)), table=True).records == 0


def test_table_is_refused_when_a_key_is_in_two_partitions() -> None:
    with pytest.raises(ValueError, match="partitions 0 and 1"):
        outputs.digest(batches((0, "a", "1"), (1, "a", "2")), table=True)


# == rounds, with systems that only pretend

Rows = list[tuple[int, str, str | None]]


class PretendedSuite(Suite):
    """Notes who runs, and answers at once."""

    def __init__(self, outputs_of: Mapping[System, Rows], folder: Path) -> None:
        inputs = PretendedInputs(bootstrap="", show=lambda _title, _count: lambda _done: None)
        super().__init__(bootstrap="", folder=folder, inputs=inputs, say=lambda _: None, machine="m")
        self.ran: list[tuple[str, System]] = []
        self.records: list[int] = []
        self.outputs_of = outputs_of
        self.broken: set[System] = set()

    def _run(
        self, kind: str, workload: Workload, system: System, application: Application, records: int
    ) -> Answer:
        if system in self.broken:
            raise HostError("it ended")
        self.ran.append((kind, system))
        self.records.append(records)
        seconds = 2.0 if system == OURS else 6.0
        return Answer(seconds=seconds, peak_memory_mb=1.0, processor_seconds=seconds / 4, details={})

    def _new_application(self, workload: Workload, system: System, inputs: Mapping[str, str]) -> Application:
        return Application(application_id="a", inputs=inputs, output=system.name, folder=self.folder)

    def _delete(self, application: Application) -> None:
        pass

    def _start_hosts(self, workload: Workload) -> None:
        pass

    def read(self, _bootstrap: str, topic: str) -> Iterator[list[outputs.Record]]:
        rows = next(rows for system, rows in self.outputs_of.items() if system.name == topic)
        return iter(batches(*rows))


class PretendedInputs(Inputs):
    """Publishes nothing."""

    def of(self, workload: Workload, records: int) -> tuple[Mapping[str, str], int]:
        return {"events": "in"}, records

    def fresh(self, workload: Workload, name: str) -> Mapping[str, str]:
        return {"events": name}

    def append(self, workload: Workload, topic: str, first: int, count: int) -> None:
        pass


def pretend(
    monkeypatch: pytest.MonkeyPatch, folder: Path, outputs_of: Mapping[System, Rows]
) -> PretendedSuite:
    pretended = PretendedSuite(outputs_of, folder)
    monkeypatch.setattr(outputs, "read", pretended.read)
    return pretended


def workload(*systems: System, **changes: Any) -> Workload:
    base = Workload(
        name="w", shows="", topology="stateless", records=3, rounds=2, systems=systems, kind="throughput"
    )
    return dataclasses.replace(base, **changes)


SAME: Rows = [(0, "a", "1"), (0, "b", "2"), (1, "c", "3")]


def test_systems_take_turns_back_and_forth_after_a_warm_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME})
    found = pretended.measure(workload(OURS, KAFKA_STREAMS))
    turns = [OURS, KAFKA_STREAMS]
    assert [system for _, system in pretended.ran] == [*turns, *turns, *reversed(turns)]
    assert [(line.system, line.ours_ratio, line.records) for line in found] == [
        ("airflow-kstreams", 1.0, 3),
        ("kafka-streams", 3.0, 3),
    ]
    assert pretended.failures == []


def test_slow_system_has_fewer_rounds_and_no_warm_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, QUIX: SAME})
    found = pretended.measure(workload(OURS, QUIX))
    assert [system for _, system in pretended.ran] == [OURS, OURS, QUIX, OURS]
    assert len(found[1].rounds) == QUIX.rounds == 1


def test_slow_system_has_all_rounds_where_the_workload_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, QUIX: SAME})
    found = pretended.measure(workload(OURS, QUIX, rounds=3, in_full=(QUIX,)))
    assert [len(line.rounds) for line in found] == [3, 3]


def test_processor_seconds_are_those_that_the_host_has_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME})
    found = pretended.measure(workload(OURS, KAFKA_STREAMS))
    assert [line.processor_rounds for line in found] == [[0.5, 0.5], [1.5, 1.5]]


def test_compilers_are_warmed_on_all_of_the_input_and_workers_on_a_little(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME})
    pretended.measure(workload(OURS, KAFKA_STREAMS, records=1_000_000, rounds=1))
    assert pretended.records == [50_000, 1_000_000, 1_000_000, 1_000_000]


def test_figure_does_not_count_when_the_output_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME[:2], HAND_WRITTEN: SAME})
    found = pretended.measure(workload(OURS, KAFKA_STREAMS, HAND_WRITTEN))
    assert [line.system for line in found] == ["airflow-kstreams", "hand-written"]
    assert pretended.failures == ["w, Kafka Streams, tuned, exactly once: 2 records, ours has 3"]


def test_nothing_counts_when_our_own_output_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: [], KAFKA_STREAMS: []})
    assert pretended.measure(workload(OURS, KAFKA_STREAMS)) == []
    assert len(pretended.failures) == 2


def test_nothing_counts_when_our_own_output_changes_from_round_to_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME})
    given = pretended.read
    calls = iter(range(10))
    monkeypatch.setattr(
        outputs,
        "read",
        lambda bootstrap, topic: given(bootstrap, topic) if next(calls) < 2 else iter(batches(*SAME[:2])),
    )
    assert pretended.measure(workload(OURS, KAFKA_STREAMS)) == []
    assert "w, airflow_kstreams, exactly once: 2 records, ours has 3" in pretended.failures


def test_other_systems_go_on_when_one_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, AVAILABLE_NOW: SAME})
    pretended.broken = {AVAILABLE_NOW}
    assert [line.system for line in pretended.measure(workload(OURS, AVAILABLE_NOW))] == ["airflow-kstreams"]
    assert pretended.failures == ["w, Spark AvailableNow, at least once: it ended"]


def test_raw_produce_is_counted_and_raw_consume_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, RAW_PRODUCE: [(0, "x", "y")] * 3})
    found = pretended.measure(workload(OURS, RAW_CONSUME, RAW_PRODUCE))
    assert [line.system for line in found] == ["airflow-kstreams", "raw-consume", "raw-produce"]
    pretended.outputs_of = {OURS: SAME, RAW_PRODUCE: [(0, "x", "y")] * 2}
    pretended.measure(workload(OURS, RAW_PRODUCE))
    assert pretended.failures == ["w, raw produce: 2 records, not 3"]


def test_empty_run_of_ours_is_what_airflow_executes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME})
    empty = workload(OURS, KAFKA_STREAMS, kind="empty", records=0, before=5, rounds=1)
    pretended.measure(empty)
    assert [kind for kind, _ in pretended.ran] == ["engine", "kafka-streams", "airflow", "kafka-streams"]


def test_empty_run_of_an_earlier_revision_is_what_its_own_operators_execute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME})
    pretended.measure(workload(OURS, EARLIER, kind="empty", records=0, before=5, rounds=1))
    assert [kind for kind, _ in pretended.ran] == ["engine", "engine-earlier", "airflow", "airflow-earlier"]


def test_operators_of_an_empty_run_have_a_process_each_where_the_system_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    three = (OURS_IN_THREE, OURS_IN_THREE_STARTED)
    pretended = pretend(monkeypatch, tmp_path, dict.fromkeys((OURS, *three), SAME))
    pretended.measure(workload(OURS, *three, kind="empty", records=0, before=5, rounds=1))
    assert [kind for kind, _ in pretended.ran] == [*["engine"] * 3, "airflow", *["airflow-tasks"] * 2]


def test_times_are_compared_round_by_round_with_an_earlier_revision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME})
    measured = pretended.measure(workload(OURS, EARLIER, rounds=3))
    assert [line for pairs in against.pairs(measured) for line in pairs.lines()] == [
        *(f"w: pair {number}: 2.000 s, the earlier one 6.000 s: 0.333" for number in (1, 2, 3)),
        "w: this engine takes 0.333 of the earlier one's time, spread 0.000, 0.333 to 0.333 in 3 pairs",
    ]


def test_earlier_revision_that_writes_something_else_has_no_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME})
    rows = iter([SAME, SAME[:2]])
    monkeypatch.setattr(outputs, "read", lambda _bootstrap, _topic: iter(batches(*next(rows))))
    measured = pretended.measure(workload(OURS, EARLIER, rounds=1))
    assert against.pairs(measured) == []
    assert len(pretended.failures) == 1


@pytest.mark.parametrize(
    ("ratios", "median", "spread", "slower"),
    [
        ([1.02, 1.02, 1.02], 1.02, 0.0, False),
        ([1.04, 1.04, 1.04], 1.04, 0.0, True),
        ([1.04, 0.98, 1.10, 1.00, 1.08], 1.04, 0.08, False),
        ([1.50, 1.04, 1.05, 1.04, 1.05], 1.05, 0.01, True),
        ([0.90, 0.90], 0.9, 0.0, False),
        ([1.04], 1.04, 0.0, True),
    ],
)
def test_engine_is_slower_when_the_median_of_the_pairs_is_beyond_what_is_allowed_and_the_spread(
    ratios: list[float], median: float, spread: float, slower: bool
) -> None:
    pairs = against.Pairs(workload="w", seconds=[(ratio * 2, 2.0) for ratio in ratios])
    assert (pairs.median, pairs.spread) == pytest.approx((median, spread))
    assert pairs.slower is slower
    assert [*pairs.lines()][-1].endswith(" SLOWER") is slower


def run_against(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["dev/bench", *arguments])
    return command.main()


@pytest.mark.parametrize(
    "arguments",
    [["--pairs", "7"], ["--against", "a", "--pairs", "0"], ["--against", "a", "--rounds", "3"]],
)
def test_command_is_refused_when_pairs_have_nothing_to_count(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    with pytest.raises(SystemExit):
        run_against(monkeypatch, *arguments)


class PretendedHost:
    """A process that takes no time to start, and says that its runs take two seconds."""

    started: ClassVar[list[str]] = []

    @staticmethod
    def prepare(kind: str) -> None:
        pass

    def __init__(self, kind: str, folder: Path) -> None:
        self.started.append(kind)

    def __enter__(self) -> PretendedHost:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, request: Mapping[str, Any]) -> Answer:
        return Answer(seconds=2.0, peak_memory_mb=1.0, processor_seconds=1.0, details={})

    def wait_until_ready(self) -> None:
        pass

    def processor_seconds(self) -> float:
        return 9.0


@pytest.mark.parametrize(("kind", "start_counts"), [("started", False), ("cold", True)])
def test_processes_are_started_for_every_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Kind, start_counts: bool
) -> None:
    monkeypatch.setattr("dev.benchmarks.suite.Host", PretendedHost)
    every_five_seconds = SimpleNamespace(monotonic=count(step=5).__next__)
    monkeypatch.setattr("dev.benchmarks.suite.time", every_five_seconds)
    monkeypatch.setattr(PretendedHost, "started", [])
    pretended = pretend(monkeypatch, tmp_path, {OURS: SAME, KAFKA_STREAMS: SAME})
    found = pretended.measure(workload(OURS, KAFKA_STREAMS, kind=kind))
    assert PretendedHost.started == ["engine", "kafka-streams", "kafka-streams", "engine"]
    assert pretended.ran == [], "nothing is warmed up"
    assert [line.wall_seconds for line in found] == ([7.0, 7.0] if start_counts else [2.0, 2.0])
    seconds = [10.0, 10.0] if start_counts else [1.0, 1.0]
    assert [line.processor_rounds for line in found] == [seconds, seconds]


# == what is read and written


def test_events_are_the_same_every_time_and_every_key_comes_once_before_it_comes_again() -> None:
    some = dataclasses.replace(WORKLOADS["stateless"], keys=50)
    first = list(events(some, "t", 0, 120))
    assert first == list(events(some, "t", 0, 120))
    assert set(Counter(key for _, _, key, _ in first[:50]).values()) == {1}
    assert len({key for _, _, key, _ in first}) == 50


@pytest.mark.parametrize("size", [100, 2_000])
def test_events_have_exactly_the_size_that_is_asked_for(size: int) -> None:
    some = dataclasses.replace(WORKLOADS["bytes-100"], value_bytes=size)
    values = [value for _, value, _, _ in events(some, "t", 9_990, 20)]
    assert {len(value) for value in values} == {size}
    assert len({msgspec.json.decode(value, type=Event).note for value in values}) == 20


def test_flights_have_airports_of_their_own_in_every_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"flights": "f", "weather": "w"}
    few = list(flights(topics, 1_000))
    assert {topic for topic, *_ in few} == {"f", "w"}
    assert [time for *_, time in few] == sorted(time for *_, time in few)
    monkeypatch.setattr("dev.benchmarks.inputs._RECORDS_OF_2013", 1_000)
    monkeypatch.setattr("dev.benchmarks.inputs.DAYS", 1)
    copied = list(flights(topics, 2_000))
    assert {key for _, _, key, _ in copied} == {
        b"%s-%d" % (airport, copy) for airport in (b"EWR", b"JFK", b"LGA") for copy in (0, 1)
    }


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_run_has_its_own_topics_in_the_topology(name: str) -> None:
    plain = name.removesuffix("_batches")
    reads = next(measured.reads for measured in WORKLOADS.values() if measured.topology == plain)
    inputs = {topic: f"{topic}-7" for topic in reads}
    source = application_of({"topology": name, "inputs": inputs, "output": "o-7"})
    described = source.topology().describe()
    assert all(topic in described for topic in (*inputs.values(), "o-7"))
    assert "bench-" not in described


def test_every_workload_measures_ours_first_and_has_a_topology() -> None:
    for measured in WORKLOADS.values():
        assert measured.systems[0] == OURS
        assert measured.topology in TOPOLOGIES or measured.kind in ("files", "snapshots", "days")


def test_sizes_partitions_and_codecs_are_each_measured_with_each_and_reach_topics_and_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert {(line.value_bytes, line.partitions, line.codec) for line in MATRIX} == {
        (size, partitions, codec)
        for size in (100, 2_000)
        for partitions in (1, 4, 16)
        for codec in ("lz4", "zstd")
    }
    published: list[tuple[str, int]] = []
    monkeypatch.setattr(
        "dev.benchmarks.inputs.create_topics", lambda _, topics: published.extend(topics.items())
    )
    codecs: list[str] = []
    monkeypatch.setattr("dev.benchmarks.inputs.publish", lambda *_, codec, **__: codecs.append(codec))
    inputs = Inputs(bootstrap="", show=lambda *_: lambda _done: None)
    for line in MATRIX:
        inputs.of(line, line.records)
    assert codecs == [line.codec for line in MATRIX]
    assert [partitions for _, partitions in published] == [line.partitions for line in MATRIX]
    assert len(dict(published)) == len(MATRIX), "two lines read one topic"
    suite = Suite(bootstrap="", folder=tmp_path, inputs=inputs, say=lambda _: None, machine="")
    application = Application(application_id="a", inputs={}, output="o", folder=tmp_path)
    for line in MATRIX:
        request = suite._request(line, OURS, application, 1)
        assert (request["codec"], request["partitions"]) == (line.codec, line.partitions)
    assert suite._request(WORKLOADS["stateless"], OURS, application, 1)["codec"] == "lz4"


# == what is stored and shown


def test_stored_lines_have_the_fields_that_readers_expect(tmp_path: Path) -> None:
    file = tmp_path / "benchmarks.json"
    results.write([result()], file)
    assert list(json.loads(file.read_text())[0])[:6] == [
        "workload",
        "system",
        "guarantee",
        "records_per_second",
        "wall_seconds",
        "peak_memory_mb",
    ]
    assert results.read(file) == [result()]
    assert results.read(tmp_path / "none.json") == []


def test_new_results_replace_all_lines_of_their_workload_and_no_others() -> None:
    old = [result("a"), result("a", "gone"), result("b"), result("no more")]
    new = [result("a", seconds=9.0)]
    assert results.merged(old, new, ["b", "a"]) == [result("b"), new[0]]


def test_details_have_a_line_for_every_result() -> None:
    shown = page.details([result(), result(system="quix-streams", ours_ratio=12.5)])
    assert "| quix-streams | exactly once | 500 | 2.00 | 1: 2.00 - 2.00 | 1.25 | 300 | 12.50 |" in shown
    assert "- a machine" in shown


def test_page_has_every_bar_when_some_are_not_measured() -> None:
    shown = page.page([result("memory-1m", part=1.0), result(), result(system="quix-streams", seconds=25.0)])
    assert (
        "| stateless against Quix Streams, tuned, exactly once | at least 10 x | 12.50 x | "
        "1: 12.50 - 12.50 | too few rounds | both up and warm |" in shown
    )
    assert shown.count("not measured yet") > 40


def test_run_without_records_is_shown_with_the_processor_seconds_of_a_run() -> None:
    empty = msgspec.structs.replace(result("empty"), records=0, processor_rounds=[0.5, 0.75, 4.0])
    assert "| - | 2.00 | 1: 2.00 - 2.00 | 0.75 a run | 300 |" in page.tables([empty])
    older = msgspec.structs.replace(empty, processor_rounds=())
    assert "| - | 2.00 | 1: 2.00 - 2.00 | - | 300 |" in page.tables([older])


def test_pages_are_what_is_stored() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(results.read()), "run dev/bench --page"
    assert page.DETAILS.read_text(encoding="utf-8") == page.details(results.read()), "run dev/bench --page"


def test_charts_are_drawn_for_what_was_measured(tmp_path: Path) -> None:
    drawn = charts.draw([result(), result(system="kafka-streams"), result("guard-sum")], tmp_path)
    assert [file.name for file in drawn] == ["benchmarks-throughput.svg"]
    assert drawn[0].read_text().startswith("<?xml")


# == guard


@pytest.mark.parametrize(("ratio", "good"), [(0.8, True), (0.75, True), (0.74, False)])
def test_guard_fails_only_below_three_quarters_of_the_stored_ratio(ratio: float, good: bool) -> None:
    stored = [result("guard-sum", "hand-written", ours_ratio=1.0)]
    measured = [result("guard-sum"), result("guard-sum", "hand-written", ours_ratio=ratio)]
    lines, verdict = guard.verdict(stored, measured)
    assert verdict is good
    assert len(lines) == 1


def test_guard_fails_when_nothing_is_stored_or_measured() -> None:
    lines, good = guard.verdict([], [result("guard-sum", "hand-written")])
    assert not good
    assert "dev/bench --workload guard-sum" in lines[0]
    assert guard.verdict([result("guard-sum", "hand-written")], []) == ([], False)


def test_digest_of_nothing_is_nothing() -> None:
    assert outputs.digest([], table=False) == outputs.digest([], table=True) == Digest(records=0, checksum=0)
