"""Words counted on a Kafka in memory, by one task that commits after each, with results known beforehand."""

from __future__ import annotations

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.in_process import Application

APP = "app"
WORDS = "abaab"
#: The counts of the words, in order.
EXACT = [(b"a", 1), (b"b", 1), (b"a", 2), (b"a", 3), (b"b", 2)]


def kafka_with_words() -> InMemoryKafka:
    """Make a cluster that has the words in ``in``, and ``out``."""
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    for word in WORDS:
        kafka.append("in", word.encode(), word.encode())
    return kafka


def counting(kafka: InMemoryKafka, **settings: object) -> Application:
    """Make the application.

    :param settings: more of them, with underscores for dots.
    """
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").group_by_key().count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return Application(
        application_id=APP,
        topology=builder.build(),
        on=kafka,
        clock=kafka.clock,
        settings={"commit.every.records": 1, **more},
    )


def counts(kafka: InMemoryKafka) -> list[tuple[bytes | None, int]]:
    """Return the results that readers of committed records see."""
    return [(r.key(), int.from_bytes(r.value() or b"", "big")) for r in kafka.records("out")]
