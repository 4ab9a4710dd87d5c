"""Remembers the times of records that their topic may refuse (``message.timestamp.before.max.ms``, or after).

The client's delivery reports hold neither a record's time nor, always, which record of a batch is to blame:

- If a batch holds several such records, the report of each is ``INVALID_RECORD``, that of all others
  ``_INVALID_DIFFERENT_RECORD``.
- If it holds one, the report of every record of the batch is ``INVALID_TIMESTAMP``. Then the record that is
  dated furthest beyond the limit is to blame: if the broker refuses any, it refuses that one.

So what is sent is compared with the limits, by this machine's clock and with a margin, since the broker goes
by its own. Records within are not remembered: a comparison is all that they cost.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from confluent_kafka import KafkaError

from airflow_kstreams.streams.ports import TopicLimits, TopicPartition
from airflow_kstreams.streams.records.first_place import content_id
from airflow_kstreams.streams.records.topic_limits import BROKER_LIMITS, beyond_ms, shown_time

#: Reports that may be of a record whose time is refused.
_MAY_BE_TIMES = frozenset({KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD})
#: By how much the broker's clock may differ from this machine's, or time may pass in a transaction.
_MARGIN_MS = 900_000
#: How many records one error names for the next attempt; what is refused beyond them costs another one.
_NAMED = 1_000


class SentTimes:
    """The times of a producer's records since the last :meth:`clear`, as far as they may be refused.

    :param limits: limits of the topics that the producer writes, as far as they are known.
    """

    __slots__ = ("_after_ms", "_before_ms", "_dated", "_furthest", "_limits", "_refused")

    def __init__(self, limits: Mapping[str, TopicLimits]) -> None:
        self._limits = limits
        self._before_ms = min(of.before_ms for of in (BROKER_LIMITS, *limits.values())) - _MARGIN_MS
        self._after_ms = min(of.after_ms for of in (BROKER_LIMITS, *limits.values())) - _MARGIN_MS
        #: By a record's content, the times at which it was sent and how far each lies beyond the limit.
        self._dated: dict[str, list[tuple[int, int]]] = {}
        #: By topic, why it refused records of batches with several such, by their content and time.
        self._refused: defaultdict[str, dict[str, str]] = defaultdict(dict)
        #: Of each partition that refused a batch for one record: how far beyond, what, and why.
        self._furthest: dict[TopicPartition, tuple[int, str, str]] = {}

    def taken(self) -> tuple[int, int]:
        """Return a span of times that every topic takes, whatever the broker's clock says: the first, 1 at
        least, and the last, epoch milliseconds.
        """
        now_ms = _now_ms()
        return max(1, now_ms - self._before_ms), now_ms + self._after_ms

    def note(self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int) -> tuple[int, int]:
        """Remember a record that is about to be sent, if its topic may refuse its time.

        :return: the same as :meth:`taken`.
        """
        beyond = beyond_ms(timestamp_ms, _now_ms(), self._limits.get(topic, BROKER_LIMITS))
        if beyond > -_MARGIN_MS:
            self._dated.setdefault(content_id(topic, key, value), []).append((beyond, timestamp_ms))
        return self.taken()

    def clear(self) -> None:
        """Forget what was sent: it was taken, or does not count."""
        self._dated.clear()
        self._furthest.clear()
        self._refused.clear()

    def report(self, code: int, at: TopicPartition, key: bytes | None, value: bytes | None) -> None:
        """Take the delivery report of a record that was not delivered.

        :param code: the client's error code.
        """
        if code not in _MAY_BE_TIMES:
            return
        sent = self._dated.get(content_id(at.topic, key, value))
        if not sent:
            return
        furthest = max(sent)
        beyond, timestamp_ms = furthest
        name = content_id(at.topic, key, value, timestamp_ms)
        why = shown_time(timestamp_ms, _now_ms(), self._limits.get(at.topic))
        if code == KafkaError.INVALID_RECORD:
            sent.remove(furthest)
            if len(self._refused[at.topic]) < _NAMED:
                self._refused[at.topic][name] = why
        elif beyond > self._furthest.get(at, (-_MARGIN_MS, "", ""))[0]:
            self._furthest[at] = (beyond, name, why)

    def refused(self, topic: str) -> dict[str, str]:
        """Return why the broker refused records of a topic for their times, by their :func:`content_id`;
        empty if it refused none, or if no record was sent that may be to blame.
        """
        alone = {name: why for at, (_, name, why) in self._furthest.items() if at.topic == topic}
        return self._refused[topic] | alone


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
