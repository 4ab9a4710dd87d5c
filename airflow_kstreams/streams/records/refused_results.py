"""Results that their topic does not take, and what is left out (``production.exception.handler``).

Rule: a result is left out only if no broker has taken it. What the client refuses is left out where it was to
be sent. What the broker refuses for its size fails the attempt, which aborts; the next attempt knows the
result by its content and leaves it out before it is sent. So what is committed is what a topology would have
given that never made the result. Changelogs are not sent by what this module makes, and are never left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from airflow_kstreams.streams.errors import RecordError
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.dead_letter_format import Produce


class RefusedResultError(Exception):
    """A result that its topic does not take.

    :param refused: what client or broker said.
    """

    own_words = True  # nothing of them is to be hidden

    def __init__(self, refused: RecordError) -> None:
        super().__init__(refused.cause)
        self.refused = refused


def content_id(topic: str, key: bytes | None, value: bytes | None) -> str:
    """Return what tells a record from those with other content.

    >>> content_id("out", b"a", None) == content_id("out", b"a", b"")
    False
    """
    digest = blake2b(topic.encode(), digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return digest.hexdigest()


def leaving_out(produce: Produce, by_broker: Mapping[str, RecordError]) -> Produce:
    """Return what sends results and raises :class:`RefusedResultError` for those that are not taken.

    :param produce: sends a record.
    :param by_broker: what the broker refused in earlier attempts, by :func:`content_id`.
    """

    def send(
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        refused = by_broker.get(content_id(topic, key, value)) if by_broker else None
        if refused is not None:
            raise RefusedResultError(refused)
        try:
            produce(topic, value, key, partition, timestamp_ms, headers)
        except RecordError as error:
            raise RefusedResultError(error) from error

    return send
