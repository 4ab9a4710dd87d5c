"""The verifier: a program of its own that reads what is in Kafka and says whether anything is wrong.

It knows the input, what the application means, and KIP-95's records, and imports nothing of the engine. It
prints one JSON object: ``violations``, and how much it looked at. The exit code is 1 when there are any.

::

    python -m dev.chaos_rounds.verifier --bootstrap HOST:PORT --transcript FILE --finished RUN-ID ...
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from dev.chaos_rounds.checks import verdict
from dev.chaos_rounds.evidence import Evidence, Partition, Row, Seen, headers_of
from dev.chaos_rounds.topics import (
    APPLICATION_ID,
    CHANGELOGS,
    METADATA,
    MOVED,
    PAYMENTS,
    REPARTITION,
    RESULTS,
)

T = TypeVar("T")

_CLIENT_SECONDS = 30.0
#: How long transactions of dead processes may stay open, and the follower may lag: the longest transaction,
#: the broker's own pause between two looks, and a machine that is busy.
_SETTLE_SECONDS = 40.0
_PAUSE_SECONDS = 0.1
#: Read from their beginnings. The repartition topic is purged after each run: only its ends are looked at.
_READ = (PAYMENTS, *RESULTS, METADATA, *CHANGELOGS.values())


def main(arguments: Sequence[str]) -> int:
    """Verify, print the verdict, and return the exit code."""
    options = parser().parse_args(arguments)
    evidence = gather(options.bootstrap, Path(options.transcript), options.finished)
    return report(evidence, verdict(evidence))


def report(evidence: Evidence, violations: Sequence[str]) -> int:
    """Print what is wrong, and how much was looked at; return the exit code."""
    said = {
        "violations": violations,
        "records": {topic: len(rows) for topic, rows in evidence.logs.items()},
        "seen": len(evidence.seen),
    }
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    return 1 if violations else 0


def gather(
    bootstrap: str,
    transcript: Path,
    finished: Sequence[str],
    *,
    between: Sequence[str] = (MOVED, REPARTITION),
) -> Evidence:
    """Collect the evidence. Waits, within bounds, until no transaction is open and the follower has seen all;
    what is not so by then is evidence, too.

    :param between: topics between subtopologies.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    partitions = _partitions(admin, tuple(dict.fromkeys((*_READ, *between))))
    ends = _waited(lambda: _ends(admin, partitions), _settled)
    with _consumer(bootstrap) as consumer:
        logs = _logs(consumer, {partition: ends[partition] for partition in ends if partition[0] in _READ})
        committed = _committed(consumer, [tp for tp in partitions if tp[0] in (PAYMENTS, *between)])
    last = {(topic, row.partition): row.offset for topic in RESULTS for row in logs[topic]}
    seen = _waited(lambda: read_transcript(transcript), lambda rows: _covers(rows, last))
    return Evidence(logs=logs, ends=ends, committed=committed, seen=seen, finished=finished)


def read_transcript(path: Path) -> list[Seen]:
    """Read what the follower wrote; a line that it is still writing does not count."""
    text = path.read_bytes() if path.exists() else b""
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    decode = msgspec.json.Decoder(Seen).decode
    return [decode(line) for line in lines]


def _waited(look: Callable[[], T], enough: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not enough(found := look()) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return found


def _settled(ends: Mapping[Partition, tuple[int, int]]) -> bool:
    return all(stable == high for (topic, _), (stable, high) in ends.items() if topic != PAYMENTS)


def _covers(seen: Sequence[Seen], last: Mapping[Partition, int]) -> bool:
    reached = {(row.topic, row.partition): row.offset for row in seen}
    return all(reached.get(partition, -1) >= offset for partition, offset in last.items())


def _partitions(admin: AdminClient, topics: Sequence[str]) -> list[Partition]:
    known = admin.list_topics(timeout=_CLIENT_SECONDS).topics
    return [(topic, number) for topic in topics if topic in known for number in known[topic].partitions]


def _ends(admin: AdminClient, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return last stable offset and high watermark."""
    stable = _end(admin, partitions, IsolationLevel.READ_COMMITTED)
    high = _end(admin, partitions, IsolationLevel.READ_UNCOMMITTED)
    return {partition: (stable[partition], high[partition]) for partition in partitions}


def _end(
    admin: AdminClient, partitions: Sequence[Partition], isolation: IsolationLevel
) -> dict[Partition, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(*partition): latest for partition in partitions}
    answers = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_CLIENT_SECONDS)
    return {(tp.topic, tp.partition): answer.result().offset for tp, answer in answers.items()}


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": APPLICATION_ID,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.list_topics(timeout=_CLIENT_SECONDS)
        yield consumer
    finally:
        consumer.close()


def _logs(consumer: Consumer, ends: Mapping[Partition, tuple[int, int]]) -> dict[str, list[Row]]:
    """Read whole logs up to the given stable ends.

    :raises TimeoutError: an end was not reached.
    """
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in ends])
    rows: dict[str, list[Row]] = defaultdict(list, {topic: [] for topic in _READ})
    left = {partition for partition, (stable, _) in ends.items() if stable}
    deadline = time.monotonic() + _CLIENT_SECONDS
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"did not reach the ends of {sorted(left)}")
        for message in consumer.consume(10_000, timeout=0.2):
            partition = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                if (message.offset() or 0) < ends[partition][0]:
                    rows[partition[0]].append(row_of(message))
            elif error.name() == "_PARTITION_EOF":
                if (message.offset() or 0) >= ends[partition][0]:
                    left.discard(partition)
            elif not error.retriable():
                raise KafkaException(error)
    consumer.assign([])
    for topic in rows:
        rows[topic].sort(key=lambda row: (row.partition, row.offset))
    return rows


def row_of(message: Message) -> Row:
    """Take what is judged from a record."""
    key, value = message.key(), message.value()
    return Row(
        message.partition() or 0,
        message.offset() or 0,
        key.decode() if key is not None else None,
        value.decode() if value is not None else None,
        headers_of(message),
    )


def _committed(consumer: Consumer, partitions: Sequence[Partition]) -> dict[Partition, int]:
    asked = [TopicPartition(*partition) for partition in partitions]
    return {(tp.topic, tp.partition): tp.offset for tp in consumer.committed(asked, timeout=_CLIENT_SECONDS)}


def parser(description: str | None = __doc__) -> argparse.ArgumentParser:
    """Return the parser of what a verifier is told.

    :param description: of the program.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", required=True, help="the broker itself, not the proxy")
    parser.add_argument("--transcript", required=True, help="what the follower wrote")
    parser.add_argument("--finished", nargs="*", default=[], help="runs that a driver reported as finished")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
