"""Publishes the records of a file to a topic, which is made where it is missing.

A file is looked at as a whole before its first record is sent, so a bad line publishes nothing. What comes
from a pipe can be read only once: there the records before the first bad line are published, and counted. A
record counts once the broker has acknowledged it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, ClassVar

from airflow_kstreams.first_steps.record_file import BadLineError, FileRecord, RecordFormat
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.ports import AdminPort, ClusterPort, TopicSpec

#: Old records are neither refused nor deleted.
_KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
#: Number of records that are sent before the broker's answers are awaited.
_STEP = 5_000
#: Number of lines that an error names for each kind of fault.
_NAMED = 5


class PublicationError(KStreamsError):
    """Records of a file were not published, or not all of them."""

    own_code: ClassVar[str] = "KS-FIRST-003"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContents:
    """The facts of a file that are known before it is published.

    :param records: the number of its records.
    :param oldest_ms: time of the oldest; None without times.
    """

    records: int
    oldest_ms: int | None


@dataclass(slots=True, kw_only=True)
class _BadLines:
    """The lines of a file that have one kind of fault."""

    first: BadLineError
    lines: int = 0
    named: list[int] = field(default_factory=list)

    def count(self, bad: BadLineError) -> None:
        self.lines += 1
        if len(self.named) < _NAMED:
            self.named.append(bad.line)

    def __str__(self) -> str:
        if self.lines == 1:
            return self.first.cause
        more = ", ..." if self.lines > len(self.named) else ""
        return f"{self.first.cause} ({self.lines:,} such lines: {', '.join(map(str, self.named))}{more})"


def look(layout: RecordFormat, file: IO[bytes], name: str) -> FileContents:
    """Read a file to its end.

    :raises PublicationError: lines are bad; of each kind of fault the first line is quoted, and the first few
        are named.
    """
    faults: dict[str, _BadLines] = {}
    records = 0
    oldest: int | None = None
    for each in layout.records(file, name):
        if isinstance(each, FileRecord):
            records += 1
            if each.timestamp_ms is not None:
                oldest = each.timestamp_ms if oldest is None else min(oldest, each.timestamp_ms)
        else:
            faults.setdefault(each.kind, _BadLines(first=each)).count(each)
    if faults:
        raise PublicationError(
            f"nothing was published: {'; '.join(map(str, faults.values()))}",
            fix="mend these lines, or leave them out, and publish the file again",
        )
    return FileContents(records=records, oldest_ms=oldest)


def make_topic(admin: AdminPort, topic: str, partitions: int) -> bool:
    """Make a topic that keeps old records; return False if it exists.

    :raises KafkaClientError: the broker refuses, or does not answer.
    """
    if topic in admin.describe_topics([topic]):
        return False
    admin.create_topics([TopicSpec(name=topic, partitions=partitions, configs=_KEEP)])
    return True


def warning_of_dates(admin: AdminPort, topic: str, oldest_ms: int) -> str | None:
    """Return a warning if Kafka deletes records of this date from a topic soon; None if it does not.

    :raises KafkaClientError: the broker does not answer.
    """
    found = admin.topic_configs([topic]).found.get(topic)
    if found is None or "delete" not in found.get("cleanup.policy", "delete"):
        return None
    retention_ms = int(found.get("retention.ms", "-1"))
    if retention_ms < 0 or oldest_ms >= time.time() * 1000 - retention_ms:
        return None
    return (
        f"warning: topic {topic} keeps records for {retention_ms / 86_400_000:.3g} days by their date, and "
        "the oldest of these is older, so Kafka deletes it soon; set retention.ms=-1 for the topic to keep it"
    )


def publish(
    cluster: ClusterPort,
    topic: str,
    records: Iterator[FileRecord | BadLineError],
    *,
    on_progress: Callable[[int], None] = lambda _records: None,
) -> int:
    """Send records, and wait until the broker has them; return how many.

    :param on_progress: called now and then with the number of records that the broker has by now.
    :raises PublicationError: a line is bad, or a record did not reach the broker; it says what did.
    """
    writer = cluster.writer(transactional_id=None)
    done, last_line = 0, 0
    try:
        while True:
            sent, failed, line = 0, None, last_line
            for each in islice(records, _STEP):
                if isinstance(each, BadLineError):
                    failed = each
                    break
                writer.produce(topic, each.value, each.key, -1, each.timestamp_ms, None)
                sent, line = sent + 1, each.line
            writer.flush()
            done, last_line = done + sent, line
            on_progress(done)
            if failed is not None:
                raise failed
            if sent < _STEP:
                return done
    except KStreamsError as error:
        published = f"up to line {last_line}" if done else "nothing"
        raise PublicationError(
            f"published for certain: {counted(done, 'record')} ({published}); {error.cause}",
            fix=error.fix or f"mend the line, and publish what begins with line {last_line + 1}",
        ) from None
    finally:
        writer.close()
