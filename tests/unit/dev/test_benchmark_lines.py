"""The lines of tables, joins and windows: what they read, and what they give, worked out from that anew."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from airflow_kstreams.testing import TopologyTestDriver
from dev.benchmarks.inputs import Inputs, events, users
from dev.benchmarks.publish import Message
from dev.benchmarks.suite_topologies import (
    EVENTS,
    OUTPUT,
    TOPOLOGIES,
    USERS,
    Activity,
    Event,
    Placed,
    Slim,
    User,
    slim,
)
from dev.benchmarks.workloads import WORKLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a topology read, in the order of times, and what it wrote.

    :param last: result of each key.
    """

    happened: list[tuple[int, Event]]
    known: list[User]
    written: list[Any]
    last: dict[Any, Any]

    @property
    def newest(self) -> dict[str, Event]:
        """The newest event of each user."""
        return {event.user: event for _, event in self.happened}

    @property
    def city_of(self) -> dict[str, str]:
        """Where each user lives at last."""
        return {user.user: user.city for user in self.known}


def scene(name: str, keys: int) -> Scene:
    """Run a topology on 400 events and, if it reads them, 200 users."""
    some = dataclasses.replace(WORKLOADS["tables"], keys=keys)
    happened = _in_order(events(some, EVENTS, 0, 400), Event)
    topology = TOPOLOGIES[name]()
    known = _in_order(users(some, USERS, 200), User) if USERS in topology.plan("bench").inputs else []
    pieces = [(time_ms, EVENTS, each) for time_ms, each in happened]
    pieces += [(time_ms, USERS, each) for time_ms, each in known]
    with TopologyTestDriver(topology, application_id="bench") as driver:
        for time_ms, topic, each in sorted(pieces, key=lambda piece: piece[0]):
            driver.pipe_input(topic, key=each.user, value=each, timestamp_ms=time_ms)
        written = driver.read_output(OUTPUT)
    last = {record.key: record.value for record in written}
    return Scene(
        happened=happened,
        known=[user for _, user in known],
        written=[record.value for record in written],
        last={key: value for key, value in last.items() if value is not None},
    )


def _in_order(messages: Iterator[Message], kind: type[Any]) -> list[tuple[int, Any]]:
    ordered = sorted(messages, key=lambda message: message.timestamp_ms)
    return [(message.timestamp_ms, msgspec.json.decode(message.value, type=kind)) for message in ordered]


# == what they read


def test_users_are_known_before_the_first_event_and_none_moves_when_an_event_happens() -> None:
    some = dataclasses.replace(WORKLOADS["tables"], keys=50)
    happened = [message.timestamp_ms for message in events(some, "e", 0, 400)]
    known = list(users(some, "u", 100))
    assert len({message.key for message in known[:50]}) == 50
    assert max(message.timestamp_ms for message in known[:50]) < min(happened)
    moved = [message.timestamp_ms for message in known[50:]]
    assert min(happened) < moved[0] < moved[-1] < max(happened)
    assert not {*moved} & {*happened}


def test_events_come_out_of_order_and_none_is_late_for_its_window() -> None:
    times = [message.timestamp_ms for message in events(WORKLOADS["sliding"], "e", 0, 1_000)]
    behind = max(newest - time for time, newest in zip(times, accumulate(times, max), strict=True))
    assert 0 < behind < 1_000


def test_users_are_a_fifth_of_the_records_when_a_workload_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    published: Counter[str] = Counter()

    def publish(_bootstrap: str, messages: Iterator[Message], **_: object) -> None:
        published.update(message.topic for message in messages)

    monkeypatch.setattr("dev.benchmarks.inputs.publish", publish)
    monkeypatch.setattr("dev.benchmarks.inputs.create_topics", lambda *_: None)
    inputs = Inputs(bootstrap="", show=lambda *_: lambda _done: None)
    topics, records = inputs.of(WORKLOADS["tables"], 1_000)
    assert (records, published) == (1_000, {topics["events"]: 800, topics["users"]: 200})
    assert inputs.of(WORKLOADS["table-groups"], 1_000)[0].keys() == {"events"}


# == what they give


def test_vectorised_filter_and_map_writes_what_the_plain_one_does() -> None:
    messages = list(events(WORKLOADS["stateless"], EVENTS, 0, 200))
    written: dict[str, list[tuple[bytes, bytes, int]]] = {"stateless": [], "stateless_batches": []}
    for name, found in written.items():
        with TopologyTestDriver(TOPOLOGIES[name](), application_id="bench") as driver:
            for message in messages:
                raw = name.endswith("_batches")
                driver.pipe_input(
                    EVENTS,
                    key=message.key if raw else message.key.decode(),
                    value=message.value if raw else msgspec.json.decode(message.value, type=Event),
                    timestamp_ms=message.timestamp_ms,
                )
            for record in driver.read_output(OUTPUT):
                key = record.key if isinstance(record.key, bytes) else record.key.encode()
                value = record.value if isinstance(record.value, bytes) else msgspec.json.encode(record.value)
                found.append((key, value, record.timestamp_ms))
    assert written["stateless_batches"] == written["stateless"]
    assert 150 < len(written["stateless"]) < 200


def test_vectorised_filter_and_map_keeps_rows_in_their_places_when_some_or_all_are_dropped() -> None:
    values = [
        msgspec.json.encode(Event(id=number, user=user, amount=amount, kind="view", note="n"))
        for number, (user, amount) in enumerate((("ü0", 5), ("ü1", 10), ("ü2", 7), ("ü3", 20)))
    ]
    batch = pa.RecordBatch.from_pydict(
        {"key": [b"a", b"b", b"c", b"d"], "value": values, "timestamp_ms": [1, 2, 3, 4]}
    )
    assert slim(batch).to_pydict() == {
        "key": [b"a", b"c"],
        "value": ['{"id":0,"user":"ü0","cents":500}'.encode(), '{"id":2,"user":"ü2","cents":700}'.encode()],
        "timestamp_ms": [1, 3],
    }
    assert slim(batch.slice(1, 1)).num_rows == 0


def test_vectorised_map_escapes_text_when_it_has_to() -> None:
    users = ['a"b', "back\\slash", "new\nline", "plain"]
    values = [msgspec.json.encode(Event(id=7, user=user, amount=1, kind="view", note="n")) for user in users]
    batch = pa.RecordBatch.from_pydict({"key": [b"k"] * 4, "value": values, "timestamp_ms": [1, 2, 3, 4]})
    assert slim(batch).column("value").to_pylist() == [
        msgspec.json.encode(Slim(id=7, user=user, cents=100)) for user in users
    ]


def test_event_meets_its_user_as_of_its_time_when_the_user_moves() -> None:
    found = scene("stream_table", keys=50)
    assert [placed.id for placed in found.written] == [event.id for _, event in found.happened]
    cities = {placed.city for placed in found.written}
    assert cities - {*found.city_of.values()}, "nobody has moved since"


def test_newest_events_have_the_city_of_their_user_when_both_tables_change() -> None:
    found = scene("tables", keys=150)
    assert found.last == {
        user: Placed(event.id, event.amount * 100, found.city_of[user])
        for user, event in found.newest.items()
    }


def test_newest_events_have_the_city_of_the_first_of_their_hundred_when_joined_by_foreign_key() -> None:
    found = scene("foreign_key", keys=150)
    assert found.last == {
        user: Placed(event.id, event.amount * 100, found.city_of[f"{user[:-2]}00"])
        for user, event in found.newest.items()
    }


def test_groups_hold_the_newest_events_alone_when_events_are_replaced() -> None:
    found = scene("table_groups", keys=150)
    worth: Counter[str] = Counter()
    for event in found.newest.values():
        if event.amount % 10:
            worth[f"{event.kind}-{event.amount % 100}"] += event.amount * 100
    assert {group: cents for group, cents in found.last.items() if cents} == worth


def test_activity_counts_both_streams_when_they_are_cogrouped() -> None:
    found = scene("cogroup", keys=150)
    assert found.last == {
        user: Activity(
            100 * sum(event.amount for _, event in found.happened if event.user == user),
            sum(each.user == user for each in found.known),
        )
        for user in found.city_of
    }


@pytest.mark.parametrize("name", ["sliding", "session", "tumbling"])
def test_windows_sum_what_lies_in_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # 400 events in 40 seconds, at most half a second out of order.
    monkeypatch.setattr("dev.benchmarks.inputs._STEP_MS", 100)
    monkeypatch.setattr("dev.benchmarks.inputs._DISORDER", 5)
    found = scene(name, keys=20)
    assert len(found.last) >= 20
    for window, total in found.last.items():
        last_ms = window.end_ms - (name == "tumbling")
        assert total == sum(
            event.amount
            for time_ms, event in found.happened
            if event.user == window.key and window.start_ms <= time_ms <= last_ms
        )
