"""Equal keys that producers, or topics between, place in different ways do not part in silence."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pydantic
import pytest

from airflow_kstreams.batch.inspect.ahead.next_run import plan_next
from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Serde,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.partitioning.linear_hashing import key_hash
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept_in_memory, other_way

pytestmark = pytest.mark.promise("equal-keys-meet")

APP = "app"
CHANGELOG = f"{APP}-counts-changelog"
PARTITIONS = 4
KEYS = "abcdefgh"
TEXT, LONG = serdes.string(), serdes.int64()

Define = Callable[[KStreamBuilder], None]


def built(define: Define) -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    define(builder)
    return builder.build()


def app(kafka: InMemoryKafka, define: Define) -> Application:
    return Application(application_id=APP, topology=built(define), on=kafka, clock=kafka.clock)


def refused(kafka: InMemoryKafka, define: Define, run_id: str) -> TopologyError:
    with pytest.raises(TopologyError) as caught:
        app(kafka, define).begin(run_id)
    return caught.value


@pytest.fixture
def kafka() -> InMemoryKafka:
    return with_topics()


def with_topics() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("left", "right", "mid"):
        kafka.create_topic(topic, partitions=PARTITIONS)
    kafka.create_topic("out")
    return kafka


def publish(kafka: InMemoryKafka, topic: str, *, as_python: bool = False, keys: str = KEYS) -> None:
    """Write a record of each key, placed as Kafka's Java client does, or as Python's by default."""
    kafka.clock.sleep(1)
    for key in keys:
        place = zlib.crc32(key.encode()) % PARTITIONS if as_python else -1
        kafka.append(topic, f"{key} of {topic}".encode(), key.encode(), partition=place)


def joined(kafka: InMemoryKafka) -> set[str]:
    return {(value or b"").decode() for value in kafka.values("out")}


def pair(left: str, right: str) -> str:
    return f"{left}, {right}"


PAIRS = {f"{key} of left, {key} of right" for key in KEYS}


def rekeyed(builder: KStreamBuilder) -> KStream:
    return builder.stream("left").select_key(lambda key, value: key)


def with_table(builder: KStreamBuilder) -> None:
    rekeyed(builder).join(builder.table("right"), pair).send_to("out")


def with_table_behind(builder: KStreamBuilder) -> None:
    table = builder.stream("right").repartition(PARTITIONS).to_table()
    rekeyed(builder).join(table, pair).send_to("out")


def with_table_of_topics(builder: KStreamBuilder) -> None:
    builder.stream("left").join(builder.table("right"), pair).send_to("out")


def by_windows(builder: KStreamBuilder) -> None:
    window = SlidingWindow(size_ms=60_000)
    rekeyed(builder).with_window(window).join(builder.stream("right").with_window(window), pair).send_to(
        "out"
    )


def of_tables(builder: KStreamBuilder) -> None:
    rekeyed(builder).to_table().join(builder.table("right"), pair).to_stream().send_to("out")


def by_foreign_key(builder: KStreamBuilder) -> None:
    left, right = builder.table("left"), builder.table("right")
    left.join(right, pair, foreign_key=lambda key, value: key).to_stream().send_to("out")


def merged(builder: KStreamBuilder) -> None:
    both = rekeyed(builder).repartition(PARTITIONS).merge(builder.stream("right"))
    both.group_by_key().count().to_stream().send_to("out", value_serde=LONG)


@pytest.mark.remedy("placed_keys._refuse_topics")
def test_table_that_python_wrote_is_refused_beside_a_rekeyed_stream_and_meets_it_behind_a_repartition(
    kafka: InMemoryKafka,
) -> None:
    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    error = refused(kafka, with_table, "run-1")
    assert f"keeps state by the keys of {APP}-left-repartition and right, which are placed in" in error.cause
    assert "that of right-0@" in error.cause
    assert not error.is_retriable
    assert f"read right through repartition({PARTITIONS})" in error.fix
    app(kafka, with_table_behind).run("run-1")
    assert joined(kafka) == PAIRS


def test_keys_may_lie_as_they_do_if_the_setting_says_so(kafka: InMemoryKafka) -> None:
    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    given = f"initial.partitions=right={PARTITIONS}"
    assert f"if keys are to lie as they do, {given} lets them" in refused(kafka, with_table, "run-1").fix
    told = app(kafka, with_table)
    told.settings = dict([given.split("=", 1)])
    told.run("run-1")
    assert joined(kafka) < PAIRS


@pytest.mark.parametrize("define", [by_windows, of_tables, by_foreign_key, merged])
def test_topic_that_python_wrote_is_refused_wherever_keys_meet(kafka: InMemoryKafka, define: Define) -> None:
    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    assert "read right through" in refused(kafka, define, "run-1").fix


@pytest.mark.parametrize("define", [with_table, by_windows, of_tables, by_foreign_key])
def test_topics_whose_keys_are_placed_alike_are_joined(kafka: InMemoryKafka, define: Define) -> None:
    publish(kafka, "right")
    publish(kafka, "left")
    app(kafka, define).run("run-1")
    assert joined(kafka) == PAIRS


@pytest.mark.parametrize("keys", [KEYS, "abc"])
def test_two_topics_are_refused_if_the_keys_of_one_lie_elsewhere_in_the_other(
    kafka: InMemoryKafka, keys: str
) -> None:
    publish(kafka, "right", as_python=True, keys=keys)
    publish(kafka, "left", keys=keys)
    assert "equal keys do not meet" in refused(kafka, with_table_of_topics, "run-1").cause


def test_two_topics_that_python_wrote_are_joined(kafka: InMemoryKafka) -> None:
    publish(kafka, "right", as_python=True)
    publish(kafka, "left", as_python=True)
    app(kafka, with_table_of_topics).run("run-1")
    assert joined(kafka) == PAIRS


def test_topic_that_fills_later_is_looked_at_when_it_does(kafka: InMemoryKafka) -> None:
    publish(kafka, "left")
    app(kafka, with_table).run("run-1")
    publish(kafka, "right", as_python=True)
    assert "read right through" in refused(kafka, with_table, "run-2").fix


def test_topic_that_filled_before_the_other_is_looked_at_when_that_does(kafka: InMemoryKafka) -> None:
    publish(kafka, "right", as_python=True)
    app(kafka, with_table_of_topics).run("run-1")
    publish(kafka, "left")
    assert "equal keys do not meet" in refused(kafka, with_table_of_topics, "run-2").cause


def test_topics_that_are_joined_later_are_looked_at_then(kafka: InMemoryKafka) -> None:
    def apart(builder: KStreamBuilder) -> None:
        for topic in ("left", "right"):
            builder.stream(topic).group_by_key().count().to_stream().send_to("out", value_serde=LONG)

    def joined_as_well(builder: KStreamBuilder) -> None:
        apart(builder)
        window = SlidingWindow(size_ms=60_000)
        left, right = (builder.stream(topic).with_window(window) for topic in ("left", "right"))
        left.join(right, pair).send_to("mid")

    for _ in range(30):
        publish(kafka, "right", as_python=True)
        publish(kafka, "left")
    app(kafka, apart).run("run-1")
    publish(kafka, "right", as_python=True)
    assert "equal keys do not meet" in refused(kafka, joined_as_well, "run-2").cause


def test_first_run_that_reads_only_what_comes_next_is_judged_by_what_was_written_last(
    kafka: InMemoryKafka,
) -> None:
    for _ in range(30):
        publish(kafka, "right", as_python=True)
        publish(kafka, "left")
    latest = app(kafka, with_table_of_topics)
    latest.settings = {"first.run.offsets": "latest"}
    with pytest.raises(TopologyError, match="equal keys do not meet"):
        latest.begin("run-1")


def test_plan_foretells_what_begin_refuses(kafka: InMemoryKafka) -> None:
    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    ours = app(kafka, with_table)
    foretold = plan_next(kafka, ours.checked, topology=ours.topology.plan(APP), clock=kafka.clock)
    assert foretold.kind == "refused"
    assert foretold.refused is not None
    assert foretold.refused.cause == refused(kafka, with_table, "run-1").cause


@dataclass
class Requests:
    """Counts the calls of a begin."""

    made: int = 0

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.made += 1
        return effect()


def requests_of_looks(define: Define, written: Sequence[int]) -> list[int]:
    """Return how many more requests the begin of each run makes because it looks at keys.

    :param written: number of times that each key is written to both topics before each run.
    """
    found = dict[bool, list[int]]()
    for looks in (True, False):
        kafka = InMemoryKafka()
        for topic in ("left", "right"):
            kafka.create_topic(topic, partitions=PARTITIONS)
        kafka.create_topic("out")
        for number, times in enumerate(written):
            for _ in range(times):
                publish(kafka, "right")
                publish(kafka, "left")
            ours = app(kafka, define)
            ours.settings = {} if looks else {"initial.partitions": f"left={PARTITIONS},right={PARTITIONS}"}
            ours.interceptor = counting = Requests()
            slice_ = ours.begin(f"run-{number}")
            found.setdefault(looks, []).append(counting.made)
            ours.interceptor = None
            ours.tasks(slice_)
            ours.finish(f"run-{number}")
    return [with_look - without for with_look, without in zip(found[True], found[False], strict=True)]


@pytest.mark.parametrize("define", [with_table, with_table_of_topics])
def test_begin_asks_for_little_to_see_keys_and_for_nothing_once_they_are_known(define: Define) -> None:
    empty, first, hour_without, hour_with, many, hour_later, nothing = requests_of_looks(
        define, [0, 1, 0, 1, 30, 1, 0]
    )
    assert (empty, hour_without) == (1, 1)
    assert first <= 20
    assert hour_with <= 5
    assert many <= 7
    assert (hour_later, nothing) == (0, 0)


def test_continuous_run_is_refused_as_well(kafka: InMemoryKafka) -> None:
    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    endless = SwitchingApplication(topology=built(with_table), cluster=kafka, clock=kafka.clock)
    with pytest.raises(TopologyError, match="equal keys do not meet"):
        endless.run_continuously("c-1")


def test_single_record_that_was_placed_by_hand_stops_nothing(kafka: InMemoryKafka) -> None:
    publish(kafka, "right")
    kafka.append("right", b"by hand", b"z", partition=(key_hash(b"z") + 1) % PARTITIONS)
    publish(kafka, "left")
    app(kafka, with_table).run("run-1")
    assert joined(kafka) == PAIRS


def test_topics_that_meet_in_no_store_may_be_placed_as_they_like(kafka: InMemoryKafka) -> None:
    def define(builder: KStreamBuilder) -> None:
        left, right = rekeyed(builder).repartition(PARTITIONS), builder.stream("right")
        left.merge(right).send_to("mid")
        left.group_by_key().count().to_stream().send_to("out", value_serde=LONG)

    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    app(kafka, define).run("run-1")
    assert len(kafka.values("mid")) == 2 * len(KEYS)


class Kept(Processor):
    """Puts all that it is given under one key."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.state_store("kept")

    def process(self, record: ProcessorRecord) -> None:
        self.store.put("last", record.value)


def test_stores_of_processors_have_keys_of_their_own(kafka: InMemoryKafka) -> None:
    def define(builder: KStreamBuilder) -> None:
        builder.add_state_store(StoreSpec(name="kept", key_serde=TEXT, value_serde=TEXT))
        rekeyed(builder).repartition(PARTITIONS).process(Kept, "kept")
        builder.stream("right").process(Kept, "kept")

    publish(kafka, "right", as_python=True)
    publish(kafka, "left")
    app(kafka, define).run("run-1")


def by_keys(builder: KStreamBuilder, serde: Serde[Any], *, behind: bool = False) -> None:
    left = builder.stream("left", key_serde=serde).select_key(lambda key, value: key)
    right = builder.stream("right", key_serde=serde)
    table = (right.repartition(PARTITIONS) if behind else right).to_table()
    left.join(table, pair).send_to("out")


class Flight(msgspec.Struct, frozen=True):
    """A key of two fields, which others write in any order."""

    code: str
    year: int


class Leg(msgspec.Struct, frozen=True):
    """A key with another one in it."""

    miles: float
    flight: Flight
    day: str = "1 May"


@dataclass(frozen=True)
class Seat:
    """A key with a default, as people write it first."""

    row: str
    sizes: dict[str, int]
    side: str = "window"


class Gate(pydantic.BaseModel, frozen=True):
    """A key that pydantic reads."""

    name: str
    hall: int = 1


def flight(code: str) -> dict[str, Any]:
    return {"code": code, "year": 2013}


def leg(code: str) -> dict[str, Any]:
    return {"miles": 400.0, "flight": flight(code), "day": "1 May"}


def seat(code: str) -> dict[str, Any]:
    return {"row": code, "sizes": {"a": 1, "b": 2}, "side": "window"}


def reverse(fields: dict[str, Any]) -> dict[str, Any]:
    return dict([*fields.items()][::-1])


@pytest.mark.parametrize(
    ("serde", "ours", "theirs"),
    [
        pytest.param(serdes.json(), lambda code: [code, 1], None, id="blanks"),
        pytest.param(serdes.json(Flight), flight, lambda code: reverse(flight(code)), id="order"),
        pytest.param(serdes.json(Flight), flight, lambda code: {**flight(code), "by": "EV"}, id="more"),
        pytest.param(serdes.msgpack(Flight), flight, lambda code: reverse(flight(code)), id="msgpack"),
        pytest.param(serdes.json(Leg), leg, lambda code: {**leg(code), "miles": 400}, id="whole float"),
        pytest.param(
            serdes.of(Leg), leg, lambda code: {**leg(code), "flight": reverse(flight(code))}, id="nested"
        ),
        pytest.param(
            serdes.of(Leg),
            leg,
            lambda code: {"miles": 400.0, "flight": flight(code)},
            id="default left out",
        ),
        pytest.param(
            serdes.of(Seat),
            seat,
            lambda code: {"row": code, "sizes": {"a": 1, "b": 2}},
            id="default of a dataclass left out",
        ),
        pytest.param(
            serdes.of(Seat),
            seat,
            lambda code: {**seat(code), "sizes": {"b": 2, "a": 1}},
            id="order in a dict",
        ),
        pytest.param(
            serdes.of(Gate),
            lambda code: {"hall": 3, "name": code},
            lambda code: {"name": code, "hall": 3},
            id="pydantic",
        ),
        pytest.param(
            serdes.of(Gate),
            lambda code: {"hall": 1, "name": code},
            lambda code: {"name": code},
            id="default of pydantic left out",
        ),
    ],
)
def test_keys_that_are_always_written_otherwise_do_not_part_in_silence(
    kafka: InMemoryKafka, serde: Serde[Any], ours: Callable[[str], Any], theirs: Callable[[str], Any] | None
) -> None:
    """Their producer has one form, so nothing but the engine's own bytes differs from it."""

    def publish_all(cluster: InMemoryKafka, form: Callable[[str], Any], separators: tuple[str, str]) -> None:
        for topic in ("right", "left"):
            cluster.clock.sleep(1)
            for key in map(form, KEYS):
                text = json.dumps(key, separators=separators).encode()
                packed = serde.id.startswith("msgpack")
                cluster.append(topic, topic.encode(), msgspec.msgpack.encode(key) if packed else text)

    publish_all(kafka, theirs or ours, (",", ":") if theirs else (", ", ": "))
    error = refused(kafka, partial(by_keys, serde=serde), "run-1")
    assert f"keeps state by the keys of {APP}-left-repartition and right, which are placed in" in error.cause
    assert "read right through" in error.fix
    app(kafka, partial(by_keys, serde=serde, behind=True)).run("run-1")
    assert len(kafka.values("out")) == len(KEYS)

    alike = with_topics()
    publish_all(alike, ours, (",", ":"))
    app(alike, partial(by_keys, serde=serde)).run("run-1")
    assert len(alike.values("out")) == len(KEYS)


@pytest.mark.parametrize(
    ("serde", "other_form"),
    [
        (serdes.json(Flight), {"separators": (", ", ":")}),
        (serdes.json(Flight), {"reversed_": True}),
        (serdes.json(Flight), {"by": "EV"}),
        (serdes.json(), {"reversed_": True}),
    ],
)
@pytest.mark.remedy("placed_keys._refuse_two_forms")
def test_topic_whose_producers_write_json_in_two_forms_is_refused_and_counts_behind_a_repartition(
    kafka: InMemoryKafka, serde: Serde[Any], other_form: dict[str, Any]
) -> None:
    def in_two_forms(builder: KStreamBuilder) -> None:
        counted(builder.stream("left", key_serde=serde))

    def behind(builder: KStreamBuilder) -> None:
        counted(builder.stream("left", key_serde=serdes.json(Flight)).repartition(PARTITIONS))

    def written(
        code: str, *, separators: tuple[str, str] = (",", ":"), reversed_: bool = False, **more: str
    ) -> str:
        fields = {**flight(code), **more}
        return json.dumps(reverse(fields) if reversed_ else fields, separators=separators)

    for form in ({}, other_form):
        for code in KEYS:
            kafka.append("left", b"left", written(code, **form).encode())
    error = refused(kafka, in_two_forms, "run-1")
    assert "producers that write equal keys in different bytes, as JSON with blanks and" in error.cause
    by_class = " with keys of a class, as in serdes.of(Key), which has its fields in one order"
    assert f"read left{'' if 'Flight' in serde.id else by_class} through repartition(4)" in error.fix
    assert f"initial.partitions=left={PARTITIONS} lets them" in error.fix
    app(kafka, behind).run("run-1")
    assert counts(kafka) == {written(code): 2 for code in KEYS}


# == state that earlier runs left


def counted(stream: KStream) -> None:
    stream.group_by_key().count(store="counts").to_stream().send_to("out", value_serde=LONG)


def in_place(builder: KStreamBuilder) -> None:
    counted(builder.stream("left"))


def of_another(builder: KStreamBuilder) -> None:
    counted(builder.stream("right"))


def behind(builder: KStreamBuilder) -> None:
    counted(builder.stream("left").repartition(PARTITIONS))


def behind_a_topic(builder: KStreamBuilder) -> None:
    counted(builder.stream("left").through("mid"))


def windowed(*, rekeys: bool) -> Define:
    def define(builder: KStreamBuilder) -> None:
        stream = rekeyed(builder) if rekeys else builder.stream("left")
        windows = stream.group_by_key().windowed_by(TumblingWindow(size_ms=10**9))
        windows.count(store="counts").to_stream(lambda window, _: window.key).send_to("out", value_serde=LONG)

    return define


def counts(kafka: InMemoryKafka) -> dict[str, int]:
    """Return the highest count of each key."""
    found: dict[str, int] = {}
    for record in kafka.records("out"):
        key, count = (record.key() or b"").decode(), int.from_bytes(record.value() or b"", "big")
        found[key] = max(count, found.get(key, 0))
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (in_place, behind),
        (behind, in_place),
        (in_place, behind_a_topic),
        (behind_a_topic, in_place),
        (windowed(rekeys=False), windowed(rekeys=True)),
        (windowed(rekeys=True), windowed(rekeys=False)),
    ],
)
def test_state_is_not_left_in_other_tasks_when_a_topic_comes_between_or_goes(
    kafka: InMemoryKafka, before: Define, after: Define
) -> None:
    publish(kafka, "left", as_python=True)
    app(kafka, before).run("run-1")
    publish(kafka, "left", as_python=True)
    error = refused(kafka, after, "run-2")
    assert f"has state in {CHANGELOG}, and its keys are not placed as those of" in error.cause
    app(kafka, before).run("run-2")
    assert counts(kafka) == dict.fromkeys(KEYS, 2)


@pytest.mark.remedy("placed_keys._refuse_state")
def test_state_begins_empty_after_the_printed_command_or_everything_is_processed_again(
    kafka: InMemoryKafka,
) -> None:
    publish(kafka, "left", as_python=True)
    app(kafka, in_place).run("run-1")
    publish(kafka, "left", as_python=True)
    error = refused(kafka, behind, "run-2")
    accept_in_memory(error, kafka)
    app(kafka, behind).run("run-2")
    assert counts(kafka) == dict.fromkeys(KEYS, 1)
    accept_in_memory(TopologyError("", fix=other_way(error)), kafka)
    app(kafka, behind).run("run-3")
    assert counts(kafka) == dict.fromkeys(KEYS, 2)


def test_state_is_not_left_in_other_tasks_when_another_topic_feeds_it(kafka: InMemoryKafka) -> None:
    publish(kafka, "left")
    publish(kafka, "right", as_python=True, keys="abc")
    app(kafka, in_place).run("run-1")
    error = refused(kafka, of_another, "run-2")
    assert "those of right are, which feeds it now" in error.cause
    assert f"(or nothing in place of --internal-topics {CHANGELOG}: everything is" in error.fix
    accept_in_memory(TopologyError("", fix=other_way(error)), kafka)
    app(kafka, of_another).run("run-2")
    assert counts(kafka) == dict.fromkeys(KEYS, 1)


@pytest.mark.parametrize(
    ("before", "after"), [(in_place, behind), (behind, in_place), (in_place, of_another)]
)
def test_state_goes_on_where_keys_are_placed_alike(
    kafka: InMemoryKafka, before: Define, after: Define
) -> None:
    publish(kafka, "left")
    app(kafka, before).run("run-1")
    publish(kafka, "left")
    publish(kafka, "right")
    app(kafka, after).run("run-2")
    assert counts(kafka) == dict.fromkeys(KEYS, 2)


def by_flight(topic: str, *, repartitioned: bool = False) -> Define:
    def define(builder: KStreamBuilder) -> None:
        stream = builder.stream(topic, key_serde=serdes.of(Flight))
        counted(stream.repartition(PARTITIONS) if repartitioned else stream)

    return define


def publish_flights(kafka: InMemoryKafka, topic: str, *, in_order: bool) -> None:
    for code in KEYS:
        fields = flight(code) if in_order else reverse(flight(code))
        kafka.append(topic, b"flown", json.dumps(fields, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("before", "after", "left_in_order", "right_in_order"),
    [
        (by_flight("left"), by_flight("right"), True, False),
        (by_flight("left"), by_flight("right"), False, True),
        (by_flight("left", repartitioned=True), by_flight("left"), False, False),
        (by_flight("left"), by_flight("left", repartitioned=True), False, False),
    ],
)
def test_state_is_not_left_in_other_tasks_by_keys_in_another_form(
    kafka: InMemoryKafka, before: Define, after: Define, left_in_order: bool, right_in_order: bool
) -> None:
    publish_flights(kafka, "left", in_order=left_in_order)
    publish_flights(kafka, "right", in_order=right_in_order)
    app(kafka, before).run("run-1")
    assert f"has state in {CHANGELOG}, and its keys are not placed" in refused(kafka, after, "run-2").cause


@pytest.mark.parametrize("in_order", [True, False])
def test_state_goes_on_where_another_topic_has_keys_in_the_same_form(
    kafka: InMemoryKafka, in_order: bool
) -> None:
    for topic in ("left", "right"):
        publish_flights(kafka, topic, in_order=in_order)
    app(kafka, by_flight("left")).run("run-1")
    app(kafka, by_flight("right")).run("run-2")
    assert [*counts(kafka).values()] == [2] * len(KEYS)
