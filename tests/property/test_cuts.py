"""What it changes where runs are cut, and what not: the claims of ``docs/explanation/time-and-errors.md``.

The uncut side is one run over everything. The cut side is a run per slice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    FixedGroups,
    HoppingWindow,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
    timestamps,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.topology.drawn_parts import INPUTS, KEYS, Part, parts, topology_of

pytestmark = pytest.mark.promise("cuts-by-interval-keep-the-order")

#: One task reads both partitions of every input.
ONE_TASK = FixedGroups(1)
PARTITIONS = 2
LAST_MS = 60


class Row(NamedTuple):
    topic: str
    partition: int
    key: str
    value: int | None
    timestamp_ms: int


#: What a topic got, in its order: (key, value, timestamp).
Results = list[tuple[Any, Any, int]]

ROWS = st.lists(
    st.builds(
        Row,
        topic=st.sampled_from(INPUTS),
        partition=st.integers(0, PARTITIONS - 1),
        key=st.sampled_from(KEYS),
        value=st.sampled_from([1, 2, 3, None]),
        timestamp_ms=st.integers(1, LAST_MS),
    ),
    min_size=5,
    max_size=40,
)
BUFFERED = st.integers(1, 6)


def in_runs(
    topology: Topology,
    slices: Sequence[Sequence[Row]],
    outputs: Sequence[str],
    buffered: int,
    handler: str = "fail",
) -> dict[str, Results]:
    """Process each slice in a run of its own, and return what the topics got, in bytes.

    :param handler: of processing exceptions.
    """
    driver = TopologyTestDriver(
        topology,
        application_id="app",
        partitions=dict.fromkeys(topology.plan("app").inputs, PARTITIONS),
        settings={"buffered.records.per.partition": buffered, "processing.exception.handler": handler},
    )
    with driver:
        for rows in slices:
            with driver.run():
                for topic, partition, key, value, timestamp_ms in rows:
                    driver.pipe_input(
                        topic, key=key, value=value, timestamp_ms=timestamp_ms, partition=partition
                    )
    return {
        topic: [
            (record.key, record.value, record.timestamp_ms)
            for record in driver.read_output(topic, key_serde=serdes.bytes(), value_serde=serdes.bytes())
        ]
        for topic in outputs
    }


def logs_of(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    logs: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        logs[row.topic, row.partition].append(row)
    return logs


def in_intervals(rows: Sequence[Row], ends_ms: Sequence[int]) -> list[list[Row]]:
    """Cut each partition before the first record that is dated at or past each interval's end."""
    slices: list[list[Row]] = [[] for _ in range(len(ends_ms) + 1)]
    for log in logs_of(rows).values():
        number = 0
        for row in log:
            while number < len(ends_ms) and row.timestamp_ms >= ends_ms[number]:
                number += 1
            slices[number].append(row)
    return slices


def cut_anywhere(rows: Sequence[Row], draw: Callable[[int], int], runs: int) -> list[list[Row]]:
    """Cut each partition where a function says."""
    slices: list[list[Row]] = [[] for _ in range(runs)]
    for log in logs_of(rows).values():
        stops = sorted(draw(len(log)) for _ in range(runs - 1))
        for number, (start, stop) in enumerate(zip([0, *stops], [*stops, len(log)], strict=True)):
            slices[number] += log[start:stop]
    return slices


def holding(part: Part, grace_ms: int | None = None) -> Part:
    """Return the part without what every end of a run does on purpose: no cache, no flush."""
    chosen: dict[str, Any] = {"at_run_end": "hold"} | ({} if grace_ms is None else {"grace_ms": grace_ms})
    left, right = part.windows
    return replace(
        part,
        cached=False,
        window=replace(part.window, **chosen),
        windows=(replace(left, **chosen), replace(right, **chosen)),
    )


def without_ends(results: Results) -> Results:
    """Leave out what processors write when a run ends."""
    return [result for result in results if b'"closed"' not in (result[1] or b"")]


# == what it does not change


@settings(max_examples=examples(40), deadline=None)
@given(
    drawn=st.lists(parts().filter(lambda part: part.kind != "batches").map(holding), min_size=1, max_size=3),
    rows=ROWS,
    ends_ms=st.lists(st.integers(1, LAST_MS), max_size=3).map(sorted),
    buffered=BUFFERED,
)
def test_cuts_change_nothing_when_inputs_are_in_order_and_all_cut_at_one_time(
    drawn: list[Part], rows: list[Row], ends_ms: list[int], buffered: int
) -> None:
    rows.sort(key=lambda row: row.timestamp_ms)
    outputs = [f"out-{number}" for number in range(len(drawn))]
    whole = in_runs(topology_of(drawn, ONE_TASK), [rows], outputs, buffered)
    cut = in_runs(topology_of(drawn, ONE_TASK), in_intervals(rows, ends_ms), outputs, buffered)
    for topic in outputs:
        assert without_ends(cut[topic]) == without_ends(whole[topic])
    event(f"{sum(map(len, whole.values())) // 20 * 20}+ results")


class Place(Processor):
    """Says of each record where it stood."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        place = self._context
        self._context.forward("place", [place.topic, place.partition, record.timestamp_ms, record.value])


def places() -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.json(), partition_grouper=ONE_TASK
    )
    builder.stream(*INPUTS).process(Place).send_to("out")
    return builder.build()


@settings(max_examples=examples(20), deadline=None)
@given(
    rows=ROWS,
    ends_ms=st.lists(st.integers(1, LAST_MS), min_size=1, max_size=3, unique=True).map(sorted),
    buffered=BUFFERED,
)
def test_order_is_the_same_when_runs_end_with_their_intervals_however_late_records_are(
    rows: list[Row], ends_ms: list[int], buffered: int
) -> None:
    rows = [row._replace(value=number) for number, row in enumerate(rows)]
    results: list[list[bytes | None]] = []
    for settings_, intervals in (
        ({"autostop.at": "eol"}, [(0, LAST_MS)]),
        ({"autostop.at": "interval_end"}, list(zip([0, *ends_ms], [*ends_ms, LAST_MS + 1], strict=True))),
    ):
        kafka = InMemoryKafka()
        for topic, count in {**dict.fromkeys(INPUTS, PARTITIONS), "out": 1}.items():
            kafka.create_topic(topic, partitions=count)
        for topic, partition, key, value, timestamp_ms in rows:
            data = serdes.json().serialize(value)
            kafka.append(topic, data, key.encode(), partition=partition, timestamp_ms=timestamp_ms)
        app = Application(
            application_id="app",
            topology=places(),
            on=kafka,
            clock=kafka.clock,
            settings={"settle.ms": 0, "buffered.records.per.partition": buffered, **settings_},
        )
        for number, interval_ms in enumerate(intervals):
            app.run(f"run-{number}", (0, number), interval_ms)
        results.append(list(kafka.values("out")))
    whole, cut = results
    assert whole == cut
    assert len(cut) == len(rows)


@settings(max_examples=examples(40), deadline=None)
@given(
    drawn=parts("plain", "fold").map(holding),
    rows=ROWS,
    data=st.data(),
    runs=st.integers(2, 4),
    buffered=BUFFERED,
)
def test_each_keys_results_are_the_same_when_no_time_matters_and_a_key_lies_in_one_partition(
    drawn: Part, rows: list[Row], data: st.DataObject, runs: int, buffered: int
) -> None:
    drawn = replace(drawn, origin="a")
    rows = [row._replace(partition=KEYS.index(row.key) % PARTITIONS) for row in rows]
    slices = cut_anywhere(rows, lambda length: data.draw(st.integers(0, length)), runs)
    whole, cut = (
        _by_key(in_runs(topology_of([drawn], ONE_TASK), given_, ["out-0"], buffered)["out-0"])
        for given_ in ([rows], slices)
    )
    assert cut == whole


def _add_or_raise(key: str, value: int, total: dict[str, Any]) -> dict[str, Any]:
    total["records"] += 1
    total["values"].append(value)
    if value == 3:
        raise ValueError
    return total


def _merge(key: str, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    left["records"] += right["records"]
    left["values"] += right["values"]
    return left


def _failing_folds(storage: Any) -> Topology:
    """One fold of each kind, by an aggregator that raises when it has changed its aggregate already."""
    builder = KStreamBuilder(
        default_key_serde=serdes.string(), default_value_serde=serdes.json(), partition_grouper=ONE_TASK
    )
    group = builder.stream("a").group_by_key()

    def spec(name: str) -> StoreSpec:
        return StoreSpec(
            name=name,
            key_serde=serdes.string(),
            value_serde=serdes.json(),
            cached=False,
            storage=storage,
        )

    def empty() -> dict[str, Any]:
        return {"records": 0, "values": []}

    grace_ms = 2 * LAST_MS
    windows: list[TumblingWindow | HoppingWindow | SlidingWindow] = [
        TumblingWindow(size_ms=20, grace_ms=grace_ms),
        HoppingWindow(size_ms=20, advance_ms=10, grace_ms=grace_ms),
        SlidingWindow(size_ms=10, grace_ms=grace_ms),
    ]
    for number, window in enumerate(windows):
        folded = group.windowed_by(window).aggregate(empty, _add_or_raise, store=spec(f"w{number}"))
        folded.to_stream().send_to(f"out-{number}")
    sessions = group.windowed_by(SessionWindow(gap_ms=5, grace_ms=grace_ms))
    sessions.aggregate(empty, _add_or_raise, _merge, store=spec("s")).to_stream().send_to("out-3")
    group.aggregate(empty, _add_or_raise, store=spec("n")).to_stream().send_to("out-4")
    group.cogroup(_add_or_raise).aggregate(empty, store=spec("c")).to_stream().send_to("out-5")
    return builder.build()


@pytest.mark.promise("left-out-records-leave-no-aggregate")
@settings(max_examples=examples(25), deadline=None)
@given(
    rows=ROWS,
    storage=st.sampled_from(["memory", "memory", "rocksdb"]),
    handler=st.sampled_from(["skip", "dead-letter"]),
    data=st.data(),
    runs=st.integers(2, 4),
)
def test_records_that_a_handler_leaves_out_leave_nothing_in_any_fold_wherever_runs_are_cut(
    rows: list[Row], storage: str, handler: str, data: st.DataObject, runs: int
) -> None:
    rows = [row._replace(topic="a", partition=0) for row in rows]
    outputs = [f"out-{number}" for number in range(6)]
    slices = cut_anywhere(rows, lambda length: data.draw(st.integers(0, length)), runs)
    whole = in_runs(_failing_folds(storage), [rows], outputs, 1, handler)
    cut = in_runs(_failing_folds(storage), slices, outputs, 1, handler)
    assert cut == whole
    values = [value for results in whole.values() for _, value, _ in results if value is not None]
    assert all(3 not in serdes.json().deserialize(value)["values"] for value in values)


@settings(max_examples=examples(50), deadline=None)
@given(
    drawn=parts("windows", "windowed join")
    .filter(lambda part: part.kind == "windows" or part.call != "join_prior")
    .map(lambda part: replace(holding(part, grace_ms=2 * LAST_MS), suppressed=True)),
    rows=ROWS,
    data=st.data(),
    runs=st.integers(2, 4),
    buffered=BUFFERED,
)
def test_final_results_are_the_same_when_grace_takes_in_what_a_cut_makes_late(
    drawn: Part, rows: list[Row], data: st.DataObject, runs: int, buffered: int
) -> None:
    slices = cut_anywhere(rows, lambda length: data.draw(st.integers(0, length)), runs)
    closing = [Row(topic, 0, "z", None, 10_000) for topic in INPUTS]
    whole, cut = (
        in_runs(topology_of([drawn], ONE_TASK), [*given_, closing], ["out-0"], buffered)["out-0"]
        for given_ in ([rows], slices)
    )
    # What a window holds, and the order of a join's results, follow the order of processing.
    assert Counter(map(_unordered, cut)) == Counter(map(_unordered, whole))


@settings(max_examples=examples(40), deadline=None)
@given(
    drawn=parts("foreign keys"),
    rows=ROWS,
    data=st.data(),
    runs=st.integers(2, 4),
    buffered=BUFFERED,
)
def test_foreign_key_join_ends_with_the_same_table_when_a_key_lies_in_one_partition(
    drawn: Part, rows: list[Row], data: st.DataObject, runs: int, buffered: int
) -> None:
    drawn = replace(drawn, origin="a")
    rows = [row._replace(partition=0) for row in rows]
    slices = cut_anywhere(rows, lambda length: data.draw(st.integers(0, length)), runs)
    whole, cut = (
        {key: found[-1][0] for key, found in _by_key(each).items()}
        for each in (
            in_runs(topology_of([drawn], ONE_TASK), given_, ["out-0"], buffered)["out-0"]
            for given_ in ([rows], slices)
        )
    )
    assert {k: v for k, v in cut.items() if v is not None} == {
        k: v for k, v in whole.items() if v is not None
    }


def _by_key(results: Results) -> dict[bytes, list[tuple[Any, int]]]:
    found: dict[bytes, list[tuple[Any, int]]] = defaultdict(list)
    for key, value, timestamp_ms in results:
        found[key].append((value, timestamp_ms))
    return found


def _unordered(result: tuple[Any, Any, int]) -> tuple[Any, Any, int]:
    key, value, timestamp_ms = result
    listed = None if value is None else serdes.json().deserialize(value)
    return key, listed if listed is None else tuple(sorted(map(str, listed))), timestamp_ms


# == what it changes


def topology(build: Callable[[KStreamBuilder], None]) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    build(builder)
    return builder.build()


def results(topology: Topology, *slices: Sequence[Row]) -> list[Any]:
    found = in_runs(topology, slices, ["out"], 1_000)["out"]
    return [None if value is None else serdes.json().deserialize(value) for _, value, _ in found]


def row(topic: str, timestamp_ms: int, value: int) -> Row:
    return Row(topic, 0, "k", value, timestamp_ms)


def test_record_is_joined_with_a_later_table_value_when_its_topic_lagged_behind_at_the_cut() -> None:
    def build(builder: KStreamBuilder) -> None:
        prices = builder.table("prices", store="prices")
        builder.stream("orders").join(prices, lambda order, price: [order, price]).send_to("out")

    old, new, order = row("prices", 10, 5), row("prices", 20, 6), row("orders", 15, 1)
    assert results(topology(build), [old, new, order]) == [[1, 5]]
    assert results(topology(build), [old, new], [order]) == [[1, 6]]
    assert results(topology(build), [old], [new, order]) == [[1, 5]], "where the order has not been passed"


def test_record_is_late_when_a_cut_ends_the_look_ahead_before_it() -> None:
    def build(builder: KStreamBuilder) -> None:
        window = TumblingWindow(size_ms=10, grace_ms=0)
        counts = builder.stream("in").group_by_key().windowed_by(window).count(store="n").suppress()
        counts.to_stream().send_to("out", value_serde=serdes.json())

    ahead, behind, last = row("in", 12, 0), row("in", 5, 0), row("in", 30, 0)
    assert results(topology(build), [ahead, behind, last]) == [1, 1]
    assert results(topology(build), [ahead], [behind, last]) == [1]


@pytest.mark.promise("slices-give-what-they-close")
def test_record_is_late_when_a_run_has_closed_its_window_though_its_own_last_record_was_older() -> None:
    def build(builder: KStreamBuilder) -> None:
        window = TumblingWindow(size_ms=10, grace_ms=0)
        counts = builder.stream("in").group_by_key().windowed_by(window).count(store="n").suppress()
        counts.to_stream().send_to("out", value_serde=serdes.json())

    closed, ahead, behind = row("in", 12, 0), row("in", 30, 0), row("in", 15, 0)
    late, last = row("in", 25, 0), row("in", 50, 0)
    assert results(topology(build), [closed, ahead, behind]) == [2]
    assert results(topology(build), [closed, ahead, behind, late, last]) == [2, 1, 1]
    assert results(topology(build), [closed, ahead, behind], [late, last]) == [2, 1]


@pytest.mark.promise("slices-give-what-they-close")
def test_run_ends_the_wait_of_elements_when_the_other_topic_ends_with_an_older_record() -> None:
    def build(builder: KStreamBuilder) -> None:
        left, right = (
            builder.stream(topic).with_window(SlidingWindow(size_ms=5, grace_ms=0))
            for topic in ("left", "right")
        )
        left.outer_join(right, lambda ours, theirs: [ours, theirs], name="j").send_to("out")

    rows = [row("left", 10, 1), row("right", 40, 2), row("right", 20, 3)]
    assert results(topology(build), rows) == [[1, None], [None, 3]]


@pytest.mark.promise("slices-give-what-they-close")
def test_each_topic_comes_to_its_own_latest_record_when_the_last_ones_are_older() -> None:
    def build(builder: KStreamBuilder) -> None:
        window = SlidingWindow(size_ms=5, grace_ms=0)
        left, right = (builder.stream(topic) for topic in ("left", "right"))
        pairs = left.with_window(window).join(right.with_window(window), lambda *both: [*both], name="j")
        counts = right.group_by_key().windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="n")
        pairs.send_to("out")
        counts.suppress().to_stream().send_to("out", value_serde=serdes.json())

    first = [row("left", 1_000, 1), row("left", 990, 1), row("right", 50, 1), row("right", 45, 1)]
    assert results(topology(build), first, [row("right", 52, 1), row("right", 70, 1)]) == [1, 2]


@pytest.mark.parametrize(("grace_ms", "joined"), [(0, []), (50, [[2, 1]])])
def test_elements_meet_only_within_grace_when_one_input_lagged_behind_at_the_cut(
    grace_ms: int, joined: list[list[int]]
) -> None:
    def build(builder: KStreamBuilder) -> None:
        window = SlidingWindow(size_ms=5, grace_ms=grace_ms)
        left, right = (builder.stream(topic).with_window(window) for topic in ("left", "right"))
        left.join(right, lambda ours, theirs: [ours, theirs], name="j").send_to("out")

    early, far, partner = row("right", 10, 1), row("right", 40, 0), row("left", 12, 2)
    assert results(topology(build), [early, far, partner]) == [[2, 1]]
    assert results(topology(build), [early, far], [partner]) == joined


def test_prior_element_is_not_joined_when_its_topic_lagged_behind_at_the_cut() -> None:
    def build(builder: KStreamBuilder) -> None:
        window = SlidingWindow(size_ms=5, grace_ms=50)
        left, right = (builder.stream(topic).with_window(window) for topic in ("left", "right"))
        left.join_prior(right, lambda ours, theirs: [ours, theirs], name="j").send_to("out")

    prior, later = row("right", 10, 1), row("left", 12, 2)
    assert results(topology(build), [later, prior]) == [[2, 1]]
    assert results(topology(build), [later], [prior]) == [], "whatever its grace is"


class Ticks(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context
        context.schedule(10)

    def process(self, record: ProcessorRecord) -> None:
        self._context.forward("k", record.value)

    def punctuate(self, stream_time_ms: int) -> None:
        self._context.forward("k", f"tick {stream_time_ms}")


def test_punctuation_comes_between_other_records_when_a_cut_moves_stream_time() -> None:
    def build(builder: KStreamBuilder) -> None:
        builder.stream("in").process(Ticks).send_to("out")

    rows = [row("in", 5, 1), row("in", 12, 2), row("in", 7, 3), row("in", 21, 4)]
    assert results(topology(build), rows) == [1, 2, 3, 4, "tick 10", "tick 20"]
    assert results(topology(build), rows[:2], rows[2:]) == [1, 2, "tick 10", 3, 4, "tick 20"]


def test_order_differs_when_an_extractor_dates_records_otherwise_than_their_cut() -> None:
    def build(builder: KStreamBuilder) -> None:
        by_value = timestamps.extract(lambda record: record.value, invalid="fail")
        streams = [builder.stream(topic, timestamps=by_value) for topic in ("a", "b")]
        streams[0].merge(streams[1]).send_to("out")

    rows = [row("a", 1, 50), row("b", 5, 10)]
    assert results(topology(build), rows) == [10, 50]
    assert results(topology(build), *in_intervals(rows, [3])) == [50, 10]
