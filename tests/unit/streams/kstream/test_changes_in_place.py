"""Functions that change what they were given, or gave, change no store.

Each scene runs twice: with functions that change their arguments in place, and with the same functions on
copies of their arguments. Outputs, stores and changelogs are the same, also after a restart.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Serde,
    SessionStoreSpec,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    TumblingWindow,
    ValueTransformer,
    VersionedStoreSpec,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import StoreSerdeError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

pytestmark = [
    pytest.mark.promise("stores-are-not-changed-in-place"),
    pytest.mark.filterwarnings("ignore:the branch that begins with"),
]

TEXT = serdes.string()


class Total(msgspec.Struct):
    n: int
    seen: list[int] = []


class Flat(msgspec.Struct):
    n: int


@dataclass
class Data:
    n: int
    seen: list[int]


def _own_serde() -> Serde:
    plain = serdes.json(Data)
    return Serde(
        id="data",
        serialize=lambda value: plain.serialize(value),
        deserialize=lambda data: plain.deserialize(data),
    )


class Scene:
    """Builds a topology, and gives its functions.

    :param spoils: whether functions change what they are given.
    """

    def __init__(self, value: Serde, storage: Storage, *, spoils: bool, cached: bool) -> None:
        self.value, self.storage, self.cached, self._spoils = value, storage, cached, spoils
        self.builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=value)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function as the scene runs it."""
        if self._spoils:
            return function

        @functools.wraps(function)
        def on_copies(*arguments: Any, **named: Any) -> Any:
            return function(*copy.deepcopy(arguments), **copy.deepcopy(named))

        return on_copies

    def store(self, name: str, kind: Callable[..., Any] = StoreSpec, **more: Any) -> Any:
        return kind(name=name, key_serde=TEXT, value_serde=self.value, storage=self.storage, **more)

    def kept(self, name: str) -> StoreSpec:
        return StoreSpec(
            name=name, key_serde=TEXT, value_serde=self.value, storage=self.storage, cached=self.cached
        )


def get(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)


def put(value: Any, name: str, to: Any) -> None:
    if isinstance(value, dict):
        value[name] = to
    else:
        setattr(value, name, to)


def spoil(value: Any) -> Any:
    """Change a value in place, on top and inside."""
    if value is None:
        return None
    put(value, "n", get(value, "n") + 10_000)
    get(value, "seen").append(-1)
    return value


def spoil_keyed(key: Any, value: Any) -> bool:
    spoil(value)
    return True


def joined(left: Any, right: Any) -> Any:
    for side in (left, right):
        if side is not None:
            spoil(side)
    return left if left is not None else right


def paired(left: Any, right: Any) -> Any:
    """Join elements: an own one is given with each of its partners, and is changed each time."""
    made = copy.deepcopy(left if right is None else right)
    put(made, "n", sum(0 if side is None else get(side, "n") % 10_000 for side in (left, right)))
    get(made, "seen").clear()
    joined(left, right)
    return made


def added(total: Any, value: Any) -> Any:
    """Fold in place; the aggregate takes in a part of the value."""
    put(total, "n", get(total, "n") + get(value, "n"))
    get(total, "seen").extend(get(value, "seen"))
    return total


def with_part(total: Any, value: Any) -> Any:
    """Fold in place; the aggregate holds a part of the value."""
    put(total, "n", get(total, "n") + get(value, "n"))
    put(total, "seen", get(value, "seen"))
    return total


def newest(total: Any, value: Any) -> Any:
    return value


def _map_values(scene: Scene) -> None:
    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    table.to_stream().map_values(scene(spoil)).send_to("out")


def _filter(scene: Scene) -> None:
    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    table.to_stream().send_to("out")
    table.to_stream().filter(scene(spoil_keyed))


def _partitioner(scene: Scene) -> None:
    def chosen(topic: str, key: Any, value: Any, partitions: int) -> int:
        spoil(value)
        return 0

    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    table.to_stream().send_to("out", partitioner=scene(chosen))


def _newest(scene: Scene) -> None:
    stream = scene.builder.stream("in")
    stream.group_by_key().reduce(newest, store=scene.kept("s")).to_stream().send_to("out")
    stream.map_values(scene(spoil)).send_to("others")


def _taken_in(scene: Scene) -> None:
    stream = scene.builder.stream("in")
    stream.group_by_key().reduce(with_part, store=scene.kept("s")).to_stream().send_to("out")
    stream.foreach(scene(spoil_keyed))


def _second_fold(scene: Scene) -> None:
    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    table.to_stream().to_table(store=scene.kept("t")).to_stream().map_values(scene(spoil)).send_to("out")


def _window(window: Any) -> Callable[[Scene], None]:
    def build(scene: Scene) -> None:
        stream = scene.builder.stream("in")
        grouped = stream.group_by_key().windowed_by(window)
        table = grouped.reduce(with_part, store=scene.kept("s"))
        table.to_stream().select_key(lambda key, value: str(key.start_ms)).map_values(scene(spoil)).send_to(
            "out"
        )
        stream.foreach(scene(spoil_keyed))

    return build


def _suppress(scene: Scene) -> None:
    window = TumblingWindow(size_ms=10, grace_ms=0, at_run_end="flush")
    table = scene.builder.stream("in").group_by_key().windowed_by(window)
    finals = table.reduce(added, store=scene.kept("s")).suppress()
    finals.to_stream().select_key(lambda key, value: str(key.start_ms)).map_values(scene(spoil)).send_to(
        "out"
    )


def _table(scene: Scene) -> None:
    stream = scene.builder.stream("in")
    table = stream.to_table(store=scene.kept("s"))
    stream.foreach(scene(spoil_keyed))
    table.to_stream().map_values(scene(spoil)).send_to("out")


def _table_values(scene: Scene) -> None:
    table = scene.builder.table("in", store=scene.kept("s"))
    table.map_values(scene(spoil)).to_stream().send_to("out")
    table.filter(scene(spoil_keyed)).to_stream().foreach(scene(spoil_keyed))


def _table_values_kept(scene: Scene) -> None:
    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    table.map_values(scene(spoil), store=scene.kept("t")).to_stream().map_values(scene(spoil)).send_to("out")


def _group_by(scene: Scene) -> None:
    def selector(key: str, value: Any) -> Any:
        return "all", spoil(value)

    def removed(key: str, value: Any, total: Any) -> Any:
        put(total, "n", get(total, "n") - get(spoil(value), "n"))
        return total

    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    grouped = table.group_by(scene(selector))
    grouped.reduce(
        added, lambda total, value: removed("", value, total), store=scene.kept("t")
    ).to_stream().map_values(scene(spoil)).send_to("out")


def _stream_table(scene: Scene) -> None:
    table = scene.builder.table("others", store=scene.kept("s"))
    scene.builder.stream("in").join(table, scene(joined)).send_to("out")


def _stream_fold(scene: Scene) -> None:
    table = scene.builder.stream("others").group_by_key().reduce(added, store=scene.kept("s"))
    scene.builder.stream("in").left_join(table, scene(joined)).send_to("out")


def _stream_view(scene: Scene) -> None:
    table = scene.builder.table("others", store=scene.kept("s")).filter(scene(spoil_keyed))
    scene.builder.stream("in").join(table, scene(joined)).send_to("out")


def _tables(scene: Scene) -> None:
    left = scene.builder.table("in", store=scene.kept("s"))
    right = scene.builder.stream("others").group_by_key().reduce(added, store=scene.kept("t"))
    left.outer_join(right, scene(joined)).to_stream().send_to("out")


def _tables_kept(scene: Scene) -> None:
    left = scene.builder.table("in", store=scene.kept("s"))
    right = scene.builder.stream("others").group_by_key().reduce(added, store=scene.kept("t"))
    both = left.join(right, scene(joined), store=scene.kept("u"))
    both.to_stream().map_values(scene(spoil)).send_to("out")


def _versioned(scene: Scene) -> None:
    stream = scene.builder.stream("others")
    spec = scene.store("s", VersionedStoreSpec, history_ms=1_000)
    table = stream.to_table(store=spec)
    stream.foreach(scene(spoil_keyed))
    scene.builder.stream("in").join(table, scene(joined)).send_to("out")
    table.to_stream().foreach(scene(spoil_keyed))


def _windowed_join(kind: str) -> Callable[[Scene], None]:
    def build(scene: Scene) -> None:
        window = SlidingWindow(size_ms=5, grace_ms=0, at_run_end="flush")
        left = scene.builder.stream("in").with_window(window, storage=scene.storage)
        right = scene.builder.stream("others").with_window(window, storage=scene.storage)
        getattr(left, kind)(right, scene(paired), name="pairs").send_to("out")

    return build


class _Editing(Processor[str, Any, str, Any]):
    """Puts an object and edits it afterwards, and edits what the store gives."""

    def __init__(self, scene: Scene) -> None:
        self._spoil = scene(spoil)

    def init(self, context: ProcessorContext[str, Any]) -> None:
        self._context, self._store = context, context.state_store("s")

    def process(self, record: ProcessorRecord[str, Any]) -> None:
        before, value = self._read(record.key, record.timestamp_ms), record.value
        total = value if before is None else added(copy.deepcopy(before), copy.deepcopy(value))
        self._write(record.key, total, record.timestamp_ms)
        for given in (total, self._read(record.key, record.timestamp_ms), before, *self._all(record.key)):
            if given is not None:
                self._spoil(given)
        self._context.forward(record.key, copy.deepcopy(self._read(record.key, record.timestamp_ms)))

    def _read(self, key: str, time_ms: int) -> Any:
        return self._store.get(key)

    def _write(self, key: str, value: Any, time_ms: int) -> None:
        self._store.put(key, value)

    def _all(self, key: str) -> Iterator[Any]:
        yield from (value for _, value in self._store.all())
        yield from (value for _, value in self._store.range(None, key))
        yield self._store.put_if_absent(key, None)


class _EditingWindows(_Editing):
    def _read(self, key: str, time_ms: int) -> Any:
        return self._store.get(key, time_ms // 10 * 10)

    def _write(self, key: str, value: Any, time_ms: int) -> None:
        self._store.put(key, value, time_ms // 10 * 10)

    def _all(self, key: str) -> Iterator[Any]:
        yield from (value for _, value in self._store.all())
        yield from (value for _, value in self._store.range(key))


class _EditingSessions(_EditingWindows):
    def _read(self, key: str, time_ms: int) -> Any:
        return self._store.get(key, time_ms // 10 * 10, time_ms // 10 * 10 + 5)

    def _write(self, key: str, value: Any, time_ms: int) -> None:
        self._store.put(key, value, time_ms // 10 * 10, time_ms // 10 * 10 + 5)


class _EditingVersions(_Editing):
    def _read(self, key: str, time_ms: int) -> Any:
        found = self._store.get(key, time_ms)
        return None if found is None else found.value

    def _write(self, key: str, value: Any, time_ms: int) -> None:
        self._store.put(key, value, time_ms)

    def _all(self, key: str) -> Iterator[Any]:
        yield from (version.value for _, version in self._store.all())
        yield self._store.get(key).value


def _processor(editing: type[_Editing], kind: Callable[..., Any], **more: Any) -> Callable[[Scene], None]:
    def build(scene: Scene) -> None:
        spec = scene.store("s", kind, **more)
        scene.builder.stream("in").process(lambda: editing(scene), spec).send_to("out")

    return build


class _Transformer(ValueTransformer[str, Any, Any]):
    def __init__(self, scene: Scene) -> None:
        self._spoil = scene(spoil)

    def transform(self, key: str, value: Any) -> Any:
        return None if value is None else self._spoil(value)


def _transformed(scene: Scene) -> None:
    table = scene.builder.stream("in").group_by_key().reduce(added, store=scene.kept("s"))
    kept = table.transform_values(lambda: _Transformer(scene), store=scene.kept("t"))
    kept.to_stream().map_values(scene(spoil)).send_to("out")


SCENES: dict[str, Callable[[Scene], None]] = {
    "map_values": _map_values,
    "filter": _filter,
    "partitioner": _partitioner,
    "newest value": _newest,
    "taken in": _taken_in,
    "fold kept as a table": _second_fold,
    "tumbling": _window(TumblingWindow(size_ms=10, grace_ms=0)),
    "hopping": _window(HoppingWindow(size_ms=10, advance_ms=5, grace_ms=5)),
    "sessions": _window(SessionWindow(gap_ms=3, grace_ms=5)),
    "sliding": _window(SlidingWindow(size_ms=5, grace_ms=5)),
    "suppress": _suppress,
    "table of a stream": _table,
    "values of a table": _table_values,
    "values kept": _table_values_kept,
    "group_by": _group_by,
    "stream with table": _stream_table,
    "stream with fold": _stream_fold,
    "stream with view": _stream_view,
    "two tables": _tables,
    "two tables, kept": _tables_kept,
    "versions": _versioned,
    "windowed join": _windowed_join("join"),
    "windowed outer join": _windowed_join("outer_join"),
    "processor": _processor(_Editing, StoreSpec),
    "processor, unlogged": _processor(_Editing, StoreSpec, logged=False),
    "processor with windows": _processor(_EditingWindows, WindowStoreSpec, retention_ms=100),
    "processor with sessions": _processor(_EditingSessions, SessionStoreSpec, retention_ms=100),
    "processor with versions": _processor(_EditingVersions, VersionedStoreSpec, history_ms=100),
    "transformer": _transformed,
}
VALUES: dict[str, tuple[Serde, Callable[[int], Any]]] = {
    "dict": (serdes.json(), lambda n: {"n": n, "seen": [n]}),
    "struct": (serdes.json(Total), lambda n: Total(n, [n])),
    "own": (_own_serde(), lambda n: Data(n, [n])),
}


def _played(
    build: Callable[[Scene], None], value: str, storage: Storage, *, spoils: bool, cached: bool
) -> list[Any]:
    serde, make = VALUES[value]
    scene = Scene(serde, storage, spoils=spoils, cached=cached)
    build(scene)
    topology = scene.builder.build()
    parts = topology.subtopologies()
    read = {topic for part in parts for topic in part.source_topics}
    written = {topic for part in parts for topic in part.sink_topics} & {"out", "others"}
    stores = {spec.name for part in parts for spec in part.stores}
    found: list[Any] = []
    with TopologyTestDriver(topology, application_id="app") as driver:
        for run in range(3):
            for topic in sorted(read & {"in", "others"}, reverse=True):
                records = [(key, make(n + 1), 10 * run + n) for n, key in enumerate("abaab", start=1)]
                driver.pipe_records(topic, records)
            driver.restart()
        for topic in sorted(written):
            found += [(each.key, each.value, each.timestamp_ms) for each in driver.read_output(topic)]
        for name in sorted(stores):
            found += [(name, *entry) for entry in driver.store(name).all()]
    return found


@pytest.mark.parametrize(("storage", "cached"), [("memory", True), ("memory", False), ("rocksdb", True)])
@pytest.mark.parametrize("name", SCENES)
def test_changes_in_place_reach_no_store(name: str, storage: Storage, cached: bool) -> None:
    wanted = _played(SCENES[name], "dict", "memory", spoils=False, cached=cached)
    assert wanted
    assert _played(SCENES[name], "dict", storage, spoils=True, cached=cached) == wanted


@pytest.mark.parametrize("value", ["struct", "own"])
@pytest.mark.parametrize("name", SCENES)
def test_changes_in_place_reach_no_store_whatever_its_values_are(name: str, value: str) -> None:
    wanted = _played(SCENES[name], value, "memory", spoils=False, cached=True)
    assert wanted
    assert _played(SCENES[name], value, "memory", spoils=True, cached=True) == wanted


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_changelog_and_next_run_have_what_was_folded(storage: Storage) -> None:
    """The sum of 300 that was 10,200 one run later."""
    kafka = InMemoryKafka()
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    scene = Scene(serdes.json(), storage, spoils=True, cached=True)
    _map_values(scene)
    app = Application(
        application_id="app",
        topology=scene.builder.build(),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0},
    )
    for run in range(3):
        kafka.append("in", b'{"n":100,"seen":[]}', b"a", timestamp_ms=run + 1)
        app.run(f"run {run}")
    written = [
        serdes.json().deserialize(each.value() or b"")["n"] for each in kafka.records("app-s-changelog")
    ]
    assert written == [100, 200, 300]
    emitted = [serdes.json().deserialize(each.value() or b"")["n"] for each in kafka.records("out")]
    assert emitted == [10_100, 10_200, 10_300]


def test_aggregates_that_come_from_one_object_go_their_own_ways() -> None:
    shared = {"n": 0, "seen": []}
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=serdes.json())

    def aggregated(key: str, value: Any, total: Any) -> Any:
        return shared if total is None else added(total, value)

    builder.stream("in").group_by_key().aggregate(lambda: None, aggregated, store="s").to_stream().send_to(
        "out"
    )
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key in "abab":
            driver.pipe_input("in", key=key, value={"n": 1, "seen": [1]}, timestamp_ms=1)
        assert dict(driver.store("s").all()) == {key: {"n": 1, "seen": [1]} for key in "ab"}
    assert shared == {"n": 0, "seen": []}


#: Values whose type says that a flat copy is enough: serde, a value, and a function that changes it in place.
FLAT_VALUES: dict[str, tuple[Serde, Callable[[], Any], Callable[[Any], object]]] = {
    "list": (serdes.json(list[int]), lambda: [1], lambda value: value.append(99)),
    "dict": (serdes.json(dict[str, int]), lambda: {"n": 1}, lambda value: value.update(n=99)),
    "set": (serdes.msgpack(set[int]), lambda: {1}, lambda value: value.add(99)),
    "struct": (serdes.json(Flat), lambda: Flat(1), lambda value: setattr(value, "n", 99)),
}


@pytest.mark.parametrize("kind", FLAT_VALUES)
def test_values_of_flat_types_are_copied_into_stores_and_out_of_them(kind: str) -> None:
    serde, make, change = FLAT_VALUES[kind]
    given: list[Any] = []

    def aggregated(key: str, value: str, total: Any) -> Any:
        for each in given:
            change(each)
        given.append(make())
        return given[-1]

    def changed(value: Any) -> Any:
        change(value)
        return value

    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    table = (
        builder.stream("in").group_by_key().aggregate(lambda: None, aggregated, store="s", value_serde=serde)
    )
    table.to_stream().map_values(changed).send_to("out", value_serde=serde)
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key in "aba":
            driver.pipe_input("in", key=key, value="any", timestamp_ms=1)
        assert dict(driver.store("s").all()) == {"a": make(), "b": make()}
        assert all(record.value != make() for record in driver.read_output("out"))


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.json(list[int]), [[1]]),
        (serdes.json(dict[str, int]), {"n": [1]}),
        (serdes.msgpack(set[int]), {(1, 2)}),
        (serdes.json(Flat), Flat([1])),  # type: ignore[arg-type]
    ],
)
def test_value_with_parts_of_other_types_is_refused_by_the_commit(serde: Serde, value: Any) -> None:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").group_by_key().aggregate(
        lambda: None, lambda key, text, total: value, store="s", value_serde=serde
    )
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(StoreSerdeError, match="store 's'"),
    ):
        driver.pipe_input("in", key="a", value="any", timestamp_ms=1)
