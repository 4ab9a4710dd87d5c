"""The records that calls are made for: keys that are as frequent as each other, or as Zipf says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from dev.benchmarks.calls.cases import KEYS, Keys
from dev.benchmarks.outputs import Digest, digest
from dev.benchmarks.publish import Message, create_topics, publish

_VALUE_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A topic with one partition.

    :param hottest: the most frequent key.
    :param hottest_records: how many have it.
    :param expected: what must be in the output.
    """

    topic: str
    records: int
    hottest: int
    hottest_records: int
    expected: Digest


@dataclass(kw_only=True)
class Inputs:
    """Publishes input topics, each once."""

    bootstrap: str
    _published: dict[tuple[Keys, int], Input] = field(default_factory=dict)

    def of(self, keys: Keys, records: int) -> Input:
        """Return a topic with so many records."""
        if (keys, records) not in self._published:
            topic = f"bench-calls-{keys}-{records}"
            create_topics(self.bootstrap, {topic: 1})
            publish(
                self.bootstrap, messages(topic, keys, records), count=records, progress=lambda _done: None
            )
            [(hottest, frequency)] = Counter(drawn_keys(keys, records)).most_common(1)
            self._published[keys, records] = Input(
                topic=topic,
                records=records,
                hottest=hottest,
                hottest_records=frequency,
                expected=digest(
                    ([(0, message.key, message.value)] for message in messages(topic, keys, records)),
                    table=False,
                ),
            )
        return self._published[keys, records]


def messages(topic: str, keys: Keys, records: int) -> Iterator[Message]:
    """Make records; the same numbers give the same ones."""
    for number, key in enumerate(drawn_keys(keys, records)):
        value = beginning_of(key) + b', "id": %d, "note": "' % number
        yield Message(topic, value + b"." * (_VALUE_BYTES - len(value) - 2) + b'"}', b"key-%05d" % key)


def beginning_of(key: int) -> bytes:
    """Return what the values of a key begin with, and no others."""
    return b'{"key": %05d' % key


def drawn_keys(keys: Keys, records: int) -> Sequence[int]:
    """Draw the key of each record: of Zipf's with exponent 1, the most frequent one is 0."""
    random_ = random.Random(20)  # noqa: S311 - test data
    if keys == "uniform":
        return random_.choices(range(KEYS), k=records)
    return random_.choices(range(KEYS), cum_weights=list(accumulate(_zipf())), k=records)


def _zipf() -> Iterator[float]:
    return (1 / rank for rank in range(1, KEYS + 1))


def hottest_share(keys: Keys) -> float:
    """Return which share of the records the most frequent key has, by its weight."""
    return 1 / KEYS if keys == "uniform" else 1 / sum(_zipf())
