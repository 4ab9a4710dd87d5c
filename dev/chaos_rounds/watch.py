"""Watches a run from outside: has it begun, how far is its work, is it finished."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from dev.chaos_rounds.evidence import headers_of
from dev.chaos_rounds.topics import APPLICATION_ID, METADATA, PARTITIONS

if TYPE_CHECKING:
    from confluent_kafka import Message

_LOOK_SECONDS = 0.3
_CLIENT_SECONDS = 30.0


class Watch:
    """Follows the metadata topic (read_committed) and the work (read_uncommitted).

    :param work: topics in which each input record shows once, as soon as it is written, committed or not.
    :ivar begun: completed markers of each run so far: the first is its begin, each further one a take-over.
    :ivar finished_at: monotonic seconds at which each run's finished marker was seen.
    :ivar frozen: topics between subtopologies whose stop is frozen, with the id of the run.
    :ivar records: written to the topics of work since :meth:`start`.
    """

    def __init__(self, bootstrap: str, work: Sequence[str]) -> None:
        self._metadata = _consumer(bootstrap, "read_committed")
        self._work = _consumer(bootstrap, "read_uncommitted")
        self._work.assign([TopicPartition(topic, n, 0) for topic in work for n in range(PARTITIONS[topic])])
        self._found = False
        self._looked = 0.0
        self.begun: Counter[str] = Counter()
        self.finished_at: dict[str, float] = {}
        self.frozen: set[tuple[str, str]] = set()
        self.records = 0

    def start(self) -> None:
        """Count from now on."""
        self.poll()
        self.records = 0

    def poll(self, seconds: float = 0.05) -> None:
        """Take in what is new, for at most so long."""
        for message in self._work.consume(5_000, timeout=seconds / 2):
            self.records += message.error() is None
        if not self._found:
            self._find()
            return
        for message in self._metadata.consume(100, timeout=seconds / 2):
            self._take(message)

    def look_again(self) -> None:
        """Read the metadata topic anew: what was committed before this call is known after it.

        :raises TimeoutError: its end was not reached.
        """
        if not self._found:
            return
        self.begun.clear()
        self._metadata.assign([TopicPartition(METADATA, 0, 0)])
        deadline = time.monotonic() + _CLIENT_SECONDS
        at_end = False
        while not at_end:
            for message in self._metadata.consume(1_000, timeout=0.1):
                at_end = self._take(message) or at_end
            if time.monotonic() > deadline:
                raise TimeoutError(f"did not reach the end of {METADATA}")

    def close(self) -> None:
        """Let go of the clients."""
        self._metadata.close()
        self._work.close()

    def _take(self, message: Message) -> bool:
        """Take in one message of the metadata topic; return whether it says that this is the end."""
        error = message.error()
        if error is not None:
            return error.name() == "_PARTITION_EOF"
        headers = headers_of(message)
        run_id = headers.get("kstreams.run", "")
        if headers.get("kstreams.kind") not in {None, "stop", "done"} and "kstreams.topic" in headers:
            self.frozen.add((run_id, headers["kstreams.topic"]))
        elif message.key() == APPLICATION_ID.encode():
            if message.value() == b"0":
                self.begun[run_id] += 1
            elif message.value() == b"1":
                self.finished_at.setdefault(run_id, time.monotonic())
        return False

    def _find(self) -> None:
        """Follow the metadata topic as soon as the first run has made it."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            known = self._metadata.list_topics(timeout=1).topics
        except KafkaException:
            return
        if METADATA in known and known[METADATA].partitions:
            self._metadata.assign([TopicPartition(METADATA, 0, 0)])
            self._found = True


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"watch-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
    )
