"""An error of the engine's own that a serde raises, such as a registry that is away, stays what it is in
every store: its remedy is the right one, and a retry may help. A value that its serde does not give back is
refused before it is committed.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    SessionStoreSpec,
    SessionWindow,
    StoreSpec,
    TumblingWindow,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.streams.errors import KafkaClientError, StoreSerdeError
from airflow_kstreams.streams.graph.store_specs import JoinStoreSpec
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.state.stores.making import make_store
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from airflow_kstreams.streams.state.stores.store_serdes import kept_types
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("values-survive-their-serde")


def _is_away(_: object) -> Any:
    raise KafkaClientError(
        "the registry is away", fix="start it", kafka_code="_TRANSPORT", retriable_code=True
    )


_JSON = serdes.json()
_SERIALIZER_AWAY = Serde(id="json", serialize=_is_away, deserialize=_JSON.deserialize)
_DESERIALIZER_AWAY = Serde(id="json", serialize=_JSON.serialize, deserialize=_is_away)


def _key_value(serde: Serde) -> StoreSpec:
    return StoreSpec(name="s", key_serde=serdes.string(), value_serde=serde)


def _window(serde: Serde) -> StoreSpec:
    return WindowStoreSpec(name="s", key_serde=serdes.string(), value_serde=serde, retention_ms=100)


def _session(serde: Serde) -> StoreSpec:
    return SessionStoreSpec(name="s", key_serde=serdes.string(), value_serde=serde, retention_ms=100)


def _join(serde: Serde) -> StoreSpec:
    return JoinStoreSpec(name="s", key_serde=serdes.string(), value_serde=serde, retention_ms=100)


STORES = pytest.mark.parametrize(
    ("spec", "put"),
    [
        (_key_value, lambda store: store.put("k", 1)),
        (_window, lambda store: store.put("k", 1, 0)),
        (_session, lambda store: store.put("k", 1, 0, 5)),
        (_join, lambda store: store.put(b"k", 0, 1, False)),
    ],
    ids=["key-value", "window", "session", "join"],
)
MakeSpec = Callable[[Serde], StoreSpec]


def _store(spec: StoreSpec) -> Any:
    return make_store(spec, TaskRecordContext(timestamp_ms=7))


@STORES
def test_error_of_the_engine_is_raised_as_it_is_when_changes_are_logged(
    spec: MakeSpec, put: Callable[[Any], object]
) -> None:
    store = _store(spec(_SERIALIZER_AWAY))
    put(store)

    with pytest.raises(KafkaClientError, match="the registry is away") as raised:
        list(store.drain_changes())

    assert raised.value.is_retriable


@STORES
def test_error_of_the_engine_is_raised_as_it_is_when_state_is_restored(
    spec: MakeSpec, put: Callable[[Any], object]
) -> None:
    written = _store(spec(_JSON))
    put(written)
    ((key, value, timestamp_ms),) = written.drain_changes()
    record = FakeRecord(at=0, key_bytes=key, value_bytes=value, timestamp_ms=timestamp_ms)

    with pytest.raises(KafkaClientError, match="the registry is away"):
        _store(spec(_DESERIALIZER_AWAY)).restore_batch([record])


class _Order(msgspec.Struct):
    cents: float


@dataclasses.dataclass
class _Seen:
    counts: dict[int, int]


@dataclasses.dataclass(eq=False)
class _Unequal:
    counts: dict[int, int]


class _Pair(NamedTuple):
    low: int
    high: int


class _Plain:
    """Has no ``__eq__``."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Array:
    """Compares element by element, as numpy's arrays do."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> Any:
        return [False, True]

    __hash__ = None  # type: ignore[assignment]


def _text_of(kind: Callable[[str], Any]) -> Serde:
    return Serde(
        id="text", serialize=lambda value: value.text.encode(), deserialize=lambda data: kind(data.decode())
    )


def _drained(spec: StoreSpec, put: Callable[[Any], object]) -> list[Any]:
    store = _store(spec)
    put(store)
    return list(store.drain_changes())


@pytest.mark.parametrize(
    ("serde", "value", "kind", "fitting"),
    [
        (_JSON, {1: 2}, "dict", r"serdes\.json\(dict\[int,int\]\)"),
        (_JSON, {"a": {1: 2}}, "dict", r"serdes\.json\(dict\[str,dict\[int,int\]\]\)"),
        (_JSON, {3}, "set", r"serdes\.json\(set\[int\]\)"),
        (_JSON, (1, "a"), "tuple", r"serdes\.json\(tuple\[int,str\]\)"),
        (_JSON, [(1, 2)], "list", r"serdes\.json\(list\[tuple\[int,int\]\]\)"),
        (_JSON, datetime(2026, 1, 1, tzinfo=UTC), "datetime", r"serdes\.json\(datetime\)"),
        (_JSON, _Pair(1, 2), "_Pair", r"serdes\.json\(_Pair\)"),
        (_JSON, _Order(1.5), "_Order", r"serdes\.json\(_Order\)"),
        (_JSON, math.nan, "float", r"serdes\.msgpack"),
        (_JSON, b"a", "bytes", r"serdes\.json\(bytes\)"),
        (_JSON, defaultdict(int, a=1), "defaultdict", "Serde of your own"),
        (serdes.int64(), True, "bool", r"serdes\.json\(bool\)"),
        (serdes.json(float), 3, "int", None),
        (serdes.json(_Order), _Order(1), "_Order", None),
        (serdes.double(), 3, "int", None),
        (serdes.double(), math.nan, "float", None),
        (serdes.json(_Seen), _Seen({1: 2}), "_Seen", None),
        (_JSON, {"a": [1, 1.0, True, -0.0, None, "x"]}, "dict", None),
        (serdes.json(_Unequal), _Unequal({1: 2}), "_Unequal", None),
        (_text_of(_Plain), _Plain("a"), "_Plain", None),
        (_text_of(_Array), _Array("a"), "_Array", None),
    ],
)
@STORES
def test_value_is_refused_when_its_serde_does_not_give_it_back(
    spec: MakeSpec, put: Callable[[Any], object], serde: Serde, value: Any, kind: str, fitting: str | None
) -> None:
    store = _store(spec(serde))
    put(_Putting(store, value))
    if fitting is None:
        assert len(list(store.drain_changes())) == 1
        return

    with pytest.raises(StoreSerdeError, match=rf"store 's', at a key of 1 B: .*type {kind} that") as raised:
        list(store.drain_changes())

    assert not raised.value.is_retriable
    assert re.search(fitting, raised.value.fix)


class _Putting:
    """A store that is given another value than the scene puts."""

    def __init__(self, store: Any, value: Any) -> None:
        self._store, self._value = store, value

    def put(self, key: Any, first: Any, *others: Any) -> None:
        if isinstance(key, bytes):
            self._store.put(key, first, self._value, others[1])
        else:
            self._store.put(key, self._value, *others)


def test_value_is_refused_when_a_zone_comes_back_as_an_offset() -> None:
    berlin = datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))

    with pytest.raises(StoreSerdeError, match="type datetime"):
        _drained(_key_value(serdes.json(datetime)), lambda store: store.put("k", berlin))


@STORES
def test_errors_name_store_and_type_when_a_serde_fails(spec: MakeSpec, put: Callable[[Any], object]) -> None:
    with pytest.raises(StoreSerdeError, match=r"store 's', at a key of 1 B: .*does not fit .*\(type int\)"):
        _drained(spec(serdes.string()), put)

    ((key, value, timestamp_ms),) = _drained(spec(_JSON), put)
    assert value is not None
    record = FakeRecord(at=0, key_bytes=key, value_bytes=value[:-1] + b"{", timestamp_ms=timestamp_ms)
    with pytest.raises(StoreSerdeError, match=r"store 's', at a key of 1 B: .*changelog record"):
        _store(spec(_JSON)).restore_batch([record])


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], (1, 2), {"n": math.nan}, {1: 2}])
@STORES
def test_value_is_refused_when_a_task_has_written_many_that_fit(
    spec: MakeSpec, put: Callable[[Any], object], value: Any
) -> None:
    store = _store(spec(_JSON))
    for number in range(1_000):
        put(_Putting(store, {"n": number}))
        list(store.drain_changes())
    put(_Putting(store, value))
    with pytest.raises(StoreSerdeError, match=rf"type {type(value).__name__} that"):
        list(store.drain_changes())


@pytest.mark.parametrize("value", ["x", 1.5, True])
def test_value_of_another_type_is_refused_when_its_serde_only_checks_what_it_reads(value: Any) -> None:
    with pytest.raises(StoreSerdeError, match=f"type {type(value).__name__}"):
        _drained(_key_value(serdes.json(int)), lambda store: store.put("k", value))


class _Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("value", [[_Number.ONE], {"n": _Number.ONE}, _Number.ONE])
def test_subclass_of_a_plain_type_is_refused_when_it_comes_back_as_the_plain_one(value: Any) -> None:
    with pytest.raises(StoreSerdeError, match=f"type {type(value).__name__} that"):
        _drained(_key_value(_JSON), lambda store: store.put("k", value))


def test_types_are_taken_without_a_look_only_from_serdes_that_keep_them() -> None:
    own = Serde(id="json", serialize=lambda value: b"1", deserialize=lambda data: 1)
    assert kept_types(own) == frozenset()
    assert kept_types(serdes.json(_Order)) == frozenset()
    assert kept_types(serdes.json(int)) == {int}
    assert kept_types(_JSON) == kept_types(serdes.msgpack()) == {bool, int, str}
    assert kept_types(serdes.string()) == {str}
    assert kept_types(serdes.double()) == {float}


def test_value_of_a_store_on_disk_is_refused_when_it_is_not_logged() -> None:
    pytest.importorskip("rocksdict")
    spec = StoreSpec(name="s", key_serde=serdes.string(), value_serde=_JSON, storage="rocksdb", logged=False)

    with pytest.raises(StoreSerdeError, match=r"store 's', at a key of 1 B: .*type tuple"):
        store = RocksDBKeyValueStore(spec, TaskRecordContext(timestamp_ms=7), kept_entries=1)
        store.put("k", (1, 2))
        store.put("l", (1, 2))


class Asks(Processor):
    """Asks its store for what the test says."""

    def __init__(self, ask: Callable[[Any], object]) -> None:
        self._ask = ask

    def init(self, context: ProcessorContext) -> None:
        self._store = context.state_store("s")

    def process(self, record: ProcessorRecord) -> None:
        self._ask(self._store)


NUMBERED: Any = {"name": "s", "key_serde": serdes.int64(), "value_serde": serdes.int64()}
HOURLY = TumblingWindow(size_ms=3_600_000)


def asked(spec: StoreSpec, ask: Callable[[Any], object]) -> Callable[[KStreamBuilder], object]:
    return lambda made: made.stream("in").process(lambda: Asks(ask), spec)


@pytest.mark.parametrize(
    "make",
    [
        lambda made: made.stream("in").group_by_key(key_serde=serdes.int64()).count(store="s"),
        lambda made: (
            made.stream("in").map_values(len).group_by_key(key_serde=serdes.int64()).count(store="s")
        ),
        lambda made: (
            made.stream("in").group_by_key(key_serde=serdes.int64()).windowed_by(HOURLY).count(store="s")
        ),
        lambda made: (
            made.stream("in")
            .group_by_key(key_serde=serdes.int64())
            .windowed_by(SessionWindow(gap_ms=1))
            .count(store="s")
        ),
        asked(StoreSpec(**NUMBERED), lambda store: store.get("a")),
        asked(StoreSpec(**NUMBERED), lambda store: store.put("a", 1)),
        asked(StoreSpec(**NUMBERED), lambda store: store.range("a", None)),
        asked(StoreSpec(**NUMBERED), lambda store: store.delete("a")),
        asked(WindowStoreSpec(**NUMBERED, retention_ms=9), lambda store: store.put("a", 1, 0)),
        asked(SessionStoreSpec(**NUMBERED, retention_ms=9), lambda store: store.range("a", 0, 1)),
    ],
)
def test_store_and_type_are_named_when_a_key_does_not_fit(make: Callable[[KStreamBuilder], object]) -> None:
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    make(made)
    with (
        TopologyTestDriver(made.build(), application_id="app") as driver,
        pytest.raises(RecordError, match=r"in-0@0 at node .*store 's': a key of type str does not fit"),
    ):
        driver.pipe_input("in", key="a", value="a", timestamp_ms=0)


def test_data_stays_out_of_errors_when_a_serde_of_a_store_fails(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(given: Any) -> Any:
        raise ValueError(f"no {given!r}, not {len(given) + 1000}")

    def failed(keys: Serde, act: Callable[[Any], object]) -> str:
        spec = StoreSpec(
            name="s", key_serde=keys, value_serde=Serde(serialize=refuse, deserialize=refuse, id="refuses")
        )
        with pytest.raises((StoreSerdeError, ValueError)) as raised:
            _drained(spec, act)
        return str(raised.value)

    caplog.set_level("INFO")
    said = [
        failed(serdes.string(), lambda store: store.put("alice", "anna")),
        failed(Serde(serialize=refuse, deserialize=refuse, id="refuses"), lambda store: store.get("alice")),
        failed(serdes.string(), lambda store: store.restore(b"alice", b"anna", 0)),
    ]
    for text in (*said, caplog.text):
        assert not any(data in text for data in ("alice", "anna", "100"))
    assert "store 's', at a key of 5 B: found a value that does not fit serdes.refuses (type str)" in said[0]
    assert said[1].startswith("store 's': a key of type str does not fit its key serde")


def test_record_is_skipped_when_its_key_does_not_fit_and_the_handler_says_so() -> None:
    made = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.string())
    counted = made.stream("in").group_by_key(key_serde=serdes.string()).count(store="s")
    counted.to_stream().send_to("out", key_serde=serdes.string(), value_serde=serdes.int64())
    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(made.build(), application_id="app", settings=settings) as driver:
        for key in (1, "a"):
            driver.pipe_input("in", key=key, value="v", timestamp_ms=0)
        assert [(record.key, record.value) for record in driver.read_output("out")] == [("a", 1)]


def test_store_and_stored_key_are_named_when_it_cannot_be_read() -> None:
    def unreadable(data: bytes) -> str:
        raise ValueError("no text")

    key_serde = Serde(serialize=str.encode, deserialize=unreadable, id="one-way")
    spec = StoreSpec(name="s", key_serde=key_serde, value_serde=serdes.int64())
    made = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    asked(spec, lambda store: (store.put("a", 1), list(store.all())))(made)
    with (
        TopologyTestDriver(made.build(), application_id="app") as driver,
        pytest.raises(RecordError, match=r"store 's': a stored key of 1 B is not of .*one-way: ValueError"),
    ):
        driver.pipe_input("in", key="b", value="v", timestamp_ms=0)
