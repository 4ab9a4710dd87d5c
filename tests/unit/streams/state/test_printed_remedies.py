"""A store that refused what it was given is used as its error says, and keeps what it had."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    RetryPolicy,
    Serde,
    SessionStoreSpec,
    SlidingWindow,
    StoreSpec,
    Topology,
    VersionedStoreSpec,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import KStreamsError, TopologyError
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory
from tests.support.remedies import walked
from tests.support.topology.as_told import JSON, TEXT, WHOLE, Define, Forwarding, built, follow

NOW_MS = 1_700_000_000_000
TUPLES = serdes.msgpack(tuple)


def wrong(value: object) -> Any:
    """Return a value of another type than a type checker expects."""
    return value


class Scene:
    """An application whose code changes between runs and attempts; records are numbers of one key."""

    def __init__(self) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
        for topic in ("in", "other", "out"):
            self.kafka.create_topic(topic)
        self.number = 0

    def send(self, *values: int, topic: str = "in") -> None:
        for value in values:
            self.kafka.append(topic, b"%d" % value, b"a", timestamp_ms=NOW_MS)

    def run(self, topology: Topology, settings: Mapping[str, object] | None = None) -> list[bytes | None]:
        """Run, or retry, and return what ``out`` holds. A retry under another topology drops the slice first,
        as its refusal says.
        """
        try:
            self._run(topology, settings or {})
        except TopologyError as error:
            if "drop its slice" not in error.fix:
                raise
            accept_in_memory(error, self.kafka)
            self._run(topology, settings or {})
        self.number += 1
        return self.kafka.values("out")

    def _run(self, topology: Topology, settings: Mapping[str, object]) -> None:
        Application(
            application_id="app",
            topology=topology,
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"settle.ms": 0, **settings},
        ).run(f"run {self.number}", order=(self.number, self.number + 1))


def listing(made: type, serde: Serde[Any] = JSON, *, store: str = "kept") -> Topology:
    """All values of a key so far, in a list or a tuple; what they are is a list in ``out``."""

    class Listing(Forwarding):
        def init(self, context: Any) -> None:
            super().init(context)
            self.kept = context.state_store(store)

        def process(self, record: Any) -> None:
            values = made([*(self.kept.get(record.key) or ()), record.value])
            self.kept.put(record.key, values)
            self.context.forward(record.key, list(values))

    spec = StoreSpec(name=store, key_serde=TEXT, value_serde=serde)
    return built(
        lambda b: b.stream("in").process(Listing, spec).send_to("out", key_serde=TEXT, value_serde=JSON)
    )


def hexadecimal(*, prefix: bytes = b"") -> Serde[Any]:
    """Lists of numbers in a format of the user's own."""
    return Serde(
        id="hexadecimal",
        serialize=lambda values: prefix + bytes(values).hex().encode(),
        deserialize=lambda data: [*bytes.fromhex(data.removeprefix(prefix).decode())],
    )


# == values that do not fit


@pytest.mark.remedy("store_serdes.StoredValues.check")
def test_state_goes_on_when_what_the_serde_gives_back_is_put_as_the_error_says() -> None:
    scene = Scene()
    scene.send(1)
    scene.run(listing(list))
    scene.send(2)
    with pytest.raises(KStreamsError):
        scene.run(listing(tuple))
    assert scene.run(listing(list)) == [b"[1]", b"[1,2]"]


@pytest.mark.remedy("store_serdes.StoredValues.check")
def test_values_are_kept_when_a_new_store_has_the_serde_that_the_error_names() -> None:
    scene = Scene()
    scene.send(1, 2)
    with pytest.raises(KStreamsError) as refused:
        scene.run(listing(tuple))
    assert "such as serdes.json(tuple[int,int]), and" in refused.value.fix
    assert scene.run(listing(tuple, serdes.json(tuple[int, int]))) == [b"[1]", b"[1,2]"]


@pytest.mark.remedy("store_serdes.StoredValues.check")
def test_store_begins_empty_when_it_has_another_name_as_the_error_says() -> None:
    scene = Scene()
    scene.send(1)
    scene.run(listing(list))
    scene.send(2, 3)
    with pytest.raises(KStreamsError) as refused:
        scene.run(listing(tuple))
    assert "under which it begins empty once that is given up, as begin says" in refused.value.fix
    with pytest.raises(TopologyError, match="has state in app-kept-changelog") as left:
        scene.run(listing(tuple, TUPLES, store="tuples"))
    accept_in_memory(left.value, scene.kafka)
    assert scene.run(listing(tuple, TUPLES, store="tuples")) == [b"[1]", b"[2]", b"[2,3]"]


@pytest.mark.remedy("store_serdes.StoredValues.error")
def test_state_goes_on_when_the_store_has_the_serde_that_it_was_written_by() -> None:
    scene = Scene()
    scene.send(1)
    scene.run(listing(list, hexadecimal(prefix=b"v1 ")))
    scene.send(2)
    with pytest.raises(KStreamsError):
        scene.run(listing(list, hexadecimal(prefix=b"v2 ")))
    assert scene.run(listing(list, hexadecimal(prefix=b"v1 "))) == [b"[1]", b"[1,2]"]


@pytest.mark.remedy("store_serdes.StoredValues.error")
def test_values_are_kept_when_the_store_has_the_serde_of_its_objects() -> None:
    scene = Scene()
    scene.send(1, 2)
    with pytest.raises(KStreamsError):
        scene.run(listing(list, WHOLE))
    assert scene.run(listing(list, JSON)) == [b"[1]", b"[1,2]"]
    scene.send(3)
    assert scene.run(listing(list, JSON))[-1] == b"[1,2,3]"


def joining(storage: Any, serde: Serde[Any]) -> Topology:
    """Pairs of ``in`` and ``other``, whose elements are a value and a number of bytes."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON)
    window = SlidingWindow(size_ms=1_000)
    left = builder.stream("in").map_values(lambda value: (value, b"x" * value))
    pairs = left.with_window(window, storage=storage).join(
        builder.stream("other").with_window(window, storage=storage),
        lambda value, other: [value[0], len(value[1]), other],
        value_serde=serde,
        name="pairs",
    )
    pairs.send_to("out", value_serde=JSON)
    return builder.build()


def follow_join(storage: Any) -> None:
    scene = Scene()
    scene.send(1)
    with pytest.raises(KStreamsError):
        scene.run(joining(storage, WHOLE))
    scene.run(joining(storage, serdes.msgpack(tuple)))
    scene.send(5, topic="other")
    assert scene.run(joining(storage, serdes.msgpack(tuple))) == [b"[1,1,5]"]


@pytest.mark.remedy("store_serdes.StoredValues.error")
def test_join_keeps_its_elements_when_it_has_the_serdes_of_its_streams() -> None:
    follow_join("memory")


@pytest.mark.remedy("store_serdes.StoredValues.error")
def test_join_keeps_its_elements_on_disk_when_it_has_the_serdes_of_its_streams() -> None:
    follow_join("rocksdb")


# == parked records


def asking(prefix: bytes, down: set[int]) -> Topology:
    """Values that a service is asked for; those for which it is away are parked in a format with a prefix."""

    async def ask(value: int) -> int:
        if value in down:
            raise ConnectionError(value)
        return value

    parked = Serde[Any](
        id="numbers",
        serialize=lambda value: prefix + b"%d" % value,
        deserialize=lambda data: int(data.removeprefix(prefix)),
    )
    retry = RetryPolicy(errors=(ConnectionError,), key_serde=TEXT, value_serde=parked)
    return built(
        lambda b: (
            b.stream("in")
            .map_values_async(ask, order="unordered", retry=retry, name="ask")
            .send_to("out", value_serde=JSON)
        )
    )


@pytest.mark.remedy("parking.Parking._decoded")
def test_parked_records_are_processed_with_the_serdes_that_they_were_parked_with() -> None:
    scene, budget = Scene(), {"retry.run.budget.ms": 0}
    scene.send(1, 2)
    assert scene.run(asking(b"v1 ", {2}), budget) == [b"1"]
    scene.kafka.clock.sleep(5)
    with pytest.raises(KStreamsError):
        scene.run(asking(b"v2 ", set()), budget)
    assert scene.run(asking(b"v1 ", set()), budget) == [b"1", b"2"]
    scene.send(4)
    assert scene.run(asking(b"v2 ", set()), budget)[-1] == b"4"


# == files


@pytest.mark.remedy("local_state.LocalState._error")
def test_state_is_kept_on_disk_when_the_folder_is_one_that_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    scene = Scene()
    scene.send(1, 1)
    with pytest.raises(KStreamsError):
        scene.run(counting_on_disk(), {"state.dir": str(tmp_path / "file")})
    assert scene.run(counting_on_disk(), {"state.dir": str(tmp_path / "state")}) == [b"2"]
    scene.send(1)
    assert scene.run(counting_on_disk(), {"state.dir": str(tmp_path / "state")}) == [b"2", b"3"]
    assert [*(tmp_path / "state").rglob("counts-store")]


def counting_on_disk() -> Topology:
    spec = StoreSpec(name="counts", key_serde=TEXT, value_serde=WHOLE, storage="rocksdb")
    return built(
        lambda b: b.stream("in").group_by_key().count(store=spec).to_stream().send_to("out", value_serde=JSON)
    )


@pytest.mark.remedy("rocksdb_files.StoreFiles.opened")
def test_store_gives_its_entries_before_the_end_of_its_task_and_not_behind_it() -> None:
    topology = counting_on_disk()
    with TopologyTestDriver(topology, application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=1)
        kept = driver.store("counts")
        assert dict(kept.all()) == {"a": 1}
    store: Any = make_store(topology.stores[0], TaskRecordContext())
    store.close()
    with pytest.raises(KStreamsError):
        store.get("a")


# == keys and times


def keeping(spec: StoreSpec, use: Any) -> Define:
    """Define a processor that uses a store and forwards what that gives."""

    class Using(Forwarding):
        def init(self, context: Any) -> None:
            super().init(context)
            self.kept = context.state_store("kept")

        def process(self, record: Any) -> None:
            self.context.forward(record.key, use(self.kept, record))

    return lambda b: b.stream("in").process(Using, spec).send_to("out", key_serde=TEXT, value_serde=JSON)


PLAIN = StoreSpec(name="kept", key_serde=TEXT, value_serde=JSON)
WINDOWS = WindowStoreSpec(name="kept", key_serde=TEXT, value_serde=JSON, retention_ms=10_000)
SESSIONS = SessionStoreSpec(name="kept", key_serde=TEXT, value_serde=JSON, retention_ms=10_000)
VERSIONS = VersionedStoreSpec(name="kept", key_serde=TEXT, value_serde=JSON, history_ms=10_000)
KEPT = [("a", 1), ("b", 2), ("a", 3)]


def put(*times: Any) -> Any:
    """Put a record into a store by time and read it back."""

    def use(store: Any, record: Any) -> Any:
        store.put(record.key, record.value, *(time(record) for time in times))
        return record.value

    return use


def of_key(choose: Any) -> Any:
    def use(store: Any, record: Any) -> Any:
        key = choose(record)
        if key is not None:
            store.put(key, record.value)
        return record.value

    return use


USES = [
    walked(
        "store_serdes.key_bytes_of",
        keeping(PLAIN, lambda store, record: store.get(None)),
        keeping(PLAIN, of_key(lambda record: None if record.value == 2 else record.key)),
        KEPT,
    ),
    walked(
        "expiring_store.ExpiringStore._key_bytes",
        keeping(WINDOWS, put(lambda record: record.timestamp_ms / 2)),
        keeping(WINDOWS, put(lambda record: record.timestamp_ms // 2)),
        KEPT,
    ),
    walked(
        "expiring_store.SessionStore.put",
        keeping(SESSIONS, put(lambda record: record.timestamp_ms, lambda record: 0)),
        keeping(SESSIONS, put(lambda record: 0, lambda record: record.timestamp_ms)),
        KEPT,
    ),
    walked(
        "versioned_store.VersionedStore.put_version",
        keeping(VERSIONS, put(lambda record: 2**63 - 1)),
        keeping(VERSIONS, put(lambda record: record.timestamp_ms)),
        KEPT,
    ),
]


@pytest.mark.parametrize(("fault", "told", "wanted"), USES)
def test_store_is_used_as_its_error_says(fault: Define, told: Define, wanted: object) -> None:
    follow(fault, told, wanted)
