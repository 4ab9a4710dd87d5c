"""The doctor looks at the newest keys of topics that have grown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose, growing_checks
from airflow_kstreams.streams import KStreamBuilder, Topology, Windowed, partition_of_key, serdes
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("doctor-finds-keys-astray")

TEXT = serdes.string()
KEYS = [f"k{number}" for number in range(60)]

#: Where producers put a key, given the first count of its topic and the one now.
Place = Callable[[bytes, int, int], int]


def counting(key_serde: Serde = TEXT) -> Topology:
    builder = KStreamBuilder(default_key_serde=key_serde, default_value_serde=TEXT)
    builder.stream("in").group_by_key().count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


def modulo(key: bytes, first: int, now: int) -> int:
    return partition_of_key(key, now, now)


class Rig:
    """An application whose input began with 4 partitions."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.kafka = InMemoryKafka()
        self.kafka.create_topic("in", partitions=4)
        self.kafka.create_topic("out")
        self.count = 4
        self.app = Application(
            application_id="app", topology=topology or counting(), on=self.kafka, settings={"settle.ms": 0}
        )

    def grow(self, count: int) -> None:
        self.kafka.add_partitions("in", count)
        self.count = count

    def send(self, place: Place = partition_of_key, keys: list[str] = KEYS) -> None:
        for key in keys:
            data = key.encode()
            self.kafka.append("in", b"v", data, partition=place(data, 4, self.count))

    def findings(self, **settings: str) -> list[Finding]:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        app = Application(application_id="app", topology=self.app.topology, settings=given)
        subject = Subject(plan=app.topology.plan("app"), settings=app.checked)
        return [
            each for each in diagnose(self.kafka, subject, clock=self.kafka.clock) if each.check == "keys"
        ]


@pytest.mark.parametrize("noticed", [True, False])
def test_keys_are_as_they_should_be_when_producers_hash_linearly(noticed: bool) -> None:
    rig = Rig()
    rig.send()
    rig.app.run("run-1")
    rig.grow(6)
    rig.send()
    if noticed:
        rig.app.run("run-2")
    (found,) = rig.findings()
    assert (found.level, found.text) == (
        Level.OK,
        "growth over 4 -> 6 puts the newest 120 keys of in where they lie: linear",
    )


def test_both_kinds_are_named_when_counts_double() -> None:
    rig = Rig()
    rig.send()
    rig.app.run("run-1")
    rig.grow(8)
    rig.send(modulo)
    (found,) = rig.findings()
    assert found.level is Level.OK and found.text.endswith("where they lie: linear or modulo")


def test_keys_astray_are_an_error_when_the_count_is_no_multiple() -> None:
    rig = Rig()
    rig.send()
    rig.app.run("run-1")
    rig.grow(6)
    rig.send(modulo)
    (found,) = rig.findings()
    astray = [
        key
        for key in map(str.encode, KEYS)
        if modulo(key, 4, 6) not in {partition_of_key(key, 4, count) for count in (4, 5, 6)}
    ]
    assert astray
    assert found.level is Level.ERROR
    assert f"{len(astray)} of the newest 120 keys of in do not lie where growth over 4 -> 6" in found.text
    assert "LinearHashPartitioner" in found.fix


def test_keys_astray_are_an_error_when_two_producers_grow_in_two_ways() -> None:
    rig = Rig()
    rig.send()
    rig.app.run("run-1")
    rig.grow(12)
    rig.send(modulo)
    rig.send(partition_of_key)
    (found,) = rig.findings()
    assert found.level is Level.ERROR
    assert "4 -> 12" in found.text


def test_first_count_is_that_of_the_setting_when_nothing_has_run() -> None:
    rig = Rig()
    rig.send()
    rig.grow(7)
    rig.send()
    assert rig.findings() == []
    (right,) = rig.findings(initial_partitions="in=4")
    (wrong,) = rig.findings(initial_partitions="in=3")
    assert (right.level, wrong.level) == (Level.OK, Level.ERROR)


def test_windowed_keys_lie_with_their_key_when_the_input_has_grown() -> None:
    serde = serdes.time_windowed(TEXT, size_ms=10)
    rig = Rig(counting(serde))

    def send() -> None:
        for key in KEYS:
            at = partition_of_key(key.encode(), 4, rig.count)
            rig.kafka.append("in", b"v", serde.serialize(Windowed(key, 0, 10)), partition=at)

    send()
    rig.app.run("run-1")
    rig.grow(6)
    send()
    (found,) = rig.findings()
    assert found.level is Level.OK


def test_nothing_is_said_when_a_topic_has_no_keys_or_has_not_grown() -> None:
    rig = Rig()
    rig.send()
    rig.app.run("run-1")
    assert rig.findings() == []
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    builder.stream("in").send_to("out")
    stateless = Rig(builder.build())
    stateless.send()
    stateless.app.run("run-1")
    stateless.grow(7)
    stateless.send(modulo)
    assert stateless.findings() == []


def test_the_newest_records_alone_are_read_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.send()
    rig.app.run("run-1")
    rig.grow(5)
    rig.send(keys=KEYS * 4)
    monkeypatch.setattr(growing_checks, "_OF_TOPIC", 100)
    (found,) = rig.findings()
    assert "puts the newest 100 keys of in" in found.text
