"""Tables of any shape hold what a query over the newest values gives: however inputs are cut into runs,
wherever commit points lie, with restores between.

The oracle knows no changes. It takes the last value of each key of each input, and evaluates the drawn tables
over these once, as dicts. Inputs are partitioned by key, as tables of topics have to be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    KStreamBuilder,
    KTable,
    StoreSpec,
    Topology,
    TopologyError,
    partition_of_key,
    serdes,
)
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.examples import examples
from tests.support.kafka.in_process import Application
from tests.support.topology.restarts import RestartingTopology

pytestmark = pytest.mark.promise(
    "tables-take-back-what-they-gave",
    "foreign-key-joins-follow-both-sides",
    "foreign-key-joins-end-with-the-newest-values",
)

INPUTS = ("a", "b", "c")
KEYS = ("u", "v", "w", "x", "y")
PARTITIONS = 2

Kept = Literal["derived", "cached", "uncached"]


# == what is drawn


@dataclass(frozen=True, slots=True)
class Input:
    topic: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Entry by entry of another table."""

    kind: Literal["filter", "filter_not", "map_values", "to_table", "rekeyed to_table"]
    table: Table
    kept: Kept
    salt: int


@dataclass(frozen=True, slots=True)
class Grouped:
    kind: Literal["reduce", "aggregate"]
    table: Table
    kept: Kept
    salt: int


@dataclass(frozen=True, slots=True)
class Joined:
    kind: Literal["join", "left_join", "outer_join"]
    left: Table
    right: Table
    kept: Kept


@dataclass(frozen=True, slots=True)
class JoinedByForeignKey:
    kind: Literal["join", "left_join"]
    left: Table
    right: Table
    kept: Kept
    salt: int


Table = Input | Derived | Grouped | Joined | JoinedByForeignKey

KEPT = st.sampled_from(["derived", "cached", "uncached"])
SALT = st.integers(0, 3)


def _larger(tables: st.SearchStrategy[Table]) -> st.SearchStrategy[Table]:
    kinds = st.sampled_from(["filter", "filter_not", "map_values", "to_table", "rekeyed to_table"])
    return (
        st.builds(Derived, kinds, tables, KEPT, SALT)
        | st.builds(Grouped, st.sampled_from(["reduce", "aggregate"]), tables, KEPT, SALT)
        | st.builds(Joined, st.sampled_from(["join", "left_join", "outer_join"]), tables, tables, KEPT)
        | st.builds(JoinedByForeignKey, st.sampled_from(["join", "left_join"]), tables, tables, KEPT, SALT)
    )


TABLES: st.SearchStrategy[Table] = st.recursive(
    st.builds(Input, st.sampled_from(INPUTS)), _larger, max_leaves=5
)

#: Topic, key, value.
Row = tuple[str, str, int | None]
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.sampled_from(INPUTS), st.sampled_from(KEYS), st.sampled_from([1, 2, 3, 4, 5, None, None])),
    max_size=25,
)


# == functions of both sides


def _weight(value: Any) -> int:
    """Return a number, 1 or more, that differs for most values."""
    if isinstance(value, list):
        return 1 + sum((place + 2) * _weight(each) for place, each in enumerate(value))
    return 1 if value is None else int(value)


def _passes(salt: int) -> Callable[[str, Any], bool]:
    return lambda key, value: (_weight(value) + salt + KEYS.index(key)) % 3 > 0


def _mapper(salt: int) -> Callable[[Any], Any]:
    return lambda value: None if (_weight(value) + salt) % 4 == 0 else [_weight(value), salt]


def _selector(salt: int) -> Callable[[str, Any], tuple[str | None, int]]:
    def select(key: str, value: Any) -> tuple[str | None, int]:
        place = (_weight(value) + salt) % (len(KEYS) + 1)
        return (None if place == len(KEYS) else KEYS[place]), _weight(value)

    return select


def _foreign_key(salt: int) -> Callable[[str, Any], str | None]:
    return lambda key, value: _selector(salt)(key, value)[0]


def _pair(left: Any, right: Any) -> list[Any]:
    return [left, right]


def _add(key: str, value: int, values: list[int]) -> list[int]:
    values.append(value)
    values.sort()
    return values


def _remove(key: str, value: int, values: list[int]) -> list[int] | None:
    values.remove(value)
    return values or None


# == the topology


class _Building:
    """Makes tables of what was drawn; equal ones that are drawn twice are made once, so that they meet."""

    def __init__(self, builder: KStreamBuilder, cached: bool) -> None:
        self._builder, self._cached = builder, cached
        self._made: dict[Table, KTable] = {}
        #: What is made without a store's name, so that names tell them apart.
        self._unnamed = 0

    def make(self, table: Table) -> KTable:
        if table not in self._made:
            self._made[table] = self._new(table)
        return self._made[table]

    def _new(self, table: Table) -> KTable:
        match table:
            case Input(topic):
                return self._builder.table(topic, store=self._store("cached" if self._cached else "uncached"))
            case Derived(kind, of, kept, salt):
                return self._derived(kind, self.make(of), kept, salt)
            case Grouped(kind, of, kept, salt):
                grouped = self.make(of).group_by(_selector(salt))
                held = self._store(kept) or self._name()
                if kind == "reduce":
                    return grouped.reduce(
                        lambda total, value: total + value,
                        lambda total, value: total - value or None,
                        store=held,
                    )
                return grouped.aggregate(list, _add, _remove, store=held)
            case Joined(kind, left, right, kept):
                call = getattr(self.make(left), kind)
                joined: KTable = call(self.make(right), _pair, store=self._store(kept))
                return joined
            case JoinedByForeignKey(kind, left, right, kept, salt):
                call = getattr(self.make(left), kind)
                others = self.make(right)
                store, name = self._store(kept), self._name()
                by_key: KTable = call(others, _pair, foreign_key=_foreign_key(salt), store=store, name=name)
                return by_key

    def _derived(self, kind: str, of: KTable, kept: Kept, salt: int) -> KTable:
        match kind:
            case "map_values":
                return of.map_values(_mapper(salt), store=self._store(kept))
            case "to_table":
                return of.to_stream().to_table(store=self._store(kept) or self._name())
            case "rekeyed to_table":
                rekeyed = of.to_stream(lambda key, value: key)
                return rekeyed.to_table(store=self._store(kept) or self._name())
        derived: KTable = getattr(of, kind)(_passes(salt), store=self._store(kept))
        return derived

    def _name(self) -> str:
        self._unnamed += 1
        return f"unnamed-{self._unnamed}"

    def _store(self, kept: Kept) -> StoreSpec | None:
        if kept == "derived":
            return None
        return StoreSpec(
            name=f"s{len(self._made)}-{kept}",
            key_serde=serdes.string(),
            value_serde=serdes.json(),
            cached=kept == "cached",
        )


def _topology(drawn: Sequence[Table], *, cached: bool) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    building = _Building(builder, cached)
    for topic in INPUTS:
        building.make(Input(topic))
    for number, table in enumerate(drawn):
        building.make(table).to_stream().send_to(f"out-{number}")
    try:
        return builder.build()
    except TopologyError as error:
        # A table is joined with what lies behind a repartition topic of its own.
        assert "can never stop" in error.cause, error
        reject()


# == the oracle

Entries = dict[str, Any]


def _evaluated(table: Table, inputs: Mapping[str, Entries]) -> Entries:
    match table:
        case Input(topic):
            return inputs[topic]
        case Derived(kind, of, _, salt):
            entries = _evaluated(of, inputs)
            if kind == "map_values":
                return _present({key: _mapper(salt)(value) for key, value in entries.items()})
            if kind in ("filter", "filter_not"):
                passes = _passes(salt)
                return {k: v for k, v in entries.items() if passes(k, v) is (kind == "filter")}
            return entries
        case Grouped(kind, of, _, salt):
            groups: dict[str, list[int]] = defaultdict(list)
            for key, value in _evaluated(of, inputs).items():
                group, grouped = _selector(salt)(key, value)
                if group is not None:
                    groups[group].append(grouped)
            return {key: sum(each) if kind == "reduce" else sorted(each) for key, each in groups.items()}
        case Joined(kind, left, right, _):
            ours, theirs = _evaluated(left, inputs), _evaluated(right, inputs)
            keys = {"join": ours.keys() & theirs.keys(), "left_join": ours.keys()}.get(
                kind, ours.keys() | theirs.keys()
            )
            return {key: _pair(ours.get(key), theirs.get(key)) for key in keys}
        case JoinedByForeignKey(kind, left, right, _, salt):
            ours, theirs = _evaluated(left, inputs), _evaluated(right, inputs)
            pairs = {k: _pair(v, theirs.get(_foreign_key(salt)(k, v) or "")) for k, v in ours.items()}
            return {k: pair for k, pair in pairs.items() if pair[1] is not None or kind == "left_join"}


def _present(entries: Entries) -> Entries:
    return {key: value for key, value in entries.items() if value is not None}


def _newest(slices: Sequence[Sequence[Row]]) -> dict[str, Entries]:
    inputs: dict[str, Entries] = {topic: {} for topic in INPUTS}
    for rows in slices:
        for topic, key, value in rows:
            inputs[topic][key] = value
    return {topic: _present(entries) for topic, entries in inputs.items()}


def _folded(records: Sequence[tuple[str, Any]]) -> Entries:
    return _present(dict(records))


# == the claims


@settings(max_examples=examples(150), deadline=None)
@given(
    drawn=st.lists(TABLES, min_size=1, max_size=2),
    slices=st.lists(ROWS, min_size=1, max_size=4),
    cached=st.booleans(),
    every=st.sampled_from([0, 1, 2, 5]),
    buffered=st.integers(1, 6),
)
def test_tables_hold_what_a_query_over_the_newest_values_gives(
    drawn: list[Table], slices: list[list[Row]], cached: bool, every: int, buffered: int
) -> None:
    topology = _topology(drawn, cached=cached)
    plan = topology.plan("app")
    driver = TopologyTestDriver(
        topology,
        application_id="app",
        partitions=dict.fromkeys(plan.inputs, PARTITIONS),
        settings={"commit.every.records": every, "buffered.records.per.partition": buffered},
    )
    with driver:
        for rows in slices:
            with driver.run():
                for time_ms, (topic, key, value) in enumerate(rows):
                    driver.pipe_input(topic, key=key, value=value, timestamp_ms=time_ms, partition=None)
    inputs = _newest(slices)
    for number, table in enumerate(drawn):
        expected = _evaluated(table, inputs)
        found = _folded([(record.key, record.value) for record in driver.read_output(f"out-{number}")])
        assert found == expected
        event(f"{len(expected)} entries")


FOREIGN_KEY_JOINS = st.builds(
    JoinedByForeignKey,
    st.sampled_from(["join", "left_join"]),
    st.sampled_from([Input("a"), Derived("map_values", Input("a"), "derived", 1)]),
    st.sampled_from([Input("b"), Derived("filter", Input("b"), "derived", 1)]),
    KEPT,
    SALT,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    drawn=FOREIGN_KEY_JOINS,
    slices=st.lists(ROWS, min_size=1, max_size=4),
    times_ms=st.lists(st.integers(0, 30), min_size=100, max_size=100),
    cached=st.booleans(),
    every=st.sampled_from([0, 1, 2, 5]),
    buffered=st.integers(1, 6),
)
def test_foreign_key_joins_hold_the_newest_pairs_when_records_come_out_of_order(
    drawn: JoinedByForeignKey,
    slices: list[list[Row]],
    times_ms: list[int],
    cached: bool,
    every: int,
    buffered: int,
) -> None:
    topology = _topology([drawn], cached=cached)
    times, written = iter(times_ms), list[tuple[str, Any]]()
    driver = TopologyTestDriver(
        topology,
        application_id="app",
        partitions=dict.fromkeys(topology.plan("app").inputs, PARTITIONS),
        settings={"commit.every.records": every, "buffered.records.per.partition": buffered},
    )
    with driver:
        for number, rows in enumerate(slices):
            with driver.run():
                for topic, key, value in rows:
                    driver.pipe_input(topic, key=key, value=value, timestamp_ms=next(times), partition=None)
            expected = _evaluated(drawn, _newest(slices[: number + 1]))
            written += [(record.key, record.value) for record in driver.read_output("out-0")]
            assert _folded(written) == expected
            event(f"{len(expected)} entries")


@settings(max_examples=examples(25), deadline=None)
@given(
    drawn=TABLES,
    slices=st.lists(ROWS, min_size=1, max_size=3),
    cached=st.booleans(),
    every=st.sampled_from([0, 1, 3]),
)
def test_whole_runs_give_the_same(drawn: Table, slices: list[list[Row]], cached: bool, every: int) -> None:
    kafka = InMemoryKafka()
    for topic in (*INPUTS, "out-0"):
        kafka.create_topic(topic, partitions=PARTITIONS)
    app = Application(
        application_id="app",
        topology=_topology([drawn], cached=cached),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, "commit.every.records": every},
    )
    for number, rows in enumerate(slices):
        for time_ms, (topic, key, value) in enumerate(rows):
            data = None if value is None else serdes.json().serialize(value)
            partition = partition_of_key(key.encode(), PARTITIONS, PARTITIONS)
            kafka.append(topic, data, key.encode(), partition=partition, timestamp_ms=time_ms)
        app.run(f"run-{number}", (0, number))
    key_serde, value_serde = serdes.string(), serdes.json()
    written = []
    for record in kafka.records("out-0"):
        data = record.value()
        key = key_serde.deserialize(record.key() or b"")
        written.append((key, None if data is None else value_serde.deserialize(data)))
    assert _folded(written) == _evaluated(drawn, _newest(slices))


@settings(max_examples=examples(60), deadline=None)
@given(
    drawn=st.lists(TABLES, min_size=1, max_size=2),
    rows=ROWS,
    cached=st.booleans(),
    commits=st.sets(st.integers(0, 24), max_size=8),
    crashes=st.lists(st.integers(0, 24), max_size=4, unique=True).map(sorted),
)
def test_outputs_and_changelogs_are_the_same_when_a_task_crashes_anywhere(
    drawn: list[Table], rows: list[Row], cached: bool, commits: set[int], crashes: list[int]
) -> None:
    topology = _topology(drawn, cached=cached)
    undisturbed = _attempts(topology, rows, commits, [])
    crashed = _attempts(topology, rows, commits, crashes)
    assert crashed.outputs == undisturbed.outputs
    assert crashed.changelogs == undisturbed.changelogs


def _attempts(
    topology: Topology, rows: Sequence[Row], commits: set[int], crashes: Sequence[int]
) -> RestartingTopology:
    """Process rows, commit behind some of them and crash behind others, where each attempt gets further."""
    task, begin = RestartingTopology(topology), 0
    for crash in [*(place for place in crashes if place < len(rows)), len(rows)]:
        for place, (topic, key, value) in enumerate(rows[begin : crash + 1], begin):
            task.bound.pipe(topic, key, value, timestamp_ms=place)
            if place in commits:
                task.commit()
                begin = place + 1
        if crash < len(rows):
            task.restart()
    task.commit()
    return task
