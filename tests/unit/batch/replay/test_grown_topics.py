"""Dead letters of topics that have grown: each comes back to the task that has the state of its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.batch.protocol.replay_records import Replay
from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes, timestamps
from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.windows import Windowed
from tests.unit.batch.expand.test_processor_expansion import expand
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("letters-come-back-to-their-keys")

DEAD = "app-dead-letter"
DEAD_LETTER = {"processing.exception.handler": "dead-letter"}
#: Fails until the function is mended.
POISON = 99


class Listing:
    """Every value of each key, in order; the function fails for one value until it is mended.

    :param call: the values pass an asynchronous call.
    """

    def __init__(self, *, call: bool = False, dated: bool = False) -> None:
        self.mended = False
        self._call = call
        self._dated = dated

    def _checked(self, value: int) -> int:
        if value == POISON and not self.mended:
            raise ValueError("not yet")
        return value

    async def _asked(self, value: int) -> int:
        return self._checked(value)

    def topology(self) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        own = timestamps.extract(lambda record: record.timestamp_ms)
        stream = builder.stream("in", timestamps=own) if self._dated else builder.stream("in")
        if self._call:
            stream = stream.map_values_async(self._asked, order="partition", name="ask")
        else:
            stream = stream.map_values(self._checked)
        listed = stream.group_by_key().aggregate(
            list, lambda key, value, so_far: [*so_far, value], store="listed"
        )
        listed.to_stream().send_to("out")
        return builder.build()


def replay(scene: Scene, replay_id: str = "back") -> Replay:
    return DeadLetterReplay(scene.kafka, scene.app.checked, replay_id=replay_id).run()


def grown(listing: Listing, first: int = 2, count: int = 4) -> tuple[Scene, str]:
    """A topic that grows after a letter of a key was made that leaves its partition."""
    scene = Scene(first, listing.topology(), settings=DEAD_LETTER)
    moved = next(k for k in KEYS if partition_of_key(k.encode(), first, count) >= first)
    scene.send(KEYS, 0)
    scene.send([moved], POISON)
    scene.run()
    scene.grow(count)
    scene.send(KEYS, 1)
    for _ in range(3):
        scene.run()
    return scene, moved


def back_at(scene: Scene) -> set[int]:
    return {record.partition() for record in scene.kafka.records("in") if record.value() == b"99"}


def test_letter_of_before_the_growth_comes_back_to_the_task_that_has_its_key_now() -> None:
    listing = Listing()
    scene, moved = grown(listing)
    expand(scene, 4)
    scene.run()
    assert len(scene.recorded.by_group) == 4
    listing.mended = True

    replay(scene)
    scene.run()

    assert len(scene.kafka.records(DEAD)) == 1
    assert scene.listed == {key: [0, 1, *([POISON] if key == moved else [])] for key in KEYS}


def test_letter_comes_back_before_a_run_takes_its_key_over_to_a_new_task() -> None:
    listing = Listing()
    scene, moved = grown(listing)
    expand(scene, 4)
    listing.mended = True

    replay(scene)
    scene.run()

    assert len(scene.recorded.by_group) == 4
    assert scene.listed[moved] == [0, 1, POISON]


def test_letter_comes_back_to_its_partition_when_producers_have_not_found_the_new_ones() -> None:
    listing = Listing()
    scene = Scene(2, listing.topology(), settings=DEAD_LETTER)
    scene.send(KEYS, POISON)
    scene.run()
    scene.grow(4)
    moved = next(k for k in KEYS if partition_of_key(k.encode(), 2, 4) >= 2)
    at = partition_of_key(moved.encode(), 2, 2)
    scene.kafka.append("in", b"1", moved.encode(), partition=at, timestamp_ms=0)
    scene.run()
    assert scene.recorded.grown["in"].history == (2, 4)
    listing.mended = True

    assert replay(scene).records == len(KEYS)
    assert back_at(scene) == {0, 1}
    scene.run()
    assert scene.listed == {key: [*([1] if key == moved else []), POISON] for key in KEYS}


def test_letter_comes_back_to_its_partition_when_the_growth_is_not_known_well_enough() -> None:
    listing = Listing()
    scene = Scene(4, listing.topology(), settings=DEAD_LETTER)
    scene.send(KEYS, POISON)
    scene.run()
    before = {(record.key(), record.partition()) for record in scene.kafka.records("in")}
    scene.grow(24)
    keys = [b"%d" % number for number in range(1_000)]
    place = {key: partition_of_key(key, 4, 24) for key in keys}
    agreed = next(key for key in keys if place[key] == partition_of_key(key, 24, 24) >= 16)
    scene.kafka.append("in", b"1", agreed, partition=place[agreed], timestamp_ms=0)
    scene.run()
    assert len(scene.recorded.grown["in"].kinds) == 2
    listing.mended = True

    replay(scene)

    assert before == {(r.key(), r.partition()) for r in scene.kafka.records("in") if r.value() == b"99"}


def windowed() -> Topology:
    builder = KStreamBuilder(
        default_key_serde=serdes.time_windowed(serdes.string(), size_ms=1_000),
        default_value_serde=serdes.string(),
    )
    builder.stream("in").group_by_key().count(store="counts").to_stream().send_to("out")
    return builder.build()


def test_window_of_a_key_decides_nothing() -> None:
    scene = Scene(2, windowed(), settings=DEAD_LETTER)
    key_serde = serdes.time_windowed(serdes.string(), size_ms=1_000)

    def send(value: str) -> None:
        for number, key in enumerate(KEYS):
            data = key_serde.serialize(Windowed(key, number * 1_000, number * 1_000 + 1_000))
            at = partition_of_key(key.encode(), 2, scene.count)
            scene.kafka.append("in", value.encode(), data, partition=at, timestamp_ms=0)

    send("a")
    scene.run()
    dead = [*scene.kafka.records("in")]
    scene.grow(4)
    send("b")
    for _ in range(3):
        scene.run()
    expand(scene, 4)
    scene.run()
    for record in dead:
        headers: Headers = [
            (f"__streams.errors.{name}", str(fact).encode())
            for name, fact in (
                ("topic", "in"),
                ("partition", record.partition()),
                ("offset", record.offset()),
            )
        ]
        scene.kafka.append(DEAD, record.value(), record.key(), timestamp_ms=0, headers=headers)

    assert replay(scene).records == len(KEYS)
    scene.run()
    assert len(scene.kafka.records(DEAD)) == len(KEYS)
    counted = {}
    for record in scene.kafka.records("out"):
        counted[record.key()] = record.value()
    assert len(counted) == len(KEYS)
    assert {serdes.int64().deserialize(value or b"") for value in counted.values()} == {3}


@pytest.mark.promise("moved-keys-elsewhere-fail")
@pytest.mark.remedy("error_handling.ErrorHandling._explain: {}; airflow-kstreams dead-letters replay")
@pytest.mark.parametrize(
    "listing",
    [
        Listing,
        lambda: Listing(dated=True),
        lambda: Listing(call=True),
        lambda: Listing(call=True, dated=True),
    ],
    ids=["plain", "dated", "calls", "dated calls"],
)
def test_what_the_error_says_brings_the_record_to_its_task_and_touches_nothing_else(
    listing: Callable[[], Listing],
) -> None:
    scene = Scene(2, listing().topology())
    scene.send(KEYS, 0)
    scene.run()
    scene.grow(4)
    scene.send(KEYS, 1)
    for _ in range(3):
        scene.run()
    expand(scene, 4)
    scene.run()
    moved = next(key for key in KEYS if partition_of_key(key.encode(), 2, 4) == 2)
    stays = next(key for key in KEYS if partition_of_key(key.encode(), 2, 4) == 0)
    scene.send([stays], 2)
    offset = scene.kafka.append("in", b"9", moved.encode(), partition=0, timestamp_ms=0)
    scene.send([stays], 3)
    with pytest.raises(
        RecordError, match="has its state with task 0_2 since processors were added"
    ) as caught:
        scene.run()
    assert f"in-0@{offset}" in caught.value.cause
    assert 'settings={"processing.exception.handler": "dead-letter"} of the operators' in caught.value.fix
    assert "airflow-kstreams dead-letters replay" in caught.value.fix
    assert scene.listed[moved] == [0, 1]

    scene.app.settings = {**scene.app.settings, **DEAD_LETTER}
    scene.again(2)
    assert len(scene.kafka.records(DEAD)) == 1
    assert scene.listed[stays] == [0, 1, 2, 3]
    assert scene.listed[moved] == [0, 1]
    assert replay(scene).records == 1
    scene.run()
    assert len(scene.kafka.records(DEAD)) == 1

    scene.sent[moved].append(9)
    assert scene.listed == scene.sent
