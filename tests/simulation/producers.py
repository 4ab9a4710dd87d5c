"""The world outside: producers that fill the inputs, with and without transactions, and outsiders."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from random import Random

from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.world import World

_KEYS = ("k0", "k1", "k2", "k3", "k4")
#: How much older than it is a record may say to be, milliseconds; younger, if negative.
_LATE_MS = (0, 0, 0, 5, 90, 250, 500, 1_500, -300)


class Producers:
    """Write records with values that are never repeated.

    :param inputs: topics they write.
    :param through: intermediate topics that outsiders write.
    :param tables: inputs in which some records have no value.
    :param busy: whether more arrives, of fewer keys.
    """

    def __init__(
        self,
        world: World,
        kafka: InMemoryKafka,
        random: Random,
        *,
        inputs: Sequence[str],
        through: Sequence[str],
        tables: Collection[str] = (),
        busy: bool = False,
    ) -> None:
        self._world = world
        self._kafka = kafka
        self._random = random
        self._inputs = inputs
        self._through = through
        self._tables = tables
        self._last_ms = 0
        self._most = 5 if busy else 3
        self._keys = _KEYS[:2] if busy else _KEYS
        #: More of those that lie anywhere between others where the order in time decides.
        self._late_ms = (*_LATE_MS, *range(20, 900, 40)) if busy else _LATE_MS
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)
        self.outsiders: set[tuple[str, str]] = set()

    def batch(self) -> None:
        """Write what arrives between two runs."""
        for _ in range(self._random.randint(1, self._most)):
            self._burst(hurry=True)

    def keep_writing(self) -> None:
        """Write while runs go on, for a while."""
        for _ in range(self._random.randint(1, 5)):
            self._world.sleep(self._random.choice((0.01, 0.05, 0.2, 1.0)))
            self._burst(hurry=False)

    def _burst(self, *, hurry: bool) -> None:
        random = self._random
        kind = random.choice(("plain", "plain", "committed", "committed", "aborted"))
        if self._through and not hurry and random.random() < 0.3:
            self._outsider(random.choice(self._through))
        count = random.randint(1, 5)
        if kind == "plain":
            for _ in range(count):
                topic, value, key, timestamp_ms = self._record()
                self._kafka.append(topic, value, key, timestamp_ms=timestamp_ms)
            return
        writer = self._kafka.writer(transactional_id=f"producer-{next(self._ids)}")
        writer.init_transactions()
        writer.begin()
        for _ in range(count):
            topic, value, key, timestamp_ms = self._record()
            writer.produce(topic, value, key, -1, timestamp_ms, None)
        writer.flush()
        if not hurry:
            self._world.sleep(random.choice((0.01, 0.1, 0.5)))
        (writer.commit if kind == "committed" else writer.abort)()

    def _outsider(self, topic: str) -> None:
        value = f"o{next(self._numbers)}"
        self.outsiders.add((topic, value))
        self._kafka.append(topic, value.encode(), self._random.choice(self._keys).encode())

    def _record(self) -> tuple[str, bytes | None, bytes, int]:
        random = self._random
        topic, key = random.choice(self._inputs), random.choice(self._keys).encode()
        value: bytes | None = str(next(self._numbers)).encode()
        if topic in self._tables and random.random() < 0.25:
            value = None
        # Some records have just the time of the one before.
        if not self._last_ms or random.random() < 0.9:
            self._last_ms = self._world.now_ms() - random.choice(self._late_ms)
        return topic, value, key, self._last_ms
