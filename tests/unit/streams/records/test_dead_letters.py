"""Dead letters as large as they may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_kstreams.streams.errors import RecordError, record_refused
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.records.dead_letter_format import DeadLetters, origin_of
from airflow_kstreams.testing.in_memory_kafka.log import batch_bytes
from tests.support.topology.records import FakeRecord

pytestmark = pytest.mark.promise("dead-letters-name-their-record")

KEY, VALUE = b"k" * 5_000, b"v" * 90_000
OWN: Headers = [("own", b"o" * 3_000)]
ERROR = ValueError("é" * 50_000)
RECORD: Any = FakeRecord(at=7, key_bytes=KEY, value_bytes=VALUE, header_list=OWN, timestamp_ms=5)


@dataclass
class Client:
    """A client that takes so many bytes."""

    takes: int = 10_000_000
    sent: list[tuple[bytes | None, bytes | None, Headers]] = field(default_factory=list)

    def produce(self, topic: str, value: Any, key: Any, _: int, time_ms: int, headers: Headers) -> None:
        if batch_bytes([(key, value, time_ms, headers)]) > self.takes:
            raise record_refused(topic, -1, "MSG_SIZE_TOO_LARGE")
        self.sent.append((key, value, headers))


#: What a letter may be large, and what it holds then.
HOLDS = [
    (200_000, True, True, True, ""),
    (30_000, False, True, True, "the value (90,000 bytes)"),
    (17_000, False, False, True, "the value (90,000 bytes), the key (5,000 bytes) and 1 header"),
    (3_000, False, False, False, "the value (90,000 bytes), the key (5,000 bytes) and 1 header"),
]


@pytest.mark.parametrize("whose", ["topic", "client"])
@pytest.mark.parametrize(("limit", "value", "key", "texts", "left_out"), HOLDS)
def test_letter_holds_what_fits_and_always_its_place(
    whose: str, limit: int, value: bool, key: bool, texts: bool, left_out: str
) -> None:
    client = Client(takes=limit) if whose == "client" else Client()
    letters = DeadLetters(
        client.produce,
        topic="dead",
        topic_ids={"in": "id"},
        limit_bytes=limit if whose == "topic" else 10_000_000,
    )

    assert letters.send(RECORD, ERROR, "node", 5) == left_out

    ((sent_key, sent_value, headers),) = client.sent
    assert batch_bytes([(sent_key, sent_value, 5, headers)]) <= limit
    assert (sent_value, sent_key) == (VALUE if value else None, KEY if key else None)
    origin = origin_of(headers)
    assert origin is not None
    assert (str(origin), origin.left_out) == ("in-0@7", left_out)
    assert origin.headers == (OWN if key else [])
    message = dict(headers)["__streams.errors.message"] or b""
    assert message.decode() == ("é" * 2_000 + "... (cut, 50,000 characters)" if texts else "... (cut)")


def test_run_fails_when_not_even_a_place_fits() -> None:
    letters = DeadLetters(Client().produce, topic="dead", topic_ids={"in": "id"}, limit_bytes=100)
    with pytest.raises(RecordError, match=r"no dead letter fits into max\.message\.bytes = 100"):
        letters.send(RECORD, ERROR, "node", 5)


def test_letter_of_a_timer_is_cut_too() -> None:
    client = Client()
    assert (
        DeadLetters(client.produce, topic="dead", topic_ids={"in": "id"}, limit_bytes=1_000).send(
            None, ERROR, "node", 5
        )
        == ""
    )
    ((key, value, headers),) = client.sent
    assert (key, value, origin_of(headers)) == (None, None, None)
