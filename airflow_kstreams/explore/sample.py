"""Keeps a sample of input records, so that an edited topology gets exactly the same ones."""

from __future__ import annotations

import hashlib
import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from airflow_kstreams.streams.errors import ConfigError, unwritable
from airflow_kstreams.streams.plan import decode_json, json_decoder
from airflow_kstreams.streams.ports import TopicPartition

FORMAT = "airflow-kstreams sample"
VERSION = 1


class SampleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record in the form it has in Kafka.

    :param topic: real name.
    :param key: serialized, None if it has none.
    :param value: serialized, None if it has none.
    :param timestamp_ms: epoch milliseconds, -1 if it has none.
    :param headers: headers in their order; names may repeat.
    """

    topic: str
    partition: int = 0
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] = []

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a sample's file."""

    format: str
    version: int
    taken_ms: int
    partitions: dict[str, int]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Records of several topics.

    :param records: the records, those of each partition in offset order.
    :param partitions: partition count of every topic of the topology that exists.
    :param taken_ms: time of the reading, epoch milliseconds; 0 for a sample made by hand.
    """

    records: tuple[SampleRecord, ...]
    partitions: dict[str, int] = {}
    taken_ms: int = 0

    def topics(self) -> dict[str, int]:
        """Return the number of records of each topic."""
        counts = dict.fromkeys(self.partitions, 0)
        for record in self.records:
            counts[record.topic] = counts.get(record.topic, 0) + 1
        return counts

    def digest(self) -> str:
        """Return a text that is equal for equal records."""
        return hashlib.sha256(msgspec.msgpack.encode(self.records)).hexdigest()

    def in_run_order(self) -> Iterator[SampleRecord]:
        """Return the records as a run would choose them: the smallest timestamp among the next records of all
        partitions first, ties by (topic, partition); each partition in offset order.
        """
        partitions: dict[TopicPartition, list[SampleRecord]] = {}
        for record in self.records:
            partitions.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        # A merge always yields the smallest head, so a partition's timestamps may go back.
        return heapq.merge(
            *partitions.values(), key=lambda record: (record.timestamp_ms, record.topic, record.partition)
        )

    def save(self, path: str | Path) -> None:
        """Write the sample to a file: a JSON object a line, keys and values in Base64.

        The file holds real data, so only its owner may read it. It appears whole or not at all.

        :param path: replaced if it exists.
        :raises ConfigError: it cannot be written.
        """
        header = _Header(format=FORMAT, version=VERSION, taken_ms=self.taken_ms, partitions=self.partitions)
        write_private(path, b"".join(msgspec.json.encode(line) + b"\n" for line in (header, *self.records)))

    @classmethod
    def load(cls, path: str | Path) -> Sample:
        """Read a sample that was saved.

        :param path: a file of ``save``.
        :raises ConfigError: the file cannot be read, or is no sample of this version.
        """
        try:
            first, *lines = Path(path).read_bytes().splitlines()
            header = decode_json(first, _Header)
            if (header.format, header.version) != (FORMAT, VERSION):
                raise ValueError(f"it has version {header.version}, expected {VERSION}")  # noqa: TRY301
            records = _decoded(lines)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the sample {str(path)!r} cannot be read: {error}",
                fix="delete it, or name another file, to take a new sample",
            ) from None
        return cls(records=records, partitions=header.partitions, taken_ms=header.taken_ms)


def write_private(path: str | Path, content: bytes) -> None:
    """Write a file that only its owner may read; it appears whole or not at all.

    :raises ConfigError: it cannot be written.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


def _decoded(lines: Iterable[bytes]) -> tuple[SampleRecord, ...]:
    decode = json_decoder(SampleRecord).decode
    return tuple(decode(line) for line in lines)
