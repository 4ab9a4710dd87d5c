"""The world outside: producers that fill the inputs, with and without transactions, and outsiders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.world import World

_KEYS = ("k0", "k1", "k2", "k3", "k4")


class Producers:
    """Write records with values that are never repeated.

    :param inputs: topics they write.
    :param through: intermediate topics that outsiders write.
    """

    def __init__(
        self,
        world: World,
        kafka: InMemoryKafka,
        random: Random,
        *,
        inputs: Sequence[str],
        through: Sequence[str],
    ) -> None:
        self._world = world
        self._kafka = kafka
        self._random = random
        self._inputs = inputs
        self._through = through
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)
        self.outsiders: set[tuple[str, str]] = set()

    def batch(self) -> None:
        """Write what arrives between two runs."""
        for _ in range(self._random.randint(1, 3)):
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
        self._kafka.append(topic, value.encode(), self._random.choice(_KEYS).encode())

    def _record(self) -> tuple[str, bytes, bytes, int]:
        random = self._random
        value = str(next(self._numbers)).encode()
        late_ms = random.choice((0, 0, 0, 5, 500))
        return (
            random.choice(self._inputs),
            value,
            random.choice(_KEYS).encode(),
            self._world.now_ms() - late_ms,
        )
