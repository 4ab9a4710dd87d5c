"""Input topics of the suite: published once per broker, read by every system."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from dev.benchmarks.publish import KINDS, Message, create_topics, publish
from dev.benchmarks.suite_topologies import Event, User
from dev.benchmarks.workloads import Workload
from dev.flight_demo.data import DAYS, Stretch
from dev.flight_demo.data import records as flight_records

#: Flights and observations of 2013.
_RECORDS_OF_2013 = 336_776 + 26_115
#: Spreads the keys over their range, as a hash of real ones would.
_STRIDE = 7_368_787
#: Notes are cut from a text of this size: longer than what a compressor looks back on.
_TEXT_BYTES = 1 << 20
#: When the first event happens, and how far apart events are, on average.
_START_MS = 1_356_998_400_000
_STEP_MS = 2
#: So many events come out of order, at most.
_DISORDER = 25
_EVENTS_PER_USER = 4

Progress = Callable[[int], None]


@dataclass(kw_only=True)
class Inputs:
    """Publishes what workloads read, each kind once.

    :param show: makes a function that is told how many records of how many are published.
    """

    bootstrap: str
    show: Callable[[str, int], Progress]
    _published: dict[tuple[object, ...], tuple[Mapping[str, str], int]] = field(default_factory=dict)

    def of(self, workload: Workload, records: int) -> tuple[Mapping[str, str], int]:
        """Return topics by the names they have in topologies, and how many records they hold.

        :param records: wanted; flights come in whole days.
        """
        kind = (
            *(*workload.reads, records, workload.keys, workload.value_bytes, workload.partitions),
            workload.codec or "as-it-is",
        )
        if kind not in self._published:
            name = "-".join(map(str, kind))
            self._published[kind] = self._publish(workload, records, f"bench-in-{name}")
        return self._published[kind]

    def fresh(self, workload: Workload, name: str) -> Mapping[str, str]:
        """Create a topic of events that a workload fills by and by."""
        create_topics(self.bootstrap, {name: workload.partitions})
        return {"events": name}

    def append(self, workload: Workload, topic: str, first: int, count: int) -> None:
        """Publish events ``[first, first + count)``."""
        self._send(events(workload, topic, first, count), f"publishing {topic}", count, workload.codec)

    def _publish(self, workload: Workload, records: int, name: str) -> tuple[Mapping[str, str], int]:
        topics = {each: f"{name}-{each}" for each in workload.reads}
        create_topics(self.bootstrap, dict.fromkeys(topics.values(), workload.partitions))
        if "flights" in topics:
            messages = list(flights(topics, records))
            self._send(iter(messages), f"publishing {name}", len(messages))
            return topics, len(messages)
        of_users = records // (_EVENTS_PER_USER + 1) if "users" in topics else 0
        if of_users:
            self._send(users(workload, topics["users"], of_users), f"publishing {topics['users']}", of_users)
        self.append(workload, topics["events"], 0, records - of_users)
        return topics, records

    def _send(self, messages: Iterator[Message], title: str, count: int, codec: str = "") -> None:
        publish(self.bootstrap, messages, count=count, progress=self.show(title, count), codec=codec)


def events(workload: Workload, topic: str, first: int, count: int) -> Iterator[Message]:
    """Make events; the same numbers give the same ones. Every key comes once before one comes again. Their
    times go on with their numbers, but for a little disorder.
    """
    random_ = random.Random(first)  # noqa: S311 - test data
    encode = msgspec.json.Encoder().encode
    text = _text() if workload.value_bytes else "lorem ipsum dolor sit"
    for number in range(first, first + count):
        user = _user(workload, number, random_)
        event = Event(id=number, user=user, amount=random_.randrange(1000), kind=KINDS[number & 3], note=text)
        if workload.value_bytes:
            event.note = ""
            missing = workload.value_bytes - len(encode(event))
            place = random_.randrange(_TEXT_BYTES - missing)
            event.note = text[place : place + missing]
        time_ms = _START_MS + _STEP_MS * (number + number * _STRIDE % _DISORDER)
        yield Message(topic, encode(event), user.encode(), timestamp_ms=time_ms)


def users(workload: Workload, topic: str, count: int) -> Iterator[Message]:
    """Make users: all keys before the first event, then some that move. None has the time of an event."""
    random_ = random.Random(count)  # noqa: S311 - test data
    encode = msgspec.json.Encoder().encode
    for number in range(count):
        name = _user(workload, number, random_)
        user = User(user=name, city=f"city-{random_.randrange(1000)}", moves=number // workload.keys)
        time_ms = _START_MS + _STEP_MS * _EVENTS_PER_USER * (number - workload.keys) + 1
        yield Message(topic, encode(user), name.encode(), timestamp_ms=time_ms)


def _user(workload: Workload, number: int, random_: random.Random) -> str:
    chosen = number * _STRIDE if number < workload.keys else random_.randrange(workload.keys)
    return f"user-{chosen % workload.keys:07d}"


def _text() -> str:
    random_ = random.Random(7)  # noqa: S311 - test data
    words = [
        "".join(random_.choices("abcdefghijklmnopqrstuvwxyz", k=random_.randrange(2, 9)))
        for _ in range(2_000)
    ]
    pieces, length = [], 0
    while length < _TEXT_BYTES:
        pieces.append(random_.choice(words))
        length += len(pieces[-1]) + 1
    return " ".join(pieces)[:_TEXT_BYTES]


def flights(topics: Mapping[str, str], records: int) -> Iterator[Message]:
    """Make flights and weather in the order of their times.

    Real ones have three airports; for more keys there are as many copies of the year side by side as are
    needed, each with airports of its own. Fewer records than a year has are its first days.
    """
    copies = max(1, round(records / _RECORDS_OF_2013))
    days = DAYS if records >= _RECORDS_OF_2013 else max(1, records * DAYS // _RECORDS_OF_2013)
    for record in flight_records(Stretch(first_day=0, end_day=days)):
        if record.topic in topics:
            for copy in range(copies):
                key = record.key if copies == 1 else b"%s-%d" % (record.key, copy)
                yield Message(topics[record.topic], record.value, key, timestamp_ms=record.timestamp_ms)
