"""Decodes the letters of a dead-letter topic, and finds where that topic begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from airflow_kstreams.batch.protocol.logs.log_bounds import log_bounds
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import AdminPort, Clock, Record, TopicPartition
from airflow_kstreams.streams.records.dead_letter_format import DeadLetterOrigin, facts_of, origin_of
from airflow_kstreams.streams.settings import ApplicationSettings


class Letter(NamedTuple):
    """A record of a dead-letter topic.

    :param record: as it lies there.
    :param facts: what its headers say of the failure, by name: ``exception``, ``node``, ...; empty for a
        record that is no letter.
    :param origin: where it was consumed; None for a letter that belongs to no consumed record.
    """

    record: Record
    facts: Mapping[str, str]
    origin: DeadLetterOrigin | None

    @classmethod
    def of(cls, record: Record) -> Letter:
        """Read a record's headers."""
        headers = record.headers()
        return cls(record, facts_of(headers)[0], origin_of(headers))

    @property
    def whole(self) -> bool:
        """Whether it can come back: it belongs to a record, and holds all of it."""
        return self.origin is not None and not self.origin.left_out

    @property
    def place(self) -> str:
        """Where the letter itself lies."""
        return f"{self.record.topic()}-{self.record.partition()}@{self.record.offset()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterLog:
    """A dead-letter topic at one moment.

    :param topic_id: of the topic.
    :param starts: first offset of each partition, by its number.
    :param stops: last stable offset of each partition.
    """

    topic_id: str
    starts: Mapping[int, int]
    stops: Mapping[int, int]

    @classmethod
    def look(cls, admin: AdminPort, settings: ApplicationSettings, clock: Clock) -> LetterLog:
        """Look where the dead-letter topic of an application begins and ends.

        :raises ConfigError: there is none.
        """
        topic = settings.dead_letter_topic
        described = admin.describe_topics([topic]).get(topic)
        if described is None:
            raise ConfigError(
                f"the dead-letter topic {topic!r} does not exist",
                fix="check the application id, and errors.dead.letter.queue.topic.name if you set it; the "
                "topic is made by the first run with the error handler 'dead-letter'",
            )
        partitions = [TopicPartition(topic, number) for number in range(described.partitions)]
        bounds = log_bounds(admin, partitions, settle_ms=settings.settle_ms, clock=clock)
        return cls(
            topic_id=described.topic_id,
            starts={tp.partition: log_of.start for tp, log_of in bounds.items()},
            stops={tp.partition: log_of.stable for tp, log_of in bounds.items()},
        )
